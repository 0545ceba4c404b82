//! What looking back and going back cost: `cargo bench --bench undo`.
//!
//! Every figure is a ratio to a baseline of the same run, measured in turn with it: `recover` to a scan
//! of the same table by SQLite alone, a rollback to `git checkout` of the same files with a sync of
//! each.
#![expect(clippy::disallowed_methods, reason = "a measure arranges its files itself")]
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a measure tells and may fail"
)]

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rusqlite::{Connection, OpenFlags};
use thcode::{
    checkpoint::{Capacity, RetentionConfig},
    host::Host,
    id::{Digest, OperationId, SessionId, TurnId},
    journal::{Event, Log, Payload, Provenance},
    mutation::{self, About, Change, Ended, Limits, MutationError, Protection, Vault},
    store::{Durability, KeySource, Lease, StatePlace, Store},
    workspace::Root,
};

fn main() {
    let few = !std::env::args().any(|arg| arg == "--bench");
    looking_back(if few { 2_000 } else { 100_000 }, if few { 1 } else { 9 });
    going_back(if few { 70 } else { 1_000 }, if few { 1 } else { 7 });
}

struct Bench {
    dir: tempfile::TempDir,
    host: Host,
    session_id: SessionId,
    turn_id: TurnId,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("ws")).unwrap();
        let host = Host::real();
        let session_id = SessionId::from_uuid(host.uuid());
        let turn_id = TurnId::from_uuid(host.uuid());
        Self { dir, host, session_id, turn_id }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn open(&self) -> (Root, Store, Log) {
        let root = Root::open(&self.at("ws"), None).unwrap();
        let place = StatePlace { dir: self.at("state"), key: self.at("state.key") };
        Store::prepare(&place, root.path()).unwrap();
        let lease = Lease::take(&self.host, root.path(), &place, Duration::from_secs(5)).unwrap();
        let key = KeySource::Beside(place.key.clone());
        let store = Store::open(&self.host, &place, root.path(), &key, lease).unwrap();
        let log = Log::open(&store).unwrap();
        (root, store, log)
    }

    fn about(&self) -> About {
        let operation_id = OperationId::from_uuid(self.host.uuid());
        let (session_id, turn_id) = (self.session_id, self.turn_id);
        About { session_id, turn_id, prompt_round: 1, operation_id }
    }

    fn thcode(&self, args: &[&str]) -> Vec<u8> {
        let done = Command::new(env!("CARGO_BIN_EXE_thcode"))
            .args(args)
            .args(["--json", "--state-dir"])
            .arg(self.at("state"))
            .env_clear()
            .env("HOME", self.at("home"))
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        done.stdout
    }
}

/// `recover --json` on a long journal with three interrupted operations, beside a scan of its table.
fn looking_back(events: usize, rounds: usize) {
    let bench = Bench::new();
    let (_, mut store, mut log) = bench.open();
    let mut left = events;
    while left > 0 {
        let batch = left.min(3_000);
        log.write(&bench.host, &store, Durability::Normal, |_, stage| {
            for _ in 0..batch.div_ceil(3) {
                let about = bench.about();
                mutation::ordered(about, ("read_file", "rule", Digest::of(b"")))
                    .into_iter()
                    .for_each(|event| stage.push(event));
                stage.push(event(about, Payload::OperationSucceeded {}));
            }
            Ok::<_, MutationError>(())
        })
        .unwrap();
        left -= batch;
    }
    log.write(&bench.host, &store, Durability::Full, |_, stage| {
        for _ in 0..3 {
            mutation::ordered(bench.about(), ("edit_file", "rule", Digest::of(b"")))
                .into_iter()
                .for_each(|event| stage.push(event));
        }
        Ok::<_, MutationError>(())
    })
    .unwrap();
    store.anchor(log.head()).unwrap();
    store.close().unwrap();
    let before = fs::read(bench.at("state/state.db")).unwrap();
    let (mut scan, mut recover, mut memory) = (Vec::new(), Vec::new(), 0);
    for _ in 0..rounds {
        scan.push(timed(|| scanned(&bench)));
        recover.push(timed(|| {
            let told: serde_json::Value = serde_json::from_slice(&bench.thcode(&["recover"])).unwrap();
            assert_eq!(told["operations"].as_array().unwrap().len(), 3);
        }));
        memory = memory.max(peak(&bench));
    }
    assert!(fs::read(bench.at("state/state.db")).unwrap() == before, "looking changes nothing");
    println!("recover --json, {} events, {rounds} rounds:", events + 6);
    let bare = tell("  scan of the table", &mut scan, None);
    tell("  recover", &mut recover, Some(bare));
    println!("  peak memory {} MiB", memory >> 10);
}

/// Every column of every row, through SQLite alone, in a process of its own kind: this one.
fn scanned(bench: &Bench) {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let database = Connection::open_with_flags(bench.at("state/state.db"), flags).unwrap();
    let mut rows = database.prepare("SELECT * FROM journal ORDER BY seq").unwrap();
    let columns = rows.column_count();
    let mut found = rows.query([]).unwrap();
    let mut bytes = 0;
    while let Some(row) = found.next().unwrap() {
        for at in 0..columns {
            bytes += match row.get_ref(at).unwrap() {
                rusqlite::types::ValueRef::Text(text) | rusqlite::types::ValueRef::Blob(text) => {
                    text.len()
                }
                _ => 8,
            };
        }
    }
    assert!(bytes > 0);
}

/// The peak of the resident memory of `recover`, in KiB.
fn peak(bench: &Bench) -> u64 {
    let mut child = Command::new(env!("CARGO_BIN_EXE_thcode"))
        .args(["recover", "--json", "--state-dir"])
        .arg(bench.at("state"))
        .env_clear()
        .env("HOME", bench.at("home"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0");
        let words = line.split_whitespace().next().unwrap_or("0");
        most = most.max(words.parse().unwrap_or(0));
        std::thread::sleep(Duration::from_millis(2));
    }
    most
}

/// A rollback of many files beside a checkout of the same files with a sync of each.
fn going_back(files: usize, rounds: usize) {
    let bench = Bench::new();
    let names: Vec<String> = (0..files).map(|at| format!("d{}/f{at}.txt", at % 20)).collect();
    let content = |at: usize, round: usize| format!("line {at} of {round}\n").repeat(200);
    for (at, name) in names.iter().enumerate() {
        let path = bench.at("ws").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content(at, 0)).unwrap();
    }
    let git = |args: &[&str]| {
        let done = Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@b"])
            .args(args)
            .current_dir(bench.at("ws"))
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    git(&["init", "-q", "."]);
    git(&["add", "-A"]);
    git(&["commit", "-q", "-m", "a"]);
    let (mut checkout, mut rollback) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        for (at, name) in names.iter().enumerate() {
            fs::write(bench.at("ws").join(name), content(at, round)).unwrap();
        }
        checkout.push(timed(|| {
            git(&["checkout", "-q", "--", "."]);
            for name in &names {
                File::open(bench.at("ws").join(name)).unwrap().sync_all().unwrap();
            }
        }));
        change(&bench, &names, |at| content(at, round));
        rollback.push(timed(|| {
            let told: serde_json::Value =
                serde_json::from_slice(&bench.thcode(&["rollback", "apply", "last"])).unwrap();
            assert_eq!(
                (&told["result"], told["appliedCount"].as_u64()),
                (&"full".into(), Some(files as u64))
            );
        }));
        fs::remove_dir_all(bench.at("state")).unwrap();
        fs::remove_file(bench.at("state.key")).unwrap();
    }
    println!("rollback of {files} files, {rounds} rounds:");
    let bare = tell("  git checkout, each file synced", &mut checkout, None);
    tell("  rollback apply", &mut rollback, Some(bare));
}

fn change(bench: &Bench, names: &[String], content: impl Fn(usize) -> String) {
    const LIMITS: Limits = Limits {
        capacity: Capacity::MOST,
        retention: RetentionConfig::DEFAULT,
        break_hard_links: false,
        protection: Protection::Required,
    };
    let (root, mut store, mut log) = bench.open();
    for (at, path) in names.iter().enumerate() {
        let about = bench.about();
        let events = mutation::ordered(about, ("edit_file", "rule", Digest::of(b"")));
        log.write(&bench.host, &store, Durability::Normal, |_, stage| {
            events.into_iter().for_each(|event| stage.push(event));
            Ok::<_, MutationError>(())
        })
        .unwrap();
        let seen = Digest::of(&fs::read(bench.at("ws").join(path)).unwrap());
        let content = content(at);
        let change = Change::Replace { path, content: content.as_bytes() };
        let mut vault = Vault { host: &bench.host, root: &root, store: &mut store, log: &mut log };
        match mutation::mutate(&mut vault, about, &change, Some(seen), LIMITS).unwrap() {
            Ended::Applied(_) => {}
            other => panic!("{other:?}"),
        }
    }
    store.anchor(log.head()).unwrap();
    store.close().unwrap();
}

fn event(about: About, payload: Payload) -> Event {
    Event {
        session_id: about.session_id,
        turn_id: Some(about.turn_id),
        operation_id: Some(about.operation_id),
        parent_operation_id: None,
        provenance: Provenance::Deterministic,
        payload,
    }
}

fn timed(work: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    work();
    begun.elapsed()
}

/// Prints the median, beside another one; the median in seconds.
fn tell(name: &str, took: &mut [Duration], bare: Option<f64>) -> f64 {
    took.sort();
    let median = took[took.len() / 2].as_secs_f64();
    let ratio = bare.map(|bare| format!("  {:.2} x", median / bare)).unwrap_or_default();
    println!("{name:<34} {:>9.3} ms{ratio}", median * 1e3);
    median
}
