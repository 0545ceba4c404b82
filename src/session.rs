//! Sessions: prompt rounds and the history that they share, sealed.
//!
//! Rows tell structure in clear (which session, which round, how it ended); what anybody said is
//! sealed, bound to its store, session and place. A message that can't be opened, or is missing, is
//! an error, never skipped: a model that is given half a history answers another question. Has its
//! own form on disk, which no document shares.

use rusqlite::Row;

use crate::{
    crypto::{Context, CryptoError, Keys},
    host::Host,
    id::{Digest, SessionId, Timestamp, TurnId},
    store::{RowDigest, Rows, Store, StoreError, Tx},
};

mod audit;
mod find;
mod message;

pub use audit::{Audited, Expected, audit};
pub use find::find;
pub use message::{StoredCall, StoredMessage, StoredRole, append, count, history};

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
    #[error("a message has the form {found}, and this thcode knows {}", message::FORM)]
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

/// Begins a prompt round: its ordinal in the session, from 1, and the digest of what its rows say for
/// good. A fork copies the history.
pub fn begin(
    host: &Host,
    store: &Store,
    tx: &Tx<'_>,
    start: Start,
    turn: TurnId,
    label: Option<&str>,
) -> Result<(u32, Digest), SessionError> {
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
        message::copy(host, store, tx, from, into)?;
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
    Ok((round, rows_digest(tx, turn)?))
}

/// What the rows of a turn and of its session say for good.
fn rows_digest(rows: &impl Rows, turn: TurnId) -> Result<Digest, StoreError> {
    let mut digest = RowDigest::new("thcode turn");
    let sql = "SELECT turn_id, session_id, number, prompt_round, started_at, sealed_label, created_at, \
        forked_from FROM turn JOIN session USING (session_id) WHERE turn_id = ?1";
    rows.each(sql, [turn.as_bytes().as_slice()], |row| Ok::<_, StoreError>(digest.add(row)?))?;
    Ok(digest.finish())
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
    let store_id = store_id(store)?;
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

fn store_id(store: &impl Rows) -> Result<[u8; 16], StoreError> {
    let id: Option<Vec<u8>> = store.first("SELECT store_id FROM meta", [], |row| row.get(0))?;
    let corrupt = || StoreError::Corrupt("it has no valid id".to_owned());
    id.and_then(|id| id.try_into().ok()).ok_or_else(corrupt)
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
#[expect(clippy::disallowed_methods, reason = "tests make their own directories")]
mod tests;
