//! Bytes to a TOML document: everything that can be wrong with a file before its keys are looked at.

use toml::de::DeTable;
use toml_parser::{Source, lexer::TokenKind};

use crate::policy::diagnostic::{Diagnostic, Page};

/// The largest policy file, in bytes.
pub(super) const LARGEST_FILE: usize = 10 * 1024 * 1024;
/// The most parts of a dotted key. Every one is a table in a table, and arrays and inline tables
/// are bounded by the parser.
const DEEPEST_KEY: usize = 16;

/// The text of a file, or why it has none.
pub(super) fn decode(name: &str, bytes: Vec<u8>) -> Result<Page, Diagnostic> {
    if bytes.len() > LARGEST_FILE {
        let message = format!("the file has {} bytes; {LARGEST_FILE} is the most", bytes.len());
        return Err(Diagnostic::of_file(name, message));
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(Diagnostic::of_file(name, "the file is UTF-16; save it as UTF-8"));
    }
    match String::from_utf8(bytes) {
        Ok(text) => {
            // A byte order mark says nothing in UTF-8 and is none of the first line's columns.
            let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
            Ok(Page::new(name, text))
        }
        Err(fault) => {
            let at = fault.utf8_error().valid_up_to();
            let mut page = Page::new(name, String::from_utf8_lossy(fault.as_bytes()).into_owned());
            page.fault(at..at + 1, "from here on the file isn't UTF-8");
            // There is exactly this one.
            Err(page.into_faults().pop().unwrap_or_else(|| Diagnostic::of_file(name, "not UTF-8")))
        }
    }
}

/// Reads the text as TOML and hands the document to `walk`, unless the text is at fault: then every
/// fault of its syntax is told and `walk` isn't asked, since what is left of a broken document only
/// misleads.
pub(super) fn parse<T>(page: &mut Page, walk: impl FnOnce(&mut Page, &DeTable<'_>) -> T) -> Option<T> {
    let text = page.text().to_owned();
    if let Some(at) = text.find('\0') {
        page.fault(at..at + 1, "a NUL in the file");
        return None;
    }
    if let Some(span) = deep_key(&text) {
        page.fault(span, format!("a key of more than {DEEPEST_KEY} parts"));
        return None;
    }
    let (document, faults) = DeTable::parse_recoverable(&text);
    for fault in &faults {
        page.fault(fault.span().unwrap_or_default(), fault.message());
    }
    faults.is_empty().then(|| walk(page, document.get_ref()))
}

/// A key with so many parts that building and dropping its tables could exhaust the stack.
fn deep_key(text: &str) -> Option<std::ops::Range<usize>> {
    let mut dots = 0;
    for token in Source::new(text).lex() {
        match token.kind() {
            TokenKind::Dot => {
                dots += 1;
                if dots >= DEEPEST_KEY {
                    return Some(token.span().start()..token.span().end());
                }
            }
            TokenKind::Atom
            | TokenKind::Whitespace
            | TokenKind::BasicString
            | TokenKind::LiteralString => {}
            TokenKind::Equals
            | TokenKind::Comma
            | TokenKind::LeftSquareBracket
            | TokenKind::RightSquareBracket
            | TokenKind::LeftCurlyBracket
            | TokenKind::RightCurlyBracket
            | TokenKind::Comment
            | TokenKind::Newline
            | TokenKind::MlLiteralString
            | TokenKind::MlBasicString
            | TokenKind::Eof => dots = 0,
        }
    }
    None
}
