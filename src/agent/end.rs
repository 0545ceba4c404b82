//! How a turn's loop ends: each way out with its stop reason, its text and its failure.

use super::{context::Overflow, keeper::KeepError};
use crate::{
    contract::{
        CauseCode, Failure,
        turn::{DecidedBy, StopReason, nothing_to_grant},
    },
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

/// What comes first where the outcome of an operation isn't proven.
const RECOVER: &str =
    "`thcode recover` tells what became of the operation and what stands; run nothing before";

/// Puts `thcode recover` before whatever else a reader can do.
pub(super) fn recover_first(failure: &mut Failure) {
    let actions = &mut failure.recovery_actions;
    if !actions.first().is_some_and(|first| first.contains("thcode recover")) {
        actions.insert(0, RECOVER.to_owned());
    }
}

/// What can be done about denied calls.
pub(super) fn after_denials<'a>(
    denied: impl IntoIterator<Item = (DecidedBy, Option<&'a str>)>,
) -> &'static str {
    nothing_to_grant(denied)
        .unwrap_or("read denials[]; grant the call in the policy if it was right to ask")
}

/// What has to be kept can't be kept any more: nothing more is done.
pub(super) fn unkept(error: &KeepError) -> End {
    let message = format!("what has to be kept of this run can't be kept: {error}");
    const LOOK: &str = "`thcode doctor` and `thcode store stats` look at the state directory";
    const LEFT: &str = "`thcode recover` tells what was left, and settles it";
    let failure = Failure::new(CauseCode::StoreUnavailable, message);
    let failure = match error.leaves_unknown() {
        true => failure.action(RECOVER).action(LOOK),
        false => failure.action(LOOK).action(LEFT),
    };
    End::failed(StopReason::StoreUnavailable, failure)
}

/// The turn may not write more.
pub(super) fn over_write_set(message: String) -> End {
    let failure = Failure::new(CauseCode::WriteSetLimit, message)
        .action("raise --max-files-changed or --max-bytes-written, or [budget] in the policy");
    End::failed(StopReason::WriteSetLimit, failure)
}

pub(super) fn cancelled(signal: &'static str) -> End {
    let failure = Failure::new(CauseCode::Signalled, format!("stopped by {signal}"))
        .action("run again if the stop wasn't meant");
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
            ).action("read text, which says why: change the task, the policy or what the workspace holds, then run again")),
            text: summary,
        },
        Outcome::NeedsInput => End {
            stop_reason: StopReason::NeedsInput,
            failure: Some(Failure::new(
                CauseCode::ModelNeedsInput,
                "the model says that it needs an answer, and nobody is there to give one",
            ).action("read text for what it asks: put the answer into the task, or give it as the next prompt of this session (`thcode run -c 'ANSWER'`)")),
            text: summary,
        },
    }
}

pub(super) fn provider_end(error: &ProviderError) -> End {
    let stop_reason = match error.kind {
        ProviderErrorKind::RateLimit | ProviderErrorKind::Server | ProviderErrorKind::Network => {
            StopReason::ProviderUnavailable
        }
        ProviderErrorKind::Protocol | ProviderErrorKind::NotTheApi => StopReason::MalformedResponse,
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
    if error.said.is_some() {
        let said = "with -v, standard error shows what the provider said";
        failure.recovery_actions.push(said.to_owned());
    }
    End::failed(stop_reason, failure)
}

/// The cause that documents tell of a provider's failure.
pub(super) fn cause_of(kind: ProviderErrorKind) -> CauseCode {
    match kind {
        ProviderErrorKind::RateLimit => CauseCode::RateLimited,
        ProviderErrorKind::Server => CauseCode::ProviderServer,
        ProviderErrorKind::Network => CauseCode::ProviderNetwork,
        ProviderErrorKind::Protocol | ProviderErrorKind::NotTheApi => CauseCode::MalformedResponse,
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
        // A page for people, of a proxy or a portal: seldom, it is gone the next time.
        ProviderErrorKind::NotTheApi => &[
            "check that --base-url is the address of the API itself (it often ends in /v1), and that no proxy or \
             login page answers in its place",
            "or, if it is right, run the same command again, unchanged",
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
