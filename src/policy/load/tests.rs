//! Loading: what is read, what is wrong and where, and what several files come to.

use super::*;
use crate::policy::{
    matrix::{Mode, Profile},
    set::{AskMeans, DefaultDecision, HardLinks, OnDenial, Sandbox},
};

fn place() -> Place {
    Place { root: "/work/tree".into(), home: Some("/home/u".into()) }
}

pub(super) fn source(name: &str, tier: Tier, text: &str) -> Source {
    Source { name: name.into(), file_name: name.into(), tier, bytes: text.as_bytes().to_vec() }
}

pub(super) fn load_all(
    sources: Vec<Source>,
    beside: &[(&str, &str)],
) -> Result<PolicySet, Vec<Diagnostic>> {
    load(sources, &place(), &mut |entry, from| {
        let found = beside.iter().find(|(name, _)| *name == entry);
        let (name, text) = found.ok_or_else(|| format!("`{entry}` can't be read"))?;
        Ok(source(name, from.tier, text))
    })
}

fn one(text: &str) -> Result<PolicySet, Vec<Diagnostic>> {
    load_all(vec![source("p.toml", Tier::Run, text)], &[])
}

/// The mistakes of a file as `line:column message`.
fn faults(text: &str) -> Vec<String> {
    let told = one(text).map(|set| set.rules.len()).unwrap_err();
    told.iter()
        .map(|fault| {
            let place = fault.line.zip(fault.column).map(|(line, column)| format!("{line}:{column} "));
            format!("{}{}", place.unwrap_or_default(), fault.message)
        })
        .collect()
}

pub(super) fn one_fault(text: &str) -> String {
    let told = faults(text);
    assert_eq!(told.len(), 1, "{told:#?}");
    told.into_iter().next().unwrap()
}

pub(super) fn rule(lines: &str) -> String {
    format!("version = 1\n[[rule]]\nid = \"r\"\n{lines}\n")
}

#[test]
fn three_mistakes_are_three_diagnostics() {
    let text = "version = 1\r\nmod = \"plan\"\r\n\r\n[[rule]]\r\nid = \"a\"\r\neffect = \"alow\"\r\n\
                tools = [\"read_file\", \"ไฟล์\", \"writ_file\"]\r\n";
    assert_eq!(
        faults(text),
        [
            "2:1 `mod` isn't a key of a policy; did you mean `mode`?",
            "6:10 `effect` must be `allow` or `ask` or `deny`; did you mean `allow`?",
            "7:23 there is no tool `ไฟล์`",
            "7:31 there is no tool `writ_file`; did you mean `edit_file`?",
        ]
    );
    let told = one(text).map(|_| ()).unwrap_err();
    assert_eq!(told[1].file, "p.toml");
    assert_eq!(told[1].excerpt.as_deref(), Some("6 | effect = \"alow\"\n  |          ^^^^^^"));
}

#[test]
fn every_error_of_the_syntax_is_told() {
    let told = faults("version = 1\nname = \"a\nmode = plan\nname = \"b\"\n");
    assert!(told.len() >= 2, "{told:#?}");
    assert!(told[0].starts_with("2:") && told[1].starts_with("3:"), "{told:#?}");
    let twice = one_fault("version = 1\n[[rule]]\nid = \"a\"\neffect = \"deny\"\neffect = \"allow\"\n");
    assert!(twice.starts_with("5:1 duplicate key"), "{twice}");
}

#[test]
fn mistakes_in_a_rule_are_told_where_they_are() {
    let base = "effect = \"allow\"\ntools = [\"edit_file\"]\n";
    for (lines, expected) in [
        ("effect = \"allow\"", "2:1 the rule has no `tools`"),
        ("effect = 1\ntools = [\"edit_file\"]", "4:10 `effect` must be a string, not an integer"),
        ("effect = \"deny\"\ntools = []", "5:9 `tools` is empty, so the rule concerns nothing"),
        ("effect = \"deny\"\ntools = [\"Shell\"]", "5:10 there is no tool `Shell`"),
        (
            "effect = \"deny\"\ntools = [\"mcp:x\"]",
            "5:10 there is no tool `mcp:x`; write `mcp:SERVER/TOOL`",
        ),
        (
            &format!("{base}when.read = [\"x\"]"),
            "6:6 `when.read` is never asked: none of the rule's tools feeds it",
        ),
        (
            &format!("{base}when.command = \"rm\""),
            "6:6 `when.command` is never asked: none of the rule's tools feeds it",
        ),
        (&format!("{base}quota = {{}}"), "6:1 `quota` isn't supported by this version of thcode"),
        (
            &format!("{base}enforcement = \"soft\""),
            "6:15 only `hard` is supported by this version of thcode",
        ),
        (
            &format!("{base}when.write = [\"src/**\", \"a[\"]"),
            "6:25 `[` isn't closed; write `\\[` for itself",
        ),
        (&format!("{base}when.write = []"), "6:14 `when.write` is empty, so it covers nothing"),
        (&format!("{base}when.write = \"$src\""), "6:14 `$src` isn't in `[vars]`"),
        (
            &format!("{base}when.write = [\"/etc/**\"]"),
            "6:15 `/etc/**` is absolute, which only a deny can be; write it relative to the root",
        ),
        (
            &format!("{base}when.write = [\"${{HOME}}/x\"]"),
            "6:15 `${HOME}/x` is absolute, which only a deny can be; write it relative to the root",
        ),
        (
            "effect = \"deny\"\ntools = [\"edit_file\"]\nwhen.write = [\"${WORK}/x\"]",
            "6:15 `${WORK}` isn't known; only `${HOME}` is",
        ),
        (
            "effect = \"deny\"\ntools = [\"edit_file\"]\nwhen.file = { max_bytes = 1 }",
            "6:6 `when.file` bounds what a grant covers; only an allow can have it",
        ),
        (
            &format!("{base}when.file = {{ kinds = [\"fifo\"] }}"),
            "6:24 `kinds` must be `regular` or `directory` or `absent`",
        ),
        (
            &format!("{base}when.file = {{ max_bytes = -1 }}"),
            "6:27 `max_bytes` must be between 1 and 9223372036854775807",
        ),
        (
            &format!(
                "{base}when.write = [\"src/**\"]\nmatch = [{{ tool = \"edit_file\", path = \"Src/a\" }}]"
            ),
            "7:10 the rule `r` doesn't match this example",
        ),
        (
            &format!(
                "{base}when.write = [\"src/**\"]\nno_match = [{{ tool = \"edit_file\", path = \"a/../src/a\" }}]"
            ),
            "7:13 the rule `r` matches this example",
        ),
        (
            &format!("{base}match = [{{ tool = \"edit_file\", path = \"~/a\" }}]"),
            "6:39 the path starts with `~`, which nobody expands here; write it relative to the workspace root",
        ),
        (&format!("{base}match = [\"git push\"]"), "6:10 the rule `r` doesn't match this example"),
        (
            &format!("{base}match = [{{ tool = \"fetch_url\", path = \"a\" }}]"),
            "6:19 `fetch_url` is not a tool that takes a path",
        ),
        (
            &format!("{base}whem.write = [\"a\"]"),
            "6:1 `whem` isn't a key of a rule; did you mean `when`?",
        ),
        (&format!("{base}reason = \"\""), "6:10 `reason` is empty"),
    ] {
        assert_eq!(one_fault(&rule(lines)), expected);
    }
}

#[test]
fn mistakes_in_a_file_are_told_where_they_are() {
    for (text, expected) in [
        ("", "1:1 `version = 1` is missing"),
        ("version = 2", "1:11 `version` must be between 1 and 1"),
        ("version = 1\nsnapshot = {}", "2:1 `snapshot` isn't supported by this version of thcode"),
        ("version = 1\nmode = 3", "2:8 `mode` must be a string, not an integer"),
        ("version = 1\nmode = \"bild\"", "2:8 `mode` must be `plan` or `build`; did you mean `build`?"),
        ("version = 1\nengine = 3", "2:10 `engine` must be a table, not an integer"),
        ("version = 1\n[engine]\ndefault = \"allow\"", "3:11 `default` must be `deny` or `ask`"),
        ("version = 1\n[engine]\nunresolved = \"ask\"", "3:14 `unresolved` must be `deny`"),
        (
            "version = 1\n[limits]\ncommands = 3",
            "3:1 `commands` isn't supported by this version of thcode",
        ),
        ("version = 1\n[limits]\njson_depth = 0", "3:14 `json_depth` must be between 1 and 127"),
        ("version = 1\n[budget]\niterations = 0", "3:14 `iterations` must be between 1 and 4294967295"),
        (
            "version = 1\nprotected = [\"/etc\"]",
            "2:14 `/etc` is absolute, which only a deny can be; write it relative to the root",
        ),
        ("version = 1\n[vars]\na = [\"$b\"]\nb = [\"$a\"]", "4:6 `$a` refers to itself"),
        (
            "version = 1\n[vars]\na = [\"$source\"]\nsources = [\"x\"]",
            "3:6 `$source` isn't in `[vars]`; did you mean `sources`?",
        ),
        (
            "version = 1\n[vars]\nA = [\"x\"]",
            "3:1 a variable is named by small letters, digits, `_` and `-`",
        ),
        (
            "version = 1\nextends = [\"../x.toml\"]",
            "2:12 `extends` names `preset:NAME` or a file beside this one, without a folder",
        ),
        ("version = 1\nextends = [\"x.toml\"]", "2:12 `x.toml` can't be read"),
        (
            "version = 1\nextends = [\"preset:x\"]",
            "2:12 there is no `preset:x`; there are preset:read-only, preset:refactor, preset:review",
        ),
        (
            "version = 1\ntier = \"builtin\"",
            "2:8 `tier` may only lower the authority of a file, and this one is of tier `run`",
        ),
        ("version = 1\n# a\0b", "2:4 a NUL in the file"),
    ] {
        assert_eq!(one_fault(text), expected, "{text}");
    }
}

#[test]
fn bytes_that_are_no_text_are_told_where_they_start() {
    let load_bytes = |bytes: &[u8]| {
        let source = Source { bytes: bytes.to_vec(), ..source("p.toml", Tier::Run, "") };
        load_all(vec![source], &[]).map(|set| set.rules.len())
    };
    let told = load_bytes(b"version = 1\nname = \"\xe0\xb9\x84\xff\"\n").unwrap_err();
    assert_eq!((told[0].line, told[0].column), (Some(2), Some(10)));
    assert!(load_bytes(b"\xff\xfev\0").unwrap_err()[0].message.contains("UTF-16"));
    assert_eq!(load_bytes(b"\xef\xbb\xbfversion = 1\n"), Ok(0));
    let large = vec![b' '; document::LARGEST_FILE + 1];
    assert!(load_bytes(&large).unwrap_err()[0].message.contains("10485760 is the most"));
}

#[test]
fn nothing_nests_so_deep_that_the_stack_ends() {
    let dotted = "a.".repeat(100_000) + "a = 1";
    assert!(one_fault(&format!("version = 1\n{dotted}")).contains("more than 16 parts"));
    let arrays = format!("version = 1\nx = {}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(!faults(&arrays).is_empty());
    let part = ["a"; 16].join(".");
    let tables = format!("version = 1\n{} = {}{}", part, format!("{{ {part} = ").repeat(79), "1");
    assert!(!faults(&tables).is_empty());
    let braces = rule(&format!(
        "effect = \"deny\"\ntools = [\"edit_file\"]\nwhen.write = [\"{}\"]",
        "{a,".repeat(300) + &"}".repeat(100)
    ));
    assert!(!faults(&braces).is_empty());
    let vars: String =
        (0..200).map(|n| format!("v{n} = [\"$v{}\", \"$v{}\"]\n", n + 1, n + 1)).collect();
    assert!(!faults(&format!("version = 1\n[vars]\n{vars}v200 = \"x\"\n")).is_empty());
}

#[test]
fn many_mistakes_are_counted_but_not_all_told() {
    let text: String = (0..500).map(|n| format!("key{n} = 1\n")).collect();
    let told = faults(&format!("version = 1\n{text}"));
    assert_eq!(told.len(), 101);
    assert_eq!(told[100], "500 mistakes were found; 100 of them are told");
}

#[test]
fn what_is_right_loads() {
    let set = one(r#"
        #:schema ../schemas/policy.v1.schema.json
        version = 1
        name = "all"
        description = "Every key."
        tier = "run"
        mode = "build"
        profile = "full-access"
        sensitive_override = true
        on_denial = "stop"
        protected = ["keep/**", "$more"]
        [engine]
        default = "ask"
        ask_means = "stop"
        unresolved = "deny"
        case_fold = "deny-rules"
        [limits]
        arg_bytes = 20_971_520
        json_depth = 0x10
        [vars]
        src = ["src/**", "$more"]
        more = "lib/**"
        [budget]
        iterations = 7
        tool_calls = 30
        total_tokens = 2_000_000
        wall_time_ms = 60_000
        files_changed = 20
        bytes_written = 5_000_000
        [checkpoint]
        retention_rounds = 9
        per_checkpoint_cap_bytes = 1_000_000
        store_cap_bytes = 2_000_000
        hardlinks = "break"
        [sandbox]
        mode = "off"
        [commands]
        timeout_ms = 60_000
        env_allow = ["A", "B"]
        toolchains = ["rust"]
        [[rule]]
        id = "a"
        effect = "allow"
        enforcement = "hard"
        tools = ["create_file", "edit_file", "mcp:server/*", "run_command"]
        reason = "because"
        suggest = "try"
        when = { write = "$src", file = { kinds = ["regular"], max_bytes = 5, max_links = 1 } }
        match = [{ tool = "edit_file", path = "/work/tree/lib/x" }]
        no_match = [{ tool = "edit_file", path = "/work/tree-evil/lib/x" }]
        [[rule]]
        id = "b"
        effect = "deny"
        tools = ["read_file"]
        when.read = ["${HOME}/.ssh/**", "/proc/*/environ"]
        match = [{ tool = "read_file", path = "${HOME}/.SSH/id_rsa" },
                 { tool = "read_file", path = "/home/u/tmp/../.ssh" },
                 { tool = "read_file", path = "/proc/1/environ" }]
    "#)
    .unwrap();
    let settings = Settings {
        mode: Mode::Build,
        profile: Profile::FullAccess,
        sensitive_override: true,
        default: DefaultDecision::Ask,
        ask_means: AskMeans::Stop,
        on_denial: OnDenial::Stop,
        arg_bytes: 20_971_520,
        json_depth: 16,
        iterations: 7,
        tool_calls: Some(30),
        total_tokens: Some(2_000_000),
        wall_time_ms: Some(60_000),
        files_changed: Some(20),
        bytes_written: Some(5_000_000),
        retention_rounds: Some(9),
        checkpoint_cap: Some(1_000_000),
        store_cap: Some(2_000_000),
        hard_links: HardLinks::Break,
        sandbox: Sandbox::Off,
        command_timeout_ms: 60_000,
    };
    assert_eq!(*set.settings(), settings);
    assert_eq!(set.examples(), 5);
    let places: Vec<_> = set.rules().iter().map(|rule| (rule.at.id.as_str(), rule.at.line)).collect();
    assert_eq!(places, [("a", 41), ("b", 51)]);
}

#[test]
fn an_unset_home_is_no_silent_nothing() {
    let text = rule("effect = \"deny\"\ntools = [\"read_file\"]\nwhen.read = \"${HOME}/x\"");
    let homeless = Place { home: None, ..place() };
    let told = load(vec![source("p", Tier::Run, &text)], &homeless, &mut |_, _| Err("no".into()));
    assert!(told.unwrap_err()[0].message.contains("HOME isn't set"));
}

#[test]
fn of_several_files_the_strictest_setting_holds() {
    let a = "version = 1\nmode = \"build\"\nprofile = \"full-access\"\non_denial = \"ignore\"\n\
             [engine]\ndefault = \"ask\"\n[budget]\niterations = 9\n";
    let b = "version = 1\nmode = \"plan\"\nprofile = \"assisted\"\non_denial = \"fail\"\n\
             [engine]\nask_means = \"stop\"\n[budget]\niterations = 3\n";
    let run = |name, text| source(name, Tier::Run, text);
    for sources in [vec![run("a", a), run("b", b)], vec![run("b", b), run("a", a)]] {
        let settings = *load_all(sources, &[]).unwrap().settings();
        assert_eq!(settings.mode, Mode::Plan);
        assert_eq!(settings.profile, Profile::Assisted);
        assert_eq!(settings.on_denial, OnDenial::Fail);
        assert_eq!(settings.default, DefaultDecision::Ask);
        assert_eq!(settings.ask_means, AskMeans::Stop);
        assert_eq!(settings.iterations, 3);
    }
}

#[test]
fn the_checked_out_tree_may_only_tighten() {
    let wide = "version = 1\nprofile = \"full-access\"\nsensitive_override = true\non_denial = \"ignore\"\n\
                [engine]\ndefault = \"ask\"\n[limits]\narg_bytes = 50000000\njson_depth = 127\n";
    let alone = load_all(vec![source("r", Tier::Repo, wide)], &[]).unwrap();
    assert_eq!(*alone.settings(), Settings::default());
    let strict = "version = 1\nmode = \"plan\"\n[limits]\njson_depth = 4\n";
    let sources = vec![source("r", Tier::Run, wide), source("s", Tier::Repo, strict)];
    let settings = *load_all(sources, &[]).unwrap().settings();
    assert_eq!((settings.mode, settings.json_depth), (Mode::Plan, 4));
    assert_eq!(settings.profile, Profile::FullAccess);
}

#[test]
fn a_grant_of_the_checked_out_tree_has_no_effect_and_is_told() {
    let grant = |id: &str, glob: &str| {
        format!(
            "[[rule]]\nid = \"{id}\"\neffect = \"allow\"\ntools = [\"edit_file\"]\nwhen.write = [\"{glob}\"]\n"
        )
    };
    let run = format!("version = 1\n{}", grant("a", "src/**"));
    let repo = format!("version = 1\n{}{}", grant("b", "src/**"), grant("c", "**"));
    let sources = || vec![source("repo", Tier::Repo, &repo), source("run", Tier::Run, &run)];
    let set = load_all(sources(), &[]).unwrap();
    let told: Vec<_> = set.repo_grants().iter().map(|at| at.id.as_str()).collect();
    assert_eq!(told, ["c"]);
    let held: Vec<_> = set.rules().iter().map(|rule| rule.at.id.as_str()).collect();
    assert_eq!(held, ["a"]);
    // A preset gains nothing by being named in the tree, nor does a file that lowers itself.
    for text in ["extends = [\"preset:refactor\"]", &format!("tier = \"repo\"\n{}", grant("d", "**"))] {
        let tier = if text.starts_with("tier") { Tier::Run } else { Tier::Repo };
        let set = load_all(vec![source("x", tier, &format!("version = 1\n{text}"))], &[]).unwrap();
        assert!(!set.repo_grants().is_empty());
        assert!(set.rules().iter().all(|rule| rule.effect != Effect::Allow));
    }
}

#[test]
fn files_extend_files_once_and_never_in_a_circle() {
    let base = (
        "base.toml",
        "version = 1\n[[rule]]\nid = \"base\"\neffect = \"deny\"\ntools = [\"edit_file\"]\n",
    );
    let left = ("left.toml", "version = 1\nextends = [\"base.toml\"]\n");
    let right = ("right.toml", "version = 1\nextends = [\"base.toml\", \"preset:read-only\"]\n");
    let top = source("top.toml", Tier::Run, "version = 1\nextends = [\"left.toml\", \"right.toml\"]\n");
    let set = load_all(vec![top.clone()], &[base, left, right]).unwrap();
    let names: Vec<_> = set.files().iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["top.toml", "left.toml", "base.toml", "right.toml", "preset:read-only"]);
    assert!(set.files().iter().all(|file| file.tier == Tier::Run));
    let circle = ("base.toml", "version = 1\nextends = [\"left.toml\"]\n");
    let told = load_all(vec![top], &[circle, left, right]).map(|_| ()).unwrap_err();
    assert!(told.iter().any(|fault| fault.message.contains("extends itself")), "{told:#?}");
}

#[test]
fn ids_are_unique_over_all_files() {
    let text = rule("effect = \"deny\"\ntools = [\"edit_file\"]");
    let sources = vec![source("a", Tier::Run, &text), source("b", Tier::Run, &format!("{text}\n"))];
    let told = load_all(sources, &[]).map(|_| ()).unwrap_err();
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].file.as_str(), told[0].line), ("b", Some(3)));
    assert_eq!(told[0].message, "the id `r` is taken by a:3");
    // One file named twice is one file.
    let twice = vec![source("a", Tier::Run, &text), source("a", Tier::Run, &text)];
    assert_eq!(load_all(twice, &[]).unwrap().files().len(), 1);
}

#[test]
fn the_digest_is_of_names_and_bytes_alone() {
    let digest = |tier, name: &str, file_name: &str, texts: [&str; 2]| {
        let sources = texts.iter().zip(["x", file_name]).map(|(text, file_name)| Source {
            name: format!("{name}/{file_name}"),
            file_name: file_name.into(),
            tier,
            bytes: text.as_bytes().to_vec(),
        });
        load_all(sources.collect(), &[]).unwrap().digest()
    };
    let (one, two) = ("version = 1\n", "version = 1\nmode = \"plan\"\n");
    let first = digest(Tier::Run, "here", "y", [one, two]);
    assert_eq!(first, digest(Tier::Repo, "there", "y", [one, two]));
    assert_ne!(first, digest(Tier::Run, "here", "z", [one, two]));
    assert_ne!(first, digest(Tier::Run, "here", "y", [two, one]));
    assert_eq!(first, Digest::of(format!("x\0{one}\0y\0{two}\0").as_bytes()));
}

#[test]
fn every_preset_loads_and_every_rule_has_examples_and_a_reason() {
    for name in preset::names() {
        let source = preset::source(&name, Tier::Run).unwrap();
        let text = String::from_utf8(source.bytes.clone()).unwrap();
        let set = load_all(vec![source], &[]).unwrap_or_else(|told| panic!("{name}: {told:#?}"));
        assert!(!set.rules().is_empty());
        for rule in set.rules() {
            assert!(rule.reason.is_some(), "{name}: {}", rule.at.id);
        }
        for rule in text.split("[[rule]]").skip(1) {
            assert!(rule.contains("\nmatch ") && rule.contains("\nno_match "), "{name}: {rule}");
        }
        let lines: Vec<_> = text.lines().collect();
        let mut rules = lines.windows(2).filter(|pair| pair[1] == "[[rule]]");
        assert!(rules.all(|pair| pair[0].starts_with('#')), "{name}: a rule without a word on why");
    }
    assert!(preset::source(preset::DEFAULT, Tier::Builtin).is_some());
    assert!(preset::source("preset:nothing", Tier::Builtin).is_none());
}

#[test]
fn what_may_go_without_images_is_named_with_its_size_and_reason() {
    let text = "version = 1\n[checkpoint]\nallow_unprotected = [\n\
        { paths = [\"data/*.bin\"], reason = \"built anew\", max_bytes = 9 },\n\
        { paths = [\"data/**\"], reason = \"small\", max_bytes = 3 }]\n";
    let set = load_all(vec![source("p", Tier::Run, text)], &[]).unwrap();
    assert_eq!(set.unprotected_up_to("data/a.bin"), Some(9));
    assert_eq!(set.unprotected_up_to("data/x/a.bin"), Some(3));
    assert_eq!(set.unprotected_up_to("Data/a.bin"), None, "exact, as a grant");
    let repo = load_all(vec![source("p", Tier::Repo, text)], &[]).unwrap();
    assert_eq!(repo.unprotected_up_to("data/a.bin"), None, "the checked-out tree has no say");
    let text = "version = 1\n[checkpoint]\nallow_unprotected = [{ paths = [\"x\"], size = 1 }]\n";
    let told = load_all(vec![source("p", Tier::Run, text)], &[]);
    let told: Vec<String> = told.unwrap_err().into_iter().map(|fault| fault.message).collect();
    assert_eq!(told.len(), 3, "{told:?}");
}
