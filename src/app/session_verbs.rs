//! `session list | show | history`: what a store keeps of the conversations. Changes nothing.

use super::{Common, Ended, Fail, state};
use crate::{
    contract::{
        ExitClass, TOOL_VERSION,
        session_report::{SessionReport, SessionReportSchema, SessionSummary, SessionTurn},
        turn::{NormalizedMessage, Role, ToolCall},
    },
    crypto::{KeySource, Keys},
    host::Host,
    id::SessionId,
    session::{self, Session, StoredMessage, StoredRole, Turn},
    store::ReadStore,
};

/// Bytes of one text that the document carries, as that of the run does.
const MOST_TOLD: usize = 64 * 1024;
/// Digits of a short id, at the least.
const SHORTEST: usize = 4;
/// The session that is meant where none is named.
const LATEST: &str = "last";

/// Every session of the store.
pub fn list(host: &Host, common: &Common) -> Result<Ended, Fail> {
    let opened = Opened::of(host, common)?;
    let keys = state::keys_if_any(&opened.store, &opened.key);
    let sessions = session::list(&opened.store, keys.as_ref())?;
    let summaries = sessions.iter().map(|session| summary(session, &sessions)).collect();
    opened.report(keys.is_some(), summaries, Vec::new(), None)
}

/// One session and its turns.
pub fn show(host: &Host, common: &Common, name: Option<&str>) -> Result<Ended, Fail> {
    let opened = Opened::of(host, common)?;
    let keys = state::keys_if_any(&opened.store, &opened.key);
    opened.one(keys.as_ref(), name, false)
}

/// One session and what was said in it; needs the key.
pub fn history(host: &Host, common: &Common, name: Option<&str>) -> Result<Ended, Fail> {
    let opened = Opened::of(host, common)?;
    let keys = opened.store.unlock(&opened.key)?;
    opened.one(Some(&keys), name, true)
}

/// The store that is meant, and where its key would come from.
struct Opened {
    store: ReadStore,
    key: KeySource,
}

impl Opened {
    fn of(host: &Host, common: &Common) -> Result<Self, Fail> {
        let place = state::place_to_read(host, common)?;
        let store = state::open_read(&place.dir)?;
        Ok(Self { store, key: state::key_source(host, &place, &common.state) })
    }

    fn one(&self, keys: Option<&Keys>, name: Option<&str>, told: bool) -> Result<Ended, Fail> {
        let id = session::find(&self.store, keys, name.unwrap_or(LATEST))?;
        let sessions = session::list(&self.store, keys)?;
        let found = sessions.iter().find(|session| session.session_id == id);
        let turns = found.map(|session| session.turns.iter().map(turn).collect()).unwrap_or_default();
        let summaries = found.map(|session| summary(session, &sessions)).into_iter().collect();
        let history = match keys.filter(|_| told) {
            Some(keys) => {
                let messages = session::history(&self.store, keys, id)?;
                Some(messages.into_iter().map(message).collect())
            }
            None => None,
        };
        self.report(keys.is_some(), summaries, turns, history)
    }

    fn report(
        &self,
        unlocked: bool,
        sessions: Vec<SessionSummary>,
        turns: Vec<SessionTurn>,
        history: Option<Vec<NormalizedMessage>>,
    ) -> Result<Ended, Fail> {
        let (workspace, _) = self.store.made_for()?;
        let exit_class = ExitClass::Success;
        Ok(Ended::Session(Box::new(SessionReport {
            schema: SessionReportSchema,
            tool_version: TOOL_VERSION.to_owned(),
            state_dir: self.store.dir().display().to_string(),
            workspace,
            unlocked,
            sessions,
            turns,
            history,
            failure: None,
            exit_class,
            exit_code: exit_class.code(),
        })))
    }
}

fn summary(session: &Session, all: &[Session]) -> SessionSummary {
    SessionSummary {
        session_id: session.session_id,
        short_id: short(session.session_id, all),
        label: session.label().map(str::to_owned),
        created_at: session.created_at,
        forked_from: session.forked_from,
        prompt_rounds: session.rounds,
        messages: session.messages,
        last_turn: session.turns.last().map(turn),
    }
}

/// The shortest beginning of the random part that names this session alone.
fn short(id: SessionId, all: &[Session]) -> String {
    let digits = id.random_part();
    let alike = |other: &Session| {
        let other = other.session_id.random_part();
        digits.chars().zip(other.chars()).take_while(|(one, two)| one == two).count()
    };
    let shared = all.iter().filter(|other| other.session_id != id).map(alike).max();
    let length = shared.map_or(SHORTEST, |shared| SHORTEST.max(shared + 1));
    digits.chars().take(length).collect()
}

fn turn(turn: &Turn) -> SessionTurn {
    let end = turn.end.as_ref();
    SessionTurn {
        turn_id: turn.turn_id,
        prompt_round: turn.prompt_round,
        label: turn.label.clone(),
        started_at: turn.started_at,
        ended_at: end.map(|end| end.ended_at),
        stop_reason: end.map(|end| end.stop_reason.clone()),
        exit_code: end.map(|end| end.exit_code),
    }
}

fn message(stored: StoredMessage) -> NormalizedMessage {
    let call = |call: session::StoredCall| ToolCall {
        id: call.id,
        name: call.name,
        arguments: cut(call.arguments),
    };
    NormalizedMessage {
        message_id: stored.message_id,
        role: match stored.role {
            StoredRole::User => Role::User,
            StoredRole::Assistant => Role::Assistant,
            StoredRole::Tool => Role::Tool,
        },
        content: cut(stored.content),
        tool_calls: stored.tool_calls.into_iter().map(call).collect(),
        tool_call_id: stored.tool_call_id,
    }
}

fn cut(mut text: String) -> String {
    if text.len() > MOST_TOLD {
        let bytes = text.len();
        text.truncate(text.floor_char_boundary(MOST_TOLD));
        text.push_str(&format!("\n[cut: {bytes} bytes in all]"));
    }
    text
}
