//! Signals, and streams that nobody reads: every verb ends with one document that agrees with its
//! exit code, within the time that an engine gives.

use std::{
    fs,
    io::Read as _,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    env::{Done, TestEnv, check, finish},
    mock::{Answer, MockServer},
};

/// An engine kills some seconds after its first signal.
const IN_TIME: Duration = Duration::from_secs(5);

fn kill(child: &Child, signal: &str) {
    assert!(
        Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap().success()
    );
}

fn kept(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// A policy file that takes a while to be checked.
fn slow_policy(env: &TestEnv) -> PathBuf {
    let mut text = "version = 1\n".to_owned();
    for at in 0..20_000 {
        text.push_str(&format!("[[rule]]\nid = \"r{at}\"\neffect = \"deny\"\ntools = [\"edit_file\"]\nreason = \"x\"\nwhen.write = [\"d{at}/**\"]\n"));
    }
    env.outside("slow.policy.toml", text)
}

/// The process's signal handlers are there.
fn wait_until_it_listens(child: &Child) {
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        if status.is_empty() || status.contains("(zombie)") {
            return;
        }
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        // XFSZ is the last that is listened to.
        if mask >> 24 & 1 == 1 && status.contains("thcode") {
            return;
        }
    }
    panic!("it never listens");
}

#[test]
fn a_signal_ends_every_verb_and_a_run_that_has_not_begun() {
    let env = TestEnv::new();
    let policy = slow_policy(&env).display().to_string();
    let cassette = env.cassette(&[json!({"text": "x"})]).display().to_string();
    for (at, signal) in ["INT", "TERM", "HUP", "QUIT"].into_iter().enumerate() {
        let verbs: [&[&str]; 3] = [
            &["policy", "check", &policy],
            &["run", "--cassette", &cassette, "--policy", &policy, "x"],
            &["doctor", "--policy", &policy],
        ];
        for verb in verbs {
            let out = env.beside(&format!("{at}.json"));
            let args = [&["--json", "-o", out.to_str().unwrap()][..], verb].concat();
            let child = env.thcode(&args).start();
            wait_until_it_listens(&child);
            kill(&child, signal);
            let sent = Instant::now();
            let done = finish(child);
            assert!(sent.elapsed() < IN_TIME, "{verb:?}");
            done.check_document();
            assert_eq!(
                (done.code, done.end().2.as_str()),
                (Some(130), "signalled"),
                "{verb:?} {done:?}"
            );
            assert_eq!(done.json()["failure"]["message"], format!("stopped by SIG{signal}"));
            assert_eq!(done.json()["verb"], verb[..if verb[0] == "policy" { 2 } else { 1 }].join(" "));
            assert_eq!(kept(&out), done.json());
            assert!(done.stderr.contains("CANCELLED"), "{done:?}");
        }
    }
}

/// A document of an earlier run would vouch for one that was killed.
#[test]
fn a_killed_run_leaves_no_earlier_document() {
    let env = TestEnv::new();
    let policy = slow_policy(&env).display().to_string();
    let cassette = env.cassette(&[json!({"text": "x"})]).display().to_string();
    let out = env.beside("kept.json");
    let args = ["run", "--json", "--cassette", &cassette, "-o", out.to_str().unwrap(), "x"];
    assert_eq!(env.thcode(&args).document().code, Some(0));
    assert_eq!(kept(&out)["exitClass"], "SUCCESS");
    let child = env.thcode(&[&args[..], &["--policy", &policy]].concat()).start();
    wait_until_it_listens(&child);
    let begun = Instant::now();
    while kept(&out)["exitClass"] == "SUCCESS" {
        assert!(begun.elapsed() < Duration::from_secs(10), "the earlier document stands");
        std::thread::sleep(Duration::from_millis(2));
    }
    kill(&child, "KILL");
    finish(child);
    let left = kept(&out);
    assert_eq!((&left["exitCode"], &left["failure"]["causeCode"]), (&json!(70), &json!("unfinished")));
}

/// At every moment of a verb: one document, that of `-o` too, and the code that it tells.
#[test]
fn whenever_a_signal_comes_there_is_one_document() {
    let env = TestEnv::new();
    let rule = |at: u32| {
        format!(
            "[[rule]]\nid = \"r{at}\"\neffect = \"deny\"\ntools = [\"edit_file\"]\nreason = \"x\"\nwhen.write = [\"d{at}/**\"]\n"
        )
    };
    let rules: String = (0..20).map(rule).collect();
    let policy = env.outside("p.policy.toml", format!("version = 1\n{rules}")).display().to_string();
    let mut codes = std::collections::BTreeSet::new();
    for at in 0..120 {
        let out = env.beside("moment.json");
        drop(fs::remove_file(&out));
        let child =
            env.thcode(&["policy", "check", &policy, "--json", "-o", out.to_str().unwrap()]).start();
        wait_until_it_listens(&child);
        std::thread::sleep(Duration::from_micros(at * 150));
        kill(&child, "TERM");
        let done = finish(child);
        done.check_document();
        assert_eq!(kept(&out), done.json());
        codes.insert(done.code);
    }
    assert!(codes.contains(&Some(130)), "{codes:?}");
}

fn waiting_run(env: &TestEnv, format: &str, mock: &MockServer, out: &Path) -> Child {
    let args = ["-v", "--output-format", format, "-o", out.to_str().unwrap(), "x"];
    env.asking(&mock.base_url(), &args).start()
}

#[test]
fn signals_of_timers_and_of_others_end_a_run_with_its_document() {
    let env = TestEnv::new();
    for signal in [
        "INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "ALRM", "XCPU", "VTALRM", "PROF", "IO", "PWR",
        "STKFLT", "RTMIN", "RTMIN+15", "RTMIN+30",
    ] {
        let mock = MockServer::start(vec![Answer::silent()]);
        let child = waiting_run(&env, "json", &mock, &env.beside("signal.json"));
        wait_until_it_listens(&child);
        std::thread::sleep(Duration::from_millis(200));
        kill(&child, signal);
        let done = finish(child);
        done.check_document();
        assert_eq!(done.end(), ("CANCELLED".into(), "cancelled".into(), "signalled".into()), "{signal}");
        assert_eq!(done.json()["failure"]["message"], format!("stopped by SIG{signal}"));
    }
}

/// Ends a child without reading anything of it before its end.
fn unread(mut child: Child, signal: &str) -> (Done, Duration) {
    kill(&child, signal);
    let sent = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if sent.elapsed() > Duration::from_secs(20) {
            child.kill().unwrap();
            panic!("it hangs");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let took = sent.elapsed();
    let mut stdout = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
    let stdout = String::from_utf8_lossy(&stdout).into_owned();
    (Done { code: status.code(), stdout, stderr: String::new() }, took)
}

#[test]
fn a_document_that_nobody_reads_does_not_hold_a_signal_up() {
    let env = TestEnv::new();
    let text = "a line of the final text\n".repeat(20_000);
    let cassette = env.cassette(&[json!({"text": text})]).display().to_string();
    for format in ["text", "json", "stream-json"] {
        let out = env.beside(&format!("{format}.json"));
        let args = [
            "run",
            "--output-format",
            format,
            "-o",
            out.to_str().unwrap(),
            "--cassette",
            &cassette,
            "x",
        ];
        let child = env.thcode(&args).start();
        std::thread::sleep(Duration::from_millis(1500));
        let (done, took) = unread(child, "TERM");
        assert!(took < IN_TIME, "{format}: {took:?}");
        let document = kept(&out);
        check(&document, done.code);
        let cause = document["failure"]["causeCode"].as_str().unwrap();
        // A stream is blocked in its turn, the others at the print of what is whole and filed.
        let wanted = if format == "stream-json" { "signalled" } else { "output-error" };
        assert_eq!(cause, wanted, "{format}");
        if format != "stream-json" {
            assert_eq!(document["text"], text, "the work is not lost");
        }
    }
}

#[test]
fn a_document_that_is_read_late_is_whole_and_agrees() {
    let env = TestEnv::new();
    let text = "a line of the final text\n".repeat(20_000);
    let cassette = env.cassette(&[json!({"text": text})]).display().to_string();
    let out = env.beside("late.json");
    let args = ["run", "--json", "-o", out.to_str().unwrap(), "--cassette", &cassette, "x"];
    let child = env.thcode(&args).start();
    std::thread::sleep(Duration::from_millis(1500));
    kill(&child, "TERM");
    std::thread::sleep(Duration::from_millis(500));
    let done = finish(child);
    done.check_document();
    assert_eq!(done.code, Some(0), "the work was done before the signal came");
    assert_eq!(kept(&out), done.json());
}

#[test]
fn log_lines_that_nobody_reads_do_not_hold_a_signal_up() {
    let env = TestEnv::new();
    let again =
        json!({"toolCalls": vec![json!({"name": "list_files", "arguments": {"path": "."}}); 100]});
    let cassette = env.cassette(&vec![again; 100]).display().to_string();
    let out = env.beside("stderr.json");
    let args = [
        "run",
        "-v",
        "--json",
        "-o",
        out.to_str().unwrap(),
        "--max-iterations",
        "100",
        "--cassette",
        &cassette,
        "x",
    ];
    let child = env.thcode(&args).start();
    std::thread::sleep(Duration::from_millis(2500));
    let (done, took) = unread(child, "TERM");
    assert!(took < IN_TIME, "{took:?}");
    check(&kept(&out), done.code);
    assert_eq!(done.code, Some(130));
    check(&done.json(), done.code);
}

#[test]
fn a_second_signal_ends_at_once() {
    let env = TestEnv::new();
    let text = "a line of the final text\n".repeat(20_000);
    let cassette = env.cassette(&[json!({"text": text})]).display().to_string();
    let child = env.thcode(&["run", "--json", "--cassette", &cassette, "x"]).start();
    std::thread::sleep(Duration::from_millis(1000));
    kill(&child, "XCPU");
    std::thread::sleep(Duration::from_millis(100));
    kill(&child, "XCPU");
    std::thread::sleep(Duration::from_millis(200));
    let (done, took) = unread(child, "TERM");
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(done.code, Some(130));
}

/// `ulimit -f`: the file of `-o` can't be written whole, so it isn't written at all.
#[test]
fn a_limit_on_file_sizes_is_an_output_error() {
    let env = TestEnv::new();
    let keys: String = (0..90).map(|at| format!("unknown_{at} = 1\n")).collect();
    env.outside("many.policy.toml", format!("version = 1\n{keys}"));
    let args = ["policy", "check", "--json", "-o", "../out/big.json", "../out/many.policy.toml"];
    let done = limited(&env, "ulimit -f 8", &args);
    done.check_document();
    assert_eq!((done.code, done.end().2.as_str()), (Some(1), "output-error"), "{:?}", done.stderr);
    let left: Vec<_> =
        fs::read_dir(env.beside("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["many.policy.toml"], "no temporary file stays");
}

/// The document of an earlier run never stands where this one's should: with no room at all it is refused
/// at the start, with too little at the end.
#[test]
fn without_room_the_earlier_document_goes_and_the_words_help() {
    let env = TestEnv::new();
    let keys: String = (0..90).map(|at| format!("unknown_{at} = 1\n")).collect();
    env.outside("many.policy.toml", format!("version = 1\n{keys}"));
    let args = ["policy", "check", "--json", "-o", "../out/big.json", "../out/many.policy.toml"];
    let out = env.beside("big.json");
    for (limit, code, cause) in
        [("ulimit -f 8", 1, "output-error"), ("ulimit -f 0", 2, "output-path-refused")]
    {
        fs::write(&out, "{\"exitCode\": 0}").unwrap();
        let done = limited(&env, limit, &args);
        assert_eq!((done.code, done.end().2.as_str()), (Some(code), cause), "{done:?}");
        let failure = &done.json()["failure"];
        let next = failure["recoveryActions"][0].as_str().unwrap();
        assert_eq!(next, "free space there, or name a file elsewhere with -o");
        assert!(!out.exists(), "{limit}: {}", fs::read_to_string(&out).unwrap());
        let told = format!("{failure}{}", done.stderr);
        assert!(told.contains("was taken away"), "{limit}: {told}");
        // A link keeps its file, or the next run could not follow it.
        fs::write(env.beside("real.json"), "{\"exitCode\": 0}").unwrap();
        symlink(env.beside("real.json"), &out).unwrap();
        limited(&env, limit, &args);
        assert_eq!(fs::read_to_string(&out).unwrap(), "", "{limit}");
        fs::remove_file(&out).unwrap();
    }
    let done = limited(&env, "ulimit -f 8", &args);
    assert!(!done.stdout.contains("was taken away"), "nothing stood there: {done:?}");
}

fn limited(env: &TestEnv, limit: &str, args: &[&str]) -> Done {
    let mut shell = Command::new("sh");
    let line = format!("{limit}; exec \"$0\" \"$@\"");
    shell.arg("-c").arg(line).arg(env!("CARGO_BIN_EXE_thcode")).args(args);
    shell.current_dir(env.workspace()).env_clear().env("HOME", env.home());
    finish(shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

#[test]
fn few_file_handles_are_told_as_such() {
    let env = TestEnv::new();
    let cassette = env.cassette(&[json!({"text": "x"})]).display().to_string();
    let mut refused = 0;
    for handles in 4..16 {
        let args = ["run", "--json", "--cassette", &cassette, "x"];
        let done = limited(&env, &format!("ulimit -n {handles}"), &args);
        done.check_document();
        match done.end().2.as_str() {
            "-" => assert_eq!(done.code, Some(0)),
            cause => {
                refused += 1;
                // The database has only one word for all that keeps it from being opened.
                let known = [(Some(1), "resource-limit"), (Some(20), "store-unavailable")];
                assert!(known.contains(&(done.code, cause)), "{handles}: {done:?}");
            }
        }
    }
    assert!(refused > 0);
    let done = limited(&env, "ulimit -n 4", &["--version"]);
    assert_eq!(done.code, Some(0), "{done:?}");
}

/// A pipe whose reader made it non-blocking takes what it has room for; the rest has to wait.
#[test]
fn a_non_blocking_pipe_gets_the_whole_document() {
    let env = TestEnv::new();
    let text = "a line of the final text\n".repeat(20_000);
    let cassette = env.cassette(&[json!({"text": text})]).display().to_string();
    let (reader, writer) = std::io::pipe().unwrap();
    let flags = rustix::fs::fcntl_getfl(&writer).unwrap();
    rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    let mut call = env.thcode(&["run", "--json", "--cassette", &cassette, "x"]);
    call.command.stdout(writer);
    let child = call.start();
    drop(call);
    let reading = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(700));
        let (mut reader, mut bytes) = (reader, Vec::new());
        reader.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let done = finish(child);
    let document: Value = serde_json::from_slice(&reading.join().unwrap()).unwrap();
    check(&document, done.code);
    assert_eq!((done.code, document["text"].as_str()), (Some(0), Some(text.as_str())));
}

#[test]
fn what_has_no_document_on_standard_output_is_told_on_standard_error() {
    let env = TestEnv::new();
    for args in [
        &["explain-exit", "300"][..],
        &["schema", "print"],
        &["explain-exit", "3"],
        &["schema", "print", "x"],
    ] {
        let done = env.thcode(args).run();
        assert_eq!((done.code, done.stdout.as_str()), (Some(2), ""), "{args:?}");
        assert!(done.stderr.contains("USAGE"), "{args:?}: {done:?}");
    }
}

/// Whatever a change is in the middle of when a signal comes, it is brought to its end: one document
/// within five seconds that says what stands, and nothing for the next run to settle.
#[cfg(feature = "fault-injection")]
#[test]
fn a_signal_in_the_middle_of_a_change_finds_its_end() {
    use thcode::host::CrashPoint;
    let points = [
        CrashPoint::Proposed,
        CrashPoint::Sealed,
        CrashPoint::Checkpointed,
        CrashPoint::Dispatched,
        CrashPoint::Anchored,
        CrashPoint::TempSynced,
        CrashPoint::Published,
        CrashPoint::DirSynced,
        CrashPoint::Settled,
    ];
    let mut heard = 0;
    for point in points {
        for signal in ["INT", "TERM", "HUP", "QUIT"] {
            let case = format!("{} {signal}", point.name());
            let env = TestEnv::new();
            env.file("f.txt", "pre");
            let policy = "version = 1\n[[rule]]\nid = \"w\"\neffect = \"allow\"\n\
                tools = [\"edit_file\"]\nwhen.write = [\"**\"]\n";
            let policy = env.outside("p.policy.toml", policy).display().to_string();
            let edits = json!([{"oldText": "pre", "newText": "post"}]);
            let call = json!({"name": "edit_file", "arguments": {"path": "f.txt", "edits": edits}});
            let replies = [json!({"toolCalls": [call]}), json!({"text": "done"})];
            let cassette = env.cassette(&replies).display().to_string();
            let args = ["run", "--json", "--policy", &policy, "--cassette", &cassette, "x"];
            let stop = format!("stop-at-{}", point.name());
            let child = env.thcode(&args).env("THCODE_FAULT", stop).start();
            let stopped = || {
                let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
                stat.rsplit_once(')').unwrap().1.trim_start().starts_with('T')
            };
            while !stopped() {
                std::thread::sleep(Duration::from_millis(2));
            }
            kill(&child, signal);
            kill(&child, "CONT");
            let begun = Instant::now();
            let done = finish(child);
            assert!(begun.elapsed() < Duration::from_secs(5), "{case}: {:?}", begun.elapsed());
            done.check_document();
            // On a busy machine the little that was left may be over before the signal is heard.
            assert!(matches!(done.code, Some(130 | 0)), "{case}: {done:?}");
            heard += usize::from(done.code == Some(130));
            let document = done.json();
            let now = fs::read_to_string(env.workspace().join("f.txt")).unwrap();
            let said = document["operations"][0]["status"].as_str().unwrap();
            assert!(done.code == Some(130) || said == "succeeded", "{case}: {done:?}");
            assert_eq!(now, if said == "succeeded" { "post" } else { "pre" }, "{case}: {said}");
            let names = fs::read_dir(env.workspace()).unwrap().count();
            assert_eq!(names, 1, "{case}: nothing is left beside it");
            let next =
                ["run", "--json", "--on-interrupted", "require-clean", "--cassette", &cassette, "x"];
            let next = env.thcode(&next).document();
            assert_ne!(next.code, Some(60), "{case}: {next:?}");
            assert_ne!(next.code, Some(70), "{case}: {next:?}");
        }
    }
    assert!(heard > 18, "{heard} of 36 signals were heard");
}
