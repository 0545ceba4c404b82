//! `rollback list | inspect | analyze`: what can be put back, and what that would do. Needs no model
//! and no network, and changes nothing.

mod observe;
mod tell;

use std::collections::{BTreeMap, BTreeSet};

use super::{Common, Ended, Fail, recover, state};
use crate::{
    checkpoint::{self, Material, RetentionState, StoredCheckpoint},
    contract::{
        CauseCode, ExitClass, Failure, TOOL_VERSION,
        rollback::{
            AnalyzedOutcome, AnalyzedTarget, COVERS, HiddenCounts, NEVER_COVERS, RollbackAnalysis,
            RollbackAnalysisSchema, RollbackEligibility, RollbackListResult, RollbackListSchema,
            RollbackPreview, RollbackPreviewSchema, RollbackRisk,
        },
        store_report::Authenticity,
    },
    crypto::Keys,
    host::Host,
    id::{CheckpointId, Digest, SessionId},
    journal::{self, Ledger},
    rollback::{self, Facts, compose, decide},
    session,
    store::{ReadStore, Rows as _, View},
    workspace::Root,
};

/// Which checkpoints to list.
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    /// The most that are told.
    pub max: usize,
    /// Whether those are told too that can't be put back.
    pub include_hidden: bool,
    /// Only those of a turn, by its ordinal in its session.
    pub turn: Option<u32>,
    /// Only those of a session.
    pub session: Option<String>,
}

/// Which checkpoints a rollback is about.
#[derive(Debug, Clone, Default)]
pub struct Meant {
    /// Checkpoints by id or the unique beginning of an id's random part; `last` for the last turn that
    /// made one.
    pub checkpoints: Vec<String>,
    /// A turn, by its ordinal in the session.
    pub turn: Option<u32>,
    /// A session; the one with the latest turn if not given.
    pub session: Option<String>,
}

/// A store that is read, and everything in it that a rollback may be about.
struct Desk {
    store: ReadStore,
    keys: Option<Keys>,
    ledger: Ledger,
    /// The newest first.
    checkpoints: Vec<StoredCheckpoint>,
    unreadable: u32,
    workspace: String,
    state_dir: String,
    usage: u64,
}

/// What can be said of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Eligible,
    Expired,
    Corrupt,
    Locked,
    NotApplied,
}

impl Desk {
    fn open(host: &Host, common: &Common) -> Result<Self, Fail> {
        let place = state::place_to_read(host, common)?;
        let store = ReadStore::open(&place.dir)?;
        store.hold_still()?;
        state::anchored(&store)?;
        let keys = state::keys_if_any(&store, &state::key_source(host, &place, &common.state));
        let ledger = journal::ledger(&store, keys.as_ref().map(|keys| &keys.journal))?;
        let (checkpoints, unreadable) = checkpoint::list(&store)?;
        let (workspace, _) = store.made_for()?;
        let usage = "SELECT ifnull(sum(stored), 0) FROM blob";
        let usage: i64 = store.first(usage, [], |row| row.get(0))?.unwrap_or(0);
        let usage = u64::try_from(usage).unwrap_or(0);
        let state_dir = place.dir.display().to_string();
        Ok(Self { store, keys, ledger, checkpoints, unreadable, workspace, state_dir, usage })
    }

    fn view(&self) -> Result<Option<View<'_, ReadStore>>, Fail> {
        Ok(self.keys.as_ref().map(|keys| self.store.view(keys)).transpose()?)
    }

    fn authenticity(&self) -> Authenticity {
        match self.keys {
            Some(_) => Authenticity::Verified,
            None => Authenticity::UnverifiedNoKey,
        }
    }

    /// Whether a checkpoint is what was kept, as deep as the key reaches.
    fn standing(&self, checkpoint: &StoredCheckpoint) -> Result<Standing, Fail> {
        let Some((digest, became)) = self.ledger.checkpoints.get(&checkpoint.checkpoint_id) else {
            return Ok(Standing::Corrupt);
        };
        let says = match checkpoint.took_effect {
            Some(true) => "committed",
            Some(false) => "failed",
            None => "pending",
        };
        if says != *became {
            return Ok(Standing::Corrupt);
        }
        let material =
            checkpoint::material(&self.store, self.view()?, checkpoint.checkpoint_id, *digest)?;
        Ok(match material {
            Material::Corrupt | Material::Missing => Standing::Corrupt,
            Material::Locked => Standing::Locked,
            Material::Complete if checkpoint.took_effect != Some(true) => Standing::NotApplied,
            Material::Complete if !self.is_retained(checkpoint) => Standing::Expired,
            Material::Complete => Standing::Eligible,
        })
    }

    /// Whether its window still holds. Rounds that changed nothing don't count.
    fn is_retained(&self, checkpoint: &StoredCheckpoint) -> bool {
        let later: BTreeSet<u32> = self
            .checkpoints
            .iter()
            .filter(|other| other.session_id == checkpoint.session_id)
            .map(|other| other.prompt_round)
            .filter(|round| *round > checkpoint.prompt_round)
            .collect();
        let made_in = checkpoint.prompt_round;
        let now = made_in.saturating_add(u32::try_from(later.len()).unwrap_or(u32::MAX));
        checkpoint.retention.evaluate(made_in, now) == RetentionState::Retained
    }

    fn session(&self, text: &str) -> Result<SessionId, Fail> {
        Ok(session::find(&self.store, self.keys.as_ref(), text)?)
    }

    /// The checkpoint that a text names.
    fn find(&self, text: &str) -> Result<&StoredCheckpoint, Fail> {
        let wanted = text.to_ascii_lowercase();
        let named = text.parse::<CheckpointId>().ok();
        let is_prefix = text.len() >= 4 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let fits = |id: CheckpointId| match named {
            Some(named) => id == named,
            None => is_prefix && id.random_part().starts_with(&wanted),
        };
        let mut found = self.checkpoints.iter().filter(|stored| fits(stored.checkpoint_id));
        let shown: String = text.chars().take(60).collect();
        match (found.next(), found.next()) {
            (Some(one), None) => Ok(one),
            (None, _) => Err(not_found(format!("no checkpoint has the id {shown:?}"))),
            (Some(_), Some(_)) => {
                Err(not_found(format!("more than one checkpoint begins like {shown:?}")))
            }
        }
    }

    /// The checkpoints that are meant, the oldest first.
    fn meant(&self, meant: &Meant) -> Result<Vec<&StoredCheckpoint>, Fail> {
        let session = meant.session.as_deref().map(|text| self.session(text)).transpose()?;
        let of_session =
            |stored: &&StoredCheckpoint| session.is_none_or(|session| stored.session_id == session);
        let mut found: Vec<&StoredCheckpoint> = Vec::new();
        let last = meant.checkpoints.iter().any(|text| text == "last");
        for text in meant.checkpoints.iter().filter(|text| *text != "last") {
            found.push(self.find(text)?);
        }
        if last || (found.is_empty() && (meant.turn.is_some() || session.is_some())) {
            // The session of the newest one, unless another is named.
            let of = session.or_else(|| self.checkpoints.first().map(|newest| newest.session_id));
            let of = self.checkpoints.iter().filter(|stored| Some(stored.session_id) == of);
            let newest = of.clone().map(|stored| stored.prompt_round).max();
            let round = if last { newest } else { meant.turn };
            found.extend(
                of.filter(of_session)
                    .filter(|stored| round.is_none_or(|round| stored.prompt_round == round)),
            );
        }
        found.sort_by_key(|stored| stored.checkpoint_id);
        found.dedup_by_key(|stored| stored.checkpoint_id);
        Ok(found)
    }
}

fn not_found(message: String) -> Fail {
    let failure = Failure::new(CauseCode::CheckpointNotFound, message);
    Fail {
        class: ExitClass::Blocked,
        failure: failure.action("`thcode rollback list` tells what there is, with full ids"),
    }
}

/// Which checkpoints there are.
pub fn list(host: &Host, common: &Common, options: &ListOptions) -> Result<Ended, Fail> {
    let desk = Desk::open(host, common)?;
    let session = options.session.as_deref().map(|text| desk.session(text)).transpose()?;
    let mut hidden = HiddenCounts { unreadable: desk.unreadable, ..HiddenCounts::default() };
    let mut checkpoints = Vec::new();
    for stored in &desk.checkpoints {
        let wanted = session.is_none_or(|session| stored.session_id == session)
            && options.turn.is_none_or(|turn| stored.prompt_round == turn);
        if !wanted {
            continue;
        }
        let standing = desk.standing(stored)?;
        match standing {
            Standing::Eligible => {}
            Standing::Expired => hidden.expired += 1,
            Standing::Corrupt => hidden.corrupt += 1,
            Standing::Locked => hidden.locked += 1,
            Standing::NotApplied => hidden.not_applied += 1,
        }
        let told = standing == Standing::Eligible || options.include_hidden;
        if told && checkpoints.len() < options.max {
            checkpoints.push(tell::summary(host, &desk, stored, standing)?);
        }
    }
    let exit_class = ExitClass::Success;
    Ok(Ended::RollbackList(Box::new(RollbackListResult {
        schema: RollbackListSchema,
        tool_version: TOOL_VERSION.to_owned(),
        checkpoints,
        hidden_counts: hidden,
        state_dir: desk.state_dir.clone(),
        workspace: desk.workspace.clone(),
        authenticity: desk.authenticity(),
        failure: None,
        exit_class,
        exit_code: exit_class.code(),
    })))
}

/// What is in one checkpoint, whether it can be put back or not.
pub fn inspect(host: &Host, common: &Common, checkpoint: &str) -> Result<Ended, Fail> {
    let desk = Desk::open(host, common)?;
    let stored = desk.find(checkpoint)?;
    let standing = desk.standing(stored)?;
    let summary = tell::summary(host, &desk, stored, standing)?;
    let targets = tell::targets(&desk, stored, standing)?;
    let excluded = tell::recorded(&summary.excluded_effects);
    let id = stored.checkpoint_id;
    let command = |verb: &str| format!("thcode {}rollback {verb} {id}", recover::flags(common));
    let (outcome, tokens) = match &summary.eligibility {
        RollbackEligibility::ApplyEligible => {
            ("It can be analyzed against what stands now.".to_owned(), vec![command("analyze")])
        }
        RollbackEligibility::Hidden { reason } => {
            (format!("It can only be looked at: {reason}."), Vec::new())
        }
        RollbackEligibility::NonAuthoritativeRecoveryRecord { reason } => {
            (format!("It proves nothing: {reason}."), Vec::new())
        }
    };
    let exit_class = ExitClass::Success;
    Ok(Ended::RollbackPreview(Box::new(RollbackPreview {
        schema: RollbackPreviewSchema,
        tool_version: TOOL_VERSION.to_owned(),
        heading: "ROLLBACK INSPECT".to_owned(),
        purpose: "Tell what is in a checkpoint. Nothing is staged or changed.".to_owned(),
        risk: RollbackRisk {
            excluded_count: excluded,
            sentences: [COVERS.to_owned(), NEVER_COVERS.to_owned()],
        },
        target: format!("checkpoint {id} of round {} ({})", stored.prompt_round, stored.turn_id),
        authority: tell::authority(&summary),
        evidence_completeness: tell::completeness(&summary),
        outcome,
        next_step: tokens.first().cloned().unwrap_or_else(|| "nothing to do".to_owned()),
        rollback_tokens: tokens,
        eligibility: summary.eligibility.clone(),
        summary,
        targets,
        failure: None,
        exit_class,
        exit_code: exit_class.code(),
    })))
}

/// What putting checkpoints back would do.
pub fn analyze(host: &Host, common: &Common, meant: &Meant) -> Result<Ended, Fail> {
    let desk = Desk::open(host, common)?;
    let root = Root::open(
        common.dir.as_deref().unwrap_or(std::path::Path::new(&desk.workspace)),
        host.home().as_deref(),
    )?;
    let Some(view) = desk.view()? else {
        return Err(desk
            .store
            .unlock(&state::key_source(host, &state::place_to_read(host, common)?, &common.state))
            .err()
            .map_or_else(|| Fail::internal("the key was there a moment ago".to_owned()), Fail::from));
    };
    let meant = desk.meant(meant)?;
    let mut composed = Vec::new();
    let mut ids = Vec::new();
    for stored in meant {
        if desk.standing(stored)? == Standing::Eligible {
            composed.push((stored.checkpoint_id, checkpoint::targets(view, stored.checkpoint_id)?));
            ids.push(stored);
        }
    }
    if composed.is_empty() {
        let message = "nothing that was named can be put back".to_owned();
        let failure = Failure::new(CauseCode::NothingToRollBack, message);
        return Err(Fail {
            class: ExitClass::Blocked,
            failure: failure.action("`thcode rollback list --include-hidden` tells why"),
        });
    }
    let newest = newest_by_path(&desk, view)?;
    let written = host.open_for_writing();
    let mut targets = Vec::new();
    for path in compose(composed) {
        targets.push(target(view, &root, &path, &newest, &written)?);
    }
    analysis(&desk, common, &root, &ids, targets)
}

/// Per path the newest checkpoint that took effect.
fn newest_by_path(
    desk: &Desk,
    view: View<'_, ReadStore>,
) -> Result<BTreeMap<Vec<u8>, CheckpointId>, Fail> {
    let mut newest = BTreeMap::new();
    for stored in desk.checkpoints.iter().filter(|stored| stored.took_effect == Some(true)) {
        // One that can't be opened names no path, and is counted as corrupt where it is asked about.
        for target in checkpoint::targets(view, stored.checkpoint_id).unwrap_or_default() {
            newest.entry(target.path).or_insert(stored.checkpoint_id);
        }
    }
    Ok(newest)
}

fn target(
    view: View<'_, ReadStore>,
    root: &Root,
    path: &rollback::Composed,
    newest: &BTreeMap<Vec<u8>, CheckpointId>,
    written: &BTreeSet<(u64, u64)>,
) -> Result<AnalyzedTarget, Fail> {
    let seen = observe::observe(view, root, path, written);
    let (images, pre_digest) = observe::images(view, &path.first.pre)?;
    let (_, post_digest) = observe::images(view, &path.post)?;
    let outcome = decide(&Facts {
        had_file: path.first.pre != checkpoint::StoredImage::Absent,
        left_file: path.post != checkpoint::StoredImage::Absent,
        binary: path.first.binary,
        is_whole: path.is_whole,
        images,
        protected: observe::protected(root, path),
        current: &seen.current,
    });
    let newer = newest.get(&path.path).filter(|id| !path.checkpoints.contains(id)).copied();
    Ok(AnalyzedTarget {
        path: String::from_utf8_lossy(&path.path).into_owned(),
        effect: path.effect().to_owned(),
        checkpoint_ids: path.checkpoints.clone(),
        pre_image: observe::stored(&path.first.pre, pre_digest),
        post_image: observe::stored(&path.post, post_digest),
        current_state: seen.told,
        outcome,
        newer_checkpoint: newer,
    })
}

/// Whether a target would be as it was before, once an apply is through.
fn is_applied(outcome: &AnalyzedOutcome) -> bool {
    match outcome {
        AnalyzedOutcome::AppliedEligible { .. } => true,
        AnalyzedOutcome::Skipped { reason_code } => reason_code == "already-at-pre-image",
        AnalyzedOutcome::Conflict { .. }
        | AnalyzedOutcome::Inaccessible { .. }
        | AnalyzedOutcome::Mismatch { .. }
        | AnalyzedOutcome::UnknownOutcome { .. } => false,
    }
}

fn analysis(
    desk: &Desk,
    common: &Common,
    root: &Root,
    ids: &[&StoredCheckpoint],
    targets: Vec<AnalyzedTarget>,
) -> Result<Ended, Fail> {
    let applied = targets.iter().filter(|target| is_applied(&target.outcome)).count();
    let (status, exit_class) = match (applied, targets.len() - applied) {
        (_, 0) => ("full", ExitClass::Success),
        (0, _) => ("blocked", ExitClass::Blocked),
        (_, _) => ("partial", ExitClass::Partial),
    };
    let plan = serde_json::to_vec(&targets)
        .map_err(|error| Fail::internal(format!("the plan can't be written: {error}")))?;
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let turns: BTreeSet<_> = ids.iter().map(|stored| stored.turn_id).collect();
    let conflict = targets.iter().find(|target| !is_applied(&target.outcome));
    let open = desk.ledger.open_operations();
    let next_step = match conflict {
        _ if open > 0 => format!("thcode {}recover", recover::flags(common)),
        Some(target) => {
            format!("look at {}: what isn't as it was left is never overwritten", target.path)
        }
        None => format!("thcode {}rollback list", recover::flags(common)),
    };
    Ok(Ended::RollbackAnalysis(Box::new(RollbackAnalysis {
        schema: RollbackAnalysisSchema,
        tool_version: TOOL_VERSION.to_owned(),
        status: status.to_owned(),
        checkpoint_ids: ids.iter().map(|stored| stored.checkpoint_id).collect(),
        applied_count: count(applied),
        not_applied_count: count(targets.len() - applied),
        plan_digest: Digest::of(&plan),
        excluded_effects: tell::excluded(&desk.store, &turns)?,
        open_operations: open,
        next_step,
        targets,
        state_dir: desk.state_dir.clone(),
        workspace: root.path().to_owned(),
        failure: None,
        exit_class,
        exit_code: exit_class.code(),
    })))
}
