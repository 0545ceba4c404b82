//! Names that read like other names.
//!
//! A file name in Thai, Chinese or Russian beside a Latin extension is an ordinary name; a Latin
//! word with a Cyrillic letter in it is a trap.

use unicode_script::{Script, UnicodeScript as _};

use super::fold::invisible;

/// What a run of letters is made of.
#[derive(Clone, Copy, Default)]
struct Letters {
    latin: bool,
    look_alike: bool,
    /// A letter that is neither: it shows a reader which script the run is in.
    telling: bool,
}

/// Whether a name (one component of a path) holds bidi controls or code points that nothing shows,
/// or mixes Latin letters with look-alikes of Cyrillic, Greek or Armenian: within one word, as a
/// whole word beside Latin ones, or in the extension of a Latin name.
pub(super) fn confusable_name(name: &str) -> bool {
    if name.is_ascii() {
        return false;
    }
    if name.chars().any(invisible) {
        return true;
    }
    let (stem, extension) = match name.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() => (stem, extension),
        _ => (name, ""),
    };
    let runs: Vec<Letters> = runs(stem).collect();
    let latin = runs.iter().any(|run| run.latin);
    let posing = |run: &Letters| run.look_alike && !run.telling;
    runs.iter().any(|run| run.latin && run.look_alike)
        || (latin && runs.iter().any(posing))
        || self::runs(extension).any(|run| run.look_alike && (run.latin || latin))
}

fn runs(text: &str) -> impl Iterator<Item = Letters> {
    text.split(|c: char| !c.is_alphanumeric() && c.script() != Script::Inherited).map(|word| {
        let mut letters = Letters::default();
        for c in word.chars() {
            match c.script() {
                Script::Latin => letters.latin = true,
                Script::Cyrillic | Script::Greek | Script::Armenian if looks_latin(c) => {
                    letters.look_alike = true;
                }
                Script::Common | Script::Inherited => {}
                _ => letters.telling = true,
            }
        }
        letters
    })
}

/// Whether a letter of another script is drawn like a Latin one (by the Unicode table of
/// confusables).
fn looks_latin(c: char) -> bool {
    unicode_security::skeleton(c.encode_utf8(&mut [0; 4])).any(|c| c.is_ascii_alphanumeric())
}
