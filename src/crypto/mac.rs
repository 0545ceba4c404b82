//! Keyed digests: what an attacker who can write the disk, but not read the key, can't make fit.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use zeroize::Zeroizing;

use super::Context;

/// Bytes of a MAC.
pub const MAC_BYTES: usize = 32;

/// HMAC-SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac([u8; MAC_BYTES]);

impl Mac {
    /// Its bytes, for a row.
    pub fn as_bytes(&self) -> &[u8; MAC_BYTES] {
        &self.0
    }

    /// Reads one from a row; `None` if it has another length.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

/// A key for MACs of one purpose.
pub struct MacKey(Zeroizing<[u8; 32]>);

impl std::fmt::Debug for MacKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[mac key]")
    }
}

impl MacKey {
    pub(super) fn new(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(bytes)
    }

    /// The MAC of a context.
    pub fn of(&self, context: &Context) -> Mac {
        self.of_bytes(context.bytes())
    }

    /// The MAC of bytes that can't be read as another list of fields.
    pub fn of_bytes(&self, bytes: &[u8]) -> Mac {
        // INVARIANT: HMAC takes a key of any length, so this is never the default value.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(self.0.as_slice()) else {
            return Mac([0; MAC_BYTES]);
        };
        mac.update(bytes);
        Mac(mac.finalize().into_bytes().into())
    }

    /// Whether the MAC is the one of these bytes, compared in constant time.
    pub fn fits(&self, bytes: &[u8], mac: &[u8]) -> bool {
        Hmac::<Sha256>::new_from_slice(self.0.as_slice()).is_ok_and(|mut keyed| {
            keyed.update(bytes);
            keyed.verify_slice(mac).is_ok()
        })
    }
}
