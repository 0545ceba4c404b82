//! What a change is: whose, of what, within which limits, and how it can end.

use super::{Refusal, edit::Edit};
use crate::{
    checkpoint::{Capacity, Effect, RetentionConfig},
    host::Host,
    id::{CheckpointId, Digest, OperationId, SessionId, TurnId},
    journal::Log,
    store::Store,
    workspace::Root,
};

/// Everything that a change is made with.
pub struct Vault<'a> {
    /// The world.
    pub host: &'a Host,
    /// The workspace.
    pub root: &'a Root,
    /// The store.
    pub store: &'a mut Store,
    /// Its journal.
    pub log: &'a mut Log,
}

/// Whose change it is.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// The session.
    pub session_id: SessionId,
    /// The turn.
    pub turn_id: TurnId,
    /// The turn's ordinal.
    pub prompt_round: u32,
    /// The operation, already proposed and decided.
    pub operation_id: OperationId,
}

/// What is to be changed. The path is what the verdict resolved, relative to the root.
#[derive(Debug)]
pub enum Change<'a> {
    /// Makes a file where nothing stands.
    Create {
        /// Where.
        path: &'a str,
        /// Its bytes.
        content: &'a [u8],
    },
    /// Changes a file.
    Edit {
        /// Which.
        path: &'a str,
        /// How.
        edits: &'a [Edit],
    },
    /// Gives a file other content, whatever it was.
    Replace {
        /// Which.
        path: &'a str,
        /// Its new bytes.
        content: &'a [u8],
    },
    /// Removes a file.
    Delete {
        /// Which.
        path: &'a str,
    },
}

impl Change<'_> {
    /// Where.
    pub fn path(&self) -> &str {
        match self {
            Self::Create { path, .. }
            | Self::Edit { path, .. }
            | Self::Replace { path, .. }
            | Self::Delete { path } => path,
        }
    }

    pub(super) fn effect(&self) -> Effect {
        match self {
            Self::Create { .. } => Effect::Create,
            Self::Edit { .. } | Self::Replace { .. } => Effect::Edit,
            Self::Delete { .. } => Effect::Delete,
        }
    }
}

/// What the policy says about keeping.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The caps.
    pub capacity: Capacity,
    /// How long a checkpoint is kept.
    pub retention: RetentionConfig,
    /// Whether a file with several names may lose its others.
    pub break_hard_links: bool,
    /// Whether this change may go on without images if they don't fit.
    pub protection: Protection,
}

/// Whether a change may go on without images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// It may not.
    Required,
    /// The policy names this very scope: it may, up to so many bytes.
    WaivedUpTo(u64),
}

/// How a change ended.
#[derive(Debug)]
pub enum Ended {
    /// It is there, and was seen.
    Applied(Applied),
    /// It was refused before anything was dispatched. Not one byte changed.
    Refused(Refusal),
    /// It was given up after the dispatch. Nothing changed, and that was seen.
    Failed(Refusal),
    /// What stands can't be proven; the message names what was left and where.
    Unknown(Refusal),
}

/// A change that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// What was done.
    pub effect: Effect,
    /// The checkpoint; `None` where the policy waived it.
    pub coverage: Coverage,
    /// Bytes before, where something stood.
    pub bytes_before: Option<u64>,
    /// Bytes after, where something stands.
    pub bytes_after: Option<u64>,
    /// The digest before.
    pub before: Option<Digest>,
    /// The digest after.
    pub after: Option<Digest>,
    /// How many places an edit replaced.
    pub replaced: u64,
    /// Whether the file system could only do its best.
    pub best_effort: bool,
}

/// What protects a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// Its images, sealed.
    Checkpoint(CheckpointId),
    /// Nothing: the policy waived it for want of room.
    Unprotected,
}
