//! The key ring: a random store secret, wrapped by the master key; every other key is derived from
//! the secret, so that a new master key changes one wrap and no MAC.

use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroizing;

use super::{Context, CryptoError, MacKey, MasterKey, SealKey, seal::random};
use crate::host::Host;

/// The secret of one store.
pub struct StoreSecret(Zeroizing<[u8; 32]>);

impl std::fmt::Debug for StoreSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[store secret]")
    }
}

/// The keys of one store, by purpose.
#[derive(Debug)]
pub struct Keys {
    /// The MAC of a transaction's last journal row, and of the head anchor.
    pub journal: MacKey,
    /// The MAC of a path, so that equal paths can be found without being told.
    pub path: MacKey,
    /// The MAC that stands for a content digest.
    pub digest: MacKey,
    /// Wraps the keys of blobs.
    pub content: SealKey,
    /// Seals small things: paths, messages.
    pub small: SealKey,
}

impl StoreSecret {
    /// A fresh one.
    pub fn fresh(host: &Host) -> Result<Self, CryptoError> {
        Ok(Self(Zeroizing::new(random::<32>(host)?)))
    }

    /// The keys that follow from it.
    pub fn keys(&self) -> Keys {
        let derived = |purpose| derive(&self.0, purpose);
        Keys {
            journal: MacKey::new(derived("thcode journal v1")),
            path: MacKey::new(derived("thcode path v1")),
            digest: MacKey::new(derived("thcode digest v1")),
            content: SealKey::new(derived("thcode content v1")),
            small: SealKey::new(derived("thcode small v1")),
        }
    }
}

/// What a wrapped secret is bound to.
#[derive(Debug, Clone, Copy)]
pub struct Ring {
    /// The store.
    pub store: [u8; 16],
    /// The version of the master key.
    pub version: u32,
    /// When the wrap and when the store were made. Milliseconds since the epoch.
    pub times: [i64; 2],
}

impl Ring {
    fn context(&self) -> Context {
        let [ring, store] = self.times.map(i64::cast_unsigned);
        Context::new("thcode ring")
            .field(&self.store)
            .number(self.version.into())
            .number(ring)
            .number(store)
    }
}

/// Wraps a store's secret for one version of its ring.
pub fn wrap_secret(
    host: &Host,
    master: &MasterKey,
    ring: &Ring,
    secret: &StoreSecret,
) -> Result<Vec<u8>, CryptoError> {
    wrapping_key(master).seal_key(host, &ring.context(), secret.0.as_slice())
}

/// Unwraps it; [`CryptoError::NotAuthentic`] if the master key is another one.
pub fn unwrap_secret(
    master: &MasterKey,
    ring: &Ring,
    wrapped: &[u8],
) -> Result<StoreSecret, CryptoError> {
    let plain = wrapping_key(master).open(&ring.context(), wrapped)?;
    let bytes = <[u8; 32]>::try_from(plain.as_slice()).map_err(|_| CryptoError::NotAuthentic)?;
    Ok(StoreSecret(Zeroizing::new(bytes)))
}

fn wrapping_key(master: &MasterKey) -> SealKey {
    SealKey::new(derive(master.bytes(), "thcode ring v1"))
}

fn derive(secret: &[u8; 32], purpose: &str) -> Zeroizing<[u8; 32]> {
    let mut out = Zeroizing::new([0u8; 32]);
    // INVARIANT: HKDF-SHA-256 refuses only outputs over 8,160 bytes, and this one has 32.
    let expanded = Hkdf::<Sha256>::new(None, secret).expand(purpose.as_bytes(), out.as_mut_slice());
    debug_assert!(expanded.is_ok(), "32 bytes are always to be had");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::{KeySource, encode_new_key};

    fn master() -> MasterKey {
        MasterKey::read(&KeySource::Variable(encode_new_key(&Host::real()).unwrap())).unwrap()
    }

    #[test]
    fn a_secret_is_bound_to_its_master_key_store_and_version() {
        let (host, one, store) = (Host::real(), master(), [1u8; 16]);
        let secret = StoreSecret::fresh(&host).unwrap();
        let ring = Ring { store, version: 1, times: [5, 6] };
        let wrapped = wrap_secret(&host, &one, &ring, &secret).unwrap();
        let back = unwrap_secret(&one, &ring, &wrapped).unwrap();
        assert_eq!(*back.0, *secret.0);
        assert!(unwrap_secret(&master(), &ring, &wrapped).is_err());
        for other in [
            Ring { store: [2; 16], ..ring },
            Ring { version: 2, ..ring },
            Ring { times: [5, 7], ..ring },
            Ring { times: [4, 6], ..ring },
        ] {
            assert!(unwrap_secret(&one, &other, &wrapped).is_err(), "{other:?}");
        }
    }

    #[test]
    fn each_purpose_has_its_own_key() {
        let secret = StoreSecret(Zeroizing::new([9; 32]));
        let keys = secret.keys();
        let macs = [&keys.journal, &keys.path, &keys.digest].map(|key| key.of_bytes(b"x"));
        assert!(macs[0] != macs[1] && macs[1] != macs[2] && macs[0] != macs[2]);
        assert_eq!(macs[0], secret.keys().journal.of_bytes(b"x"), "the same secret gives the same keys");
        assert!(
            keys.journal.fits(b"x", macs[0].as_bytes()) && !keys.journal.fits(b"y", macs[0].as_bytes())
        );
    }
}
