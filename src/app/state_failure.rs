//! What the rooms of the store refuse, as an exit class and a failure: each error has its one place
//! here.

use super::{Fail, failure::out_of_resources};
use crate::{
    agent::KeepError,
    checkpoint::CheckpointError,
    contract::{CauseCode, ExitClass, Failure},
    crypto::{CryptoError, KeyError},
    journal::JournalError,
    mutation::MutationError,
    recovery::RecoveryError,
    session::SessionError,
    store::{LeaseError, StoreError},
};

/// The way out where an older copy was put back on purpose.
const ACCEPT: &str = "where an older copy was put back on purpose, `thcode store verify --accept-head` takes \
    it as it is, and tells what is lost";

fn blocked(cause: CauseCode, message: String, action: &str) -> Fail {
    Fail { class: ExitClass::Blocked, failure: Failure::new(cause, message).action(action) }
}

fn usage(cause: CauseCode, message: String, action: &str) -> Fail {
    Fail { class: ExitClass::Usage, failure: Failure::new(cause, message).action(action) }
}

fn unavailable(message: String) -> Fail {
    let action = "see that the state directory can be read and written and its disk has room, or name \
        another with --state-dir";
    blocked(CauseCode::StoreUnavailable, message, action)
}

fn corrupt(message: String) -> Fail {
    let action = "keep the state directory as it is, with its key file; restore it from a copy, or name \
        another with --state-dir";
    blocked(CauseCode::StoreCorrupt, message, action)
}

impl From<StoreError> for Fail {
    fn from(error: StoreError) -> Self {
        let message = error.to_string();
        match error {
            StoreError::NoPlace => {
                usage(CauseCode::StateDirRefused, message, "name a directory with --state-dir")
            }
            StoreError::Place { .. } => usage(
                CauseCode::StateDirRefused,
                message,
                "name a directory outside the workspace with --state-dir",
            ),
            StoreError::Foreign(_) => usage(
                CauseCode::StateDirRefused,
                message,
                "name the state directory of thcode, or a new one, with --state-dir",
            ),
            StoreError::Missing(_) => blocked(
                CauseCode::StoreMissing,
                message,
                "name the workspace with -C DIR or its store with --state-dir; `thcode store list` shows all",
            ),
            StoreError::Newer { .. } => newer(message),
            StoreError::Behind(_) => {
                let Fail { class, failure } = journal_unavailable(message);
                Fail { class, failure: failure.action(ACCEPT) }
            }
            StoreError::Key(error) => key(error, message),
            StoreError::KeyMismatch => blocked(
                CauseCode::KeyMismatch,
                message,
                "give the key that this store was made with: --key-file FILE or THCODE_KEY",
            ),
            StoreError::Crypto(error) => crypto(error, message),
            StoreError::Corrupt(_) => corrupt(message),
            StoreError::Sqlite(error) => match error.sqlite_error_code() {
                Some(rusqlite::ErrorCode::NotADatabase | rusqlite::ErrorCode::DatabaseCorrupt) => {
                    corrupt(message)
                }
                _ => unavailable(message),
            },
            StoreError::Io { source, .. } => {
                out_of_resources(&source).unwrap_or_else(|| unavailable(message))
            }
            StoreError::Pragma { .. } => unavailable(message),
        }
    }
}

fn newer(message: String) -> Fail {
    blocked(CauseCode::StoreNewer, message, "use the thcode that wrote it, or a later one")
}

fn journal_unavailable(message: String) -> Fail {
    let action = "keep the state directory as it is, with its key file; restore it from a copy, or name \
        another with --state-dir";
    blocked(CauseCode::JournalUnavailable, message, action)
}

fn key(error: KeyError, message: String) -> Fail {
    match error {
        KeyError::Missing(_)
        | KeyError::Unreadable { .. }
        | KeyError::Malformed { .. }
        | KeyError::NotMade(_) => blocked(
            CauseCode::KeyUnavailable,
            message,
            "give the store's key: --key-file FILE or THCODE_KEY; `thcode key new` prints one for a new store",
        ),
        KeyError::Crypto(error) => crypto(error, message),
    }
}

fn crypto(error: CryptoError, message: String) -> Fail {
    match error {
        CryptoError::NotAuthentic => corrupt(message),
        CryptoError::NoEntropy => unavailable(message),
        CryptoError::TooLong => Fail::internal(message),
    }
}

impl From<LeaseError> for Fail {
    fn from(error: LeaseError) -> Self {
        let message = error.to_string();
        match error {
            LeaseError::Held { .. } => {
                let failure = Failure::new(CauseCode::WorkspaceInUse, message);
                let action = "run the same command again when the other run has ended";
                Self { class: ExitClass::Busy, failure: failure.action(action) }
            }
            LeaseError::Io { source, .. } => {
                out_of_resources(&source).unwrap_or_else(|| unavailable(message))
            }
        }
    }
}

impl From<JournalError> for Fail {
    fn from(error: JournalError) -> Self {
        let message = error.to_string();
        match error {
            JournalError::Store(error) => error.into(),
            JournalError::Broken(_) => journal_unavailable(message),
            // Only an event of this very process can be illegal here, or come without authority.
            JournalError::Illegal(_) | JournalError::NotAuthorized => Self::internal(message),
        }
    }
}

impl From<KeepError> for Fail {
    fn from(error: KeepError) -> Self {
        match error {
            KeepError::Store(error) => error.into(),
            KeepError::Journal(error) => error.into(),
            KeepError::Session(error) => error.into(),
            KeepError::Unrecorded(error) => (*error).into(),
            KeepError::Mutation(error) => error.into(),
        }
    }
}

impl From<MutationError> for Fail {
    fn from(error: MutationError) -> Self {
        match error {
            MutationError::Store(error) => error.into(),
            MutationError::Journal(error) | MutationError::Unsettled(error) => error.into(),
            MutationError::Checkpoint(error) => error.into(),
        }
    }
}

impl From<SessionError> for Fail {
    fn from(error: SessionError) -> Self {
        let message = error.to_string();
        match error {
            SessionError::Store(error) => error.into(),
            SessionError::Crypto(error) => crypto(error, message),
            SessionError::Corrupt { .. } => corrupt(message),
            SessionError::Newer { .. } => newer(message),
            SessionError::NoneYet | SessionError::Unknown { .. } => {
                usage(CauseCode::SessionNotFound, message, "`thcode session list` shows what is there")
            }
            SessionError::Ambiguous { .. } => {
                usage(CauseCode::SessionAmbiguous, message, "name one by its full id")
            }
        }
    }
}

impl From<RecoveryError> for Fail {
    fn from(error: RecoveryError) -> Self {
        let message = error.to_string();
        match error {
            RecoveryError::Store(error) => error.into(),
            RecoveryError::Journal(error) => error.into(),
            RecoveryError::NotFound(_) => blocked(
                CauseCode::OperationNotFound,
                message,
                "`thcode recover` lists what stands, with full ids",
            ),
        }
    }
}

impl From<CheckpointError> for Fail {
    fn from(error: CheckpointError) -> Self {
        let message = error.to_string();
        match error {
            CheckpointError::Store(error) => error.into(),
            CheckpointError::Crypto(error) => crypto(error, message),
            CheckpointError::SealedFile { .. } => unavailable(message),
            CheckpointError::Corrupt(_) | CheckpointError::Missing(_) => corrupt(message),
            // A tool tells these to the model; neither ends a verb.
            CheckpointError::Source(_) | CheckpointError::Changed => Self::internal(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_class_through_every_room() {
        let fail = |fail: Fail| (fail.class.code(), fail.failure.cause_code.token());
        let mismatch = || StoreError::KeyMismatch;
        for found in [
            fail(mismatch().into()),
            fail(JournalError::from(mismatch()).into()),
            fail(SessionError::from(mismatch()).into()),
            fail(CheckpointError::from(mismatch()).into()),
        ] {
            assert_eq!(found, (20, "key-mismatch"));
        }
        let newer = StoreError::Newer { found: 2, known: 1 };
        assert_eq!(fail(newer.into()), (20, "store-newer"));
        assert_eq!(fail(LeaseError::Held { holder: None }.into()), (25, "workspace-in-use"));
        assert_eq!(fail(StoreError::NoPlace.into()), (2, "state-dir-refused"));
        assert_eq!(fail(CheckpointError::Corrupt("x").into()), (20, "store-corrupt"));
        assert_eq!(fail(JournalError::NotAuthorized.into()), (1, "internal-error"));
    }

    #[test]
    fn only_a_held_workspace_may_be_tried_again() {
        let held: Fail = LeaseError::Held { holder: None }.into();
        assert!(held.failure.retryable);
        let lost: Fail = StoreError::Behind("x".to_owned()).into();
        assert!(!lost.failure.retryable && !lost.failure.recovery_actions.is_empty());
    }
}
