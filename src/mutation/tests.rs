//! Changes through the whole order, on real files and a real store.
#![expect(clippy::disallowed_methods, reason = "tests arrange the tree themselves")]

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    About, Applied, Change, Coverage, Ended, Limits, MutationError, Protection, Vault,
    edit::{Edit, Expected},
    mutate,
};
use crate::{
    checkpoint::{Capacity, CheckpointError, RetentionConfig, open_artifact},
    host::Host,
    id::{ArtifactId, Digest, OperationId, SessionId, TurnId},
    journal::{Event, Log, Payload, Provenance},
    store::{Durability, KeySource, Lease, Rows as _, StatePlace, Store},
    workspace::Root,
};

const LIMITS: Limits = Limits {
    capacity: Capacity::MOST,
    retention: RetentionConfig::DEFAULT,
    break_hard_links: false,
    protection: Protection::Required,
};

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

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("ws").join(name)
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn proposed(&mut self) -> About {
        let operation_id = OperationId::from_uuid(self.host.uuid());
        let about =
            About { session_id: self.session_id, turn_id: self.turn_id, prompt_round: 1, operation_id };
        let event = |payload| Event {
            session_id: self.session_id,
            turn_id: Some(self.turn_id),
            operation_id: Some(operation_id),
            parent_operation_id: None,
            provenance: Provenance::Model,
            payload,
        };
        let proposed =
            event(Payload::OperationProposed { tool: "t".to_owned(), action_class: "c".to_owned() });
        let decided = event(Payload::PolicyDecisionRecorded {
            outcome: "allow".to_owned(),
            because: "rule".to_owned(),
            rule_id: None,
            line: None,
            policy: Digest::of(b""),
        });
        self.log
            .write(&self.host, &self.store, Durability::Normal, |_, stage| {
                stage.push(proposed);
                stage.push(decided);
                Ok::<_, MutationError>(())
            })
            .unwrap();
        about
    }

    fn run(&mut self, change: &Change<'_>, seen: Option<Digest>, limits: Limits) -> Ended {
        let about = self.proposed();
        let Self { host, root, store, log, .. } = self;
        mutate(&mut Vault { host, root, store, log }, about, change, seen, limits).unwrap()
    }

    fn create(&mut self, path: &str, content: &[u8]) -> Ended {
        self.run(&Change::Create { path, content }, None, LIMITS)
    }

    fn edit(&mut self, path: &str, old: &str, new: &str) -> Ended {
        let edits = [Edit { old: old.to_owned(), new: new.to_owned(), expected: Expected::Count(1) }];
        self.run(&Change::Edit { path, edits: &edits }, None, LIMITS)
    }

    fn delete(&mut self, path: &str) -> Ended {
        self.run(&Change::Delete { path }, None, LIMITS)
    }

    fn count(&self, table: &str) -> i64 {
        self.store
            .first(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0))
            .unwrap()
            .unwrap()
    }

    fn dispatched(&self) -> i64 {
        let sql = "SELECT count(*) FROM journal WHERE kind = 'EffectDispatchCommitted'";
        self.store.first(sql, [], |row| row.get(0)).unwrap().unwrap()
    }

    /// The kept images of a checkpoint: before and after.
    fn images(&self, applied: &Applied) -> [Option<Vec<u8>>; 2] {
        let Coverage::Checkpoint(id) = applied.coverage else { panic!("no checkpoint") };
        ["pre_artifact", "post_artifact"].map(|column| {
            let sql = format!("SELECT {column} FROM target WHERE checkpoint_id = ?1");
            let artifact: Option<Vec<u8>> =
                self.store.first(&sql, [id.as_bytes().as_slice()], |row| row.get(0)).unwrap().unwrap();
            artifact.map(|artifact| {
                let mut bytes = Vec::new();
                let mut take = |chunk: &[u8]| {
                    bytes.extend_from_slice(chunk);
                    Ok::<_, CheckpointError>(())
                };
                open_artifact(self.store.view(), ArtifactId::from_bytes(&artifact).unwrap(), &mut take)
                    .unwrap();
                bytes
            })
        })
    }

    fn no_stray(&self) {
        let mut todo = vec![self.dir.path().join("ws")];
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                assert!(!path.file_name().unwrap().to_string_lossy().starts_with(".thc-"), "{path:?}");
                if path.is_dir() && !path.is_symlink() {
                    todo.push(path);
                }
            }
        }
    }
}

fn applied(ended: Ended) -> Applied {
    match ended {
        Ended::Applied(applied) => applied,
        other => panic!("{other:?}"),
    }
}

fn refused(ended: Ended) -> &'static str {
    match ended {
        Ended::Refused(refusal) => refusal.cause,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_change_is_there_and_both_images_are_kept() {
    let mut bench = Bench::new();
    let made = applied(bench.create("a/b/new.txt", b"one\n"));
    assert_eq!(bench.images(&made), [None, Some(b"one\n".to_vec())]);
    let edited = applied(bench.edit("a/b/new.txt", "one", "two"));
    assert_eq!(fs::read(bench.path("a/b/new.txt")).unwrap(), b"two\n");
    assert_eq!(bench.images(&edited), [Some(b"one\n".to_vec()), Some(b"two\n".to_vec())]);
    let gone = applied(bench.delete("a/b/new.txt"));
    assert!(!bench.path("a/b/new.txt").exists());
    assert_eq!(bench.images(&gone), [Some(b"two\n".to_vec()), None]);
    assert_eq!(bench.count("inflight"), 0, "nothing guessable outlives an operation");
    assert_eq!(bench.count("blob"), 2, "what one leaves and the next finds is kept once");
    assert_eq!(bench.count("authorization"), 0, "each was consumed");
    bench.no_stray();
}

#[test]
fn mode_owner_and_attributes_survive_an_edit() {
    let mut bench = Bench::new();
    let path = bench.path("run.sh");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4751)).unwrap();
    let has_xattr =
        rustix::fs::setxattr(&path, "user.note", b"kept", rustix::fs::XattrFlags::empty()).is_ok();
    applied(bench.edit("run.sh", "old", "new"));
    let meta = fs::metadata(&path).unwrap();
    assert_eq!(meta.mode() & 0o7777, 0o4751);
    if has_xattr {
        let mut value = [0u8; 8];
        let length = rustix::fs::getxattr(&path, "user.note", value.as_mut_slice()).unwrap();
        assert_eq!(&value[..length], b"kept");
    }
}

#[test]
fn refused_means_not_one_byte_and_no_dispatch() {
    let mut bench = Bench::new();
    let outside = bench.dir.path().join("outside");
    fs::write(&outside, "old").unwrap();
    for (name, text) in [("file", "old"), ("linked", "old"), ("locked", "old"), ("bin", "o\0ld")] {
        fs::write(bench.path(name), text).unwrap();
    }
    fs::create_dir(bench.path("dir")).unwrap();
    symlink(&outside, bench.path("out")).unwrap();
    symlink("file", bench.path("in")).unwrap();
    symlink("nowhere", bench.path("dangling")).unwrap();
    symlink(bench.dir.path(), bench.path("updir")).unwrap();
    fs::hard_link(bench.path("linked"), bench.path("other-name")).unwrap();
    fs::set_permissions(bench.path("locked"), fs::Permissions::from_mode(0o444)).unwrap();
    let fifo = bench.path("fifo");
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    for (path, cause) in [
        ("out", "behind-symlink"),
        ("in", "behind-symlink"),
        ("dangling", "behind-symlink"),
        ("updir/outside", "behind-symlink"),
        ("linked", "hardlink-detected"),
        ("locked", "read-only-file"),
        ("dir", "is-directory"),
        ("fifo", "special-file"),
        ("none", "not-found"),
        ("file/below", "not-a-directory"),
    ] {
        assert_eq!(refused(bench.edit(path, "old", "new")), cause, "edit {path}");
        assert_eq!(refused(bench.delete(path)), cause, "delete {path}");
    }
    for (path, cause) in [
        ("file", "already-exists"),
        ("linked", "already-exists"),
        ("locked", "already-exists"),
        ("dir", "is-directory"),
        ("dangling", "behind-symlink"),
        ("out", "behind-symlink"),
        ("updir/x", "behind-symlink"),
        ("file/x", "not-a-directory"),
        ("..", "not-a-file"),
    ] {
        assert_eq!(refused(bench.create(path, b"new")), cause, "create {path}");
    }
    assert_eq!(refused(bench.edit("bin", "o", "x")), "binary");
    assert_eq!(refused(bench.edit("file", "absent", "x")), "no-match");
    assert_eq!(bench.dispatched(), 0);
    assert_eq!(
        (fs::read(&outside).unwrap(), fs::read(bench.path("file")).unwrap()),
        (b"old".to_vec(), b"old".to_vec())
    );
    bench.no_stray();
}

#[test]
fn what_was_read_is_what_may_be_changed() {
    let mut bench = Bench::new();
    fs::write(bench.path("a"), "read").unwrap();
    let seen = Some(Digest::of(b"read"));
    fs::write(bench.path("a"), "redd").unwrap();
    let edits = [Edit { old: "r".to_owned(), new: "x".to_owned(), expected: Expected::Count(1) }];
    let edit = Change::Edit { path: "a", edits: &edits };
    assert_eq!(refused(bench.run(&edit, seen, LIMITS)), "stale-read");
    assert_eq!(refused(bench.run(&Change::Delete { path: "a" }, seen, LIMITS)), "stale-read");
    assert_eq!(fs::read(bench.path("a")).unwrap(), b"redd");
    applied(bench.run(&edit, Some(Digest::of(b"redd")), LIMITS));
}

#[test]
fn over_the_cap_nothing_happens_unless_the_policy_names_it() {
    let mut bench = Bench::new();
    fs::write(bench.path("big"), vec![b'x'; 5000]).unwrap();
    let capped = Limits { capacity: Capacity::MOST.lowered(Some(4000), None), ..LIMITS };
    let delete = Change::Delete { path: "big" };
    assert_eq!(refused(bench.run(&delete, None, capped)), "over-cap");
    let small = Limits { protection: Protection::WaivedUpTo(4999), ..capped };
    assert_eq!(refused(bench.run(&delete, None, small)), "over-cap");
    assert!(bench.path("big").exists());
    let waived = Limits { protection: Protection::WaivedUpTo(5000), ..capped };
    let gone = applied(bench.run(&delete, None, waived));
    assert_eq!(gone.coverage, Coverage::Unprotected);
    assert_eq!(bench.count("journal WHERE kind = 'UnprotectedOperationRecorded'"), 1);
    assert_eq!(bench.count("checkpoint"), 0);
}

#[test]
fn a_large_file_is_kept_beside_the_database_and_comes_back_whole() {
    let mut bench = Bench::new();
    let large: Vec<u8> = (0..3_500_000u32).flat_map(u32::to_le_bytes).collect();
    fs::write(bench.path("large.bin"), &large).unwrap();
    let gone = applied(bench.delete("large.bin"));
    assert_eq!(bench.images(&gone), [Some(large), None]);
    assert_eq!(bench.count("chunk"), 0);
    assert_eq!(fs::read_dir(bench.state().join("sealed")).unwrap().count(), 1);
}

/// Every byte of a sealed file flipped in turn (here: one in each of many places) is noticed.
#[test]
fn an_image_that_was_altered_is_never_served() {
    let mut bench = Bench::new();
    fs::write(bench.path("x"), vec![7u8; (1 << 20) + 10]).unwrap();
    let gone = applied(bench.delete("x"));
    let Coverage::Checkpoint(id) = gone.coverage else { panic!() };
    let sql = "SELECT pre_artifact FROM target WHERE checkpoint_id = ?1";
    let artifact: Vec<u8> =
        bench.store.first(sql, [id.as_bytes().as_slice()], |row| row.get(0)).unwrap().unwrap();
    let artifact = ArtifactId::from_bytes(&artifact).unwrap();
    let file = fs::read_dir(bench.state().join("sealed")).unwrap().next().unwrap().unwrap().path();
    let whole = fs::read(&file).unwrap();
    let step = whole.len() / 97;
    for at in (0..whole.len()).step_by(step).chain([0, whole.len() - 1]) {
        let mut flipped = whole.clone();
        flipped[at] ^= 1;
        fs::write(&file, &flipped).unwrap();
        assert!(open_artifact(bench.store.view(), artifact, &mut |_| Ok(())).is_err(), "byte {at}");
    }
    fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    assert!(open_artifact(bench.store.view(), artifact, &mut |_| Ok(())).is_err(), "cut");
    fs::write(&file, &whole).unwrap();
    assert!(open_artifact(bench.store.view(), artifact, &mut |_| Ok(())).is_ok());
}

/// The file's content is nowhere in the state directory in the clear, in any usual form.
#[test]
fn nothing_of_a_file_is_in_the_state_directory() {
    let marker = b"MARKER-of-the-content-4711";
    let mut bench = Bench::new();
    applied(bench.create("secret-name-0815.txt", marker));
    applied(bench.edit("secret-name-0815.txt", "content", "matter"));
    let state = bench.state();
    bench.store.close().unwrap();
    let found = |needle: &[u8]| {
        let mut found = Vec::new();
        let mut todo = vec![state.clone()];
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    todo.push(path);
                } else if fs::read(&path).unwrap().windows(needle.len()).any(|window| window == needle) {
                    found.push(path);
                }
            }
        }
        found
    };
    for needle in
        [&marker[..], b"MARKER-of-the-matter", b"secret-name-0815", Digest::of(marker).as_bytes()]
    {
        assert_eq!(found(needle), Vec::<PathBuf>::new());
    }
    assert!(!found(b"CheckpointCommitted").is_empty(), "the search does find what is there");
    assert!(Path::new(&state).exists());
}

/// A store that takes no checkpoint: nothing is changed, nothing is left, and the operation is told as
/// blocked, not as interrupted.
#[test]
fn what_can_not_be_kept_is_not_changed() {
    let mut bench = Bench::new();
    let large = vec![7u8; (1 << 20) + 10];
    fs::write(bench.path("x"), &large).unwrap();
    let edits = [Edit { old: "a".to_owned(), new: "b".to_owned(), expected: Expected::Count(1) }];
    fs::write(bench.path("a.txt"), "a").unwrap();
    let refusing = "CREATE TRIGGER refused BEFORE INSERT ON checkpoint \
        BEGIN SELECT RAISE(ABORT, 'refused'); END";
    rusqlite::Connection::open(bench.state().join("state.db")).unwrap().execute_batch(refusing).unwrap();
    for change in [
        Change::Delete { path: "x" },
        Change::Edit { path: "a.txt", edits: &edits },
        Change::Create { path: "new/b.txt", content: b"b" },
    ] {
        let about = bench.proposed();
        let Bench { host, root, store, log, .. } = &mut bench;
        let done = mutate(&mut Vault { host, root, store, log }, about, &change, None, LIMITS);
        assert!(matches!(done, Err(MutationError::Checkpoint(_))), "{done:?}");
    }
    assert_eq!(fs::read(bench.path("x")).unwrap(), large);
    assert_eq!(fs::read(bench.path("a.txt")).unwrap(), b"a");
    assert!(!bench.path("new").exists());
    bench.no_stray();
    assert_eq!(bench.dispatched(), 0);
    assert_eq!(bench.count("journal WHERE kind = 'OperationBlocked'"), 3);
    assert_eq!(crate::journal::interrupted(&bench.store).unwrap(), 0);
    assert_eq!(fs::read_dir(bench.state().join("sealed")).unwrap().count(), 0, "no image is left");
}
