//! The matcher of denies and asks: it looks through whatever may run its operands, and takes every
//! word that may be a program for one.

use super::{CommandFacts, Exact, programs};
use crate::floor::fold_text;

/// What a deny or an ask names; all of it must be there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::policy) struct Shape {
    /// File names of programs, folded; any if empty.
    pub(in crate::policy) program: Vec<String>,
    /// Words that may be the subcommand, folded; any if empty.
    pub(in crate::policy) subcommand: Vec<String>,
    /// Flags without their hyphens, folded.
    pub(in crate::policy) flags_all: Vec<String>,
    /// Words, folded.
    pub(in crate::policy) argv_contains: Vec<String>,
}

/// A command with all the commands that may hide in it, folded.
#[derive(Debug)]
pub(in crate::policy) struct Seen {
    lists: Vec<Words>,
}

#[derive(Debug)]
struct Words {
    words: Vec<String>,
    /// Where a command may begin.
    starts: Vec<usize>,
}

impl Seen {
    /// Looks through a command.
    pub(in crate::policy) fn of(command: &CommandFacts) -> Self {
        let folded: Vec<String> = command.argv.iter().map(|word| fold_text(word)).collect();
        let all = (0..folded.len()).collect();
        let mut lists = Vec::new();
        if programs::runs_operands(command) {
            for word in &folded {
                let words = raw_tokens(word);
                lists.push(Words { starts: (0..words.len()).collect(), words });
            }
            lists.push(Words { words: folded.clone(), starts: all });
        } else {
            let program = folded.first().map_or("", |word| base_name(word));
            let rest = folded.get(1..).unwrap_or_default();
            let starts = if programs::takes_data(program, rest) { vec![0] } else { all };
            lists.push(Words { words: folded.clone(), starts });
        }
        if let Some(real) = &command.real_name {
            let mut words = folded;
            if let Some(first) = words.first_mut() {
                *first = fold_text(real);
            }
            lists.push(Words { words, starts: vec![0] });
        }
        Self { lists }
    }

    /// Whether in any list a command begins that `begins` takes for one, and what follows passes `test`:
    /// it is given what follows each such beginning, the first and longest one first.
    fn any(
        &self,
        begins: impl Fn(&str) -> bool,
        test: impl Fn(&mut dyn Iterator<Item = &[String]>) -> bool,
    ) -> bool {
        self.lists.iter().any(|list| {
            let mut found = list.starts.iter().filter_map(|start| {
                let (program, rest) = list.words.get(*start..)?.split_first()?;
                begins(base_name(program)).then_some(rest)
            });
            test(&mut found)
        })
    }
}

impl Shape {
    /// Whether a command may be, or hide, what this names.
    ///
    /// Flags and words are looked for behind the first beginning alone: what follows a later one follows
    /// the first as well, so that the time stays in proportion to the command.
    pub(in crate::policy) fn may_be(&self, seen: &Seen) -> bool {
        let begins =
            |program: &str| self.program.is_empty() || self.program.iter().any(|named| named == program);
        seen.any(begins, |mut found| {
            let Some(first) = found.next() else { return false };
            let named = |word: &String| self.program.contains(word);
            self.flags_all.iter().all(|flag| has_flag(first, flag))
                && self
                    .argv_contains
                    .iter()
                    .all(|word| named(word) || first.iter().any(|given| has_word(given, word)))
                && (self.subcommand.is_empty()
                    || has_subcommand(first, &self.subcommand)
                    || Iterator::any(&mut found, |rest| has_subcommand(rest, &self.subcommand)))
        })
    }
}

impl Exact {
    /// As a deny: its words in this order, with whatever else between and behind.
    pub(in crate::policy) fn may_be(&self, seen: &Seen) -> bool {
        let folded: Vec<Vec<String>> = self
            .argv
            .iter()
            .map(|alternatives| alternatives.iter().map(|word| fold_text(word)).collect())
            .collect();
        let Some((program, later)) = folded.split_first() else { return false };
        let begins = |given: &str| program.iter().any(|named| base_name(named) == given);
        seen.any(begins, |found| {
            found.next().is_some_and(|rest| {
                let mut words = rest.iter();
                later.iter().all(|alternatives| words.any(|word| alternatives.contains(word)))
            })
        })
    }
}

/// A program's file name.
fn base_name(word: &str) -> &str {
    let name = word.rsplit('/').next().unwrap_or(word);
    name.strip_suffix(".exe").unwrap_or(name)
}

/// What a shell or an interpreter may make of a text: quotes joined, and every other mark of theirs
/// a border.
fn raw_tokens(text: &str) -> Vec<String> {
    let joined: String = text.chars().filter(|c| !matches!(c, '\'' | '"' | '\\')).collect();
    let border = |c: char| c.is_whitespace() || ";|&<>()`${},=[]!".contains(c);
    let mut tokens = Vec::new();
    for token in joined.split(border).filter(|token| !token.is_empty()) {
        tokens.push(token.to_owned());
        // `-Srm`: a value without a space before it.
        let mut letters = token.chars();
        if letters.next() == Some('-') && letters.next().is_some_and(|letter| letter != '-') {
            tokens.extend(Some(letters.as_str()).filter(|value| !value.is_empty()).map(str::to_owned));
        }
    }
    tokens
}

/// Words before a subcommand that are looked at; with more of them it may be anything.
const MOST_FLAGS: usize = 64;

/// The subcommand is the first word that is no flag; one behind a flag may be the flag's value, so
/// that the next one counts as well.
fn has_subcommand(rest: &[String], wanted: &[String]) -> bool {
    let mut behind_flag = false;
    for (at, word) in rest.iter().enumerate() {
        if at == MOST_FLAGS {
            return true;
        }
        if word.starts_with('-') {
            behind_flag = true;
            continue;
        }
        if wanted.contains(word) {
            return true;
        }
        if !behind_flag {
            return false;
        }
        behind_flag = false;
    }
    false
}

/// A flag in any of its spellings: in a cluster of letters, long, shortened, with a value. A letter
/// stands for every long flag that begins with it.
fn has_flag(rest: &[String], wanted: &str) -> bool {
    let one = wanted.chars().count() == 1;
    rest.iter().any(|word| match word.strip_prefix("--") {
        Some(long) => {
            let name = long.split('=').next().unwrap_or(long);
            !name.is_empty() && if one { name.starts_with(wanted) } else { wanted.starts_with(name) }
        }
        None => word.strip_prefix('-').is_some_and(|letters| {
            letters == wanted
                || letters.split('=').next() == Some(wanted)
                || (one && letters.contains(wanted))
        }),
    })
}

fn has_word(given: &str, wanted: &str) -> bool {
    given == wanted || given.split('=').any(|part| part == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::command::words;

    fn seen(text: &str) -> Seen {
        let argv = words(text).unwrap_or_else(|told| panic!("{text}: {told}"));
        Seen::of(&CommandFacts::read(argv, &mut |_| None))
    }

    fn shape(program: &str, subcommand: &str, flags: &[&str]) -> Shape {
        let list = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        Shape {
            program: list(program),
            subcommand: list(subcommand),
            flags_all: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            argv_contains: Vec::new(),
        }
    }

    #[test]
    fn a_denied_program_is_found_wherever_it_hides() {
        let rm = shape("rm", "", &[]);
        for text in [
            "rm x",
            "/bin/rm x",
            "/bin/./rm x",
            "RM x",
            "rm.exe x",
            "sudo -u root rm x",
            "env A=1 rm x",
            "env '-Srm x'",
            "timeout 5 rm x",
            "nohup nice -n 5 setsid rm x",
            "xargs rm",
            "busybox rm x",
            "bash -c 'rm -rf /'",
            "sh -c -- 'rm -rf /'",
            "bash -c -o pipefail 'rm x'",
            "bash -c \"r''m x\"",
            "find . -exec rm {} +",
            "chroot /new sh -c 'rm -rf /'",
            "flock /tmp/l -c 'rm x'",
            "ssh host 'rm -rf x'",
            "/usr/bin/time -p rm -rf /tmp/x",
            "frobnicate --with rm x",
            "python3 -c 'import os; os.system(\"rm x\")'",
            "perl -ne 'system(\"rm\")'",
            "fd -x rm",
            "awk 'BEGIN{system(\"rm x\")}'",
            "sh -c '{rm,-rf,x}'",
            "git -c alias.x='!rm y' x",
        ] {
            assert!(rm.may_be(&seen(text)), "{text}");
        }
        for text in [
            "echo 'rm -rf /'",
            "echo rm",
            "git commit -m 'rm x'",
            "grep rm src",
            "cargo rm serde",
            "ls",
            "frobnicate 'rm x'",
            "rmdir x",
            "command -v rm",
        ] {
            assert!(!rm.may_be(&seen(text)), "{text}");
        }
    }

    #[test]
    fn subcommands_and_flags_in_every_spelling() {
        let push = shape("git", "push", &[]);
        for text in ["git push", "git -C . push", "git -c a=b push x", "timeout 5 git push", "git PUSH"]
        {
            assert!(push.may_be(&seen(text)), "{text}");
        }
        for text in ["git commit -m 'do not git push'", "git commit -m push", "git log", "push"] {
            assert!(!push.may_be(&seen(text)), "{text}");
        }
        let rf = shape("rm", "", &["r", "f"]);
        for text in [
            "rm -rf /",
            "rm -fr /",
            "rm -R -f x",
            "rm --recursive --force /",
            "rm -r -v -f /",
            "rm x -rf",
            "rm --rec --for x",
        ] {
            assert!(rf.may_be(&seen(text)), "{text}");
        }
        for text in ["rm -r x", "rm x", "ls -rf"] {
            assert!(!rf.may_be(&seen(text)), "{text}");
        }
        let force = shape("git", "push", &["force"]);
        assert!(force.may_be(&seen("git push --force")) && force.may_be(&seen("git push --forc")));
        assert!(!force.may_be(&seen("git push --follow-tags")));
    }
}
