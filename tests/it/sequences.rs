//! Random sequences of our changes and somebody else's, then a rollback of some of them, judged by a
//! model that knows nothing of checkpoints: a file comes back only where what we left still stands and
//! nobody wrote in between; every other file is as it was found, and the rollback of the rollback gives
//! everything back, byte and mode.
//!
//! A bounded part runs everywhere; all 10,000 with `cargo test --release --test it sequences -- --ignored`.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use thcode::{
    app::{
        Common, Ended as Told, StateOptions,
        rollback::{self, Meant, Selected},
    },
    checkpoint::{Capacity, RetentionConfig},
    contract::rollback::RollbackApplyResult,
    host::Host,
    id::{Digest, OperationId, SessionId, TurnId},
    journal::Log,
    mutation::{self, About, Change, Coverage, Ended, Limits, MutationError, Protection, Vault},
    store::{Durability, KeySource, Lease, StatePlace, Store},
    workspace::Root,
};

const PATHS: &[&str] = &["a", "b", "d/c", "d/e/f"];
/// Sequences that share a store.
const SHARED: usize = 8;

const LIMITS: Limits = Limits {
    capacity: Capacity::MOST,
    retention: RetentionConfig::DEFAULT,
    break_hard_links: false,
    protection: Protection::Required,
};

/// A generator that a seed repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(most).unwrap()).unwrap()
    }
}

/// Content and permission bits.
type File = Option<(String, u32)>;
type Tree = BTreeMap<&'static str, File>;

/// A change of ours, as the disk showed it.
#[derive(Debug, Clone)]
struct Ours {
    checkpoint: String,
    path: &'static str,
    pre: File,
    post: File,
}

struct Bench {
    dir: tempfile::TempDir,
    host: Host,
    common: Common,
    session_id: SessionId,
    round: u32,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ws = dir.path().join("ws");
        fs::create_dir(&ws).unwrap();
        let host = Host::real();
        let state = StateOptions { dir: Some(dir.path().join("state")), key_file: None };
        let common = Common { dir: Some(ws), out_file: None, state };
        let session_id = SessionId::from_uuid(host.uuid());
        Self { dir, host, common, session_id, round: 0 }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join("ws").join(path)
    }

    fn read(&self, path: &str) -> File {
        let bytes = fs::read_to_string(self.at(path)).ok()?;
        let mode = fs::metadata(self.at(path)).unwrap().permissions().mode() & 0o7777;
        Some((bytes, mode))
    }

    fn tree(&self) -> Tree {
        PATHS.iter().map(|path| (*path, self.read(path))).collect()
    }

    fn clear(&self) {
        for path in PATHS {
            drop(fs::remove_file(self.at(path)));
        }
    }

    /// Our changes of one turn, with somebody else's between them.
    fn turn(&mut self, random: &mut Random, ours: &mut Vec<Ours>) {
        self.round += 1;
        let place =
            StatePlace { dir: self.dir.path().join("state"), key: self.dir.path().join("state.key") };
        let root = Root::open(&self.at(""), None).unwrap();
        Store::prepare(&place, root.path()).unwrap();
        let lease = Lease::take(&self.host, root.path(), &place, Duration::from_secs(5)).unwrap();
        let key = KeySource::Beside(place.key.clone());
        let mut store = Store::open(&self.host, &place, root.path(), &key, lease).unwrap();
        let mut log = Log::open(&store).unwrap();
        let turn_id = TurnId::from_uuid(self.host.uuid());
        for _ in 0..1 + random.below(4) {
            let path = PATHS[random.below(PATHS.len())];
            if random.below(3) == 0 {
                self.somebody(random, path);
                continue;
            }
            let pre = self.read(path);
            let content = format!("ours {}", random.below(4)).into_bytes();
            let seen = pre.as_ref().map(|(bytes, _)| Digest::of(bytes.as_bytes()));
            let change = match (&pre, random.below(3)) {
                (None, _) => Change::Create { path, content: &content },
                (Some(_), 0) => Change::Delete { path },
                (Some(_), _) => Change::Replace { path, content: &content },
            };
            let about = About {
                session_id: self.session_id,
                turn_id,
                prompt_round: self.round,
                operation_id: OperationId::from_uuid(self.host.uuid()),
            };
            let events = mutation::ordered(about, ("test", "test", Digest::of(b"")));
            log.write(&self.host, &store, Durability::Normal, |_, stage| {
                events.into_iter().for_each(|event| stage.push(event));
                Ok::<_, MutationError>(())
            })
            .unwrap();
            let mut vault = Vault { host: &self.host, root: &root, store: &mut store, log: &mut log };
            let ended = mutation::mutate(&mut vault, about, &change, seen, LIMITS).unwrap();
            if let Ended::Applied(applied) = ended {
                let Coverage::Checkpoint(id) = applied.coverage else { panic!("unprotected") };
                let post = self.read(path);
                ours.push(Ours { checkpoint: id.to_string(), path, pre, post });
            }
        }
        store.anchor(log.head()).unwrap();
        store.close().unwrap();
    }

    /// Somebody else's doing.
    fn somebody(&self, random: &mut Random, path: &str) {
        let at = self.at(path);
        let there = at.exists();
        match random.below(6) {
            0 if there => fs::remove_file(&at).unwrap(),
            1 if there => {
                let mode = [0o600, 0o644, 0o755][random.below(3)];
                fs::set_permissions(&at, fs::Permissions::from_mode(mode)).unwrap();
            }
            // The same bytes in another file: nobody's change.
            2 if there => {
                let mode = fs::metadata(&at).unwrap().permissions();
                let beside = self.at("beside");
                fs::copy(&at, &beside).unwrap();
                fs::set_permissions(&beside, mode).unwrap();
                fs::rename(beside, &at).unwrap();
            }
            // What we wrote once, by somebody's hand.
            3 => self.write(&at, format!("ours {}", random.below(4)).as_bytes()),
            4 => self.write(&at, format!("theirs {}", random.below(3)).as_bytes()),
            _ => {}
        }
    }

    fn write(&self, at: &Path, bytes: &[u8]) {
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, bytes).unwrap();
    }

    fn apply(&self, checkpoints: Vec<String>) -> RollbackApplyResult {
        let meant = Meant { checkpoints, ..Meant::default() };
        let told =
            rollback::apply(&self.host, &self.common, &meant, &Selected::default(), None, &|| None);
        match told.unwrap() {
            Told::RollbackApply(result) => *result,
            other => panic!("{other:?}"),
        }
    }
}

/// What must stand after putting these back: nothing is known but who wrote what, and what stands.
fn expected(selected: &[&Ours], now: &Tree) -> Tree {
    let mut then = now.clone();
    for path in PATHS {
        let on: Vec<&&Ours> = selected.iter().filter(|ours| ours.path == *path).collect();
        let (Some(first), Some(last)) = (on.first(), on.last()) else { continue };
        let bytes = |file: &File| file.as_ref().map(|(bytes, _)| bytes.clone());
        let unbroken = on.windows(2).all(|pair| bytes(&pair[0].post) == bytes(&pair[1].pre));
        // Bytes and bits as we left them, or nothing where we left nothing.
        if unbroken && now[path] == last.post && bytes(&now[path]) != bytes(&first.pre) {
            then.insert(path, first.pre.clone());
        }
    }
    then
}

/// One sequence; what went wrong, if anything did.
fn sequence(bench: &mut Bench, seed: u64) -> Result<bool, String> {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    bench.clear();
    for path in PATHS {
        if random.below(2) == 0 {
            bench.write(&bench.at(path), b"before");
        }
    }
    let mut ours = Vec::new();
    bench.turn(&mut random, &mut ours);
    if random.below(2) == 0 {
        bench.turn(&mut random, &mut ours);
    }
    for _ in 0..random.below(3) {
        let path = PATHS[random.below(PATHS.len())];
        bench.somebody(&mut random, path);
    }
    let all = random.below(2) == 0;
    let selected: Vec<&Ours> = ours.iter().filter(|_| all || random.below(2) == 0).collect();
    if selected.is_empty() {
        return Ok(false);
    }
    let before = bench.tree();
    let wanted = expected(&selected, &before);
    let result = bench.apply(selected.iter().map(|ours| ours.checkpoint.clone()).collect());
    let after = bench.tree();
    if after != wanted {
        return Err(format!(
            "{seed}: {ours:#?}\nbefore {before:?}\nafter {after:?}\nnot {wanted:?}\n{result:#?}"
        ));
    }
    let changed = after != before;
    if changed != result.checkpoint_id_after.is_some() {
        return Err(format!("{seed}: a checkpoint without a change, or the other way: {result:#?}"));
    }
    if let Some(id) = result.checkpoint_id_after {
        let undone = bench.apply(vec![id.to_string()]);
        if bench.tree() != before {
            return Err(format!("{seed}: not what it was: {undone:#?}"));
        }
    }
    Ok(changed)
}

/// Runs sequences; how many changed something.
fn sequences(seeds: std::ops::Range<u64>) -> usize {
    let mut changed = 0;
    let mut bench = Bench::new();
    for (number, seed) in seeds.enumerate() {
        if number % SHARED == 0 {
            bench = Bench::new();
        }
        match sequence(&mut bench, seed) {
            Ok(true) => changed += 1,
            Ok(false) => {}
            Err(fault) => panic!("{fault}"),
        }
    }
    changed
}

#[cfg_attr(feature = "fault-injection", ignore = "minutes: tried with the binary that ships")]
#[test]
fn nobody_elses_work_is_lost_in_random_sequences() {
    let changed = sequences(1..101);
    assert!(changed > 30, "{changed} of 100 changed something");
}

#[test]
#[ignore = "minutes: ten thousand sequences"]
fn nobody_elses_work_is_lost_in_ten_thousand_sequences() {
    let changed = sequences(1..10_001);
    println!(
        "10,000 sequences, {changed} rollbacks that changed something, each put back in turn; 0 wrong"
    );
    assert!(changed > 3_000, "{changed} of 10,000 changed something");
}

/// The model sees it where a rollback would take somebody's bytes for ours.
#[test]
fn the_model_of_sequences_can_fail() {
    let ours = Ours {
        checkpoint: String::new(),
        path: "a",
        pre: Some(("before".to_owned(), 0o644)),
        post: Some(("ours 1".to_owned(), 0o644)),
    };
    let tree = |bytes: &str, mode| {
        Tree::from([("a", Some((bytes.to_owned(), mode))), ("b", None), ("d/c", None), ("d/e/f", None)])
    };
    let back = tree("before", 0o644);
    assert_eq!(expected(&[&ours], &tree("ours 1", 0o644)), back);
    for (bytes, mode) in [("theirs", 0o644), ("ours 1", 0o600)] {
        assert_eq!(expected(&[&ours], &tree(bytes, mode)), tree(bytes, mode));
    }
}
