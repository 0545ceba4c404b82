//! What became of each tool call: how it was decided, what it changed, and what covers the change.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::command::CommandRun;
use crate::id::{CheckpointId, Digest, OperationId};

/// A tool call that was proposed, and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    /// This operation.
    pub operation_id: OperationId,
    /// The tool, as the model named it.
    pub tool: String,
    /// The tool's action class; null for a tool that doesn't exist.
    pub action_class: Option<String>,
    /// What the call is about: the path, as the model wrote it.
    pub target: Option<String>,
    /// What was decided; null where the call was malformed and never judged.
    pub decision: Option<Decision>,
    /// What became of it.
    pub status: OperationStatus,
    /// The checkpoint that protects it; null for what changes nothing, and where the policy accepted
    /// that there is none.
    pub checkpoint_id: Option<CheckpointId>,
    /// The digest of the file before; null where nothing stood or nothing was changed.
    pub before: Option<Digest>,
    /// The digest of the file after; null where nothing stands or nothing was changed.
    pub after: Option<Digest>,
    /// The command that was started; null for any other call, and where none was.
    pub command: Option<CommandRun>,
}

/// A file that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// Relative to the workspace.
    pub path: String,
    /// What came of it.
    pub kind: ChangeKind,
    /// Bytes before the turn; null where nothing stood.
    pub bytes_before: Option<u64>,
    /// Bytes after the turn; null where nothing stands.
    pub bytes_after: Option<u64>,
    /// The checkpoint of the last operation on it.
    pub checkpoint_id: Option<CheckpointId>,
    /// Whether every operation on it is protected by a checkpoint.
    pub covered: bool,
}

/// What came of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// It is there, and wasn't.
    Created,
    /// It is another.
    Edited,
    /// It was there, and isn't.
    Deleted,
}

/// A checkpoint that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointMade {
    /// Which.
    pub checkpoint_id: CheckpointId,
    /// The operation that it protects.
    pub operation_id: OperationId,
    /// The file, relative to the workspace.
    pub path: String,
}

/// Effects that no rollback covers, by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExcludedEffects {
    /// Files that the policy let be changed without a checkpoint.
    pub unprotected: Vec<ExcludedEffect>,
    /// Commands that were started: what they did is never protected.
    pub shell: Vec<ExcludedEffect>,
}

/// An effect that no rollback covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExcludedEffect {
    /// What it was done to.
    pub target: String,
    /// Why it isn't covered.
    pub reason: String,
}

/// What became of a proposed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OperationStatus {
    /// It ran and did what was asked.
    Succeeded,
    /// It ran and failed; the model was told.
    Failed,
    /// Policy, plan mode or a hard boundary refused it.
    Blocked,
    /// Its arguments can't be read, or its tool doesn't exist.
    Malformed,
    /// The turn ended before it could run.
    Cancelled,
    /// Whether it took effect can't be proven: a person must look.
    UnknownOutcome,
}

/// A verdict as documents carry it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// What was decided.
    pub outcome: DecisionOutcome,
    /// What decided.
    pub because: DecidedBy,
    /// The stable token of a floor, limit or unresolved cause; null where a rule or the matrix
    /// decided.
    pub cause: Option<String>,
    /// The rule that decided.
    pub rule_id: Option<String>,
    /// The rule's file.
    pub file: Option<String>,
    /// The rule's line in that file, from 1.
    pub line: Option<u32>,
}

/// Allow, deny or ask; ask is never a yes here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DecisionOutcome {
    /// The call may run.
    Allow,
    /// The call may not run.
    Deny,
    /// A person would have to be asked; with nobody there, the call may not run.
    Ask,
}

/// What a verdict rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DecidedBy {
    /// A named rule.
    Rule,
    /// The built-in permission matrix.
    Matrix,
    /// A hard boundary that no rule can lift.
    Floor,
    /// No rule grants it.
    Default,
    /// The subject can't be pinned down.
    Unresolved,
    /// The arguments are over a limit.
    Limit,
    /// The arguments can't be read.
    BadArguments,
}

/// Whether any policy could let such a call through.
fn grantable(because: DecidedBy, cause: Option<&str>) -> bool {
    match because {
        DecidedBy::Rule | DecidedBy::Matrix | DecidedBy::Default => true,
        // A grant that names its very words tells what these will do.
        DecidedBy::Unresolved => {
            matches!(cause, Some("program-in-workspace" | "may-run-its-operands"))
        }
        DecidedBy::Floor | DecidedBy::Limit | DecidedBy::BadArguments => false,
    }
}

/// What a reader can do about denied calls, so that nobody is sent to the policy for what no policy can
/// allow; `None` where a grant helps at least one of them.
pub fn nothing_to_grant<'a>(
    denied: impl IntoIterator<Item = (DecidedBy, Option<&'a str>)>,
) -> Option<&'static str> {
    let (mut all_floor, mut any) = (true, false);
    for (because, cause) in denied {
        if grantable(because, cause) {
            return None;
        }
        any = true;
        all_floor &= because == DecidedBy::Floor;
    }
    match (any, all_floor) {
        (false, _) => None,
        (true, true) => Some("nothing to grant: hard boundaries denied it, and no policy lifts them"),
        (true, false) => Some(
            "nothing to grant: no policy can allow these calls; `reason` and `suggest` in denials[] say what to \
             do instead",
        ),
    }
}

/// A distinct call that was denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Denial {
    /// The first operation that was denied so.
    pub operation_id: OperationId,
    /// The tool.
    pub tool: String,
    /// The path, as the model wrote it; null for a command.
    pub path: Option<String>,
    /// The words of a command; null for any other call.
    pub argv: Option<Vec<String>>,
    /// Whether anything in `path` or `argv` was redacted.
    pub redacted: bool,
    /// What decided.
    pub because: DecidedBy,
    /// The stable token of a floor, limit or unresolved cause.
    pub cause: Option<String>,
    /// The rule that denied.
    pub rule_id: Option<String>,
    /// The rule's file.
    pub file: Option<String>,
    /// The rule's line in that file, from 1.
    pub line: Option<u32>,
    /// Why, as the model was told.
    pub reason: String,
    /// What the model was told to do instead.
    pub suggest: Option<String>,
    /// How often the very same call was denied.
    pub count: u32,
}

impl Denial {
    /// What decided, as [`nothing_to_grant`] asks for it.
    pub fn decided(&self) -> (DecidedBy, Option<&str>) {
        (self.because, self.cause.as_deref())
    }
}
