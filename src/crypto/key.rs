//! The master key: where it comes from, and its one textual form, base64 of 32 bytes.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use zeroize::Zeroizing;

use super::CryptoError;
use crate::{
    host::{self, Host, own_file},
    redact::Secret,
};

/// A key file holds one short line.
const MOST_BYTES: u64 = 4096;

/// Where the master key comes from.
#[derive(Debug, Clone)]
pub enum KeySource {
    /// A file that the caller named (`--key-file`, `THCODE_KEY_FILE`).
    File(PathBuf),
    /// A variable (`THCODE_KEY`).
    Variable(Secret<String>),
    /// The file beside the state directory, made where there is none and the store is new.
    Beside(PathBuf),
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// There is no file.
    #[error("the key file {} is not there", .0.display())]
    Missing(PathBuf),
    /// The file can't be read.
    #[error("the key file {} can't be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Not base64 of 32 bytes. The content is never told.
    #[error(
        "{place} does not hold a key: it must be base64 of exactly 32 bytes, as `thcode key new` prints"
    )]
    Malformed {
        /// The file or the variable.
        place: String,
    },
    /// A new key file can't be written.
    #[error("the key file can't be made: {0}")]
    NotMade(#[from] own_file::OwnFileError),
    /// No random bytes for a new key.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
}

/// The 32 bytes that everything else is wrapped with.
pub struct MasterKey(Zeroizing<[u8; 32]>);

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[master key]")
    }
}

impl MasterKey {
    /// Reads the key; makes none.
    pub fn read(source: &KeySource) -> Result<Self, KeyError> {
        match source {
            KeySource::Variable(text) => {
                Self::parse(text.expose(), || "the variable THCODE_KEY".to_owned())
            }
            KeySource::File(path) | KeySource::Beside(path) => Self::from_file(path),
        }
    }

    /// Makes a key and its file, durably. An existing file is left alone and read.
    pub fn make_beside(host: &Host, path: &Path) -> Result<Self, KeyError> {
        if path.symlink_metadata().is_ok() {
            return Self::from_file(path);
        }
        let text = encode_new_key(host)?;
        own_file::write_private(path, format!("{}\n", text.expose()).as_bytes())?;
        Self::from_file(path)
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn from_file(path: &Path) -> Result<Self, KeyError> {
        let unreadable = |source| KeyError::Unreadable { path: path.to_owned(), source };
        if path.is_dir() || host::is_special_file(path) {
            return Err(unreadable(io::Error::other("it is not a regular file")));
        }
        let mut text = Zeroizing::new(String::new());
        let opened = File::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => KeyError::Missing(path.to_owned()),
            _ => unreadable(error),
        })?;
        let place = || format!("the key file {}", path.display());
        match opened.take(MOST_BYTES).read_to_string(&mut text) {
            Ok(_) => Self::parse(&text, place),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(KeyError::Malformed { place: place() })
            }
            Err(error) => Err(unreadable(error)),
        }
    }

    fn parse(text: &str, place: impl Fn() -> String) -> Result<Self, KeyError> {
        let malformed = || KeyError::Malformed { place: place() };
        let bytes = Zeroizing::new(STANDARD.decode(text.trim()).map_err(|_| malformed())?);
        let bytes = <[u8; 32]>::try_from(bytes.as_slice()).map_err(|_| malformed())?;
        Ok(Self(Zeroizing::new(bytes)))
    }
}

/// A fresh key in its textual form.
pub fn encode_new_key(host: &Host) -> Result<Secret<String>, CryptoError> {
    let mut bytes = Zeroizing::new([0u8; 32]);
    host.fill(bytes.as_mut_slice()).map_err(|_| CryptoError::NoEntropy)?;
    Ok(Secret::new(STANDARD.encode(bytes.as_slice())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_32_bytes_in_base64_and_nothing_else() {
        let key = encode_new_key(&Host::real()).unwrap();
        let read = |text: &str| MasterKey::read(&KeySource::Variable(Secret::new(text.to_owned())));
        assert!(read(key.expose()).is_ok());
        assert!(read(&format!(" {}\n", key.expose())).is_ok());
        for bad in ["", "x", &STANDARD.encode([7u8; 31]), &STANDARD.encode([7u8; 33]), &"0".repeat(64)] {
            let error = read(bad).unwrap_err();
            assert!(matches!(error, KeyError::Malformed { .. }), "{bad}");
            assert!(bad.len() < 8 || !error.to_string().contains(bad), "the content is never told");
        }
    }

    #[test]
    fn a_made_key_file_is_private_and_is_not_replaced() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.key");
        let missing = MasterKey::read(&KeySource::Beside(path.clone()));
        assert!(matches!(missing, Err(KeyError::Missing(_))));
        let first = MasterKey::make_beside(&Host::real(), &path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let again = MasterKey::make_beside(&Host::real(), &path).unwrap();
        assert_eq!(first.bytes(), again.bytes());
    }
}
