//! `read_file`: a window of lines, with encoding and line ends named, and nothing guessed.
//!
//! Bytes that aren't UTF-8 are shown as `\xNN`, never decoded by guess; a binary file isn't shown.

use std::io::{BufRead, BufReader, Read as _};

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Done, ToolContext, ToolError, bounded::Bounded, resolve::Resolved, shown::shown};
use crate::{id::Digest, mutation::MOST_EDITED_BYTES, workspace::Kind};

/// Bytes of the file that one call tells.
const WINDOW: usize = 256 * 1024;
/// Lines that one call tells if the model doesn't say.
const LINES: u64 = 2_000;
/// Bytes that one call reads to come to its first line.
const MOST_READ: u64 = 1 << 30;

/// Reads a window of lines.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ReadFile {
    /// The file, relative to the workspace.
    pub path: String,
    /// The first line to read, from 1.
    #[schemars(range(min = 1))]
    pub offset: Option<u64>,
    /// How many lines to read at most.
    #[schemars(range(min = 1))]
    pub limit: Option<u64>,
}

pub(super) fn run(
    input: &ReadFile,
    resolved: &Resolved,
    context: &ToolContext,
) -> Result<Done, ToolError> {
    let target = |problem| ToolError::Target { path: input.path.clone(), problem };
    let look = resolved.look.as_ref().ok_or_else(|| target("this is not a file"))?;
    match look.kind {
        Kind::Regular => {}
        Kind::Directory => return Err(target("this is a directory: use list_files")),
        Kind::Absent => return Err(target("there is no such file")),
        Kind::Special | Kind::Unknown => return Err(target("this is not a regular file")),
    }
    let first = input.offset.unwrap_or(1);
    let most = input.limit.unwrap_or(LINES);
    if first == 0 || most == 0 {
        return Err(target("offset and limit count lines from 1"));
    }
    let file = context.root.open_file(look)?;
    let read = |source| ToolError::Read { path: input.path.clone(), source };
    let mut file = Bounded::new(file, look.bytes, MOST_READ, &context.stop);
    if look.bytes > MOST_EDITED_BYTES {
        let mut reader = BufReader::with_capacity(64 * 1024, file);
        let state = |reader: &BufReader<Bounded<'_, _>>| trouble(reader.get_ref(), input);
        let text = windowed(&mut reader, input, look.bytes, &state)?;
        return Ok(Done { text, digest: None });
    }
    // What is told and what is remembered for a later edit are the same bytes.
    let mut whole = Vec::new();
    file.read_to_end(&mut whole).map_err(read)?;
    if let Some(error) = trouble(&file, input) {
        return Err(error);
    }
    let text = windowed(&mut whole.as_slice(), input, look.bytes, &|_| None)?;
    Ok(Done { text, digest: Some(Digest::of(&whole)) })
}

/// Why reading broke off, if it did.
fn trouble<R: std::io::Read>(file: &Bounded<'_, R>, input: &ReadFile) -> Option<ToolError> {
    let problem = "offset lies over 1 GiB into the file, which is not read that far: use search_text";
    if file.is_stopped() {
        return Some(ToolError::Stopped);
    }
    file.is_cut().then(|| ToolError::Target { path: input.path.clone(), problem })
}

/// The window that was asked for, from a reader at its start.
fn windowed<R: BufRead>(
    reader: &mut R,
    input: &ReadFile,
    file_bytes: u64,
    trouble: &dyn Fn(&R) -> Option<ToolError>,
) -> Result<String, ToolError> {
    let (first, most) = (input.offset.unwrap_or(1), input.limit.unwrap_or(LINES));
    let read = |source| ToolError::Read { path: input.path.clone(), source };
    let past_end = |lines| ToolError::PastEnd { path: input.path.clone(), lines, asked: first };
    for line in 1..first {
        let skipped = skip_line(reader).map_err(read)?;
        if let Some(error) = trouble(reader) {
            return Err(error);
        }
        if skipped == 0 {
            return Err(past_end(line - 1));
        }
    }
    let window = Window::read(reader, most).map_err(read)?;
    if window.lines == 0 && first > 1 {
        return Err(past_end(first - 1));
    }
    if window.is_binary(first) {
        let problem = "this is a binary file and is not shown";
        return Err(ToolError::Target { path: input.path.clone(), problem });
    }
    Ok(window.told(file_bytes, first))
}

fn skip_line(reader: &mut impl std::io::BufRead) -> std::io::Result<u64> {
    reader.skip_until(b'\n').map(|read| u64::try_from(read).unwrap_or(u64::MAX))
}

/// Lines as they stand in the file.
struct Window {
    bytes: Vec<u8>,
    lines: u64,
    /// The last line is only its beginning.
    cut_in_line: bool,
    /// There is more of the file.
    more: bool,
}

impl Window {
    fn read(reader: &mut impl std::io::BufRead, most: u64) -> std::io::Result<Self> {
        let mut window = Self { bytes: Vec::new(), lines: 0, cut_in_line: false, more: false };
        while window.lines < most {
            let start = window.bytes.len();
            let room = WINDOW - start;
            let limit = u64::try_from(room).unwrap_or(u64::MAX) + 1;
            let mut limited = std::io::Read::take(&mut *reader, limit);
            let read = limited.read_until(b'\n', &mut window.bytes)?;
            if read == 0 {
                return Ok(window);
            }
            if read > room {
                // A line that doesn't fit is left for the next call, unless it is the first.
                window.more = true;
                if window.lines == 0 {
                    window.lines = 1;
                    window.cut_in_line = true;
                    window.bytes.truncate(whole_characters(&window.bytes, WINDOW));
                } else {
                    window.bytes.truncate(start);
                }
                return Ok(window);
            }
            window.lines += 1;
        }
        window.more = !reader.fill_buf()?.is_empty();
        Ok(window)
    }

    fn is_binary(&self, first: u64) -> bool {
        let bom = first == 1
            && (self.bytes.starts_with(&[0xFF, 0xFE]) || self.bytes.starts_with(&[0xFE, 0xFF]));
        bom || self.bytes.contains(&0)
    }

    fn told(&self, file_bytes: u64, first: u64) -> String {
        let mut text = String::with_capacity(self.bytes.len() + 100);
        let last = first.saturating_add(self.lines.saturating_sub(1));
        let (encoding, body) = self.decoded(first);
        let ends = line_ends(&self.bytes);
        text.push_str(&match self.lines {
            0 => "empty file (0 bytes)\n".to_owned(),
            _ => format!("lines {first}-{last} of a file of {file_bytes} bytes, {encoding}, {ends}\n"),
        });
        if self.cut_in_line {
            text.push_str(&format!(
                "line {first} is longer than {WINDOW} bytes; this is its beginning\n"
            ));
        } else if self.more {
            text.push_str(&format!("more follows: read on with offset {}\n", last.saturating_add(1)));
        }
        text.push_str(&body);
        text
    }

    fn decoded(&self, first: u64) -> (&'static str, String) {
        let with_bom = first == 1 && self.bytes.starts_with("\u{feff}".as_bytes());
        let body = shown(&self.bytes);
        let is_text = std::str::from_utf8(&self.bytes).is_ok();
        match (!is_text, with_bom) {
            (true, _) => ("not UTF-8 (bytes that are not are shown as \\xNN)", body),
            (false, true) => ("UTF-8 with BOM", body.trim_start_matches('\u{feff}').to_owned()),
            (false, false) => ("UTF-8", body),
        }
    }
}

/// The longest prefix of at most `most` bytes that ends between characters.
fn whole_characters(bytes: &[u8], most: usize) -> usize {
    let mut end = most.min(bytes.len());
    while end > 0 && bytes.get(end).is_some_and(|byte| byte & 0xC0 == 0x80) && most - end < 4 {
        end -= 1;
    }
    end
}

fn line_ends(bytes: &[u8]) -> &'static str {
    let (mut lf, mut crlf, mut cr) = (false, false, false);
    let mut previous = 0u8;
    for byte in bytes {
        match (previous, *byte) {
            (b'\r', b'\n') => crlf = true,
            (b'\r', _) => cr = true,
            (_, b'\n') => lf = true,
            _ => {}
        }
        previous = *byte;
    }
    match (lf, crlf, cr) {
        (false, false, false) => "no line end",
        (true, false, false) => "LF",
        (false, true, false) => "CRLF",
        (false, false, true) => "CR",
        _ => "mixed line ends",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(bytes: &[u8], offset: u64, limit: u64) -> String {
        let mut reader = BufReader::new(bytes);
        for _ in 1..offset {
            skip_line(&mut reader).unwrap();
        }
        let window = Window::read(&mut reader, limit).unwrap();
        assert!(!window.is_binary(offset));
        window.told(u64::try_from(bytes.len()).unwrap(), offset)
    }

    #[test]
    fn names_encoding_and_line_ends_and_what_follows() {
        assert_eq!(told(b"a\nb\n", 1, 9), "lines 1-2 of a file of 4 bytes, UTF-8, LF\na\nb\n");
        assert_eq!(
            told(b"a\r\nb\r\nc", 2, 1),
            "lines 2-2 of a file of 7 bytes, UTF-8, CRLF\nmore follows: read on with offset 3\nb\r\n"
        );
        assert_eq!(
            told(b"caf\xe9", 1, 9),
            "lines 1-1 of a file of 4 bytes, not UTF-8 (bytes that are not are shown as \\xNN), no line end\ncaf\\xE9"
        );
        assert_eq!(
            told("\u{feff}x\r\n\n".as_bytes(), 1, 9),
            "lines 1-2 of a file of 7 bytes, UTF-8 with BOM, mixed line ends\nx\r\n\n"
        );
        assert_eq!(told(b"", 1, 9), "empty file (0 bytes)\n");
    }

    #[test]
    fn a_long_line_is_cut_between_characters_and_later_ones_wait() {
        let long = "é".repeat(WINDOW);
        let text = told(long.as_bytes(), 1, 9);
        assert!(text.contains("this is its beginning"));
        assert!(text.len() <= WINDOW + 200 && !text.contains("\\x"), "never splits a character");
        let odd = format!("x{long}");
        assert!(!told(odd.as_bytes(), 1, 9).contains("\\x"));
        let two = format!("short\n{long}\n");
        let text = told(two.as_bytes(), 1, 9);
        assert!(text.ends_with("more follows: read on with offset 2\nshort\n"), "{}", text.len());
    }
}
