//! `store verify --accept-head`: an older copy that was put back is taken as it is, on the operator's
//! word; what is lost is told and recorded; a chain that is broken is never taken.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};

use crate::{
    env::Done,
    gc::{Bench, create, edit},
};

/// What can become of a head anchor.
type HarmToHead = fn(&Path);
/// What can become of a store.
type Harm = fn(&Bench);

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success());
}

/// A store of one round, and a copy of its database before a second one.
fn rolled_back() -> (Bench, u64, u64) {
    let bench = Bench::new();
    bench.env.file("f.txt", "<0>");
    bench.run(&[], &[edit("f.txt", "<0>", "<1>")]);
    let events = |bench: &Bench| {
        bench.ask(&["store", "verify"]).json()["verification"]["events"].as_u64().unwrap()
    };
    let before = events(&bench);
    copy(&bench.state().join("state.db"), &bench.env.beside("older.db"));
    bench.run(&["-c"], &[edit("f.txt", "<1>", "<2>")]);
    let after = events(&bench);
    fs::rename(bench.env.beside("older.db"), bench.state().join("state.db")).unwrap();
    (bench, before, after)
}

fn end(done: &Done) -> (Option<i32>, String) {
    (done.code, done.end().2)
}

fn refused(cause: &str) -> (Option<i32>, String) {
    (Some(20), cause.to_owned())
}

/// Everything in the state directory but the lock file and SQLite's shared memory.
fn kept(bench: &Bench) -> Vec<(String, Vec<u8>)> {
    let files = ["state.db", "state.db-wal", "head"].map(|name| {
        let bytes = fs::read(bench.state().join(name)).unwrap_or_default();
        (name.to_owned(), bytes)
    });
    files.to_vec()
}

#[test]
fn an_older_copy_is_taken_on_the_operators_word() {
    let (bench, before, after) = rolled_back();
    let lost = refused("journal-unavailable");
    assert_eq!(end(&bench.try_run(&["-c"], &[])), lost);
    assert_eq!(end(&bench.ask(&["recover"])), lost);
    let verified = bench.ask(&["store", "verify"]);
    assert_eq!(end(&verified), lost);
    let actions = verified.json()["failure"]["recoveryActions"].to_string();
    assert!(actions.contains("store verify --accept-head"), "{actions}");
    let accepted = bench.ask(&["store", "verify", "--accept-head"]);
    assert_eq!(accepted.code, Some(0), "{accepted:?}");
    let told = accepted.json()["verification"].clone();
    let lost = json!({"lastSeq": before, "lostFromSeq": before + 1, "lostToSeq": after});
    assert_eq!((&told["acceptedHead"], &told["findings"]), (&lost, &json!([])));
    assert_eq!(told["events"], before + 1, "that it was taken is recorded");
    bench.whole();
    assert_eq!(bench.ask(&["recover"]).code, Some(0));
    assert_eq!(bench.ask(&["rollback", "list"]).code, Some(0));
    bench.run(&["-c"], &[edit("f.txt", "<2>", "<3>")]);
    bench.whole();
    let again = bench.ask(&["store", "verify", "--accept-head"]);
    assert_eq!(again.json()["verification"]["acceptedHead"], Value::Null, "there is nothing to take");
}

#[test]
fn an_anchor_that_tells_nothing_is_made_anew() {
    let harm: [(&str, HarmToHead); 3] = [
        ("gone", |head| fs::remove_file(head).unwrap()),
        ("torn", |head| fs::write(head, "x").unwrap()),
        ("another store's", |head| {
            let other = Bench::new();
            other.run(&[], &[create("a.txt", "a")]);
            fs::copy(other.state().join("head"), head).map(drop).unwrap();
        }),
    ];
    for (name, harm) in harm {
        let bench = Bench::new();
        bench.run(&[], &[create("a.txt", "a")]);
        harm(&bench.state().join("head"));
        assert_eq!(end(&bench.try_run(&["-c"], &[])), refused("journal-unavailable"), "{name}");
        let accepted = bench.ask(&["store", "verify", "--accept-head"]);
        assert_eq!(accepted.code, Some(0), "{name}: {accepted:?}");
        let told = &accepted.json()["verification"]["acceptedHead"];
        assert!(told["lastSeq"].as_u64().unwrap() > 5, "{name}: {told}");
        let unknown = (&told["lostFromSeq"], &told["lostToSeq"]);
        assert_eq!(unknown, (&Value::Null, &Value::Null), "{name}");
        bench.whole();
        bench.run(&["-c"], &[create("b.txt", "b")]);
        bench.whole();
    }
}

/// Another history of the same store, from an older copy on: what its anchor tells of isn't there.
#[test]
fn another_history_is_taken_as_well() {
    let (bench, ..) = rolled_back();
    let head = fs::read(bench.state().join("head")).unwrap();
    bench.ask(&["store", "verify", "--accept-head"]);
    for name in ["x.txt", "y.txt", "z.txt"] {
        bench.run(&["-c"], &[create(name, "x")]);
    }
    fs::write(bench.state().join("head"), head).unwrap();
    assert_eq!(end(&bench.try_run(&["-c"], &[])), refused("journal-unavailable"));
    let accepted = bench.ask(&["store", "verify", "--accept-head"]);
    assert_eq!(accepted.code, Some(0), "{accepted:?}");
    assert_eq!(accepted.json()["verification"]["acceptedHead"]["lostFromSeq"], Value::Null);
    bench.run(&["-c"], &[create("b.txt", "b")]);
    bench.whole();
}

#[test]
fn what_is_whole_is_left_as_it_is() {
    let bench = Bench::new();
    bench.run(&[], &[create("a.txt", "a")]);
    let before = kept(&bench);
    let done = bench.ask(&["store", "verify", "--accept-head"]);
    assert_eq!((done.code, before == kept(&bench)), (Some(0), true), "{done:?}");
    assert_eq!(done.json()["verification"]["acceptedHead"], Value::Null);
}

/// Refused, and not a byte is changed.
#[test]
fn what_is_broken_is_never_taken() {
    let harm: [(&str, Harm, &str); 6] = [
        (
            "an edited row",
            |bench| bench.alter("UPDATE journal SET timestamp = 1 WHERE seq = 2"),
            "journal-unavailable",
        ),
        ("a row less", |bench| bench.alter("DELETE FROM journal WHERE seq = 3"), "journal-unavailable"),
        (
            "a transaction cut in two",
            |bench| {
                bench.alter("DELETE FROM journal WHERE seq = (SELECT max(seq) FROM journal WHERE mac IS NOT NULL AND seq - 1 IN (SELECT seq FROM journal WHERE mac IS NULL)) OR seq > (SELECT max(seq) FROM journal WHERE mac IS NOT NULL AND seq - 1 IN (SELECT seq FROM journal WHERE mac IS NULL))");
            },
            "journal-unavailable",
        ),
        (
            "no database",
            |bench| fs::remove_file(bench.state().join("state.db")).unwrap(),
            "journal-unavailable",
        ),
        ("no key", |bench| fs::remove_file(bench.env.beside("state.key")).unwrap(), "key-unavailable"),
        (
            "another key",
            |bench| {
                let other = bench.env.thcode(&["key", "new"]).run().stdout;
                bench.env.outside("state.key", other);
            },
            "key-mismatch",
        ),
    ];
    for (name, harm, cause) in harm {
        let (bench, ..) = rolled_back();
        harm(&bench);
        let before = kept(&bench);
        let done = bench.ask(&["store", "verify", "--accept-head"]);
        assert_eq!(end(&done), refused(cause), "{name}: {done:?}");
        assert!(before == kept(&bench), "{name}: something was changed");
        let actions = done.json()["failure"]["recoveryActions"].to_string();
        assert!(!actions.contains("accept-head"), "{name}: it is no way out: {actions}");
    }
    let (bench, ..) = rolled_back();
    let before = kept(&bench);
    let lock = fs::File::open(bench.env.workspace()).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let busy = bench.ask(&["store", "verify", "--accept-head"]);
    assert_eq!(end(&busy), (Some(25), "workspace-in-use".to_owned()));
    assert!(before == kept(&bench));
}

#[test]
fn what_is_lost_is_told_plainly() {
    let (bench, ..) = rolled_back();
    let state = bench.state().display().to_string();
    let refused = bench.env.thcode(&["store", "verify", "--state-dir", &state]).run();
    assert!(
        refused.stdout.contains("\nor: where an older copy was put back on purpose, "),
        "{refused:?}"
    );
    let done = bench.env.thcode(&["store", "verify", "--accept-head", "--state-dir", &state]).run();
    let from = done.stdout.find("0 findings").unwrap();
    expect_test::expect![[r#"
        0 findings
        events 10..18 that were durable once are gone
        the journal is taken as it is, up to event 9, and that is recorded
        what lost events changed in the workspace has no record here: compare it yourself

        SUCCESS (0): the journal is taken as it is
        1 store, 0 unreadable
        next: nothing to do
    "#]]
    .assert_eq(done.stdout.get(from..).unwrap());
}

#[cfg(feature = "fault-injection")]
#[test]
fn a_crash_on_the_way_is_finished_by_the_next() {
    for point in ["crash-head-accepted", "crash-half-anchored"] {
        let (bench, before, after) = rolled_back();
        let crashed = bench.verb(&["store", "verify", "--accept-head"]).env("THCODE_FAULT", point).run();
        assert_eq!(crashed.code, None, "{point}: it should have died: {crashed:?}");
        let still = bench.ask(&["store", "verify"]);
        assert_eq!(end(&still), refused("journal-unavailable"), "{point}");
        let accepted = bench.ask(&["store", "verify", "--accept-head"]);
        assert_eq!(accepted.code, Some(0), "{point}: {accepted:?}");
        let told = accepted.json()["verification"].clone();
        let lost = json!({"lastSeq": before, "lostFromSeq": before + 1, "lostToSeq": after});
        assert_eq!(
            (&told["acceptedHead"], &told["events"]),
            (&lost, &json!(before + 1)),
            "{point}: once"
        );
        bench.run(&["-c"], &[create("b.txt", "b")]);
        bench.whole();
    }
}
