//! `RecoveryResult`, the document of every `thcode recover` verb: what was interrupted, what the
//! journal and the disk prove about it, and what to do next.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Document, ExitClass, failure::Failure, schema_tag, store_report::Authenticity};
use crate::id::{CheckpointId, OperationId, SessionId, Timestamp};

schema_tag!(
    /// The constant `thcode.recovery-result/v1`.
    RecoveryResultSchema = "thcode.recovery-result/v1"
);

/// What stands, in the canonical order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecoveryResult {
    /// Which document this is.
    pub schema: RecoveryResultSchema,
    /// The version of thcode that wrote it.
    pub tool_version: String,
    /// A title.
    pub heading: String,
    /// What the verb was for.
    pub purpose: String,
    /// The state of the worst operation that stands; null where none does.
    pub state: Option<OperationRecoveryState>,
    /// The risk of that operation; null where none stands.
    pub residual_risk: Option<ResidualRisk>,
    /// What was done.
    pub action: RecoveryAction,
    /// What to do next: a command to copy, or that nothing is left to do.
    pub next_step: String,
    /// The class of the end.
    pub exit_class: ExitClass,
    /// The code that the process exits with.
    pub exit_code: u8,
    /// What was found or done, for a person; null where there is nothing to say.
    pub body: Option<String>,
    /// What went wrong; null where nothing did.
    pub failure: Option<Failure>,
    /// The state directory that was read.
    pub state_dir: String,
    /// The workspace that its store was made for.
    pub workspace: String,
    /// Whether the key was there: without it the journal is checked by its hashes alone.
    pub authenticity: Authenticity,
    /// Events of the journal that were checked.
    pub events: u64,
    /// The operations that stand, or that were asked for, or that were settled: the oldest first.
    pub operations: Vec<RecoveredOperation>,
}

impl Document for RecoveryResult {
    const NAME: &'static str = "recovery-result";

    fn exit_class(&self) -> ExitClass {
        self.exit_class
    }
}

/// What a recover verb does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RecoveryAction {
    /// Looks, and changes nothing.
    Inspect,
    /// Settles what can be proven.
    Reconcile,
    /// Takes an operation as it is, on the operator's word.
    Accept,
    /// Ends without further action.
    Exit,
}

/// Where an operation stands, as recovery tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OperationRecoveryState {
    /// It took effect, or was settled.
    Succeeded,
    /// It was given up before its dispatch, or was seen not to have been made.
    Cancelled,
    /// It failed, and nothing changed.
    Failed,
    /// It was prepared and never dispatched.
    Prepared,
    /// It was dispatched, and its end is unknown.
    DispatchCommitted,
    /// It is recorded that nobody could tell.
    UnknownOutcome,
}

/// What may still be wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResidualRisk {
    /// In a sentence.
    pub description: String,
    /// Which kind.
    pub scope: RiskScope,
    /// How much.
    pub severity: RiskSeverity,
}

/// Which kind of risk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RiskScope {
    /// None.
    None,
    /// Doing it again would do it twice.
    DuplicateMutation,
    /// What happened isn't proven.
    UnprovenOutcome,
    /// Its images couldn't put it back.
    FalseRollbackClaim,
    /// It has no images that could put it back.
    PartiallyProtected,
}

/// How much risk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RiskSeverity {
    /// None.
    None,
    /// Nothing of the user's is in doubt.
    Low,
    /// A file of the user's may not be what it should be.
    High,
}

/// What an operation's images are good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CheckpointMaterial {
    /// All of them are there and open.
    Complete,
    /// They were kept, and the operation never took effect.
    Incomplete,
    /// The checkpoint that was dispatched isn't there.
    Unreachable,
    /// They aren't what was kept.
    Corrupt,
    /// They can't be opened now: the key isn't there, or a live runner holds the store.
    RecoveryLocked,
    /// The operation has none, or none any more: it was freed once it wasn't kept any longer.
    NotApplicable,
}

/// How far an operation came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DispatchClassification {
    /// It was prepared.
    PreDispatchCommit,
    /// It was dispatched, and the disk doesn't show its effect.
    PostDispatchCommit,
    /// It was dispatched, and the disk shows its effect.
    NativeMutationCommitted,
    /// The disk shows its effect, and its checkpoint isn't what was dispatched.
    ReferencePublicationFailed,
    /// Its end is recorded.
    TerminalEvidenceRecorded,
}

/// What stands at a place on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Sighting {
    /// Nothing.
    Absent,
    /// What stood there before the operation.
    Pre,
    /// What the operation was to leave there.
    Post,
    /// Less than what the operation was to leave there: a write that was cut off.
    Partial,
    /// Something else.
    Else,
    /// It can't be read.
    Unreadable,
}

impl Sighting {
    /// The word of the value.
    pub fn token(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Pre => "pre",
            Self::Post => "post",
            Self::Partial => "partial",
            Self::Else => "else",
            Self::Unreadable => "unreadable",
        }
    }
}

/// What the disk shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// At the target.
    pub target: Sighting,
    /// Under the temporary or quarantine name beside it.
    pub temp: Sighting,
}

/// An operation, as recovery sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecoveredOperation {
    /// Which.
    pub operation_id: OperationId,
    /// Where it stands.
    pub journal_state: OperationRecoveryState,
    /// The state of the journal's own fold.
    pub operation_state: String,
    /// What its images are good for.
    pub checkpoint_material: CheckpointMaterial,
    /// What may still be wrong.
    pub residual_risk: ResidualRisk,
    /// How far it came.
    pub dispatch_classification: DispatchClassification,
    /// Whether its effect may have happened.
    pub has_effect_dispatch_committed: bool,
    /// Whether its end is recorded.
    pub has_terminal_event: bool,
    /// The kind of that record; null for none.
    pub terminal_kind: Option<String>,
    /// The tool.
    pub tool: Option<String>,
    /// The file, relative to the workspace; null where none is known in clear.
    pub target: Option<String>,
    /// The name beside it that may hold something; null where nothing does.
    pub left: Option<String>,
    /// Its checkpoint; null for none.
    pub checkpoint_id: Option<CheckpointId>,
    /// Its session.
    pub session_id: Option<SessionId>,
    /// When it was proposed.
    pub proposed_at: Option<Timestamp>,
    /// The process that runs it now; null where none does.
    pub live_owner: Option<u32>,
    /// A process of the interrupted command that still runs; null where none does.
    pub running_pid: Option<u32>,
    /// What the disk shows; null where nothing was looked at.
    pub evidence: Option<Evidence>,
    /// What it comes to, or came to, as a token; null where that isn't proven.
    pub resolution: Option<String>,
    /// Why nothing is proven, as a token; null where something is.
    pub unresolved: Option<String>,
    /// Whether `recover reconcile` settles it by itself.
    pub resolvable: bool,
    /// Whether this verb settled it.
    pub settled: bool,
    /// What to do about it: a command to copy.
    pub next_step: String,
}
