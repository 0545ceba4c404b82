//! The system calls that change the user's tree. Each takes the proof that its intent is durable;
//! nothing outside this file makes one.
#![expect(clippy::disallowed_methods, reason = "this file is where the user's tree is changed")]

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::fd::AsFd as _,
};

use rustix::{
    fs::{
        AtFlags, FileType, Mode, OFlags, RenameFlags, XattrFlags, fchmod, fchown, fgetxattr,
        fremovexattr, fsetxattr, fstat, fsync, linkat, mkdirat, openat, openat2, renameat,
        renameat_with, statat, unlinkat,
    },
    io::Errno,
    process::{Gid, Uid},
};
use sha2::{Digest as _, Sha256};

use super::preflight::{self, FileStat, Parent, RESOLVE};
use crate::{
    checkpoint::{FileMeta, Xattr},
    id::Digest,
    journal::DispatchCommitted,
    workspace::Root,
};

/// What the file system could do for the publishing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Enforcement {
    /// The exchange or the no-replace was atomic.
    Atomic,
    /// It was looked at once more right before; somebody could have come in between.
    BestEffort,
}

/// Makes the missing directories and goes into the last; each is synced into its parent.
pub(super) fn make_parents(_: &DispatchCommitted, parent: &mut Parent) -> Result<(), Errno> {
    for name in std::mem::take(&mut parent.missing) {
        match mkdirat(&parent.fd, name.as_str(), Mode::from_raw_mode(0o777)) {
            Ok(()) => fsync(&parent.fd)?,
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        parent.fd = openat(&parent.fd, name.as_str(), flags, Mode::empty())?;
    }
    Ok(())
}

/// Gives the directory of a target, which was just made again, the permission bits that it had.
pub(super) fn set_dir_mode(_: &DispatchCommitted, parent: &Parent, mode: u32) -> Result<(), Errno> {
    fchmod(&parent.fd, Mode::from_raw_mode(mode))
}

/// Writes the new content beside the target, with exactly the wanted metadata; not yet synced.
pub(super) fn write_temp(
    _: &DispatchCommitted,
    parent: &Parent,
    temp: &str,
    fill: Fill<'_>,
    keep: Keep<'_>,
) -> Result<(File, Metadata), TempError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat(&parent.fd, temp, flags, Mode::from_raw_mode(0o600)).map_err(TempError::Io)?;
    let mut file = File::from(fd);
    fill(&mut file)?;
    let mut metadata = Metadata::Whole;
    let mode = match keep {
        Keep::Exactly(meta, xattrs) => {
            keep_owner(&file, meta)?;
            keep_xattrs(&file, xattrs)?;
            meta.mode
        }
        Keep::AsFarAsPossible(meta, xattrs) => {
            let kept = [keep_owner(&file, meta), keep_xattrs(&file, xattrs)];
            if kept.iter().any(Result::is_err) {
                metadata = Metadata::Partial;
            }
            meta.mode
        }
        Keep::Mode(mode) => mode,
    };
    // After the owner: changing it takes set-id bits away.
    fchmod(&file, Mode::from_raw_mode(mode)).map_err(TempError::Metadata)?;
    let now = fstat(&file).map_err(TempError::Io)?;
    if now.st_mode & 0o7777 == mode {
        Ok((file, metadata))
    } else {
        Err(TempError::Metadata(Errno::PERM))
    }
}

/// Writes the content of a temporary file.
pub(super) type Fill<'a> = &'a dyn Fn(&mut File) -> Result<(), TempError>;

/// What a new file is to have besides its bytes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Keep<'a> {
    /// All of this, or nothing is made.
    Exactly(&'a FileMeta, &'a [Xattr]),
    /// The mode, and of owner and attributes as much as the system lets: where nothing stands, the
    /// bytes are worth more.
    AsFarAsPossible(&'a FileMeta, &'a [Xattr]),
    /// These permission bits.
    Mode(u32),
}

/// Whether a restored file has all that it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Metadata {
    /// It has.
    Whole,
    /// Its owner or an attribute couldn't be given back.
    Partial,
}

/// All of these bytes, as the content of a temporary file.
pub(super) fn write_all(file: &mut File, bytes: &[u8]) -> Result<(), TempError> {
    file.write_all(bytes).map_err(|error| TempError::Io(errno_of(&error)))
}

/// Why the temporary file couldn't be made as it must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TempError {
    /// The bytes.
    Io(Errno),
    /// Mode, owner or extended attributes.
    Metadata(Errno),
    /// What was to be written isn't what was kept.
    Content,
}

fn keep_owner(file: &File, meta: &FileMeta) -> Result<(), TempError> {
    let now = fstat(file).map_err(TempError::Io)?;
    if (now.st_uid, now.st_gid) == (meta.uid, meta.gid) {
        return Ok(());
    }
    let owner = (Some(Uid::from_raw(meta.uid)), Some(Gid::from_raw(meta.gid)));
    fchown(file, owner.0, owner.1).map_err(TempError::Metadata)
}

fn keep_xattrs(file: &File, xattrs: &[Xattr]) -> Result<(), TempError> {
    // A directory's default ACL would give the file to people that it was never open to.
    let inherited = preflight::xattrs(file.as_fd()).map_err(TempError::Metadata)?;
    for (name, _) in inherited {
        let wanted = xattrs.iter().any(|(wanted, _)| *wanted == name);
        if !wanted && name.starts_with(b"system.") {
            fremovexattr(file, name.as_slice()).map_err(TempError::Metadata)?;
        }
    }
    for (name, value) in xattrs {
        let mut now = vec![0u8; value.len() + 1];
        let same = fgetxattr(file, name.as_slice(), now.as_mut_slice())
            .is_ok_and(|length| now.get(..length) == Some(value.as_slice()));
        if !same {
            fsetxattr(file, name.as_slice(), value, XattrFlags::empty()).map_err(TempError::Metadata)?;
        }
    }
    Ok(())
}

/// Puts the temporary file where nothing stands.
pub(super) fn publish_new(
    _: &DispatchCommitted,
    parent: &Parent,
    temp: &str,
) -> Result<Enforcement, Errno> {
    let (fd, leaf) = (&parent.fd, parent.leaf.as_str());
    match renameat_with(fd, temp, fd, leaf, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(Enforcement::Atomic),
        Err(errno) if is_unsupported(errno) => {
            // A hard link refuses to replace as well.
            linkat(fd, temp, fd, leaf, AtFlags::empty())?;
            unlinkat(fd, temp, AtFlags::empty())?;
            Ok(Enforcement::Atomic)
        }
        Err(errno) => Err(errno),
    }
}

/// Exchanges the temporary file with the target; afterwards the temporary name holds what was there.
pub(super) fn exchange(_: &DispatchCommitted, parent: &Parent, temp: &str) -> Result<(), Errno> {
    renameat_with(&parent.fd, temp, &parent.fd, parent.leaf.as_str(), RenameFlags::EXCHANGE)
}

/// Replaces the target, where the file system can't exchange.
pub(super) fn replace(_: &DispatchCommitted, parent: &Parent, temp: &str) -> Result<(), Errno> {
    renameat(&parent.fd, temp, &parent.fd, parent.leaf.as_str())
}

/// Moves the target to the quarantine name.
pub(super) fn set_aside(
    _: &DispatchCommitted,
    parent: &Parent,
    temp: &str,
) -> Result<Enforcement, Errno> {
    let (fd, leaf) = (&parent.fd, parent.leaf.as_str());
    match renameat_with(fd, leaf, fd, temp, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(Enforcement::Atomic),
        Err(errno) if is_unsupported(errno) => {
            renameat(fd, leaf, fd, temp).map(|()| Enforcement::BestEffort)
        }
        Err(errno) => Err(errno),
    }
}

/// Puts what was set aside back, if nothing has taken its place.
pub(super) fn put_back(_: &DispatchCommitted, parent: &Parent, temp: &str) -> Result<(), Errno> {
    let (fd, leaf) = (&parent.fd, parent.leaf.as_str());
    match renameat_with(fd, temp, fd, leaf, RenameFlags::NOREPLACE) {
        Err(errno) if is_unsupported(errno) => {
            linkat(fd, temp, fd, leaf, AtFlags::empty())?;
            unlinkat(fd, temp, AtFlags::empty())
        }
        result => result,
    }
}

/// Removes our own temporary or quarantined file.
pub(super) fn remove(_: &DispatchCommitted, parent: &Parent, temp: &str) -> Result<(), Errno> {
    unlinkat(&parent.fd, temp, AtFlags::empty())
}

/// Whether nothing stands under our own name; `false` where that can't be told.
pub(super) fn is_gone(parent: &Parent, temp: &str) -> bool {
    matches!(statat(&parent.fd, temp, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
}

/// Removes the innermost directories that were made for a target which then wasn't, as far as they
/// are empty. Each is reached beneath the root, so that a link that has come in leads nowhere.
pub(super) fn unmake_parents(_: &DispatchCommitted, root: &Root, path: &str, made: usize) {
    let mut dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
    for _ in 0..made {
        let (above, name) = dir.rsplit_once('/').unwrap_or(("", dir));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above_or_root = if above.is_empty() { "." } else { above };
        match openat2(root.handle(), above_or_root, flags, Mode::empty(), RESOLVE) {
            Ok(fd) => match unlinkat(&fd, name, AtFlags::REMOVEDIR) {
                // One that was never made is no reason to leave those above it.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(_) => return,
            },
            Err(Errno::NOENT) => {}
            Err(_) => return,
        }
        dir = above;
    }
}

/// Whether the file system lacks the rename that was asked for.
pub(super) fn is_unsupported(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::NOSYS | Errno::NOTSUP)
}

/// What stands under a name of the directory: its stat and the digest of its bytes.
pub(super) fn seen(parent: &Parent, name: &str) -> Result<Option<(FileStat, Digest)>, Errno> {
    seen_salted(parent, name, &[])
}

/// As [`seen`], with a salt hashed before the bytes.
pub(super) fn seen_salted(
    parent: &Parent,
    name: &str,
    salt: &[u8],
) -> Result<Option<(FileStat, Digest)>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = match openat(&parent.fd, name, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let stat = fstat(&fd)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::ISDIR);
    }
    let hash = Sha256::new_with_prefix(salt);
    let digest = hashed(hash, &mut File::from(fd)).map_err(|error| errno_of(&error))?;
    Ok(Some((FileStat::of(&stat), digest)))
}

/// The digest of a file from where it stands, in bounded memory.
pub(super) fn digest_of(file: &mut File) -> std::io::Result<Digest> {
    hashed(Sha256::new(), file)
}

fn hashed(mut hash: Sha256, file: &mut File) -> std::io::Result<Digest> {
    let mut chunk = vec![0u8; 256 << 10];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(Digest::from_bytes(hash.finalize().into())),
            Ok(read) => hash.update(chunk.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

pub(super) fn sync_file(_: &DispatchCommitted, file: &File) -> Result<(), Errno> {
    fsync(file.as_fd())
}

pub(super) fn sync_dir(_: &DispatchCommitted, parent: &Parent) -> Result<(), Errno> {
    fsync(&parent.fd)
}

fn errno_of(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}
