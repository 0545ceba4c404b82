//! The one SQLite file, its lease and its head anchor: where everything durable is kept.
//!
//! One transaction domain: journal, checkpoints, artifacts, sessions and authorizations commit
//! together. Knows the tables, not what their rows mean; never touches the user's tree but to lock
//! its directory. A reader and a writer are different types, so that a reader can't write.
#![expect(clippy::disallowed_methods, reason = "the store makes and syncs its own directory and files")]

mod anchor;
mod lease;
mod open;
mod place;
mod reader;
mod rows;
mod schema;
mod tx;

pub use crate::crypto::KeySource;
pub use anchor::{Anchor, Head};
pub use lease::{Holder, Lease, LeaseError, live_holder};
pub use open::{HeadSeen, Store, StoreFacts};
pub use place::{StatePlace, is_kept, state_base, state_place};
pub use reader::ReadStore;
pub use rows::{RowDigest, Rows, View};
pub use tx::{Durability, Tx};

use std::path::PathBuf;

use crate::crypto::{CryptoError, KeyError};

/// A row that isn't what the journal says, or can't be what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowFault {
    /// Its table.
    pub table: &'static str,
    /// Which row, by its id; empty where it has none that can be told.
    pub row: String,
    /// What is wrong.
    pub problem: String,
}

/// Why the store can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Neither a state directory was given nor can one be derived.
    #[error("there is no place for the state directory: neither XDG_STATE_HOME nor HOME is set")]
    NoPlace,
    /// The directory can't be used as it is.
    #[error("the state directory {} can't be used: {problem}", path.display())]
    Place {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// There is no store.
    #[error("there is no store in {}", .0.display())]
    Missing(PathBuf),
    /// The system refused a file of the store.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// SQLite refused.
    #[error("the store's database: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A setting didn't take.
    #[error("the store's database refuses the setting {pragma}: it is {found}")]
    Pragma {
        /// Which.
        pragma: &'static str,
        /// What it is instead.
        found: String,
    },
    /// The file is a database of something else.
    #[error("{} is not a store of thcode", .0.display())]
    Foreign(PathBuf),
    /// A newer thcode wrote it.
    #[error("the store has version {found}, and this thcode knows {known}: it can only be read")]
    Newer {
        /// The store's version.
        found: i64,
        /// The newest that is known.
        known: i64,
    },
    /// The database lost rows that were durable, or its anchor is gone.
    #[error("the journal is not what was durably written: {0}")]
    Behind(String),
    /// The master key can't be had.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The master key is not the one of this store.
    #[error("the key is not the one that this store was made with")]
    KeyMismatch,
    /// Sealing failed.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
    /// A row that can't be read.
    #[error("the store is corrupt: {0}")]
    Corrupt(String),
}

impl StoreError {
    /// Whether what is there isn't what was written: looking again won't help, and nothing else
    /// about the system does.
    pub fn is_damage(&self) -> bool {
        use rusqlite::{Error, ErrorCode};
        match self {
            Self::Corrupt(_) | Self::Behind(_) => true,
            Self::Sqlite(Error::SqliteFailure(error, _)) => {
                matches!(error.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
            }
            // A value of another type or range than was ever written.
            Self::Sqlite(
                Error::FromSqlConversionFailure(..)
                | Error::IntegralValueOutOfRange(..)
                | Error::Utf8Error(..)
                | Error::InvalidColumnType(..)
                | Error::InvalidQuery,
            ) => true,
            _ => false,
        }
    }

    /// Whether the disk is full, a quota reached or the file system read-only.
    pub fn is_no_space(&self) -> bool {
        match self {
            Self::Sqlite(error) => error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull),
            Self::Io { source, .. } => {
                matches!(
                    source.kind(),
                    std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
                )
            }
            _ => false,
        }
    }
}
