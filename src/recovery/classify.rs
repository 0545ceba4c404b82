//! From what is known of an operation to what is told of it. Pure.

use super::{
    Case,
    verdict::{Debris, Verdict, Why},
};
use crate::{
    contract::recovery::{
        CheckpointMaterial, DispatchClassification, Evidence, OperationRecoveryState,
        RecoveredOperation, ResidualRisk, RiskScope, RiskSeverity, Sighting,
    },
    journal::{Resolution, Status},
};

/// What was found out about a case beside its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// What its images are good for.
    pub material: CheckpointMaterial,
    /// What the disk shows, where it was looked at.
    pub evidence: Option<Evidence>,
    /// What it comes to, where it stands.
    pub verdict: Option<Verdict>,
    /// The process that runs it now.
    pub live_owner: Option<u32>,
}

/// Tells an operation.
pub fn classify(case: &Case, known: Known) -> RecoveredOperation {
    let state = state_of(case.status);
    let resolution = resolution_of(case, known);
    let resolvable =
        known.live_owner.is_none() && matches!(known.verdict, Some(Verdict::Settled { .. }));
    let why = match known.verdict {
        Some(Verdict::Person(why)) => Some(why),
        Some(Verdict::Settled { .. }) | None => None,
    };
    let left = case
        .inflight
        .as_ref()
        .filter(|_| known.evidence.is_some_and(|seen| seen.temp != Sighting::Absent));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    RecoveredOperation {
        operation_id: case.operation_id,
        journal_state: state,
        operation_state: case.status.token().to_owned(),
        checkpoint_material: known.material,
        residual_risk: risk(case, known),
        dispatch_classification: dispatch(case, known),
        has_effect_dispatch_committed: case.is_dispatched(),
        has_terminal_event: case.terminal_kind().is_some(),
        terminal_kind: case.terminal_kind().map(str::to_owned),
        tool: case.tool(),
        target: case.inflight.as_ref().map(|inflight| text(&inflight.path)),
        left: left.map(|inflight| beside(&text(&inflight.path), &text(&inflight.temp))),
        checkpoint_id: case.checkpoint().or(case.covered()).map(|(id, _)| id),
        session_id: case.session(),
        proposed_at: case.proposed_at(),
        live_owner: known.live_owner,
        running_pid: None,
        evidence: known.evidence,
        resolution: resolution.map(str::to_owned),
        unresolved: why.map(|why| why.token().to_owned()),
        resolvable,
        settled: false,
        next_step: next_step(case, known, why, resolvable),
    }
}

/// A name beside a path.
pub fn beside(path: &str, name: &str) -> String {
    path.rsplit_once('/').map_or_else(|| name.to_owned(), |(dir, _)| format!("{dir}/{name}"))
}

/// The state of the seven that a status is.
fn state_of(status: Status) -> OperationRecoveryState {
    match status {
        Status::Proposed | Status::Decided | Status::Prepared | Status::Authorized => {
            OperationRecoveryState::Prepared
        }
        Status::DispatchCommitted => OperationRecoveryState::DispatchCommitted,
        Status::Succeeded => OperationRecoveryState::Succeeded,
        Status::Failed => OperationRecoveryState::Failed,
        Status::Blocked | Status::Cancelled => OperationRecoveryState::Cancelled,
        // Settled, and still nobody knows.
        Status::UnknownOutcome | Status::Reconciled => OperationRecoveryState::UnknownOutcome,
    }
}

fn resolution_of(case: &Case, known: Known) -> Option<&'static str> {
    match (case.resolution(), known.verdict) {
        (Some(resolution), _) => Some(resolution),
        (None, Some(Verdict::Settled { resolution, .. })) => Some(match case.status {
            Status::Proposed | Status::Decided | Status::Prepared | Status::Authorized => "cancelled",
            Status::Failed | Status::Succeeded => "cleaned-up",
            _ => resolution.token(),
        }),
        (None, _) => None,
    }
}

fn dispatch(case: &Case, known: Known) -> DispatchClassification {
    if case.terminal_kind().is_some() {
        return DispatchClassification::TerminalEvidenceRecorded;
    }
    if !case.is_dispatched() {
        return DispatchClassification::PreDispatchCommit;
    }
    let deletes = case.inflight.as_ref().is_some_and(|inflight| inflight.post.is_none());
    let there = known.evidence.is_some_and(|seen| match seen.target {
        Sighting::Post => true,
        Sighting::Absent => deletes,
        _ => false,
    });
    match known.material {
        CheckpointMaterial::Corrupt | CheckpointMaterial::Unreachable if there => {
            DispatchClassification::ReferencePublicationFailed
        }
        _ if there => DispatchClassification::NativeMutationCommitted,
        _ => DispatchClassification::PostDispatchCommit,
    }
}

fn risk(case: &Case, known: Known) -> ResidualRisk {
    let risk = |severity, scope, description: &str| ResidualRisk {
        description: description.to_owned(),
        scope,
        severity,
    };
    let (none, low, high) = (RiskSeverity::None, RiskSeverity::Low, RiskSeverity::High);
    if let Some(pid) = known.live_owner {
        let told = format!("It is under way: process {pid} is working on it.");
        return risk(low, RiskScope::None, &told);
    }
    let lost = matches!(known.material, CheckpointMaterial::Corrupt | CheckpointMaterial::Unreachable);
    match case.status {
        Status::Proposed | Status::Decided | Status::Prepared | Status::Authorized => {
            risk(low, RiskScope::None, "It was never dispatched, so nothing was changed.")
        }
        Status::DispatchCommitted | Status::UnknownOutcome if case.is_command() => risk(
            high,
            RiskScope::UnprovenOutcome,
            "A command was started and nobody saw its end. What it did is not known, and never undone.",
        ),
        Status::DispatchCommitted | Status::UnknownOutcome if lost => risk(
            high,
            RiskScope::FalseRollbackClaim,
            "It was dispatched, and its images can't put back what stood there.",
        ),
        Status::DispatchCommitted | Status::UnknownOutcome => match known.verdict {
            Some(Verdict::Settled {
                resolution: Resolution::Applied | Resolution::Finished, ..
            }) => risk(
                high,
                RiskScope::DuplicateMutation,
                "It was dispatched, and the disk shows its effect. Doing it again would do it twice.",
            ),
            Some(Verdict::Settled { .. }) => risk(
                high,
                RiskScope::UnprovenOutcome,
                "It was dispatched; the disk shows that it had no effect, and no record says so yet.",
            ),
            Some(Verdict::Person(_)) | None => risk(
                high,
                RiskScope::UnprovenOutcome,
                "It was dispatched, and what became of it isn't proven.",
            ),
        },
        Status::Reconciled => {
            risk(low, RiskScope::UnprovenOutcome, "It was settled without proof of what it did.")
        }
        Status::Succeeded if case.is_unprotected() => {
            risk(low, RiskScope::PartiallyProtected, "It took effect, and nothing can put it back.")
        }
        Status::Failed if known.verdict.is_some() => {
            risk(low, RiskScope::None, "It failed with nothing changed, and left a file of its own.")
        }
        Status::Succeeded | Status::Failed | Status::Blocked | Status::Cancelled => {
            risk(none, RiskScope::None, "Its end is recorded.")
        }
    }
}

fn next_step(case: &Case, known: Known, why: Option<Why>, resolvable: bool) -> String {
    let id = case.operation_id;
    if let Some(pid) = known.live_owner {
        return format!("wait: process {pid} is working on it");
    }
    if resolvable {
        return format!("thcode recover reconcile {id}");
    }
    let accept = format!("thcode recover accept {id} --reason TEXT");
    match why {
        None => "nothing to do".to_owned(),
        Some(Why::Displaced) => format!(
            "somebody's save lies beside the target: `thcode recover reconcile {id} --restore` puts it back \
             in its place; to leave both as they are: {accept}"
        ),
        Some(Why::Recreated) => format!(
            "the deleted content lies beside the new file: `thcode recover reconcile {id} --finish` removes \
             it; to leave both as they are: {accept}"
        ),
        Some(Why::UnknownContent) => format!("compare the target with what you expect, then: {accept}"),
        Some(Why::Unreadable) => {
            format!("make the target readable and look again: thcode recover inspect {id}")
        }
        Some(Why::WorkspaceNotProven) => {
            "name the workspace that the run was in with -C DIR; if this is it: --workspace-is"
                .to_owned()
        }
        Some(Why::PartsOpen) => "settle the files that it is about first: thcode recover".to_owned(),
        Some(Why::StillRunning) => {
            format!("wait for the command's processes or end them, then: thcode recover reconcile {id}")
        }
    }
}

impl Verdict {
    /// What a case that was never dispatched comes to.
    pub const NOT_SENT: Self =
        Self::Settled { resolution: Resolution::NotApplied, debris: Debris::None };
    /// What a command comes to, none of whose processes lives.
    pub const COMMAND: Self =
        Self::Settled { resolution: Resolution::InterruptedCommand, debris: Debris::None };
}
