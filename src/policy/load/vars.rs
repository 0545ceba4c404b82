//! The globs of a file: its `[vars]`, what refers to them, and what `${HOME}` stands for.

use std::{collections::BTreeMap, ops::Range};

use toml::de::DeTable;

use super::read::{self, Value, did_you_mean};
use crate::policy::{diagnostic::Page, glob::Glob, rule::NamedGlob};

/// The most variables of a file.
const MOST_VARS: usize = 256;
/// How deep variables may refer to each other.
const DEEPEST: usize = 32;
/// The most globs that the variables and rules of a file may come to, references written out.
const MOST_GLOBS: usize = 200_000;

/// What globs are for, which decides what they may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// They cover exactly what they name, in the workspace.
    Grant,
    /// They cover every spelling, in the workspace.
    Limit,
    /// They cover every spelling, and may name places outside.
    Deny,
}

/// The variables of a file, each resolved once.
pub(super) struct Vars<'p> {
    home: Option<&'p str>,
    found: BTreeMap<String, Var>,
    depth: usize,
    /// How many globs were handed out.
    written: usize,
}

enum Var {
    Stated(Vec<(String, Range<usize>)>),
    /// On the way: whoever meets it here has gone in a circle.
    Resolving,
    Resolved(Vec<NamedGlob>),
}

impl<'p> Vars<'p> {
    /// Reads `[vars]` and resolves all of it, so that a variable that nothing uses is checked too.
    pub(super) fn read(page: &mut Page, table: Option<&DeTable<'_>>, home: Option<&'p str>) -> Self {
        let mut vars = Self { home, found: BTreeMap::new(), depth: 0, written: 0 };
        for (key, value) in table.into_iter().flatten() {
            let name: &str = key.get_ref();
            if vars.found.len() == MOST_VARS {
                page.fault(key.span(), format!("more than {MOST_VARS} variables"));
                break;
            }
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
            if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(plain) {
                page.fault(key.span(), "a variable is named by small letters, digits, `_` and `-`");
            }
            vars.found
                .insert(name.to_owned(), Var::Stated(entries(page, name, value).unwrap_or_default()));
        }
        let names: Vec<String> = vars.found.keys().cloned().collect();
        for name in names {
            vars.resolve(page, &name, 0..0);
        }
        vars
    }

    /// Reads a glob, a reference or an array of them.
    pub(super) fn globs(
        &mut self,
        page: &mut Page,
        key: &str,
        value: &Value<'_>,
        purpose: Use,
    ) -> Option<Vec<NamedGlob>> {
        let before = page.faults();
        let mut globs = Vec::new();
        for (text, span) in entries(page, key, value)? {
            for named in self.entry(page, &text, span.clone()) {
                check_use(page, &named, span.clone(), purpose);
                globs.push(named);
            }
        }
        // Their order never matters: two lists of the same globs are the same condition.
        globs.sort_by(|left, right| left.text.cmp(&right.text));
        globs.dedup();
        (page.faults() == before && !globs.is_empty()).then_some(globs)
    }

    fn entry(&mut self, page: &mut Page, text: &str, span: Range<usize>) -> Vec<NamedGlob> {
        if let Some(name) = text.strip_prefix('$').filter(|rest| !rest.starts_with('{')) {
            return self.resolve(page, name, span);
        }
        match self.expanded(text).and_then(|glob| Glob::parse(&glob)) {
            Ok(glob) => vec![NamedGlob { text: text.to_owned(), glob }],
            Err(message) => {
                page.fault(span, message);
                Vec::new()
            }
        }
    }

    /// A glob with `${HOME}` written out.
    fn expanded(&self, text: &str) -> Result<String, String> {
        let Some(rest) = text.strip_prefix("${") else { return Ok(text.to_owned()) };
        let (name, rest) = rest.split_once('}').ok_or("`${` isn't closed")?;
        if name != "HOME" {
            return Err(format!("`${{{name}}}` isn't known; only `${{HOME}}` is"));
        }
        if !rest.is_empty() && !rest.starts_with('/') {
            return Err("after `${HOME}` comes a `/`".into());
        }
        let home = self.home.ok_or("`${HOME}` can't be told: HOME isn't set to an absolute path")?;
        let mut literal = String::new();
        for c in home.trim_end_matches('/').chars() {
            if matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | ',') {
                literal.push('\\');
            }
            literal.push(c);
        }
        Ok(format!("{literal}{rest}"))
    }

    /// The globs of a variable. What is wrong in it is told where it stands, once; an unknown or
    /// circular reference where it is made.
    fn resolve(&mut self, page: &mut Page, name: &str, from: Range<usize>) -> Vec<NamedGlob> {
        match self.found.get_mut(name) {
            None => {
                let near = did_you_mean(name, self.found.keys().map(String::as_str));
                page.fault(from, format!("`${name}` isn't in `[vars]`{near}"));
                Vec::new()
            }
            Some(Var::Resolving) => {
                page.fault(from, format!("`${name}` refers to itself"));
                Vec::new()
            }
            Some(Var::Resolved(globs)) => {
                self.written += globs.len();
                if self.written > MOST_GLOBS {
                    page.fault(from, format!("this file comes to more than {MOST_GLOBS} globs"));
                    return Vec::new();
                }
                globs.clone()
            }
            Some(Var::Stated(_)) if self.depth == DEEPEST => {
                page.fault(from, format!("variables refer to each other more than {DEEPEST} deep"));
                Vec::new()
            }
            Some(stated @ Var::Stated(_)) => {
                let Var::Stated(entries) = std::mem::replace(stated, Var::Resolving) else {
                    return Vec::new();
                };
                let mut globs: Vec<NamedGlob> = Vec::new();
                self.depth += 1;
                for (text, span) in entries {
                    globs.extend(self.entry(page, &text, span));
                }
                self.depth -= 1;
                globs.sort_by(|left, right| left.text.cmp(&right.text));
                globs.dedup();
                self.found.insert(name.to_owned(), Var::Resolved(globs.clone()));
                globs
            }
        }
    }
}

/// The texts of a string or an array of strings.
fn entries(page: &mut Page, key: &str, value: &Value<'_>) -> Option<Vec<(String, Range<usize>)>> {
    let items = match value.get_ref().as_str() {
        Some(_) => std::slice::from_ref(value),
        None => read::list(page, key, value)?,
    };
    if items.is_empty() {
        page.fault(value.span(), format!("`{key}` is empty, so it covers nothing"));
        return None;
    }
    Some(
        items
            .iter()
            .filter_map(|item| {
                let text = read::text(page, key, item)?;
                Some((text.to_owned(), item.span()))
            })
            .collect(),
    )
}

fn check_use(page: &mut Page, named: &NamedGlob, span: Range<usize>, purpose: Use) {
    let outside = || {
        format!("`{}` is absolute, which only a deny can be; write it relative to the root", named.text)
    };
    match purpose {
        Use::Grant | Use::Limit if named.glob.absolute() => page.fault(span, outside()),
        Use::Grant => {}
        Use::Limit | Use::Deny => {
            if let Err(message) = named.glob.check_foldable() {
                page.fault(span, message);
            }
        }
    }
}
