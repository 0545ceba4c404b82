//! Walks the tree by handle, in the order of names, leaving out what `.gitignore` and
//! `.thcodeignore` leave out.
//!
//! Links are named, never followed. Ignore files are read by handle and only if they are regular,
//! so that a FIFO of that name can't hold the walk up. Nothing outside the root is consulted: no
//! user's ignore file, no parent's.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    io::Read as _,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::{
    fs::{Dir, FileType, Mode, OFlags, fstat, openat},
    io::Errno,
};

use super::{
    look::{Kind, Look, Spot, joined, kind_of},
    root::Root,
};

/// The ignore files, the stronger last.
const IGNORE_FILES: [&str; 2] = [".gitignore", ".thcodeignore"];
/// Bytes of one ignore file that count.
const IGNORE_BYTES: usize = 256 * 1024;
/// Patterns that count, of all ignore files on the way down together.
const MOST_PATTERNS: usize = 20_000;
/// Bytes of patterns that count, of all ignore files on the way down together: what they are
/// compiled to is many times as large.
const MOST_PATTERN_BYTES: usize = 512 * 1024;
/// Bytes of one pattern.
const LONGEST_PATTERN: usize = 1024;
/// Deeper directories aren't entered: each level holds a handle.
const DEEPEST: usize = 128;

/// Something that the walk came to.
#[derive(Debug)]
pub struct Entry {
    /// Relative to the root, `/`-separated.
    pub path: String,
    /// Its depth below the start, from 1.
    pub depth: usize,
    /// What it is.
    pub kind: EntryKind,
    /// For [`Root::open_file`].
    pub look: Look,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A file with bytes.
    File,
    /// A directory; it is entered if the visitor says so.
    Directory,
    /// A symbolic link; never followed.
    Link,
}

/// What the visitor wants next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Go on; into it, if it is a directory.
    Into,
    /// Go on, but not into it, and count it as left out for this reason.
    Skip(Skip),
    /// Go on, but not into it; nothing is left out by that.
    Over,
    /// End the walk.
    Stop,
}

/// Why something was left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Skip {
    /// An ignore file says so.
    Ignored,
    /// Git's own directory.
    GitDirectory,
    /// A hard boundary or a rule denies it.
    Denied,
    /// FIFO, socket or device.
    Special,
    /// Its name isn't UTF-8.
    NameNotUtf8,
    /// It can't be opened or read.
    Unreadable,
    /// It lies too deep.
    TooDeep,
    /// It isn't text.
    Binary,
    /// It has a line that is too long to be held.
    LineTooLong,
    /// An ignore file, or part of one, that is over the limits: what it says there isn't heeded.
    IgnoreFileTooLarge,
}

impl Skip {
    /// The word that the model is told.
    pub fn token(self) -> &'static str {
        match self {
            Self::Ignored => "ignored",
            Self::GitDirectory => "git-directory",
            Self::Denied => "denied",
            Self::Special => "special-file",
            Self::NameNotUtf8 => "name-not-utf8",
            Self::Unreadable => "unreadable",
            Self::TooDeep => "too-deep",
            Self::Binary => "binary",
            Self::LineTooLong => "line-too-long",
            Self::IgnoreFileTooLarge => "ignore-file-too-large",
        }
    }
}

/// How a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalkEnd {
    /// Everything was visited.
    Whole,
    /// The visitor stopped it.
    Stopped,
}

/// A walk in progress: what was left out, and the handles that lead to where it stands.
#[derive(Debug)]
pub struct Walk<'r> {
    root: &'r Root,
    /// What was left out, by reason.
    pub skipped: BTreeMap<Skip, u64>,
    /// The ignore files on the way down, each with the directory that it speaks for.
    rules: Vec<(String, Gitignore)>,
    /// Patterns and their bytes that may still be added on this way down.
    room: Room,
}

#[derive(Debug, Clone, Copy)]
struct Room {
    patterns: usize,
    bytes: usize,
}

impl<'r> Walk<'r> {
    /// A walk that hasn't begun.
    pub fn new(root: &'r Root) -> Self {
        let room = Room { patterns: MOST_PATTERNS, bytes: MOST_PATTERN_BYTES };
        Self { root, skipped: BTreeMap::new(), rules: Vec::new(), room }
    }

    /// Visits everything below a directory (relative to the root; empty is the root itself) that
    /// was looked at. The ignore files of the directories above it hold too.
    pub fn below(&mut self, dir: &str, visit: &mut dyn FnMut(&mut Self, &Entry) -> Step) -> WalkEnd {
        let mut fd = match self.open_dir(None, ".") {
            Some(fd) => fd,
            None => return self.unreadable(),
        };
        let mut at = String::new();
        self.read_ignore_files(&fd, &at);
        for name in dir.split('/').filter(|name| !name.is_empty()) {
            fd = match self.open_dir(Some(&fd), name) {
                Some(fd) => fd,
                None => return self.unreadable(),
            };
            at = joined(&at, name);
            self.read_ignore_files(&fd, &at);
        }
        self.visit_dir(fd, &at, 1, visit)
    }

    /// Counts something as left out.
    pub fn skip(&mut self, why: Skip) {
        *self.skipped.entry(why).or_insert(0) += 1;
    }

    fn unreadable(&mut self) -> WalkEnd {
        self.skip(Skip::Unreadable);
        WalkEnd::Whole
    }

    fn open_dir(&self, parent: Option<&OwnedFd>, name: &str) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match parent {
            Some(parent) => openat(parent, name, flags, Mode::empty()).ok(),
            None => openat(self.root.fd(), name, flags, Mode::empty()).ok(),
        }
    }

    fn read_ignore_files(&mut self, dir: &OwnedFd, at: &str) {
        let mut builder = GitignoreBuilder::new("");
        let mut any = false;
        for name in IGNORE_FILES {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = match openat(dir, name, flags, Mode::empty()) {
                Ok(fd) => fd,
                Err(Errno::NOENT) => continue,
                Err(_) => {
                    self.skip(Skip::Unreadable);
                    continue;
                }
            };
            // What is something else is told when the walk comes to it.
            if !fstat(&fd).is_ok_and(|stat| kind_of(&stat) == Kind::Regular) {
                continue;
            }
            let (mut bytes, most) = (Vec::new(), u64::try_from(IGNORE_BYTES).unwrap_or(u64::MAX));
            let mut file = std::fs::File::from(fd).take(most.saturating_add(1));
            if file.read_to_end(&mut bytes).is_err() {
                self.skip(Skip::Unreadable);
                continue;
            }
            let mut whole = bytes.len() <= IGNORE_BYTES;
            if !whole {
                // A line that was cut could say something else altogether.
                let line_end = bytes.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
                bytes.truncate(line_end);
            }
            for line in String::from_utf8_lossy(&bytes).trim_start_matches('\u{feff}').lines() {
                let says_nothing = line.trim().is_empty() || line.starts_with('#');
                let room = (line.len() <= LONGEST_PATTERN)
                    .then(|| self.room.bytes.checked_sub(line.len()))
                    .flatten()
                    .zip(self.room.patterns.checked_sub(1));
                match room {
                    _ if says_nothing => {}
                    None => whole = false,
                    Some((bytes, patterns)) => {
                        self.room = Room { patterns, bytes };
                        // A line that isn't a pattern ignores nothing, as in git.
                        any |= builder.add_line(None, line).is_ok();
                    }
                }
            }
            if !whole {
                self.skip(Skip::IgnoreFileTooLarge);
            }
        }
        match builder.build() {
            Ok(rules) if any => self.rules.push((at.to_owned(), rules)),
            Ok(_) => {}
            Err(_) => self.skip(Skip::IgnoreFileTooLarge),
        }
    }

    /// The deepest ignore file that says anything about a path decides.
    fn ignored(&self, path: &str, is_dir: bool) -> bool {
        for (dir, rules) in self.rules.iter().rev() {
            let below = if dir.is_empty() {
                Some(path)
            } else {
                path.strip_prefix(dir.as_str()).and_then(|rest| rest.strip_prefix('/'))
            };
            let matched = below.map(|below| rules.matched(below, is_dir));
            match matched {
                Some(found) if found.is_ignore() => return true,
                Some(found) if found.is_whitelist() => return false,
                _ => {}
            }
        }
        false
    }

    fn visit_dir(
        &mut self,
        fd: OwnedFd,
        at: &str,
        depth: usize,
        visit: &mut dyn FnMut(&mut Self, &Entry) -> Step,
    ) -> WalkEnd {
        let Ok(dir) = Dir::read_from(&fd) else { return self.unreadable() };
        let mut names: Vec<Vec<u8>> = dir
            .filter_map(Result::ok)
            .map(|entry| entry.file_name().to_bytes().to_vec())
            .filter(|name| !matches!(name.as_slice(), b"." | b".."))
            .collect();
        names.sort_unstable();
        for name in names {
            let end = self.visit_one(&fd, at, &name, depth, visit);
            if end == WalkEnd::Stopped {
                return end;
            }
        }
        WalkEnd::Whole
    }

    fn visit_one(
        &mut self,
        dir: &OwnedFd,
        at: &str,
        name: &[u8],
        depth: usize,
        visit: &mut dyn FnMut(&mut Self, &Entry) -> Step,
    ) -> WalkEnd {
        let Some(name) = OsStr::from_bytes(name).to_str() else {
            self.skip(Skip::NameNotUtf8);
            return WalkEnd::Whole;
        };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(stat) = openat(dir, name, flags, Mode::empty()).and_then(fstat) else {
            return self.unreadable();
        };
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => EntryKind::Directory,
            FileType::Symlink => EntryKind::Link,
            _ => {
                self.skip(Skip::Special);
                return WalkEnd::Whole;
            }
        };
        if name == ".git" {
            self.skip(Skip::GitDirectory);
            return WalkEnd::Whole;
        }
        let path = joined(at, name);
        if self.ignored(&path, kind == EntryKind::Directory) {
            self.skip(Skip::Ignored);
            return WalkEnd::Whole;
        }
        let spot = Spot::Inside(path.clone());
        let look = match kind {
            // Only its name is there to be judged: it isn't followed, so nothing stands at its end.
            EntryKind::Link => Look::without_stat(spot, Kind::Absent),
            EntryKind::File | EntryKind::Directory => Look::of(spot, &stat),
        };
        let entry = Entry { path, depth, kind, look };
        match visit(self, &entry) {
            Step::Stop => WalkEnd::Stopped,
            Step::Skip(why) => {
                self.skip(why);
                WalkEnd::Whole
            }
            Step::Over => WalkEnd::Whole,
            Step::Into if kind != EntryKind::Directory => WalkEnd::Whole,
            Step::Into if depth >= DEEPEST => {
                self.skip(Skip::TooDeep);
                WalkEnd::Whole
            }
            Step::Into => {
                let Some(fd) = self.open_dir(Some(dir), name) else { return self.unreadable() };
                let (rules, room) = (self.rules.len(), self.room);
                self.read_ignore_files(&fd, &entry.path);
                let end = self.visit_dir(fd, &entry.path, depth + 1, visit);
                self.rules.truncate(rules);
                self.room = room;
                end
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    fn names(root: &Root, dir: &str) -> (Vec<String>, BTreeMap<Skip, u64>) {
        let mut names = Vec::new();
        let mut walk = Walk::new(root);
        walk.below(dir, &mut |_, entry| {
            names.push(entry.path.clone());
            Step::Into
        });
        (names, walk.skipped)
    }

    #[test]
    fn honours_ignore_files_of_every_level_and_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let ws = dir.path().join("ws");
        fs::create_dir_all(ws.join("a/deep")).unwrap();
        fs::create_dir_all(ws.join(".git")).unwrap();
        fs::create_dir_all(ws.join("target/x")).unwrap();
        for file in ["a/one.rs", "a/one.log", "a/deep/keep.log", "a/deep/two.rs", "target/x/y"] {
            fs::write(ws.join(file), "").unwrap();
        }
        fs::write(ws.join(".gitignore"), "target/\n*.log\n").unwrap();
        fs::write(ws.join("a/deep/.thcodeignore"), "!keep.log\n/two.rs\n").unwrap();
        std::os::unix::fs::symlink("/etc", ws.join("a/etc")).unwrap();
        let root = Root::open(&ws, None).unwrap();
        let (all, skipped) = names(&root, "");
        let deep = ["a/deep", "a/deep/.thcodeignore", "a/deep/keep.log"];
        assert_eq!(all, [&[".gitignore", "a"][..], &deep, &["a/etc", "a/one.rs"]].concat());
        assert_eq!(skipped[&Skip::Ignored], 3);
        assert_eq!(skipped[&Skip::GitDirectory], 1);
        assert_eq!(names(&root, "a/deep").0, deep[1..]);
    }

    #[test]
    fn a_fifo_as_ignore_file_holds_nothing_up() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join(".gitignore");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        fs::write(dir.path().join("x"), "").unwrap();
        let root = Root::open(dir.path(), None).unwrap();
        let (all, skipped) = names(&root, "");
        assert_eq!(all, ["x"]);
        assert_eq!(skipped[&Skip::Special], 1);
    }

    #[test]
    fn a_very_deep_tree_ends() {
        let dir = tempfile::tempdir().unwrap();
        let mut path = dir.path().to_owned();
        for _ in 0..200 {
            path.push("d");
        }
        fs::create_dir_all(Path::new(&path)).unwrap();
        let root = Root::open(dir.path(), None).unwrap();
        let (all, skipped) = names(&root, "");
        assert_eq!(all.len(), DEEPEST);
        assert_eq!(skipped[&Skip::TooDeep], 1);
    }
}
