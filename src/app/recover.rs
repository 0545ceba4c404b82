//! `recover …`: what was interrupted, proven from journal and disk, and settled where the caller
//! asks. `recovery` tells what there is to do, `mutation` does it; here is where they meet. Nothing
//! is done again, nothing needs a model or a network.

mod desk;
mod settle;

pub use settle::{Settled, settle_standing, tell_standing};

use super::{Common, Ended, Fail};
use crate::{
    contract::{
        CauseCode, ExitClass, Failure, TOOL_VERSION,
        recovery::{
            OperationRecoveryState, RecoveredOperation, RecoveryAction, RecoveryResult,
            RecoveryResultSchema,
        },
        store_report::Authenticity,
    },
    host::Host,
};
use desk::Desk;
pub(super) use desk::{flags, quoted, root_of};

/// Which way a person wants it, where the disk leaves a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// What is proven is settled, and nothing else.
    Proven,
    /// A deletion is finished, also where something new stands in its place.
    Finish,
    /// What was moved away is put back.
    Restore,
}

/// Which operations are meant, and what may be taken for granted.
#[derive(Debug, Clone, Default)]
pub struct Which {
    /// By id or the beginning of an id's random part; empty for all that stand.
    pub operations: Vec<String>,
    /// Whether the caller vouches that this is the workspace of the run.
    pub workspace_is: bool,
}

/// Everything that stands.
pub fn list(host: &Host, common: &Common, which: &Which, if_store: bool) -> Result<Ended, Fail> {
    let desk = match Desk::open(host, common) {
        Err(fail) if if_store && fail.failure.cause_code == CauseCode::StoreMissing => {
            return Ok(no_store(fail.failure.message));
        }
        desk => desk?,
    };
    let told = desk.standing(which)?;
    let class = class_of(&told);
    let live = told.iter().find_map(|told| told.live_owner);
    let interrupted = told.iter().filter(|told| told.live_owner.is_none()).count();
    let mut body = match interrupted {
        0 => "Nothing is interrupted.".to_owned(),
        1 => "One operation stands.".to_owned(),
        count => format!("{count} operations stand."),
    };
    if let Some(pid) = live {
        body.push_str(&format!(" Process {pid} is at work here now."));
    }
    Ok(desk.result(RecoveryAction::Inspect, told, class, Some(body), None))
}

/// One operation, whether it stands or not. Ends with the class of its state.
pub fn inspect(
    host: &Host,
    common: &Common,
    operation: &str,
    which: &Which,
    action: RecoveryAction,
) -> Result<Ended, Fail> {
    let desk = Desk::open(host, common)?;
    let told = desk.one(operation, which)?;
    let class = match (told.live_owner, told.journal_state) {
        (Some(_), _) => ExitClass::Blocked,
        (None, OperationRecoveryState::Succeeded) => ExitClass::Success,
        (None, OperationRecoveryState::Prepared) => ExitClass::Blocked,
        (None, OperationRecoveryState::Failed) => ExitClass::Failed,
        (None, OperationRecoveryState::Cancelled) => ExitClass::Cancelled,
        // Settled without proof.
        (None, _) if told.operation_state == "reconciled" => ExitClass::Success,
        (None, OperationRecoveryState::DispatchCommitted | OperationRecoveryState::UnknownOutcome) => {
            ExitClass::UnknownOutcome
        }
    };
    let failure = told.live_owner.map(|pid| {
        let message = format!("process {pid} is working on operation {}", told.operation_id);
        Failure::new(CauseCode::OperationInProgress, message).action("wait for that run to end")
    });
    Ok(desk.result(action, vec![told], class, None, failure))
}

/// Settles what can be proven, and what the caller decides.
pub fn reconcile(host: &Host, common: &Common, which: &Which, way: Way) -> Result<Ended, Fail> {
    let mut counter = settle::Counter::open(host, common)?;
    let settled = counter.settle(which, way)?;
    let class = match (&settled.failure, class_of(&settled.operations)) {
        (Some(_), _) => ExitClass::Failed,
        // What the machine could have settled, it has.
        (None, ExitClass::RecoveryRequired) => ExitClass::UnknownOutcome,
        (None, class) => class,
    };
    let done = settled.operations.iter().filter(|told| told.settled).count();
    let left = settled.operations.iter().filter(|told| stands(told)).count();
    let body = match (done, left) {
        (0, 0) => "Nothing is interrupted.".to_owned(),
        (done, 0) => match settled.operations.iter().filter(|told| told.left.is_some()).count() {
            0 => format!("{done} settled; nothing is left."),
            1 => format!("{done} settled; a file that is not ours stays beside its target."),
            kept => format!("{done} settled; {kept} files that are not ours stay beside their targets."),
        },
        (done, left) => format!("{done} settled; {left} need a person."),
    };
    let failure = settled.failure.or_else(|| {
        let first = settled.operations.iter().find(|told| stands(told))?;
        let why = first.unresolved.as_deref().unwrap_or("it isn't proven");
        let message = format!("what became of operation {} isn't proven: {why}", first.operation_id);
        Some(Failure::new(CauseCode::OutcomeUnproven, message).action(first.next_step.clone()))
    });
    let facts = counter.close()?;
    Ok(facts.result(RecoveryAction::Reconcile, settled.operations, class, Some(body), failure))
}

/// Takes an operation as it is, on the caller's word. Nothing on the disk changes.
pub fn accept(host: &Host, common: &Common, operation: &str, reason: &str) -> Result<Ended, Fail> {
    let mut counter = settle::Counter::open(host, common)?;
    let told = counter.accept(operation, reason)?;
    let facts = counter.close()?;
    let body = Some("Accepted as it is. Nothing on the disk was changed.".to_owned());
    Ok(facts.result(RecoveryAction::Accept, vec![told], ExitClass::Success, body, None))
}

/// What a verb is told about, beside the operations.
#[derive(Debug, Clone)]
struct Facts {
    state_dir: String,
    workspace: String,
    authenticity: Authenticity,
    events: u64,
    /// What a command to copy needs, with a blank at its end.
    flags: String,
}

impl Facts {
    fn result(
        &self,
        action: RecoveryAction,
        mut operations: Vec<RecoveredOperation>,
        exit_class: ExitClass,
        body: Option<String>,
        mut failure: Option<Failure>,
    ) -> Ended {
        let command = format!("thcode {}recover", self.flags);
        let meant = |text: &mut String| *text = text.replace("thcode recover", &command);
        operations.iter_mut().for_each(|told| meant(&mut told.next_step));
        failure.iter_mut().flat_map(|failure| &mut failure.recovery_actions).for_each(meant);
        let heading = match action {
            RecoveryAction::Inspect => "RECOVER",
            RecoveryAction::Reconcile => "RECOVER RECONCILE",
            RecoveryAction::Accept => "RECOVER ACCEPT",
            RecoveryAction::Exit => "RECOVER EXIT",
        };
        let purpose = match action {
            RecoveryAction::Inspect => "Tell what was interrupted, and what journal and disk prove.",
            RecoveryAction::Reconcile => "Settle what journal and disk prove. Nothing is done again.",
            RecoveryAction::Accept => "Take an operation as it is, on the operator's word.",
            RecoveryAction::Exit => "Leave an operation as it stands.",
        };
        let worst = operations.iter().filter(|told| !told.settled).max_by_key(|told| {
            (told.unresolved.is_some(), told.residual_risk.severity, told.journal_state)
        });
        let next_step = match (worst, action) {
            (Some(worst), _) if worst.resolvable && operations.len() > 1 => {
                format!("{command} reconcile --all")
            }
            (Some(worst), RecoveryAction::Inspect | RecoveryAction::Reconcile) => {
                worst.next_step.clone()
            }
            _ => {
                let kept = operations.iter().find(|told| told.settled && told.left.is_some());
                kept.map_or_else(|| "nothing to do".to_owned(), |told| told.next_step.clone())
            }
        };
        Ended::Recovery(Box::new(RecoveryResult {
            schema: RecoveryResultSchema,
            tool_version: TOOL_VERSION.to_owned(),
            heading: heading.to_owned(),
            purpose: purpose.to_owned(),
            state: worst.map(|told| told.journal_state),
            residual_risk: worst.map(|told| told.residual_risk.clone()),
            action,
            next_step,
            exit_class,
            exit_code: exit_class.code(),
            body,
            failure,
            state_dir: self.state_dir.clone(),
            workspace: self.workspace.clone(),
            authenticity: self.authenticity,
            events: self.events,
            operations,
        }))
    }
}

fn no_store(message: String) -> Ended {
    let facts = Facts {
        state_dir: String::new(),
        workspace: String::new(),
        authenticity: Authenticity::UnverifiedNoKey,
        events: 0,
        flags: String::new(),
    };
    facts.result(RecoveryAction::Inspect, Vec::new(), ExitClass::Success, Some(message), None)
}

/// What an interrupted operation came to, as a note in the document of another verb.
pub(super) fn settled_note(told: &RecoveredOperation) -> String {
    let what = match (&told.resolution, &told.unresolved) {
        (Some(resolution), _) if told.settled => format!("settled: {resolution}"),
        (_, Some(why)) => format!("NOT settled: {why}"),
        (_, None) => told.operation_state.clone(),
    };
    let tool = told.tool.as_deref().unwrap_or("an operation");
    format!("{tool} of an earlier run ({}) was interrupted; {what}", told.operation_id)
}

/// Whether something of it is left to settle.
fn stands(told: &RecoveredOperation) -> bool {
    told.resolvable || told.unresolved.is_some()
}

/// The class of what stands: 70 where a person is needed, 60 where the machine suffices. What a live
/// process works on counts as neither.
fn class_of(told: &[RecoveredOperation]) -> ExitClass {
    let standing = || told.iter().filter(|told| stands(told));
    if standing().any(|told| !told.resolvable) {
        ExitClass::UnknownOutcome
    } else if standing().next().is_some() {
        ExitClass::RecoveryRequired
    } else {
        ExitClass::Success
    }
}
