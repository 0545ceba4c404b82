//! Which session a name means. Whatever the text is, it is compared with parsed ids and opened
//! labels alone; it never becomes part of a query or of a path.

use super::{SessionError, list};
use crate::{crypto::Keys, id::SessionId, store::Rows};

/// Characters of an unknown name that its error tells.
const MOST_TOLD: usize = 60;

/// The session that a text names: a full id; `last` or `latest`; else a label, or the beginning of
/// an id's random part, if exactly one session has it. Labels are compared only with the keys.
pub fn find(store: &impl Rows, keys: Option<&Keys>, text: &str) -> Result<SessionId, SessionError> {
    let sessions = list(store, keys)?;
    if matches!(text, "last" | "latest") {
        return sessions.first().map(|session| session.session_id).ok_or(SessionError::NoneYet);
    }
    if let Ok(id) = text.parse::<SessionId>()
        && sessions.iter().any(|session| session.session_id == id)
    {
        return Ok(id);
    }
    let prefix = !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let found: Vec<SessionId> = sessions
        .iter()
        .filter(|session| {
            let labelled = session.turns.iter().any(|turn| turn.label.as_deref() == Some(text));
            labelled || prefix && session.session_id.random_part().starts_with(text)
        })
        .map(|session| session.session_id)
        .collect();
    let text = || text.chars().take(MOST_TOLD).collect();
    match found.as_slice() {
        [one] => Ok(*one),
        [] => Err(SessionError::Unknown { text: text(), labels: keys.is_some() }),
        _ => Err(SessionError::Ambiguous { text: text(), found }),
    }
}
