//! Looking before anything is kept or changed: the parent by handle, the leaf as it is, its bytes
//! once. Whatever is found here refuses the change; nothing has happened yet.
#![expect(clippy::disallowed_methods, reason = "the targets of a change are opened here, by handle")]

use std::{
    fs::File,
    io::{Read as _, Seek as _},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fgetxattr, flistxattr, fstat, openat, openat2},
    io::Errno,
};

use crate::{
    checkpoint::{FileMeta, Image, Xattr},
    workspace::Root,
};

/// A file over this is created or edited by nobody.
pub const MOST_EDITED_BYTES: u64 = 16 << 20;
/// Bytes of extended attributes that are carried over.
const MOST_XATTR_BYTES: usize = 256 << 10;

/// Why a change isn't made. Not one byte changed, and nothing was dispatched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The stable token.
    pub cause: &'static str,
    /// What is wrong, and what to do instead.
    pub message: String,
}

impl Refusal {
    pub(super) fn new(cause: &'static str, message: impl Into<String>) -> Self {
        Self { cause, message: message.into() }
    }
}

/// The directory of a target, held open.
#[derive(Debug)]
pub(super) struct Parent {
    /// The deepest directory that exists on the way.
    pub(super) fd: OwnedFd,
    /// The directories between it and the target that have to be made, outermost first.
    pub(super) missing: Vec<String>,
    /// The target's own name.
    pub(super) leaf: String,
    /// The permission bits of the directory that exists.
    pub(super) mode: u32,
}

/// What stands at a target.
#[derive(Debug)]
pub(super) enum Found {
    /// Nothing: ENOENT or ENOTDIR, and only these.
    Absent,
    /// A regular file, open, and what it has besides its bytes.
    File(Box<FoundFile>),
}

#[derive(Debug)]
pub(super) struct FoundFile {
    pub(super) file: File,
    pub(super) stat: FileStat,
    pub(super) meta: FileMeta,
    pub(super) xattrs: Vec<Xattr>,
}

/// What tells whether a file is still the same: size, time, inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileStat {
    pub(super) bytes: u64,
    pub(super) mtime: (i64, i64),
    pub(super) ino: u64,
}

impl FileStat {
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            bytes: u64::try_from(stat.st_size).unwrap_or(0),
            mtime: (stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(0)),
            ino: stat.st_ino,
        }
    }
}

/// How a directory of the tree is opened: beneath the root, through no link and no mount.
pub(super) const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Opens the directory of a target beneath the root. `make_missing` says whether directories that
/// don't exist yet are no obstacle.
pub(super) fn parent(root: &Root, path: &str, make_missing: bool) -> Result<Parent, Refusal> {
    let (dir, leaf) = path.rsplit_once('/').unwrap_or(("", path));
    if leaf.is_empty() || matches!(leaf, "." | "..") {
        return Err(Refusal::new("not-a-file", format!("{path} names no file")));
    }
    let mut exists = dir;
    let mut missing: Vec<String> = Vec::new();
    loop {
        let name = if exists.is_empty() { "." } else { exists };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match openat2(root.handle(), name, flags, Mode::empty(), RESOLVE) {
            Ok(fd) => {
                let mode = fstat(&fd).map(|stat| stat.st_mode & 0o7777).unwrap_or(0o755);
                return Ok(Parent { fd, missing, leaf: leaf.to_owned(), mode });
            }
            Err(Errno::NOENT) if make_missing && !exists.is_empty() => {
                let (above, last) = exists.rsplit_once('/').unwrap_or(("", exists));
                missing.insert(0, last.to_owned());
                exists = above;
            }
            Err(Errno::NOENT) => return Err(Refusal::new("not-found", format!("there is no {path}"))),
            Err(errno) => return Err(refused(path, errno)),
        }
    }
}

/// An error of the system before anything happened, in the words of a refusal.
pub(super) fn refused(path: &str, errno: Errno) -> Refusal {
    match errno {
        Errno::LOOP => Refusal::new(
            "behind-symlink",
            format!("{path} leads through a symbolic link; name the file itself"),
        ),
        Errno::XDEV => {
            Refusal::new("crosses-mount", format!("{path} lies on another mounted file system"))
        }
        Errno::NOTDIR => {
            Refusal::new("not-a-directory", format!("something on the way to {path} is not a directory"))
        }
        Errno::NAMETOOLONG => Refusal::new("path-too-long", format!("{path} is too long")),
        Errno::ACCESS | Errno::PERM => {
            Refusal::new("permission-denied", format!("{path}: the system denies it"))
        }
        Errno::ROFS => {
            Refusal::new("read-only-file-system", format!("{path} lies on a read-only file system"))
        }
        Errno::MFILE | Errno::NFILE => {
            Refusal::new("too-many-open-files", format!("{path}: too many open files"))
        }
        other => Refusal::new("unreadable", format!("{path}: {}", std::io::Error::from(other))),
    }
}

/// Looks at the leaf and opens it, if it is something that may be changed.
pub(super) fn look(parent: &Parent, path: &str, break_links: bool) -> Result<Found, Refusal> {
    if !parent.missing.is_empty() {
        return Ok(Found::Absent);
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let stat = match openat(&parent.fd, parent.leaf.as_str(), flags, Mode::empty()).and_then(fstat) {
        Ok(stat) => stat,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Found::Absent),
        Err(errno) => return Err(refused(path, errno)),
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Symlink => {
            let message = format!("{path} is a symbolic link; name the file that it leads to");
            return Err(Refusal::new("behind-symlink", message));
        }
        FileType::Directory => {
            return Err(Refusal::new("is-directory", format!("{path} is a directory")));
        }
        _ => return Err(Refusal::new("special-file", format!("{path} is not a regular file"))),
    }
    if stat.st_nlink > 1 && !break_links {
        let message = format!(
            "{path} has {} hard links; the other names would keep the old content",
            stat.st_nlink
        );
        return Err(Refusal::new("hardlink-detected", message));
    }
    // The mode says it; root's own access check would say yes to everything.
    if stat.st_mode & 0o222 == 0 {
        return Err(Refusal::new(
            "read-only-file",
            format!("{path} is read-only (mode {:o})", stat.st_mode & 0o7777),
        ));
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = openat(&parent.fd, parent.leaf.as_str(), flags, Mode::empty())
        .map_err(|errno| refused(path, errno))?;
    let opened = fstat(&fd).map_err(|errno| refused(path, errno))?;
    if (opened.st_dev, opened.st_ino) != (stat.st_dev, stat.st_ino) {
        return Err(changed(path));
    }
    let xattrs = xattrs(fd.as_fd()).map_err(|errno| refused(path, errno))?;
    let meta = FileMeta {
        mode: opened.st_mode & 0o7777,
        uid: opened.st_uid,
        gid: opened.st_gid,
        mtime_ns: i128::from(opened.st_mtime as i64) * 1_000_000_000
            + i128::from(opened.st_mtime_nsec as i64),
        nlink: u64::from(opened.st_nlink as u32),
        bytes: u64::try_from(opened.st_size).unwrap_or(0),
    };
    let stat = FileStat::of(&opened);
    Ok(Found::File(Box::new(FoundFile { file: File::from(fd), stat, meta, xattrs })))
}

pub(super) fn changed(path: &str) -> Refusal {
    Refusal::new("stale-read", format!("{path} changed while it was looked at; read it again"))
}

impl FoundFile {
    /// The whole content, read once; what is digested is what is kept.
    pub(super) fn read(&mut self, path: &str) -> Result<Image, Refusal> {
        if self.stat.bytes > MOST_EDITED_BYTES {
            let message = format!(
                "{path} has {} bytes; at most {MOST_EDITED_BYTES} can be edited",
                self.stat.bytes
            );
            return Err(Refusal::new("too-large", message));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(self.stat.bytes).unwrap_or(0) + 1);
        (&self.file)
            .take(MOST_EDITED_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| Refusal::new("unreadable", format!("{path}: {error}")))?;
        self.unchanged(path)?;
        Ok(Image::new(bytes))
    }

    /// Whether the file is still what it was when it was opened.
    pub(super) fn unchanged(&self, path: &str) -> Result<(), Refusal> {
        let now = fstat(self.file.as_fd()).map_err(|errno| refused(path, errno))?;
        if FileStat::of(&now) == self.stat { Ok(()) } else { Err(changed(path)) }
    }

    /// Back to the start, for another pass.
    pub(super) fn rewind(&mut self, path: &str) -> Result<(), Refusal> {
        self.file.rewind().map_err(|error| Refusal::new("unreadable", format!("{path}: {error}")))
    }
}

/// Every extended attribute of a file; a file system without them has none.
pub(super) fn xattrs(fd: BorrowedFd<'_>) -> Result<Vec<Xattr>, Errno> {
    let mut names = vec![0u8; MOST_XATTR_BYTES];
    let length = match flistxattr(fd, names.as_mut_slice()) {
        Ok(length) => length,
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        Err(errno) => return Err(errno),
    };
    names.truncate(length);
    let mut found = Vec::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0u8; MOST_XATTR_BYTES];
        match fgetxattr(fd, name, value.as_mut_slice()) {
            Ok(length) => {
                value.truncate(length);
                found.push((name.to_vec(), value));
            }
            Err(Errno::NODATA) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(found)
}
