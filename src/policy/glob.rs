//! Globs of policies: `*` and `?` stay within a component, `**` is a component of its own and
//! stands for any number of them, `[…]` and `{a,b}` as usual, `\` before a special character takes
//! it literally, dots are ordinary. No slash means that very path at the workspace root.
//!
//! The matcher reads bytes: in a grant `?` and classes stand for ASCII characters alone, which
//! covers less. In a deny, which must cover more, they stand for any run of characters where a path
//! isn't ASCII.
//!
//! Read by a reader of our own, so that a mistake is told in words and one pattern can be written
//! out twice: as it stands for grants, folded for denies.

mod index;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

pub(super) use index::{GlobIndex, Patterns, Uncompilable};

use crate::floor::fold_text;

/// The longest glob, in bytes.
pub(super) const LONGEST_GLOB: usize = 1024;
/// The most patterns that the braces of one glob may stand for.
pub(super) const MOST_ALTERNATIVES: usize = 64;
/// How deep braces may be nested.
const DEEPEST_BRACES: usize = 4;

/// A glob, read: what its braces stand for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Glob {
    patterns: Vec<Pattern>,
    absolute: bool,
}

/// A glob without braces.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// `**`.
    Any,
    /// A component.
    Name(Vec<Token>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Letter(char),
    /// `?`.
    One,
    /// `*`.
    Many,
    Class {
        negated: bool,
        letters: BTreeSet<char>,
    },
}

/// Which spelling a pattern is written out for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// As it stands: for grants.
    Exact,
    /// Folded: for denies, where it covers more.
    Folded,
    /// Folded, for paths that aren't ASCII: `?` and classes are any run of characters, since a
    /// decomposed letter is several.
    Wide,
}

impl Glob {
    /// Reads a glob. The error is a sentence that says what is wrong.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > LONGEST_GLOB {
            return Err(format!("the glob has {} bytes; {LONGEST_GLOB} is the most", text.len()));
        }
        check_text(text)?;
        let absolute = text.starts_with('/');
        let mut patterns: Vec<Pattern> = Vec::new();
        for alternative in alternatives(text, 0)? {
            if alternative.starts_with('/') != absolute {
                return Err("braces can't choose between a path of the workspace and one outside".into());
            }
            let pattern = Pattern::parse(alternative.strip_prefix('/').unwrap_or(&alternative))?;
            if !patterns.contains(&pattern) {
                patterns.push(pattern);
            }
        }
        Ok(Self { patterns, absolute })
    }

    /// Whether it starts at the root of the file system.
    pub(super) fn absolute(&self) -> bool {
        self.absolute
    }

    /// Whether a folded spelling of it can be had, else a sentence that says why not.
    pub(super) fn check_foldable(&self) -> Result<(), String> {
        for part in self.patterns.iter().flat_map(|pattern| &pattern.0) {
            let Part::Name(tokens) = part else { continue };
            for token in tokens {
                if let Token::Class { negated, letters } = token {
                    check_class(*negated, letters)?;
                }
            }
        }
        Ok(())
    }

    /// The patterns for the matcher. Folded, a glob that ends in `/**` also covers the directory
    /// itself.
    pub(super) fn written(&self, spelling: Spelling) -> Vec<String> {
        let mut written = Vec::new();
        let lead = if self.absolute { "/" } else { "" };
        let mut add = |parts: &[Part]| written.push(format!("{lead}{}", write_parts(parts, spelling)));
        for Pattern(parts) in &self.patterns {
            add(parts);
            if spelling != Spelling::Exact
                && let Some((Part::Any, directory)) = parts.split_last()
                && !directory.is_empty()
            {
                add(directory);
            }
        }
        written
    }

    /// Whether [`Spelling::Wide`] differs from [`Spelling::Folded`].
    pub(super) fn has_wide(&self) -> bool {
        self.patterns.iter().flat_map(|Pattern(parts)| parts).any(|part| match part {
            Part::Any => false,
            Part::Name(tokens) => {
                tokens.iter().any(|token| matches!(token, Token::One | Token::Class { .. }))
            }
        })
    }
}

fn check_text(text: &str) -> Result<(), String> {
    let first = text.chars().next().ok_or("the glob is empty")?;
    if let Some(control) = text.chars().find(|c| c.is_control()) {
        return Err(format!("the glob has the control character U+{:04X} in it", u32::from(control)));
    }
    match first {
        '!' => Err("a glob can't be negated; write a rule of the other effect".into()),
        '~' => Err("`~` isn't expanded; write `${HOME}/…` in a deny".into()),
        _ => Ok(()),
    }
}

/// Where a scan of a glob stands: which characters are syntax.
struct Scan<'a> {
    chars: std::str::CharIndices<'a>,
}

/// A character of a glob, by whether it is syntax of braces.
enum Seen {
    Open(usize),
    Close(usize),
    Comma(usize),
    Other,
}

impl Iterator for Scan<'_> {
    type Item = Seen;

    fn next(&mut self) -> Option<Seen> {
        let (at, c) = self.chars.next()?;
        Some(match c {
            '\\' => {
                self.chars.next();
                Seen::Other
            }
            '[' => {
                self.skip_class();
                Seen::Other
            }
            '{' => Seen::Open(at),
            '}' => Seen::Close(at),
            ',' => Seen::Comma(at),
            _ => Seen::Other,
        })
    }
}

impl Scan<'_> {
    fn skip_class(&mut self) {
        let mut inside = self.chars.clone();
        let mut first = true;
        while let Some((_, c)) = inside.next() {
            match c {
                '!' | '^' if first => continue,
                ']' if !first => {
                    self.chars = inside;
                    return;
                }
                '\\' => drop(inside.next()),
                _ => {}
            }
            first = false;
        }
        // Unclosed: left to the reader of the class, which says so.
    }
}

/// What the braces of a text stand for.
fn alternatives(text: &str, depth: usize) -> Result<Vec<String>, String> {
    let mut open = None;
    let mut nested = 0_usize;
    let mut cuts = Vec::new();
    for seen in (Scan { chars: text.char_indices() }) {
        match seen {
            Seen::Open(at) => {
                nested += 1;
                open.get_or_insert(at);
            }
            Seen::Close(_) if nested == 0 => {
                return Err("`}` without `{`; write `\\}` for itself".into());
            }
            Seen::Close(at) => {
                nested -= 1;
                if nested == 0
                    && let Some(start) = open
                {
                    return expanded(text, start, &cuts, at, depth);
                }
            }
            Seen::Comma(at) if nested == 1 => cuts.push(at),
            Seen::Comma(_) | Seen::Other => {}
        }
    }
    if open.is_some() {
        return Err("`{` isn't closed; write `\\{` for itself".into());
    }
    Ok(vec![text.to_owned()])
}

fn expanded(
    text: &str,
    open: usize,
    cuts: &[usize],
    close: usize,
    depth: usize,
) -> Result<Vec<String>, String> {
    if depth == DEEPEST_BRACES {
        return Err(format!("braces are nested or follow each other more than {DEEPEST_BRACES} times"));
    }
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    let starts = std::iter::once(open).chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain([close]);
    let mut found = Vec::new();
    for (start, end) in starts.zip(ends) {
        let chosen = [part(0, open), part(start + 1, end), part(close + 1, text.len())].concat();
        found.extend(alternatives(&chosen, depth + 1)?);
        if found.len() > MOST_ALTERNATIVES {
            return Err(format!("the braces stand for more than {MOST_ALTERNATIVES} patterns"));
        }
    }
    Ok(found)
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, String> {
        let mut parts: Vec<Part> = Vec::new();
        // No class and no escape can hold a `/`.
        for name in text.split('/') {
            let part = match name {
                "" => return Err("an empty component: `//`, or a `/` at the end; write `dir/**`".into()),
                "." | ".." => {
                    return Err("`.` and `..` don't belong in a glob; write the path itself".into());
                }
                "**" => Part::Any,
                name => Part::Name(tokens(name)?),
            };
            if part != Part::Any || parts.last() != Some(&Part::Any) {
                parts.push(part);
            }
        }
        Ok(Self(parts))
    }
}

fn tokens(name: &str) -> Result<Vec<Token>, String> {
    let mut found = Vec::new();
    let mut chars = name.chars();
    while let Some(c) = chars.next() {
        found.push(match c {
            '?' => Token::One,
            '*' if found.last() == Some(&Token::Many) => {
                return Err("`**` stands alone between slashes; write `*`, or `dir/**/name`".into());
            }
            '*' => Token::Many,
            '[' => class(&mut chars)?,
            '\\' => Token::Letter(escaped(&mut chars)?),
            c => Token::Letter(c),
        });
    }
    Ok(found)
}

fn escaped(chars: &mut std::str::Chars<'_>) -> Result<char, String> {
    match chars.next() {
        Some(c @ ('*' | '?' | '[' | ']' | '{' | '}' | ',' | '!' | '^' | '-')) => Ok(c),
        Some(_) | None => Err("`\\` only takes a special character literally; separate with `/`".into()),
    }
}

fn class(chars: &mut std::str::Chars<'_>) -> Result<Token, String> {
    let unclosed = || String::from("`[` isn't closed; write `\\[` for itself");
    let mut negated = false;
    let mut letters = BTreeSet::new();
    let mut first = true;
    loop {
        let low = match chars.next().ok_or_else(unclosed)? {
            '!' | '^' if first && !negated => {
                negated = true;
                continue;
            }
            ']' if !first => break,
            '\\' => escaped(chars)?,
            c => c,
        };
        first = false;
        let mut ahead = chars.clone();
        let high = match (ahead.next(), ahead.next()) {
            (Some('-'), Some(end)) if end != ']' => {
                *chars = ahead;
                if end == '\\' { escaped(chars)? } else { end }
            }
            _ => low,
        };
        if low > high {
            return Err(format!("the range `{low}-{high}` runs backwards"));
        }
        if !high.is_ascii() {
            return Err(format!("`{high}` can't stand in a class, which holds ASCII; write `{{…,…}}`"));
        }
        letters.extend((low..=high).filter(|c| *c != '/'));
    }
    if letters.is_empty() {
        return Err("the class is empty".into());
    }
    Ok(Token::Class { negated, letters })
}

/// A deny compares names without case, so that a class must mean the same without case.
fn check_class(negated: bool, letters: &BTreeSet<char>) -> Result<(), String> {
    for letter in letters {
        let cases = [letter.to_ascii_lowercase(), letter.to_ascii_uppercase()];
        if negated && let Some(other) = cases.into_iter().find(|case| !letters.contains(case)) {
            return Err(format!(
                "a deny compares names without case, so `[!…]` must name `{other}` beside `{letter}`"
            ));
        }
    }
    Ok(())
}

fn write_parts(parts: &[Part], spelling: Spelling) -> String {
    let written = parts.iter().map(|part| match part {
        Part::Any => "**".to_owned(),
        Part::Name(tokens) => write_name(tokens, spelling),
    });
    written.collect::<Vec<_>>().join("/")
}

fn write_name(tokens: &[Token], spelling: Spelling) -> String {
    let mut out = String::new();
    let mut run = String::new();
    for token in tokens {
        if let Token::Letter(c) = token {
            run.push(*c);
            continue;
        }
        write_run(&mut out, &mut run, spelling);
        match token {
            // Already in the run.
            Token::Letter(_) => {}
            Token::Many => out.push('*'),
            Token::One | Token::Class { .. } if spelling == Spelling::Wide => out.push_str("?*"),
            Token::One => out.push('?'),
            Token::Class { negated, letters } => match spelling {
                Spelling::Exact => write_class(&mut out, *negated, letters),
                Spelling::Folded | Spelling::Wide => {
                    let folded = letters.iter().map(char::to_ascii_lowercase).collect();
                    write_class(&mut out, *negated, &folded);
                }
            },
        }
    }
    write_run(&mut out, &mut run, spelling);
    out
}

fn write_run(out: &mut String, run: &mut String, spelling: Spelling) {
    let text = match spelling {
        Spelling::Exact => std::mem::take(run),
        Spelling::Folded | Spelling::Wide => fold_text(&std::mem::take(run)),
    };
    text.chars().for_each(|c| write_letter(out, c));
}

fn write_letter(out: &mut String, c: char) {
    if matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\') {
        out.push('\\');
    }
    out.push(c);
}

/// Writes a class in the matcher's own syntax, which has no escapes: `]` comes first, `-` last, and
/// `!` or `^` never at the start.
fn write_class(out: &mut String, negated: bool, letters: &BTreeSet<char>) {
    if !negated && letters.iter().all(|c| matches!(c, '!' | '^')) {
        let both: Vec<String> = letters.iter().map(char::to_string).collect();
        out.push_str(&format!("{{{}}}", both.join(",")));
        return;
    }
    out.push('[');
    if negated {
        out.push('!');
    }
    let has = |c: char| letters.contains(&c);
    let plain = letters.iter().filter(|c| !matches!(c, ']' | '-' | '!' | '^' | '['));
    if has(']') {
        out.push(']');
    }
    let mut plain = plain.peekable();
    // With nothing plain to stand before `!` and `^`, the dash does.
    let dash_first = has('-') && plain.peek().is_none() && !has(']');
    if dash_first {
        out.push('-');
    }
    out.extend(plain);
    // `[:` would open a named class: with nothing but these after it, it can't.
    out.extend(['[', '!', '^'].into_iter().filter(|c| has(*c)));
    if has('-') && !dash_first {
        out.push('-');
    }
    out.push(']');
}
