//! Checkpoints: what stood in a file before and after an operation, sealed, with what is needed to
//! put it back.
//!
//! Plaintext of a file lives here only in [`Image`], which can't be printed or serialised. What is
//! kept, for how long and up to which size, is decided by pure functions.

#![expect(clippy::disallowed_methods, reason = "sealed files of the state directory are written here")]

mod artifact;
mod audit;
mod capacity;
mod evict;
mod read;
mod record;
mod retention;
mod sweep;

pub use artifact::{Image, ImageSource, SealedImage, open_artifact, seal};
pub use audit::{Audited, Material, audit, material};
pub use capacity::{Capacity, CapacityVerdict, Usage, evaluate};
pub use evict::{Fate, Reason, Weight, evict, reason, unsound, weight};
pub use read::{StoredCheckpoint, StoredImage, StoredTarget, list, targets};
pub use record::{
    ContentClass, Effect, FileMeta, ImageState, NewCheckpoint, NewTarget, Xattr, commit, settle, usage,
};
pub use retention::{RetentionConfig, RetentionError, RetentionState, retained};
pub use sweep::{Swept, sweep, unlink};

use crate::{crypto::CryptoError, store::StoreError};

/// The system has no randomness: nothing can be sealed.
pub const NO_ENTROPY: CryptoError = CryptoError::NoEntropy;

/// Why a checkpoint can't be made or read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Sealing or opening failed.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
    /// The file couldn't be read while it was sealed.
    #[error("the file can't be read whole: {0}")]
    Source(std::io::Error),
    /// The file changed while it was sealed.
    #[error("the file changed while it was read")]
    Changed,
    /// A sealed file can't be written or read.
    #[error("the sealed file {name}: {source}")]
    SealedFile {
        /// Its name in the state directory.
        name: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// What is kept isn't what was kept.
    #[error("the checkpoint is corrupt: {0}")]
    Corrupt(&'static str),
    /// Something that is referred to isn't there.
    #[error("the checkpoint is corrupt: {0}")]
    Missing(&'static str),
}
