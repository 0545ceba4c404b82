//! What programs do with their words: which of them run them, which take them for data, which only
//! read what they name. Tables of facts about other tools.

use super::{CommandFacts, inspect::prints_lines};
use crate::floor::fold_text;

/// Programs that run a word, or code in a word, whatever their flags.
const RUNNERS: &str = "\
    ash bash command csh dash eval exec fish ksh mksh nu osh pwsh rbash sh source tcsh trap xonsh \
    yash zsh . builtin bwrap cgexec chpst chroot chrt cpulimit dbus-run-session doas env fakechroot \
    fakeroot firejail ionice linux32 linux64 nice nohup nsenter numactl pkexec prlimit proot runcon \
    runuser setarch setpriv setsid sg softlimit start-stop-daemon stdbuf su sudo systemd-run taskset \
    unbuffer unshare xvfb-run at batch chronic entr expect faketime flock gdb lldb ltrace nodemon \
    parallel perf rlwrap screen script sem strace time timeout tmux valgrind watch watchexec xargs \
    xterm zellij mosh rsh ssh sshpass busybox toybox awk dc ed ex gawk mawk nawk";

/// Interpreters, and the letters of the flags that take code.
const INTERPRETERS: &[(&str, &str)] = &[
    ("bun", "ep"),
    ("elixir", "e"),
    ("emacs", ""),
    ("ghc", "e"),
    ("groovy", "e"),
    ("guile", "c"),
    ("julia", "eE"),
    ("lua", "e"),
    ("luajit", "e"),
    ("node", "ep"),
    ("nodejs", "ep"),
    ("nvim", "cS"),
    ("osascript", "e"),
    ("perl", "eE"),
    ("php", "rBRE"),
    ("pypy", "c"),
    ("python", "c"),
    ("r", "e"),
    ("racket", "e"),
    ("rscript", "e"),
    ("ruby", "e"),
    ("scala", "e"),
    ("swift", "e"),
    ("vi", "cS"),
    ("vim", "cS"),
];

/// Long flags and words of interpreters that take code.
const CODE_FLAGS: &[&str] = &["--eval", "--print", "--cmd", "--execute", "-eval", "eval", "--batch"];

/// Flags (or their beginnings, where they end in `*`) by which a program that takes data runs
/// something all the same.
const RUNNING_FLAGS: &[(&str, &[&str])] = &[
    ("fd", &["-x*", "-X*", "--exec*"]),
    ("fdfind", &["-x*", "-X*", "--exec*"]),
    ("find", &["-exec*", "-ok*"]),
    ("less", &["+*"]),
    ("make", &["--eval*", "SHELL=*"]),
    ("man", &["-P*", "--pager*", "-H*", "--html*"]),
    ("rg", &["--pre*", "--hostname-bin*"]),
    ("rsync", &["-e*", "--rsh*", "--rsync-path*"]),
    ("scp", &["-S*", "-o*"]),
    ("sftp", &["-S*", "-o*"]),
    ("sort", &["--compress-program*"]),
    ("split", &["--filter*"]),
    (
        "tar",
        &[
            "-I*",
            "-F*",
            "--checkpoint-action*",
            "--info-script*",
            "--new-volume-script*",
            "--rmt-command*",
            "--rsh-command*",
            "--to-command*",
            "--use-compress-program*",
        ],
    ),
    ("tcpdump", &["-z*"]),
    ("zip", &["-TT*", "--unzip-command*"]),
];

/// Programs whose words are data: one of them that reads like another program's name is no sign.
const TAKE_DATA: &str = "\
    [ ar b2sum base32 base64 basename black bzip2 cargo cat cc chgrp chmod chown clang clang-format \
    clippy-driver cmp comm cp curl cut date dd df diff dirname du echo egrep eslint expr false fd \
    fdfind fgrep file find fmt fold g++ gcc git go gofmt grep gunzip gzip head hexdump hostname id \
    join jq kill ld less ln ls man md5sum mkdir mktemp more mv mypy nl nm node objdump od paste \
    patch pip prettier printenv printf ps pwd pytest python python3 readlink realpath rg rm rmdir \
    rsync ruff rustc rustfmt sed seq sha1sum sha256sum sha512sum shuf sleep sort split stat strings \
    strip sum tac tail tar tee test touch tr tree true truncate tsc type uname uniq unzip wc wget \
    whereis which whoami xxd xz yes zip zstd";

/// Programs that only read what they name, with whatever flags.
const ONLY_READ: &str = "\
    [ b2sum basename cat cmp comm cut df diff dirname du echo egrep false fgrep fold grep head \
    hexdump join jq ls md5sum nl nm objdump od paste printf pwd readlink realpath rg sha1sum \
    sha256sum sha512sum stat strings sum tac tail test tr true wc which whoami";

fn listed(table: &str, name: &str) -> bool {
    table.split_ascii_whitespace().any(|listed| listed == name)
}

/// Whether a command runs one of its words, or code in one: no text rule can say what it will do.
pub fn runs_operands(command: &CommandFacts) -> bool {
    let Some((program, rest)) = command.argv.split_first() else { return false };
    let given = name_of(program);
    // What a link leads to may be one program for many names; then the name says which it is.
    let real = command.real_name.as_deref().map(name_of);
    let many_in_one = |name: &&String| !matches!(name.as_str(), "busybox" | "toybox" | "coreutils");
    std::iter::once(&given).chain(real.as_ref().filter(many_in_one)).any(|name| runs(name, rest))
}

/// Whether words that are granted, with whatever may follow them, are ever a command that a grant can
/// cover. `flags` are those that may follow; `None` where anything may.
pub(in crate::policy) fn can_be_granted(argv: &[&str], flags: Option<&[String]>) -> bool {
    let Some((program, rest)) = argv.split_first() else { return true };
    let rest: Vec<String> = rest.iter().map(|word| (*word).to_owned()).collect();
    let name = name_of(program);
    if !runs(&name, &rest) {
        return true;
    }
    // What follows can only take the doubt from these two.
    let listed = |flag: &str| flags.is_some_and(|flags| flags.iter().any(|listed| listed == flag));
    match name.as_str() {
        "command" => rest.is_empty() && (flags.is_none() || listed("-v") || listed("-V")),
        _ if is_sed(&name) => {
            let begins_to_print = match rest.as_slice() {
                [] => true,
                [quiet] => quiet == "-n",
                [_, _, ..] => false,
            };
            listed("--sandbox") || (flags.is_none() && begins_to_print)
        }
        _ => false,
    }
}

/// What to grant, or to run, in place of a command that runs its operands.
pub(in crate::policy) fn in_place_of(program: &str) -> &'static str {
    let name = name_of(program);
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'));
    if is_sed(name) {
        return "a script of `sed` can run programs and write files: change files with edit_file, look at lines \
            with `sed -n 1,20p FILE`, or add `--sandbox`";
    }
    if INTERPRETERS.iter().any(|(known, _)| *known == name) || matches!(name, "deno" | "erl") {
        return "put the code into a script file, and run and grant that";
    }
    if matches!(name, "find" | "fd" | "fdfind") {
        return "let it only look, without -exec and the like, and run and grant the program by itself";
    }
    if name == "git" {
        return "leave out the flag or subcommand that runs what it is given (-c, --exec, bisect run …)";
    }
    if matches!(name, "bash" | "sh" | "dash" | "zsh" | "ksh" | "ash" | "fish" | "source") {
        return "run and grant the program by its own words; a script by its path (`./check.sh`), made executable";
    }
    "run and grant the program that it would run, by its own words"
}

fn is_sed(name: &str) -> bool {
    name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-')) == "sed"
        || name == "gsed"
}

/// Whether a program that isn't known names one among its words that runs its own: it may run it.
pub fn may_hide_a_runner(command: &CommandFacts) -> bool {
    let Some((program, rest)) = command.argv.split_first() else { return false };
    !takes_data(&name_of(program), rest)
        && (0..rest.len()).any(|at| {
            let behind = rest.get(at..).and_then(<[String]>::split_first);
            behind.is_some_and(|(word, rest)| runs(&name_of(word), rest))
        })
}

/// Whether a program, by its folded file name, takes its words for data.
pub(super) fn takes_data(program: &str, rest: &[String]) -> bool {
    listed(TAKE_DATA, program) || asks_where(program, rest)
}

/// `command -v NAME` tells where a program is, and runs none.
fn asks_where(name: &str, rest: &[String]) -> bool {
    name == "command" && rest.first().is_some_and(|flag| matches!(flag.as_str(), "-v" | "-V"))
}

/// Whether a program only reads what it names, as far as its name tells.
pub fn only_reads(command: &CommandFacts) -> bool {
    let reads = |word: &str| listed(ONLY_READ, &name_of(word));
    command.argv.first().is_some_and(|program| reads(program))
        && command.real_name.as_deref().is_none_or(|real| reads(real) || real == "coreutils")
        && !runs_operands(command)
}

fn runs(name: &str, rest: &[String]) -> bool {
    if asks_where(name, rest) {
        return false;
    }
    if listed(RUNNERS, name) {
        return true;
    }
    let versionless = name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'));
    if let Some((_, letters)) = INTERPRETERS.iter().find(|(known, _)| *known == versionless) {
        return takes_code(letters, matches!(versionless, "perl" | "ruby"), rest);
    }
    if is_sed(name) {
        return !rest.iter().any(|word| word == "--sandbox") && !only_prints(rest);
    }
    if name == "git" {
        return git_runs(rest);
    }
    if matches!(name, "deno" | "erl") {
        return rest.iter().any(|word| CODE_FLAGS.contains(&word.as_str()));
    }
    let flags = RUNNING_FLAGS.iter().find(|(known, _)| *known == name).map(|(_, flags)| *flags);
    flags.unwrap_or_default().iter().any(|flag| {
        rest.iter().any(|word| match flag.strip_suffix('*') {
            Some(start) => word.starts_with(start) || shortens(word, start),
            None => word == flag,
        })
    })
}

/// Git runs what its settings name, and some of its subcommands run a word.
fn git_runs(rest: &[String]) -> bool {
    const ANYWHERE: &[&str] =
        &["--exec", "--ext-diff", "--extcmd", "--receive-pack", "--textconv", "--upload-pack"];
    let starts = |word: &str, flags: &[&str]| flags.iter().any(|flag| word.starts_with(flag));
    let mut words = rest.iter().map(String::as_str);
    let mut subcommand = "";
    while let Some(word) = words.next() {
        if starts(word, &["-c", "--config-env", "--exec-path="]) {
            return true;
        }
        match word {
            "-C" | "--git-dir" | "--work-tree" | "--namespace" | "--super-prefix" | "--attr-source" => {
                words.next();
            }
            flag if flag.starts_with('-') => {}
            word => {
                subcommand = word;
                break;
            }
        }
    }
    let mut later = words.clone();
    let short = |letter: char| {
        words
            .clone()
            .any(|word| word.starts_with('-') && !word.starts_with("--") && word.contains(letter))
    };
    let long = |flag: &str| words.clone().any(|word| word.starts_with(flag));
    starts(subcommand, &["filter-branch", "for-each-repo"])
        || words.clone().any(|word| starts(word, ANYWHERE))
        || match subcommand {
            "grep" => short('O') || long("--open"),
            "rebase" => short('x'),
            "clone" | "ls-remote" => short('u') || short('c') || long("--config"),
            "difftool" => short('x'),
            "bisect" => later.next() == Some("run"),
            "submodule" => later.any(|word| word == "foreach"),
            _ => false,
        }
}

/// A long flag may be written shorter, as long as nothing else is meant; here that is never asked.
fn shortens(word: &str, flag: &str) -> bool {
    let name = word.split('=').next().unwrap_or(word);
    name.starts_with("--") && name.len() > 4 && flag.starts_with(name)
}

/// Whether an interpreter is given code as a word. What follows the name of a script is the
/// script's.
fn takes_code(letters: &str, include_takes_value: bool, rest: &[String]) -> bool {
    if letters.is_empty() {
        return true;
    }
    let mut behind_flag = false;
    for word in rest {
        let flag = word.starts_with(['-', '+']) && word.len() > 1;
        if CODE_FLAGS.contains(&word.split('=').next().unwrap_or(word)) || word.starts_with('+') {
            return true;
        }
        let value = include_takes_value && word.starts_with("-I");
        let short = flag && !word.starts_with("--") && !value;
        if short && word.chars().skip(1).any(|c| letters.contains(c)) {
            return true;
        }
        if word == "-m" || (!flag && !behind_flag) {
            return false;
        }
        behind_flag = flag;
    }
    false
}

/// A sed that prints lines by their numbers: `-n 1,20p`.
fn only_prints(rest: &[String]) -> bool {
    let mut words = rest.iter();
    words.next().is_some_and(|word| word == "-n")
        && words.next().is_some_and(|script| prints_lines(script))
        && words.all(|word| !word.starts_with('-'))
}

fn name_of(word: &str) -> String {
    let name = fold_text(word.rsplit('/').next().unwrap_or(word));
    name.strip_suffix(".exe").map_or(name.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::command::words;

    fn facts(text: &str) -> CommandFacts {
        CommandFacts::read(words(text).unwrap_or_else(|told| panic!("{text}: {told}")), &mut |_| None)
    }

    #[test]
    fn what_runs_its_words() {
        for text in [
            "bash -c x",
            "bash x.sh",
            "sh",
            "/bin/sh -c x",
            "BASH -c x",
            "env ls",
            "sudo ls",
            "xargs ls",
            "find . -exec sh -c id ';'",
            "find . -execdir x ';'",
            "python3 -c 1",
            "python3.11 -Bc 1",
            "python -W ignore -c 1",
            "node -e 1",
            "node --eval=1",
            "node -pe 1",
            "perl -ne x",
            "ruby -e x",
            "awk x",
            "sed s/a/b/e f",
            "sed -n '1e id' f",
            "sed -n 'w x' f",
            "timeout 5 ls",
            "git -c core.pager=x log",
            "git --exec-path=/x status",
            "git grep -iOsh x",
            "git grep -Osh x",
            "rg --pre sh x",
            "rg --hostname-bin ./x y",
            "man -Psh ls",
            "ssh host",
            "fd -x rm",
            "tar -cf x y --checkpoint-action=exec=id",
            "tar --use-compress-prog=x -cf y",
            "busybox ls",
            "command ls",
            "vim +x",
            "emacs x",
            "git -C . -c a=b log",
            "git rebase -x make main",
            "git bisect run ./x",
            "git submodule foreach ls",
            "git clone -u x y",
            "ruby -Ilib -e 1",
        ] {
            assert!(runs_operands(&facts(text)), "{text}");
        }
        for text in [
            "cargo test",
            "python3 x.py -c 1",
            "python3 -m pytest -c x",
            "node x.js -e",
            "find . -name '*.rs'",
            "git log --oneline",
            "command -v rm",
            "sed -n 1,20p f",
            "sed --sandbox s/a/b/ f",
            "ls -c",
            "make",
            "npm test",
            "rg foo",
            "tar -xf x",
            "./gradlew test",
            "git switch -c x",
            "git clean -x",
            "git -C . status",
            "ruby -Itest x_test.rb",
            "git log -c",
        ] {
            assert!(!runs_operands(&facts(text)), "{text}");
        }
        let linked = CommandFacts { real_name: Some("bash".into()), ..facts("./x y") };
        assert!(runs_operands(&linked));
        let linked = CommandFacts { real_name: Some("busybox".into()), ..facts("/bin/ls y") };
        assert!(!runs_operands(&linked));
    }

    #[test]
    fn the_tables_are_folded() {
        let names = [RUNNERS, TAKE_DATA, ONLY_READ].into_iter().flat_map(str::split_ascii_whitespace);
        let named = INTERPRETERS.iter().map(|(name, _)| *name);
        for name in names.chain(named).chain(RUNNING_FLAGS.iter().map(|(name, _)| *name)) {
            assert_eq!(name_of(name), name);
        }
    }
}
