//! Reading rows: what a store can do whether it is open for writing or not.

use std::path::Path;

use rusqlite::{Connection, Params, Row, types::ValueRef};
use sha2::{Digest as _, Sha256};

use super::{StoreError, tx};
use crate::{crypto::Keys, id::Digest};

/// Out of reach of other rooms: whoever has the connection can write.
pub(super) mod connected {
    pub trait Connected {
        fn connection(&self) -> &rusqlite::Connection;
    }
}

/// Something whose rows can be read: a store of either kind, or a transaction in it.
pub trait Rows: connected::Connected {
    /// The first row of a query, if there is one.
    fn first<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        tx::first(self.connection(), sql, params, read)
    }

    /// Reads rows one by one, as far as the visitor wants them.
    fn each<E: From<StoreError>>(
        &self,
        sql: &str,
        params: impl Params,
        visit: impl FnMut(&Row<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        each(self.connection(), sql, params, visit)
    }

    /// What SQLite itself finds wrong with pages, indexes and references; at most twenty faults.
    /// Reads the whole database.
    fn structural_faults(&self) -> Result<Vec<String>, StoreError> {
        let mut faults = Vec::new();
        self.each("PRAGMA integrity_check(20)", [], |row| {
            let fault: String = row.get(0)?;
            faults.extend((fault != "ok").then_some(fault));
            Ok::<_, StoreError>(())
        })?;
        self.each("PRAGMA foreign_key_check", [], |row| {
            let table: String = row.get(0)?;
            faults.push(format!("a row of {table} refers to nothing"));
            Ok::<_, StoreError>(())
        })?;
        faults.truncate(20);
        Ok(faults)
    }
}

impl<S: connected::Connected> Rows for S {}

fn each<E: From<StoreError>>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    mut visit: impl FnMut(&Row<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut statement = connection.prepare_cached(sql).map_err(StoreError::from)?;
    let mut rows = statement.query(params).map_err(StoreError::from)?;
    while let Some(row) = rows.next().map_err(StoreError::from)? {
        visit(row)?;
    }
    Ok(())
}

/// A store together with its keys: what is sealed in it can be opened.
#[derive(Debug)]
pub struct View<'a, S> {
    /// The rows.
    pub rows: &'a S,
    /// The store's own id, which is part of every seal.
    pub id: [u8; 16],
    /// The keys.
    pub keys: &'a Keys,
    /// The state directory, where sealed files lie.
    pub dir: &'a Path,
}

impl<S> Clone for View<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for View<'_, S> {}

/// The digest of rows, column by column: what the journal keeps of rows that it speaks of. Of sealed
/// and keyed columns it covers what is stored, so it tells nothing of a file.
#[derive(Debug)]
pub struct RowDigest(Sha256);

impl RowDigest {
    /// Begins one; the domain keeps digests of different things apart.
    pub fn new(domain: &str) -> Self {
        let mut digest = Self(Sha256::new());
        digest.column(0, domain.as_bytes());
        digest
    }

    /// Adds a row, all of its columns.
    pub fn add(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        let columns = row.as_ref().column_count();
        self.column(1, &u64::try_from(columns).unwrap_or(u64::MAX).to_be_bytes());
        for at in 0..columns {
            match row.get_ref(at)? {
                ValueRef::Null => self.column(2, &[]),
                ValueRef::Integer(number) => self.column(3, &number.to_be_bytes()),
                ValueRef::Real(number) => self.column(4, &number.to_be_bytes()),
                ValueRef::Text(text) => self.column(5, text),
                ValueRef::Blob(bytes) => self.column(6, bytes),
            }
        }
        Ok(())
    }

    fn column(&mut self, kind: u8, bytes: &[u8]) {
        self.0.update([kind]);
        self.0.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes());
        self.0.update(bytes);
    }

    /// The digest of what was added.
    pub fn finish(self) -> Digest {
        Digest::from_bytes(self.0.finalize().into())
    }
}
