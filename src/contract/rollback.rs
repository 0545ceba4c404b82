//! `thcode rollback`: which checkpoints there are, what is in one, and what putting one back would
//! do. Only checkpointed changes of files are ever claimed reversible; what is not is always listed.

mod apply;

pub use apply::{
    AppliedTarget, ApplyCounts, ApplyTargetOutcome, RefusedTarget, ResidualConflict, RestoredMetadata,
    RollbackApplyResult, RollbackApplyResultSchema, RollbackApplyResultType,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Document, ExitClass, failure::Failure, schema_tag, store_report::Authenticity};
use crate::id::{CheckpointId, Digest, OperationId, SessionId, Timestamp, TurnId};

schema_tag!(
    /// The constant `thcode.rollback-list/v1`.
    RollbackListSchema = "thcode.rollback-list/v1"
);
schema_tag!(
    /// The constant `thcode.rollback-preview/v1`.
    RollbackPreviewSchema = "thcode.rollback-preview/v1"
);
schema_tag!(
    /// The constant `thcode.rollback-analysis/v1`.
    RollbackAnalysisSchema = "thcode.rollback-analysis/v1"
);

/// What rollback covers.
pub const COVERS: &str = "Automatic rollback covers checkpointed built-in create/edit/delete ONLY.";
/// What rollback never covers.
pub const NEVER_COVERS: &str = "Shell, process, remote, permission, symlink-side, and external effects \
    are NEVER claimed reversible.";

/// The checkpoints of a store, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollbackListResult {
    /// Which document this is.
    pub schema: RollbackListSchema,
    /// The version of thcode that wrote it.
    pub tool_version: String,
    /// The checkpoints: those that can be put back, and with `--include-hidden` the others.
    pub checkpoints: Vec<CheckpointSummary>,
    /// Checkpoints that aren't listed, by kind.
    pub hidden_counts: HiddenCounts,
    /// The state directory that was read.
    pub state_dir: String,
    /// The workspace that its store was made for.
    pub workspace: String,
    /// Whether the key was there: without it digests are null.
    pub authenticity: Authenticity,
    /// What went wrong; null where nothing did.
    pub failure: Option<Failure>,
    /// The class of the end.
    pub exit_class: ExitClass,
    /// The code that the process exits with.
    pub exit_code: u8,
}

/// Checkpoints that can't be put back, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HiddenCounts {
    /// Their window is over.
    pub expired: u32,
    /// They aren't what was kept.
    pub corrupt: u32,
    /// They can't be opened: the key isn't there.
    pub locked: u32,
    /// Their operation never took effect, or nobody knows.
    pub not_applied: u32,
    /// Their record can't be read.
    pub unreadable: u32,
}

/// How much of a checkpoint can be put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RollbackCoverage {
    /// All targets have their images.
    #[serde(rename = "fully protected")]
    FullyProtected,
    /// Its window is over.
    #[serde(rename = "expired")]
    Expired,
    /// It isn't what was kept.
    #[serde(rename = "corrupt")]
    Corrupt,
    /// It can't be opened.
    #[serde(rename = "locked")]
    Locked,
}

/// Whether a checkpoint is what was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum IntegrityState {
    /// Every row, seal, length and digest was checked.
    Verified,
    /// Something in it is not what was written.
    Corrupt,
    /// The key isn't there.
    RecoveryLocked,
}

/// What may be done with a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum RollbackEligibility {
    /// It can be put back.
    ApplyEligible,
    /// It can only be looked at.
    Hidden {
        /// Why.
        reason: String,
    },
    /// It proves nothing.
    NonAuthoritativeRecoveryRecord {
        /// Why.
        reason: String,
    },
}

/// An effect that no rollback reverses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExcludedEffectEntry {
    /// What it was done to; null for the standing entry of a kind.
    pub target: Option<String>,
    /// Why it is excluded.
    pub reason: String,
    /// The same as a token.
    pub reason_code: String,
    /// `excluded` for a target that was left out of a checkpoint, `never-protected` for all others.
    pub status: String,
}

/// Effects that no rollback reverses, by kind. The six named kinds always have an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllExcludedEffects {
    /// Commands through a shell.
    pub shell: Vec<ExcludedEffectEntry>,
    /// Calls of other machines.
    pub remote: Vec<ExcludedEffectEntry>,
    /// Grants of permissions.
    pub permission: Vec<ExcludedEffectEntry>,
    /// Processes.
    pub process: Vec<ExcludedEffectEntry>,
    /// What a change reached through a link.
    pub symlink_side: Vec<ExcludedEffectEntry>,
    /// Everything outside this machine's files.
    pub external: Vec<ExcludedEffectEntry>,
    /// What can't be told.
    pub unknown: Vec<ExcludedEffectEntry>,
}

/// A checkpoint, in figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointSummary {
    /// The turn that made it.
    pub prompt_round_id: TurnId,
    /// Its id.
    pub checkpoint_id: CheckpointId,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was looked at.
    pub observed_at: Timestamp,
    /// The time between the two.
    pub subsequent_prompt_age_ms: u64,
    /// The files that it covers.
    pub target_count: u32,
    /// Per file the digest of what stood there before; null for nothing, and without the key.
    pub pre_digests: Vec<Option<Digest>>,
    /// Per file the digest of what was left there; null for nothing, and without the key.
    pub post_digests: Vec<Option<Digest>>,
    /// Targets that are found under another name now; empty unless they were looked for.
    pub rename_info: Vec<String>,
    /// Null: nothing expires by the clock.
    pub retention_expiry: Option<Timestamp>,
    /// What its images take on the disk.
    pub per_checkpoint_usage_bytes: u64,
    /// What all images of the store take.
    pub store_usage_bytes: u64,
    /// `encrypted`, or `unencrypted` for one that holds no image.
    pub encryption_state: String,
    /// Whether it is what was kept.
    pub integrity_state: IntegrityState,
    /// How much of it can be put back.
    pub coverage: RollbackCoverage,
    /// What putting it back never reverses.
    pub excluded_effects: AllExcludedEffects,
    /// Its session.
    pub session_id: SessionId,
    /// Its operation.
    pub operation_id: OperationId,
    /// The turn's ordinal in the session.
    pub prompt_round: u32,
    /// The prompt round in which it isn't kept any more.
    pub expiry_prompt_round: u32,
    /// What may be done with it.
    pub eligibility: RollbackEligibility,
}

/// The risk that a preview discloses, in the two sentences that always hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollbackRisk {
    /// The effects of the turn that no rollback reverses, as far as they were recorded.
    pub excluded_count: u32,
    /// What is covered, and what never is.
    pub sentences: [String; 2],
}

/// A file of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreviewTarget {
    /// Where; null without the key.
    pub path: Option<String>,
    /// What was done to it: `create`, `edit` or `delete`.
    pub effect: String,
    /// Bytes before; null where nothing stood.
    pub bytes_before: Option<u64>,
    /// Bytes after; null where nothing was left.
    pub bytes_after: Option<u64>,
}

/// One checkpoint, in the canonical order. Nothing is staged by looking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollbackPreview {
    /// Which document this is.
    pub schema: RollbackPreviewSchema,
    /// The version of thcode that wrote it.
    pub tool_version: String,
    /// A title.
    pub heading: String,
    /// What the preview is for.
    pub purpose: String,
    /// What can't be put back.
    pub risk: RollbackRisk,
    /// Which checkpoint, of which turn.
    pub target: String,
    /// Coverage, integrity and encryption, in a line.
    pub authority: String,
    /// How complete it is, in a sentence.
    pub evidence_completeness: String,
    /// What may be done with it, in a sentence.
    pub outcome: String,
    /// What to do next: a command to copy.
    pub next_step: String,
    /// The commands that go on from here.
    pub rollback_tokens: Vec<String>,
    /// The figures.
    pub summary: CheckpointSummary,
    /// What may be done with it.
    pub eligibility: RollbackEligibility,
    /// The files.
    pub targets: Vec<PreviewTarget>,
    /// What went wrong; null where nothing did.
    pub failure: Option<Failure>,
    /// The class of the end.
    pub exit_class: ExitClass,
    /// The code that the process exits with.
    pub exit_code: u8,
}

/// What stood, was left, or stands at a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ThreeWayState {
    /// `present`, `absent` or `unknown`.
    pub state: String,
    /// The digest; null where nothing stands.
    pub digest: Option<Digest>,
    /// The length.
    pub bytes: Option<u64>,
    /// The permission bits, in octal.
    pub mode: Option<String>,
    /// For what stands now: an opaque word that is another one once anything about it changes.
    pub version: Option<String>,
}

/// What putting a target back does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum InverseOperation {
    /// The file that was made is removed.
    DeleteFile,
    /// What stood there comes back.
    RestorePreImage,
    /// What stood there comes back, byte for byte from its sealed image: it is binary.
    RestoreFromArtifact,
    /// Nothing has to be done.
    None,
}

/// What analysis found for a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum AnalyzedOutcome {
    /// It would be put back.
    AppliedEligible {
        /// How.
        inverse_operation: InverseOperation,
        /// What has to stand there for that; null for nothing.
        expected_current_digest: Option<Digest>,
        /// The version of it; null for nothing.
        expected_current_version: Option<String>,
    },
    /// Somebody changed it since: it is left as it is.
    Conflict {
        /// Why, as a token.
        reason_code: String,
        /// What can be done about it.
        safe_choices: Vec<String>,
    },
    /// It needs nothing, or may not be touched.
    Skipped {
        /// Why, as a token.
        reason_code: String,
    },
    /// It can't be read, or its image can't.
    Inaccessible {
        /// Why, as a token.
        reason_code: String,
    },
    /// It goes by another name now.
    Mismatch {
        /// Why, as a token.
        reason_code: String,
        /// The name.
        to: String,
    },
    /// It can't be told: somebody has it open for writing.
    UnknownOutcome {
        /// Why, as a token.
        reason_code: String,
    },
}

/// A file that a rollback is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnalyzedTarget {
    /// Where.
    pub path: String,
    /// What was done to it, from the first checkpoint to the last: `create`, `edit` or `delete`.
    pub effect: String,
    /// The checkpoints that it is composed of, the oldest first.
    pub checkpoint_ids: Vec<CheckpointId>,
    /// What stood there before the first.
    pub pre_image: ThreeWayState,
    /// What the last one left there.
    pub post_image: ThreeWayState,
    /// What stands there now.
    pub current_state: ThreeWayState,
    /// What would be done.
    pub outcome: AnalyzedOutcome,
    /// A later checkpoint of the same file that isn't part of this; null for none.
    pub newer_checkpoint: Option<CheckpointId>,
}

/// A checkpoint that was meant and can't be put back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeftOut {
    /// Which.
    pub checkpoint_id: CheckpointId,
    /// Why: `expired`, `corrupt` or `locked`.
    pub reason_code: String,
}

/// What putting checkpoints back would do. Nothing is touched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollbackAnalysis {
    /// Which document this is.
    pub schema: RollbackAnalysisSchema,
    /// The version of thcode that wrote it.
    pub tool_version: String,
    /// `full`, `partial` or `blocked`: what an apply would come to.
    pub status: String,
    /// The checkpoints, the oldest first.
    pub checkpoint_ids: Vec<CheckpointId>,
    /// The files, by path.
    pub targets: Vec<AnalyzedTarget>,
    /// Files that would be put back, or are as they should be.
    pub applied_count: u32,
    /// Files that wouldn't.
    pub not_applied_count: u32,
    /// The digest of all of this: an apply that names it touches nothing if it isn't so any more.
    pub plan_digest: Digest,
    /// What putting them back never reverses.
    pub excluded_effects: AllExcludedEffects,
    /// Checkpoints that were meant and can't be put back; each counts as one file that isn't.
    pub left_out: Vec<LeftOut>,
    /// Operations of this store without a proven end: what they touched may not be what it seems.
    pub open_operations: u64,
    /// What to do next: a command to copy.
    pub next_step: String,
    /// The state directory that was read.
    pub state_dir: String,
    /// The workspace.
    pub workspace: String,
    /// What went wrong; null where nothing did.
    pub failure: Option<Failure>,
    /// The class of the end.
    pub exit_class: ExitClass,
    /// The code that the process exits with.
    pub exit_code: u8,
}

macro_rules! documents {
    ($($document:ty = $name:literal,)+) => {
        $(impl Document for $document {
            const NAME: &'static str = $name;

            fn exit_class(&self) -> ExitClass {
                self.exit_class
            }
        })+
    };
}
documents! {
    RollbackListResult = "rollback-list",
    RollbackPreview = "rollback-preview",
    RollbackAnalysis = "rollback-analysis",
}
