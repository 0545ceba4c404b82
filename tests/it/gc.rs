//! `store gc`: what isn't kept any more goes, whole and for good; what is kept stays as it was; and a
//! crash at any step leaves a store that is whole.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use thcode::{
    app::Fail,
    crypto::KeySource,
    host::Host,
    id::CheckpointId,
    journal::{Event, Log, Payload},
    store::{Durability, Lease, StatePlace, Store},
};

use crate::env::{Done, TestEnv, finish};

const POLICY: &str = "version = 1\n[checkpoint]\nretention_rounds = 1\n[[rule]]\nid = \"write\"\n\
    effect = \"allow\"\ntools = [\"create_file\", \"edit_file\", \"delete_file\"]\nwhen.write = [\"**\"]\n";

/// Over what is kept in a row: a sealed file of its own.
const LARGE: usize = (1 << 20) + 100;

pub(crate) struct Bench {
    pub(crate) env: TestEnv,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let env = TestEnv::new();
        env.outside("p.policy.toml", POLICY);
        Self { env }
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.env.beside("state")
    }

    pub(crate) fn args(&self, more: &[&str], calls: &[(&str, Value)]) -> Vec<String> {
        let mut replies: Vec<Value> = calls
            .iter()
            .map(|(name, arguments)| json!({"toolCalls": [{"name": name, "arguments": arguments}]}))
            .collect();
        replies.push(json!({"text": "done"}));
        let cassette = self.env.cassette(&replies).display().to_string();
        let policy = self.env.beside("p.policy.toml").display().to_string();
        let state = self.state().display().to_string();
        let args =
            ["run", "--json", "--policy", &policy, "--state-dir", &state, "--cassette", &cassette];
        [&args[..], more, &["the task"]].concat().into_iter().map(str::to_owned).collect()
    }

    pub(crate) fn try_run(&self, more: &[&str], calls: &[(&str, Value)]) -> Done {
        let args = self.args(more, calls);
        self.env.thcode(&args.iter().map(String::as_str).collect::<Vec<_>>()).document()
    }

    pub(crate) fn run(&self, more: &[&str], calls: &[(&str, Value)]) -> Done {
        let done = self.try_run(more, calls);
        assert_eq!(done.code, Some(0), "{done:?}");
        done
    }

    /// A run that dies at a point.
    #[cfg(feature = "fault-injection")]
    fn crash(&self, point: &str, more: &[&str], calls: &[(&str, Value)]) {
        let args = self.args(more, calls);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let crashed = self.env.thcode(&args).env("THCODE_FAULT", point).run();
        assert_eq!(crashed.code, None, "{point}: it should have died: {crashed:?}");
    }

    pub(crate) fn verb(&self, args: &[&str]) -> crate::env::Call {
        let state = self.state().display().to_string();
        self.env.thcode(&[args, &["--json", "--state-dir", &state]].concat())
    }

    pub(crate) fn ask(&self, args: &[&str]) -> Done {
        self.verb(args).document()
    }

    fn gc(&self, more: &[&str]) -> Value {
        let done = self.ask(&[&["store", "gc"], more].concat());
        assert_eq!(done.code, Some(0), "{done:?}");
        done.json()["gc"].clone()
    }

    /// The store is whole, with its key and to the last image.
    #[track_caller]
    pub(crate) fn whole(&self) {
        let done = self.ask(&["store", "verify"]);
        assert_eq!(done.code, Some(0), "{done:?}");
    }

    #[cfg(feature = "fault-injection")]
    fn orphans(&self) -> u64 {
        self.ask(&["store", "verify"]).json()["verification"]["orphanedFiles"].as_u64().unwrap()
    }

    /// The checkpoints that are there, hidden ones too: how many.
    fn listed(&self) -> usize {
        let list = self.ask(&["rollback", "list", "--include-hidden"]).json();
        list["checkpoints"].as_array().unwrap().len()
    }

    fn sealed(&self) -> usize {
        fs::read_dir(self.state().join("sealed")).map_or(0, Iterator::count)
    }

    fn bytes(&self) -> u64 {
        bytes_below(&self.state())
    }

    /// Changes rows behind the journal's triggers' back.
    pub(crate) fn alter(&self, sql: &str) {
        let database = rusqlite::Connection::open(self.state().join("state.db")).unwrap();
        database.pragma_update(None, "foreign_keys", 0).unwrap();
        let triggers = "SELECT group_concat(sql, ';') FROM sqlite_schema WHERE type = 'trigger'";
        let again: String = database.query_row(triggers, [], |row| row.get(0)).unwrap();
        let batch =
            format!("DROP TRIGGER journal_no_update; DROP TRIGGER journal_no_delete; {sql}; {again}");
        database.execute_batch(&batch).unwrap();
    }

    /// The rows of a table.
    fn rows(&self, table: &str) -> i64 {
        let database = rusqlite::Connection::open(self.state().join("state.db")).unwrap();
        database.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    }
}

fn bytes_below(dir: &Path) -> u64 {
    fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            // One that goes meanwhile takes nothing.
            let Ok(meta) = entry.metadata() else { return 0 };
            if meta.is_dir() { bytes_below(&entry.path()) } else { meta.len() }
        })
        .sum()
}

pub(crate) fn edit(path: &str, old: &str, new: &str) -> (&'static str, Value) {
    ("edit_file", json!({"path": path, "edits": [{"oldText": old, "newText": new}]}))
}

pub(crate) fn create(path: &str, content: &str) -> (&'static str, Value) {
    ("create_file", json!({"path": path, "content": content}))
}

fn delete(path: &str) -> (&'static str, Value) {
    ("delete_file", json!({"path": path}))
}

#[test]
fn what_is_kept_stays_and_the_rest_goes() {
    let bench = Bench::new();
    bench.env.file("f.txt", "<0>");
    bench.env.file("large.bin", vec![b'x'; LARGE]);
    let first = bench.run(&[], &[edit("f.txt", "<0>", "<1>"), delete("large.bin")]);
    bench.run(&["-c"], &[edit("f.txt", "<1>", "<2>"), create("g.txt", "g")]);
    bench.run(&["-c"], &[edit("f.txt", "<2>", "<3>")]);
    let analysis = || bench.ask(&["rollback", "analyze", "last"]).json();
    let (before, listed, sealed) = (analysis(), bench.listed(), bench.sealed());
    assert_eq!((listed, sealed), (5, 1));
    // What would go is told, and stays.
    let bytes = fs::read(bench.state().join("state.db")).unwrap();
    let dry = bench.gc(&["--dry-run"]);
    assert!(bytes == fs::read(bench.state().join("state.db")).unwrap(), "a rehearsal changes nothing");
    assert_eq!((bench.listed(), bench.sealed()), (listed, sealed));
    assert_eq!(dry["evicted"], json!({"total": 4, "expired": 4, "aged": 0, "notApplied": 0}));
    let gc = bench.gc(&[]);
    for same in ["evicted", "freedBytes", "freedFiles", "kept", "pinned"] {
        assert_eq!(gc[same], dry[same], "{same}: it is told as it comes");
    }
    assert_eq!((&gc["kept"], &gc["freedFiles"]), (&json!(1), &json!(1)));
    assert!(gc["freedBytes"].as_u64().unwrap() > LARGE as u64, "{gc}");
    assert!(gc["returnedBytes"].as_u64().unwrap() >= LARGE as u64, "{gc}");
    bench.whole();
    assert_eq!((bench.listed(), bench.sealed()), (1, 0));
    // The one that stays shares its first image with one that went.
    assert_eq!((bench.rows("artifact"), bench.rows("blob"), bench.rows("chunk")), (2, 2, 2));
    assert_eq!(analysis(), before, "what is kept can be put back as before");
    let operation = first.json()["operations"][0]["operationId"].as_str().unwrap().to_owned();
    let told = bench.ask(&["recover", "inspect", &operation]).json();
    assert_eq!(told["operations"][0]["checkpointMaterial"], "not-applicable", "gone on purpose");
    // There is nothing left to do, and the next round goes on from what is kept.
    assert_eq!(bench.gc(&["--orphans"])["evicted"]["total"], 0);
    bench.run(&["-c"], &[edit("f.txt", "<3>", "<4>")]);
    assert_eq!(bench.ask(&["rollback", "analyze", "last"]).json()["status"], "full");
    assert_eq!(bench.gc(&[])["evicted"]["expired"], 1);
    bench.whole();
}

/// A round that is gone still counts: what was hidden doesn't come back when others go.
#[test]
fn a_window_is_counted_in_rounds_that_were() {
    let bench = Bench::new();
    bench.env.file("f.txt", "<0>");
    bench.env.outside("p.policy.toml", POLICY.replace("rounds = 1", "rounds = 3"));
    bench.run(&[], &[edit("f.txt", "<0>", "<1>")]);
    bench.env.outside("p.policy.toml", POLICY);
    for round in 1..4 {
        let (old, new) = (format!("<{round}>"), format!("<{}>", round + 1));
        bench.run(&["-c"], &[edit("f.txt", &old, &new)]);
    }
    // The first is over with three later rounds; two of those go with it.
    assert_eq!((bench.gc(&[])["evicted"]["expired"].clone(), bench.listed()), (json!(3), 1));
    let bench = Bench::new();
    bench.env.file("f.txt", "<0>");
    bench.env.outside("p.policy.toml", POLICY.replace("rounds = 1", "rounds = 3"));
    bench.run(&[], &[edit("f.txt", "<0>", "<1>")]);
    bench.env.outside("p.policy.toml", POLICY);
    for round in 1..4 {
        let (old, new) = (format!("<{round}>"), format!("<{}>", round + 1));
        bench.run(&["-c"], &[edit("f.txt", &old, &new)]);
        bench.gc(&[]);
        assert_eq!(bench.listed(), if round < 3 { 2 } else { 1 }, "round {round}");
    }
    bench.whole();
}

#[test]
fn over_fifty_rounds_the_store_stays_small() {
    let bench = Bench::new();
    bench.env.file("f.txt", format!("<0>{}", "x".repeat(100_000)));
    let mut sizes = Vec::new();
    for round in 0..50 {
        let more = if round == 0 { &[][..] } else { &["-c"] };
        bench.run(more, &[edit("f.txt", &format!("<{round}>"), &format!("<{}>", round + 1))]);
        bench.gc(&[]);
        sizes.push(bench.bytes());
    }
    println!("bytes after rounds 1, 10, 25 and 50: {:?}", [0, 9, 24, 49].map(|at| sizes[at]));
    bench.whole();
    // Two images, and what the journal and the session say of each round.
    assert!(sizes[0] < 500_000, "{sizes:?}");
    let each = (sizes[49] - sizes[9]) / 40;
    assert!(each < 12_000, "{each} bytes a round: {sizes:?}");
}

/// CRS-021: a store that was full is no larger than its cap and a little more, before and after.
#[test]
fn a_full_store_is_freed_without_more_room() {
    const CAP: u64 = 8 << 20;
    const MOST: u64 = 9_437_184;
    let bench = Bench::new();
    let caps = format!("[checkpoint]\nstore_cap_bytes = {CAP}\n");
    bench.env.outside("p.policy.toml", POLICY.replace("[checkpoint]\n", &caps));
    // By deletions: what a model writes is in its session's history as well.
    let round = |round: usize, files: usize| -> Vec<_> {
        let names = (0..files).map(|at| format!("{round}-{at}.txt"));
        names
            .map(|name| {
                bench.env.file(&name, format!("{name}.").repeat(112_500));
                delete(&name)
            })
            .collect()
    };
    let mut most = 0;
    // Each round fills a third; the fourth would be one too many, if the first weren't free by then.
    for at in 0..9 {
        let more = if at == 0 { &[][..] } else { &["-c"] };
        let done = bench.run(more, &round(at, 3));
        assert!(!done.stdout.contains("over-cap"), "round {at}");
        most = most.max(bench.bytes());
    }
    println!("at most {most} bytes after a run, with a cap of {CAP}");
    assert!(most <= MOST, "{most}");
    let child = bench.verb(&["store", "gc"]).start();
    let ended = thread::spawn(move || finish(child));
    let mut peak = 0;
    while !ended.is_finished() {
        peak = peak.max(bench.bytes());
    }
    let done = ended.join().unwrap();
    assert_eq!(done.code, Some(0), "{done:?}");
    let gc = done.json()["gc"].clone();
    println!("at most {peak} bytes while it frees, {} after it: {gc}", bench.bytes());
    assert!(peak < CAP / 2 * 3, "{peak}");
    assert_eq!(bench.listed(), 3);
    assert!(bench.bytes() < CAP / 2 && gc["reusableBytes"] == 0, "{gc}");
    bench.whole();
    // One turn that fills it for good is told so, and nothing that is kept goes for it.
    let done = bench.try_run(&["-c"], &round(9, 10));
    assert!(done.stdout.contains("over-cap"), "{done:?}");
    println!("filled to the cap: {} bytes", bench.bytes());
    assert!(bench.bytes() <= MOST, "{}", bench.bytes());
    bench.whole();
}

#[test]
fn what_is_old_goes_with_its_session_if_that_has_ended() {
    let bench = Bench::new();
    for round in 0..3 {
        bench.run(&[], &[create(&format!("{round}.txt"), "x")]);
    }
    assert_eq!(bench.gc(&[])["evicted"]["total"], 0, "sessions of one round are never over");
    assert_eq!(bench.gc(&["--max-age", "1h"])["evicted"]["total"], 0);
    // A session that was cut off may be taken up again.
    bench
        .alter("UPDATE turn SET stop_reason = NULL, exit_code = NULL, ended_at = NULL WHERE number = 2");
    let kept = bench.gc(&["--max-age", "0s", "--dry-run"]);
    assert_eq!(kept["evicted"], json!({"total": 2, "expired": 0, "aged": 2, "notApplied": 0}));
    for wrong in ["5", "x", "1y", "", "99999999999999999999d", "2000000w"] {
        let done = bench.ask(&["store", "gc", "--max-age", wrong]);
        assert_eq!((done.code, done.end().2.as_str()), (Some(2), "bad-argument"), "{wrong}");
    }
}

/// What an operation without an end may need stays, whatever its window says; once it has one it goes.
#[cfg(feature = "fault-injection")]
#[test]
fn what_stands_is_needed() {
    for (point, resolution) in [("crash-anchored", "not-applied"), ("crash-checkpointed", "cancelled")] {
        let bench = Bench::new();
        bench.env.file("f.txt", "pre");
        bench.run(&[], &[create("h.txt", "h")]);
        bench.crash(point, &["-c"], &[edit("f.txt", "pre", "post")]);
        let on = ["-c", "--on-interrupted", "ignore"];
        bench.run(&on, &[create("i.txt", "i")]);
        let gc = bench.gc(&[]);
        assert_eq!(gc["pinned"], json!({"standing": 1, "corrupt": 0}), "{point}: {gc}");
        assert_eq!((&gc["evicted"]["total"], bench.listed()), (&json!(1), 2), "{point}");
        bench.whole();
        let settled = bench.ask(&["recover", "reconcile", "--all"]).json();
        assert_eq!(settled["operations"][0]["resolution"], resolution, "{settled:#}");
        let gc = bench.gc(&[]);
        let went = json!({"total": 1, "expired": 0, "aged": 0, "notApplied": 1});
        assert_eq!((&gc["evicted"], bench.listed()), (&went, 1), "{point}: {gc}");
        bench.whole();
    }
}

/// A rollback is kept like the turn that it is about; while it stands so does all of that turn.
#[cfg(feature = "fault-injection")]
#[test]
fn a_rollback_is_kept_with_its_turn() {
    let bench = Bench::new();
    bench.env.file("f.txt", "<0>");
    bench.env.file("g.txt", "<0>");
    bench.run(&[], &[edit("f.txt", "<0>", "<1>"), edit("g.txt", "<0>", "<1>")]);
    let crashed =
        bench.verb(&["rollback", "apply", "last"]).env("THCODE_FAULT", "crash-published").run();
    assert_eq!(crashed.code, None, "it should have died: {crashed:?}");
    bench.run(&["-c", "--on-interrupted", "ignore"], &[create("h.txt", "h")]);
    let gc = bench.gc(&[]);
    assert_eq!((&gc["pinned"]["standing"], &gc["evicted"]["total"]), (&json!(3), &json!(0)), "{gc}");
    bench.whole();
    let settled = bench.ask(&["recover", "reconcile", "--all"]);
    assert_eq!(settled.code, Some(0), "{settled:?}");
    let gc = bench.gc(&[]);
    assert_eq!((&gc["evicted"]["total"], &gc["kept"]), (&json!(3), &json!(1)), "{gc}");
    bench.whole();
    // One that is through, and what it made, is put back in turn for as long as it is kept.
    let applied = bench.ask(&["rollback", "apply", "last"]);
    assert_eq!((applied.code, bench.gc(&[])["evicted"]["total"].clone()), (Some(0), json!(0)));
    let back = bench.ask(&["rollback", "analyze", "last"]);
    assert_eq!(back.code, Some(0), "{back:?}");
    bench.run(&["-c"], &[create("i.txt", "i")]);
    assert_eq!((bench.gc(&[])["evicted"]["total"].clone(), bench.listed()), (json!(2), 1));
    bench.whole();
}

/// While anything that a checkpoint rests on isn't what was written, nothing goes.
#[test]
fn nothing_goes_while_anything_cannot_be_checked() {
    let zero = "zeroblob(16)";
    for sql in [
        "UPDATE checkpoint SET created_at = created_at + 1",
        "UPDATE checkpoint SET commit_state = 'odd'",
        "UPDATE checkpoint SET retention_rounds = 0",
        "DELETE FROM checkpoint WHERE prompt_round = 2",
        "UPDATE target SET effect = 'delete' WHERE effect = 'edit'",
        "UPDATE artifact SET role = 'odd' WHERE role = 'post'",
        "UPDATE artifact SET wrapped = zeroblob(60) WHERE role = 'post'",
        "UPDATE artifact SET blob_id = (SELECT max(blob_id) FROM blob)",
        "DELETE FROM artifact WHERE role = 'post'",
        "DELETE FROM chunk",
        "UPDATE turn SET ended_at = NULL WHERE number = 1",
        "UPDATE journal SET timestamp = timestamp + 1 WHERE seq = 2",
        &format!("INSERT INTO blob VALUES ({zero}, 'file-content', 1, 1, 1, {zero}, 0)"),
    ] {
        let bench = Bench::new();
        bench.env.file("f.txt", "<0>");
        bench.run(&[], &[edit("f.txt", "<0>", "<1>")]);
        bench.run(&["-c"], &[edit("f.txt", "<1>", "<2>")]);
        bench.alter(sql);
        let count =
            || ["checkpoint", "target", "artifact", "blob", "chunk"].map(|name| bench.rows(name));
        let before = count();
        for more in [&["--dry-run"][..], &[]] {
            let done = bench.ask(&[&["store", "gc", "--orphans", "--max-age", "0s"], more].concat());
            assert_eq!(
                (done.code, done.end().2.as_str()),
                (Some(1), "store-corrupt"),
                "{sql}: {done:?}"
            );
            let gc = &done.json()["gc"];
            assert!(gc["pinned"]["corrupt"].as_u64().unwrap() > 0, "{sql}: {gc}");
            assert_eq!((&gc["evicted"]["total"], &gc["freedBytes"]), (&json!(0), &json!(0)), "{sql}");
            let next = done.json()["failure"]["recoveryActions"][0].as_str().unwrap().to_owned();
            assert!(next.contains("store verify"), "{next}");
        }
        assert_eq!(count(), before, "{sql}");
    }
}

#[test]
fn it_is_refused_where_it_could_do_harm() {
    let bench = Bench::new();
    let end = |done: Done| (done.code, done.end().2);
    assert_eq!(end(bench.ask(&["store", "gc"])), (Some(20), "store-missing".to_owned()));
    assert!(!bench.state().exists(), "looking for a store makes none");
    bench.run(&[], &[create("a.txt", "a")]);
    let lock = fs::File::open(bench.env.workspace()).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert_eq!(end(bench.ask(&["store", "gc"])), (Some(25), "workspace-in-use".to_owned()));
    assert_eq!(bench.ask(&["store", "gc", "--dry-run"]).code, Some(0), "it may be asked about");
    drop(lock);
    let (key, away) = (bench.env.beside("state.key"), bench.env.beside("away"));
    fs::rename(&key, &away).unwrap();
    for more in [&[][..], &["--dry-run"]] {
        let done = bench.ask(&[&["store", "gc"], more].concat());
        assert_eq!(end(done), (Some(20), "key-unavailable".to_owned()));
    }
    fs::rename(&away, &key).unwrap();
    fs::remove_file(bench.state().join("head")).unwrap();
    for more in [&[][..], &["--dry-run"]] {
        let done = bench.ask(&[&["store", "gc"], more].concat());
        assert_eq!(end(done), (Some(20), "journal-unavailable".to_owned()));
    }
}

/// Only what is ours by its very name, and nothing through a link.
#[test]
fn files_that_nothing_refers_to_go_if_they_are_ours() {
    let bench = Bench::new();
    bench.env.file("large.bin", vec![b'x'; LARGE]);
    bench.run(&[], &[delete("large.bin")]);
    let hex = "0123456789abcdef0123456789abcdef";
    let theirs = bench.env.outside("theirs", "keep me");
    let (state, sealed) = (bench.state(), bench.state().join("sealed"));
    let ours = [
        sealed.join(format!("{hex}.sealed")),
        state.join(format!(".thc-{hex}.tmp")),
        state.join("state.db.new"),
        state.join("state.db.new-wal"),
    ];
    let others = [
        sealed.join("left.sealed"),
        sealed.join(format!("{}.sealed", hex.to_uppercase())),
        state.join(format!(".thc-{hex}.tmp~")),
        state.join("notes.txt"),
    ];
    for file in ours.iter().chain(&others) {
        fs::write(file, "12345").unwrap();
    }
    let other = hex.replace('0', "f");
    let links = [sealed.join(format!("{other}.sealed")), state.join(format!(".thc-{other}.tmp"))];
    for link in &links {
        symlink(&theirs, link).unwrap();
    }
    fs::create_dir(sealed.join(format!("{}.sealed", hex.replace('0', "e")))).unwrap();
    let gc = bench.gc(&[]);
    assert_eq!((&gc["orphanedFiles"], &gc["temporaryFiles"]), (&json!(0), &json!(0)), "not asked for");
    for (more, left) in [(&["--orphans", "--dry-run"][..], true), (&["--orphans"], false)] {
        let gc = bench.gc(more);
        assert_eq!((&gc["orphanedFiles"], &gc["temporaryFiles"]), (&json!(1), &json!(3)), "{more:?}");
        assert!(ours.iter().all(|file| file.exists() == left), "{more:?}");
    }
    assert!(others.iter().all(|file| file.exists()) && links.iter().all(|link| link.is_symlink()));
    assert_eq!(fs::read_to_string(&theirs).unwrap(), "keep me");
    bench.whole();
    // A folder that leads elsewhere is nobody's to tidy.
    let bench = Bench::new();
    bench.run(&[], &[create("a.txt", "a")]);
    let elsewhere = bench.env.outside(&format!("elsewhere/{hex}.sealed"), "x");
    symlink(elsewhere.parent().unwrap(), bench.state().join("sealed")).unwrap();
    assert_eq!(bench.gc(&["--orphans"])["orphanedFiles"], 0);
    assert!(elsewhere.exists());
}

/// What is said to be gone must have been there, once.
#[test]
fn an_eviction_of_what_never_was_is_a_broken_journal() {
    let bench = Bench::new();
    bench.run(&[], &[create("a.txt", "a")]);
    bench.run(&["-c"], &[create("b.txt", "b")]);
    let id = {
        let list = bench.ask(&["rollback", "list", "--include-hidden"]).json();
        list["checkpoints"][1]["checkpointId"].as_str().unwrap().parse::<CheckpointId>().unwrap()
    };
    assert_eq!(bench.gc(&[])["evicted"]["total"], 1);
    let saved = bench.env.beside("saved");
    for id in [CheckpointId::from_uuid(Host::real().uuid()), id] {
        assert!(Command::new("cp").arg("-a").arg(bench.state()).arg(&saved).status().unwrap().success());
        let host = Host::real();
        let root = fs::canonicalize(bench.env.workspace()).unwrap().display().to_string();
        let place = StatePlace { dir: bench.state(), key: bench.env.beside("state.key") };
        let lease = Lease::take(&host, &root, &place, Duration::from_secs(5)).unwrap();
        let key = KeySource::Beside(place.key.clone());
        let mut store = Store::open(&host, &place, &root, &key, lease).unwrap();
        let mut log = Log::open(&store).unwrap();
        log.write(&host, &store, Durability::Full, |_, stage| {
            let payload =
                Payload::CheckpointsEvicted { checkpoint_ids: vec![id], because: "expired".to_owned() };
            stage.push(Event::of_store(payload));
            Ok::<_, Fail>(())
        })
        .unwrap();
        store.anchor(log.head()).unwrap();
        store.close().unwrap();
        let done = bench.ask(&["store", "verify"]);
        assert_eq!(done.code, Some(1), "{done:?}");
        assert_eq!(done.json()["verification"]["findings"][0]["place"], "journal");
        assert_eq!(bench.ask(&["store", "gc"]).code, Some(1));
        fs::remove_dir_all(bench.state()).unwrap();
        fs::rename(&saved, bench.state()).unwrap();
    }
    bench.whole();
}

#[test]
fn a_tired_reader_is_told_in_a_few_lines() {
    let bench = Bench::new();
    bench.env.file("large.bin", vec![b'x'; LARGE]);
    bench.run(&[], &[delete("large.bin")]);
    bench.run(&["-c"], &[create("b.txt", "b")]);
    let state = bench.state().display().to_string();
    let text = |more: &[&str]| {
        let done = bench.env.thcode(&[&["store", "gc", "--state-dir", &state], more].concat()).run();
        assert_eq!(done.code, Some(0), "{done:?}");
        let from = done.stdout.find("would be freed: ").or(done.stdout.find("freed: ")).unwrap();
        let numbers = regex::Regex::new("[0-9]{4,}").unwrap();
        numbers.replace_all(done.stdout.get(from..).unwrap(), "N").into_owned()
    };
    expect_test::expect![[r#"
        would be freed: 1 checkpoint (1 expired)
        images: N bytes would be freed, 1 sealed file would go
        kept: 1 checkpoint

        SUCCESS (0): nothing was changed
        1 store, 0 unreadable
        next: nothing to do
    "#]]
    .assert_eq(&text(&["--dry-run"]));
    expect_test::expect![[r#"
        freed: 1 checkpoint (1 expired)
        images: N bytes freed, 1 sealed file gone
        kept: 1 checkpoint
        the state directory is N bytes smaller

        SUCCESS (0): what isn't kept any more is gone
        1 store, 0 unreadable
        next: nothing to do
    "#]]
    .assert_eq(&text(&[]));
}

/// A run beside which it is tried, and which it doesn't harm.
#[test]
fn a_live_run_keeps_all_of_its_own() {
    let bench = Bench::new();
    bench.run(&[], &[create("a.txt", "a")]);
    let mock = crate::mock::MockServer::start(vec![crate::mock::Answer::silent()]);
    let state = bench.state().display().to_string();
    let mut child =
        bench.env.asking(&mock.base_url(), &["--json", "--state-dir", &state, "-c", "x"]).start();
    while mock.requests().is_empty() {
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(bench.ask(&["store", "gc"]).code, Some(25));
    child.kill().unwrap();
    drop(finish(child));
    bench.gc(&[]);
    bench.whole();
}

/// After a crash at any point of it the store is whole, and the next one finishes.
#[cfg(feature = "fault-injection")]
#[test]
fn a_crash_leaves_a_file_too_many_and_never_one_too_few() {
    for (point, left) in [("crash-evicted", 1), ("crash-swept", 0)] {
        let bench = Bench::new();
        bench.env.file("large.bin", vec![b'x'; LARGE]);
        bench.env.file("other.bin", vec![b'y'; LARGE]);
        bench.run(&[], &[delete("large.bin")]);
        bench.run(&["-c"], &[delete("other.bin")]);
        let crashed = bench.verb(&["store", "gc"]).env("THCODE_FAULT", point).run();
        assert_eq!(crashed.code, None, "{point}: it should have died: {crashed:?}");
        bench.whole();
        assert_eq!((bench.orphans(), bench.listed()), (left, 1), "{point}");
        let analysis = bench.ask(&["rollback", "analyze", "last"]);
        assert_eq!(analysis.json()["status"], "full", "{point}");
        let gc = bench.gc(&["--orphans"]);
        let told = (&gc["evicted"]["total"], &gc["orphanedFiles"]);
        assert_eq!(told, (&json!(0), &json!(left)), "{point}: {gc}");
        assert_eq!((bench.orphans(), bench.sealed()), (0, 1), "{point}");
        bench.whole();
        // And a run goes on.
        bench.run(&["-c"], &[create("next.txt", "x")]);
        bench.whole();
    }
}
