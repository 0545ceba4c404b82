//! The vocabulary: what can happen, and what is told of it. Each kind has its own version, so that a
//! later reader knows how to read an older row.

use serde::{Deserialize, Serialize};

use crate::id::{AuthorizationId, CheckpointId, Digest, OperationId, SessionId, Timestamp, TurnId};

/// An event, before it has a place in the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The session that it belongs to.
    pub session_id: SessionId,
    /// The turn.
    pub turn_id: Option<TurnId>,
    /// The operation, for events of one.
    pub operation_id: Option<OperationId>,
    /// The operation that this one is a part of.
    pub parent_operation_id: Option<OperationId>,
    /// Whose word it is.
    pub provenance: Provenance,
    /// What happened.
    pub payload: Payload,
}

impl Event {
    /// An event of the store itself: of no session, no turn and no operation.
    pub fn of_store(payload: Payload) -> Self {
        Self {
            session_id: SessionId::from_uuid(uuid::Uuid::nil()),
            turn_id: None,
            operation_id: None,
            parent_operation_id: None,
            provenance: Provenance::Deterministic,
            payload,
        }
    }
}

/// Whose word an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Provenance {
    /// This program's own observation.
    Deterministic,
    /// The model's proposal.
    Model,
}

impl Provenance {
    pub(super) fn token(self) -> &'static str {
        match self {
            Self::Deterministic => "deterministic",
            Self::Model => "model",
        }
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Payload {
    /// A run began on this store.
    RunStarted {
        /// The version of thcode.
        tool_version: String,
        /// Its process.
        pid: u32,
        /// The digest of the policy bundle.
        policy: Digest,
    },
    /// A run ended; its document follows.
    RunEnded {
        /// Why.
        stop_reason: String,
        /// The code that the process exits with.
        exit_code: u8,
        /// When, as the turn's row has it.
        ended_at: Timestamp,
        /// How many messages the session has now.
        messages: u32,
    },
    /// A prompt was taken on; its text is sealed in the session.
    PromptSubmitted {
        /// Its ordinal in the session.
        prompt_round: u32,
        /// The digest of what the turn's row and its session's say for good.
        row: Digest,
    },
    /// The model proposed a call.
    OperationProposed {
        /// The tool.
        tool: String,
        /// Its action class.
        action_class: String,
    },
    /// The policy decided.
    PolicyDecisionRecorded {
        /// `allow`, `deny` or `ask`.
        outcome: String,
        /// What it rests on.
        because: String,
        /// The rule, where one decided.
        rule_id: Option<String>,
        /// The rule's line in its policy file.
        line: Option<u32>,
        /// The digest of the policy bundle.
        policy: Digest,
    },
    /// The images of an operation's files are sealed and referred to.
    CheckpointCommitted {
        /// The checkpoint.
        checkpoint_id: CheckpointId,
        /// How many files it covers.
        targets: u32,
        /// The digest of what its rows say for good.
        rows: Digest,
        /// The permission that came of the policy's decision.
        authorization_id: AuthorizationId,
    },
    /// The operation is a part of another one, whose checkpoint covers its file.
    TargetCovered {
        /// The checkpoint.
        checkpoint_id: CheckpointId,
        /// The file's place in it.
        ordinal: u32,
        /// The digest of what the checkpoint's rows say for good.
        rows: Digest,
        /// The permission that came of the decision.
        authorization_id: AuthorizationId,
    },
    /// The policy accepted that an operation has no images.
    UnprotectedOperationRecorded {
        /// The bytes that aren't kept; null for a command, of which nobody can tell.
        bytes: Option<u64>,
        /// The permission that came of the policy's decision.
        authorization_id: AuthorizationId,
    },
    /// The permission was used up.
    AuthorizationConsumed {
        /// Which.
        authorization_id: AuthorizationId,
    },
    /// From here on the effect may happen. The only authority on whether it can have.
    EffectDispatchCommitted {
        /// The digest of the row of `inflight`; null for a command, and for an operation whose parts
        /// have one each.
        inflight: Option<Digest>,
    },
    /// A command's process was started.
    CommandSpawned {
        /// Its id.
        pid: u32,
        /// The session of the process.
        process_session: u32,
        /// When it started, in ticks since the boot: with the id it names one process for good.
        start_time: u64,
        /// The kernel's id of this boot.
        boot_id: String,
    },
    /// The effect happened and was seen.
    OperationSucceeded {},
    /// Nothing changed, and that was seen.
    OperationFailed {
        /// Why, as a token.
        cause: String,
    },
    /// It was refused before anything could happen.
    OperationBlocked {
        /// Why, as a token.
        cause: String,
    },
    /// It was given up before anything could happen.
    OperationCancelled {
        /// Why, as a token.
        cause: String,
    },
    /// What happened can't be proven.
    OperationUnknownOutcome {
        /// Why, as a token.
        cause: String,
    },
    /// What became of an interrupted operation: read from the disk, or taken on an operator's word.
    OperationReconciled {
        /// What it came to.
        resolution: Resolution,
        /// What was seen at the target, as a token; null for a command.
        target: Option<String>,
        /// What was seen under the temporary name, as a token; null for a command.
        temp: Option<String>,
        /// The operator's reason, for their word alone.
        reason: Option<String>,
    },
    /// What an ended operation had left beside its target is gone.
    CleanupDone {},
    /// Checkpoints that aren't kept any more were freed, with their images.
    CheckpointsEvicted {
        /// Which.
        checkpoint_ids: Vec<CheckpointId>,
        /// Why, as a token.
        because: String,
    },
    /// An operator took the journal as it is, though the head anchor told of more, or was gone.
    HeadAccepted {
        /// The first event that was durable once and is gone; null where nobody can tell.
        lost_from_seq: Option<u64>,
        /// The last one.
        lost_to_seq: Option<u64>,
    },
}

/// What an interrupted operation came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resolution {
    /// The effect was made.
    Applied,
    /// The effect was made but for its last step, which was done now.
    Finished,
    /// The effect makes no difference.
    NoChange,
    /// The effect wasn't made.
    NotApplied,
    /// What the effect had moved away was put back.
    Restored,
    /// A command that nobody saw the end of; none of its processes lives.
    InterruptedCommand,
    /// A person looked, and takes it as it is.
    AcceptedByOperator,
}

impl Resolution {
    /// The word of the resolution.
    pub fn token(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Finished => "finished",
            Self::NoChange => "no-change",
            Self::NotApplied => "not-applied",
            Self::Restored => "restored",
            Self::InterruptedCommand => "interrupted-command",
            Self::AcceptedByOperator => "accepted-by-operator",
        }
    }
}

impl Payload {
    /// The word of the kind, as the column has it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::RunStarted { .. } => "RunStarted",
            Self::RunEnded { .. } => "RunEnded",
            Self::PromptSubmitted { .. } => "PromptSubmitted",
            Self::OperationProposed { .. } => "OperationProposed",
            Self::PolicyDecisionRecorded { .. } => "PolicyDecisionRecorded",
            Self::CheckpointCommitted { .. } => "CheckpointCommitted",
            Self::TargetCovered { .. } => "TargetCovered",
            Self::UnprotectedOperationRecorded { .. } => "UnprotectedOperationRecorded",
            Self::AuthorizationConsumed { .. } => "AuthorizationConsumed",
            Self::EffectDispatchCommitted { .. } => "EffectDispatchCommitted",
            Self::CommandSpawned { .. } => "CommandSpawned",
            Self::OperationSucceeded {} => "OperationSucceeded",
            Self::OperationFailed { .. } => "OperationFailed",
            Self::OperationBlocked { .. } => "OperationBlocked",
            Self::OperationCancelled { .. } => "OperationCancelled",
            Self::OperationUnknownOutcome { .. } => "OperationUnknownOutcome",
            Self::OperationReconciled { .. } => "OperationReconciled",
            Self::CleanupDone {} => "CleanupDone",
            Self::CheckpointsEvicted { .. } => "CheckpointsEvicted",
            Self::HeadAccepted { .. } => "HeadAccepted",
        }
    }

    /// The version of the kind's payload.
    pub(super) fn version(&self) -> u32 {
        1
    }
}
