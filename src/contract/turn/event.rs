//! What happened in a turn, in order.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::NoticedBudget;
use crate::{contract::CauseCode, id::OperationId};

/// Something that happened in the turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum TurnEvent {
    /// The model's text, or the sentence that says why the turn stopped.
    Text {
        /// The text.
        text: String,
    },
    /// A call was allowed and its tool started.
    ToolStart {
        /// The tool.
        tool: String,
        /// The call.
        operation_id: OperationId,
    },
    /// What was fed back for a call: its output, or why there was none.
    ToolResult {
        /// The tool.
        tool: String,
        /// Whether the tool ran and succeeded.
        ok: bool,
        /// What the model was told, redacted and capped.
        output: String,
        /// The call.
        operation_id: OperationId,
    },
    /// A rule said ask; nobody is there to answer, so it was resolved by policy.
    Ask {
        /// The tool.
        tool: String,
        /// Why the rule asks.
        reason: String,
        /// The rule; null where the matrix asked.
        rule_id: Option<String>,
        /// Whether the call may proceed: always false, nobody answers.
        resolved: bool,
    },
    /// A model call failed and is made again.
    Retry {
        /// Which try comes now; the first was 1.
        attempt: u32,
        /// How long was waited before it. Milliseconds.
        wait_ms: u64,
        /// Why the one before failed.
        cause_code: CauseCode,
    },
    /// The model was told that a budget is running out.
    BudgetNotice {
        /// Which one.
        budget: NoticedBudget,
        /// How much of it was used, in hundredths.
        used_percent: u32,
    },
}
