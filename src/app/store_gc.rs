//! `store gc`: what isn't kept any more goes. Checkpoints go with their images, journaled in the same
//! transaction; nothing goes while anything that a checkpoint rests on can't be read. A run that finds
//! its store nearly full does the same before it begins.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    Common, Ended, Fail, recover, state,
    store_verbs::{self, About},
    store_verify::Fault,
};
use crate::{
    checkpoint::{
        self, Capacity, Fate, Reason, StoredCheckpoint, Weight, evict, reason, unsound, weight,
    },
    contract::{
        CauseCode, ExitClass, Failure,
        store_report::{EvictedCounts, PinnedCounts, StoreGc},
    },
    host::{CrashPoint, Host},
    id::{CheckpointId, SessionId, Timestamp, TurnId},
    journal::{self, Event, Ledger, Log, Payload, Status},
    session,
    store::{Durability, ReadStore, RowFault, Rows, StatePlace, Store, View},
};

/// What may go beside that whose window is over.
#[derive(Debug, Clone, Copy, Default)]
pub struct GcOptions {
    /// Checkpoints of ended sessions that are older.
    pub max_age: Option<Duration>,
    /// Files that no row refers to.
    pub orphans: bool,
    /// Only tell.
    pub dry_run: bool,
}

/// The checkpoints of one transaction, and of the event in it.
const MOST_TOGETHER: usize = 256;
/// The bytes of images that one transaction removes: freed pages are overwritten, so that the log holds
/// them once more until it is emptied.
const MOST_BYTES: u64 = 2 << 20;

/// What may go, and what can't.
#[derive(Debug, Default)]
struct Plan {
    /// The oldest first.
    going: BTreeMap<Reason, Vec<(CheckpointId, u64)>>,
    pinned: PinnedCounts,
    checkpoints: u64,
    /// What keeps anything from going.
    fault: Option<String>,
}

/// Frees what isn't kept any more.
pub fn gc(host: &Host, common: &Common, options: GcOptions) -> Result<Ended, Fail> {
    if options.dry_run {
        return rehearse(host, common, options);
    }
    let state::Written { place, mut store, mut log, .. } = state::open_write(host, common)?;
    let before = store_verbs::bytes_below(&place.dir);
    let plan = plan(store.view(), host.now(), options.max_age)?;
    let mut told = plan.told(false);
    if plan.fault.is_none() {
        let freed = free(host, &store, &mut log, &plan)?;
        (told.freed_bytes, told.freed_files) = (freed.bytes, count(freed.files.len()));
        if options.orphans {
            let swept = checkpoint::sweep(&store, store.dir(), false)?;
            (told.orphaned_files, told.temporary_files) = (swept.sealed, swept.temporary);
        }
        host.crash_point(CrashPoint::Swept);
        store.shrink()?;
        store.anchor(log.head())?;
        told.reusable_bytes = Some(store.free_bytes()?);
    }
    store.close()?;
    told.returned_bytes = before.saturating_sub(store_verbs::bytes_below(&place.dir));
    ended(common, &place, told, plan.fault)
}

/// As [`gc`], but nothing is changed: beside a live run and on a read-only disk too.
fn rehearse(host: &Host, common: &Common, options: GcOptions) -> Result<Ended, Fail> {
    let place = state::place_to_read(host, common)?;
    let store = ReadStore::open(&place.dir)?;
    store.hold_still()?;
    state::whole(&store)?;
    let keys = store.unlock(&state::key_source(host, &place, &common.state))?;
    let plan = plan(store.view(&keys)?, host.now(), options.max_age)?;
    let mut told = plan.told(true);
    if plan.fault.is_none() {
        let going = plan.going.values().flatten().map(|(id, _)| *id).collect();
        let Weight { bytes, files } = weight(&store, &going)?;
        (told.freed_bytes, told.freed_files) = (bytes, count(files.len()));
        if options.orphans {
            let swept = checkpoint::sweep(&store, store.dir(), true)?;
            (told.orphaned_files, told.temporary_files) = (swept.sealed, swept.temporary);
        }
    }
    drop(store);
    ended(common, &place, told, plan.fault)
}

/// Where a store is nearly full, what isn't kept any more goes before the run begins, so that it meets
/// the cap only by what is kept. Costs one question where there is room. What goes wrong is told, and
/// keeps no run from beginning.
pub(super) fn make_room(host: &Host, store: &Store, log: &mut Log, capacity: Capacity) {
    let done = checkpoint::usage(store).map_err(Fail::from).and_then(|usage| {
        if !capacity.is_tight(usage) {
            return Ok(());
        }
        let plan = plan(store.view(), host.now(), None)?;
        if let Some(fault) = &plan.fault {
            tracing::warn!("the store is nearly full, and nothing is freed: {fault}");
            return Ok(());
        }
        let freed = free(host, store, log, &plan)?;
        let going = plan.evicted().total;
        tracing::info!("the store was nearly full: {going} checkpoints freed, {} bytes", freed.bytes);
        Ok(())
    });
    if let Err(fail) = done {
        tracing::warn!("the store is nearly full, and can't be tidied: {}", fail.failure.message);
    }
}

/// Looks at everything that a checkpoint rests on, and decides what may go.
fn plan<S: Rows>(view: View<'_, S>, now: Timestamp, max_age: Option<Duration>) -> Result<Plan, Fail> {
    match look(view, now, max_age) {
        Ok(plan) => Ok(plan),
        Err(Fault::Damage { problem, .. }) => {
            let pinned = PinnedCounts { corrupt: 1, standing: 0 };
            let all = "SELECT count(*) FROM checkpoint";
            let all = view.rows.first(all, [], |row| row.get::<_, i64>(0)).ok().flatten();
            let checkpoints = u64::try_from(all.unwrap_or(0)).unwrap_or(0);
            Ok(Plan { pinned, checkpoints, fault: Some(problem), ..Plan::default() })
        }
        Err(Fault::Unreadable(fail)) => Err(*fail),
    }
}

fn look<S: Rows>(view: View<'_, S>, now: Timestamp, max_age: Option<Duration>) -> Result<Plan, Fault> {
    let rows = view.rows;
    let ledger = journal::ledger(rows, Some(&view.keys.journal))?;
    let faults = unsound(view, view.dir, &ledger.checkpoints)?;
    let (checkpoints, unreadable) = checkpoint::list(rows)?;
    let ended = ended_sessions(rows)?;
    let mut plan =
        Plan { checkpoints: count(checkpoints.len()) + u64::from(unreadable), ..Plan::default() };
    let corrupt = count(faults.len()) + u64::from(unreadable);
    if corrupt > 0 {
        plan.pinned.corrupt = corrupt;
        plan.fault = Some(faults.first().map_or("a checkpoint can't be read".to_owned(), told));
        return Ok(plan);
    }
    let standing = standing(rows, &view, &checkpoints)?;
    let oldest = max_age.map(|age| {
        let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(now.as_millis().saturating_sub(age))
    });
    let none = BTreeSet::new();
    for stored in checkpoints.iter().rev() {
        let fate = Fate {
            had_no_effect: had_no_effect(&ledger, stored),
            session_ended: ended.contains(&stored.session_id),
            rounds: ledger.rounds.get(&stored.session_id).unwrap_or(&none),
            oldest,
        };
        match reason(stored, fate) {
            Some(_) if standing.contains(&stored.checkpoint_id) => plan.pinned.standing += 1,
            Some(reason) => {
                let going = plan.going.entry(reason).or_default();
                going.push((stored.checkpoint_id, stored.stored_bytes));
            }
            None => {}
        }
    }
    Ok(plan)
}

/// Whether an operation is proven to have changed nothing. One that a person took as it is may have.
fn had_no_effect(ledger: &Ledger, stored: &StoredCheckpoint) -> bool {
    match ledger.status(stored.operation_id) {
        _ if ledger.doubted.contains(&stored.checkpoint_id) => false,
        Some(Status::Failed | Status::Blocked | Status::Cancelled) => true,
        Some(
            Status::Proposed
            | Status::Decided
            | Status::Prepared
            | Status::Authorized
            | Status::DispatchCommitted
            | Status::Succeeded
            | Status::UnknownOutcome
            | Status::Reconciled,
        )
        | None => false,
    }
}

/// The checkpoints that something without an end may still need: all those of its turn.
fn standing<S: Rows>(
    rows: &S,
    view: &View<'_, S>,
    checkpoints: &[StoredCheckpoint],
) -> Result<BTreeSet<CheckpointId>, Fault> {
    let standing = journal::standing(rows, Some(&view.keys.journal))?.operations;
    let mut turns: BTreeSet<TurnId> = BTreeSet::new();
    for operation in &standing {
        turns.extend(journal::events_of(rows, *operation)?.iter().filter_map(|event| event.turn_id));
    }
    let stands = |stored: &&StoredCheckpoint| {
        standing.contains(&stored.operation_id) || turns.contains(&stored.turn_id)
    };
    Ok(checkpoints.iter().filter(stands).map(|stored| stored.checkpoint_id).collect())
}

/// The sessions whose last turn has an end.
fn ended_sessions(rows: &impl Rows) -> Result<BTreeSet<SessionId>, Fault> {
    let ended = |session: &session::Session| session.turns.last().is_some_and(|last| last.end.is_some());
    let sessions = session::list(rows, None)?;
    Ok(sessions.iter().filter(|session| ended(session)).map(|session| session.session_id).collect())
}

/// Frees what may go, a piece at a time: each piece is durable before its sealed files are unlinked, so
/// that a crash leaves a file too many and never one too few.
fn free(host: &Host, store: &Store, log: &mut Log, plan: &Plan) -> Result<Weight, Fail> {
    let mut freed = Weight::default();
    for (reason, going) in &plan.going {
        let mut left = going.as_slice();
        while !left.is_empty() {
            let (piece, rest) = left.split_at(piece_of(left));
            left = rest;
            let ids: Vec<CheckpointId> = piece.iter().map(|(id, _)| *id).collect();
            let gone = log.write(host, store, Durability::Full, |tx, stage| {
                let gone = evict(tx, &ids)?;
                let because = reason.token().to_owned();
                let evicted = Payload::CheckpointsEvicted { checkpoint_ids: ids, because };
                stage.push(Event::of_store(evicted));
                Ok::<_, Fail>(gone)
            })?;
            host.crash_point(CrashPoint::Evicted);
            checkpoint::unlink(store.dir(), &gone.files)?;
            freed.bytes = freed.bytes.saturating_add(gone.bytes);
            freed.files.extend(gone.files);
            store.finish()?;
        }
    }
    Ok(freed)
}

/// How many go together.
fn piece_of(left: &[(CheckpointId, u64)]) -> usize {
    let mut bytes = 0u64;
    let fits = left.iter().take(MOST_TOGETHER).take_while(|(_, stored)| {
        bytes = bytes.saturating_add(*stored);
        bytes <= MOST_BYTES
    });
    fits.count().max(1)
}

impl Plan {
    fn evicted(&self) -> EvictedCounts {
        let of = |reason| self.going.get(&reason).map_or(0, |going| count(going.len()));
        let (expired, aged) = (of(Reason::Expired), of(Reason::Aged));
        let not_applied = of(Reason::NotApplied);
        EvictedCounts { total: expired + aged + not_applied, expired, aged, not_applied }
    }

    fn told(&self, dry_run: bool) -> StoreGc {
        let evicted = self.evicted();
        StoreGc {
            dry_run,
            evicted,
            freed_bytes: 0,
            freed_files: 0,
            orphaned_files: 0,
            temporary_files: 0,
            pinned: self.pinned,
            kept: self.checkpoints.saturating_sub(evicted.total),
            reusable_bytes: None,
            returned_bytes: 0,
        }
    }
}

fn ended(
    common: &Common,
    place: &StatePlace,
    gc: StoreGc,
    fault: Option<String>,
) -> Result<Ended, Fail> {
    let entry = match state::open_read(&place.dir) {
        Ok(store) => store_verbs::read_entry(place, &store)
            .unwrap_or_else(|fail| store_verbs::unread_entry(place, fail)),
        Err(fail) => store_verbs::unread_entry(place, fail),
    };
    let failure = fault.map(|fault| {
        let message = format!("nothing was freed, since not all can be checked: {fault}");
        let verify = format!("thcode {}store verify", recover::flags(common));
        Failure::new(CauseCode::StoreCorrupt, message)
            .action(format!("`{verify}` names all that is wrong"))
            .action("keep the state directory as it is, with its key file, and restore it from a copy")
    });
    let class = if failure.is_some() { ExitClass::Failed } else { ExitClass::Success };
    Ok(store_verbs::report(vec![entry], About::Gc(gc), failure, class))
}

fn told(fault: &RowFault) -> String {
    let RowFault { table, row, problem } = fault;
    let blank = if row.is_empty() { "" } else { " " };
    format!("{table}{blank}{row}: {problem}")
}

fn count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
