//! Keys, sealing and MACs: what makes a byte on disk unreadable, and a change to it noticed.
//!
//! Knows no table and no path of the user's. Key bytes live in types that can't be printed and are
//! wiped when dropped; nothing here is ever handed to a child process.

mod context;
mod key;
mod mac;
mod ring;
mod seal;

pub use context::Context;
pub use key::{KeyError, KeySource, MasterKey, encode_new_key};
pub use mac::{MAC_BYTES, Mac, MacKey};
pub use ring::{Keys, Ring, StoreSecret, unwrap_secret, wrap_secret};
pub use seal::{CHUNK_BYTES, ContentKey, OVERHEAD_BYTES, Opener, SealKey, Sealer};

/// Why something can't be sealed or opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CryptoError {
    /// The tag doesn't fit: other bytes, another key, or another place than it was sealed for.
    #[error("the sealed bytes were altered, or were sealed with another key or for another place")]
    NotAuthentic,
    /// The system has no randomness.
    #[error("the system gives no random bytes")]
    NoEntropy,
    /// More chunks than the nonce can count.
    #[error("the content is too long to be sealed")]
    TooLong,
}
