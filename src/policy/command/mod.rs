//! Commands as a policy sees them: the words, what they name, and the two matchers.
//!
//! A grant covers only what is proven, word by word; a deny covers an over-approximation that looks
//! through whatever may run its operands. Using one matcher for both is how policies are bypassed.

mod grant;
mod inspect;
mod limit;
mod programs;
mod words;

use super::call::PathFacts;
pub use programs::{may_hide_a_runner, only_reads, runs_operands};
pub use words::words;

pub(super) use grant::{Exact, Operands, Rest};
pub(super) use inspect::{INSPECT, inspects};
pub(super) use limit::{Seen, Shape};
pub(super) use programs::{can_be_granted, in_place_of};

/// A command, resolved: its words, and every path that they may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandFacts {
    /// The words, the program's first. Never empty.
    pub argv: Vec<String>,
    /// Where the program is, if it is named by a path; a bare name is looked for in the clean
    /// `PATH` when the command is run, never in the workspace.
    pub program: Option<PathFacts>,
    /// The file name that the program's path leads to, where it is another one.
    pub real_name: Option<String>,
    /// What the other words may name.
    pub operands: Vec<Operand>,
}

/// A path that a word may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operand {
    /// The word's index.
    pub word: usize,
    /// The path.
    pub path: PathFacts,
}

impl CommandFacts {
    /// The facts of a command. `locate` says what a text is as a path; `None` for what is none.
    pub fn read(argv: Vec<String>, locate: &mut dyn FnMut(&str) -> Option<PathFacts>) -> Self {
        let named = argv.first().filter(|program| program.contains('/'));
        let program = named.and_then(|program| locate(program));
        let mut operands = Vec::new();
        for (word, text) in argv.iter().enumerate().skip(1) {
            for candidate in candidates(text) {
                operands.extend(locate(candidate).map(|path| Operand { word, path }));
            }
        }
        Self { argv, program, real_name: None, operands }
    }

    /// The command as a person would write it.
    pub fn shown(&self) -> String {
        shown(&self.argv)
    }
}

/// Words as a person would write them: those that a shell would read otherwise are quoted.
pub fn shown(argv: &[String]) -> String {
    let quoted = argv.iter().map(|word| {
        let plain = |c: char| c.is_alphanumeric() || "-_./:=@%+,".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Parts of one word that are looked at. No program reads a path behind as many signs.
const MOST_PARTS: usize = 64;

/// The parts of a word that may be paths: the word (behind `--` one that looks like a flag too), the value
/// of a flag, what follows a revision or an `@`. The word itself comes first.
fn candidates(word: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut add = |text: &str| {
        // Tied to the word's lifetime by searching in it.
        let from = word.len() - text.len();
        if !text.is_empty() && found.len() < MOST_PARTS && !found.contains(&from) {
            found.push(from);
        }
    };
    add(word);
    for separator in ['=', ':'] {
        let mut rest = word;
        while let Some((_, after)) = rest.split_once(separator) {
            add(after);
            rest = after;
        }
    }
    if let Some((_, after)) = word.split_once('@') {
        add(after);
    }
    if word.starts_with('-') && !word.starts_with("--") {
        // `-fVALUE`.
        let mut letters = word.chars();
        letters.next();
        letters.next();
        add(letters.as_str());
    }
    found.into_iter().filter_map(|from| word.get(from..)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paths_of_a_word() {
        let of = |word: &str| candidates(word).join(" ");
        assert_eq!(of("src/a.rs"), "src/a.rs");
        assert_eq!(of("--out=x/y"), "--out=x/y x/y");
        assert_eq!(of("HEAD:secrets/key.pem"), "HEAD:secrets/key.pem secrets/key.pem");
        assert_eq!(of("@.env"), "@.env .env");
        assert_eq!(of("-f.env"), "-f.env .env");
        assert_eq!(of("-C"), "-C");
        assert_eq!(of("--x"), "--x");
        assert_eq!(of("a=b=c:d"), "a=b=c:d b=c:d c:d d");
        assert_eq!(of(""), "");
    }

    #[test]
    fn a_command_is_shown_as_it_could_be_typed() {
        let argv = ["git", "commit", "-m", "it's done", ""].map(str::to_owned);
        assert_eq!(shown(&argv), "git commit -m 'it'\\''s done' ''");
    }
}
