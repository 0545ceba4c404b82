//! An operation with all that the journal says of it.

use std::collections::{BTreeMap, BTreeSet};

use super::RecoveryError;
use crate::{
    id::{CheckpointId, Digest, OperationId, SessionId, Timestamp},
    journal::{self, Inflight, JournalError, Payload, Status, StoredEvent},
    store::{Rows, StoreError},
};

/// An operation, folded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// Which.
    pub operation_id: OperationId,
    /// Its events, in order.
    pub events: Vec<StoredEvent>,
    /// Where they lead.
    pub status: Status,
    /// What is in flight of it.
    pub inflight: Option<Inflight>,
}

/// The process of a command, as it was when it started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spawned {
    /// Its id, which is that of its process group too.
    pub pid: u32,
    /// The kernel's id of that boot.
    pub boot_id: String,
}

/// The cases of some operations, the oldest first.
pub fn cases(store: &impl Rows, operations: &BTreeSet<OperationId>) -> Result<Vec<Case>, RecoveryError> {
    let mut inflight: BTreeMap<OperationId, Inflight> =
        Inflight::all(store)?.into_iter().map(|row| (row.operation_id, row)).collect();
    let mut cases = Vec::new();
    for operation in operations {
        cases.push(Case::of(store, *operation, inflight.remove(operation))?);
    }
    Ok(cases)
}

/// The parts of an operation, the oldest first.
pub fn parts(store: &impl Rows, operation: OperationId) -> Result<Vec<Case>, RecoveryError> {
    let mut ids = BTreeSet::new();
    let sql = "SELECT DISTINCT operation_id FROM journal WHERE parent_operation_id = ?1";
    store.each(sql, [operation.as_bytes().as_slice()], |row| {
        let id: Vec<u8> = row.get(0).map_err(StoreError::from)?;
        let strange = |_| StoreError::Corrupt("an operation has no valid id".to_owned());
        ids.insert(OperationId::from_bytes(&id).map_err(strange)?);
        Ok::<_, StoreError>(())
    })?;
    cases(store, &ids)
}

/// The case of one operation, whether it stands or not.
pub fn one(store: &impl Rows, operation: OperationId) -> Result<Case, RecoveryError> {
    cases(store, &BTreeSet::from([operation]))?
        .pop()
        .ok_or_else(|| RecoveryError::NotFound(operation.to_string()))
}

impl Case {
    fn of(
        store: &impl Rows,
        operation_id: OperationId,
        inflight: Option<Inflight>,
    ) -> Result<Self, RecoveryError> {
        let events = journal::events_of(store, operation_id)?;
        let mut status = None;
        let mut dispatched = None;
        for event in &events {
            status = Some(Status::next(status, &event.payload).map_err(JournalError::from)?);
            if let Payload::EffectDispatchCommitted { inflight } = &event.payload {
                dispatched = *inflight;
            }
        }
        let status = status.ok_or_else(|| RecoveryError::NotFound(operation_id.to_string()))?;
        if let Some(row) = &inflight
            && dispatched != Some(row.digest())
        {
            let problem = format!("what is in flight of {operation_id} is not what was dispatched");
            return Err(StoreError::Corrupt(problem).into());
        }
        Ok(Self { operation_id, events, status, inflight })
    }

    fn find<T>(&self, pick: impl Fn(&Payload) -> Option<T>) -> Option<T> {
        self.events.iter().find_map(|event| pick(&event.payload))
    }

    /// The tool that was called.
    pub fn tool(&self) -> Option<String> {
        self.find(|payload| match payload {
            Payload::OperationProposed { tool, .. } => Some(tool.clone()),
            _ => None,
        })
    }

    /// Its session.
    pub fn session(&self) -> Option<SessionId> {
        self.events.first().map(|event| event.session_id)
    }

    /// When it was proposed.
    pub fn proposed_at(&self) -> Option<Timestamp> {
        self.events.first().map(|event| event.timestamp)
    }

    /// Its checkpoint, and the digest of its rows.
    pub fn checkpoint(&self) -> Option<(CheckpointId, Digest)> {
        self.find(|payload| match payload {
            Payload::CheckpointCommitted { checkpoint_id, rows, .. } => Some((*checkpoint_id, *rows)),
            _ => None,
        })
    }

    /// The checkpoint of the operation that this one is a part of, and the digest of its rows.
    pub fn covered(&self) -> Option<(CheckpointId, Digest)> {
        self.find(|payload| match payload {
            Payload::TargetCovered { checkpoint_id, rows, .. } => Some((*checkpoint_id, *rows)),
            _ => None,
        })
    }

    /// Where its images are: the checkpoint, and the file's place in it.
    pub fn place(&self) -> Option<(CheckpointId, u64)> {
        self.find(|payload| match payload {
            Payload::CheckpointCommitted { checkpoint_id, .. } => Some((*checkpoint_id, 0)),
            Payload::TargetCovered { checkpoint_id, ordinal, .. } => {
                Some((*checkpoint_id, u64::from(*ordinal)))
            }
            _ => None,
        })
    }

    /// Whether its effects are those of its parts: dispatched with a checkpoint, and with nothing of
    /// its own in flight.
    pub fn is_whole(&self) -> bool {
        self.checkpoint().is_some() && self.is_sent_bare()
    }

    fn is_sent_bare(&self) -> bool {
        self.find(|payload| match payload {
            Payload::EffectDispatchCommitted { inflight } => Some(inflight.is_none()),
            _ => None,
        })
        .unwrap_or(false)
    }

    /// Whether the policy let it go on without images.
    pub fn is_unprotected(&self) -> bool {
        let waived = |payload: &Payload| {
            matches!(payload, Payload::UnprotectedOperationRecorded { .. }).then_some(())
        };
        self.find(waived).is_some()
    }

    /// Whether its effect may have happened.
    pub fn is_dispatched(&self) -> bool {
        let sent =
            |payload: &Payload| matches!(payload, Payload::EffectDispatchCommitted { .. }).then_some(());
        self.find(sent).is_some()
    }

    /// Whether it is a command: dispatched without images, and with nothing that is in flight.
    pub fn is_command(&self) -> bool {
        self.checkpoint().is_none() && self.is_sent_bare()
    }

    /// The process of a command, if it was recorded.
    pub fn spawned(&self) -> Option<Spawned> {
        self.find(|payload| match payload {
            Payload::CommandSpawned { pid, boot_id, .. } => {
                Some(Spawned { pid: *pid, boot_id: boot_id.clone() })
            }
            _ => None,
        })
    }

    /// The kind of the event that ended it, if one did.
    pub fn terminal_kind(&self) -> Option<&'static str> {
        let ends = |payload: &Payload| match payload {
            Payload::OperationSucceeded {}
            | Payload::OperationFailed { .. }
            | Payload::OperationBlocked { .. }
            | Payload::OperationCancelled { .. }
            | Payload::OperationUnknownOutcome { .. }
            | Payload::OperationReconciled { .. } => Some(payload.kind()),
            _ => None,
        };
        self.events.iter().rev().find_map(|event| ends(&event.payload))
    }

    /// What it was settled as, if it was.
    pub fn resolution(&self) -> Option<&'static str> {
        self.find(|payload| match payload {
            Payload::OperationReconciled { resolution, .. } => Some(resolution.token()),
            _ => None,
        })
    }
}
