//! Which file a program's name means: an absolute path outside the workspace, or the very path that a
//! grant names inside. Its digest is taken, so that a record says what ran.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access};
use sha2::{Digest as _, Sha256};

use super::NotRun;
use crate::{
    id::Digest,
    policy::call::{CommandFacts, Location},
};

/// A program that can be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Program {
    /// Absolute.
    pub(super) path: PathBuf,
    pub(super) digest: Digest,
}

/// Finds the program of a command that was judged. `search` holds absolute directories outside the
/// workspace.
pub(super) fn find(command: &CommandFacts, search: &[PathBuf], root: &str) -> Result<Program, NotRun> {
    let given = command.argv.first().map_or("", String::as_str);
    let (path, real) = locate(command, search, root)?;
    let digest = digest(&real)
        .map_err(|error| NotRun::new("program-unreadable", format!("{given} can't be read: {error}")))?;
    Ok(Program { path, digest })
}

/// The path of a program, and what it leads to.
pub(super) fn locate(
    command: &CommandFacts,
    search: &[PathBuf],
    root: &str,
) -> Result<(PathBuf, PathBuf), NotRun> {
    let given = command.argv.first().map_or("", String::as_str);
    let path = match &command.program {
        Some(program) => match &program.resolved {
            Location::Inside(_) => PathBuf::from(program.resolved.absolute(root)),
            Location::Outside(_) => PathBuf::from(program.lexical.absolute(root)),
        },
        None if given.contains('/') => {
            return Err(NotRun::new("program-not-found", format!("{given} is no path of a program")));
        }
        None => search.iter().map(|dir| dir.join(given)).find(|path| runs(path)).ok_or_else(|| {
            NotRun::new("program-not-found", format!("there is no program {given} in PATH"))
        })?,
    };
    if !runs(&path) {
        let message = format!("{given} isn't there, or isn't a program that may be run");
        return Err(NotRun::new("program-not-found", message));
    }
    let real = std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
    let in_the_tree = real.starts_with(root);
    let named_inside =
        command.program.as_ref().is_some_and(|program| matches!(program.resolved, Location::Inside(_)));
    if in_the_tree && !named_inside {
        let message = format!("{given} leads into the workspace; name it by its path there");
        return Err(NotRun::new("program-in-workspace", message));
    }
    Ok((path, real))
}

fn runs(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

fn digest(path: &Path) -> io::Result<Digest> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut bytes = vec![0; 256 * 1024];
    loop {
        let read = file.read(&mut bytes)?;
        if read == 0 {
            return Ok(Digest::from_bytes(hasher.finalize().into()));
        }
        hasher.update(bytes.get(..read).unwrap_or_default());
    }
}
