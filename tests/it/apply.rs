//! `thcode rollback apply`: what was changed goes back, byte and mode exact, and what somebody else did
//! stays.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use serde_json::{Value, json};

use crate::env::{Done, TestEnv};

const POLICY: &str = "version = 1\n[[rule]]\nid = \"write\"\neffect = \"allow\"\n\
    tools = [\"create_file\", \"edit_file\", \"delete_file\"]\nwhen.write = [\"**\"]\n\
    [budget]\ntool_calls = 1000\n";

pub(crate) struct Bench {
    pub(crate) env: TestEnv,
}

impl Bench {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let env = TestEnv::new();
        env.outside("p.policy.toml", POLICY);
        for (path, text) in files {
            env.file(path, text);
        }
        Self { env }
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.env.workspace().join(path)
    }

    pub(crate) fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.at(path)).ok()
    }

    fn state(&self) -> String {
        self.env.beside("state").display().to_string()
    }

    pub(crate) fn run(&self, more: &[&str], calls: &[(&str, Value)]) -> Done {
        let calls: Vec<Value> = calls
            .iter()
            .map(|(name, arguments)| json!({"name": name, "arguments": arguments}))
            .collect();
        let mut replies: Vec<Value> =
            calls.chunks(100).map(|calls| json!({"toolCalls": calls})).collect();
        replies.push(json!({"text": "done"}));
        let cassette = self.env.cassette(&replies).display().to_string();
        let policy = self.env.beside("p.policy.toml").display().to_string();
        let state = self.state();
        let args =
            ["run", "--json", "--policy", &policy, "--state-dir", &state, "--cassette", &cassette];
        let done = self.env.thcode(&[&args[..], more, &["the task"]].concat()).document();
        assert_eq!(done.code, Some(0), "{done:?}");
        done
    }

    /// A verb on this store.
    pub(crate) fn verb(&self, args: &[&str]) -> Done {
        let state = self.state();
        self.env.thcode(&[args, &["--json", "--state-dir", &state]].concat()).document()
    }

    pub(crate) fn apply(&self, args: &[&str]) -> Done {
        self.verb(&[&["rollback", "apply"], args].concat())
    }

    /// The outcome of each target: kind and reason, or what was done.
    fn outcomes(done: &Done) -> Vec<(String, String)> {
        let word = |target: &Value| {
            let outcome = &target["outcome"];
            let reason = outcome["reasonCode"].as_str().or(outcome["inverseOperation"].as_str());
            let path = target["path"].as_str().unwrap().to_owned();
            (path, format!("{}: {}", outcome["kind"].as_str().unwrap(), reason.unwrap()))
        };
        done.json()["targets"].as_array().unwrap().iter().map(word).collect()
    }

    fn verified(&self) -> Option<i32> {
        self.verb(&["store", "verify"]).code
    }

    fn mode(&self, path: &str) -> u32 {
        fs::metadata(self.at(path)).unwrap().permissions().mode() & 0o7777
    }

    fn set_mode(&self, path: &str, mode: u32) {
        fs::set_permissions(self.at(path), fs::Permissions::from_mode(mode)).unwrap();
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

fn told(path: &str, outcome: &str) -> (String, String) {
    (path.to_owned(), outcome.to_owned())
}

/// There and back and there again: bytes, modes, directories.
#[test]
fn a_rollback_is_exact_and_can_be_rolled_back() {
    let bench = Bench::new(&[("a.sh", "pre\r\n"), ("d/gone.txt", "x"), ("kept.txt", "kept")]);
    bench.set_mode("a.sh", 0o750);
    bench.set_mode("d", 0o700);
    bench.set_mode("d/gone.txt", 0o640);
    let before = bench.env.tree();
    let calls = [edit("a.sh", "pre", "post"), create("n/e/w.txt", "1"), create("n/e/x.txt", "2")];
    bench.run(&[], &[&calls[..], &[delete("d/gone.txt")]].concat());
    let after = bench.env.tree();
    fs::remove_dir(bench.at("d")).unwrap();
    let back = bench.apply(&["last"]);
    assert_eq!((back.code, &back.json()["result"]), (Some(0), &json!("full")), "{back:?}");
    assert_eq!(bench.env.tree(), before);
    assert!(!bench.at("n").exists(), "directories that were made for the files are gone with them");
    let modes = [("a.sh", 0o750), ("d", 0o700), ("d/gone.txt", 0o640)];
    for (path, mode) in modes {
        assert_eq!(bench.mode(path), mode, "{path}");
    }
    assert_eq!(back.json()["targets"][1]["metadata"], "whole");
    for kind in ["shell", "remote", "permission", "process", "symlinkSide", "external"] {
        let entry = &back.json()["excludedEffects"][kind][0];
        assert_eq!((&entry["target"], &entry["status"]), (&Value::Null, &json!("never-protected")));
    }
    // Again: nothing to do, and said so.
    let again = bench.apply(&["last"]);
    assert_eq!((again.code, &again.json()["result"]), (Some(0), &json!("full")));
    assert_eq!(again.json()["checkpointIdAfter"], Value::Null, "nothing was dispatched");
    assert_eq!(bench.env.tree(), before);
    // The rollback itself goes back, and that one too.
    let id = back.json()["checkpointIdAfter"].as_str().unwrap().to_owned();
    let undone = bench.apply(&[&id]);
    assert_eq!(undone.code, Some(0), "{undone:?}");
    assert_eq!(bench.env.tree(), after);
    assert_eq!(bench.mode("a.sh"), 0o750);
    assert_eq!(bench.apply(&["last"]).code, Some(0));
    assert_eq!(bench.env.tree(), before);
    assert_eq!(bench.mode("d/gone.txt"), 0o640);
    assert_eq!(bench.verified(), Some(0));
    assert_eq!(bench.verb(&["recover"]).code, Some(0));
}

/// Each file for itself: what isn't as it was left stays, and is told with what can be done about it.
#[test]
fn what_somebody_else_did_is_left_and_told() {
    let bench = Bench::new(&[("a", "0"), ("b", "0"), ("c", "0")]);
    bench.run(&[], &[edit("a", "0", "1"), edit("b", "0", "1"), edit("c", "0", "1"), create("m", "x")]);
    fs::write(bench.at("b"), "theirs").unwrap();
    fs::remove_file(bench.at("m")).unwrap();
    let done = bench.apply(&["last"]);
    assert_eq!((done.code, &done.json()["result"]), (Some(30), &json!("partial")), "{done:?}");
    assert_eq!(
        Bench::outcomes(&done),
        [
            told("a", "applied: restore-pre-image"),
            told("b", "conflict: content-conflict"),
            told("c", "applied: restore-pre-image"),
            told("m", "applied: none"),
        ]
    );
    assert_eq!(
        (bench.read("a"), bench.read("b"), bench.read("c")),
        (Some("0".to_owned()), Some("theirs".to_owned()), Some("0".to_owned()))
    );
    let json = done.json();
    assert_eq!(json["residualConflicts"][0]["path"], "b");
    assert_eq!(
        json["residualConflicts"][0]["safeChoices"],
        json!(["skip-target", "export-sanitized-patch", "user-authored-resolution"])
    );
    assert_eq!((&json["appliedCount"], &json["notAppliedCount"]), (&json!(3), &json!(1)));
    assert_eq!(
        (&json["failure"]["causeCode"], &json["counts"]["conflict"]),
        (&json!("rollback-incomplete"), &json!(1))
    );
    // All that is left is theirs.
    let blocked = bench.apply(&["last", "--only", "b"]);
    assert_eq!((blocked.code, &blocked.json()["result"]), (Some(20), &json!("blocked")));
    assert_eq!(bench.read("b").as_deref(), Some("theirs"));
    assert_eq!(bench.verified(), Some(0));
}

/// Which files: by name, and which never.
#[test]
fn only_what_was_selected_is_touched_and_nothing_protected() {
    let bench = Bench::new(&[("a", "0"), ("b", "0"), ("ci/c", "0")]);
    bench.run(&[], &[edit("a", "0", "1"), edit("b", "0", "1"), edit("ci/c", "0", "1")]);
    let one = bench.apply(&["last", "--only", "./a", "--only", "nowhere"]);
    assert_eq!(one.code, Some(30), "{one:?}");
    assert_eq!(
        Bench::outcomes(&one),
        [told("a", "applied: restore-pre-image"), told("nowhere", "skipped: not-covered")]
    );
    assert_eq!((bench.read("a").unwrap(), bench.read("b").unwrap()), ("0".to_owned(), "1".to_owned()));
    for outside in ["../a", "/etc/passwd", "a/../../b", "."] {
        let refused = bench.apply(&["last", "--only", outside]);
        assert_eq!((refused.code, refused.end().2.as_str()), (Some(2), "bad-argument"), "{outside}");
    }
    bench.env.outside("guard.policy.toml", "version = 1\nprotected = [\"ci/**\"]\n");
    let guard = bench.env.beside("guard.policy.toml").display().to_string();
    let kept = bench.apply(&["last", "--protect", "b", "--policy", &guard]);
    assert_eq!(
        Bench::outcomes(&kept),
        [
            told("a", "skipped: already-at-pre-image"),
            told("b", "skipped: protected-path"),
            told("ci/c", "skipped: protected-path"),
        ]
    );
    assert_eq!(kept.json()["refused"][1], json!({"path": "ci/c", "boundary": "protected-path"}));
    assert_eq!((kept.code, bench.read("b").as_deref()), (Some(30), Some("1")));
    assert_eq!(bench.apply(&["last", "--protect", "[b"]).code, Some(2), "a glob that isn't one");
}

/// A plan that was looked at is carried out as it was, or not at all.
#[test]
fn a_stale_plan_touches_nothing() {
    let bench = Bench::new(&[("a", "0"), ("b", "0")]);
    bench.run(&[], &[edit("a", "0", "1"), edit("b", "0", "1")]);
    let plan = bench.verb(&["rollback", "analyze", "last"]).json()["planDigest"].clone();
    let plan = plan.as_str().unwrap();
    fs::write(bench.at("b"), "theirs").unwrap();
    let tree = bench.env.tree();
    let stale = bench.apply(&["last", "--plan", plan]);
    assert_eq!((stale.code, stale.end().2.as_str()), (Some(20), "plan-stale"));
    assert_eq!(bench.env.tree(), tree);
    assert_eq!(bench.apply(&["last", "--plan", "sha256:xyz"]).code, Some(2));
    fs::write(bench.at("b"), "1").unwrap();
    let fresh = bench.verb(&["rollback", "analyze", "last"]).json()["planDigest"].clone();
    let done = bench.apply(&["last", "--plan", fresh.as_str().unwrap()]);
    assert_eq!((done.code, &done.json()["planDigest"]), (Some(0), &fresh), "{done:?}");
    assert_eq!(bench.read("b").as_deref(), Some("0"));
}

/// More than a batch, one of which is somebody else's.
#[test]
fn many_files_go_back_in_batches() {
    const FILES: usize = 150;
    let names: Vec<String> = (0..FILES).map(|at| format!("d{}/f{at}.txt", at % 3)).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "0")).collect();
    let bench = Bench::new(&files);
    let before = bench.env.tree();
    let calls: Vec<_> = names.iter().map(|name| edit(name, "0", "1")).collect();
    bench.run(&["--max-files-changed", "1000"], &calls);
    fs::write(bench.at(&names[70]), "theirs").unwrap();
    let done = bench.apply(&["last"]);
    assert_eq!(done.code, Some(30), "{:?}", done.json()["counts"]);
    assert_eq!(done.json()["appliedCount"], FILES - 1);
    assert_eq!(bench.read(&names[70]).as_deref(), Some("theirs"));
    fs::write(bench.at(&names[70]), "0").unwrap();
    assert_eq!(bench.env.tree(), before);
    assert_eq!(bench.verified(), Some(0));
    assert_eq!(bench.verb(&["recover"]).code, Some(0));
}

/// An image over what is held in memory, and binary ones.
#[test]
fn large_and_binary_files_go_back() {
    let bench = Bench::new(&[]);
    let large: Vec<u8> =
        (0..3_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let small: Vec<u8> = (0..=255).collect();
    bench.env.file("large.bin", &large);
    bench.env.file("small.bin", &small);
    bench.run(&["--max-bytes-written", "100000000"], &[delete("large.bin"), delete("small.bin")]);
    let done = bench.apply(&["last"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(
        Bench::outcomes(&done),
        [
            told("large.bin", "applied: restore-from-artifact"),
            told("small.bin", "applied: restore-from-artifact"),
        ]
    );
    assert!(fs::read(bench.at("large.bin")).unwrap() == large);
    assert!(fs::read(bench.at("small.bin")).unwrap() == small);
    assert_eq!(bench.verified(), Some(0));
}

/// Bad input costs nothing.
#[test]
fn what_can_not_be_put_back_is_told_and_touches_nothing() {
    let bench = Bench::new(&[("a", "0")]);
    bench.run(&[], &[edit("a", "0", "1")]);
    let tree = bench.env.tree();
    for hostile in ["../../x", "0", "ffffffff", "' OR 1=1 --", "a/b"] {
        let refused = bench.apply(&[hostile]);
        assert_eq!((refused.code, refused.end().2.as_str()), (Some(20), "checkpoint-not-found"));
    }
    assert_eq!(bench.apply(&[]).code, Some(2));
    assert_eq!(bench.apply(&["--turn", "9"]).end().2, "nothing-to-roll-back");
    // The key isn't there: nothing can be compared.
    fs::rename(bench.env.beside("state.key"), bench.env.beside("away")).unwrap();
    let locked = bench.apply(&["last"]);
    assert_eq!((locked.code, locked.end().2.as_str()), (Some(20), "key-unavailable"));
    fs::rename(bench.env.beside("away"), bench.env.beside("state.key")).unwrap();
    // The workspace isn't there any more.
    fs::rename(bench.env.workspace(), bench.env.beside("moved")).unwrap();
    let state = bench.env.beside("state").display().to_string();
    let args = ["rollback", "apply", "last", "--json", "--state-dir", &state];
    let gone = bench.env.thcode(&args).dir(&bench.env.beside(".")).document();
    assert_eq!((gone.code, gone.end().2.as_str()), (Some(2), "workspace-refused"), "{gone:?}");
    fs::rename(bench.env.beside("moved"), bench.env.workspace()).unwrap();
    assert_eq!(bench.env.tree(), tree);
    // What is kept isn't what was kept.
    let database = rusqlite::Connection::open(bench.env.beside("state/state.db")).unwrap();
    database.execute("UPDATE chunk SET sealed = zeroblob(length(sealed))", []).unwrap();
    drop(database);
    assert_eq!(bench.apply(&["last"]).end().2, "nothing-to-roll-back");
    assert_eq!(bench.env.tree(), tree);
    let none = Bench::new(&[]);
    assert_eq!(none.apply(&["last"]).end().2, "store-missing");
}

/// The four things that can be done about a conflict.
#[test]
fn a_conflict_is_settled_as_the_operator_wants_it() {
    let bench = Bench::new(&[("f.txt", "one\ntwo\n"), ("gone.txt", "old")]);
    bench.run(&[], &[edit("f.txt", "one", "1"), delete("gone.txt")]);
    fs::write(bench.at("f.txt"), "1\ntwo\ntheirs\n").unwrap();
    fs::write(bench.at("gone.txt"), "theirs").unwrap();
    let list = bench.verb(&["rollback", "list"]).json();
    let of = |at: usize| list["checkpoints"][at]["checkpointId"].as_str().unwrap().to_owned();
    let (gone, edited) = (of(0), of(1));
    let resolve = |id: &str, path: &str, choice: &[&str]| {
        bench.verb(&[&["rollback", "resolve", id, path, "--choice"], choice].concat())
    };
    let tree = bench.env.tree();
    let skipped = resolve(&edited, "f.txt", &["skip-target"]);
    assert_eq!(skipped.code, Some(0), "{skipped:?}");
    assert_eq!(skipped.json()["targets"][0]["outcome"]["reasonCode"], "skip-target");
    let patch = resolve(&edited, "f.txt", &["export-sanitized-patch"]);
    assert_eq!(patch.code, Some(0), "{patch:?}");
    assert_eq!(
        patch.json()["patch"],
        "--- a/f.txt\n+++ b/f.txt\n@@ -1,3 +1,2 @@\n-1\n+one\n two\n-theirs\n"
    );
    assert_eq!(bench.env.tree(), tree, "neither changes anything");
    let mine = bench.env.outside("mine.txt", "one\ntwo\ntheirs\n").display().to_string();
    let authored = resolve(&edited, "f.txt", &["user-authored-resolution", &mine]);
    assert_eq!(authored.code, Some(0), "{authored:?}");
    assert_eq!(bench.read("f.txt").as_deref(), Some("one\ntwo\ntheirs\n"));
    // It has a checkpoint like any change, and goes back like any.
    let id = authored.json()["checkpointIdAfter"].as_str().unwrap().to_owned();
    assert_eq!(bench.apply(&[&id]).code, Some(0));
    assert_eq!(bench.read("f.txt").as_deref(), Some("1\ntwo\ntheirs\n"));
    let rebased = resolve(&gone, "gone.txt", &["rebase-new-path", "kept/gone.old"]);
    assert_eq!(rebased.code, Some(0), "{rebased:?}");
    assert_eq!(bench.read("kept/gone.old").as_deref(), Some("old"));
    assert_eq!(bench.read("gone.txt").as_deref(), Some("theirs"));
    // What can't be done touches nothing.
    let tree = bench.env.tree();
    for (path, choice, code, cause) in [
        ("gone.txt", &["rebase-new-path", "kept/gone.old"][..], 20, "resolution-refused"),
        ("gone.txt", &["rebase-new-path", "../out"], 2, "bad-argument"),
        ("gone.txt", &["rebase-new-path", ".git/hooks/x"], 20, "resolution-refused"),
        ("nowhere", &["skip-target"], 20, "resolution-refused"),
        ("gone.txt", &["overwrite"], 2, "bad-argument"),
        ("gone.txt", &["user-authored-resolution"], 2, "bad-argument"),
        ("gone.txt", &["user-authored-resolution", "/nonexistent"], 2, "input-unreadable"),
    ] {
        let refused = resolve(&gone, path, choice);
        assert_eq!((refused.code, refused.end().2.as_str()), (Some(code), cause), "{path} {choice:?}");
    }
    assert_eq!(bench.env.tree(), tree);
    assert_eq!((bench.verified(), bench.verb(&["recover"]).code), (Some(0), Some(0)));
}

/// A run that fails takes its changes back, and keeps its own class.
#[test]
fn a_failed_run_puts_its_changes_back_if_it_was_told_to() {
    let failing = |more: &[&str]| {
        let bench = Bench::new(&[("f.txt", "pre")]);
        let calls = json!({"toolCalls": [
            {"name": "edit_file", "arguments": edit("f.txt", "pre", "post").1},
            {"name": "create_file", "arguments": create("n/new.txt", "x").1},
        ]});
        let finish = json!({"toolCalls": [
            {"name": "finish", "arguments": {"outcome": "cannot", "summary": "no"}},
        ]});
        let cassette = bench.env.cassette(&[calls, finish]).display().to_string();
        let policy = bench.env.beside("p.policy.toml").display().to_string();
        let state = bench.state();
        let args =
            ["run", "--json", "--policy", &policy, "--state-dir", &state, "--cassette", &cassette];
        let done = bench.env.thcode(&[&args[..], more, &["x"]].concat()).document();
        (bench, done)
    };
    let (bench, kept) = failing(&[]);
    assert_eq!((kept.code, bench.read("f.txt").as_deref()), (Some(80), Some("post")), "{kept:?}");
    assert_eq!(kept.json()["rollback"], Value::Null);
    let (bench, back) = failing(&["--on-failure", "rollback"]);
    assert_eq!(back.code, Some(80), "{back:?}");
    assert_eq!(
        (&back.json()["rollback"]["result"], bench.read("f.txt")),
        (&json!("full"), Some("pre".to_owned()))
    );
    assert!(!bench.at("n").exists());
    let (bench, tolerated) = failing(&["--on-failure", "rollback", "--tolerate", "expectation-failed"]);
    assert_eq!((tolerated.code, bench.read("f.txt").as_deref()), (Some(0), Some("post")));
    let (bench, own) = failing(&["--on-failure", "rollback", "--ephemeral"]);
    assert_eq!((own.code, bench.read("f.txt").as_deref()), (Some(80), Some("pre")), "{own:?}");
}

/// A checkpoint that isn't what was kept is left out, and said to be: what remains isn't all.
#[test]
fn a_corrupt_checkpoint_is_never_left_out_silently() {
    let bench = Bench::new(&[("a", "0"), ("b", "0")]);
    bench.run(&[], &[edit("a", "0", "1"), edit("b", "0", "1")]);
    let list = bench.verb(&["rollback", "list"]).json();
    let bad = list["checkpoints"][0]["checkpointId"].as_str().unwrap().replace('-', "");
    let database = rusqlite::Connection::open(bench.env.beside("state/state.db")).unwrap();
    let sql = "UPDATE target SET post_digest = zeroblob(32) WHERE lower(hex(checkpoint_id)) = ?1";
    assert_eq!(database.execute(sql, [bad]).unwrap(), 1);
    drop(database);
    for verb in ["analyze", "apply"] {
        let done = bench.verb(&["rollback", verb, "last"]);
        let left = &done.json()["leftOut"];
        assert_eq!((done.code, &left[0]["reasonCode"]), (Some(30), &json!("corrupt")), "{done:?}");
    }
    assert_eq!((bench.read("a").as_deref(), bench.read("b").as_deref()), (Some("0"), Some("1")));
}

/// The store is of one workspace: what fits another's files by chance isn't touched.
#[test]
fn another_directory_is_never_written() {
    let bench = Bench::new(&[("g", "x")]);
    bench.run(&[], &[delete("g")]);
    let other = bench.env.beside("other");
    fs::create_dir(&other).unwrap();
    let dir = other.display().to_string();
    for verb in ["analyze", "apply"] {
        let done = bench.verb(&["rollback", verb, "last", "-C", &dir]);
        assert_eq!((done.code, done.end().2.as_str()), (Some(2), "state-dir-refused"), "{done:?}");
    }
    assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
}

/// Mode and attributes are somebody's work as well.
#[test]
fn changed_metadata_is_a_conflict() {
    let edited = || {
        let bench = Bench::new(&[("a", "0")]);
        bench.run(&[], &[edit("a", "0", "1")]);
        bench
    };
    let bench = edited();
    fs::write(bench.at("a"), "0").unwrap();
    bench.set_mode("a", 0o600);
    let done = bench.apply(&["last"]);
    assert_eq!(Bench::outcomes(&done), [told("a", "conflict: metadata-conflict")]);
    assert_eq!((done.code, bench.mode("a")), (Some(20), 0o600));
    let bench = edited();
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(bench.at("a"), "user.k", b"v", flags).is_err() {
        crate::env::skipped("attributes in apply.rs", "this file system has none");
        return;
    }
    let done = bench.apply(&["last"]);
    assert_eq!(Bench::outcomes(&done), [told("a", "conflict: metadata-conflict")], "{done:?}");
    assert_eq!(bench.read("a").as_deref(), Some("1"));
}

/// What comes back is open to nobody that it wasn't open to, whatever its directory gives new files.
#[test]
fn a_default_acl_opens_nothing_that_comes_back() {
    let bench = Bench::new(&[("d/a", "0"), ("d/g", "x")]);
    bench.set_mode("d/a", 0o640);
    bench.run(&[], &[edit("d/a", "0", "1"), delete("d/g")]);
    // user::rwx user:1000:rwx group::r-x mask::rwx other::---
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, u32::MAX), (2, 7, 1000), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 0, u32::MAX)];
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        acl.extend(tag.to_le_bytes().iter().chain(&rights.to_le_bytes()).chain(&id.to_le_bytes()));
    }
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(bench.at("d"), "system.posix_acl_default", &acl, flags).is_err() {
        crate::env::skipped("default ACLs in apply.rs", "this file system has none");
        return;
    }
    let access = |path: PathBuf| {
        rustix::fs::getxattr(path, "system.posix_acl_access", &mut [0u8; 256][..]).is_ok()
    };
    fs::write(bench.at("d/control"), "x").unwrap();
    assert!(access(bench.at("d/control")), "a new file there does get it");
    let done = bench.apply(&["last"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(!access(bench.at("d/a")) && !access(bench.at("d/g")), "{done:?}");
    assert_eq!(bench.mode("d/a"), 0o640);
}

/// What can't be written is told before as it is told after.
#[test]
fn a_read_only_tree_is_told_alike_before_and_after() {
    let bench = Bench::new(&[("a", "0")]);
    bench.run(&[], &[edit("a", "0", "1")]);
    let ws = bench.env.workspace().display().to_string();
    let script =
        "mount --bind \"$1\" \"$1\" && mount -o remount,ro,bind \"$1\" || exit 99; shift; exec \"$@\"";
    let state = bench.state();
    for verb in ["analyze", "apply"] {
        let mut command = std::process::Command::new("unshare");
        command.args(["-m", "sh", "-c", script, "sh", &ws, env!("CARGO_BIN_EXE_thcode")]);
        command.args(["rollback", verb, "last", "--json", "-C", &ws, "--state-dir", &state]);
        command.env_clear().env("HOME", bench.env.home()).env("PATH", std::env::var_os("PATH").unwrap());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let Ok(child) = command.spawn() else { return };
        let done = crate::env::finish(child);
        if done.code == Some(99) || done.stdout.is_empty() {
            crate::env::skipped("the read-only tree of apply.rs", done.stderr.trim());
            return;
        }
        assert_eq!(Bench::outcomes(&done), [told("a", "inaccessible: read-only-file-system")]);
        assert_eq!(done.code, Some(20), "{done:?}");
    }
    assert_eq!(bench.verb(&["recover"]).code, Some(0));
}

/// The causes that only a rollback that is carried out meets, for the list of all causes.
pub(crate) fn causes() -> Vec<String> {
    let bench = Bench::new(&[("a", "0")]);
    bench.run(&[], &[edit("a", "0", "1")]);
    let plan = bench.verb(&["rollback", "analyze", "last"]).json()["planDigest"].clone();
    fs::write(bench.at("a"), "theirs").unwrap();
    let end = |args: &[&str]| bench.verb(args).end().2;
    let list = bench.verb(&["rollback", "list"]).json();
    let id = list["checkpoints"][0]["checkpointId"].as_str().unwrap();
    vec![
        end(&["rollback", "apply", "last", "--plan", plan.as_str().unwrap()]),
        end(&["rollback", "apply", "last"]),
        end(&["rollback", "resolve", id, "nowhere", "--choice", "skip-target"]),
    ]
}

#[cfg(feature = "fault-injection")]
mod crashed {
    use thcode::host::CrashPoint;

    use super::*;

    /// Every point of a rollback of four files: each is as it was or as it is to be, looking changes
    /// nothing, settling is whole and final, and the next rollback finishes it.
    #[test]
    fn at_any_point_a_rollback_is_settled_and_finished() {
        let mut died = 0;
        for point in CrashPoint::ALL {
            let case = point.name();
            let bench = Bench::new(&[("a", "0"), ("g", "x"), ("b", "0")]);
            let before = bench.env.tree();
            let calls = [edit("a", "0", "1"), create("n/m", "x"), delete("g"), edit("b", "0", "1")];
            bench.run(&[], &calls);
            let state = bench.state();
            let args = ["rollback", "apply", "last", "--json", "--state-dir", &state];
            let crashed = bench.env.thcode(&args).env("THCODE_FAULT", case).run();
            if crashed.code.is_some() {
                // A point that a rollback doesn't come by.
                assert_eq!((crashed.code, bench.env.tree() == before), (Some(0), true), "{case}");
                continue;
            }
            died += 1;
            for (path, images) in [
                ("a", [Some("0"), Some("1")]),
                ("b", [Some("0"), Some("1")]),
                ("g", [Some("x"), None]),
                ("n/m", [Some("x"), None]),
            ] {
                assert!(images.contains(&bench.read(path).as_deref()), "{case}: {path}");
            }
            let tree = bench.env.tree();
            let seen = bench.verb(&["recover"]);
            assert!(matches!(seen.code, Some(0 | 60)), "{case}: {seen:?}");
            assert_eq!(bench.env.tree(), tree, "{case}: looking changes nothing");
            let settled = bench.verb(&["recover", "reconcile", "--all"]);
            assert_eq!(settled.code, Some(0), "{case}: {settled:?}");
            assert!(
                !bench.env.tree().iter().any(|entry| format!("{entry:?}").contains(".thc-")),
                "{case}: nothing of ours is left beside the files"
            );
            assert_eq!(bench.verified(), Some(0), "{case}");
            let again = bench.verb(&["recover", "reconcile", "--all"]);
            assert_eq!((again.code, &again.json()["operations"]), (Some(0), &json!([])), "{case}");
            let done = bench.apply(&["last"]);
            assert_eq!(
                (done.code, &done.json()["result"]),
                (Some(0), &json!("full")),
                "{case}: {done:?}"
            );
            assert_eq!(bench.env.tree(), before, "{case}");
            assert_eq!(bench.verified(), Some(0), "{case}");
        }
        assert!(died >= 10, "{died}");
    }

    fn kill(id: u32, signal: &str) -> bool {
        let args = [&format!("-{signal}"), &id.to_string()];
        std::process::Command::new("kill").args(args).status().unwrap().success()
    }

    /// Lets a stopped process go on to its end, however often it stops on the way.
    fn gone_on(child: std::process::Child) -> Done {
        let id = child.id();
        let going = std::thread::spawn(move || {
            while kill(id, "CONT") {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        });
        let done = crate::env::finish(child);
        going.join().unwrap();
        done.check_document();
        done
    }

    /// A directory that is moved away in the middle takes nothing along: neither what was to be written
    /// nor what was there.
    #[test]
    fn a_directory_that_is_moved_away_is_not_written_outside() {
        for point in [CrashPoint::Anchored, CrashPoint::TempSynced] {
            let bench = Bench::new(&[("d/a", "0"), ("d/g", "x")]);
            bench.run(&[], &[edit("d/a", "0", "1"), delete("d/g"), create("d/n", "x")]);
            let state = bench.state();
            let args = ["rollback", "apply", "last", "--json", "--state-dir", &state];
            let stop = format!("stop-at-{}", point.name());
            let child = bench.env.thcode(&args).env("THCODE_FAULT", stop).start();
            let stat = || fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
            while !stat().rsplit_once(')').unwrap().1.trim_start().starts_with('T') {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            let away = bench.env.beside("away");
            fs::rename(bench.at("d"), &away).unwrap();
            let done = gone_on(child);
            assert_eq!(done.code, Some(20), "{done:?}");
            let standing: Vec<String> = ["a", "g", "n"]
                .iter()
                .map(|name| fs::read_to_string(away.join(name)).unwrap_or("none".to_owned()))
                .collect();
            assert_eq!(standing, ["1", "none", "x"], "{}", point.name());
            assert_eq!(fs::read_dir(&away).unwrap().count(), 2, "nothing of ours is left there");
        }
    }

    /// A signal between batches: what was begun is whole, the rest is told, and going on finishes it.
    #[test]
    fn a_signal_ends_a_rollback_between_batches() {
        let names: Vec<String> = (0..130).map(|at| format!("f{at:03}")).collect();
        let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "0")).collect();
        let bench = Bench::new(&files);
        let before = bench.env.tree();
        let calls: Vec<_> = names.iter().map(|name| edit(name, "0", "1")).collect();
        bench.run(&["--max-files-changed", "1000"], &calls);
        let state = bench.state();
        let args = ["rollback", "apply", "last", "--json", "--state-dir", &state];
        let child = bench.env.thcode(&args).env("THCODE_FAULT", "stop-at-crash-anchored").start();
        let stat = || fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        while !stat().rsplit_once(')').unwrap().1.trim_start().starts_with('T') {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        kill(child.id(), "TERM");
        let done = gone_on(child);
        assert_eq!((done.code, done.end().2.as_str()), (Some(130), "signalled"), "{done:?}");
        assert_eq!(done.json()["appliedCount"], 64, "{:?}", done.json()["counts"]);
        assert_eq!(bench.verb(&["recover"]).code, Some(0), "nothing is cut off");
        assert_eq!(bench.apply(&["last"]).code, Some(0));
        assert_eq!(bench.env.tree(), before);
    }

    /// The rollback itself settles what the crash of another left.
    #[test]
    fn a_rollback_begins_with_what_was_interrupted() {
        let bench = Bench::new(&[("a", "0")]);
        bench.run(&[], &[edit("a", "0", "1")]);
        let state = bench.state();
        let args = ["rollback", "apply", "last", "--json", "--state-dir", &state];
        let crashed = bench.env.thcode(&args).env("THCODE_FAULT", "crash-published").run();
        assert_eq!(crashed.code, None);
        let done = bench.apply(&["last"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let settled = done.json()["notes"].to_string().matches("was interrupted; settled").count();
        assert_eq!(settled, 2, "{done:?}");
        assert_eq!(bench.read("a").as_deref(), Some("0"));
        assert_eq!(bench.verified(), Some(0));
    }
}
