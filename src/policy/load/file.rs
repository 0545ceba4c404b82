//! One policy file: its settings, what it extends, and its rules, as far as the file alone tells.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    ops::{Range, RangeInclusive},
};

use toml::de::DeTable;

use super::{
    read::{self, Keys, check_keys, list, number, subtable, text, word},
    rule::{self, RuleDraft},
    vars::{Use, Vars},
};
use crate::policy::{
    diagnostic::Page,
    environment::{self, Toolchain},
    matrix::{Mode, Profile},
    rule::{NamedGlob, Tier},
    set::{AskMeans, DefaultDecision, HardLinks, OnDenial, Place, Sandbox},
};

const FILE: Keys = Keys {
    of: "a policy",
    known: &[
        "version",
        "name",
        "description",
        "tier",
        "extends",
        "mode",
        "profile",
        "sensitive_override",
        "engine",
        "limits",
        "vars",
        "budget",
        "checkpoint",
        "commands",
        "protected",
        "on_denial",
        "rule",
        "sandbox",
    ],
    later: &["ceiling", "floor_exception", "on_interrupted", "redact_reads", "snapshot"],
};
const ENGINE: Keys =
    Keys { of: "`[engine]`", known: &["default", "ask_means", "unresolved", "case_fold"], later: &[] };
const LIMITS: Keys =
    Keys { of: "`[limits]`", known: &["arg_bytes", "json_depth"], later: &["commands", "shell_depth"] };
const BUDGET: Keys = Keys {
    of: "`[budget]`",
    known: &[
        "iterations",
        "tool_calls",
        "total_tokens",
        "wall_time_ms",
        "files_changed",
        "bytes_written",
    ],
    later: &["cost"],
};
const CHECKPOINT: Keys = Keys {
    of: "`[checkpoint]`",
    known: &[
        "retention_rounds",
        "per_checkpoint_cap_bytes",
        "store_cap_bytes",
        "allow_unprotected",
        "hardlinks",
    ],
    later: &[],
};
const COMMANDS: Keys =
    Keys { of: "`[commands]`", known: &["env_allow", "toolchains", "timeout_ms"], later: &["shell"] };
const SANDBOX: Keys =
    Keys { of: "`[sandbox]`", known: &["mode"], later: &["network", "create", "read", "write"] };
const UNPROTECTED: Keys =
    Keys { of: "`allow_unprotected`", known: &["paths", "reason", "max_bytes"], later: &[] };

/// The most bytes of arguments that a policy may allow.
const MOST_ARG_BYTES: u64 = 100 * 1024 * 1024;
/// The deepest nesting of arguments that a policy may allow.
const DEEPEST_JSON: u64 = 127;

/// The built-in caps of what is kept, which a policy may only lower. Bytes.
const MOST_CHECKPOINT_BYTES: u64 = 104_857_600;
const MOST_STORE_BYTES: u64 = 524_288_000;

/// The longest that a policy may let a command run: a day, in milliseconds.
const MOST_COMMAND_MS: u64 = 86_400_000;

/// The longest that a policy may let a turn take: a week, in milliseconds.
const MOST_WALL_MS: u64 = 7 * 86_400_000;

/// A file, read.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// The lower tier that the file asks for, and where.
    pub(super) tier: Option<(Tier, Range<usize>)>,
    /// What it extends, and where it says so.
    pub(super) extends: Vec<(String, Range<usize>)>,
    pub(super) stated: Stated,
    pub(super) protected: Vec<NamedGlob>,
    pub(super) unprotected: Vec<Unprotected>,
    /// What commands are given of the environment, where the file says.
    pub(super) variables: Option<BTreeSet<String>>,
    pub(super) toolchains: Option<BTreeSet<Toolchain>>,
    pub(super) rules: Vec<RuleDraft>,
}

/// What may be changed without images where they don't fit, and where the file says so.
#[derive(Debug)]
pub(super) struct Unprotected {
    pub(super) paths: Vec<NamedGlob>,
    pub(super) max_bytes: u64,
    pub(super) span: Range<usize>,
}

/// The settings that a file states.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stated {
    pub(super) mode: Option<Mode>,
    pub(super) profile: Option<Profile>,
    pub(super) sensitive_override: Option<bool>,
    pub(super) default: Option<DefaultDecision>,
    pub(super) ask_means: Option<AskMeans>,
    pub(super) on_denial: Option<OnDenial>,
    pub(super) hard_links: Option<HardLinks>,
    pub(super) arg_bytes: Option<u64>,
    pub(super) json_depth: Option<u64>,
    pub(super) iterations: Option<u32>,
    pub(super) tool_calls: Option<u32>,
    pub(super) total_tokens: Option<u64>,
    pub(super) wall_time_ms: Option<u64>,
    pub(super) files_changed: Option<u32>,
    pub(super) bytes_written: Option<u64>,
    pub(super) retention_rounds: Option<Reverse<u32>>,
    pub(super) checkpoint_cap: Option<u64>,
    pub(super) store_cap: Option<u64>,
    pub(super) sandbox: Option<Sandbox>,
    pub(super) command_timeout_ms: Option<u64>,
}

/// Walks a document.
pub(super) fn draft(page: &mut Page, document: &DeTable<'_>, place: &Place) -> Draft {
    check_keys(page, document, &FILE);
    match document.get("version") {
        None => page.fault(0..0, "`version = 1` is missing"),
        Some(value) => drop(number(page, "version", value, 1..=1)),
    }
    for key in ["name", "description"] {
        if let Some(value) = document.get(key) {
            text(page, key, value);
        }
    }
    let vars = document.get("vars").and_then(|value| read::table(page, "vars", value));
    let mut vars = Vars::read(page, vars, place.home.as_deref());
    let protected = document
        .get("protected")
        .and_then(|value| vars.globs(page, "protected", value, Use::Limit))
        .unwrap_or_default();
    let commands = subtable(page, document, &COMMANDS, "commands");
    Draft {
        tier: document.get("tier").and_then(|value| {
            let tiers = [Tier::Builtin, Tier::Run, Tier::Repo].map(|tier| (tier.token(), tier));
            word(page, "tier", value, &tiers).map(|tier| (tier, value.span()))
        }),
        extends: extends(page, document),
        stated: stated(page, document),
        protected,
        unprotected: unprotected(page, document, &mut vars),
        variables: commands.and_then(|table| variables(page, table)),
        toolchains: commands.and_then(|table| toolchains(page, table)),
        rules: rules(page, document, &mut vars, place),
    }
}

/// Each entry names its scope, its size and why: nothing is waived in general.
fn unprotected(page: &mut Page, document: &DeTable<'_>, vars: &mut Vars<'_>) -> Vec<Unprotected> {
    let key = "allow_unprotected";
    let table = document.get("checkpoint").and_then(|value| value.get_ref().as_table());
    let Some(entries) = table.and_then(|table| table.get(key)).and_then(|value| list(page, key, value))
    else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for value in entries {
        let Some(entry) = read::table(page, key, value) else { continue };
        check_keys(page, entry, &UNPROTECTED);
        let before = page.faults();
        for needed in UNPROTECTED.known {
            if entry.get(*needed).is_none() {
                page.fault(value.span(), format!("`{key}` needs `{needed}`"));
            }
        }
        entry.get("reason").and_then(|value| text(page, "reason", value));
        let paths = entry.get("paths").and_then(|value| vars.globs(page, "paths", value, Use::Grant));
        let most =
            entry.get("max_bytes").and_then(|value| number(page, "max_bytes", value, 1..=u64::MAX >> 1));
        if let (Some(paths), Some(max_bytes), true) = (paths, most, page.faults() == before) {
            found.push(Unprotected { paths, max_bytes, span: value.span() });
        }
    }
    found
}

fn variables(page: &mut Page, commands: &DeTable<'_>) -> Option<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for value in list(page, "env_allow", commands.get("env_allow")?)? {
        let Some(name) = text(page, "env_allow", value) else { continue };
        match environment::refused(name) {
            Some(why) => page.fault(value.span(), format!("`{name}` isn't passed: {why}")),
            None => drop(found.insert(name.to_owned())),
        }
    }
    Some(found)
}

fn toolchains(page: &mut Page, commands: &DeTable<'_>) -> Option<BTreeSet<Toolchain>> {
    let entries = list(page, "toolchains", commands.get("toolchains")?)?;
    Some(entries.iter().filter_map(|value| word(page, "toolchains", value, &Toolchain::ALL)).collect())
}

fn extends(page: &mut Page, document: &DeTable<'_>) -> Vec<(String, Range<usize>)> {
    let Some(entries) = document.get("extends").and_then(|value| list(page, "extends", value)) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for value in entries.iter() {
        if found.len() == super::MOST_FILES {
            page.fault(value.span(), format!("more than {} files", super::MOST_FILES));
            break;
        }
        let Some(entry) = text(page, "extends", value) else { continue };
        let beside = !entry.contains(['/', '\\', ':']) && !entry.starts_with('.');
        if beside || entry.starts_with("preset:") {
            found.push((entry.to_owned(), value.span()));
        } else {
            page.fault(
                value.span(),
                "`extends` names `preset:NAME` or a file beside this one, without a folder",
            );
        }
    }
    found
}

fn stated(page: &mut Page, document: &DeTable<'_>) -> Stated {
    let engine = subtable(page, document, &ENGINE, "engine");
    let limits = subtable(page, document, &LIMITS, "limits");
    let budget = subtable(page, document, &BUDGET, "budget");
    let mut at = |table: Option<&DeTable<'_>>, key: &str, words: &[(&str, ())]| {
        // Settings with one possible value: they say what holds in any case.
        if let Some(value) = table.and_then(|table| table.get(key)) {
            word(page, key, value, words);
        }
    };
    at(engine, "unresolved", &[("deny", ())]);
    at(engine, "case_fold", &[("deny-rules", ())]);
    let modes = [Mode::Plan, Mode::Build].map(|mode| (mode.token(), mode));
    let profiles =
        [Profile::Manual, Profile::Assisted, Profile::FullAccess].map(|one| (one.token(), one));
    let defaults = [("deny", DefaultDecision::Deny), ("ask", DefaultDecision::Ask)];
    let meanings = [("deny", AskMeans::Deny), ("stop", AskMeans::Stop)];
    let denials = [
        ("by-expectation", OnDenial::ByExpectation),
        ("fail", OnDenial::Fail),
        ("ignore", OnDenial::Ignore),
        ("stop", OnDenial::Stop),
    ];
    let links = [("refuse", HardLinks::Refuse), ("break", HardLinks::Break)];
    let engine = |key: &str| engine.and_then(|table| table.get(key));
    let limits = |key: &str| limits.and_then(|table| table.get(key));
    let checkpoint = subtable(page, document, &CHECKPOINT, "checkpoint");
    let small = |page: &mut Page, table: Option<&DeTable<'_>>, key: &str, range: RangeInclusive<u64>| {
        let value = table.and_then(|table| table.get(key))?;
        number(page, key, value, range).and_then(|number| u32::try_from(number).ok())
    };
    let large = |page: &mut Page, table: Option<&DeTable<'_>>, key: &str, most: u64| {
        number(page, key, table.and_then(|table| table.get(key))?, 0..=most)
    };
    let any = 1..=u64::from(u32::MAX);
    Stated {
        mode: document.get("mode").and_then(|value| word(page, "mode", value, &modes)),
        profile: document.get("profile").and_then(|value| word(page, "profile", value, &profiles)),
        sensitive_override: document
            .get("sensitive_override")
            .and_then(|value| read::flag(page, "sensitive_override", value)),
        default: engine("default").and_then(|value| word(page, "default", value, &defaults)),
        ask_means: engine("ask_means").and_then(|value| word(page, "ask_means", value, &meanings)),
        on_denial: document.get("on_denial").and_then(|value| word(page, "on_denial", value, &denials)),
        arg_bytes: limits("arg_bytes")
            .and_then(|value| number(page, "arg_bytes", value, 1..=MOST_ARG_BYTES)),
        json_depth: limits("json_depth")
            .and_then(|value| number(page, "json_depth", value, 1..=DEEPEST_JSON)),
        iterations: small(page, budget, "iterations", any.clone()),
        tool_calls: small(page, budget, "tool_calls", any.clone()),
        total_tokens: large(page, budget, "total_tokens", u64::MAX >> 1),
        wall_time_ms: large(page, budget, "wall_time_ms", MOST_WALL_MS),
        files_changed: small(page, budget, "files_changed", any),
        bytes_written: large(page, budget, "bytes_written", u64::MAX >> 1),
        retention_rounds: small(page, checkpoint, "retention_rounds", 1..=100).map(Reverse),
        hard_links: checkpoint
            .and_then(|table| table.get("hardlinks"))
            .and_then(|value| word(page, "hardlinks", value, &links)),
        checkpoint_cap: large(page, checkpoint, "per_checkpoint_cap_bytes", MOST_CHECKPOINT_BYTES),
        store_cap: large(page, checkpoint, "store_cap_bytes", MOST_STORE_BYTES),
        sandbox: subtable(page, document, &SANDBOX, "sandbox").and_then(|table| sandbox(page, table)),
        command_timeout_ms: document
            .get("commands")
            .and_then(|value| value.get_ref().as_table()?.get("timeout_ms"))
            .and_then(|value| number(page, "timeout_ms", value, 1..=MOST_COMMAND_MS)),
    }
}

fn sandbox(page: &mut Page, table: &DeTable<'_>) -> Option<Sandbox> {
    let value = table.get("mode")?;
    if value.get_ref().as_str() == Some("best-effort") {
        page.fault(value.span(), "only `required` and `off` are supported by this version of thcode");
        return None;
    }
    word(page, "mode", value, &[("required", Sandbox::Required), ("off", Sandbox::Off)])
}

fn rules(page: &mut Page, document: &DeTable<'_>, vars: &mut Vars<'_>, place: &Place) -> Vec<RuleDraft> {
    let Some(rules) = document.get("rule").and_then(|value| list(page, "rule", value)) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for value in rules {
        if let Some(table) = read::table(page, "rule", value) {
            found.extend(rule::draft(page, table, value.span(), vars, place));
        }
    }
    found
}
