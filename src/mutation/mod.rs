//! The only writer of user files: plan, look, seal, journal, then write; in that order, by handle.
//!
//! Nothing here decides whether a change is allowed. A change that is refused leaves not one byte
//! different; one that can't be proven is said to be unknown, never to be a success.

mod change;
mod debris;
pub mod edit;
mod native;
mod pipeline;
mod preflight;
mod publish;
mod restore;

#[cfg(test)]
mod tests;

pub use change::{About, Applied, Change, Coverage, Ended, Limits, Protection, Vault};
pub use debris::{Tidy, tidy};
pub use pipeline::mutate;
pub use preflight::{MOST_EDITED_BYTES, Refusal};
pub use restore::{End, Former, Interrupted, Ordered, Restored, Standing, Wanted, ordered, restore};

use crate::{checkpoint::CheckpointError, journal::JournalError, store::StoreError};

/// A failure of the machinery itself, not of the change: the run can't go on.
#[derive(Debug, thiserror::Error)]
pub enum MutationError {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The journal refused.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The checkpoint couldn't be made.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The effect may have been made, and what became of it can't be written down.
    #[error("what became of a change can't be recorded: {0}")]
    Unsettled(JournalError),
}
