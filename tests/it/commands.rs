//! Commands through the real binary: what they are given, how they end, what is told and kept of them,
//! and that nothing of them outlives the run.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::{
    env::{Call, Done, TestEnv, check, finish, skipped},
    mock::{Answer, MockServer},
};

/// A workspace whose policy grants some commands.
struct Bench {
    env: TestEnv,
    policy: String,
}

impl Bench {
    fn new(grants: &str, settings: &str) -> Self {
        let policy = format!(
            "version = 1\n[sandbox]\nmode = \"off\"\n{settings}\n[[rule]]\nid = \"g\"\neffect = \"allow\"\n\
             tools = [\"run_command\"]\nwhen.command = {grants}\n"
        );
        Self { env: TestEnv::new(), policy }
    }

    /// A workspace with a script that may be run.
    fn with_script(text: &str, settings: &str) -> Self {
        let bench = Self::new("[\"./run.sh …\", \"cat …\"]", settings);
        bench.script("run.sh", text);
        bench
    }

    fn script(&self, name: &str, text: &str) {
        let path = self.env.file(name, format!("#!/bin/sh\n{text}\n"));
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn call(&self, replies: &[Value], more: &[&str]) -> Call {
        let policy = self.env.outside("p.policy.toml", &self.policy).display().to_string();
        let state = self.env.beside("state").display().to_string();
        let cassette = self.env.cassette(replies).display().to_string();
        let args =
            ["run", "--json", "--policy", &policy, "--state-dir", &state, "--cassette", &cassette];
        self.env.thcode(&[&args[..], more, &["the task"]].concat())
    }

    fn run(&self, arguments: Value) -> Done {
        self.call(&[run_command(arguments), json!({"text": "done"})], &[]).document()
    }

    /// The kinds of the journal's events that belong to an operation.
    fn kinds(&self) -> Vec<String> {
        let db = Connection::open(self.env.beside("state").join("state.db")).unwrap();
        let sql = "SELECT kind FROM journal WHERE operation_id IS NOT NULL ORDER BY seq";
        let mut rows = db.prepare(sql).unwrap();
        rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    fn last_payload(&self, kind: &str) -> Value {
        let db = Connection::open(self.env.beside("state").join("state.db")).unwrap();
        let sql = "SELECT payload FROM journal WHERE kind = ?1 ORDER BY seq DESC LIMIT 1";
        let text: String = db.query_row(sql, [kind], |row| row.get(0)).unwrap();
        serde_json::from_str(&text).unwrap()
    }
}

fn run_command(arguments: Value) -> Value {
    json!({"toolCalls": [{"name": "run_command", "arguments": arguments}]})
}

/// What the model was told of the first call.
fn told(done: &Done) -> String {
    let history = done.json()["history"].clone();
    let tool = history.as_array().unwrap().iter().find(|message| message["role"] == "tool").unwrap();
    tool["content"].as_str().unwrap().to_owned()
}

fn operation(done: &Done) -> Value {
    done.json()["operations"][0].clone()
}

/// The ids of processes whose command line holds a text.
fn pids(text: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let holds = |entry: &fs::DirEntry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(text) && !line.contains("run.sh")
    };
    entries.filter(holds).map(|entry| entry.file_name().into_string().unwrap()).collect()
}

fn running(text: &str) -> usize {
    pids(text).len()
}

/// A length of sleep that no other test has.
fn sleep_mark(at: u32) -> String {
    format!("9{:06}{at:02}", std::process::id() % 1_000_000)
}

fn wait_for(what: &str, so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it never comes to: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_command_runs_and_all_of_it_is_told() {
    let bench = Bench::with_script("echo out; echo err >&2; cat; exit 3", "");
    let done = bench.run(json!({"argv": ["./run.sh", "a b"]}));
    assert_eq!(done.end(), ("SUCCESS".to_owned(), "final-answer".to_owned(), "-".to_owned()));
    let operation = operation(&done);
    assert_eq!(operation["status"], "succeeded", "its code is the model's to judge");
    assert_eq!(operation["target"], "./run.sh 'a b'");
    let run = &operation["command"];
    assert_eq!(run["argv"], json!(["./run.sh", "a b"]));
    assert_eq!(
        (&run["exitCode"], &run["signal"], &run["timedOut"]),
        (&json!(3), &Value::Null, &json!(false))
    );
    assert_eq!((&run["cwd"], &run["outputBytes"]), (&json!("."), &json!(8)));
    let script = fs::read(bench.env.workspace().join("run.sh")).unwrap();
    assert_eq!(run["executableDigest"], thcode::id::Digest::of(&script).to_string());
    let told = told(&done);
    assert!(told.contains("exit code 3") && told.ends_with("out\nerr\n"), "{told}");
    let document = done.json();
    assert_eq!(document["excludedEffects"]["shell"][0]["target"], "./run.sh 'a b'");
    assert_eq!(document["checkpoints"], json!([]));
    assert_eq!(document["enforcement"]["sandbox"], "off");
    assert!(document["residualRisks"].to_string().contains("without walls"));
    assert_eq!(
        bench.kinds(),
        [
            "OperationProposed",
            "PolicyDecisionRecorded",
            "UnprotectedOperationRecorded",
            "AuthorizationConsumed",
            "EffectDispatchCommitted",
            "CommandSpawned",
            "OperationSucceeded"
        ]
    );
    let spawned = bench.last_payload("CommandSpawned");
    assert!(spawned["pid"].as_u64().unwrap() > 1 && spawned["startTime"].as_u64().unwrap() > 0);
    assert!(!spawned.to_string().contains("run.sh"), "no word of it is kept in clear");
}

#[test]
fn the_environment_is_clean() {
    let bench = Bench::with_script(
        "printenv | sort; echo HOME_IS_DIR; ls -a \"$HOME\"",
        "[commands]\nenv_allow = [\"PASSED\", \"UNSET\", \"OPENAI_API_KEY\", \"MY_KEY\"]",
    );
    let replies = [run_command(json!({"argv": ["./run.sh"]})), json!({"text": "done"})];
    let mut call = bench.call(&replies, &["--api-key-env", "MY_KEY"]);
    for (name, value) in [
        ("PASSED", "yes"),
        ("SECRET_TOKEN", "not-for-commands"),
        ("OPENAI_API_KEY", "sk-not-for-commands"),
        ("MY_KEY", "mine-not-for-commands"),
        ("LD_LIBRARY_PATH", "/nowhere"),
        ("BASH_ENV", "/nowhere"),
        ("THCODE_LABEL", "x"),
    ] {
        call = call.env(name, value);
    }
    let done = call.document();
    let told = told(&done);
    let names: BTreeSet<&str> = told.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    let expected = [
        "CI",
        "HOME",
        "LANG",
        "PASSED",
        "PATH",
        "PWD",
        "TERM",
        "THCODE_SANDBOX",
        "THCODE_SANDBOX_NETWORK",
        "TMPDIR",
    ];
    // The shell adds these itself.
    let names: Vec<&str> =
        names.into_iter().filter(|name| !["OLDPWD", "SHLVL", "_"].contains(name)).collect();
    assert_eq!(names, expected, "{told}");
    assert!(!told.contains("not-for-commands"));
    let home = told.lines().find_map(|line| line.strip_prefix("HOME=")).unwrap();
    assert_ne!(home, bench.env.home().display().to_string());
    assert!(!std::path::Path::new(home).exists(), "its home goes with the run");
    assert!(told.ends_with("HOME_IS_DIR\n.\n..\n"), "{told}");
}

#[test]
fn nothing_of_the_caller_s_handles_reaches_a_command() {
    let bench = Bench::with_script("ls /proc/self/fd | sort -n | tr '\\n' ' '", "");
    let replies = [run_command(json!({"argv": ["./run.sh"]})), json!({"text": "done"})];
    let plain = bench.call(&replies, &[]).command;
    let mut command = Command::new("bash");
    command.args(["-c", "exec 7</etc/passwd 9>/dev/null; exec \"$0\" \"$@\""]);
    command.arg(plain.get_program()).args(plain.get_args()).current_dir(bench.env.workspace());
    command.env_clear().env("HOME", bench.env.home()).env("PATH", std::env::var_os("PATH").unwrap());
    let child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let done = finish(child);
    // The last one is the directory that is listed.
    assert!(told(&done).ends_with("\n0 1 2 3 "), "{}", told(&done));
}

#[test]
fn a_command_that_takes_too_long_is_ended_with_all_that_came_of_it() {
    let marks: Vec<String> = (0..3).map(sleep_mark).collect();
    let text = format!(
        "trap '' TERM\nsetsid sleep {} &\n(setsid sh -c 'sleep {} & sleep 1; exit' &)\necho begun\nsleep {}",
        marks[0], marks[1], marks[2]
    );
    let bench = Bench::with_script(&text, "");
    let begun = Instant::now();
    let done = bench.run(json!({"argv": ["./run.sh"], "timeoutMs": 700}));
    assert!(begun.elapsed() < Duration::from_secs(10));
    let operation = operation(&done);
    assert_eq!(operation["status"], "failed");
    assert_eq!(operation["command"]["timedOut"], true);
    assert_eq!(operation["command"]["exitCode"], Value::Null);
    assert!(told(&done).contains("timed out after 700 ms") && told(&done).contains("begun"));
    assert_eq!(bench.last_payload("OperationFailed")["cause"], "timed-out");
    for mark in &marks {
        assert_eq!(running(&format!("sleep {mark}")), 0, "{mark}");
    }
    assert_eq!(done.json()["excludedEffects"]["shell"].as_array().unwrap().len(), 1);
}

#[test]
fn the_policy_s_time_is_the_longest() {
    let bench = Bench::with_script("sleep 60", "[commands]\ntimeout_ms = 300");
    let done = bench.run(json!({"argv": ["./run.sh"], "timeoutMs": 50_000}));
    assert!(told(&done).contains("timed out after 300 ms"), "{}", told(&done));
}

#[test]
fn what_stays_in_the_background_is_ended_and_told() {
    let marks: Vec<String> = (3..5).map(sleep_mark).collect();
    let text = format!(
        "sleep {} &\n(setsid sleep {} >/dev/null 2>&1 &)\nsleep 0.2\necho over",
        marks[0], marks[1]
    );
    let bench = Bench::with_script(&text, "");
    let done = bench.run(json!({"argv": ["./run.sh"]}));
    let operation = operation(&done);
    assert_eq!(operation["status"], "succeeded");
    assert_eq!(operation["command"]["backgroundProcesses"], 2);
    assert!(told(&done).contains("2 processes that it left running"), "{}", told(&done));
    for mark in &marks {
        assert_eq!(running(&format!("sleep {mark}")), 0, "{mark}");
    }
}

#[test]
fn a_long_output_never_holds_a_command_up() {
    let bench = Bench::with_script("echo first; head -c 30000000 /dev/zero | tr '\\0' x; echo last", "");
    let done = bench.run(json!({"argv": ["./run.sh"]}));
    assert_eq!(operation(&done)["command"]["outputBytes"], 30_000_011);
    assert_eq!(operation(&done)["command"]["exitCode"], 0);
    // The document carries less than the model saw, and says so.
    assert!(told(&done).contains("first\nxxx") && told(&done).contains("bytes in all]"));
    let mock = MockServer::start(vec![
        Answer::calls(&[("run_command", json!({"argv": ["./run.sh"]}))]),
        Answer::text("done"),
    ]);
    let base = mock.base_url();
    let policy = bench.env.outside("p.policy.toml", &bench.policy).display().to_string();
    let provider =
        ["--provider", "custom", "--base-url", &base, "--model", "m", "--context-limit", "300000"];
    let run = ["run", "--json", "--policy", &policy];
    bench.env.thcode(&[&run[..], &provider, &["the task"]].concat()).document();
    let sent: Value = serde_json::from_slice(&mock.requests()[1].body).unwrap();
    let seen = sent["messages"][3]["content"].as_str().unwrap();
    assert!(seen.contains("first\nxxx") && seen.ends_with("xxxlast\n"), "{}", seen.len());
    assert!(seen.contains("bytes left out here]") && seen.len() < 140_000, "{}", seen.len());
}

#[test]
fn a_command_that_cannot_be_started_has_an_end_in_the_journal() {
    let bench = Bench::new("[\"./bad\", \"./plain\", \"no-such-program\", \"./gone\"]", "");
    bench.script("bad", "");
    fs::write(bench.env.workspace().join("bad"), [0u8, 1, 2]).unwrap();
    bench.env.file("plain", "#!/bin/sh\n");
    for (program, cause, dispatched) in [
        ("./bad", "spawn-failed", true),
        ("./plain", "program-not-found", false),
        ("no-such-program", "program-not-found", false),
        ("./gone", "program-not-found", false),
    ] {
        let done = bench.run(json!({"argv": [program]}));
        assert_eq!(done.end().0, "SUCCESS", "no operation is left open: {done:?}");
        assert_eq!(operation(&done)["status"], "failed", "{program}");
        assert_eq!(operation(&done)["command"], Value::Null);
        assert!(told(&done).contains(cause), "{program}: {}", told(&done));
        assert_eq!(bench.last_payload("OperationFailed")["cause"], cause);
        let kinds = bench.kinds();
        let last = kinds.iter().rposition(|kind| kind == "OperationProposed").unwrap();
        let was = kinds[last..].contains(&"EffectDispatchCommitted".to_owned());
        assert_eq!(was, dispatched, "{program}");
    }
}

#[test]
fn without_walls_no_command_runs_unless_the_policy_says_so() {
    let bench = Bench::with_script("touch ran", "");
    let strict = bench.policy.replace("mode = \"off\"", "mode = \"required\"");
    let silent = bench.policy.replace("[sandbox]\nmode = \"off\"\n", "");
    for policy in [strict, silent] {
        let bench = Bench { env: TestEnv::new(), policy };
        bench.script("run.sh", "touch ran");
        let done = bench.run(json!({"argv": ["./run.sh"]}));
        assert_eq!(done.end().1, "final-answer", "the call is denied, not the run");
        assert_eq!(done.code, Some(10));
        let denial = &done.json()["denials"][0];
        assert_eq!(
            (&denial["cause"], &denial["because"]),
            (&json!("enforcement-unverified"), &json!("matrix"))
        );
        assert_eq!((&denial["argv"], &denial["path"]), (&json!(["./run.sh"]), &Value::Null));
        assert!(denial["reason"].as_str().unwrap().starts_with("ENFORCEMENT UNVERIFIED"));
        assert!(!bench.env.workspace().join("ran").exists());
        assert_eq!(done.json()["enforcement"]["sandbox"], "required");
        assert_eq!(done.json()["excludedEffects"]["shell"], json!([]));
        assert!(done.stderr.contains("denied: run_command ./run.sh"), "{done:?}");
    }
}

/// The tools that a request offers, where a policy has these lines.
fn offered(policy: &str, more: &[&str]) -> Vec<String> {
    let env = TestEnv::new();
    let mock = MockServer::start(vec![Answer::text("done")]);
    let base = mock.base_url();
    let policy = env.outside("p.policy.toml", policy).display().to_string();
    let provider =
        ["--provider", "custom", "--base-url", &base, "--model", "m", "--context-limit", "64000"];
    let run = ["run", "--json", "--policy", &policy];
    env.thcode(&[&run[..], &provider, more, &["the task"]].concat()).document();
    let sent: Value = serde_json::from_slice(&mock.requests()[0].body).unwrap();
    let tools = sent["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_tool_is_offered_where_a_command_could_run() {
    let bench = Bench::new("\"ls\"", "");
    let has = |policy: &str, more: &[&str]| offered(policy, more).contains(&"run_command".to_owned());
    assert!(has(&bench.policy, &[]));
    assert!(!has(&bench.policy, &["--mode", "plan"]));
    assert!(!has(&bench.policy.replace("\"off\"", "\"required\""), &[]));
    assert!(!has("version = 1\n[sandbox]\nmode = \"off\"\n", &[]));
}

#[test]
fn the_directory_lies_in_the_workspace() {
    let bench = Bench::new("[\"pwd\", \"cat …\"]", "");
    bench.env.file("sub/a.txt", "inner");
    symlink(bench.env.beside(""), bench.env.workspace().join("out")).unwrap();
    symlink("sub", bench.env.workspace().join("link")).unwrap();
    for cwd in ["sub", "link", "./sub/."] {
        let done = bench.run(json!({"argv": ["cat", "a.txt"], "cwd": cwd}));
        assert!(told(&done).ends_with("inner"), "{cwd}: {}", told(&done));
        assert_eq!(operation(&done)["command"]["cwd"], "sub");
    }
    for (cwd, cause) in
        [("..", "outside-workspace"), ("/", "outside-workspace"), ("out", "outside-workspace")]
    {
        let done = bench.run(json!({"argv": ["pwd"], "cwd": cwd}));
        assert_eq!(operation(&done)["decision"]["cause"], cause, "{cwd}");
        assert_eq!(operation(&done)["status"], "blocked");
    }
    for cwd in ["sub/a.txt", "none"] {
        let done = bench.run(json!({"argv": ["pwd"], "cwd": cwd}));
        assert!(told(&done).contains("directory-not-found"), "{cwd}: {}", told(&done));
    }
    // What words name is judged from the directory on.
    bench.env.file("sub/.env", "SECRET");
    let done = bench.run(json!({"argv": ["cat", ".env"], "cwd": "sub"}));
    assert_eq!(operation(&done)["decision"]["cause"], "secret-read");
}

#[test]
fn programs_of_the_workspace_are_not_found_by_name() {
    let bench = Bench::new("[\"tool\", \"linked\", \"/bin/pwd\"]", "");
    bench.script("bin/tool", "echo hijacked");
    let beside = bench.env.beside("bin");
    fs::create_dir(&beside).unwrap();
    symlink(bench.env.workspace().join("bin/tool"), beside.join("linked")).unwrap();
    let path = format!(
        "{}:./bin::{}:/usr/bin:/bin",
        bench.env.workspace().join("bin").display(),
        beside.display()
    );
    let run = |arguments: Value| {
        let replies = [run_command(arguments), json!({"text": "done"})];
        bench.call(&replies, &[]).env("PATH", &path).document()
    };
    assert!(told(&run(json!({"argv": ["tool"]}))).contains("program-not-found"));
    assert!(told(&run(json!({"argv": ["linked"]}))).contains("program-in-workspace"));
    let done = run(json!({"argv": ["/bin/pwd"]}));
    assert_eq!(operation(&done)["command"]["exitCode"], 0);
}

#[test]
fn a_known_secret_in_the_output_leaves_in_no_document() {
    let bench = Bench::new("\"cat …\"", "");
    bench.env.file("notes", "the key is sk-hunter2-hunter2 indeed");
    let replies =
        [run_command(json!({"argv": ["cat", "notes", "sk-hunter2-hunter2"]})), json!({"text": "x"})];
    let done = bench.call(&replies, &[]).env("OPENAI_API_KEY", "sk-hunter2-hunter2").document();
    assert!(told(&done).contains("the key is [redacted:"), "{}", told(&done));
    assert!(!done.stdout.contains("hunter2") && !done.stderr.contains("hunter2"));
}

#[test]
fn malformed_commands_are_told_and_never_judged() {
    let bench = Bench::new("\"ls\"", "");
    for arguments in [
        json!({}),
        json!({"argv": []}),
        json!({"argv": [""]}),
        json!({"argv": "ls"}),
        json!({"argv": ["ls", 1]}),
        json!({"argv": ["ls\u{0}"]}),
        json!({"argv": ["ls"], "command": "ls"}),
        json!({"command": "ls"}),
        json!({"argv": ["ls"], "timeoutMs": 0}),
        json!({"argv": ["ls"], "cwd": 1}),
        json!({"argv": vec!["x"; 1025]}),
        json!({"argv": ["ls", "x".repeat(300_000)]}),
    ] {
        let done = bench.run(arguments.clone());
        assert_eq!(operation(&done)["status"], "malformed", "{arguments}");
    }
}

fn start(bench: &Bench, mark: &str) -> Child {
    let replies = [run_command(json!({"argv": ["./run.sh"]})), json!({"text": "done"})];
    let mut call = bench.call(&replies, &[]);
    let child = call.start();
    wait_for("the command runs", || running(&format!("sleep {mark}")) > 0);
    child
}

fn send(child: &Child, signal: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
}

#[test]
fn a_signal_ends_the_command_with_all_that_came_of_it() {
    for (at, signal) in ["TERM", "INT", "HUP", "QUIT"].into_iter().enumerate() {
        let mark = sleep_mark(20 + u32::try_from(at).unwrap());
        let bench = Bench::with_script(
            &format!("trap '' TERM INT HUP QUIT\n(setsid sleep {mark} &)\nsleep {mark}"),
            "",
        );
        let child = start(&bench, &mark);
        send(&child, signal);
        let sent = Instant::now();
        let done = finish(child);
        assert!(sent.elapsed() < Duration::from_secs(5), "{signal}: {:?}", sent.elapsed());
        check(&done.json(), done.code);
        assert_eq!(done.code, Some(130));
        assert_eq!(done.end().1, "cancelled");
        assert_eq!(operation(&done)["status"], "failed");
        assert_eq!(running(&format!("sleep {mark}")), 0);
        assert_eq!(bench.last_payload("OperationFailed")["cause"], "stopped");
        assert_eq!(done.json()["excludedEffects"]["shell"].as_array().unwrap().len(), 1);
        bench.script("run.sh", "echo again");
        assert_eq!(bench.run(json!({"argv": ["./run.sh"]})).code, Some(0), "nothing is left open");
    }
}

#[test]
fn a_second_signal_leaves_no_command_behind() {
    let mark = sleep_mark(50);
    let bench = Bench::with_script(&format!("trap '' TERM\nsleep {mark}"), "");
    let child = start(&bench, &mark);
    send(&child, "TERM");
    thread::sleep(Duration::from_millis(60));
    send(&child, "TERM");
    let done = finish(child);
    assert_eq!(done.code, Some(130));
    assert_eq!(done.stdout, "", "the second one ends it at once");
    wait_for("it is gone", || running(&format!("sleep {mark}")) == 0);
    let replies = [run_command(json!({"argv": ["./run.sh"]})), json!({"text": "done"})];
    let done = bench.call(&replies, &["--on-interrupted", "require-clean"]).document();
    assert_eq!(done.end().0, "RECOVERY_REQUIRED", "what came of it has to be looked at");
}

#[test]
fn a_run_that_dies_leaves_its_command_interrupted() {
    let mark = sleep_mark(40);
    let bench = Bench::with_script(&format!("sleep {mark}"), "");
    let mut child = start(&bench, &mark);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for("what it left is gone", || {
        let left = pids(&format!("sleep {mark}"));
        left.iter().for_each(|pid| drop(Command::new("kill").args(["-9", pid]).status()));
        left.is_empty()
    });
    let replies = [run_command(json!({"argv": ["./run.sh"]})), json!({"text": "done"})];
    let done = bench.call(&replies, &["--on-interrupted", "require-clean"]).document();
    assert_eq!(
        done.end(),
        ("RECOVERY_REQUIRED".to_owned(), "recovery-required".to_owned(), "recovery-required".to_owned())
    );
    let done = bench.call(&[json!({"text": "x"})], &["--on-interrupted", "ignore"]).document();
    let told = done.json()["residualRisks"].to_string();
    assert!(told.contains("1 operation of an earlier run is left interrupted"), "{told}");
}

/// A grant of the caller's own: named in the document, outside the pinned bundle, and under every deny.
#[test]
fn a_command_that_the_caller_allows_runs() {
    let bench = Bench::with_script("echo ran", "");
    let env = &bench.env;
    let text = "version = 1\n[sandbox]\nmode = \"off\"\n[[rule]]\nid = \"no-false\"\neffect = \"deny\"\n\
        tools = [\"run_command\"]\nreason = \"no\"\nwhen.command = { program = [\"false\"] }\n";
    let policy = env.outside("own.policy.toml", text).display().to_string();
    let digest = env.thcode(&["policy", "check", "--json", &policy]).document().json()["digest"].clone();
    let calls = json!({"toolCalls": [
        {"name": "run_command", "arguments": {"argv": ["true"]}},
        {"name": "run_command", "arguments": {"argv": ["true", "more"]}},
        {"name": "run_command", "arguments": {"argv": ["false"]}},
        {"name": "run_command", "arguments": {"argv": ["echo", "a\"b"]}},
    ]});
    let cassette = env.cassette(&[calls, json!({"text": "done"})]).display().to_string();
    let state = env.beside("own-state").display().to_string();
    let run = |more: &[&str]| {
        let args = ["run", "--json", "--cassette", &cassette, "--state-dir", &state];
        env.thcode(&[&args[..], more, &["x"]].concat()).document()
    };
    let granted = ["--allow-command", "true", "--allow-command", "false …", "--allow-command", "echo …"];
    let pinned = ["--policy", &policy, "--policy-digest", digest.as_str().unwrap()];
    let done = run(&[&pinned[..], &granted].concat());
    let document = done.json();
    let rules: Vec<(&str, &str)> = document["operations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|found| {
            let rule = found["decision"]["ruleId"].as_str().unwrap_or("-");
            (rule, found["status"].as_str().unwrap())
        })
        .collect();
    assert_eq!(
        rules,
        [("cli-1", "succeeded"), ("-", "blocked"), ("no-false", "blocked"), ("cli-3", "succeeded")],
        "{done:?}"
    );
    assert_eq!(document["policy"]["digest"], digest, "the pin is of the files alone");
    assert!(document["policy"]["files"].to_string().contains("--allow-command"));
    assert_eq!(run(&granted).code, Some(2), "not without a policy");
    let odd = run(&[&pinned[..], &["--allow-command", ""]].concat());
    assert_eq!(odd.end().2, "policy-invalid", "{odd:?}");
}

/// In a container the leader of the session is often outside, and has no id in there.
#[test]
fn a_command_runs_where_the_leader_of_the_session_is_outside() {
    let inside = ["--user", "--map-root-user", "--pid", "--fork", "--mount-proc"];
    let tried = Command::new("unshare").args(inside).arg("true").output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        skipped("a command in a namespace of processes", "unshare makes none here");
        return;
    }
    let bench = Bench::with_script("sleep 300 & echo out", "");
    let replies = [run_command(json!({"argv": ["./run.sh"]})), json!({"text": "done"})];
    let done = bench.call(&replies, &[]).inside("unshare", &inside).document();
    assert_eq!(done.end(), ("SUCCESS".to_owned(), "final-answer".to_owned(), "-".to_owned()));
    assert_eq!(operation(&done)["command"]["exitCode"], 0);
    assert!(told(&done).contains("out"), "{done:?}");
    let spawned = bench.last_payload("CommandSpawned");
    assert_ne!(spawned["startTime"], 0, "its processes are seen: {spawned}");
    assert_eq!(spawned["processSession"], 0, "the leader is outside: {spawned}");
}
