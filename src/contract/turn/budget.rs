//! What a turn was allowed, and what it used.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What was allowed and what was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// Model calls.
    pub iterations: Allowance,
    /// The tokens that one reply may have.
    pub max_output_tokens: u64,
    /// Tool calls that the model proposed.
    pub tool_calls: u32,
    /// The tool calls that the turn may make; null where nobody limits them.
    pub max_tool_calls: Option<u32>,
    /// Tokens of all requests and replies.
    pub total_tokens: u64,
    /// Whether some of them are an estimate (bytes / 4), since the provider didn't report them.
    pub estimated: bool,
    /// The tokens that the turn may use in all; null where nobody limits them.
    pub max_total_tokens: Option<u64>,
    /// The time that the turn may take; null where nobody limits it. Milliseconds.
    pub max_wall_time_ms: Option<u64>,
    /// Files that the turn changed.
    pub files_changed: Allowance,
    /// The bytes that the turn may write in all.
    pub max_bytes_written: u64,
}

/// A limit and its use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Allowance {
    /// How much was used.
    pub used: u32,
    /// How much was allowed.
    pub limit: u32,
}

/// A budget that the model is told of before it runs out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NoticedBudget {
    /// The tokens of the turn.
    TotalTokens,
    /// The time that the turn may take.
    WallTime,
}
