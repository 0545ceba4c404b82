//! Flipped bytes: a store in which one byte is another must be refused, or tell what it told before.
//!
//! Each trial flips a byte of a copy, opens it as a run does, then verifies it as `store verify`
//! does, and compares what all tables then hold. What differs and was noticed by nobody was served
//! silently: there is none.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use rusqlite::{Connection, types::Value as Cell};
use serde_json::json;
use thcode::{
    app::store_verify,
    host::Host,
    journal::{Log, interrupted},
    store::{KeySource, Lease, ReadStore, StatePlace, Store},
    workspace::Root,
};

use crate::{
    env::{TestEnv, finish},
    mock::{Answer, MockServer},
};

const POLICY: &str = "version = 1\n[[rule]]\nid = \"write\"\neffect = \"allow\"\n\
    tools = [\"create_file\", \"edit_file\", \"delete_file\"]\nwhen.write = [\"**\"]\n";

/// A store that a run made, and the workspace that it is of.
struct Made {
    env: TestEnv,
}

/// What all tables hold: by table, column and row.
type Content = BTreeMap<(String, String, usize), Cell>;

impl Made {
    /// One create, one edit, one delete; ended in order, or killed with its log unmerged.
    fn new(killed: bool, old_bytes: usize) -> Self {
        let env = TestEnv::new();
        env.file("f.txt", "before the edit\n");
        env.file("old.bin", vec![b'x'; old_bytes]);
        let edits = json!([{"oldText": "before", "newText": "after"}]);
        let calls = [
            ("create_file", json!({"path": "new.txt", "content": "made\n"})),
            ("edit_file", json!({"path": "f.txt", "edits": edits})),
            ("delete_file", json!({"path": "old.bin"})),
        ];
        let mut answers: Vec<Answer> =
            calls.iter().map(|call| Answer::calls(std::slice::from_ref(call))).collect();
        answers.push(if killed { Answer::silent() } else { Answer::text("done") });
        let mock = MockServer::start(answers);
        let policy = env.outside("sweep.policy.toml", POLICY).display().to_string();
        let state = env.beside("state").display().to_string();
        let args = ["--json", "--policy", &policy, "--state-dir", &state, "the task"];
        let mut call = env.asking(&mock.base_url(), &args);
        let mut child = call.start();
        if killed {
            while mock.requests().len() < 4 {
                thread::sleep(Duration::from_millis(10));
            }
            child.kill().unwrap();
        }
        let done = finish(child);
        assert_eq!(done.code, if killed { None } else { Some(0) }, "{done:?}");
        Self { env }
    }

    fn state(&self) -> PathBuf {
        self.env.beside("state")
    }

    /// A copy in which a byte of a file has other bits; `None` for a copy as it is.
    fn copy(&self, flip: Option<(&str, usize, u8)>) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        copy_below(&self.state(), &dir.path().join("state"));
        if let Some((file, at, bits)) = flip {
            let path = dir.path().join("state").join(file);
            let mut bytes = fs::read(&path).unwrap();
            bytes[at] ^= bits;
            fs::write(&path, bytes).unwrap();
        }
        dir
    }

    /// Opens a copy for writing and looks at all of it; the first thing that is noticed.
    fn look(&self, dir: &Path, depth: Depth) -> Result<(), String> {
        let host = Host::real();
        let root = Root::open(&self.env.workspace(), None).unwrap();
        let place = StatePlace { dir: dir.join("state"), key: self.env.beside("state.key") };
        let lease = Lease::take(&host, root.path(), &place, Duration::from_secs(5)).unwrap();
        let key = KeySource::Beside(place.key.clone());
        let store = Store::open(&host, &place, root.path(), &key, lease)
            .map_err(|error| format!("open: {error}"))?;
        Log::open(&store).map_err(|error| format!("log: {error}"))?;
        if store.facts().workspace != root.path() {
            return Err("open: another workspace".to_owned());
        }
        let open = interrupted(&store).map_err(|error| format!("open: {error}"))?;
        if open > 0 {
            return Err(format!("open: {open} operations are interrupted"));
        }
        if depth == Depth::AsARun {
            return Ok(());
        }
        drop(store);
        let reader = ReadStore::open(&place.dir).map_err(|error| format!("read: {error}"))?;
        let keys = reader.unlock(&key).map_err(|error| format!("read: {error}"))?;
        let found = store_verify::audit(&reader, Some(&keys))
            .map_err(|fail| format!("verify: {}", fail.failure.message))?;
        match found.findings.first() {
            None => Ok(()),
            Some(finding) => Err(format!("verify: {}: {}", finding.place, finding.problem)),
        }
    }
}

/// How far a trial looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// As a run does when it begins.
    AsARun,
    /// And as `store verify` does: at everything.
    Whole,
}

fn copy_below(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_below(&entry.path(), &to);
        } else if entry.file_name() != "state.db-shm" {
            // The shared memory is of the processes that had it open, and is made anew.
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// All that the tables hold, and the tables themselves; the sealed files beside them are read by
/// their images. An error is a database that SQLite itself refuses.
fn content(dir: &Path) -> Result<Content, rusqlite::Error> {
    let connection = Connection::open(dir.join("state/state.db"))?;
    let mut names: Vec<String> = vec!["sqlite_schema".to_owned()];
    let mut statement = connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")?;
    for name in statement.query_map([], |row| row.get(0))? {
        names.push(name?);
    }
    let mut found = Content::new();
    for table in names {
        let mut rows = connection.prepare(&format!("SELECT * FROM \"{table}\" NOT INDEXED"))?;
        let columns: Vec<String> = rows.column_names().map(str::to_owned).collect();
        let mut rows = rows.query([])?;
        let mut number = 0;
        while let Some(row) = rows.next()? {
            for (at, column) in columns.iter().enumerate() {
                let cell = match row.get(at)? {
                    // Names in SQL have no case.
                    Cell::Text(sql) if column == "sql" => Cell::Text(sql.to_lowercase()),
                    cell => cell,
                };
                // Where a table begins is structure.
                if column != "rootpage" {
                    found.insert((table.clone(), column.to_lowercase(), number), cell);
                }
            }
            number += 1;
        }
    }
    let whole: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    found.insert(("index".to_owned(), "integrity_check".to_owned(), 0), Cell::Text(whole));
    Ok(found)
}

/// What came of the flips of a file.
#[derive(Debug, Default)]
struct Tally {
    trials: usize,
    /// Noticed by a run when it begins.
    refused: usize,
    /// Noticed only when everything is looked at.
    found: usize,
    /// Noticed by SQLite alone, when the table is read.
    unreadable: usize,
    equal: usize,
    /// As a power cut may leave it: the last rows that weren't durable yet are gone.
    shorter: usize,
    /// Another value, and nobody noticed.
    served: usize,
    /// The same by column; one flip may be in several.
    silent: BTreeMap<String, usize>,
}

impl Tally {
    fn told(&self, file: &str) -> String {
        format!(
            "{file}: {} trials, {} refused by a run, {} found by a whole look, \
             {} unreadable, {} equal, {} shorter, {} silent {:?}",
            self.trials,
            self.refused,
            self.found,
            self.unreadable,
            self.equal,
            self.shorter,
            self.served,
            self.silent,
        )
    }
}

/// Flips one bit of a byte after the other.
fn sweep(made: &Made, file: &str, places: &[usize], cuts: &[Content], depth: Depth) -> Tally {
    let as_it_is = made.copy(None);
    made.look(as_it_is.path(), Depth::Whole).unwrap();
    let before = content(as_it_is.path()).unwrap();
    let mut tally = Tally::default();
    let mut random = Random(places.len() as u64);
    for at in places {
        let bits = 1 << (random.next() % 8);
        let dir = made.copy(Some((file, *at, bits)));
        tally.trials += 1;
        if made.look(dir.path(), Depth::AsARun).is_err() {
            tally.refused += 1;
            continue;
        }
        if depth == Depth::Whole && made.look(dir.path(), Depth::Whole).is_err() {
            tally.found += 1;
            continue;
        }
        match content(dir.path()) {
            Err(_) => tally.unreadable += 1,
            Ok(now) if now == before => tally.equal += 1,
            Ok(now) if cuts.contains(&now) => tally.shorter += 1,
            Ok(now) => {
                tally.served += 1;
                for column in differing(&before, &now) {
                    *tally.silent.entry(column).or_default() += 1;
                }
            }
        }
    }
    println!("{}", tally.told(file));
    tally
}

/// The columns in which two contents differ; of another schema no more is said than that.
fn differing(one: &Content, other: &Content) -> BTreeSet<String> {
    let keys: BTreeSet<_> = one.keys().chain(other.keys()).collect();
    let differs = keys.into_iter().filter(|key| one.get(*key) != other.get(*key));
    let columns: BTreeSet<String> =
        differs.map(|(table, column, _)| format!("{table}.{column}")).collect();
    match columns.iter().find(|column| column.starts_with("sqlite_schema.")) {
        Some(schema) => BTreeSet::from([schema.clone()]),
        None => columns,
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

/// Places of a file, drawn once for all.
fn sample(bytes: &[u8], count: usize, only: impl Fn(u8) -> bool) -> Vec<usize> {
    let mut random = Random(7);
    let mut places = BTreeSet::new();
    while places.len() < count {
        let at = usize::try_from(random.next()).unwrap() % bytes.len();
        if only(bytes[at]) {
            places.insert(at);
        }
    }
    places.into_iter().collect()
}

/// Over what is kept in a row: a sealed file of its own.
const LARGE: usize = (1 << 20) + 100;
const SMALL: usize = 300;

fn check(tally: &Tally) {
    assert_eq!(tally.served, 0, "served silently: {:?}", tally.silent);
}

#[test]
fn no_flipped_byte_of_the_anchor_is_served() {
    let made = Made::new(false, SMALL);
    let bytes = fs::read(made.state().join("head")).unwrap();
    let places: Vec<usize> = (0..bytes.len()).collect();
    check(&sweep(&made, "head", &places, &[], Depth::AsARun));
}

#[test]
fn no_flipped_byte_of_the_database_is_served() {
    let made = Made::new(false, SMALL);
    let bytes = fs::read(made.state().join("state.db")).unwrap();
    // Where nothing is written nothing can be served.
    let places = sample(&bytes, 500, |byte| byte != 0);
    let tally = sweep(&made, "state.db", &places, &[], Depth::Whole);
    check(&tally);
    assert!(tally.found > 0 && tally.refused > 0, "{tally:?}");
}

/// All of them, on both cores: `cargo test --test it sweep -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes: every byte of the database and of the log"]
fn no_flipped_byte_at_all_is_served() {
    for (killed, file) in [(false, "state.db"), (true, "state.db-wal")] {
        thread::scope(|scope| {
            for half in 0..2 {
                scope.spawn(move || {
                    // A workspace of its own, since each look takes the lease of it.
                    let made = Made::new(killed, SMALL);
                    let bytes = fs::read(made.state().join(file)).unwrap();
                    let written = (0..bytes.len()).filter(|at| bytes[*at] != 0);
                    let places: Vec<usize> = written.skip(half).step_by(2).collect();
                    let cuts = if killed { cuts(&made, &bytes) } else { Vec::new() };
                    check(&sweep(&made, file, &places, &cuts, Depth::Whole));
                });
            }
        });
    }
}

#[test]
fn no_flipped_byte_of_a_sealed_file_is_served() {
    let made = Made::new(false, LARGE);
    let file = sealed_file(&made);
    let bytes = fs::read(made.state().join(&file)).unwrap();
    let mut places = sample(&bytes, 16, |_| true);
    places.extend([0, bytes.len() - 1]);
    let tally = sweep(&made, &file, &places, &[], Depth::Whole);
    assert_eq!(tally.found, tally.trials, "{tally:?}");
}

#[test]
fn no_flipped_byte_of_the_log_is_served() {
    let made = Made::new(true, SMALL);
    let bytes = fs::read(made.state().join("state.db-wal")).unwrap();
    let cuts = cuts(&made, &bytes);
    let tally = sweep(&made, "state.db-wal", &sample(&bytes, 400, |_| true), &cuts, Depth::Whole);
    assert!(tally.silent.is_empty() && tally.refused > 300, "{tally:?}");
}

/// The states that a power cut may leave: the log up to some frame, if a run takes it.
fn cuts(made: &Made, bytes: &[u8]) -> Vec<Content> {
    let mut cuts = Vec::new();
    for end in (32..bytes.len()).step_by(24 + 4096) {
        let dir = made.copy(None);
        fs::write(dir.path().join("state/state.db-wal"), &bytes[..end]).unwrap();
        if made.look(dir.path(), Depth::Whole).is_ok() {
            cuts.extend(content(dir.path()).ok());
        }
    }
    cuts
}

/// The chain is what notices: a run that only follows it from the anchor serves another row.
#[test]
fn without_the_chain_a_row_would_be_served() {
    let made = Made::new(false, SMALL);
    let bytes = fs::read(made.state().join("state.db")).unwrap();
    let places: Vec<usize> = memchr::memmem::find_iter(&bytes, b"deterministic").collect();
    let blind = sweep(&made, "state.db", &places, &[], Depth::AsARun);
    assert!(blind.silent.keys().any(|column| column.starts_with("journal.")), "{blind:?}");
    let seeing = sweep(&made, "state.db", &places, &[], Depth::Whole);
    assert_eq!((seeing.served, seeing.trials), (0, blind.trials), "{seeing:?}");
}

fn sealed_file(made: &Made) -> String {
    let below = |dir: PathBuf| fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let dir = below(made.state()).find(|entry| entry.file_type().unwrap().is_dir()).unwrap();
    let file = below(dir.path()).next().unwrap();
    format!("{}/{}", dir.file_name().to_str().unwrap(), file.file_name().to_str().unwrap())
}
