//! `finish`: how the model says that the turn is over, and with what outcome. Touches nothing, so it
//! is never judged.

use schemars::JsonSchema;
use serde::Deserialize;

/// The tool's name.
pub const NAME: &str = "finish";

/// Ends the turn.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Finish {
    /// done: the task is done. nothing-to-do: nothing needed doing. cannot: it can't be done.
    /// needs-input: it can't go on without an answer that nobody here can give.
    pub outcome: Outcome,
    /// What was done and found, for the person who reads the result.
    pub summary: String,
}

/// How the task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The task is done.
    Done,
    /// Nothing needed doing.
    NothingToDo,
    /// It can't be done.
    Cannot,
    /// It can't go on without an answer.
    NeedsInput,
}
