//! What holds of every policy on commands and every command, on generated ones: order is irrelevant,
//! rules only do what their effect says, and no wrapping softens a verdict.

use proptest::{prelude::*, sample::select, test_runner::Config};
use thcode::policy::{
    call::{ActionClass, CommandFacts, FileKind, PathFacts, ResolvedCall, Subject},
    command::{shown, words},
    decide::{decide, decide_operator},
    explain::explain,
    load::{Source, load},
    path::read_path,
    rule::Tier,
    set::{Place, PolicySet},
    verdict::{Because, Decision, Verdict},
};

const ROOT: &str = "/work/tree";
const HEAD: &str = "version = 1\nsandbox.mode = \"off\"\n";

fn config() -> Config {
    Config { failure_persistence: None, ..Config::default() }
}

fn load_text(text: &str) -> PolicySet {
    let (name, file_name) = ("p".to_owned(), "p".to_owned());
    let source = Source { name, file_name, tier: Tier::Run, bytes: text.as_bytes().to_vec() };
    let place = Place { root: ROOT.into(), home: None };
    load(vec![source], &place, &mut |_, _| Err("no".into()))
        .unwrap_or_else(|told| panic!("{told:#?}\n{text}"))
}

fn call(argv: &[String]) -> ResolvedCall {
    let command = CommandFacts::read(argv.to_vec(), &mut |given| {
        let place = read_path(given, ROOT).ok()?;
        let (lexical, resolved) = (place.clone(), place);
        let kind = FileKind::Regular;
        Some(PathFacts { given: given.to_owned(), lexical, resolved, kind, links: 1, bytes: 1 })
    });
    let subjects = vec![Subject::Command(command)];
    ResolvedCall { tool: "run_command".into(), class: Some(ActionClass::RunCommand), subjects }
}

fn word() -> impl Strategy<Value = &'static str> {
    select(vec![
        "git",
        "push",
        "rm",
        "-r",
        "-f",
        "-rf",
        "--force",
        "cargo",
        "test",
        "ls",
        "src/a.rs",
        ".git/config",
        "conf/x",
        "HEAD:conf/x",
        "--file=conf/x",
        "-C",
        ".",
        "--",
        "x",
        "sh",
        "-c",
        "git push",
        "rm -rf x",
        "env",
        "../out",
        "RM",
        "/bin/rm",
        "timeout",
        "5",
    ])
}

fn argv() -> impl Strategy<Value = Vec<String>> {
    let program = select(vec!["git", "rm", "cargo", "ls", "sh", "env", "/bin/rm", "make", "cat"]);
    (program, prop::collection::vec(word(), 0..5))
        .prop_map(|(program, rest)| std::iter::once(program).chain(rest).map(str::to_owned).collect())
}

fn rule() -> impl Strategy<Value = (&'static str, String)> {
    let grants = select(vec![
        "",
        "command = \"git push\"",
        "command = \"ls …\"",
        "command = [\"cargo test …\", \"rm …\"]",
        "command = { argv = [\"git\", [\"push\", \"x\"]], rest = { flags = [\"--force\"], operands = \"workspace-paths\" } }",
        "command = \"make …\"",
        "command = \"cat …\"",
    ]);
    let limits = select(vec![
        "",
        "command = { program = \"rm\" }",
        "command = { program = \"rm\", flags_all = [\"r\", \"f\"] }",
        "command = { program = \"git\", subcommand = \"push\" }",
        "command = { argv_contains = [\"--force\"] }",
        "command = \"cargo test\"",
        "read = [\"conf/**\"]",
        "write = [\"conf/**\"]",
    ]);
    prop_oneof![
        grants.prop_map(|when| ("allow", when.to_owned())),
        limits.clone().prop_map(|when| ("deny", when.to_owned())),
        limits.prop_map(|when| ("ask", when.to_owned())),
    ]
}

fn rules() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    prop::collection::vec(rule(), 0..5)
}

fn written(rules: &[(&str, String)]) -> String {
    let mut text = HEAD.to_owned();
    for (at, (effect, when)) in rules.iter().enumerate() {
        let when = if when.is_empty() { String::new() } else { format!("when.{when}\n") };
        text += &format!(
            "[[rule]]\nid = \"r{at}\"\neffect = \"{effect}\"\ntools = [\"run_command\"]\n{when}"
        );
    }
    text
}

fn verdict(rules: &[(&str, String)], argv: &[String]) -> Verdict {
    decide(&load_text(&written(rules)), &call(argv))
}

/// Every way in which a command is run by another one.
fn wrapped(argv: &[String]) -> Vec<Vec<String>> {
    let front = |words: &[&str]| -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).chain(argv.iter().cloned()).collect()
    };
    let mut all = vec![
        front(&["sudo"]),
        front(&["env", "A=1"]),
        front(&["timeout", "-k", "1", "5"]),
        front(&["nohup", "nice", "-n", "5"]),
        front(&["xargs"]),
        front(&["busybox"]),
        front(&["frobnicate", "--with"]),
        front(&["find", ".", "-exec"]),
    ];
    for shell in ["bash", "sh", "/bin/dash"] {
        all.push(vec![shell.to_owned(), "-c".to_owned(), shown(argv)]);
    }
    all.push(vec!["ssh".to_owned(), "host".to_owned(), shown(argv)]);
    all
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_order_of_rules_is_irrelevant(rules in rules(), argv in argv()) {
        let mut turned = rules.clone();
        turned.reverse();
        prop_assert_eq!(verdict(&rules, &argv).decision, verdict(&turned, &argv).decision);
    }

    #[test]
    fn a_deny_never_widens_and_a_grant_never_narrows(rules in rules(), more in rule(), argv in argv()) {
        let before = verdict(&rules, &argv).decision;
        let all = [rules, vec![more.clone()]].concat();
        let after = verdict(&all, &argv).decision;
        match more.0 {
            "allow" => prop_assert!(after <= before),
            _ => prop_assert!(after >= before || before == Decision::Deny),
        }
    }

    #[test]
    fn wrapping_never_softens(rules in rules(), argv in argv()) {
        let plain = verdict(&rules, &argv);
        for wrapped in wrapped(&argv) {
            let verdict = verdict(&rules, &wrapped);
            prop_assert!(!verdict.allows() || plain.allows(), "{:?} {:?}", wrapped, verdict);
            // A program that is denied by a rule is denied wherever it hides.
            if plain.because == Because::Rule && plain.decision == Decision::Deny {
                prop_assert_eq!(verdict.decision, Decision::Deny, "{:?} {:?}", wrapped, verdict);
            }
        }
    }

    #[test]
    fn a_program_is_denied_wherever_it_hides(argv in argv(), rest in prop::collection::vec(word(), 0..3)) {
        let deny = vec![("allow", String::new()), ("deny", "command = { program = \"git\" }".to_owned())];
        let git: Vec<String> =
            std::iter::once("git").chain(rest).map(str::to_owned).collect();
        for wrapped in wrapped(&git) {
            let verdict = verdict(&deny, &wrapped);
            let by_rule = verdict.rule.is_some_and(|rule| rule.id == "r1");
            prop_assert!(by_rule || verdict.because == Because::Floor, "{wrapped:?}");
        }
        // What is no git stays what it was.
        let names_git = argv.iter().any(|word| word.contains("git"));
        let alone = vec![("allow", String::new())];
        if !names_git {
            prop_assert_eq!(verdict(&deny, &argv).decision, verdict(&alone, &argv).decision);
        }
    }

    #[test]
    fn every_verdict_says_what_it_rests_on_and_explain_agrees(rules in rules(), argv in argv()) {
        let set = load_text(&written(&rules));
        let call = call(&argv);
        let verdict = decide(&set, &call);
        let rests = match verdict.because {
            Because::Rule => verdict.rule.is_some(),
            Because::Floor | Because::Unresolved => verdict.cause.is_some(),
            Because::Default | Because::Matrix => true,
            Because::Limit | Because::BadArguments => false,
        };
        prop_assert!(rests && !verdict.reason.is_empty(), "{:?}", verdict);
        let trace = explain(&set, &call);
        prop_assert_eq!(&trace.verdict, &verdict);
        if let Some(rule) = &verdict.rule {
            prop_assert!(trace.matched.iter().any(|matched| matched.at.id == rule.id));
        }
    }

    #[test]
    fn the_caller_s_commands_obey_what_denies(rules in rules(), argv in argv()) {
        let set = load_text(&written(&rules));
        let call = call(&argv);
        let (model, caller) = (decide(&set, &call), decide_operator(&set, &call));
        let hard = model.because == Because::Floor
            || (model.because == Because::Rule && model.decision == Decision::Deny);
        prop_assert_eq!(!caller.allows(), hard, "{:?} {:?}", model, caller);
    }

    #[test]
    fn words_that_are_shown_are_read_as_they_were(argv in argv()) {
        prop_assert_eq!(words(&shown(&argv)), Ok(argv));
    }

    #[test]
    fn reading_words_never_fails_otherwise_than_by_saying_so(text in "\\PC*") {
        if let Ok(words) = words(&text) {
            prop_assert!(words.first().is_some_and(|program| !program.is_empty()));
        }
    }
}
