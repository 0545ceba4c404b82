//! Changes by the real binary: sealed, journaled, then written; and what stands after a crash.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::env::{Done, TestEnv, finish, skipped};

const POLICY: &str = "version = 1\n[[rule]]\nid = \"write\"\neffect = \"allow\"\n\
    tools = [\"create_file\", \"edit_file\", \"delete_file\"]\nwhen.write = [\"**\"]\n";

fn calls(calls: &[(&str, Value)]) -> Value {
    let calls: Vec<Value> =
        calls.iter().map(|(name, arguments)| json!({"name": name, "arguments": arguments})).collect();
    json!({"toolCalls": calls})
}

fn edit(path: &str, old: &str, new: &str) -> (&'static str, Value) {
    ("edit_file", json!({"path": path, "edits": [{"oldText": old, "newText": new}]}))
}

fn create(path: &str, content: &str) -> (&'static str, Value) {
    ("create_file", json!({"path": path, "content": content}))
}

fn delete(path: &str) -> (&'static str, Value) {
    ("delete_file", json!({"path": path}))
}

struct Run<'e> {
    env: &'e TestEnv,
    args: Vec<String>,
}

impl<'e> Run<'e> {
    fn new(env: &'e TestEnv, replies: &[Value]) -> Self {
        let policy = env.outside("write.policy.toml", POLICY).display().to_string();
        let cassette = env.cassette(replies).display().to_string();
        let args = ["run", "--json", "--policy", &policy, "--cassette", &cassette, "the task"];
        Self { env, args: args.map(str::to_owned).to_vec() }
    }

    fn with(mut self, more: &[&str]) -> Self {
        self.args.extend(more.iter().map(|arg| (*arg).to_owned()));
        self
    }

    fn call(&self) -> crate::env::Call {
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        self.env.thcode(&args)
    }

    fn document(&self) -> Done {
        self.call().document()
    }
}

fn state_dir(env: &TestEnv) -> PathBuf {
    let base = env.home().join(".local/state/thcode");
    let dirs: Vec<PathBuf> = fs::read_dir(base)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    assert_eq!(dirs.len(), 1);
    dirs.into_iter().next().unwrap()
}

/// Nothing is written through a link, and of a file with other names nothing is changed unless the
/// policy parts them: then the other names keep what they had.
#[test]
fn links_are_left_as_they_are() {
    let env = TestEnv::new();
    env.file("real.md", "hello\n");
    for (name, leads_to) in [("link.md", "real.md"), ("dangling", "nowhere"), ("dir", "deep")] {
        std::os::unix::fs::symlink(leads_to, env.workspace().join(name)).unwrap();
    }
    env.file("deep/one.md", "hello\n");
    env.file("both.md", "hello\n");
    fs::hard_link(env.workspace().join("both.md"), env.workspace().join("other.md")).unwrap();
    let replies = [
        calls(&[edit("link.md", "hello", "bye"), delete("link.md"), create("dangling", "x")]),
        calls(&[edit("dir/one.md", "hello", "bye"), edit("both.md", "hello", "bye")]),
        json!({"text": "done"}),
    ];
    let run = Run::new(&env, &replies);
    let done = run.document();
    let told = |done: &Done, at: usize| {
        let document = done.json();
        let id = document["operations"][at]["operationId"].clone();
        let output = document["events"].as_array().unwrap().iter().find_map(|event| {
            (event["operationId"] == id).then(|| event["output"].as_str().map(str::to_owned))?
        });
        (document["operations"][at]["status"].as_str().unwrap().to_owned(), output.unwrap())
    };
    for (at, leads_to) in [(0, "real.md"), (1, "real.md"), (2, "nowhere")] {
        let (status, output) = told(&done, at);
        assert_eq!(status, "blocked", "{output}");
        assert!(output.contains(&format!("it leads to {leads_to} [behind-symlink]")), "{output}");
    }
    assert_eq!(told(&done, 3).0, "succeeded", "a link in the directories above is followed inside");
    assert!(told(&done, 4).1.contains("hard links"), "{:?}", told(&done, 4));
    assert_eq!(fs::read(env.workspace().join("deep/one.md")).unwrap(), b"bye\n");
    assert_eq!(fs::read(env.workspace().join("real.md")).unwrap(), b"hello\n");
    assert!(env.workspace().join("link.md").is_symlink() && !env.workspace().join("nowhere").exists());
    // The policy parts the names.
    env.outside("write.policy.toml", format!("{POLICY}[checkpoint]\nhardlinks = \"break\"\n"));
    env.cassette(&[calls(&[edit("both.md", "hello", "bye")]), json!({"text": "done"})]);
    let done = run.document();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(fs::read(env.workspace().join("both.md")).unwrap(), b"bye\n");
    assert_eq!(fs::read(env.workspace().join("other.md")).unwrap(), b"hello\n");
}

#[test]
fn a_turn_changes_files_and_tells_what_came_of_each() {
    let env = TestEnv::new();
    env.file("a.rs", "fn a() {}\n");
    env.file("old.rs", "gone\n");
    let replies = [
        calls(&[edit("a.rs", "fn a", "fn b"), create("new/c.rs", "x\n"), create("passing.rs", "y\n")]),
        calls(&[edit("a.rs", "fn b", "fn c"), delete("old.rs"), delete("passing.rs")]),
        json!({"text": "done"}),
    ];
    let done = Run::new(&env, &replies).document();
    assert_eq!(done.code, Some(0), "{done:?}");
    let document = done.json();
    let changes: Vec<(&str, &str, bool)> = document["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| {
            (
                change["path"].as_str().unwrap(),
                change["kind"].as_str().unwrap(),
                change["covered"].as_bool().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        changes,
        [("a.rs", "edited", true), ("new/c.rs", "created", true), ("old.rs", "deleted", true)]
    );
    assert_eq!(document["checkpoints"].as_array().unwrap().len(), 6);
    assert_eq!(fs::read(env.workspace().join("a.rs")).unwrap(), b"fn c() {}\n");
    assert!(!env.workspace().join("old.rs").exists() && !env.workspace().join("passing.rs").exists());
}

#[test]
fn what_was_not_granted_is_not_changed_in_plan_mode_neither() {
    let env = TestEnv::new();
    env.file("a.rs", "x");
    let replies =
        [calls(&[edit("a.rs", "x", "y"), create(".git/hooks/x", "y")]), json!({"text": "done"})];
    let before = env.tree();
    let plan = Run::new(&env, &replies).with(&["--mode", "plan"]).document();
    assert_eq!((plan.code, env.tree()), (Some(10), before.clone()));
    let cassette = env.cassette(&replies);
    let bare = env.thcode(&["run", "--json", "--cassette", cassette.to_str().unwrap(), "x"]).document();
    assert_eq!((bare.code, env.tree()), (Some(10), before));
}

#[test]
fn the_write_set_ends_the_turn_before_it_is_passed() {
    let env = TestEnv::new();
    let replies = [calls(&[create("a", "1"), create("b", "2")]), json!({"text": "done"})];
    let done = Run::new(&env, &replies).with(&["--max-files-changed", "1"]).document();
    assert_eq!(done.end().1, "write-set-limit");
    assert_eq!((done.code, done.json()["status"].as_str()), (Some(40), Some("partial")));
    assert!(env.workspace().join("a").exists() && !env.workspace().join("b").exists());
    let env = TestEnv::new();
    let done = Run::new(&env, &[calls(&[create("a", "12345")]), json!({"text": "x"})])
        .with(&["--max-bytes-written", "4"])
        .document();
    assert_eq!((done.code, done.json()["status"].as_str()), (Some(40), Some("failed")));
}

#[test]
fn a_session_goes_on_and_forks() {
    let env = TestEnv::new();
    let first = Run::new(&env, &[json!({"text": "one"})]).document();
    let again = Run::new(&env, &[json!({"text": "two"})]).with(&["-c", "--label", "mine"]).document();
    assert_eq!(again.json()["sessionId"], first.json()["sessionId"]);
    assert_eq!(again.json()["promptRound"], 2);
    assert_eq!(again.json()["history"].as_array().unwrap().len(), 4);
    let fork = Run::new(&env, &[json!({"text": "three"})]).with(&["-r", "mine", "--fork"]).document();
    assert_ne!(fork.json()["sessionId"], first.json()["sessionId"]);
    assert_eq!(fork.json()["history"].as_array().unwrap().len(), 6);
    let none = Run::new(&env, &[json!({"text": "x"})]).with(&["-r", "nonesuch"]).document();
    assert_eq!(none.end().2, "session-not-found");
}

/// A run that waits for its prompt's end holds nothing; one that waits for its provider holds the
/// workspace, the directories above it and those below.
#[test]
fn two_runners_exclude_each_other() {
    let env = TestEnv::new();
    fs::create_dir(env.workspace().join("below")).unwrap();
    let mock = crate::mock::MockServer::start(vec![crate::mock::Answer::silent()]);
    let child = env.asking(&mock.base_url(), &["--json", "x"]).start();
    while mock.requests().is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let replies = [json!({"text": "x"})];
    for dir in [".", "below", ".."] {
        // Outside of every workspace that is tried.
        let elsewhere = tempfile::tempdir().unwrap();
        let state = elsewhere.path().join("state");
        let mut run = Run::new(&env, &replies);
        // Named from the directory above, the policy would be one of the tree's own.
        run.args.drain(2..4);
        let here = ["-C", dir, "--state-dir", state.to_str().unwrap(), "--wait-lock", "0"];
        let done = run.with(&here).document();
        assert_eq!((done.code, done.end().1.as_str()), (Some(25), "workspace-in-use"), "{dir}");
    }
    Command::new("kill").args(["-9", &child.id().to_string()]).status().unwrap();
    drop(finish(child));
    let after = Run::new(&env, &replies).document();
    assert_eq!(after.code, Some(0), "a killed holder never wedges the next");
}

/// Exactly four syncs for a change of a small file in a directory that is there: the dispatch, the
/// anchor, the temporary file, the directory.
#[test]
fn an_edit_costs_four_syncs() {
    let Some((few, many)) = syncs(1, "").zip(syncs(41, "")) else { return };
    assert_eq!((many - few) as f64 / 40.0, 4.0, "{few} syncs for one edit, {many} for 41");
}

/// A log that has grown large is moved into the database now and then, not after every change that
/// follows.
#[test]
fn a_large_log_costs_no_sync_with_every_change() {
    let rest = "x".repeat(500_000);
    let Some((few, many)) = syncs(1, &rest).zip(syncs(61, &rest)) else { return };
    let each = (many - few) as f64 / 60.0;
    assert!(each > 4.0, "the log never grew large: {each} syncs for an edit");
    assert!(each < 4.5, "{each} syncs for an edit");
}

/// The syncs of a run that makes so many edits of a file which ends in this; `None`, and told, where
/// they can't be counted.
fn syncs(edits: usize, rest: &str) -> Option<usize> {
    if Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_err() {
        skipped("the count of syncs of vault.rs", "there is no strace");
        return None;
    }
    let env = TestEnv::new();
    env.file("f.txt", format!("<0>{rest}"));
    let step = |at: usize| edit("f.txt", &format!("<{at}>"), &format!("<{}>", at + 1));
    let mut replies: Vec<Value> = (0..edits).map(|at| calls(&[step(at)])).collect();
    replies.push(json!({"text": "done"}));
    // A store that is there: making one has syncs of its own.
    assert_eq!(Run::new(&env, &[json!({"text": "x"})]).document().code, Some(0));
    let run = Run::new(&env, &replies).with(&["--max-iterations", "500"]);
    let trace = env.beside("trace");
    let mut command = Command::new("strace");
    command.args(["-f", "-e", "trace=fsync,fdatasync,sync_file_range,syncfs,sync", "-o"]).arg(&trace);
    command.arg(env!("CARGO_BIN_EXE_thcode")).args(&run.args).current_dir(env.workspace());
    command.env_clear().env("HOME", env.home()).env("PATH", std::env::var_os("PATH").unwrap());
    let done = command.stdin(Stdio::null()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    let text = fs::read_to_string(&trace).unwrap();
    Some(text.lines().filter(|line| line.contains("sync(") && !line.contains("resumed")).count())
}

/// Nothing that was said or changed lies readable in the state directory after a clean end.
#[test]
fn nothing_lies_readable_in_the_state_directory() {
    assert_eq!(readable(None), Vec::<String>::new());
}

/// A build that leaves sealing out is caught: of the files, of the prompt, of their names.
#[cfg(feature = "fault-injection")]
#[test]
fn without_sealing_it_would_lie_readable() {
    let found = readable(Some("no-seal"));
    for needle in ["MARKER-0815-of-a-file", "the task", "NAME-4711"] {
        assert!(found.contains(&needle.to_owned()), "{needle}: {found:?}");
    }
}

/// What of a run can be read in its state directory: as it is, in UTF-16, in hex, in base64.
fn readable(fault: Option<&str>) -> Vec<String> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let env = TestEnv::new();
    let marker = "MARKER-0815-of-a-file";
    env.file("f.txt", format!("{marker} pre"));
    env.file("large.bin", marker.repeat(60_000));
    let replies = [
        calls(&[edit("f.txt", "pre", "post"), create("NAME-4711.txt", marker), delete("large.bin")]),
        json!({"text": marker}),
    ];
    let mut call = Run::new(&env, &replies).call();
    if let Some(fault) = fault {
        call = call.env("THCODE_FAULT", fault);
    }
    let done = call.document();
    assert_eq!(done.code, Some(0), "{done:?}");
    let mut found = std::collections::BTreeSet::new();
    let mut journal = false;
    let mut todo = vec![state_dir(&env)];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
                continue;
            }
            let bytes = fs::read(&path).unwrap();
            let has = |needle: &[u8]| memchr::memmem::find(&bytes, needle).is_some();
            for needle in [marker, "the task", "NAME-4711"] {
                let utf16: Vec<u8> = needle.encode_utf16().flat_map(u16::to_le_bytes).collect();
                let hex: String = needle.bytes().map(|byte| format!("{byte:02x}")).collect();
                // Whatever stands before it, one of three shifts has its middle.
                let base64 = (0..3).map(|shift| {
                    let text = STANDARD.encode([&vec![b'x'; shift], needle.as_bytes()].concat());
                    text.chars().skip(4).take(text.len() - 8).collect::<String>()
                });
                let forms = [needle.as_bytes().to_vec(), utf16, hex.into_bytes()];
                let forms = forms.into_iter().chain(base64.map(String::into_bytes));
                if forms.into_iter().any(|form| form.len() > 7 && has(&form)) {
                    found.insert(needle.to_owned());
                }
            }
            journal |= has(b"EffectDispatchCommitted");
        }
    }
    assert!(journal, "the search does find what is there");
    found.into_iter().collect()
}

/// The causes that only a run that keeps can meet, for the list of all causes.
pub(crate) fn causes() -> Vec<String> {
    let mut reached = Vec::new();
    let mut see = |done: Done| reached.push(done.end().2);
    let env = TestEnv::new();
    let replies = [calls(&[create("a", "1")]), json!({"text": "x"})];
    see(Run::new(&env, &replies).with(&["--max-files-changed", "0"]).document());
    let database = rusqlite::Connection::open(state_dir(&env).join("state.db")).unwrap();
    database.execute_batch("PRAGMA user_version = 99").unwrap();
    drop(database);
    see(Run::new(&env, &replies).document());
    let env = TestEnv::new();
    assert_eq!(Run::new(&env, &[json!({"text": "x"})]).document().code, Some(0));
    let database = rusqlite::Connection::open(state_dir(&env).join("state.db")).unwrap();
    // As a run that died between its proposal and anything else leaves it, but for the chain.
    let lock = fs::File::open(env.workspace()).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    see(Run::new(&env, &replies).document());
    drop((lock, database));
    reached.push(interrupted(&TestEnv::new()));
    reached
}

/// A run that is killed while a change waits leaves an operation open: the next run says so.
fn interrupted(env: &TestEnv) -> String {
    env.file("f.txt", "pre");
    let run = Run::new(env, &[calls(&[edit("f.txt", "pre", "post")]), json!({"text": "x"})]);
    let trace = env.beside("inject");
    let mut command = Command::new("strace");
    // Killed at the first rename of its exchange.
    command.args(["-f", "-o"]).arg(&trace).args([
        "-e",
        "trace=renameat2",
        "-e",
        "inject=renameat2:signal=KILL:when=1",
    ]);
    command.arg(env!("CARGO_BIN_EXE_thcode")).args(&run.args).current_dir(env.workspace());
    command.env_clear().env("HOME", env.home()).env("PATH", std::env::var_os("PATH").unwrap());
    match command.stdin(Stdio::null()).output() {
        Ok(_) => {
            let clean = ["--on-interrupted", "require-clean"];
            Run::new(env, &[json!({"text": "x"})]).with(&clean).document().end().2
        }
        Err(_) => {
            skipped("the cause recovery-required", "there is no strace");
            "recovery-required".to_owned()
        }
    }
}

#[test]
fn an_ephemeral_run_leaves_nothing_behind() {
    let env = TestEnv::new();
    let temp = env.beside("tmp");
    fs::create_dir(&temp).unwrap();
    let run = Run::new(&env, &[calls(&[create("a", "1")]), json!({"text": "x"})]).with(&["--ephemeral"]);
    let mut call = run.call().env("TMPDIR", &temp);
    let child = call.start();
    let done = finish(child);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.json()["stateDir"], Value::Null);
    assert_eq!(fs::read_dir(&temp).unwrap().count(), 0);
    assert!(!env.home().join(".local").exists());
}

#[test]
fn a_key_that_the_model_could_read_and_a_store_of_another_workspace_are_refused() {
    let env = TestEnv::new();
    let key = env.file("state.key", "x");
    let replies = [json!({"text": "x"})];
    let done = Run::new(&env, &replies).with(&["--key-file", key.to_str().unwrap()]).document();
    assert_eq!((done.code, done.end().2.as_str()), (Some(2), "state-dir-refused"));
    let state = env.beside("state");
    let named = ["--state-dir", state.to_str().unwrap()];
    assert_eq!(Run::new(&env, &replies).with(&named).document().code, Some(0));
    fs::create_dir(env.workspace().join("other")).unwrap();
    let other = Run::new(&env, &replies).with(&named).with(&["-C", "other"]).document();
    assert_eq!((other.code, other.end().2.as_str()), (Some(2), "state-dir-refused"), "{other:?}");
}

#[test]
fn over_the_cap_a_change_is_refused_unless_the_policy_names_it() {
    let env = TestEnv::new();
    env.file("big.bin", vec![b'x'; 5000]);
    let replies = [calls(&[delete("big.bin")]), json!({"text": "done"})];
    let caps = "[checkpoint]\nper_checkpoint_cap_bytes = 4000\n";
    let with = |more: &str| {
        let mut run = Run::new(&env, &replies);
        let policy = POLICY.replace("version = 1\n", &format!("version = 1\n{caps}{more}"));
        run.args[3] = env.outside("caps.policy.toml", policy).display().to_string();
        run.document()
    };
    let refused = with("");
    assert_eq!((refused.code, env.workspace().join("big.bin").exists()), (Some(0), true), "{refused:?}");
    assert!(refused.stdout.contains("over-cap"), "the model is told");
    let waived = with(
        "allow_unprotected = [{ paths = [\"*.bin\"], reason = \"built anew\", max_bytes = 5000 }]\n",
    );
    assert_eq!(waived.code, Some(10), "done, but with a named limit: {waived:?}");
    let document = waived.json();
    assert_eq!(document["changes"][0]["covered"], false);
    assert_eq!(document["excludedEffects"]["unprotected"][0]["target"], "big.bin");
    assert!(!env.workspace().join("big.bin").exists());
}

/// What was never made isn't left behind: on a read-only disk no operation stands after the run.
#[test]
fn on_a_read_only_disk_nothing_is_left_standing() {
    let env = TestEnv::new();
    env.file("a.txt", "old\n");
    let calls = calls(&[create("new.txt", "x"), edit("a.txt", "old", "new"), delete("a.txt")]);
    let run = Run::new(&env, &[calls, json!({"text": "done"})]);
    let script = "mount --bind . . && mount -o remount,ro,bind . || exit 99; cd \"$PWD\"; exec \"$@\"";
    let mut call = run.call();
    let mut command = Command::new("unshare");
    command
        .args(["-rm", "sh", "-c", script, "sh"])
        .arg(env!("CARGO_BIN_EXE_thcode"))
        .args(run.args.iter())
        .current_dir(env.workspace())
        .env_clear()
        .env("HOME", env.home())
        .env("PATH", std::env::var_os("PATH").unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    call.command = command;
    let done = finish(call.start());
    if done.code == Some(99) || done.stderr.contains("unshare") {
        skipped("the read-only disk of vault.rs, no mount namespace", done.stderr.trim());
        return;
    }
    done.check_document();
    let failed = done.json()["operations"].as_array().unwrap().clone();
    assert_eq!(failed.iter().filter(|operation| operation["status"] == "failed").count(), 3, "{done:?}");
    let told = env.thcode(&["recover", "--json"]).document();
    assert_eq!((told.code, told.json()["operations"].clone()), (Some(0), json!([])), "{told:?}");
}
