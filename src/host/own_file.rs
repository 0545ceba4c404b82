//! The one atomic writer of files that are ours: documents (`-o`) and what follows them.
//!
//! A reader sees the old file or the whole new one, also after a crash. Never used for a file of
//! the workspace that a tool asked for.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

use rustix::io::Errno;
use uuid::Uuid;

/// Why a file of ours can't be written.
#[derive(Debug, thiserror::Error)]
pub enum OwnFileError {
    /// The path names something that a file can't take the place of.
    #[error("{} is not a regular file", .0.display())]
    NotRegular(PathBuf),
    /// The path ends in `/`, `.` or `..`, or names no file.
    #[error("{} names no file", .0.display())]
    NoName(PathBuf),
    /// No file can have such a name.
    #[error("the name of the file is over {LONGEST_NAME} bytes")]
    NameTooLong,
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// What was being written.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// What a small document takes. Bytes.
const SMALL: usize = 4 << 10;

/// Says whether [`write()`] to this path could work, without changing what stands there: it makes and
/// removes a small temporary file beside it.
pub fn check(path: &Path) -> Result<(), OwnFileError> {
    let place = Place::of(path)?;
    let (temp, mut file) = place.temp(0o600)?;
    // A disk that is full may still have room for a name.
    let written = file.write_all(&[b' '; SMALL]);
    drop(file);
    let removed = std::fs::remove_file(&temp);
    written
        .map_err(|source| OwnFileError::Io { path: place.target, source })
        .and_then(|()| removed.map_err(|source| OwnFileError::Io { path: temp, source }))
}

/// What stands at a path that couldn't be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// No document of somebody else's: there was none.
    Nothing,
    /// None any more.
    Removed,
    /// One that can't be taken away.
    Stays,
}

/// Takes away what stands at a path that [`write()`] couldn't replace, so that it isn't taken for what
/// should stand there. That needs no room. A link keeps its file, emptied.
pub fn clear(path: &Path) -> Left {
    let Ok(place) = Place::of(path) else { return Left::Stays };
    if !place.target.exists() {
        return Left::Nothing;
    }
    let removed = !path.is_symlink() && std::fs::remove_file(&place.target).is_ok();
    let emptied = || OpenOptions::new().write(true).truncate(true).open(&place.target).is_ok();
    if removed || emptied() { Left::Removed } else { Left::Stays }
}

/// Whether there is no room for what was to be written.
pub fn wants_room(error: &io::Error) -> bool {
    let room = [Errno::NOSPC, Errno::DQUOT, Errno::FBIG];
    Errno::from_io_error(error).is_some_and(|errno| room.contains(&errno))
}

/// Replaces the file with these bytes: temporary file beside it, fsync, rename, fsync of the
/// directory. A symlink is followed to the file that it names.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), OwnFileError> {
    put(path, bytes, 0o644, true)
}

/// As [`write()`], readable by its owner alone.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), OwnFileError> {
    put(path, bytes, 0o600, true)
}

/// As [`write()`], for what the next writing takes the place of: whole for whoever reads it, and not
/// waited for.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), OwnFileError> {
    put(path, bytes, 0o644, false)
}

fn put(path: &Path, bytes: &[u8], mode: u32, durable: bool) -> Result<(), OwnFileError> {
    let place = Place::of(path)?;
    let (temp, mut file) = place.temp(mode)?;
    let synced = |file: &File| if durable { file.sync_all() } else { Ok(()) };
    let written = place
        .keep_permissions(&file)
        .and_then(|()| file.write_all(bytes))
        .and_then(|()| synced(&file))
        .and_then(|()| std::fs::rename(&temp, &place.target))
        .and_then(|()| File::open(&place.parent).and_then(|parent| synced(&parent)));
    written.map_err(|source| {
        // The first error is the one to tell; the temporary file may be gone already.
        drop(std::fs::remove_file(&temp));
        OwnFileError::Io { path: place.target.clone(), source }
    })
}

/// Whether both paths name the same existing file.
pub fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

/// The file that [`write()`] to this path would make or replace, links followed; `None` where it
/// would be refused.
pub fn target(path: &Path) -> Option<PathBuf> {
    let place = Place::of(path).ok()?;
    let parent = std::fs::canonicalize(&place.parent).ok()?;
    Some(parent.join(place.target.file_name()?))
}

/// Bytes of a file's name.
const LONGEST_NAME: usize = 255;

struct Place {
    target: PathBuf,
    parent: PathBuf,
}

impl Place {
    fn of(path: &Path) -> Result<Self, OwnFileError> {
        let target = match std::fs::canonicalize(path) {
            Ok(existing) if existing.is_file() => existing,
            Ok(_) => return Err(OwnFileError::NotRegular(path.to_owned())),
            Err(_) if path.is_symlink() => return Err(OwnFileError::NotRegular(path.to_owned())),
            Err(_) => path.to_owned(),
        };
        // `file_name` overlooks a slash or a dot at the end, the system doesn't.
        let given = path.as_os_str().as_bytes();
        let name = target.file_name().filter(|_| !given.ends_with(b"/") && !given.ends_with(b"/."));
        let Some(name) = name else { return Err(OwnFileError::NoName(path.to_owned())) };
        if name.len() > LONGEST_NAME {
            return Err(OwnFileError::NameTooLong);
        }
        let parent = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        Ok(Self { target, parent })
    }

    /// Gives the new file the permissions of the one that it takes the place of.
    fn keep_permissions(&self, file: &File) -> io::Result<()> {
        let Ok(old) = std::fs::metadata(&self.target) else { return Ok(()) };
        file.set_permissions(std::fs::Permissions::from_mode(old.mode() & 0o777))
    }

    fn temp(&self, mode: u32) -> Result<(PathBuf, File), OwnFileError> {
        let temp = self.parent.join(format!(".thc-{}.tmp", Uuid::now_v7().simple()));
        match OpenOptions::new().write(true).create_new(true).mode(mode).open(&temp) {
            Ok(file) => Ok((temp, file)),
            Err(source) => Err(OwnFileError::Io { path: self.target.clone(), source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_whole_and_leaves_nothing_beside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.json");
        check(&path).unwrap();
        assert!(!path.exists(), "a check writes nothing");
        write(&path, b"first, longer").unwrap();
        write(&path, b"second").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"second");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn keeps_the_permissions_of_what_it_replaces() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.json");
        for mode in [0o600, 0o640, 0o666] {
            std::fs::write(&path, "old").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            write(&path, b"new").unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, mode);
        }
    }

    #[test]
    fn refuses_early_what_is_no_file_s_name() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "old").unwrap();
        for bad in ["x/", "file/", "x/.", "x/.."] {
            let bad = dir.path().join(bad);
            assert!(matches!(check(&bad), Err(OwnFileError::NoName(_))), "{bad:?}: {:?}", check(&bad));
        }
        assert!(matches!(check(&dir.path().join("x".repeat(256))), Err(OwnFileError::NameTooLong)));
        check(&dir.path().join("x".repeat(255))).unwrap();
    }

    #[test]
    fn refuses_what_a_file_cannot_replace() {
        let dir = tempfile::tempdir().unwrap();
        for bad in [Path::new("/dev/null"), Path::new("/dev/full"), dir.path(), Path::new("/")] {
            assert!(matches!(write(bad, b"x"), Err(OwnFileError::NotRegular(_))), "{bad:?}");
        }
        assert!(matches!(write(&dir.path().join("no/such/x"), b"x"), Err(OwnFileError::Io { .. })));
    }

    #[test]
    fn follows_a_link_to_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write(&link, b"new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
    }
}
