//! `thcode rollback list | inspect | analyze` on what runs made: real figures, honest words, and never
//! a claim on somebody else's work.

use std::{fs, os::unix::fs::symlink, path::PathBuf};

use serde_json::{Value, json};

use crate::env::{Done, TestEnv};

const POLICY: &str = "version = 1\n[sandbox]\nmode = \"off\"\n[[rule]]\nid = \"write\"\neffect = \"allow\"\n\
    tools = [\"create_file\", \"edit_file\", \"delete_file\"]\nwhen.write = [\"**\"]\n\
    [[rule]]\nid = \"true\"\neffect = \"allow\"\ntools = [\"run_command\"]\nwhen.command = [\"true\"]\n";

struct Bench {
    env: TestEnv,
}

impl Bench {
    fn new(files: &[(&str, &str)]) -> Self {
        let env = TestEnv::new();
        env.outside("p.policy.toml", POLICY);
        for (path, text) in files {
            env.file(path, text);
        }
        Self { env }
    }

    fn state(&self) -> String {
        self.env.beside("state").display().to_string()
    }

    fn at(&self, path: &str) -> PathBuf {
        self.env.workspace().join(path)
    }

    fn run(&self, more: &[&str], calls: &[(&str, Value)]) -> Done {
        let calls: Vec<Value> = calls
            .iter()
            .map(|(name, arguments)| json!({"name": name, "arguments": arguments}))
            .collect();
        let replies = [json!({"toolCalls": calls}), json!({"text": "done"})];
        let cassette = self.env.cassette(&replies).display().to_string();
        let policy = self.env.beside("p.policy.toml").display().to_string();
        let state = self.state();
        let args =
            ["run", "--json", "--policy", &policy, "--state-dir", &state, "--cassette", &cassette];
        let done = self.env.thcode(&[&args[..], more, &["the task"]].concat()).document();
        assert_eq!(done.code, Some(0), "{done:?}");
        done
    }

    fn rollback(&self, args: &[&str]) -> Done {
        let state = self.state();
        self.env.thcode(&[&["rollback"], args, &["--json", "--state-dir", &state]].concat()).document()
    }

    /// What an analysis says of each path: the outcome's kind and its reason, or what would be done.
    fn outcomes(&self, args: &[&str]) -> Vec<(String, String)> {
        let document = self.rollback(&[&["analyze"], args].concat()).json();
        let word = |target: &Value| {
            let outcome = &target["outcome"];
            let reason = outcome["reasonCode"].as_str().or(outcome["inverseOperation"].as_str());
            let path = target["path"].as_str().unwrap().to_owned();
            (path, format!("{}: {}", outcome["kind"].as_str().unwrap(), reason.unwrap()))
        };
        document["targets"].as_array().unwrap().iter().map(word).collect()
    }

    /// The one path's.
    fn outcome(&self) -> String {
        let found = self.outcomes(&["last"]);
        assert_eq!(found.len(), 1, "{found:?}");
        found.into_iter().next().unwrap().1
    }
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

#[test]
fn checkpoints_are_told_in_real_figures() {
    let bench = Bench::new(&[("a.txt", "one\n"), ("b.txt", "b\n")]);
    bench.run(&[], &[edit("a.txt", "one", "two"), ("run_command", json!({"argv": ["true"]}))]);
    bench.run(&["-c"], &[delete("b.txt"), create("c.txt", "")]);
    let list = bench.rollback(&["list"]).json();
    let told: Vec<(&Value, u64)> = list["checkpoints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|found| (&found["promptRound"], found["targetCount"].as_u64().unwrap()))
        .collect();
    assert_eq!(told, [(&json!(2), 1), (&json!(2), 1), (&json!(1), 1)], "the newest first");
    let first = &list["checkpoints"][2];
    let digest = |text: &str| json!(thcode::id::Digest::of(text.as_bytes()).to_string());
    assert_eq!(first["preDigests"], json!([digest("one\n")]));
    assert_eq!(first["postDigests"], json!([digest("two\n")]));
    assert_eq!(
        (&first["coverage"], &first["integrityState"]),
        (&json!("fully protected"), &json!("verified"))
    );
    assert_eq!(
        (&first["eligibility"]["kind"], &first["expiryPromptRound"]),
        (&json!("apply-eligible"), &json!(6))
    );
    let usage = |found: &Value| found["perCheckpointUsageBytes"].as_u64().unwrap();
    assert!(usage(first) > 8 && first["storeUsageBytes"].as_u64().unwrap() > usage(first));
    let shell = first["excludedEffects"]["shell"].as_array().unwrap();
    assert_eq!(shell.len(), 2, "the standing entry, and the command of the turn: {shell:?}");
    for kind in ["remote", "permission", "process", "symlinkSide", "external"] {
        assert_eq!(first["excludedEffects"][kind][0]["status"], "never-protected");
    }
    let id = first["checkpointId"].as_str().unwrap();
    let preview = bench.rollback(&["inspect", id]).json();
    assert_eq!(preview["risk"]["excludedCount"], 1);
    assert!(preview["risk"]["sentences"][1].as_str().unwrap().contains("NEVER claimed reversible"));
    assert_eq!(preview["targets"][0]["path"], "a.txt");
    // A session's own window: five rounds that changed something.
    assert_eq!(
        bench.rollback(&["list", "--turn", "1"]).json()["checkpoints"].as_array().unwrap().len(),
        1
    );
    for round in 0..4 {
        let (old, new) = (["two", "three"][round % 2], ["three", "two"][round % 2]);
        bench.run(&["-c"], &[edit("a.txt", old, new)]);
    }
    let later = bench.rollback(&["list"]).json();
    assert_eq!(later["hiddenCounts"]["expired"], 1, "{:#}", later["hiddenCounts"]);
    assert!(!later["checkpoints"].to_string().contains(id));
    let hidden = bench.rollback(&["list", "--include-hidden"]).json();
    assert!(hidden["checkpoints"].to_string().contains(id));
    assert_eq!(bench.rollback(&["analyze", id]).end().2, "nothing-to-roll-back");
    assert_eq!(bench.rollback(&["inspect", id]).code, Some(0), "what is hidden can be looked at");
    // Without the key nothing is claimed.
    fs::rename(bench.env.beside("state.key"), bench.env.beside("away")).unwrap();
    let locked = bench.rollback(&["list", "--include-hidden"]).json();
    assert_eq!(
        (&locked["checkpoints"][0]["coverage"], &locked["checkpoints"][0]["preDigests"]),
        (&json!("locked"), &json!([null]))
    );
    assert_eq!(bench.rollback(&["analyze", "last"]).end().2, "key-unavailable");
}

/// Three images of one file: what was before, what was left, what stands.
#[test]
fn what_somebody_else_did_is_a_conflict() {
    let edited = || {
        let bench = Bench::new(&[("f.txt", "pre")]);
        bench.run(&[], &[edit("f.txt", "pre", "post")]);
        bench
    };
    let bench = edited();
    assert_eq!(bench.outcome(), "applied-eligible: restore-pre-image");
    let tree = bench.env.tree();
    let full = bench.rollback(&["analyze", "last"]);
    assert_eq!((full.code, &full.json()["status"]), (Some(0), &json!("full")));
    assert_eq!(bench.env.tree(), tree, "looking changes nothing");
    assert_eq!(full.json()["planDigest"], bench.rollback(&["analyze", "last"]).json()["planDigest"]);
    fs::write(bench.at("f.txt"), "pose").unwrap();
    assert_eq!(bench.outcome(), "conflict: content-conflict");
    let blocked = bench.rollback(&["analyze", "last"]);
    assert_eq!((blocked.code, &blocked.json()["status"]), (Some(20), &json!("blocked")));
    assert_ne!(full.json()["planDigest"], blocked.json()["planDigest"]);
    fs::write(bench.at("f.txt"), "pre").unwrap();
    assert_eq!(bench.outcome(), "skipped: already-at-pre-image");
    fs::remove_file(bench.at("f.txt")).unwrap();
    assert_eq!(bench.outcome(), "conflict: target-deleted");
    fs::write(bench.at("F.TXT"), "post").unwrap();
    assert_eq!(bench.outcome(), "mismatch: identity-changed");
    fs::remove_file(bench.at("F.TXT")).unwrap();
    symlink("elsewhere", bench.at("f.txt")).unwrap();
    assert_eq!(bench.outcome(), "conflict: behind-symlink");
    fs::remove_file(bench.at("f.txt")).unwrap();
    fs::create_dir(bench.at("f.txt")).unwrap();
    assert_eq!(bench.outcome(), "conflict: content-conflict");
    let bench = edited();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(bench.at("f.txt"), mode).unwrap();
    assert_eq!(bench.outcome(), "conflict: metadata-conflict");
    let bench = edited();
    let held = fs::OpenOptions::new().append(true).open(bench.at("f.txt")).unwrap();
    assert_eq!(bench.outcome(), "unknown-outcome: open-for-writing");
    drop(held);
    assert_eq!(bench.outcome(), "applied-eligible: restore-pre-image");
}

#[test]
fn what_was_made_and_what_was_removed() {
    let bench = Bench::new(&[("gone.bin", "a\0b")]);
    bench.run(&[], &[create("new/made.txt", "x"), delete("gone.bin")]);
    let told = |word: &str| word.to_owned();
    assert_eq!(
        bench.outcomes(&["last"]),
        [
            (told("gone.bin"), told("applied-eligible: restore-from-artifact")),
            (told("new/made.txt"), told("applied-eligible: delete-file")),
        ]
    );
    fs::remove_file(bench.at("new/made.txt")).unwrap();
    fs::write(bench.at("gone.bin"), "other").unwrap();
    let partial = bench.rollback(&["analyze", "last"]);
    assert_eq!((partial.code, &partial.json()["status"]), (Some(30), &json!("partial")));
    assert_eq!(
        bench.outcomes(&["last"]),
        [
            (told("gone.bin"), told("conflict: target-recreated")),
            (told("new/made.txt"), told("applied-eligible: none")),
        ]
    );
}

/// Several checkpoints of a file are one change, if nobody wrote in between.
#[test]
fn a_turn_and_a_session_compose() {
    let bench = Bench::new(&[("f.txt", "one")]);
    bench.run(&[], &[edit("f.txt", "one", "two"), edit("f.txt", "two", "three")]);
    bench.run(&["-c"], &[edit("f.txt", "three", "four"), create("g.txt", "g")]);
    let told = |word: &str| word.to_owned();
    let session = bench.rollback(&["analyze", "--session", "last"]).json();
    assert_eq!(session["targets"][0]["checkpointIds"].as_array().unwrap().len(), 3);
    assert_eq!(session["targets"][0]["preImage"]["digest"], thcode::id::Digest::of(b"one").to_string());
    assert_eq!(bench.outcomes(&["--session", "last"])[0].1, "applied-eligible: restore-pre-image");
    assert_eq!(bench.outcomes(&["last"]).len(), 2, "the last turn alone");
    // The first turn alone: the file was changed again, and that is named.
    let first = bench.rollback(&["analyze", "--turn", "1"]).json();
    assert_eq!(first["targets"][0]["outcome"]["reasonCode"], "content-conflict");
    assert!(first["targets"][0]["newerCheckpoint"].is_string());
    // Somebody wrote in between.
    let bench = Bench::new(&[("f.txt", "one")]);
    bench.run(&[], &[edit("f.txt", "one", "two")]);
    fs::write(bench.at("f.txt"), "two and theirs").unwrap();
    bench.run(&["-c"], &[edit("f.txt", "two and theirs", "three")]);
    assert_eq!(
        bench.outcomes(&["--session", "last"]),
        [(told("f.txt"), told("conflict: chain-broken"))]
    );
    assert_eq!(bench.outcome(), "applied-eligible: restore-pre-image", "the last step alone is whole");
}

#[test]
fn what_is_not_what_was_kept_proves_nothing() {
    let bench = Bench::new(&[("f.txt", "pre")]);
    bench.run(&[], &[edit("f.txt", "pre", "post")]);
    let database = rusqlite::Connection::open(bench.env.beside("state/state.db")).unwrap();
    database.execute("UPDATE chunk SET sealed = zeroblob(length(sealed))", []).unwrap();
    drop(database);
    let list = bench.rollback(&["list"]).json();
    assert_eq!((&list["checkpoints"], &list["hiddenCounts"]["corrupt"]), (&json!([]), &json!(1)));
    assert_eq!(bench.rollback(&["analyze", "last"]).end().2, "nothing-to-roll-back");
    for hostile in ["../../x", "0", "ffffffff", "' OR 1=1 --"] {
        assert_eq!(bench.rollback(&["inspect", hostile]).end().2, "checkpoint-not-found", "{hostile}");
    }
    let none = Bench::new(&[]);
    assert_eq!(none.rollback(&["list"]).end().2, "store-missing");
    assert_eq!(none.rollback(&["analyze"]).code, Some(2));
}

/// The causes that only `rollback` meets, for the list of all causes.
pub(crate) fn causes() -> Vec<String> {
    let bench = Bench::new(&[("f.txt", "pre")]);
    bench.run(&[], &[("list_files", json!({"path": "."}))]);
    let end = |args: &[&str]| bench.rollback(args).end().2;
    vec![end(&["inspect", "ffffffff"]), end(&["analyze", "last"])]
}
