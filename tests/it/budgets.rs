//! Budgets, and model calls that are made again: each end has its class, and what was begun is brought to
//! its end.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    env::{Done, TestEnv},
    mock::{Answer, MockServer},
};

fn read(path: &str) -> Value {
    json!({"toolCalls": [{"name": "read_file", "arguments": {"path": path}}]})
}

fn replay(env: &TestEnv, replies: &[Value], more: &[&str]) -> Done {
    let cassette = env.cassette(replies).display().to_string();
    env.thcode(&[&["run", "--json", "--cassette", &cassette, "the task"][..], more].concat()).document()
}

fn against(env: &TestEnv, answers: Vec<Answer>, more: &[&str]) -> (Done, MockServer) {
    let mock = MockServer::start(answers);
    let base = mock.base_url();
    let provider =
        ["--provider", "custom", "--base-url", &base, "--model", "m", "--context-limit", "64000"];
    let done = env.thcode(&[&["run", "--json", "the task"][..], &provider, more].concat()).document();
    (done, mock)
}

/// A reply that makes a call and reports these tokens.
fn reported(input: u64, output: u64, path: &str) -> Answer {
    let arguments = json!({"path": path}).to_string();
    let call = json!({"id": "c", "type": "function", "function": {"name": "read_file", "arguments": arguments}});
    Answer::json(
        &json!({"choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": "", "tool_calls": [call]}}], "usage": {"prompt_tokens": input, "completion_tokens": output}}),
    )
}

fn end(done: &Done) -> (String, String, String, Option<i32>) {
    let (class, reason, cause) = done.end();
    (class, reason, cause, done.code)
}

fn exhausted(reason: &str, cause: &str) -> (String, String, String, Option<i32>) {
    ("BUDGET_EXHAUSTED".to_owned(), reason.to_owned(), cause.to_owned(), Some(40))
}

fn events(done: &Done, kind: &str) -> Vec<Value> {
    let events = done.json()["events"].as_array().unwrap().clone();
    events.into_iter().filter(|event| event["kind"] == kind).collect()
}

#[test]
fn tool_calls_run_out_and_finish_still_counts() {
    let env = TestEnv::new();
    env.file("a.txt", "alpha");
    let replies = [read("a.txt"), read("a.txt"), read("a.txt"), json!({"text": "done"})];
    let done = replay(&env, &replies, &["--max-tool-calls", "2"]);
    assert_eq!(end(&done), exhausted("tool-call-limit", "tool-call-limit"));
    let statuses = done.json()["operations"].to_string();
    assert_eq!(statuses.matches("\"succeeded\"").count(), 2);
    assert_eq!(statuses.matches("\"cancelled\"").count(), 1, "what is left undone is listed");
    assert_eq!(done.json()["budget"]["maxToolCalls"], 2);
    let finish =
        json!({"toolCalls": [{"name": "finish", "arguments": {"outcome": "done", "summary": "s"}}]});
    let done = replay(&env, &[read("a.txt"), read("a.txt"), finish], &["--max-tool-calls", "2"]);
    assert_eq!(done.end().0, "SUCCESS");
    let policy = env.outside("p.policy.toml", "version = 1\n[budget]\ntool_calls = 1\n");
    let done = replay(&env, &replies, &["--policy", policy.to_str().unwrap()]);
    assert_eq!(end(&done), exhausted("tool-call-limit", "tool-call-limit"));
}

#[test]
fn tokens_run_out_and_the_model_is_told_before() {
    let env = TestEnv::new();
    env.file("a.txt", "alpha");
    let answers = || {
        vec![
            reported(70, 20, "a.txt"),
            reported(5, 4, "a.txt"),
            reported(5, 4, "a.txt"),
            Answer::text("x"),
        ]
    };
    let (done, mock) = against(&env, answers(), &["--max-total-tokens", "108"]);
    assert_eq!(end(&done), exhausted("token-limit", "total-token-limit"));
    assert_eq!(mock.requests().len(), 3);
    let budget = &done.json()["budget"];
    assert_eq!((&budget["totalTokens"], &budget["estimated"]), (&json!(108), &json!(false)));
    let notices = |index: usize| {
        let sent = mock.requests()[index].json()["messages"].to_string();
        sent.matches("[budget notice] 83 % of the tokens").count()
    };
    assert_eq!(
        (notices(0), notices(1), notices(2)),
        (0, 1, 1),
        "told once, and it stays in the history"
    );
    assert_eq!(
        events(&done, "budget-notice"),
        [json!({"kind": "budget-notice", "budget": "total-tokens", "usedPercent": 83})]
    );
    let (done, mock) = against(&env, answers(), &["--max-total-tokens", "109"]);
    assert_eq!(done.end().0, "SUCCESS", "one token more and it goes on");
    assert_eq!(mock.requests().len(), 4);
}

#[test]
fn without_a_report_tokens_are_estimated() {
    let env = TestEnv::new();
    env.file("a.txt", "alpha");
    let replies = [read("a.txt"), json!({"text": "done"})];
    let done = replay(&env, &replies, &["--max-total-tokens", "10"]);
    assert_eq!(end(&done), exhausted("token-limit", "total-token-limit"));
    assert_eq!(done.json()["budget"]["estimated"], true);
    assert!(done.json()["failure"]["message"].as_str().unwrap().contains("(an estimate)"));
    assert_eq!(done.json()["usage"]["inputTokens"], Value::Null, "what was reported stays apart");
}

#[test]
fn time_runs_out_while_the_model_is_silent() {
    let env = TestEnv::new();
    let begun = Instant::now();
    let more = ["--max-wall-time", "600ms", "--heartbeat", "150ms"];
    let (done, _mock) = against(&env, vec![Answer::silent()], &more);
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(end(&done), exhausted("wall-time-limit", "wall-time-limit"));
    assert_eq!(done.json()["budget"]["maxWallTimeMs"], 600);
    let beats = done.stderr.matches("still waiting for the model").count();
    assert!((2..=4).contains(&beats), "{done:?}");
}

#[test]
fn time_runs_out_while_a_command_runs() {
    let env = TestEnv::new();
    let policy = "version = 1\n[sandbox]\nmode = \"off\"\n[budget]\nwall_time_ms = 700\n[[rule]]\nid = \"g\"\n\
                  effect = \"allow\"\ntools = [\"run_command\"]\nwhen.command = \"sleep 60\"\n";
    let policy = env.outside("p.policy.toml", policy).display().to_string();
    let call = json!({"toolCalls": [{"name": "run_command", "arguments": {"argv": ["sleep", "60"]}}]});
    let begun = Instant::now();
    let done = replay(&env, &[call, json!({"text": "done"})], &["--policy", &policy]);
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(end(&done), exhausted("wall-time-limit", "wall-time-limit"));
    let operation = &done.json()["operations"][0];
    assert_eq!(
        (&operation["status"], &operation["command"]["exitCode"]),
        (&json!("failed"), &Value::Null)
    );
    let again = replay(&env, &[json!({"text": "done"})], &["--policy", &policy]);
    assert_eq!(again.code, Some(0), "the command has its end in the journal");
}

#[test]
fn a_failed_model_call_is_made_again_and_told() {
    let env = TestEnv::new();
    let answers = vec![
        Answer::status(503, &[], ""),
        Answer::status(429, &[("Retry-After", "1")], "{}"),
        Answer::text("fine"),
    ];
    let begun = Instant::now();
    let (done, mock) = against(&env, answers, &[]);
    assert_eq!((done.end().0.as_str(), mock.requests().len()), ("SUCCESS", 3));
    assert!(begun.elapsed() > Duration::from_millis(1_250), "no sooner than it was asked for");
    let retries = events(&done, "retry");
    let causes: Vec<&str> = retries.iter().map(|event| event["causeCode"].as_str().unwrap()).collect();
    assert_eq!(causes, ["provider-server", "rate-limited"]);
    assert_eq!((&retries[0]["attempt"], &retries[1]["attempt"]), (&json!(2), &json!(3)));
    assert!(retries[1]["waitMs"].as_u64().unwrap() >= 1000);
    let document = done.json();
    assert_eq!(
        (&document["usage"]["retries"], &document["budget"]["iterations"]["used"]),
        (&json!(2), &json!(1))
    );
    assert!(done.stderr.contains("the model call failed (rate-limited); try 3 comes in"), "{done:?}");
    let bodies: BTreeSet<Vec<u8>> = mock.requests().into_iter().map(|request| request.body).collect();
    assert_eq!(bodies.len(), 1, "the same request, byte for byte");
}

#[test]
fn tries_are_bounded_and_only_made_where_they_may_help() {
    let env = TestEnv::new();
    let busy = || vec![Answer::status(503, &[], ""); 6];
    for (more, requests) in [(&["--max-retries", "0"][..], 1), (&["--max-retries", "2"], 3)] {
        let (done, mock) = against(&env, busy(), more);
        assert_eq!((done.code, mock.requests().len()), (Some(55), requests));
        let told = done.json()["failure"]["message"].as_str().unwrap().contains("(after 3 tries)");
        assert_eq!(told, requests == 3);
    }
    let (done, mock) = against(&env, vec![Answer::status(401, &[], "{}"); 3], &[]);
    assert_eq!((done.code, mock.requests().len()), (Some(50), 1));
    let begun = Instant::now();
    let late = Answer::status(429, &[("Retry-After", "600")], "{}");
    let (done, mock) = against(&env, vec![late; 3], &[]);
    assert_eq!(
        (done.code, mock.requests().len()),
        (Some(55), 1),
        "ten minutes are the engine's to wait"
    );
    assert_eq!(done.json()["failure"]["retryAfterMs"], 600_000);
    let (done, mock) = against(&env, busy(), &["--max-wall-time", "200ms"]);
    assert_eq!((done.code, mock.requests().len()), (Some(55), 1), "no wait beyond the turn's time");
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_reply_that_breaks_off_is_asked_for_again_and_nothing_of_it_is_acted_on() {
    let env = TestEnv::new();
    env.file("a.txt", "alpha");
    let delta = json!({"choices": [{"index": 0, "delta": {"content": "half", "tool_calls": [{"index": 0, "id": "c", "function": {"name": "read_file", "arguments": "{\"path\":\"a.txt\"}"}}]}}]});
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
    let cut = Answer::raw(format!("{head}data: {delta}\n\n").into_bytes());
    let (done, mock) = against(&env, vec![cut, Answer::text("whole")], &[]);
    assert_eq!((done.end().0.as_str(), mock.requests().len()), ("SUCCESS", 2));
    assert_eq!((&done.json()["text"], &done.json()["operations"]), (&json!("whole"), &json!([])));
    assert_eq!(events(&done, "retry")[0]["causeCode"], "malformed-response");
}

#[test]
fn what_is_tolerated_ends_with_zero_and_keeps_its_class() {
    let env = TestEnv::new();
    env.file("a.txt", "alpha");
    env.file(".env", "x");
    let over = |more: &[&str]| {
        let replies = [read("a.txt"), read("a.txt"), json!({"text": "done"})];
        replay(&env, &replies, &[&["--max-tool-calls", "1"][..], more].concat())
    };
    let done = over(&["--tolerate", "accepted-limitation,budget-exhausted"]);
    let document = done.json();
    assert_eq!(done.code, Some(0));
    assert_eq!((&document["exitClass"], &document["exitCode"]), (&json!("BUDGET_EXHAUSTED"), &json!(0)));
    assert_eq!(document["tolerated"], true);
    assert_eq!(document["failure"]["causeCode"], "tool-call-limit");
    let done = over(&["--tolerate", "accepted-limitation"]);
    assert_eq!((done.code, &done.json()["tolerated"]), (Some(40), &json!(false)));
    let denied =
        replay(&env, &[read(".env"), json!({"text": "x"})], &["--tolerate", "accepted-limitation"]);
    assert_eq!((denied.code, &denied.json()["tolerated"]), (Some(0), &json!(true)));
    for class in ["failed", "blocked", "provider-failed", "unknown-outcome", "cancelled", "usage"] {
        let done = env.thcode(&["run", "x", "--json", "--tolerate", class]).document();
        assert_eq!(done.code, Some(2), "{class} is nobody's to tolerate");
    }
}
