//! The spellings of a secret that a text may hold. Pure: a value in, the forms to look for out.

use base64::{
    Engine as _, alphabet,
    engine::{GeneralPurpose, general_purpose::PAD},
};

/// A way to write a value down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    /// As it is.
    Raw,
    /// Base64, standard alphabet, at any byte offset.
    Base64,
    /// Base64, URL-safe alphabet, at any byte offset.
    Base64Url,
    /// Two hex digits a byte, in any case.
    Hex,
    /// Percent-encoded, where needed or every byte, hex digits in any case.
    Percent,
    /// Inside a JSON string: the short escapes, `\/`, `\u003c` for HTML, `\u00e9` for what isn't
    /// ASCII, every character as `\u0041`.
    Json,
    /// UTF-16 read as bytes, either order: NULs between the characters.
    Utf16,
    /// The same, inside a JSON string.
    Utf16Json,
}

/// A text to look for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// The text.
    pub(super) text: String,
    /// Whether ASCII case doesn't matter.
    pub(super) any_case: bool,
}

impl Encoding {
    /// Every one.
    pub(super) const ALL: &'static [Self] = &[
        Self::Raw,
        Self::Base64,
        Self::Base64Url,
        Self::Hex,
        Self::Percent,
        Self::Json,
        Self::Utf16,
        Self::Utf16Json,
    ];

    /// What to look for, for this value.
    pub(super) fn forms(self, value: &str) -> Vec<Form> {
        let exact = |text: String| Form { text, any_case: false };
        let any_case = |text: String| Form { text, any_case: true };
        match self {
            Self::Raw => vec![exact(value.to_owned())],
            Self::Base64 => base64_runs(value, &alphabet::STANDARD).into_iter().map(exact).collect(),
            Self::Base64Url => base64_runs(value, &alphabet::URL_SAFE).into_iter().map(exact).collect(),
            Self::Hex => vec![any_case(value.bytes().map(|byte| format!("{byte:02x}")).collect())],
            Self::Percent => {
                let spelt = [percent(value, is_unreserved), percent(value, |_| false)];
                // A form that is the value itself would blot out its other cases in prose.
                let mut forms: Vec<_> =
                    spelt.into_iter().filter(|form| form != value).map(any_case).collect();
                if value.contains(' ') {
                    forms.push(any_case(
                        percent(value, |byte| byte == b' ' || is_unreserved(byte)).replace(' ', "+"),
                    ));
                }
                forms
            }
            Self::Json => json_forms(value),
            Self::Utf16 => utf16_texts(value).into_iter().map(exact).collect(),
            Self::Utf16Json => utf16_texts(value)
                .iter()
                .flat_map(|text| [json_short(text), json_full(text)])
                .map(any_case)
                .collect(),
        }
    }
}

/// The characters of a base64 text that the value alone determines, for each place that it may
/// have in a group of three bytes; and the same where the value is the end of what was encoded.
fn base64_runs(value: &str, alphabet: &alphabet::Alphabet) -> Vec<String> {
    let engine = GeneralPurpose::new(alphabet, PAD);
    let mut runs = Vec::new();
    for before in 0..3usize {
        let mut bytes = vec![0; before];
        bytes.extend_from_slice(value.as_bytes());
        let whole = engine.encode(&bytes);
        let start = (before * 8).div_ceil(6);
        let sure = bytes.len() * 8 / 6;
        runs.extend(whole.get(start..sure).map(str::to_owned));
        // The last character and the padding; longer than the run, so that it is preferred.
        runs.extend(whole.get(start..).map(str::to_owned));
        runs.extend(whole.get(start..).map(|text| text.trim_end_matches('=').to_owned()));
    }
    runs
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn percent(value: &str, keep: fn(u8) -> bool) -> String {
    value
        .bytes()
        .map(|byte| if keep(byte) { char::from(byte).to_string() } else { format!("%{byte:02x}") })
        .collect()
}

/// The spellings inside a JSON string. Those with hex digits are looked for in any case; one that
/// is the value itself is left to [`Encoding::Raw`].
fn json_forms(value: &str) -> Vec<Form> {
    let short = json_short(value);
    let html = escaped(&short, |c| matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}'));
    let ascii = escaped(&short, |c| !c.is_ascii());
    let both = escaped(&html, |c| !c.is_ascii());
    let mut forms = vec![Form { text: json_full(value), any_case: true }];
    for text in [short.clone(), html, ascii, both] {
        for text in [text.replace('/', "\\/"), text] {
            let has_hex = text.contains("\\u");
            if text != value {
                forms.push(Form { text, any_case: has_hex });
            }
        }
    }
    // JSON as a string inside JSON: how a tool call's arguments travel.
    let nested = json_short(&short);
    if nested != short {
        forms.push(Form { text: nested, any_case: false });
    }
    forms
}

/// As serde_json writes it, without the quotes.
fn json_short(value: &str) -> String {
    let quoted = serde_json::Value::from(value).to_string();
    quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value).to_owned()
}

/// Every character as `\uXXXX`.
fn json_full(value: &str) -> String {
    escaped(value, |_| true)
}

/// Those characters as `\uXXXX`, in pairs of surrogates where it takes two.
fn escaped(value: &str, choose: fn(char) -> bool) -> String {
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        if choose(c) {
            let mut units = [0; 2];
            text.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            text.push(c);
        }
    }
    text
}

/// UTF-16 in both byte orders, as a reader of UTF-8 sees it: what isn't UTF-8 is U+FFFD. The NULs
/// at the ends are left out, so that one form serves both orders of an ASCII value.
fn utf16_texts(value: &str) -> Vec<String> {
    let orders: [fn(u16) -> [u8; 2]; 2] = [u16::to_le_bytes, u16::to_be_bytes];
    let mut texts: Vec<String> = Vec::new();
    for order in orders {
        let bytes: Vec<u8> = value.encode_utf16().flat_map(order).collect();
        let text = String::from_utf8_lossy(&bytes).trim_matches('\0').to_owned();
        let telling = text.chars().filter(|c| !['\0', char::REPLACEMENT_CHARACTER].contains(c)).count();
        if telling >= super::SHORTEST_SECRET && !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts
}
