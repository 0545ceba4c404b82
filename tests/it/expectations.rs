//! Does the work hold? What the caller asked for is looked at after the final answer, told to the model
//! where it doesn't hold, and decides the class.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::{
    env::{Call, Done, TestEnv, check, finish},
    mock::{Answer, MockServer},
};

const POLICY: &str = "version = 1\n[sandbox]\nmode = \"off\"\n[[rule]]\nid = \"w\"\neffect = \"allow\"\n\
    tools = [\"create_file\", \"edit_file\"]\nwhen.write = [\"**\"]\n";

fn call_with(env: &TestEnv, policy: &str, replies: &[Value], more: &[&str]) -> Call {
    let policy = env.outside("p.policy.toml", policy).display().to_string();
    let cassette = env.cassette(replies).display().to_string();
    let state = env.beside("state").display().to_string();
    let args = ["run", "--json", "--policy", &policy, "--state-dir", &state, "--cassette", &cassette];
    env.thcode(&[&args[..], more, &["the task"]].concat())
}

fn run(env: &TestEnv, replies: &[Value], more: &[&str]) -> Done {
    call_with(env, POLICY, replies, more).document()
}

fn create(path: &str) -> Value {
    json!({"toolCalls": [{"name": "create_file", "arguments": {"path": path, "content": "x"}}]})
}

fn read(path: &str) -> Value {
    json!({"toolCalls": [{"name": "read_file", "arguments": {"path": path}}]})
}

fn text(text: &str) -> Value {
    json!({"text": text})
}

fn end(done: &Done) -> (String, String, Option<i32>) {
    let (class, reason, _) = done.end();
    (class, reason, done.code)
}

fn success() -> (String, String, Option<i32>) {
    ("SUCCESS".to_owned(), "final-answer".to_owned(), Some(0))
}

fn unmet(reason: &str) -> (String, String, Option<i32>) {
    ("EXPECTATION_FAILED".to_owned(), reason.to_owned(), Some(80))
}

/// What the model was told by the loop, beside the task.
fn told(done: &Done) -> Vec<String> {
    let history = done.json()["history"].as_array().unwrap().clone();
    let users = history.iter().filter(|message| message["role"] == "user").skip(1);
    users.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_check_that_holds_vouches_for_the_work() {
    let env = TestEnv::new();
    env.file("a.txt", "alpha");
    let done = run(&env, &[text("fine")], &["--verify", "cat a.txt", "--verify", "test -e a.txt"]);
    assert_eq!(end(&done), success());
    let checks = &done.json()["verification"];
    assert_eq!(checks.as_array().unwrap().len(), 2);
    assert_eq!(checks[0]["argv"], json!(["cat", "a.txt"]));
    assert_eq!((&checks[0]["holds"], &checks[0]["exitCode"]), (&json!(true), &json!(0)));
    assert_eq!((&checks[0]["outputTail"], &checks[0]["round"]), (&json!("alpha"), &json!(1)));
    assert_eq!(done.json()["operations"], json!([]), "the model proposed nothing");
    assert_eq!(done.json()["excludedEffects"]["shell"].as_array().unwrap().len(), 2);
    let db = Connection::open(env.beside("state").join("state.db")).unwrap();
    let sql = "SELECT provenance FROM journal WHERE kind = 'OperationProposed'";
    let provenance: String = db.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(provenance, "deterministic");
    let sql = "SELECT count(*) FROM journal WHERE kind IN ('CommandSpawned', 'OperationSucceeded')";
    assert_eq!(db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap(), 4);
}

/// A schema of 2^40 ways: the turn's time and a signal end the looking.
#[test]
fn a_schema_without_end_does_not_hold_the_end_up() {
    let env = TestEnv::new();
    let mut ways = serde_json::Map::new();
    for at in 0..40 {
        let next = json!({"$ref": format!("#/$defs/d{}", at + 1)});
        ways.insert(format!("d{at}"), json!({"anyOf": [next, next]}));
    }
    ways.insert("d40".to_owned(), json!({"type": "null"}));
    let schema = env.outside("s.json", json!({"$defs": ways, "$ref": "#/$defs/d0"}).to_string());
    let schema = schema.display().to_string();
    let begun = Instant::now();
    let more = ["--output-schema", &schema, "--max-wall-time", "1s"];
    let done = run(&env, &[text("{}")], &more);
    assert_eq!(end(&done), ("BUDGET_EXHAUSTED".into(), "wall-time-limit".into(), Some(40)));
    assert!(begun.elapsed() < Duration::from_secs(5));
    let child = call_with(&env, POLICY, &[text("{}")], &["--output-schema", &schema]).start();
    thread::sleep(Duration::from_millis(800));
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    let done = finish(child);
    done.check_document();
    assert_eq!(end(&done), ("CANCELLED".into(), "cancelled".into(), Some(130)));
}

#[test]
fn what_a_check_finds_is_told_and_may_be_mended() {
    let env = TestEnv::new();
    let replies = [text("done, I think"), create("made"), text("now it is")];
    let done = run(&env, &replies, &["--verify", "cat made"]);
    assert_eq!(end(&done), success());
    let document = done.json();
    let rounds: Vec<(&Value, &Value)> = document["verification"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| (&check["round"], &check["holds"]))
        .collect();
    assert_eq!(rounds, [(&json!(1), &json!(false)), (&json!(2), &json!(true))]);
    let told = told(&done);
    assert!(
        told[0].starts_with("[verification failed]") && told[0].contains("`cat made`: exit code 1"),
        "{told:?}"
    );
    assert!(told[0].contains("No such file"), "its output is told: {told:?}");
    assert_eq!(document["text"], "now it is");
}

#[test]
fn what_still_does_not_hold_is_no_success() {
    for (rounds, answers) in [("0", 1), ("1", 2), ("2", 3)] {
        let env = TestEnv::new();
        let replies = vec![text("done"); 5];
        let done = run(&env, &replies, &["--verify", "cat made", "--verify-rounds", rounds]);
        assert_eq!(end(&done), unmet("verify-failed"));
        assert_eq!(done.json()["failure"]["causeCode"], "verify-failed");
        assert_eq!(done.json()["budget"]["iterations"]["used"], answers);
        assert_eq!(done.json()["text"], "done", "the model's answer stays");
        let message = done.json()["failure"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("`cat made` doesn't hold: exit code 1"), "{message}");
    }
    let env = TestEnv::new();
    let done =
        run(&env, &[text("done"), text("done")], &["--verify", "cat made", "--max-iterations", "1"]);
    assert_eq!(end(&done), unmet("verify-failed"), "no model call is left to mend it");
    let done = run(&env, &[text("done")], &["--verify", "./not-made", "--verify-rounds", "0"]);
    assert_eq!(end(&done), unmet("verify-failed"));
    assert!(
        done.json()["verification"][0]["outputTail"].as_str().unwrap().contains("program-not-found")
    );
    let failed =
        json!({"toolCalls": [{"name": "finish", "arguments": {"outcome": "cannot", "summary": "s"}}]});
    let done = run(&env, &[failed], &["--verify", "cat made"]);
    assert_eq!(end(&done), unmet("cannot"));
    assert_eq!(done.json()["verification"], json!([]), "what is given up needs no check");
}

/// The caller may name what no policy would grant to a model.
#[test]
fn the_caller_s_own_commands_need_no_grant() {
    let env = TestEnv::new();
    let script = env.file("check.sh", "#!/bin/sh\nexit 0\n");
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
    let plan = format!("mode = \"plan\"\n{POLICY}");
    for command in ["./check.sh", "sh -c 'exit 0'", "true"] {
        assert_eq!(end(&run(&env, &[text("x")], &["--verify", command])), success(), "{command}");
        let done = call_with(&env, &plan, &[text("x")], &["--verify", command]).document();
        assert_eq!(end(&done), success(), "plan mode binds the model: {command}");
    }
    let model = json!({"toolCalls": [{"name": "run_command", "arguments": {"argv": ["true"]}}]});
    let done = run(&env, &[model, text("x")], &["--verify", "true"]);
    assert_eq!(done.json()["operations"][0]["status"], "blocked", "and the model gains nothing by it");
}

#[test]
fn a_check_that_may_not_run_is_told_before_anything_is_spent() {
    let env = TestEnv::new();
    env.file(".git/config", "");
    let deny = "[[rule]]\nid = \"no-push\"\neffect = \"deny\"\ntools = [\"run_command\"]\nreason = \"no\"\n\
                when.command = { program = \"git\", subcommand = \"push\" }\n";
    let denied = format!("{POLICY}{deny}");
    let walled = POLICY.replace("\"off\"", "\"required\"");
    for (policy, command, reason) in [
        (denied.as_str(), "git push", "denied-stop"),
        (denied.as_str(), "sh -c 'git push'", "denied-stop"),
        (POLICY, "cat .git/config", "denied-stop"),
        (walled.as_str(), "true", "sandbox-unavailable"),
    ] {
        let mock = MockServer::start(vec![Answer::text("x")]);
        let base = mock.base_url();
        let policy = env.outside("p.policy.toml", policy).display().to_string();
        let provider =
            ["--provider", "custom", "--base-url", &base, "--model", "m", "--context-limit", "64000"];
        let run = ["run", "--json", "--policy", &policy, "--verify", command, "the task"];
        let done = env.thcode(&[&run[..], &provider].concat()).document();
        assert_eq!(end(&done), ("BLOCKED".to_owned(), reason.to_owned(), Some(20)), "{command}");
        assert_eq!(mock.requests().len(), 0);
    }
    for command in ["cargo test | tee x", "A=1 cargo test", ""] {
        let done =
            env.thcode(&["run", "x", "--json", "--cassette", "x", "--verify", command]).document();
        assert_eq!(done.code, Some(2), "{command}");
    }
}

#[test]
fn changes_are_as_expected_or_it_is_no_success() {
    for (expected, replies, reason) in [
        ("none", vec![text("x")], None),
        ("none", vec![create("a"), text("x")], Some("unexpected-changes")),
        ("some", vec![create("a"), text("x")], None),
        ("some", vec![text("x")], Some("unexpected-changes")),
        ("any", vec![create("a"), text("x")], None),
        ("any", vec![text("x")], None),
    ] {
        let env = TestEnv::new();
        let done = run(&env, &replies, &["--expect-changes", expected]);
        assert_eq!(end(&done), reason.map_or_else(success, unmet), "{expected}");
    }
}

#[test]
fn the_final_answer_has_the_form_that_was_asked_for() {
    let env = TestEnv::new();
    let schema = r#"{"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}, "additionalProperties": false}"#;
    let schema = env.outside("schema.json", schema).display().to_string();
    let ask = ["--output-schema", schema.as_str()];
    let done = run(&env, &[text(" {\"n\": 7}\n")], &ask);
    assert_eq!(end(&done), success());
    assert_eq!(done.json()["structuredOutput"], json!({"n": 7}));
    let finish = json!({"toolCalls": [{"name": "finish", "arguments": {"outcome": "done", "summary": "{\"n\":1}"}}]});
    let done =
        run(&env, &[text("```json\n{\"n\": 7}\n```"), finish], &["--json-schema", schema.as_str()]);
    assert_eq!(end(&done), success(), "one repair round");
    assert_eq!(done.json()["structuredOutput"], json!({"n": 1}));
    assert!(told(&done)[0].starts_with("[output refused]"));
    let done = run(&env, &[text("{\"n\": \"7\"}"), text("{}"), text("{\"n\": 7}")], &ask);
    assert_eq!(end(&done), unmet("output-schema-mismatch"), "and no more");
    assert_eq!(done.json()["structuredOutput"], Value::Null, "never a placeholder");
    assert!(told(&done)[0].contains("/n: "), "{:?}", told(&done));
    for (broken, cause) in [("{\"type\": 3}", "output-schema-invalid"), ("{", "output-schema-invalid")] {
        let file = env.outside("broken.json", broken).display().to_string();
        let done = run(&env, &[text("x")], &["--output-schema", &file]);
        assert_eq!((done.code, done.end().2.as_str()), (Some(2), cause));
    }
    let mock = MockServer::start(vec![Answer::text("{\"n\": 1}")]);
    let base = mock.base_url();
    let provider =
        ["--provider", "custom", "--base-url", &base, "--model", "m", "--context-limit", "64000"];
    env.thcode(&[&["run", "--json", "the task"][..], &provider, &ask].concat()).document();
    let system = mock.requests()[0].json()["messages"][0]["content"].as_str().unwrap().to_owned();
    assert!(system.contains("\"required\":[\"n\"]"), "the model knows the form: {system}");
}

#[test]
fn a_denial_limits_a_success_unless_the_caller_s_expectations_hold() {
    let env = TestEnv::new();
    env.file(".env", "x");
    env.file("a.txt", "alpha");
    let replies = [read(".env"), text("done")];
    assert_eq!(run(&env, &replies, &[]).code, Some(10));
    let done = run(&env, &replies, &["--verify", "cat a.txt"]);
    assert_eq!((done.code, done.json()["denials"].as_array().unwrap().len()), (Some(0), 1));
    assert!(done.stderr.contains("denied: read_file .env"), "told in every case");
    assert_eq!(run(&env, &replies, &["--expect-changes", "none"]).code, Some(0));
    assert_eq!(run(&env, &replies, &["--expect-changes", "any"]).code, Some(10), "that expects nothing");
    let strict = format!("on_denial = \"fail\"\n{POLICY}");
    let done = call_with(&env, &strict, &replies, &["--verify", "cat a.txt"]).document();
    assert_eq!(done.code, Some(10));
    let done = run(&env, &replies, &["--expect-changes", "some"]);
    assert_eq!(end(&done), unmet("unexpected-changes"));
    let message = done.json()["failure"]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("after denied calls (read_file .env): "), "{message}");
}

#[test]
fn a_signal_ends_a_check_and_the_document_tells_it() {
    for (at, signal) in ["INT", "TERM", "HUP", "QUIT"].into_iter().enumerate() {
        let env = TestEnv::new();
        let length = format!("8{at}{}", std::process::id());
        let sleep = format!("sleep {length}");
        let child = call_with(&env, POLICY, &[text("x")], &["--verify", &sleep]).start();
        let runs = || {
            let entries = fs::read_dir("/proc").unwrap().flatten();
            let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
            lines.filter(|line| line.ends_with(format!("sleep\0{length}\0").as_bytes())).count()
        };
        let begun = Instant::now();
        while runs() == 0 {
            assert!(begun.elapsed() < Duration::from_secs(20), "it never runs");
            thread::sleep(Duration::from_millis(10));
        }
        Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
        let sent = Instant::now();
        let done = finish(child);
        assert!(sent.elapsed() < Duration::from_secs(5));
        check(&done.json(), done.code);
        assert_eq!(end(&done), ("CANCELLED".to_owned(), "cancelled".to_owned(), Some(130)));
        assert_eq!(done.json()["verification"][0]["holds"], false);
        assert_eq!(runs(), 0);
        assert_eq!(run(&env, &[text("x")], &[]).code, Some(0), "nothing is left open");
    }
}

#[test]
fn a_run_ends_with_its_parent_if_it_is_told_to() {
    let env = TestEnv::new();
    let mock = MockServer::start(vec![Answer::silent(), Answer::silent()]);
    let base = mock.base_url();
    let out = env.beside("out.json");
    let plain = env.thcode(&[
        "run",
        "--json",
        "--provider",
        "custom",
        "--base-url",
        &base,
        "--model",
        "m",
        "--context-limit",
        "64000",
        "--die-with-parent",
        "-o",
        out.to_str().unwrap(),
        "the task",
    ]);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "\"$0\" \"$@\" & wait"])
        .arg(plain.command.get_program())
        .args(plain.command.get_args());
    shell.current_dir(env.workspace()).env_clear().env("HOME", env.home());
    shell.env("PATH", std::env::var_os("PATH").unwrap());
    shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut parent = shell.spawn().unwrap();
    let begun = Instant::now();
    while mock.requests().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it never asks");
        thread::sleep(Duration::from_millis(10));
    }
    parent.kill().unwrap();
    parent.wait().unwrap();
    let begun = Instant::now();
    while !out.exists() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it goes on without its parent");
        thread::sleep(Duration::from_millis(10));
    }
    let document: Value = serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
    assert_eq!(document["stopReason"], "cancelled");
    assert_eq!(document["failure"]["message"], "stopped by SIGTERM");
}

#[test]
fn a_check_that_is_not_there_is_refused_before_the_model_is_asked() {
    let env = TestEnv::new();
    for (check, names) in [
        ("no-such-tool -q", "no-such-tool"),
        ("/no/such/tool x", "/no/such/tool"),
        ("../tool", "../tool"),
    ] {
        let mock = MockServer::start(vec![]);
        let policy = env.outside("p.policy.toml", POLICY).display().to_string();
        let more = ["--json", "--policy", &policy, "--verify", "true", "--verify", check, "x"];
        let done = env.asking(&mock.base_url(), &more).document();
        assert_eq!((done.code, done.end().2.as_str()), (Some(2), "bad-argument"), "{check}: {done:?}");
        let failure = &done.json()["failure"];
        assert!(failure["message"].as_str().unwrap().contains(names), "{failure}");
        assert!(failure["recoveryActions"].to_string().contains("PATH"), "{failure}");
        assert_eq!(mock.requests().len(), 0, "nothing is paid for");
    }
    // What the task is to make may be named.
    let script = json!({"toolCalls": [{"name": "create_file", "arguments": {"path": "bin/t.sh", "content": "#!/bin/sh\n"}}]});
    let done = run(&env, &[script, text("made"), text("made")], &["--verify", "./bin/t.sh"]);
    assert_eq!(end(&done), unmet("verify-failed"), "it isn't executable: {done:?}");
    let chmod = ["--verify", "chmod +x bin/t.sh", "--verify", "./bin/t.sh"];
    assert_eq!(end(&run(&env, &[text("made")], &chmod)), success());
}
