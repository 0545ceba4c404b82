//! A path as a model wrote it, read lexically: no disk is asked.
//!
//! What can't be a plain path of a workspace is a bad argument, told to the model with what to
//! write instead. It is refused, never repaired: two readers that repair differently disagree.

use crate::floor::Location;

/// The longest path that the kernel takes, in bytes.
pub const LONGEST_PATH: usize = 4096;

/// Words before a colon that make a URI of what follows even without `//`.
const SCHEMES: &[&str] = &["data", "file", "ftp", "http", "https"];

/// A text that isn't a path. The message tells the model what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    /// Nothing was written.
    #[error("the path is empty; write `.` for the workspace root")]
    Empty,
    /// More than [`LONGEST_PATH`] bytes.
    #[error("the path has {bytes} bytes, but {LONGEST_PATH} is the most that a path can have")]
    TooLong {
        /// How many it has.
        bytes: usize,
    },
    /// A NUL, at which the kernel would stop reading.
    #[error("the path has a NUL in it; write the path alone")]
    Nul,
    /// A line break or another control character.
    #[error("the path has the control character U+{code:04X} in it; write the path alone, on one line")]
    ControlCharacter {
        /// Its code point.
        code: u32,
    },
    /// A backslash, which separates on some systems and not on others.
    #[error("the path has a backslash in it; separate its parts with `/`")]
    Backslash,
    /// A URI.
    #[error("the path is a URI; write the path without `{scheme}:`, relative to the workspace root")]
    Uri {
        /// What stands before the colon.
        scheme: String,
    },
    /// A tilde at the start, which only a shell expands.
    #[error(
        "the path starts with `~`, which nobody expands here; write it relative to the workspace root"
    )]
    Tilde,
}

impl BadPath {
    /// The stable token.
    pub fn token(&self) -> &'static str {
        match self {
            Self::Empty => "path-empty",
            Self::TooLong { .. } => "path-too-long",
            Self::Nul => "path-nul",
            Self::ControlCharacter { .. } => "path-control-character",
            Self::Backslash => "path-backslash",
            Self::Uri { .. } => "path-uri",
            Self::Tilde => "path-tilde",
        }
    }
}

/// Reads a path, relative to `root` (the absolute path of the workspace root) or absolute.
/// `.`, `..`, doubled and trailing separators are resolved lexically; what `..` means behind a link
/// is for whoever looks at the disk.
pub fn read_path(given: &str, root: &str) -> Result<Location, BadPath> {
    check(given)?;
    let mut names: Vec<&str> = Vec::new();
    let parts = if given.starts_with('/') { "" } else { root }.split('/').chain(given.split('/'));
    for part in parts {
        match part {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    // By components, so that `/work-evil` isn't inside `/work`.
    let mut rest = names.iter();
    let inside = root.split('/').filter(|part| !part.is_empty()).all(|part| rest.next() == Some(&part));
    let joined = |names: &[&str]| names.join("/");
    if inside {
        Ok(Location::Inside(joined(rest.as_slice())))
    } else {
        Ok(Location::Outside(format!("/{}", joined(&names))))
    }
}

fn check(given: &str) -> Result<(), BadPath> {
    if given.is_empty() {
        return Err(BadPath::Empty);
    }
    if given.len() > LONGEST_PATH {
        return Err(BadPath::TooLong { bytes: given.len() });
    }
    for c in given.chars() {
        match c {
            '\0' => return Err(BadPath::Nul),
            '\\' => return Err(BadPath::Backslash),
            // The separators of lines and paragraphs break a line as surely as a newline does.
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => {
                return Err(BadPath::ControlCharacter { code: u32::from(c) });
            }
            _ => {}
        }
    }
    if given.starts_with('~') {
        return Err(BadPath::Tilde);
    }
    match scheme(given) {
        Some(scheme) => Err(BadPath::Uri { scheme: scheme.to_owned() }),
        None => Ok(()),
    }
}

fn scheme(given: &str) -> Option<&str> {
    let (scheme, rest) = given.split_once(':')?;
    let well_formed = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    let known = SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme));
    (well_formed && (known || rest.starts_with("//"))).then_some(scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &str) -> Result<Location, BadPath> {
        read_path(given, "/work/tree")
    }

    fn inside(path: &str) -> Result<Location, BadPath> {
        Ok(Location::Inside(path.to_owned()))
    }

    fn outside(path: &str) -> Result<Location, BadPath> {
        Ok(Location::Outside(path.to_owned()))
    }

    #[test]
    fn a_path_is_normalised_lexically() {
        for (given, path) in [
            ("src/a.rs", "src/a.rs"),
            ("./src//a.rs/", "src/a.rs"),
            ("a/../src/./a.rs", "src/a.rs"),
            (".", ""),
            ("a/..", ""),
            ("/work/tree", ""),
            ("/work/tree/src", "src"),
            ("//work//tree/src", "src"),
            ("../tree/src", "src"),
            ("a:b/c:d", "a:b/c:d"),
            ("src/~x", "src/~x"),
            ("...", "..."),
            ("ไฟล์.md", "ไฟล์.md"),
        ] {
            assert_eq!(read(given), inside(path), "{given}");
        }
    }

    #[test]
    fn what_leads_out_is_outside() {
        for (given, path) in [
            ("..", "/work"),
            ("../x", "/work/x"),
            ("a/../../x", "/work/x"),
            ("../../../../x", "/x"),
            ("/work/tree-evil/x", "/work/tree-evil/x"),
            ("/work/tree/../x", "/work/x"),
            ("//etc/passwd", "/etc/passwd"),
            ("/", "/"),
        ] {
            assert_eq!(read(given), outside(path), "{given}");
        }
    }

    #[test]
    fn everything_is_inside_a_workspace_at_the_top() {
        assert_eq!(read_path("/etc/x", "/"), inside("etc/x"));
        assert_eq!(read_path("../x", "/"), inside("x"));
    }

    #[test]
    fn what_is_no_path_is_told_by_token() {
        let long = "a/".repeat(2049);
        for (given, token) in [
            ("", "path-empty"),
            (long.as_str(), "path-too-long"),
            ("a\0b", "path-nul"),
            (".env\n", "path-control-character"),
            ("a\u{7f}", "path-control-character"),
            ("a\u{85}b", "path-control-character"),
            ("a\u{2028}b", "path-control-character"),
            ("src\\a.rs", "path-backslash"),
            ("file:///x", "path-uri"),
            ("FILE:x", "path-uri"),
            ("git+ssh://x", "path-uri"),
            ("~/x", "path-tilde"),
            ("~u/x", "path-tilde"),
        ] {
            assert_eq!(read(given).map_err(|bad| bad.token()), Err(token), "{given:?}");
        }
    }
}
