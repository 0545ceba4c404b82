//! `rollback list | inspect | analyze | apply | resolve`: what can be put back, what that would do, and
//! doing it. Needs no model and no network.

mod apply;
mod desk;
mod observe;
mod plan;
mod resolve;
mod tell;

pub use apply::{Signal, after_run, apply};
pub use resolve::{Choice, resolve};

use super::{Common, Ended, Fail, recover};
use crate::{
    contract::{
        ExitClass, TOOL_VERSION,
        rollback::{
            AnalyzedOutcome, COVERS, HiddenCounts, NEVER_COVERS, RollbackAnalysis,
            RollbackAnalysisSchema, RollbackEligibility, RollbackListResult, RollbackListSchema,
            RollbackPreview, RollbackPreviewSchema, RollbackRisk,
        },
    },
    host::Host,
    id::TurnId,
};
use desk::{Desk, Standing};
use plan::Plan;

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
    /// A turn, by its id.
    pub turn_id: Option<TurnId>,
}

/// Which of their files, and which are never touched.
#[derive(Debug, Clone, Default)]
pub struct Selected {
    /// These alone; empty for all.
    pub only: Vec<String>,
    /// Globs of files that stay as they are.
    pub protect: Vec<String>,
    /// Policy files, whose `protected` holds.
    pub policy: Vec<String>,
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
pub fn analyze(host: &Host, common: &Common, meant: &Meant, selected: &Selected) -> Result<Ended, Fail> {
    let desk = Desk::open(host, common)?;
    let plan = Plan::make(host, common, &desk, meant, selected)?;
    let (applied, not_applied) = plan.counts();
    let (status, exit_class) = match (applied, not_applied) {
        (_, 0) => ("full", ExitClass::Success),
        (0, _) => ("blocked", ExitClass::Blocked),
        (_, _) => ("partial", ExitClass::Partial),
    };
    let open = desk.ledger.open_operations();
    let conflict = plan.targets.iter().find(|target| !is_applied(&target.told.outcome));
    let flags = recover::flags(common);
    let next_step = match conflict {
        _ if open > 0 => format!("thcode {flags}recover"),
        Some(target) => {
            format!("look at {}: what isn't as it was left is never overwritten", target.told.path)
        }
        None => format!("thcode {flags}rollback apply {}", meant.words()),
    };
    Ok(Ended::RollbackAnalysis(Box::new(RollbackAnalysis {
        schema: RollbackAnalysisSchema,
        tool_version: TOOL_VERSION.to_owned(),
        status: status.to_owned(),
        checkpoint_ids: plan.checkpoint_ids(),
        applied_count: applied,
        not_applied_count: not_applied,
        plan_digest: plan.digest,
        excluded_effects: plan.excluded,
        left_out: plan.left_out,
        open_operations: open,
        next_step,
        targets: plan.targets.into_iter().map(|target| target.told).collect(),
        state_dir: desk.state_dir.clone(),
        workspace: plan.root.path().to_owned(),
        failure: None,
        exit_class,
        exit_code: exit_class.code(),
    })))
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

impl Meant {
    /// The words of a command line that means the same.
    fn words(&self) -> String {
        let mut words = self.checkpoints.clone();
        words.extend(self.turn.map(|turn| format!("--turn {turn}")));
        words.extend(self.session.as_ref().map(|text| format!("--session {}", recover::quoted(text))));
        words.join(" ")
    }
}
