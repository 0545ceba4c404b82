//! The chain: each row's hash covers the row and the hash before it; the last row of a transaction
//! carries a MAC. SQLite keeps structure, not content: a flipped byte in a row is served silently
//! unless somebody looks, and this is who looks.

use sha2::{Digest as _, Sha256};

use super::JournalError;
use crate::{
    crypto::MacKey,
    store::{Head, Rows, StoreError},
};

/// The first row that isn't what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Its number.
    pub seq: u64,
    /// What is wrong.
    pub problem: &'static str,
}

/// The columns of a row that its hash covers.
pub(super) struct Row<'a> {
    pub(super) seq: u64,
    pub(super) event_id: &'a [u8],
    pub(super) session_id: &'a [u8],
    pub(super) turn_id: Option<&'a [u8]>,
    pub(super) operation_id: Option<&'a [u8]>,
    pub(super) parent_operation_id: Option<&'a [u8]>,
    pub(super) kind: &'a str,
    pub(super) schema_version: i64,
    pub(super) timestamp: i64,
    pub(super) provenance: &'a str,
    pub(super) payload: &'a str,
}

impl Row<'_> {
    pub(super) fn hash(&self, before: &[u8; 32]) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(before);
        let mut column = |bytes: Option<&[u8]>| {
            // Null has a length that no text has.
            let length =
                bytes.map_or(u64::MAX, |bytes| u64::try_from(bytes.len()).unwrap_or(u64::MAX - 1));
            hash.update(length.to_be_bytes());
            hash.update(bytes.unwrap_or_default());
        };
        column(Some(&self.seq.to_be_bytes()));
        column(Some(self.event_id));
        column(Some(self.session_id));
        column(self.turn_id);
        column(self.operation_id);
        column(self.parent_operation_id);
        column(Some(self.kind.as_bytes()));
        column(Some(&self.schema_version.to_be_bytes()));
        column(Some(&self.timestamp.to_be_bytes()));
        column(Some(self.provenance.as_bytes()));
        column(Some(self.payload.as_bytes()));
        hash.finalize().into()
    }
}

/// Walks the rows after `from` and checks hash, order and, with the key, MACs; the head that it
/// comes to.
pub fn verify(store: &impl Rows, from: Head, key: Option<&MacKey>) -> Result<Head, JournalError> {
    walk(store, from, key, &mut |_| Ok(()))
}

/// As [`verify`], and hands on each row that is what was written.
pub(super) fn walk(
    store: &impl Rows,
    from: Head,
    key: Option<&MacKey>,
    each: &mut dyn FnMut(&Row<'_>) -> Result<(), JournalError>,
) -> Result<Head, JournalError> {
    let mut head = from;
    let mut mac_owed = false;
    rows_after(store, from.seq, &mut |row, hash, mac| {
        let fault = |problem| JournalError::Broken(Fault { seq: row.seq, problem });
        if row.seq != head.seq + 1 {
            return Err(fault("rows are missing before it"));
        }
        if row.hash(&head.hash).as_slice() != hash {
            return Err(fault("its content or its place is not what was written"));
        }
        head = Head {
            seq: row.seq,
            hash: hash.try_into().map_err(|_| fault("its hash has another length"))?,
        };
        match (mac, key) {
            (Some(mac), Some(key)) if !key.fits(&head.hash, mac) => {
                return Err(fault("its MAC is not of this store's key"));
            }
            (Some(_), _) => mac_owed = false,
            (None, _) => mac_owed = true,
        }
        each(row)
    })?;
    if mac_owed {
        return Err(JournalError::Broken(Fault {
            seq: head.seq,
            problem: "the last transaction has no MAC",
        }));
    }
    Ok(head)
}

/// What takes a row, its hash and its MAC.
type Visit<'v> = dyn FnMut(&Row<'_>, &[u8], Option<&[u8]>) -> Result<(), JournalError> + 'v;

/// Hands the rows after a number, in order.
fn rows_after(store: &impl Rows, seq: u64, visit: &mut Visit<'_>) -> Result<(), JournalError> {
    store.each(AFTER, [number(seq)], |row| visit_row(row, visit))
}

/// The hash of one row.
pub fn hash_at(store: &impl Rows, seq: u64) -> Result<Option<Vec<u8>>, StoreError> {
    store.first(HASH_AT, [number(seq)], |row| row.get(0))
}

fn number(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

const AFTER: &str = "SELECT seq, event_id, session_id, turn_id, operation_id, parent_operation_id, kind, \
    schema_version, timestamp, provenance, payload, hash, mac FROM journal WHERE seq > ?1 ORDER BY seq";
const HASH_AT: &str = "SELECT hash FROM journal WHERE seq = ?1";

fn visit_row(row: &rusqlite::Row<'_>, visit: &mut Visit<'_>) -> Result<(), JournalError> {
    let read = || -> rusqlite::Result<_> {
        let blob = |at| {
            row.get_ref(at).and_then(|value| value.as_blob_or_null().map_err(rusqlite::Error::from))
        };
        let needed =
            |at| row.get_ref(at).and_then(|value| value.as_blob().map_err(rusqlite::Error::from));
        let text = |at| row.get_ref(at).and_then(|value| value.as_str().map_err(rusqlite::Error::from));
        let hashed = Row {
            seq: u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0),
            event_id: needed(1)?,
            session_id: needed(2)?,
            turn_id: blob(3)?,
            operation_id: blob(4)?,
            parent_operation_id: blob(5)?,
            kind: text(6)?,
            schema_version: row.get(7)?,
            timestamp: row.get(8)?,
            provenance: text(9)?,
            payload: text(10)?,
        };
        Ok((hashed, needed(11)?, blob(12)?))
    };
    let (hashed, hash, mac) = read().map_err(StoreError::from)?;
    visit(&hashed, hash, mac)
}
