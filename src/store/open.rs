//! Opening for writing: in the order in which a crash at any point leaves something that the next
//! opening understands.
//!
//! Directory, then key file and anchor, then the database with its key ring: a key without a ring is
//! used, a ring without its key is refused, and no key is ever made for a store that has one.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, Params, Row};

use super::{
    Anchor, Durability, Head, Lease, StatePlace, StoreError, Tx, anchor, place,
    reader::{self, FileSystem},
    schema, tx,
};
use crate::{
    crypto::{CryptoError, KeyError, KeySource, Keys, MasterKey, StoreSecret, wrap_secret},
    host::Host,
};

pub(super) const DATABASE: &str = "state.db";
/// Older ones can corrupt a WAL.
const OLDEST_SQLITE: i32 = 3_051_003;
/// The WAL is checkpointed between operations once it is this large.
const WAL_BYTES: u64 = 16 << 20;

/// What is known of a store besides its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFacts {
    /// Its own id.
    pub id: [u8; 16],
    /// The workspace that it was made for.
    pub workspace: String,
    /// The version of the key ring in use.
    pub key_version: u32,
    /// Whether the state directory may not outlive this machine's next restart.
    pub volatile: bool,
}

/// The store, open for writing by the one process that holds the lease.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    anchor: Anchor,
    anchored: Head,
    keys: Keys,
    facts: StoreFacts,
    dir: PathBuf,
    always_full: bool,
    _lease: Lease,
}

/// Makes the state directory and those above it, durably, private to its owner.
pub(super) fn make_dir(place: &StatePlace, root: &str) -> Result<(), StoreError> {
    place::check(place, root)?;
    let io = |path: &Path, source| StoreError::Io { path: path.to_owned(), source };
    let mut missing = Vec::new();
    let mut at = Some(place.dir.as_path());
    while let Some(dir) = at.filter(|dir| !dir.exists()) {
        missing.push(dir);
        at = dir.parent();
    }
    for dir in missing.iter().rev() {
        match std::fs::DirBuilder::new().mode(0o700).create(dir) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(io(dir, error)),
        }
        if let Some(parent) = dir.parent() {
            File::open(parent)
                .and_then(|parent| parent.sync_all())
                .map_err(|error| io(parent, error))?;
        }
    }
    if place.dir.is_dir() {
        Ok(())
    } else {
        Err(StoreError::Place { path: place.dir.clone(), problem: "it is not a directory".to_owned() })
    }
}

impl Store {
    /// Makes the state directory, so that the lease can be taken in it.
    pub fn prepare(place: &StatePlace, root: &str) -> Result<(), StoreError> {
        make_dir(place, root)
    }

    /// Opens the store, or makes it where there is none. Holding the lease means that nobody else
    /// writes.
    pub fn open(
        host: &Host,
        place: &StatePlace,
        root: &str,
        key: &KeySource,
        lease: Lease,
    ) -> Result<Self, StoreError> {
        assert_sqlite()?;
        let path = place.dir.join(DATABASE);
        if path.is_symlink() {
            return Err(StoreError::Place { path, problem: "it is a symbolic link".to_owned() });
        }
        let kind = FileSystem::of(&place.dir)?;
        let exists = path.metadata().is_ok_and(|meta| meta.len() > 0);
        let existing = if exists { Some(connect(&path, kind.wal_is_safe)?) } else { None };
        let begun = existing.as_ref().map(has_meta).transpose()?.unwrap_or(false);
        let anchored = anchor::read(&place.dir)?;
        let (connection, anchor) = if begun {
            let connection = existing.ok_or_else(|| StoreError::Missing(place.dir.clone()))?;
            reader::check_version(&connection, &path)?;
            schema::migrate(&connection)?;
            (connection, Anchor::open(&place.dir)?)
        } else if anchored.is_some_and(|(head, _)| head.seq > 0) {
            let lost = "the head anchor tells of a journal, and the database has none".to_owned();
            return Err(StoreError::Behind(lost));
        } else {
            drop(existing);
            create(host, place, root, key, &path, kind.wal_is_safe)?
        };
        let (facts, keys) = reader::unlock(&connection, key, kind.volatile)?;
        let anchored = match anchor::read(&place.dir)? {
            Some((head, mac)) if anchor::authentic(&keys.journal, &facts.id, head, &mac) => head,
            Some(_) => return Err(StoreError::Behind("the head anchor is not this store's".to_owned())),
            None => return Err(StoreError::Behind("the head anchor is gone or torn".to_owned())),
        };
        let always_full = !kind.wal_is_safe;
        let dir = place.dir.clone();
        Ok(Self { connection, anchor, anchored, keys, facts, dir, always_full, _lease: lease })
    }

    /// The store's keys.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// What is known of it.
    pub fn facts(&self) -> &StoreFacts {
        &self.facts
    }

    /// The state directory, where sealed files lie.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What the anchor told when the store was opened, or was told since.
    pub fn anchored(&self) -> Head {
        self.anchored
    }

    /// Writes the anchor: only for a head whose commit is durable. One sync.
    pub fn anchor(&mut self, head: Head) -> Result<(), StoreError> {
        self.anchor.write(&self.keys.journal, &self.facts.id, head)?;
        self.anchored = head;
        Ok(())
    }

    /// Runs a transaction; an error leaves nothing of it.
    pub fn tx<T, E: From<StoreError>>(
        &self,
        durability: Durability,
        work: impl FnOnce(&Tx<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        tx::run(&self.connection, durability, self.always_full, work)
    }

    /// The first row of a query, if there is one.
    pub fn first<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        tx::first(&self.connection, sql, params, read)
    }

    /// Reads rows one by one, as far as the visitor wants them.
    pub fn each<E: From<StoreError>>(
        &self,
        sql: &str,
        params: impl Params,
        visit: impl FnMut(&Row<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        reader::each(&self.connection, sql, params, visit)
    }

    /// Checkpoints the WAL if it has grown large; called between operations, never inside one.
    pub fn trim(&self) -> Result<(), StoreError> {
        let wal = self.dir.join(format!("{DATABASE}-wal"));
        if wal.metadata().is_ok_and(|meta| meta.len() > WAL_BYTES) {
            checkpoint(&self.connection, "PASSIVE")?;
        }
        Ok(())
    }

    /// Ends the run: the WAL goes into the database and is emptied, so that no deleted row stays.
    pub fn close(self) -> Result<(), StoreError> {
        checkpoint(&self.connection, "TRUNCATE")
    }
}

fn key_for_new(host: &Host, key: &KeySource) -> Result<MasterKey, KeyError> {
    match key {
        KeySource::Beside(path) => MasterKey::make_beside(host, path),
        KeySource::File(_) | KeySource::Variable(_) => MasterKey::read(key),
    }
}

fn make_private(path: &Path) -> Result<(), StoreError> {
    let io = |source| StoreError::Io { path: path.to_owned(), source };
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(path).map_err(io)?;
    file.sync_all().map_err(io)
}

pub(super) fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(|source| StoreError::Io { path: dir.to_owned(), source })
}

fn assert_sqlite() -> Result<(), StoreError> {
    let found = rusqlite::version_number();
    if found >= OLDEST_SQLITE {
        Ok(())
    } else {
        Err(StoreError::Pragma { pragma: "sqlite_version", found: rusqlite::version().to_owned() })
    }
}

/// Opens the database and sets, then reads back, everything that durability rests on.
fn connect(path: &Path, wal: bool) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW
        | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    let (mode, synchronous) = if wal { ("wal", 2) } else { ("truncate", 3) };
    connection.pragma_update(None, "journal_mode", mode)?;
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.pragma_update(None, "foreign_keys", 1)?;
    connection.pragma_update(None, "secure_delete", 1)?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "trusted_schema", 0)?;
    connection.pragma_update(None, "cell_size_check", 1)?;
    let number = |number: i64| number.to_string();
    for (pragma, wanted) in [
        ("journal_mode", mode.to_owned()),
        ("synchronous", number(synchronous)),
        ("foreign_keys", number(1)),
        ("secure_delete", number(1)),
        ("wal_autocheckpoint", number(0)),
    ] {
        let found: String = connection.pragma_query_value(None, pragma, |row| {
            row.get::<_, rusqlite::types::Value>(0).map(|value| match value {
                rusqlite::types::Value::Integer(found) => found.to_string(),
                rusqlite::types::Value::Text(found) => found,
                other => format!("{other:?}"),
            })
        })?;
        if found != wanted {
            return Err(StoreError::Pragma { pragma, found });
        }
    }
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// A crash between the file and its first transaction leaves a database without a row of meta.
fn has_meta(connection: &Connection) -> Result<bool, StoreError> {
    let table = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'meta'";
    let tables: i64 = connection.query_row(table, [], |row| row.get(0))?;
    if tables == 0 {
        let any: i64 =
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        return if any == 0 {
            Ok(false)
        } else {
            Err(StoreError::Corrupt("it has other tables".to_owned()))
        };
    }
    let rows: i64 = connection.query_row("SELECT count(*) FROM meta", [], |row| row.get(0))?;
    Ok(rows > 0)
}

/// Key file and anchor first, then the database: whatever stands after a crash, the next opening
/// either begins anew or finds a whole store.
fn create(
    host: &Host,
    place: &StatePlace,
    root: &str,
    key: &KeySource,
    path: &Path,
    wal: bool,
) -> Result<(Connection, Anchor), StoreError> {
    let master = key_for_new(host, key)?;
    let mut id = [0u8; 16];
    host.fill(&mut id).map_err(|_| CryptoError::NoEntropy)?;
    let secret = StoreSecret::fresh(host)?;
    let anchor = Anchor::make(&place.dir, &secret.keys().journal, &id)?;
    sync_dir(&place.dir)?;
    make_private(path)?;
    let connection = connect(path, wal)?;
    schema::migrate(&connection)?;
    let wrapped = wrap_secret(host, &master, &id, 1, &secret)?;
    let now = host.now().as_millis();
    tx::run(&connection, Durability::Full, !wal, |tx| {
        tx.execute_one("INSERT INTO meta VALUES (1, ?1, ?2, ?3)", (id.as_slice(), root, now))?;
        tx.execute_one("INSERT INTO key_ring VALUES (1, ?1, ?2)", (wrapped.as_slice(), now))
    })?;
    sync_dir(&place.dir)?;
    Ok((connection, anchor))
}

fn checkpoint(connection: &Connection, mode: &str) -> Result<(), StoreError> {
    let sql = format!("PRAGMA wal_checkpoint({mode})");
    connection.query_row(&sql, [], |_| Ok(())).map_err(StoreError::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ReadStore;

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
            let place =
                StatePlace { dir: dir.path().join("deep/state"), key: dir.path().join("state.key") };
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

    #[test]
    fn places_that_are_nobody_s_choice_are_refused() {
        let place = Place::new();
        let inside =
            StatePlace { dir: Path::new(&place.root).join("a/b"), key: place.place.key.clone() };
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
        std::fs::write(
            place.place.dir.join(DATABASE),
            "not a database at all, but long enough to be read",
        )
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
}
