//! `thcode run`, and the provider flags that other verbs share.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

use super::{Done, output::Output, policy::PolicyArgs};
use crate::{
    app::{
        self, Common, ProviderOptions, RunOptions,
        keeping::{self, KeepOptions, SessionChoice},
        prompt::PromptSource,
        run::{ExpectedChanges, Limited},
    },
    contract::{ExitClass, stream::StreamPayload},
    host::{Host, signals},
};

/// No model holds as many tokens; a larger number is a slip.
const MOST_TOKENS: u64 = 100_000_000;

/// Who answers.
#[derive(Debug, Args)]
#[command(next_help_heading = "Provider")]
pub(super) struct ProviderArgs {
    /// The provider preset: openai, typhoon, ollama, openrouter or custom.
    #[arg(long, value_name = "NAME")]
    pub(super) provider: Option<String>,
    /// The model to ask; the preset's own if it has one.
    #[arg(long)]
    pub(super) model: Option<String>,
    /// The API's base URL, for --provider custom or a proxy of a preset.
    #[arg(long, value_name = "URL")]
    pub(super) base_url: Option<String>,
    /// The variable that holds the API key; the preset's own if not given. Never the key itself.
    #[arg(long, value_name = "NAME")]
    pub(super) api_key_env: Option<String>,
    /// The tokens that the model can hold; needed for any model but the preset's own.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..=MOST_TOKENS))]
    pub(super) context_limit: Option<u64>,
    /// Replies from a file instead of a model: no key, no network.
    #[arg(long, value_name = "FILE")]
    pub(super) cassette: Option<PathBuf>,
    /// One more header of every request, its value from a variable; can be given again.
    #[arg(long, value_name = "NAME=env:VARIABLE")]
    pub(super) header: Vec<String>,
    /// One more field of every request, such as temperature=0; can be given again.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(super) param: Vec<String>,
    /// Give up on a provider that stays silent this long.
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = duration)]
    pub(super) stall_timeout: Duration,
}

impl ProviderArgs {
    pub(super) fn app(&self) -> ProviderOptions {
        ProviderOptions {
            provider: self.provider.clone(),
            model: self.model.clone(),
            base_url: self.base_url.clone(),
            api_key_env: self.api_key_env.clone(),
            context_limit: self.context_limit,
            cassette: self.cassette.clone(),
            headers: self.header.clone(),
            params: self.param.clone(),
            stall_timeout: self.stall_timeout,
        }
    }
}

/// What to do, under which policy, with which model.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thcode run --cassette examples/review.cassette.jsonl -C examples 'Review this code.'
  thcode run --policy preset:review --provider openai -f task.md --json -o result.json
  thcode run --provider openai --model gpt-5-mini --context-limit 400000 'Where is main?'
  git diff | thcode run --provider ollama --model qwen3 --context-limit 32000 -")]
pub(super) struct RunArgs {
    /// The task; `-` reads it from standard input. One that starts with a hyphen comes after `--`.
    #[arg(value_name = "PROMPT", conflicts_with_all = ["text", "file"])]
    prompt: Option<String>,
    /// The task.
    #[arg(
        short = 'p',
        long = "prompt",
        value_name = "TEXT",
        allow_hyphen_values = true,
        conflicts_with = "file"
    )]
    text: Option<String>,
    /// A file that holds the task; `-` is standard input.
    #[arg(short = 'f', long = "prompt-file", value_name = "FILE")]
    file: Option<PathBuf>,
    /// How long standard input may stay open and silent.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    stdin_timeout: Duration,
    /// A name of your own for this run, carried in the document.
    #[arg(long)]
    label: Option<String>,
    /// The model calls that the turn may make; the policy's own number, or 8, if not given.
    #[arg(long, alias = "max-turns", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_iterations: Option<u32>,
    /// The tokens that one reply may have.
    #[arg(long, value_name = "TOKENS", default_value_t = 8_192, value_parser = clap::value_parser!(u64).range(1..=MOST_TOKENS))]
    max_output_tokens: u64,
    /// The tool calls that the turn may make.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_tool_calls: Option<u32>,
    /// The tokens of all requests and replies of the turn.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..))]
    max_total_tokens: Option<u64>,
    /// The time that the turn may take: 90s, 30m, 2h.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    max_wall_time: Option<Duration>,
    /// How often a model call that failed by the provider's fault is made again.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(..=20))]
    max_retries: u32,
    /// How often standard error is told that something is still at work.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    heartbeat: Duration,
    /// A command that must end with 0 after the final answer; where it doesn't, the model is told and may
    /// mend it. Words and quotes, no shell.
    #[arg(long, value_name = "CMD")]
    verify: Vec<String>,
    /// How often the model may mend what --verify finds.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(..=20))]
    verify_rounds: u32,
    /// Whether files must have changed.
    #[arg(long, value_enum, value_name = "CHANGES", default_value_t)]
    expect_changes: ExpectChanges,
    /// A JSON Schema that the final answer must follow, as JSON.
    #[arg(long, alias = "json-schema", value_name = "FILE")]
    output_schema: Option<PathBuf>,
    /// What becomes of the changes when the run doesn't succeed.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t)]
    on_failure: OnFailure,
    /// End (SIGTERM) when the process that started this one ends.
    #[arg(long)]
    die_with_parent: bool,
    /// Classes that end with exit code 0 all the same; the document keeps the class.
    #[arg(long, value_enum, value_name = "CLASS", value_delimiter = ',')]
    tolerate: Vec<Tolerable>,
    /// Go on with this workspace's latest session.
    #[arg(short = 'c', long = "continue", conflicts_with = "resume")]
    go_on: bool,
    /// Go on with a session: its id, a unique prefix of it, its label, or `last`.
    #[arg(short = 'r', long, value_name = "SESSION")]
    resume: Option<String>,
    /// With -c or -r: begin a new session with a copy of that history.
    #[arg(long)]
    fork: bool,
    /// Keep this run in a store of its own, which is removed after a clean end.
    #[arg(long, conflicts_with_all = ["go_on", "resume", "fork"])]
    ephemeral: bool,
    /// How long to wait for another run in this workspace to end.
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = wait)]
    wait_lock: Duration,
    /// What to do where an earlier run left operations interrupted.
    #[arg(long, value_enum, default_value_t)]
    on_interrupted: OnInterrupted,
    /// The files that the turn may change.
    #[arg(long, value_name = "N")]
    max_files_changed: Option<u32>,
    /// The bytes that the turn may write.
    #[arg(long, value_name = "BYTES")]
    max_bytes_written: Option<u64>,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    pub(super) provider: ProviderArgs,
}

/// What to do where an earlier run left operations interrupted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum OnInterrupted {
    /// Settle what journal and disk prove, tell it, and go on; what stays unproven ends with 70.
    #[default]
    Reconcile,
    /// Not begin: 60, or 70 where a person has to look.
    RequireClean,
    /// Begin all the same, and say so in the document.
    Ignore,
}

/// What becomes of a run's changes when it doesn't succeed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum OnFailure {
    /// They stay.
    #[default]
    Keep,
    /// They go back by an ordinary rollback; what somebody changed since stays, and the exit code stays
    /// that of the run.
    Rollback,
}

/// Whether files must have changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum ExpectChanges {
    /// They may or may not.
    #[default]
    Any,
    /// None may.
    None,
    /// At least one must.
    Some,
}

/// A class that a caller can tolerate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Tolerable {
    /// Done, but with a named limit.
    AcceptedLimitation,
    /// Some of several effects were applied.
    Partial,
    /// A budget ran out.
    BudgetExhausted,
    /// What was asked to hold doesn't.
    ExpectationFailed,
}

impl Tolerable {
    fn class(self) -> ExitClass {
        match self {
            Self::AcceptedLimitation => ExitClass::AcceptedLimitation,
            Self::Partial => ExitClass::Partial,
            Self::BudgetExhausted => ExitClass::BudgetExhausted,
            Self::ExpectationFailed => ExitClass::ExpectationFailed,
        }
    }
}

impl RunArgs {
    pub(super) fn inputs(&self) -> Vec<PathBuf> {
        let files = self.file.iter().chain(&self.provider.cassette).chain(&self.output_schema).cloned();
        self.policy.inputs().into_iter().chain(files).collect()
    }
}

pub(super) fn dispatch(
    host: &Host,
    redactor: &app::Redactor,
    common: &Common,
    args: RunArgs,
    output: &Output,
    stop: app::run::Stop,
) -> Done {
    if args.die_with_parent {
        signals::end_with_parent().map_err(|error| app::run::cannot_start(&error))?;
    }
    let source = match (args.prompt, args.text, args.file) {
        (Some(dash), _, _) if dash == "-" => PromptSource::Stdin,
        (Some(text), _, _) | (_, Some(text), _) => PromptSource::Text(text),
        (_, _, Some(file)) if file.as_os_str() == "-" => PromptSource::Stdin,
        (_, _, Some(file)) => PromptSource::File(file),
        (None, None, None) => return Err(app::run::prompt_missing()),
    };
    let session = match (args.resume, args.go_on, args.fork) {
        (Some(text), _, true) => SessionChoice::Fork(text),
        (None, true, true) => SessionChoice::Fork("last".to_owned()),
        (Some(text), _, false) => SessionChoice::Resume(text),
        (None, true, false) => SessionChoice::Resume("last".to_owned()),
        (None, false, false) => SessionChoice::New,
        (None, false, true) => {
            let action = "name the session with -r SESSION, or the latest with -c".to_owned();
            return Err(app::usage("--fork needs a session to copy", Some(action)));
        }
    };
    let options = RunOptions {
        prompt: source,
        stdin_timeout: args.stdin_timeout,
        label: args.label,
        max_iterations: args.max_iterations,
        max_output_tokens: args.max_output_tokens,
        limited: Limited {
            tool_calls: args.max_tool_calls,
            total_tokens: args.max_total_tokens,
            wall_time: args.max_wall_time,
        },
        max_retries: args.max_retries,
        heartbeat: args.heartbeat,
        verify: args.verify,
        verify_rounds: args.verify_rounds,
        on_failure: match args.on_failure {
            OnFailure::Keep => app::run::OnFailure::Keep,
            OnFailure::Rollback => app::run::OnFailure::Rollback,
        },
        expect_changes: match args.expect_changes {
            ExpectChanges::Any => ExpectedChanges::Any,
            ExpectChanges::None => ExpectedChanges::None,
            ExpectChanges::Some => ExpectedChanges::Some,
        },
        output_schema: args.output_schema,
        tolerate: args.tolerate.into_iter().map(Tolerable::class).collect(),
        policy: args.policy.app(),
        provider: args.provider.app(),
        keep: KeepOptions {
            session,
            ephemeral: args.ephemeral,
            wait_lock: args.wait_lock,
            on_interrupted: match args.on_interrupted {
                OnInterrupted::Reconcile => keeping::OnInterrupted::Reconcile,
                OnInterrupted::RequireClean => keeping::OnInterrupted::RequireClean,
                OnInterrupted::Ignore => keeping::OnInterrupted::Ignore,
            },
            max_files_changed: args.max_files_changed,
            max_bytes_written: args.max_bytes_written,
        },
    };
    let stream = output.is_stream().then(|| output.stream());
    app::run::run(host, redactor, common, options, stop, &mut |session, payload: StreamPayload| {
        if matches!(payload, StreamPayload::TurnStart { .. }) {
            output.turn_begins();
        }
        if let Some(stream) = &stream {
            stream.tell(session, payload);
        }
    })
}

/// A length of time such as `30s`, `2m`, `500ms`; a bare number counts seconds.
fn duration(text: &str) -> Result<Duration, String> {
    match wait(text)? {
        Duration::ZERO => Err("a time of zero would end everything at once".to_owned()),
        time => Ok(time),
    }
}

/// As [`duration`]; not to wait at all is a way to wait.
fn wait(text: &str) -> Result<Duration, String> {
    let digits = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits).unwrap_or((text, ""));
    let number: u64 =
        number.parse().map_err(|_| "write a whole number and a unit: 500ms, 30s, 2m, 1h".to_owned())?;
    let millis = match unit {
        "ms" => Some(number),
        "" | "s" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        _ => return Err(format!("{unit:?} is not a unit: write ms, s, m or h")),
    };
    match millis {
        Some(millis) if millis <= 86_400_000 => Ok(Duration::from_millis(millis)),
        _ => Err("over a day".to_owned()),
    }
}
