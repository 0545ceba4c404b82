//! Against real directories: what is made, what is refused, and what a half-made store becomes.

use super::*;
use crate::store::{ReadStore, Rows as _};

struct Place {
    _dir: tempfile::TempDir,
    root: String,
    place: StatePlace,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("ws");
        std::fs::create_dir(&root).unwrap();
        let place = StatePlace { dir: dir.path().join("deep/state"), key: dir.path().join("state.key") };
        Self { root: root.to_str().unwrap().to_owned(), place, _dir: dir }
    }

    fn open_with(&self, key: &KeySource) -> Result<Store, StoreError> {
        let host = Host::real();
        Store::prepare(&self.place, &self.root)?;
        let lease = Lease::take(&host, &self.root, &self.place, Duration::ZERO).unwrap();
        Store::open(&host, &self.place, &self.root, key, lease)
    }

    fn open(&self) -> Result<Store, StoreError> {
        self.open_with(&KeySource::Beside(self.place.key.clone()))
    }
}

#[test]
fn a_store_is_made_once_and_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    let first = place.open().unwrap().facts().clone();
    assert_eq!(place.open().unwrap().facts(), &first);
    for (path, mode) in [
        (place.place.dir.clone(), 0o700),
        (place.place.dir.join(DATABASE), 0o600),
        (place.place.key.clone(), 0o600),
    ] {
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, mode, "{path:?}");
    }
}

#[test]
fn a_transaction_is_whole_or_nothing() {
    let place = Place::new();
    let store = place.open().unwrap();
    let count = |store: &Store| {
        store.first("SELECT count(*) FROM session", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let insert = "INSERT INTO session (session_id, created_at) VALUES (?1, 0)";
    let failed: Result<(), StoreError> = store.tx(Durability::Normal, |tx| {
        tx.execute_one(insert, [[1u8; 16].as_slice()])?;
        Err(StoreError::Corrupt("on purpose".to_owned()))
    });
    assert!(failed.is_err());
    assert_eq!(count(&store), Some(0));
    store.tx(Durability::Full, |tx| tx.execute_one(insert, [[1u8; 16].as_slice()])).unwrap();
    assert_eq!(count(&store), Some(1));
    store.close().unwrap();
    let wal = place.place.dir.join(format!("{DATABASE}-wal"));
    assert_eq!(wal.metadata().map_or(0, |meta| meta.len()), 0, "nothing deleted stays in the WAL");
    let reader = ReadStore::open(&place.place.dir).unwrap();
    assert!(
        reader.first("DELETE FROM session RETURNING 1", [], |_| Ok(())).is_err(),
        "a reader can't write"
    );
}

#[test]
fn a_missing_a_wrong_and_a_lost_key_are_told_apart_and_none_is_made() {
    let place = Place::new();
    drop(place.open().unwrap());
    let kept = std::fs::read(&place.place.key).unwrap();
    std::fs::remove_file(&place.place.key).unwrap();
    assert!(matches!(place.open(), Err(StoreError::Key(KeyError::Missing(_)))));
    assert!(!place.place.key.exists(), "no key is made for a store that has a ring");
    let other = crate::crypto::encode_new_key(&Host::real()).unwrap();
    assert!(matches!(place.open_with(&KeySource::Variable(other)), Err(StoreError::KeyMismatch)));
    std::fs::write(&place.place.key, kept).unwrap();
    assert!(place.open().is_ok());
}

#[test]
fn an_anchor_that_is_gone_torn_or_another_s_is_never_served() {
    let place = Place::new();
    drop(place.open().unwrap());
    let head = place.place.dir.join("head");
    let whole = std::fs::read(&head).unwrap();
    std::fs::remove_file(&head).unwrap();
    assert!(matches!(place.open(), Err(StoreError::Behind(_))));
    std::fs::write(&head, vec![0; whole.len()]).unwrap();
    assert!(matches!(place.open(), Err(StoreError::Behind(_))));
    let other = Place::new();
    drop(other.open().unwrap());
    std::fs::copy(other.place.dir.join("head"), &head).unwrap();
    assert!(matches!(place.open(), Err(StoreError::Behind(_))));
    std::fs::write(&head, whole).unwrap();
    assert!(place.open().is_ok());
}

/// Each prefix of the order of creation is a state in which a crash could leave the directory.
#[test]
fn a_creation_that_broke_off_begins_anew() {
    for keep in [&["state.key"][..], &["state.key", "head"], &["state.key", "head", "empty db"]] {
        let place = Place::new();
        drop(place.open().unwrap());
        let database = place.place.dir.join(DATABASE);
        for suffix in ["", "-wal", "-shm"] {
            let file = place.place.dir.join(format!("{DATABASE}{suffix}"));
            if file.exists() {
                std::fs::remove_file(file).unwrap();
            }
        }
        if !keep.contains(&"head") {
            std::fs::remove_file(place.place.dir.join("head")).unwrap();
        }
        if keep.contains(&"empty db") {
            std::fs::write(&database, "").unwrap();
        }
        assert!(place.open().is_ok(), "{keep:?}");
    }
}

/// What a creation left under the name before its own, and the logs of a database that is gone.
#[test]
fn leftovers_of_another_database_are_not_taken_for_this_one_s() {
    let place = Place::new();
    drop(place.open().unwrap());
    let file = |suffix: &str| place.place.dir.join(format!("{DATABASE}{suffix}"));
    let other = Connection::open(file("")).unwrap();
    other.execute_batch("UPDATE meta SET workspace = 'another'").unwrap();
    let wal = std::fs::read(file("-wal")).unwrap();
    assert!(!wal.is_empty());
    drop(other);
    std::fs::remove_file(file("")).unwrap();
    std::fs::write(file("-wal"), &wal).unwrap();
    std::fs::write(file(".new"), vec![7; 9000]).unwrap();
    std::fs::write(file(".new-wal"), &wal).unwrap();
    let store = place.open().unwrap();
    assert_eq!(store.facts().workspace, place.root);
    assert!(!file(".new").exists() && !file(".new-wal").exists());
}

#[test]
fn places_that_are_nobody_s_choice_are_refused() {
    let place = Place::new();
    let inside = StatePlace { dir: Path::new(&place.root).join("a/b"), key: place.place.key.clone() };
    assert!(matches!(Store::prepare(&inside, &place.root), Err(StoreError::Place { .. })));
    assert!(!Path::new(&place.root).join("a").exists(), "nothing was made");
    let link = place.place.key.with_file_name("link");
    std::os::unix::fs::symlink(&place.root, &link).unwrap();
    let linked = StatePlace { dir: link, key: place.place.key.clone() };
    assert!(matches!(Store::prepare(&linked, &place.root), Err(StoreError::Place { .. })));
    drop(place.open().unwrap());
    let database = place.place.dir.join(DATABASE);
    std::fs::rename(&database, place.place.dir.join("moved")).unwrap();
    std::os::unix::fs::symlink(place.place.dir.join("moved"), &database).unwrap();
    assert!(matches!(place.open(), Err(StoreError::Place { .. })));
}

#[test]
fn a_newer_a_foreign_and_a_broken_store_are_told() {
    let newer = |sql: &str| {
        let place = Place::new();
        drop(place.open().unwrap());
        let connection = Connection::open(place.place.dir.join(DATABASE)).unwrap();
        connection.execute_batch(sql).unwrap();
        drop(connection);
        place.open().unwrap_err()
    };
    assert!(matches!(newer("PRAGMA user_version = 99"), StoreError::Newer { found: 99, .. }));
    assert!(matches!(newer("PRAGMA application_id = 7"), StoreError::Foreign(_)));
    let place = Place::new();
    drop(place.open().unwrap());
    std::fs::write(place.place.dir.join(DATABASE), "not a database at all, but long enough to be read")
        .unwrap();
    assert!(matches!(place.open(), Err(StoreError::Sqlite(_))));
}

#[test]
fn migrating_twice_changes_nothing() {
    let place = Place::new();
    drop(place.open().unwrap());
    let connection = Connection::open(place.place.dir.join(DATABASE)).unwrap();
    let dump = || -> Vec<String> {
        let mut statement = connection
            .prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")
            .unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let before = dump();
    schema::migrate(&connection).unwrap();
    assert_eq!(dump(), before);
    assert!(before.len() > 10);
}
