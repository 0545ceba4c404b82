//! Secrets that nobody named, planted wherever text can come from, and looked for in all that leaves and
//! all that is kept.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use serde_json::{Value, json};

use crate::{
    env::{Done, TestEnv, check},
    mock::{Answer, MockServer},
    redaction::leaks,
};

/// Where they come from.
const SOURCES: &[&str] = &[
    "Prompt", "Label", "File", "Path", "Called", "Written", "Said", "Error", "Variable", "Argument",
    "Answer",
];

/// A token of GitHub's shape that names its source.
fn canary(source: &str) -> String {
    let drawn = "7fA3c9E1b0D8a2F6c5B4e1A7d0C3f9E8x1Y2";
    format!("ghp_{source}{}", drawn.get(source.len()..).unwrap())
}

/// Every file's bytes, as text as far as they are.
fn readable(dir: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        text.push_str(&path.display().to_string());
        if path.is_dir() {
            text.push_str(&readable(&path));
        } else {
            text.push_str(&String::from_utf8_lossy(&fs::read(path).unwrap()));
        }
    }
    text
}

/// What left and what was kept: the places by name.
fn planted(fault: &str) -> Vec<(&'static str, String)> {
    let env = TestEnv::new();
    let policy = "version = 1\n[sandbox]\nmode = \"off\"\n[commands]\nenv_allow = [\"HARMLESS\"]\n[[rule]]\nid = \"w\"\neffect = \"allow\"\n\
        tools = [\"create_file\", \"edit_file\"]\nwhen.write = [\"**\"]\n[[rule]]\nid = \"c\"\n\
        effect = \"allow\"\ntools = [\"run_command\"]\nwhen.command = [\"./run.sh …\"]\n";
    let policy = env.outside("p.policy.toml", policy).display().to_string();
    let schema = env.outside("s.json", "{\"type\": \"object\"}").display().to_string();
    let script = env.file("run.sh", "#!/bin/sh\necho $HARMLESS $1; echo $1 >&2\n");
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
    env.file("notes.txt", format!("GH={}\n", canary("File")));
    env.file(&format!("{}.txt", canary("Path")), "x");
    let said = format!("it is {} or ", canary("Said"));
    let delta = |text: &str| json!({"choices": [{"index": 0, "delta": {"content": text}}]});
    let answer = json!({"note": canary("Answer"), "password": "hunter2x9", canary("Answer"): [1]});
    let (first, second) = said.split_at(20);
    let mock = MockServer::start(vec![
        Answer::calls(&[("read_file", json!({"path": "notes.txt"}))]),
        Answer::calls(&[("read_file", json!({"path": format!("{}.txt", canary("Path"))}))]),
        Answer::calls(&[("read_file", json!({"path": format!(".env.{}", canary("Called"))}))]),
        Answer::calls(&[("search_text", json!({"pattern": canary("Called"), "literal": true}))]),
        Answer::calls(&[(canary("Called").as_str(), json!({"path": "x"}))]),
        Answer::calls(&[("list_files", json!({"path": "."}))]),
        Answer::calls(&[("create_file", json!({"path": "new.txt", "content": canary("Written")}))]),
        Answer::calls(&[("run_command", json!({"argv": ["./run.sh", canary("Argument")]}))]),
        Answer::sse(&[
            delta(first),
            delta(second),
            delta("no."),
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        ]),
        Answer::sse(&[
            delta(&answer.to_string()),
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        ]),
        Answer::status(
            401,
            &[],
            &json!({"error": {"message": format!("bad key {}", canary("Error"))}}).to_string(),
        ),
    ]);
    let base = mock.base_url();
    let state = env.beside("state");
    let mut left = Vec::new();
    let mut run = |args: &[&str]| -> Done {
        let out = env.beside("out.json");
        let always = [
            "-v",
            "-o",
            out.to_str().unwrap(),
            "--policy",
            &policy,
            "--state-dir",
            state.to_str().unwrap(),
            "--label",
            &canary("Label"),
            "-p",
            &format!("use {}", canary("Prompt")),
        ];
        let call = env.asking(&base, &[&always[..], args].concat());
        let done = call.env("HARMLESS", canary("Variable")).env("THCODE_FAULT", fault).run();
        let document = fs::read_to_string(&out).unwrap();
        check(&serde_json::from_str::<Value>(&document).unwrap(), done.code);
        left.push(("-o", document));
        left.push(("standard output", done.stdout.clone()));
        left.push(("standard error", done.stderr.clone()));
        done
    };
    let first = run(&["--output-format", "stream-json"]);
    // Something was denied, and the turn went on to its end.
    assert_eq!(first.code, Some(40), "{first:?}");
    let second = run(&["--json", "--output-schema", &schema]);
    assert_eq!(
        second.json()["structuredOutput"].as_object().map(|map| map.len()),
        Some(3),
        "{second:?}"
    );
    let third = run(&["--output-format", "text", "--log-format", "json"]);
    assert_ne!(third.code, Some(0), "{third:?}");
    for verb in [&["session", "list"][..], &["recover"], &["rollback", "list"], &["store", "verify"]] {
        let args = [verb, &["--json", "--state-dir", state.to_str().unwrap()]].concat();
        let done = env.thcode(&args).env("THCODE_FAULT", fault).run();
        left.push(("what looks back", done.stdout + &done.stderr));
    }
    left.push(("the state directory", readable(&state)));
    left
}

/// Which canaries were found where.
fn found(left: &[(&'static str, String)]) -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    for source in SOURCES {
        for (place, text) in left {
            if !leaks(text, &canary(source)).is_empty() {
                found.push((*source, *place));
            }
        }
    }
    found.dedup();
    found
}

#[test]
fn no_canary_leaves_or_is_kept() {
    let left = planted("");
    assert_eq!(found(&left), []);
    let all: String = left.iter().map(|(_, text)| text.as_str()).collect();
    assert!(all.matches("[redacted:github-token]").count() > 20, "they were there");
    assert!(
        all.contains("\"password\":\"[redacted:password]\"")
            || all.contains("\"password\": \"[redacted:password]\"")
    );
    assert!(!all.contains("hunter2x9"), "only its name gives it away");
}

/// The control: the same search finds every one of them if shapes are off.
#[test]
#[cfg(feature = "fault-injection")]
fn without_shapes_every_canary_leaves() {
    let found = found(&planted("redact-without-shapes"));
    for source in SOURCES {
        assert!(found.iter().any(|(canary, _)| canary == source), "{source}: {found:?}");
    }
    for place in ["-o", "standard output", "standard error"] {
        assert!(found.iter().any(|(_, left)| *left == place), "{place}: {found:?}");
    }
}
