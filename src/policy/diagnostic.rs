//! Mistakes in policy files, each with its place: file, line, column, and the line with a caret.

use std::ops::Range;

/// The most mistakes that are told of one file.
const MOST_FAULTS: usize = 100;
/// How many characters of a long line an excerpt shows on either side of the place.
const AROUND: usize = 50;

/// A mistake in a policy file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file as it was named.
    pub file: String,
    /// The line, from 1; none where the file as a whole is meant.
    pub line: Option<u32>,
    /// The column in characters, from 1.
    pub column: Option<u32>,
    /// What is wrong, and what would be right.
    pub message: String,
    /// The line of the file with a caret under the place, safe to print.
    pub excerpt: Option<String>,
}

impl Diagnostic {
    /// A mistake of a file as a whole.
    pub(super) fn of_file(file: &str, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line: None, column: None, message: message.into(), excerpt: None }
    }
}

/// The text of a file, and what was found wrong in it.
#[derive(Debug)]
pub(super) struct Page {
    name: String,
    text: String,
    /// Where each line starts, in bytes.
    starts: Vec<usize>,
    /// Each with its offset, by which they are told in the end.
    faults: Vec<(usize, Diagnostic)>,
    /// How many were found, told or not.
    count: usize,
}

impl Page {
    pub(super) fn new(name: &str, text: String) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0).chain(breaks.map(|(at, _)| at + 1)).collect();
        Self { name: name.to_owned(), text, starts, faults: Vec::new(), count: 0 }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The line of an offset, from 1.
    pub(super) fn line(&self, offset: usize) -> u32 {
        u32::try_from(self.starts.partition_point(|start| *start <= offset)).unwrap_or(u32::MAX)
    }

    /// Notes what is wrong at a place.
    pub(super) fn fault(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.count += 1;
        if self.count > MOST_FAULTS {
            return;
        }
        let line = self.line(span.start);
        let index = usize::try_from(line).unwrap_or(usize::MAX).saturating_sub(1);
        let start = self.starts.get(index).copied().unwrap_or_default();
        let end = self.starts.get(index + 1).copied().unwrap_or(self.text.len());
        let content = self.text.get(start..end).unwrap_or_default().trim_end_matches(['\n', '\r']);
        let characters =
            |to: usize| content.char_indices().take_while(|(at, _)| start + at < to.min(end)).count();
        let before = characters(span.start);
        let length = characters(span.end).saturating_sub(before).max(1);
        let diagnostic = Diagnostic {
            file: self.name.clone(),
            line: Some(line),
            column: Some(u32::try_from(before + 1).unwrap_or(u32::MAX)),
            message: message.into(),
            excerpt: Some(excerpt(line, content, before, length)),
        };
        self.faults.push((span.start, diagnostic));
    }

    /// How many mistakes were noted so far.
    pub(super) fn faults(&self) -> usize {
        self.count
    }

    /// The mistakes in the order of their places.
    pub(super) fn into_faults(mut self) -> Vec<Diagnostic> {
        self.faults.sort_by_key(|(at, _)| *at);
        let told = self.faults.len();
        let rest = (self.count > told).then(|| {
            let message = format!("{} mistakes were found; {told} of them are told", self.count);
            Diagnostic::of_file(&self.name, message)
        });
        self.faults.into_iter().map(|(_, diagnostic)| diagnostic).chain(rest).collect()
    }
}

/// The line with a caret under the place; a long one is cut on both sides.
fn excerpt(line: u32, content: &str, before: usize, length: usize) -> String {
    let skipped = before.saturating_sub(AROUND);
    let total = content.chars().count();
    let shown: String = content
        .chars()
        .skip(skipped)
        .take(before - skipped + length.min(AROUND) + AROUND)
        .map(safe)
        .collect();
    let cut = skipped + shown.chars().count() < total;
    let lead = if skipped > 0 { "…" } else { "" };
    let trail = if cut { "…" } else { "" };
    let number = line.to_string();
    let gutter = " ".repeat(number.len());
    let pad = " ".repeat(before - skipped + lead.chars().count());
    let carets = "^".repeat(length.min(AROUND));
    format!("{number} | {lead}{shown}{trail}\n{gutter} | {pad}{carets}")
}

/// A character as it can be printed anywhere: nothing that moves a cursor or hides itself.
fn safe(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() || crate::floor::invisible(c) => '\u{fffd}',
        c => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(text: &str, span: Range<usize>) -> Diagnostic {
        let mut page = Page::new("p.toml", text.to_owned());
        page.fault(span, "wrong");
        page.into_faults().remove(0)
    }

    #[test]
    fn columns_are_characters_and_lines_end_anyhow() {
        let told = only("a = 1\r\nไ = \"x\"\r\n", 13..16);
        assert_eq!((told.line, told.column), (Some(2), Some(5)));
        assert_eq!(told.excerpt.as_deref(), Some("2 | ไ = \"x\"\n  |     ^^^"));
    }

    #[test]
    fn a_place_at_the_end_or_beyond_is_told() {
        for span in [5..5, 99..200] {
            let told = only("a = 1", span);
            assert_eq!((told.line, told.column), (Some(1), Some(6)));
        }
        let empty = only("", 0..0);
        assert_eq!((empty.line, empty.column), (Some(1), Some(1)));
    }

    #[test]
    fn a_long_line_is_cut_and_nothing_moves_the_cursor() {
        let text = format!("{}\u{1b}[2J\u{202e}{}", "a".repeat(200), "b".repeat(200));
        let told = only(&text, 200..201);
        let excerpt = told.excerpt.unwrap();
        assert!(excerpt.starts_with("1 | …aaa") && excerpt.contains("b…\n"), "{excerpt}");
        assert!(!excerpt.contains('\u{1b}') && !excerpt.contains('\u{202e}'), "{excerpt}");
    }
}
