//! The spellings under which two names are one file on some file system: letter case, composed and
//! decomposed accents, compatibility forms, code points that nothing shows, trailing dots and
//! spaces, alternate streams, and the short name of `.git`.
//!
//! For denies and the floor alone, which must cover more than is proven. A grant never folds.

use unicode_normalization::UnicodeNormalization as _;

/// Code points that nothing shows and some file systems ignore (Unicode's
/// `Default_Ignorable_Code_Point`), in rising order.
const IGNORABLE: &[(char, char)] = &[
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{202a}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fff8}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

/// Whether nothing shows this code point.
pub fn invisible(c: char) -> bool {
    IGNORABLE.iter().any(|(first, last)| (*first..=*last).contains(&c))
}

/// A letter without its case. Lower, upper, lower, so that letters with several forms of one case
/// (sigma, the long s, the dotless i, the sharp s) meet in one.
fn caseless(c: char) -> impl Iterator<Item = char> {
    c.to_lowercase().flat_map(char::to_uppercase).flat_map(char::to_lowercase)
}

/// A text without case, compatibility forms and code points that nothing shows, decomposed (NFKD).
pub fn fold_text(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    // Dropped before and after: a decomposition can yield an invisible, and an ignorable between
    // two marks keeps them from being ordered.
    let shown = text.chars().filter(|c| !invisible(*c)).nfkd().flat_map(caseless).nfkd();
    shown.filter(|c| !invisible(*c)).nfkd().collect()
}

/// Every folded spelling of a path whose components are separated by `/`: never empty, no two
/// alike. A path of plain lower-case names has just the one.
pub fn spellings(path: &str) -> Vec<String> {
    let folded = fold_text(path);
    let mut found = vec![folded.clone()];
    let mut add = |spelling: String| {
        if !found.contains(&spelling) {
            found.push(spelling);
        }
    };
    if needs_trimming(&folded) {
        add(rebuilt(&folded, |_| false));
    }
    if folded.contains(':') {
        // An alternate stream may be named at any component. All of them or the last alone are
        // the forms that a file system would take for another spelling.
        let last = folded.split('/').count();
        add(rebuilt(&folded, |_| true));
        add(rebuilt(&folded, |index| index + 1 == last));
    }
    found
}

fn needs_trimming(folded: &str) -> bool {
    folded.split('/').any(|name| trimmed(name) != name)
}

fn rebuilt(folded: &str, strip_stream: impl Fn(usize) -> bool) -> String {
    let names = folded.split('/').enumerate().map(|(index, name)| {
        let stem = match name.split_once(':') {
            Some((stem, _)) if strip_stream(index) && !stem.is_empty() => stem,
            _ => name,
        };
        trimmed(stem)
    });
    names.collect::<Vec<_>>().join("/")
}

/// A name as a file system sees it that ignores trailing dots and spaces and gives short names.
fn trimmed(name: &str) -> &str {
    match name.trim_end_matches(['.', ' ']) {
        "" => name,
        "git~1" => ".git",
        stem => stem,
    }
}
