//! Many starts at once: one holds the workspace, the others are told so or wait their turn, and one
//! that is killed is in nobody's way.
//!
//! The small numbers run with every test; the whole is run by name (CONTRIBUTING.md).

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::{
    env::{Done, TestEnv, finish, skipped},
    mock::{Answer, MockServer},
};

/// Starts so many runs of this kind at once.
fn race(count: usize, start: impl Fn() -> Child) -> Vec<Child> {
    (0..count).map(|_| start()).collect()
}

fn finish_all(children: Vec<Child>) -> Vec<Done> {
    let waiting: Vec<_> =
        children.into_iter().map(|child| thread::spawn(move || finish(child))).collect();
    waiting.into_iter().map(|waiting| waiting.join().unwrap()).collect()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn kill(child: &Child) {
    let killed = Command::new("kill").args(["-9", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
}

fn databases(env: &TestEnv) -> Vec<PathBuf> {
    let dirs = fs::read_dir(env.home().join(".local/state/thcode")).unwrap();
    let files = dirs.map(|entry| entry.unwrap().path().join("state.db"));
    files.filter(|file| file.exists()).collect()
}

/// The kinds of a journal's events, in order, that tell of runs.
fn runs(database: &Path) -> Vec<String> {
    let connection = rusqlite::Connection::open(database).unwrap();
    let sql = "SELECT kind FROM journal WHERE kind IN ('RunStarted', 'RunEnded') ORDER BY seq";
    let mut statement = connection.prepare(sql).unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// One of so many asks its model; while it waits for the answer, every other ends BUSY.
fn one_runs_the_others_are_told(starts: usize) {
    let env = TestEnv::new();
    let gate = Arc::new(AtomicBool::new(false));
    let mock = MockServer::start(vec![Answer::text("done").held(&gate)]);
    let children = race(starts, || env.asking(&mock.base_url(), &["--json", "x"]).start());
    let waiting: Vec<_> =
        children.into_iter().map(|child| thread::spawn(move || finish(child))).collect();
    until("the others end", || {
        waiting.iter().filter(|waiting| waiting.is_finished()).count() >= starts - 1
    });
    gate.store(true, Ordering::SeqCst);
    let done: Vec<Done> = waiting.into_iter().map(|waiting| waiting.join().unwrap()).collect();
    let ran = done.iter().filter(|done| done.code == Some(0)).count();
    assert_eq!((ran, mock.requests().len()), (1, 1), "exactly one runs");
    for done in done.iter().filter(|done| done.code != Some(0)) {
        done.check_document();
        assert_eq!((done.code, done.end().1.as_str()), (Some(25), "workspace-in-use"), "{done:?}");
    }
    let [database] = databases(&env).try_into().unwrap();
    assert_eq!(runs(&database), ["RunStarted", "RunEnded"]);
}

/// Told to wait, all of them run, one after the other.
fn all_run_in_turn(starts: usize) {
    let env = TestEnv::new();
    let mock = MockServer::start(vec![Answer::text("done"); starts]);
    let args = ["--json", "--wait-lock", "50s", "x"];
    let done = finish_all(race(starts, || env.asking(&mock.base_url(), &args).start()));
    assert!(done.iter().all(|done| done.code == Some(0)), "{done:?}");
    let [database] = databases(&env).try_into().unwrap();
    let runs = runs(&database);
    assert_eq!(runs.len(), starts * 2);
    assert!(runs.chunks(2).all(|run| run == ["RunStarted", "RunEnded"]), "they overlap: {runs:?}");
}

/// Killed while others wait for it, and at any moment of a run that changes files.
fn a_killed_holder_is_in_nobody_s_way(waiters: usize, kills: u64) {
    let env = TestEnv::new();
    let mut answers = vec![Answer::silent()];
    answers.extend(vec![Answer::text("done"); waiters]);
    let mock = MockServer::start(answers);
    let holder = env.asking(&mock.base_url(), &["--json", "x"]).start();
    until("the holder asks", || !mock.requests().is_empty());
    let args = ["--json", "--wait-lock", "50s", "x"];
    let waiting = race(waiters, || env.asking(&mock.base_url(), &args).start());
    thread::sleep(Duration::from_millis(100));
    kill(&holder);
    drop(finish(holder));
    assert!(finish_all(waiting).iter().all(|done| done.code == Some(0)));

    let env = TestEnv::new();
    let policy = "version = 1\n[[rule]]\nid = \"write\"\neffect = \"allow\"\n\
        tools = [\"create_file\"]\nwhen.write = [\"**\"]\n";
    let policy = env.outside("write.policy.toml", policy).display().to_string();
    let create = |at: usize| json!({"name": "create_file", "arguments": {"path": format!("f{at}"), "content": "x"}});
    let calls: Vec<_> = (0..20).map(create).collect();
    let cassette = env.cassette(&[json!({"toolCalls": calls}), json!({"text": "x"})]);
    let args = ["run", "--json", "--policy", &policy, "--cassette", cassette.to_str().unwrap()];
    let mut codes = std::collections::BTreeMap::new();
    for at in 0..kills {
        let ignoring = [&args[..], &["--on-interrupted", "ignore", "x"]].concat();
        let holder = env.thcode(&ignoring).start();
        thread::sleep(Duration::from_micros(at * 40_000 / kills));
        kill(&holder);
        drop(finish(holder));
        let next = env.thcode(&[&args[..], &["x"]].concat()).document();
        assert!(matches!(next.code, Some(0 | 60)), "{at}: {next:?}");
        *codes.entry(next.code.unwrap()).or_insert(0) += 1;
    }
    println!("after {kills} kills the next run ended with {codes:?}");
}

#[test]
fn of_many_starts_one_runs() {
    for _ in 0..3 {
        one_runs_the_others_are_told(20);
    }
}

#[test]
fn those_that_wait_run_in_turn() {
    all_run_in_turn(20);
}

#[test]
fn a_killed_run_does_not_hold_the_next() {
    a_killed_holder_is_in_nobody_s_way(5, 12);
}

#[test]
#[ignore = "takes minutes: see CONTRIBUTING.md"]
fn a_hundred_starts_twenty_times() {
    for round in 0..20 {
        let begun = Instant::now();
        one_runs_the_others_are_told(100);
        println!("round {round}: one of 100 ran, 99 were told, {:?}", begun.elapsed());
    }
    for round in 0..5 {
        let begun = Instant::now();
        all_run_in_turn(100);
        println!("round {round}: 100 ran in turn, {:?}", begun.elapsed());
    }
    a_killed_holder_is_in_nobody_s_way(99, 400);
}

/// A bind mount is the same directory under another path, with another state directory.
#[test]
fn a_bind_mount_is_the_same_workspace_and_a_sibling_is_not() {
    let env = TestEnv::new();
    for dir in ["a/below", "sibling", "mounted"] {
        fs::create_dir_all(env.workspace().join(dir)).unwrap();
    }
    let gate = Arc::new(AtomicBool::new(false));
    let mock = MockServer::start(vec![Answer::text("done").held(&gate)]);
    let holder = env.asking(&mock.base_url(), &["--json", "-C", "a", "x"]).start();
    until("the holder asks", || !mock.requests().is_empty());
    let cassette = env.cassette(&[json!({"text": "x"})]).display().to_string();
    let end = |dir: &str| {
        let done = env.thcode(&["run", "--json", "--cassette", &cassette, "-C", dir, "x"]).document();
        (done.code.unwrap(), done.end().1)
    };
    for dir in ["a", "a/below", "."] {
        assert_eq!(end(dir), (25, "workspace-in-use".to_owned()), "{dir}");
    }
    assert_eq!(end("sibling").0, 0);
    assert_eq!(end("mounted").0, 0, "without the mount it is another directory");
    let script = "mount --bind a mounted || exit 99; exec \"$0\" \"$@\"";
    let mut mounting = Command::new("unshare");
    mounting.args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_thcode"), "run", "--json"]);
    mounting.args(["--cassette", &cassette, "-C", "mounted", "x"]).current_dir(env.workspace());
    mounting.env_clear().env("HOME", env.home()).env("PATH", std::env::var_os("PATH").unwrap());
    mounting.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    match mounting.spawn().map(finish) {
        Ok(done) if done.code == Some(25) => done.check_document(),
        Ok(done) if done.code == Some(0) => panic!("a bind mount isn't excluded: {done:?}"),
        told => skipped("the bind mount of races.rs", &format!("{told:?}")),
    }
    gate.store(true, Ordering::SeqCst);
    assert_eq!(finish(holder).code, Some(0));
}

/// The lease is what keeps them apart: without it several ask their models at once.
#[cfg(feature = "fault-injection")]
#[test]
fn without_the_lease_several_run() {
    let env = TestEnv::new();
    // A store that is there: they would get in each other's way as they make it.
    let first = MockServer::start(vec![Answer::text("done")]);
    assert_eq!(env.asking(&first.base_url(), &["--json", "x"]).document().code, Some(0));
    let gate = Arc::new(AtomicBool::new(false));
    let mock = MockServer::start(vec![Answer::text("done").held(&gate); 20]);
    let start =
        || env.asking(&mock.base_url(), &["--json", "x"]).env("THCODE_FAULT", "no-lease").start();
    let children = race(20, start);
    until("several ask", || mock.requests().len() > 1);
    gate.store(true, Ordering::SeqCst);
    drop(finish_all(children));
}
