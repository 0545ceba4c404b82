//! Exit classes and their codes: one exhaustive match, so that a document and its process agree.
//!
//! A code that ends in 5, and only such a code, says: the same command may be run again unchanged
//! on a fresh checkout. Engines retry by number; they can't read a document.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a verb ended. Stable: a class keeps its code, a code is never reused.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ExitClass {
    /// 0: everything asked for was done and is durably recorded.
    Success,
    /// 1: it was tried and failed; a check found faults; an internal error.
    Failed,
    /// 2: arguments, config, policy file or input file are wrong; nothing was started.
    Usage,
    /// 10: done, but with a named limit, such as a call that was denied.
    AcceptedLimitation,
    /// 20: authority refused, or the store can't be used.
    Blocked,
    /// 25: a live runner holds the workspace; nothing was started.
    Busy,
    /// 30: some of several effects or items were applied, the others not.
    Partial,
    /// 40: a budget ran out.
    BudgetExhausted,
    /// 50: the provider failed in a way that a rerun can't help.
    ProviderFailed,
    /// 55: the provider wasn't to be had; a rerun may help.
    ProviderUnavailable,
    /// 60: interrupted operations stand that the machine can settle.
    RecoveryRequired,
    /// 70: an effect may or may not have happened and a person must look.
    UnknownOutcome,
    /// 80: the run ended but what the caller asked to hold doesn't.
    ExpectationFailed,
    /// 130: stopped by a signal.
    Cancelled,
}

impl ExitClass {
    /// Every class, in the order of the codes.
    pub const ALL: [Self; 14] = [
        Self::Success,
        Self::Failed,
        Self::Usage,
        Self::AcceptedLimitation,
        Self::Blocked,
        Self::Busy,
        Self::Partial,
        Self::BudgetExhausted,
        Self::ProviderFailed,
        Self::ProviderUnavailable,
        Self::RecoveryRequired,
        Self::UnknownOutcome,
        Self::ExpectationFailed,
        Self::Cancelled,
    ];

    /// The process exit code.
    pub fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::AcceptedLimitation => 10,
            Self::Blocked => 20,
            Self::Busy => 25,
            Self::Partial => 30,
            Self::BudgetExhausted => 40,
            Self::ProviderFailed => 50,
            Self::ProviderUnavailable => 55,
            Self::RecoveryRequired => 60,
            Self::UnknownOutcome => 70,
            Self::ExpectationFailed => 80,
            Self::Cancelled => 130,
        }
    }

    /// The class of a code, where there is one.
    pub fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.code() == code)
    }

    /// The word that documents carry.
    pub fn token(self) -> &'static str {
        match self {
            Self::Success => "SUCCESS",
            Self::Failed => "FAILED",
            Self::Usage => "USAGE",
            Self::AcceptedLimitation => "ACCEPTED_LIMITATION",
            Self::Blocked => "BLOCKED",
            Self::Busy => "BUSY",
            Self::Partial => "PARTIAL",
            Self::BudgetExhausted => "BUDGET_EXHAUSTED",
            Self::ProviderFailed => "PROVIDER_FAILED",
            Self::ProviderUnavailable => "PROVIDER_UNAVAILABLE",
            Self::RecoveryRequired => "RECOVERY_REQUIRED",
            Self::UnknownOutcome => "UNKNOWN_OUTCOME",
            Self::ExpectationFailed => "EXPECTATION_FAILED",
            Self::Cancelled => "CANCELLED",
        }
    }

    /// What it means, in a line.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Success => "everything asked for was done and is durably recorded",
            Self::Failed => "it was tried and failed; a check found faults; an internal error",
            Self::Usage => "arguments, config, policy file or input file are wrong; nothing was started",
            Self::AcceptedLimitation => {
                "done, but with a named limit: a call was denied and no stated expectation vouches for the work"
            }
            Self::Blocked => {
                "authority refused (policy, plan mode, a hard boundary), or the store can't be used: locked, without its key, on a full disk"
            }
            Self::Busy => "a live runner holds the workspace; nothing was started",
            Self::Partial => "some of several effects or items were applied, the others not",
            Self::BudgetExhausted => "iterations, tool calls, tokens, cost, wall time or writes ran out",
            Self::ProviderFailed => {
                "key, client error, unknown model, context too long: a rerun can't help"
            }
            Self::ProviderUnavailable => {
                "rate limit, 5xx, network, stall, cut or malformed stream, empty answer"
            }
            Self::RecoveryRequired => "interrupted operations stand that the machine can settle",
            Self::UnknownOutcome => "an effect may or may not have happened and a person must look",
            Self::ExpectationFailed => {
                "the run ended, but the model could not do it or what the caller asked to hold doesn't"
            }
            Self::Cancelled => "stopped by a signal; the document names it",
        }
    }

    /// What to do next, in a line.
    pub fn next_step(self) -> &'static str {
        match self {
            Self::Success => "nothing to do",
            Self::Failed => "read failure.message in the document, mend the cause, run again",
            Self::Usage => "mend what the message names; `thcode VERB --help` shows the right form",
            Self::AcceptedLimitation => {
                "read denials[]: grant the call in the policy if it was right to ask, or leave it"
            }
            Self::Blocked => {
                "read failure and denials[]: mend the store if it is that, else only a reviewed policy change can allow it"
            }
            Self::Busy => "run the same command again when the other run has ended",
            Self::Partial => "read which items failed and settle those alone",
            Self::BudgetExhausted => "raise the limit that stopReason names, or give a smaller task",
            Self::ProviderFailed => "mend key, model or request; the same command will fail again",
            Self::ProviderUnavailable => "run the same command again, unchanged",
            Self::RecoveryRequired => {
                "`thcode recover reconcile --all` settles what was interrupted; then run again"
            }
            Self::UnknownOutcome => {
                "`thcode recover` names the operation, and whether to look or to wait for it; run nothing before"
            }
            Self::ExpectationFailed => {
                "read failure and denials[] (a call that was denied may be why), then text: what was asked for does not hold"
            }
            Self::Cancelled => "run again if the stop wasn't meant",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_codes_that_end_in_5_may_be_retried() {
        let retry: Vec<_> = ExitClass::ALL.into_iter().filter(|class| class.code() % 10 == 5).collect();
        assert_eq!(retry, [ExitClass::Busy, ExitClass::ProviderUnavailable]);
    }

    #[test]
    fn token_is_what_serde_writes_and_codes_are_unique() {
        let mut codes = std::collections::BTreeSet::new();
        for class in ExitClass::ALL {
            assert_eq!(serde_json::to_value(class).unwrap(), class.token());
            assert_eq!(ExitClass::of_code(class.code()), Some(class));
            assert!(codes.insert(class.code()));
        }
    }
}
