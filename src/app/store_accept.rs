//! `store verify --accept-head`: the journal is taken as it is where the head anchor is gone, torn or
//! tells of more, as after an older copy was put back. Only a chain that is whole is taken, and that it
//! was is journaled.

use super::{Common, Fail, state};
use crate::{
    contract::{CauseCode, ExitClass, Failure, store_report::AcceptedHead},
    host::{CrashPoint, Host},
    journal::{self, Event, Log, Payload},
    store::{Durability, Head, HeadSeen, ReadStore, Rows as _, StatePlace, Store},
};

/// Takes the journal as it is, if its anchor says otherwise; `None` where there is nothing to take.
pub(super) fn accept(
    host: &Host,
    common: &Common,
    place: &StatePlace,
) -> Result<Option<AcceptedHead>, Fail> {
    let (workspace, _) = ReadStore::open(&place.dir).map_err(no_way_out)?.made_for()?;
    // From here on nobody else writes.
    let (_, lease) = state::hold(host, common, place, &workspace)?;
    let key = state::key_source(host, place, &common.state);
    let reader = ReadStore::open(&place.dir).map_err(no_way_out)?;
    let keys = reader.unlock(&key)?;
    let seen = reader.head_seen(&keys)?;
    // Hash by hash, MAC by MAC, and the sense of it.
    let last = journal::ledger(&reader, Some(&keys.journal))?.events;
    if let HeadSeen::Row(head) = seen
        && is_there(&reader, head)?
    {
        return Ok(None);
    }
    if let Some(fault) = reader.structural_faults()?.first() {
        let message = format!("the database itself isn't whole, so its journal isn't taken: {fault}");
        let failure = Failure::new(CauseCode::StoreCorrupt, message);
        return Err(Fail {
            class: ExitClass::Blocked,
            failure: failure.action("restore the state directory from a copy that is whole"),
        });
    }
    drop(reader);
    let mut store = Store::open_unanchored(place, &key, lease)?;
    let mut log = Log::open(&store)?;
    let accepted = match taken_before(&store, seen)? {
        // A crash came between the word and the anchor.
        Some(accepted) => accepted,
        None => {
            let (lost_from_seq, lost_to_seq) = match seen {
                HeadSeen::Row(head) if head.seq > last => (Some(last + 1), Some(head.seq)),
                HeadSeen::Row(_) | HeadSeen::Nothing => (None, None),
            };
            log.write(host, &store, Durability::Full, |_, stage| {
                stage.push(Event::of_store(Payload::HeadAccepted { lost_from_seq, lost_to_seq }));
                Ok::<_, Fail>(())
            })?;
            AcceptedHead { last_seq: last, lost_from_seq, lost_to_seq }
        }
    };
    host.crash_point(CrashPoint::HeadAccepted);
    // What is anchored must be in the database, and that on the disk.
    store.finish()?;
    store.accept(host, log.head())?;
    store.close()?;
    Ok(Some(accepted))
}

/// Where there is no database there is nothing to take.
fn no_way_out(error: crate::store::StoreError) -> Fail {
    let mut fail = Fail::from(error);
    fail.failure.recovery_actions.retain(|action| !action.contains("--accept-head"));
    fail
}

fn is_there(store: &ReadStore, head: Head) -> Result<bool, Fail> {
    let found = journal::hash_at(store, head.seq)?;
    Ok(head == Head::EMPTY || found.as_deref() == Some(head.hash.as_slice()))
}

/// What the journal's last event says, if it is that this very anchor was given up.
fn taken_before(store: &Store, seen: HeadSeen) -> Result<Option<AcceptedHead>, Fail> {
    let HeadSeen::Row(head) = seen else { return Ok(None) };
    let last = "SELECT seq, payload FROM journal ORDER BY seq DESC LIMIT 1";
    let last = store.first(last, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))?;
    let Some((seq, payload)) = last else { return Ok(None) };
    Ok(match serde_json::from_str(&payload) {
        Ok(Payload::HeadAccepted { lost_from_seq, lost_to_seq }) if lost_to_seq == Some(head.seq) => {
            let last_seq = u64::try_from(seq).unwrap_or(0).saturating_sub(1);
            Some(AcceptedHead { last_seq, lost_from_seq, lost_to_seq })
        }
        _ => None,
    })
}
