//! Operations that still stand: without an end, without proof, or with something left beside their
//! target. What recovery begins with.

use std::collections::BTreeSet;

use super::{ENDING_KINDS, JournalError, Payload, chain};
use crate::{
    crypto::MacKey,
    id::{CheckpointId, OperationId, SessionId, Timestamp, TurnId},
    store::{Head, Rows, StoreError},
};

/// An event as the journal holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its number.
    pub seq: u64,
    /// Its session.
    pub session_id: SessionId,
    /// Its turn.
    pub turn_id: Option<TurnId>,
    /// Its operation.
    pub operation_id: OperationId,
    /// The operation that this one is a part of.
    pub parent_operation_id: Option<OperationId>,
    /// When it was written. Information only.
    pub timestamp: Timestamp,
    /// What happened.
    pub payload: Payload,
}

/// What stands in a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The last row.
    pub head: Head,
    /// How many rows there are.
    pub events: u64,
    /// The operations, in the order of their ids, which is that of their making.
    pub operations: BTreeSet<OperationId>,
}

/// Walks the whole journal, hash by hash and with the key MAC by MAC, and keeps which operations
/// stand. Reads kinds alone: only what stands is worth parsing.
pub fn standing(store: &impl Rows, key: Option<&MacKey>) -> Result<Standing, JournalError> {
    let ending: BTreeSet<&str> = ENDING_KINDS.split(", ").map(|kind| kind.trim_matches('\'')).collect();
    let mut operations = BTreeSet::new();
    let mut events = 0;
    let head = chain::walk(store, Head::EMPTY, key, &mut |row| {
        events += 1;
        let Some(id) = row.operation_id else { return Ok(()) };
        let fault = |problem| JournalError::Broken(chain::Fault { seq: row.seq, problem });
        let id = OperationId::from_bytes(id).map_err(|_| fault("its operation has no valid id"))?;
        if ending.contains(row.kind) {
            operations.remove(&id);
        } else if row.kind == "OperationProposed" {
            operations.insert(id);
        }
        Ok(())
    })?;
    store.each("SELECT operation_id FROM inflight", [], |row| {
        let id: Vec<u8> = row.get(0).map_err(StoreError::from)?;
        let strange = |_| StoreError::Corrupt("an operation in flight has no valid id".to_owned());
        operations.insert(OperationId::from_bytes(&id).map_err(strange)?);
        Ok::<_, StoreError>(())
    })?;
    Ok(Standing { head, events, operations })
}

/// The events of an operation, in order.
pub fn events_of(store: &impl Rows, operation: OperationId) -> Result<Vec<StoredEvent>, JournalError> {
    let mut found = Vec::new();
    let sql = "SELECT seq, session_id, turn_id, parent_operation_id, timestamp, payload FROM journal \
        WHERE operation_id = ?1 ORDER BY seq";
    store.each(sql, [operation.as_bytes().as_slice()], |row| {
        let column = || -> rusqlite::Result<_> {
            Ok((
                row.get::<_, i64>(0)?,
                row.get::<_, Vec<u8>>(1)?,
                row.get::<_, Option<Vec<u8>>>(2)?,
                row.get::<_, Option<Vec<u8>>>(3)?,
                row.get::<_, i64>(4)?,
                row.get::<_, String>(5)?,
            ))
        };
        let (seq, session, turn, parent, timestamp, payload) = column().map_err(StoreError::from)?;
        let seq = u64::try_from(seq).unwrap_or(0);
        let fault = |problem| JournalError::Broken(chain::Fault { seq, problem });
        found.push(StoredEvent {
            seq,
            session_id: SessionId::from_bytes(&session)
                .map_err(|_| fault("its session has no valid id"))?,
            turn_id: turn
                .map(|id| TurnId::from_bytes(&id))
                .transpose()
                .map_err(|_| fault("its turn has no valid id"))?,
            operation_id: operation,
            parent_operation_id: parent
                .map(|id| OperationId::from_bytes(&id))
                .transpose()
                .map_err(|_| fault("its parent has no valid id"))?,
            timestamp: Timestamp::from_millis(timestamp),
            payload: serde_json::from_str(&payload)
                .map_err(|_| fault("its kind or its form is unknown to this version"))?,
        });
        Ok::<_, JournalError>(())
    })?;
    Ok(found)
}

/// Whether a checkpoint was freed on purpose, once it wasn't kept any more.
pub fn is_evicted(store: &impl Rows, checkpoint: CheckpointId) -> Result<bool, StoreError> {
    let sql =
        "SELECT 1 FROM journal WHERE kind = 'CheckpointsEvicted' AND instr(payload, ?1) > 0 LIMIT 1";
    Ok(store.first(sql, [checkpoint.to_string()], |_| Ok(()))?.is_some())
}

/// What a turn did that no checkpoint covers, as far as it was recorded: the commands that it started,
/// and the files that it changed without images.
pub fn beyond_checkpoints(store: &impl Rows, turn: TurnId) -> Result<(u32, u32), StoreError> {
    let sql = "SELECT count(*) FILTER (WHERE kind = 'CommandSpawned'), \
        count(*) FILTER (WHERE kind = 'UnprotectedOperationRecorded' \
            AND json_extract(payload, '$.bytes') IS NOT NULL) \
        FROM journal WHERE turn_id = ?1 \
        AND kind IN ('CommandSpawned', 'UnprotectedOperationRecorded')";
    let counts = store.first(sql, [turn.as_bytes().as_slice()], |row| {
        Ok((row.get::<_, u32>(0)?, row.get::<_, u32>(1)?))
    })?;
    Ok(counts.unwrap_or((0, 0)))
}
