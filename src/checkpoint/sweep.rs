//! Files of ours in the state directory that nothing needs: sealed files of freed images, and what a
//! crash left. Only regular files whose names are exactly of our form, by a handle of their directory;
//! no link is followed.

use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags},
    io::Errno,
};

use super::{
    CheckpointError,
    artifact::{FOLDER, sealed_name},
};
use crate::store::{Rows, StoreError};

/// What a crash may leave in the state directory itself: a database that never got its name.
const UNNAMED: [&str; 4] =
    ["state.db.new", "state.db.new-journal", "state.db.new-wal", "state.db.new-shm"];

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Sealed files that no row refers to.
    pub sealed: u64,
    /// Temporary files.
    pub temporary: u64,
    /// What they took. Bytes.
    pub bytes: u64,
}

/// Removes sealed files of freed images, whose rows are durably gone. One that is gone already counts
/// nothing.
pub fn unlink(dir: &Path, names: &[String]) -> Result<u64, CheckpointError> {
    let Some(folder) = directory(&dir.join(FOLDER))? else { return Ok(0) };
    let mut gone = 0;
    for name in names {
        gone += u64::from(removed(&folder, name)?.is_some());
    }
    Ok(gone)
}

/// Removes sealed files that no row refers to, and temporary files of ours; with `dry` only counts them.
/// Nobody else may be writing.
pub fn sweep(rows: &impl Rows, dir: &Path, dry: bool) -> Result<Swept, CheckpointError> {
    let mut referred = BTreeSet::new();
    rows.each("SELECT blob_id FROM blob WHERE in_file", [], |row| {
        referred.extend(sealed_name(&row.get::<_, Vec<u8>>(0)?));
        Ok::<_, StoreError>(())
    })?;
    let mut swept = Swept::default();
    let goes =
        |folder: &OwnedFd, name: &str| if dry { bytes(folder, name) } else { removed(folder, name) };
    if let Some(folder) = directory(&dir.join(FOLDER))? {
        for name in names(&folder)? {
            let ours = hex_between(&name, "", ".sealed") && !referred.contains(&name);
            if let Some(bytes) = if ours { goes(&folder, &name)? } else { None } {
                swept.sealed += 1;
                swept.bytes += bytes;
            }
        }
    }
    if let Some(state) = directory(dir)? {
        for name in names(&state)? {
            let ours = hex_between(&name, ".thc-", ".tmp") || UNNAMED.contains(&name.as_str());
            if let Some(bytes) = if ours { goes(&state, &name)? } else { None } {
                swept.temporary += 1;
                swept.bytes += bytes;
            }
        }
    }
    Ok(swept)
}

/// Whether a name is 32 lower-case hex digits between these.
fn hex_between(name: &str, before: &str, after: &str) -> bool {
    let digits = name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
    digits.is_some_and(|digits| {
        digits.len() == 32 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

fn refused(name: &str, errno: Errno) -> CheckpointError {
    CheckpointError::SealedFile { name: name.to_owned(), source: io::Error::from(errno) }
}

/// A directory; `None` where there is none, or a link in its place.
fn directory(path: &Path) -> Result<Option<OwnedFd>, CheckpointError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(handle) => Ok(Some(handle)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(refused(&path.to_string_lossy(), errno)),
    }
}

fn names(folder: &OwnedFd) -> Result<Vec<String>, CheckpointError> {
    let error = |errno| refused(FOLDER, errno);
    let mut names = Vec::new();
    for entry in Dir::read_from(folder).map_err(error)? {
        let entry = entry.map_err(error)?;
        names.extend(entry.file_name().to_str().ok().map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// The size of a regular file; `None` for what isn't one, or isn't there.
fn bytes(folder: &impl AsFd, name: &str) -> Result<Option<u64>, CheckpointError> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) if FileType::from_raw_mode(found.st_mode).is_file() => {
            Ok(Some(u64::try_from(found.st_size).unwrap_or(0)))
        }
        Ok(_) | Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(refused(name, errno)),
    }
}

/// Removes a regular file; what it took, if it was there.
fn removed(folder: &impl AsFd, name: &str) -> Result<Option<u64>, CheckpointError> {
    let Some(bytes) = bytes(folder, name)? else { return Ok(None) };
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) => Ok(Some(bytes)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(refused(name, errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_our_very_form_are_ours() {
        let hex = "0123456789abcdef0123456789abcdef";
        assert!(hex_between(&format!("{hex}.sealed"), "", ".sealed"));
        assert!(hex_between(&format!(".thc-{hex}.tmp"), ".thc-", ".tmp"));
        let upper = hex.to_uppercase();
        for other in
            [format!("{upper}.sealed"), format!("{hex}0.sealed"), format!("{hex}.sealed~"), hex.into()]
        {
            assert!(!hex_between(&other, "", ".sealed"), "{other}");
        }
    }
}
