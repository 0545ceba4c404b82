//! Reading: the store, the disk and what both say of each operation.

use std::{collections::BTreeSet, io::Read as _};

use super::{Facts, Which};
use crate::{
    app::{Common, Ended, Fail, state},
    checkpoint::{self, CheckpointError, Material, StoredImage, open_artifact},
    contract::{
        CauseCode, ExitClass, Failure,
        recovery::{CheckpointMaterial, Evidence, RecoveredOperation, RecoveryAction, Sighting},
        store_report::Authenticity,
    },
    crypto::Keys,
    host::Host,
    id::OperationId,
    journal::{self, Resolution, Status},
    recovery::{self, Case, Debris, Known, Verdict, Why},
    store::{Holder, ReadStore, Rows, View, live_holder},
    workspace::Root,
};

/// Characters of a process's words that are told.
const MOST_WORDS: usize = 120;

/// A store that is read, and the workspace that it was made for.
pub(super) struct Desk<'h> {
    host: &'h Host,
    store: ReadStore,
    keys: Option<Keys>,
    root: Option<Root>,
    holder: Option<Holder>,
    standing: BTreeSet<OperationId>,
    facts: Facts,
}

impl<'h> Desk<'h> {
    pub(super) fn open(host: &'h Host, common: &Common) -> Result<Self, Fail> {
        let place = state::place_to_read(host, common)?;
        // Before the rows: a runner that has just ended has left what it left.
        let holder = live_holder(&place.dir);
        let store = ReadStore::open(&place.dir)?;
        store.hold_still()?;
        state::anchored(&store)?;
        let keys = state::keys_if_any(&store, &state::key_source(host, &place, &common.state));
        let standing = journal::standing(&store, keys.as_ref().map(|keys| &keys.journal))?;
        let (workspace, _) = store.made_for()?;
        let facts = Facts {
            state_dir: place.dir.display().to_string(),
            workspace: workspace.clone(),
            authenticity: match keys {
                Some(_) => Authenticity::Verified,
                None => Authenticity::UnverifiedNoKey,
            },
            events: standing.events,
            flags: flags(common),
        };
        let root = root_of(common, &workspace);
        Ok(Self { host, store, keys, root, holder, standing: standing.operations, facts })
    }

    /// Everything that stands, or those of it that are meant.
    pub(super) fn standing(&self, which: &Which) -> Result<Vec<RecoveredOperation>, Fail> {
        let cases = recovery::cases(&self.store, &self.standing)?;
        let proven = proven(self.root.as_ref(), &cases, which);
        let tell = |case: &Case| self.tell(case, proven);
        cases.iter().map(tell).collect()
    }

    /// One operation.
    pub(super) fn one(&self, text: &str, which: &Which) -> Result<RecoveredOperation, Fail> {
        let id = find(&self.store, text)?;
        let case = recovery::one(&self.store, id)?;
        let cases = recovery::cases(&self.store, &self.standing)?;
        self.tell(&case, proven(self.root.as_ref(), &cases, which))
    }

    fn tell(&self, case: &Case, proven: bool) -> Result<RecoveredOperation, Fail> {
        let stands = self.standing.contains(&case.operation_id);
        let live_owner = self.holder.as_ref().filter(|_| stands).map(|holder| holder.pid);
        let view = self.keys.as_ref().map(|keys| self.store.view(keys)).transpose()?;
        let material = match live_owner {
            Some(_) => CheckpointMaterial::RecoveryLocked,
            None => material(case, &self.store, view)?,
        };
        let looked = match stands && live_owner.is_none() {
            true => Some(look(self.host, (&self.store, view), case, self.root.as_ref(), proven)?),
            false => None,
        };
        let known = Known {
            material,
            evidence: looked.as_ref().and_then(|looked| looked.1),
            verdict: looked.map(|looked| looked.0),
            live_owner,
        };
        let mut told = recovery::classify(case, known);
        name_running(self.host, case, &mut told);
        Ok(told)
    }

    pub(super) fn result(
        &self,
        action: RecoveryAction,
        operations: Vec<RecoveredOperation>,
        class: ExitClass,
        body: Option<String>,
        failure: Option<Failure>,
    ) -> Ended {
        self.facts.result(action, operations, class, body, failure)
    }
}

/// The workspace to look at: the one that the caller names, else the one that the store was made for,
/// if it is there.
pub(in crate::app) fn root_of(common: &Common, workspace: &str) -> Option<Root> {
    let named = common.dir.as_deref();
    Root::open_anywhere(named.unwrap_or(std::path::Path::new(workspace))).ok()
}

/// What a command to copy needs so that it means the same store and workspace.
pub(in crate::app) fn flags(common: &Common) -> String {
    let mut flags = String::new();
    for (name, value) in
        [("-C", &common.dir), ("--state-dir", &common.state.dir), ("--key-file", &common.state.key_file)]
    {
        if let Some(value) = value {
            flags.push_str(&format!("{name} {} ", quoted(&value.display().to_string())));
        }
    }
    flags
}

/// A word as a shell reads it.
pub(in crate::app) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+=:@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// The operation that a text names: a full id, or the beginning of an id's random part that only one
/// has.
pub(super) fn find(store: &impl Rows, text: &str) -> Result<OperationId, Fail> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let not_found = |what: &str| {
        let shown: String = text.chars().take(60).collect();
        let failure = Failure::new(CauseCode::OperationNotFound, format!("{what} {shown:?}"));
        Fail {
            class: ExitClass::Blocked,
            failure: failure.action("`thcode recover` lists what stands, with full ids"),
        }
    };
    let is_prefix = text.len() >= 4 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_prefix {
        return Err(not_found("no operation has the id"));
    }
    let wanted = text.to_ascii_lowercase();
    let mut found = Vec::new();
    let sql = "SELECT DISTINCT operation_id FROM journal WHERE kind = 'OperationProposed'";
    store.each(sql, [], |row| {
        let id: Vec<u8> = row.get(0).map_err(crate::store::StoreError::from)?;
        if let Ok(id) = OperationId::from_bytes(&id)
            && id.random_part().starts_with(&wanted)
        {
            found.push(id);
        }
        Ok::<_, crate::store::StoreError>(())
    })?;
    match found.as_slice() {
        [one] => Ok(*one),
        [] => Err(not_found("no operation has the id")),
        _ => Err(not_found("more than one operation begins like")),
    }
}

/// Whether the directory is known to be the workspace that the operations were of: its identity is
/// the recorded one, or a file in it is one that they left or found.
pub(super) fn proven(root: Option<&Root>, cases: &[Case], which: &Which) -> bool {
    let Some(root) = root else { return false };
    let shows = |seen: Sighting| matches!(seen, Sighting::Pre | Sighting::Post);
    which.workspace_is
        || cases.iter().filter_map(|case| case.inflight.as_ref()).any(|inflight| {
            recovery::at_home(root, inflight) || {
                let seen = recovery::look(root, inflight);
                shows(seen.target) || shows(seen.temp)
            }
        })
}

/// A process of an interrupted command that still runs, as id and words.
fn running(host: &Host, case: &Case) -> Option<(u32, String)> {
    let spawned = case.spawned().filter(|spawned| spawned.boot_id == host.boot_id())?;
    host.alive_in_group(spawned.pid)
}

/// Names what has to be waited for, or ended: the id alone would send the reader looking.
pub(super) fn name_running(host: &Host, case: &Case, told: &mut RecoveredOperation) {
    if told.unresolved.as_deref() != Some(Why::StillRunning.token()) {
        return;
    }
    let (Some(spawned), Some((pid, words))) = (case.spawned(), running(host, case)) else { return };
    let shown: String = words.chars().take(MOST_WORDS).collect();
    let words = if shown.is_empty() { String::new() } else { format!(" ({shown})") };
    told.running_pid = Some(pid);
    told.next_step = format!(
        "wait: process {pid}{words} of the command still runs; to end it: kill -- -{}; then: thcode recover \
         reconcile {}",
        spawned.pid, case.operation_id
    );
}

/// What a case that stands comes to, and what the disk shows.
pub(super) fn look<S: Rows>(
    host: &Host,
    (rows, view): (&S, Option<View<'_, S>>),
    case: &Case,
    root: Option<&Root>,
    proven: bool,
) -> Result<(Verdict, Option<Evidence>), Fail> {
    if !case.is_dispatched() {
        return Ok((Verdict::NOT_SENT, None));
    }
    if case.is_whole() {
        return Ok((whole(host, (rows, view), case, root, proven)?, None));
    }
    let Some(inflight) = &case.inflight else {
        return Ok(match running(host, case) {
            Some(_) => (Verdict::Person(Why::StillRunning), None),
            None => (Verdict::COMMAND, None),
        });
    };
    let Some(root) = root.filter(|_| proven) else {
        return Ok((Verdict::Person(Why::WorkspaceNotProven), None));
    };
    let mut seen = recovery::look(root, inflight);
    // Shorter than what was to be written is what a write that was cut off leaves, and many a save of
    // somebody's; with the key it can be told which.
    if seen.temp == Sighting::Partial
        && let Some(view) = view
        && !is_beginning(view, case, root, inflight)
    {
        seen.temp = Sighting::Else;
    }
    let verdict = match case.status {
        // Its end is known; only what it left is in question.
        Status::Failed | Status::Succeeded => {
            let debris = match seen.temp {
                Sighting::Absent => Debris::None,
                Sighting::Pre | Sighting::Post | Sighting::Partial => Debris::Sweep,
                Sighting::Else => Debris::Keep,
                Sighting::Unreadable => return Ok((Verdict::Person(Why::Unreadable), Some(seen))),
            };
            Verdict::Settled { resolution: journal::Resolution::NotApplied, debris }
        }
        _ => {
            let digest =
                |image: Option<journal::InflightImage>| image.map(|image| *image.digest.as_bytes());
            recovery::verdict(digest(inflight.pre), digest(inflight.post), seen)
        }
    };
    Ok((verdict, Some(seen)))
}

/// Whether what lies under the temporary name is the beginning of what was to be written.
fn is_beginning<S: Rows>(
    view: View<'_, S>,
    case: &Case,
    root: &Root,
    inflight: &journal::Inflight,
) -> bool {
    let Some((checkpoint, ordinal)) = case.place() else { return false };
    let targets = checkpoint::targets(view, checkpoint).unwrap_or_default();
    let post = targets.into_iter().find(|target| target.ordinal == ordinal).map(|target| target.post);
    let Some(StoredImage::Present { artifact, .. }) = post else { return false };
    let (Ok(path), Ok(temp)) = (str::from_utf8(&inflight.path), str::from_utf8(&inflight.temp)) else {
        return false;
    };
    let beside = recovery::beside(path, temp);
    let Ok(mut file) = root.open_file(&root.look(&beside)) else { return false };
    let (mut same, mut over) = (true, false);
    let compared = open_artifact(view, artifact, &mut |chunk| {
        let mut rest = chunk;
        while same && !over && !rest.is_empty() {
            let mut found = vec![0u8; rest.len()];
            let read = file.read(&mut found).map_err(CheckpointError::Source)?;
            over = read == 0;
            let (start, left) = rest.split_at_checked(read).unwrap_or((rest, &[]));
            same = over || found.get(..read) == Some(start);
            rest = if over { &[] } else { left };
        }
        Ok(())
    });
    compared.is_ok() && same && over
}

/// What an operation in parts comes to: whatever its parts come to, all in all.
fn whole<S: Rows>(
    host: &Host,
    (rows, view): (&S, Option<View<'_, S>>),
    case: &Case,
    root: Option<&Root>,
    proven: bool,
) -> Result<Verdict, Fail> {
    let mut applied = false;
    for part in recovery::parts(rows, case.operation_id)? {
        let unknown = matches!(part.status, Status::DispatchCommitted | Status::UnknownOutcome);
        if !unknown {
            applied |= part.status == Status::Succeeded;
            continue;
        }
        match look(host, (rows, view), &part, root, proven)?.0 {
            Verdict::Person(_) => return Ok(Verdict::Person(Why::PartsOpen)),
            Verdict::Settled { resolution, .. } => applied |= commits(resolution) == Some(true),
        }
    }
    let resolution = if applied { Resolution::Applied } else { Resolution::NotApplied };
    Ok(Verdict::Settled { resolution, debris: Debris::None })
}

/// Whether an operation that comes to this took effect.
pub(super) fn commits(resolution: Resolution) -> Option<bool> {
    match resolution {
        Resolution::Applied | Resolution::Finished | Resolution::NoChange => Some(true),
        Resolution::NotApplied | Resolution::Restored => Some(false),
        Resolution::InterruptedCommand | Resolution::AcceptedByOperator => None,
    }
}

/// What the images of a case are good for.
pub(super) fn material<S: Rows>(
    case: &Case,
    rows: &S,
    view: Option<View<'_, S>>,
) -> Result<CheckpointMaterial, Fail> {
    let Some((id, digest)) = case.checkpoint().or(case.covered()) else {
        return Ok(CheckpointMaterial::NotApplicable);
    };
    Ok(match checkpoint::material(rows, view, id, digest)? {
        Material::Corrupt => CheckpointMaterial::Corrupt,
        Material::Missing if journal::is_evicted(rows, id)? => CheckpointMaterial::NotApplicable,
        Material::Missing => CheckpointMaterial::Unreachable,
        Material::Locked => CheckpointMaterial::RecoveryLocked,
        Material::Complete if !case.is_dispatched() => CheckpointMaterial::Incomplete,
        Material::Complete => CheckpointMaterial::Complete,
    })
}
