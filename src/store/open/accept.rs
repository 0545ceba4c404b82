//! Taking a journal as it is, where the head anchor is gone, torn, or tells of more: on an operator's
//! word alone, and only by somebody who has seen that the chain itself is whole.

use super::{
    Anchor, CrashPoint, FileSystem, Head, Host, KeySource, Lease, StatePlace, Store, StoreError, anchor,
    assert_sqlite, connect, has_meta, reader, schema, sync_dir,
};
use crate::{crypto::Keys, store::ReadStore};

/// What the head anchor says, seen with the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadSeen {
    /// Nothing that is known to be this store's: it is gone, torn, or of another store.
    Nothing,
    /// A row that was durable.
    Row(Head),
}

impl ReadStore {
    /// What the head anchor says now. The key tells whether it is this store's own word.
    pub fn head_seen(&self, keys: &Keys) -> Result<HeadSeen, StoreError> {
        let (_, id) = self.made_for()?;
        Ok(match anchor::read(self.dir())? {
            Some((head, mac)) if anchor::authentic(&keys.journal, &id, head, &mac) => {
                HeadSeen::Row(head)
            }
            Some(_) | None => HeadSeen::Nothing,
        })
    }
}

impl Store {
    /// Opens a store whatever its head anchor says, which isn't touched before [`Store::accept`]. As
    /// nothing is anchored, the log is followed from its beginning when it is opened.
    pub fn open_unanchored(
        place: &StatePlace,
        key: &KeySource,
        lease: Lease,
    ) -> Result<Self, StoreError> {
        assert_sqlite()?;
        let path = place.dir.join(super::DATABASE);
        if path.is_symlink() {
            return Err(StoreError::Place { path, problem: "it is a symbolic link".to_owned() });
        }
        let kind = FileSystem::of(&place.dir)?;
        if !path.metadata().is_ok_and(|meta| meta.len() > 0) {
            return Err(StoreError::Missing(place.dir.clone()));
        }
        let connection = connect(&path, kind.wal_is_safe)?;
        if !has_meta(&connection)? {
            return Err(StoreError::Missing(place.dir.clone()));
        }
        reader::check_version(&connection, &path)?;
        schema::migrate(&connection)?;
        schema::check(&connection)?;
        let (facts, keys) = reader::unlock(&connection, key, kind.volatile)?;
        Ok(Self {
            connection,
            anchor: Anchor::open_or_make(&place.dir)?,
            anchored: Head::EMPTY,
            keys,
            facts,
            dir: place.dir.clone(),
            always_full: !kind.wal_is_safe,
            removed_at_end: false,
            _lease: lease,
        })
    }

    /// Anchors a head that is behind the one that was anchored: both slots, since the newest one
    /// counts. Until the second is written the store may still be refused. Only for a head whose commit
    /// is durable.
    pub fn accept(&mut self, host: &Host, head: Head) -> Result<(), StoreError> {
        self.anchor(head)?;
        host.crash_point(CrashPoint::HalfAnchored);
        self.anchor(head)?;
        sync_dir(&self.dir)
    }
}
