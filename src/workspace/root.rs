//! The workspace root: which directories may be one, and the handle that everything starts from.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, openat2};

use super::look::{Kind, Look, Spot, kind_of};

/// Why a directory can't be a workspace, or a file in it can't be read.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// It isn't there or can't be opened.
    #[error("{} can't be opened as a directory: {source}", path.display())]
    Open {
        /// The directory as it was named.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It holds the whole system, or everything that a person owns.
    #[error("{} is {what}, which is never a workspace", path.display())]
    TooWide {
        /// The directory.
        path: PathBuf,
        /// Which one it is.
        what: &'static str,
    },
    /// Its path isn't UTF-8, so no document could name it.
    #[error("{} isn't valid UTF-8", .0.display())]
    NotUtf8(PathBuf),
    /// The file isn't the one that was looked at, or is no longer a regular file.
    #[error("{0} changed after it was judged")]
    Changed(String),
    /// The system refused to open or read the file.
    #[error("{path}: {source}")]
    Read {
        /// The file, relative to the root.
        path: String,
        /// What the system said.
        source: io::Error,
    },
}

/// An open workspace. The handle stays the same directory even if its path is renamed.
#[derive(Debug)]
pub struct Root {
    path: String,
    fd: OwnedFd,
}

impl Root {
    /// Opens a directory as workspace; `/` and the home directory are refused.
    pub fn open(dir: &Path, home: Option<&Path>) -> Result<Self, WorkspaceError> {
        let opened = |source| WorkspaceError::Open { path: dir.to_owned(), source };
        let path = std::fs::canonicalize(dir).map_err(opened)?;
        let too_wide = |what| WorkspaceError::TooWide { path: path.clone(), what };
        if path.parent().is_none() {
            return Err(too_wide("the root of the file system"));
        }
        if home.and_then(|home| std::fs::canonicalize(home).ok()).is_some_and(|home| home == path) {
            return Err(too_wide("the home directory"));
        }
        Self::open_anywhere(&path)
    }

    /// Opens a directory whatever it is: for judging alone (`policy explain`, tests), never for a run.
    pub fn open_anywhere(dir: &Path) -> Result<Self, WorkspaceError> {
        let opened = |source| WorkspaceError::Open { path: dir.to_owned(), source };
        let canonical = std::fs::canonicalize(dir).map_err(opened)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&canonical, flags, Mode::empty())
            .map_err(|errno| opened(io::Error::from(errno)))?;
        let path = canonical
            .into_os_string()
            .into_string()
            .map_err(|path| WorkspaceError::NotUtf8(PathBuf::from(path)))?;
        Ok(Self { path, fd })
    }

    /// The canonical absolute path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The handle, for whoever changes the tree.
    pub fn handle(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The id of the file system that the root lies on; 0 where the system doesn't tell.
    pub fn file_system_id(&self) -> u64 {
        rustix::fs::fstatvfs(&self.fd).map_or(0, |found| found.f_fsid)
    }

    /// Whether nothing can be written below it: its file system is mounted read-only.
    pub fn is_read_only(&self) -> bool {
        rustix::fs::fstatvfs(&self.fd)
            .is_ok_and(|found| found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
    }

    /// The root's inode; 0 where the system doesn't tell.
    pub fn inode(&self) -> u64 {
        fstat(&self.fd).map_or(0, |found| found.st_ino)
    }

    /// The handle.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Opens for reading the very file that was looked at; one that was swapped since is refused.
    pub fn open_file(&self, seen: &Look) -> Result<File, WorkspaceError> {
        let Spot::Inside(path) = &seen.spot else {
            return Err(WorkspaceError::Changed("the path".to_owned()));
        };
        let read = |errno| WorkspaceError::Read { path: path.clone(), source: io::Error::from(errno) };
        // NONBLOCK: should a FIFO have been swapped in, the open returns and the check below refuses.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let fd = openat2(self.fd(), path.as_str(), flags, Mode::empty(), resolve).map_err(read)?;
        let stat = fstat(&fd).map_err(read)?;
        let same = seen.identity == Some((stat.st_dev, stat.st_ino));
        if same && kind_of(&stat) == Kind::Regular {
            Ok(File::from(fd))
        } else {
            Err(WorkspaceError::Changed(path.clone()))
        }
    }

    /// Opens the very directory that was looked at; one that was swapped since is refused.
    pub fn open_dir(&self, seen: &Look) -> Result<OwnedFd, WorkspaceError> {
        let Spot::Inside(path) = &seen.spot else {
            return Err(WorkspaceError::Changed("the path".to_owned()));
        };
        let read = |errno| WorkspaceError::Read { path: path.clone(), source: io::Error::from(errno) };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let name = if path.is_empty() { "." } else { path };
        let fd = openat2(self.fd(), name, flags, Mode::empty(), resolve).map_err(read)?;
        let stat = fstat(&fd).map_err(read)?;
        match seen.identity == Some((stat.st_dev, stat.st_ino)) {
            true => Ok(fd),
            false => Err(WorkspaceError::Changed(path.clone())),
        }
    }

    /// The names in a directory that was looked at, as far as they are UTF-8.
    pub fn names_in(&self, seen: &Look) -> Result<Vec<String>, WorkspaceError> {
        let held = self.open_dir(seen)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let read = |errno| WorkspaceError::Read { path: ".".to_owned(), source: io::Error::from(errno) };
        let fd = openat2(&held, ".", flags, Mode::empty(), ResolveFlags::BENEATH).map_err(read)?;
        let names = rustix::fs::Dir::read_from(&fd).map_err(read)?;
        let text = |entry: rustix::fs::DirEntry| entry.file_name().to_str().ok().map(str::to_owned);
        Ok(names.flatten().filter_map(text).collect())
    }

    /// Whether the kernel can contain a path by handle (`openat2`, Linux 5.6).
    pub fn contains_by_handle(&self) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        openat2(self.fd(), ".", flags, Mode::empty(), ResolveFlags::BENEATH)?;
        Ok(())
    }
}
