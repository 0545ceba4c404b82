//! How a turn's loop ends: each way out with its stop reason, its text and its failure.

use super::{context::Overflow, keeper::KeepError};
use crate::{
    contract::{CauseCode, Failure, turn::StopReason},
    provider::message::{ProviderError, ProviderErrorKind},
    tool::finish::Outcome,
};

/// How the loop ended.
pub(super) struct End {
    pub(super) stop_reason: StopReason,
    /// The final text, or what the document says in its place.
    pub(super) text: String,
    pub(super) failure: Option<Failure>,
}

impl End {
    pub(super) fn answer(text: String) -> Self {
        Self { stop_reason: StopReason::FinalAnswer, text, failure: None }
    }

    pub(super) fn failed(stop_reason: StopReason, failure: Failure) -> Self {
        Self { stop_reason, text: failure.message.clone(), failure: Some(failure) }
    }
}

/// What has to be kept can't be kept any more: nothing more is done.
pub(super) fn unkept(error: &KeepError) -> End {
    let message = format!("what has to be kept of this run can't be kept: {error}");
    let failure = Failure::new(CauseCode::StoreUnavailable, message)
        .action("`thcode doctor` and `thcode store stats` look at the state directory");
    End::failed(StopReason::StoreUnavailable, failure)
}

/// The turn may not write more.
pub(super) fn over_write_set(message: String) -> End {
    let failure = Failure::new(CauseCode::WriteSetLimit, message)
        .action("raise --max-files-changed or --max-bytes-written, or [budget] in the policy");
    End::failed(StopReason::WriteSetLimit, failure)
}

pub(super) fn cancelled(signal: &'static str) -> End {
    let failure = Failure::new(CauseCode::Signalled, format!("stopped by {signal}"));
    End::failed(StopReason::Cancelled, failure)
}

pub(super) fn context_blocked(over: Overflow, limit: u64) -> End {
    let message = format!(
        "the task and the last rounds need about {} tokens; {} of the context limit of {limit} can be sent",
        over.needed, over.capacity
    );
    let failure = Failure::new(CauseCode::ContextOverflow, message).action(
        "give a smaller task, a lower --max-output-tokens, or a model with a larger --context-limit",
    );
    End::failed(StopReason::ContextBlocked, failure)
}

pub(super) fn finished(outcome: Outcome, summary: String) -> End {
    match outcome {
        Outcome::Done | Outcome::NothingToDo => End::answer(summary),
        Outcome::Cannot => End {
            stop_reason: StopReason::Cannot,
            failure: Some(Failure::new(
                CauseCode::ModelCannot,
                "the model says that it can't do the task",
            )),
            text: summary,
        },
        Outcome::NeedsInput => End {
            stop_reason: StopReason::NeedsInput,
            failure: Some(Failure::new(
                CauseCode::ModelNeedsInput,
                "the model says that it needs an answer, and nobody is there to give one",
            )),
            text: summary,
        },
    }
}

pub(super) fn provider_end(error: &ProviderError) -> End {
    let stop_reason = match error.kind {
        ProviderErrorKind::RateLimit | ProviderErrorKind::Server | ProviderErrorKind::Network => {
            StopReason::ProviderUnavailable
        }
        ProviderErrorKind::Protocol => StopReason::MalformedResponse,
        ProviderErrorKind::Stall => StopReason::Stalled,
        ProviderErrorKind::Empty => StopReason::EmptyAnswer,
        ProviderErrorKind::ContextOverflow => StopReason::ContextBlocked,
        ProviderErrorKind::Auth
        | ProviderErrorKind::Client
        | ProviderErrorKind::Unknown
        | ProviderErrorKind::CassetteExhausted
        | ProviderErrorKind::CassetteMismatch => StopReason::ProviderFailed,
    };
    let cause = cause_of(error.kind);
    let mut failure = Failure::new(cause, error.message.clone());
    failure.retry_after_ms = error.retry_after_ms;
    failure.recovery_actions = next_steps(error.kind).iter().map(|step| (*step).to_owned()).collect();
    End::failed(stop_reason, failure)
}

/// The cause that documents tell of a provider's failure.
pub(super) fn cause_of(kind: ProviderErrorKind) -> CauseCode {
    match kind {
        ProviderErrorKind::RateLimit => CauseCode::RateLimited,
        ProviderErrorKind::Server => CauseCode::ProviderServer,
        ProviderErrorKind::Network => CauseCode::ProviderNetwork,
        ProviderErrorKind::Protocol => CauseCode::MalformedResponse,
        ProviderErrorKind::Stall => CauseCode::ProviderStalled,
        ProviderErrorKind::Empty => CauseCode::EmptyAnswer,
        ProviderErrorKind::Auth => CauseCode::ProviderAuth,
        ProviderErrorKind::Client => CauseCode::ProviderClient,
        ProviderErrorKind::ContextOverflow => CauseCode::ContextOverflow,
        ProviderErrorKind::Unknown => CauseCode::ProviderUndocumented,
        ProviderErrorKind::CassetteExhausted => CauseCode::CassetteExhausted,
        ProviderErrorKind::CassetteMismatch => CauseCode::CassetteMismatch,
    }
}

/// What a reader can do about a provider's failure, most useful first.
fn next_steps(kind: ProviderErrorKind) -> &'static [&'static str] {
    match kind {
        ProviderErrorKind::Auth => &[
            "check that the key is valid at this host and may use this model",
            "or name the variable of another key with --api-key-env",
        ],
        ProviderErrorKind::Client => &[
            "check that --model names a model of this host, and that --base-url is its API's (it often ends in /v1)",
            "or look at the account: credit, access to the model, limits of the request",
        ],
        ProviderErrorKind::ContextOverflow => &[
            "give a smaller task or a lower --max-output-tokens, or state the model's true --context-limit",
        ],
        ProviderErrorKind::RateLimit => &[
            "run the same command again, unchanged, no sooner than retryAfterMs says if it says anything",
        ],
        ProviderErrorKind::Server => &[
            "run the same command again, unchanged",
            "or, if it lasts, ask another --model or --provider",
        ],
        ProviderErrorKind::Network => &[
            "check that the host can be reached from here: --base-url, the proxy variables, SSL_CERT_FILE",
            "or run the same command again, unchanged",
        ],
        ProviderErrorKind::Protocol => &[
            "run the same command again, unchanged",
            "or, if it lasts, check that --base-url speaks chat completions",
        ],
        ProviderErrorKind::Stall => &[
            "run the same command again, unchanged",
            "or, for a model that thinks for long, allow more with --stall-timeout",
        ],
        ProviderErrorKind::Empty => &["run the same command again, unchanged"],
        ProviderErrorKind::Unknown => &[
            "check that --base-url is the address of the API itself, and that it speaks chat completions",
        ],
        ProviderErrorKind::CassetteExhausted => {
            &["add the missing reply to the cassette, or end it with one that makes no call"]
        }
        ProviderErrorKind::CassetteMismatch => {
            &["make the cassette anew for this request, or take requestDigest out of its line"]
        }
    }
}
