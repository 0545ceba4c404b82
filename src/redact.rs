//! What leaves: secrets as a type that can't be printed, and the scrubbing of the others.
//!
//! Every text that is printed or kept passes one [`Redactor`]. It knows the values that the environment
//! and the provider's key gave it, and the shapes that secrets have. It never learns one from a text.

use std::{borrow::Cow, fmt, ops::Range, sync::OnceLock};

use self::{encoding::Encoding, pattern::Patterns};

mod ci_command;
mod delta;
mod encoding;
mod known;
mod pattern;
mod shape;

pub use ci_command::{Spelling, disarm};
pub use delta::DeltaScrubber;
pub use known::known_secrets;

/// Values that are shorter are no secrets for a redactor: what they would blot out is mostly prose.
pub const SHORTEST_SECRET: usize = 6;

/// A value that must never be shown; `Debug` doesn't, and there is no `Display` or `Serialize`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    /// Wraps the value.
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// The value, for the one place that needs it.
    pub fn expose(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// Replaces secrets by `[redacted:LABEL]`: known values, and what has the shape of one.
///
/// Known values are found in eight encodings: as they are, base64 in both alphabets at any offset, hex,
/// percent-encoded, inside JSON strings, UTF-16 read as bytes and that inside JSON strings.
///
/// A value is known without the white space around it; one that is shorter than
/// [`SHORTEST_SECRET`] bytes is ignored. Of a value of several lines (a PEM key) each line that
/// looks like key material is a secret as well. The patterns are compiled on the first use: a
/// redactor that is never asked costs nothing.
///
/// Shapes are tokens that say whose they are (`ghp_…`), private keys, credentials in headers, cookies and
/// addresses, and what a name like `password` is given; as they are and within the same encodings. Their
/// labels are the names of the kinds. A value that only its name gives away must look drawn or chosen:
/// `token = get_token()` is code.
///
/// Not covered: parts of a value, encodings broken over lines, and a JSON number; for known values, an
/// encoding of an encoding.
pub struct Redactor {
    secrets: Vec<Known>,
    shapes: bool,
    encodings: &'static [Encoding],
    patterns: OnceLock<Patterns>,
}

/// A value, and the name that stands in its place.
struct Known {
    label: String,
    value: String,
}

/// A place of a text that is to be replaced, and whose it is.
struct Hit {
    span: Range<usize>,
    /// Whose it is: of the longest match in the span.
    owner: Owner,
}

/// What a place is hidden for. A known value goes before a shape of the same length.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    /// The secret of this index.
    Known(usize),
    /// A shape with this label.
    Shape(&'static str),
}

impl Redactor {
    /// Knows these values by these labels; of equal values the first label stands.
    pub fn new(secrets: impl IntoIterator<Item = (String, String)>) -> Self {
        Self::with_encodings(secrets, Encoding::ALL)
    }

    /// The same, but for the shapes: known values alone are replaced.
    #[must_use]
    pub fn without_shapes(self) -> Self {
        Self { shapes: false, ..self }
    }

    /// Replaces every secret. A text without any comes back as it is.
    ///
    /// Where matches overlap, their union is replaced, under the label of the longest.
    pub fn scrub<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.idle() {
            return Cow::Borrowed(text);
        }
        let hits = self.hits(text);
        if hits.is_empty() {
            return Cow::Borrowed(text);
        }
        Cow::Owned(self.replaced(text, &hits))
    }

    /// Replaces every secret in the text of a field, which is one as a whole if the field's name says so
    /// and it looks it.
    pub fn scrub_named<'a>(&self, name: &str, text: &'a str) -> Cow<'a, str> {
        match shape::named(name, text) {
            Some(label) if self.shapes && matches!(self.scrub(text), Cow::Borrowed(_)) => {
                Cow::Owned(format!("[redacted:{label}]"))
            }
            _ => self.scrub(text),
        }
    }

    /// A scrubber of a text that arrives in pieces.
    pub fn deltas(&self) -> DeltaScrubber<'_> {
        DeltaScrubber::new(self)
    }

    /// Whether there is nothing to look for.
    fn idle(&self) -> bool {
        self.secrets.is_empty() && !self.shapes
    }

    fn with_encodings(
        secrets: impl IntoIterator<Item = (String, String)>,
        encodings: &'static [Encoding],
    ) -> Self {
        let mut known: Vec<Known> = Vec::new();
        let mut learn = |label: &str, value: &str| {
            if value.len() >= SHORTEST_SECRET && known.iter().all(|other| other.value != value) {
                known.push(Known { label: label.to_owned(), value: value.to_owned() });
            }
        };
        for (label, value) in secrets {
            learn(&label, value.trim());
            if value.trim().contains('\n') {
                value.lines().map(str::trim).filter(|l| key_material(l)).for_each(|l| learn(&label, l));
            }
        }
        Self { secrets: known, shapes: true, encodings, patterns: OnceLock::new() }
    }

    fn patterns(&self) -> &Patterns {
        self.patterns.get_or_init(|| {
            Patterns::compile(self.secrets.iter().enumerate().flat_map(|(index, known)| {
                let forms = self.encodings.iter().flat_map(|encoding| encoding.forms(&known.value));
                forms.map(move |form| (index, form))
            }))
        })
    }

    /// What is to be replaced, in order and without overlap.
    fn hits(&self, text: &str) -> Vec<Hit> {
        let mut found = self.patterns().matches(text);
        if self.shapes {
            let hit = |found: shape::Found| Hit { span: found.span, owner: Owner::Shape(found.label) };
            found.extend(shape::find(text).into_iter().map(hit));
        }
        found.sort_unstable_by_key(|hit| (hit.span.start, hit.span.end, hit.owner));
        let mut merged: Vec<(Hit, usize)> = Vec::new();
        for hit in found {
            let length = hit.span.len();
            match merged.last_mut() {
                Some((last, longest)) if hit.span.start < last.span.end => {
                    last.span.end = last.span.end.max(hit.span.end);
                    if length > *longest {
                        *longest = length;
                        last.owner = hit.owner;
                    }
                }
                _ => merged.push((hit, length)),
            }
        }
        merged.into_iter().map(|(hit, _)| hit).collect()
    }

    fn replaced(&self, text: &str, hits: &[Hit]) -> String {
        let mut clean = String::with_capacity(text.len());
        let mut from = 0;
        for hit in hits {
            clean.push_str(text.get(from..hit.span.start).unwrap_or_default());
            clean.push_str("[redacted:");
            clean.push_str(match hit.owner {
                Owner::Known(index) => self.secrets.get(index).map_or("secret", |known| &known.label),
                Owner::Shape(label) => label,
            });
            clean.push(']');
            from = hit.span.end;
        }
        clean.push_str(text.get(from..).unwrap_or_default());
        clean
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels = self.secrets.iter().map(|known| &known.label);
        f.debug_list().entries(labels).finish()
    }
}

/// Whether a line of a longer secret is one itself: long, unbroken, and no PEM border.
fn key_material(line: &str) -> bool {
    line.len() >= 24 && !line.contains(char::is_whitespace) && !line.starts_with("-----")
}

#[cfg(test)]
mod tests;
