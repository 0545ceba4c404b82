//! What a run keeps: the lease, the store and its journal opened, and nothing left over from an
//! earlier run that the caller hasn't been told of.

use std::{sync::Arc, time::Duration};

use super::{Common, Fail, recover, state, store_gc};
use crate::{
    agent::{Keeper, NotBegun, Opened, WriteSet},
    checkpoint::{Capacity, RetentionConfig},
    contract::{CauseCode, ExitClass, Failure, turn::StopReason},
    host::Host,
    id::{SessionId, TurnId},
    journal::{self, Log},
    mutation::{Limits, Protection},
    policy::set::{HardLinks, PolicySet},
    session::{self, Start},
    store::{KeySource, Lease, StatePlace, Store},
    workspace::Root,
};

/// What the caller says about keeping.
#[derive(Debug, Clone)]
pub struct KeepOptions {
    /// Which session the turn belongs to.
    pub session: SessionChoice,
    /// Whether the store is this run's own, and removed after a clean end.
    pub ephemeral: bool,
    /// How long to wait for another run to end.
    pub wait_lock: Duration,
    /// What to do where an earlier run left operations interrupted.
    pub on_interrupted: OnInterrupted,
    /// The files that the turn may change, where the caller says.
    pub max_files_changed: Option<u32>,
    /// The bytes that the turn may write, where the caller says.
    pub max_bytes_written: Option<u64>,
}

/// Which session a turn belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionChoice {
    /// A new one.
    New,
    /// One that is there: its id, a unique prefix of it, its label, or `last`.
    Resume(String),
    /// A new one that begins with a copy of another's history.
    Fork(String),
}

/// What to do where an earlier run left operations interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnInterrupted {
    /// To settle what journal and disk prove, and to begin if nothing else stands.
    Reconcile,
    /// Not to begin.
    RequireClean,
    /// To begin all the same, and to say so.
    Ignore,
}

/// A run that keeps, or why it can't begin.
pub(super) struct Kept {
    pub(super) keeper: Keeper,
    /// The place to remove after a clean end.
    pub(super) ephemeral: Option<StatePlace>,
    /// What is to be told of operations that earlier runs left interrupted.
    pub(super) notes: Vec<String>,
}

/// What the turn may write: the policy's numbers, which the caller may only lower.
pub(super) fn write_set(policy: &PolicySet, options: &KeepOptions) -> WriteSet {
    let settings = policy.settings();
    let least =
        |one: Option<u64>, other: Option<u64>| one.unwrap_or(u64::MAX).min(other.unwrap_or(u64::MAX));
    let files = least(settings.files_changed.map(u64::from), options.max_files_changed.map(u64::from));
    WriteSet {
        files: u32::try_from(files).unwrap_or(u32::MAX),
        bytes: least(settings.bytes_written, options.max_bytes_written),
    }
}

pub(super) fn open(
    host: &Host,
    common: &Common,
    root: &Arc<Root>,
    policy: &Arc<PolicySet>,
    options: &KeepOptions,
    turn: (TurnId, Option<&str>),
) -> Result<Result<Kept, NotBegun>, Fail> {
    match try_open(host, common, root, policy, options, turn) {
        Ok(kept) => Ok(kept),
        Err(fail) => not_begun(fail).map(Err),
    }
}

fn try_open(
    host: &Host,
    common: &Common,
    root: &Arc<Root>,
    policy: &Arc<PolicySet>,
    options: &KeepOptions,
    (turn_id, label): (TurnId, Option<&str>),
) -> Result<Result<Kept, NotBegun>, Fail> {
    let place = match options.ephemeral {
        true => ephemeral_place(host),
        false => state::place(host, root.path(), &common.state)?,
    };
    Store::prepare(&place, root.path())?;
    let lease = Lease::take(host, root.path(), &place, options.wait_lock)?;
    let key = state::key_source(host, &place, &common.state);
    if let KeySource::File(file) = &key
        && std::fs::canonicalize(file).is_ok_and(|file| file.starts_with(root.path()))
    {
        let message = format!(
            "the key file {} lies inside the workspace, where the model may read",
            file.display()
        );
        let failure = Failure::new(CauseCode::StateDirRefused, message);
        return Err(Fail::usage(failure.action("move it outside, and name it there")));
    }
    let store = Store::open(host, &place, root.path(), &key, lease)?;
    if store.facts().volatile {
        tracing::warn!("{} may not outlive this machine's next restart", place.dir.display());
    }
    if store.facts().workspace != root.path() {
        return Err(another_workspace(&store.facts().workspace, root.path()));
    }
    let store = if options.ephemeral { store.removed_at_end()? } else { store };
    let mut store = store;
    let mut log = Log::open(&store)?;
    let notes = match journal::interrupted(&store)? {
        0 => Vec::new(),
        _ => match interrupted((host, common), &mut store, &mut log, root, options.on_interrupted)? {
            Ok(notes) => notes,
            Err(not_begun) => return Ok(Err(not_begun)),
        },
    };
    let settings = policy.settings();
    let capacity = Capacity::MOST.lowered(settings.checkpoint_cap, settings.store_cap);
    store_gc::make_room(host, &store, &mut log, capacity);
    let fresh = SessionId::from_uuid(host.uuid());
    let there = |text: &str| session::find(&store, Some(store.keys()), text);
    let start = match &options.session {
        SessionChoice::New => Start::New(fresh),
        SessionChoice::Resume(text) => Start::Continue(there(text)?),
        SessionChoice::Fork(text) => Start::Fork { from: there(text)?, into: fresh },
    };
    let retention = settings.retention_rounds.and_then(|rounds| RetentionConfig::new(rounds).ok());
    let limits = Limits {
        capacity,
        retention: retention.unwrap_or(RetentionConfig::DEFAULT),
        break_hard_links: settings.hard_links == HardLinks::Break,
        protection: Protection::Required,
    };
    let opened =
        Opened { store, log, limits, write_set: write_set(policy, options), policy: Arc::clone(policy) };
    let keeper = Keeper::begin(host, Arc::clone(root), opened, start, turn_id, label)?;
    let ephemeral = options.ephemeral.then_some(place);
    Ok(Ok(Kept { keeper, ephemeral, notes }))
}

/// A place of this run alone, below the system's directory for temporary files.
fn ephemeral_place(host: &Host) -> StatePlace {
    let own = host.temp_dir().join(format!("thcode-{}", host.uuid().simple()));
    StatePlace { dir: own.join("state"), key: own.join("state.key") }
}

pub(super) fn another_workspace(made_for: &str, root: &str) -> Fail {
    let message = format!("the store was made for the workspace {made_for}, and this one is {root}");
    let failure = Failure::new(CauseCode::StateDirRefused, message);
    Fail::usage(
        failure.action("name another state directory with --state-dir, or the workspace with -C"),
    )
}

/// Operations that earlier runs left: settled, left or in the way, as the caller wants it. What is to
/// be told of them, or why the run doesn't begin.
fn interrupted(
    (host, common): (&Host, &Common),
    store: &mut Store,
    log: &mut Log,
    root: &Root,
    wanted: OnInterrupted,
) -> Result<Result<Vec<String>, NotBegun>, Fail> {
    let (told, failure) = match wanted {
        OnInterrupted::Reconcile => {
            let settled = recover::settle_standing(host, store, log, root)?;
            (settled.operations, settled.failure)
        }
        OnInterrupted::RequireClean => (recover::tell_standing(host, store, root)?, None),
        OnInterrupted::Ignore => {
            let told = recover::tell_standing(host, store, root)?;
            let left = match told.len() {
                0 => return Ok(Ok(Vec::new())),
                1 => "1 operation of an earlier run is".to_owned(),
                several => format!("{several} operations of earlier runs are"),
            };
            return Ok(Ok(vec![format!("{left} left interrupted (--on-interrupted ignore)")]));
        }
    };
    let standing: Vec<_> = told.iter().filter(|told| !told.settled).collect();
    let Some(first) = standing.first() else {
        return Ok(Ok(told.iter().map(recover::settled_note).collect()));
    };
    let words = if standing.len() == 1 { "operation was" } else { "operations were" };
    let message = format!(
        "{} {words} interrupted in an earlier run, and what became of it isn't settled",
        standing.len()
    );
    let failure = failure.unwrap_or_else(|| Failure::new(CauseCode::RecoveryRequired, message));
    let next = match first.resolvable {
        true => "thcode recover reconcile --all".to_owned(),
        // It says whether to look or to wait, and for what.
        false => first.next_step.clone(),
    };
    let next = next.replace("thcode recover", &format!("thcode {}recover", recover::flags(common)));
    Ok(Err(NotBegun {
        stop_reason: StopReason::RecoveryRequired,
        failure: failure.action(next).action("--on-interrupted ignore begins all the same"),
        unproven: standing.iter().any(|told| !told.resolvable),
    }))
}

/// What kept a turn from beginning is told in its document; what the caller got wrong ends the verb.
fn not_begun(fail: Fail) -> Result<NotBegun, Fail> {
    let stop_reason = match (fail.class, fail.failure.cause_code) {
        (_, CauseCode::WorkspaceInUse) => StopReason::WorkspaceInUse,
        (ExitClass::Blocked, _) => StopReason::StoreUnavailable,
        _ => return Err(fail),
    };
    Ok(NotBegun { stop_reason, failure: fail.failure, unproven: false })
}
