//! The paths that nothing may touch, whatever a policy says: pure.
//!
//! Owns the words for a place in the file system (`facts`), the spellings under which two names
//! are the same file somewhere (`fold`), and the hard boundary itself (`judge`). Knows no rule, no
//! tool and no disk: whoever looks at the disk hands in [`PathFacts`].

mod confusable;
mod facts;
mod fold;
mod names;
mod operand;

#[cfg(test)]
mod tests;

use confusable::confusable_name;
pub use facts::{Access, FileKind, Location, PathFacts};
pub use fold::{fold_text, invisible, spellings};
pub use operand::judge_operand;

/// What a call does, as far as the boundary depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Touch {
    /// What is done to the path.
    pub access: Access,
    /// Whether what the file holds is told to the model: reading does, and so does an edit, whose
    /// failures and diffs quote the file. Listing names doesn't.
    pub tells_content: bool,
    /// Whether a file with other names may be changed: it gets a file of its own.
    pub breaks_links: bool,
}

/// A boundary that was hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// Which one.
    pub boundary: Boundary,
    /// Why, in a sentence that names the place.
    pub reason: String,
}

/// The hard boundaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Boundary {
    /// `/proc`, `/sys` or `/dev`.
    SystemPath,
    /// Outside the workspace root.
    OutsideWorkspace,
    /// In a git directory, or a file that stands for one.
    GitDirectory,
    /// In thcode's own directory.
    OwnDirectory,
    /// A write to what decides what other programs run or may do later.
    ControlFile,
    /// The content of a file that holds credentials by its name.
    SecretRead,
    /// A FIFO, a socket, a device.
    SpecialFile,
    /// A write to a directory as if it were a file.
    DirectoryTarget,
    /// A write to a file that has other names, which may lie anywhere.
    HardlinkDetected,
    /// A write to a name that reads like another one.
    ConfusablePath,
    /// A write to a file that this run itself depends on.
    GuardedPath,
    /// A write to what the policy protects.
    ProtectedPath,
}

impl Boundary {
    /// The stable token.
    pub fn token(self) -> &'static str {
        match self {
            Self::SystemPath => "system-path",
            Self::OutsideWorkspace => "outside-workspace",
            Self::GitDirectory => "git-directory",
            Self::OwnDirectory => "own-directory",
            Self::ControlFile => "control-file",
            Self::SecretRead => "secret-read",
            Self::SpecialFile => "special-file",
            Self::DirectoryTarget => "directory-target",
            Self::HardlinkDetected => "hardlink-detected",
            Self::ConfusablePath => "confusable-path",
            Self::GuardedPath => "guarded-path",
            Self::ProtectedPath => "protected-path",
        }
    }

    /// What to do instead.
    pub fn suggest(self) -> Option<&'static str> {
        match self {
            Self::SystemPath | Self::OutsideWorkspace => {
                Some("Use a path inside the workspace, relative to its root.")
            }
            Self::GitDirectory => Some("Leave the repository's own data to the caller."),
            Self::ControlFile | Self::GuardedPath | Self::ProtectedPath => {
                Some("Describe the change in your final answer; a person makes it.")
            }
            Self::SecretRead => Some("Work without the value; name the variable or file that holds it."),
            Self::ConfusablePath => Some("Spell the name with letters of one script."),
            Self::DirectoryTarget => Some("Name a file in the directory."),
            Self::OwnDirectory | Self::SpecialFile | Self::HardlinkDetected => None,
        }
    }
}

/// The boundary that a path hits, if any, judged on the place as it is written and on the place
/// that it leads to. `root` is the absolute path of the workspace root.
pub fn judge(root: &str, touch: Touch, path: &PathFacts) -> Option<Hit> {
    judge_place(root, touch, &path.lexical)
        .or_else(|| {
            // Most paths lead where they say.
            if path.resolved == path.lexical { None } else { judge_place(root, touch, &path.resolved) }
        })
        .or_else(|| judge_target(touch, path))
        .map(|boundary| Hit { boundary, reason: reason(boundary, path) })
}

/// Whether a path is one that names a system tree: what is in there isn't a file, it's the machine.
fn system_path(absolute: &str) -> bool {
    let mut parts = absolute.split('/').filter(|part| !part.is_empty());
    matches!(parts.next(), Some("proc" | "sys" | "dev"))
}

fn judge_place(root: &str, touch: Touch, place: &Location) -> Option<Boundary> {
    if system_path(&place.absolute(root)) {
        return Some(Boundary::SystemPath);
    }
    let inside = match place {
        Location::Outside(_) => return Some(Boundary::OutsideWorkspace),
        Location::Inside(inside) => inside,
    };
    let spelled = spellings(inside);
    let any = |test: fn(&str) -> bool| spelled.iter().any(|path| test(path));
    if any(names::git_directory) {
        return Some(Boundary::GitDirectory);
    }
    if any(names::own_directory) {
        return Some(Boundary::OwnDirectory);
    }
    let writes = match touch.access {
        Access::Write | Access::Delete => true,
        Access::Read => false,
    };
    if writes && any(names::folded_control_file) {
        return Some(Boundary::ControlFile);
    }
    if touch.tells_content && any(names::folded_secret) {
        return Some(Boundary::SecretRead);
    }
    // A name can only be made or changed here, so reading an existing odd name stays possible.
    if writes && inside.split('/').any(confusable_name) {
        return Some(Boundary::ConfusablePath);
    }
    None
}

fn judge_target(touch: Touch, path: &PathFacts) -> Option<Boundary> {
    let writes = match touch.access {
        Access::Write | Access::Delete => true,
        Access::Read => false,
    };
    match path.kind {
        FileKind::Special => Some(Boundary::SpecialFile),
        FileKind::Directory if writes => Some(Boundary::DirectoryTarget),
        FileKind::Regular if writes && path.links > 1 && !touch.breaks_links => {
            Some(Boundary::HardlinkDetected)
        }
        FileKind::Regular | FileKind::Directory | FileKind::Absent | FileKind::Unknown => None,
    }
}

fn reason(boundary: Boundary, path: &PathFacts) -> String {
    let given = &path.given;
    let leads = if path.lexical == path.resolved {
        String::new()
    } else {
        format!(" (it leads to `{}`)", path.resolved.shown())
    };
    let what = match boundary {
        Boundary::SystemPath => "is part of the machine, not of the workspace",
        Boundary::OutsideWorkspace => "is outside the workspace",
        Boundary::GitDirectory => "belongs to the git repository's own data",
        Boundary::OwnDirectory => "belongs to thcode itself",
        Boundary::ControlFile => "decides what other programs run or may do later",
        Boundary::SecretRead => "holds credentials by its name, and those never enter the conversation",
        Boundary::SpecialFile => "is not a file with bytes but a pipe, a socket or a device",
        Boundary::DirectoryTarget => "is a directory",
        Boundary::HardlinkDetected => {
            "has other names (hard links), and a change would part it from them"
        }
        Boundary::ConfusablePath => {
            "has a name that reads like another one (letters of several scripts, or invisible ones)"
        }
        Boundary::GuardedPath => "is a file that this run itself depends on",
        Boundary::ProtectedPath => "is protected by the policy",
    };
    format!("`{given}` {what}{leads}.")
}

impl Hit {
    /// A hit on what only this run knows of: its own files, or what its policy protects.
    pub fn of_run(boundary: Boundary, path: &PathFacts) -> Self {
        Self { boundary, reason: reason(boundary, path) }
    }
}
