//! No secret in documents, events, log lines or files of ours, in any encoding.

use std::fs;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::{
    env::TestEnv,
    mock::{Answer, MockServer},
};

const KEY: &str = "sk-Live/4f9a+Zq7\"0123456789";

/// The value in the eight encodings in which it could leave.
fn encodings(value: &str) -> Vec<(&'static str, String)> {
    let core = |shift: usize| {
        let encoded = STANDARD.encode(format!("{}{value}", "x".repeat(shift)));
        // The characters that the value alone determines.
        let from = (shift * 8).div_ceil(6);
        let to = (shift + value.len()) * 8 / 6;
        encoded.get(from..to).unwrap().to_owned()
    };
    let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
    let url: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let json = Value::from(value).to_string();
    let utf16: String = value.chars().flat_map(|char| [char, '\0']).collect();
    vec![
        ("raw", value.to_owned()),
        ("base64", core(0)),
        ("base64+1", core(1)),
        ("base64+2", core(2)),
        ("hex", hex),
        ("url", url),
        ("json", json.trim_matches('"').to_owned()),
        ("utf-16", utf16),
    ]
}

fn leaks(text: &str) -> Vec<&'static str> {
    let unescaped = text.replace("\\u0000", "\0").replace("\\\"", "\"").replace("\\\\", "\\");
    encodings(KEY)
        .into_iter()
        .filter(|(_, encoded)| text.contains(encoded.as_str()) || unescaped.contains(encoded.as_str()))
        .map(|(name, _)| name)
        .collect()
}

/// Plants the key, in every encoding, wherever text can come from, and looks at all that leaves.
fn everything_that_leaves(key_variable: Option<&str>) -> String {
    let env = TestEnv::new();
    let planted: Vec<String> = encodings(KEY).into_iter().map(|(_, encoded)| encoded).collect();
    let planted = planted.join("\n");
    env.file("notes.txt", &planted);
    env.file(&format!("{}.txt", KEY.replace('/', "_")), "x");
    let call = |id: &str, name: &str, arguments: Value| json!({"id": id, "type": "function", "index": 0, "function": {"name": name, "arguments": arguments.to_string()}});
    let step = |call: Value| {
        Answer::json(
            &json!({"choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": planted, "tool_calls": [call]}}]}),
        )
    };
    let mock = MockServer::start(vec![
        step(call("c1", "read_file", json!({"path": "notes.txt"}))),
        step(call("c2", "read_file", json!({"path": format!("{KEY}.env")}))),
        step(call("c3", "search_text", json!({"pattern": KEY, "literal": true}))),
        step(call("c4", KEY, json!({"path": KEY}))),
        step(call("c5", "read_file", json!({"path": format!(".env.{KEY}")}))),
        Answer::sse(&[
            json!({"choices": [{"index": 0, "delta": {"content": planted.get(..9).unwrap()}}]}),
            json!({"choices": [{"index": 0, "delta": {"content": planted.get(9..).unwrap()}}]}),
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        ]),
        Answer::status(401, &[], &format!("bad key {KEY}")),
    ]);
    let base = mock.base_url();
    let mut all = String::new();
    for format in ["text", "json", "stream-json"] {
        let out = env.beside("out.json");
        let args = ["-v", "--output-format", format, "-o", out.to_str().unwrap(), "--label", KEY];
        let key = ["--api-key-env", "MY_CREDENTIAL_NAME"];
        let call = env.asking(&base, &[&args[..], &key].concat());
        let mut call = call.env("MY_CREDENTIAL_NAME", KEY);
        if let Some(name) = key_variable {
            call = call.env(name, KEY);
        }
        call.command.args(["-p", &format!("my key is {KEY}")]);
        let done = call.run();
        all.push_str(&done.stdout);
        all.push_str(&done.stderr);
        all.push_str(&fs::read_to_string(&out).unwrap_or_default());
    }
    all
}

#[test]
fn the_provider_s_key_never_leaves() {
    let all = everything_that_leaves(None);
    assert!(all.contains("[redacted:"), "something was planted and replaced");
    assert_eq!(leaks(&all), Vec::<&str>::new());
}

/// The search itself finds every encoding, so that the test above can fail.
#[test]
fn the_search_finds_each_encoding() {
    for (name, encoded) in encodings(KEY) {
        assert!(leaks(&format!("before {encoded} after")).contains(&name), "{name}");
        let escaped = Value::from(format!("before {encoded} after")).to_string();
        assert!(leaks(&escaped).contains(&name), "{name} in JSON");
    }
}

#[test]
fn variables_whose_names_say_secret_never_leave() {
    let env = TestEnv::new();
    env.file("notes.txt", KEY);
    let cassette = env.cassette(&[
        json!({"toolCalls": [{"name": "read_file", "arguments": {"path": "notes.txt"}}]}),
        json!({"text": format!("It says {KEY}.")}),
    ]);
    let args = ["run", "--json", "--cassette", cassette.to_str().unwrap(), "x"];
    let hidden = env.thcode(&args).env("DEPLOY_TOKEN", KEY).document();
    assert_eq!((hidden.code, leaks(&hidden.stdout).len()), (Some(0), 0), "{hidden:?}");
    assert!(hidden.stdout.contains("[redacted:DEPLOY_TOKEN]"));
    let shown = env.thcode(&args).document();
    assert!(leaks(&shown.stdout).contains(&"json"), "nobody said that it is a secret");
}

/// Every text and every field's name of a document.
fn words(value: &Value, found: &mut std::collections::BTreeSet<String>) {
    match value {
        Value::String(text) => drop(found.insert(text.clone())),
        Value::Array(items) => items.iter().for_each(|item| words(item, found)),
        Value::Object(map) => map.iter().for_each(|(name, item)| {
            found.insert(name.clone());
            words(item, found);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A secret that is a word of the contract changes no outcome and breaks no document.
#[test]
fn a_secret_that_is_a_word_of_the_contract_breaks_nothing() {
    let env = TestEnv::new();
    env.file("a.txt", "alpha");
    env.file(".env", "x");
    let call = |path: &str| json!({"toolCalls": [{"name": "read_file", "arguments": {"path": path}}]});
    let cassette = env.cassette(&[call("a.txt"), call(".env"), json!({"text": "fine"})]);
    let args = ["run", "--json", "--cassette", cassette.to_str().unwrap(), "x"];
    let plain = env.thcode(&args).document();
    let mut all = std::collections::BTreeSet::new();
    words(&plain.json(), &mut all);
    // A piece of every digest and id, soon or late.
    all.extend(
        plain.json()["policy"]["digest"]
            .as_str()
            .and_then(|digest| digest.get(10..16))
            .map(str::to_owned),
    );
    assert!(all.contains("succeeded") && all.contains("exitClass"), "{all:?}");
    for word in all.iter().filter(|word| word.len() >= 6) {
        let done = env.thcode(&args).env("X_TOKEN", word).document();
        assert_eq!(done.end(), plain.end(), "{word}");
    }
    let done = env.thcode(&["explain-exit", "3", "--json"]).env("X_TOKEN", "exit-code-unknown").run();
    assert_eq!(done.code, Some(2));
    let done =
        env.thcode(&["policy", "check", "preset:review", "--json"]).env("X_TOKEN", "preset").document();
    assert_eq!(done.code, Some(0));
}
