//! What an edit makes of a file's bytes: a splice, exact, all or nothing. Pure.
//!
//! Bytes outside the edited spans are never decoded and never rewritten: encoding, BOM, line ends
//! and a missing final newline survive because nothing touches them.

use std::ops::Range;

/// Candidate lines that a failed match tells.
const MOST_CANDIDATES: usize = 3;
/// Characters of a candidate line.
const CANDIDATE: usize = 120;

/// One replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The text that is there.
    pub old: String,
    /// The text that is to be there.
    pub new: String,
    /// How often the old text must be there.
    pub expected: Expected,
}

/// How often a text must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Exactly so often.
    Count(u64),
    /// At least once; every one is replaced.
    All,
}

/// Why an edit isn't made. Nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// No edit was given.
    #[error("there is no edit: give at least one")]
    Nothing,
    /// The old text of an edit is empty.
    #[error("edit {edit}: oldText is empty; name the text to replace")]
    EmptyOld {
        /// Which edit, from 1.
        edit: usize,
    },
    /// Old and new are the same.
    #[error("edit {edit}: oldText and newText are the same")]
    SameText {
        /// Which edit, from 1.
        edit: usize,
    },
    /// It isn't there.
    #[error("edit {edit}: oldText is not in the file{candidates}")]
    NoMatch {
        /// Which edit, from 1.
        edit: usize,
        /// Lines that come near, as a sentence.
        candidates: String,
    },
    /// It is there another number of times.
    #[error(
        "edit {edit}: oldText is there {found} times, not {expected}{lines}; \
         give more of the text around it, or set expectedCount"
    )]
    WrongCount {
        /// Which edit, from 1.
        edit: usize,
        /// How often it is there.
        found: u64,
        /// How often it should be.
        expected: u64,
        /// In which lines, as a parenthesis.
        lines: String,
    },
    /// Two edits touch the same bytes.
    #[error("edits {first} and {second} touch the same text; make them one")]
    Overlap {
        /// From 1.
        first: usize,
        /// From 1.
        second: usize,
    },
    /// The file has NUL, or the mark of UTF-16 or UTF-32.
    #[error("the file is binary; it can be created or deleted, not edited")]
    Binary,
    /// Text that isn't ASCII into a file that isn't UTF-8.
    #[error(
        "edit {edit}: the file is not UTF-8, so newText must be ASCII: anything else would mix encodings"
    )]
    EncodingMixed {
        /// Which edit, from 1.
        edit: usize,
    },
}

impl EditError {
    /// The stable token.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Nothing | Self::EmptyOld { .. } | Self::SameText { .. } => "edit-empty",
            Self::NoMatch { .. } => "no-match",
            Self::WrongCount { .. } => "ambiguous-match",
            Self::Overlap { .. } => "edits-overlap",
            Self::Binary => "binary",
            Self::EncodingMixed { .. } => "encoding-mixed",
        }
    }
}

/// What came of the edits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited {
    /// The bytes of the file after.
    pub bytes: Vec<u8>,
    /// How many places were replaced.
    pub replaced: u64,
}

/// Applies edits to the original, all or nothing.
pub fn apply(original: &[u8], edits: &[Edit]) -> Result<Edited, EditError> {
    if edits.is_empty() {
        return Err(EditError::Nothing);
    }
    if is_binary(original) {
        return Err(EditError::Binary);
    }
    let utf8 = std::str::from_utf8(original).is_ok();
    let crlf = every_newline_is_crlf(original);
    let mut splices: Vec<(Range<usize>, Vec<u8>, usize)> = Vec::new();
    for (number, edit) in (1..).zip(edits) {
        if edit.old.is_empty() {
            return Err(EditError::EmptyOld { edit: number });
        }
        if edit.old == edit.new {
            return Err(EditError::SameText { edit: number });
        }
        if !utf8 && !edit.new.is_ascii() {
            return Err(EditError::EncodingMixed { edit: number });
        }
        let new = if crlf { with_crlf(&edit.new) } else { edit.new.clone().into_bytes() };
        let spans = find(original, edit, crlf, number)?;
        splices.extend(spans.into_iter().map(|span| (span, new.clone(), number)));
    }
    splices.sort_by_key(|(span, _, _)| (span.start, span.end));
    for pair in splices.windows(2) {
        if let [(one, _, first), (two, _, second)] = pair
            && two.start < one.end
        {
            return Err(EditError::Overlap { first: *first, second: *second });
        }
    }
    let mut bytes = Vec::with_capacity(original.len());
    let mut at = 0;
    for (span, new, _) in &splices {
        bytes.extend_from_slice(original.get(at..span.start).unwrap_or_default());
        bytes.extend_from_slice(new);
        at = span.end;
    }
    bytes.extend_from_slice(original.get(at..).unwrap_or_default());
    Ok(Edited { bytes, replaced: u64::try_from(splices.len()).unwrap_or(u64::MAX) })
}

/// NUL, or the mark of UTF-16 or UTF-32, anywhere it would stand.
fn is_binary(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0xFF, 0xFE])
        || bytes.starts_with(&[0xFE, 0xFF])
        || memchr::memchr(0, bytes).is_some()
}

fn every_newline_is_crlf(bytes: &[u8]) -> bool {
    let mut any = false;
    memchr::memchr_iter(b'\n', bytes).all(|at| {
        any = true;
        at.checked_sub(1).and_then(|before| bytes.get(before)) == Some(&b'\r')
    }) && any
}

/// The text with every lone LF as CRLF.
fn with_crlf(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 16);
    let mut before = 0u8;
    for byte in text.bytes() {
        if byte == b'\n' && before != b'\r' {
            out.push(b'\r');
        }
        out.push(byte);
        before = byte;
    }
    out
}

/// Where the old text stands: exact bytes; else, in a file that is CRLF throughout, with its line
/// ends. Nothing fuzzier, ever.
fn find(
    original: &[u8],
    edit: &Edit,
    crlf: bool,
    number: usize,
) -> Result<Vec<Range<usize>>, EditError> {
    let exact = edit.old.as_bytes();
    let converted = if crlf { with_crlf(&edit.old) } else { exact.to_vec() };
    let needle = [exact, converted.as_slice()]
        .into_iter()
        .find(|needle| memchr::memmem::find(original, needle).is_some())
        .ok_or_else(|| EditError::NoMatch {
            edit: number,
            candidates: candidates(original, &edit.old),
        })?;
    let spans: Vec<Range<usize>> =
        memchr::memmem::find_iter(original, needle).map(|at| at..at + needle.len()).collect();
    let Expected::Count(expected) = edit.expected else { return Ok(spans) };
    let starts = overlapping(original, needle);
    let found = u64::try_from(starts.len()).unwrap_or(u64::MAX);
    if found == expected && u64::try_from(spans.len()) == Ok(expected) {
        return Ok(spans);
    }
    let lines: Vec<String> = starts
        .iter()
        .take(5)
        .map(|start| {
            let before = original.get(..*start).unwrap_or_default();
            (memchr::memchr_iter(b'\n', before).count() + 1).to_string()
        })
        .collect();
    let lines = format!(" (lines {})", lines.join(", "));
    Err(EditError::WrongCount { edit: number, found, expected, lines })
}

/// Where the text begins, overlaps counted: `aa` is twice in `aaa`.
fn overlapping(original: &[u8], needle: &[u8]) -> Vec<usize> {
    let finder = memchr::memmem::Finder::new(needle);
    let (mut starts, mut from) = (Vec::new(), 0);
    while let Some(at) = original.get(from..).and_then(|rest| finder.find(rest)) {
        starts.push(from + at);
        from += at + 1;
    }
    starts
}

/// Lines that differ from the first line of the text by white space alone, or hold it.
fn candidates(original: &[u8], old: &str) -> String {
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some(wanted) = old.lines().map(squeezed).find(|line| !line.is_empty()) else {
        return String::new();
    };
    let text = String::from_utf8_lossy(original);
    let near: Vec<String> = (1..)
        .zip(text.lines())
        .filter(|(_, line)| squeezed(line).contains(&wanted))
        .take(MOST_CANDIDATES)
        .map(|(number, line)| {
            format!("line {number}: {:?}", line.chars().take(CANDIDATE).collect::<String>())
        })
        .collect();
    if near.is_empty() { String::new() } else { format!("; near it: {}", near.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(old: &str, new: &str) -> Edit {
        Edit { old: old.to_owned(), new: new.to_owned(), expected: Expected::Count(1) }
    }

    fn one(original: &[u8], old: &str, new: &str) -> Result<Vec<u8>, EditError> {
        apply(original, &[edit(old, new)]).map(|edited| edited.bytes)
    }

    #[test]
    fn bytes_outside_the_edit_survive() {
        assert_eq!(
            one(b"\xef\xbb\xbfcaf\xe9 x\r\ny\n", "x", "z").unwrap(),
            b"\xef\xbb\xbfcaf\xe9 z\r\ny\n"
        );
        assert_eq!(one(b"a\r\nb\r\nc", "a\nb", "1\n2\n3").unwrap(), b"1\r\n2\r\n3\r\nc");
        assert_eq!(one(b"a\r\nb\nc", "b", "x\ny").unwrap(), b"a\r\nx\ny\nc", "mixed: as given");
        assert_eq!(one(b"a\r\nb", "a\r\nb", "x\r\ny").unwrap(), b"x\r\ny", "never CR CR LF");
        assert_eq!(one(b"all", "all", "").unwrap(), b"");
        assert_eq!(one(b"a", "a", "$&\\n\\0").unwrap(), b"$&\\n\\0", "nothing is expanded");
    }

    #[test]
    fn what_is_not_exact_is_refused() {
        assert!(matches!(one(b"aaa", "aa", "b"), Err(EditError::WrongCount { found: 2, .. })));
        let error = one(b"x\nx\nx\n", "x\nx", "y").unwrap_err();
        assert!(error.to_string().contains("2 times, not 1 (lines 1, 2)"), "{error}");
        assert!(matches!(one(b"a", "", "b"), Err(EditError::EmptyOld { .. })));
        assert!(matches!(one(b"a", "a", "a"), Err(EditError::SameText { .. })));
        assert!(matches!(one(b"a\0", "a", "b"), Err(EditError::Binary)));
        assert!(matches!(one(b"\xff\xfea\0", "a", "b"), Err(EditError::Binary)));
        assert!(matches!(one(b"\xe9a", "a", "\u{e9}"), Err(EditError::EncodingMixed { .. })));
        assert_eq!(one(b"\xe9a", "a", "b").unwrap(), b"\xe9b");
        let error = one(b"let  x = 1;\n", "let x = 1;", "y").unwrap_err();
        assert!(error.to_string().contains("line 1: \"let  x = 1;\""), "{error}");
    }

    #[test]
    fn several_edits_apply_to_the_original_and_may_not_overlap() {
        let two = [edit("a", "b"), edit("b", "a")];
        assert_eq!(apply(b"a b", &two).unwrap().bytes, b"b a");
        let overlap = [edit("ab", "x"), edit("bc", "y")];
        assert!(matches!(apply(b"abc", &overlap), Err(EditError::Overlap { first: 1, second: 2 })));
        let touching = [edit("ab", "x"), edit("cd", "y")];
        assert_eq!(apply(b"abcd", &touching).unwrap().bytes, b"xy");
        let all = Edit { expected: Expected::All, ..edit("aa", "b") };
        assert_eq!(apply(b"aaaaa", &[all]).unwrap(), Edited { bytes: b"bba".to_vec(), replaced: 2 });
        let counted = Edit { expected: Expected::Count(2), ..edit("x", "y") };
        assert_eq!(apply(b"x x", std::slice::from_ref(&counted)).unwrap().bytes, b"y y");
        assert!(apply(b"x x x", &[counted]).is_err());
    }
}
