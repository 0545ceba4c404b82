//! Commands in policy files: what is wrong and where, and what several files come to.

use super::super::tests::{load_all, one_fault, rule, source};
use crate::policy::{environment::Toolchain, rule::Tier, set::Sandbox};

#[test]
fn mistakes_in_a_condition_on_commands_are_told_where_they_are() {
    for (lines, expected) in [
        (
            "effect = \"allow\"\ntools = [\"run_command\"]\nwhen.command = { program = \"rm\" }",
            "6:16 a grant names its words with `argv` (or as a string): a program alone proves nothing",
        ),
        (
            "effect = \"deny\"\ntools = [\"run_command\"]\nwhen.command = {}",
            "6:16 `when.command` names nothing, so it covers nothing",
        ),
        (
            "effect = \"deny\"\ntools = [\"run_command\"]\nwhen.command = \"git push ...\"",
            "6:16 that anything may follow is said by ` …` (a space and one sign) at the end; `argv` takes any word as it is",
        ),
        (
            "effect = \"deny\"\ntools = [\"run_command\"]\nwhen.command = \"git push…\"",
            "6:16 that anything may follow is said by ` …` (a space and one sign) at the end; `argv` takes any word as it is",
        ),
        (
            "effect = \"deny\"\ntools = [\"run_command\"]\nwhen.command = \"git … push\"",
            "6:16 that anything may follow is said by ` …` (a space and one sign) at the end; `argv` takes any word as it is",
        ),
        (
            "effect = \"deny\"\ntools = [\"run_command\"]\nwhen.command = \"…\"",
            "6:16 that anything may follow is said by ` …` (a space and one sign) at the end; `argv` takes any word as it is",
        ),
        (
            "effect = \"deny\"\ntools = [\"run_command\"]\nwhen.command = { program = \"git push\" }",
            "6:16 `program` is one word, and no pattern",
        ),
        (
            "effect = \"deny\"\ntools = [\"run_command\"]\nwhen.command = { program = \"*\" }",
            "6:16 `program` is one word, and no pattern",
        ),
        (
            "effect = \"allow\"\ntools = [\"run_command\"]\nwhen.command = \"cargo test | tee x\"",
            "6:16 a command is words and quotes alone: `|` is for a shell, and none reads this",
        ),
        (
            "effect = \"allow\"\ntools = [\"run_command\"]\nwhen.command = { argv = [\"a\"], env_assign = [\"CI\"] }",
            "6:32 `env_assign` isn't supported by this version of thcode",
        ),
        (
            "effect = \"allow\"\ntools = [\"run_command\"]\nwhen.command = \"cargo test\"\nmatch = [\"cargo test -v\"]",
            "7:10 the rule `r` doesn't match this example",
        ),
        (
            "effect = \"deny\"\ntools = [\"run_command\"]\nwhen.command = \"$inspect\"",
            "6:16 `$inspect` is for grants: a deny or an ask names programs",
        ),
        (
            "effect = \"allow\"\ntools = [\"run_command\"]\nwhen.command = \"$filters\"",
            "6:16 a command is words and quotes alone: `$` is for a shell, and none reads this",
        ),
    ] {
        assert_eq!(one_fault(&rule(lines)), expected);
    }
}

#[test]
fn mistakes_in_what_commands_are_given_are_told_where_they_are() {
    for (text, expected) in [
        ("version = 1\n[sandbox]\nmode = \"on\"", "3:8 `mode` must be `required` or `off`"),
        (
            "version = 1\n[sandbox]\nmode = \"best-effort\"",
            "3:8 only `required` and `off` are supported by this version of thcode",
        ),
        (
            "version = 1\n[commands]\nenv_allow = [\"LD_PRELOAD\"]",
            "3:14 `LD_PRELOAD` isn't passed: it changes what programs load or run",
        ),
        (
            "version = 1\n[commands]\nshell = \"strict\"",
            "3:1 `shell` isn't supported by this version of thcode",
        ),
    ] {
        assert_eq!(one_fault(text), expected);
    }
}

#[test]
fn a_file_of_the_tree_only_tightens_what_commands_are_given() {
    let run = "version = 1\n[sandbox]\nmode = \"off\"\n[commands]\ntimeout_ms = 600000\nenv_allow = [\"A\", \"B\"]\ntoolchains = [\"rust\"]\n";
    let repo = "version = 1\n[commands]\ntimeout_ms = 900000\nenv_allow = [\"B\", \"C\"]\n";
    let both = load_all(vec![source("a", Tier::Run, run), source("b", Tier::Repo, repo)], &[]).unwrap();
    assert_eq!(both.settings().sandbox, Sandbox::Off);
    assert_eq!(both.settings().command_timeout_ms, 600_000);
    let passed: Vec<&str> = both.passed().variables.iter().map(String::as_str).collect();
    assert_eq!(passed, ["B"]);
    assert_eq!(both.passed().toolchains.iter().copied().collect::<Vec<_>>(), [Toolchain::Rust]);
    let alone = "version = 1\n[sandbox]\nmode = \"off\"\n[commands]\nenv_allow = [\"C\"]\n";
    let alone = load_all(vec![source("b", Tier::Repo, alone)], &[]).unwrap();
    assert_eq!(alone.settings().sandbox, Sandbox::Required);
    assert!(alone.passed().variables.is_empty());
}
