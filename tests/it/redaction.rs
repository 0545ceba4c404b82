//! What is known by its shape: every line of the corpus in every encoding, with a control that finds
//! the secrets where shapes are off; and what real source loses to it.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Instant};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;
use thcode::redact::Redactor;

/// Numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ mixed >> 31) % end as u64).unwrap()
    }
}

fn class(name: &str) -> Vec<char> {
    let (digit, lower, upper) = ('0'..='9', 'a'..='z', 'A'..='Z');
    match name {
        "digit" => digit.collect(),
        "alpha" => lower.chain(upper).collect(),
        "alnum" => lower.chain(upper).chain(digit).collect(),
        "hex" => digit.chain('a'..='f').collect(),
        "upperdigit" => upper.chain(digit).collect(),
        "b64" => lower.chain(upper).chain(digit).chain(['+', '/']).collect(),
        other => panic!("no class {other}"),
    }
}

/// `{alnum:36}` as 36 random characters.
fn filled(template: &str, dice: &mut Dice) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (run, after) = after.split_once('}').unwrap();
        let (name, length) = run.split_once(':').unwrap();
        let class = class(name);
        text.push_str(before);
        text.extend((0..length.parse().unwrap()).map(|_| class[dice.below(class.len())]));
        rest = after;
    }
    text + rest
}

/// A line of the corpus whose secret was filled in.
struct Planted {
    id: String,
    /// What stands before and behind the secret; all of it, if there is none.
    before: String,
    secret: Option<String>,
    after: String,
}

impl Planted {
    fn line(&self) -> String {
        [&self.before, self.secret.as_deref().unwrap_or_default(), &self.after].concat()
    }

    /// What must not be found: the secret, of a key in armour each line of its body.
    fn needles(&self) -> Vec<&str> {
        let lines = self.secret.iter().flat_map(|secret| secret.lines());
        lines.filter(|line| !line.starts_with("-----")).collect()
    }
}

fn corpus(seed: u64) -> Vec<Planted> {
    let mut dice = Dice(seed);
    let lines = include_str!("../cases/redaction/corpus.jsonl").lines();
    lines
        .map(|line| {
            let case: Value = serde_json::from_str(line).unwrap();
            let text = |key: &str| case[key].as_str().unwrap().to_owned();
            let id = text("id");
            match case["expected"].as_str().unwrap() {
                "redacted" => {
                    let place = text("line").replace("{{", "\u{1}").replace("}}", "\u{2}");
                    let (before, after) = place.split_once("{}").unwrap();
                    let braces = |text: &str| text.replace('\u{1}', "{").replace('\u{2}', "}");
                    let secret = Some(filled(&text("secret"), &mut dice));
                    Planted { id, before: braces(before), secret, after: braces(after) }
                }
                "unchanged" => Planted { id, before: text("text"), secret: None, after: String::new() },
                other => panic!("{id}: {other}"),
            }
        })
        .collect()
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn json(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap().to_owned()
}

fn url(text: &str, all: bool) -> String {
    let keep = |byte: u8| !all && (byte.is_ascii_alphanumeric() || b"-._~".contains(&byte));
    text.bytes()
        .map(|byte| if keep(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn wide(text: &str) -> String {
    text.chars().flat_map(|char| [char, '\0']).collect()
}

/// The text in every encoding in which it may leave.
fn encoded(text: &str) -> Vec<(&'static str, String)> {
    let base64 = |shift: usize| STANDARD.encode(format!("{}{text}", ".".repeat(shift)));
    vec![
        ("raw", text.to_owned()),
        ("base64", base64(0)),
        ("base64+1", base64(1)),
        ("base64+2", base64(2)),
        ("hex", hex(text)),
        ("HEX", hex(text).to_uppercase()),
        ("url", url(text, false)),
        ("url, every byte", url(text, true)),
        ("json", json(text)),
        ("json, every character", text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect()),
        ("json in json", json(&json(text))),
        ("utf-16", wide(text)),
        ("utf-16, high byte first", text.chars().flat_map(|char| ['\0', char]).collect()),
        ("utf-16 in json", json(&wide(text))),
        ("base64 of utf-16", STANDARD.encode(wide(text))),
        ("base64 in json", json(&format!("\"{}\"", STANDARD.encode(text)))),
    ]
}

/// The characters of base64 that the secret alone determines, so many bytes into a text.
fn core(secret: &str, shift: usize) -> String {
    let encoded = STANDARD.encode(format!("{}{secret}", "x".repeat(shift)));
    encoded.get((shift * 8).div_ceil(6)..(shift + secret.len()) * 8 / 6).unwrap().to_owned()
}

/// In which of its encodings a text holds the secret.
pub(crate) fn leaks(text: &str, secret: &str) -> Vec<&'static str> {
    let lower = text.to_ascii_lowercase();
    let mut found = Vec::new();
    for (name, spelt) in [
        ("raw", secret.to_owned()),
        ("base64", core(secret, 0)),
        ("base64+1", core(secret, 1)),
        ("base64+2", core(secret, 2)),
        ("json", json(secret)),
        ("utf-16", wide(secret).trim_end_matches('\0').to_owned()),
        ("utf-16 in json", json(wide(secret).trim_end_matches('\0'))),
    ] {
        if text.contains(&spelt) {
            found.push(name);
        }
    }
    for (name, spelt) in [
        ("hex", hex(secret)),
        ("url", url(secret, true).to_lowercase()),
        ("url", url(secret, false).to_lowercase()),
        ("json", secret.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect()),
    ] {
        // A spelling that is the secret itself, in another case, is another word.
        if spelt != secret.to_lowercase() && lower.contains(&spelt) {
            found.push(name);
        }
    }
    found
}

/// What of the corpus doesn't behave: secrets that are left, clean lines that are changed.
fn faults(redactor: &Redactor, seed: u64) -> Vec<String> {
    let mut faults = Vec::new();
    for case in corpus(seed) {
        for (encoding, text) in encoded(&case.line()) {
            let clean = redactor.scrub(&text);
            let told = |what: &str| format!("{} {encoding}: {what}: {text:?} -> {clean:?}", case.id);
            if case.secret.is_none() {
                faults.extend((clean != text).then(|| told("changed")));
                continue;
            }
            for needle in case.needles() {
                let leaks = leaks(&clean, needle);
                faults.extend((!leaks.is_empty()).then(|| told(&format!("leaks as {leaks:?}"))));
            }
            let around = clean.starts_with(&case.before) && clean.ends_with(&case.after);
            if encoding == "raw" && !around {
                faults.push(told("unreadable"));
            }
        }
        // The secret alone is encoded, in a line that isn't; also as a cut from something longer.
        let cuts = |secret: &String| [0, 1, 2].map(|shift| ("a cut of base64", core(secret, shift)));
        let alone = |secret: &String| [encoded(secret), cuts(secret).to_vec()].concat();
        for (encoding, secret) in case.secret.iter().flat_map(alone) {
            // That one has quotes of its own, which end a value.
            if encoding == "base64 in json" {
                continue;
            }
            let text = [case.before.as_str(), &secret, &case.after].concat();
            let clean = redactor.scrub(&text);
            for needle in case.needles() {
                if !leaks(&clean, needle).is_empty() {
                    faults.push(format!("{} secret as {encoding}: {text:?} -> {clean:?}", case.id));
                }
            }
        }
    }
    faults
}

const SEEDS: u64 = 6;

#[test]
fn every_line_of_the_corpus_behaves_in_every_encoding() {
    let redactor = Redactor::new([]);
    let faults: Vec<_> = (0..SEEDS).flat_map(|seed| faults(&redactor, seed)).collect();
    assert!(faults.is_empty(), "{}:\n{}", faults.len(), faults.join("\n"));
}

/// The control: the same search finds every secret in every encoding if nothing hides it.
#[test]
fn without_shapes_every_secret_of_the_corpus_is_found() {
    let redactor = Redactor::new([]).without_shapes();
    let left = faults(&redactor, 0);
    for case in corpus(0).iter().filter(|case| case.secret.is_some()) {
        for (encoding, _) in encoded("") {
            let seen = format!("{} {encoding}: leaks", case.id);
            let two_deep = [" in json", " of utf-16"].iter().any(|deep| encoding.contains(deep));
            assert!(two_deep || left.iter().any(|fault| fault.starts_with(&seen)), "{seen}");
        }
    }
    assert!(left.iter().all(|fault| fault.starts_with("SEC-")), "clean lines stay");
}

/// What comes in pieces loses the same as what comes at once.
#[test]
fn pieces_of_the_corpus_lose_what_the_whole_loses() {
    let redactor = Redactor::new([]);
    let mut dice = Dice(7);
    for seed in 0..4 {
        let mut whole = String::new();
        for case in corpus(seed) {
            let forms = encoded(&case.line());
            whole.push_str(&forms[dice.below(forms.len())].1);
            whole.push_str(["\n", " ", "\n\n", ", "][dice.below(4)]);
        }
        for longest in [1, 3, 9, 80, 3000] {
            let mut scrubber = redactor.deltas();
            let mut told = String::new();
            let mut rest = whole.as_str();
            while !rest.is_empty() {
                let end = rest.ceil_char_boundary(1 + dice.below(longest));
                let (piece, after) = rest.split_at(end);
                told.push_str(&scrubber.push(piece));
                rest = after;
            }
            told.push_str(&scrubber.finish());
            let once = redactor.scrub(&whole);
            if told != once {
                let at = told.bytes().zip(once.bytes()).take_while(|(a, b)| a == b).count();
                let from = told.floor_char_boundary(at.saturating_sub(200));
                panic!(
                    "{longest}: {:?}\n{:?}",
                    told.get(from..(at + 200).min(told.len())),
                    once.get(from..(at + 200).min(once.len()))
                );
            }
        }
    }
}

/// Every source file of the registry that cargo keeps.
fn real_source() -> Vec<(PathBuf, String)> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cargo"));
    let mut found = Vec::new();
    let mut todo = vec![home.join("registry/src")];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let known = [
                "rs", "toml", "md", "c", "h", "py", "sh", "js", "json", "yml", "yaml", "txt", "S", "pl",
            ];
            let extension = path.extension().and_then(|extension| extension.to_str());
            if path.is_dir() {
                todo.push(path);
            } else if extension.is_some_and(|extension| known.contains(&extension)) {
                found.extend(fs::read_to_string(&path).ok().map(|text| (path, text)));
            }
        }
    }
    found
}

/// `cargo test --release --test it redaction::real_source -- --ignored --nocapture`
#[test]
#[ignore = "reads all the source that cargo keeps, and tells of it"]
fn real_source_loses_next_to_nothing() {
    let redactor = Redactor::new([]);
    let (mut bytes, mut lines) = (0, 0);
    let mut rates: BTreeMap<String, usize> = BTreeMap::new();
    let started = Instant::now();
    for (path, text) in real_source() {
        bytes += text.len();
        lines += text.lines().count();
        let clean = redactor.scrub(&text);
        let mut rest = clean.as_ref();
        while let Some((_, after)) = rest.split_once("[redacted:") {
            let (label, after) = after.split_once(']').unwrap();
            if !text.contains(&format!("[redacted:{label}]")) {
                *rates.entry(label.to_owned()).or_default() += 1;
            }
            rest = after;
        }
        let after: std::collections::BTreeSet<_> = clean.lines().collect();
        for line in text.lines().filter(|line| !after.contains(line)) {
            println!("{}: {:.200}", path.display(), redactor.scrub(line).trim());
        }
    }
    println!("{bytes} bytes, {lines} lines, {:?}", started.elapsed());
    for (label, count) in &rates {
        println!("{label:24} {count:6}  {:.2} in a million lines", *count as f64 * 1e6 / lines as f64);
    }
    assert!(bytes >= 10_000_000, "too little source to tell: {bytes} bytes");
}
