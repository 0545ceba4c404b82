//! `store list | stats`: what is kept, and where. Needs no key and changes nothing.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::{Common, Ended, Fail, recover::quoted, state};
use crate::{
    contract::{
        CauseCode, ExitClass, Failure, TOOL_VERSION,
        store_report::{
            LastRun, StoreEntry, StoreGc, StoreReport, StoreReportSchema, StoreStats, StoreVerification,
            TableStats,
        },
    },
    host::Host,
    journal::ENDING_KINDS,
    session,
    store::{ReadStore, Rows as _, StatePlace, StoreError, live_holder, state_base, state_place},
};

/// Operations that are told by a row of `inflight`, or whose last event doesn't end them: each once.
/// Unlike the count of a run's start it holds for a store whose counts don't add up.
fn open_operations(store: &ReadStore) -> Result<u64, Fail> {
    let sql = format!(
        "SELECT count(*) FROM (\
        SELECT operation_id FROM inflight UNION \
        SELECT operation_id FROM journal AS one WHERE operation_id IS NOT NULL AND seq = \
            (SELECT max(seq) FROM journal WHERE operation_id = one.operation_id) \
            AND kind NOT IN ({ENDING_KINDS}, 'CleanupDone'))"
    );
    one(store, &sql)
}

/// Every store below a directory: the named one, else the one that holds all of this user's. Where
/// a state directory was named, that one.
pub fn list(host: &Host, common: &Common, below: Option<&Path>) -> Result<Ended, Fail> {
    let dirs = match (below, &common.state.dir) {
        (Some(below), _) => children(below)?,
        (None, Some(_)) => vec![state::place(host, "", &common.state)?.dir],
        (None, None) => children(&state_base(host)?)?,
    };
    let entries = dirs.iter().map(|dir| entry(host, dir)).collect::<Result<Vec<_>, _>>()?;
    // A directory in which no store was made yet holds nothing that could be lost.
    let harmed = |failure: &&Failure| failure.cause_code != CauseCode::StoreMissing;
    let mut unread =
        entries.iter().filter_map(|entry| Some((entry, entry.failure.as_ref().filter(harmed)?)));
    let Some((first, why)) = unread.next() else {
        return Ok(report(entries, About::Stores, None, ExitClass::Success));
    };
    let (count, all) = (1 + unread.count(), entries.len());
    let message =
        format!("{count} of {all} stores can't be read, first {}: {}", first.state_dir, why.message);
    let failure = Failure::new(why.cause_code, message)
        .action(format!("thcode store verify --state-dir {}", quoted(&first.state_dir)));
    Ok(report(entries, About::Stores, Some(failure), ExitClass::Failed))
}

/// What the store of this workspace holds.
pub fn stats(host: &Host, common: &Common) -> Result<Ended, Fail> {
    let place = state::place_to_read(host, common)?;
    let store = state::open_read(&place.dir)?;
    let stats = StoreStats {
        version: one(&store, "PRAGMA user_version")?,
        key_version: one(&store, "SELECT coalesce(max(version), 0) FROM key_ring")?,
        tables: tables(&store)?,
        journal_rows: one(&store, "SELECT count(*) FROM journal")?,
        image_bytes: one(&store, "SELECT coalesce(sum(stored), 0) FROM blob")?,
        wal_bytes: bytes_of(&place.dir.join("state.db-wal")),
        volatile: store.is_volatile()?,
    };
    let entry = read_entry(&place, &store)?;
    Ok(report(vec![entry], About::Stats(stats), None, ExitClass::Success))
}

/// What a report is about, beside the stores.
pub(super) enum About {
    Stores,
    Stats(StoreStats),
    Verification(StoreVerification),
    Gc(StoreGc),
}

pub(super) fn report(
    stores: Vec<StoreEntry>,
    about: About,
    failure: Option<Failure>,
    exit_class: ExitClass,
) -> Ended {
    let (stats, verification, gc) = match about {
        About::Stores => (None, None, None),
        About::Stats(stats) => (Some(stats), None, None),
        About::Verification(verification) => (None, Some(verification), None),
        About::Gc(gc) => (None, None, Some(gc)),
    };
    Ended::Store(Box::new(StoreReport {
        schema: StoreReportSchema,
        tool_version: TOOL_VERSION.to_owned(),
        stores,
        stats,
        verification,
        gc,
        failure,
        exit_class,
        exit_code: exit_class.code(),
    }))
}

/// The directories in a directory, in order. One that isn't there has none.
fn children(dir: &Path) -> Result<Vec<PathBuf>, Fail> {
    let refused = |source| Fail::from(StoreError::Io { path: dir.to_owned(), source });
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(refused(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(refused)?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// A store of a list: one that can't be read is told as that.
fn entry(host: &Host, dir: &Path) -> Result<StoreEntry, Fail> {
    let place = state_place(host, "", Some(dir))?;
    let read = state::open_read(&place.dir).and_then(|store| read_entry(&place, &store));
    Ok(read.unwrap_or_else(|fail| unread_entry(&place, fail)))
}

/// What is told without the database.
fn bare(place: &StatePlace) -> StoreEntry {
    StoreEntry {
        state_dir: place.dir.display().to_string(),
        workspace: None,
        last_run: None,
        open_operations: None,
        live: live_holder(&place.dir).is_some(),
        disk_bytes: bytes_below(&place.dir),
        key_file_present: place.key.is_file(),
        failure: None,
    }
}

/// A store that can't be read, and why.
pub(super) fn unread_entry(place: &StatePlace, fail: Fail) -> StoreEntry {
    StoreEntry { failure: Some(fail.failure), ..bare(place) }
}

pub(super) fn read_entry(place: &StatePlace, store: &ReadStore) -> Result<StoreEntry, Fail> {
    let (workspace, _) = store.made_for()?;
    let sessions = session::list(store, None)?;
    let last = sessions.first().and_then(|session| Some((session.session_id, session.turns.last()?)));
    let last_run = last.map(|(session_id, turn)| LastRun {
        session_id,
        started_at: turn.started_at,
        ended_at: turn.end.as_ref().map(|end| end.ended_at),
        stop_reason: turn.end.as_ref().map(|end| end.stop_reason.clone()),
        exit_code: turn.end.as_ref().map(|end| end.exit_code),
    });
    Ok(StoreEntry {
        workspace: Some(workspace),
        last_run,
        open_operations: Some(open_operations(store)?),
        ..bare(place)
    })
}

fn tables(store: &ReadStore) -> Result<Vec<TableStats>, Fail> {
    let mut names: Vec<String> = Vec::new();
    let list = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' \
        ESCAPE '\\' ORDER BY name";
    store.each(list, [], |row| {
        names.push(row.get(0).map_err(StoreError::from)?);
        Ok::<_, StoreError>(())
    })?;
    let rows = |name: String| {
        // A name can't be a parameter; quoted like this it can be nothing but a name.
        let sql = format!("SELECT count(*) FROM \"{}\"", name.replace('"', "\"\""));
        Ok(TableStats { rows: one(store, &sql)?, name })
    };
    names.into_iter().map(rows).collect()
}

/// The one number of a query.
fn one<T: TryFrom<i64>>(store: &ReadStore, sql: &str) -> Result<T, Fail> {
    let strange = || StoreError::Corrupt("a number of it is out of range".to_owned());
    let found: i64 = store.first(sql, [], |row| row.get(0))?.ok_or_else(strange)?;
    Ok(T::try_from(found).map_err(|_| strange())?)
}

fn bytes_of(file: &Path) -> u64 {
    file.symlink_metadata().map_or(0, |meta| if meta.is_file() { meta.len() } else { 0 })
}

/// The bytes of the files in a state directory, those of its folder of sealed files too. What can't
/// be read counts nothing.
pub(super) fn bytes_below(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    entries
        .filter_map(Result::ok)
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => bytes_below(&entry.path()),
            _ => bytes_of(&entry.path()),
        })
        .sum()
}
