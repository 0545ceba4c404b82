//! Sessions: prompt rounds and the history that they share, sealed.
//!
//! Rows tell structure in clear (which session, which round, how it ended); what anybody said is
//! sealed, bound to its store, session and place. A message that can't be opened, or is missing, is
//! an error, never skipped: a model that is given half a history answers another question. Has its
//! own form on disk, which no document shares.

use rusqlite::{Params, Row};
use serde::{Deserialize, Serialize};

use crate::{
    crypto::{Context, CryptoError, Keys},
    host::Host,
    id::{MessageId, SessionId, Timestamp, TurnId},
    store::{ReadStore, Store, StoreError, Tx},
};

mod find;

pub use find::find;

/// The version of a sealed message's form.
const FORM: u32 = 1;

/// Why a session can't be written, read or found.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Sealing failed.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
    /// What is kept isn't what was kept.
    #[error("the session {session} is corrupt: {problem}")]
    Corrupt {
        /// The session.
        session: SessionId,
        /// What is wrong.
        problem: String,
    },
    /// A newer thcode wrote a message.
    #[error("a message has the form {found}, and this thcode knows {FORM}")]
    Newer {
        /// The form.
        found: u32,
    },
    /// There is no session at all.
    #[error("the store has no session yet")]
    NoneYet,
    /// Nothing has that name.
    #[error(
        "no session has the id, id prefix{} {text:?}",
        if *.labels { " or label" } else { ", and labels can't be read without the key:" }
    )]
    Unknown {
        /// What was asked for.
        text: String,
        /// Whether labels could be compared.
        labels: bool,
    },
    /// More than one has it.
    #[error("{text:?} names {} sessions: {}", .found.len(), told(.found))]
    Ambiguous {
        /// What was asked for.
        text: String,
        /// What it names, latest first.
        found: Vec<SessionId>,
    },
}

/// The session that a turn belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// A new one, of this id.
    New(SessionId),
    /// One that is there.
    Continue(SessionId),
    /// A new one, whose history begins as a copy of another's.
    Fork {
        /// The one whose history is copied.
        from: SessionId,
        /// The id of the new one.
        into: SessionId,
    },
}

impl Start {
    /// The session that the turn belongs to.
    pub fn session(self) -> SessionId {
        match self {
            Self::New(session) | Self::Continue(session) | Self::Fork { into: session, .. } => session,
        }
    }
}

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

/// A session, as far as it can be told without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Which.
    pub session_id: SessionId,
    /// When its first turn began.
    pub created_at: Timestamp,
    /// The session whose history it began with.
    pub forked_from: Option<SessionId>,
    /// Its prompt rounds so far.
    pub rounds: u32,
    /// Its messages so far.
    pub messages: u32,
    /// Its turns, first first.
    pub turns: Vec<Turn>,
}

impl Session {
    /// The label that its turns gave it last; `None` without the key.
    pub fn label(&self) -> Option<&str> {
        self.turns.iter().rev().find_map(|turn| turn.label.as_deref())
    }
}

/// One prompt round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// Which.
    pub turn_id: TurnId,
    /// Its ordinal in the session, from 1.
    pub prompt_round: u32,
    /// When it began.
    pub started_at: Timestamp,
    /// How it ended; `None` while it runs, and for ever if it was cut off.
    pub end: Option<TurnEnd>,
    /// The caller's name for it; `None` without the key.
    pub label: Option<String>,
}

/// How a prompt round ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnEnd {
    /// Why, as the document told it.
    pub stop_reason: String,
    /// The code that the process exited with.
    pub exit_code: u8,
    /// When.
    pub ended_at: Timestamp,
}

/// What a store of either kind reads.
pub trait Rows {
    /// The store's id.
    fn store_id(&self) -> Result<[u8; 16], StoreError>;
    /// The first row of a query, if there is one.
    fn first<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError>;
    /// Reads rows one by one.
    fn each<E: From<StoreError>>(
        &self,
        sql: &str,
        params: impl Params,
        visit: impl FnMut(&Row<'_>) -> Result<(), E>,
    ) -> Result<(), E>;
}

macro_rules! rows_of {
    ($store:ty, $self:ident => $id:expr) => {
        impl Rows for $store {
            fn store_id(&$self) -> Result<[u8; 16], StoreError> {
                $id
            }

            fn first<T>(
                &self,
                sql: &str,
                params: impl Params,
                read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
            ) -> Result<Option<T>, StoreError> {
                self.first(sql, params, read)
            }

            fn each<E: From<StoreError>>(
                &self,
                sql: &str,
                params: impl Params,
                visit: impl FnMut(&Row<'_>) -> Result<(), E>,
            ) -> Result<(), E> {
                self.each(sql, params, visit)
            }
        }
    };
}

rows_of!(Store, self => Ok(self.facts().id));
rows_of!(ReadStore, self => self.made_for().map(|(_, id)| id));

/// Begins a prompt round; its ordinal in the session, from 1. A fork copies the history.
pub fn begin(
    host: &Host,
    store: &Store,
    tx: &Tx<'_>,
    start: Start,
    turn: TurnId,
    label: Option<&str>,
) -> Result<u32, SessionError> {
    let session = start.session();
    let now = host.now().as_millis();
    let forked = match start {
        Start::New(_) => Some(None),
        Start::Fork { from, .. } => Some(Some(from)),
        Start::Continue(_) => None,
    };
    if let Some(from) = forked {
        let insert = "INSERT INTO session (session_id, created_at, forked_from) VALUES (?1, ?2, ?3)";
        tx.execute_one(insert, (bytes(&session), now, from.as_ref().map(bytes)))?;
    }
    if let Start::Fork { from, into } = start {
        copy(host, store, tx, from, into)?;
    }
    let next = "UPDATE session SET rounds = rounds + 1 WHERE session_id = ?1 RETURNING rounds";
    let round: u32 = tx
        .first(next, [bytes(&session)], |row| row.get(0))?
        .ok_or_else(|| SessionError::Unknown { text: session.to_string(), labels: true })?;
    let sealed = label
        .map(|label| {
            let context = label_context(&store.facts().id, session, turn);
            store.keys().small.seal(host, &context, label.as_bytes())
        })
        .transpose()?;
    // The number orders turns of all sessions: a clock can be set back.
    let insert = "INSERT INTO turn (turn_id, session_id, number, prompt_round, started_at, sealed_label) \
        VALUES (?1, ?2, (SELECT coalesce(max(number), 0) + 1 FROM turn), ?3, ?4, ?5)";
    tx.execute_one(insert, (turn.as_bytes().as_slice(), bytes(&session), round, now, sealed))?;
    Ok(round)
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

/// Ends a prompt round that was begun and not ended.
pub fn end(
    tx: &Tx<'_>,
    turn: TurnId,
    stop_reason: &str,
    exit_code: u8,
    ended_at: Timestamp,
) -> Result<(), SessionError> {
    let sql = "UPDATE turn SET stop_reason = ?2, exit_code = ?3, ended_at = ?4 \
        WHERE turn_id = ?1 AND ended_at IS NULL";
    let id = turn.as_bytes().as_slice();
    Ok(tx.execute_one(sql, (id, stop_reason, exit_code, ended_at.as_millis()))?)
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
    let store_id = store.store_id()?;
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

/// Every session, the one with the latest turn first. Labels are told only with the keys.
pub fn list(store: &impl Rows, keys: Option<&Keys>) -> Result<Vec<Session>, SessionError> {
    let mut sessions: Vec<Session> = Vec::new();
    let rows = "SELECT session_id, created_at, forked_from, rounds, messages FROM session \
        ORDER BY (SELECT max(number) FROM turn WHERE turn.session_id = session.session_id) DESC";
    store.each(rows, [], |row| {
        let id: Vec<u8> = column(row, 0)?;
        let from: Option<Vec<u8>> = column(row, 2)?;
        sessions.push(Session {
            session_id: session_id(&id)?,
            created_at: Timestamp::from_millis(column(row, 1)?),
            forked_from: from.as_deref().map(session_id).transpose()?,
            rounds: column(row, 3)?,
            messages: column(row, 4)?,
            turns: Vec::new(),
        });
        Ok::<_, SessionError>(())
    })?;
    let store_id = store.store_id()?;
    for session in &mut sessions {
        session.turns = turns(store, store_id, keys, session.session_id)?;
    }
    Ok(sessions)
}

fn turns(
    store: &impl Rows,
    store_id: [u8; 16],
    keys: Option<&Keys>,
    session: SessionId,
) -> Result<Vec<Turn>, SessionError> {
    let mut turns = Vec::new();
    let rows = "SELECT turn_id, prompt_round, started_at, ended_at, stop_reason, exit_code, sealed_label \
        FROM turn WHERE session_id = ?1 ORDER BY number";
    store.each(rows, [bytes(&session)], |row| {
        let corrupt = |problem: &str| SessionError::Corrupt { session, problem: problem.to_owned() };
        let id: Vec<u8> = column(row, 0)?;
        let turn_id = TurnId::from_bytes(&id).map_err(|_| corrupt("a turn has no valid id"))?;
        let end = match (column(row, 3)?, column(row, 4)?, column(row, 5)?) {
            (Some(ended), Some(stop_reason), Some(exit_code)) => {
                Some(TurnEnd { stop_reason, exit_code, ended_at: Timestamp::from_millis(ended) })
            }
            (None, None, None) => None,
            _ => return Err(corrupt("a turn is half ended")),
        };
        let sealed: Option<Vec<u8>> = column(row, 6)?;
        let label = match (keys, sealed) {
            (Some(keys), Some(sealed)) => {
                let opened = keys.small.open(&label_context(&store_id, session, turn_id), &sealed);
                let plain = opened.map_err(|_| corrupt("a label is not what was sealed"))?;
                let text = std::str::from_utf8(&plain).map_err(|_| corrupt("a label isn't UTF-8"))?;
                Some(text.to_owned())
            }
            _ => None,
        };
        turns.push(Turn {
            turn_id,
            prompt_round: column(row, 1)?,
            started_at: Timestamp::from_millis(column(row, 2)?),
            end,
            label,
        });
        Ok::<_, SessionError>(())
    })?;
    Ok(turns)
}

/// Where a message belongs: what it is sealed for.
#[derive(Clone, Copy)]
struct Place {
    store: [u8; 16],
    session: SessionId,
    ordinal: u32,
}

impl Place {
    fn context(self, message: &[u8], turn: &[u8]) -> Context {
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
fn copy(
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

fn count(tx: &Tx<'_>, session: SessionId) -> Result<u32, SessionError> {
    let sql = "SELECT messages FROM session WHERE session_id = ?1";
    tx.first(sql, [bytes(&session)], |row| row.get(0))?
        .ok_or_else(|| SessionError::Unknown { text: session.to_string(), labels: true })
}

fn label_context(store: &[u8; 16], session: SessionId, turn: TurnId) -> Context {
    Context::new("thcode label").field(store).field(session.as_bytes()).field(turn.as_bytes())
}

fn bytes(session: &SessionId) -> &[u8] {
    session.as_bytes()
}

fn session_id(bytes: &[u8]) -> Result<SessionId, SessionError> {
    let corrupt = |_| StoreError::Corrupt("a session has no valid id".to_owned()).into();
    SessionId::from_bytes(bytes).map_err(corrupt)
}

fn column<T: rusqlite::types::FromSql>(row: &Row<'_>, at: usize) -> Result<T, StoreError> {
    Ok(row.get(at)?)
}

fn told(found: &[SessionId]) -> String {
    let ids: Vec<String> = found.iter().map(SessionId::to_string).collect();
    ids.join(", ")
}

#[cfg(test)]
mod tests;
