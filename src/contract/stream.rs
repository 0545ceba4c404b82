//! `StreamEvent`: the lines of `--output-format stream-json`, one JSON object each.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CauseCode, schema_tag, turn::NoticedBudget};
use crate::id::{OperationId, SessionId, Timestamp, TurnId};

schema_tag!(
    /// The constant `thcode.stream-event/v1`.
    StreamEventSchema = "thcode.stream-event/v1"
);

/// One line of the stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StreamEvent {
    /// Which document this is.
    pub schema: StreamEventSchema,
    /// The line's ordinal, from 0, without gaps.
    pub seq: u64,
    /// When the line was made.
    pub timestamp: Timestamp,
    /// The session; null before there is one, and for verbs without a session.
    pub session_id: Option<SessionId>,
    /// What happened.
    #[serde(flatten)]
    pub payload: StreamPayload,
}

/// What a line of the stream tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum StreamPayload {
    /// The turn began.
    TurnStart {
        /// The turn.
        turn_id: TurnId,
    },
    /// A model call begins.
    IterationStart {
        /// Its ordinal in the turn, from 1.
        iteration: u32,
    },
    /// A piece of the model's text, as it arrives.
    TextDelta {
        /// The piece.
        text: String,
    },
    /// A model call failed and is made again; what came of the failed reply counts for nothing.
    Retry {
        /// Which try comes now; the first was 1.
        attempt: u32,
        /// How long is waited before it. Milliseconds.
        wait_ms: u64,
        /// Why the one before failed.
        cause_code: CauseCode,
    },
    /// The model is told that a budget is running out.
    BudgetNotice {
        /// Which one.
        budget: NoticedBudget,
        /// How much of it is used, in hundredths.
        used_percent: u32,
    },
    /// A call was allowed and its tool started.
    ToolStart {
        /// The tool.
        tool: String,
        /// The call.
        operation_id: OperationId,
    },
    /// A call has its answer.
    ToolResult {
        /// The tool.
        tool: String,
        /// Whether the tool ran and succeeded.
        ok: bool,
        /// The call.
        operation_id: OperationId,
    },
    /// The last line, always: the document that any other output format would have printed.
    Result {
        /// The document; its `schema` says which.
        document: serde_json::Value,
    },
}
