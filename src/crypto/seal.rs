//! Sealing: AES-256-GCM over chunks of 1 MiB, so that memory is bounded and truncation, reordering
//! and swapping between places are noticed.
//!
//! A blob has a fresh random key of its own; the nonce of a chunk is a random prefix, the chunk's
//! number, and whether it is the last.

use aes_gcm::{
    Aes256Gcm, Nonce, Tag,
    aead::{AeadInOut as _, KeyInit as _},
};
use zeroize::Zeroizing;

use super::{Context, CryptoError};
use crate::host::Host;

/// Plaintext bytes of a chunk; only the last may have fewer.
pub const CHUNK_BYTES: usize = 1 << 20;
/// What a sealed chunk has more than its plaintext.
pub const OVERHEAD_BYTES: usize = 16;
/// Random bytes at the start of every nonce of a blob.
const PREFIX_BYTES: usize = 7;
const NONCE_BYTES: usize = 12;

/// A key that seals small things, each with a random nonce.
pub struct SealKey(Zeroizing<[u8; 32]>);

impl std::fmt::Debug for SealKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[seal key]")
    }
}

/// The key of one blob.
pub struct ContentKey(Zeroizing<[u8; 32]>);

impl std::fmt::Debug for ContentKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[content key]")
    }
}

/// The fault of a build that leaves sealing out, for the test that has to notice it.
const NO_SEAL: &str = "no-seal";

impl SealKey {
    pub(super) fn new(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(bytes)
    }

    /// Seals something small: nonce, ciphertext, tag.
    pub fn seal(&self, host: &Host, context: &Context, plain: &[u8]) -> Result<Vec<u8>, CryptoError> {
        if host.fault(NO_SEAL) {
            return Ok(plain.to_vec());
        }
        self.seal_key(host, context, plain)
    }

    /// As [`SealKey::seal`], for another key.
    pub(super) fn seal_key(
        &self,
        host: &Host,
        context: &Context,
        plain: &[u8],
    ) -> Result<Vec<u8>, CryptoError> {
        let nonce = random::<NONCE_BYTES>(host)?;
        let mut sealed = Vec::with_capacity(NONCE_BYTES + plain.len() + OVERHEAD_BYTES);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(plain);
        let (_, body) = sealed.split_at_mut(NONCE_BYTES);
        let tag = cipher(&self.0)
            .encrypt_inout_detached(&Nonce::from(nonce), context.bytes(), body.into())
            .map_err(|_| CryptoError::TooLong)?;
        sealed.extend_from_slice(&tag);
        Ok(sealed)
    }

    /// Opens what [`SealKey::seal`] has made for the same context.
    pub fn open(&self, context: &Context, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, CryptoError> {
        let (nonce, rest) = sealed.split_at_checked(NONCE_BYTES).ok_or(CryptoError::NotAuthentic)?;
        let nonce = <[u8; NONCE_BYTES]>::try_from(nonce).map_err(|_| CryptoError::NotAuthentic)?;
        let mut plain = Zeroizing::new(rest.to_vec());
        open_in_place(&self.0, nonce, context, &mut plain)?;
        Ok(plain)
    }

    /// Wraps a blob's key for one reference to it.
    pub fn wrap(
        &self,
        host: &Host,
        context: &Context,
        key: &ContentKey,
    ) -> Result<Vec<u8>, CryptoError> {
        self.seal_key(host, context, key.0.as_slice())
    }

    /// Unwraps a blob's key.
    pub fn unwrap(&self, context: &Context, wrapped: &[u8]) -> Result<ContentKey, CryptoError> {
        let plain = self.open(context, wrapped)?;
        let bytes = <[u8; 32]>::try_from(plain.as_slice()).map_err(|_| CryptoError::NotAuthentic)?;
        Ok(ContentKey(Zeroizing::new(bytes)))
    }
}

/// Seals one blob, chunk by chunk.
#[derive(Debug)]
pub struct Sealer {
    key: ContentKey,
    context: Context,
    prefix: [u8; PREFIX_BYTES],
    counter: u32,
    /// A test asked to see what would be found if nothing were sealed.
    naked: bool,
}

impl Sealer {
    /// Begins a blob with a fresh key.
    pub fn begin(host: &Host, context: Context) -> Result<Self, CryptoError> {
        let key = ContentKey(Zeroizing::new(random::<32>(host)?));
        Ok(Self { key, context, prefix: random(host)?, counter: 0, naked: host.fault(NO_SEAL) })
    }

    /// The nonce prefix, to be kept in clear beside the chunks.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// The blob's key, to be wrapped for each reference.
    pub fn key(&self) -> &ContentKey {
        &self.key
    }

    /// Seals the next chunk in place and appends its tag. Every chunk but the last must have
    /// [`CHUNK_BYTES`]; a blob has at least one, which may be empty.
    pub fn chunk(&mut self, plain: &mut Vec<u8>, last: bool) -> Result<(), CryptoError> {
        if self.naked {
            plain.extend_from_slice(&[0; OVERHEAD_BYTES]);
            return Ok(());
        }
        let nonce = nonce(self.prefix, self.counter, last);
        let tag = cipher(&self.key.0)
            .encrypt_inout_detached(
                &Nonce::from(nonce),
                self.context.bytes(),
                plain.as_mut_slice().into(),
            )
            .map_err(|_| CryptoError::TooLong)?;
        plain.extend_from_slice(&tag);
        self.counter = self.counter.checked_add(1).ok_or(CryptoError::TooLong)?;
        Ok(())
    }
}

/// Opens one blob, chunk by chunk, in order.
#[derive(Debug)]
pub struct Opener {
    key: ContentKey,
    context: Context,
    prefix: [u8; PREFIX_BYTES],
    counter: u32,
}

impl Opener {
    /// Begins; the prefix is what [`Sealer::prefix`] gave.
    pub fn begin(key: ContentKey, context: Context, prefix: &[u8]) -> Result<Self, CryptoError> {
        let prefix = prefix.try_into().map_err(|_| CryptoError::NotAuthentic)?;
        Ok(Self { key, context, prefix, counter: 0 })
    }

    /// Opens the next chunk in place and takes its tag off. On an error not one byte is left.
    pub fn chunk(&mut self, sealed: &mut Vec<u8>, last: bool) -> Result<(), CryptoError> {
        let nonce = nonce(self.prefix, self.counter, last);
        open_in_place(&self.key.0, nonce, &self.context, sealed)?;
        self.counter = self.counter.checked_add(1).ok_or(CryptoError::TooLong)?;
        Ok(())
    }
}

fn open_in_place(
    key: &Zeroizing<[u8; 32]>,
    nonce: [u8; NONCE_BYTES],
    context: &Context,
    sealed: &mut Vec<u8>,
) -> Result<(), CryptoError> {
    let opened =
        sealed.len().checked_sub(OVERHEAD_BYTES).ok_or(CryptoError::NotAuthentic).and_then(|at| {
            let (body, tag) = sealed.split_at_mut(at);
            let tag = Tag::try_from(&*tag).map_err(|_| CryptoError::NotAuthentic)?;
            cipher(key)
                .decrypt_inout_detached(&Nonce::from(nonce), context.bytes(), body.into(), &tag)
                .map_err(|_| CryptoError::NotAuthentic)?;
            Ok(at)
        });
    match opened {
        Ok(at) => {
            sealed.truncate(at);
            Ok(())
        }
        Err(error) => {
            sealed.clear();
            Err(error)
        }
    }
}

fn cipher(key: &Zeroizing<[u8; 32]>) -> Aes256Gcm {
    Aes256Gcm::new((&**key).into())
}

fn nonce(prefix: [u8; PREFIX_BYTES], counter: u32, last: bool) -> [u8; NONCE_BYTES] {
    let [a, b, c, d, e, f, g] = prefix;
    let [h, i, j, k] = counter.to_be_bytes();
    [a, b, c, d, e, f, g, h, i, j, k, u8::from(last)]
}

pub(super) fn random<const N: usize>(host: &Host) -> Result<[u8; N], CryptoError> {
    let mut bytes = [0u8; N];
    host.fill(&mut bytes).map_err(|_| CryptoError::NoEntropy)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(place: u64) -> Context {
        Context::new("test").number(place)
    }

    fn sealed(chunks: &[&[u8]]) -> (Sealer, Vec<Vec<u8>>) {
        let mut sealer = Sealer::begin(&Host::real(), context(1)).unwrap();
        let mut out = Vec::new();
        for (at, chunk) in chunks.iter().enumerate() {
            let mut chunk = chunk.to_vec();
            sealer.chunk(&mut chunk, at + 1 == chunks.len()).unwrap();
            out.push(chunk);
        }
        (sealer, out)
    }

    fn opened(sealer: &Sealer, place: u64, chunks: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, CryptoError> {
        let key = ContentKey(sealer.key.0.clone());
        let mut opener = Opener::begin(key, context(place), sealer.prefix())?;
        let mut out = Vec::new();
        for (at, chunk) in chunks.iter().enumerate() {
            let mut chunk = chunk.clone();
            let result = opener.chunk(&mut chunk, at + 1 == chunks.len());
            assert!(result.is_ok() || chunk.is_empty(), "nothing is served on an error");
            result?;
            out.push(chunk);
        }
        Ok(out)
    }

    #[test]
    fn what_was_sealed_opens_and_nothing_else_does() {
        let (sealer, chunks) = sealed(&[b"first", b"second", b""]);
        assert_eq!(opened(&sealer, 1, &chunks).unwrap(), [&b"first"[..], b"second", b""]);
        assert!(opened(&sealer, 2, &chunks).is_err(), "another place");
        assert!(opened(&sealer, 1, &chunks[..2]).is_err(), "cut");
        let reordered = [chunks[1].clone(), chunks[0].clone(), chunks[2].clone()];
        assert!(opened(&sealer, 1, &reordered).is_err(), "reordered");
        let (other, _) = sealed(&[b"x"]);
        assert!(opened(&other, 1, &chunks).is_err(), "another key");
        for (at, chunk) in chunks.iter().enumerate() {
            for byte in 0..chunk.len() {
                let mut flipped = chunks.clone();
                flipped[at][byte] ^= 1;
                assert!(opened(&sealer, 1, &flipped).is_err(), "byte {byte} of chunk {at}");
            }
        }
    }

    #[test]
    fn small_seals_are_bound_to_their_place_and_never_repeat() {
        let host = Host::real();
        let key = SealKey::new(Zeroizing::new([7; 32]));
        let one = key.seal(&host, &context(1), b"small").unwrap();
        assert_ne!(one, key.seal(&host, &context(1), b"small").unwrap());
        assert_eq!(key.open(&context(1), &one).unwrap().as_slice(), b"small");
        assert!(key.open(&context(2), &one).is_err());
        for byte in 0..one.len() {
            let mut flipped = one.clone();
            flipped[byte] ^= 0x80;
            assert!(key.open(&context(1), &flipped).is_err(), "byte {byte}");
        }
        for length in 0..one.len() {
            assert!(key.open(&context(1), &one[..length]).is_err());
        }
        assert!(!one.windows(5).any(|window| window == b"small"));
    }
}
