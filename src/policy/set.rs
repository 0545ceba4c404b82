//! A policy, loaded: its rules, compiled so that deciding doesn't depend on their number, and its
//! settings. It never changes but to grow stricter.

use crate::{
    floor::{Location, spellings},
    id::Digest,
};

use super::{
    call::{Access, ActionClass, PathFacts},
    environment::Passed,
    glob::{GlobIndex, Patterns, Uncompilable},
    matrix::{self, Mode, Profile},
    rule::{Effect, Rule, Tier},
    verdict::{Decision, RuleRef},
};

/// Where a policy holds: what absolute paths and `${HOME}` mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The absolute path of the workspace root.
    pub root: String,
    /// The home directory, absolute, where there is one.
    pub home: Option<String>,
}

/// A file of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyFile {
    /// As it was named.
    pub name: String,
    /// Its authority.
    pub tier: Tier,
    /// The digest of its bytes.
    pub digest: Digest,
}

/// What a call comes to that nothing decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DefaultDecision {
    /// It may not run.
    Deny,
    /// A person would have to be asked.
    Ask,
}

/// What happens where a person would have to be asked: nobody is there. The stricter first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AskMeans {
    /// The turn stops.
    Stop,
    /// The call is denied and the turn goes on.
    Deny,
}

/// What a denied call does to the outcome of the run. The stricter first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OnDenial {
    /// The turn stops at once.
    Stop,
    /// The run ends as an accepted limitation.
    Fail,
    /// As `fail`, unless the caller stated what to expect and all of it holds.
    ByExpectation,
    /// Nothing.
    Ignore,
}

/// What happens to a file that has other names. The stricter first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HardLinks {
    /// It isn't changed.
    Refuse,
    /// The changed name gets a file of its own; the other names keep the old one.
    Break,
}

/// What has to confine a command. The stricter first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Sandbox {
    /// Walls that are proven to hold; without them no command runs.
    Required,
    /// Nothing.
    Off,
}

/// The settings that hold: of each the strictest that was stated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Whether anything may be changed.
    pub mode: Mode,
    /// How far a call without a grant is trusted.
    pub profile: Profile,
    /// Whether the profile full-access covers transfers.
    pub sensitive_override: bool,
    /// What a call comes to that nothing decides.
    pub default: DefaultDecision,
    /// What `ask` comes to.
    pub ask_means: AskMeans,
    /// What a denied call does to the outcome.
    pub on_denial: OnDenial,
    /// The most bytes that the arguments of a call may have.
    pub arg_bytes: u64,
    /// The deepest nesting that they may have.
    pub json_depth: u64,
    /// The most model calls of a turn. A file of the checked-out tree can't raise the default.
    pub iterations: u32,
    /// The most tool calls of a turn, where the policy says.
    pub tool_calls: Option<u32>,
    /// The most tokens of a turn, where the policy says.
    pub total_tokens: Option<u64>,
    /// The time that a turn may take, where the policy says. Milliseconds.
    pub wall_time_ms: Option<u64>,
    /// The most files that a turn may change, where the policy says.
    pub files_changed: Option<u32>,
    /// The most bytes that a turn may write, where the policy says.
    pub bytes_written: Option<u64>,
    /// The prompt rounds that a checkpoint is kept, where the policy says.
    pub retention_rounds: Option<u32>,
    /// What happens to a file that has other names.
    pub hard_links: HardLinks,
    /// A lower cap of one checkpoint. Bytes.
    pub checkpoint_cap: Option<u64>,
    /// A lower cap of the store. Bytes.
    pub store_cap: Option<u64>,
    /// What has to confine a command.
    pub sandbox: Sandbox,
    /// How long a command may run. Milliseconds.
    pub command_timeout_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::Build,
            profile: Profile::Manual,
            sensitive_override: false,
            default: DefaultDecision::Deny,
            ask_means: AskMeans::Deny,
            on_denial: OnDenial::ByExpectation,
            arg_bytes: 20 * 1024 * 1024,
            json_depth: 32,
            iterations: 8,
            tool_calls: None,
            total_tokens: None,
            wall_time_ms: None,
            files_changed: None,
            bytes_written: None,
            retention_rounds: None,
            hard_links: HardLinks::Refuse,
            checkpoint_cap: None,
            store_cap: None,
            sandbox: Sandbox::Required,
            command_timeout_ms: 300_000,
        }
    }
}

/// What the policy lets be changed without images: globs, each with the size that it names.
#[derive(Debug, Clone, Default)]
pub(super) struct Waived {
    pub(super) index: GlobIndex,
    pub(super) max_bytes: Vec<u64>,
}

/// A policy, loaded.
#[derive(Debug, Clone)]
pub struct PolicySet {
    pub(super) place: Place,
    pub(super) settings: Settings,
    pub(super) files: Vec<PolicyFile>,
    pub(super) digest: Digest,
    pub(super) rules: Vec<Rule>,
    pub(super) repo_grants: Vec<RuleRef>,
    pub(super) examples: u32,
    pub(super) index: RuleIndex,
    /// What the files protect, compiled.
    pub(super) protected: GlobIndex,
    /// What may be changed without images, where they don't fit.
    pub(super) waived: Waived,
    /// What commands are given of the environment.
    pub(super) passed: Passed,
    /// Paths of this run, folded.
    guarded: Vec<String>,
}

/// The globs of the rules by how they are compared and what they are held against.
#[derive(Debug, Clone, Default)]
pub(super) struct RuleIndex {
    /// Grants, on exact paths of the workspace.
    grants: ByAccess,
    /// Denies and asks, on every spelling inside the workspace.
    limits: ByAccess,
    /// Denies on every spelling of the absolute path.
    absolute: ByAccess,
    /// Grants without a condition on paths.
    any_grants: Vec<u32>,
    /// Denies and asks without a condition on paths.
    any_limits: Vec<u32>,
}

#[derive(Debug, Clone, Default)]
struct ByAccess {
    read: GlobIndex,
    write: GlobIndex,
    delete: GlobIndex,
}

#[derive(Debug, Default)]
struct PatternsByAccess {
    read: Patterns,
    write: Patterns,
    delete: Patterns,
}

/// Rules whose conditions on paths a subject meets, by index, sorted; their tools and their
/// conditions on the file are still to be asked.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    /// Denies and asks.
    pub(super) limits: Vec<u32>,
    /// Grants that cover the path as it is written.
    pub(super) lexical: Vec<u32>,
    /// Grants that cover the path that it leads to.
    pub(super) resolved: Vec<u32>,
}

impl PolicySet {
    /// Puts a policy together.
    pub(super) fn new(
        place: Place,
        settings: Settings,
        rules: Vec<Rule>,
        protected: GlobIndex,
    ) -> Result<Self, Uncompilable> {
        Ok(Self {
            place,
            settings,
            files: Vec::new(),
            digest: Digest::of(b""),
            index: RuleIndex::build(&rules)?,
            rules,
            repo_grants: Vec::new(),
            examples: 0,
            protected,
            waived: Waived::default(),
            passed: Passed::default(),
            guarded: Vec::new(),
        })
    }

    /// The settings that hold.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The files, as they were first named, each once.
    pub fn files(&self) -> &[PolicyFile] {
        &self.files
    }

    /// The digest of the files and their names: what a caller can pin.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The rules in the order of file and line.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// How many inline examples were run.
    pub fn examples(&self) -> u32 {
        self.examples
    }

    /// The grants of files from the checked-out tree that no file of more authority gives. They
    /// have no effect; a run is to be refused over them, so that it is never a silent nothing.
    pub fn repo_grants(&self) -> &[RuleRef] {
        &self.repo_grants
    }

    /// The bytes up to which a file may be changed without its images being kept, where they don't
    /// fit; `None` where the policy doesn't name it.
    pub fn unprotected_up_to(&self, path: &str) -> Option<u64> {
        let mut owners = Vec::new();
        self.waived.index.matching(path, &mut owners);
        let most = owners
            .into_iter()
            .filter_map(|owner| self.waived.max_bytes.get(usize::try_from(owner).ok()?));
        most.max().copied()
    }

    /// What commands are given of the environment.
    pub fn passed(&self) -> &Passed {
        &self.passed
    }

    /// Whether a tool is denied whatever it is asked, so that it needn't be offered.
    pub fn denies_every_call(&self, tool: &str) -> bool {
        let class = ActionClass::of_tool(tool);
        if class == Some(ActionClass::RunCommand) && !self.may_run_commands() {
            return true;
        }
        self.rules.iter().any(|rule| {
            rule.effect == Effect::Deny
                && rule.tools.names(tool)
                && rule.when.any_path()
                && rule.when.file.is_none()
        })
    }

    /// Whether there is a command that could be allowed: without a grant none is.
    fn may_run_commands(&self) -> bool {
        let settings = &self.settings;
        let class = ActionClass::RunCommand;
        let matrix = matrix::judge(settings.mode, settings.profile, class, settings.sensitive_override);
        let grants = |rule: &Rule| {
            rule.effect == Effect::Allow
                && rule.tools.names("run_command")
                && (rule.when.command.is_some() || rule.when.any_command())
        };
        settings.sandbox == Sandbox::Off
            && match matrix {
                Decision::Allow => true,
                Decision::Ask => self.rules.iter().any(grants),
                Decision::Deny => false,
            }
    }

    /// Lowers the mode; never raises it.
    pub fn lower_mode(&mut self, mode: Mode) {
        self.settings.mode = self.settings.mode.min(mode);
    }

    /// Keeps tools from writing or removing these paths (and what is below them): workspace-relative
    /// ones that the run itself depends on.
    pub fn guard<I: IntoIterator<Item = S>, S: AsRef<str>>(&mut self, paths: I) {
        self.guarded.extend(paths.into_iter().flat_map(|path| spellings(path.as_ref())));
    }

    /// Whether a path is guarded or lies below one that is.
    pub(super) fn guards(&self, path: &PathFacts) -> bool {
        !self.guarded.is_empty()
            && folded_inside(path).iter().any(|spelling| {
                self.guarded.iter().any(|guarded| {
                    spelling.strip_prefix(guarded.as_str()).is_some_and(|rest| {
                        guarded.is_empty() || rest.is_empty() || rest.starts_with('/')
                    })
                })
            })
    }

    /// Whether a file of the policy protects a path.
    pub fn protects(&self, path: &PathFacts) -> bool {
        let mut owners = Vec::new();
        folded_inside(path).iter().for_each(|spelling| self.protected.matching(spelling, &mut owners));
        !owners.is_empty()
    }

    /// A rule by its index.
    pub(super) fn rule(&self, index: u32) -> Option<&Rule> {
        self.rules.get(usize::try_from(index).ok()?)
    }
}

/// Every folded spelling of a path inside the workspace, as written and as it resolves.
fn folded_inside(path: &PathFacts) -> Vec<String> {
    let mut found = Vec::new();
    for place in places(path) {
        match place {
            Location::Inside(inside) => found.extend(spellings(inside)),
            Location::Outside(_) => {}
        }
    }
    found
}

/// Both places of a path, once where they are the same.
fn places(path: &PathFacts) -> impl Iterator<Item = &Location> {
    let resolved = (path.resolved != path.lexical).then_some(&path.resolved);
    std::iter::once(&path.lexical).chain(resolved)
}

impl RuleIndex {
    fn build(rules: &[Rule]) -> Result<Self, Uncompilable> {
        let (mut grants, mut limits, mut absolute) =
            (PatternsByAccess::default(), PatternsByAccess::default(), PatternsByAccess::default());
        let (mut any_grants, mut any_limits) = (Vec::new(), Vec::new());
        for (owner, rule) in (0..).zip(rules) {
            if rule.when.any_path() {
                match rule.effect {
                    Effect::Allow => any_grants.push(owner),
                    Effect::Deny | Effect::Ask => any_limits.push(owner),
                }
            }
            for access in [Access::Read, Access::Write, Access::Delete] {
                // Under every access that a subject may have when it is held against these globs.
                for held in rule.accesses(access) {
                    for named in rule.when.globs(*held).unwrap_or_default() {
                        match rule.effect {
                            Effect::Allow => grants.of(access).add_exact(&named.glob, owner),
                            Effect::Deny | Effect::Ask if named.glob.absolute() => {
                                absolute.of(access).add_folded(&named.glob, owner);
                            }
                            Effect::Deny | Effect::Ask => {
                                limits.of(access).add_folded(&named.glob, owner)
                            }
                        }
                    }
                }
            }
        }
        Ok(Self {
            grants: grants.compile()?,
            limits: limits.compile()?,
            absolute: absolute.compile()?,
            any_grants,
            any_limits,
        })
    }

    /// The rules whose conditions on paths this subject meets.
    pub(super) fn candidates(&self, root: &str, access: Access, path: &PathFacts) -> Candidates {
        let mut found = Candidates::default();
        let absolute = self.absolute.of(access);
        for place in places(path) {
            if let Location::Inside(inside) = place {
                for spelling in spellings(inside) {
                    self.limits.of(access).matching(&spelling, &mut found.limits);
                }
            }
            if !absolute.is_empty() {
                for spelling in spellings(&place.absolute(root)) {
                    absolute.matching(&spelling, &mut found.limits);
                }
            }
        }
        let grants = self.grants.of(access);
        let granted = |place: &Location| match place {
            Location::Outside(_) => Vec::new(),
            Location::Inside(inside) => {
                let mut owners = self.any_grants.clone();
                grants.matching(inside, &mut owners);
                owners.sort_unstable();
                owners.dedup();
                owners
            }
        };
        found.lexical = granted(&path.lexical);
        found.resolved =
            if path.resolved == path.lexical { found.lexical.clone() } else { granted(&path.resolved) };
        found.limits.extend(&self.any_limits);
        found.limits.sort_unstable();
        found.limits.dedup();
        found
    }
}

impl ByAccess {
    fn of(&self, access: Access) -> &GlobIndex {
        match access {
            Access::Read => &self.read,
            Access::Write => &self.write,
            Access::Delete => &self.delete,
        }
    }
}

impl PatternsByAccess {
    fn of(&mut self, access: Access) -> &mut Patterns {
        match access {
            Access::Read => &mut self.read,
            Access::Write => &mut self.write,
            Access::Delete => &mut self.delete,
        }
    }

    fn compile(self) -> Result<ByAccess, Uncompilable> {
        Ok(ByAccess {
            read: self.read.compile()?,
            write: self.write.compile()?,
            delete: self.delete.compile()?,
        })
    }
}
