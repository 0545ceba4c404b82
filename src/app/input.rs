//! Input files that the caller named: regular, bounded, UTF-8.

use std::{fs::File, io::Read as _, path::Path};

use super::Fail;
use crate::{
    contract::{CauseCode, Failure},
    host::is_special_file,
};

/// The bytes of a file that the caller named.
pub(super) fn read(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    if path.is_dir() || is_special_file(path) {
        return Err(format!("{} is not a regular file", path.display()));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(most + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("{} can't be read: {error}", path.display()))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > most {
        return Err(format!("{} is over {} MiB", path.display(), most >> 20));
    }
    Ok(bytes)
}

/// As [`read`], where it is UTF-8.
pub(super) fn read_text(path: &Path, most: u64) -> Result<String, Fail> {
    let refused = |message| Fail::usage(Failure::new(CauseCode::InputUnreadable, message));
    let bytes = read(path, most).map_err(refused)?;
    String::from_utf8(bytes).map_err(|_| refused(format!("{} is not valid UTF-8", path.display())))
}
