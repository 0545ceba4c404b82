//! Reading: changes no row, no key and no anchor; on a read-only file system, without the key,
//! beside a live runner.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags};
use rustix::fs::statfs;

use super::{
    Head, StoreError, StoreFacts, View, anchor, open::DATABASE, rows::connected::Connected, schema, tx,
};
use crate::crypto::{KeySource, Keys, MasterKey, Ring, unwrap_secret};

/// A store, open for reading.
#[derive(Debug)]
pub struct ReadStore {
    connection: Connection,
    dir: PathBuf,
    /// Read before the rows: a runner in between can only have added some.
    anchored: Option<Head>,
    /// A copy that is read in its place, where the directory itself can't be opened for WAL.
    _copy: Option<tempfile::TempDir>,
}

/// What the file system of the state directory is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileSystem {
    /// Whether SQLite's WAL is safe on it.
    pub(super) wal_is_safe: bool,
    /// Whether it lives in memory, or in a container's own layer.
    pub(super) volatile: bool,
}

impl FileSystem {
    const EXT: i64 = 0xEF53;
    const XFS: i64 = 0x5846_5342;
    const BTRFS: i64 = 0x9123_683E;
    const TMPFS: i64 = 0x0102_1994;
    const OVERLAY: i64 = 0x794C_7630;

    pub(super) fn of(dir: &Path) -> Result<Self, StoreError> {
        let found = statfs(dir)
            .map_err(|errno| StoreError::Io { path: dir.to_owned(), source: errno.into() })?;
        let kind = found.f_type as i64 & 0xFFFF_FFFF;
        let volatile = matches!(kind, Self::TMPFS | Self::OVERLAY);
        let wal_is_safe = volatile || matches!(kind, Self::EXT | Self::XFS | Self::BTRFS);
        Ok(Self { wal_is_safe, volatile })
    }
}

impl ReadStore {
    /// Opens the store of a state directory.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join(DATABASE);
        if path.is_symlink() || dir.is_symlink() {
            return Err(StoreError::Place { path, problem: "it is a symbolic link".to_owned() });
        }
        if dir.exists() && !dir.is_dir() {
            let problem = "it is not a directory".to_owned();
            return Err(StoreError::Place { path: dir.to_owned(), problem });
        }
        if !path.metadata().is_ok_and(|meta| meta.len() > 0) {
            return Err(match anchor::read(dir)? {
                Some((head, _)) if head.seq > 0 => StoreError::Behind(
                    "the head anchor tells of a journal, and the database has none".to_owned(),
                ),
                _ => StoreError::Missing(dir.to_owned()),
            });
        }
        let anchored = anchor::read(dir)?.map(|(head, _)| head);
        let dir = dir.to_owned();
        match connect(&path) {
            Ok(connection) => Ok(Self { connection, dir, anchored, _copy: None }),
            Err(StoreError::Sqlite(error)) if needs_copy(&error) => {
                let copy = copied(&dir)?;
                let connection = connect(&copy.path().join(DATABASE))?;
                Ok(Self { connection, dir, anchored, _copy: Some(copy) })
            }
            Err(error) => Err(error),
        }
    }

    /// From here on every read sees the rows as they are now, whatever a runner adds.
    pub fn hold_still(&self) -> Result<(), StoreError> {
        self.connection.execute_batch("BEGIN")?;
        // The snapshot is taken by the first read.
        self.made_for().map(drop)
    }

    /// The state directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The workspace that the store was made for, and the store's id.
    pub fn made_for(&self) -> Result<(String, [u8; 16]), StoreError> {
        made_for(&self.connection)
    }

    /// Whether the state directory may not outlive this machine's next restart.
    pub fn is_volatile(&self) -> Result<bool, StoreError> {
        FileSystem::of(&self.dir).map(|kind| kind.volatile)
    }

    /// Whether the file system is known to be safe for a write-ahead log. Elsewhere each commit waits
    /// for the disk.
    pub fn wal_is_safe(&self) -> Result<bool, StoreError> {
        FileSystem::of(&self.dir).map(|kind| kind.wal_is_safe)
    }

    /// The store's keys, for what is sealed.
    pub fn unlock(&self, key: &KeySource) -> Result<Keys, StoreError> {
        unlock(&self.connection, key, false).map(|(_, keys)| keys)
    }

    /// Its rows together with its keys.
    pub fn view<'a>(&'a self, keys: &'a Keys) -> Result<View<'a, Self>, StoreError> {
        let (_, id) = self.made_for()?;
        Ok(View { rows: self, id, keys, dir: &self.dir })
    }

    /// What the anchor told when the store was opened; not known to be authentic.
    pub fn anchored(&self) -> Option<Head> {
        self.anchored
    }
}

impl Connected for ReadStore {
    fn connection(&self) -> &Connection {
        &self.connection
    }
}

/// Errors of a directory in which the shared memory of a WAL can't be made.
fn needs_copy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            rusqlite::ErrorCode::CannotOpen
                | rusqlite::ErrorCode::ReadOnly
                | rusqlite::ErrorCode::PermissionDenied
        )
    )
}

fn connect(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.pragma_update(None, "query_only", 1)?;
    connection.pragma_update(None, "trusted_schema", 0)?;
    connection.pragma_update(None, "cell_size_check", 1)?;
    check_application(&connection, path)?;
    if version(&connection)? == schema::newest() {
        schema::check(&connection)?;
    }
    Ok(connection)
}

/// Database and WAL, copied to a private place. `immutable` is never used: it would leave out the
/// WAL without a word.
fn copied(dir: &Path) -> Result<tempfile::TempDir, StoreError> {
    let copy = tempfile::TempDir::new()
        .map_err(|source| StoreError::Io { path: std::env::temp_dir(), source })?;
    for name in [DATABASE.to_owned(), format!("{DATABASE}-wal")] {
        let from = dir.join(&name);
        if from.exists() {
            std::fs::copy(&from, copy.path().join(&name))
                .map_err(|source| StoreError::Io { path: from, source })?;
        }
    }
    Ok(copy)
}

fn check_application(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let found: i64 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    if found == schema::APPLICATION_ID { Ok(()) } else { Err(StoreError::Foreign(path.to_owned())) }
}

/// A store of a newer version can be read, not written.
pub(super) fn check_version(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    check_application(connection, path)?;
    let (found, known) = (version(connection)?, schema::newest());
    if found > known { Err(StoreError::Newer { found, known }) } else { Ok(()) }
}

fn version(connection: &Connection) -> Result<i64, StoreError> {
    Ok(connection.query_row("PRAGMA user_version", [], |row| row.get(0))?)
}

fn made_for(connection: &Connection) -> Result<(String, [u8; 16]), StoreError> {
    let row = tx::first(connection, "SELECT store_id, workspace FROM meta WHERE one = 1", [], |row| {
        Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, String>(1)?))
    })?;
    let (id, workspace) = row.ok_or_else(|| StoreError::Corrupt("it has no row of meta".to_owned()))?;
    let id = id.try_into().map_err(|_| StoreError::Corrupt("its id is of another length".to_owned()))?;
    Ok((workspace, id))
}

/// The facts and the keys of a store; the newest version of its ring is the one in use.
pub(super) fn unlock(
    connection: &Connection,
    key: &KeySource,
    volatile: bool,
) -> Result<(StoreFacts, Keys), StoreError> {
    let (workspace, id) = made_for(connection)?;
    let newest = "SELECT version, wrapped, key_ring.created_at, meta.created_at FROM key_ring, meta \
        ORDER BY version DESC LIMIT 1";
    let row = tx::first(connection, newest, [], |row| {
        let times = [row.get::<_, i64>(2)?, row.get::<_, i64>(3)?];
        Ok((row.get::<_, u32>(0)?, row.get::<_, Vec<u8>>(1)?, times))
    })?;
    let (key_version, wrapped, times) =
        row.ok_or_else(|| StoreError::Corrupt("its key ring is empty".to_owned()))?;
    let master = MasterKey::read(key)?;
    let ring = Ring { store: id, version: key_version, times };
    let secret = unwrap_secret(&master, &ring, &wrapped).map_err(|_| StoreError::KeyMismatch)?;
    Ok((StoreFacts { id, workspace, key_version, volatile }, secret.keys()))
}
