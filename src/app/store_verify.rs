//! `store verify`: whether everything that is kept is what was kept. The journal is walked from its
//! beginning; rows of the other tables are compared with it; SQLite's structure is checked; with the
//! key every MAC, seal, length and digest. Changes nothing, unless it is told to take the journal as it
//! is.

use std::collections::BTreeMap;

use super::{
    Common, Ended, Fail, state, store_accept,
    store_verbs::{self, About},
};
use crate::{
    checkpoint::{self, CheckpointError},
    contract::{
        CauseCode, ExitClass, Failure,
        store_report::{Authenticity, StoreFinding, StoreVerification},
    },
    crypto::Keys,
    host::Host,
    id::TurnId,
    journal::{self, JournalError, Ledger, TurnEntry},
    session::{self, SessionError},
    store::{ReadStore, RowFault, Rows as _, StoreError},
};

/// Verifies the store of this workspace.
pub fn verify(host: &Host, common: &Common, accept_head: bool) -> Result<Ended, Fail> {
    let place = state::place_to_read(host, common)?;
    let accepted_head = match accept_head {
        true => store_accept::accept(host, common, &place)?,
        false => None,
    };
    let store = ReadStore::open(&place.dir)?;
    store.hold_still()?;
    let key = state::key_source(host, &place, &common.state);
    let keys = state::keys_if_any(&store, &key);
    // Lost is something else than altered: the rows that are there may all be what was written.
    let lost = match state::anchored(&store) {
        Err(lost @ JournalError::Store(StoreError::Behind(_))) => Some(Fail::from(lost)),
        Ok(_) | Err(_) => None,
    };
    let verification = StoreVerification { accepted_head, ..audit(&store, keys.as_ref())? };
    let failure = verification.findings.first().map(|first| {
        let more = verification.findings.len().saturating_sub(1);
        let message = format!("{}: {}; {more} more findings", first.place, first.problem);
        Failure::new(CauseCode::StoreCorrupt, message).action(
            "keep the state directory as it is, with its key file, and restore it from a copy; until then \
             name another with --state-dir",
        )
    });
    let class = if failure.is_some() { ExitClass::Failed } else { ExitClass::Success };
    let (failure, class) = match lost {
        Some(lost) => (Some(lost.failure), lost.class),
        None => (failure, class),
    };
    let entry = store_verbs::read_entry(&place, &store)
        .unwrap_or_else(|fail| store_verbs::unread_entry(&place, fail));
    Ok(store_verbs::report(vec![entry], About::Verification(verification), failure, class))
}

/// Looks at everything in a store. What can't be read at all is an error; what is wrong is found.
pub fn audit(store: &ReadStore, keys: Option<&Keys>) -> Result<StoreVerification, Fail> {
    let mut found = StoreVerification {
        authenticity: match keys {
            Some(_) => Authenticity::Verified,
            None => Authenticity::UnverifiedNoKey,
        },
        events: 0,
        sessions: 0,
        messages: 0,
        checkpoints: 0,
        images: 0,
        orphaned_files: 0,
        open_operations: 0,
        findings: Vec::new(),
        accepted_head: None,
    };
    let structure = store.structural_faults().map_err(Fault::from);
    for problem in told(&mut found, "database", structure)?.unwrap_or_default() {
        found.findings.push(StoreFinding { place: "database".to_owned(), row: None, problem });
    }
    let ledger = state::whole(store)
        .and_then(|_| journal::ledger(store, keys.map(|keys| &keys.journal)))
        .map_err(Fault::from);
    // Without the journal there is nothing that the other tables could be held against.
    let Some(ledger) = told(&mut found, "journal", ledger)? else { return Ok(found) };
    found.events = ledger.events;
    found.open_operations = ledger.open_operations();
    let faults = ledger.audit(store).map_err(Fault::from);
    let faults = told(&mut found, "journal", faults)?.unwrap_or_default();
    found.findings.extend(faults.into_iter().map(finding));
    let view = keys.map(|keys| store.view(keys)).transpose()?;
    let images = checkpoint::audit(store, store.dir(), view, &ledger.checkpoints).map_err(Fault::from);
    if let Some(audited) = told(&mut found, "checkpoint", images)? {
        found.checkpoints = audited.checkpoints;
        found.images = audited.images;
        found.orphaned_files = audited.orphans;
        found.findings.extend(audited.faults.into_iter().map(finding));
    }
    let sessions = session::audit(store, keys, &turns(&ledger)).map_err(Fault::from);
    if let Some(audited) = told(&mut found, "session", sessions)? {
        found.sessions = audited.sessions;
        found.messages = audited.messages;
        found.findings.extend(audited.faults.into_iter().map(finding));
    }
    Ok(found)
}

/// Why a look ended: damage that was found, or something that keeps anybody from looking.
pub(super) enum Fault {
    Damage { row: Option<String>, problem: String },
    Unreadable(Box<Fail>),
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        if error.is_damage() {
            Self::Damage { row: None, problem: error.to_string() }
        } else {
            Self::Unreadable(Box::new(error.into()))
        }
    }
}

impl From<JournalError> for Fault {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Store(error) => error.into(),
            JournalError::Broken(ref fault) => {
                Self::Damage { row: Some(fault.seq.to_string()), problem: error.to_string() }
            }
            JournalError::Illegal(_) | JournalError::NotAuthorized => {
                Self::Damage { row: None, problem: error.to_string() }
            }
        }
    }
}

impl From<CheckpointError> for Fault {
    fn from(error: CheckpointError) -> Self {
        match error {
            CheckpointError::Store(error) => error.into(),
            CheckpointError::Corrupt(problem) | CheckpointError::Missing(problem) => {
                Self::Damage { row: None, problem: problem.to_owned() }
            }
            other => Self::Unreadable(Box::new(other.into())),
        }
    }
}

impl From<SessionError> for Fault {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Store(error) => error.into(),
            SessionError::Corrupt { session, problem } => {
                Self::Damage { row: Some(session.to_string()), problem }
            }
            other => Self::Unreadable(Box::new(other.into())),
        }
    }
}

/// What a look gave; damage is told as a finding at its place.
fn told<T>(
    found: &mut StoreVerification,
    place: &str,
    look: Result<T, Fault>,
) -> Result<Option<T>, Fail> {
    match look {
        Ok(value) => Ok(Some(value)),
        Err(Fault::Damage { row, problem }) => {
            found.findings.push(StoreFinding { place: place.to_owned(), row, problem });
            Ok(None)
        }
        Err(Fault::Unreadable(fail)) => Err(*fail),
    }
}

fn finding(fault: RowFault) -> StoreFinding {
    let RowFault { table, row, problem } = fault;
    StoreFinding { place: table.to_owned(), row: (!row.is_empty()).then_some(row), problem }
}

fn turns(ledger: &Ledger) -> BTreeMap<TurnId, session::Expected> {
    let expected = |entry: &TurnEntry| session::Expected {
        session_id: entry.session_id,
        prompt_round: entry.prompt_round,
        row: entry.row,
        end: entry.end.as_ref().map(|end| {
            let turn = session::TurnEnd {
                stop_reason: end.stop_reason.clone(),
                exit_code: end.exit_code,
                ended_at: end.ended_at,
            };
            (turn, end.messages)
        }),
    };
    ledger.turns.iter().map(|(id, entry)| (*id, expected(entry))).collect()
}
