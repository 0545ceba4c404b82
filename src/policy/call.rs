//! A call as `decide` sees it: the tool, its action class, and everything that it touches, pinned
//! down beforehand by whoever could look (the tool room). Values alone: no handle, no I/O.

pub use super::command::{CommandFacts, Operand};
pub use crate::floor::{Access, FileKind, Location, PathFacts};

/// The built-in tools, by their exact names. A name that isn't here belongs to no class.
pub const BUILTIN_TOOLS: &[(&str, ActionClass)] = &[
    ("list_files", ActionClass::ListFiles),
    ("read_file", ActionClass::ReadFile),
    ("search_text", ActionClass::SearchText),
    ("create_file", ActionClass::WriteFile),
    ("edit_file", ActionClass::WriteFile),
    ("delete_file", ActionClass::Delete),
    ("run_command", ActionClass::RunCommand),
    ("fetch_url", ActionClass::Transfer),
];

/// What a tool does, as the permission matrix sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ActionClass {
    /// Tells names.
    ListFiles,
    /// Tells content.
    ReadFile,
    /// Tells lines of content.
    SearchText,
    /// Makes or changes a file.
    WriteFile,
    /// Removes a file.
    Delete,
    /// Runs a program.
    RunCommand,
    /// Sends something out or fetches something in.
    Transfer,
}

impl ActionClass {
    /// The class of a built-in tool; names are compared by exact bytes.
    pub fn of_tool(name: &str) -> Option<Self> {
        BUILTIN_TOOLS.iter().find(|(tool, _)| *tool == name).map(|(_, class)| *class)
    }

    /// The word that documents and policies use.
    pub fn token(self) -> &'static str {
        match self {
            Self::ListFiles => "list_files",
            Self::ReadFile => "read_file",
            Self::SearchText => "search_text",
            Self::WriteFile => "write_file",
            Self::Delete => "delete",
            Self::RunCommand => "run_command",
            Self::Transfer => "transfer",
        }
    }

    /// Whether a call of this class may change something.
    pub fn mutating(self) -> bool {
        match self {
            Self::ListFiles | Self::ReadFile | Self::SearchText => false,
            Self::WriteFile | Self::Delete | Self::RunCommand | Self::Transfer => true,
        }
    }
}

/// A call, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedCall {
    /// The tool's name, exactly as the model wrote it.
    pub tool: String,
    /// Its class; `None` for a tool that doesn't exist, which is denied.
    pub class: Option<ActionClass>,
    /// Everything that the call touches. A call of a known tool has at least one.
    pub subjects: Vec<Subject>,
}

/// A thing that a call touches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A path of the file system. Of a command: the directory that it runs in.
    Path {
        /// What is done to it.
        access: Access,
        /// Where it is and what stands there.
        path: PathFacts,
    },
    /// A program and its words.
    Command(CommandFacts),
    /// Something that can't be pinned down; it never becomes an allow.
    Unresolved {
        /// As the model wrote it.
        given: String,
        /// Why not, as a stable kebab-case token.
        reason: &'static str,
    },
}
