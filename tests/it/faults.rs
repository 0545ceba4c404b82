//! System calls that fail: with `strace` each one of a run in turn, and whatever comes of it must be
//! told as it is. What the document says of a file is what stands on the disk, nothing is half
//! written, the store stays whole, and the next run says what stands.
//!
//! A bounded part runs everywhere; the whole with `cargo test --test it faults -- --ignored`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::env::{Done, TestEnv, check, finish};

const POLICY: &str = "version = 1\n[[rule]]\nid = \"write\"\neffect = \"allow\"\n\
    tools = [\"create_file\", \"edit_file\", \"delete_file\"]\nwhen.write = [\"**\"]\n";

/// What fails, and how.
const FAULTS: &[(&str, &str)] = &[
    ("pwrite64", "ENOSPC"),
    ("pwrite64", "EIO"),
    ("write", "ENOSPC"),
    ("write", "EDQUOT"),
    ("fsync", "EIO"),
    ("fdatasync", "EIO"),
    ("fdatasync", "ENOSPC"),
    ("ftruncate", "EIO"),
    ("renameat2", "EACCES"),
    ("renameat2", "EXDEV"),
    ("unlinkat", "EROFS"),
    ("unlink", "EROFS"),
    ("mkdirat", "ENOSPC"),
    ("mkdir", "EROFS"),
    ("openat", "EMFILE"),
    ("openat", "EROFS"),
    ("openat2", "EMFILE"),
    ("fchmod", "EPERM"),
    ("pread64", "EIO"),
    ("read", "EIO"),
    ("read", "EINTR"),
    ("newfstatat", "EACCES"),
    ("statx", "EIO"),
    ("flock", "ENOLCK"),
];

/// The file that is deleted: large enough to be sealed beside the database.
fn large() -> Vec<u8> {
    (0..300_000u32).flat_map(u32::to_le_bytes).collect()
}

/// What stands at each path before, and after each call.
fn images() -> BTreeMap<&'static str, [Option<Vec<u8>>; 2]> {
    BTreeMap::from([
        ("new/b.txt", [None, Some(b"made\n".to_vec())]),
        ("a.txt", [Some(b"one\n".to_vec()), Some(b"two\n".to_vec())]),
        ("c.bin", [Some(large()), None]),
    ])
}

struct Bench {
    env: TestEnv,
}

impl Bench {
    fn new() -> Self {
        let env = TestEnv::new();
        env.outside("p.policy.toml", POLICY);
        let edits = json!([{"oldText": "one", "newText": "two"}]);
        let calls = [
            ("create_file", json!({"path": "new/b.txt", "content": "made\n"})),
            ("edit_file", json!({"path": "a.txt", "edits": edits})),
            ("delete_file", json!({"path": "c.bin"})),
        ];
        let mut replies: Vec<Value> = calls
            .iter()
            .map(|(name, arguments)| json!({"toolCalls": [{"name": name, "arguments": arguments}]}))
            .collect();
        replies.push(json!({"text": "done"}));
        env.cassette(&replies);
        Self { env }
    }

    /// The files as they were, and the store as it was kept, or none.
    fn reset(&self, with_store: bool) {
        fs::remove_dir_all(self.env.workspace()).unwrap();
        fs::create_dir(self.env.workspace()).unwrap();
        for (path, [before, _]) in images() {
            if let Some(before) = before {
                self.env.file(path, before);
            }
        }
        fs::remove_dir_all(self.state()).ok();
        fs::remove_file(self.env.beside("state.key")).ok();
        if with_store {
            let from = |name: &str| self.env.beside("kept").join(name);
            let copy = |name: &str| {
                Command::new("cp").arg("-a").args([from(name), self.env.beside(name)]).status().unwrap()
            };
            assert!(copy("state").success() && copy("state.key").success());
        }
    }

    /// Keeps the store as it is now.
    fn keep(&self) {
        fs::create_dir(self.env.beside("kept")).unwrap();
        for name in ["state", "state.key"] {
            fs::rename(self.env.beside(name), self.env.beside("kept").join(name)).unwrap();
        }
    }

    fn state(&self) -> PathBuf {
        self.env.beside("state")
    }

    fn args(&self, cassette: &Path) -> Vec<String> {
        let text = |path: &Path| path.display().to_string();
        let mut args = vec!["run".to_owned(), "--json".to_owned(), "--policy".to_owned()];
        args.extend([text(&self.env.beside("p.policy.toml")), "--state-dir".to_owned()]);
        args.extend([text(&self.state()), "--cassette".to_owned(), text(cassette)]);
        args.push("the task".to_owned());
        args
    }

    fn thcode(&self, args: &[String]) -> Done {
        self.env.thcode(&args.iter().map(String::as_str).collect::<Vec<_>>()).run()
    }

    /// The run with its `nth` call of a kind failing; `None` if it has no such call.
    fn fail(&self, call: &str, errno: &str, nth: usize) -> Option<Done> {
        let (done, log) = self.traced(call, &["-e", &format!("inject={call}:error={errno}:when={nth}")]);
        log.contains("(INJECTED)").then_some(done)
    }

    /// Which calls of a thread wake another one: these can't fail, and nothing is kept by them.
    fn wakings(&self, call: &str) -> BTreeSet<usize> {
        let (_, log) = self.traced(call, &[]);
        let mut calls: BTreeMap<&str, usize> = BTreeMap::new();
        let mut found = BTreeSet::new();
        for line in log.lines() {
            let thread = line.split(' ').next().unwrap();
            let nth = calls.entry(thread).or_default();
            *nth += 1;
            if line.contains("<anon_inode:") || line.contains("<socket:") {
                found.insert(*nth);
            }
        }
        found
    }

    /// As [`Bench::new`], with a command alone.
    fn commanding() -> Self {
        let bench = Self::new();
        let policy = "version = 1\n[sandbox]\nmode = \"off\"\n[[rule]]\nid = \"c\"\neffect = \"allow\"\n\
            tools = [\"run_command\"]\nwhen.command = [\"touch ran\"]\n";
        bench.env.outside("p.policy.toml", policy);
        let call = json!({"name": "run_command", "arguments": {"argv": ["touch", "ran"]}});
        bench.env.cassette(&[json!({"toolCalls": [call]}), json!({"text": "done"})]);
        bench
    }

    /// The run under strace, and what strace tells of calls of a kind.
    fn traced(&self, call: &str, more: &[&str]) -> (Done, String) {
        let log = self.env.beside("trace.log");
        let plain = self.env.thcode(&[]);
        let mut command = Command::new("strace");
        command.args(["-f", "-y", "-qq", "-o", log.to_str().unwrap(), "-e", &format!("trace={call}")]);
        command.args(more);
        command.arg(plain.command.get_program());
        command.args(self.args(&self.env.beside("test.cassette.jsonl")));
        command.current_dir(self.env.workspace()).env_clear();
        command.env("HOME", self.env.home()).env("PATH", std::env::var_os("PATH").unwrap());
        command.stdin(std::process::Stdio::null());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let done = finish(command.spawn().unwrap());
        (done, fs::read_to_string(&log).unwrap_or_default())
    }

    /// Whatever is not as it must be, in a line each.
    fn judge(&self, done: &Done) -> Result<(), String> {
        let say = |what: &str| Err(format!("{what}: {done:?}"));
        // The loader itself, before anything of ours runs.
        if done.code == Some(127) {
            return Ok(());
        }
        let Some(code) = done.code else { return say("no exit code") };
        let document: Option<Value> = serde_json::from_str(&done.stdout).ok();
        if let Some(document) = &document {
            check(document, done.code);
        } else if code == 0 || done.stderr.is_empty() {
            return say("neither a document nor a word");
        }
        let standing = |path: &str| fs::read(self.env.workspace().join(path)).ok();
        for (path, [before, after]) in images() {
            let now = standing(path);
            let operation = document.as_ref().and_then(|document| {
                document["operations"].as_array()?.iter().find(|found| found["target"] == path)
            });
            let status = operation.map_or("-", |operation| operation["status"].as_str().unwrap());
            let held = match status {
                "succeeded" => now == after,
                "-" if document.is_some() => now == before,
                "blocked" | "failed" | "cancelled" if code != 60 && code != 70 => now == before,
                _ => now == before || now == after,
            };
            if !held {
                return say(&format!("{path} is {status} and isn't what that says"));
            }
            if let (Some(document), "unknown-outcome") = (&document, status) {
                if !document["residualRisks"].to_string().contains(path) {
                    return say(&format!("what became of {path} isn't proven, and nothing says so"));
                }
                let next = document["failure"]["recoveryActions"][0].to_string();
                if code != 70 || !(document["failure"].is_null() || next.contains("thcode recover")) {
                    return say(&format!("what became of {path} isn't proven, and next is {next}"));
                }
            }
        }
        let state = self.state().display().to_string();
        let verify = ["store", "verify", "--json", "--state-dir", &state].map(str::to_owned);
        let verified = self.thcode(&verify);
        let missing = verified.json()["failure"]["causeCode"] == "store-missing";
        if verified.code != Some(0) && !missing {
            return Err(format!("the store is not whole: {verified:?} after {done:?}"));
        }
        let nothing = self.env.outside("nothing.jsonl", NOTHING);
        let next = self.thcode(&self.args(&nothing));
        check(&next.json(), next.code);
        let settled = next.code == Some(0);
        if !settled && !matches!(next.code, Some(60 | 70)) {
            return Err(format!("the next run: {next:?} after {done:?}"));
        }
        if code == 0 && !settled {
            return Err(format!("0, and the next run says {:?}: {done:?}", next.code));
        }
        let stray = stray(&self.env.workspace());
        if settled && !stray.is_empty() {
            return say(&format!("left behind, and nothing tells of it: {stray:?}"));
        }
        Ok(())
    }
}

const NOTHING: &str =
    "{\"cassette\": \"thcode.cassette/v1\", \"description\": \"a test\"}\n{\"text\": \"done\"}\n";

fn stray(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(stray(&path));
        } else if path.file_name().unwrap().to_string_lossy().starts_with(".thc-") {
            found.push(path);
        }
    }
    found
}

fn there_is_strace() -> bool {
    let there = Command::new("strace").arg("-V").output().is_ok();
    if !there {
        eprintln!("SKIPPED: there is no strace");
    }
    there
}

/// Tries every call of each kind, or with a `stride` some of them; how many were tried.
fn sweep(stride: usize) -> usize {
    let bench = Bench::new();
    let nothing = bench.env.outside("nothing.jsonl", NOTHING);
    assert_eq!(bench.thcode(&bench.args(&nothing)).code, Some(0));
    bench.keep();
    let (mut tried, mut wrong) = (0, Vec::new());
    for (number, (call, errno)) in FAULTS.iter().enumerate() {
        // With a store that is there, and with one that is made.
        for with_store in [true, false] {
            bench.reset(with_store);
            let skipped = bench.wakings(call);
            for nth in (1 + number % stride..).step_by(stride).filter(|nth| !skipped.contains(nth)) {
                bench.reset(with_store);
                let Some(done) = bench.fail(call, errno, nth) else { break };
                tried += 1;
                if let Err(fault) = bench.judge(&done) {
                    wrong.push(format!("{call} {errno} {nth} {with_store}: {fault}"));
                }
            }
        }
    }
    println!("{tried} failed calls, {} wrong ends", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    tried
}

#[test]
fn a_call_that_fails_is_told_as_it_is() {
    if there_is_strace() {
        assert!(sweep(23) > 40);
    }
}

/// A command that ran and whose end can't be kept isn't told as one that was refused.
#[test]
fn a_command_without_an_end_is_told_as_unproven() {
    if !there_is_strace() {
        return;
    }
    let bench = Bench::commanding();
    let nothing = bench.env.outside("nothing.jsonl", NOTHING);
    assert_eq!(bench.thcode(&bench.args(&nothing)).code, Some(0));
    bench.keep();
    let mut unproven = 0;
    for nth in 1.. {
        bench.reset(true);
        let Some(done) = bench.fail("pwrite64", "ENOSPC", nth) else { break };
        let document = done.json();
        let status = document["operations"][0]["status"].as_str().unwrap_or("-");
        let ran = bench.env.workspace().join("ran").exists();
        assert!(!ran || matches!(status, "succeeded" | "unknown-outcome"), "{nth}: {done:?}");
        if status == "unknown-outcome" {
            unproven += 1;
            assert_eq!(done.code, Some(70), "{nth}: {done:?}");
            assert!(document["residualRisks"].to_string().contains("touch ran"), "{nth}: {done:?}");
            assert!(document["excludedEffects"]["shell"].to_string().contains("touch ran"), "{done:?}");
            let next = document["failure"]["recoveryActions"][0].to_string();
            assert!(next.contains("thcode recover"), "{next}");
        }
    }
    assert!(unproven > 0, "no such case was met");
}

#[test]
#[ignore = "minutes: every call, for a machine with time"]
fn every_call_that_fails_is_told_as_it_is() {
    if there_is_strace() {
        assert!(sweep(1) > 1_000);
    }
}
