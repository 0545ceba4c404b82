//! Secrets on the way: headers, cookies, addresses, the machine's logins, and private keys.

use std::ops::Range;

use super::{Found, class::Class, look};

const LONGEST_HEADER: usize = 4096;
const LONGEST_KEY: usize = 32 * 1024;

/// Names of ways to say who one is, in front of the credentials.
const SCHEMES: &[&str] =
    &["bearer", "basic", "token", "apikey", "key", "negotiate", "digest", "sso-key"];

/// What is put where a password belongs when none is meant.
const NO_PASSWORDS: &[&str] = &[
    "pass", "password", "passwd", "pwd", "pw", "secret", "token", "user", "username", "xxx", "foo",
    "bar", "baz", "apikey", "api_key", "key", "port", "p",
];

fn skip(text: &[u8], at: usize, over: &[u8], most: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    at + rest.iter().take(most).take_while(|byte| over.contains(byte)).count()
}

/// `Authorization: Bearer …`, also in JSON and in source.
pub(super) fn authorization(text: &[u8], at: usize) -> Option<Found> {
    let name_end = at + "authorization".len();
    let mut from = skip(text, name_end, b"\"'`]\\ \t:=,>(", 12);
    if !text.get(name_end..from)?.iter().any(|byte| matches!(byte, b':' | b'=' | b',' | b'(')) {
        return None;
    }
    from = skip(text, from, b"\"'`", 1);
    let mut named = false;
    for scheme in SCHEMES {
        let here = text.get(from..from + scheme.len());
        let gap = skip(text, from + scheme.len(), b" \t", 8);
        if here.is_some_and(|here| here.eq_ignore_ascii_case(scheme.as_bytes()))
            && gap > from + scheme.len()
        {
            from = gap;
            named = true;
            break;
        }
    }
    let span = credentials(text, from)?;
    let value = text.get(span.clone())?;
    let fits = look::drawn(value) || named && value.len() >= 12 && look::password(value);
    fits.then_some(Found { span, label: "authorization" })
}

/// `Bearer …`, `Basic …` without the name of the header: only what was drawn.
pub(super) fn scheme(text: &[u8], at: usize, scheme: &str) -> Option<Found> {
    let end = at + scheme.len();
    let from = skip(text, end, b" \t", 4);
    if from == end || Class::WORD.behind(text, at, 1) == 1 {
        return None;
    }
    let span = credentials(text, from)?;
    let value = text.get(span.clone())?;
    (value.len() >= 20 && look::random(value)).then_some(Found { span, label: "authorization" })
}

fn credentials(text: &[u8], from: usize) -> Option<Range<usize>> {
    let length = Class::TOKEN68.ahead(text, from, LONGEST_HEADER);
    let end = from + length;
    let value = text.get(from..end)?;
    let goes_on = matches!(text.get(end), Some(b'$' | b'{' | b'(' | b'<' | b'[' | b':'));
    (!goes_on && !value.is_empty() && !look::stands_for_another(value)).then_some(from..end)
}

/// `Cookie: a=…; b=…`, `Set-Cookie: a=…; Path=/`: every value that was drawn. Tells how far it read.
pub(super) fn cookies(text: &[u8], at: usize, found: &mut Vec<Found>) -> usize {
    let name_end = at + "cookie".len();
    let from = skip(text, name_end, b"\"'`\\ \t:", 8);
    if !text.get(name_end..from).is_some_and(|between| between.contains(&b':')) {
        return name_end;
    }
    let rest = text.get(from..).unwrap_or_default();
    let ends = |byte: &&u8| !matches!(**byte, b'\n' | b'\r' | b'"' | b'\'' | b'`' | b'\\');
    let header = rest.iter().take(LONGEST_HEADER).take_while(ends).count();
    let end = from + header;
    let mut pair_at = from;
    while pair_at < end {
        let here = text.get(pair_at..end).unwrap_or_default();
        let length = memchr::memchr(b';', here).unwrap_or(here.len());
        let pair = here.get(..length).unwrap_or_default();
        if let Some(sets) = memchr::memchr(b'=', pair) {
            let value = pair.get(sets + 1..).unwrap_or_default().trim_ascii_end();
            let begin = pair_at + sets + 1;
            let drawn = look::drawn(value) || value.len() >= 12 && look::password(value);
            let plain = !value.contains(&b' ') && !look::stands_for_another(value);
            if drawn && plain {
                found.push(Found { span: begin..begin + value.len(), label: "cookie" });
            }
        }
        pair_at += length + 1;
    }
    end
}

/// `https://name:password@host`, and a token in place of the name.
pub(super) fn userinfo(text: &[u8], at: usize) -> Option<Found> {
    if Class::NAME.behind(text, at, 2) < 2 {
        return None;
    }
    let from = at + "://".len();
    let rest = text.get(from..)?;
    let inside = |byte: &&u8| {
        byte.is_ascii_graphic()
            && !matches!(
                **byte,
                b'/' | b'?'
                    | b'"'
                    | b'\''
                    | b'<'
                    | b'>'
                    | b'`'
                    | b'\\'
                    | b'{'
                    | b'}'
                    | b'('
                    | b')'
                    | b'['
                    | b']'
                    | b','
            )
    };
    let authority = rest.iter().take(512).take_while(inside).count();
    let userinfo = memchr::memrchr(b'@', rest.get(..authority)?)?;
    let colon = memchr::memchr(b':', rest.get(..userinfo)?);
    let begin = colon.map_or(from, |colon| from + colon + 1);
    let span = begin..from + userinfo;
    let value = text.get(span.clone())?;
    let meant = |value: &[u8]| {
        let none = NO_PASSWORDS.iter().any(|word| value.eq_ignore_ascii_case(word.as_bytes()));
        value.len() >= 4 && !none && !look::stands_for_another(value) && look::distinct(value) > 2
    };
    let hidden = match colon {
        Some(_) => meant(value),
        None => value.len() >= 20 && look::drawn(value),
    };
    hidden.then_some(Found { span, label: "url-password" })
}

/// `?sig=…`, `&X-Amz-Signature=…`: what makes a signed address work.
pub(super) fn signature(text: &[u8], at: usize) -> Option<Found> {
    let name = Class::URL.behind(text, at, 24);
    let before = (at - name).checked_sub(1).and_then(|at| text.get(at));
    if !matches!(before, Some(b'?' | b'&' | b' ' | b',' | b';')) {
        return None;
    }
    let named = text.get(at..)?;
    let from = at + memchr::memchr(b'=', named.get(..16.min(named.len()))?)? + 1;
    let rest = text.get(from..)?;
    let part = |byte: &&u8| Class::TOKEN68.has(**byte) || **byte == b'%';
    let end = from + rest.iter().take(512).take_while(part).count();
    let value = text.get(from..end)?;
    (value.len() >= 20 && look::drawn(value) && !look::stands_for_another(value))
        .then_some(Found { span: from..end, label: "url-signature" })
}

/// `login NAME password …`, as a machine's logins are kept.
pub(super) fn login(text: &[u8], at: usize) -> Option<Found> {
    const BLANK: &[u8] = b" \t";
    let word = |at: usize| {
        let rest = text.get(at..).unwrap_or_default();
        at + rest.iter().take(256).take_while(|byte| byte.is_ascii_graphic()).count()
    };
    let gap = |at: usize| Some(skip(text, at, BLANK, 8)).filter(|after| *after > at);
    if Class::URL.behind(text, at, 1) == 1 {
        return None;
    }
    let name = gap(at + "login".len())?;
    let key = gap(word(name))?;
    if !text.get(key..)?.starts_with(b"password") {
        return None;
    }
    let from = gap(key + "password".len())?;
    let span = from..word(from);
    let value = text.get(span.clone())?;
    let fits = value.len() >= 6 && !look::words(value) && !look::stands_for_another(value);
    fits.then_some(Found { span, label: "password" })
}

/// A private key in its armour, from the first border to the last; one without a last border as far as
/// its lines go.
pub(super) fn private_key(text: &[u8], at: usize) -> Option<Range<usize>> {
    let body = armour(text, at)?;
    let rest = text.get(body..)?;
    let part =
        |byte: &&u8| Class::BASE64.has(**byte) || byte.is_ascii_whitespace() || b":,.()".contains(byte);
    let mut length = 0;
    // Hyphens are in the headers of an old key (`Proc-Type`); five are the border.
    while length < LONGEST_KEY {
        length += rest.get(length..)?.iter().take(LONGEST_KEY - length).take_while(part).count();
        match rest.get(length..) {
            Some(border) if border.starts_with(b"-----") => break,
            Some([b'-', ..]) => length += 1,
            _ => break,
        }
    }
    let inside = rest.get(..length)?;
    let line = |line: &[u8], least: usize| {
        line.len() >= least && Class::BASE64.ahead(line, 0, line.len()) == line.len()
    };
    if rest.get(length..)?.starts_with(b"-----END") {
        let border = rest.get(length + 5..)?;
        let border = border.iter().take(64).position(|byte| *byte == b'-').unwrap_or(0);
        let end = body + length + 5 + border;
        let end = end + text.get(end..)?.iter().take(5).take_while(|byte| **byte == b'-').count();
        let any = inside.split(u8::is_ascii_whitespace).any(|part| line(part, 16));
        return any.then_some(at..end);
    }
    let mut end = None;
    let mut from = 0;
    for part in inside.split(u8::is_ascii_whitespace) {
        if line(part, 20) {
            end = Some(body + from + part.len());
        } else if !part.is_empty() && end.is_some() {
            break;
        }
        from += part.len() + 1;
    }
    end.map(|end| at..end)
}

/// Where the border that opens a private key ends.
fn armour(text: &[u8], at: usize) -> Option<usize> {
    let named = at + "-----BEGIN".len();
    let kind = text.get(named..)?.iter().take(48);
    let kind = kind
        .take_while(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || **byte == b' ')
        .count();
    let name = text.get(named..named + kind)?;
    let private = name.windows(11).any(|part| part == b"PRIVATE KEY");
    let end = named + kind + 5;
    (private && text.get(named + kind..end)? == b"-----").then_some(end)
}

/// Where a private key begins that the text's end may be a part of.
pub(super) fn open_key(text: &[u8]) -> Option<usize> {
    let from = text.len().saturating_sub(LONGEST_KEY);
    let last = memchr::memmem::rfind(text.get(from..)?, b"-----BEGIN")? + from;
    let rest = text.get(last..)?;
    let ends = memchr::memmem::find(rest, b"-----END");
    let closed = ends.is_some_and(|end| {
        // The border's own end: five hyphens behind the kind.
        rest.get(end + 8..).is_some_and(|border| memchr::memmem::find(border, b"-----").is_some())
    });
    let public = armour(text, last).is_none() && rest.contains(&b'\n');
    (!closed && !public).then(|| super::word_start(text, last))
}
