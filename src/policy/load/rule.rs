//! One `[[rule]]`: every mistake in it, and the rule where there is none.

use std::ops::Range;

use toml::de::DeTable;

use super::{
    command::command_when,
    read::{self, Keys, check_keys, did_you_mean, list, number, subtable, text, word},
    vars::{Use, Vars},
};
use crate::policy::{
    call::{Access, ActionClass, BUILTIN_TOOLS, FileKind, Location, PathFacts, ResolvedCall, Subject},
    command::{CommandFacts, words},
    diagnostic::Page,
    path::read_path,
    rule::{Effect, FileWhen, GrantedKind, Rule, Tier, ToolSet, When},
    set::Place,
    verdict::RuleRef,
};

const RULE: Keys = Keys {
    of: "a rule",
    known: &["id", "effect", "enforcement", "tools", "reason", "suggest", "when", "match", "no_match"],
    later: &["quota"],
};
const WHEN: Keys = Keys {
    of: "`when`",
    known: &["read", "write", "delete", "file", "command"],
    later: &["net", "env", "turn"],
};
const FILE: Keys = Keys { of: "`when.file`", known: &["kinds", "max_bytes", "max_links"], later: &[] };
const EXAMPLE: Keys = Keys { of: "an example", known: &["tool", "path", "command"], later: &["url"] };

/// A rule as its file alone tells it.
#[derive(Debug)]
pub(super) struct RuleDraft {
    pub(super) id: String,
    /// Where the id stands.
    pub(super) span: Range<usize>,
    /// The rule, where nothing is wrong in it; its file and tier are still to be filled in.
    pub(super) rule: Option<Rule>,
    pub(super) examples: Vec<Example>,
}

/// A call that a rule must match, or must not.
#[derive(Debug)]
pub(super) struct Example {
    pub(super) call: ResolvedCall,
    pub(super) matches: bool,
    pub(super) span: Range<usize>,
}

/// Reads a rule; `None` if not even its id can be told.
pub(super) fn draft(
    page: &mut Page,
    table: &DeTable<'_>,
    span: Range<usize>,
    vars: &mut Vars<'_>,
    place: &Place,
) -> Option<RuleDraft> {
    let before = page.faults();
    check_keys(page, table, &RULE);
    let mut required = |key: &str| {
        let value = table.get(key);
        if value.is_none() {
            page.fault(span.clone(), format!("the rule has no `{key}`"));
        }
        value
    };
    let (id, effect, tools) = (required("id"), required("effect"), required("tools"));
    let id_span = id.map(|value| value.span()).unwrap_or_else(|| span.clone());
    let id = id.and_then(|value| identifier(page, value));
    let effects = [Effect::Allow, Effect::Ask, Effect::Deny].map(|effect| (effect.token(), effect));
    let effect = effect.and_then(|value| word(page, "effect", value, &effects));
    let tools = tools.and_then(|value| tool_set(page, value));
    if let Some(value) = table.get("enforcement")
        && let Some(later) =
            word(page, "enforcement", value, &[("hard", false), ("soft", true), ("advisory", true)])
        && later
    {
        page.fault(value.span(), "only `hard` is supported by this version of thcode");
    }
    let mut sentence =
        |key: &str| table.get(key).and_then(|value| text(page, key, value)).map(str::to_owned);
    let (reason, suggest) = (sentence("reason"), sentence("suggest"));
    let when = when(page, table, effect, tools.as_ref(), vars);
    let examples = examples(page, table, place);
    let complete = page.faults() == before;
    let line = page.line(span.start);
    let id = id?;
    let rule = effect.zip(tools).filter(|_| complete).map(|(effect, tools)| Rule {
        at: RuleRef { id: id.clone(), file: page.name().to_owned(), line },
        tier: Tier::Repo,
        effect,
        reason,
        suggest,
        tools,
        when,
    });
    Some(RuleDraft { id, span: id_span, rule, examples })
}

fn identifier(page: &mut Page, value: &read::Value<'_>) -> Option<String> {
    let id = text(page, "id", value)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if id.len() <= 64 && id.chars().all(plain) {
        return Some(id.to_owned());
    }
    page.fault(value.span(), "an id has up to 64 letters, digits, `-`, `_` and `.`");
    None
}

fn tool_set(page: &mut Page, value: &read::Value<'_>) -> Option<ToolSet> {
    let before = page.faults();
    let mut tools = ToolSet::default();
    let entries = list(page, "tools", value)?;
    for entry in entries {
        let Some(name) = text(page, "tools", entry) else { continue };
        if !tools.add(name) {
            let near = did_you_mean(name, BUILTIN_TOOLS.iter().map(|(tool, _)| *tool));
            let form = if name.starts_with("mcp:") { "; write `mcp:SERVER/TOOL`" } else { "" };
            page.fault(entry.span(), format!("there is no tool `{name}`{form}{near}"));
        }
    }
    if entries.is_empty() {
        page.fault(value.span(), "`tools` is empty, so the rule concerns nothing");
    }
    (page.faults() == before && !tools.is_empty()).then_some(tools)
}

fn when(
    page: &mut Page,
    rule: &DeTable<'_>,
    effect: Option<Effect>,
    tools: Option<&ToolSet>,
    vars: &mut Vars<'_>,
) -> When {
    let Some(table) = subtable(page, rule, &WHEN, "when") else { return When::default() };
    // Where the effect can't be read, the reading that says least against the globs.
    let purpose = match effect {
        Some(Effect::Allow) => Use::Grant,
        Some(Effect::Ask) => Use::Limit,
        Some(Effect::Deny) | None => Use::Deny,
    };
    let mut globs = |access: Access| {
        let key = access.token();
        let value = table.get(key)?;
        if let Some(tools) = tools
            && !tools.builtins().any(|(_, class)| feeds(class).contains(&access))
        {
            let at = key_span(table, key);
            page.fault(at, format!("`when.{key}` is never asked: none of the rule's tools feeds it"));
        }
        vars.globs(page, &format!("when.{key}"), value, purpose)
    };
    let (read, write, delete) = (globs(Access::Read), globs(Access::Write), globs(Access::Delete));
    let file = table.get("file").and_then(|value| {
        let at = key_span(table, "file");
        if effect.is_some_and(|effect| effect != Effect::Allow) {
            page.fault(at.clone(), "`when.file` bounds what a grant covers; only an allow can have it");
        }
        if tools.is_some_and(|tools| !tools.builtins().any(|(_, class)| looks_at_files(class))) {
            page.fault(at, "`when.file` is never asked: none of the rule's tools feeds it");
        }
        read::table(page, "file", value).map(|file| file_when(page, file))
    });
    let command = table.get("command").and_then(|value| {
        if tools
            .is_some_and(|tools| !tools.builtins().any(|(_, class)| class == ActionClass::RunCommand))
        {
            let at = key_span(table, "command");
            page.fault(at, "`when.command` is never asked: none of the rule's tools feeds it");
        }
        command_when(page, value, effect)
    });
    When { read, write, delete, file, command }
}

fn file_when(page: &mut Page, table: &DeTable<'_>) -> FileWhen {
    check_keys(page, table, &FILE);
    let words = [GrantedKind::Regular, GrantedKind::Directory, GrantedKind::Absent];
    let words = words.map(|kind| (kind.token(), kind));
    let kinds = table.get("kinds").and_then(|value| {
        let entries = list(page, "kinds", value)?;
        if entries.is_empty() {
            page.fault(value.span(), "`kinds` is empty, so it covers nothing");
        }
        let mut kinds: Vec<_> =
            entries.iter().filter_map(|entry| word(page, "kinds", entry, &words)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        Some(kinds)
    });
    let mut most = |key: &str| {
        let value = table.get(key)?;
        number(page, key, value, 1..=u64::try_from(i64::MAX).unwrap_or(u64::MAX))
    };
    FileWhen { kinds, max_bytes: most("max_bytes"), max_links: most("max_links") }
}

/// The conditions that a tool's calls are held against.
fn feeds(class: ActionClass) -> &'static [Access] {
    match class {
        ActionClass::ListFiles | ActionClass::ReadFile | ActionClass::SearchText => &[Access::Read],
        ActionClass::WriteFile => &[Access::Write],
        ActionClass::Delete => &[Access::Delete, Access::Write],
        ActionClass::RunCommand => &[Access::Read, Access::Write],
        ActionClass::Transfer => &[],
    }
}

fn looks_at_files(class: ActionClass) -> bool {
    match class {
        ActionClass::ListFiles
        | ActionClass::ReadFile
        | ActionClass::SearchText
        | ActionClass::WriteFile
        | ActionClass::Delete => true,
        ActionClass::RunCommand | ActionClass::Transfer => false,
    }
}

/// Where a key stands.
fn key_span(table: &DeTable<'_>, key: &str) -> Range<usize> {
    table.get_key_value(key).map(|(key, _)| key.span()).unwrap_or_default()
}

fn examples(page: &mut Page, rule: &DeTable<'_>, place: &Place) -> Vec<Example> {
    let mut found = Vec::new();
    for (key, matches) in [("match", true), ("no_match", false)] {
        let Some(entries) = rule.get(key).and_then(|value| list(page, key, value)) else { continue };
        for entry in entries {
            if entry.get_ref().as_str().is_some() {
                if let Some(call) = command_example(page, entry, place) {
                    found.push(Example { call, matches, span: entry.span() });
                }
                continue;
            }
            let Some(table) = read::table(page, key, entry) else { continue };
            if let Some(call) = example(page, table, entry.span(), place) {
                found.push(Example { call, matches, span: entry.span() });
            }
        }
    }
    found
}

/// The call of an example: its path as it is written, leading nowhere else, and a plain file there.
fn example(
    page: &mut Page,
    table: &DeTable<'_>,
    span: Range<usize>,
    place: &Place,
) -> Option<ResolvedCall> {
    check_keys(page, table, &EXAMPLE);
    let of_command =
        table.get("tool").is_some_and(|tool| tool.get_ref().as_str() == Some("run_command"));
    if let (true, Some(command), None) = (of_command, table.get("command"), table.get("path")) {
        return command_example(page, command, place);
    }
    let (Some(tool), Some(path), None) = (table.get("tool"), table.get("path"), table.get("command"))
    else {
        let form = "an example is `{ tool = \"…\", path = \"…\" }`, or a command as a string";
        page.fault(span, form);
        return None;
    };
    let path_span = path.span();
    let (tool_span, tool) = (tool.span(), text(page, "tool", tool)?);
    let path = path.get_ref().as_str().or_else(|| text(page, "path", path))?;
    let access = match ActionClass::of_tool(tool) {
        Some(ActionClass::ListFiles | ActionClass::ReadFile | ActionClass::SearchText) => Access::Read,
        Some(ActionClass::WriteFile) => Access::Write,
        Some(ActionClass::Delete) => Access::Delete,
        Some(ActionClass::RunCommand | ActionClass::Transfer) | None => {
            let near = did_you_mean(tool, BUILTIN_TOOLS.iter().map(|(tool, _)| *tool));
            page.fault(tool_span, format!("`{tool}` is not a tool that takes a path{near}"));
            return None;
        }
    };
    let given = match (path.strip_prefix("${HOME}/"), &place.home) {
        (Some(rest), Some(home)) => format!("{home}/{rest}"),
        (Some(_), None) | (None, _) => path.to_owned(),
    };
    match read_path(&given, &place.root) {
        Ok(location) => Some(call(tool, access, given, location)),
        Err(bad) => {
            page.fault(path_span, bad.to_string());
            None
        }
    }
}

/// A command as an example writes it: what its words name is taken to be there, and to be no link.
fn command_example(page: &mut Page, value: &read::Value<'_>, place: &Place) -> Option<ResolvedCall> {
    let command = text(page, "command", value)?;
    match words(command) {
        Ok(argv) => {
            let mut locate = |given: &str| {
                let location = read_path(given, &place.root).ok()?;
                Some(standing(given.to_owned(), location, false))
            };
            let command = CommandFacts::read(argv, &mut locate);
            let tool = "run_command".to_owned();
            let class = Some(ActionClass::RunCommand);
            Some(ResolvedCall { tool, class, subjects: vec![Subject::Command(command)] })
        }
        Err(message) => {
            page.fault(value.span(), format!("an example is words and quotes alone: {message}"));
            None
        }
    }
}

fn standing(given: String, location: Location, absent: bool) -> PathFacts {
    PathFacts {
        given,
        lexical: location.clone(),
        resolved: location,
        kind: if absent { FileKind::Absent } else { FileKind::Regular },
        links: if absent { 0 } else { 1 },
        bytes: 0,
    }
}

fn call(tool: &str, access: Access, given: String, location: Location) -> ResolvedCall {
    let path = standing(given, location, tool == "create_file");
    ResolvedCall {
        tool: tool.to_owned(),
        class: ActionClass::of_tool(tool),
        subjects: vec![Subject::Path { access, path }],
    }
}
