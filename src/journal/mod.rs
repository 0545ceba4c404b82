//! The journal: what was proposed, decided, dispatched and proven, in one append-only chain.
//!
//! Holds no prompt, no model output, no file content, no secret and no path of the user's tree:
//! those live sealed, or in `inflight` for as long as an operation is open. Mints
//! [`DispatchCommitted`], without which no effect can be made.

mod chain;
mod event;
mod inflight;
mod ledger;
mod log;
mod standing;
mod status;

pub use chain::{Fault, hash_at, verify};
pub use event::{Event, Payload, Provenance, Resolution};
pub use inflight::{Inflight, InflightImage};
pub use ledger::{Ledger, TurnEntry, TurnEntryEnd, ledger};
pub use log::{DispatchCommitted, Log, Part, PartEnd, Settling, Stage, interrupted};
pub use standing::{Standing, StoredEvent, beyond_checkpoints, events_of, is_evicted, standing};
pub use status::{ENDING_KINDS, IllegalEvent, Status};

use crate::store::StoreError;

/// Why an event can't be written or the journal can't be read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The order of events makes no sense: a bug, or somebody else's rows.
    #[error("the journal can't hold this event: {0}")]
    Illegal(#[from] IllegalEvent),
    /// A row isn't what the chain says.
    #[error("the journal is broken at row {}: {}", .0.seq, .0.problem)]
    Broken(Fault),
    /// An authorization that is unknown or was consumed.
    #[error("the authorization of the operation was not there to be consumed")]
    NotAuthorized,
}
