//! `thcode recover` on runs that died: what it tells is what stands, what it settles is settled for
//! good, and nobody's bytes are lost on the way.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::env::{Done, TestEnv, finish};

const POLICY: &str = "version = 1\n[sandbox]\nmode = \"off\"\n[[rule]]\nid = \"write\"\neffect = \"allow\"\n\
    tools = [\"create_file\", \"edit_file\", \"delete_file\"]\nwhen.write = [\"**\"]\n\
    [[rule]]\nid = \"sleep\"\neffect = \"allow\"\ntools = [\"run_command\"]\nwhen.command = [\"sleep …\"]\n";

struct Bench {
    env: TestEnv,
}

impl Bench {
    fn new() -> Self {
        let env = TestEnv::new();
        env.outside("p.policy.toml", POLICY);
        Self { env }
    }

    fn with(files: &[(&str, &str)]) -> Self {
        let bench = Self::new();
        for (path, text) in files {
            bench.env.file(path, text);
        }
        bench
    }

    fn state(&self) -> PathBuf {
        self.env.beside("state")
    }

    fn at(&self, path: &str) -> PathBuf {
        self.env.workspace().join(path)
    }

    #[cfg(feature = "fault-injection")]
    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.at(path)).ok()
    }

    fn args(&self, replies: &[Value], more: &[&str]) -> Vec<String> {
        let cassette = self.env.cassette(replies).display().to_string();
        let policy = self.env.beside("p.policy.toml").display().to_string();
        let state = self.state().display().to_string();
        let args =
            ["run", "--json", "--policy", &policy, "--state-dir", &state, "--cassette", &cassette];
        let args = [&args[..], more, &["the task"]].concat();
        args.into_iter().map(str::to_owned).collect()
    }

    fn run(&self, replies: &[Value], more: &[&str]) -> Done {
        let args = self.args(replies, more);
        self.env.thcode(&args.iter().map(String::as_str).collect::<Vec<_>>()).document()
    }

    /// A run that dies at a point of a call.
    #[cfg(feature = "fault-injection")]
    fn crash(&self, point: &str, call: &(&str, Value)) {
        let replies = [calls(std::slice::from_ref(call)), json!({"text": "done"})];
        let args = self.args(&replies, &[]);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let crashed = self.env.thcode(&args).env("THCODE_FAULT", point).run();
        assert_eq!(crashed.code, None, "{point}: it should have died: {crashed:?}");
    }

    fn recover(&self, args: &[&str]) -> Done {
        let state = self.state().display().to_string();
        let whole = [&["recover"], args, &["--json", "--state-dir", &state]].concat();
        self.env.thcode(&whole).document()
    }

    /// The one operation that stands, its resolution or the reason for none.
    fn standing(&self) -> (String, String) {
        let document = self.recover(&[]).json();
        let operations = document["operations"].as_array().unwrap();
        assert_eq!(operations.len(), 1, "{document:#}");
        let one = &operations[0];
        let text = |key: &str| one[key].as_str().map(str::to_owned);
        (text("operationId").unwrap(), text("resolution").or_else(|| text("unresolved")).unwrap())
    }

    fn verified(&self) -> Option<i32> {
        let state = self.state().display().to_string();
        self.env.thcode(&["store", "verify", "--json", "--state-dir", &state]).document().code
    }

    fn stray(&self) -> Vec<PathBuf> {
        let tree = self.env.tree().into_iter().map(|(path, _)| path);
        tree.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(".thc-")).collect()
    }

    /// How many events the journal has.
    #[cfg(feature = "fault-injection")]
    fn read_journal(&self) -> i64 {
        let database = rusqlite::Connection::open(self.state().join("state.db")).unwrap();
        database.query_row("SELECT count(*) FROM journal", [], |row| row.get(0)).unwrap()
    }

    /// Everything in the state directory but the lock file and SQLite's shared memory.
    #[cfg(feature = "fault-injection")]
    fn kept(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found: Vec<_> = fs::read_dir(self.state())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| {
                let name = path.to_string_lossy();
                path.is_file() && !name.ends_with("-shm") && !name.ends_with("lock")
            })
            .map(|path| (path.clone(), fs::read(path).unwrap()))
            // A log that a reader opens is made, and stays empty.
            .filter(|(_, bytes)| !bytes.is_empty())
            .collect();
        found.sort();
        found
    }
}

fn calls(calls: &[(&str, Value)]) -> Value {
    let calls: Vec<Value> =
        calls.iter().map(|(name, arguments)| json!({"name": name, "arguments": arguments})).collect();
    json!({"toolCalls": calls})
}

#[cfg(feature = "fault-injection")]
mod crashed {
    use thcode::host::CrashPoint;

    use super::*;

    fn edit() -> (&'static str, Value) {
        ("edit_file", json!({"path": "f.txt", "edits": [{"oldText": "pre", "newText": "post"}]}))
    }

    fn delete() -> (&'static str, Value) {
        ("delete_file", json!({"path": "f.txt"}))
    }

    fn create() -> (&'static str, Value) {
        ("create_file", json!({"path": "new/dir/f.txt", "content": "post"}))
    }

    /// Every point × every kind of change: the file is whole, looking changes nothing, settling leaves
    /// nothing behind and is final, and a run does the same before it begins.
    #[test]
    fn at_any_point_it_is_told_and_settled() {
        let of_a_run = CrashPoint::ALL.iter().filter(|point| !CrashPoint::OF_THE_STORE.contains(point));
        for point in of_a_run {
            for (call, path, pre, post) in [
                (create(), "new/dir/f.txt", None, Some("post")),
                (edit(), "f.txt", Some("pre"), Some("post")),
                (delete(), "f.txt", Some("pre"), None),
            ] {
                let case = format!("{} {}", point.name(), call.0);
                let bench = Bench::new();
                if let Some(pre) = pre {
                    bench.env.file("f.txt", pre);
                }
                bench.crash(point.name(), &call);
                let now = bench.read(path);
                assert!(now.as_deref() == pre || now.as_deref() == post, "{case}: {now:?}");
                let kept = bench.kept();
                let told = bench.recover(&[]);
                assert!(bench.kept() == kept, "{case}: looking changes nothing");
                let stands = match point {
                    CrashPoint::AnchorMade | CrashPoint::DatabaseMade | CrashPoint::DatabaseNamed => {
                        Some(pre)
                    }
                    CrashPoint::Settled
                    | CrashPoint::RunEnded
                    | CrashPoint::EndAnchored
                    | CrashPoint::Tidied => Some(post),
                    _ => None,
                };
                if let Some(stands) = stands {
                    let nothing = told.code == Some(0) || told.end().2 == "store-missing";
                    assert!(nothing && now.as_deref() == stands, "{case}: {told:?}");
                    let next = bench.run(&[json!({"text": "x"})], &[]);
                    assert_eq!(next.code, Some(0), "{case}: nothing is left open: {next:?}");
                    continue;
                }
                assert_eq!(told.code, Some(60), "{case}: {told:?}");
                let refused = bench.run(&[json!({"text": "x"})], &["--on-interrupted", "require-clean"]);
                assert_eq!((refused.code, refused.end().1.as_str()), (Some(60), "recovery-required"));
                let (id, resolution) = bench.standing();
                if call.0 == "edit_file" {
                    let next = bench.run(&[json!({"text": "x"})], &[]);
                    assert_eq!(next.code, Some(0), "{case}: {next:?}");
                    let notes = next.json()["residualRisks"].to_string();
                    assert!(notes.contains(&format!("settled: {resolution}")), "{case}: {notes}");
                } else {
                    let settled = bench.recover(&["reconcile", &id]);
                    assert_eq!(settled.code, Some(0), "{case}: {settled:?}");
                    let one = &settled.json()["operations"][0];
                    assert_eq!(
                        (&one["settled"], &one["resolution"]),
                        (&json!(true), &json!(resolution))
                    );
                }
                let expected = match resolution.as_str() {
                    "applied" | "finished" => post,
                    "not-applied" | "cancelled" => pre,
                    other => panic!("{case}: {other}"),
                };
                assert_eq!(bench.read(path).as_deref(), expected, "{case}: {resolution}");
                assert_eq!(bench.stray(), Vec::<PathBuf>::new(), "{case}");
                assert_eq!(bench.at("new").exists(), bench.read("new/dir/f.txt").is_some(), "{case}");
                assert_eq!(bench.verified(), Some(0), "{case}");
                let again = bench.recover(&["reconcile", "--all"]);
                assert_eq!((again.code, &again.json()["operations"]), (Some(0), &json!([])), "{case}");
                assert_eq!(bench.recover(&[]).code, Some(0), "{case}");
            }
        }
    }

    fn temp(bench: &Bench) -> PathBuf {
        let stray = bench.stray();
        assert_eq!(stray.len(), 1, "{stray:?}");
        stray.into_iter().next().unwrap()
    }

    /// Somebody's save that the exchange brought out is never swept: it goes back if a person says so.
    #[test]
    fn a_displaced_save_waits_for_a_person() {
        let bench = Bench::with(&[("f.txt", "pre")]);
        bench.crash("crash-published", &edit());
        fs::write(temp(&bench), "somebody's").unwrap();
        let (id, why) = bench.standing();
        assert_eq!((why.as_str(), bench.recover(&[]).code), ("displaced", Some(70)));
        let left = bench.recover(&["reconcile", "--all"]);
        assert_eq!(left.end(), ("UNKNOWN_OUTCOME".into(), "-".into(), "outcome-unproven".into()));
        assert_eq!(fs::read_to_string(temp(&bench)).unwrap(), "somebody's");
        let run = bench.run(&[json!({"text": "x"})], &[]);
        assert_eq!(run.code, Some(70), "no run begins over it: {run:?}");
        let on = bench.run(&[json!({"text": "x"})], &["--on-interrupted", "ignore"]);
        assert_eq!(on.code, Some(0));
        assert!(on.json()["residualRisks"].to_string().contains("left interrupted"));
        let restored = bench.recover(&["reconcile", &id, "--restore"]);
        assert_eq!(restored.code, Some(0), "{restored:?}");
        assert_eq!(bench.read("f.txt").as_deref(), Some("somebody's"));
        assert_eq!((bench.stray().len(), bench.verified()), (0, Some(0)));
        assert_eq!(bench.recover(&[]).code, Some(0));
    }

    /// A save that is shorter than what was to be written looks like a write that was cut off, and isn't.
    #[test]
    fn a_short_save_is_not_taken_for_a_write_that_was_cut_off() {
        let bench = Bench::with(&[("f.txt", "pre")]);
        bench.crash("crash-published", &edit());
        fs::write(temp(&bench), "new").unwrap();
        fs::write(bench.at("f.txt"), "pre").unwrap();
        let settled = bench.recover(&["reconcile", "--all"]);
        assert_eq!(settled.code, Some(0), "{settled:?}");
        assert_eq!(fs::read_to_string(temp(&bench)).unwrap(), "new", "somebody's bytes stay");
        let one = &settled.json()["operations"][0];
        assert!(one["left"].as_str().unwrap().starts_with(".thc-"), "{one}");
        assert!(settled.json()["nextStep"].as_str().unwrap().starts_with("look at .thc-"));
        // What was cut off is the beginning of it.
        let bench = Bench::with(&[("f.txt", "pre")]);
        bench.crash("crash-temp-written", &edit());
        fs::write(temp(&bench), "po").unwrap();
        assert_eq!(bench.recover(&["reconcile", "--all"]).code, Some(0));
        assert_eq!(bench.stray(), Vec::<PathBuf>::new());
    }

    /// The control: with the rule taken out the save is gone, and the test above sees that.
    #[test]
    fn without_the_rule_a_displaced_save_would_be_swept() {
        let bench = Bench::with(&[("f.txt", "pre")]);
        bench.crash("crash-published", &edit());
        fs::write(temp(&bench), "somebody's").unwrap();
        let state = bench.state().display().to_string();
        let args = ["recover", "reconcile", "--all", "--json", "--state-dir", &state];
        let done = bench.env.thcode(&args).env("THCODE_FAULT", "sweep-displaced").document();
        assert_eq!((done.code, bench.stray().len()), (Some(0), 0), "{done:?}");
        assert_eq!(bench.read("f.txt").as_deref(), Some("post"), "somebody's bytes are nowhere");
    }

    #[test]
    fn what_nobody_can_know_is_taken_on_a_persons_word() {
        let bench = Bench::with(&[("f.txt", "pre")]);
        bench.crash("crash-removed", &edit());
        fs::write(bench.at("f.txt"), "third").unwrap();
        let (id, why) = bench.standing();
        assert_eq!(why, "unknown-content");
        for way in [&["--restore"][..], &["--finish"], &[]] {
            assert_eq!(bench.recover(&[&["reconcile", &id][..], way].concat()).code, Some(70));
        }
        assert_eq!(bench.recover(&["inspect", &id]).code, Some(70));
        let accepted = bench.recover(&["accept", &id, "--reason", "compared by hand"]);
        assert_eq!(accepted.code, Some(0), "{accepted:?}");
        assert_eq!(accepted.json()["operations"][0]["operationState"], "reconciled");
        assert_eq!(bench.read("f.txt").as_deref(), Some("third"));
        assert_eq!((bench.recover(&[]).code, bench.recover(&["inspect", &id]).code), (Some(0), Some(0)));
        assert_eq!(bench.verified(), Some(0));
        let twice = bench.recover(&["accept", &id, "--reason", "again"]);
        assert_eq!(twice.end().2, "nothing-to-settle");
    }

    #[test]
    fn a_deletion_is_finished_or_undone_as_the_caller_wants() {
        let dead = || {
            let bench = Bench::with(&[("f.txt", "pre")]);
            bench.crash("crash-published", &delete());
            bench
        };
        let bench = dead();
        let (id, resolution) = bench.standing();
        assert_eq!(resolution, "finished");
        let restored = bench.recover(&["reconcile", &id, "--restore"]);
        assert_eq!(restored.json()["operations"][0]["resolution"], "restored", "{restored:?}");
        assert_eq!((bench.read("f.txt").as_deref(), bench.stray().len()), (Some("pre"), 0));
        assert_eq!(bench.verified(), Some(0));
        // Something new has come to stand there: neither is lost without a word.
        let bench = dead();
        fs::write(bench.at("f.txt"), "new").unwrap();
        let (id, why) = bench.standing();
        assert_eq!(why, "target-recreated");
        assert_eq!(bench.recover(&["reconcile", "--all"]).code, Some(70));
        assert_eq!(fs::read_to_string(temp(&bench)).unwrap(), "pre");
        let finished = bench.recover(&["reconcile", &id, "--finish"]);
        assert_eq!(finished.code, Some(0), "{finished:?}");
        assert_eq!((bench.read("f.txt").as_deref(), bench.stray().len()), (Some("new"), 0));
        assert_eq!(bench.verified(), Some(0));
    }

    /// Without its workspace a store would prove that every file that it was to make wasn't made.
    #[test]
    fn without_the_workspace_nothing_is_proven() {
        let bench = Bench::new();
        bench.crash("crash-anchored", &create());
        let elsewhere = bench.env.beside("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        let there = elsewhere.to_str().unwrap();
        let told = bench.recover(&["-C", there]);
        assert_eq!(told.code, Some(70));
        assert_eq!(told.json()["operations"][0]["unresolved"], "workspace-not-proven");
        let kept = bench.read_journal();
        assert_eq!(bench.recover(&["reconcile", "--all", "-C", there]).code, Some(70));
        assert_eq!((bench.read_journal(), bench.standing().1.as_str()), (kept, "not-applied"));
        let vouched = bench.recover(&["--workspace-is", "-C", there]);
        assert_eq!(vouched.code, Some(60), "{vouched:?}");
        // Moved as a whole it is still the same directory.
        let moved = bench.env.beside("moved");
        fs::rename(bench.env.workspace(), &moved).unwrap();
        fs::create_dir(bench.env.workspace()).unwrap();
        let told = bench.recover(&["-C", moved.to_str().unwrap()]);
        assert_eq!(told.json()["operations"][0]["resolution"], "not-applied");
    }

    /// Every verdict is known without the key; nothing is written without it.
    #[test]
    fn without_the_key_it_is_told_and_not_settled() {
        let bench = Bench::with(&[("f.txt", "pre")]);
        bench.crash("crash-published", &edit());
        let key = bench.env.beside("state.key");
        fs::rename(&key, bench.env.beside("away")).unwrap();
        let told = bench.recover(&[]);
        let document = told.json();
        assert_eq!((told.code, &document["authenticity"]), (Some(60), &json!("unverified-no-key")));
        assert_eq!(document["operations"][0]["resolution"], "applied");
        assert_eq!(document["operations"][0]["checkpointMaterial"], "recovery-locked");
        let settled = bench.recover(&["reconcile", "--all"]);
        assert_eq!(settled.end().2, "key-unavailable");
        fs::rename(bench.env.beside("away"), key).unwrap();
        // The command to copy is meant for this very store.
        let next = bench.recover(&[]).json()["nextStep"].as_str().unwrap().to_owned();
        let words: Vec<&str> = next.split(' ').skip(1).collect();
        assert_eq!(bench.env.thcode(&words).run().code, Some(0), "{next}");
        assert_eq!(bench.recover(&[]).code, Some(0));
    }

    /// What can't be tidied up isn't recorded as settled.
    #[test]
    fn a_sweep_that_fails_settles_nothing() {
        let bench = Bench::with(&[("f.txt", "pre")]);
        bench.crash("crash-published", &edit());
        let state = bench.state().display().to_string();
        let reconcile = ["recover", "reconcile", "--all", "--json", "--state-dir", &state];
        let reconcile = reconcile.map(str::to_owned);
        let Some(failed) = traced(&bench, "inject=unlinkat:error=EROFS", &reconcile) else {
            eprintln!("SKIPPED a_sweep_that_fails_settles_nothing: there is no strace");
            return;
        };
        assert_eq!(failed.end(), ("FAILED".into(), "-".into(), "reconciliation-failed".into()));
        assert_eq!((bench.standing().1.as_str(), bench.stray().len()), ("applied", 1));
        assert_eq!(bench.recover(&["reconcile", "--all"]).code, Some(0));
    }
}

/// A command whose runner died is settled once none of its processes lives; until then it is told.
#[test]
fn a_command_that_nobody_saw_the_end_of_is_settled() {
    let bench = Bench::new();
    let mark = "7351.25";
    let replies = [calls(&[("run_command", json!({"argv": ["sleep", mark]}))]), json!({"text": "x"})];
    let args = bench.args(&replies, &[]);
    let mut call = bench.env.thcode(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let child = call.start();
    let begun = Instant::now();
    let sleeping = || {
        let found = Command::new("pgrep").args(["-f", &format!("sleep {mark}")]).output().unwrap();
        String::from_utf8(found.stdout).unwrap().lines().next().map(str::to_owned)
    };
    while sleeping().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it doesn't begin");
        thread::sleep(Duration::from_millis(20));
    }
    // The event that it was started is written right after.
    thread::sleep(Duration::from_millis(300));
    let live = bench.recover(&[]);
    assert_eq!(live.code, Some(0), "a live run's own: {live:?}");
    let one = &live.json()["operations"][0];
    assert_eq!(one["liveOwner"], child.id());
    let id = one["operationId"].as_str().unwrap().to_owned();
    assert_eq!(bench.recover(&["inspect", &id]).end().2, "operation-in-progress");
    Command::new("kill").args(["-9", &child.id().to_string()]).status().unwrap();
    finish(child);
    if let Some(pid) = sleeping() {
        let told = bench.recover(&[]);
        let one = &told.json()["operations"][0];
        assert_eq!(one["unresolved"], "still-running", "{told:?}");
        assert_eq!(one["runningPid"].to_string(), pid, "{told:?}");
        let next = one["nextStep"].as_str().unwrap();
        assert!(next.starts_with(&format!("wait: process {pid} (")), "{next}");
        assert!(next.contains(&format!("sleep {mark}) of the command still runs")), "{next}");
        assert_eq!(bench.recover(&["reconcile", "--all"]).code, Some(70));
        Command::new("kill").args(["-9", &pid]).status().unwrap();
    }
    while sleeping().is_some() {
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(bench.recover(&[]).code, Some(60));
    let settled = bench.recover(&["reconcile", "--all"]);
    assert_eq!(settled.json()["operations"][0]["resolution"], "interrupted-command", "{settled:?}");
    assert_eq!((settled.code, bench.verified()), (Some(0), Some(0)));
}

/// How `recover inspect` and `exit` end for operations that have their end.
#[test]
fn an_operation_is_told_whether_it_stands_or_not() {
    let bench = Bench::with(&[("f.txt", "pre")]);
    let replies = [
        calls(&[
            ("create_file", json!({"path": "a", "content": "x"})),
            ("create_file", json!({"path": "a", "content": "y"})),
            ("read_file", json!({"path": "none"})),
        ]),
        json!({"text": "x"}),
    ];
    let done = bench.run(&replies, &[]);
    let ids: Vec<String> = done.json()["operations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|operation| operation["operationId"].as_str().unwrap().to_owned())
        .collect();
    for (id, code, state) in
        [(&ids[0], 0, "succeeded"), (&ids[1], 130, "cancelled"), (&ids[2], 1, "failed")]
    {
        for verb in ["inspect", "exit"] {
            let told = bench.recover(&[verb, id]);
            assert_eq!(told.code, Some(code), "{verb} {state}: {told:?}");
            assert_eq!(told.json()["operations"][0]["journalState"], state);
        }
    }
    // By the beginning of the random part; and whatever else may be given.
    let prefix = ids[0].parse::<thcode::id::OperationId>().unwrap().random_part();
    assert_eq!(bench.recover(&["inspect", &prefix]).code, Some(0), "{prefix}");
    for hostile in ["../../etc/passwd", "0", "zzzz", "ffffffffffffffff", "' OR 1=1 --", "\u{202e}"] {
        let told = bench.recover(&["inspect", hostile]);
        assert_eq!((told.code, told.end().2.as_str()), (Some(20), "operation-not-found"), "{hostile}");
    }
    let unknown = "01a231fd-cae1-77af-bce1-58dc78879b54";
    assert_eq!(bench.recover(&["inspect", unknown]).end().2, "operation-not-found");
    assert_eq!(bench.recover(&["reconcile", unknown]).end().2, "operation-not-found");
    assert_eq!(bench.recover(&["reconcile"]).code, Some(2), "all or some must be named");
    assert_eq!(bench.recover(&["reconcile", &ids[0]]).code, Some(0), "nothing of it stands");
}

#[test]
fn where_there_is_no_store_nothing_is_made_up() {
    let bench = Bench::new();
    assert_eq!(bench.recover(&[]).end().2, "store-missing");
    assert_eq!(bench.recover(&["--if-store"]).code, Some(0));
    assert_eq!(bench.recover(&["reconcile", "--all"]).end().2, "store-missing");
    assert!(!bench.state().exists(), "looking makes nothing");
    assert!(bench.run(&[json!({"text": "x"})], &[]).code == Some(0));
    let head = bench.state().join("head");
    let bytes = fs::read(&head).unwrap();
    fs::write(&head, "x").unwrap();
    for verb in [&[][..], &["reconcile", "--all"]] {
        assert_eq!(bench.recover(verb).end().2, "journal-unavailable");
    }
    fs::write(&head, bytes).unwrap();
    assert_eq!(bench.recover(&[]).code, Some(0));
    let text = bench.env.thcode(&["recover", "--state-dir", bench.state().to_str().unwrap()]).run();
    assert!(text.stdout.contains("Nothing is interrupted.") && text.stdout.contains("SUCCESS (0)"));
    assert!(Path::new(&bench.state()).is_dir());
}

/// The causes that only `recover` meets, for the list of all causes.
pub(crate) fn causes() -> Vec<String> {
    let mut reached = Vec::new();
    let bench = Bench::with(&[("f.txt", "pre")]);
    let edit = json!({"path": "f.txt", "edits": [{"oldText": "pre", "newText": "post"}]});
    let args = bench.args(&[calls(&[("edit_file", edit)]), json!({"text": "x"})], &[]);
    // Killed at the exchange: dispatched, and not made.
    let killed = traced(&bench, "inject=renameat2:signal=KILL:when=1", &args);
    let Some(killed) = killed else {
        eprintln!("SKIPPED the causes of recover: there is no strace");
        let causes = [
            "operation-not-found",
            "operation-in-progress",
            "nothing-to-settle",
            "outcome-unproven",
            "reconciliation-failed",
        ];
        return causes.map(str::to_owned).to_vec();
    };
    assert_eq!(killed.code, None, "{killed:?}");
    let mut see = |done: Done| reached.push(done.end().2);
    let (id, _) = bench.standing();
    let state = bench.state().display().to_string();
    let reconcile = ["recover", "reconcile", "--all", "--json", "--state-dir", &state];
    let reconcile = reconcile.map(str::to_owned);
    see(traced(&bench, "inject=unlinkat:error=EROFS", &reconcile).unwrap());
    see(bench.recover(&["inspect", "ffffffff"]));
    fs::remove_file(&bench.stray()[0]).unwrap();
    fs::write(bench.at("f.txt"), "third").unwrap();
    see(bench.recover(&["reconcile", "--all"]));
    let lock = fs::File::open(bench.state().join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    see(bench.recover(&["inspect", &id]));
    drop(lock);
    assert_eq!(bench.recover(&["accept", &id, "--reason", "seen"]).code, Some(0));
    see(bench.recover(&["accept", &id, "--reason", "seen"]));
    reached
}

/// The binary under strace with something injected; `None` without strace.
fn traced(bench: &Bench, inject: &str, args: &[String]) -> Option<Done> {
    let plain = bench.env.thcode(&[]);
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", inject]);
    command.arg(plain.command.get_program()).args(args);
    command.current_dir(bench.env.workspace()).env_clear().env("HOME", bench.env.home());
    command.env("PATH", std::env::var_os("PATH").unwrap());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    command.spawn().ok().map(finish)
}
