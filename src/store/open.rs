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

use rusqlite::{Connection, OpenFlags, config::DbConfig};

use super::{
    Anchor, Durability, Head, Lease, StatePlace, StoreError, Tx, View, anchor, place,
    reader::{self, FileSystem},
    rows::connected::Connected,
    schema, tx,
};
use crate::{
    crypto::{CryptoError, KeyError, KeySource, Keys, MasterKey, Ring, StoreSecret, wrap_secret},
    host::{CrashPoint, Host},
};

mod accept;
mod space;

pub use accept::HeadSeen;

pub(super) const DATABASE: &str = "state.db";
/// The database while it is being made.
const NEW_DATABASE: &str = "state.db.new";
/// Older ones can corrupt a WAL.
const OLDEST_SQLITE: i32 = 3_051_003;
/// The WAL is checkpointed between operations once so many pages wait in it: 16 MiB.
const WAL_PAGES: i64 = 4096;

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
    removed_at_end: bool,
    _lease: Lease,
}

impl Connected for Store {
    fn connection(&self) -> &Connection {
        &self.connection
    }
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
            schema::check(&connection)?;
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
        Ok(Self {
            connection,
            anchor,
            anchored,
            keys,
            facts,
            dir,
            always_full,
            removed_at_end: false,
            _lease: lease,
        })
    }

    /// This store is one run's own: what its log holds isn't moved into the database at the end, only
    /// to be removed there.
    pub fn removed_at_end(mut self) -> Result<Self, StoreError> {
        self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        self.removed_at_end = true;
        Ok(self)
    }

    /// Removes a store that was one run's own, with its key and the directory that holds both.
    pub fn remove(place: &StatePlace) -> Result<(), StoreError> {
        let own = place.dir.parent().filter(|own| place.key.parent() == Some(own)).unwrap_or(&place.dir);
        std::fs::remove_dir_all(own).map_err(|source| StoreError::Io { path: own.to_owned(), source })
    }

    /// The store's keys.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Its rows together with its keys.
    pub fn view(&self) -> View<'_, Self> {
        View { rows: self, id: self.facts.id, keys: &self.keys, dir: &self.dir }
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

    /// Makes everything durable that was committed so far. The log itself is synced, since a transaction
    /// that changes nothing waits for nothing. One sync.
    pub fn sync(&self) -> Result<(), StoreError> {
        if self.always_full {
            return Ok(());
        }
        let path = self.dir.join(format!("{DATABASE}-wal"));
        match File::open(&path).and_then(|log| log.sync_data()) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::Io { path, source })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Runs a transaction; an error leaves nothing of it.
    pub fn tx<T, E: From<StoreError>>(
        &self,
        durability: Durability,
        work: impl FnOnce(&Tx<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        tx::run(&self.connection, durability, self.always_full, work)
    }

    /// Checkpoints the WAL if much has come into it; called between operations, never inside one. Its
    /// size tells nothing: it begins again at its start and stays as large as it was.
    pub fn trim(&self) -> Result<(), StoreError> {
        let sql = "PRAGMA wal_checkpoint(NOOP)";
        let (all, moved): (i64, i64) =
            self.connection.query_row(sql, [], |row| Ok((row.get(1)?, row.get(2)?)))?;
        if all - moved > WAL_PAGES {
            checkpoint(&self.connection, "PASSIVE")?;
        }
        Ok(())
    }

    /// Moves the WAL into the database and empties it, so that no deleted row stays.
    pub fn finish(&self) -> Result<(), StoreError> {
        if self.removed_at_end {
            return Ok(());
        }
        checkpoint(&self.connection, "TRUNCATE")
    }

    /// As [`Store::finish`], and gives up the lease.
    pub fn close(self) -> Result<(), StoreError> {
        self.finish()
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
    options.write(true).create(true).truncate(true).mode(0o600).custom_flags(anchor::nofollow());
    options.open(path).map(drop).map_err(io)
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

fn open_flags() -> OpenFlags {
    OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW
        | OpenFlags::SQLITE_OPEN_EXRESCODE
}

/// Opens the database and sets, then reads back, everything that durability rests on.
fn connect(path: &Path, wal: bool) -> Result<Connection, StoreError> {
    let connection = Connection::open_with_flags(path, open_flags())?;
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
    // A statement's plan doesn't depend on its values, so that none is planned again for each.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
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

/// Key file and anchor first, then the database under another name, whole, and only then its own:
/// whatever stands after a crash, the next opening either begins anew or finds a whole store.
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
    host.crash_point(CrashPoint::AnchorMade);
    let now = host.now().as_millis();
    let ring = Ring { store: id, version: 1, times: [now, now] };
    let wrapped = wrap_secret(host, &master, &ring, &secret)?;
    let unnamed = place.dir.join(NEW_DATABASE);
    make_private(&unnamed)?;
    let connection = Connection::open_with_flags(&unnamed, open_flags())?;
    // So that a store can be cut down to what it holds; it has to be said before there is any table.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    // Nothing of it counts before it has its name, so that one sync of the whole is enough.
    connection.pragma_update(None, "synchronous", "OFF")?;
    connection.pragma_update(None, "journal_mode", if wal { "wal" } else { "truncate" })?;
    schema::migrate(&connection)?;
    tx::run(&connection, Durability::Normal, true, |tx| {
        tx.execute_one("INSERT INTO meta VALUES (1, ?1, ?2, ?3)", (id.as_slice(), root, now))?;
        tx.execute_one("INSERT INTO key_ring VALUES (1, ?1, ?2)", (wrapped.as_slice(), now))
    })?;
    // Closing would move the log into the database too, and say nothing if it couldn't.
    checkpoint(&connection, "TRUNCATE")?;
    connection.close().map_err(|(_, error)| error)?;
    let told = |source| StoreError::Io { path: path.to_owned(), source };
    File::open(&unnamed).and_then(|file| file.sync_all()).map_err(told)?;
    host.crash_point(CrashPoint::DatabaseMade);
    // A log that another database left would be played into this one.
    for name in [DATABASE, NEW_DATABASE] {
        for suffix in ["-journal", "-wal", "-shm"] {
            match std::fs::remove_file(place.dir.join(format!("{name}{suffix}"))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(told(error)),
                Ok(()) | Err(_) => {}
            }
        }
    }
    std::fs::rename(&unnamed, path).map_err(told)?;
    host.crash_point(CrashPoint::DatabaseNamed);
    sync_dir(&place.dir)?;
    Ok((connect(path, wal)?, anchor))
}

fn checkpoint(connection: &Connection, mode: &str) -> Result<(), StoreError> {
    let sql = format!("PRAGMA wal_checkpoint({mode})");
    connection.query_row(&sql, [], |_| Ok(())).map_err(StoreError::from)
}

#[cfg(test)]
mod tests;
