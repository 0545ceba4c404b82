//! The order of evaluation, case by case.

use super::*;
use crate::{
    floor::Location,
    policy::{
        explain::explain,
        load::{Source, load},
        matrix::Mode,
        preset,
        rule::Tier,
        set::Place,
    },
};

fn set(text: &str) -> PolicySet {
    let bytes = format!("version = 1\n{text}").into_bytes();
    let source = Source { name: "p".into(), file_name: "p".into(), tier: Tier::Run, bytes };
    loaded(source)
}

fn loaded(source: Source) -> PolicySet {
    let place = Place { root: "/work/tree".into(), home: Some("/home/u".into()) };
    load(vec![source], &place, &mut |entry, _| Err(entry.into()))
        .unwrap_or_else(|told| panic!("{told:#?}"))
}

fn rule(id: &str, effect: &str, tools: &str, lines: &str) -> String {
    format!("[[rule]]\nid = \"{id}\"\neffect = \"{effect}\"\ntools = [{tools}]\n{lines}\n")
}

fn at(path: &str) -> Location {
    match path.starts_with('/') {
        true => Location::Outside(path.to_owned()),
        false => Location::Inside(path.to_owned()),
    }
}

fn facts(lexical: &str, resolved: &str) -> PathFacts {
    PathFacts {
        given: lexical.to_owned(),
        lexical: at(lexical),
        resolved: at(resolved),
        kind: FileKind::Regular,
        links: 1,
        bytes: 10,
    }
}

fn call_of(tool: &str, paths: &[PathFacts]) -> ResolvedCall {
    let class = ActionClass::of_tool(tool);
    let access = match class {
        Some(ActionClass::WriteFile) => Access::Write,
        Some(ActionClass::Delete) => Access::Delete,
        _ => Access::Read,
    };
    let subjects = paths.iter().map(|path| Subject::Path { access, path: path.clone() }).collect();
    ResolvedCall { tool: tool.to_owned(), class, subjects }
}

/// The verdict in a line: decision, what it rests on, and the rule or the cause.
fn told(set: &PolicySet, call: &ResolvedCall) -> String {
    let verdict = decide(set, call);
    assert_eq!(verdict, explain(set, call).verdict);
    let by = verdict.rule.map(|at| at.id).or(verdict.cause.map(str::to_owned)).unwrap_or_default();
    format!("{:?} {:?} {by}", verdict.decision, verdict.because).trim_end().to_owned()
}

fn on(set: &PolicySet, tool: &str, path: &str) -> String {
    told(set, &call_of(tool, &[facts(path, path)]))
}

const EDIT: &str = "\"create_file\", \"edit_file\"";

#[test]
fn reads_are_allowed_and_changes_need_a_grant() {
    let empty = set("");
    assert_eq!(on(&empty, "read_file", "src/a"), "Allow Matrix");
    assert_eq!(on(&empty, "list_files", ""), "Allow Matrix");
    assert_eq!(on(&empty, "edit_file", "src/a"), "Deny Default");
    let granted = set(&rule("g", "allow", EDIT, "when.write = \"src/**\""));
    assert_eq!(on(&granted, "edit_file", "src/a"), "Allow Rule g");
    assert_eq!(on(&granted, "create_file", "src/a"), "Allow Rule g");
    assert_eq!(on(&granted, "edit_file", "Src/a"), "Deny Default");
    assert_eq!(on(&granted, "delete_file", "src/a"), "Deny Default");
    let verdict = decide(&granted, &call_of("edit_file", &[facts("lib/a", "lib/a")]));
    assert_eq!(verdict.suggest.as_deref(), Some("Granted to `edit_file`: src/**."));
}

#[test]
fn the_floor_stands_above_every_grant() {
    let wide = set(&format!(
        "profile = \"full-access\"\n{}",
        rule("g", "allow", "\"create_file\", \"edit_file\", \"delete_file\", \"read_file\"", "")
    ));
    for (tool, path, expected) in [
        ("edit_file", ".git/config", "Deny Floor git-directory"),
        ("create_file", ".github/workflows/x", "Deny Floor control-file"),
        ("read_file", "/etc/passwd", "Deny Floor outside-workspace"),
        ("read_file", ".env", "Deny Floor secret-read"),
        ("edit_file", ".env", "Deny Floor secret-read"),
        ("search_text", ".env", "Deny Floor secret-read"),
        ("create_file", ".env", "Allow Rule g"),
        ("delete_file", ".env", "Allow Rule g"),
    ] {
        assert_eq!(on(&wide, tool, path), expected, "{tool} {path}");
    }
    let directory = PathFacts { kind: FileKind::Directory, ..facts(".ssh", ".ssh") };
    assert_eq!(told(&wide, &call_of("search_text", &[directory])), "Allow Matrix");
}

#[test]
fn deny_beats_ask_beats_grant_in_any_order() {
    let grant = rule("g", "allow", EDIT, "when.write = \"src/secret/deep.rs\"");
    let ask = rule("q", "ask", EDIT, "when.write = \"src/**\"");
    let deny = rule("d", "deny", EDIT, "when.write = \"**\"");
    for rules in [[&grant, &ask, &deny], [&deny, &ask, &grant], [&ask, &deny, &grant]] {
        let all = set(&rules.map(String::as_str).concat());
        assert_eq!(on(&all, "edit_file", "src/secret/deep.rs"), "Deny Rule d");
    }
    for rules in [[&grant, &ask], [&ask, &grant]] {
        let both = set(&rules.map(String::as_str).concat());
        assert_eq!(on(&both, "edit_file", "src/secret/deep.rs"), "Ask Rule q");
    }
}

#[test]
fn plan_mode_cant_be_granted_away() {
    let grant = rule("g", "allow", EDIT, "");
    let plan = set(&format!("mode = \"plan\"\nprofile = \"full-access\"\n{grant}"));
    assert_eq!(on(&plan, "edit_file", "src/a"), "Deny Matrix");
    let mut lowered = set(&grant);
    assert_eq!(on(&lowered, "edit_file", "src/a"), "Allow Rule g");
    lowered.lower_mode(Mode::Plan);
    assert_eq!(on(&lowered, "edit_file", "src/a"), "Deny Matrix");
    lowered.lower_mode(Mode::Build);
    assert_eq!(on(&lowered, "edit_file", "src/a"), "Deny Matrix");
}

#[test]
fn full_access_allows_what_nothing_touches() {
    let full = set(&format!(
        "profile = \"full-access\"\n{}{}",
        rule("d", "deny", EDIT, "when.write = \"keep/**\""),
        rule("q", "ask", EDIT, "when.write = \"think/**\"")
    ));
    assert_eq!(on(&full, "edit_file", "src/a"), "Allow Matrix");
    assert_eq!(on(&full, "delete_file", "src/a"), "Allow Matrix");
    assert_eq!(on(&full, "edit_file", "keep/a"), "Deny Rule d");
    assert_eq!(on(&full, "edit_file", "think/a"), "Ask Rule q");
}

#[test]
fn what_nobody_decides_is_denied_or_asked() {
    let asking = set("[engine]\ndefault = \"ask\"\n");
    assert_eq!(on(&asking, "edit_file", "src/a"), "Ask Default");
    assert_eq!(on(&asking, "read_file", "src/a"), "Allow Matrix");
}

#[test]
fn a_link_is_judged_by_both_its_ends() {
    let both = set(&format!(
        "{}{}{}",
        rule("s", "allow", EDIT, "when.write = \"src/**\""),
        rule("d", "allow", EDIT, "when.write = \"docs/**\""),
        rule("n", "deny", "\"read_file\"", "when.read = \"private/**\"")
    ));
    let linked = |tool: &str, from: &str, to: &str| told(&both, &call_of(tool, &[facts(from, to)]));
    assert_eq!(linked("edit_file", "src/link.rs", "src/real.rs"), "Allow Rule s");
    assert_eq!(linked("edit_file", "docs/link", "src/real.rs"), "Allow Rule s");
    assert_eq!(linked("edit_file", "src/link.rs", "lib/real.rs"), "Deny Default");
    assert_eq!(linked("edit_file", "lib/link.rs", "src/real.rs"), "Deny Default");
    assert_eq!(linked("edit_file", "src/link", "/etc/x"), "Deny Floor outside-workspace");
    assert_eq!(linked("edit_file", "src/cfg/config", ".git/config"), "Deny Floor git-directory");
    assert_eq!(linked("read_file", "benign", "private/key"), "Deny Rule n");
    assert_eq!(linked("read_file", "private/link", "benign"), "Deny Rule n");
}

#[test]
fn a_write_condition_covers_deletes_as_far_as_it_is_safe() {
    let only = |effect: &str, tools: &str, key: &str| {
        set(&rule("r", effect, tools, &format!("when.{key} = \"src/**\"")))
    };
    let all = "\"edit_file\", \"delete_file\"";
    assert_eq!(on(&only("allow", all, "write"), "delete_file", "src/a"), "Allow Rule r");
    assert_eq!(on(&only("allow", all, "delete"), "delete_file", "src/a"), "Allow Rule r");
    assert_eq!(on(&only("allow", all, "delete"), "edit_file", "src/a"), "Deny Default");
    assert_eq!(on(&only("deny", all, "write"), "delete_file", "src/a"), "Deny Rule r");
    assert_eq!(on(&only("deny", all, "delete"), "edit_file", "src/a"), "Deny Default");
    assert_eq!(on(&only("deny", "\"delete_file\"", "write"), "delete_file", "src/a"), "Deny Rule r");
}

#[test]
fn a_grant_can_ask_for_a_kind_a_size_and_a_number_of_links() {
    let bounded = set(&rule(
        "g",
        "allow",
        EDIT,
        "when.file = { kinds = [\"regular\"], max_bytes = 10, max_links = 1 }",
    ));
    let of = |kind, bytes| PathFacts { kind, bytes, ..facts("src/a", "src/a") };
    let judged = |path| told(&bounded, &call_of("edit_file", &[path]));
    assert_eq!(judged(of(FileKind::Regular, 10)), "Allow Rule g");
    assert_eq!(judged(of(FileKind::Absent, 0)), "Allow Rule g");
    assert_eq!(judged(of(FileKind::Regular, 11)), "Deny Default");
    assert_eq!(judged(of(FileKind::Unknown, 0)), "Deny Unresolved path-unreadable");
}

#[test]
fn the_strictest_subject_decides_and_every_one_must_be_covered() {
    let granted = set(&rule("g", "allow", EDIT, "when.write = \"src/**\""));
    let paths = |names: &[&str]| names.iter().map(|name| facts(name, name)).collect::<Vec<_>>();
    let of = |names: &[&str]| call_of("edit_file", &paths(names));
    assert_eq!(told(&granted, &of(&["src/a", "src/b"])), "Allow Rule g");
    let mixed = of(&["src/a", "lib/b", ".git/c"]);
    assert_eq!(told(&granted, &mixed), "Deny Default");
    assert_eq!(decide(&granted, &mixed).subject, Some(1));
    let mut unresolved = of(&["src/a"]);
    unresolved.subjects.push(Subject::Unresolved { given: "x".into(), reason: "glob-expansion" });
    assert_eq!(told(&granted, &unresolved), "Deny Unresolved glob-expansion");
}

#[test]
fn a_tool_that_isnt_known_is_denied_whatever_a_rule_says() {
    let wide = set(&format!(
        "profile = \"full-access\"\n{}",
        rule("g", "allow", "\"mcp:evil/*\", \"read_file\", \"run_command\"", "")
    ));
    for tool in ["mcp:evil/read", "Read_file", "read_file\u{200b}", "shell", ""] {
        assert_eq!(on(&wide, tool, "src/a"), "Deny Matrix", "{tool}");
    }
    let disguised = ResolvedCall {
        class: Some(ActionClass::ReadFile),
        ..call_of("mcp:evil/read_file", &[facts("src/a", "src/a")])
    };
    assert_eq!(told(&wide, &disguised), "Deny Matrix");
    let other_class = ResolvedCall {
        class: Some(ActionClass::ListFiles),
        ..call_of("run_command", &[facts("a", "a")])
    };
    assert_eq!(told(&wide, &other_class), "Deny Matrix");
    assert_eq!(told(&wide, &call_of("run_command", &[])), "Deny Unresolved no-subject");
}

#[test]
fn what_the_run_depends_on_is_guarded_and_what_the_policy_protects_too() {
    let mut own = set(&format!(
        "protected = [\"keep/**\", \"*.lock\"]\n{}",
        rule("g", "allow", "\"create_file\", \"edit_file\", \"delete_file\"", "")
    ));
    own.guard(["ci/policy.toml", "out"]);
    for (path, expected) in [
        ("ci/policy.toml", "Deny Floor guarded-path"),
        ("CI/Policy.toml", "Deny Floor guarded-path"),
        ("out/result.json", "Deny Floor guarded-path"),
        ("output/result.json", "Allow Rule g"),
        ("keep/a", "Deny Floor protected-path"),
        ("Cargo.LOCK", "Deny Floor protected-path"),
        ("src/a", "Allow Rule g"),
    ] {
        for tool in ["create_file", "edit_file", "delete_file"] {
            assert_eq!(on(&own, tool, path), expected, "{tool} {path}");
        }
        assert_eq!(on(&own, "read_file", path), "Allow Matrix");
    }
    let link = facts("src/link", "ci/policy.toml");
    assert_eq!(told(&own, &call_of("edit_file", &[link])), "Deny Floor guarded-path");
}

#[test]
fn the_presets_do_what_they_say() {
    let preset = |name: &str| loaded(preset::source(name, Tier::Run).unwrap());
    for name in ["preset:read-only", "preset:review"] {
        let set = preset(name);
        assert_eq!(on(&set, "read_file", "src/a.rs"), "Allow Rule read-only-read-tree");
        for tool in ["create_file", "edit_file", "delete_file", "fetch_url"] {
            assert_eq!(on(&set, tool, "src/a.rs"), "Deny Matrix", "{name} {tool}");
        }
    }
    assert_eq!(preset("preset:review").settings().iterations, 30);
    let refactor = preset("preset:refactor");
    assert_eq!(refactor.settings().iterations, 50);
    for (tool, path, expected) in [
        ("read_file", "Cargo.toml", "Allow Matrix"),
        ("edit_file", "src/lib.rs", "Allow Rule refactor-edit-sources"),
        ("create_file", "app/[slug]/page.tsx", "Allow Rule refactor-edit-sources"),
        ("delete_file", "src/lib.rs", "Allow Rule refactor-delete-sources"),
        ("edit_file", "build.rs", "Deny Rule refactor-no-build-programs"),
        ("edit_file", "Cargo.toml", "Deny Default"),
        ("edit_file", "package.json", "Deny Default"),
        ("create_file", ".github/workflows/x.md", "Deny Floor control-file"),
        ("run_command", "src/lib.rs", "Deny Unresolved no-subject"),
    ] {
        assert_eq!(on(&refactor, tool, path), expected, "{tool} {path}");
    }
}

#[test]
fn a_trace_shows_what_matched_and_what_nearly_did() {
    let set = set(&format!(
        "{}{}{}{}",
        rule("src", "allow", EDIT, "when.write = \"src/**\"\nwhen.file = { max_bytes = 5 }"),
        rule("docs", "allow", EDIT, "when.write = [\"docs/**\", \"*.md\"]"),
        rule("reads", "deny", "\"edit_file\", \"read_file\"", "when.read = \"x\""),
        rule("other", "deny", "\"delete_file\"", "")
    ));
    let trace = explain(&set, &call_of("edit_file", &[facts("src/a", "src/a")]));
    assert_eq!(trace.verdict.because, Because::Default);
    assert!(trace.matched.is_empty());
    let misses: Vec<_> = trace
        .near_misses
        .iter()
        .map(|miss| {
            let failed = &miss.failed;
            format!(
                "{}: {} saw {}, wanted {}",
                miss.rule.at.id, failed.condition, failed.saw, failed.wanted
            )
        })
        .collect();
    assert_eq!(
        misses,
        [
            "src: when.file.max_bytes saw 10, wanted at most 5",
            "docs: when.write saw src/a, wanted *.md, docs/**",
            "reads: when.read saw write of src/a, wanted x",
        ]
    );
    let trace = explain(&set, &call_of("edit_file", &[facts("docs/a", "lib/a")]));
    assert_eq!(trace.near_misses[1].failed.saw, "lib/a, where it leads");
    let trace = explain(&set, &call_of("edit_file", &[facts("docs/a", "docs/a")]));
    assert_eq!(trace.matched.iter().map(|rule| rule.at.id.as_str()).collect::<Vec<_>>(), ["docs"]);
    assert_eq!(trace.subjects.len(), 1);
}
