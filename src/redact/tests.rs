//! Redaction, held against encoders that share no code with it.

use proptest::prelude::*;

use super::*;

/// A value that every encoding spells differently from every other.
const PICKY: &str = "p4/ss\"wörd?>~zZ&k";

fn redactor(values: &[&str]) -> Redactor {
    let label = |(index, value): (usize, &&str)| (format!("L{index}"), (*value).to_owned());
    Redactor::new(values.iter().enumerate().map(label)).without_shapes()
}

fn base64(bytes: &[u8], alphabet: &[u8; 64]) -> String {
    let bit = |at: usize| bytes.get(at / 8).map_or(0, |byte| byte >> (7 - at % 8) & 1);
    let chars = (bytes.len() * 8).div_ceil(6);
    (0..chars)
        .map(|at| (0..6).fold(0usize, |sum, step| sum << 1 | usize::from(bit(at * 6 + step))))
        .map(|index| char::from(alphabet[index]))
        .collect()
}

/// The characters of a base64 text that are the same whatever stands around the secret.
fn base64_sure(secret: &str, before: usize, alphabet: &[u8; 64]) -> String {
    let around = |byte: u8| {
        let mut bytes = vec![byte; before];
        bytes.extend_from_slice(secret.as_bytes());
        bytes.extend([byte; 3]);
        base64(&bytes, alphabet)
    };
    let (low, high) = (around(0), around(255));
    // The surroundings differ in every bit, so what agrees is the secret's.
    low.chars().zip(high.chars()).filter(|(a, b)| a == b).map(|(a, _)| a).collect()
}

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn units(secret: &str, wide: bool) -> String {
    let mut text = String::new();
    for c in secret.chars() {
        text.push(c);
        text.push_str(if wide { "\0" } else { "" });
    }
    text.trim_end_matches('\0').to_owned()
}

/// Every way in which a text may hold the secret, by the encoding that has to find it.
fn spellings(secret: &str) -> Vec<(Encoding, String)> {
    let hex = |sep: &str| secret.bytes().map(|b| format!("{sep}{b:02x}")).collect::<String>();
    let mixed = |text: String| {
        let flip = |(at, c): (usize, char)| if at % 3 == 0 { c.to_ascii_uppercase() } else { c };
        text.chars().enumerate().map(flip).collect::<String>()
    };
    let safe = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let minimal: String = secret
        .bytes()
        .map(|b| if safe(b) { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect();
    let slashes = |text: &str| text.replace('/', "\\/");
    let json = |text: &str| {
        let quoted = serde_json::to_string(text).unwrap();
        quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap().to_owned()
    };
    let every = |upper: bool| {
        let mut units = [0u16; 2];
        let spell = |unit: &u16| if upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") };
        secret
            .chars()
            .map(|c| c.encode_utf16(&mut units).iter().map(spell).collect::<String>())
            .collect()
    };
    let mut all = vec![
        (Encoding::Raw, secret.to_owned()),
        (Encoding::Hex, hex("")),
        (Encoding::Hex, hex("").to_uppercase()),
        (Encoding::Hex, mixed(hex(""))),
        (Encoding::Percent, hex("%")),
        (Encoding::Percent, hex("%").to_uppercase()),
        (Encoding::Percent, mixed(hex("%"))),
        (Encoding::Percent, minimal),
        (Encoding::Json, json(secret)),
        (Encoding::Json, slashes(&json(secret))),
        (Encoding::Json, every(false)),
        (Encoding::Json, every(true)),
    ];
    for before in 0..3 {
        all.push((Encoding::Base64, base64_sure(secret, before, STANDARD)));
        all.push((Encoding::Base64Url, base64_sure(secret, before, URL_SAFE)));
    }
    if secret.is_ascii() {
        // Both byte orders: NUL behind and NUL in front.
        all.push((Encoding::Utf16, units(secret, true)));
        all.push((Encoding::Utf16Json, json(&units(secret, true))));
    }
    all
}

fn leaks(text: &str, secret: &str) -> Vec<(Encoding, String)> {
    spellings(secret).into_iter().filter(|(_, spelt)| text.contains(spelt.as_str())).collect()
}

/// Values as they come: tokens, passwords with all that needs escaping, other scripts.
fn secret() -> impl Strategy<Value = String> {
    prop_oneof![
        "[A-Za-z0-9_-]{6,40}",
        "[ -~]{6,24}",
        "[a-c]{6,9}",
        "[A-Za-z\"\\\\/%&<>'éßกข😀\u{1}\t]{6,20}",
    ]
    .prop_filter("is long enough when trimmed", |s| s.trim() == s && s.len() >= SHORTEST_SECRET)
    .prop_filter("isn't part of the marker", |s| !"[redacted:L0][redacted:L1]".contains(s.as_str()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_spelling_survives(secret in secret(), before in "\\PC{0,9}", after in "\\PC{0,9}") {
        let redactor = redactor(&[&secret]);
        for (encoding, spelt) in spellings(&secret) {
            let text = format!("{before}{spelt}{after}");
            let clean = redactor.scrub(&text);
            prop_assert!(clean.contains("[redacted:L0]"), "{encoding:?} {text:?} -> {clean:?}");
            prop_assert_eq!(leaks(&clean, &secret), vec![]);
        }
    }

    #[test]
    fn the_pieces_make_the_whole(
        secrets in prop::collection::vec(secret(), 1..3),
        picks in prop::collection::vec((0..3usize, 0..40usize, "[a-c%\\\\\"]{0,3}"), 0..6),
        cuts in prop::collection::vec(1..9usize, 1..12),
    ) {
        let redactor = redactor(&secrets.iter().map(String::as_str).collect::<Vec<_>>());
        // Whole spellings and beginnings of some, so that what is held back turns out innocent.
        let mut text = String::new();
        for (which, how, between) in picks {
            let spellings = spellings(&secrets[which % secrets.len()]);
            let spelt = &spellings[how % spellings.len()].1;
            text.extend(spelt.chars().take(if how % 3 == 0 { how } else { usize::MAX }));
            text.push_str(&between);
        }
        let mut scrubber = redactor.deltas();
        let (mut told, mut rest) = (String::new(), text.as_str());
        for step in cuts.iter().cycle() {
            let at = rest.char_indices().nth(*step).map_or(rest.len(), |(at, _)| at);
            let (piece, later) = rest.split_at(at);
            told.push_str(&scrubber.push(piece));
            for secret in &secrets {
                prop_assert_eq!(leaks(&told, secret), vec![]);
            }
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        told.push_str(&scrubber.finish());
        prop_assert_eq!(told, redactor.scrub(&text));
    }

    #[test]
    fn a_text_without_a_secret_stays_as_it_is(text in "\\PC{0,80}", secret in "[A-Z]{12,20}") {
        let redactor = redactor(&[&secret]);
        prop_assume!(!text.to_uppercase().contains(&secret));
        prop_assert!(matches!(redactor.scrub(&text), Cow::Borrowed(same) if same == text));
        let mut scrubber = redactor.deltas();
        let told = scrubber.push(&text) + &scrubber.finish();
        prop_assert_eq!(told, text);
    }
}

/// The proof that the tests above can fail: without any one encoding, its spelling gets through.
#[test]
fn each_encoding_is_needed() {
    macro_rules! without {
        ($($left:ident: $secret:expr => [$($kept:ident)+],)+) => {$(
            let secrets = [("L".to_owned(), $secret.to_owned())];
            let redactor = Redactor::with_encodings(secrets, &[$(Encoding::$kept),+]);
            let (missed, found): (Vec<_>, Vec<_>) = spellings($secret)
                .into_iter()
                .partition(|(encoding, _)| *encoding == Encoding::$left);
            let gets_through = |spelt: &str| !leaks(&redactor.scrub(spelt), $secret).is_empty();
            assert!(missed.iter().any(|(_, spelt)| gets_through(spelt)), "{}", stringify!($left));
            for (encoding, spelt) in found {
                assert!(!gets_through(&spelt), "{encoding:?} without {}", stringify!($left));
            }
        )+};
    }
    // ASCII where UTF-16 is looked at.
    let ascii = "p4/ss\"word?>~zZ&k";
    without! {
        Raw: PICKY => [Base64 Base64Url Hex Percent Json Utf16 Utf16Json],
        Base64: PICKY => [Raw Base64Url Hex Percent Json Utf16 Utf16Json],
        Base64Url: PICKY => [Raw Base64 Hex Percent Json Utf16 Utf16Json],
        Hex: PICKY => [Raw Base64 Base64Url Percent Json Utf16 Utf16Json],
        Percent: PICKY => [Raw Base64 Base64Url Hex Json Utf16 Utf16Json],
        Json: PICKY => [Raw Base64 Base64Url Hex Percent Utf16 Utf16Json],
        Utf16: ascii => [Raw Base64 Base64Url Hex Percent Json Utf16Json],
        Utf16Json: ascii => [Raw Base64 Base64Url Hex Percent Json Utf16],
    }
}

#[test]
fn other_spellings_are_found() {
    let redactor = redactor(&[PICKY]);
    for spelt in [
        // Go's JSON, and JSON that is ASCII alone, and both.
        r#"p4/ss\"wörd?\u003e~zZ\u0026k"#,
        r#"p4/ss\"w\u00F6rd?>~zZ&k"#,
        r#"p4\/ss\"w\u00f6rd?\u003E~zZ\u0026k"#,
        // JSON as a string inside JSON.
        r#"p4/ss\\\"wörd?>~zZ&k"#,
        // The whole of what was encoded, with its padding.
        "cDQvc3Mid8O2cmQ/Pn56WiZr",
        "xxxxcDQvc3Mid8O2cmQ_Pn56WiZrCg==",
    ] {
        assert!(redactor.scrub(spelt).contains("[redacted:L0]"), "{spelt}");
    }
    let wide = "p4/ss\"w\u{fffd}\0rd?>~zZ&k";
    let thai = self::redactor(&["รหัสผ่าน"]);
    let bytes: Vec<u8> = "รหัสผ่าน".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(thai.scrub(&String::from_utf8_lossy(&bytes)), "[redacted:L0]");
    assert_eq!(redactor.scrub(wide), wide, "only the whole value is a secret");
}

#[test]
fn padding_goes_with_the_value() {
    let redactor = redactor(&["hunter2"]);
    assert_eq!(redactor.scrub("aHVudGVyMg=="), "[redacted:L0]");
    assert_eq!(redactor.scrub("aHVudGVyMg"), "[redacted:L0]");
    // In the middle of something, the characters on its borders belong to both.
    assert_eq!(redactor.scrub("eGh1bnRlcjJ4"), "eG[redacted:L0]J4");
}

#[test]
fn overlapping_secrets_vanish_together_under_the_longest() {
    let redactor = redactor(&["abcdef", "defghijkl", "abc-def-ghi", "abc-def"]);
    assert_eq!(redactor.scrub("xabcdefghijklx"), "x[redacted:L1]x");
    assert_eq!(redactor.scrub("abc-def-ghi abc-def"), "[redacted:L2] [redacted:L3]");
    assert_eq!(redactor.scrub("abcdefabcdef"), "[redacted:L0][redacted:L0]");
}

#[test]
fn case_counts_where_the_encoding_keeps_it() {
    let redactor = redactor(&["Password"]);
    assert_eq!(redactor.scrub("password PASSWORD Password"), "password PASSWORD [redacted:L0]");
}

#[test]
fn short_and_repeated_values_are_dropped_and_white_space_around_is_nothing() {
    let redactor = redactor(&["12345", "   a   ", "hunter2\n", "hunter2"]);
    assert_eq!(redactor.secrets.len(), 1);
    assert_eq!(redactor.scrub("12345 hunter2"), "12345 [redacted:L2]");
    assert!(Redactor::new([]).patterns.get().is_none());
}

#[test]
fn the_lines_of_a_key_are_secrets_too() {
    let pem = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nshort line of words that stays\n-----END KEY-----\n";
    let redactor = redactor(&[pem]);
    assert_eq!(redactor.scrub("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"), "[redacted:L0]");
    assert_eq!(redactor.scrub(pem), "[redacted:L0]\n");
    let border = "-----BEGIN KEY----- short line of words that stays";
    assert_eq!(redactor.scrub(border), border);
}

#[test]
fn nothing_that_is_held_back_is_lost_or_told_early() {
    let redactor = redactor(&["hunter2"]);
    let mut scrubber = redactor.deltas();
    assert_eq!(scrubber.push("say hun"), "say ");
    assert_eq!(scrubber.push("ter"), "");
    assert_eq!(scrubber.push("2!"), "[redacted:L0]!");
    assert_eq!(scrubber.push("aHVudGVyM"), "");
    assert_eq!(scrubber.push("g"), "", "padding may follow, and belongs to it");
    assert_eq!(scrubber.push("=="), "[redacted:L0]");
    assert_eq!(scrubber.push("hunt"), "");
    assert_eq!(scrubber.push("s"), "hunts");
    assert_eq!(scrubber.push(" 68756E"), " ");
    assert_eq!(scrubber.finish(), "68756E");
    assert_eq!(scrubber.finish(), "");
}

#[test]
fn neither_a_secret_nor_a_redactor_shows_itself() {
    assert_eq!(format!("{:?}", Secret::new("hunter2")), "[secret]");
    assert_eq!(format!("{:?}", redactor(&["hunter2"])), r#"["L0"]"#);
}
