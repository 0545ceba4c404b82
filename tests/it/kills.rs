//! `kill -9` at a system call: a run, a rollback or a settling is killed as it enters one, and whatever
//! stands then is told, settled whole, and final.
//!
//! A bounded part runs everywhere; the whole with `cargo test --test it kills -- --ignored`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::env::{Done, TestEnv, finish};

const POLICY: &str = "version = 1\n[[rule]]\nid = \"write\"\neffect = \"allow\"\n\
    tools = [\"create_file\", \"edit_file\", \"delete_file\"]\nwhen.write = [\"**\"]\n";

/// The calls that write, name, remove, open or sync something.
const CALLS: &[&str] = &[
    "pwrite64",
    "write",
    "fsync",
    "fdatasync",
    "ftruncate",
    "renameat2",
    "unlinkat",
    "unlink",
    "mkdirat",
    "openat2",
    "openat",
    "fchmod",
    "flock",
    "pread64",
];

/// What each path may hold: before, and after.
type Images = BTreeMap<&'static str, [Option<&'static str>; 2]>;

fn images() -> Images {
    BTreeMap::from([
        ("a.txt", [Some("one\n"), Some("two\n")]),
        ("new/b.txt", [None, Some("made\n")]),
        ("c.txt", [Some("gone\n"), None]),
        ("theirs.txt", [Some("theirs\n"), Some("theirs\n")]),
    ])
}

type Tree = BTreeMap<PathBuf, Option<Vec<u8>>>;

struct Bench {
    env: TestEnv,
}

impl Bench {
    fn new() -> Self {
        let env = TestEnv::new();
        env.outside("p.policy.toml", POLICY);
        let edits = json!([{"oldText": "one", "newText": "two"}]);
        let calls: Vec<Value> = [
            ("edit_file", json!({"path": "a.txt", "edits": edits})),
            ("create_file", json!({"path": "new/b.txt", "content": "made\n"})),
            ("delete_file", json!({"path": "c.txt"})),
        ]
        .iter()
        .map(|(name, arguments)| json!({"name": name, "arguments": arguments}))
        .collect();
        env.cassette(&[json!({"toolCalls": calls}), json!({"text": "done"})]);
        let bench = Self { env };
        bench.fill();
        bench
    }

    fn fill(&self) {
        for entry in fs::read_dir(self.env.workspace()).unwrap() {
            let path = entry.unwrap().path();
            let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
            removed.unwrap();
        }
        for (path, [before, _]) in images() {
            if let Some(before) = before {
                self.env.file(path, before);
            }
        }
    }

    fn state(&self) -> String {
        self.env.beside("state").display().to_string()
    }

    fn run_args(&self) -> Vec<String> {
        let text = |name: &str| self.env.beside(name).display().to_string();
        let (policy, cassette) = (text("p.policy.toml"), text("test.cassette.jsonl"));
        let args = [
            "run",
            "--json",
            "--policy",
            &policy,
            "--state-dir",
            &self.state(),
            "--cassette",
            &cassette,
        ];
        args.iter().chain(&["the task"]).map(|arg| (*arg).to_owned()).collect()
    }

    fn verb_args(&self, verb: &[&str]) -> Vec<String> {
        let state = self.state();
        verb.iter().chain(&["--json", "--state-dir", &state]).map(|arg| (*arg).to_owned()).collect()
    }

    fn thcode(&self, args: &[String]) -> Done {
        self.env.thcode(&args.iter().map(String::as_str).collect::<Vec<_>>()).run()
    }

    fn verb(&self, verb: &[&str]) -> Done {
        let done = self.thcode(&self.verb_args(verb));
        done.check_document();
        done
    }

    /// Keeps files, store and key as they are now, to begin from here again.
    fn keep(&self) {
        let kept = self.env.beside("kept");
        fs::create_dir(&kept).unwrap();
        for (from, name) in [
            (self.env.workspace(), "ws"),
            (self.env.beside("state"), "state"),
            (self.env.beside("state.key"), "state.key"),
        ] {
            assert!(
                Command::new("cp").arg("-a").arg(from).arg(kept.join(name)).status().unwrap().success()
            );
        }
    }

    fn begin_again(&self) {
        let kept = self.env.beside("kept");
        // The directory itself stays: an interrupted change knows it.
        let script = "find \"$1\" -mindepth 1 -delete; cp -a \"$2\"/ws/. \"$1\"; rm -rf \"$3\" \"$3.key\"; \
            cp -a \"$2\"/state \"$3\"; cp -a \"$2\"/state.key \"$3.key\"";
        let done = Command::new("sh")
            .args(["-ec", script, "sh"])
            .args([self.env.workspace(), kept, self.env.beside("state")])
            .status();
        assert!(done.unwrap().success());
    }

    /// Runs under strace, killed as it enters its `nth` call of a kind; `None` if it has no such call.
    fn killed(&self, args: &[String], call: &str, nth: usize) -> Option<()> {
        let plain = self.env.thcode(&[]);
        let mut command = Command::new("strace");
        let inject = format!("inject={call}:signal=KILL:when={nth}");
        command.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject]);
        command.arg(plain.command.get_program()).args(args);
        command.current_dir(self.env.workspace()).env_clear().env("HOME", self.env.home());
        command.env("PATH", std::env::var_os("PATH").unwrap());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let done = finish(command.spawn().unwrap());
        assert!(!done.stderr.contains("strace:"), "{call} {nth}: {done:?}");
        done.code.is_none().then_some(())
    }

    /// Runs under strace with something injected into calls of a kind, and what strace tells of these.
    fn traced(&self, args: &[String], call: &str, inject: &str) -> (Done, String) {
        let log = self.env.beside("trace.log");
        let plain = self.env.thcode(&[]);
        let mut command = Command::new("strace");
        command.args(["-f", "-y", "-qq", "-o", log.to_str().unwrap()]);
        command.args(["-e", &format!("trace={call}"), "-e", inject]);
        command.arg(plain.command.get_program()).args(args);
        command.current_dir(self.env.workspace()).env_clear().env("HOME", self.env.home());
        command.env("PATH", std::env::var_os("PATH").unwrap());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let done = finish(command.spawn().unwrap());
        let log = fs::read_to_string(&log).unwrap_or_default();
        // Only the line of the failed call matters.
        (done, log.lines().filter(|line| line.contains("(INJECTED)")).collect())
    }

    /// As [`Bench::judge`], for a rollback that ended by itself: what it says is so, what it left is
    /// settled, and done again it is done.
    fn judge_failed(&self, done: &Done, before: &Tree) -> Result<(), String> {
        let document: Option<Value> = serde_json::from_str(&done.stdout).ok();
        let Some(code) = done.code else { return Err(format!("no exit code: {done:?}")) };
        if let Some(document) = &document {
            crate::env::check(document, done.code);
            for target in document["targets"].as_array().into_iter().flatten() {
                let path = target["path"].as_str().unwrap();
                let then = images()[path][0];
                let now = fs::read_to_string(self.env.workspace().join(path)).ok();
                if target["outcome"]["kind"] == "applied" && now.as_deref() != then {
                    return Err(format!("{path} isn't what it says: {document}"));
                }
            }
        } else if code == 0 || done.stderr.is_empty() {
            return Err(format!("neither a document nor a word: {done:?}"));
        }
        // A directory that couldn't be removed is nobody's work.
        let files = |tree: &Tree| -> Tree {
            tree.iter()
                .filter(|(_, bytes)| bytes.is_some())
                .map(|(p, b)| (p.clone(), b.clone()))
                .collect()
        };
        if code == 0 && files(&self.tree()) != files(before) {
            return Err(format!("0, and not done: {done:?}"));
        }
        self.judge()?;
        let again = self.verb(&["rollback", "apply", "last"]);
        match again.code == Some(0) && files(&self.tree()) == files(before) {
            true => Ok(()),
            false => Err(format!("again: {again:?}")),
        }
    }

    fn tree(&self) -> Tree {
        fn below(dir: &Path, found: &mut Tree) {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    found.insert(path.clone(), None);
                    below(&path, found);
                } else {
                    found.insert(path.clone(), Some(fs::read(&path).unwrap()));
                }
            }
        }
        let mut found = Tree::new();
        below(&self.env.workspace(), &mut found);
        found
    }

    /// The checker: files whole, looking changes nothing, settling leaves nothing and is final, the store
    /// is whole. What isn't so, in a line.
    fn judge(&self) -> Result<(), String> {
        let whole = |bench: &Self| {
            images().iter().find_map(|(path, images)| {
                let now = fs::read_to_string(bench.env.workspace().join(path)).ok();
                let held = images.contains(&now.as_deref());
                (!held).then(|| format!("{path} is {now:?}"))
            })
        };
        if let Some(fault) = whole(self) {
            return Err(fault);
        }
        let tree = self.tree();
        let told = self.verb(&["recover"]);
        if !matches!(told.code, Some(0 | 60)) || self.tree() != tree {
            return Err(format!("recover: {told:?}"));
        }
        let settled = self.verb(&["recover", "reconcile", "--all"]);
        if settled.code != Some(0) {
            return Err(format!("reconcile: {settled:?}"));
        }
        let after = self.tree();
        let known: Vec<PathBuf> =
            images().keys().chain(&["new"]).map(|path| self.env.workspace().join(path)).collect();
        if let Some(stray) = after.keys().find(|path| !known.contains(path)) {
            return Err(format!("left behind: {stray:?}"));
        }
        if let Some(fault) = whole(self) {
            return Err(format!("after settling: {fault}"));
        }
        let verified = self.verb(&["store", "verify"]);
        if verified.code != Some(0) {
            return Err(format!("verify: {verified:?}"));
        }
        let again = self.verb(&["recover", "reconcile", "--all"]);
        let nothing = again.json()["operations"] == json!([]);
        if again.code != Some(0) || !nothing || self.tree() != after {
            return Err(format!("again: {again:?}"));
        }
        Ok(())
    }

    fn rolled_back(&self, before: &Tree) -> Result<(), String> {
        let done = self.verb(&["rollback", "apply", "last"]);
        if done.code == Some(0) && self.tree() == *before {
            Ok(())
        } else {
            Err(format!("rollback: {done:?}"))
        }
    }
}

/// What is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    Change,
    Rollback,
    Settling,
}

/// Kills the subject at every `stride`-th call of each kind; how many kills there were.
fn sweep(subject: Subject, stride: usize) -> usize {
    if Command::new("strace").arg("-V").output().is_err() {
        crate::env::skipped("kills.rs", "there is no strace");
        return usize::MAX;
    }
    let bench = Bench::new();
    let before = bench.tree();
    let args = match subject {
        Subject::Change => {
            // A store that is there, and files as they were.
            assert_eq!(bench.thcode(&bench.run_args()).code, Some(0));
            assert_eq!(bench.verb(&["rollback", "apply", "last"]).code, Some(0));
            assert_eq!(bench.tree(), before);
            bench.run_args()
        }
        Subject::Rollback => {
            assert_eq!(bench.thcode(&bench.run_args()).code, Some(0));
            bench.verb_args(&["rollback", "apply", "last"])
        }
        Subject::Settling => {
            assert_eq!(bench.thcode(&bench.run_args()).code, Some(0));
            // Killed with every temporary file made and nothing in its place.
            let args = bench.verb_args(&["rollback", "apply", "last"]);
            assert_eq!(bench.killed(&args, "renameat2", 2), Some(()));
            bench.verb_args(&["recover", "reconcile", "--all"])
        }
    };
    bench.keep();
    let settled = match subject {
        Subject::Settling => {
            assert_eq!(bench.thcode(&args).code, Some(0));
            Some(bench.tree())
        }
        Subject::Change | Subject::Rollback => None,
    };
    let (mut tried, mut wrong) = (0, Vec::new());
    for (number, call) in CALLS.iter().enumerate() {
        for nth in (1 + number % stride..).step_by(stride) {
            bench.begin_again();
            if bench.killed(&args, call, nth).is_none() {
                break;
            }
            tried += 1;
            let judged = bench.judge().and_then(|()| match &settled {
                Some(settled) if *settled != bench.tree() => Err("another end".to_owned()),
                Some(_) => Ok(()),
                None if subject == Subject::Rollback => bench.rolled_back(&before),
                None => Ok(()),
            });
            if let Err(fault) = judged {
                wrong.push(format!("{call} {nth}: {fault}"));
            }
        }
    }
    println!("{subject:?}: {tried} kills, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    tried
}

#[cfg_attr(feature = "fault-injection", ignore = "minutes: tried with the binary that ships")]
#[test]
fn a_change_killed_at_any_system_call_is_settled() {
    assert!(sweep(Subject::Change, 11) > 20);
}

#[cfg_attr(feature = "fault-injection", ignore = "minutes: tried with the binary that ships")]
#[test]
fn a_rollback_killed_at_any_system_call_is_settled_and_finished() {
    assert!(sweep(Subject::Rollback, 23) > 10);
}

#[cfg_attr(feature = "fault-injection", ignore = "minutes: tried with the binary that ships")]
#[test]
fn settling_killed_at_any_system_call_comes_to_the_same() {
    assert!(sweep(Subject::Settling, 19) > 8);
}

/// The anchor vouches for rows: whatever was written to the log before it is synced before it as well.
#[test]
fn the_anchor_follows_what_it_vouches_for() {
    if Command::new("strace").arg("-V").output().is_err() {
        crate::env::skipped("kills.rs", "there is no strace");
        return;
    }
    let bench = Bench::new();
    assert_eq!(bench.thcode(&bench.run_args()).code, Some(0));
    fs::write(bench.env.workspace().join("a.txt"), "theirs\n").unwrap();
    let mine = bench.env.outside("mine", "mine\n").display().to_string();
    let list = bench.verb(&["rollback", "list"]).json();
    let edited = list["checkpoints"].as_array().unwrap().last().unwrap().clone();
    let id = edited["checkpointId"].as_str().unwrap();
    let resolve = ["rollback", "resolve", id, "a.txt", "--choice", "user-authored-resolution", &mine];
    for args in [bench.verb_args(&resolve), bench.verb_args(&["rollback", "apply", "last"])] {
        let log = bench.env.beside("order.log");
        let plain = bench.env.thcode(&[]);
        let mut command = Command::new("strace");
        command.args(["-f", "-y", "-qq", "-o", log.to_str().unwrap()]);
        command.args(["-e", "trace=pwrite64,fdatasync,fsync"]);
        command.arg(plain.command.get_program()).args(args);
        command.current_dir(bench.env.workspace()).env_clear().env("HOME", bench.env.home());
        command.env("PATH", std::env::var_os("PATH").unwrap());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let done = finish(command.spawn().unwrap());
        assert!(done.code.is_some_and(|code| code != 1), "{done:?}");
        let (mut unsynced, mut anchors) = (false, 0);
        for line in fs::read_to_string(&log).unwrap().lines() {
            let of_log = line.contains("/state.db-wal>");
            unsynced = (unsynced || (of_log && line.contains("pwrite64(")))
                && !(of_log && line.contains("sync("));
            if line.contains("/state/head>") && line.contains("pwrite64(") {
                anchors += 1;
                assert!(!unsynced, "an anchor before its rows: {done:?}");
            }
        }
        assert!(anchors > 0, "no anchor was written: {done:?}");
    }
}

/// What fails in a rollback, and how.
const ERRORS: &[(&str, &str)] = &[
    ("pwrite64", "ENOSPC"),
    ("write", "ENOSPC"),
    ("write", "EDQUOT"),
    ("fsync", "EIO"),
    ("fdatasync", "EIO"),
    ("renameat2", "EACCES"),
    ("renameat2", "EXDEV"),
    ("unlinkat", "EROFS"),
    ("mkdirat", "ENOSPC"),
    ("openat", "EMFILE"),
    ("openat2", "EMFILE"),
    ("fchmod", "EPERM"),
    ("pread64", "EIO"),
    ("read", "EIO"),
    ("read", "EINTR"),
    ("statx", "EIO"),
];

/// Fails every `stride`-th call of each kind in a rollback; how many failed.
fn sweep_errors(stride: usize) -> usize {
    if Command::new("strace").arg("-V").output().is_err() {
        crate::env::skipped("kills.rs", "there is no strace");
        return usize::MAX;
    }
    let bench = Bench::new();
    let before = bench.tree();
    assert_eq!(bench.thcode(&bench.run_args()).code, Some(0));
    let args = bench.verb_args(&["rollback", "apply", "last"]);
    bench.keep();
    let (mut tried, mut wrong) = (0, Vec::new());
    for (number, (call, errno)) in ERRORS.iter().enumerate() {
        for nth in (1 + number % stride..).step_by(stride) {
            bench.begin_again();
            let inject = format!("inject={call}:error={errno}:when={nth}");
            let (done, log) = bench.traced(&args, call, &inject);
            if !log.contains("(INJECTED)") {
                break;
            }
            // The loader itself, before anything of ours runs; waking another thread keeps nothing.
            if done.code == Some(127) || log.contains("eventfd") {
                continue;
            }
            tried += 1;
            if let Err(fault) = bench.judge_failed(&done, &before) {
                wrong.push(format!("{call} {errno} {nth}: {fault}"));
            }
        }
    }
    println!("{tried} failed calls of a rollback, {} wrong ends", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    tried
}

#[cfg_attr(feature = "fault-injection", ignore = "minutes: tried with the binary that ships")]
#[test]
fn a_rollback_whose_calls_fail_tells_it_and_can_be_done_again() {
    assert!(sweep_errors(53) > 20);
}

#[test]
#[ignore = "minutes: every call, for a machine with time"]
fn a_rollback_each_of_whose_calls_fails_tells_it() {
    assert!(sweep_errors(1) > 200);
}

/// Somebody saves when everything is ready and the exchange is about to be made; what stands afterwards,
/// and how the rollback ended. `None` without strace.
fn saved_at_the_exchange(fault: Option<&str>) -> Option<(String, Done)> {
    if Command::new("strace").arg("-V").output().is_err() {
        crate::env::skipped("kills.rs", "there is no strace");
        return None;
    }
    let bench = Bench::new();
    assert_eq!(bench.thcode(&bench.run_args()).code, Some(0));
    let args = bench.verb_args(&["rollback", "apply", "last", "--only", "a.txt"]);
    let plain = bench.env.thcode(&[]);
    let mut command = Command::new("strace");
    let delay = "inject=renameat2:delay_enter=2000000:when=1";
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=renameat2", "-e", delay]);
    command.arg(plain.command.get_program()).args(args);
    command.current_dir(bench.env.workspace()).env_clear().env("HOME", bench.env.home());
    command.env("PATH", std::env::var_os("PATH").unwrap());
    if let Some(fault) = fault {
        command.env("THCODE_FAULT", fault);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let begun = std::time::Instant::now();
    let temp = || bench.tree().into_keys().any(|path| path.to_string_lossy().contains(".thc-"));
    while !temp() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(30), "no temporary file");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // It is written and synced long before the delay is over.
    std::thread::sleep(std::time::Duration::from_millis(700));
    let (beside, target) = (bench.env.workspace().join("save"), bench.env.workspace().join("a.txt"));
    fs::write(&beside, "saved just now\n").unwrap();
    fs::rename(&beside, &target).unwrap();
    let done = finish(child);
    Some((fs::read_to_string(&target).unwrap(), done))
}

#[test]
fn a_save_at_the_exchange_itself_is_kept() {
    let Some((stands, done)) = saved_at_the_exchange(None) else { return };
    assert_eq!(stands, "saved just now\n", "{done:?}");
    let outcome = &done.json()["targets"][0]["outcome"];
    assert_eq!((done.code, &outcome["reasonCode"]), (Some(20), &json!("content-conflict")));
}

/// The control: without the comparison after the exchange the save is lost, and the test above sees it.
#[cfg(feature = "fault-injection")]
#[test]
fn without_the_comparison_a_save_at_the_exchange_would_be_lost() {
    let Some((stands, done)) = saved_at_the_exchange(Some("no-exchange-check")) else { return };
    assert_eq!((stands.as_str(), done.code), ("one\n", Some(0)), "{done:?}");
}

#[test]
#[ignore = "minutes: every call, for a machine with time"]
fn killed_at_every_system_call() {
    for (subject, most) in [(Subject::Change, 200), (Subject::Rollback, 150), (Subject::Settling, 100)] {
        assert!(sweep(subject, 1) > most);
    }
}
