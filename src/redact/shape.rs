//! Secrets that nobody told us: found by their shape.
//!
//! A text is read once for the words that every shape has (`ghp_`, `password`, `://`); only where one
//! stands is its rule asked, and a rule looks a bounded way in either direction and, but for a private
//! key, never beyond its line. What is encoded (base64, hex, percent, JSON, UTF-16) is decoded and read
//! the same way, twice deep. So the work grows with the text, whatever the text is.

use std::ops::Range;

mod assign;
mod class;
mod index;
mod look;
mod token;
mod view;
mod web;

/// A place of a text that holds a secret, and the kind of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) span: Range<usize>,
    pub(super) label: &'static str,
}

/// How many encodings are taken off, one inside the other.
const DEEPEST: usize = 2;

/// Every secret, in no order; they may overlap. The borders are those of characters.
pub(super) fn find(text: &str) -> Vec<Found> {
    let mut found = Vec::new();
    scan(text.as_bytes(), 0, &mut found);
    for Found { span, .. } in &mut found {
        while !text.is_char_boundary(span.start) {
            span.start -= 1;
        }
        while !text.is_char_boundary(span.end) {
            span.end += 1;
        }
    }
    found
}

fn scan(text: &[u8], depth: usize, found: &mut Vec<Found>) {
    index::rules(text, found);
    if depth < DEEPEST {
        view::decoded(text, &mut |view, spans| {
            let mut inside = Vec::new();
            scan(view, depth + 1, &mut inside);
            found.extend(
                inside
                    .into_iter()
                    .filter_map(|Found { span, label }| Some(Found { span: spans(span)?, label })),
            );
        });
    }
}

/// The kind of secret that a text is as the value of a field of this name, if it is one.
pub(super) fn named(name: &str, value: &str) -> Option<&'static str> {
    assign::named(name.as_bytes(), value.as_bytes())
}

/// From where on more text could still complete a secret or make one longer.
///
/// What comes before the last line is decided, but for a private key that hasn't ended. Of the last
/// line, what comes before the first word with something that a rule looks for.
pub(super) fn open_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let line = memchr::memrchr(b'\n', bytes).map_or(0, |at| at + 1);
    let tail = bytes.get(line..).unwrap_or_default();
    let open = if view::may_hide(tail) {
        line
    } else {
        let last = tail.len();
        line + word_start(tail, index::first(tail).unwrap_or(last))
    };
    let wide = view::wide_end(bytes, line);
    web::open_key(bytes).map_or(open, |at| at.min(open)).min(wide)
}

/// Where the word begins that this place is in.
pub(super) fn word_start(text: &[u8], at: usize) -> usize {
    let before = text.get(..at).unwrap_or_default();
    before.iter().rposition(u8::is_ascii_whitespace).map_or(0, |space| space + 1)
}

#[cfg(test)]
mod tests;
