//! The words that rules are asked at, and where they stand in a text.

use super::{
    Found,
    assign::{self, WORDS, Word},
    token::{TOKENS, Token},
    web,
};

/// What is asked where its word stands.
#[derive(Debug, Clone, Copy)]
enum Rule {
    Token(&'static Token),
    Assigned(&'static Word),
    Authorization,
    Scheme(&'static str),
    Cookie,
    Userinfo,
    Signature,
    Login,
    PrivateKey,
}

/// The words of the rules that have no table of their own, in small letters.
const OTHERS: &[(&str, Rule)] = &[
    ("authorization", Rule::Authorization),
    ("bearer", Rule::Scheme("bearer")),
    ("basic", Rule::Scheme("basic")),
    ("cookie", Rule::Cookie),
    ("://", Rule::Userinfo),
    ("sig=", Rule::Signature),
    ("signature=", Rule::Signature),
    ("login", Rule::Login),
    ("-----begin", Rule::PrivateKey),
];

const ALL: usize = TOKENS.len() + WORDS.len() + OTHERS.len();
/// How many words share one bit of a mask. Those that stand together in the tables begin alike.
const SHARE: usize = ALL.div_ceil(64);

/// For each of the first four bytes of a text, in either case, a bit for each group of words that have
/// this byte there. Made by the compiler: a process that scrubs one line pays for no more than the line.
static MASKS: [[u64; 256]; 4] = masks();

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn masks() -> [[u64; 256]; 4] {
    let mut masks = [[0; 256]; 4];
    let mut which = 0;
    while which < ALL {
        let word = if which < TOKENS.len() {
            TOKENS[which].head.as_bytes()
        } else if which < TOKENS.len() + WORDS.len() {
            WORDS[which - TOKENS.len()].text.as_bytes()
        } else {
            OTHERS[which - TOKENS.len() - WORDS.len()].0.as_bytes()
        };
        let bit = 1 << (which / SHARE);
        let mut place = 0;
        while place < 4 {
            let mut byte = 0;
            while byte < 256 {
                let same = place >= word.len() || word[place].eq_ignore_ascii_case(&(byte as u8));
                // Two letters are little to look for: what may follow them counts as well.
                let follows =
                    place != word.len() || which >= TOKENS.len() || TOKENS[which].follows(byte as u8);
                if same && follows {
                    masks[place][byte] |= bit;
                }
                byte += 1;
            }
            place += 1;
        }
        which += 1;
    }
    masks
}

/// The word of this number, and its rule.
fn word(which: usize) -> Option<(&'static str, Rule)> {
    let Some(after) = which.checked_sub(TOKENS.len()) else {
        return TOKENS.get(which).map(|token| (token.head, Rule::Token(token)));
    };
    let Some(after) = after.checked_sub(WORDS.len()) else {
        return WORDS.get(after).map(|word| (word.text, Rule::Assigned(word)));
    };
    OTHERS.get(after).copied()
}

/// Tells every word and its place, in the order of the places, until it is told to stop.
fn each(text: &[u8], tell: &mut impl FnMut(usize, Rule) -> bool) {
    let [first, second, third, fourth] = &MASKS;
    let of = |mask: &[u64; 256], byte: u8| mask.get(usize::from(byte)).copied().unwrap_or(0);
    for (at, four) in text.windows(4).enumerate() {
        let [a, b, c, d] = *four else { continue };
        let mut groups = of(first, a) & of(second, b) & of(third, c) & of(fourth, d);
        while groups != 0 {
            let group = groups.trailing_zeros() as usize * SHARE;
            groups &= groups - 1;
            for (word, rule) in (group..group + SHARE).filter_map(word) {
                let here = text.get(at..at + word.len());
                if here.is_some_and(|here| here.eq_ignore_ascii_case(word.as_bytes())) && !tell(at, rule)
                {
                    return;
                }
            }
        }
    }
}

/// The first byte of the word that a text begins with, of which only some low bits are left: the rest went
/// with what stood before in a text that was cut within a group of base64.
pub(super) fn beheaded(text: &[u8], left: u8) -> Option<u8> {
    let [_, second, third, fourth] = &MASKS;
    let [low, b, c, d, ..] = *text else { return None };
    let of = |mask: &[u64; 256], byte: u8| mask.get(usize::from(byte)).copied().unwrap_or(0);
    if of(second, b) & of(third, c) & of(fourth, d) == 0 {
        return None;
    }
    (0..ALL).filter_map(word).find_map(|(word, _)| {
        let (first, rest) = word.as_bytes().split_first()?;
        let here = text.get(1..word.len())?;
        (here.eq_ignore_ascii_case(rest) && first & left == low & left).then_some(*first)
    })
}

/// Where the first word stands that some rule is asked at.
pub(super) fn first(text: &[u8]) -> Option<usize> {
    let mut first = None;
    each(text, &mut |at, _| {
        first = Some(at);
        false
    });
    first
}

/// Asks every rule at its words.
pub(super) fn rules(text: &[u8], found: &mut Vec<Found>) {
    // Up to where a header of cookies or a key was read: a word within it is read as part of it.
    let mut read = 0;
    each(text, &mut |at, rule| {
        let one = match rule {
            Rule::Token(token) => token.at(text, at).map(|span| Found { span, label: token.label }),
            Rule::Assigned(word) => assign::at(text, at, word),
            Rule::Authorization => web::authorization(text, at),
            Rule::Scheme(scheme) => web::scheme(text, at, scheme),
            Rule::Userinfo => web::userinfo(text, at),
            Rule::Signature => web::signature(text, at),
            Rule::Login => web::login(text, at),
            Rule::Cookie if at >= read => {
                read = web::cookies(text, at, found);
                None
            }
            Rule::PrivateKey if at >= read => {
                let key = web::private_key(text, at);
                read = key.as_ref().map_or(read, |span| span.end);
                key.map(|span| Found { span, label: "private-key" })
            }
            Rule::Cookie | Rule::PrivateKey => None,
        };
        found.extend(one);
        true
    });
}
