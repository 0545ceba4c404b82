//! What the caller asked to hold, and what was seen of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::OperationId;

/// A command of the caller that was run after a final answer (`--verify`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    /// This operation.
    pub operation_id: OperationId,
    /// After which final answer, from 1.
    pub round: u32,
    /// The words, the program's first.
    pub argv: Vec<String>,
    /// Whether it holds: the command ended with 0.
    pub holds: bool,
    /// The code that it ended with; null where it was ended from outside or couldn't be started.
    pub exit_code: Option<i32>,
    /// Whether its time ran out, so that it was ended.
    pub timed_out: bool,
    /// How long it ran; null where it couldn't be started. Milliseconds.
    pub duration_ms: Option<u64>,
    /// The end of its output; where it couldn't be started, why.
    pub output_tail: String,
}
