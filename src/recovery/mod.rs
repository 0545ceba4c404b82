//! What became of interrupted operations: read from the journal, proven from the disk.
//!
//! Never replays an effect and can't: it imports nothing that changes a file. What has to be tidied
//! up is told as a value, which `mutation` carries out and `app` joins. A verdict rests on content
//! alone, never on times, and needs no key.

mod case;
mod classify;
mod sight;
mod verdict;

pub use case::{Case, Spawned, cases, one, parts};
pub use classify::{Known, beside, classify};
pub use sight::{at_home, look};
pub use verdict::{Debris, Verdict, Why, verdict};

use crate::{journal::JournalError, store::StoreError};

/// Why nothing can be told.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The journal can't be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// No event names the operation.
    #[error("the journal has no operation {0}")]
    NotFound(String),
}
