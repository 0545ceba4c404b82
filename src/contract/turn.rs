//! `TurnResult`, the document of `thcode run`: what was asked, proposed, decided and done.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Document, ExitClass, failure::Failure, schema_tag};
use crate::id::{Digest, MessageId, OperationId, SessionId, Timestamp, TurnId};

mod command;
mod operation;

pub use command::{CommandRun, Enforcement, SandboxLevel};
pub use operation::{
    Change, ChangeKind, CheckpointMade, DecidedBy, Decision, DecisionOutcome, Denial, ExcludedEffect,
    ExcludedEffects, Operation, OperationStatus,
};

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
    /// What went wrong; null where nothing did.
    pub failure: Option<Failure>,
    /// The class of the end.
    pub exit_class: ExitClass,
    /// The code that the process exits with.
    pub exit_code: u8,
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

/// Why a turn stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StopReason {
    /// The model gave its final answer.
    FinalAnswer,
    /// The model calls that the turn may make ran out.
    IterationLimit,
    /// A reply reached the output token limit.
    TokenLimit,
    /// The files or bytes that the turn may write ran out.
    WriteSetLimit,
    /// The provider failed in a way that a rerun can't help.
    ProviderFailed,
    /// The provider wasn't to be had.
    ProviderUnavailable,
    /// The provider fell silent.
    Stalled,
    /// The provider's answer can't be read, or was cut.
    MalformedResponse,
    /// The provider's answer holds neither text nor a call.
    EmptyAnswer,
    /// The task and the last rounds don't fit the context.
    ContextBlocked,
    /// A call was denied and the policy says to stop there, or the model repeats a denied call.
    DeniedStop,
    /// What has to be kept can't be kept, so nothing may be changed.
    StoreUnavailable,
    /// Another run holds the workspace.
    WorkspaceInUse,
    /// Operations of an earlier run were interrupted and aren't settled.
    RecoveryRequired,
    /// The model says that it can't do the task.
    Cannot,
    /// The model says that it needs an answer from somebody.
    NeedsInput,
    /// A signal stopped the turn.
    Cancelled,
}

impl StopReason {
    /// Every reason.
    pub const ALL: [Self; 17] = [
        Self::FinalAnswer,
        Self::IterationLimit,
        Self::TokenLimit,
        Self::WriteSetLimit,
        Self::ProviderFailed,
        Self::ProviderUnavailable,
        Self::Stalled,
        Self::MalformedResponse,
        Self::EmptyAnswer,
        Self::ContextBlocked,
        Self::DeniedStop,
        Self::StoreUnavailable,
        Self::WorkspaceInUse,
        Self::RecoveryRequired,
        Self::Cannot,
        Self::NeedsInput,
        Self::Cancelled,
    ];

    /// The outcome in a word; what is left undone after changes is partial.
    pub fn status(self, changed: bool) -> TurnStatus {
        match self {
            Self::FinalAnswer => TurnStatus::Succeeded,
            Self::IterationLimit
            | Self::TokenLimit
            | Self::WriteSetLimit
            | Self::ProviderFailed
            | Self::ProviderUnavailable
            | Self::Stalled
            | Self::MalformedResponse
            | Self::EmptyAnswer
            | Self::ContextBlocked
                if changed =>
            {
                TurnStatus::Partial
            }
            Self::IterationLimit
            | Self::TokenLimit
            | Self::WriteSetLimit
            | Self::ProviderFailed
            | Self::ProviderUnavailable
            | Self::Stalled
            | Self::MalformedResponse
            | Self::EmptyAnswer
            | Self::ContextBlocked
            | Self::Cannot
            | Self::NeedsInput => TurnStatus::Failed,
            Self::DeniedStop
            | Self::StoreUnavailable
            | Self::WorkspaceInUse
            | Self::RecoveryRequired => TurnStatus::Blocked,
            Self::Cancelled => TurnStatus::Cancelled,
        }
    }

    /// The class of a turn that stopped so, where no call was denied.
    pub fn exit_class(self) -> ExitClass {
        match self {
            Self::FinalAnswer => ExitClass::Success,
            Self::IterationLimit | Self::TokenLimit | Self::WriteSetLimit => ExitClass::BudgetExhausted,
            Self::ProviderFailed | Self::ContextBlocked => ExitClass::ProviderFailed,
            Self::ProviderUnavailable | Self::Stalled | Self::MalformedResponse | Self::EmptyAnswer => {
                ExitClass::ProviderUnavailable
            }
            Self::DeniedStop | Self::StoreUnavailable => ExitClass::Blocked,
            Self::WorkspaceInUse => ExitClass::Busy,
            Self::RecoveryRequired => ExitClass::RecoveryRequired,
            Self::Cannot | Self::NeedsInput => ExitClass::ExpectationFailed,
            Self::Cancelled => ExitClass::Cancelled,
        }
    }
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
}

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
