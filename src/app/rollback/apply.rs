//! Putting checkpoints back: the plan of `analyze`, made again under the lease, and carried out by
//! `mutation`. Nothing that isn't as it was left is ever overwritten.

use super::{
    Meant, Selected,
    desk::Desk,
    plan::{Plan, Target},
};
use crate::{
    app::{Common, Ended, Fail, recover, state},
    checkpoint::StoredCheckpoint,
    contract::{
        CauseCode, ExitClass, Failure, TOOL_VERSION,
        rollback::{
            AnalyzedOutcome, AppliedTarget, ApplyCounts, ApplyTargetOutcome, InverseOperation,
            RefusedTarget, ResidualConflict, RestoredMetadata, RollbackApplyResult,
            RollbackApplyResultSchema, RollbackApplyResultType,
        },
    },
    host::Host,
    id::{CheckpointId, Digest, OperationId, TurnId},
    journal::{self, Log},
    mutation::{self, About, End, MutationError, Ordered, Refusal, Vault, Wanted},
    rollback::safe_choices,
    store::Store,
    workspace::Root,
};

/// Asks for the signal that came, if one did.
pub type Signal<'a> = &'a dyn Fn() -> Option<&'static str>;

/// Puts checkpoints back as far as nobody has changed what they left. With `pinned` only if the plan
/// is still that one.
pub fn apply(
    host: &Host,
    common: &Common,
    meant: &Meant,
    selected: &Selected,
    pinned: Option<&str>,
    signal: Signal<'_>,
) -> Result<Ended, Fail> {
    let pinned = pinned.map(read_digest).transpose()?;
    let result = carry_out(host, common, meant, selected, (pinned, signal))?;
    Ok(Ended::RollbackApply(Box::new(result)))
}

/// Puts back what a run changed that has just ended.
pub fn after_run(host: &Host, common: &Common, turn: TurnId) -> Result<RollbackApplyResult, Fail> {
    let meant = Meant { turn_id: Some(turn), ..Meant::default() };
    carry_out(host, common, &meant, &Selected::default(), (None, &|| None))
}

fn read_digest(text: &str) -> Result<Digest, Fail> {
    text.parse().map_err(|error| {
        let failure = Failure::new(CauseCode::BadArgument, format!("--plan: {error}"));
        Fail::usage(failure.action("`thcode rollback analyze` prints the digest of its plan"))
    })
}

/// A store that is open for writing, with everything that was interrupted settled as far as it can be.
pub(super) struct Writer {
    pub(super) store: Store,
    pub(super) log: Log,
    pub(super) notes: Vec<String>,
}

impl Writer {
    pub(super) fn open(host: &Host, common: &Common) -> Result<Self, Fail> {
        let place = state::place_to_read(host, common)?;
        let (workspace, _) = state::open_read(&place.dir)?.made_for()?;
        let dir = common.dir.as_deref().unwrap_or(std::path::Path::new(&workspace));
        let root = Root::open(dir, host.home().as_deref())?;
        // Whoever wrote the tree must not have written the store as well.
        Store::prepare(&place, root.path())?;
        let state::Written { mut store, mut log, .. } = state::open_write(host, common)?;
        let mut notes = Vec::new();
        if journal::interrupted(&store)? > 0 {
            let settled = recover::settle_standing(host, &mut store, &mut log, &root)?;
            notes.extend(settled.operations.iter().map(recover::settled_note));
        }
        Ok(Self { store, log, notes })
    }

    /// Makes durable what was recorded, and lets go.
    pub(super) fn close(mut self) -> Result<(), Fail> {
        // What ended a change may wait for the next durable commit, which the anchor must not precede.
        self.store.sync()?;
        self.store.anchor(self.log.head())?;
        Ok(self.store.close()?)
    }
}

fn carry_out(
    host: &Host,
    common: &Common,
    meant: &Meant,
    selected: &Selected,
    (pinned, signal): (Option<Digest>, Signal<'_>),
) -> Result<RollbackApplyResult, Fail> {
    let mut writer = Writer::open(host, common)?;
    // The reader's snapshot is let go before anything is written.
    let (plan, open, state_dir) = {
        let desk = Desk::open(host, common)?;
        let plan = Plan::make(host, common, &desk, meant, selected)?;
        (plan, desk.ledger.open_operations(), desk.state_dir.clone())
    };
    if let Some(pinned) = pinned.filter(|pinned| *pinned != plan.digest) {
        writer.close()?;
        return Err(stale(plan.digest, pinned));
    }
    let ordered: Vec<Wanted> = plan.targets.iter().filter_map(|target| target.wanted.clone()).collect();
    let mut made = Made::default();
    if let Some(newest) = plan.checkpoints.last().filter(|_| !ordered.is_empty()) {
        made = restore((host, signal), &mut writer, &plan, newest, &ordered)?;
    }
    let mut notes = writer.notes.clone();
    if made.checkpoint.is_some() && !host.sees_all_processes() {
        let note = "which files programs of other users have open can't be seen: what one of them writes \
                    into a file that is replaced is lost";
        notes.push(note.to_owned());
    }
    writer.close()?;
    let told = Told { common, meant, open, state_dir, notes };
    let mut result = result(plan, made, told);
    if let Some(signal) = signal() {
        cut_short(&mut result, signal);
    }
    Ok(result)
}

fn stale(found: Digest, pinned: Digest) -> Fail {
    let message =
        format!("the plan is {found} now, not {pinned}: something changed since it was analyzed");
    let failure = Failure::new(CauseCode::PlanStale, message)
        .action("`thcode rollback analyze` shows what would be done now; nothing was touched");
    Fail { class: ExitClass::Blocked, failure }
}

/// What was dispatched.
#[derive(Default)]
struct Made {
    operation_id: Option<OperationId>,
    checkpoint: Option<CheckpointId>,
    ends: Vec<(Option<OperationId>, End)>,
}

fn restore(
    (host, signal): (&Host, Signal<'_>),
    writer: &mut Writer,
    plan: &Plan,
    newest: &StoredCheckpoint,
    wanted: &[Wanted],
) -> Result<Made, Fail> {
    let about = about(host, newest);
    let ordered = Ordered {
        verb: "rollback",
        rule: "operator:rollback",
        policy: plan.policy,
        retention: newest.retention,
        stopped: &|| signal().is_some(),
    };
    let mut vault = Vault { host, root: &plan.root, store: &mut writer.store, log: &mut writer.log };
    let restored =
        mutation::restore(&mut vault, about, ordered, wanted).map_err(
            |interrupted| match interrupted.begun {
                true => broken(about.operation_id, interrupted.error),
                false => Fail::from(interrupted.error),
            },
        )?;
    let operation_id = restored.checkpoint.map(|_| about.operation_id);
    // A checkpoint of nothing that was changed puts nothing back.
    let changed = restored.ends.iter().any(|(_, end)| !matches!(end, End::Not(_)));
    let checkpoint = restored.checkpoint.filter(|_| changed);
    Ok(Made { operation_id, checkpoint, ends: restored.ends })
}

/// An operation of the operator's, told beside the turn whose work it is about.
pub(super) fn about(host: &Host, of: &StoredCheckpoint) -> About {
    About {
        session_id: of.session_id,
        turn_id: of.turn_id,
        prompt_round: of.prompt_round,
        operation_id: OperationId::from_uuid(host.uuid()),
    }
}

/// The store gave out on the way: some files may be back, and recovery says which.
pub(super) fn broken(operation: OperationId, error: MutationError) -> Fail {
    let fail = Fail::from(error);
    let mut failure = fail.failure;
    failure.operation_id = Some(operation);
    failure.recovery_actions.insert(0, "thcode recover".to_owned());
    Fail { class: ExitClass::UnknownOutcome, failure }
}

/// What a result is told with, beside the plan and what was made of it.
struct Told<'a> {
    common: &'a Common,
    meant: &'a Meant,
    open: u64,
    state_dir: String,
    notes: Vec<String>,
}

fn result(plan: Plan, made: Made, told: Told<'_>) -> RollbackApplyResult {
    let checkpoint_ids = plan.checkpoint_ids();
    let mut ends = made.ends.into_iter();
    let refused = plan.targets.iter().filter_map(|target| {
        let boundary = target.boundary?.to_owned();
        Some(RefusedTarget { path: target.told.path.clone(), boundary })
    });
    let refused = refused.collect();
    let targets: Vec<AppliedTarget> = plan
        .targets
        .into_iter()
        .map(|target| {
            let end = target.wanted.is_some().then(|| ends.next()).flatten();
            applied_target(target, end)
        })
        .collect();
    let counts = counted(&targets);
    let applied = counts.applied + counts.already_at_pre_image;
    let all = u32::try_from(targets.len() + plan.left_out.len()).unwrap_or(u32::MAX);
    let unknown = targets.iter().any(|target| {
        let dispatched = target.operation_id.is_some();
        dispatched && matches!(target.outcome, ApplyTargetOutcome::UnknownOutcome { .. })
    });
    let result = match (applied, all - applied) {
        (_, 0) => RollbackApplyResultType::Full,
        (0, _) => RollbackApplyResultType::Blocked,
        (_, _) => RollbackApplyResultType::Partial,
    };
    let exit_class = match result {
        _ if unknown => ExitClass::UnknownOutcome,
        RollbackApplyResultType::Full => ExitClass::Success,
        RollbackApplyResultType::Partial => ExitClass::Partial,
        RollbackApplyResultType::Blocked => ExitClass::Blocked,
    };
    let residual_conflicts = targets.iter().filter_map(residual).collect::<Vec<_>>();
    let flags = recover::flags(told.common);
    let next_step = match (unknown, residual_conflicts.first(), made.checkpoint) {
        (true, ..) => format!("thcode {flags}recover"),
        (false, Some(conflict), _) => {
            let of = checkpoint_ids.last().map(ToString::to_string).unwrap_or_default();
            let path = recover::quoted(&conflict.path);
            format!("thcode {flags}rollback resolve {of} {path} --choice skip-target")
        }
        (false, None, Some(id)) if all == applied => {
            format!("nothing to do; to undo this: thcode {flags}rollback apply {id}")
        }
        (false, None, _) if all == applied => "nothing to do".to_owned(),
        (false, None, _) => {
            format!("thcode {flags}rollback analyze {}", told.meant.words())
        }
    };
    RollbackApplyResult {
        schema: RollbackApplyResultSchema,
        tool_version: TOOL_VERSION.to_owned(),
        result,
        checkpoint_ids,
        applied_count: applied,
        not_applied_count: all - applied,
        counts,
        residual_conflicts,
        refused,
        checkpoint_id_after: made.checkpoint,
        operation_id: made.operation_id,
        plan_digest: plan.digest,
        excluded_effects: plan.excluded,
        left_out: plan.left_out,
        open_operations: told.open,
        notes: told.notes,
        patch: None,
        next_step,
        targets,
        state_dir: told.state_dir,
        workspace: plan.root.path().to_owned(),
        failure: failure(result, exit_class),
        exit_class,
        exit_code: exit_class.code(),
    }
}

/// What a choice of `resolve` came to.
pub(super) struct Settled {
    pub(super) outcome: ApplyTargetOutcome,
    pub(super) operation_id: Option<OperationId>,
    pub(super) checkpoint: Option<CheckpointId>,
    pub(super) patch: Option<String>,
    pub(super) notes: Vec<String>,
}

impl Default for Settled {
    fn default() -> Self {
        let outcome = ApplyTargetOutcome::Applied { inverse_operation: InverseOperation::None };
        Self { outcome, operation_id: None, checkpoint: None, patch: None, notes: Vec::new() }
    }
}

/// The document of a choice that was carried out.
pub(super) fn settled(
    common: &Common,
    plan: Plan,
    (made, message): (Settled, String),
    (open, state_dir): (u64, String),
) -> RollbackApplyResult {
    let meant = Meant::default();
    let told = Told { common, meant: &meant, open, state_dir, notes: made.notes };
    let mut document = result(plan, Made::default(), told);
    for target in &mut document.targets {
        target.outcome = made.outcome.clone();
        target.operation_id = made.operation_id;
        target.message = Some(message.clone());
    }
    let flags = recover::flags(common);
    document.counts = counted(&document.targets);
    document.applied_count = u32::try_from(document.targets.len()).unwrap_or(u32::MAX);
    document.not_applied_count = 0;
    document.residual_conflicts = Vec::new();
    document.result = RollbackApplyResultType::Full;
    document.checkpoint_id_after = made.checkpoint;
    document.operation_id = made.operation_id;
    document.patch = made.patch;
    document.next_step = match made.checkpoint {
        Some(id) => format!("nothing to do; to undo this: thcode {flags}rollback apply {id}"),
        None => "nothing to do".to_owned(),
    };
    document.failure = None;
    document.exit_class = ExitClass::Success;
    document.exit_code = ExitClass::Success.code();
    document
}

/// A signal that kept files from being begun is the end's reason; one that came too late for that isn't.
fn cut_short(result: &mut RollbackApplyResult, signal: &str) {
    let waiting = |target: &&AppliedTarget| matches!(&target.outcome, ApplyTargetOutcome::Inaccessible { reason_code } if reason_code == "cancelled");
    let left = result.targets.iter().filter(waiting).count();
    if left == 0 || result.exit_class == ExitClass::UnknownOutcome {
        return;
    }
    let message = format!("stopped by {signal}: {left} files were not begun, all others are whole");
    result.failure = Some(
        Failure::new(CauseCode::Signalled, message).action("the same command goes on where it stopped"),
    );
    result.exit_class = ExitClass::Cancelled;
    result.exit_code = ExitClass::Cancelled.code();
}

fn failure(result: RollbackApplyResultType, class: ExitClass) -> Option<Failure> {
    let (cause, message) = match (class, result) {
        (ExitClass::UnknownOutcome, _) => {
            (CauseCode::OutcomeUnproven, "what became of a file isn't proven")
        }
        (_, RollbackApplyResultType::Full) => return None,
        (_, RollbackApplyResultType::Partial) => {
            (CauseCode::RollbackIncomplete, "some files were put back, others were left as they are")
        }
        (_, RollbackApplyResultType::Blocked) => {
            (CauseCode::RollbackIncomplete, "no file was put back; all are left as they are")
        }
    };
    Some(Failure::new(cause, message).action("targets[] tells each file and why"))
}

fn residual(target: &AppliedTarget) -> Option<ResidualConflict> {
    match &target.outcome {
        ApplyTargetOutcome::Conflict { reason_code, safe_choices } => Some(ResidualConflict {
            path: target.path.clone(),
            reason_code: reason_code.clone(),
            safe_choices: safe_choices.clone(),
        }),
        ApplyTargetOutcome::Applied { .. }
        | ApplyTargetOutcome::Skipped { .. }
        | ApplyTargetOutcome::Inaccessible { .. }
        | ApplyTargetOutcome::Mismatch { .. }
        | ApplyTargetOutcome::UnknownOutcome { .. } => None,
    }
}

fn counted(targets: &[AppliedTarget]) -> ApplyCounts {
    let mut counts = ApplyCounts::default();
    for target in targets {
        match &target.outcome {
            ApplyTargetOutcome::Applied { .. } => counts.applied += 1,
            ApplyTargetOutcome::Skipped { reason_code } if reason_code == "already-at-pre-image" => {
                counts.already_at_pre_image += 1;
            }
            ApplyTargetOutcome::Skipped { .. } => counts.skipped += 1,
            ApplyTargetOutcome::Conflict { .. } => counts.conflict += 1,
            ApplyTargetOutcome::Inaccessible { .. } => counts.inaccessible += 1,
            ApplyTargetOutcome::Mismatch { .. } => counts.mismatch += 1,
            ApplyTargetOutcome::UnknownOutcome { .. } => counts.unknown_outcome += 1,
        }
    }
    counts
}

fn applied_target(target: Target, end: Option<(Option<OperationId>, End)>) -> AppliedTarget {
    let told = target.told;
    let inverse = match &told.outcome {
        AnalyzedOutcome::AppliedEligible { inverse_operation, .. } => *inverse_operation,
        _ => InverseOperation::None,
    };
    let came_back = match inverse {
        InverseOperation::RestorePreImage | InverseOperation::RestoreFromArtifact => true,
        InverseOperation::DeleteFile | InverseOperation::None => false,
    };
    let (outcome, operation_id, metadata, message) = match end {
        None => (as_analyzed(told.outcome), None, None, None),
        Some((id, End::Done { metadata_partial })) => {
            let metadata = match metadata_partial {
                true => RestoredMetadata::Partial,
                false => RestoredMetadata::Whole,
            };
            let outcome = ApplyTargetOutcome::Applied { inverse_operation: inverse };
            (outcome, id, came_back.then_some(metadata), None)
        }
        Some((id, End::Not(refusal))) => (not_made(&refusal), id, None, Some(refusal.message)),
        Some((id, End::Unknown(refusal))) => {
            let reason_code = refusal.cause.to_owned();
            let outcome = ApplyTargetOutcome::UnknownOutcome { reason_code };
            (outcome, id, None, Some(refusal.message))
        }
    };
    AppliedTarget {
        path: told.path,
        effect: told.effect,
        checkpoint_ids: told.checkpoint_ids,
        pre_image: told.pre_image,
        post_image: told.post_image,
        current_state: told.current_state,
        outcome,
        operation_id,
        metadata,
        message,
    }
}

/// The outcome of a file that nothing was done to.
fn as_analyzed(outcome: AnalyzedOutcome) -> ApplyTargetOutcome {
    match outcome {
        AnalyzedOutcome::AppliedEligible { inverse_operation, .. } => {
            ApplyTargetOutcome::Applied { inverse_operation }
        }
        AnalyzedOutcome::Conflict { reason_code, safe_choices } => {
            ApplyTargetOutcome::Conflict { reason_code, safe_choices }
        }
        AnalyzedOutcome::Skipped { reason_code } => ApplyTargetOutcome::Skipped { reason_code },
        AnalyzedOutcome::Inaccessible { reason_code } => {
            ApplyTargetOutcome::Inaccessible { reason_code }
        }
        AnalyzedOutcome::Mismatch { reason_code, to } => {
            ApplyTargetOutcome::Mismatch { reason_code, to }
        }
        AnalyzedOutcome::UnknownOutcome { reason_code } => {
            ApplyTargetOutcome::UnknownOutcome { reason_code }
        }
    }
}

/// The outcome of a file that turned out otherwise once it was about to be written: as it was found.
fn not_made(refusal: &Refusal) -> ApplyTargetOutcome {
    let reason_code = match refusal.cause {
        "stale-read" | "already-exists" => "content-conflict",
        "is-directory" | "special-file" => "target-recreated",
        same => same,
    };
    let reason_code = reason_code.to_owned();
    match reason_code.as_str() {
        "open-for-writing" => ApplyTargetOutcome::UnknownOutcome { reason_code },
        "metadata-conflict"
        | "directory-moved"
        | "content-conflict"
        | "target-deleted"
        | "target-recreated"
        | "behind-symlink"
        | "hardlink-detected"
        | "read-only-file"
        | "metadata-not-preservable"
        | "pre-image-corrupt" => {
            ApplyTargetOutcome::Conflict { reason_code, safe_choices: safe_choices() }
        }
        _ => ApplyTargetOutcome::Inaccessible { reason_code },
    }
}
