//! Looks at a path: where it leads once every link is followed, and what stands there.
//!
//! Each component is opened from its parent's handle and `..` goes back to a handle that is already
//! held, so the walk can't be led out of the root by a rename under its feet.

use std::{
    collections::VecDeque,
    os::fd::{AsFd as _, OwnedFd},
};

use rustix::{
    fs::{FileType, Mode, OFlags, Stat, fstat, openat, readlinkat},
    io::Errno,
};

use super::root::Root;

/// The kernel's own limit on links in one path.
const MOST_LINKS: u32 = 40;

/// What a path leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// Where it is.
    pub spot: Spot,
    /// What stands there.
    pub kind: Kind,
    /// Hard links of a regular file, else 0.
    pub links: u64,
    /// Bytes of a regular file, else 0.
    pub bytes: u64,
    /// Device and inode of what stands there.
    pub identity: Option<(u64, u64)>,
    /// Whether the path itself names a symbolic link, dangling or not. Links in the directories above
    /// don't count.
    pub is_link: bool,
}

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spot {
    /// Inside the root: relative, `/`-separated; the root itself is the empty string.
    Inside(String),
    /// Outside, and not followed any further: as far as it could be told.
    Outside(String),
}

/// What stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file with bytes.
    Regular,
    /// A directory.
    Directory,
    /// Nothing (ENOENT or ENOTDIR, and only these).
    Absent,
    /// FIFO, socket, device.
    Special,
    /// It couldn't be looked at.
    Unknown,
}

pub(super) fn kind_of(stat: &Stat) -> Kind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::Regular,
        FileType::Directory => Kind::Directory,
        _ => Kind::Special,
    }
}

impl Look {
    pub(super) fn without_stat(spot: Spot, kind: Kind) -> Self {
        Self { spot, kind, links: 0, bytes: 0, identity: None, is_link: false }
    }

    pub(super) fn of(spot: Spot, stat: &Stat) -> Self {
        let kind = kind_of(stat);
        let regular = kind == Kind::Regular;
        Self {
            spot,
            kind,
            links: if regular { u64::from(stat.st_nlink as u32) } else { 0 },
            bytes: if regular { u64::try_from(stat.st_size).unwrap_or(0) } else { 0 },
            identity: Some((stat.st_dev, stat.st_ino)),
            is_link: false,
        }
    }
}

/// A directory on the way, and the name that led into it.
struct Held {
    name: String,
    fd: OwnedFd,
}

struct Follow<'r> {
    root: &'r Root,
    held: Vec<Held>,
    todo: VecDeque<String>,
    links: u32,
    is_link: bool,
}

impl Root {
    /// Follows a path as the kernel would, links and all, without leaving the root. An absolute
    /// path is taken from the root's own path if it lies below it.
    pub fn look(&self, path: &str) -> Look {
        let mut follow =
            Follow { root: self, held: Vec::new(), todo: VecDeque::new(), links: 0, is_link: false };
        let look = follow.begin(path).unwrap_or_else(|| follow.run());
        Look { is_link: follow.is_link, ..look }
    }
}

impl Follow<'_> {
    /// Queues the components of a path in front; a `Look` if it starts outside the root.
    fn begin(&mut self, path: &str) -> Option<Look> {
        let components = if path.starts_with('/') {
            let Some(below) = below(self.root.path(), path) else {
                return Some(Look::without_stat(Spot::Outside(path.to_owned()), Kind::Unknown));
            };
            self.held.clear();
            below
        } else {
            path.split('/').map(str::to_owned).collect()
        };
        for component in components.into_iter().rev() {
            self.todo.push_front(component);
        }
        None
    }

    fn run(&mut self) -> Look {
        while let Some(name) = self.todo.pop_front() {
            if matches!(name.as_str(), "" | ".") {
                continue;
            }
            if name == ".." {
                if self.held.pop().is_none() {
                    return Look::without_stat(
                        Spot::Outside(format!("{}/..", self.root.path())),
                        Kind::Unknown,
                    );
                }
                continue;
            }
            if let Some(end) = self.step(name) {
                return end;
            }
        }
        match self.held.last().map_or_else(|| fstat(self.root.fd()), |held| fstat(&held.fd)) {
            Ok(stat) => Look::of(Spot::Inside(self.held_path()), &stat),
            Err(_) => Look::without_stat(Spot::Inside(self.held_path()), Kind::Unknown),
        }
    }

    /// Goes into one component; a `Look` if the path ends there.
    fn step(&mut self, name: String) -> Option<Look> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let parent = self.held.last().map_or_else(|| self.root.fd(), |held| held.fd.as_fd());
        let fd = match openat(parent, name.as_str(), flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR) => return Some(self.rest(name, Kind::Absent)),
            Err(_) => return Some(self.rest(name, Kind::Unknown)),
        };
        let Ok(stat) = fstat(&fd) else { return Some(self.rest(name, Kind::Unknown)) };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => {
                self.links += 1;
                self.is_link |= self.todo.iter().all(|rest| matches!(rest.as_str(), "" | "."));
                let target =
                    readlinkat(&fd, "", Vec::new()).ok().and_then(|text| text.into_string().ok());
                match target {
                    Some(target) if self.links <= MOST_LINKS => self.begin(&target),
                    _ => Some(self.rest(name, Kind::Unknown)),
                }
            }
            FileType::Directory => {
                self.held.push(Held { name, fd });
                None
            }
            _ if self.todo.iter().all(|rest| rest == ".") => {
                let spot = Spot::Inside(joined(&self.held_path(), &name));
                Some(Look::of(spot, &stat))
            }
            // Something stands where a directory would have to: below it there is nothing.
            _ => Some(self.rest(name, Kind::Absent)),
        }
    }

    fn held_path(&self) -> String {
        self.held.iter().map(|held| held.name.as_str()).collect::<Vec<_>>().join("/")
    }

    /// The end of a path from a component on that couldn't be entered: the rest read as text.
    fn rest(&self, name: String, kind: Kind) -> Look {
        let mut names: Vec<String> = self.held.iter().map(|held| held.name.clone()).collect();
        names.push(name);
        for component in &self.todo {
            match component.as_str() {
                "" | "." => {}
                ".." => {
                    if names.pop().is_none() {
                        let spot = Spot::Outside(format!("{}/..", self.root.path()));
                        return Look::without_stat(spot, Kind::Unknown);
                    }
                }
                other => names.push(other.to_owned()),
            }
        }
        Look::without_stat(Spot::Inside(names.join("/")), kind)
    }
}

/// The components of an absolute path below the root's own, if it lies below.
fn below(root: &str, path: &str) -> Option<Vec<String>> {
    let mut wanted = root.split('/').filter(|name| !name.is_empty());
    let mut given = path.split('/').filter(|name| !matches!(*name, "" | "."));
    for name in wanted.by_ref() {
        if given.next() != Some(name) {
            return None;
        }
    }
    let mut names: Vec<String> = given.map(str::to_owned).collect();
    if path.ends_with('/') {
        names.push(String::new());
    }
    Some(names)
}

pub(super) fn joined(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use super::*;

    fn tree() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let ws = dir.path().join("ws");
        fs::create_dir_all(ws.join("a/b")).unwrap();
        fs::write(ws.join("a/file"), "12345").unwrap();
        fs::write(dir.path().join("secret"), "x").unwrap();
        fs::create_dir(dir.path().join("ws-evil")).unwrap();
        let root = Root::open(&ws, None).unwrap();
        (dir, root)
    }

    fn inside(look: &Look) -> &str {
        match &look.spot {
            Spot::Inside(path) => path,
            Spot::Outside(path) => panic!("outside: {path}"),
        }
    }

    #[test]
    fn plain_paths() {
        let (_dir, root) = tree();
        let file = root.look("a/./b/..//file");
        assert_eq!((inside(&file), file.kind, file.bytes, file.links), ("a/file", Kind::Regular, 5, 1));
        assert_eq!(inside(&root.look("")), "");
        assert_eq!(root.look(".").kind, Kind::Directory);
        assert_eq!(root.look("a/new/../x").kind, Kind::Absent);
        assert_eq!(inside(&root.look("a/new/../x")), "a/x");
        assert_eq!(root.look("a/file/below").kind, Kind::Absent);
        assert_eq!(inside(&root.look(&format!("{}/a/file", root.path()))), "a/file");
    }

    #[test]
    fn nothing_leads_out() {
        let (dir, root) = tree();
        let ws = Path::new(root.path()).to_owned();
        symlink(dir.path(), ws.join("up")).unwrap();
        symlink("../secret", ws.join("rel")).unwrap();
        symlink("../../new", ws.join("a/dangling")).unwrap();
        symlink("/proc/self/root", ws.join("magic")).unwrap();
        let evil = format!("{}-evil/x", root.path());
        for path in
            ["..", "../x", "a/../../x", "up/secret", "rel", "a/dangling", "magic/etc", "/etc", &evil]
        {
            assert!(matches!(root.look(path).spot, Spot::Outside(_)), "{path}");
        }
    }

    #[test]
    fn links_inside_are_followed() {
        let (_dir, root) = tree();
        let ws = Path::new(root.path()).to_owned();
        symlink("file", ws.join("a/link")).unwrap();
        symlink(ws.join("a"), ws.join("abs")).unwrap();
        symlink("loop", ws.join("loop")).unwrap();
        symlink("b/none", ws.join("a/dangling")).unwrap();
        assert_eq!(inside(&root.look("a/link")), "a/file");
        assert!(root.look("a/link").is_link && root.look("a/dangling").is_link);
        assert!(root.look("a/link/.").is_link && root.look("loop").is_link);
        assert!(!root.look("abs/file").is_link, "a link above is none itself");
        assert!(!root.look("a/file").is_link);
        assert_eq!(inside(&root.look("abs/b/../link")), "a/file");
        assert_eq!(root.look("loop").kind, Kind::Unknown);
        let dangling = root.look("a/dangling");
        assert_eq!((inside(&dangling), dangling.kind), ("a/b/none", Kind::Absent));
    }

    #[test]
    fn special_files_are_named_without_being_opened() {
        let (_dir, root) = tree();
        let fifo = Path::new(root.path()).join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let look = root.look("fifo");
        assert_eq!(look.kind, Kind::Special);
        assert!(root.open_file(&look).is_err());
    }

    #[test]
    fn a_file_that_was_swapped_is_not_opened() {
        let (dir, root) = tree();
        let file = Path::new(root.path()).join("a/file");
        let seen = root.look("a/file");
        assert!(root.open_file(&seen).is_ok());
        fs::rename(&file, dir.path().join("kept")).unwrap();
        symlink(dir.path().join("secret"), &file).unwrap();
        assert!(root.open_file(&seen).is_err(), "a link was swapped in");
        fs::remove_file(&file).unwrap();
        fs::write(&file, "other").unwrap();
        assert!(matches!(root.open_file(&seen), Err(super::super::WorkspaceError::Changed(_))));
    }
}
