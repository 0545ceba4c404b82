//! Reading values out of a TOML document, each mistake told at its place.

use std::ops::RangeInclusive;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::policy::diagnostic::Page;

pub(super) type Value<'i> = Spanned<DeValue<'i>>;

/// The keys of a table, and those that a later version will know.
pub(super) struct Keys {
    /// Such as `a rule`.
    pub(super) of: &'static str,
    pub(super) known: &'static [&'static str],
    pub(super) later: &'static [&'static str],
}

/// Tells every key that isn't known: one that does nothing must not look as if it did.
pub(super) fn check_keys(page: &mut Page, table: &DeTable<'_>, keys: &Keys) {
    for key in table.keys() {
        let name: &str = key.get_ref();
        if keys.known.contains(&name) {
            continue;
        }
        let message = if keys.later.contains(&name) {
            format!("`{name}` isn't supported by this version of thcode")
        } else {
            let known = keys.known.iter().copied();
            format!("`{name}` isn't a key of {}{}", keys.of, did_you_mean(name, known))
        };
        page.fault(key.span(), message);
    }
}

/// ` (did you mean `x`?)`, where one of the names is near.
pub(super) fn did_you_mean<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let near = known.map(|known| (distance(name, known), known)).filter(|(steps, _)| *steps > 0).min();
    match near {
        Some((steps, known)) if steps <= 1 + known.len() / 4 => format!("; did you mean `{known}`?"),
        Some(_) | None => String::new(),
    }
}

/// How many letters differ, inserted, dropped or changed.
fn distance(left: &str, right: &str) -> usize {
    // Nothing far longer than a key is near one.
    let left: Vec<char> = left.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=left.len()).collect();
    for (index, letter) in right.chars().enumerate() {
        let mut diagonal = index;
        let mut previous = index + 1;
        if let Some(first) = row.first_mut() {
            *first = previous;
        }
        for (cell, other) in row.iter_mut().skip(1).zip(&left) {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = *cell;
            previous = changed.min(previous + 1).min(*cell + 1);
            *cell = previous;
        }
    }
    row.last().copied().unwrap_or_default()
}

fn wrong_type(page: &mut Page, key: &str, wanted: &str, value: &Value<'_>) {
    let found = match value.get_ref() {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    };
    page.fault(value.span(), format!("`{key}` must be {wanted}, not {found}"));
}

/// A string without control characters that isn't empty.
pub(super) fn text<'v>(page: &mut Page, key: &str, value: &'v Value<'_>) -> Option<&'v str> {
    let Some(text) = value.get_ref().as_str() else {
        wrong_type(page, key, "a string", value);
        return None;
    };
    if text.is_empty() {
        page.fault(value.span(), format!("`{key}` is empty"));
        return None;
    }
    if text.chars().any(|c| c.is_control() && c != '\n') {
        page.fault(value.span(), format!("`{key}` has a control character in it"));
        return None;
    }
    Some(text)
}

/// True or false.
pub(super) fn flag(page: &mut Page, key: &str, value: &Value<'_>) -> Option<bool> {
    let flag = value.get_ref().as_bool();
    if flag.is_none() {
        wrong_type(page, key, "true or false", value);
    }
    flag
}

/// A number within bounds.
pub(super) fn number(
    page: &mut Page,
    key: &str,
    value: &Value<'_>,
    bounds: RangeInclusive<u64>,
) -> Option<u64> {
    let Some(integer) = value.get_ref().as_integer() else {
        wrong_type(page, key, "an integer", value);
        return None;
    };
    let number = u64::from_str_radix(integer.as_str(), integer.radix()).ok();
    let within = number.filter(|number| bounds.contains(number));
    if within.is_none() {
        let (low, high) = bounds.into_inner();
        page.fault(value.span(), format!("`{key}` must be between {low} and {high}"));
    }
    within
}

/// One of a few words.
pub(super) fn word<T: Copy>(
    page: &mut Page,
    key: &str,
    value: &Value<'_>,
    words: &[(&str, T)],
) -> Option<T> {
    let text = text(page, key, value)?;
    let found = words.iter().find(|(word, _)| *word == text);
    if found.is_none() {
        let listed: Vec<String> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
        let near = did_you_mean(text, words.iter().map(|(word, _)| *word));
        page.fault(value.span(), format!("`{key}` must be {}{near}", listed.join(" or ")));
    }
    found.map(|(_, meaning)| *meaning)
}

/// An array.
pub(super) fn list<'v, 'i>(page: &mut Page, key: &str, value: &'v Value<'i>) -> Option<&'v [Value<'i>]> {
    let Some(array) = value.get_ref().as_array() else {
        wrong_type(page, key, "an array", value);
        return None;
    };
    Some(array)
}

/// A table.
pub(super) fn table<'v, 'i>(
    page: &mut Page,
    key: &str,
    value: &'v Value<'i>,
) -> Option<&'v DeTable<'i>> {
    let Some(table) = value.get_ref().as_table() else {
        wrong_type(page, key, "a table", value);
        return None;
    };
    Some(table)
}

/// A table of a table, where it is there.
pub(super) fn subtable<'v, 'i>(
    page: &mut Page,
    parent: &'v DeTable<'i>,
    keys: &Keys,
    key: &str,
) -> Option<&'v DeTable<'i>> {
    let found = table(page, key, parent.get(key)?)?;
    check_keys(page, found, keys);
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_told_where_one_is_near() {
        assert_eq!(distance("efect", "effect"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
        assert_eq!(distance("kitten", "sitting"), 3);
        let known = ["effect", "tools", "when"];
        assert_eq!(did_you_mean("tool", known.into_iter()), "; did you mean `tools`?");
        assert_eq!(did_you_mean("zzzzzz", known.into_iter()), "");
    }
}
