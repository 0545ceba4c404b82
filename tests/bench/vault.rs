//! What a durable change costs: `cargo bench --bench vault`.
//!
//! Every figure is a ratio to a baseline of the same run, measured in turn with it: what anybody pays
//! who writes a file safely (temporary file, fsync, rename, fsync of the directory) and commits twice to
//! an SQLite log that waits for the disk, the first time with both contents of the file.
#![expect(clippy::disallowed_methods, reason = "a measure arranges its files itself")]
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a measure tells and may fail"
)]

use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rusqlite::Connection;
use thcode::{
    checkpoint::{Capacity, RetentionConfig},
    host::Host,
    id::{Digest, OperationId, SessionId, TurnId},
    journal::{Event, Log, Payload, Provenance},
    mutation::{
        About, Change, Ended, Limits, MutationError, Protection, Vault,
        edit::{Edit, Expected},
        mutate,
    },
    store::{Durability, KeySource, Lease, StatePlace, Store},
    workspace::Root,
};

/// Lines of the file that is changed: 6 KiB.
const LINES: usize = 96;

fn main() {
    // `cargo test --benches` runs it to see that it runs, without `--bench`.
    let few = !std::env::args().any(|arg| arg == "--bench");
    one_change(if few { 3 } else { 300 });
    let last = if few { 60 } else { 2_000 };
    for _ in 0..if few { 1 } else { 3 } {
        a_long_session(last);
    }
}

/// One change of each kind beside the baseline.
fn one_change(rounds: usize) {
    let mut vault = Bench::new();
    let mut baseline = Baseline::new(vault.dir.path());
    let mut took: [Vec<Duration>; 4] = Default::default();
    vault.create("edited.rs", &content(0));
    for at in 0..rounds {
        let (before, after) = (content(at), content(at + 1));
        took[0].push(timed(|| baseline.write(&before, &after)));
        took[1].push(timed(|| vault.edit("edited.rs", at)));
        took[2].push(timed(|| vault.create("made.rs", &before)));
        took[3].push(timed(|| vault.delete("made.rs")));
    }
    println!("one change of a file of {} bytes, {rounds} rounds:", content(0).len());
    let bare = tell("  baseline", &mut took[0], None);
    for (name, took) in ["  edit", "  create", "  delete"].iter().zip(&mut took[1..]) {
        tell(name, took, Some(bare));
    }
}

/// The last changes of a long session beside its first ones; every change is of another file.
fn a_long_session(last: usize) {
    let mut vault = Bench::new();
    let mut baseline = Baseline::new(vault.dir.path());
    let mut early: [Vec<Duration>; 2] = Default::default();
    let mut late: [Vec<Duration>; 2] = Default::default();
    let window = 20;
    for at in 1..=last {
        let name = format!("dir{}/f{at}.rs", at % 40);
        let (before, after) = (content(at), content(at + 1));
        let made = timed(|| vault.create(&name, &before));
        // Beside changes of other kinds, which grow the store as well.
        if at % 4 == 0 {
            vault.edit(&name, at);
        }
        let into = if at > window && at <= 2 * window {
            &mut early
        } else if at > last - window {
            &mut late
        } else {
            continue;
        };
        into[0].push(made);
        into[1].push(timed(|| baseline.write(&before, &after)));
    }
    println!("a session of {last} creates and {} edits:", last / 4);
    let beside_baseline = |name: &str, [made, bare]: &mut [Vec<Duration>; 2]| {
        let bare = tell(&format!("  {name}, baseline"), bare, None);
        tell(&format!("  {name}, create"), made, Some(bare)).as_secs_f64() / bare.as_secs_f64()
    };
    let early = beside_baseline("early", &mut early);
    let late = beside_baseline("late", &mut late);
    println!("  late beside early, each beside its baseline: {:.2} x", late / early);
}

fn timed(work: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    work();
    begun.elapsed()
}

/// Prints the median and gives it.
fn tell(name: &str, took: &mut [Duration], beside: Option<Duration>) -> Duration {
    took.sort();
    let (median, ninth) = (took[took.len() / 2], took[took.len() * 9 / 10]);
    let ratio = beside.map(|bare| format!(", {:.2} x", median.as_secs_f64() / bare.as_secs_f64()));
    let (told, ninth) = (median.as_micros(), ninth.as_micros());
    println!("{name}: median {told} µs, p90 {ninth} µs{}", ratio.unwrap_or_default());
    median
}

fn line(at: usize) -> String {
    format!("{:062}\n", at.wrapping_mul(2_654_435_761))
}

/// All but the first line stay the same.
fn content(at: usize) -> String {
    let rest: String = (1..LINES).map(|line| format!("{line:062}\n")).collect();
    line(at) + &rest
}

struct Bench {
    dir: tempfile::TempDir,
    host: Host,
    root: Root,
    store: Store,
    log: Log,
    session_id: SessionId,
    turn_id: TurnId,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ws = dir.path().join("ws");
        fs::create_dir(&ws).unwrap();
        for at in 0..40 {
            fs::create_dir(ws.join(format!("dir{at}"))).unwrap();
        }
        let host = Host::real();
        let root = Root::open(&ws, None).unwrap();
        let place = StatePlace { dir: dir.path().join("state"), key: dir.path().join("key") };
        Store::prepare(&place, root.path()).unwrap();
        let lease = Lease::take(&host, root.path(), &place, Duration::from_secs(5)).unwrap();
        let key = KeySource::Beside(place.key.clone());
        let store = Store::open(&host, &place, root.path(), &key, lease).unwrap();
        let log = Log::open(&store).unwrap();
        let session_id = SessionId::from_uuid(host.uuid());
        let turn_id = TurnId::from_uuid(host.uuid());
        Self { dir, host, root, store, log, session_id, turn_id }
    }

    fn create(&mut self, path: &str, content: &str) {
        self.change("create_file", &Change::Create { path, content: content.as_bytes() });
    }

    fn edit(&mut self, path: &str, at: usize) {
        let edits = [Edit { old: line(at), new: line(at + 1), expected: Expected::Count(1) }];
        self.change("edit_file", &Change::Edit { path, edits: &edits });
    }

    fn delete(&mut self, path: &str) {
        self.change("delete_file", &Change::Delete { path });
    }

    /// As a turn does it: proposed and decided, then changed.
    fn change(&mut self, tool: &str, change: &Change<'_>) {
        let Self { host, root, store, log, .. } = self;
        let operation_id = OperationId::from_uuid(host.uuid());
        let (session_id, turn_id) = (self.session_id, self.turn_id);
        let event = |payload| Event {
            session_id,
            turn_id: Some(turn_id),
            operation_id: Some(operation_id),
            parent_operation_id: None,
            provenance: Provenance::Model,
            payload,
        };
        let (tool, action_class) = (tool.to_owned(), "local-file-mutation".to_owned());
        let proposed = event(Payload::OperationProposed { tool, action_class });
        let decided = event(Payload::PolicyDecisionRecorded {
            outcome: "allow".to_owned(),
            because: "rule".to_owned(),
            rule_id: Some("write".to_owned()),
            line: Some(2),
            policy: Digest::of(b""),
        });
        let staged = log.write(host, store, Durability::Normal, |_, stage| {
            stage.push(proposed);
            stage.push(decided);
            Ok::<_, MutationError>(())
        });
        staged.unwrap();
        let limits = Limits {
            capacity: Capacity::MOST,
            retention: RetentionConfig::DEFAULT,
            break_hard_links: false,
            protection: Protection::Required,
        };
        let about = About { session_id, turn_id, prompt_round: 1, operation_id };
        match mutate(&mut Vault { host, root, store, log }, about, change, None, limits) {
            Ok(Ended::Applied(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// The safe way of writing a file, and two commits.
struct Baseline {
    dir: PathBuf,
    connection: Connection,
}

impl Baseline {
    fn new(beside: &Path) -> Self {
        let dir = beside.join("bare");
        fs::create_dir(&dir).unwrap();
        let connection = Connection::open(beside.join("bare.db")).unwrap();
        let settings = "PRAGMA journal_mode = wal; PRAGMA synchronous = full; \
            PRAGMA wal_autocheckpoint = 0; PRAGMA secure_delete = on; \
            CREATE TABLE event (seq INTEGER PRIMARY KEY, payload TEXT, hash BLOB) STRICT; \
            CREATE TABLE image (id INTEGER PRIMARY KEY, bytes BLOB) STRICT";
        connection.execute_batch(settings).unwrap();
        Self { dir, connection }
    }

    fn write(&mut self, before: &str, after: &str) {
        let temp = self.dir.join("temp");
        let mut file = OpenOptions::new().write(true).create_new(true).open(&temp).unwrap();
        file.write_all(after.as_bytes()).unwrap();
        file.sync_all().unwrap();
        fs::rename(&temp, self.dir.join("file")).unwrap();
        File::open(&self.dir).unwrap().sync_all().unwrap();
        self.commit(&[before, after]);
        self.commit(&[]);
    }

    fn commit(&mut self, images: &[&str]) {
        let tx = self.connection.transaction().unwrap();
        for image in images {
            let mut statement = tx.prepare_cached("INSERT INTO image (bytes) VALUES (?1)").unwrap();
            statement.execute([image.as_bytes()]).unwrap();
        }
        let payload = "{\"kind\":\"x\",\"operationId\":\"0123456789abcdef0123456789abcdef\"}";
        let mut statement =
            tx.prepare_cached("INSERT INTO event (payload, hash) VALUES (?1, ?2)").unwrap();
        statement.execute((payload, [0u8; 32])).unwrap();
        drop(statement);
        tx.commit().unwrap();
    }
}
