//! `TurnResult`, the document of `thcode run`: what was asked, proposed, decided and done.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Document, ExitClass, failure::Failure, rollback::RollbackApplyResult, schema_tag};
use crate::id::{Digest, MessageId, SessionId, Timestamp, TurnId};

mod budget;
mod command;
mod event;
mod operation;
mod stop;
mod verification;

pub use budget::{Allowance, Budget, NoticedBudget};
pub use command::{CommandRun, Enforcement, SandboxLevel};
pub use event::TurnEvent;
pub use operation::{
    Change, ChangeKind, CheckpointMade, DecidedBy, Decision, DecisionOutcome, Denial, ExcludedEffect,
    ExcludedEffects, Operation, OperationStatus, nothing_to_grant,
};
pub use stop::StopReason;
pub use verification::Verification;

schema_tag!(
    /// The constant `thcode.turn-result/v1`.
    TurnResultSchema = "thcode.turn-result/v1"
);

/// How a turn ended, in one document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnResult {
    /// Which document this is.
    pub schema: TurnResultSchema,
    /// The version of thcode that wrote it.
    pub tool_version: String,
    /// The final text; where the turn stopped otherwise, the sentence that says why.
    pub text: String,
    /// The messages of the session with this turn's at the end, redacted and capped.
    pub history: Vec<NormalizedMessage>,
    /// What happened, in order.
    pub events: Vec<TurnEvent>,
    /// The session that the turn belongs to.
    pub session_id: SessionId,
    /// This turn.
    pub turn_id: TurnId,
    /// The turn's ordinal in its session, from 1.
    pub prompt_round: u32,
    /// The caller's own name for the run.
    pub label: Option<String>,
    /// The outcome in a word.
    pub status: TurnStatus,
    /// Why the turn stopped.
    pub stop_reason: StopReason,
    /// Every tool call that was proposed, in order.
    pub operations: Vec<Operation>,
    /// The calls that were denied, one entry for each distinct call.
    pub denials: Vec<Denial>,
    /// The files that this turn's tools changed, by path: what came of all their operations.
    pub changes: Vec<Change>,
    /// The caller's commands that were run after a final answer, in order.
    pub verification: Vec<Verification>,
    /// What was done that no rollback covers, by kind. Nothing here is ever claimed reversible.
    pub excluded_effects: ExcludedEffects,
    /// The checkpoints that this turn made, in order.
    pub checkpoints: Vec<CheckpointMade>,
    /// What the provider reported of tokens.
    pub usage: Usage,
    /// What was allowed and what was used.
    pub budget: Budget,
    /// The policy that decided.
    pub policy: PolicyInForce,
    /// What confines commands.
    pub enforcement: Enforcement,
    /// The provider that answered.
    pub provider: ProviderInfo,
    /// Where what is kept of the run lies; null where nothing could be kept.
    pub state_dir: Option<String>,
    /// When, and how long.
    pub timing: Timing,
    /// What a reader should know that the outcome alone doesn't tell.
    pub residual_risks: Vec<String>,
    /// What putting this run's changes back came to (`--on-failure rollback`); null where nothing was to
    /// be put back.
    pub rollback: Option<Box<RollbackApplyResult>>,
    /// The final answer as JSON, where the caller asked for a form and it has it (`--output-schema`).
    pub structured_output: Option<serde_json::Value>,
    /// What went wrong; null where nothing did.
    pub failure: Option<Failure>,
    /// The class of the end.
    pub exit_class: ExitClass,
    /// The code that the process exits with: that of the class, or 0 where the caller tolerates it.
    pub exit_code: u8,
    /// Whether the caller tolerates this class (`--tolerate`), so that the process exits with 0.
    pub tolerated: bool,
}

impl Document for TurnResult {
    const NAME: &'static str = "turn-result";

    fn exit_class(&self) -> ExitClass {
        self.exit_class
    }
}

/// The outcome of a turn in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TurnStatus {
    /// The model ended by itself.
    Succeeded,
    /// It did not come to its end, and files changed.
    Partial,
    /// It did not come to its end.
    Failed,
    /// An authority stopped it.
    Blocked,
    /// A signal stopped it.
    Cancelled,
}

/// Who speaks in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The caller's task.
    User,
    /// The model.
    Assistant,
    /// The result of a tool call, or why there was none.
    Tool,
}

/// A message of the history, as the model saw it (redacted and capped).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NormalizedMessage {
    /// This message.
    pub message_id: MessageId,
    /// Who speaks.
    pub role: Role,
    /// The text.
    pub content: String,
    /// The calls that an assistant message proposes.
    pub tool_calls: Vec<ToolCall>,
    /// The call that a tool message answers.
    pub tool_call_id: Option<String>,
}

/// A call as the model proposed it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    /// The provider's id of the call.
    pub id: String,
    /// The tool's name, as the model wrote it.
    pub name: String,
    /// The arguments, byte for byte as the model wrote them (they need not be JSON).
    pub arguments: String,
}

/// Tokens, as the provider reported them; null where it did not, never 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Tokens of all requests.
    pub input_tokens: Option<u64>,
    /// Tokens of all replies.
    pub output_tokens: Option<u64>,
    /// Replies that came without a report.
    pub replies_without_report: u32,
    /// Requests that were made again after a failure of the provider.
    pub retries: u32,
}

/// The policy that decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyInForce {
    /// The digest of the named files and what they extend.
    pub digest: Digest,
    /// The files, each with its own digest.
    pub files: Vec<PolicyFileInForce>,
    /// The work mode that held.
    pub mode: WorkMode,
    /// The permission profile that held.
    pub profile: PermissionProfile,
    /// The rules that decided at least one call, sorted.
    pub rules_used: Vec<String>,
}

/// A policy file that was loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyFileInForce {
    /// The file as it was named, `preset:NAME` or `git:REV:PATH`.
    pub name: String,
    /// The tier that follows from where it was read.
    pub tier: PolicyTier,
    /// The digest of its bytes.
    pub digest: Digest,
}

/// Where a policy file's authority comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyTier {
    /// Shipped with thcode.
    Builtin,
    /// Named by the caller, from outside the checked-out tree.
    Run,
    /// From the checked-out tree: it may only tighten.
    Repo,
}

/// Whether the turn may change anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WorkMode {
    /// Read only.
    Plan,
    /// What the policy grants.
    Build,
}

/// How far the matrix trusts a call without a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PermissionProfile {
    /// Every change needs a grant.
    Manual,
    /// As manual, in this version of the matrix.
    Assisted,
    /// What no floor, deny or ask touches is allowed.
    FullAccess,
}

/// The provider that answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderInfo {
    /// The preset's name; `scripted` for a cassette.
    pub name: String,
    /// The model that was asked; null for a cassette.
    pub model: Option<String>,
    /// The host that was asked; null where no network was used.
    pub base_url_host: Option<String>,
}

/// When, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Timing {
    /// When the turn began.
    pub started_at: Timestamp,
    /// When the document was made.
    pub ended_at: Timestamp,
    /// The time between the two. Milliseconds.
    pub duration_ms: u64,
    /// The part of it that was spent waiting for the provider. Milliseconds.
    pub provider_ms: u64,
}
