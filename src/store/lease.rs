//! The lease: one runner for a workspace, told by locks that the kernel drops with the process.
//!
//! `flock` exclusive on the root directory, shared on every directory above it: the same root, one
//! above, one below and a bind mount exclude each other; siblings don't. No pid file decides
//! anything; the lock file of the state directory only tells who holds it.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, Write as _},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::OpenOptionsExt as _,
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, Mode, OFlags, flock},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use super::StatePlace;
use crate::{host::Host, id::Timestamp};

/// How long between two tries.
const STEP: Duration = Duration::from_millis(10);
const LOCK_FILE: &str = "lock";

/// Who holds a lease: information, never used to decide.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its process.
    pub pid: u32,
    /// Since when.
    pub since: Timestamp,
    /// Its workspace.
    pub workspace: String,
}

/// Why there is no lease.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// Another runner has it.
    #[error("another run holds the workspace{}", holder.as_ref().map(told).unwrap_or_default())]
    Held {
        /// Who, as far as the lock file tells.
        holder: Option<Holder>,
    },
    /// The directory or the lock file can't be opened.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

fn told(holder: &Holder) -> String {
    format!(" {} (process {}, since {})", holder.workspace, holder.pid, holder.since)
}

/// The right to change this workspace and its store, for as long as it lives.
#[derive(Debug)]
pub struct Lease {
    _above: Vec<OwnedFd>,
    _root: OwnedFd,
    _state: File,
    /// Whether the workspace itself could be locked; where it couldn't (NFS), the state alone is.
    pub locks_workspace: bool,
}

impl Lease {
    /// Takes the lease, trying for as long as the caller is willing to wait. The state directory
    /// must exist.
    pub fn take(
        host: &Host,
        root: &str,
        place: &StatePlace,
        patience: Duration,
    ) -> Result<Self, LeaseError> {
        let until = Instant::now() + patience;
        loop {
            match Self::try_once(host, root, place) {
                Err(LeaseError::Held { .. }) if Instant::now() < until => std::thread::sleep(STEP),
                result => return result,
            }
        }
    }

    fn try_once(host: &Host, root: &str, place: &StatePlace) -> Result<Self, LeaseError> {
        let held = || LeaseError::Held { holder: holder(&place.dir) };
        let io = |path: &Path, source: io::Error| LeaseError::Io { path: path.to_owned(), source };
        let root_path = Path::new(root);
        let root_fd = directory(root_path).map_err(|errno| io(root_path, errno.into()))?;
        let locks_workspace = match lock(host, &root_fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => true,
            Err(Errno::WOULDBLOCK | Errno::INTR) => return Err(held()),
            Err(_) => false,
        };
        let mut above = Vec::new();
        for dir in root_path.ancestors().skip(1) {
            // One that can't be opened can't be anybody's workspace either.
            let Ok(fd) = directory(dir) else { continue };
            match lock(host, &fd, FlockOperation::NonBlockingLockShared) {
                Ok(()) => above.push(fd),
                Err(Errno::WOULDBLOCK | Errno::INTR) => return Err(held()),
                Err(_) => {}
            }
        }
        let path = place.dir.join(LOCK_FILE);
        let mut state = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(super::anchor::nofollow())
            .open(&path)
            .map_err(|error| io(&path, error))?;
        match lock(host, &state, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK | Errno::INTR) => return Err(held()),
            Err(errno) => return Err(io(&path, errno.into())),
        }
        let me = Holder { pid: std::process::id(), since: host.now(), workspace: root.to_owned() };
        tell(&mut state, &me).map_err(|error| io(&path, error))?;
        Ok(Self { _above: above, _root: root_fd, _state: state, locks_workspace })
    }
}

/// The lock, but for a test that asks to see what would happen without it.
fn lock(host: &Host, file: &impl AsFd, operation: FlockOperation) -> rustix::io::Result<()> {
    if host.fault("no-lease") { Ok(()) } else { flock(file, operation) }
}

fn directory(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

fn tell(file: &mut File, holder: &Holder) -> io::Result<()> {
    let text = serde_json::to_string(holder)?;
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(text.as_bytes())
}

/// The runner that holds a state directory now, as far as a reader can tell. Asks the kernel, which
/// takes the lock for a moment, shared; a runner that comes just then waits for longer than that.
pub fn live_holder(dir: &Path) -> Option<Holder> {
    let file = lock_file(dir)?;
    match flock(file.as_fd(), FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => holder(dir),
        Ok(()) | Err(_) => None,
    }
}

/// The lock file, for reading. A pipe in its place keeps nobody waiting.
fn lock_file(dir: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(super::anchor::nonblock()).open(dir.join(LOCK_FILE)).ok()
}

/// Who the lock file of a state directory names.
fn holder(dir: &Path) -> Option<Holder> {
    let mut text = String::new();
    lock_file(dir)?.take(4096).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(dir: &Path, root: &str, state: &str) -> Result<Lease, LeaseError> {
        let place = StatePlace { dir: dir.join(state), key: dir.join("key") };
        std::fs::create_dir_all(&place.dir).unwrap();
        let root = dir.join(root);
        std::fs::create_dir_all(&root).unwrap();
        Lease::take(&Host::real(), root.to_str().unwrap(), &place, Duration::ZERO)
    }

    #[test]
    fn the_same_above_and_below_exclude_each_other_and_siblings_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let held = take(dir, "a/b", "s1").unwrap();
        assert!(held.locks_workspace);
        for (root, state) in [("a/b", "s2"), ("a", "s2"), ("a/b/c", "s2"), ("x", "s1")] {
            assert!(matches!(take(dir, root, state), Err(LeaseError::Held { .. })), "{root} {state}");
        }
        let sibling = take(dir, "a/d", "s3").unwrap();
        drop(held);
        assert!(take(dir, "a/b", "s2").is_ok());
        assert!(take(dir, "a", "s2").is_err(), "a sibling below still runs");
        drop(sibling);
        assert!(take(dir, "a", "s2").is_ok());
    }

    #[test]
    fn the_holder_is_told_and_a_wait_ends() {
        let dir = tempfile::tempdir().unwrap();
        let held = take(dir.path(), "a", "s").unwrap();
        let state = dir.path().join("s");
        assert_eq!(live_holder(&state).map(|holder| holder.pid), Some(std::process::id()));
        let error = take(dir.path(), "a", "s").unwrap_err();
        assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
        drop(held);
        assert_eq!(live_holder(&state), None, "the lock file stays, and means nothing");
    }
}
