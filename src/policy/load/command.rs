//! `when.command`: a string that is exactly that command (with a trailing ` …`: and anything
//! behind it), a table, or a list of both.

#[cfg(test)]
mod tests;

use toml::de::DeTable;

use super::read::{self, Keys, check_keys, list, text, word};
use crate::{
    floor::fold_text,
    policy::{
        command::{Exact, INSPECT, Operands, Rest, Shape, can_be_granted, in_place_of, shown, words},
        diagnostic::Page,
        rule::{CommandPattern, Effect, NamedCommand},
    },
};

const COMMAND: Keys = Keys {
    of: "`when.command`",
    known: &["argv", "rest", "program", "subcommand", "flags_all", "argv_contains"],
    later: &["env_assign", "redirect"],
};
const REST: Keys = Keys { of: "`rest`", known: &["flags", "operands"], later: &[] };

/// What says of a command string that anything may follow.
const AND_MORE: &str = " …";

/// Reads the condition; `None` where anything is wrong with it.
pub(super) fn command_when(
    page: &mut Page,
    value: &read::Value<'_>,
    effect: Option<Effect>,
) -> Option<Vec<NamedCommand>> {
    let before = page.faults();
    let items = match value.get_ref().as_array() {
        Some(items) => items.iter().collect(),
        None => vec![value],
    };
    if items.is_empty() {
        page.fault(value.span(), "`when.command` is empty, so it covers nothing");
    }
    let mut named: Vec<NamedCommand> = Vec::new();
    for item in items {
        let found = match item.get_ref().as_str() {
            Some(INSPECT) => inspect(page, item, effect),
            Some(_) => of_string(page, item, effect),
            None => read::table(page, "when.command", item)
                .and_then(|table| of_table(page, item, table, effect)),
        };
        named.extend(found);
    }
    named.sort_by(|left, right| left.text.cmp(&right.text));
    named.dedup();
    (page.faults() == before && !named.is_empty()).then_some(named)
}

/// The named set: what it covers is proven, what it leaves out isn't known to be harmful.
fn inspect(page: &mut Page, value: &read::Value<'_>, effect: Option<Effect>) -> Option<NamedCommand> {
    if effect != Some(Effect::Allow) {
        page.fault(value.span(), "`$inspect` is for grants: a deny or an ask names programs");
        return None;
    }
    Some(NamedCommand { text: INSPECT.to_owned(), pattern: CommandPattern::Inspect })
}

fn of_string(page: &mut Page, value: &read::Value<'_>, effect: Option<Effect>) -> Option<NamedCommand> {
    let whole = text(page, "when.command", value)?;
    let (command, rest) = match whole.strip_suffix(AND_MORE) {
        Some(command) => (command, Rest::Any),
        None => (whole, Rest::None),
    };
    match words(command) {
        Ok(argv) if argv.iter().any(|word| word.contains('…') || word == "...") => {
            // As a word it would be looked for in vain, and a deny would deny nothing.
            page.fault(
                value.span(),
                "that anything may follow is said by ` …` (a space and one sign) at the end; `argv` takes any word as it is",
            );
            None
        }
        Ok(argv) => {
            let exact = Exact { argv: argv.into_iter().map(|word| vec![word]).collect(), rest };
            tell_what_never_matches(page, value, effect, &exact);
            let pattern = CommandPattern::Exact(exact);
            Some(NamedCommand { text: whole.to_owned(), pattern })
        }
        Err(message) => {
            page.fault(value.span(), format!("a command is words and quotes alone: {message}"));
            None
        }
    }
}

fn of_table(
    page: &mut Page,
    value: &read::Value<'_>,
    table: &DeTable<'_>,
    effect: Option<Effect>,
) -> Option<NamedCommand> {
    check_keys(page, table, &COMMAND);
    if table.get("argv").is_some() {
        for key in ["program", "subcommand", "flags_all", "argv_contains"] {
            if let Some(other) = table.get(key) {
                page.fault(other.span(), format!("`argv` names the words already; leave `{key}` out"));
            }
        }
        let argv = argv(page, table.get("argv")?)?;
        let (rest, told) = match table.get("rest") {
            None => (Rest::None, ""),
            Some(value) => rest(page, value)?,
        };
        let alternatives = argv.iter().map(|words| match words.as_slice() {
            [one] => shown(std::slice::from_ref(one)),
            several => format!("({})", shown(several).replace(' ', "|")),
        });
        let text = format!("{}{told}", alternatives.collect::<Vec<_>>().join(" "));
        let exact = Exact { argv, rest };
        tell_what_never_matches(page, value, effect, &exact);
        return Some(NamedCommand { text, pattern: CommandPattern::Exact(exact) });
    }
    if let Some(other) = table.get("rest") {
        page.fault(other.span(), "`rest` says what follows `argv`, and there is none");
    }
    if effect == Some(Effect::Allow) {
        page.fault(
            value.span(),
            "a grant names its words with `argv` (or as a string): a program alone proves nothing",
        );
        return None;
    }
    let mut folded = |key: &str| -> Vec<String> {
        let found = table.get(key).and_then(|value| alternatives(page, key, value));
        found.unwrap_or_default().iter().map(|word| fold_text(word)).collect()
    };
    let mut shape = Shape {
        program: folded("program"),
        subcommand: folded("subcommand"),
        flags_all: folded("flags_all"),
        argv_contains: folded("argv_contains"),
    };
    for flag in &mut shape.flags_all {
        *flag = flag.trim_start_matches('-').to_owned();
        if flag.is_empty() {
            page.fault(value.span(), "`flags_all` holds a flag without a name");
        }
    }
    for program in &shape.program {
        if program.contains('/') {
            page.fault(value.span(), "`program` is a file name, without a directory");
        }
    }
    for (key, words) in [("program", &shape.program), ("subcommand", &shape.subcommand)] {
        if words.iter().any(|word| word.contains(|c: char| c.is_whitespace() || matches!(c, '*' | '?')))
        {
            // It would match nothing, and a deny would deny nothing.
            page.fault(value.span(), format!("`{key}` is one word, and no pattern"));
        }
    }
    if shape == Shape::default() {
        page.fault(value.span(), "`when.command` names nothing, so it covers nothing");
        return None;
    }
    let parts = [
        ("program", &shape.program),
        ("subcommand", &shape.subcommand),
        ("flags_all", &shape.flags_all),
        ("argv_contains", &shape.argv_contains),
    ];
    let told = parts.iter().filter(|(_, words)| !words.is_empty());
    let told: Vec<String> = told.map(|(key, words)| format!("{key} {}", words.join("|"))).collect();
    Some(NamedCommand { text: told.join(", "), pattern: CommandPattern::Shape(shape) })
}

/// Commands that a table's alternatives come to which are looked at.
const MOST_TRIED: usize = 4_096;

/// A grant of a command that runs its words is read and never covers anything, so it says so here.
fn tell_what_never_matches(
    page: &mut Page,
    value: &read::Value<'_>,
    effect: Option<Effect>,
    exact: &Exact,
) {
    if effect != Some(Effect::Allow) {
        return;
    }
    let flags = match &exact.rest {
        Rest::Any => None,
        Rest::None => Some([].as_slice()),
        Rest::Listed { flags, .. } => Some(flags.as_slice()),
    };
    let mut commands: Vec<Vec<&str>> = vec![Vec::new()];
    for words in &exact.argv {
        if commands.len().saturating_mul(words.len()) > MOST_TRIED {
            return;
        }
        let longer = |command: &Vec<_>| {
            let command = command.clone();
            words.iter().map(move |word| [command.as_slice(), &[word.as_str()]].concat())
        };
        commands = commands.iter().flat_map(longer).collect();
    }
    let never = commands.iter().find(|command| !can_be_granted(command, flags));
    if let Some((program, command)) = never.and_then(|command| command.first().zip(Some(command))) {
        let words: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        page.fault(
            value.span(),
            format!(
                "this grant can never apply: `{}` runs what its words say, and no rule can tell what that is; {}",
                shown(&words),
                in_place_of(program)
            ),
        );
    }
}

/// One word, or a list of alternatives.
fn alternatives(page: &mut Page, key: &str, value: &read::Value<'_>) -> Option<Vec<String>> {
    let items = match value.get_ref().as_array() {
        Some(items) => items.iter().collect(),
        None => vec![value],
    };
    if items.is_empty() {
        page.fault(value.span(), format!("`{key}` is empty, so it covers nothing"));
        return None;
    }
    let mut words: Vec<String> =
        items.into_iter().filter_map(|item| text(page, key, item)).map(str::to_owned).collect();
    words.sort_unstable();
    words.dedup();
    Some(words)
}

fn argv(page: &mut Page, value: &read::Value<'_>) -> Option<Vec<Vec<String>>> {
    let items = list(page, "argv", value)?;
    if items.is_empty() {
        page.fault(value.span(), "`argv` is empty: it begins with the program");
        return None;
    }
    items.iter().map(|item| alternatives(page, "argv", item)).collect()
}

fn rest(page: &mut Page, value: &read::Value<'_>) -> Option<(Rest, &'static str)> {
    if value.get_ref().as_str().is_some() {
        let any = word(page, "rest", value, &[("none", false), ("any", true)])?;
        return Some(if any { (Rest::Any, AND_MORE) } else { (Rest::None, "") });
    }
    let table = read::table(page, "rest", value)?;
    check_keys(page, table, &REST);
    let mut flags = match table.get("flags") {
        None => Vec::new(),
        Some(value) => {
            let items = list(page, "flags", value)?;
            let flags = items.iter().filter_map(|item| text(page, "flags", item));
            flags.map(str::to_owned).collect()
        }
    };
    if let Some(odd) = flags.iter().find(|flag| !flag.starts_with('-') || flag.len() < 2) {
        page.fault(value.span(), format!("`{odd}` is no flag: one begins with `-`"));
    }
    flags.sort_unstable();
    flags.dedup();
    let operands = match table.get("operands") {
        None => Operands::None,
        Some(value) => word(page, "operands", value, &Operands::ALL)?,
    };
    Some((Rest::Listed { flags, operands }, " [listed flags and operands]"))
}
