//! `thcode run` against real HTTP on loopback and against cassettes: every end has its class, its
//! stop reason and its document.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use thcode::contract::{CauseCode, turn::StopReason};

use crate::{
    env::{Done, TestEnv, finish, stable},
    mock::{Answer, MockServer},
};

/// Runs against a server that gives these answers.
fn against(env: &TestEnv, answers: Vec<Answer>, more: &[&str]) -> (Done, MockServer) {
    let mock = MockServer::start(answers);
    let args =
        [&["--json", "--stall-timeout", "700ms", "--max-retries", "0", "the task"][..], more].concat();
    let done = env.asking(&mock.base_url(), &args).document();
    (done, mock)
}

fn replay(env: &TestEnv, replies: &[Value], more: &[&str]) -> Done {
    let cassette = env.cassette(replies);
    env.thcode(
        &[&["run", "--json", "--cassette", cassette.to_str().unwrap(), "the task"][..], more].concat(),
    )
    .document()
}

fn call(name: &str, arguments: Value) -> Value {
    json!({"toolCalls": [{"name": name, "arguments": arguments}]})
}

fn statuses(document: &Value) -> Vec<String> {
    let operations = document["operations"].as_array().unwrap();
    operations.iter().map(|operation| operation["status"].as_str().unwrap().to_owned()).collect()
}

/// A streamed reply of one text.
fn text(text: &str) -> Answer {
    Answer::sse(&[
        json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": text}}]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        json!({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 3}}),
    ])
}

fn message(content: &str, calls: &[(&str, &str, &str)], finish: &str) -> Answer {
    let calls: Vec<Value> = calls
        .iter()
        .map(|(id, name, arguments)| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}))
        .collect();
    Answer::json(
        &json!({"choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": content, "tool_calls": calls}}], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}),
    )
}

/// The commands of the README's first chapter, as they stand there, in a clone.
#[test]
fn the_readme_s_first_commands() {
    let env = TestEnv::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let chapter = readme.split("\n## ").find(|chapter| chapter.starts_with("Try it\n")).unwrap();
    let blocks: Vec<&str> = chapter.split("```sh\n").skip(1).collect();
    let commands = |block: &&str| block.split("```").next().unwrap().to_owned();
    let script: String = blocks.iter().map(commands).collect();
    assert_eq!(script.matches("cargo run -q -- ").count(), 3, "{script}");
    let (script, _) = script.split_once("cargo install").unwrap();
    let script = script.replace("cargo run -q -- ", "thcode ").replace("cargo test", "");
    for path in ["fix.cassette.jsonl", "review.cassette.jsonl", "shop/cart.py", "shop/test_cart.py"] {
        env.file(&format!("examples/{path}"), fs::read(root.join("examples").join(path)).unwrap());
    }
    let binary = Path::new(env!("CARGO_BIN_EXE_thcode")).parent().unwrap().to_owned();
    let path = std::env::join_paths(
        std::iter::once(binary).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let clone = "git init -q . && git add . && git -c user.name=a -c user.email=a@b commit -q -m a";
    let done = finish(
        Command::new("sh")
            .args(["-c", &format!("set -e\n{clone}\n{script}\ngit status --short")])
            .current_dir(env.workspace())
            .env_clear()
            .env("HOME", env.home())
            .env("PATH", path.unwrap())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{done:?}");
    for told in [
        "edited: cart.py\ncreated: test_discount.py\n\nSUCCESS (0): the model gave its final answer\n\
         changed: 1 created, 1 edited; 4 tool calls, 0 denied, 0 failed, 3 of 50 model calls\n",
        "\n+    if total >= FREE_SHIPPING_FROM:\n",
        "\n4. test_cart.py has one test. Neither discounts nor the free-shipping border are covered.\n\
         note: the replies came from a cassette, not from a model\n\n\
         SUCCESS (0): the model gave its final answer\n\
         changed: no file; 4 tool calls, 0 denied, 0 failed, 3 of 8 model calls\nnext: nothing to do\n",
        "\n2 stores, 0 unreadable\n",
    ] {
        assert!(done.stdout.contains(told), "{told}\n{}", done.stdout);
    }
    assert!(done.stdout.ends_with("next: nothing to do\n"), "nothing is left changed: {done:?}");
}

#[test]
fn several_calls_in_a_reply_run_in_order_each_decided_by_itself() {
    let env = TestEnv::new();
    env.file("a.txt", "alpha\n");
    env.file("b.txt", "beta\n");
    env.file(".env", "TOKEN=1");
    let calls = [
        ("c1", "read_file", r#"{"path":"a.txt"}"#),
        ("c2", "read_file", r#"{"path":".env"}"#),
        ("c3", "read_file", r#"{"path":"missing.txt"}"#),
        ("c4", "search_text", r#"{"pattern":"bet."}"#),
    ];
    let (done, mock) = against(&env, vec![message("", &calls, "tool_calls"), text("Done.")], &[]);
    assert_eq!(
        done.end(),
        ("ACCEPTED_LIMITATION".to_owned(), "final-answer".to_owned(), "-".to_owned())
    );
    let document = done.json();
    assert_eq!(statuses(&document), ["succeeded", "blocked", "failed", "succeeded"]);
    assert_eq!(document["usage"]["inputTokens"], 18);
    let sent: Value = serde_json::from_slice(&mock.requests()[1].body).unwrap();
    let roles: Vec<&str> = sent["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool", "tool", "tool"]);
    let ids: Vec<&str> = sent["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|message| message["tool_call_id"].as_str())
        .collect();
    assert_eq!(ids, ["c1", "c2", "c3", "c4"]);
    assert_eq!(sent["messages"][1]["content"], "the task", "the task stays");
    let answers: Vec<&str> = sent["messages"].as_array().unwrap()[3..]
        .iter()
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    assert!(answers[0].contains("alpha"), "{answers:?}");
    assert!(answers[1].starts_with("[tool denied]") && !answers[1].contains("TOKEN=1"), "{answers:?}");
    assert!(answers[2].starts_with("[tool failed]"), "{answers:?}");
    assert!(answers[3].contains("b.txt:1:beta"), "{answers:?}");
}

#[test]
fn what_can_not_be_read_is_malformed_told_and_not_a_denial() {
    let env = TestEnv::new();
    env.file("a.txt", "alpha");
    let calls = [
        ("c1", "read_file", "{\"path\": \"a.txt\""),
        ("c2", "read_file", r#"{"path":"a.txt","path":"b.txt"}"#),
        ("c3", "read_file", r#"{"path":7}"#),
        ("c4", "read_file", r#"{"path":"a.txt","force":true}"#),
        ("c5", "write_everything", "{}"),
        ("c6", "Read_File", r#"{"path":"a.txt"}"#),
        ("c7", "read_file", ""),
        ("c8", "run_everything", r#"{"path":"x"}"#),
        ("c9", "finish", r#"{"outcome":"splendid","summary":"x"}"#),
    ];
    let (done, _) = against(&env, vec![message("", &calls, "tool_calls"), text("Done.")], &[]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let document = done.json();
    assert_eq!(statuses(&document), ["malformed"; 9]);
    assert_eq!(document["denials"], json!([]));
    for result in
        document["history"].as_array().unwrap().iter().filter(|message| message["role"] == "tool")
    {
        assert!(result["content"].as_str().unwrap().starts_with("[tool malformed] "), "{result}");
    }
}

#[test]
fn every_failure_of_a_provider_has_its_end() {
    let line = |bytes: usize| {
        let delta = json!({"choices": [{"index": 0, "delta": {"content": "x".repeat(bytes)}}]});
        format!(
            "data: {delta}\n\ndata: {}\n\ndata: [DONE]\n\n",
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        )
    };
    let stream = |body: &[u8]| {
        let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
        Answer::raw([&head[..], body].concat())
    };
    let whole = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"fine\"},\"finish_reason\":\"stop\"}]}";
    let cases: Vec<(&str, Answer, &str, &str, &str)> = vec![
        ("401", Answer::status(401, &[], "{}"), "PROVIDER_FAILED", "provider-failed", "provider-auth"),
        ("403", Answer::status(403, &[], "{}"), "PROVIDER_FAILED", "provider-failed", "provider-auth"),
        ("400", Answer::status(400, &[], "{}"), "PROVIDER_FAILED", "provider-failed", "provider-client"),
        ("404", Answer::status(404, &[], "{}"), "PROVIDER_FAILED", "provider-failed", "provider-client"),
        (
            "307",
            Answer::status(307, &[("Location", "https://example.invalid/")], ""),
            "PROVIDER_FAILED",
            "provider-failed",
            "provider-undocumented",
        ),
        (
            "429",
            Answer::status(429, &[("Retry-After", "7")], "{}"),
            "PROVIDER_UNAVAILABLE",
            "provider-unavailable",
            "rate-limited",
        ),
        (
            "500",
            Answer::status(500, &[], "oops"),
            "PROVIDER_UNAVAILABLE",
            "provider-unavailable",
            "provider-server",
        ),
        (
            "503",
            Answer::status(503, &[], ""),
            "PROVIDER_UNAVAILABLE",
            "provider-unavailable",
            "provider-server",
        ),
        (
            "long",
            Answer::status(400, &[], r#"{"error":{"code":"context_length_exceeded"}}"#),
            "PROVIDER_FAILED",
            "context-blocked",
            "context-overflow",
        ),
        ("silence", Answer::silent(), "PROVIDER_UNAVAILABLE", "stalled", "provider-stalled"),
        (
            "garbage",
            stream(b"\x00\xff garbage\n\n\n:::\ndata: {nonsense\n\n"),
            "PROVIDER_UNAVAILABLE",
            "malformed-response",
            "malformed-response",
        ),
        (
            "not sse",
            Answer::raw(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<html>hello"
                    .to_vec(),
            ),
            "PROVIDER_UNAVAILABLE",
            "malformed-response",
            "malformed-response",
        ),
        (
            "cut",
            stream(b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"half\"}}]}\n\n"),
            "PROVIDER_UNAVAILABLE",
            "malformed-response",
            "malformed-response",
        ),
        (
            "line over 1 MiB",
            stream(line(1 << 20).as_bytes()),
            "PROVIDER_UNAVAILABLE",
            "malformed-response",
            "malformed-response",
        ),
        (
            "error in stream",
            stream(b"data: {\"error\":{\"message\":\"x\",\"type\":\"server_error\"}}\n\n"),
            "PROVIDER_UNAVAILABLE",
            "provider-unavailable",
            "provider-server",
        ),
        ("empty", message("", &[], "stop"), "PROVIDER_UNAVAILABLE", "empty-answer", "empty-answer"),
        ("blank", message(" \n ", &[], "stop"), "PROVIDER_UNAVAILABLE", "empty-answer", "empty-answer"),
        (
            "length",
            message("half a", &[], "length"),
            "BUDGET_EXHAUSTED",
            "token-limit",
            "output-token-limit",
        ),
        (
            "length in a call",
            message("", &[("c", "read_file", "{\"pa")], "length"),
            "BUDGET_EXHAUSTED",
            "token-limit",
            "output-token-limit",
        ),
        (
            "filtered",
            message("", &[], "content_filter"),
            "PROVIDER_FAILED",
            "provider-failed",
            "content-filtered",
        ),
        (
            "made up",
            message("x", &[], "because"),
            "PROVIDER_FAILED",
            "provider-failed",
            "provider-undocumented",
        ),
        ("bom", stream(format!("\u{feff}{whole}\n\n").as_bytes()), "SUCCESS", "final-answer", "-"),
        (
            "cr",
            stream(format!("{whole}\r\rdata: [DONE]\r\r").as_bytes()),
            "SUCCESS",
            "final-answer",
            "-",
        ),
        ("no done, no blank line", stream(whole.as_bytes()), "SUCCESS", "final-answer", "-"),
        (
            "line of almost 1 MiB",
            stream(line((1 << 20) - 200).as_bytes()),
            "SUCCESS",
            "final-answer",
            "-",
        ),
    ];
    for (name, answer, class, stop, cause) in cases {
        let env = TestEnv::new();
        env.file("kept.txt", "kept");
        let before = env.tree();
        let (done, _mock) = against(&env, vec![answer], &[]);
        assert_eq!(
            done.end(),
            (class.to_owned(), stop.to_owned(), cause.to_owned()),
            "{name}: {done:?}"
        );
        assert_eq!(env.tree(), before, "{name}");
        let events = done.json()["events"].as_array().unwrap().clone();
        assert_eq!(events.last().unwrap()["kind"], "text", "{name}: the last event says why");
        let failure = &done.json()["failure"];
        if failure["scope"] == "provider" && !matches!(name, "length" | "length in a call" | "filtered")
        {
            assert!(
                failure["message"].as_str().unwrap().contains(" (model m at 127.0.0.1:"),
                "{failure}"
            );
            assert_ne!(failure["recoveryActions"], json!([]), "{name}: a next step is told");
        }
        if name == "429" {
            assert_eq!(done.json()["failure"]["retryAfterMs"], 7000);
        }
    }
}

#[test]
fn nobody_there_is_unavailable() {
    let env = TestEnv::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let base = format!("http://127.0.0.1:{port}/v1");
    let done = env.asking(&base, &["--json", "x"]).document();
    let end = (
        "PROVIDER_UNAVAILABLE".to_owned(),
        "provider-unavailable".to_owned(),
        "provider-network".to_owned(),
    );
    assert_eq!(done.end(), end);
}

#[test]
fn iterations_run_out() {
    let env = TestEnv::new();
    env.file("a.txt", "x");
    let again = call("read_file", json!({"path": "a.txt"}));
    let done = replay(&env, &vec![again.clone(); 10], &[]);
    assert_eq!(
        done.end(),
        ("BUDGET_EXHAUSTED".to_owned(), "iteration-limit".to_owned(), "iteration-limit".to_owned())
    );
    assert_eq!(done.json()["budget"]["iterations"], json!({"used": 8, "limit": 8}));
    let done = replay(&env, &vec![again; 10], &["--max-turns", "2"]);
    assert_eq!(done.json()["budget"]["iterations"], json!({"used": 2, "limit": 2}));
}

#[test]
fn finish_ends_the_turn_with_its_outcome() {
    let env = TestEnv::new();
    for (outcome, class, stop) in [
        ("done", "SUCCESS", "final-answer"),
        ("nothing-to-do", "SUCCESS", "final-answer"),
        ("cannot", "EXPECTATION_FAILED", "cannot"),
        ("needs-input", "EXPECTATION_FAILED", "needs-input"),
    ] {
        let finish = json!({"toolCalls": [
            {"name": "finish", "arguments": {"outcome": outcome, "summary": "the summary"}},
            {"name": "read_file", "arguments": {"path": "a"}},
        ]});
        let done = replay(&env, &[finish, json!({"text": "never asked"})], &[]);
        assert_eq!((done.end().0.as_str(), done.end().1.as_str()), (class, stop));
        assert_eq!(done.json()["text"], "the summary");
        assert_eq!(statuses(&done.json()), ["succeeded", "cancelled"]);
    }
}

#[test]
fn a_call_that_is_denied_three_times_stops_the_turn() {
    let env = TestEnv::new();
    env.file(".env", "x");
    let denied = call("read_file", json!({"path": ".env"}));
    let done = replay(&env, &vec![denied; 5], &[]);
    assert_eq!(done.end(), ("BLOCKED".to_owned(), "denied-stop".to_owned(), "denied-stop".to_owned()));
    assert_eq!(done.json()["denials"][0]["count"], 3);
    assert!(done.stderr.contains("denied: read_file .env (3 times)"), "{done:?}");
}

#[test]
fn the_policy_says_what_a_denial_means() {
    let env = TestEnv::new();
    env.file(".env", "x");
    env.file("asked.txt", "x");
    let rule = "[[rule]]\nid = \"ask\"\neffect = \"ask\"\ntools = [\"read_file\"]\nreason = \"asked\"\nwhen.read = [\"asked.txt\"]\n";
    for (setting, path, class) in [
        ("", ".env", "ACCEPTED_LIMITATION"),
        ("on_denial = \"by-expectation\"", ".env", "ACCEPTED_LIMITATION"),
        ("on_denial = \"fail\"", ".env", "ACCEPTED_LIMITATION"),
        ("on_denial = \"ignore\"", ".env", "SUCCESS"),
        ("on_denial = \"stop\"", ".env", "BLOCKED"),
        ("", "asked.txt", "ACCEPTED_LIMITATION"),
        ("engine.ask_means = \"stop\"", "asked.txt", "BLOCKED"),
        ("engine.ask_means = \"stop\"", ".env", "ACCEPTED_LIMITATION"),
    ] {
        let policy = env.outside("p.policy.toml", format!("version = 1\n{setting}\n{rule}"));
        let replies = [call("read_file", json!({"path": path})), json!({"text": "done"})];
        let done = replay(&env, &replies, &["--policy", policy.to_str().unwrap()]);
        assert_eq!(done.end().0, class, "{setting} {path}: {done:?}");
        assert_eq!(done.json()["denials"].as_array().unwrap().len(), 1, "{setting} {path}");
        let asked = done.json()["events"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|event| event["kind"] == "ask")
            .count();
        assert_eq!(asked, usize::from(path == "asked.txt"));
    }
}

/// What is denied in a read is denied in every other way of reading.
#[test]
fn searches_and_lists_tell_nothing_that_a_read_would_not() {
    let env = TestEnv::new();
    for (path, text) in [
        ("src/a.rs", "needle public"),
        ("private/b.rs", "needle private"),
        (".env", "needle env"),
        (".git/config", "needle git"),
        ("keys/server.pem", "needle pem"),
    ] {
        env.file(path, text);
    }
    std::os::unix::fs::symlink("/etc", env.workspace().join("etc")).unwrap();
    std::os::unix::fs::symlink("private", env.workspace().join("alias")).unwrap();
    let policy = env.outside(
        "p.policy.toml",
        "version = 1\n[[rule]]\nid = \"private\"\neffect = \"deny\"\ntools = [\"read_file\", \"list_files\", \"search_text\"]\nreason = \"private\"\nwhen.read = [\"private/**\"]\n",
    );
    let replies = [
        call("search_text", json!({"pattern": "needle"})),
        call("list_files", json!({"path": "."})),
        call("list_files", json!({"path": "private"})),
        call("list_files", json!({"path": "alias"})),
        call("read_file", json!({"path": "alias/b.rs"})),
        call("search_text", json!({"pattern": "needle", "path": "PRIVATE/../private"})),
        call("list_files", json!({"path": "etc"})),
        json!({"text": "done"}),
    ];
    let done = replay(&env, &replies, &["--policy", policy.to_str().unwrap()]);
    let document = done.json();
    assert_eq!(
        statuses(&document),
        ["succeeded", "succeeded", "blocked", "blocked", "blocked", "blocked", "blocked"]
    );
    let told: Vec<&str> = document["history"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    assert!(told[0].contains("src/a.rs:1:needle public"), "{told:?}");
    for hidden in ["needle private", "needle env", "needle git", "needle pem", "b.rs"] {
        assert!(!told.iter().any(|text| text.contains(hidden)), "{hidden}: {told:?}");
    }
    assert!(told[0].contains("denied"), "what is left out is counted: {}", told[0]);
    assert!(told[1].contains("etc@"), "a link is named, not followed: {}", told[1]);
}

#[test]
fn a_replay_gives_the_same_document_but_for_what_is_declared_to_vary() {
    let env = TestEnv::new();
    env.file("a.txt", "alpha");
    let replies = [call("read_file", json!({"path": "a.txt"})), json!({"text": "It says alpha."})];
    let first = replay(&env, &replies, &[]);
    let second = replay(&env, &replies, &[]);
    assert_eq!(stable(&first.stdout, &env), stable(&second.stdout, &env));
    assert_ne!(first.stdout, second.stdout, "ids and times do vary");
}

#[test]
fn no_provider_is_never_a_silent_choice() {
    let env = TestEnv::new();
    let done = env.thcode(&["run", "--json", "x"]).env("OPENAI_API_KEY", "sk-something-long").document();
    assert_eq!((done.code, done.end().2.as_str()), (Some(2), "provider-missing"));
    let action = done.json()["failure"]["recoveryActions"][0].as_str().unwrap().to_owned();
    assert!(
        action.contains("openai (OPENAI_API_KEY is set)")
            && action.contains("typhoon (TYPHOON_API_KEY is not set)"),
        "{action}"
    );
    assert!(!done.stdout.contains("sk-something"), "names only");
}

/// Every cause code of the contract is reached by a command line. What only a build with faults on
/// demand can reach is left to `cli.rs`.
#[test]
fn every_cause_is_reached() {
    let env = TestEnv::new();
    env.file("a.txt", "x");
    env.file(".env", "x");
    let p = |path: std::path::PathBuf| path.display().to_string();
    let json = p(env.outside("x.json", "{}"));
    let torn = p(env.outside("torn.json", "{"));
    let latin = p(env.outside("latin", b"\xff"));
    let big = p(env.outside("big", "x".repeat(11 << 20)));
    let broken = p(env.outside("broken.toml", "x"));
    let good = p(env.outside("good.toml", "version = 1\n[[rule]]\nid = \"r\"\neffect = \"deny\"\ntools = [\"edit_file\"]\nreason = \"x\"\nwhen.write = [\"x\"]\n"));
    let in_tree = p(env.file("grant.toml", "version = 1\n[[rule]]\nid = \"r\"\neffect = \"allow\"\ntools = [\"edit_file\"]\nwhen.write = [\"x\"]\n"));
    Command::new("git").args(["init", "-q"]).current_dir(env.workspace()).status().unwrap();
    let finish = |outcome: &str| call("finish", json!({"outcome": outcome, "summary": "s"}));
    let error = |kind: &str| json!({"error": {"kind": kind, "message": "asked for"}});
    let digest = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
    let mut reached: BTreeSet<String> = BTreeSet::new();
    let mut see = |done: Done| {
        let cause = match serde_json::from_str::<Value>(&done.stdout) {
            Ok(document) => document["failure"]["causeCode"].as_str().unwrap_or_default().to_owned(),
            // A verb whose product is a text tells its failure in one line of standard error.
            Err(_) => done
                .stderr
                .split_whitespace()
                .nth(2)
                .unwrap_or_default()
                .trim_end_matches(':')
                .to_owned(),
        };
        reached.insert(cause);
    };
    let mut verb = |args: &[&str]| see(env.thcode(&[args, &["--json"]].concat()).run());
    verb(&["run", "--nonsense"]);
    verb(&["schema", "print", "nonesuch"]);
    verb(&["explain-exit", "3"]);
    verb(&["schema", "validate", "failure", &torn]);
    verb(&["schema", "validate", "failure", &json]);
    verb(&["schema", "validate", "failure", "/no/such"]);
    verb(&["run", "x", "-C", "/"]);
    verb(&["run", "x", "--policy", &broken]);
    verb(&["run", "x", "--policy", "/no/such"]);
    verb(&["run", "x", "--policy", "grant.toml"]);
    verb(&["run", "x", "--policy", &good, "--policy-digest", digest]);
    verb(&["run", "x", "--policy", "preset:none"]);
    verb(&["run", "x", "--policy", "git:none:x"]);
    verb(&["policy", "explain", "--tool", "read_file", "--input", r#"{"path":".env"}"#]);
    verb(&["doctor", "-C", "/"]);
    verb(&["run", "x"]);
    verb(&["run", "x", "--provider", "none"]);
    verb(&["run", "x", "--provider", "ollama"]);
    verb(&["run", "x", "--provider", "openai", "--base-url", "http://example.invalid/v1"]);
    verb(&["run", "x", "--cassette", &json]);
    verb(&["run", "x", "--provider", "openai"]);
    verb(&["run", "x", "--cassette", &latin, "-o", "/dev/null"]);
    drop((in_tree, verb));
    let cassette = env.cassette(&[json!({"text": "x"})]).display().to_string();
    let args = ["run", "--json", "--cassette", &cassette];
    let prompted = |more: &[&str]| env.thcode(&[&args[..], more].concat());
    see(prompted(&[]).run());
    see(prompted(&[""]).run());
    see(prompted(&["-f", &big]).run());
    see(prompted(&["-f", &latin]).run());
    let mut silent = prompted(&["-", "--stdin-timeout", "200ms"]);
    silent.command.stdin(std::process::Stdio::piped());
    let mut child = silent.start();
    let held = child.stdin.take();
    see(crate::env::finish(child));
    drop(held);
    see(env
        .thcode(&["run", "--json", "x", "--provider", "openai", "--model", "gpt-4.1"])
        .env("OPENAI_API_KEY", "two\nlines")
        .run());
    for kind in [
        "rate-limit",
        "server",
        "network",
        "protocol",
        "stall",
        "empty",
        "auth",
        "client",
        "context-overflow",
        "unknown",
        "cassette-mismatch",
    ] {
        see(replay(&env, &[error(kind)], &[]));
    }
    see(replay(&env, &[], &[]));
    see(replay(&env, &[json!({"text": "x", "requestDigest": digest})], &[]));
    see(replay(&env, &[json!({"text": "x", "finish": "length"})], &[]));
    see(replay(&env, &[json!({"text": "x", "finish": "content-filter"})], &[]));
    see(replay(&env, &[finish("cannot")], &[]));
    see(replay(&env, &[finish("needs-input")], &[]));
    see(replay(&env, &vec![call("read_file", json!({"path": "a.txt"})); 9], &[]));
    see(replay(&env, &vec![call("read_file", json!({"path": ".env"})); 9], &[]));
    let off = p(env.outside("off.toml", "version = 1\nsandbox.mode = \"off\"\n"));
    see(replay(&env, &[json!({"text": "x"})], &["--verify", "true"]));
    let check = ["--policy", &off, "--verify", "false", "--verify-rounds", "0"];
    see(replay(&env, &[json!({"text": "x"})], &check));
    see(replay(&env, &[json!({"text": "x"})], &["--expect-changes", "some"]));
    see(replay(&env, &vec![json!({"text": "x"}); 2], &["--output-schema", &json]));
    see(replay(&env, &[], &["--output-schema", &torn]));
    let reading = || vec![call("read_file", json!({"path": "a.txt"})); 3];
    see(replay(&env, &reading(), &["--max-tool-calls", "1"]));
    see(replay(&env, &reading(), &["--max-total-tokens", "1"]));
    let slow = ["--policy", &off, "--verify", "sleep 30", "--max-wall-time", "300ms"];
    see(replay(&env, &[json!({"text": "x"})], &slow));
    let mut call = env.thcode(&[&args[..], &["x", "-o", env.beside("full").to_str().unwrap()]].concat());
    call.command.stdout(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    call.run();
    let kept: Value = serde_json::from_str(&fs::read_to_string(env.beside("full")).unwrap()).unwrap();
    reached.insert(kept["failure"]["causeCode"].as_str().unwrap().to_owned());
    // What a killed run leaves where an earlier document stood.
    let killed = env.outside("killed.json", "{}");
    let mut call = prompted(&["-", "-o", killed.to_str().unwrap()]);
    call.command.stdin(std::process::Stdio::piped());
    let mut child = call.start();
    std::thread::sleep(std::time::Duration::from_millis(500));
    child.kill().unwrap();
    child.wait().unwrap();
    let kept: Value = serde_json::from_str(&fs::read_to_string(&killed).unwrap()).unwrap();
    crate::env::check(&kept, Some(70));
    reached.insert(kept["failure"]["causeCode"].as_str().unwrap().to_owned());
    let mut call = prompted(&["-"]);
    call.command.stdin(std::process::Stdio::piped());
    let mut child = call.start();
    let held = child.stdin.take();
    std::thread::sleep(std::time::Duration::from_millis(500));
    Command::new("kill").arg(child.id().to_string()).status().unwrap();
    reached.insert(crate::env::finish(child).end().2);
    drop(held);

    reached.extend(crate::state::causes());

    reached.extend(
        crate::vault::causes()
            .into_iter()
            .chain(crate::recover::causes())
            .chain(crate::rollback::causes())
            .chain(crate::apply::causes()),
    );
    let mut few = Command::new("sh");
    few.args(["-c", "ulimit -n 5; exec \"$0\" run --json x", env!("CARGO_BIN_EXE_thcode")]);
    few.stdout(std::process::Stdio::piped());
    reached.insert(crate::env::finish(few.spawn().unwrap()).end().2);

    let on_demand = [CauseCode::InternalError, CauseCode::DocumentInvalid];
    let missing: Vec<&str> = CauseCode::ALL
        .iter()
        .filter(|code| !on_demand.contains(code))
        .filter(|code| !reached.contains(code.token()))
        .map(|code| code.token())
        .collect();
    assert_eq!(missing, Vec::<&str>::new(), "reached: {reached:?}");
}

/// The table of stop reasons is total: each has a status and a class, and each is told in text.
#[test]
fn every_stop_reason_has_a_class() {
    let mut classes = BTreeSet::new();
    for reason in StopReason::ALL {
        classes.insert(reason.exit_class().token());
        let token = serde_json::to_value(reason).unwrap();
        assert!(token.is_string());
    }
    let wanted = [
        "BLOCKED",
        "BUDGET_EXHAUSTED",
        "BUSY",
        "CANCELLED",
        "EXPECTATION_FAILED",
        "PROVIDER_FAILED",
        "PROVIDER_UNAVAILABLE",
        "RECOVERY_REQUIRED",
        "SUCCESS",
    ];
    assert_eq!(classes.into_iter().collect::<Vec<_>>(), wanted);
}

/// Headers whose values are secrets, and fields of the request; neither can take the place of what
/// thcode sends itself, and no value of a header is ever told.
#[test]
fn more_headers_and_fields_are_sent_and_told_to_nobody() {
    let env = TestEnv::new();
    let mock = MockServer::start(vec![Answer::text("sesame-4711 is what it was"), Answer::text("x")]);
    let base = mock.base_url();
    let call = |more: &[&str]| {
        let args = [&["--json", "the task"][..], more].concat();
        env.asking(&base, &args).env("TENANT", "sesame-4711")
    };
    let sent = ["--header", "X-Tenant=env:TENANT", "--param", "temperature=0", "--param", "user=ci"];
    let done = call(&sent).document();
    assert_eq!(done.code, Some(0), "{done:?}");
    let request = &mock.requests()[0];
    assert_eq!(request.header("x-tenant"), Some("sesame-4711"));
    assert_eq!((&request.json()["temperature"], &request.json()["user"]), (&json!(0), &json!("ci")));
    assert!(!format!("{done:?}").contains("sesame"), "{done:?}");
    for wrong in [
        ["--param", "model=other"],
        ["--param", "stream=false"],
        ["--param", "temperature"],
        ["--header", "X-Tenant=sesame-4711"],
        ["--header", "Authorization=env:TENANT"],
        ["--header", "X Y=env:TENANT"],
        ["--header", "X-Tenant=env:NONESUCH"],
    ] {
        let refused = call(&wrong).document();
        assert_eq!(refused.end().2, "bad-argument", "{wrong:?}: {refused:?}");
        assert!(!format!("{refused:?}").contains("sesame"), "{refused:?}");
    }
    assert_eq!(mock.requests().len(), 1, "nothing that is wrong is sent");
}
