//! Reads the policy files that the caller named, and gives each the tier that follows from where it
//! was read, never from what it says.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{Fail, git, input};
use crate::{
    contract::{
        CauseCode, Failure,
        policy_report::PolicyDiagnostic,
        turn::{PermissionProfile, PolicyFileInForce, PolicyInForce, PolicyTier, WorkMode},
    },
    host::Host,
    id::Digest,
    policy::{
        diagnostic::Diagnostic,
        load::{self, Source},
        matrix::{Mode, Profile},
        preset,
        rule::Tier,
        set::{Place, PolicySet},
    },
    workspace::Root,
};

/// A policy file has at most this many bytes.
const MOST_BYTES: u64 = 10 << 20;
/// Links on the way to a policy file that are followed.
const MOST_LINKS: u32 = 40;
/// Faults that a failure's message tells.
const MOST_TOLD: usize = 20;

/// Which policy the caller wants.
#[derive(Debug, Clone, Default)]
pub struct PolicyOptions {
    /// Files, `preset:NAME`, `git:REV:PATH`.
    pub files: Vec<String>,
    /// The digest that they must have together.
    pub digest: Option<String>,
    /// Commands that the caller grants beside the files, each a line as `when.command` takes it.
    pub allow_commands: Vec<String>,
    /// Globs that the caller protects beside the files.
    pub protect: Vec<String>,
    /// The work mode, which may only lower.
    pub mode: Option<WorkMode>,
}

/// Why there is no policy.
pub enum NoPolicy {
    /// The files have faults.
    Faults(Vec<Diagnostic>),
    /// Something else is wrong.
    Fail(Fail),
}

impl From<Fail> for NoPolicy {
    fn from(fail: Fail) -> Self {
        Self::Fail(fail)
    }
}

impl NoPolicy {
    /// As the end of a verb that isn't about policies.
    pub fn into_fail(self) -> Fail {
        match self {
            Self::Fail(fail) => fail,
            Self::Faults(faults) => {
                let mut message: Vec<String> = faults
                    .iter()
                    .take(MOST_TOLD)
                    .map(|fault| {
                        let place = match (fault.line, fault.column) {
                            (Some(line), Some(column)) => format!("{}:{line}:{column}", fault.file),
                            _ => fault.file.clone(),
                        };
                        format!("{place}: {}", fault.message)
                    })
                    .collect();
                let more = faults.len().saturating_sub(MOST_TOLD);
                if more > 0 {
                    message.push(format!("and {more} more"));
                }
                let failure = Failure::new(CauseCode::PolicyInvalid, message.join("\n"));
                Fail::usage(failure.action("`thcode policy check FILE` shows each fault in its line"))
            }
        }
    }
}

/// Loads the policy that holds for a run: every refusal that a run would meet is met here.
pub fn load_for_run(host: &Host, root: &Root, options: &PolicyOptions) -> Result<PolicySet, NoPolicy> {
    let pinned = options.digest.as_deref().map(read_digest).transpose()?;
    let mut set = load_with(host, root, options, pinned.is_some())?;
    if let Some(wanted) = pinned
        && wanted != set.digest()
    {
        return Err(not_pinned(&set, wanted).into());
    }
    refuse_repo_grants(&set)?;
    if let Some(mode) = options.mode {
        lower_mode(&mut set, mode)?;
    }
    Ok(set)
}

/// Says what was pinned and what is there, and knows the usual slip: the digest of one file alone.
fn not_pinned(set: &PolicySet, wanted: Digest) -> Fail {
    let found = set.digest();
    let mut message = format!("the policy bundle has the digest {found}, not the pinned {wanted}");
    let action = match set.files().iter().find(|file| file.digest == wanted) {
        Some(file) => {
            message.push_str(&format!(
                "; what is pinned is the digest of {} alone, and a bundle's is another one",
                file.name
            ));
            format!("pin the bundle, if it is what was reviewed: --policy-digest {found}")
        }
        None => format!("review what changed, then pin the new digest: --policy-digest {found}"),
    };
    Fail::usage(Failure::new(CauseCode::PolicyDigestMismatch, message).action(action))
}

/// The name under which documents tell the caller's own grants.
const ALLOWED: &str = "--allow-command";

/// What `--allow-command` says, as a policy file would.
fn allowed(commands: &[String]) -> Source {
    let mut text = "version = 1\n".to_owned();
    for (at, command) in (1..).zip(commands) {
        // A JSON string is a basic string of TOML.
        let command = serde_json::Value::from(command.as_str());
        text.push_str(&format!(
            "[[rule]]\nid = \"cli-{at}\"\neffect = \"allow\"\ntools = [\"run_command\"]\n\
             when.command = [{command}]\n"
        ));
    }
    let bytes = text.into_bytes();
    Source { name: ALLOWED.to_owned(), file_name: String::new(), tier: Tier::Run, bytes }
}

/// What `--protect` says, as a policy file would.
fn protected(globs: &[String]) -> Source {
    let list = serde_json::Value::from(globs.to_vec());
    let bytes = format!("version = 1\nprotected = {list}\n").into_bytes();
    Source { name: "--protect".to_owned(), file_name: String::new(), tier: Tier::Run, bytes }
}

/// Loads files for what they protect alone: whatever they grant has no say, so that they may lie
/// anywhere.
pub fn load_protection(
    host: &Host,
    root: &Root,
    options: &PolicyOptions,
) -> Result<PolicySet, NoPolicy> {
    load_with(host, root, options, true)
}

/// Loads files as one policy. `pinned` files are trusted by their digest, not by their place.
pub fn load_named(
    host: &Host,
    root: &Root,
    files: &[String],
    pinned: bool,
) -> Result<PolicySet, NoPolicy> {
    let options = PolicyOptions { files: files.to_vec(), ..PolicyOptions::default() };
    load_with(host, root, &options, pinned)
}

fn load_with(
    host: &Host,
    root: &Root,
    options: &PolicyOptions,
    pinned: bool,
) -> Result<PolicySet, NoPolicy> {
    let reader = Reader { host, root, pinned };
    let mut sources = Vec::new();
    for file in &options.files {
        sources.push(reader.named(file, Tier::Run)?);
    }
    if sources.is_empty() {
        sources.push(reader.named(preset::DEFAULT, Tier::Builtin)?);
    }
    if !options.allow_commands.is_empty() {
        sources.push(allowed(&options.allow_commands));
    }
    if !options.protect.is_empty() {
        sources.push(protected(&options.protect));
    }
    let home = host.home().and_then(|home| home.into_os_string().into_string().ok());
    let place = Place { root: root.path().to_owned(), home };
    let mut beside = |name: &str, from: &Source| reader.beside(name, from);
    load::load(sources, &place, &mut beside).map_err(NoPolicy::Faults)
}

fn read_digest(text: &str) -> Result<Digest, Fail> {
    if text.trim().is_empty() {
        let message = "--policy-digest is empty: the variable that it comes from is probably unset";
        let failure = Failure::new(CauseCode::BadArgument, message);
        return Err(Fail::usage(failure.action(
            "set the variable to the digest of the bundle, as `thcode policy check FILE` prints it",
        )));
    }
    text.parse().map_err(|error| {
        let failure = Failure::new(CauseCode::BadArgument, format!("--policy-digest: {error}"));
        Fail::usage(failure.action("`thcode policy check FILE` prints the digest of a bundle"))
    })
}

fn refuse_repo_grants(set: &PolicySet) -> Result<(), Fail> {
    let grants = set.repo_grants();
    let Some(first) = grants.first() else { return Ok(()) };
    let ids: Vec<&str> = grants.iter().map(|grant| grant.id.as_str()).collect();
    let message = format!(
        "{} is named from the checked-out tree and may only tighten, but it grants: {} (first at line {})",
        first.file,
        ids.join(", "),
        first.line
    );
    let file = if first.file.contains(':') { "PATH" } else { first.file.as_str() };
    let failure = Failure::new(CauseCode::PolicyGrantsFromWorkspace, message)
        .action(format!("name a reviewed revision: --policy git:origin/main:{file}"))
        .action(format!("pin what was reviewed: --policy-digest {}", set.digest()))
        .action("keep the file outside the workspace");
    Err(Fail::usage(failure))
}

fn lower_mode(set: &mut PolicySet, mode: WorkMode) -> Result<(), Fail> {
    let wanted = match mode {
        WorkMode::Plan => Mode::Plan,
        WorkMode::Build => Mode::Build,
    };
    if wanted == Mode::Build && set.settings().mode == Mode::Plan {
        let message = "--mode build: the policy says plan, and --mode may only lower it";
        let failure = Failure::new(CauseCode::BadArgument, message);
        return Err(Fail::usage(failure.action("name a policy whose mode is build, with --policy")));
    }
    set.lower_mode(wanted);
    Ok(())
}

/// The policy as documents carry it.
pub fn in_force(set: &PolicySet) -> PolicyInForce {
    PolicyInForce {
        digest: set.digest(),
        files: files_in_force(set),
        mode: mode_of(set),
        profile: profile_of(set),
        rules_used: Vec::new(),
    }
}

pub(super) fn files_in_force(set: &PolicySet) -> Vec<PolicyFileInForce> {
    let tier = |tier| match tier {
        Tier::Builtin => PolicyTier::Builtin,
        Tier::Run => PolicyTier::Run,
        Tier::Repo => PolicyTier::Repo,
    };
    set.files()
        .iter()
        .map(|file| PolicyFileInForce {
            name: file.name.clone(),
            tier: tier(file.tier),
            digest: file.digest,
        })
        .collect()
}

pub(super) fn mode_of(set: &PolicySet) -> WorkMode {
    match set.settings().mode {
        Mode::Plan => WorkMode::Plan,
        Mode::Build => WorkMode::Build,
    }
}

pub(super) fn profile_of(set: &PolicySet) -> PermissionProfile {
    match set.settings().profile {
        Profile::Manual => PermissionProfile::Manual,
        Profile::Assisted => PermissionProfile::Assisted,
        Profile::FullAccess => PermissionProfile::FullAccess,
    }
}

/// Faults as documents carry them.
pub(super) fn told(faults: Vec<Diagnostic>) -> Vec<PolicyDiagnostic> {
    faults
        .into_iter()
        .map(|fault| PolicyDiagnostic {
            file: fault.file,
            line: fault.line,
            column: fault.column,
            message: fault.message,
            excerpt: fault.excerpt,
        })
        .collect()
}

/// The workspace-relative path of a file of this run that no tool may write, if it lies inside.
pub fn guarded(root: &Root, file: &Path) -> Option<String> {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let path = std::fs::canonicalize(parent).ok()?.join(file.file_name()?);
    path.strip_prefix(root.path()).ok()?.to_str().map(str::to_owned)
}

struct Reader<'a> {
    host: &'a Host,
    root: &'a Root,
    pinned: bool,
}

impl Reader<'_> {
    /// A policy that the caller named.
    fn named(&self, name: &str, tier: Tier) -> Result<Source, Fail> {
        let unreadable = |message| Fail::usage(Failure::new(CauseCode::PolicyUnreadable, message));
        if preset::is_preset(name) {
            return preset::source(name, tier).ok_or_else(|| {
                let failure = Failure::new(CauseCode::PresetUnknown, format!("there is no {name}"));
                let known: Vec<String> = preset::names().collect();
                Fail::usage(failure.action(format!("name one of {}", known.join(", "))))
            });
        }
        if let Some(rest) = name.strip_prefix("git:") {
            let (rev, path) = rest
                .split_once(':')
                .ok_or_else(|| unreadable(format!("{name} names no file: write git:REV:PATH")))?;
            return self.of_revision(name, rev, path);
        }
        self.file(name, Path::new(name)).map_err(unreadable)
    }

    /// A file beside one that extends it.
    fn beside(&self, name: &str, from: &Source) -> Result<Source, String> {
        if let Some(rest) = from.name.strip_prefix("git:") {
            let (rev, path) = rest.split_once(':').unwrap_or((rest, ""));
            let beside = match path.rsplit_once('/') {
                Some((dir, _)) => format!("{dir}/{name}"),
                None => name.to_owned(),
            };
            return self
                .of_revision(&format!("git:{rev}:{beside}"), rev, &beside)
                .map_err(|fail| fail.failure.message);
        }
        let path = Path::new(&from.name).with_file_name(name);
        if path.is_symlink() {
            // Its content would be quoted with its faults, whatever it leads to.
            return Err(format!(
                "{} is a symbolic link; what is extended must lie beside it",
                path.display()
            ));
        }
        self.file(&path.display().to_string(), &path)
    }

    fn of_revision(&self, name: &str, rev: &str, path: &str) -> Result<Source, Fail> {
        let found = git::read(self.host, Path::new(self.root.path()), rev, path, MOST_BYTES)?;
        // The commit that is checked out is whatever the tree's author wants it to be.
        let tier = if found.is_head && !self.pinned { Tier::Repo } else { Tier::Run };
        let file_name = path.rsplit('/').next().unwrap_or(path).to_owned();
        Ok(Source { name: name.to_owned(), file_name, tier, bytes: found.bytes })
    }

    fn file(&self, name: &str, path: &Path) -> Result<Source, String> {
        // One byte more than is allowed, so that the loader tells the size as a fault of the file.
        let bytes = input::read(path, MOST_BYTES + 1)?;
        let tier = if self.pinned || !self.passes_workspace(path) { Tier::Run } else { Tier::Repo };
        let file_name =
            path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Source { name: name.to_owned(), file_name, tier, bytes })
    }

    /// Whether a file, or any link on the way to it, lies in the checked-out tree: the author of a
    /// link in the tree chooses which file is meant, so its target's place vouches for nothing. A way
    /// through directories of the tree that leads out of it again by `..` was chosen by nobody but the
    /// caller.
    fn passes_workspace(&self, path: &Path) -> bool {
        let tree = checked_out_tree(Path::new(self.root.path()));
        let Ok(absolute) = std::path::absolute(path) else { return true };
        let mut todo: VecDeque<OsString> = absolute.iter().map(OsStr::to_owned).collect();
        let (mut at, mut links) = (PathBuf::from("/"), 0);
        while let Some(name) = todo.pop_front() {
            if name == ".." {
                at.pop();
                continue;
            }
            let here = at.join(&name);
            match std::fs::read_link(&here) {
                Ok(_) if links == MOST_LINKS || here.starts_with(&tree) => return true,
                Ok(target) => {
                    links += 1;
                    if target.is_absolute() {
                        at = PathBuf::from("/");
                    }
                    for part in target.iter().rev() {
                        todo.push_front(part.to_owned());
                    }
                }
                Err(_) => at = here,
            }
        }
        at.starts_with(&tree)
    }
}

/// The directory that was checked out: the nearest one at or above the workspace that git knows, else
/// the workspace itself.
fn checked_out_tree(root: &Path) -> PathBuf {
    root.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok()).unwrap_or(root).to_owned()
}

/// Shares a policy between the gate and what judges inside a call.
pub fn shared(mut set: PolicySet, guard: Vec<String>) -> Arc<PolicySet> {
    set.guard(guard);
    Arc::new(set)
}
