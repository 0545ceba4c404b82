//! The tools that a model may propose: their schemas, the strict reading of their arguments, the
//! resolving of what a call touches, and their doing.
//!
//! Never decides: `resolve` says what a call is about, the gate decides, `run` does it. What is
//! judged inside a call (each file of a search) is judged by a closure that the gate hands in.

pub mod args;
mod bounded;
pub mod command;
pub mod finish;
mod list_files;
mod read_file;
pub mod registry;
pub mod resolve;
mod search_text;
pub mod shape;
mod shown;
pub mod write_files;

pub use args::{ArgumentLimits, BadArguments};
pub use registry::{Action, Reading, Tool};
pub use resolve::{Resolved, resolve};
pub use write_files::Writing;

use std::sync::{Arc, atomic::AtomicBool};

use crate::{policy::call::ResolvedCall, workspace::Root};

/// What a tool works with.
#[derive(Clone)]
pub struct ToolContext {
    /// The workspace.
    pub root: Arc<Root>,
    /// Judges something that a running call comes to; `false` leaves it out.
    pub judge: Arc<dyn Fn(&ResolvedCall) -> bool + Send + Sync>,
    /// Set when a signal asks for an end; long work looks at it.
    pub stop: Arc<AtomicBool>,
}

impl std::fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolContext").field("root", &self.root.path()).finish_non_exhaustive()
    }
}

/// What a reading came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// What the model is told.
    pub text: String,
    /// The digest of the file that was read whole, for a later edit.
    pub digest: Option<crate::id::Digest>,
}

impl From<String> for Done {
    fn from(text: String) -> Self {
        Self { text, digest: None }
    }
}

/// Why a tool that ran didn't do what was asked; the model is told.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// What was asked for isn't there, or is of another kind.
    #[error("{path}: {problem}")]
    Target {
        /// As the model wrote it.
        path: String,
        /// What is wrong, and what to do instead.
        problem: &'static str,
    },
    /// The file changed under the call, or the system refused.
    #[error(transparent)]
    Workspace(#[from] crate::workspace::WorkspaceError),
    /// The line that was asked for lies behind the last one.
    #[error("{path}: the file has {lines} {}, so there is no line {asked}", if *lines == 1 { "line" } else { "lines" })]
    PastEnd {
        /// As the model wrote it.
        path: String,
        /// The lines that there are.
        lines: u64,
        /// The first line that was asked for.
        asked: u64,
    },
    /// Reading broke off.
    #[error("{path}: {source}")]
    Read {
        /// As the model wrote it.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A pattern or glob can't be compiled.
    #[error("{what} is not valid: {message}")]
    Pattern {
        /// Which argument.
        what: &'static str,
        /// What is wrong with it.
        message: String,
    },
    /// A signal asked for an end.
    #[error("stopped before it was done")]
    Stopped,
}
