//! What the whole journal says of the other tables. They are its projections, kept for speed; where
//! they differ the journal is right, and the difference is told.

use std::collections::{BTreeMap, BTreeSet};

use super::{Inflight, JournalError, Payload, Status, chain};
use crate::{
    crypto::MacKey,
    id::{AuthorizationId, CheckpointId, Digest, OperationId, SessionId, Timestamp, TurnId},
    store::{Head, RowFault, Rows, StoreError},
};

/// Everything that the journal says, folded.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Its rows.
    pub events: u64,
    /// Prompt rounds, with what the journal keeps of their rows.
    pub turns: BTreeMap<TurnId, TurnEntry>,
    /// Checkpoints: the digest of their rows, and the word of what became of their operation.
    pub checkpoints: BTreeMap<CheckpointId, (Digest, &'static str)>,
    /// Checkpoints of operations in parts: the places of the files whose part took effect.
    pub parts: BTreeMap<CheckpointId, BTreeSet<u64>>,
    /// The rounds of each session that made a checkpoint, whether it is kept or was evicted: what a
    /// window of rounds is counted in.
    pub rounds: BTreeMap<SessionId, BTreeSet<u32>>,
    /// Checkpoints of operations, or of parts, that a person took as they are: nobody knows whether they
    /// took effect.
    pub doubted: BTreeSet<CheckpointId>,
    operations: BTreeMap<OperationId, Operation>,
    /// The operation that each checkpoint was made for, for all that ever were.
    makers: BTreeMap<CheckpointId, OperationId>,
    evicted: BTreeSet<CheckpointId>,
}

/// What the journal says of a prompt round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnEntry {
    /// Its session.
    pub session_id: SessionId,
    /// Its ordinal in the session.
    pub prompt_round: u32,
    /// The digest of what its row and its session's say for good.
    pub row: Digest,
    /// How it ended.
    pub end: Option<TurnEntryEnd>,
}

/// What the journal says of a prompt round's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnEntryEnd {
    /// Why.
    pub stop_reason: String,
    /// With which code.
    pub exit_code: u8,
    /// When.
    pub ended_at: Timestamp,
    /// How many messages the session had then.
    pub messages: u32,
}

#[derive(Debug, Default)]
struct Operation {
    status: Option<Status>,
    checkpoint: Option<(CheckpointId, Digest)>,
    authorization: Option<AuthorizationId>,
    inflight: Option<Digest>,
    dispatched: bool,
    covered: Option<(CheckpointId, u32)>,
}

/// Walks the whole journal from its beginning: hash, order, MACs with the key, and the sense of it.
pub fn ledger(store: &impl Rows, key: Option<&MacKey>) -> Result<Ledger, JournalError> {
    let mut ledger = Ledger::default();
    chain::walk(store, Head::EMPTY, key, &mut |row| {
        let fault = |problem| JournalError::Broken(chain::Fault { seq: row.seq, problem });
        let payload: Payload = serde_json::from_str(row.payload)
            .map_err(|_| fault("its kind or its form is unknown to this version"))?;
        if payload.kind() != row.kind {
            return Err(fault("its kind is not that of its content"));
        }
        ledger.events += 1;
        match row.operation_id {
            Some(id) => {
                let id =
                    OperationId::from_bytes(id).map_err(|_| fault("its operation has no valid id"))?;
                if let Payload::CheckpointCommitted { checkpoint_id, .. } = &payload {
                    ledger.made(*checkpoint_id, id, row.turn_id);
                }
                ledger.operations.entry(id).or_default().take(payload)?;
            }
            None if matches!(
                payload,
                Payload::CheckpointsEvicted { .. } | Payload::HeadAccepted { .. }
            ) =>
            {
                ledger.of_store(payload).map_err(fault)?;
            }
            None => {
                let session = SessionId::from_bytes(row.session_id)
                    .map_err(|_| fault("its session has no valid id"))?;
                let turn = row.turn_id.map(TurnId::from_bytes).transpose();
                let turn = turn.map_err(|_| fault("its turn has no valid id"))?;
                let turn = turn.ok_or_else(|| fault("it belongs to no turn"))?;
                ledger.take(session, turn, payload).map_err(fault)?;
            }
        }
        Ok(())
    })?;
    for operation in ledger.operations.values() {
        if operation.status == Some(Status::Reconciled) {
            ledger.doubted.extend(operation.checkpoint.map(|(id, _)| id));
            ledger.doubted.extend(operation.covered.map(|(id, _)| id));
        }
        if let Some((id, rows)) = operation.checkpoint
            && !ledger.evicted.contains(&id)
        {
            ledger.checkpoints.insert(id, (rows, operation.commit_state()));
            if operation.dispatched && operation.inflight.is_none() {
                ledger.parts.entry(id).or_default();
            }
        }
        if let Some((id, ordinal)) = operation.covered
            && operation.status == Some(Status::Succeeded)
            && !ledger.evicted.contains(&id)
        {
            ledger.parts.entry(id).or_default().insert(u64::from(ordinal));
        }
    }
    Ok(ledger)
}

impl Operation {
    fn take(&mut self, payload: Payload) -> Result<(), JournalError> {
        self.status = Some(Status::next(self.status, &payload)?);
        match payload {
            Payload::CheckpointCommitted { checkpoint_id, rows, authorization_id, .. } => {
                self.checkpoint = Some((checkpoint_id, rows));
                self.authorization = Some(authorization_id);
            }
            Payload::UnprotectedOperationRecorded { authorization_id, .. } => {
                self.authorization = Some(authorization_id);
            }
            Payload::TargetCovered { checkpoint_id, ordinal, authorization_id, .. } => {
                self.covered = Some((checkpoint_id, ordinal));
                self.authorization = Some(authorization_id);
            }
            Payload::AuthorizationConsumed { .. } => self.authorization = None,
            Payload::EffectDispatchCommitted { inflight } => {
                self.inflight = inflight;
                self.dispatched = true;
            }
            _ => {}
        }
        Ok(())
    }

    /// The word that the row of its checkpoint has for what became of it.
    fn commit_state(&self) -> &'static str {
        match self.status {
            Some(Status::Succeeded) => "committed",
            Some(Status::Failed) => "failed",
            // Seen not to have been made; what was given up beforehand stays pending.
            Some(Status::Cancelled) if self.dispatched => "failed",
            _ => "pending",
        }
    }
}

impl Ledger {
    fn take(
        &mut self,
        session_id: SessionId,
        turn: TurnId,
        payload: Payload,
    ) -> Result<(), &'static str> {
        match payload {
            Payload::PromptSubmitted { prompt_round, row } => {
                let entry = TurnEntry { session_id, prompt_round, row, end: None };
                match self.turns.insert(turn, entry) {
                    None => Ok(()),
                    Some(_) => Err("its turn began before"),
                }
            }
            Payload::RunEnded { stop_reason, exit_code, ended_at, messages } => {
                let entry = self.turns.get_mut(&turn).ok_or("its turn never began")?;
                let end = TurnEntryEnd { stop_reason, exit_code, ended_at, messages };
                match entry.end.replace(end) {
                    None => Ok(()),
                    Some(_) => Err("its turn ended before"),
                }
            }
            Payload::RunStarted { .. } => Ok(()),
            _ => Err("it is of an operation and names none"),
        }
    }

    fn made(&mut self, checkpoint: CheckpointId, operation: OperationId, turn: Option<&[u8]>) {
        self.makers.insert(checkpoint, operation);
        let turn = turn.and_then(|turn| TurnId::from_bytes(turn).ok());
        if let Some(entry) = turn.and_then(|turn| self.turns.get(&turn)) {
            self.rounds.entry(entry.session_id).or_default().insert(entry.prompt_round);
        }
    }

    /// What the store says of itself. Only what was there can go, once, and nothing that an operation
    /// without an end may still need.
    fn of_store(&mut self, payload: Payload) -> Result<(), &'static str> {
        let Payload::CheckpointsEvicted { checkpoint_ids, .. } = payload else { return Ok(()) };
        for id in checkpoint_ids {
            let maker = self.makers.get(&id).ok_or("it evicts a checkpoint that never was")?;
            let status = self.status(*maker);
            if status.is_none_or(|status| !status.is_terminal() || status == Status::UnknownOutcome) {
                return Err("it evicts a checkpoint of an operation without an end");
            }
            if !self.evicted.insert(id) {
                return Err("it evicts a checkpoint that was gone");
            }
        }
        Ok(())
    }

    /// Where an operation stands.
    pub fn status(&self, operation: OperationId) -> Option<Status> {
        self.operations.get(&operation)?.status
    }

    /// Whether a checkpoint was freed on purpose.
    pub fn is_evicted(&self, checkpoint: CheckpointId) -> bool {
        self.evicted.contains(&checkpoint)
    }

    /// How many operations have no proven end.
    pub fn open_operations(&self) -> u64 {
        let open = self.operations.values().filter(|operation| {
            operation
                .status
                .is_none_or(|status| !status.is_terminal() || status == Status::UnknownOutcome)
        });
        u64::try_from(open.count()).unwrap_or(u64::MAX)
    }

    /// Where `inflight` and `authorization` say something else than the journal.
    pub fn audit(&self, store: &impl Rows) -> Result<Vec<RowFault>, StoreError> {
        let mut faults = Vec::new();
        let rows = match Inflight::all(store) {
            Ok(rows) => rows,
            Err(StoreError::Corrupt(problem)) => {
                faults.push(RowFault { table: "inflight", row: String::new(), problem });
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        let mut there = BTreeMap::new();
        for row in rows {
            there.insert(row.operation_id, row.digest());
        }
        let fault = |table, row: &dyn std::fmt::Display, problem: &str| RowFault {
            table,
            row: row.to_string(),
            problem: problem.to_owned(),
        };
        for (id, operation) in &self.operations {
            let needed = operation.inflight.filter(|_| {
                operation.status.is_some_and(|status| {
                    matches!(status, Status::DispatchCommitted | Status::UnknownOutcome)
                })
            });
            match (there.remove(id), operation.inflight, needed) {
                (None, _, Some(_)) => {
                    faults.push(fault("inflight", id, "it is gone, and its operation is not settled"));
                }
                (Some(found), Some(written), _) if found != written => {
                    faults.push(fault("inflight", id, "it is not what was dispatched"));
                }
                (Some(_), None, _) => {
                    faults.push(fault("inflight", id, "its operation was never dispatched"));
                }
                (Some(_) | None, ..) => {}
            }
        }
        faults.extend(there.keys().map(|id| fault("inflight", id, "its operation is unknown")));
        faults.extend(self.audit_authorizations(store)?);
        Ok(faults)
    }

    fn audit_authorizations(&self, store: &impl Rows) -> Result<Vec<RowFault>, StoreError> {
        let mut faults = Vec::new();
        let mut found = BTreeMap::new();
        store.each("SELECT authorization_id, operation_id FROM authorization", [], |row| {
            found.insert(row.get::<_, Vec<u8>>(1)?, row.get::<_, Vec<u8>>(0)?);
            Ok::<_, StoreError>(())
        })?;
        for (id, operation) in &self.operations {
            let there = found.remove(id.as_bytes().as_slice());
            let open = operation.status.is_some_and(|status| !status.is_terminal());
            let due = operation.authorization.filter(|_| open);
            let same = match (&there, operation.authorization) {
                (Some(there), Some(minted)) => there.as_slice() == minted.as_bytes().as_slice(),
                (Some(_), None) => false,
                (None, _) => due.is_none(),
            };
            if !same {
                let problem = "it is not what the journal says was permitted".to_owned();
                faults.push(RowFault { table: "authorization", row: id.to_string(), problem });
            }
        }
        if !found.is_empty() {
            let problem = format!("{} rows are of no known operation", found.len());
            faults.push(RowFault { table: "authorization", row: String::new(), problem });
        }
        Ok(faults)
    }
}
