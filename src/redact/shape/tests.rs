//! Each kind on its own, with what is almost one, and the bounds of the work.

use std::time::Instant;

use super::{super::Redactor, token::TOKENS, *};

fn scrub(text: &str) -> String {
    Redactor::new([]).scrub(text).into_owned()
}

/// What stands for each character class when an example is made.
const DRAWN: &str = "7fA3c9E1b0D8a2F6c5B4e1A7d0C3f9E8";

/// Every row of the table finds what it describes, in a sentence, and not within a longer word.
#[test]
fn every_token_is_found_and_no_part_of_a_word() {
    for token in TOKENS {
        let example = token.example(DRAWN);
        let text = format!("it is {example}, see?");
        let clean = scrub(&text);
        assert!(!clean.contains(&example), "{text}");
        assert!(clean.contains(&format!("[redacted:{}]", token.label)), "{text} -> {clean}");
        assert!(clean.starts_with("it is [") && clean.ends_with("], see?"), "{text} -> {clean}");
        if !token.is_read_backwards() {
            let within = format!("it is Q{example}, see?");
            assert!(!find(&within).iter().any(|found| found.label == token.label), "{within}");
        }
        let cut: String = example.chars().take(token.head.len() + 4).collect();
        assert!(find(&cut).iter().all(|found| found.label != token.label), "{cut}");
    }
    let kinds: std::collections::BTreeSet<_> = TOKENS.iter().map(|token| token.label).collect();
    assert!(kinds.len() >= 40, "{}", kinds.len());
}

#[test]
fn a_value_goes_and_its_name_stays() {
    for (text, clean) in [
        (r#"{"password": "hunter2"}"#, r#"{"password": "[redacted:password]"}"#),
        (r#"{\"password\": \"hunter2\"}"#, r#"{\"password\": \"[redacted:password]\"}"#),
        ("PASSWORD=hunter2", "PASSWORD=[redacted:password]"),
        ("export DB_PASS='a b3 c!'", "export DB_PASS='a b3 c!'"),
        ("export DB_PASS='zq7k b3 c!'", "export DB_PASS='[redacted:password]'"),
        ("const API_KEY: &str = \"q8Zr3Lk0Wm5Xt1Vb\";", "const API_KEY: &str = \"[redacted:key]\";"),
        ("os.environ[\"X_TOKEN\"] = 'q8Zr3Lk0Wm5Xt1Vb'", "os.environ[\"X_TOKEN\"] = '[redacted:token]'"),
        ("curl -H \"X-Api-Key: q8Zr3Lk0Wm5Xt1Vb\" h", "curl -H \"X-Api-Key: [redacted:key]\" h"),
        ("<password>q8Zr3Lk0</password>", "<password>[redacted:password]</password>"),
        ("headers.set(\"token\", \"q8Zr3Lk0Wm5Xt1Vb\")", "headers.set(\"token\", \"[redacted:token]\")"),
        ("password: Tr0ub4dor3x\n", "password: [redacted:password]\n"),
        (
            "Authorization: Bearer q8Zr3Lk0Wm5Xt1Vb9\n",
            "Authorization: Bearer [redacted:authorization]\n",
        ),
        (
            "\"authorization\": \"Basic dXNlcjpodW50ZXIy\"",
            "\"authorization\": \"Basic [redacted:authorization]\"",
        ),
        (
            "Cookie: theme=dark; sid=q8Zr3Lk0Wm5Xt1Vb; lang=en",
            "Cookie: theme=dark; sid=[redacted:cookie]; lang=en",
        ),
        ("amqp://app:s3cr3t@h/x", "amqp://app:[redacted:url-password]@h/x"),
        ("https://q8Zr3Lk0Wm5Xt1Vb7Yc2@h/x", "https://[redacted:url-password]@h/x"),
        ("https://h/?a=1&token=q8Zr3Lk0Wm5Xt1Vb&b=2", "https://h/?a=1&token=[redacted:token]&b=2"),
    ] {
        assert_eq!(scrub(text), clean);
    }
}

#[test]
fn a_field_s_name_gives_its_value_away() {
    let redactor = Redactor::new([]);
    assert_eq!(redactor.scrub_named("password", "hunter2"), "[redacted:password]");
    assert_eq!(redactor.scrub_named("apiKey", "q8Zr3Lk0Wm5Xt1Vb"), "[redacted:key]");
    assert_eq!(redactor.scrub_named("note", "PASSWORD=hunter2"), "PASSWORD=[redacted:password]");
    for (name, text) in [("password", "as above"), ("key", "q8Zr3Lk0Wm5Xt1Vb"), ("token", "abc123")] {
        assert_eq!(redactor.scrub_named(name, text), text);
    }
    assert_eq!(redactor.without_shapes().scrub_named("password", "hunter2"), "hunter2");
}

#[test]
fn what_is_no_secret_stays() {
    for text in [
        "token = self.lexer.next_token2()",
        "let api_key = config.api_key.clone();",
        "secret: [u8; 32],",
        "aes_key: PaddedBlockEncryptingKey,",
        "pub const IFLA_INET6_TOKEN: _ty_5 = _ty_5::IFLA_INET6_TOKEN;",
        "ClientTrafficSecret => \"CLIENT_TRAFFIC_SECRET_0\",",
        "password = getpass(\"Password: \")",
        "\"password\": \"Must have at least 8 characters\"",
        "password=[redacted:password]",
        "the token: 3f2a, and no more",
        "PWD=/home/me/x7Kq2/src",
        "TOKEN=true PASSWORD=123456",
        "token_id: 0190a8f0-1234-7abc-8def-0123456789ab",
        "\"token\": \"0190a8f0-1234-7abc-8def-0123456789ab\"",
        "secret = \"sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"",
        "if token == \"q8Zr3Lk0Wm5Xt1Vb\" {",
        "next_page_token = \"q8Zr3Lk0Wm5Xt1Vb\"",
        "http://user:pass@host/ postgres://${USER}:${PASS}@h",
        "Basic authentication, Bearer tokens",
        "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "commit 5d41402abc4b2a76b9719d911017c592a1b2c3d4",
        "-----BEGIN PRIVATE KEY-----\", and then words",
        "https://h/?key=val&key2=value2#fragment",
        "50% of a\\b and C:\\new\\table",
    ] {
        assert_eq!(scrub(text), text);
    }
}

#[test]
fn a_private_key_goes_whole_or_as_far_as_it_goes() {
    let body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n".repeat(3);
    for kind in ["", "RSA ", "EC ", "ENCRYPTED ", "OPENSSH "] {
        let pem =
            format!("a\n-----BEGIN {kind}PRIVATE KEY-----\n{body}-----END {kind}PRIVATE KEY-----\nb");
        assert_eq!(scrub(&pem), "a\n[redacted:private-key]\nb");
        assert_eq!(scrub(&pem.replace('\n', " ")), "a [redacted:private-key] b");
        assert_eq!(scrub(&pem.replace('\n', "\\n")), "a\\n[redacted:private-key]\\nb");
    }
    let head = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n";
    let pem = format!("{head}{body}-----END RSA PRIVATE KEY-----");
    assert_eq!(scrub(&pem), "[redacted:private-key]");
    let cut = format!("-----BEGIN PRIVATE KEY-----\n{body}and then words");
    assert_eq!(scrub(&cut), "[redacted:private-key]\nand then words");
    let block = format!(
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{body}=aB3d\n-----END PGP PRIVATE KEY BLOCK-----"
    );
    assert_eq!(scrub(&block), "[redacted:private-key]");
}

/// A secret is found wherever it stands in a line that is decoded piece by piece.
#[test]
fn no_border_of_a_piece_hides_a_secret() {
    let secret = "ghp_7fA3c9E1b0D8a2F6c5B4e1A7d0C3f9E8x1Y2";
    for at in
        (56 * 1024 - 120..56 * 1024 + 40).step_by(7).chain((64 * 1024 - 120..64 * 1024 + 40).step_by(7))
    {
        let text = format!("{} {secret} {}", "e".repeat(at), "e".repeat(9000));
        let escaped: String = text
            .chars()
            .map(|c| if c == 'e' { "e".to_owned() } else { format!("%{:02x}", u32::from(c)) })
            .collect();
        assert!(scrub(&escaped).contains("[redacted:github-token]"), "{at}");
        let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert!(scrub(&hex).contains("[redacted:github-token]"), "{at}");
    }
}

/// A line that is longer than what is ever held back is told as it comes, without its secrets.
#[test]
fn a_stream_without_an_end_is_told() {
    let redactor = Redactor::new([]);
    let secret = "ghp_7fA3c9E1b0D8a2F6c5B4e1A7d0C3f9E8x1Y2";
    for between in ["word ", "word.", "password %41 "] {
        let text = format!("{}{secret} ", between.repeat(900)).repeat(50);
        let mut scrubber = redactor.deltas();
        let (mut told, mut rest, mut most) = (String::new(), text.as_str(), 0);
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(97));
            told.push_str(&scrubber.push(piece));
            rest = after;
            most = most.max(text.len() - rest.len() - told.len().min(text.len() - rest.len()));
        }
        told.push_str(&scrubber.finish());
        assert!(!told.contains("ghp_7fA3c9E1b0D8"), "{between}");
        assert!(most < 100_000, "{between}: {most}");
    }
}

#[test]
fn the_borders_are_those_of_characters() {
    for text in
        ["é%41é password=\"é1é2é3é4\" é", "p\0a\0ss\0word=\"รหัส1ผ่าน\"", "\\u00e9secret='éé1ééé'é"]
    {
        for found in find(text) {
            assert!(text.get(found.span).is_some(), "{text}");
        }
    }
}

/// Ten megabytes in one line, of what makes every rule look: linear, in time that a slow build has too.
#[test]
fn a_long_line_costs_what_it_is_long() {
    for part in [
        "token:",
        "password=\"password='",
        "eyJ",
        "cookie:",
        "aa://",
        "-----BEGIN PRIVATE KEY-----",
        "%41",
        "aB3x",
    ] {
        let short = part.repeat(200_000 / part.len());
        let long = part.repeat(2_000_000 / part.len());
        let time = |text: &str| {
            let started = Instant::now();
            drop(find(text));
            started.elapsed()
        };
        let (short, long) = (time(&short).min(time(&short)), time(&long));
        assert!(long < short * 40 + std::time::Duration::from_millis(200), "{part}: {short:?} {long:?}");
    }
}
