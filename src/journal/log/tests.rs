//! Appending, reopening, and rows that somebody altered.

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
        let lease = Lease::take(&self.host, &self.root, &self.place, Duration::from_secs(5)).unwrap();
        let key = KeySource::Beside(self.place.key.clone());
        Store::open(&self.host, &self.place, &self.root, &key, lease).unwrap()
    }

    /// Changes rows behind the triggers' back.
    fn alter(&self, sql: &str) {
        let connection = rusqlite::Connection::open(self.place.dir.join("state.db")).unwrap();
        let triggers = "SELECT group_concat(sql, ';') FROM sqlite_schema WHERE type = 'trigger'";
        let again: String = connection.query_row(triggers, [], |row| row.get(0)).unwrap();
        let batch =
            format!("DROP TRIGGER journal_no_update; DROP TRIGGER journal_no_delete; {sql}; {again}");
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
