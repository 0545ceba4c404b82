//! What is too much: for a file, a pattern, a reply, a walk. Each limit is told, and none can be
//! used to hold a run or to fill its memory.

use std::{
    fs::{self, File},
    io::Write as _,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::env::{Done, TestEnv, finish};

fn call(name: &str, arguments: Value) -> Value {
    json!({"toolCalls": [{"name": name, "arguments": arguments}]})
}

fn replay(env: &TestEnv, replies: &[Value]) -> Done {
    let cassette = env.cassette(&[replies, &[json!({"text": "done"})]].concat());
    env.thcode(&["run", "--json", "--cassette", cassette.to_str().unwrap(), "x"]).document()
}

/// What the model was told of each call.
fn told(done: &Done) -> Vec<String> {
    let document = done.json();
    let messages = document["history"].as_array().unwrap().iter();
    let messages = messages.filter(|message| message["role"] == "tool");
    messages.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_binary_file_costs_only_what_was_read_of_it() {
    let env = TestEnv::new();
    File::create(env.workspace().join("a.bin")).unwrap().set_len(2 << 30).unwrap();
    env.file("b.txt", "needle\n");
    let done = replay(&env, &[call("search_text", json!({"pattern": "needle"}))]);
    assert!(told(&done)[0].contains("b.txt:1:needle"), "{done:?}");
    assert!(!told(&done)[0].contains("truncated"), "{done:?}");
}

#[test]
fn a_large_text_file_is_searched_to_a_limit_that_is_told() {
    let env = TestEnv::new();
    let line = format!("{}\n", "x".repeat(1023));
    let mut file = File::create(env.workspace().join("large.txt")).unwrap();
    let mebibyte = line.repeat(1024);
    for _ in 0..257 {
        file.write_all(mebibyte.as_bytes()).unwrap();
    }
    file.write_all(b"needle\n").unwrap();
    let search = json!({"pattern": "needle", "literal": true});
    let done = replay(&env, &[call("search_text", search)]);
    assert!(told(&done)[0].contains("truncated: 1 searched only in their first 256 MiB"), "{done:?}");
}

/// However long a tool still has to read, a signal ends it.
#[test]
fn a_signal_ends_a_tool_within_a_file() {
    let env = TestEnv::new();
    // Spaces without a line end or a NUL, which is what is slowest to read on.
    let mut file = File::create(env.workspace().join("large.txt")).unwrap();
    let mebibyte = "a b\n".repeat(1 << 18);
    for _ in 0..200 {
        file.write_all(mebibyte.as_bytes()).unwrap();
    }
    for slow in [
        call("search_text", json!({"pattern": "(.+)+c$|([a-z ]+ *)+d"})),
        call("read_file", json!({"path": "large.txt", "offset": 1u64 << 40})),
    ] {
        let cassette = env.cassette(&vec![slow; 40]);
        let mut call = env.thcode(&[
            "run",
            "--json",
            "--max-iterations",
            "40",
            "--cassette",
            cassette.to_str().unwrap(),
            "x",
        ]);
        let child = call.start();
        std::thread::sleep(Duration::from_millis(600));
        let sent = Instant::now();
        Command::new("kill").args(["-s", "TERM", &child.id().to_string()]).status().unwrap();
        let done = finish(child);
        assert!(sent.elapsed() < Duration::from_secs(4), "{:?}", sent.elapsed());
        done.check_document();
        assert_eq!((done.code, done.end().2.as_str()), (Some(130), "signalled"));
    }
}

#[test]
fn reading_far_into_a_file_is_refused_and_past_its_end_is_told() {
    let env = TestEnv::new();
    File::create(env.workspace().join("sparse")).unwrap().set_len(10 << 30).unwrap();
    env.file("two.txt", "one\ntwo\n");
    env.file("empty.txt", "");
    let read = |path: &str, offset: u64| call("read_file", json!({"path": path, "offset": offset}));
    let done = replay(
        &env,
        &[
            read("sparse", 2),
            read("two.txt", 3),
            read("two.txt", u64::MAX),
            read("empty.txt", 1),
            read("empty.txt", 2),
        ],
    );
    let told = told(&done);
    assert!(told[0].contains("over 1 GiB into the file"), "{told:?}");
    assert!(told[1].contains("the file has 2 lines, so there is no line 3"), "{told:?}");
    assert!(
        told[2].contains("the file has 2 lines, so there is no line 18446744073709551615"),
        "{told:?}"
    );
    assert!(told[3].contains("empty file (0 bytes)"), "{told:?}");
    assert!(told[4].contains("the file has 0 lines"), "{told:?}");
}

#[test]
fn globs_and_patterns_that_no_matcher_can_be_made_of_are_told() {
    let env = TestEnv::new();
    env.file("a.txt", "x");
    let mut calls = Vec::new();
    for glob in ["?".repeat(131_103), "{".repeat(400) + "a" + &"}".repeat(400), "*".repeat(1025)] {
        calls.push(call("list_files", json!({"path": ".", "glob": glob})));
        calls.push(call("search_text", json!({"pattern": "x", "glob": glob})));
    }
    for pattern in
        ["x".repeat(70_000), "(".repeat(400) + "a" + &")".repeat(400), "((a{99}){99}){99}".to_owned()]
    {
        calls.push(call("search_text", json!({"pattern": pattern})));
    }
    for bad in calls {
        let done = replay(&env, std::slice::from_ref(&bad));
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(told(&done)[0].starts_with("[tool failed] "), "{bad} {done:?}");
    }
}

#[test]
fn ignore_files_are_bounded_and_what_is_not_heeded_is_told() {
    let env = TestEnv::new();
    let large: String = (0..200_000).map(|at| format!("x{at}?\n")).collect();
    let mut dir = "big/".to_owned();
    for level in 0..30 {
        env.file(&format!("{dir}.gitignore"), &large);
        dir.push_str(&format!("d{level}/"));
    }
    env.file(&format!("{dir}deep.txt"), "x");
    env.file("long/.gitignore", "y".repeat(2000));
    env.file("fine/.gitignore", "*.log\n");
    env.file("fine/a.log", "");
    let cassette = env
        .cassette(&[call("list_files", json!({"path": ".", "glob": "*.*"})), json!({"text": "done"})]);
    let args = ["run", "--json", "--cassette", cassette.to_str().unwrap(), "x"];
    let mut run = Command::new("sh");
    // An address space of 1.5 GiB holds the binary and what is bounded, not 30 such files.
    run.arg("-c")
        .arg("ulimit -v 1500000; exec \"$0\" \"$@\"")
        .arg(env!("CARGO_BIN_EXE_thcode"))
        .args(args);
    let out = run.current_dir(env.workspace()).env_clear().env("HOME", env.home()).output().unwrap();
    let document: Value =
        serde_json::from_slice(&out.stdout).unwrap_or_else(|error| panic!("{error} {out:?}"));
    let told = document["history"][2]["content"].as_str().unwrap();
    assert!(told.contains("deep.txt") && !told.contains("a.log"), "{told}");
    assert!(told.contains("31 ignore-file-too-large"), "{told}");
}

#[test]
fn a_name_can_not_pass_for_a_line_of_the_result() {
    let env = TestEnv::new();
    env.file("a\nfaked.txt:1:needle", "needle\n");
    env.file("b\u{1b}[2J.txt", "needle\n");
    let done = replay(
        &env,
        &[call("list_files", json!({"path": "."})), call("search_text", json!({"pattern": "needle"}))],
    );
    for told in told(&done) {
        assert!(!told.contains("\nfaked") && !told.contains('\u{1b}'), "{told}");
        assert!(told.contains("a\\nfaked.txt") && told.contains("b\\u{1b}[2J.txt"), "{told}");
    }
}

#[test]
fn numbers_from_outside_are_held_to_what_makes_sense() {
    let env = TestEnv::new();
    let cassette = env.cassette(&[json!({"text": "x"})]);
    let cassette = cassette.to_str().unwrap();
    for flag in ["--context-limit", "--max-output-tokens"] {
        for number in ["18446744073709551615", "100000001", "0", "-1"] {
            let args = ["run", "--json", "--cassette", cassette, flag, number, "x"];
            let done = env.thcode(&args).document();
            assert_eq!((done.code, done.end().2.as_str()), (Some(2), "bad-argument"), "{flag} {number}");
        }
    }
    drop(fs::remove_file(cassette));
}

#[test]
fn a_reply_of_very_many_calls_is_told_and_goes_on() {
    let env = TestEnv::new();
    env.file("a.txt", "alpha");
    let one = json!({"name": "read_file", "arguments": {"path": "a.txt"}});
    let done = replay(&env, &[json!({"toolCalls": vec![one; 5000]})]);
    assert_eq!((done.code, told(&done).len()), (Some(0), 129));
    assert!(told(&done)[127].contains("alpha"));
    assert!(
        told(&done)[128].starts_with("[tool malformed] the reply holds 5000 calls; 128 are looked at")
    );
    assert_eq!(done.json()["operations"].as_array().unwrap().len(), 129);
}

#[test]
fn a_document_has_a_bound_and_what_is_cut_says_so() {
    let env = TestEnv::new();
    env.file("a.txt", "alpha line\n".repeat(20_000));
    let one = json!({"name": "read_file", "arguments": {"path": "a.txt", "limit": 20_000}});
    let name = json!({"name": "n".repeat(100_000), "arguments": {"path": "p".repeat(100_000)}});
    let mut calls = vec![one; 100];
    calls.insert(50, name);
    let cassette = env.cassette(&[json!({"toolCalls": calls}), json!({"text": "done"})]);
    let args =
        ["run", "--json", "--context-limit", "100000000", "--cassette", cassette.to_str().unwrap(), "x"];
    let done = env.thcode(&args).document();
    assert_eq!(done.code, Some(0));
    assert!(done.stdout.len() < 10 << 20, "{}", done.stdout.len());
    let told = told(&done);
    assert!(told[99].contains("alpha line") && told[99].len() < 1000, "{}", told[99]);
    // The mark tells the length of what the model saw, however often it was cut.
    let document = done.json();
    let events = document["events"].as_array().unwrap();
    let last = events.iter().rev().find(|event| event["kind"] == "tool-result").unwrap();
    let mark = |text: &str| text.rsplit_once("\n[cut: ").unwrap().1.to_owned();
    assert_eq!(mark(last["output"].as_str().unwrap()), mark(&told[100]));
    assert_eq!(last["output"].as_str().unwrap().matches("[cut: ").count(), 1);
}

/// Sixty calls, made, denied and failed among them: the document tells each, and a person reads the end
/// on one screen.
#[test]
fn a_long_run_is_told_whole_and_fits_a_screen() {
    let env = TestEnv::new();
    let policy = "version = 1\n[sandbox]\nmode = \"off\"\n[budget]\niterations = 99\n\
        [[rule]]\nid = \"src\"\neffect = \"allow\"\ntools = [\"create_file\", \"edit_file\"]\n\
        when.write = [\"src/**\"]\n\
        [[rule]]\nid = \"true\"\neffect = \"allow\"\ntools = [\"run_command\"]\nwhen.command = [\"true …\"]\n";
    let policy = env.outside("long.policy.toml", policy).display().to_string();
    let replies: Vec<Value> = (0..15)
        .map(|at| {
            let path = format!("src/f{at}.txt");
            let edits = json!([{"oldText": "one", "newText": "two"}]);
            let call = |name: &str, arguments: Value| json!({"name": name, "arguments": arguments});
            json!({"toolCalls": [
                call("create_file", json!({"path": path, "content": "one"})),
                call("edit_file", json!({"path": path, "edits": edits})),
                call("run_command", json!({"argv": ["true", at.to_string()]})),
                call("create_file", json!({"path": format!("elsewhere{at}.txt"), "content": "x"})),
            ]})
        })
        .chain([json!({"text": "all done"})])
        .collect();
    let cassette = env.cassette(&replies).display().to_string();
    let out = env.beside("long.json");
    let args = ["run", "--policy", &policy, "--cassette", &cassette, "-o", out.to_str().unwrap(), "x"];
    let done = env.thcode(&args).run();
    assert_eq!(done.code, Some(10), "{done:?}");
    let text: Value = serde_json::from_slice(&fs::read(&out).unwrap()).unwrap();
    let count = |key: &str| text[key].as_array().unwrap().len();
    assert_eq!((count("operations"), count("changes"), count("denials")), (60, 15, 15));
    assert_eq!(count("checkpoints"), 30);
    let lines = done.stdout.lines().count();
    assert!(lines <= 50, "{lines} lines:\n{}", done.stdout);
    for told in ["all done", "15 created", "60 tool calls, 15 denied", "ACCEPTED_LIMITATION (10)"] {
        assert!(done.stdout.contains(told), "{told}:\n{}", done.stdout);
    }
}
