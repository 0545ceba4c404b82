//! What holds of every policy and every call, on generated ones. `PROPTEST_CASES` runs more.

use std::fmt::Write as _;

use proptest::{prelude::*, sample::select, test_runner::Config};
use thcode::policy::{
    call::{Access, ActionClass, FileKind, Location, PathFacts, ResolvedCall, Subject},
    decide::decide,
    explain::explain,
    load::{Source, load},
    path::read_path,
    preset,
    rule::Tier,
    set::{Place, PolicySet},
    verdict::{Because, Decision, Verdict},
};
use unicode_normalization::UnicodeNormalization as _;

const ROOT: &str = "/work/tree";
const PATH_TOOLS: &[&str] =
    &["list_files", "read_file", "search_text", "create_file", "edit_file", "delete_file"];

fn config() -> Config {
    Config { failure_persistence: None, ..Config::default() }
}

/// A rule as text, and whether it may stand alone.
#[derive(Debug, Clone)]
struct RuleText {
    effect: &'static str,
    tools: Vec<&'static str>,
    condition: Option<(&'static str, Vec<String>)>,
    max_bytes: Option<u64>,
}

impl RuleText {
    fn write(&self, id: usize, out: &mut String) {
        let Self { effect, tools, condition, max_bytes } = self;
        writeln!(out, "[[rule]]\nid = \"r{id}\"\neffect = \"{effect}\"\ntools = {tools:?}").unwrap();
        if let Some((access, globs)) = condition {
            writeln!(out, "when.{access} = {globs:?}").unwrap();
        }
        if let (Some(most), "allow") = (max_bytes, *effect) {
            writeln!(out, "when.file.max_bytes = {most}").unwrap();
        }
    }
}

fn names() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        12 => select(vec!["src", "Src", "docs", "a", "A", "b.rs", "B.RS", "x.md", "main"]),
        4 => select(vec!["caf\u{e9}", "cafe\u{301}", "stra\u{df}e", "a:b", "a."]),
        1 => select(vec![".env", ".git", ".vscode"]),
    ]
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(names(), 0..4).prop_map(|names| names.join("/"))
}

/// Wide ones are frequent, so that rules meet on one path.
fn glob() -> impl Strategy<Value = String> {
    let parts = select(vec![
        "src",
        "SRC",
        "docs",
        "a",
        "*",
        "**",
        "*.rs",
        "b?rs",
        "[ab]*",
        "[!.]*",
        "{a,src}",
        "x.*",
        "caf\u{e9}",
        "caf?",
        "**",
        ".env",
        "a:b",
        "mai[n]",
    ]);
    let narrow = prop::collection::vec(parts, 1..4).prop_map(|parts| parts.join("/"));
    prop_oneof![1 => Just("**".to_owned()), 3 => narrow]
}

fn rule() -> impl Strategy<Value = RuleText> {
    let effect = select(vec!["allow", "ask", "deny"]);
    let tools = prop_oneof![
        Just(PATH_TOOLS.to_vec()),
        prop::sample::subsequence(PATH_TOOLS.to_vec(), 1..=PATH_TOOLS.len()),
    ];
    let condition = prop::option::weighted(
        0.8,
        (select(vec!["read", "write", "delete"]), prop::collection::vec(glob(), 1..4)),
    );
    (effect, tools, condition, prop::option::weighted(0.2, 1..20_u64)).prop_map(
        |(effect, mut tools, condition, max_bytes)| {
            // Each condition is fed by at least one tool, as the loader wants it.
            match &condition {
                Some(("read", _)) => tools.push("read_file"),
                Some(("write", _)) => tools.push("edit_file"),
                Some(_) => tools.push("delete_file"),
                None => {}
            }
            RuleText { effect, tools, condition, max_bytes }
        },
    )
}

fn rules() -> impl Strategy<Value = Vec<RuleText>> {
    prop::collection::vec(rule(), 0..6)
}

fn head() -> impl Strategy<Value = String> {
    let modes = select(vec!["plan", "build", "build", "build"]);
    let profiles = select(vec!["manual", "assisted", "full-access"]);
    let defaults = select(vec!["deny", "ask"]);
    (modes, profiles, defaults, prop::option::weighted(0.2, glob())).prop_map(
        |(mode, profile, default, protected)| {
            let protected: Vec<String> = protected.into_iter().collect();
            let lead = if protected.is_empty() { String::new() } else { format!("protected = {protected:?}\n") };
            format!("version = 1\nmode = \"{mode}\"\nprofile = \"{profile}\"\n{lead}engine.default = \"{default}\"\n")
        },
    )
}

fn facts(given: String, lexical: Location, resolved: Location) -> PathFacts {
    PathFacts { given, lexical, resolved, kind: FileKind::Regular, links: 1, bytes: 10 }
}

fn access_of(tool: &str) -> Access {
    match ActionClass::of_tool(tool) {
        Some(ActionClass::WriteFile) => Access::Write,
        Some(ActionClass::Delete) => Access::Delete,
        _ => Access::Read,
    }
}

fn call_of(tool: &str, subjects: Vec<Subject>) -> ResolvedCall {
    ResolvedCall { tool: tool.to_owned(), class: ActionClass::of_tool(tool), subjects }
}

fn location() -> impl Strategy<Value = Location> {
    prop_oneof![
        19 => path().prop_map(Location::Inside),
        1 => path().prop_map(|path| Location::Outside(format!("/{path}"))),
    ]
}

fn subject(access: Access) -> impl Strategy<Value = Subject> {
    let kinds = select(vec![
        FileKind::Regular,
        FileKind::Regular,
        FileKind::Regular,
        FileKind::Regular,
        FileKind::Regular,
        FileKind::Directory,
        FileKind::Absent,
        FileKind::Special,
        FileKind::Unknown,
    ]);
    let path = (location(), prop::option::weighted(0.3, location()), kinds, 1..3_u64, 0..30_u64)
        .prop_map(move |(lexical, resolved, kind, links, bytes)| {
            let resolved = resolved.unwrap_or_else(|| lexical.clone());
            let given = lexical.shown().to_owned();
            Subject::Path {
                access,
                path: PathFacts { kind, links, bytes, ..facts(given, lexical, resolved) },
            }
        });
    let unresolved =
        self::path().prop_map(|given| Subject::Unresolved { given, reason: "glob-expansion" });
    prop_oneof![19 => path, 1 => unresolved]
}

fn call() -> impl Strategy<Value = ResolvedCall> {
    let tools = select(vec![
        "list_files",
        "read_file",
        "search_text",
        "create_file",
        "edit_file",
        "delete_file",
        "edit_file",
        "run_command",
        "fetch_url",
        "mcp:server/tool",
        "Read_file",
    ]);
    tools.prop_flat_map(|tool| {
        let subjects = prop::collection::vec(subject(access_of(tool)), 0..4);
        subjects.prop_map(move |subjects| call_of(tool, subjects))
    })
}

fn loaded(head: &str, rules: &[RuleText]) -> PolicySet {
    let mut text = head.to_owned();
    rules.iter().enumerate().for_each(|(id, rule)| rule.write(id, &mut text));
    load_bytes(text.clone().into_bytes()).unwrap_or_else(|told| panic!("{text}\n{told:#?}"))
}

fn load_bytes(bytes: Vec<u8>) -> Result<PolicySet, Vec<thcode::policy::diagnostic::Diagnostic>> {
    let place = Place { root: ROOT.into(), home: Some("/home/u".into()) };
    let source = Source { name: "p.toml".into(), file_name: "p.toml".into(), tier: Tier::Run, bytes };
    load(vec![source], &place, &mut |entry, _| Err(format!("no `{entry}`")))
}

/// What doesn't depend on which of several like rules is named.
fn gist(verdict: &Verdict) -> (Decision, Because, Option<&'static str>, Option<usize>) {
    (verdict.decision, verdict.because, verdict.cause, verdict.subject)
}

/// A read of a path as a model wrote it, under a policy that allows what nothing denies.
fn read_denied(set: &PolicySet, given: &str) -> bool {
    match read_path(given, ROOT) {
        Ok(place) => {
            let path = facts(given.to_owned(), place.clone(), place);
            let subject = Subject::Path { access: Access::Read, path };
            decide(set, &call_of("read_file", vec![subject])).decision == Decision::Deny
        }
        Err(_) => true,
    }
}

fn denies() -> impl Strategy<Value = (PolicySet, Vec<String>)> {
    prop::collection::vec(glob(), 1..4).prop_map(|globs| {
        let rule = RuleText {
            effect: "deny",
            tools: vec!["read_file"],
            condition: Some(("read", globs.clone())),
            max_bytes: None,
        };
        (loaded("version = 1\n", &[rule]), globs)
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_order_of_rules_never_matters(
        head in head(),
        (rules, shuffled) in rules().prop_flat_map(|rules| (Just(rules.clone()), Just(rules).prop_shuffle())),
        call in call(),
    ) {
        let (one, other) = (loaded(&head, &rules), loaded(&head, &shuffled));
        prop_assert_eq!(gist(&decide(&one, &call)), gist(&decide(&other, &call)));
    }

    #[test]
    fn another_deny_never_widens(head in head(), rules in rules(), added in rule(), call in call()) {
        let more = [rules.clone(), vec![RuleText { effect: "deny", ..added }]].concat();
        let (before, after) = (loaded(&head, &rules), loaded(&head, &more));
        prop_assert!(decide(&after, &call).decision >= decide(&before, &call).decision);
    }

    /// It may turn the default's deny into an ask, which is no more of a yes.
    #[test]
    fn another_ask_never_allows(head in head(), rules in rules(), added in rule(), call in call()) {
        let more = [rules.clone(), vec![RuleText { effect: "ask", ..added }]].concat();
        let (before, after) = (loaded(&head, &rules), loaded(&head, &more));
        prop_assert!(decide(&before, &call).allows() || !decide(&after, &call).allows());
    }

    #[test]
    fn what_is_asked_about_is_never_allowed(head in head(), rules in rules(), call in call()) {
        let all = [PATH_TOOLS, &["run_command", "fetch_url"]].concat();
        let ask = RuleText { effect: "ask", tools: all, condition: None, max_bytes: None };
        let set = loaded(&head, &[rules, vec![ask]].concat());
        prop_assert!(!decide(&set, &call).allows());
    }

    #[test]
    fn another_grant_never_narrows(
        head in head(), rules in rules(), added in rule(), call in call(),
    ) {
        let more = [rules.clone(), vec![RuleText { effect: "allow", ..added }]].concat();
        let (before, after) = (loaded(&head, &rules), loaded(&head, &more));
        prop_assert!(decide(&after, &call).decision <= decide(&before, &call).decision);
    }

    #[test]
    fn another_subject_never_widens(
        head in head(), rules in rules(), call in call(), added in subject(Access::Write),
    ) {
        let set = loaded(&head, &rules);
        let mut more = call.clone();
        more.subjects.push(added);
        // A call that touches nothing known is denied for that alone.
        let known = !call.subjects.is_empty();
        prop_assert!(!known || decide(&set, &more).decision >= decide(&set, &call).decision);
    }

    #[test]
    fn a_lower_mode_never_widens(head in head(), rules in rules(), call in call()) {
        let set = loaded(&head, &rules);
        let mut plan = set.clone();
        plan.lower_mode(thcode::policy::matrix::Mode::Plan);
        let (build, plan) = (decide(&set, &call), decide(&plan, &call));
        prop_assert!(plan.decision >= build.decision);
        let mutating = call.class.is_some_and(ActionClass::mutating);
        prop_assert!(!(mutating && plan.allows()));
    }

    #[test]
    fn explain_agrees_with_decide(head in head(), rules in rules(), call in call()) {
        let set = loaded(&head, &rules);
        let (verdict, trace) = (decide(&set, &call), explain(&set, &call));
        prop_assert_eq!(&verdict, &trace.verdict);
        if let Some(strictest) = trace.subjects.iter().map(|judged| judged.decision).max() {
            prop_assert_eq!(strictest, verdict.decision);
        }
        if let Some(at) = &verdict.rule {
            prop_assert!(trace.matched.iter().any(|rule| rule.at == *at));
        }
        // Every rule of the tool is told once, as a match or as a near miss.
        if trace.subjects.iter().any(|judged| judged.because != Because::Unresolved) {
            let told = trace.matched.len() + trace.near_misses.len();
            let of_tool = rules.iter().filter(|rule| rule.tools.contains(&call.tool.as_str())).count();
            prop_assert_eq!(told, of_tool);
        }
    }

    #[test]
    fn every_verdict_says_what_it_rests_on(head in head(), rules in rules(), call in call()) {
        let set = loaded(&head, &rules);
        let verdict = decide(&set, &call);
        prop_assert!(!verdict.reason.is_empty());
        match verdict.because {
            Because::Rule => {
                let at = verdict.rule.expect("the rule is named");
                let rule = set.rules().iter().find(|rule| rule.at == at).expect("it is of this policy");
                prop_assert_eq!(rule.effect.decision(), verdict.decision);
            }
            Because::Floor | Because::Unresolved => {
                prop_assert_eq!(verdict.decision, Decision::Deny);
                prop_assert!(verdict.cause.is_some() && verdict.rule.is_none());
            }
            Because::Matrix => prop_assert!(verdict.decision != Decision::Ask),
            Because::Default => prop_assert!(verdict.decision != Decision::Allow),
            Because::Limit | Because::BadArguments => prop_assert!(false, "decided before `decide`"),
        }
    }

    #[test]
    fn an_unknown_tool_and_an_unresolved_subject_are_never_allowed(
        head in head(), rules in rules(), call in call(),
    ) {
        let verdict = decide(&loaded(&head, &rules), &call);
        let unresolved = call.subjects.iter().any(|subject| matches!(subject, Subject::Unresolved { .. }));
        if call.class.is_none() || unresolved || call.subjects.is_empty() {
            prop_assert_eq!(verdict.decision, Decision::Deny);
        }
    }

    #[test]
    fn a_deny_sees_through_every_spelling((set, _) in denies(), path in path(), at in 0..4_usize) {
        let path = if path.is_empty() { "main".to_owned() } else { path };
        let denied = read_denied(&set, &path);
        let names: Vec<&str> = path.split('/').collect();
        let at = at.min(names.len() - 1);
        let with = |change: &dyn Fn(&str) -> String| {
            let changed = names.iter().enumerate().map(|(index, name)| {
                if index == at { change(name) } else { (*name).to_owned() }
            });
            changed.collect::<Vec<_>>().join("/")
        };
        // The same file wherever letter case and the form of accents don't count.
        for spelling in [
            path.to_uppercase(),
            path.to_lowercase(),
            path.nfc().collect(),
            path.nfd().collect(),
            format!("./{path}"),
            format!("{ROOT}/{path}"),
            path.replace('/', "//"),
            format!("other/../{path}"),
            format!("{path}/."),
        ] {
            prop_assert_eq!(read_denied(&set, &spelling), denied, "{} as {}", &path, &spelling);
        }
        // The same file on some system: a deny of the plain name holds for these too.
        for spelling in [
            with(&|name| format!("{name}.")),
            with(&|name| format!("{name} . ")),
            with(&|name| format!("{name}\u{200b}")),
            with(&|name| format!("\u{feff}{name}")),
        ] {
            prop_assert!(!denied || read_denied(&set, &spelling), "{} as {:?}", &path, &spelling);
        }
        // Where streams have a colon, plain names have none.
        let stream = format!("{path}::$DATA");
        let plain = !path.contains(':');
        prop_assert!(!(plain && denied) || read_denied(&set, &stream), "{} as {}", &path, &stream);
    }

    #[test]
    fn a_deny_covers_at_least_what_its_glob_says((set, globs) in denies(), path in path()) {
        // Beyond ASCII the reference matches bytes, not characters.
        let literally = path.is_ascii() && globs.iter().any(|glob| {
            let glob = globset::GlobBuilder::new(glob).literal_separator(true).build().unwrap();
            glob.compile_matcher().is_match(&path)
        });
        let given = if path.is_empty() { "." } else { &path };
        prop_assert!(!literally || read_denied(&set, given));
    }

    #[test]
    fn a_grant_covers_at_most_what_its_glob_says(globs in prop::collection::vec(glob(), 1..4), path in path()) {
        let rule = RuleText {
            effect: "allow",
            tools: vec!["create_file"],
            condition: Some(("write", globs.clone())),
            max_bytes: None,
        };
        let set = loaded("version = 1\n", &[rule]);
        let subject = |lexical: &str, resolved: &str| {
            let at = |path: &str| Location::Inside(path.to_owned());
            let path = facts(lexical.to_owned(), at(lexical), at(resolved));
            call_of("create_file", vec![Subject::Path { access: Access::Write, path }])
        };
        let literally = globs.iter().any(|glob| {
            let glob = globset::GlobBuilder::new(glob).literal_separator(true).build().unwrap();
            glob.compile_matcher().is_match(&path)
        });
        prop_assert!(literally || !decide(&set, &subject(&path, &path)).allows());
        // Neither end of a link is covered by what covers the other.
        prop_assert!(literally || !decide(&set, &subject(&path, "src/b.rs")).allows());
        prop_assert!(literally || !decide(&set, &subject("src/b.rs", &path)).allows());
    }

    #[test]
    fn a_path_read_twice_is_the_same(given in "[a-zA-Z./~: ]{0,24}") {
        if let Ok(place) = read_path(&given, ROOT) {
            let shown = place.shown().to_owned();
            prop_assert!(shown == "." || !shown.split('/').any(|part| part == "." || part == ".."));
            prop_assert_eq!(read_path(&place.absolute(ROOT), ROOT), Ok(place));
        }
    }

    #[test]
    fn no_bytes_make_the_loader_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        check_diagnostics(bytes);
    }

    #[test]
    fn no_change_of_a_valid_file_makes_the_loader_panic(
        preset in select(preset::names().collect::<Vec<_>>()),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0..3_u8, any::<u8>()), 1..8),
    ) {
        let mut bytes = preset::source(&preset, Tier::Run).unwrap().bytes;
        for (at, what, byte) in cuts {
            let at = at.index(bytes.len());
            match what {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
        }
        check_diagnostics(bytes);
    }

    #[test]
    fn no_text_of_syntax_makes_the_loader_panic(
        text in "(version = 1|\\[\\[rule\\]\\]|when|\\.|=|\"|'|\\[|\\]|\\{|\\}|\n|,|\\$|\\*\\*|/|id|tools|effect|é| ){0,40}",
    ) {
        check_diagnostics(text.into_bytes());
    }
}

/// A file that doesn't load is told about, at places that are in it.
fn check_diagnostics(bytes: Vec<u8>) {
    let lines = u32::try_from(bytes.split(|byte| *byte == b'\n').count()).unwrap();
    if let Err(told) = load_bytes(bytes) {
        assert!(!told.is_empty());
        for fault in told {
            assert!(fault.line.is_none_or(|line| (1..=lines).contains(&line)), "{fault:?}");
            assert!(
                fault.column.is_none_or(|column| column > 0) && !fault.message.is_empty(),
                "{fault:?}"
            );
        }
    }
}

/// Ten thousand rules cost a decision little more than ten do. The bound is wide: this is a build
/// without optimisation on a busy machine, and what it must catch is a loop over all of them.
#[test]
fn ten_thousand_rules_stay_fast() {
    let rules: Vec<RuleText> = (0..10_000)
        .map(|n| RuleText {
            effect: ["allow", "deny", "ask"][n % 3],
            tools: vec!["create_file", "edit_file"],
            condition: Some(("write", vec![format!("crates/c{n}/src/**"), format!("crates/c{n}/*.md")])),
            max_bytes: None,
        })
        .collect();
    let set = loaded("version = 1\n", &rules);
    let at = Location::Inside("crates/c9999/src/deep/er/lib.rs".into());
    let path = facts("crates/c9999/src/deep/er/lib.rs".into(), at.clone(), at);
    let call = call_of("edit_file", vec![Subject::Path { access: Access::Write, path }]);
    let verdict = decide(&set, &call);
    assert_eq!(verdict.rule.map(|at| at.id).as_deref(), Some("r9999"));
    let started = std::time::Instant::now();
    let rounds = 200;
    for _ in 0..rounds {
        assert!(decide(&set, &call).allows());
    }
    let each = started.elapsed() / rounds;
    assert!(each < std::time::Duration::from_millis(5), "{each:?} a decision");
}
