//! Whether everything that is kept of sessions is what was kept: rows against the journal, and with
//! the keys every label and every message.

use std::collections::BTreeMap;

use super::{SessionError, TurnEnd, column, history, list, rows_digest};
use crate::{
    crypto::Keys,
    id::{Digest, SessionId, TurnId},
    store::{RowFault, Rows, StoreError},
};

/// What the journal says of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// Its session.
    pub session_id: SessionId,
    /// Its ordinal in the session.
    pub prompt_round: u32,
    /// The digest of what its row and its session's say for good.
    pub row: Digest,
    /// How it ended, and how many messages the session had then.
    pub end: Option<(TurnEnd, u32)>,
}

/// What was looked at, and what is wrong with it.
#[derive(Debug, Default)]
pub struct Audited {
    /// Sessions.
    pub sessions: u64,
    /// Messages.
    pub messages: u64,
    /// What is wrong.
    pub faults: Vec<RowFault>,
}

impl Audited {
    fn fault(&mut self, table: &'static str, row: impl ToString, problem: impl ToString) {
        self.faults.push(RowFault { table, row: row.to_string(), problem: problem.to_string() });
    }
}

/// Looks at all of it. Without keys labels and messages stay unopened.
pub fn audit(
    store: &impl Rows,
    keys: Option<&Keys>,
    expected: &BTreeMap<TurnId, Expected>,
) -> Result<Audited, SessionError> {
    let mut audited = Audited::default();
    let sessions = match list(store, keys) {
        Ok(sessions) => sessions,
        Err(SessionError::Corrupt { session, problem }) => {
            audited.fault("session", session, problem);
            return Ok(audited);
        }
        Err(SessionError::Store(StoreError::Corrupt(problem))) => {
            audited.fault("session", "", problem);
            return Ok(audited);
        }
        Err(error) => return Err(error),
    };
    let mut due = expected.clone();
    for session in &sessions {
        audited.sessions += 1;
        let id = session.session_id;
        let mut most = 0;
        for turn in &session.turns {
            let Some(told) = due.remove(&turn.turn_id) else {
                audited.fault("turn", turn.turn_id, "the journal knows nothing of it");
                continue;
            };
            let same = told.session_id == id
                && told.prompt_round == turn.prompt_round
                && told.end.as_ref().map(|(end, _)| end) == turn.end.as_ref()
                && rows_digest(store, turn.turn_id)? == told.row;
            if !same {
                audited.fault("turn", turn.turn_id, "it is not what the journal says");
            }
            most = most.max(told.end.map_or(0, |(_, messages)| messages));
        }
        if usize::try_from(session.rounds).ok() != Some(session.turns.len()) {
            audited.fault("session", id, "it counts other prompt rounds than it has");
        }
        let counted: i64 = store
            .first(
                "SELECT count(*) FROM message WHERE session_id = ?1",
                [id.as_bytes().as_slice()],
                |row| row.get(0),
            )?
            .unwrap_or(0);
        audited.messages += u64::try_from(counted).unwrap_or(0);
        if counted != i64::from(session.messages) || session.messages < most {
            audited.fault("session", id, "it has other messages than it counts");
        }
        if let Some(keys) = keys {
            match history(store, keys, id) {
                Ok(_) => {}
                Err(SessionError::Store(StoreError::Sqlite(error))) => {
                    return Err(StoreError::Sqlite(error).into());
                }
                Err(error) => audited.fault("message", id, error),
            }
        }
    }
    for id in due.keys() {
        audited.fault("turn", id, "it is gone");
    }
    let stray = "SELECT count(*) FROM message WHERE session_id NOT IN (SELECT session_id FROM session)";
    let mut strays = 0i64;
    store.each(stray, [], |row| {
        strays = column(row, 0)?;
        Ok::<_, StoreError>(())
    })?;
    if strays > 0 {
        audited.fault("message", "", format!("{strays} are of no session"));
    }
    Ok(audited)
}
