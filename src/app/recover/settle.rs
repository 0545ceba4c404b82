//! Writing: what the disk proves is recorded, what lies beside a target is removed or put back first.

use std::collections::BTreeSet;

use super::{
    Facts, Way, Which,
    desk::{commits, find, flags, look, material, name_running, proven},
};
use crate::{
    app::{Common, Fail, state},
    checkpoint,
    contract::{
        CauseCode, ExitClass, Failure,
        recovery::{Evidence, RecoveredOperation},
        store_report::Authenticity,
    },
    host::Host,
    id::OperationId,
    journal::{self, DispatchCommitted, Event, Log, Payload, Provenance, Resolution, Settling, Status},
    mutation::{self, Refusal, Tidy},
    recovery::{self, Case, Debris, Known, Verdict, Why},
    store::{Durability, Store},
    workspace::Root,
};

/// What was settled, what wasn't, and what went wrong on the way.
#[derive(Debug, Default)]
pub struct Settled {
    /// The operations that were meant, the oldest first.
    pub operations: Vec<RecoveredOperation>,
    /// The first thing that couldn't be carried out.
    pub failure: Option<Failure>,
}

/// A store that is open for writing, and the workspace that it was made for.
pub(super) struct Counter<'h> {
    host: &'h Host,
    store: Store,
    log: Log,
    root: Option<Root>,
    facts: Facts,
}

impl<'h> Counter<'h> {
    pub(super) fn open(host: &'h Host, common: &Common) -> Result<Self, Fail> {
        let state::Written { place, workspace, root, store, log } = state::open_write(host, common)?;
        let standing = journal::standing(&store, Some(&store.keys().journal))?;
        let facts = Facts {
            state_dir: place.dir.display().to_string(),
            workspace,
            authenticity: Authenticity::Verified,
            events: standing.events,
            flags: flags(common),
        };
        Ok(Self { host, store, log, root, facts })
    }

    pub(super) fn settle(&mut self, which: &Which, way: Way) -> Result<Settled, Fail> {
        let wanted =
            which.operations.iter().map(|text| find(&self.store, text)).collect::<Result<_, _>>()?;
        let Self { host, store, log, root, .. } = self;
        let meant = Meant { wanted, which, way };
        settle(host, store, log, root.as_ref(), &meant)
    }

    pub(super) fn accept(&mut self, text: &str, reason: &str) -> Result<RecoveredOperation, Fail> {
        let id = find(&self.store, text)?;
        let standing = journal::standing(&self.store, None)?;
        let case = recovery::one(&self.store, id)?;
        let unknown = matches!(case.status, Status::DispatchCommitted | Status::UnknownOutcome);
        if !standing.operations.contains(&id) || !unknown {
            let message = format!("operation {id} needs nobody's word: it is {}", case.status.token());
            return Err(Fail {
                class: ExitClass::Usage,
                failure: Failure::new(CauseCode::NothingToSettle, message)
                    .action("`thcode recover` lists what stands; `recover reconcile` settles the rest"),
            });
        }
        let (_, evidence) = look(
            self.host,
            (&self.store, Some(self.store.view())),
            &case,
            self.root.as_ref(),
            self.root.is_some(),
        )?;
        let proof = take_up(&mut self.log, &case)?;
        let payload = reconciled(Resolution::AcceptedByOperator, evidence, Some(reason.to_owned()));
        record(self.host, &self.store, &mut self.log, &case, proof.as_ref(), payload, None)?;
        Ok(RecoveredOperation { settled: true, ..told(self.host, &self.store, id, evidence, None)? })
    }

    /// Makes durable what was recorded, and lets go.
    pub(super) fn close(mut self) -> Result<Facts, Fail> {
        self.store.anchor(self.log.head())?;
        self.store.close()?;
        Ok(self.facts)
    }
}

/// Which operations are meant, and which way.
struct Meant<'a> {
    wanted: BTreeSet<OperationId>,
    which: &'a Which,
    way: Way,
}

/// Settles everything that is proven in a store that is open already: what a run does before it
/// begins.
pub fn settle_standing(
    host: &Host,
    store: &mut Store,
    log: &mut Log,
    root: &Root,
) -> Result<Settled, Fail> {
    let which = Which::default();
    let meant = Meant { wanted: BTreeSet::new(), which: &which, way: Way::Proven };
    let settled = settle(host, store, log, Some(root), &meant)?;
    store.anchor(log.head())?;
    Ok(settled)
}

/// What stands in a store that is open already. Writes nothing.
pub fn tell_standing(host: &Host, store: &Store, root: &Root) -> Result<Vec<RecoveredOperation>, Fail> {
    let standing = journal::standing(store, Some(&store.keys().journal))?.operations;
    let cases = recovery::cases(store, &standing)?;
    let proven = proven(Some(root), &cases, &Which::default());
    let tell = |case: &Case| {
        let (verdict, evidence) = look(host, (store, Some(store.view())), case, Some(root), proven)?;
        told(host, store, case.operation_id, evidence, Some(verdict))
    };
    cases.iter().map(tell).collect()
}

fn settle(
    host: &Host,
    store: &Store,
    log: &mut Log,
    root: Option<&Root>,
    meant: &Meant<'_>,
) -> Result<Settled, Fail> {
    let standing = journal::standing(store, Some(&store.keys().journal))?.operations;
    let mut cases = recovery::cases(store, &standing)?;
    let proven = proven(root, &cases, meant.which);
    // What an operation in parts comes to is known once its parts are settled.
    cases.sort_by_key(Case::is_whole);
    let mut settled = Settled::default();
    for case in cases {
        let id = case.operation_id;
        let parent = case.events.first().and_then(|event| event.parent_operation_id);
        let named = [Some(id), parent].iter().flatten().any(|id| meant.wanted.contains(id));
        if !meant.wanted.is_empty() && !named {
            continue;
        }
        let (verdict, evidence) = look(host, (store, Some(store.view())), &case, root, proven)?;
        let Some(plan) = plan(&case, verdict, meant.way) else {
            settled.operations.push(told(host, store, id, evidence, Some(verdict))?);
            continue;
        };
        let proof = take_up(log, &case)?;
        if let Some(refusal) = tidied(root, proof.as_ref(), &case, plan.tidy) {
            let message = format!("operation {id}: {refusal}");
            let failure = Failure::new(CauseCode::ReconciliationFailed, message)
                .action("see why it can't be changed, then run the same command again");
            settled.failure.get_or_insert(failure);
            settled.operations.push(told(host, store, id, evidence, Some(verdict))?);
            continue;
        }
        let payload = match case.status {
            Status::Failed | Status::Succeeded => Payload::CleanupDone {},
            _ if !case.is_dispatched() => {
                Payload::OperationCancelled { cause: "interrupted".to_owned() }
            }
            _ => reconciled(plan.resolution, evidence, None),
        };
        let target =
            case.inflight.as_ref().map(|found| String::from_utf8_lossy(&found.path).into_owned());
        let word = match &payload {
            Payload::CleanupDone {} => "cleaned-up",
            Payload::OperationCancelled { .. } => "cancelled",
            _ => plan.resolution.token(),
        };
        // What isn't ours stays beside the target, and is named for good.
        let keeps = matches!(verdict, Verdict::Settled { debris: Debris::Keep, .. });
        let left = match keeps {
            true => told(host, store, id, evidence, Some(verdict))?.left,
            false => None,
        };
        record(host, store, log, &case, proof.as_ref(), payload, commits(plan.resolution))?;
        let ended = told(host, store, id, evidence, None)?;
        let next_step = match &left {
            Some(left) => format!("look at {left}: it is not what this left, so it stays"),
            None => ended.next_step.clone(),
        };
        settled.operations.push(RecoveredOperation {
            settled: true,
            resolution: Some(word.to_owned()),
            target,
            left,
            next_step,
            ..ended
        });
    }
    for id in meant.wanted.iter().filter(|id| !standing.contains(id)) {
        settled.operations.push(told(host, store, *id, None, None)?);
    }
    Ok(settled)
}

/// What is done about a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Plan {
    resolution: Resolution,
    tidy: Option<Tidy>,
}

/// What the verdict and the caller's way come to; `None` where a person is needed.
fn plan(case: &Case, verdict: Verdict, way: Way) -> Option<Plan> {
    let deletes = case.inflight.as_ref().is_some_and(|inflight| inflight.post.is_none());
    let plan = |resolution, tidy| Some(Plan { resolution, tidy });
    match (verdict, way) {
        // The deletion's last step is left to do, and the caller wants it undone instead.
        (Verdict::Settled { resolution: Resolution::Finished, .. }, Way::Restore) => {
            plan(Resolution::Restored, Some(Tidy::Restore))
        }
        (Verdict::Person(Why::Displaced), Way::Proven) if Host::real().fault("sweep-displaced") => {
            plan(Resolution::Applied, Some(Tidy::Sweep))
        }
        (Verdict::Person(Why::Displaced), Way::Restore) => {
            plan(Resolution::Restored, Some(Tidy::Restore))
        }
        (Verdict::Person(Why::Recreated), Way::Finish) if deletes => {
            plan(Resolution::Finished, Some(Tidy::Sweep))
        }
        (Verdict::Settled { resolution, debris }, _) => {
            let tidy = match (debris, resolution) {
                // A file that was never made leaves no directories.
                (Debris::Sweep | Debris::None, Resolution::NotApplied) if case.inflight.is_some() => {
                    Some(Tidy::SweepWithParents)
                }
                // The directories that were made for a file which is removed again go with it.
                (Debris::Sweep | Debris::None, _)
                    if deletes && case.inflight.as_ref().is_some_and(|row| !row.parents.is_empty()) =>
                {
                    Some(Tidy::SweepWithParents)
                }
                (Debris::Sweep, _) => Some(Tidy::Sweep),
                (Debris::None | Debris::Keep, _) => None,
            };
            plan(resolution, tidy)
        }
        (Verdict::Person(_), _) => None,
    }
}

fn take_up(log: &mut Log, case: &Case) -> Result<Option<DispatchCommitted>, Fail> {
    Ok(log.take_up(case.operation_id, &case.events).map_err(journal::JournalError::from)?)
}

fn tidied(
    root: Option<&Root>,
    proof: Option<&DispatchCommitted>,
    case: &Case,
    tidy: Option<Tidy>,
) -> Option<Refusal> {
    let (root, proof, inflight, tidy) = (root?, proof?, case.inflight.as_ref()?, tidy?);
    mutation::tidy(root, proof, inflight, tidy).err()
}

fn reconciled(resolution: Resolution, evidence: Option<Evidence>, reason: Option<String>) -> Payload {
    Payload::OperationReconciled {
        resolution,
        target: evidence.map(|seen| seen.target.token().to_owned()),
        temp: evidence.map(|seen| seen.temp.token().to_owned()),
        reason,
    }
}

/// Writes the end of a case: durable when this returns.
fn record(
    host: &Host,
    store: &Store,
    log: &mut Log,
    case: &Case,
    proof: Option<&DispatchCommitted>,
    payload: Payload,
    commits: Option<bool>,
) -> Result<(), Fail> {
    let Some(last) = case.events.last() else { return Ok(()) };
    let event = Event {
        session_id: last.session_id,
        turn_id: last.turn_id,
        operation_id: Some(case.operation_id),
        parent_operation_id: last.parent_operation_id,
        provenance: Provenance::Deterministic,
        payload,
    };
    let Some(proof) = proof else {
        let id = case.operation_id;
        return log.write(host, store, Durability::Full, |tx, stage| {
            let void = "DELETE FROM authorization WHERE operation_id = ?1";
            tx.execute(void, [id.as_bytes().as_slice()])?;
            stage.push(event);
            Ok::<_, Fail>(())
        });
    };
    let settling = Settling {
        terminal: &event,
        keep_inflight: case.inflight.is_none(),
        durability: Durability::Full,
    };
    let ended = !matches!(case.status, Status::Failed | Status::Succeeded);
    let checkpoint = case.checkpoint().filter(|_| ended);
    log.settle(host, store, proof, settling, |tx| match (checkpoint, commits) {
        (Some((id, _)), Some(commits)) => checkpoint::settle(tx, id, commits),
        _ => Ok(()),
    })?;
    Ok(())
}

/// An operation as it is now; without a verdict nothing of it is left to settle.
fn told(
    host: &Host,
    store: &Store,
    id: OperationId,
    evidence: Option<Evidence>,
    verdict: Option<Verdict>,
) -> Result<RecoveredOperation, Fail> {
    let case = recovery::one(store, id)?;
    let known = Known {
        material: material(&case, store, Some(store.view()))?,
        evidence,
        verdict,
        live_owner: None,
    };
    let mut told = recovery::classify(&case, known);
    name_running(host, &case, &mut told);
    Ok(told)
}
