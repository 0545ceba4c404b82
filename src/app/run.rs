//! `run`: everything that must hold before the first model call, then one turn.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use super::{
    Common, Ended, Fail, ProviderOptions, Redactor,
    failure::out_of_resources,
    input,
    keeping::{self, KeepOptions},
    observe::Scrubbed,
    policy_files::{self, NoPolicy, PolicyOptions, guarded},
    prompt::{self, PromptSource},
    providers, rollback,
};
pub use crate::agent::{ExpectedChanges, Limited, Stop};
use crate::{
    agent::{Expectations, Keeper, NotBegun, Setup, TurnInput, TurnLimits, TurnState, run_turn},
    contract::{
        CauseCode, ExitClass, Failure,
        stream::StreamPayload,
        turn::{StopReason, TurnResult},
        validate::OutputSchema,
    },
    host::Host,
    id::{SessionId, TurnId},
    policy::{
        command::{shown, words},
        set::Settings,
    },
    store::{StatePlace, Store},
    tool::{self, Tool, args::Arguments, command::Surroundings},
    workspace::Root,
};

/// A schema of the caller's has at most this many bytes.
const MOST_SCHEMA_BYTES: u64 = 1 << 20;

/// What becomes of a run's changes when it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// They stay.
    Keep,
    /// They go back, as far as nobody has changed what they left.
    Rollback,
}

/// What the caller asks of a run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Where the task comes from.
    pub prompt: PromptSource,
    /// How long standard input may stay open and silent.
    pub stdin_timeout: Duration,
    /// The caller's own name for the run.
    pub label: Option<String>,
    /// Model calls, where the caller says.
    pub max_iterations: Option<u32>,
    /// Tokens of one reply.
    pub max_output_tokens: u64,
    /// Tool calls, tokens in all and time, where the caller says.
    pub limited: Limited,
    /// How often a failed model call is made again.
    pub max_retries: u32,
    /// How often standard error is told that something is still at work.
    pub heartbeat: Duration,
    /// Commands that must end with 0 after the final answer, as they were written.
    pub verify: Vec<String>,
    /// What becomes of the changes when the run fails.
    pub on_failure: OnFailure,
    /// How often the model may mend what they find.
    pub verify_rounds: u32,
    /// Whether files must have changed.
    pub expect_changes: ExpectedChanges,
    /// A file with the JSON Schema of the final answer.
    pub output_schema: Option<PathBuf>,
    /// The classes that end with the exit code 0.
    pub tolerate: Vec<ExitClass>,
    /// Which policy holds.
    pub policy: PolicyOptions,
    /// Who answers.
    pub provider: ProviderOptions,
    /// What is kept.
    pub keep: KeepOptions,
}

/// No prompt was given.
pub fn prompt_missing() -> Fail {
    let failure = Failure::new(CauseCode::PromptMissing, "no prompt was given")
        .action("say what is to be done: thcode run [FLAGS] 'PROMPT', or -p TEXT, or -f FILE, or - for standard input");
    Fail::usage(failure)
}

/// The process can't listen to signals or make its runtime.
pub fn cannot_start(error: &io::Error) -> Fail {
    out_of_resources(error).unwrap_or_else(|| Fail::internal(format!("it can't be started: {error}")))
}

/// Runs one turn. `observe` is told what happens, as it happens.
pub fn run(
    host: &Host,
    redactor: &Redactor,
    common: &Common,
    options: RunOptions,
    stop: Stop,
    observe: &mut dyn FnMut(SessionId, StreamPayload),
) -> Result<Ended, Fail> {
    let root = common.root(host)?;
    root.contains_by_handle().map_err(|error| no_openat2(&error))?;
    let policy =
        policy_files::load_for_run(host, &root, &options.policy).map_err(NoPolicy::into_fail)?;
    let chosen = providers::choose(host, &options.provider)?;
    let expect = expectations(&options)?;
    let prompt = prompt::read(&options.prompt, options.stdin_timeout, &|| *stop.borrow())?;
    let iterations = options.max_iterations.unwrap_or(policy.settings().iterations);
    let ours = common.out_file.iter().chain(&options.provider.cassette).map(std::path::PathBuf::as_path);
    let ours = ours.chain(options.output_schema.as_deref());
    let named = options.policy.files.iter().map(std::path::Path::new);
    let guard = ours.chain(named).filter_map(|file| guarded(&root, file)).collect();
    let policy_in_force = policy_files::in_force(&policy);
    let settings = *policy.settings();
    let surroundings = Surroundings::new(
        host,
        &root,
        policy.passed(),
        &providers::key_variables(&options.provider),
        Duration::from_millis(settings.command_timeout_ms),
    );
    find_programs(&root, &surroundings, &expect.verify)?;
    let policy = policy_files::shared(policy, guard);
    let root = Arc::new(root);
    let turn_id = TurnId::from_uuid(host.uuid());
    let turn = (turn_id, options.label.as_deref());
    let write_set = keeping::write_set(&policy, &options.keep);
    let mut ephemeral = None;
    let (keeper, provider, notes) = match chosen.provider {
        // Nothing is made or locked for a run that can't ask anybody.
        Err(failure) => (
            None,
            Err(NotBegun { stop_reason: StopReason::ProviderFailed, failure, unproven: false }),
            Vec::new(),
        ),
        Ok(provider) => match keeping::open(host, common, &root, &policy, &options.keep, turn)? {
            Ok(kept) => {
                ephemeral = kept.ephemeral;
                (Some(kept.keeper), Ok(provider), kept.notes)
            }
            Err(not_begun) => (None, Err(not_begun), Vec::new()),
        },
    };
    let state = TurnState {
        session_id: keeper
            .as_ref()
            .map_or_else(|| SessionId::from_uuid(host.uuid()), Keeper::session_id),
        turn_id,
        history: match &keeper {
            Some(keeper) => keeper.history()?,
            None => Vec::new(),
        },
        prompt_round: keeper.as_ref().map_or(1, Keeper::prompt_round),
    };
    let mut scrubbed = Scrubbed::new(redactor, observe);
    let setup = Setup {
        host,
        root,
        policy,
        policy_in_force,
        provider,
        keeper,
        notes,
        provider_info: chosen.info,
        limits: TurnLimits {
            iterations,
            max_output_tokens: options.max_output_tokens,
            context_limit: chosen.context_limit,
            write_set,
            limited: limited(&settings, options.limited),
            retries: options.max_retries,
        },
        heartbeat: options.heartbeat,
        expect,
        tolerate: options.tolerate,
        surroundings,
        stop,
        observe: &mut |session, payload| scrubbed.tell(session, payload),
    };
    let input = TurnInput { prompt, label: options.label };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| cannot_start(&error))?;
    let session = state.session_id;
    let mut result = runtime.block_on(run_turn(input, state, setup));
    scrubbed.end(session);
    // A tool that a signal left behind must not hold the document up.
    runtime.shutdown_background();
    if options.on_failure == OnFailure::Rollback {
        put_back(host, common, ephemeral.as_ref(), &mut result);
    }
    if let Some(place) = ephemeral {
        remove_ephemeral(&mut result, &place);
    }
    tell_denials(&result);
    Ok(Ended::Turn(Box::new(result)))
}

/// What the caller asks to hold, read.
fn expectations(options: &RunOptions) -> Result<Expectations, Fail> {
    let verify = options.verify.iter().map(|command| {
        words(command).map_err(|told| {
            let message = format!("--verify '{command}' isn't a command: {told}");
            let action = "write words and quotes alone; put the rest into a script and name that";
            Fail::usage(Failure::new(CauseCode::BadArgument, message).action(action))
        })
    });
    let output = options.output_schema.as_deref().map(|file| {
        let text = input::read_text(file, MOST_SCHEMA_BYTES)?;
        OutputSchema::compile(&text).map(Arc::new).map_err(|told| {
            let message = format!("--output-schema {}: {told}", file.display());
            Fail::usage(Failure::new(CauseCode::OutputSchemaInvalid, message))
        })
    });
    Ok(Expectations {
        verify: verify.collect::<Result<_, _>>()?,
        verify_rounds: options.verify_rounds,
        changes: options.expect_changes,
        output: output.transpose()?,
    })
}

/// Refuses a check whose program isn't there, before the model is paid for work that nothing can prove.
fn find_programs(root: &Root, around: &Surroundings, checks: &[Vec<String>]) -> Result<(), Fail> {
    for argv in checks {
        let arguments = Arguments::from_iter([("argv".to_owned(), argv.as_slice().into())]);
        // What can't be read as a command is told with the other refusals.
        let Ok(resolved) = tool::resolve(root, Tool::RunCommand.name(), &arguments) else { continue };
        let Some(Err(missing)) = resolved.command().map(|command| around.finds(root, command)) else {
            continue;
        };
        let dirs: Vec<_> = around.search().iter().map(|dir| dir.display().to_string()).collect();
        let message = format!("--verify '{}': {missing} [{}]", shown(argv), missing.cause);
        let failure = Failure::new(CauseCode::BadArgument, message)
            .action("install it, or name it by its path (one in the workspace may be made by the task)")
            .action(format!("or put its directory into PATH; looked for in {}", dirs.join(":")));
        return Err(Fail::usage(failure));
    }
    Ok(())
}

/// The budgets that hold: what the caller says, else what the policy says.
fn limited(policy: &Settings, caller: Limited) -> Limited {
    Limited {
        tool_calls: caller.tool_calls.or(policy.tool_calls),
        total_tokens: caller.total_tokens.or(policy.total_tokens),
        wall_time: caller.wall_time.or(policy.wall_time_ms.map(Duration::from_millis)),
    }
}

/// Puts back what a failed run changed, as any rollback does; what somebody changed since stays, and the
/// class stays that of the run.
fn put_back(host: &Host, common: &Common, own: Option<&StatePlace>, result: &mut TurnResult) {
    let failed = !matches!(result.exit_class, ExitClass::Success | ExitClass::AcceptedLimitation);
    if !failed || result.tolerated || result.prompt_round == 0 {
        return;
    }
    let mut common = common.clone();
    if let Some(own) = own {
        common.state.dir = Some(own.dir.clone());
    }
    match rollback::after_run(host, &common, result.turn_id) {
        Ok(done) => {
            if done.exit_class != ExitClass::Success {
                let left = done.not_applied_count;
                result.residual_risks.push(format!(
                    "{left} of the files that this run changed could not be put back: rollback tells which"
                ));
            }
            result.rollback = Some(Box::new(done));
        }
        Err(fail) => match fail.failure.cause_code {
            // It changed nothing that was kept.
            CauseCode::NothingToRollBack | CauseCode::StoreMissing => {}
            _ => {
                let message = format!("this run's changes were not put back: {}", fail.failure.message);
                result.residual_risks.push(message);
            }
        },
    }
}

/// Removes a store that was this run's own; one that may still be needed stays, and is named.
fn remove_ephemeral(result: &mut TurnResult, place: &StatePlace) {
    let clean = result.exit_class != ExitClass::UnknownOutcome
        && result.stop_reason != StopReason::StoreUnavailable;
    match clean.then(|| Store::remove(place)) {
        Some(Ok(())) => result.state_dir = None,
        Some(Err(error)) => tracing::warn!("the store of this run is left: {error}"),
        None => tracing::warn!("the store of this run is kept in {}", place.dir.display()),
    }
}

pub(super) fn no_openat2(error: &io::Error) -> Fail {
    if let Some(fail) = out_of_resources(error) {
        return fail;
    }
    let failure = Failure::new(
        CauseCode::WorkspaceRefused,
        "this kernel or its container profile has no openat2, so paths can't be contained by handle",
    );
    Fail::usage(
        failure.action("run on Linux 5.6 or later, with a container profile that allows openat2"),
    )
}

/// Denials are told in every case, also where they don't change the class.
fn tell_denials(result: &TurnResult) {
    for denial in &result.denials {
        let command = denial.argv.as_deref().map(shown);
        let what = command.as_deref().or(denial.path.as_deref()).unwrap_or_default();
        let by = denial.rule_id.as_deref().or(denial.cause.as_deref()).unwrap_or("default");
        let times = if denial.count > 1 { format!(" ({} times)", denial.count) } else { String::new() };
        tracing::warn!("denied: {} {what}{times}: {} [{by}]", denial.tool, denial.reason);
    }
}
