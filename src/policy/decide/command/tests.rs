//! Commands decided: what a grant covers, what a deny finds, what nothing allows.

use super::super::{decide, matches};
use crate::{
    floor::{FileKind, Location, PathFacts},
    policy::{
        call::{Access, ActionClass, ResolvedCall, Subject},
        command::{CommandFacts, words},
        explain::explain,
        load::{Source, load},
        path::read_path,
        rule::Tier,
        set::{Place, PolicySet},
    },
};

const ROOT: &str = "/work/tree";

fn set(text: &str) -> PolicySet {
    let text = format!("version = 1\n{text}");
    let (name, file_name) = ("p".to_owned(), "p".to_owned());
    let source = Source { name, file_name, tier: Tier::Run, bytes: text.into_bytes() };
    let place = Place { root: ROOT.into(), home: None };
    load(vec![source], &place, &mut |_, _| Err("no".into())).unwrap_or_else(|told| panic!("{told:#?}"))
}

/// The settings come last in a file, so that they are in no rule's table.
const OFF: &str = "[sandbox]\nmode = \"off\"\n";

fn rule(id: &str, effect: &str, when: &str) -> String {
    let when = if when.is_empty() { String::new() } else { format!("when.{when}\n") };
    format!("[[rule]]\nid = \"{id}\"\neffect = \"{effect}\"\ntools = [\"run_command\"]\n{when}")
}

/// Everything that a word names is there, but for what is called `new`.
fn facts(argv: Vec<String>) -> CommandFacts {
    CommandFacts::read(argv, &mut |given| {
        let place = read_path(given, ROOT).ok()?;
        let kind = if given.contains("new") { FileKind::Absent } else { FileKind::Regular };
        let (lexical, resolved) = (place.clone(), place);
        Some(PathFacts { given: given.to_owned(), resolved, lexical, kind, links: 1, bytes: 1 })
    })
}

fn path(given: &str) -> PathFacts {
    facts(vec!["x".into(), given.into()]).operands.remove(0).path
}

fn run_of(subjects: Vec<Subject>) -> ResolvedCall {
    ResolvedCall { tool: "run_command".into(), class: Some(ActionClass::RunCommand), subjects }
}

fn call(text: &str) -> ResolvedCall {
    let words = words(text).unwrap_or_else(|told| panic!("{text}: {told}"));
    run_of(vec![Subject::Command(facts(words))])
}

fn told(set: &PolicySet, text: &str) -> String {
    let verdict = decide(set, &call(text));
    let by = verdict.rule.map(|rule| rule.id).or(verdict.cause.map(str::to_owned));
    format!("{:?} {:?} {}", verdict.decision, verdict.because, by.unwrap_or_default()).trim_end().into()
}

#[test]
fn a_grant_covers_exactly_its_words() {
    let set = set(&format!(
        "{OFF}{}{}{}{}",
        rule("test", "allow", "command = \"cargo test\""),
        rule("check", "allow", "command = [\"cargo check …\", \"make 'all of it'\"]"),
        rule(
            "git",
            "allow",
            "command = { argv = [\"git\", [\"log\", \"diff\"]], rest = { flags = [\"-n\", \"--stat\", \"--format=\"], operands = \"workspace-paths-or-revs\" } }"
        ),
        rule(
            "fmt",
            "allow",
            "command = { argv = [\"rustfmt\"], rest = { operands = \"workspace-paths\" } }"
        )
    ));
    for (text, expected) in [
        ("cargo test", "Allow Rule test"),
        ("cargo test -v", "Deny Default"),
        ("cargo Test", "Deny Default"),
        ("/tmp/cargo test", "Deny Default"),
        ("./cargo test", "Deny Unresolved program-in-workspace"),
        ("cargo", "Deny Default"),
        ("cargo check --workspace x", "Allow Rule check"),
        ("make 'all of it'", "Allow Rule check"),
        ("make all of it", "Deny Default"),
        ("git log -n 5 --stat", "Allow Rule git"),
        ("git log --format=%h HEAD~3..main -- src", "Allow Rule git"),
        ("git log --format", "Deny Default"),
        ("git diff --no-index -- /etc/passwd src", "Deny Default"),
        ("git diff ../x", "Deny Default"),
        ("git diff HEAD:../x", "Deny Default"),
        ("git log --output=x", "Deny Default"),
        ("git -c a=b log", "Deny Unresolved runs-its-operands"),
        ("git log new", "Allow Rule git"),
        ("rustfmt src/a.rs", "Allow Rule fmt"),
        ("rustfmt src/new.rs", "Deny Default"),
        ("rustfmt /etc/x", "Deny Default"),
        ("rustfmt --config x", "Deny Default"),
    ] {
        assert_eq!(told(&set, text), expected, "{text}");
    }
}

#[test]
fn nothing_runs_where_nothing_confines_it() {
    let grant = rule("g", "allow", "command = \"ls\"");
    let unverified = "Deny Matrix enforcement-unverified";
    assert_eq!(told(&set(&grant), "ls"), unverified);
    assert_eq!(told(&set(&format!("[sandbox]\nmode = \"required\"\n{grant}")), "ls"), unverified);
    assert_eq!(told(&set("profile = \"full-access\"\n"), "ls"), unverified);
    let off = set(&format!("{OFF}{grant}"));
    assert_eq!(told(&off, "ls"), "Allow Rule g");
    assert_eq!(told(&off, "ls -l"), "Deny Default");
    assert_eq!(told(&set(&format!("mode = \"plan\"\n{OFF}{grant}")), "ls"), "Deny Matrix");
    let full = set(&format!("profile = \"full-access\"\n{OFF}"));
    assert_eq!(told(&full, "ls -l"), "Allow Matrix");
    assert_eq!(told(&full, "sh -c ls"), "Deny Unresolved runs-its-operands");
    assert_eq!(told(&full, "./run.sh"), "Deny Unresolved program-in-workspace");
}

#[test]
fn what_runs_its_words_is_never_granted() {
    let all = set(&format!("{OFF}{}", rule("all", "allow", "")));
    let named = set(&format!("{OFF}{}", rule("n", "allow", "command = [\"./tool …\", \"sed -n …\"]")));
    for text in ["timeout 5 curl x", "sh x.sh", "python3 -c 1", "find . -exec ls ';'", "xargs ls"] {
        assert_eq!(told(&all, text), "Deny Unresolved runs-its-operands", "{text}");
        assert!(told(&named, text).starts_with("Deny Unresolved"), "{text}");
    }
    // Named, and yet it runs its words: a link to a shell, a script that the grant leaves open.
    assert_eq!(told(&named, "./tool x"), "Allow Rule n");
    let mut linked = facts(words("./tool x").unwrap());
    linked.real_name = Some("bash".to_owned());
    let verdict = decide(&named, &run_of(vec![Subject::Command(linked)]));
    assert_eq!(verdict.cause, Some("runs-its-operands"));
    assert_eq!(told(&named, "sed -n 1,2p x"), "Allow Rule n");
    assert_eq!(told(&named, "sed -n '1e id' x"), "Deny Unresolved runs-its-operands");
    assert_eq!(told(&all, "cargo test"), "Allow Rule all");
    assert_eq!(told(&all, "frobnicate --with sh -c x"), "Deny Unresolved may-run-its-operands");
    assert_eq!(told(&all, "echo sh -c x"), "Allow Rule all");
    let frobnicate = set(&format!("{OFF}{}", rule("f", "allow", "command = \"frobnicate …\"")));
    assert_eq!(told(&frobnicate, "frobnicate --with sh -c x"), "Allow Rule f");
}

#[test]
fn a_program_of_the_workspace_runs_only_by_its_path() {
    let set = set(&format!("{OFF}{}", rule("g", "allow", "command = \"./gradlew test\"")));
    assert_eq!(told(&set, "./gradlew test"), "Allow Rule g");
    assert_eq!(told(&set, "gradlew test"), "Deny Default");
    let moved = |change: &dyn Fn(&mut PathFacts)| {
        let mut command = facts(words("./gradlew test").unwrap());
        change(command.program.as_mut().unwrap());
        decide(&set, &run_of(vec![Subject::Command(command)]))
    };
    let elsewhere = moved(&|program| {
        program.lexical = Location::Inside("sub/gradlew".into());
        program.resolved = program.lexical.clone();
    });
    assert!(!elsewhere.allows(), "in another directory it is another program");
    let linked = moved(&|program| program.resolved = Location::Outside("/bin/x".into()));
    assert!(!linked.allows(), "a link may lead elsewhere tomorrow");
}

#[test]
fn denies_come_before_grants_and_look_through() {
    let set = set(&format!(
        "{OFF}{}{}{}{}",
        rule("all", "allow", ""),
        rule("push", "deny", "command = { program = \"git\", subcommand = \"push\" }"),
        rule("ask", "ask", "command = \"make deploy\""),
        rule("secret", "deny", "read = [\"conf/**\"]"),
    ));
    for (text, expected) in [
        ("git push", "Deny Rule push"),
        ("git -C . push", "Deny Rule push"),
        ("timeout 5 git push", "Deny Rule push"),
        ("bash -c 'git push'", "Deny Rule push"),
        ("git commit -m 'do not git push'", "Allow Rule all"),
        ("make deploy", "Ask Rule ask"),
        ("make -j4 deploy", "Ask Rule ask"),
        ("cat conf/a", "Deny Rule secret"),
        ("cat CONF/a", "Deny Rule secret"),
        ("grep -f conf/a x", "Deny Rule secret"),
        ("grep --file=conf/a x", "Deny Rule secret"),
        ("git show HEAD:conf/a", "Deny Rule secret"),
        ("cat src/a", "Allow Rule all"),
    ] {
        assert_eq!(told(&set, text), expected, "{text}");
    }
}

#[test]
fn words_that_name_what_nothing_may_touch_are_denied() {
    let set = set(&format!("protected = [\"keep/**\"]\n{OFF}{}", rule("all", "allow", "")));
    for (text, expected) in [
        ("cat .git/config", "Deny Floor git-directory"),
        ("rm -r .git", "Deny Floor git-directory"),
        ("cat .env", "Deny Floor secret-read"),
        ("cat /home/u/.ssh/id_ed25519", "Deny Floor secret-read"),
        ("cargo test id_rsa_new", "Allow Rule all"),
        ("cat /proc/self/environ", "Deny Floor system-path"),
        ("cat /dev/null", "Allow Rule all"),
        ("cat .github/workflows/ci.yml", "Allow Rule all"),
        ("cp x .github/workflows/ci.yml", "Deny Floor control-file"),
        ("cp x keep/y", "Deny Floor protected-path"),
        ("cat keep/y", "Allow Rule all"),
        ("cat /etc/hosts", "Allow Rule all"),
        ("dd of=.git/config", "Deny Floor git-directory"),
    ] {
        assert_eq!(told(&set, text), expected, "{text}");
    }
}

#[test]
fn the_directory_is_judged_and_decides_nothing_alone() {
    let set =
        set(&format!("{OFF}{}{}", rule("all", "allow", ""), rule("d", "deny", "read = [\"conf/**\"]")));
    let directory = |cwd: &str| Subject::Path { access: Access::Read, path: path(cwd) };
    let within = |cwd: &str| {
        let mut call = call("ls");
        call.subjects.push(directory(cwd));
        decide(&set, &call)
    };
    assert!(within("src").allows());
    for cwd in ["conf/x", ".git", "../out", "/etc"] {
        assert!(!within(cwd).allows(), "{cwd}");
    }
    assert!(!decide(&set, &run_of(vec![directory("src")])).allows());
}

#[test]
fn a_rule_on_commands_has_no_say_on_paths() {
    let set = set(&format!(
        "{OFF}[[rule]]\nid = \"d\"\neffect = \"deny\"\ntools = [\"run_command\", \"read_file\"]\nwhen.command = {{ program = \"rm\" }}\n{}",
        rule("g", "allow", "command = \"ls\"")
    ));
    let read = ResolvedCall {
        tool: "read_file".into(),
        class: Some(ActionClass::ReadFile),
        subjects: vec![Subject::Path { access: Access::Read, path: path("src") }],
    };
    assert!(decide(&set, &read).allows());
    assert!(!matches(&set, 0, &read));
    assert_eq!(told(&set, "ls"), "Allow Rule g");
}

#[test]
fn a_trace_of_a_command_agrees_and_shows_what_was_wanted() {
    let set = set(&format!(
        "{OFF}{}{}",
        rule("t", "allow", "command = \"cargo test …\""),
        rule("d", "deny", "command = { program = \"rm\", flags_all = [\"r\", \"f\"] }")
    ));
    let denied = call("cargo build");
    let trace = explain(&set, &denied);
    assert_eq!(trace.verdict, decide(&set, &denied));
    assert_eq!(trace.verdict.suggest.as_deref(), Some("Granted to `run_command`: `cargo test …`."));
    let misses: Vec<_> = trace
        .near_misses
        .iter()
        .map(|miss| (miss.rule.at.id.as_str(), miss.failed.saw.as_str(), miss.failed.wanted.as_str()))
        .collect();
    assert_eq!(
        misses,
        [("t", "cargo build", "cargo test …"), ("d", "cargo build", "program rm, flags_all f|r")]
    );
}

/// Whatever a model writes, it is judged in a time that nobody notices.
#[test]
fn a_long_command_is_judged_soon() {
    let limits = [
        "command = { program = \"rm\", flags_all = [\"r\", \"f\"], argv_contains = [\"zz\"] }",
        "command = { program = \"git\", subcommand = \"push\" }",
        "command = \"git push zz\"",
        "read = [\"conf/**\", \"**/zz/**\"]",
    ];
    let limits = limits.iter().enumerate().map(|(at, when)| rule(&format!("d{at}"), "deny", when));
    let set = set(&format!("{OFF}{}{}", limits.collect::<String>(), rule("all", "allow", "")));
    let begun = std::time::Instant::now();
    for long in ["rm ", "git -a ", "-r rm git ", "a=", "a/b:", "./=", "'\"\\"] {
        let word = long.repeat(250_000 / long.len());
        for argv in [vec!["sh".to_owned(), "-c".to_owned(), word.clone()], vec!["x".to_owned(), word]] {
            decide(&set, &run_of(vec![Subject::Command(facts(argv))]));
        }
        let argv = vec![long.trim().to_owned(); 1024];
        decide(&set, &run_of(vec![Subject::Command(facts(argv))]));
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn a_command_that_only_reads_is_sent_to_the_tools_that_do() {
    let set = set(&format!("{OFF}{}", rule("t", "allow", "command = \"cargo test\"")));
    let suggests = |text: &str| decide(&set, &call(text)).suggest.unwrap_or_default();
    assert!(suggests("cat src/a.rs").starts_with("To read, list or search, use read_file"));
    assert!(suggests("cat src/a.rs").ends_with("Granted to `run_command`: `cargo test`."));
    assert_eq!(suggests("cargo build"), "Granted to `run_command`: `cargo test`.");
}

#[test]
fn the_tool_is_offered_only_where_a_command_could_run() {
    let offered = |text: &str| !set(text).denies_every_call("run_command");
    let grant = rule("g", "allow", "command = \"ls\"");
    assert!(offered(&format!("{OFF}{grant}")));
    assert!(offered(&format!("profile = \"full-access\"\n{OFF}")));
    assert!(!offered(&grant));
    assert!(!offered(OFF));
    assert!(!offered(&format!("mode = \"plan\"\n{OFF}{grant}")));
    assert!(!offered(&format!("{OFF}{grant}{}", rule("d", "deny", ""))));
    assert!(!offered(&format!("{OFF}{}", rule("a", "ask", "command = \"ls\""))));
}
