//! Messages, sealed for their place. Each counts: one that is missing, altered or moved is told.

use rusqlite::Row;
use serde::{Deserialize, Serialize};

use super::{SessionError, bytes, column, store_id};
use crate::{
    crypto::{Context, Keys},
    host::Host,
    id::{MessageId, SessionId, TurnId},
    store::{Rows, Store, Tx},
};

/// The version of a sealed message's form.
pub(super) const FORM: u32 = 1;

/// A message, in the form in which it is sealed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StoredMessage {
    /// This message.
    pub message_id: MessageId,
    /// Who speaks.
    pub role: StoredRole,
    /// The text, whole.
    pub content: String,
    /// The calls that an assistant message proposes.
    pub tool_calls: Vec<StoredCall>,
    /// The call that a tool message answers.
    pub tool_call_id: Option<String>,
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StoredRole {
    /// The caller.
    User,
    /// The model.
    Assistant,
    /// A tool.
    Tool,
}

/// A call as the model proposed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StoredCall {
    /// The provider's id.
    pub id: String,
    /// The tool's name, as the model wrote it.
    pub name: String,
    /// The arguments, byte for byte.
    pub arguments: String,
}

/// Appends messages. `first_ordinal` is how many the session has: somebody else's messages in
/// between are refused.
pub fn append(
    host: &Host,
    store: &Store,
    tx: &Tx<'_>,
    session: SessionId,
    turn: TurnId,
    first_ordinal: u32,
    messages: &[StoredMessage],
) -> Result<(), SessionError> {
    let there = count(tx, session)?;
    if there != first_ordinal {
        let problem = format!("it has {there} messages, not {first_ordinal}");
        return Err(SessionError::Corrupt { session, problem });
    }
    for (ordinal, message) in (first_ordinal..).zip(messages) {
        let place = Place { store: store.facts().id, session, ordinal };
        insert(host, store.keys(), tx, place, turn, message)?;
    }
    Ok(())
}

/// Every message of a session, in order. One that is missing or can't be opened is an error.
pub fn history(
    store: &impl Rows,
    keys: &Keys,
    session: SessionId,
) -> Result<Vec<StoredMessage>, SessionError> {
    let corrupt = |problem: String| SessionError::Corrupt { session, problem };
    let count = "SELECT messages FROM session WHERE session_id = ?1";
    let expected: u32 = store
        .first(count, [bytes(&session)], |row| row.get(0))?
        .ok_or_else(|| SessionError::Unknown { text: session.to_string(), labels: true })?;
    let store_id = store_id(store)?;
    let mut found = Vec::new();
    let rows = "SELECT ordinal, message_id, turn_id, sealed FROM message \
        WHERE session_id = ?1 ORDER BY ordinal";
    store.each(rows, [bytes(&session)], |row| {
        let sealed = SealedRow::read(row)?;
        let ordinal = u32::try_from(found.len()).unwrap_or(u32::MAX);
        if sealed.ordinal != i64::from(ordinal) {
            return Err(corrupt(format!("message {ordinal} is missing")));
        }
        found.push(sealed.open(keys, Place { store: store_id, session, ordinal })?);
        Ok::<_, SessionError>(())
    })?;
    if found.len() == usize::try_from(expected).unwrap_or(usize::MAX) {
        Ok(found)
    } else {
        Err(corrupt(format!("it has {} messages, not {expected}", found.len())))
    }
}

/// Where a message belongs: what it is sealed for.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) store: [u8; 16],
    pub(super) session: SessionId,
    pub(super) ordinal: u32,
}

impl Place {
    pub(super) fn context(self, message: &[u8], turn: &[u8]) -> Context {
        Context::new("thcode message")
            .field(&self.store)
            .field(self.session.as_bytes())
            .number(self.ordinal.into())
            .field(message)
            .field(turn)
    }
}

/// What is sealed: the form's version goes before the message, so that it can be read first.
#[derive(Serialize, Deserialize)]
struct Form<M> {
    version: u32,
    message: M,
}

#[derive(Deserialize)]
struct FormVersion {
    version: u32,
}

/// A row of `message`.
struct SealedRow {
    ordinal: i64,
    message: Vec<u8>,
    turn: Vec<u8>,
    sealed: Vec<u8>,
}

impl SealedRow {
    fn read(row: &Row<'_>) -> Result<Self, SessionError> {
        Ok(Self {
            ordinal: column(row, 0)?,
            message: column(row, 1)?,
            turn: column(row, 2)?,
            sealed: column(row, 3)?,
        })
    }

    fn open(&self, keys: &Keys, place: Place) -> Result<StoredMessage, SessionError> {
        let corrupt = |problem: &str| SessionError::Corrupt {
            session: place.session,
            problem: format!("message {}: {problem}", place.ordinal),
        };
        let context = place.context(&self.message, &self.turn);
        let plain = keys.small.open(&context, &self.sealed).map_err(|_| corrupt("it is altered"))?;
        let FormVersion { version } =
            serde_json::from_slice(&plain).map_err(|_| corrupt("it has no form"))?;
        if version != FORM {
            return Err(SessionError::Newer { found: version });
        }
        let form: Form<StoredMessage> =
            serde_json::from_slice(&plain).map_err(|_| corrupt("it isn't of its form"))?;
        Ok(form.message)
    }
}

fn insert(
    host: &Host,
    keys: &Keys,
    tx: &Tx<'_>,
    place: Place,
    turn: TurnId,
    message: &StoredMessage,
) -> Result<(), SessionError> {
    let session = place.session;
    let unwritable = |_| SessionError::Corrupt { session, problem: "a message has no form".to_owned() };
    let plain = serde_json::to_vec(&Form { version: FORM, message }).map_err(unwritable)?;
    let plain = zeroize::Zeroizing::new(plain);
    let (id, turn) = (message.message_id.as_bytes().as_slice(), turn.as_bytes().as_slice());
    let sealed = keys.small.seal(host, &place.context(id, turn), &plain)?;
    let insert = "INSERT INTO message (session_id, ordinal, message_id, turn_id, sealed) \
        VALUES (?1, ?2, ?3, ?4, ?5)";
    tx.execute_one(insert, (bytes(&session), place.ordinal, id, turn, sealed))?;
    let counted = "UPDATE session SET messages = messages + 1 WHERE session_id = ?1";
    Ok(tx.execute_one(counted, [bytes(&session)])?)
}

/// Copies a history, each message sealed anew for the session that it goes to.
pub(super) fn copy(
    host: &Host,
    store: &Store,
    tx: &Tx<'_>,
    from: SessionId,
    into: SessionId,
) -> Result<(), SessionError> {
    let row = "SELECT ordinal, message_id, turn_id, sealed FROM message \
        WHERE session_id = ?1 AND ordinal = ?2";
    let id = store.facts().id;
    for ordinal in 0..count(tx, from)? {
        let sealed = tx
            .first(row, (bytes(&from), ordinal), |row| Ok(SealedRow::read(row)))?
            .unwrap_or_else(|| {
                let problem = format!("message {ordinal} is missing");
                Err(SessionError::Corrupt { session: from, problem })
            })?;
        let message = sealed.open(store.keys(), Place { store: id, session: from, ordinal })?;
        let turn = TurnId::from_bytes(&sealed.turn).map_err(|_| SessionError::Corrupt {
            session: from,
            problem: format!("message {ordinal} has no valid turn"),
        })?;
        insert(host, store.keys(), tx, Place { store: id, session: into, ordinal }, turn, &message)?;
    }
    Ok(())
}

/// How many messages a session has.
pub fn count(tx: &Tx<'_>, session: SessionId) -> Result<u32, SessionError> {
    let sql = "SELECT messages FROM session WHERE session_id = ?1";
    tx.first(sql, [bytes(&session)], |row| row.get(0))?
        .ok_or_else(|| SessionError::Unknown { text: session.to_string(), labels: true })
}
