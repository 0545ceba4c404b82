//! Where the state directory is, and whether it may be there.

use std::path::{Path, PathBuf};

use super::{StoreError, anchor, open::DATABASE};
use crate::{host::Host, id::Digest};

/// The state directory of a workspace, and the key file beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatePlace {
    /// The directory.
    pub dir: PathBuf,
    /// The key file: beside, not inside, so that a copy of the directory is no use by itself.
    pub key: PathBuf,
}

/// The state directory: the one that the caller gave, as it is; else one for this workspace below
/// `$XDG_STATE_HOME` or `$HOME/.local/state`.
pub fn state_place(host: &Host, root: &str, given: Option<&Path>) -> Result<StatePlace, StoreError> {
    let dir = match given {
        Some(dir) => {
            std::path::absolute(dir).map_err(|source| StoreError::Io { path: dir.to_owned(), source })?
        }
        None => {
            let digest = Digest::of(root.as_bytes()).to_string();
            let name: String = digest.trim_start_matches("sha256:").chars().take(16).collect();
            state_base(host)?.join(name)
        }
    };
    let mut key = dir.clone().into_os_string();
    key.push(".key");
    Ok(StatePlace { dir, key: PathBuf::from(key) })
}

/// The directory that holds the state directories of all workspaces of this user.
pub fn state_base(host: &Host) -> Result<PathBuf, StoreError> {
    let absolute = |path: PathBuf| Some(path).filter(|path| path.is_absolute());
    host.var("XDG_STATE_HOME")
        .and_then(|base| absolute(PathBuf::from(base)))
        .or_else(|| host.home().map(|home| home.join(".local/state")))
        .map(|base| base.join("thcode"))
        .ok_or(StoreError::NoPlace)
}

/// Whether this file is a store's own: in a state directory, or the key file beside one. `meant` is
/// a place that may not be made yet. The path is an absolute one without links.
pub fn is_kept(file: &Path, meant: Option<&StatePlace>) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let beside = |key: &Path| key.file_name().zip(key.parent()).map(|(name, dir)| real(dir).join(name));
    let meant = meant.is_some_and(|place| {
        file.starts_with(real(&place.dir)) || beside(&place.key).is_some_and(|key| key == file)
    });
    // Other programs have a `state.db` as well.
    let store = |dir: &Path| dir.join(DATABASE).is_file() && dir.join(anchor::FILE).is_file();
    let key = file.extension().is_some_and(|extension| extension == "key");
    meant || file.ancestors().skip(1).any(store) || (key && store(&file.with_extension("")))
}

/// Refuses a place where the store would be the user's own content, or somebody else's choice.
pub(super) fn check(place: &StatePlace, root: &str) -> Result<(), StoreError> {
    let refused =
        |problem: &str| StoreError::Place { path: place.dir.clone(), problem: problem.to_owned() };
    if place.dir.is_symlink() {
        return Err(refused("it is a symbolic link"));
    }
    // The nearest directory that exists tells where the rest would be made.
    let mut above = Some(place.dir.as_path());
    while let Some(dir) = above {
        if let Ok(real) = std::fs::canonicalize(dir) {
            if real.starts_with(root) {
                return Err(refused("it lies inside the workspace"));
            }
            break;
        }
        above = dir.parent();
    }
    Ok(())
}
