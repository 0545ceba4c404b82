//! Against real stores: what is kept comes back whole, or is told as corrupt.

use std::time::Duration;

use super::{
    message::{Place, count},
    *,
};
use crate::{
    crypto::KeySource,
    id::MessageId,
    store::{Durability, Lease, ReadStore, StatePlace},
};

struct Bench {
    dir: tempfile::TempDir,
    host: Host,
}

impl Bench {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), host: Host::real() }
    }

    fn place(&self) -> StatePlace {
        StatePlace { dir: self.dir.path().join("state"), key: self.dir.path().join("state.key") }
    }

    fn store(&self) -> Store {
        let (place, root) = (self.place(), self.dir.path().join("ws"));
        let root = root.to_str().unwrap();
        std::fs::create_dir_all(root).unwrap();
        Store::prepare(&place, root).unwrap();
        let lease = Lease::take(&self.host, root, &place, Duration::from_secs(5)).unwrap();
        Store::open(&self.host, &place, root, &KeySource::Beside(place.key.clone()), lease).unwrap()
    }

    fn message(&self, content: &str) -> StoredMessage {
        StoredMessage {
            message_id: MessageId::from_uuid(self.host.uuid()),
            role: StoredRole::Assistant,
            content: content.to_owned(),
            tool_calls: vec![StoredCall {
                id: "c".to_owned(),
                name: "n".to_owned(),
                arguments: "{".to_owned(),
            }],
            tool_call_id: None,
        }
    }

    /// A turn with these messages after those that are there.
    fn turn(
        &self,
        store: &Store,
        start: Start,
        label: Option<&str>,
        messages: &[StoredMessage],
    ) -> Result<u32, SessionError> {
        let turn = TurnId::from_uuid(self.host.uuid());
        store.tx(Durability::Normal, |tx| {
            let (round, _) = begin(&self.host, store, tx, start, turn, label)?;
            let session = start.session();
            append(&self.host, store, tx, session, turn, count(tx, session)?, messages)?;
            end(tx, turn, "final-answer", 0, self.host.now())?;
            Ok(round)
        })
    }

    fn new_id(&self) -> SessionId {
        SessionId::from_uuid(self.host.uuid())
    }
}

/// An id with this random part.
fn crafted(time: u64, random: u64) -> SessionId {
    let uuid = u128::from(time) << 80 | 7 << 76 | 0xa << 60 | u128::from(random) << 64 | 0x1234;
    SessionId::from_uuid(uuid::Uuid::from_u128(uuid))
}

#[test]
fn rounds_count_up_and_a_history_comes_back_in_order() {
    let bench = Bench::new();
    let store = bench.store();
    let session = bench.new_id();
    let messages: Vec<_> = ["one", "two", "three"].map(|text| bench.message(text)).into();
    let first = bench.turn(&store, Start::New(session), None, messages.get(..2).unwrap()).unwrap();
    let second =
        bench.turn(&store, Start::Continue(session), Some("x"), messages.get(2..).unwrap()).unwrap();
    assert_eq!((first, second), (1, 2));
    assert_eq!(history(&store, store.keys(), session).unwrap(), messages);
    store.close().unwrap();
    let place = bench.place();
    let reader = ReadStore::open(&place.dir).unwrap();
    let keys = reader.unlock(&KeySource::Beside(place.key)).unwrap();
    assert_eq!(history(&reader, &keys, session).unwrap(), messages);
    let told = list(&reader, None).unwrap().remove(0);
    assert_eq!((told.rounds, told.messages, told.label()), (2, 3, None));
    let told = list(&reader, Some(&keys)).unwrap().remove(0);
    assert_eq!(told.label(), Some("x"));
    assert_eq!(told.turns.last().unwrap().end.as_ref().unwrap().stop_reason, "final-answer");
}

#[test]
fn a_fork_has_the_history_and_its_own_rounds() {
    let bench = Bench::new();
    let store = bench.store();
    let (from, into) = (bench.new_id(), bench.new_id());
    let messages = ["one", "two"].map(|text| bench.message(text));
    bench.turn(&store, Start::New(from), None, &messages).unwrap();
    let more = bench.message("three");
    let round =
        bench.turn(&store, Start::Fork { from, into }, None, std::slice::from_ref(&more)).unwrap();
    assert_eq!(round, 1);
    let [one, two] = messages.clone();
    assert_eq!(history(&store, store.keys(), into).unwrap(), [one, two, more]);
    assert_eq!(history(&store, store.keys(), from).unwrap(), messages, "the other is as it was");
    assert_eq!(list(&store, None).unwrap().first().unwrap().forked_from, Some(from));
}

#[test]
fn nothing_is_written_out_of_order() {
    let bench = Bench::new();
    let store = bench.store();
    let (session, turn) = (bench.new_id(), TurnId::from_uuid(bench.host.uuid()));
    let unknown = bench.turn(&store, Start::Continue(session), None, &[]);
    assert!(matches!(unknown, Err(SessionError::Unknown { .. })));
    bench.turn(&store, Start::New(session), None, &[bench.message("one")]).unwrap();
    assert!(bench.turn(&store, Start::New(session), None, &[]).is_err(), "it is there already");
    for first in [0, 2] {
        let done: Result<(), SessionError> = store.tx(Durability::Normal, |tx| {
            append(&bench.host, &store, tx, session, turn, first, &[bench.message("x")])
        });
        assert!(matches!(done, Err(SessionError::Corrupt { .. })), "{first}");
    }
    let done: Result<(), SessionError> =
        store.tx(Durability::Normal, |tx| end(tx, turn, "x", 0, bench.host.now()));
    assert!(done.is_err(), "a turn that never began");
}

/// What an editor of the database could do to a history: every one is found.
#[test]
fn a_history_that_was_changed_is_never_served() {
    let changed = |sql: &str| {
        let bench = Bench::new();
        let store = bench.store();
        let (one, other) = (bench.new_id(), bench.new_id());
        for session in [one, other] {
            let messages = ["a", "b", "c"].map(|text| bench.message(text));
            bench.turn(&store, Start::New(session), Some("label"), &messages).unwrap();
        }
        let done: Result<usize, StoreError> = store.tx(Durability::Normal, |tx| {
            tx.execute(sql, rusqlite::named_params! {":one": bytes(&one), ":other": bytes(&other)})
        });
        assert!(done.unwrap() > 0, "{sql}");
        list(&store, Some(store.keys()))
            .and_then(|_| history(&store, store.keys(), one).map(|history| history.len()))
    };
    let same = "UPDATE session SET rounds = 1 WHERE session_id IN (:one, :other)";
    assert_eq!(changed(same).unwrap(), 3, "the test itself changes nothing");
    let here = "WHERE session_id = :one";
    let lost = changed(&format!("DELETE FROM message {here} AND ordinal = 1 OR :other IS NULL"));
    assert!(lost.unwrap_err().to_string().ends_with("message 1 is missing"));
    for sql in [
        format!("DELETE FROM message {here} AND ordinal = 2 OR :other IS NULL"),
        format!("DELETE FROM message {here} AND ordinal = 0 OR :other IS NULL"),
        format!("DELETE FROM message {here} AND ordinal = 1 OR :other IS NULL"),
        format!("UPDATE message SET ordinal = 9 {here} AND ordinal = 1 OR :other IS NULL"),
        format!("UPDATE message SET sealed = zeroblob(99) {here} AND ordinal = 1 OR :other IS NULL"),
        format!("UPDATE message SET message_id = zeroblob(16) {here} OR :other IS NULL"),
        format!("UPDATE message SET turn_id = zeroblob(16) {here} OR :other IS NULL"),
        format!(
            "UPDATE message SET sealed = (SELECT sealed FROM message AS o \
             WHERE o.session_id = :other AND o.ordinal = message.ordinal), \
             message_id = (SELECT message_id FROM message AS o \
             WHERE o.session_id = :other AND o.ordinal = message.ordinal), \
             turn_id = (SELECT turn_id FROM message AS o \
             WHERE o.session_id = :other AND o.ordinal = message.ordinal) {here}"
        ),
        format!(
            "UPDATE turn SET sealed_label = (SELECT sealed_label FROM turn AS o \
             WHERE o.session_id = :other) {here}"
        ),
        format!("UPDATE turn SET ended_at = NULL {here} OR :other IS NULL"),
    ] {
        let found = changed(&sql);
        assert!(matches!(found, Err(SessionError::Corrupt { .. })), "{sql}: {found:?}");
    }
}

#[test]
fn a_form_of_a_later_version_is_told_as_one() {
    let bench = Bench::new();
    let store = bench.store();
    let session = bench.new_id();
    bench.turn(&store, Start::New(session), None, &[]).unwrap();
    let place = Place { store: store.facts().id, session, ordinal: 0 };
    let later = br#"{"version":2,"message":{"new":true}}"#;
    let sealed =
        store.keys().small.seal(&bench.host, &place.context(&[1; 16], &[2; 16]), later).unwrap();
    let done: Result<(), StoreError> = store.tx(Durability::Normal, |tx| {
        let insert = "INSERT INTO message VALUES (?1, 0, ?2, ?3, ?4)";
        tx.execute_one(insert, (bytes(&session), [1u8; 16], [2u8; 16], sealed))?;
        tx.execute_one("UPDATE session SET messages = 1", [])
    });
    done.unwrap();
    let found = history(&store, store.keys(), session);
    assert!(matches!(found, Err(SessionError::Newer { found: 2 })), "{found:?}");
}

#[test]
fn a_name_finds_one_session_or_says_which() {
    let bench = Bench::new();
    let store = bench.store();
    assert!(matches!(find(&store, None, "last"), Err(SessionError::NoneYet)));
    // The later id is begun first: order is that of the turns, not of clocks or ids.
    let (one, two, three) = (crafted(9, 0x0abc), crafted(5, 0x0abd), crafted(7, 0x0f00));
    for (session, label) in [(one, Some("nightly")), (two, Some("nightly")), (three, Some("ab"))] {
        bench.turn(&store, Start::New(session), label, &[]).unwrap();
    }
    let keys = Some(store.keys());
    let found = |text: &str| find(&store, keys, text);
    assert_eq!(found("last").unwrap(), three);
    assert_eq!(found("latest").unwrap(), three);
    assert_eq!(found(&two.to_string()).unwrap(), two);
    assert_eq!(found("abc").unwrap(), one);
    assert_eq!(found("f").unwrap(), three);
    let ambiguous = |text: &str| match found(text) {
        Err(SessionError::Ambiguous { found, .. }) => found,
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(ambiguous("nightly"), [two, one]);
    assert_eq!(ambiguous("ab"), [three, two, one], "a label and prefixes alike");
    let told = found("nightly").unwrap_err().to_string();
    assert!(told.contains(&one.to_string()) && told.contains(&two.to_string()), "{told}");
    for unknown in [
        "",
        "abe",
        "../../etc/passwd",
        "ABC",
        "%",
        "a_c",
        "' OR 1=1 --",
        "LAST",
        one.to_string().get(..9).unwrap(),
    ] {
        assert!(matches!(found(unknown), Err(SessionError::Unknown { .. })), "{unknown}");
    }
    assert!(matches!(find(&store, None, "nightly"), Err(SessionError::Unknown { labels: false, .. })));
    bench.turn(&store, Start::Continue(one), None, &[]).unwrap();
    assert_eq!(find(&store, None, "last").unwrap(), one, "the latest turn decides");
}
