//! What putting checkpoints back came to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AllExcludedEffects, InverseOperation, LeftOut, ThreeWayState};
use crate::{
    contract::{Document, ExitClass, failure::Failure, schema_tag},
    id::{CheckpointId, Digest, OperationId},
};

schema_tag!(
    /// The constant `thcode.rollback-apply-result/v1`.
    RollbackApplyResultSchema = "thcode.rollback-apply-result/v1"
);

/// How much of what was selected is as it was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RollbackApplyResultType {
    /// Every selected target was applied.
    Full,
    /// Some were, others weren't.
    Partial,
    /// None was.
    Blocked,
}

impl RollbackApplyResultType {
    /// The word of the value.
    pub fn token(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Partial => "partial",
            Self::Blocked => "blocked",
        }
    }
}

/// What became of one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum ApplyTargetOutcome {
    /// It is as it was before, and that was seen.
    Applied {
        /// What was done; `none` where nothing had to be.
        inverse_operation: InverseOperation,
    },
    /// It needs nothing, may not be touched, or wasn't asked for.
    Skipped {
        /// Why, as a token.
        reason_code: String,
    },
    /// Somebody changed it since: it was left as it is.
    Conflict {
        /// Why, as a token.
        reason_code: String,
        /// What can be done about it: choices of `rollback resolve`.
        safe_choices: Vec<String>,
    },
    /// It, or its image, can't be read, or the system refused to write it. It is as it was found.
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
    /// It can't be told.
    UnknownOutcome {
        /// Why, as a token.
        reason_code: String,
    },
}

/// Whether a file that came back has all that it had besides its bytes and its mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RestoredMetadata {
    /// It has.
    Whole,
    /// Its owner, an extended attribute or the mode of its directory couldn't be given back.
    Partial,
}

/// A file that a rollback was about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedTarget {
    /// Where.
    pub path: String,
    /// What had been done to it: `create`, `edit` or `delete`.
    pub effect: String,
    /// The checkpoints that were put back, the oldest first.
    pub checkpoint_ids: Vec<CheckpointId>,
    /// What stood there before the first.
    pub pre_image: ThreeWayState,
    /// What the last one left there.
    pub post_image: ThreeWayState,
    /// What was found there.
    pub current_state: ThreeWayState,
    /// What became of it.
    pub outcome: ApplyTargetOutcome,
    /// The operation that did it; null where nothing was dispatched for it.
    pub operation_id: Option<OperationId>,
    /// For one that came back: whether all of it did; null for the others.
    pub metadata: Option<RestoredMetadata>,
    /// More in words, where there is more to tell.
    pub message: Option<String>,
}

/// Targets by outcome. `not-selected` counts nowhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplyCounts {
    /// Put back, or gone already.
    pub applied: u32,
    /// Needed nothing.
    pub already_at_pre_image: u32,
    /// Not to be touched, or not covered.
    pub skipped: u32,
    /// Changed by somebody since.
    pub conflict: u32,
    /// Not to be read or written.
    pub inaccessible: u32,
    /// Under another name now.
    pub mismatch: u32,
    /// Not to be told.
    pub unknown_outcome: u32,
}

/// A conflict that is left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResidualConflict {
    /// Where.
    pub path: String,
    /// Why, as a token.
    pub reason_code: String,
    /// What can be done about it.
    pub safe_choices: Vec<String>,
}

/// A target that no rollback may touch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusedTarget {
    /// Where.
    pub path: String,
    /// The boundary, as a token.
    pub boundary: String,
}

/// What putting checkpoints back came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollbackApplyResult {
    /// Which document this is.
    pub schema: RollbackApplyResultSchema,
    /// The version of thcode that wrote it.
    pub tool_version: String,
    /// How much of it is as it was.
    pub result: RollbackApplyResultType,
    /// The checkpoints that were put back, the oldest first.
    pub checkpoint_ids: Vec<CheckpointId>,
    /// The files, by path.
    pub targets: Vec<AppliedTarget>,
    /// Selected files that are as they were before.
    pub applied_count: u32,
    /// Selected files that aren't.
    pub not_applied_count: u32,
    /// All of them by outcome.
    pub counts: ApplyCounts,
    /// Conflicts that are left.
    pub residual_conflicts: Vec<ResidualConflict>,
    /// Files that a boundary, the policy or `--protect` keeps.
    pub refused: Vec<RefusedTarget>,
    /// The checkpoint that puts all of this back in turn; null where nothing was changed.
    pub checkpoint_id_after: Option<CheckpointId>,
    /// The operation that all of it was a part of; null where nothing was dispatched.
    pub operation_id: Option<OperationId>,
    /// The digest of what was analyzed before anything was touched.
    pub plan_digest: Digest,
    /// What was never put back.
    pub excluded_effects: AllExcludedEffects,
    /// Checkpoints that were meant and can't be put back; each counts as one file that isn't.
    pub left_out: Vec<LeftOut>,
    /// Operations of this store without a proven end.
    pub open_operations: u64,
    /// What a reader should know besides: interrupted operations that were settled first, what could not be
    /// seen.
    pub notes: Vec<String>,
    /// For `resolve … export-sanitized-patch`: the patch; null for everything else.
    pub patch: Option<String>,
    /// What to do next: a command to copy.
    pub next_step: String,
    /// The state directory.
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

impl Document for RollbackApplyResult {
    const NAME: &'static str = "rollback-apply-result";

    fn exit_class(&self) -> ExitClass {
        self.exit_class
    }
}
