//! Values that a name gives away: `password = "…"` in JSON, YAML, TOML, files of variables, shells,
//! source, query strings, flags and XML.
//!
//! A name alone is no proof, since code is full of them: the value must look like one that was drawn or
//! chosen, by a measure that depends on how sure the place is.

use super::{Found, class::Class, look};

/// A word that names a secret at the end of a name.
#[derive(Debug)]
pub(super) struct Word {
    /// The word, in small letters.
    pub(super) text: &'static str,
    label: &'static str,
    trust: Trust,
}

/// What a name says of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// That it is secret.
    Sure,
    /// That it is secret or a piece of a language: only what was drawn is taken for one.
    Maybe,
    /// Nothing, but with certain words in front that it is secret.
    Qualified(&'static [&'static str]),
}

/// What makes a key one that has to be kept.
const KEYS: &[&str] = &[
    "api",
    "access",
    "secret",
    "private",
    "signing",
    "encryption",
    "encrypt",
    "master",
    "auth",
    "account",
    "shared",
    "deploy",
    "service",
    "storage",
    "admin",
    "app",
    "session",
    "hmac",
    "aes",
    "jwt",
    "webhook",
    "license",
    "subscription",
    "write",
    "integration",
    "root",
    "unseal",
];

/// The words. A word that another begins with is asked at the same place and finds that its name goes
/// on.
pub(super) const WORDS: &[Word] = &[
    Word { text: "password", label: "password", trust: Trust::Sure },
    Word { text: "passwd", label: "password", trust: Trust::Sure },
    Word { text: "passphrase", label: "password", trust: Trust::Sure },
    Word { text: "pass", label: "password", trust: Trust::Sure },
    Word { text: "pwd", label: "password", trust: Trust::Sure },
    Word { text: "secret", label: "secret", trust: Trust::Sure },
    Word { text: "credential", label: "credential", trust: Trust::Maybe },
    Word { text: "credentials", label: "credential", trust: Trust::Maybe },
    Word { text: "token", label: "token", trust: Trust::Maybe },
    Word { text: "auth", label: "credential", trust: Trust::Maybe },
    Word { text: "key", label: "key", trust: Trust::Qualified(KEYS) },
];

/// Names of what is public or a place in a list.
const HARMLESS: &[&[u8]] = &[b"public", b"next", b"page", b"cursor", b"idempotency", b"continu"];

const LONGEST_NAME: usize = 64;
const LONGEST_VALUE: usize = 1024;
const WIDEST_GAP: usize = 32;

/// What stands between a name and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    /// `=`, `:`, `:=`, `=>`, and white space in a command after a `--name`.
    Sets,
    /// `=` directly behind a name in capitals: a variable.
    Variable,
    /// A comma behind a quoted name: a pair.
    Pairs,
    /// `&name=`, `?name=`, `--name `, `--name=`, `<name>`: a value without quotes is meant there.
    Bare,
}

/// The value that the name at this place is given, if it is to be hidden.
pub(super) fn at(text: &[u8], at: usize, word: &Word) -> Option<Found> {
    let word_end = at + word.text.len();
    let start = at - Class::NAME.behind(text, at, LONGEST_NAME);
    let before = start.checked_sub(1).and_then(|at| text.get(at)).copied();
    let name = text.get(start..word_end)?;
    let in_query = matches!(before, Some(b'?' | b'&'));
    let name_end = word_end + Class::DIGIT.ahead(text, word_end, 2);
    if Class::NAME.ahead(text, name_end, 1) == 1 {
        return None;
    }
    let (sign, from) = sign(text, start, name_end, before)?;
    if !tells(name, word, in_query) {
        return None;
    }
    let (value, quoted) = value(text, from, sign)?;
    let bytes = text.get(value.clone())?;
    let sure = word.trust != Trust::Maybe && !(in_query && name == word.text.as_bytes());
    let hidden = !look::stands_for_another(bytes)
        && if quoted { quoted_secret(bytes, sign, sure) } else { bare_secret(text, &value, sign, sure) };
    hidden.then_some(Found { span: value, label: word.label })
}

/// The same for a name and a value that were apart from the start.
pub(super) fn named(name: &[u8], value: &[u8]) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let word =
        WORDS.iter().find(|word| name.ends_with(word.text.as_bytes()) && tells(&name, word, false))?;
    let hidden =
        !look::stands_for_another(value) && quoted_secret(value, Sign::Sets, word.trust != Trust::Maybe);
    hidden.then_some(word.label)
}

/// Whether the name that ends so names a secret.
fn tells(name: &[u8], word: &Word, in_query: bool) -> bool {
    let name = name.to_ascii_lowercase();
    let front = name.strip_suffix(word.text.as_bytes()).unwrap_or_default();
    let apart =
        front.is_empty() || front.ends_with(b"_") || front.ends_with(b"-") || front.ends_with(b".");
    if HARMLESS.iter().any(|part| front.windows(part.len()).any(|here| here == *part)) {
        return false;
    }
    match word.trust {
        Trust::Qualified(words) => {
            let front = front.strip_suffix(b"_").or(front.strip_suffix(b"-")).unwrap_or(front);
            in_query && front.is_empty() || words.iter().any(|word| front.ends_with(word.as_bytes()))
        }
        // Where the shell is: `PWD`, `OLDPWD`.
        Trust::Sure if word.text == "pwd" => apart && !front.is_empty(),
        Trust::Sure if word.text == "pass" => apart,
        Trust::Maybe if word.text == "auth" => apart,
        Trust::Sure | Trust::Maybe => true,
    }
}

/// What comes behind the name, and where the value begins.
fn sign(text: &[u8], start: usize, name_end: usize, before: Option<u8>) -> Option<(Sign, usize)> {
    let name = text.get(start..name_end)?;
    let closers = text.get(name_end..)?.iter().take(3);
    let closers = closers.take_while(|byte| matches!(byte, b'"' | b'\'' | b'`' | b']' | b'\\')).count();
    let quoted = text.get(name_end..name_end + closers)?.iter().any(|byte| matches!(byte, b'"' | b'\''));
    let behind = name_end + closers;
    let gap = blanks(text, behind);
    let rest = text.get(behind + gap..)?;
    let flag = name.starts_with(b"--");
    let bare = flag || matches!(before, Some(b'?' | b'&'));
    let (sign, length) = match rest {
        [b':', b'=', ..] | [b'=', b'>', ..] => (Sign::Sets, 2),
        [b':', b':', ..] | [b'=', b'=' | b'~', ..] => return None,
        [b'=', ..] if bare => (Sign::Bare, 1),
        [b'=', ..] if gap == 0 && closers == 0 && !name.iter().any(u8::is_ascii_lowercase) => {
            (Sign::Variable, 1)
        }
        [b':' | b'=', ..] => (Sign::Sets, 1),
        [b',', ..] if quoted => (Sign::Pairs, 1),
        // XML.
        [b'>', ..] if before == Some(b'<') && gap == 0 && closers == 0 => (Sign::Bare, 1),
        _ if flag && gap > 0 && closers == 0 => (Sign::Bare, 0),
        _ => return None,
    };
    let mut from = behind + gap + length;
    if sign == Sign::Variable {
        return Some((sign, from));
    }
    from += blanks(text, from);
    // A type in between: `KEY: &str = "…"`.
    if rest.first() == Some(&b':') && length == 1 {
        let typed = text.get(from..)?.iter().take(WIDEST_GAP);
        let typed =
            typed.take_while(|byte| byte.is_ascii_alphanumeric() || b"&_:<>'[]. |?".contains(byte));
        let typed = typed.count();
        if text.get(from + typed) == Some(&b'=')
            && typed >= 2
            && text.get(from + typed - 1) == Some(&b' ')
            && text.get(from + typed + 1) != Some(&b'=')
        {
            from += typed + 1;
            from += blanks(text, from);
        }
    }
    Some((sign, from))
}

fn blanks(text: &[u8], at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    rest.iter().take(WIDEST_GAP).take_while(|byte| matches!(byte, b' ' | b'\t')).count()
}

/// Where the value is, and whether quotes say where it ends.
fn value(text: &[u8], from: usize, sign: Sign) -> Option<(std::ops::Range<usize>, bool)> {
    let rest = text.get(from..)?;
    let (quote, begin) = match rest {
        [quote @ (b'"' | b'\'' | b'`'), ..] => (*quote, from + 1),
        [b'b' | b'r' | b'f' | b'u' | b'L' | b'@', quote @ (b'"' | b'\''), ..] => (*quote, from + 2),
        _ => return bare_value(text, from, sign).map(|value| (value, false)),
    };
    let begin = if text.get(begin..begin + 2) == Some(&[quote, quote]) { begin + 2 } else { begin };
    let inside = text.get(begin..)?.iter().take(LONGEST_VALUE);
    let mut escaped = false;
    let ends = |byte: &&u8| {
        let ends = matches!(**byte, b'\n' | b'\r') || !escaped && **byte == quote;
        escaped = !escaped && **byte == b'\\';
        !ends
    };
    let length = inside.take_while(ends).count();
    (length > 0).then_some((begin..begin + length, true))
}

/// Up to the white space, a comma or whatever else ends a word in a shell. A second part behind a
/// colon belongs to it, a third doesn't: so a line of `token:token:token:` isn't read again and again.
fn bare_value(text: &[u8], from: usize, sign: Sign) -> Option<std::ops::Range<usize>> {
    let plain = |at: usize| {
        let length = Class::BARE.ahead(text, at, LONGEST_VALUE);
        at + length
            + text
                .get(at + length..)
                .map_or(0, |rest| rest.iter().take(3).take_while(|byte| **byte == b'=').count())
    };
    let mut end = plain(from);
    if sign == Sign::Bare && text.get(from..end).is_some_and(|value| value.contains(&b'#')) {
        return None;
    }
    if text.get(end..).is_some_and(|rest| rest.starts_with(b"::")) {
        return None;
    }
    if text.get(end) == Some(&b':') {
        end = plain(end + 1);
    }
    while end > from && matches!(text.get(end - 1), Some(b'.' | b':' | b'!' | b'*' | b'\0')) {
        end -= 1;
    }
    // What goes on is an expression: a call, an index, a template, a piece of a longer string.
    let expression = |byte: &u8| {
        matches!(byte, b'(' | b'[' | b'{' | b'$' | b'?' | b'|') || *byte == b'<' && sign != Sign::Bare
    };
    (end > from && !text.get(end).is_some_and(expression)).then_some(from..end)
}

fn quoted_secret(value: &[u8], sign: Sign, sure: bool) -> bool {
    match sign {
        Sign::Variable => {
            value.len() >= 6
                && !look::words(value)
                && !look::path(value)
                && (look::drawn(value) || look::chosen(value))
        }
        Sign::Pairs => look::random(value) && !spaced(value),
        Sign::Sets | Sign::Bare => {
            let chosen = sure && look::password(value) && !look::words(value);
            !spaced(value) && (look::random(value) || chosen)
        }
    }
}

fn bare_secret(text: &[u8], span: &std::ops::Range<usize>, sign: Sign, sure: bool) -> bool {
    let value = text.get(span.clone()).unwrap_or_default();
    match sign {
        Sign::Variable => look::drawn(value) || look::password(value) && !look::words(value),
        Sign::Bare => look::drawn(value) || sure && value.len() >= 8 && look::password(value),
        Sign::Pairs => false,
        Sign::Sets => {
            // Code has names there, with dots, and something behind them. A quote behind it is the end of
            // a string that all of this is in.
            let code = value.contains(&b'.') && !value.contains(&b'+') && !value.contains(&b'/');
            let ends = !matches!(text.get(span.end), Some(b';' | b',' | b')'));
            let last = matches!(text.get(span.end), None | Some(b'\n' | b'\r'));
            !code && ends && look::random(value)
                || sure && last && !code && value.len() >= 8 && look::jumbled(value)
        }
    }
}

fn spaced(value: &[u8]) -> bool {
    value.iter().any(u8::is_ascii_whitespace)
}
