//! What is told of a command that was started, and of what confined it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::Digest;

/// A command that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandRun {
    /// The words, the program's first.
    pub argv: Vec<String>,
    /// The directory that it ran in, relative to the workspace; `.` is the workspace itself.
    pub cwd: String,
    /// The program that ran, absolute.
    pub executable: String,
    /// The digest of the program's bytes.
    pub executable_digest: Digest,
    /// The code that it ended with; null where it was ended from outside.
    pub exit_code: Option<i32>,
    /// The signal that ended it, where one did and nobody here had sent it.
    pub signal: Option<i32>,
    /// Whether its time ran out, so that it was ended.
    pub timed_out: bool,
    /// How long it ran. Milliseconds.
    pub duration_ms: u64,
    /// The bytes that it put out, of which the model was told the head and the tail.
    pub output_bytes: u64,
    /// Processes that it left running in the background, which were ended with it.
    pub background_processes: u32,
}

/// What confines commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Enforcement {
    /// What the policy asks of the walls around a command.
    pub sandbox: SandboxLevel,
}

/// What has to confine a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxLevel {
    /// Walls that are proven to hold. This version has none, so every command is denied.
    Required,
    /// Nothing: a command can do what the user can do who started the run.
    Off,
}
