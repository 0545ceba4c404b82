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
            let consumed = tx.execute(
                "DELETE FROM authorization WHERE authorization_id = ?1 AND operation_id = ?2",
                (authorization.as_bytes().as_slice(), operation_id.as_bytes().as_slice()),
            )?;
            if consumed != 1 {
                return Err(JournalError::NotAuthorized);
            }
            inflight.insert(tx)?;
            stage.push(event(Payload::AuthorizationConsumed { authorization_id: authorization }));
            let digest = Some(inflight.digest());
            stage.push(event(Payload::EffectDispatchCommitted { inflight: digest }));
            Ok(())
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        crypto::KeySource,
        id::{Digest, SessionId},
        journal::{Fault, Provenance},
        store::{Lease, StatePlace},
    };

    struct Bench {
        _dir: tempfile::TempDir,
        place: StatePlace,
        root: String,
        host: Host,
    }

    impl Bench {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path().join("ws");
            rustix::fs::mkdir(&root, rustix::fs::Mode::RWXU).unwrap();
            let place = StatePlace { dir: dir.path().join("state"), key: dir.path().join("state.key") };
            Self { place, root: root.to_str().unwrap().to_owned(), host: Host::real(), _dir: dir }
        }

        fn store(&self) -> Store {
            Store::prepare(&self.place, &self.root).unwrap();
            let lease =
                Lease::take(&self.host, &self.root, &self.place, Duration::from_secs(5)).unwrap();
            let key = KeySource::Beside(self.place.key.clone());
            Store::open(&self.host, &self.place, &self.root, &key, lease).unwrap()
        }

        /// Changes rows behind the triggers' back.
        fn alter(&self, sql: &str) {
            let connection = rusqlite::Connection::open(self.place.dir.join("state.db")).unwrap();
            let triggers = "SELECT group_concat(sql, ';') FROM sqlite_schema WHERE type = 'trigger'";
            let again: String = connection.query_row(triggers, [], |row| row.get(0)).unwrap();
            let batch = format!(
                "DROP TRIGGER journal_no_update; DROP TRIGGER journal_no_delete; {sql}; {again}"
            );
            connection.execute_batch(&batch).unwrap();
        }

        fn about(&self) -> Event {
            Event {
                session_id: SessionId::from_uuid(self.host.uuid()),
                turn_id: None,
                operation_id: None,
                parent_operation_id: None,
                provenance: Provenance::Deterministic,
                payload: Payload::RunStarted {
                    tool_version: "0".to_owned(),
                    pid: 1,
                    policy: Digest::of(b""),
                },
            }
        }

        fn append(&self, log: &mut Log, store: &Store, events: &[Event]) -> Result<(), JournalError> {
            log.write(&self.host, store, Durability::Full, |_, stage| {
                events.iter().for_each(|event| stage.push(event.clone()));
                Ok(())
            })
        }
    }

    fn rows(store: &Store) -> i64 {
        store.first("SELECT count(*) FROM journal", [], |row| row.get(0)).unwrap().unwrap()
    }

    #[test]
    fn rows_chain_over_transactions_and_openings() {
        let bench = Bench::new();
        let mut store = bench.store();
        let mut log = Log::open(&store).unwrap();
        let event = bench.about();
        bench.append(&mut log, &store, &[event.clone(), event.clone()]).unwrap();
        bench.append(&mut log, &store, std::slice::from_ref(&event)).unwrap();
        store.anchor(log.head()).unwrap();
        bench.append(&mut log, &store, &[event]).unwrap();
        let head = log.head();
        store.close().unwrap();
        let store = bench.store();
        assert_eq!((Log::open(&store).unwrap().head(), rows(&store)), (head, 4));
        assert_eq!(verify(&store, Head::EMPTY, Some(&store.keys().journal)).unwrap(), head);
    }

    #[test]
    fn an_illegal_event_leaves_nothing_behind() {
        let bench = Bench::new();
        let store = bench.store();
        let mut log = Log::open(&store).unwrap();
        let operation = Some(OperationId::from_uuid(bench.host.uuid()));
        let terminal =
            Event { operation_id: operation, payload: Payload::OperationSucceeded {}, ..bench.about() };
        let failed = bench.append(&mut log, &store, &[bench.about(), terminal]);
        assert!(matches!(failed, Err(JournalError::Illegal(_))));
        assert_eq!((rows(&store), log.head()), (0, Head::EMPTY));
    }

    /// What an editor of the database could do to a row: every one is found.
    #[test]
    fn a_row_that_was_changed_moved_or_dropped_is_found() {
        let change = |sql: &str| {
            let bench = Bench::new();
            let store = bench.store();
            let mut log = Log::open(&store).unwrap();
            for _ in 0..4 {
                bench.append(&mut log, &store, &[bench.about()]).unwrap();
            }
            store.close().unwrap();
            bench.alter(sql);
            let store = bench.store();
            Log::open(&store)
        };
        assert!(change("SELECT 1").is_ok(), "the test itself changes nothing");
        for (sql, seq) in [
            ("UPDATE journal SET payload = replace(payload, '\"pid\":1', '\"pid\":2') WHERE seq = 2", 2),
            ("UPDATE journal SET timestamp = timestamp + 1 WHERE seq = 3", 3),
            ("UPDATE journal SET kind = 'RunEnded' WHERE seq = 1", 1),
            ("UPDATE journal SET turn_id = x'00' WHERE seq = 1", 1),
            ("UPDATE journal SET hash = zeroblob(32) WHERE seq = 4", 4),
            ("UPDATE journal SET mac = zeroblob(32) WHERE seq = 4", 4),
            ("UPDATE journal SET mac = NULL WHERE seq = 4", 4),
            ("DELETE FROM journal WHERE seq = 2", 3),
            ("DELETE FROM journal WHERE seq = 1", 2),
        ] {
            match change(sql) {
                Err(JournalError::Broken(Fault { seq: found, .. })) => assert_eq!(found, seq, "{sql}"),
                other => panic!("{sql}: {other:?}"),
            }
        }
    }

    #[test]
    fn rows_that_were_durable_and_are_gone_are_missed() {
        let bench = Bench::new();
        let mut store = bench.store();
        let mut log = Log::open(&store).unwrap();
        for _ in 0..3 {
            bench.append(&mut log, &store, &[bench.about()]).unwrap();
        }
        store.anchor(log.head()).unwrap();
        store.close().unwrap();
        bench.alter("DELETE FROM journal WHERE seq = 3");
        let store = bench.store();
        assert!(matches!(Log::open(&store), Err(JournalError::Store(StoreError::Behind(_)))));
    }

    #[test]
    fn the_journal_is_append_only() {
        let bench = Bench::new();
        let store = bench.store();
        let mut log = Log::open(&store).unwrap();
        bench.append(&mut log, &store, &[bench.about()]).unwrap();
        for sql in ["UPDATE journal SET kind = 'x'", "DELETE FROM journal"] {
            let done: Result<usize, StoreError> = store.tx(Durability::Normal, |tx| tx.execute(sql, []));
            assert!(done.is_err(), "{sql}");
        }
    }
}
