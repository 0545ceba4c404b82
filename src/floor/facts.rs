//! The words for a place in the file system: where it is, what stands there, what is done to it.
//! Values alone: no handle, no I/O.

/// What is done to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// Its content or its names are told.
    Read,
    /// It is made or changed.
    Write,
    /// It is removed.
    Delete,
}

impl Access {
    /// The word that documents and policies use.
    pub fn token(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Delete => "delete",
        }
    }
}

/// A path in all its spellings, and what stands there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathFacts {
    /// As the model wrote it.
    pub given: String,
    /// Without `.`, `..` and doubled separators.
    pub lexical: Location,
    /// After following every link, component by component, by handle.
    pub resolved: Location,
    /// What stands at `resolved`.
    pub kind: FileKind,
    /// Hard links of a regular file; 0 where nothing stands.
    pub links: u64,
    /// Bytes of a regular file; 0 where nothing stands.
    pub bytes: u64,
}

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// Inside the workspace: relative to its root, `/`-separated, no `.` or `..`, no leading or
    /// trailing separator; the root itself is the empty string.
    Inside(String),
    /// Outside the workspace: absolute, where it could be told.
    Outside(String),
}

impl Location {
    /// The absolute path, `root` being that of the workspace.
    pub fn absolute(&self, root: &str) -> String {
        match self {
            Self::Outside(path) => path.clone(),
            Self::Inside(path) if path.is_empty() => root.to_owned(),
            Self::Inside(path) => format!("{}/{path}", root.trim_end_matches('/')),
        }
    }

    /// As a person reads it: relative where it is inside, `.` for the root.
    pub fn shown(&self) -> &str {
        match self {
            Self::Inside(path) if path.is_empty() => ".",
            Self::Inside(path) | Self::Outside(path) => path,
        }
    }
}

/// What stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A file with bytes.
    Regular,
    /// A directory.
    Directory,
    /// Nothing; its parent may not exist either.
    Absent,
    /// FIFO, socket, device or anything else that a read could hang on or act through.
    Special,
    /// It couldn't be looked at (permission, a loop of links, a name that is too long).
    Unknown,
}

impl FileKind {
    /// The word that documents and policies use.
    pub fn token(self) -> &'static str {
        match self {
            Self::Regular => "regular",
            Self::Directory => "directory",
            Self::Absent => "absent",
            Self::Special => "special",
            Self::Unknown => "unknown",
        }
    }
}
