//! The life of one operation as a pure fold: it guards what is appended live, and it is what
//! recovery reads. An order that it doesn't know is a corrupt journal, never "fixed".

use super::event::{Payload, Resolution};

/// Where an operation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// The model proposed it.
    Proposed,
    /// The policy decided.
    Decided,
    /// Its images are kept, or their lack is accepted.
    Prepared,
    /// Its permission was used up.
    Authorized,
    /// The effect may have happened.
    DispatchCommitted,
    /// It happened.
    Succeeded,
    /// Nothing changed.
    Failed,
    /// Refused beforehand.
    Blocked,
    /// Given up beforehand.
    Cancelled,
    /// It can't be proven.
    UnknownOutcome,
    /// It couldn't be proven, and is settled all the same.
    Reconciled,
}

/// An event that can't follow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} can't follow {}", after.map_or("nothing", Status::token))]
pub struct IllegalEvent {
    /// The status before.
    pub after: Option<Status>,
    /// The kind that came.
    pub kind: &'static str,
}

impl Status {
    /// The word of the status.
    pub fn token(self) -> &'static str {
        match self {
            Self::Proposed => "proposed",
            Self::Decided => "decided",
            Self::Prepared => "prepared",
            Self::Authorized => "authorized",
            Self::DispatchCommitted => "dispatch-committed",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Blocked => "blocked",
            Self::Cancelled => "cancelled",
            Self::UnknownOutcome => "unknown-outcome",
            Self::Reconciled => "reconciled",
        }
    }

    /// Whether nothing can follow but an operator's or recovery's word.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Proposed
            | Self::Decided
            | Self::Prepared
            | Self::Authorized
            | Self::DispatchCommitted => false,
            Self::Succeeded
            | Self::Failed
            | Self::Blocked
            | Self::Cancelled
            | Self::UnknownOutcome
            | Self::Reconciled => true,
        }
    }

    /// The status after an event of the operation; events of runs and prompts have no part in it.
    pub fn next(before: Option<Self>, event: &Payload) -> Result<Self, IllegalEvent> {
        let illegal = || IllegalEvent { after: before, kind: event.kind() };
        let after = match (before, event) {
            (None, Payload::OperationProposed { .. }) => Self::Proposed,
            (Some(Self::Proposed), Payload::PolicyDecisionRecorded { .. }) => Self::Decided,
            (
                Some(Self::Decided),
                Payload::CheckpointCommitted { .. }
                | Payload::TargetCovered { .. }
                | Payload::UnprotectedOperationRecorded { .. },
            ) => Self::Prepared,
            (Some(Self::Prepared), Payload::AuthorizationConsumed { .. }) => Self::Authorized,
            (Some(Self::Authorized), Payload::EffectDispatchCommitted { .. }) => Self::DispatchCommitted,
            // The process is there; what it does is still to be seen.
            (Some(Self::DispatchCommitted), Payload::CommandSpawned { .. }) => Self::DispatchCommitted,
            (Some(Self::DispatchCommitted), Payload::OperationUnknownOutcome { .. }) => {
                Self::UnknownOutcome
            }
            (Some(Self::DispatchCommitted), Payload::OperationSucceeded {}) => Self::Succeeded,
            (Some(Self::DispatchCommitted), Payload::OperationFailed { .. }) => Self::Failed,
            // What only reads has nothing to dispatch.
            (Some(Self::Decided), Payload::OperationSucceeded {}) => Self::Succeeded,
            (Some(Self::Decided), Payload::OperationFailed { .. }) => Self::Failed,
            (
                Some(Self::Proposed | Self::Decided | Self::Prepared | Self::Authorized),
                Payload::OperationBlocked { .. },
            ) => Self::Blocked,
            (
                Some(Self::Proposed | Self::Decided | Self::Prepared | Self::Authorized),
                Payload::OperationCancelled { .. },
            ) => Self::Cancelled,
            (
                Some(Self::DispatchCommitted | Self::UnknownOutcome),
                Payload::OperationReconciled { resolution, .. },
            ) => match resolution {
                Resolution::Applied | Resolution::Finished | Resolution::NoChange => Self::Succeeded,
                Resolution::NotApplied | Resolution::Restored => Self::Cancelled,
                Resolution::InterruptedCommand | Resolution::AcceptedByOperator => Self::Reconciled,
            },
            (Some(after @ (Self::Failed | Self::Succeeded)), Payload::CleanupDone {}) => after,
            _ => return Err(illegal()),
        };
        Ok(after)
    }
}

/// The kinds of events after which nothing is left to settle, as a list of SQL. Each operation has at
/// most one of them.
pub const ENDING_KINDS: &str = "'OperationSucceeded', 'OperationFailed', 'OperationBlocked', \
    'OperationCancelled', 'OperationReconciled'";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{AuthorizationId, CheckpointId, Digest, Timestamp};

    fn kinds() -> Vec<Payload> {
        let uuid = uuid::Uuid::from_u128(1);
        let authorization_id = AuthorizationId::from_uuid(uuid);
        let cause = || "c".to_owned();
        vec![
            Payload::RunStarted { tool_version: cause(), pid: 1, policy: Digest::of(b"") },
            Payload::RunEnded {
                stop_reason: cause(),
                exit_code: 0,
                ended_at: Timestamp::from_millis(0),
                messages: 0,
            },
            Payload::PromptSubmitted { prompt_round: 1, row: Digest::of(b"") },
            Payload::OperationProposed { tool: cause(), action_class: cause() },
            Payload::PolicyDecisionRecorded {
                outcome: cause(),
                because: cause(),
                rule_id: None,
                line: None,
                policy: Digest::of(b""),
            },
            Payload::CheckpointCommitted {
                checkpoint_id: CheckpointId::from_uuid(uuid),
                targets: 1,
                rows: Digest::of(b""),
                authorization_id,
            },
            Payload::TargetCovered {
                checkpoint_id: CheckpointId::from_uuid(uuid),
                ordinal: 0,
                rows: Digest::of(b""),
                authorization_id,
            },
            Payload::UnprotectedOperationRecorded { bytes: Some(1), authorization_id },
            Payload::AuthorizationConsumed { authorization_id },
            Payload::EffectDispatchCommitted { inflight: Some(Digest::of(b"")) },
            Payload::CommandSpawned { pid: 1, process_session: 1, start_time: 1, boot_id: cause() },
            Payload::OperationSucceeded {},
            Payload::OperationFailed { cause: cause() },
            Payload::OperationBlocked { cause: cause() },
            Payload::OperationCancelled { cause: cause() },
            Payload::OperationUnknownOutcome { cause: cause() },
            reconciled(Resolution::Applied),
            reconciled(Resolution::NotApplied),
            reconciled(Resolution::AcceptedByOperator),
            Payload::CleanupDone {},
            Payload::CheckpointsEvicted {
                checkpoint_ids: vec![CheckpointId::from_uuid(uuid)],
                because: cause(),
            },
            Payload::HeadAccepted { lost_from_seq: Some(1), lost_to_seq: None },
        ]
    }

    fn reconciled(resolution: Resolution) -> Payload {
        Payload::OperationReconciled { resolution, target: None, temp: None, reason: None }
    }

    /// Nothing is left to settle.
    fn is_settled(status: Status) -> bool {
        status.is_terminal() && status != Status::UnknownOutcome
    }

    fn reached() -> std::collections::HashSet<Status> {
        let mut reached = std::collections::HashSet::new();
        let mut todo: Vec<Option<Status>> = vec![None];
        while let Some(before) = todo.pop() {
            for event in kinds() {
                if let Ok(after) = Status::next(before, &event)
                    && reached.insert(after)
                {
                    todo.push(Some(after));
                }
            }
        }
        reached
    }

    #[test]
    fn every_status_is_reached_and_terminal_ones_are_final() {
        let reached = reached();
        assert_eq!(reached.len(), 11);
        for status in reached.into_iter().filter(|status| is_settled(*status)) {
            for event in kinds() {
                let after = Status::next(Some(status), &event);
                let tidied = matches!(event, Payload::CleanupDone {});
                assert!(after.is_err() || (tidied && after == Ok(status)), "{status:?} {event:?}");
            }
        }
        for event in kinds() {
            let after = Status::next(Some(Status::UnknownOutcome), &event);
            let settles = matches!(event, Payload::OperationReconciled { .. });
            assert_eq!(after.is_ok_and(is_settled), settles, "{event:?}");
        }
    }

    #[test]
    fn the_kinds_that_end_are_those_that_lead_to_an_end() {
        let mut listed: Vec<&str> =
            ENDING_KINDS.split(", ").map(|kind| kind.trim_matches('\'')).collect();
        let before = reached().into_iter().filter(|status| !is_settled(*status));
        let before: Vec<Option<Status>> = before.map(Some).chain([None]).collect();
        let ends = |event: &Payload| {
            before.iter().any(|before| Status::next(*before, event).is_ok_and(is_settled))
        };
        let mut ending: Vec<&str> =
            kinds().iter().filter(|event| ends(event)).map(Payload::kind).collect();
        listed.sort_unstable();
        ending.sort_unstable();
        ending.dedup();
        assert_eq!(listed, ending);
    }

    #[test]
    fn nothing_is_dispatched_without_images_and_authority() {
        let dispatch = Payload::EffectDispatchCommitted { inflight: Some(Digest::of(b"")) };
        for before in [None, Some(Status::Proposed), Some(Status::Decided), Some(Status::Prepared)] {
            assert!(Status::next(before, &dispatch).is_err(), "{before:?}");
        }
        assert_eq!(Status::next(Some(Status::Authorized), &dispatch), Ok(Status::DispatchCommitted));
    }

    #[test]
    fn after_dispatch_nothing_claims_that_it_never_was() {
        for event in kinds() {
            match Status::next(Some(Status::DispatchCommitted), &event) {
                Ok(after) => {
                    let stays = matches!(event, Payload::CommandSpawned { .. });
                    assert_eq!(stays, after == Status::DispatchCommitted);
                    let seen = matches!(event, Payload::OperationReconciled { .. });
                    let ends =
                        matches!(after, Status::Succeeded | Status::Failed | Status::UnknownOutcome);
                    assert!(ends || stays || seen);
                }
                Err(error) => assert_eq!(error.kind, event.kind()),
            }
        }
    }

    #[test]
    fn the_kind_s_column_is_what_the_payload_says() {
        for event in kinds() {
            let value = serde_json::to_value(&event).unwrap();
            assert_eq!(value["kind"], event.kind());
            assert_eq!(serde_json::from_value::<Payload>(value).unwrap(), event);
        }
    }
}
