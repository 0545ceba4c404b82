//! Decoded views of a text: what its escapes and its runs of base64 and hex say, and where in the text
//! they say it. Views are made piece by piece, so that a long line costs no more memory than a short one.

use std::ops::Range;

use super::index;

/// How much of a text is decoded at once, and how much of that is decoded again with the next piece, so
/// that a secret on the border is whole in one of the two.
const PIECE: usize = 64 * 1024;
const AGAIN: usize = 8 * 1024;
/// A hit that begins so near to the beginning of a later piece was seen whole in the piece before, or
/// has a part of a word for its beginning.
const MARGIN: usize = 64;
/// A longer run of base64 is taken for whole at its end.
const LONGEST_CUT: usize = 512;
/// Shorter runs hold nothing that a rule would find.
const SHORTEST_RUN: usize = 16;

/// Gets a view, and what turns a place of it into one of the text.
type See<'a> = dyn FnMut(&[u8], &dyn Fn(Range<usize>) -> Option<Range<usize>>) + 'a;

/// Shows every view of the text.
pub(super) fn decoded(text: &[u8], see: &mut See<'_>) {
    escapes(text, see);
    runs(text, see);
}

/// Calls for each piece of a range; the flag says whether it is the first.
fn pieces(range: Range<usize>, mut each: impl FnMut(Range<usize>, bool)) {
    let mut from = range.start;
    loop {
        let end = range.end.min(from + PIECE);
        each(from..end, from == range.start);
        if end == range.end {
            return;
        }
        from = end - AGAIN;
    }
}

/// Whether the text may say something else than it seems to: an escape, or one that begins.
pub(super) fn may_hide(text: &[u8]) -> bool {
    memchr::memchr3(b'\\', b'%', 0, text).is_some()
}

/// Where the lines of UTF-16 begin that reach to this line; its place if there are none.
pub(super) fn wide_end(text: &[u8], line: usize) -> usize {
    let mut begin = line;
    while let Some(end) = begin.checked_sub(1) {
        let before = text.get(..end).unwrap_or_default();
        let previous = memchr::memrchr(b'\n', before).map_or(0, |at| at + 1);
        if memchr::memchr(0, before.get(previous..).unwrap_or_default()).is_none() {
            break;
        }
        begin = previous;
    }
    if begin == line { text.len() } else { begin }
}

/// An escape: how many bytes it takes, and the character that it stands for; none for a NUL.
fn escape(text: &[u8]) -> Option<(usize, Option<char>)> {
    let number = |digits: &[u8]| {
        let digits = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
        u32::from_str_radix(digits, 16).ok()
    };
    let one = |code: u32| Some(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
    match text {
        [0, ..] => Some((1, None)),
        [b'%', a, b, ..] => number(&[*a, *b]).map(|code| (3, one(code))),
        [b'\\', b'u', a, b, c, d, ..] => number(&[*a, *b, *c, *d]).map(|code| (6, one(code))),
        [b'\\', b'x', a, b, ..] => number(&[*a, *b]).map(|code| (4, one(code))),
        [b'\\', b'n', ..] => Some((2, Some('\n'))),
        [b'\\', b'r', ..] => Some((2, Some('\r'))),
        [b'\\', b't', ..] => Some((2, Some('\t'))),
        [b'\\', same @ (b'"' | b'\'' | b'\\' | b'/'), ..] => Some((2, Some(char::from(*same)))),
        _ => None,
    }
}

/// A stretch of a view: where it begins there and in the text, and whether it is the same in both.
struct Stretch {
    view: usize,
    text: usize,
    same: bool,
}

/// The lines that have escapes in them, without the escapes.
fn escapes(text: &[u8], see: &mut See<'_>) {
    let mut from = 0;
    while let Some(at) = memchr::memchr3(b'\\', b'%', 0, text.get(from..).unwrap_or_default()) {
        let at = from + at;
        if escape(text.get(at..).unwrap_or_default()).is_none() {
            from = at + 1;
            continue;
        }
        let line_end = |at: usize| {
            memchr::memchr(b'\n', text.get(at..).unwrap_or_default())
                .map_or(text.len(), |end| at + end + 1)
        };
        let begin = memchr::memrchr(b'\n', text.get(..at).unwrap_or_default()).map_or(0, |at| at + 1);
        let mut end = line_end(at);
        // Lines of UTF-16 belong together: a key in it has several.
        let mut wide = memchr::memchr(0, text.get(begin..end).unwrap_or_default()).is_some();
        while wide && end < text.len() {
            let next = line_end(end);
            wide = memchr::memchr(0, text.get(end..next).unwrap_or_default()).is_some();
            if wide {
                end = next;
            }
        }
        pieces(begin..end, |piece, first| unescaped(text, piece, first, see));
        from = end;
    }
}

fn unescaped(text: &[u8], piece: Range<usize>, first: bool, see: &mut See<'_>) {
    let mut view = Vec::with_capacity(piece.len());
    let mut stretches = vec![Stretch { view: 0, text: piece.start, same: true }];
    let mut at = piece.start;
    while at < piece.end {
        let rest = text.get(at..piece.end).unwrap_or_default();
        let plain = memchr::memchr3(b'\\', b'%', 0, rest).unwrap_or(rest.len());
        view.extend_from_slice(rest.get(..plain).unwrap_or_default());
        at += plain;
        let rest = rest.get(plain..).unwrap_or_default();
        let Some(byte) = rest.first() else { break };
        if let Some((length, char)) = escape(rest) {
            stretches.push(Stretch { view: view.len(), text: at, same: false });
            if let Some(char) = char {
                view.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
            }
            at += length;
            stretches.push(Stretch { view: view.len(), text: at, same: true });
        } else {
            view.push(*byte);
            at += 1;
        }
    }
    let end = at;
    see(&view, &|span| {
        if !first && span.start < MARGIN {
            return None;
        }
        let place = |at: usize, after: bool| {
            let next = stretches.partition_point(|stretch| stretch.view <= at);
            let stretch = stretches.get(next.checked_sub(1)?)?;
            if stretch.same {
                return Some(stretch.text + (at - stretch.view) + usize::from(after));
            }
            let behind = stretches.get(next).map_or(end, |stretch| stretch.text);
            Some(if after { behind } else { stretch.text })
        };
        Some(place(span.start, false)?..place(span.end.checked_sub(1)?, true)?)
    });
}

/// The value of each byte as a digit of base64, in both alphabets; 255 for what is none.
static SIXTY_FOUR: [u8; 256] = sixty_four();

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn sixty_four() -> [u8; 256] {
    let mut table = [255; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            upper @ b'A'..=b'Z' => upper - b'A',
            lower @ b'a'..=b'z' => lower - b'a' + 26,
            digit @ b'0'..=b'9' => digit - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => 255,
        };
        byte += 1;
    }
    table
}

fn digit64(byte: u8) -> u8 {
    SIXTY_FOUR.get(usize::from(byte)).copied().unwrap_or(255)
}

/// Runs of what may be base64 or hex, decoded.
fn runs(text: &[u8], see: &mut See<'_>) {
    let mut from = 0;
    // Looked at from its end, most of a text needn't be looked at: no run that is long enough has a
    // byte in it that is no digit.
    while let Some(least) = text.get(from..from + SHORTEST_RUN) {
        if let Some(other) = least.iter().rposition(|byte| digit64(*byte) == 255) {
            from += other + 1;
            continue;
        }
        let rest = text.get(from..).unwrap_or_default();
        let length = rest.iter().take_while(|byte| digit64(**byte) != 255).count();
        let run = rest.get(..length).unwrap_or_default();
        // Whatever text is encoded, capitals and small letters come out.
        if run.iter().any(u8::is_ascii_uppercase) && run.iter().any(u8::is_ascii_lowercase) {
            let padded = rest.iter().skip(length).take(2).take_while(|byte| **byte == b'=').count();
            pieces(from..from + length, |piece, first| base64(text, piece, first, padded, see));
        }
        hexes(text, from..from + length, see);
        from += length + 1;
    }
}

/// A run of base64, read from each of the four places that its first character may have in a group.
fn base64(text: &[u8], piece: Range<usize>, first: bool, padded: usize, see: &mut See<'_>) {
    let digits = text.get(piece.clone()).unwrap_or_default();
    let mut view = Vec::with_capacity(digits.len() * 3 / 4 + 3);
    for missing in 0..4 {
        view.clear();
        let (mut bits, mut count) = (0u32, missing * 6 % 8);
        for digit in digits {
            bits = bits << 6 | u32::from(digit64(*digit));
            count += 6;
            if count >= 8 {
                count -= 8;
                view.push((bits >> count & 255) as u8);
            }
        }
        // How many bytes before the first one are wholly missing, and which bits of that one are there.
        let gone = missing * 6 / 8;
        let left = 0xff_u8 >> (missing * 6 % 8);
        if first && missing > 0 {
            let whole = index::beheaded(&view, left);
            view.iter_mut().zip(whole).for_each(|(byte, whole)| *byte = whole);
        }
        let spans = |span: Range<usize>| {
            if !first && span.start < MARGIN {
                return None;
            }
            let begin = ((span.start + gone) * 8 / 6).saturating_sub(missing);
            let end = ((span.end + gone) * 8).div_ceil(6).saturating_sub(missing);
            let end = if end >= digits.len() { digits.len() + padded } else { end };
            Some(piece.start + begin..piece.start + end)
        };
        see(&view, &spans);
        if padded == 0 && digits.len() < LONGEST_CUT {
            // The run may have been cut within its last byte: any that goes with the bits that are left.
            let high = (bits << (8 - count) & 255) as u8;
            let last = (high..=high | 0xff_u8 >> count).find(u8::is_ascii_alphanumeric);
            if let Some(last) = last.filter(|_| count > 0) {
                view.push(last);
                see(&view, &spans);
            }
        }
    }
}

/// The runs of hex within a run, read from both places.
fn hexes(text: &[u8], run: Range<usize>, see: &mut See<'_>) {
    let mut from = run.start;
    while let Some(least) = text.get(from..from + SHORTEST_RUN).filter(|_| from < run.end) {
        if let Some(other) = least.iter().rposition(|byte| !byte.is_ascii_hexdigit()) {
            from += other + 1;
            continue;
        }
        let rest = text.get(from..run.end).unwrap_or_default();
        let length = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        pieces(from..from + length, |piece, first| {
            let digits = text.get(piece.clone()).unwrap_or_default();
            for skipped in 0..2 {
                let value = |byte: &u8| char::from(*byte).to_digit(16).unwrap_or(0);
                let byte = |pair: &[u8]| pair.iter().fold(0, |sum, digit| sum << 4 | value(digit)) as u8;
                let pairs = digits.get(skipped..).unwrap_or_default().chunks_exact(2);
                let view: Vec<u8> = pairs.map(byte).collect();
                see(&view, &|span| {
                    let begin = piece.start + skipped;
                    (first || span.start >= MARGIN).then(|| begin + span.start * 2..begin + span.end * 2)
                });
            }
        });
        from += length + 1;
    }
}
