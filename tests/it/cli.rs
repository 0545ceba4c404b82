//! The command line's law: one document on every path, standard output for nothing else.

use std::{
    fs,
    os::unix::fs::symlink,
    process::{Command, Stdio},
    time::Duration,
};

use expect_test::expect;
use serde_json::{Value, json};

use crate::env::{Done, TestEnv, check, finish, stable};

fn done_cassette(env: &TestEnv) -> String {
    let reply = json!({"text": "All is well."});
    env.cassette(&[reply]).display().to_string()
}

#[test]
fn usage_errors_are_documents_in_every_format() {
    let env = TestEnv::new();
    for args in [
        &["run", "--no-such-flag"][..],
        &["run", "--jsn", "x"],
        &["frobnicate"],
        &[],
        &["run", "--max-iterations", "0", "x"],
        &["run", "--max-iterations", "many", "x"],
        &["run", "- do this", "--provider"],
        &["run", "-verbose: fix it"],
        &["policy"],
        &["policy", "explain"],
        &["run", "a", "b"],
        &["run", "a", "-p", "b"],
        &["run", "--output-format", "xml", "x"],
        &["run", "--stall-timeout", "0s", "x"],
    ] {
        let out = env.beside("usage.json");
        let out_arg = out.to_str().unwrap();
        let done = env.thcode(&[&["--json", "-o", out_arg][..], args].concat()).run();
        assert_eq!(done.code, Some(2), "{args:?} {done:?}");
        done.check_document();
        assert_eq!(done.end().2, "bad-argument", "{args:?} {done:?}");
        let kept: Value = serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
        assert_eq!(kept, done.json(), "-o has the same document: {args:?}");
        let text = env.thcode(args).run();
        assert!(text.stdout.contains("USAGE (2): bad-argument\n"), "{text:?}");
        assert!(text.stdout.trim_end().lines().last().unwrap().starts_with("next: "), "{text:?}");
        let stream = env.thcode(&[&["--output-format", "stream-json"][..], args].concat()).run();
        let last: Value = serde_json::from_str(stream.stdout.trim_end()).unwrap();
        assert_eq!(last["type"], "result", "{args:?}");
        check(&last["document"], Some(2));
    }
}

#[test]
fn the_nearest_right_flag_is_named() {
    let env = TestEnv::new();
    let action = |args: &[&str]| {
        let done = env.thcode(&[&["--json"][..], args].concat()).document();
        done.json()["failure"]["recoveryActions"][0].as_str().unwrap().to_owned()
    };
    assert_eq!(action(&["run", "--polcy", "x"]), "did you mean --policy?");
    assert_eq!(action(&["dcotor"]), "did you mean doctor?");
    assert_eq!(action(&["run", "--log-format", "jsn", "x"]), "did you mean json?");
    let hyphen = "a prompt that starts with a hyphen comes after `--` or in `-p TEXT`";
    assert_eq!(action(&["run", "- fix the build"]), hyphen);
}

#[test]
fn prompts_with_a_hyphen_have_their_two_ways() {
    let env = TestEnv::new();
    let cassette = done_cassette(&env);
    for args in [&["-p", "- do this"][..], &["--", "- do this"], &["-p", "--json is broken"]] {
        let done =
            env.thcode(&[&["run", "--json", "--cassette", &cassette][..], args].concat()).document();
        assert_eq!(done.code, Some(0), "{args:?}");
        assert_eq!(done.json()["history"][0]["content"], args[1]);
    }
}

#[test]
fn help_and_version_are_texts_and_no_documents() {
    let env = TestEnv::new();
    for args in [&["--help"][..], &["run", "--help"], &["policy", "explain", "-h"], &["--version"]] {
        let done = env.thcode(args).run();
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{args:?}");
        assert!(!done.stdout.contains("exitClass"));
    }
    let done = env.thcode(&["--version"]).run();
    assert_eq!(done.stdout, format!("thcode {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn help_is_short_where_it_is_asked_for_and_has_an_example() {
    let env = TestEnv::new();
    for verb in [
        &["run"][..],
        &["policy"],
        &["policy", "check"],
        &["policy", "explain"],
        &["schema"],
        &["schema", "list"],
        &["schema", "print"],
        &["schema", "validate"],
        &["doctor"],
        &["explain-exit"],
    ] {
        let help = |flag: &str| env.thcode(&[verb, &[flag]].concat()).run().stdout;
        let (short, long) = (help("-h"), help("--help"));
        assert!(short.contains("Example") && long.contains("Example"), "{verb:?}");
        assert!(!short.contains("--log-format") && long.contains("--log-format"), "{verb:?} {short}");
    }
    // Each of its examples is a command line that can be read.
    let help = env.thcode(&["run", "--help"]).run().stdout;
    let examples: Vec<&str> = help
        .lines()
        .filter(|line| line.starts_with("  thcode run") && line.contains("--model"))
        .collect();
    assert!(examples.iter().all(|line| line.contains("--context-limit")), "{help}");
}

#[test]
fn the_codes_of_killed_processes_are_explained() {
    let env = TestEnv::new();
    let explain = |code: &str| env.thcode(&["explain-exit", code]).run();
    for (code, name) in
        [("137", "SIGKILL"), ("143", "SIGTERM"), ("139", "SIGSEGV"), ("168", "signal 40")]
    {
        let done = explain(code);
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{done:?}");
        assert!(done.stdout.starts_with(&format!("killed by {name} ({code})\n")), "{done:?}");
        assert!(
            done.stdout.contains("`thcode recover`") && done.stdout.contains("no document"),
            "{done:?}"
        );
    }
    assert!(explain("137").stdout.contains("out of memory? a runner's timeout?"));
    assert!(explain("130").stdout.starts_with("CANCELLED (130)"));
    assert!(explain("20").stdout.contains("the store can't be used"));
    for code in ["3", "126", "127", "128", "193", "255"] {
        assert_eq!(explain(code).code, Some(2), "{code}");
    }
}

#[test]
fn what_is_told_is_true() {
    let env = TestEnv::new();
    let text = |args: &[&str]| env.thcode(args).run().stdout;
    assert!(text(&["policy"]).contains("`thcode policy --help` lists what there is"));
    assert!(text(&["schema"]).contains("`thcode schema --help` lists what there is"));
    let cancelled = text(&["explain-exit", "130"]);
    assert!(!cancelled.contains("will end the same way"), "{cancelled}");
    let finish = env.thcode(&["policy", "explain", "--tool", "finish", "--input", "{}"]).run();
    assert!(finish.code == Some(0) && finish.stdout.contains("always allowed"), "{finish:?}");
    let doctor = env.thcode(&["doctor"]).run();
    assert!(doctor.code == Some(0) && !doctor.stdout.contains("a run would start"), "{doctor:?}");
    let cassette = done_cassette(&env);
    assert!(text(&["doctor", "--cassette", &cassette]).contains("a run would start"));
    let rule = "version = 1\n[[rule]]\nid = \"r\"\neffect = \"deny\"\ntools = [\"edit_file\"]\nreason = \"x\"\nwhen.write = [\"x\"]\n";
    let one = env.outside("one.policy.toml", rule).display().to_string();
    assert!(text(&["policy", "check", &one]).contains("1 rule, 0 examples, 0 faults"));
    assert!(text(&["doctor", "--policy", &one]).contains("(1 rule)"));
    let env_file = r#"{"path": ".env"}"#;
    let denied = text(&["policy", "explain", "--tool", "read_file", "--input", env_file]);
    assert!(denied.contains("no policy lifts it") && !denied.contains("change the policy"), "{denied}");
    let big = env.outside("big.policy.toml", "#".repeat(11 << 20)).display().to_string();
    assert!(text(&["policy", "check", &big]).contains("is over 10 MiB"));
}

#[test]
fn a_prompt_that_can_not_be_used_is_told_and_costs_nothing() {
    let env = TestEnv::new();
    let cassette = done_cassette(&env);
    env.file("kept.txt", "kept");
    let before = env.tree();
    let over = env.outside("over.txt", "x".repeat(11 << 20));
    let latin = env.outside("latin.txt", b"caf\xe9");
    let empty = env.outside("empty.txt", "");
    let fifo = env.beside("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let path = |path: &std::path::Path| path.display().to_string();
    let run =
        |args: &[&str]| env.thcode(&[&["run", "--json", "--cassette", &cassette][..], args].concat());
    let cases: Vec<(Done, &str)> = vec![
        (run(&[]).document(), "prompt-missing"),
        (run(&[""]).document(), "prompt-empty"),
        (run(&["-p", " \n"]).document(), "prompt-empty"),
        (run(&["-f", &path(&empty)]).document(), "prompt-empty"),
        (run(&["-f", &path(&over)]).document(), "prompt-too-large"),
        (run(&["-f", &path(&latin)]).document(), "prompt-not-utf8"),
        (run(&["-f", "/no/such/file"]).document(), "input-unreadable"),
        (run(&["-f", "/"]).document(), "input-unreadable"),
        (run(&["-f", &path(&fifo)]).document(), "input-unreadable"),
        (run(&["-"]).document(), "prompt-empty"),
        (run(&["-"]).stdin("x".repeat(11 << 20)).document(), "prompt-too-large"),
        (run(&["-"]).stdin(b"\xff\xfe").document(), "prompt-not-utf8"),
    ];
    for (done, cause) in cases {
        assert_eq!((done.code, done.end().2.as_str()), (Some(2), cause), "{done:?}");
    }
    assert_eq!(env.tree(), before);
    let ten = env.outside("ten.txt", "x".repeat(10 << 20));
    let done = run(&["-f", &path(&ten), "--context-limit", "100000000"]).document();
    assert_eq!(done.code, Some(0), "10 MiB is still a prompt");
}

#[test]
fn standard_input_is_read_only_if_asked_and_never_for_ever() {
    let env = TestEnv::new();
    let cassette = done_cassette(&env);
    let open = |args: &[&str]| {
        let mut call = env.thcode(&[&["run", "--json", "--cassette", &cassette][..], args].concat());
        call.command.stdin(Stdio::piped());
        let mut child = call.start();
        let held = child.stdin.take();
        let done = finish(child);
        drop(held);
        done.check_document();
        done
    };
    assert_eq!(open(&["the prompt"]).code, Some(0), "nobody asked for standard input");
    let silent = open(&["-", "--stdin-timeout", "300ms"]);
    assert_eq!((silent.code, silent.end().2.as_str()), (Some(2), "prompt-timed-out"));
    let piped = env
        .thcode(&["run", "--json", "--cassette", &cassette, "-f", "-"])
        .stdin("from a pipe")
        .document();
    assert_eq!(piped.json()["history"][0]["content"], "from a pipe");
}

#[test]
fn workspaces_that_hold_everything_are_refused() {
    let env = TestEnv::new();
    let cassette = done_cassette(&env);
    let home = env.home();
    symlink(&home, env.beside("home-link")).unwrap();
    let link = env.beside("home-link");
    for dir in ["/", home.to_str().unwrap(), link.to_str().unwrap(), "/no/such/dir", "/etc/passwd"] {
        let done = env.thcode(&["run", "--json", "--cassette", &cassette, "-C", dir, "x"]).document();
        assert_eq!((done.code, done.end().2.as_str()), (Some(2), "workspace-refused"), "{dir}");
    }
}

#[test]
fn the_file_of_o_is_whole_on_every_path_and_special_files_are_refused() {
    let env = TestEnv::new();
    let cassette = done_cassette(&env);
    for bad in ["/dev/null", "/dev/full", "/no/such/dir/x", "."] {
        let done = env.thcode(&["run", "--json", "--cassette", &cassette, "-o", bad, "x"]).document();
        assert_eq!((done.code, done.end().2.as_str()), (Some(2), "output-path-refused"), "{bad}");
    }
    assert!(
        fs::metadata("/dev/null").unwrap().file_type()
            != fs::metadata("/etc/passwd").unwrap().file_type()
    );
    let out = env.beside("result.json");
    let done = env.thcode(&["run", "--cassette", &cassette, "-o", out.to_str().unwrap(), "x"]).run();
    let kept: Value = serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
    check(&kept, done.code);
    assert_eq!(kept["schema"], "thcode.turn-result/v1");
    let done = env.thcode(&["explain-exit", "5", "-o", out.to_str().unwrap()]).run();
    let kept: Value = serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
    check(&kept, done.code);
    assert_eq!(kept["failure"]["causeCode"], "exit-code-unknown");
    let done = env.thcode(&["explain-exit", "55", "-o", out.to_str().unwrap()]).run();
    let kept: Value = serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
    check(&kept, done.code);
    assert_eq!(kept["failure"], Value::Null);
}

#[test]
fn an_output_never_takes_the_place_of_an_input() {
    let env = TestEnv::new();
    let cassette = done_cassette(&env);
    let prompt = env.outside("prompt.md", "do it").display().to_string();
    let rule = "version = 1\n[[rule]]\nid = \"r\"\neffect = \"deny\"\ntools = [\"edit_file\"]\nreason = \"x\"\nwhen.write = [\"x\"]\n";
    let policy = env.outside("p/a.policy.toml", rule).display().to_string();
    let folder = env.beside("p").display().to_string();
    let call = env.outside("call.json", r#"{"tool": "read_file", "input": {"path": "a"}}"#);
    let call = call.display().to_string();
    let link = env.beside("link");
    symlink(&prompt, &link).unwrap();
    let link = link.to_str().unwrap();
    for (out, args) in [
        (&cassette, &["run", "--cassette", &cassette, "x"][..]),
        (&prompt, &["run", "--cassette", &cassette, "-f", &prompt]),
        (&link.to_owned(), &["run", "--cassette", &cassette, "-f", &prompt]),
        (&policy, &["run", "--cassette", &cassette, "--policy", &policy, "x"]),
        (&policy, &["policy", "check", &policy]),
        (&policy, &["policy", "check", &folder]),
        (&policy, &["doctor", "--policy", &policy]),
        (&call, &["policy", "explain", "--call", &call]),
        (&call, &["schema", "validate", "failure", &call]),
    ] {
        let before = fs::read(out).unwrap();
        let done = env.thcode(&[&["--json", "-o", out][..], args].concat()).document();
        assert_eq!((done.code, done.end().2.as_str()), (Some(2), "output-path-refused"), "{args:?}");
        assert_eq!(fs::read(out).unwrap(), before, "{args:?}");
    }
    let args = ["run", "--json", "--no-such-flag", "-f", &prompt, "-o", &prompt];
    assert_eq!(env.thcode(&args).document().end().2, "bad-argument");
    assert_eq!(fs::read_to_string(&prompt).unwrap(), "do it", "nor on a broken command line");
}

#[test]
fn a_key_on_the_command_line_is_not_repeated() {
    let env = TestEnv::new();
    let key = "sk-abc123def456";
    for args in [
        &["--api-key", key][..],
        &["--api-key=sk-abc123def456"],
        &["--token", key],
        &["--api-key-env", key],
        &["--api-key-env=sk-abc123def456"],
        &["--api-key-env", "sk_abc123def456"],
        &["--api-key-env", &"A".repeat(129)],
    ] {
        let run = ["run", "--json", "--provider", "openai", "x"];
        let done = env.thcode(&[&run[..], args].concat()).document();
        assert!(!done.stdout.contains("abc123") && !done.stderr.contains("abc123"), "{done:?}");
        assert!(!done.stdout.contains("AAAA"), "{done:?}");
        let next = done.json()["failure"]["recoveryActions"].to_string();
        assert!(next.contains("variable") || next.contains("environment"), "{done:?}");
    }
    let run = ["run", "--json", "--provider", "openai", "--api-key-env", "CI_KEY", "x"];
    let done = env.thcode(&run).document();
    assert_eq!(done.end().2, "key-missing");
    assert!(done.stdout.contains("the variable CI_KEY is unset"), "{done:?}");
}

#[test]
fn standard_output_that_fails_is_told_elsewhere() {
    let env = TestEnv::new();
    let cassette = done_cassette(&env);
    for format in ["text", "json", "stream-json"] {
        let out = env.beside("full.json");
        let out_arg = out.to_str().unwrap();
        let args = ["run", "--output-format", format, "--cassette", &cassette, "-o", out_arg, "x"];
        let mut call = env.thcode(&args);
        call.command.stdout(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
        let done = call.run();
        assert_eq!(done.code, Some(1), "{format}: {done:?}");
        assert!(done.stderr.contains("output-error"), "{done:?}");
        let kept: Value = serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
        check(&kept, done.code);
        assert_eq!(kept["failure"]["causeCode"], "output-error");
        assert_eq!(kept["schema"], "thcode.turn-result/v1", "the rest of the document is still there");
        assert_eq!(kept["text"], "All is well.");

        let mut call = env.thcode(&args);
        let mut child = call.start();
        drop(child.stdout.take());
        let done = finish(child);
        assert_eq!(done.code, Some(1), "a closed pipe, {format}: {done:?}");
        assert!(done.stderr.contains("output-error") && !done.stderr.contains("panicked"), "{done:?}");
    }
}

#[test]
fn a_large_document_through_a_slow_pipe_arrives_whole() {
    let env = TestEnv::new();
    let text = "a line of the final text\n".repeat(20_000);
    let cassette = env.cassette(&[json!({"text": text})]);
    let mut call = env.thcode(&["run", "--json", "--cassette", cassette.to_str().unwrap(), "x"]);
    let mut child = call.start();
    let mut stdout = child.stdout.take().unwrap();
    let mut bytes = Vec::new();
    let mut chunk = vec![0u8; 16 * 1024];
    loop {
        let read = std::io::Read::read(&mut stdout, &mut chunk).unwrap();
        if read == 0 {
            break;
        }
        bytes.extend_from_slice(&chunk[..read]);
        std::thread::sleep(Duration::from_millis(1));
    }
    let done = finish(child);
    assert_eq!(done.code, Some(0));
    let document: Value = serde_json::from_slice(&bytes).unwrap();
    check(&document, Some(0));
    assert_eq!(document["text"], text);
}

#[test]
fn the_stream_s_lines_are_events_without_gaps_and_the_last_is_the_document() {
    let env = TestEnv::new();
    env.file("a.txt", "hello");
    let cassette = env.cassette(&[
        json!({"text": "Let me look.", "toolCalls": [{"name": "read_file", "arguments": {"path": "a.txt"}}]}),
        json!({"text": "It says hello."}),
    ]);
    let done = env
        .thcode(&[
            "run",
            "--output-format",
            "stream-json",
            "--cassette",
            cassette.to_str().unwrap(),
            "x",
        ])
        .run();
    let events: Vec<Value> =
        done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let schema = thcode::contract::registry::find("stream-event").unwrap();
    for (at, event) in events.iter().enumerate() {
        assert_eq!(thcode::contract::validate::violations(schema, event).unwrap(), [], "{event:#}");
        assert_eq!(event["seq"], at);
    }
    let mut kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    // The last word of a text waits for its end, so a text may come in two.
    kinds.dedup();
    let wanted = [
        "turn-start",
        "iteration-start",
        "text-delta",
        "tool-start",
        "tool-result",
        "iteration-start",
        "text-delta",
        "result",
    ];
    assert_eq!(kinds, wanted);
    check(&events.last().unwrap()["document"], done.code);
}

#[test]
fn flags_can_be_variables_and_an_empty_one_is_unset() {
    let env = TestEnv::new();
    let cassette = done_cassette(&env);
    let done =
        env.thcode(&["run", "x"]).env("THCODE_CASSETTE", &cassette).env("THCODE_JSON", "1").document();
    assert_eq!(done.code, Some(0));
    let done = env
        .thcode(&["run", "x", "--json", "--cassette", &cassette])
        .env("THCODE_PROVIDER", "")
        .env("THCODE_MAX_ITERATIONS", "")
        .env("THCODE_POLICY", "preset:review\npreset:read-only")
        .document();
    let files = &done.json()["policy"]["files"];
    assert_eq!(
        (done.code, files[0]["name"].as_str(), files[1]["name"].as_str()),
        (Some(0), Some("preset:review"), Some("preset:read-only"))
    );
    let done = env.thcode(&["run", "x", "--json"]).env("THCODE_MAX_ITERATIONS", "none").document();
    assert_eq!(done.end().2, "bad-argument");
}

#[test]
fn the_text_of_a_run_ends_in_three_lines() {
    let env = TestEnv::new();
    env.file(".env", "TOKEN=x");
    let cassette = env.cassette(&[
        json!({"toolCalls": [{"name": "read_file", "arguments": {"path": ".env"}}]}),
        json!({"text": "I could not read it."}),
    ]);
    let done = env.thcode(&["run", "--cassette", cassette.to_str().unwrap(), "x"]).run();
    expect![[r#"
        I could not read it.
        note: the replies came from a cassette, not from a model
        denied: read_file .env: `.env` holds credentials by its name, and those never enter the conversation. [secret-read]

        ACCEPTED_LIMITATION (10): the model gave its final answer
        changed: no file; 1 tool call, 1 denied, 0 failed, 2 of 8 model calls
        next: nothing to grant: hard boundaries denied it, and no policy lifts them
    "#]].assert_eq(&stable(&done.stdout, &env));
}

/// Signals reach a run that waits for its provider, its prompt or nothing at all.
#[test]
fn a_signal_ends_with_a_document() {
    let env = TestEnv::new();
    for signal in ["INT", "TERM", "HUP", "QUIT"] {
        let mock = crate::mock::MockServer::start(vec![crate::mock::Answer::silent()]);
        let child = env.asking(&mock.base_url(), &["--json", "x"]).start();
        let pid = child.id().to_string();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(700));
            Command::new("kill").args(["-s", signal, &pid]).status().unwrap();
        });
        let done = finish(child);
        done.check_document();
        assert_eq!(done.end(), ("CANCELLED".to_owned(), "cancelled".to_owned(), "signalled".to_owned()));
        assert_eq!(done.json()["failure"]["message"], format!("stopped by SIG{signal}"));
    }
    // While it waits for the prompt nothing has begun, so the document is a Failure.
    let cassette = done_cassette(&env);
    let mut call = env.thcode(&["run", "--json", "--cassette", &cassette, "-"]);
    call.command.stdin(Stdio::piped());
    let mut child = call.start();
    let held = child.stdin.take();
    let pid = child.id().to_string();
    std::thread::sleep(Duration::from_millis(500));
    Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap();
    let done = finish(child);
    drop(held);
    done.check_document();
    assert_eq!((done.code, done.end().2.as_str()), (Some(130), "signalled"));
}

#[cfg(feature = "fault-injection")]
#[test]
fn a_panic_ends_with_a_document() {
    let env = TestEnv::new();
    let out = env.beside("panic.json");
    let done = env
        .thcode(&["schema", "list", "--json", "-o", out.to_str().unwrap()])
        .env("THCODE_FAULT", "panic")
        .document();
    assert_eq!((done.code, done.end().2.as_str()), (Some(1), "internal-error"));
    assert!(!done.stderr.contains("asked for"), "a panic's message could hold content: {done:?}");
    let kept: Value = serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
    assert_eq!(kept, done.json());
}

#[cfg(feature = "fault-injection")]
#[test]
fn a_document_that_breaks_its_schema_is_not_printed() {
    let env = TestEnv::new();
    let done =
        env.thcode(&["schema", "list", "--json"]).env("THCODE_FAULT", "document-invalid").document();
    assert_eq!((done.code, done.end().2.as_str()), (Some(1), "document-invalid"));
    assert!(done.stderr.contains("toolVersion"), "the place is logged: {done:?}");
}
