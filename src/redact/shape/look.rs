//! What a value looks like: drawn at random, chosen as a password, or written to be read. Pure.

use super::class::Class;

/// How many different bytes there are.
pub(super) fn distinct(value: &[u8]) -> u32 {
    value.iter().fold(0u128, |set, byte| set | 1 << (byte & 127)).count_ones()
}

/// How often a small letter is followed by a capital, and a letter by a digit or the other way round:
/// twice in `getToken2`, in every second place of what is drawn.
fn humps(value: &[u8]) -> usize {
    let hump = |pair: &&[u8]| match pair {
        [a, b] => {
            let digits = (a.is_ascii_digit(), b.is_ascii_digit());
            let letters = (a.is_ascii_alphabetic(), b.is_ascii_alphabetic());
            a.is_ascii_lowercase() && b.is_ascii_uppercase()
                || digits.0 && letters.1
                || letters.0 && digits.1
        }
        _ => false,
    };
    value.windows(2).filter(hump).count()
}

/// Whether capitals and small letters change as no word and no `CamelCase` has them: capitals side by
/// side, and small letters before and behind.
fn mixed(value: &[u8]) -> bool {
    let switches = value
        .windows(2)
        .filter(|pair| matches!(pair, [a, b] if a.is_ascii_lowercase() != b.is_ascii_lowercase()))
        .count();
    switches >= 4 && value.windows(2).any(|pair| pair.iter().all(u8::is_ascii_uppercase))
}

fn any(value: &[u8], is: fn(&u8) -> bool) -> bool {
    value.iter().any(is)
}

/// What nobody writes for its own sake: `${X}`, `<token>`, `changeme`, a marker of ours.
pub(super) fn stands_for_another(value: &[u8]) -> bool {
    const WORDS: &[&[u8]] = &[
        b"[redacted",
        b"example",
        b"placeholder",
        b"changeme",
        b"change-me",
        b"change_me",
        b"xxxx",
        b"****",
        b"....",
        b"your-",
        b"your_",
        b"dummy",
        b"redacted",
    ];
    let lower = value.to_ascii_lowercase();
    let open = |pair: &[u8]| matches!(pair, [b'$' | b'{' | b'%' | b'#', b'{'] | [b'$', b'(']);
    let printf = |pair: &[u8]| matches!(pair, [b'%', b's' | b'd' | b'v' | b'@']);
    lower.first() == Some(&b'$')
        || lower.first() == Some(&b'<') && lower.last() == Some(&b'>')
        || lower.first() == Some(&b'{') && lower.last() == Some(&b'}')
        || lower.windows(2).any(open)
        || lower.len() < 8 && lower.windows(2).any(printf)
        || WORDS.iter().any(|word| lower.windows(word.len()).any(|part| part == *word))
}

/// A word as people write it: letters in one case, or with a capital in front; hyphens and dots between.
fn word(part: &[u8]) -> bool {
    let rest = part.get(1..).unwrap_or_default();
    let small = |byte: &u8| !byte.is_ascii_alphanumeric() || byte.is_ascii_lowercase();
    let capital = |byte: &u8| !byte.is_ascii_alphanumeric() || byte.is_ascii_uppercase();
    !any(part, u8::is_ascii_digit) && (rest.iter().all(small) || part.iter().all(capital))
}

/// Whether it is prose: nothing but words and small numbers.
pub(super) fn words(value: &[u8]) -> bool {
    value
        .split(|byte| {
            byte.is_ascii_whitespace() || matches!(byte, b'-' | b'_' | b'.' | b'/' | b':' | b',')
        })
        .all(|part| word(part) || part.len() < 5 && part.iter().all(u8::is_ascii_digit))
}

/// A number, with a sign, a point or a unit.
fn number(value: &[u8]) -> bool {
    let digits = value.iter().filter(|byte| byte.is_ascii_digit()).count();
    !any(value, u8::is_ascii_alphabetic) && (digits < 12 || any(value, |byte| *byte == b'.'))
}

/// Groups of hex digits with hyphens between, as an id has them.
pub(super) fn uuid(value: &[u8]) -> bool {
    value.len() == 36
        && value.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// `sha256:…`, `sha512-…`: a digest that says so.
pub(super) fn digest(value: &[u8]) -> bool {
    let name = value.split(|byte| matches!(byte, b':' | b'-')).next().unwrap_or_default();
    name.len() < value.len()
        && [&b"sha1"[..], b"sha256", b"sha384", b"sha512", b"md5", b"blake3"].contains(&name)
}

/// How often a capital or a digit stands where no name has it: capitals side by side, and letters and
/// digits side by side. In what is drawn it is nearly every second place.
fn odd_pairs(value: &[u8]) -> usize {
    let odd = |pair: &&[u8]| match pair {
        [a, b] => {
            a.is_ascii_uppercase() && b.is_ascii_uppercase()
                || a.is_ascii_digit() && b.is_ascii_alphabetic()
                || a.is_ascii_alphabetic() && b.is_ascii_digit()
        }
        _ => false,
    };
    value.windows(2).filter(odd).count()
}

/// Whether it was drawn, not written: long, of many different characters, of all kinds at once.
pub(super) fn random(value: &[u8]) -> bool {
    if value.len() < 16 || distinct(value) < 8 || uuid(value) || digest(value) || number(value) {
        return false;
    }
    let hex = value.len() >= 32 && Class::HEX.ahead(value, 0, value.len()) == value.len();
    hex || humps(value) >= 3 && odd_pairs(value) * 6 >= value.len()
}

/// The same where nobody writes names: also what was drawn without a digit.
pub(super) fn drawn(value: &[u8]) -> bool {
    random(value) || value.len() >= 16 && mixed(value) && !path(value)
}

/// Whether someone chose it as a password, or it was drawn: one word that isn't one.
pub(super) fn password(value: &[u8]) -> bool {
    if value.len() < 6 || distinct(value) < 4 || number(value) || digest(value) || path(value) {
        return false;
    }
    let odd = |byte: &u8| matches!(byte, b'!' | b'@' | b'#' | b'^' | b'*' | b'~');
    let letters = any(value, u8::is_ascii_alphabetic);
    let digits = any(value, u8::is_ascii_digit);
    !any(value, u8::is_ascii_whitespace)
        && letters
        && (digits || mixed(value) || any(value, odd) && value.len() >= 8)
}

/// Begins as a path does.
pub(super) fn path(value: &[u8]) -> bool {
    let slashes = value.iter().filter(|byte| **byte == b'/').count();
    [&b"./"[..], b"../", b"~/", b"http:", b"https:"].iter().any(|root| value.starts_with(root))
        || value.first() == Some(&b'/')
            && slashes >= 2
            && !any(value, |byte| matches!(byte, b'+' | b'='))
}

/// A password whose letters and digits change about.
pub(super) fn jumbled(value: &[u8]) -> bool {
    password(value) && humps(value) >= 3
}

/// Words among which one isn't: a phrase with a secret, as it stands in quotes behind a variable's name.
pub(super) fn chosen(value: &[u8]) -> bool {
    let parts = || value.split(u8::is_ascii_whitespace);
    distinct(value) >= 5
        && !number(value)
        && !digest(value)
        && parts().count() <= 4
        && parts().any(|part| part.len() >= 4 && !word(part) && !number(part))
}
