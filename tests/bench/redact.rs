//! What scrubbing costs: `cargo bench --bench redact`.
//!
//! For 10 MB of each kind of text the speed of the redactor, beside that of `memchr` over the same bytes
//! in the same run: the least that anything costs that looks at every byte.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a measure tells and may fail")]

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use thcode::redact::Redactor;

/// The bar for text as it comes: prose, source and logs.
const LEAST_MB_S: f64 = 50.0;

fn main() {
    let few = !std::env::args().any(|arg| arg == "--bench");
    let (bytes, rounds) = if few { (200_000, 1) } else { (10_000_000, 7) };
    started();
    let value = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let known = [value("A_TOKEN", "Zq7-0123456789-abcdef"), value("B_KEY", "another long value!")];
    let plain = Redactor::new([]);
    let knowing = Redactor::new(known);
    println!(
        "{:34} {:>10} {:>10} {:>10} {:>7}",
        "10 MB of", "memchr", "shapes", "and known", "× memchr"
    );
    for (name, ordinary, text) in texts(bytes) {
        let (mut base, mut shapes, mut both) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            base.push(time(|| {
                black_box(memchr::memchr_iter(7, text.as_bytes()).count());
            }));
            shapes.push(time(|| drop(black_box(plain.scrub(&text)))));
            both.push(time(|| drop(black_box(knowing.scrub(&text)))));
        }
        let speed = |times: &mut Vec<Duration>| {
            times.sort_unstable();
            let median = times.get(times.len() / 2).unwrap();
            text.len() as f64 / 1e6 / median.as_secs_f64()
        };
        let (base, shapes, both) = (speed(&mut base), speed(&mut shapes), speed(&mut both));
        let below = ordinary && !few && shapes < LEAST_MB_S;
        println!(
            "{name:34} {base:>10.0} {shapes:>10.0} {both:>10.0} {:>7.0}{}",
            base / shapes,
            if below { "  below the bar" } else { "" }
        );
    }
}

/// What the first text costs that a process scrubs: all that there is to compile.
fn started() {
    let redactor = Redactor::new([]);
    let first = time(|| drop(black_box(redactor.scrub("token"))));
    let second = time(|| drop(black_box(redactor.scrub("token"))));
    println!("the first text {first:?}, the second {second:?}");
}

fn time(work: impl FnOnce()) -> Duration {
    let started = Instant::now();
    work();
    started.elapsed()
}

/// The texts, and whether they are what is met every day; the others are what would be slow if anything
/// were.
fn texts(bytes: usize) -> Vec<(&'static str, bool, String)> {
    let source = include_str!("../../src/redact/shape/assign.rs");
    let prose = include_str!("../../ARCHITECTURE.md");
    let log =
        "2026-01-02T03:04:05Z INFO request id=7f3c2a10-9b1d-4c1e-8f00-1234567890ab took 12 ms, 200\n";
    let long = |text: &str| text.repeat(bytes.div_ceil(text.len()));
    let quoted = serde_json::Value::from(source).to_string();
    vec![
        ("source", true, long(source)),
        ("prose", true, long(prose)),
        ("log lines", true, long(log)),
        ("JSON with escapes", true, long(&quoted)),
        ("one line of letters", true, long("abcdefgh")),
        ("one line of base64", false, STANDARD.encode(long(source).get(..bytes * 3 / 4).unwrap())),
        ("base64 of base64", false, {
            let once = STANDARD.encode(long(source).get(..bytes * 9 / 16).unwrap());
            STANDARD.encode(once)
        }),
        ("one line of hex", false, long("6a7b8c9d0e1f")),
        ("UTF-16", false, long(source).chars().take(bytes / 2).flat_map(|c| [c, '\0']).collect()),
        ("one line of escapes", false, long("\\u0041%41\\n")),
        ("token=token=token=", false, long("token=")),
        ("token:token:token:", false, long("token:")),
        ("password=\"password='", false, long("password=\"password='")),
        ("eyJeyJeyJ", false, long("eyJ")),
        ("-eyJ-eyJ-eyJ", false, long("-eyJ")),
        (".eyJ.eyJ.eyJ", false, long(".eyJ0123456789a")),
        ("cookie: cookie: ", false, long("cookie:")),
        ("a://a://a://", false, long("aa://")),
        ("basic basic basic ", false, long("basic ")),
        ("-----BEGIN PRIVATE KEY-----", false, long("-----BEGIN PRIVATE KEY-----")),
        ("-----BEGIN PRIVATE KEY-----\\n", false, long("-----BEGIN PRIVATE KEY-----\nAAAA\n")),
    ]
}
