//! The named set `$inspect`: what agents habitually type to look around, with the flags that only look.
//! A flag that isn't listed isn't covered, and no word may lead out of the workspace.

use super::{CommandFacts, grant::Operands};

/// The name of the set in a policy.
pub(in crate::policy) const INSPECT: &str = "$inspect";

/// A program of the set.
struct Looks {
    /// The program, or the program and its subcommand.
    words: &'static [&'static str],
    /// Flags of one letter, also in a cluster.
    letters: &'static str,
    /// Flags of one letter that take a value: the rest of the word, or the next word.
    valued: &'static str,
    /// Whole flags; one that ends in `=` takes any value.
    flags: &'static [&'static str],
    /// The most words that are no flags; what they may be is [`Means`].
    most: usize,
    operands: Means,
}

/// What a program takes its other words for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Means {
    /// Paths, patterns and revisions: none leads out of the workspace.
    Places,
    /// Text.
    Text,
}

const fn looks(
    words: &'static [&'static str],
    letters: &'static str,
    valued: &'static str,
    flags: &'static [&'static str],
) -> Looks {
    Looks { words, letters, valued, flags, most: usize::MAX, operands: Means::Places }
}

const GREP_FLAGS: &[&str] = &[
    "--color=",
    "--count",
    "--exclude-dir=",
    "--exclude=",
    "--files-with-matches",
    "--fixed-strings",
    "--ignore-case",
    "--include=",
    "--line-number",
    "--no-filename",
    "--only-matching",
    "--recursive",
    "--word-regexp",
];
const LOG_FLAGS: &[&str] = &[
    "--abbrev-commit",
    "--all",
    "--author=",
    "--cached",
    "--date=",
    "--decorate",
    "--first-parent",
    "--follow",
    "--format=",
    "--full-index",
    "--graph",
    "--grep=",
    "--max-count=",
    "--merges",
    "--name-only",
    "--name-status",
    "--no-color",
    "--no-ext-diff",
    "--no-merges",
    "--no-patch",
    "--no-textconv",
    "--numstat",
    "--oneline",
    "--patch",
    "--pretty=",
    "--reverse",
    "--shortstat",
    "--since=",
    "--staged",
    "--stat",
    "--summary",
    "--until=",
    "--word-diff",
];
const FIND_FLAGS: &[&str] = &[
    "!",
    "(",
    ")",
    "-a",
    "-and",
    "-empty",
    "-iname",
    "-ipath",
    "-iregex",
    "-maxdepth",
    "-mindepth",
    "-mmin",
    "-mtime",
    "-name",
    "-newer",
    "-not",
    "-o",
    "-or",
    "-path",
    "-print",
    "-print0",
    "-prune",
    "-regex",
    "-size",
    "-type",
];

/// The set, without `sed` and `echo`. No flag is in it that follows the links which a walk meets: those
/// lead out of the workspace, and no word tells. Nor one that takes `rg` to hidden files.
const SET: &[Looks] = &[
    looks(
        &["ls"],
        "1ACFGRSacdfghiklnopqrstux",
        "",
        &["--all", "--almost-all", "--color=", "--recursive"],
    ),
    Looks { most: 0, ..looks(&["pwd"], "LP", "", &[]) },
    looks(&["cat"], "AETbenstuv", "", &["--number", "--show-all"]),
    looks(&["head"], "qvz0123456789", "cn", &["--bytes=", "--lines="]),
    looks(&["tail"], "qvz0123456789", "cn", &["--bytes=", "--lines="]),
    looks(&["wc"], "Lclmw", "", &["--bytes", "--lines", "--words"]),
    looks(&["grep"], "EFGHILPZabchilnoqrsvwxz0123456789", "ABCem", GREP_FLAGS),
    looks(&["egrep"], "HILabchilnoqrsvwx", "ABCem", GREP_FLAGS),
    looks(&["fgrep"], "HILabchilnoqrsvwx", "ABCem", GREP_FLAGS),
    looks(
        &["rg"],
        "FHINPSUacilnoqsvwx",
        "ABCTegmt",
        &[
            "--color=",
            "--count",
            "--files",
            "--files-with-matches",
            "--fixed-strings",
            "--glob=",
            "--ignore-case",
            "--line-number",
            "--max-count=",
            "--no-heading",
            "--no-ignore",
            "--only-matching",
            "--type=",
            "--word-regexp",
        ],
    ),
    looks(&["find"], "", "", FIND_FLAGS),
    looks(&["git", "status"], "bsuz", "", &["--branch", "--porcelain", "--porcelain=", "--short"]),
    looks(&["git", "diff"], "bpuwz", "U", LOG_FLAGS),
    looks(&["git", "log"], "bgipuwz0123456789", "GSUn", LOG_FLAGS),
    looks(&["git", "show"], "bpsuwz", "U", LOG_FLAGS),
    // With a word it makes a branch.
    Looks {
        most: 0,
        ..looks(&["git", "branch"], "arv", "", &["--all", "--list", "--remotes", "--show-current"])
    },
    looks(&["which"], "as", "", &["--all"]),
    looks(&["sort"], "MRVbcdfghinrsuz", "kt", &["--numeric-sort", "--reverse", "--unique"]),
    // The second word is a file that it writes.
    Looks { most: 1, ..looks(&["uniq"], "cdiuz", "fsw", &["--count", "--ignore-case"]) },
    looks(
        &["cut"],
        "nsz",
        "bcdf",
        &["--complement", "--delimiter=", "--fields=", "--output-delimiter="],
    ),
    Looks { operands: Means::Text, ..looks(&["tr"], "Ccdst", "", &["--complement", "--delete"]) },
    looks(&["jq"], "CMRSacejnrs", "", &["--compact-output", "--raw-output", "--sort-keys", "--slurp"]),
];

/// Whether the set covers a command.
pub(in crate::policy) fn inspects(command: &CommandFacts) -> bool {
    let words: Vec<&str> = command.argv.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["echo", ..] => true,
        // What else it can do with a file is a language of its own.
        ["sed", "-n", script, rest @ ..] => {
            prints_lines(script)
                && rest.iter().enumerate().all(|(at, word)| {
                    !word.starts_with('-') && Operands::WorkspacePathsOrRevs.cover(command, at + 3)
                })
        }
        ["jq", rest @ ..] if rest.iter().any(|word| reads_modules(word)) => false,
        words => SET.iter().any(|looks| looks.covers(command, words)),
    }
}

/// `1,20p`: lines by their numbers.
pub(super) fn prints_lines(script: &str) -> bool {
    script.strip_suffix('p').is_some_and(|lines| {
        !lines.is_empty() && lines.chars().all(|c| c.is_ascii_digit() || matches!(c, ',' | '$'))
    })
}

/// Whether a program of `jq` may name a file itself: `import "x" as $x {search: "/etc"};`. A field of
/// that name is none.
fn reads_modules(program: &str) -> bool {
    ["import", "include"].iter().any(|directive| {
        program.match_indices(directive).any(|(at, _)| {
            let before = program.get(..at).and_then(|text| text.chars().next_back());
            !before.is_some_and(|c| matches!(c, '.' | '"' | '_') || c.is_alphanumeric())
        })
    })
}

impl Looks {
    fn covers(&self, command: &CommandFacts, words: &[&str]) -> bool {
        let Some(rest) = words.strip_prefix(self.words) else { return false };
        let (mut only_operands, mut value_comes, mut operands) = (false, false, 0usize);
        for (at, word) in rest.iter().enumerate() {
            let flag = word.len() > 1 && word.starts_with('-');
            if value_comes {
                value_comes = false;
            } else if !only_operands && *word == "--" {
                only_operands = true;
                continue;
            } else if !only_operands && (flag || self.flags.contains(word)) {
                match self.takes(word) {
                    Flag::Alone => continue,
                    Flag::ValueComes => value_comes = true,
                    Flag::Unknown => return false,
                }
                continue;
            } else {
                operands += 1;
            }
            let at = self.words.len() + at;
            let covered =
                self.operands == Means::Text || Operands::WorkspacePathsOrRevs.cover(command, at);
            if !covered || operands > self.most {
                return false;
            }
        }
        !value_comes
    }

    fn takes(&self, word: &str) -> Flag {
        let listed = self.flags.iter().any(|flag| match flag.ends_with('=') {
            true => word.starts_with(flag),
            false => word == *flag,
        });
        if listed {
            return Flag::Alone;
        }
        let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.starts_with('-')) else {
            return Flag::Unknown;
        };
        let mut letters = letters.chars();
        while let Some(letter) = letters.next() {
            if self.valued.contains(letter) {
                return if letters.as_str().is_empty() { Flag::ValueComes } else { Flag::Alone };
            }
            if !self.letters.contains(letter) {
                return Flag::Unknown;
            }
        }
        Flag::Alone
    }
}

enum Flag {
    Alone,
    ValueComes,
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        floor::{FileKind, PathFacts},
        policy::{command::words, path::read_path},
    };

    fn covered(text: &str) -> bool {
        let argv = words(text).unwrap_or_else(|told| panic!("{text}: {told}"));
        inspects(&CommandFacts::read(argv, &mut |given| {
            let place = read_path(given, "/work/tree").ok()?;
            let (lexical, resolved) = (place.clone(), place);
            let kind = FileKind::Regular;
            Some(PathFacts { given: given.to_owned(), lexical, resolved, kind, links: 1, bytes: 1 })
        }))
    }

    #[test]
    fn what_only_looks_is_covered() {
        for text in [
            "ls",
            "ls -la src",
            "pwd",
            "cat Cargo.toml",
            "head -5 a",
            "head -n 5 a",
            "head -n5 a",
            "tail -c 10 a",
            "wc -l a b",
            "grep -rn foo src",
            "grep -A5 -e foo --include='*.rs' .",
            "rg foo src",
            "rg -g '*.rs' foo",
            "find . -name '*.rs'",
            "find src -type f -not -path './x/*'",
            "sed -n 1,20p a",
            "git status",
            "git status -sb",
            "git diff --stat HEAD~1 -- src",
            "git log --oneline -n 5",
            "git log -p -5",
            "git show HEAD:src/a.rs",
            "git branch -a",
            "which cargo",
            "echo hello -x",
            "sort -k2 -n a",
            "uniq -c a",
            "cut -d: -f1 a",
            "tr a-z A-Z",
            "jq -r .name package.json",
            "jq '.include, .paths.import' tsconfig.json",
            "cat -- -x",
            "git branch --show-current",
        ] {
            assert!(covered(text), "{text}");
        }
    }

    #[test]
    fn what_writes_runs_or_leads_out_is_not() {
        for text in [
            "ls /etc",
            "cat /etc/passwd",
            "cat ../x",
            "head -1 /etc/hosts",
            "tail -f a",
            "grep -f /etc/x a",
            "grep -R x .",
            "grep -rR x .",
            "egrep -R x .",
            "ls -RL",
            "rg -L x",
            "rg --follow x",
            "rg -uu x",
            "rg --hidden x",
            r#"jq -n 'import "config" as $c {search: "/root/.docker"}; $c'"#,
            r#"jq 'module {}; include "x" {search: "/x"}; .' a"#,
            "rg --pre sh x",
            "rg --hostname-bin ./x y",
            "rg -z x",
            "find . -fls /tmp/out",
            "find . -delete",
            "find . -exec ls {} +",
            "find . -fprint x",
            "find . -ok x",
            "sed -i s/a/b/ f",
            "sed -n '1e id' a",
            "sed -n 'w x' f",
            "sed s/a/b/e f",
            "sort -o x f",
            "sort --output=x f",
            "sort -T /tmp f",
            "sort --compress-program=x f",
            "uniq a b",
            "git -p status",
            "git -C / status",
            "git -c a=b log",
            "git --exec-path=/x status",
            "git diff --no-index -- a b --x",
            "git diff --no-index a b",
            "git diff --output=x",
            "git log --ext-diff",
            "git show HEAD:../x",
            "git branch x",
            "git branch -d x",
            "git branch -dr origin/x",
            "git push",
            "git grep -Osh x",
            "man -Psh ls",
            "date -f x",
            "base64 -d -o x y",
            "awk x",
            "tar -cf x y",
            "xargs ls",
            "python3 x",
            "tee x",
            "cp a b",
            "head -n",
            "git --git-dir=/x/.git --work-tree=/ status",
            "pwd x",
            "/bin/ls",
            "./ls",
        ] {
            assert!(!covered(text), "{text}");
        }
    }
}
