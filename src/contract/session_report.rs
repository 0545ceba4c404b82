//! `SessionReport`, the document of `thcode session list`, `show` and `history`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Document, ExitClass, failure::Failure, schema_tag, turn::NormalizedMessage};
use crate::id::{SessionId, Timestamp, TurnId};

schema_tag!(
    /// The constant `thcode.session-report/v1`.
    SessionReportSchema = "thcode.session-report/v1"
);

/// The sessions of a store, or one of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionReport {
    /// Which document this is.
    pub schema: SessionReportSchema,
    /// The version of thcode that wrote it.
    pub tool_version: String,
    /// The state directory that was read.
    pub state_dir: String,
    /// The workspace that its store was made for.
    pub workspace: String,
    /// Whether the key was there: without it every label is null.
    pub unlocked: bool,
    /// The sessions, the one with the latest turn first; for `show` and `history` that one alone.
    pub sessions: Vec<SessionSummary>,
    /// The turns of the one session, first first; empty for `list`.
    pub turns: Vec<SessionTurn>,
    /// What was said, whole and in order, scrubbed and each text capped; null but for `history`.
    pub history: Option<Vec<NormalizedMessage>>,
    /// What went wrong; null where nothing did.
    pub failure: Option<Failure>,
    /// The class of the end.
    pub exit_class: ExitClass,
    /// The code that the process exits with.
    pub exit_code: u8,
}

impl Document for SessionReport {
    const NAME: &'static str = "session-report";

    fn exit_class(&self) -> ExitClass {
        self.exit_class
    }
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionSummary {
    /// Which.
    pub session_id: SessionId,
    /// The beginning of its id's random part that no other session of the store has.
    pub short_id: String,
    /// The label that its turns were given last; null where none was, and without the key.
    pub label: Option<String>,
    /// When its first turn began.
    pub created_at: Timestamp,
    /// The session whose history it began with; null for none.
    pub forked_from: Option<SessionId>,
    /// Its prompt rounds so far.
    pub prompt_rounds: u32,
    /// Its messages so far.
    pub messages: u32,
    /// Its last turn; null for none.
    pub last_turn: Option<SessionTurn>,
}

/// One prompt round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionTurn {
    /// Which.
    pub turn_id: TurnId,
    /// Its ordinal in the session, from 1.
    pub prompt_round: u32,
    /// Its label; null where it had none, and without the key.
    pub label: Option<String>,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended; null while it runs, and for ever if it was cut off.
    pub ended_at: Option<Timestamp>,
    /// Its `stopReason`; null as `endedAt`.
    pub stop_reason: Option<String>,
    /// Its exit code; null as `endedAt`.
    pub exit_code: Option<u8>,
}
