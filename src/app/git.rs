//! Reads one file of one git revision, by its object, without running anything that the repository
//! could have brought along.
//!
//! No hook, no filter, no pager, no lazy fetch, no replacement object and no user's configuration
//! takes part; `safe.directory` doesn't matter, since nothing is executed on the repository's word.

use std::{
    io::Read as _,
    path::Path,
    process::{Command, Stdio},
};

use crate::host::Host;

/// Why a file of a revision can't be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum GitError {
    /// There is no git, or it didn't start.
    #[error("git can't be run: {0}")]
    NoGit(std::io::Error),
    /// The directory isn't in a repository.
    #[error("{0} is not inside a git repository")]
    NoRepository(String),
    /// The revision isn't in this clone.
    #[error("the revision {rev} is not in this clone")]
    NoRevision {
        /// As it was named.
        rev: String,
        /// The command that would bring it.
        fetch: String,
    },
    /// The name means several things.
    #[error("the revision {rev} means several things here: {meanings}")]
    Ambiguous {
        /// As it was named.
        rev: String,
        /// All that it could mean.
        meanings: String,
    },
    /// The revision has no such file.
    #[error("the revision {rev} has no file {path}")]
    NoFile {
        /// As it was named.
        rev: String,
        /// The path in it.
        path: String,
    },
    /// The file is larger than what is read.
    #[error("{path} in {rev} is over {most} bytes")]
    TooLarge {
        /// As it was named.
        rev: String,
        /// The path in it.
        path: String,
        /// What is read at most.
        most: u64,
    },
}

/// A file as a revision has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileOfRevision {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Whether the revision is the very commit that is checked out.
    pub is_head: bool,
}

/// Reads `path` as the revision `rev` has it.
pub(super) fn read(
    host: &Host,
    dir: &Path,
    rev: &str,
    path: &str,
    most: u64,
) -> Result<FileOfRevision, GitError> {
    let git = Git { host, dir };
    git.line(&["rev-parse", "--git-dir"])?
        .ok_or_else(|| GitError::NoRepository(dir.display().to_string()))?;
    let no_revision = || GitError::NoRevision { rev: rev.to_owned(), fetch: fetch_for(rev) };
    if rev.is_empty() || rev.starts_with('-') {
        return Err(no_revision());
    }
    let commit = git.commit(&git.full_name(rev)?)?.ok_or_else(no_revision)?;
    let head = git.commit("HEAD")?;
    let no_file = || GitError::NoFile { rev: rev.to_owned(), path: path.to_owned() };
    let size = git
        .line(&["cat-file", "-s", &format!("{commit}:{path}")])?
        .and_then(|size| size.parse::<u64>().ok())
        .ok_or_else(no_file)?;
    if size > most {
        return Err(GitError::TooLarge { rev: rev.to_owned(), path: path.to_owned(), most });
    }
    let bytes = git.output(&["cat-file", "blob", &format!("{commit}:{path}")])?.ok_or_else(no_file)?;
    Ok(FileOfRevision { bytes, is_head: head.is_some_and(|head| head == commit) })
}

/// The fetch that would bring a revision into a shallow or single-branch clone.
fn fetch_for(rev: &str) -> String {
    if !rev.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-~^@{}".contains(&byte))
        || rev.starts_with('-')
    {
        return "git fetch origin, and name a revision that it brought".to_owned();
    }
    let is_hash = rev.len() >= 7 && rev.bytes().all(|byte| byte.is_ascii_hexdigit());
    match rev.split_once('/') {
        _ if is_hash => format!("git fetch --depth=1 origin {rev}"),
        Some(("origin", branch)) => {
            format!("git fetch --depth=1 origin {branch}:refs/remotes/origin/{branch}")
        }
        _ if rev.contains(['~', '^', '@']) => "git fetch --unshallow origin".to_owned(),
        _ => {
            format!("git fetch --depth=1 origin {rev}:refs/remotes/origin/{rev}, then name origin/{rev}")
        }
    }
}

struct Git<'a> {
    host: &'a Host,
    dir: &'a Path,
}

impl Git<'_> {
    /// The one thing that a revision's name can mean. Git would guess, and prefer a tag or a branch
    /// called `origin/main` to the remote's branch; who may push a tag is not who may review.
    fn full_name(&self, rev: &str) -> Result<String, GitError> {
        let end = rev.find(['^', '~', '@', ':']).unwrap_or(rev.len());
        let (name, rest) = rev.split_at_checked(end).unwrap_or((rev, ""));
        let is_hash = name.len() >= 7 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let fixed =
            matches!(name, "" | "HEAD" | "FETCH_HEAD" | "ORIG_HEAD") || name.starts_with("refs/");
        let places: &[&str] = match () {
            () if fixed => return Ok(rev.to_owned()),
            () if name.contains('/') => &["refs/remotes/"],
            () => &["refs/tags/", "refs/heads/", "refs/remotes/"],
        };
        let mut meanings = Vec::new();
        for place in places {
            let full = format!("{place}{name}");
            if self.commit(&full)?.is_some() {
                meanings.push(full);
            }
        }
        if is_hash && self.line(&["cat-file", "-t", name])?.is_some() {
            meanings.push(name.to_owned());
        }
        match meanings.as_slice() {
            [] => Err(GitError::NoRevision { rev: rev.to_owned(), fetch: fetch_for(rev) }),
            [one] => Ok(format!("{one}{rest}")),
            _ => Err(GitError::Ambiguous { rev: rev.to_owned(), meanings: meanings.join(", ") }),
        }
    }

    /// The commit that a full name leads to.
    fn commit(&self, name: &str) -> Result<Option<String>, GitError> {
        self.line(&[
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            &format!("{name}^{{commit}}"),
        ])
    }

    /// The first line of what git prints; `None` if git says no.
    fn line(&self, arguments: &[&str]) -> Result<Option<String>, GitError> {
        let output = self.output(arguments)?;
        Ok(output
            .map(|bytes| String::from_utf8_lossy(&bytes).lines().next().unwrap_or_default().to_owned()))
    }

    /// What git prints; `None` if git says no.
    fn output(&self, arguments: &[&str]) -> Result<Option<Vec<u8>>, GitError> {
        let mut command = Command::new("git");
        command
            .env_clear()
            .envs(self.host.var("PATH").map(|path| ("PATH", path)))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("LC_ALL", "C")
            .args([
                "--no-pager",
                "-c",
                "safe.directory=*",
                "-c",
                "safe.bareRepository=explicit",
                "-c",
                "core.fsmonitor=false",
            ])
            .args(arguments)
            .current_dir(self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().map_err(GitError::NoGit)?;
        let mut bytes = Vec::new();
        if let Some(mut stdout) = child.stdout.take() {
            stdout.read_to_end(&mut bytes).map_err(GitError::NoGit)?;
        }
        let status = child.wait().map_err(GitError::NoGit)?;
        Ok(status.success().then_some(bytes))
    }
}
