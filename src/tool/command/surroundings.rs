//! What a command runs in: a clean environment, a home of its own, and the directory that was judged.

use std::{
    ffi::OsString,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::Duration,
};

use tempfile::TempDir;

use super::{NotRun, RunCommand, program};
use crate::{
    host::Host,
    id::Digest,
    policy::{
        call::{CommandFacts, Location, PathFacts},
        environment::Passed,
    },
    workspace::{Look, Root},
};

/// Where programs are looked for if the caller's `PATH` names no usable directory.
const SEARCH: &[&str] = &["/usr/local/bin", "/usr/bin", "/bin"];

/// What every command of a run shares.
#[derive(Debug)]
pub struct Surroundings {
    search: Vec<PathBuf>,
    environment: Vec<(OsString, OsString)>,
    temp_dir: PathBuf,
    /// Made for the first command, removed with the run.
    home: Option<TempDir>,
    longest: Duration,
}

/// A command that can be started.
#[derive(Debug)]
pub struct Prepared {
    /// The program, absolute.
    pub executable: PathBuf,
    /// Of the program's bytes.
    pub digest: Digest,
    /// How long it may run.
    pub timeout: Duration,
    pub(super) words: Vec<String>,
    pub(super) directory: OwnedFd,
    pub(super) environment: Vec<(OsString, OsString)>,
}

impl Surroundings {
    /// The surroundings of a run. Of the caller's environment commands get what the policy passes,
    /// but never what `withheld` names: the variables that hold keys.
    pub fn new(
        host: &Host,
        root: &Root,
        passed: &Passed,
        withheld: &[String],
        longest: Duration,
    ) -> Self {
        let inside = |path: &Path| {
            let real = std::fs::canonicalize(path);
            path.starts_with(root.path()) || real.is_ok_and(|real| real.starts_with(root.path()))
        };
        let given = host.var("PATH").unwrap_or_default();
        let mut search: Vec<PathBuf> = Vec::new();
        for dir in std::env::split_paths(&given) {
            if dir.is_absolute() && dir.is_dir() && !inside(&dir) && !search.contains(&dir) {
                search.push(dir);
            }
        }
        if search.is_empty() {
            search = SEARCH.iter().map(PathBuf::from).collect();
        }
        let mut environment: Vec<(OsString, OsString)> = Vec::new();
        let mut set = |name: &str, value: OsString| environment.push((name.into(), value));
        set("PATH", std::env::join_paths(&search).unwrap_or_default());
        set("LANG", "C.UTF-8".into());
        set("TERM", "dumb".into());
        set("CI", host.var("CI").unwrap_or_else(|| "true".into()));
        set("THCODE_SANDBOX", "off".into());
        set("THCODE_SANDBOX_NETWORK", "allow".into());
        let free = |name: &str| !withheld.iter().any(|withheld| withheld == name);
        for name in passed.variables.iter().filter(|name| free(name)) {
            if let Some(value) = host.var(name) {
                set(name, value);
            }
        }
        for (name, below_home) in passed.toolchains.iter().flat_map(|toolchain| toolchain.variables()) {
            let default = || {
                let dir = host.home()?.join(below_home.as_ref()?);
                dir.is_dir().then(|| dir.into_os_string())
            };
            if let Some(value) = host.var(name).or_else(default) {
                set(name, value);
            }
        }
        let temp_dir = host.temp_dir();
        let temp_dir = if inside(&temp_dir) { PathBuf::from("/tmp") } else { temp_dir };
        Self { search, environment, temp_dir, home: None, longest }
    }

    /// Whether the program of a command is there, as it will be looked for. One that a path names in the
    /// workspace may still be made.
    pub fn finds(&self, root: &Root, command: &CommandFacts) -> Result<(), NotRun> {
        let inside = |program: &PathFacts| {
            [&program.lexical, &program.resolved]
                .iter()
                .any(|place| matches!(place, Location::Inside(_)))
        };
        if command.program.as_ref().is_some_and(inside) {
            return Ok(());
        }
        program::locate(command, &self.search, root.path()).map(drop)
    }

    /// The directories in which a program is looked for by its name.
    pub fn search(&self) -> &[PathBuf] {
        &self.search
    }

    /// Makes a command that was allowed ready to start: nothing runs yet.
    pub fn prepare(
        &mut self,
        root: &Root,
        input: &RunCommand,
        command: &CommandFacts,
        directory: &Look,
    ) -> Result<Prepared, NotRun> {
        let program = program::find(command, &self.search, root.path())?;
        let directory = root.open_dir(directory).map_err(|_| {
            let cwd = input.cwd.as_deref().unwrap_or(".");
            NotRun::new("directory-not-found", format!("{cwd} is no directory of the workspace"))
        })?;
        let home = self.home()?;
        let mut environment = self.environment.clone();
        environment.push(("HOME".into(), home.clone()));
        environment.push(("TMPDIR".into(), home));
        let asked = input.timeout_ms.map_or(self.longest, Duration::from_millis);
        Ok(Prepared {
            executable: program.path,
            digest: program.digest,
            timeout: asked.min(self.longest),
            words: command.argv.iter().skip(1).cloned().collect(),
            directory,
            environment,
        })
    }

    fn home(&mut self) -> Result<OsString, NotRun> {
        if let Some(home) = &self.home {
            return Ok(home.path().into());
        }
        let made = tempfile::Builder::new().prefix("thcode-home-").tempdir_in(&self.temp_dir);
        let home = made.map_err(|error| {
            let message = format!("no home for the command could be made: {error}");
            NotRun::new("no-private-home", message)
        })?;
        Ok(self.home.insert(home).path().into())
    }
}
