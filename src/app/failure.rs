//! The one exhaustive map from every room's error to an exit class and a failure.

use std::{io, path::Path};

use rustix::io::Errno;

use super::{Ended, Finished, git::GitError, prompt::PromptError};
use crate::{
    contract::{CauseCode, ExitClass, Failure, FailureDocument},
    host::own_file::{self, OwnFileError},
    workspace::WorkspaceError,
};

/// An end without the verb's own document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fail {
    /// The class of the end.
    pub class: ExitClass,
    /// What went wrong.
    pub failure: Failure,
}

impl Fail {
    pub(super) fn usage(failure: Failure) -> Self {
        Self { class: ExitClass::Usage, failure }
    }

    pub(super) fn internal(message: impl Into<String>) -> Self {
        let failure = Failure::new(CauseCode::InternalError, message)
            .action("this is a bug of thcode: report it with the command line that led here");
        Self { class: ExitClass::Failed, failure }
    }

    /// The document of this end.
    pub fn ended(self, verb: Option<&str>) -> Ended {
        Ended::Failure(Box::new(FailureDocument::failed(verb, self.class, self.failure)))
    }
}

/// A command line that can't be read.
pub fn usage(message: impl Into<String>, action: Option<String>) -> Fail {
    let failure = Failure::new(CauseCode::BadArgument, message);
    Fail::usage(match action {
        Some(action) => failure.action(action),
        None => failure,
    })
}

/// What the system had no more of; `None` for an error of another kind.
pub(super) fn out_of_resources(error: &io::Error) -> Option<Fail> {
    let what = match Errno::from_io_error(error)? {
        Errno::MFILE | Errno::NFILE => "file handles (ulimit -n)",
        Errno::AGAIN => "processes and threads (ulimit -u, or the container's pids limit)",
        Errno::NOMEM => "memory (ulimit -v, or the container's memory limit)",
        _ => return None,
    };
    let message = format!("the system gives no more {what}: {error}");
    let failure = Failure::new(CauseCode::ResourceLimit, message)
        .action("raise that limit for the job, then run again");
    Some(Fail { class: ExitClass::Failed, failure })
}

/// A signal that ended a verb.
pub fn cancelled(signal: &str) -> Fail {
    let failure = Failure::new(CauseCode::Signalled, format!("stopped by {signal}"));
    Fail { class: ExitClass::Cancelled, failure }
}

/// What stands in the file of `-o` while a verb is at work.
pub fn unfinished() -> Fail {
    let message =
        "the process that writes this file has begun and not ended: it runs still, or was killed";
    let failure = Failure::new(CauseCode::Unfinished, message)
        .action("`thcode recover` tells what it left, once it doesn't run any more");
    Fail { class: ExitClass::UnknownOutcome, failure }
}

/// A panic, told by its place in the code alone: its message could hold content.
pub fn panicked(place: Option<&str>) -> Fail {
    let place = place.unwrap_or("an unknown place");
    Fail::internal(format!("thcode came to an unexpected state at {place}"))
}

/// The minimal document for one that can't be printed. It is written out here, whole, so that it
/// depends on nothing that could have failed.
pub fn document_invalid(message: impl Into<String>) -> Finished {
    let failure = Failure::new(CauseCode::DocumentInvalid, message)
        .action("this is a bug of thcode: report it with the log on standard error");
    let document = FailureDocument::failed(None, ExitClass::Failed, failure);
    let value = serde_json::json!({
        "schema": document.schema,
        "toolVersion": document.tool_version,
        "verb": null,
        "failure": document.failure,
        "exitClass": document.exit_class,
        "exitCode": document.exit_code,
    });
    Finished { ended: Ended::Failure(Box::new(document)), value }
}

/// A document that could not be printed; `has_file` says that it stands in the file of `-o`.
pub fn output_error(message: impl Into<String>, has_file: bool) -> Failure {
    Failure::new(CauseCode::OutputError, message).action(match has_file {
        true => "read the document in the file of -o",
        false => "name a file with -o: the document is written there first, whole",
    })
}

/// The file of `-o` could not be written; `left` says what stands there now.
pub fn file_error(message: &str, left: own_file::Left) -> Failure {
    let left = match left {
        own_file::Left::Nothing => "",
        own_file::Left::Removed => {
            "; what stood there before was taken away, so that it isn't taken for this run's"
        }
        own_file::Left::Stays => "; WHAT STANDS THERE IS NOT THIS RUN'S",
    };
    Failure::new(CauseCode::OutputError, format!("the document can't be written: -o: {message}{left}"))
        .action("free space there, or name a file elsewhere with -o")
}

/// `-o` names a file that is read.
pub fn output_is_input(file: &Path) -> Fail {
    let message = format!("-o: {} is read by this very command", file.display());
    let failure = Failure::new(CauseCode::OutputPathRefused, message);
    Fail::usage(failure.action("name another file for the document"))
}

/// `-o` names a file of a state directory, or a key.
pub(super) fn output_is_state(file: &Path) -> Fail {
    let message = format!("-o: {} lies where a store keeps its own files", file.display());
    let failure = Failure::new(CauseCode::OutputPathRefused, message);
    Fail::usage(failure.action("name a file outside of the state directory for the document"))
}

impl From<WorkspaceError> for Fail {
    fn from(error: WorkspaceError) -> Self {
        let message = error.to_string();
        if let WorkspaceError::Open { source, .. } = &error
            && let Some(fail) = out_of_resources(source)
        {
            return fail;
        }
        match error {
            WorkspaceError::Open { .. }
            | WorkspaceError::TooWide { .. }
            | WorkspaceError::NotUtf8(_) => {
                let failure = Failure::new(CauseCode::WorkspaceRefused, message);
                Self::usage(failure.action("name the directory of one project with -C DIR"))
            }
            // Tools tell these to the model; none of them ends a verb.
            WorkspaceError::Changed(_) | WorkspaceError::Read { .. } => Self::internal(message),
        }
    }
}

impl From<OwnFileError> for Fail {
    fn from(error: OwnFileError) -> Self {
        if let OwnFileError::Io { source, .. } = &error
            && let Some(fail) = out_of_resources(source)
        {
            return fail;
        }
        let action = match &error {
            OwnFileError::Io { source, .. } if own_file::wants_room(source) => {
                "free space there, or name a file elsewhere with -o"
            }
            OwnFileError::Io { .. }
            | OwnFileError::NotRegular(_)
            | OwnFileError::NoName(_)
            | OwnFileError::NameTooLong => "name a regular file in a directory that can be written",
        };
        let failure = Failure::new(CauseCode::OutputPathRefused, format!("-o: {error}"));
        Self::usage(failure.action(action))
    }
}

impl From<PromptError> for Fail {
    fn from(error: PromptError) -> Self {
        let message = error.to_string();
        let (cause, action) = match error {
            PromptError::Empty => (CauseCode::PromptEmpty, "say what is to be done"),
            PromptError::TooLarge => (
                CauseCode::PromptTooLarge,
                "put the material into the workspace and name it in the prompt",
            ),
            PromptError::NotUtf8 { .. } => (CauseCode::PromptNotUtf8, "convert it with iconv first"),
            PromptError::Unreadable { .. } | PromptError::NotAFile(_) | PromptError::Stdin(_) => {
                (CauseCode::InputUnreadable, "name a readable regular file, or `-` for standard input")
            }
            PromptError::Terminal => {
                (CauseCode::PromptTimedOut, "give the prompt as argument, with -p, or with -f FILE")
            }
            PromptError::Silent(_) => (
                CauseCode::PromptTimedOut,
                "close standard input after the prompt, or allow more time with --stdin-timeout",
            ),
            PromptError::Signalled(signal) => return cancelled(signal),
        };
        Self::usage(Failure::new(cause, message).action(action))
    }
}

impl From<GitError> for Fail {
    fn from(error: GitError) -> Self {
        let message = error.to_string();
        let (cause, action) = match error {
            GitError::NoGit(_) => {
                (CauseCode::PolicyUnreadable, "install git, or name a file".to_owned())
            }
            GitError::NoRepository(_) => {
                (CauseCode::PolicyUnreadable, "name the repository with -C DIR".to_owned())
            }
            GitError::NoRevision { fetch, .. } => {
                (CauseCode::RevisionMissing, format!("bring it: {fetch}"))
            }
            GitError::Ambiguous { .. } => (
                CauseCode::RevisionMissing,
                "write the full name, such as refs/remotes/origin/main".to_owned(),
            ),
            GitError::NoFile { rev, .. } => (
                CauseCode::RevisionMissing,
                format!("list what is there: git ls-tree -r --name-only {rev}"),
            ),
            GitError::TooLarge { .. } => {
                (CauseCode::PolicyUnreadable, "a policy file has at most 10 MiB".to_owned())
            }
        };
        Self::usage(Failure::new(cause, message).action(action))
    }
}
