//! Appending: events are staged inside a transaction and chained at its end, so that they commit
//! with the rows that they speak of, or not at all.

use std::collections::HashMap;

use super::{
    ENDING_KINDS, Event, IllegalEvent, Inflight, JournalError, Payload, Status, StoredEvent,
    chain::{Row, hash_at, verify},
};
use crate::{
    host::{CrashPoint, Host},
    id::{AuthorizationId, EventId, OperationId},
    store::{Durability, Head, Rows, Store, StoreError, Tx},
};

#[cfg(test)]
mod tests;

/// The proof that an operation's intent is durable. Only [`Log::dispatch`] makes one, and only after
/// the commit and the anchor.
#[derive(Debug, PartialEq, Eq)]
pub struct DispatchCommitted {
    operation_id: OperationId,
}

impl DispatchCommitted {
    /// The operation whose effect may happen now.
    pub fn operation_id(&self) -> OperationId {
        self.operation_id
    }
}

/// How many operations have no end, or left something beside their target: each that was proposed has
/// exactly one end in the long run, so that counting suffices.
pub fn interrupted(store: &impl Rows) -> Result<u64, StoreError> {
    let sql = format!(
        "SELECT (SELECT count(*) FROM journal WHERE kind = 'OperationProposed') \
        - (SELECT count(*) FROM journal WHERE kind IN ({ENDING_KINDS})) \
        + (SELECT count(*) FROM inflight WHERE operation_id IN \
           (SELECT operation_id FROM journal WHERE kind = 'OperationFailed'))"
    );
    let found = store.first(&sql, [], |row| row.get::<_, i64>(0))?.unwrap_or(0);
    Ok(u64::try_from(found).unwrap_or(0))
}

/// The journal, open for appending.
#[derive(Debug)]
pub struct Log {
    head: Head,
    /// Where the operations stand that this process has open.
    open: HashMap<OperationId, Status>,
}

/// How an operation is ended.
#[derive(Debug, Clone, Copy)]
pub struct Settling<'a> {
    /// The event that ends it.
    pub terminal: &'a Event,
    /// Whether what recovery needs stays.
    pub keep_inflight: bool,
    /// What the commit waits for.
    pub durability: Durability,
}

/// One part of an operation: a file of its checkpoint.
#[derive(Debug)]
pub struct Part {
    /// What comes before its dispatch, in order.
    pub before: Vec<Event>,
    /// What recovery needs of it.
    pub inflight: Inflight,
}

/// How one part is ended.
#[derive(Debug)]
pub struct PartEnd<'a> {
    /// Whose intent it was.
    pub proof: &'a DispatchCommitted,
    /// The event that ends it.
    pub terminal: Event,
    /// Whether what recovery needs stays.
    pub keep_inflight: bool,
}

/// The events of a transaction in progress.
#[derive(Debug, Default)]
pub struct Stage {
    events: Vec<Event>,
}

impl Stage {
    /// Adds an event to the transaction.
    pub fn push(&mut self, event: Event) {
        self.events.push(event);
    }
}

impl Log {
    /// Opens the journal of a store: the anchored row must be there with its hash, and every row
    /// after it must follow.
    pub fn open(store: &Store) -> Result<Self, JournalError> {
        let anchored = store.anchored();
        if anchored.seq > 0 && hash_at(store, anchored.seq)?.as_deref() != Some(anchored.hash.as_slice())
        {
            let lost = format!("row {} is gone or is another one", anchored.seq);
            return Err(StoreError::Behind(lost).into());
        }
        let head = verify(store, anchored, Some(&store.keys().journal))?;
        Ok(Self { head, open: HashMap::new() })
    }

    /// Takes up an operation that an earlier run left: its events, folded, say where it stands. The
    /// proof that it was dispatched, if it was.
    pub fn take_up(
        &mut self,
        operation: OperationId,
        events: &[StoredEvent],
    ) -> Result<Option<DispatchCommitted>, IllegalEvent> {
        let mut status = None;
        let mut dispatched = None;
        for event in events.iter().filter(|event| event.operation_id == operation) {
            status = Some(Status::next(status, &event.payload)?);
            if matches!(event.payload, Payload::EffectDispatchCommitted { .. }) {
                dispatched = Some(DispatchCommitted { operation_id: operation });
            }
        }
        if let Some(status) = status {
            self.open.insert(operation, status);
        }
        Ok(dispatched)
    }

    /// The last row.
    pub fn head(&self) -> Head {
        self.head
    }

    /// Runs a transaction that writes rows and events together.
    pub fn write<T, E>(
        &mut self,
        host: &Host,
        store: &Store,
        durability: Durability,
        work: impl FnOnce(&Tx<'_>, &mut Stage) -> Result<T, E>,
    ) -> Result<T, E>
    where
        E: From<StoreError> + From<JournalError>,
    {
        let (value, head, changed) = store.tx(durability, |tx| {
            let mut stage = Stage::default();
            let value = work(tx, &mut stage)?;
            let changed = self.folded(&stage).map_err(JournalError::from)?;
            let head = self.append(host, store, tx, &stage)?;
            Ok::<_, E>((value, head, changed))
        })?;
        self.head = head;
        for (operation, status) in changed {
            if status.is_terminal() {
                self.open.remove(&operation);
            } else {
                self.open.insert(operation, status);
            }
        }
        Ok(value)
    }

    /// Makes an operation's intent durable: its authorization is consumed, what recovery needs is
    /// written, the commit and then the anchor are synced. Two syncs. Where the anchor can't be written
    /// nothing is made of the intent: the operation has failed, and `abandoned` is written with that.
    pub fn dispatch(
        &mut self,
        host: &Host,
        store: &mut Store,
        about: &Event,
        authorization: AuthorizationId,
        inflight: &Inflight,
        abandoned: impl FnOnce(&Tx<'_>) -> Result<(), StoreError>,
    ) -> Result<DispatchCommitted, JournalError> {
        let operation_id = inflight.operation_id;
        let event = |payload| Event { payload, operation_id: Some(operation_id), ..about.clone() };
        // The anchor must never be durable before the commit that it speaks of.
        let anchor_first = host.fault("anchor-first");
        let durability = if anchor_first { Durability::Normal } else { Durability::Full };
        self.write(host, store, durability, |tx, stage| {
            consume(tx, authorization, Some(operation_id))?;
            inflight.insert(tx)?;
            stage.push(event(Payload::AuthorizationConsumed { authorization_id: authorization }));
            let digest = Some(inflight.digest());
            stage.push(event(Payload::EffectDispatchCommitted { inflight: digest }));
            Ok::<_, JournalError>(())
        })?;
        host.crash_point(CrashPoint::Dispatched);
        let dispatched = DispatchCommitted { operation_id };
        if let Err(error) = store.anchor(self.head) {
            let failed = event(Payload::OperationFailed { cause: "anchor-unavailable".to_owned() });
            let settling =
                Settling { terminal: &failed, keep_inflight: false, durability: Durability::Normal };
            if let Err(second) = self.settle(host, store, &dispatched, settling, abandoned) {
                tracing::warn!("the operation has no end in the journal: {second}");
            }
            return Err(error.into());
        }
        Ok(dispatched)
    }

    /// As [`Log::dispatch`], for a command: it has no images, and nothing of it can be put back.
    pub fn dispatch_command(
        &mut self,
        host: &Host,
        store: &mut Store,
        about: &Event,
        operation_id: OperationId,
    ) -> Result<DispatchCommitted, JournalError> {
        let event = |payload| Event { payload, operation_id: Some(operation_id), ..about.clone() };
        let authorization_id = AuthorizationId::from_uuid(host.uuid());
        self.write(host, store, Durability::Full, |_, stage| {
            stage.push(event(Payload::UnprotectedOperationRecorded { bytes: None, authorization_id }));
            stage.push(event(Payload::AuthorizationConsumed { authorization_id }));
            stage.push(event(Payload::EffectDispatchCommitted { inflight: None }));
            Ok::<_, JournalError>(())
        })?;
        host.crash_point(CrashPoint::Dispatched);
        store.anchor(self.head)?;
        Ok(DispatchCommitted { operation_id })
    }

    /// As [`Log::dispatch`], for parts of an operation, all in one commit: two syncs for all of them.
    /// With `whole` the operation itself is dispatched with its first parts; its permission is consumed.
    pub fn dispatch_parts(
        &mut self,
        host: &Host,
        store: &mut Store,
        whole: Option<(&Event, AuthorizationId)>,
        parts: Vec<Part>,
    ) -> Result<Vec<DispatchCommitted>, JournalError> {
        self.write(host, store, Durability::Full, |tx, stage| {
            if let Some((about, authorization_id)) = whole {
                consume(tx, authorization_id, about.operation_id)?;
                for payload in [
                    Payload::AuthorizationConsumed { authorization_id },
                    Payload::EffectDispatchCommitted { inflight: None },
                ] {
                    stage.push(Event { payload, ..about.clone() });
                }
            }
            for part in &parts {
                part.inflight.insert(tx)?;
                part.before.iter().for_each(|event| stage.push(event.clone()));
                let Some(last) = part.before.last() else { continue };
                let digest = Some(part.inflight.digest());
                let payload = Payload::EffectDispatchCommitted { inflight: digest };
                stage.push(Event { payload, ..last.clone() });
            }
            Ok::<_, JournalError>(())
        })?;
        host.crash_point(CrashPoint::Dispatched);
        let proofs: Vec<_> = parts
            .iter()
            .map(|part| DispatchCommitted { operation_id: part.inflight.operation_id })
            .collect();
        if let Err(error) = store.anchor(self.head) {
            let cause = || "anchor-unavailable".to_owned();
            let ends = proofs.iter().zip(&parts).filter_map(|(proof, part)| {
                let payload = Payload::OperationFailed { cause: cause() };
                let terminal = Event { payload, ..part.before.last()?.clone() };
                Some(PartEnd { proof, terminal, keep_inflight: false })
            });
            let ends = ends.collect::<Vec<_>>();
            if let Err(second) = self.settle_parts(host, store, &ends) {
                tracing::warn!("parts of the operation have no end in the journal: {second}");
            }
            return Err(error.into());
        }
        Ok(proofs)
    }

    /// Ends parts of an operation, all in one commit, which the next durable one covers.
    pub fn settle_parts(
        &mut self,
        host: &Host,
        store: &Store,
        ends: &[PartEnd<'_>],
    ) -> Result<(), JournalError> {
        self.write(host, store, Durability::Normal, |tx, stage| {
            for end in ends {
                let operation_id = end.proof.operation_id;
                if !end.keep_inflight {
                    Inflight::delete(tx, operation_id)?;
                }
                stage.push(Event { operation_id: Some(operation_id), ..end.terminal.clone() });
            }
            Ok(())
        })
    }

    /// Ends an operation. One that is proven takes its row of `inflight` along; one that isn't keeps
    /// it, for recovery.
    pub fn settle(
        &mut self,
        host: &Host,
        store: &Store,
        dispatched: &DispatchCommitted,
        settling: Settling<'_>,
        beside: impl FnOnce(&Tx<'_>) -> Result<(), StoreError>,
    ) -> Result<(), JournalError> {
        let operation_id = dispatched.operation_id;
        self.write(host, store, settling.durability, |tx, stage| {
            if !settling.keep_inflight {
                Inflight::delete(tx, operation_id)?;
            }
            beside(tx)?;
            stage.push(Event { operation_id: Some(operation_id), ..settling.terminal.clone() });
            Ok(())
        })
    }

    /// Where the staged events lead the operations that they speak of.
    fn folded(&self, stage: &Stage) -> Result<HashMap<OperationId, Status>, IllegalEvent> {
        let mut changed: HashMap<OperationId, Status> = HashMap::new();
        for event in &stage.events {
            if let Some(operation) = event.operation_id {
                let before = changed.get(&operation).or_else(|| self.open.get(&operation)).copied();
                changed.insert(operation, Status::next(before, &event.payload)?);
            }
        }
        Ok(changed)
    }

    fn append(
        &self,
        host: &Host,
        store: &Store,
        tx: &Tx<'_>,
        stage: &Stage,
    ) -> Result<Head, JournalError> {
        let mut head = self.head;
        let mut events = stage.events.iter().peekable();
        while let Some(event) = events.next() {
            let payload = serde_json::to_string(&event.payload)
                .map_err(|error| StoreError::Corrupt(format!("an event can't be written: {error}")))?;
            let event_id = EventId::from_uuid(host.uuid());
            let row = Row {
                seq: head.seq + 1,
                event_id: event_id.as_bytes(),
                session_id: event.session_id.as_bytes(),
                turn_id: event.turn_id.as_ref().map(|id| id.as_bytes().as_slice()),
                operation_id: event.operation_id.as_ref().map(|id| id.as_bytes().as_slice()),
                parent_operation_id: event
                    .parent_operation_id
                    .as_ref()
                    .map(|id| id.as_bytes().as_slice()),
                kind: event.payload.kind(),
                schema_version: i64::from(event.payload.version()),
                timestamp: host.now().as_millis(),
                provenance: event.provenance.token(),
                payload: &payload,
            };
            let hash = row.hash(&head.hash);
            let mac = events.peek().is_none().then(|| store.keys().journal.of_bytes(&hash));
            tx.execute_one(
                "INSERT INTO journal VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
                rusqlite::params![
                    i64::try_from(row.seq).unwrap_or(i64::MAX),
                    row.event_id,
                    row.session_id,
                    row.turn_id,
                    row.operation_id,
                    row.parent_operation_id,
                    row.kind,
                    row.schema_version,
                    row.timestamp,
                    row.provenance,
                    row.payload,
                    hash.as_slice(),
                    mac.as_ref().map(|mac| mac.as_bytes().as_slice()),
                ],
            )?;
            head = Head { seq: row.seq, hash };
        }
        Ok(head)
    }
}

/// Uses a permission up: it is there exactly once, or nothing is dispatched.
fn consume(
    tx: &Tx<'_>,
    authorization: AuthorizationId,
    operation: Option<OperationId>,
) -> Result<(), JournalError> {
    let operation = operation.ok_or(JournalError::NotAuthorized)?;
    let consumed = tx.execute(
        "DELETE FROM authorization WHERE authorization_id = ?1 AND operation_id = ?2",
        (authorization.as_bytes().as_slice(), operation.as_bytes().as_slice()),
    )?;
    if consumed == 1 { Ok(()) } else { Err(JournalError::NotAuthorized) }
}
