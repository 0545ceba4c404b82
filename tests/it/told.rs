//! What a tired reader is told: which calls failed, what a check said, what a provider said, and a next
//! step that leads somewhere.

use std::{fs, os::unix::fs::PermissionsExt as _};

use expect_test::expect;
use serde_json::{Value, json};

use crate::{
    env::{Call, Done, TestEnv, stable},
    mock::{Answer, MockServer},
};

const POLICY: &str = "version = 1\n[sandbox]\nmode = \"off\"\n[[rule]]\nid = \"w\"\neffect = \"allow\"\n\
    tools = [\"create_file\", \"edit_file\"]\nwhen.write = [\"**\"]\n";

fn call_with(env: &TestEnv, policy: &str, replies: &[Value], more: &[&str]) -> Call {
    let policy = env.outside("p.policy.toml", policy).display().to_string();
    let cassette = env.cassette(replies).display().to_string();
    let args = ["run", "--policy", &policy, "--cassette", &cassette];
    env.thcode(&[&args[..], more, &["the task"]].concat())
}

fn told(env: &TestEnv, replies: &[Value], more: &[&str]) -> Done {
    call_with(env, POLICY, replies, more).run()
}

fn next(done: &Done) -> &str {
    done.stdout.lines().rev().find_map(|line| line.strip_prefix("next: ")).unwrap()
}

fn edit(path: &str) -> Value {
    let edits = json!([{"oldText": "a", "newText": "b"}]);
    json!({"name": "edit_file", "arguments": {"path": path, "edits": edits}})
}

#[test]
fn a_call_that_failed_is_told_with_its_cause() {
    let env = TestEnv::new();
    for at in 0..6 {
        let path = env.file(&format!("ro{at}.txt"), "a");
        fs::set_permissions(path, fs::Permissions::from_mode(0o444)).unwrap();
    }
    env.file("a.txt", "a");
    let mut calls: Vec<Value> = (0..6).map(|at| edit(&format!("ro{at}.txt"))).collect();
    calls.push(json!({"name": "edit_fil", "arguments": {"path": "a.txt"}}));
    calls.push(edit("a.txt"));
    let replies = [json!({"toolCalls": calls}), json!({"text": "All is done."})];
    let done = told(&env, &replies, &[]);
    assert_eq!(done.code, Some(0), "what the model got over is history: {done:?}");
    expect![[r#"
        All is done.
        note: 6 changes of files were tried and could not be made here: edit_file ro0.txt [read-only-file], edit_file ro1.txt [read-only-file], edit_file ro2.txt [read-only-file] and 3 more
        note: the replies came from a cassette, not from a model
        edited: a.txt
        failed: edit_file ro0.txt: ro0.txt is read-only (mode 444) [read-only-file]
        failed: edit_file ro1.txt: ro1.txt is read-only (mode 444) [read-only-file]
        failed: edit_file ro2.txt: ro2.txt is read-only (mode 444) [read-only-file]
        failed: edit_file ro3.txt: ro3.txt is read-only (mode 444) [read-only-file]
        failed: edit_file ro4.txt: ro4.txt is read-only (mode 444) [read-only-file]
        failed: 2 more, see operations[] and events[] in the document (-o FILE)

        SUCCESS (0): the model gave its final answer; 7 of 8 tool calls failed
        changed: 1 edited; 8 tool calls, 0 denied, 7 failed, 2 of 8 model calls
        next: see which changes failed; if they belong to the task, mend their cause and run again
    "#]].assert_eq(&stable(&done.stdout, &env));
    let document = call_with(&env, POLICY, &replies, &["--json"]).document().json();
    let risks = document["residualRisks"].to_string();
    assert!(risks.contains("6 changes of files were tried") && risks.contains("and 3 more"), "{risks}");
}

#[test]
fn a_change_that_was_made_in_the_end_is_history() {
    let env = TestEnv::new();
    env.file("a.txt", "a");
    let wrong = json!([{"oldText": "x", "newText": "b"}]);
    let replies = [
        json!({"toolCalls": [{"name": "edit_file", "arguments": {"path": "a.txt", "edits": wrong}}]}),
        json!({"toolCalls": [edit("a.txt")]}),
        json!({"text": "done"}),
    ];
    let done = told(&env, &replies, &[]);
    assert!(done.stdout.contains("\nfailed: edit_file a.txt: "), "{done:?}");
    assert!(done.stdout.contains("1 of 2 tool calls failed"), "{done:?}");
    assert_eq!(next(&done), "nothing to do");
    assert!(!done.stdout.contains("could not be made"), "{done:?}");
}

#[test]
fn the_end_of_a_check_s_output_is_told() {
    let env = TestEnv::new();
    let script = "#!/bin/sh\nseq 1 30\necho '::error::FAILED test_x'\nexit 3\n";
    fs::set_permissions(env.file("t.sh", script), fs::Permissions::from_mode(0o755)).unwrap();
    let replies = [json!({"text": "fine"}), json!({"text": "still fine"})];
    let done = told(&env, &replies, &["--verify", "./t.sh", "--verify", "true"]);
    assert_eq!(done.code, Some(80));
    expect![[r#"
        still fine
        the check `./t.sh` doesn't hold: exit code 3
        note: commands ran without walls ([sandbox] mode = "off"): what they changed or sent isn't known
        note: the replies came from a cassette, not from a model
        verify: ./t.sh (after answer 1: exit code 3)
        verify: true (after answer 1: holds)
        verify: ./t.sh (after answer 2: exit code 3)
        verify: true (after answer 2: holds)
        the end of what `./t.sh` said:
          | 20
          | 21
          | 22
          | 23
          | 24
          | 25
          | 26
          | 27
          | 28
          | 29
          | 30
          | ::error::FAILED test_x

        EXPECTATION_FAILED (80): a check of the caller's doesn't hold
        changed: no file; 0 tool calls, 0 denied, 0 failed, 2 of 8 model calls
        next: read verification[] and text, mend the task or what it was asked to meet, and run again
    "#]]
    .assert_eq(&stable(&done.stdout, &env));
    let once = told(&env, &replies, &["--verify", "./t.sh", "--verify-rounds", "0"]);
    assert!(once.stdout.contains("verify: ./t.sh (exit code 3)\n"), "{once:?}");
}

#[test]
fn nobody_is_sent_to_the_policy_for_what_no_policy_allows() {
    let env = TestEnv::new();
    env.file(".env", "TOKEN=x");
    let read = json!({"toolCalls": [{"name": "read_file", "arguments": {"path": ".env"}}]});
    let sed = json!({"toolCalls": [{"name": "run_command", "arguments": {"argv": ["sed", "-i", "s/a/b/", "f"]}}]});
    for (call, what) in [(&read, "floor"), (&sed, "runs its operands")] {
        let failing = [call.clone(), json!({"text": "no"}), json!({"text": "no"})];
        let unmet = told(&env, &failing, &["--verify", "false"]);
        assert_eq!(unmet.code, Some(80), "{unmet:?}");
        let stopped = told(&env, &vec![call.clone(); 4], &[]);
        assert_eq!(stopped.code, Some(20), "{stopped:?}");
        let limited = told(&env, &[call.clone(), json!({"text": "no"})], &[]);
        assert_eq!(limited.code, Some(10), "{limited:?}");
        for done in [&unmet, &stopped, &limited] {
            let whole = format!("{}{}", done.stdout, done.stderr);
            assert!(!whole.contains("grant the call"), "{what}: {done:?}");
            assert!(!whole.contains("(1 times)"), "{what}: {done:?}");
        }
        assert!(next(&stopped).starts_with("nothing to grant"), "{what}: {stopped:?}");
        assert!(next(&limited).starts_with("nothing to grant"), "{what}: {limited:?}");
        assert!(next(&unmet).starts_with("read verification[]"), "{what}: {unmet:?}");
    }
    // What a policy can allow is still to be granted there.
    let delete = json!({"toolCalls": [{"name": "delete_file", "arguments": {"path": "f"}}]});
    let limited = told(&env, &[delete, json!({"text": "no"})], &[]);
    assert!(next(&limited).contains("grant the call in the policy"), "{limited:?}");
}

#[test]
fn every_way_out_of_a_turn_has_a_next_step() {
    let env = TestEnv::new();
    for (outcome, word) in
        [("cannot", "change the task"), ("needs-input", "put the answer into the task")]
    {
        let finish = json!({"outcome": outcome, "summary": "because"});
        let replies = [json!({"toolCalls": [{"name": "finish", "arguments": finish}]})];
        let done = call_with(&env, POLICY, &replies, &["--json"]).document();
        let action = done.json()["failure"]["recoveryActions"][0].to_string();
        assert!(action.contains(word), "{action}");
    }
}

fn asked(answer: Answer, more: &[&str]) -> Done {
    let env = TestEnv::new();
    let mock = MockServer::start(vec![answer]);
    env.asking(&mock.base_url(), &[&["--max-retries", "0", "x"][..], more].concat())
        .env("OPENAI_API_KEY", "sk-test-0123456789abcdef0123456789")
        .run()
}

#[test]
fn a_page_for_people_leads_to_the_base_url() {
    let done = asked(Answer::body(Some("text/html"), "<html>sign in</html>"), &[]);
    assert_eq!(done.code, Some(55));
    assert!(next(&done).starts_with("check that --base-url"), "{done:?}");
    let filtered = json!({"choices": [{"index": 0, "finish_reason": "content_filter", "message": {"content": ""}}]});
    let done = asked(Answer::json(&filtered), &[]);
    assert_eq!(done.code, Some(50));
    assert!(next(&done).starts_with("say the task in other words"), "{done:?}");
}

#[test]
fn what_a_provider_said_is_told_to_who_asks_and_to_nobody_else() {
    let long = "x".repeat(2_000);
    let message = format!(
        "Unsupported value:\n\u{1b}[31m'temperature'; your key sk-test-0123456789abcdef0123456789 {long}"
    );
    let body = json!({"error": {"message": message, "code": "unsupported_value"}}).to_string();
    let quiet = asked(Answer::status(400, &[], &body), &[]);
    let loud = asked(Answer::status(400, &[], &body), &["-v"]);
    for done in [&quiet, &loud] {
        assert_eq!(done.code, Some(50));
        assert!(!done.stdout.contains("Unsupported value"), "{done:?}");
        assert!(
            done.stdout.contains("\nor: with -v, standard error shows what the provider said\n"),
            "{done:?}"
        );
        assert!(!done.stderr.contains("sk-test-0123456789abcdef"), "{done:?}");
    }
    assert!(!quiet.stderr.contains("Unsupported value"), "{quiet:?}");
    let said = loud.stderr.lines().find(|line| line.contains("Unsupported value")).unwrap();
    assert!(said.contains("'temperature'") && !said.contains('\u{1b}') && said.len() < 700, "{said}");
    // In an answer of 200, in a stream, and where it isn't JSON at all.
    for answer in [
        Answer::json(&json!({"error": {"message": "Unsupported value"}})),
        Answer::sse(&[json!({"error": {"message": "Unsupported value"}})]),
        Answer::status(404, &[], "Unsupported value"),
    ] {
        let loud = asked(answer, &["-v"]);
        assert!(loud.stderr.contains("said: Unsupported value"), "{loud:?}");
    }
    let actions = |done: Done| done.json()["failure"]["recoveryActions"].to_string();
    assert!(actions(asked(Answer::status(400, &[], &body), &["--json"])).contains("with -v"));
    assert!(!actions(asked(Answer::status(400, &[], ""), &["--json"])).contains("with -v"));
}
