//! A command that was allowed: made ready, its intent made durable, started, watched, and ended in the
//! journal whatever came of it.

use std::{
    sync::{Mutex, atomic::AtomicBool},
    time::Duration,
};

use super::{
    gate::Ran,
    keeper::{KeepError, Keeper},
};
use crate::{
    contract::turn::CommandRun,
    id::OperationId,
    journal::{Payload, Provenance},
    tool::{
        Resolved,
        command::{self, Ended, How, NoEnd, NotRun, Prepared, RunCommand, Surroundings},
    },
    workspace::Root,
};

/// Bytes of the end of an output that a verification tells.
const TAIL: usize = 8 * 1024;

/// What a command needs beside its words.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) root: &'a Root,
    pub(super) stop: &'a AtomicBool,
    pub(super) keeper: Option<&'a Mutex<Keeper>>,
    pub(super) surroundings: &'a Mutex<Surroundings>,
    /// Who asks for it.
    pub(super) proposer: Provenance,
}

/// A command that was started, and what came of it.
pub(super) struct Commanded {
    pub(super) run: CommandRun,
    /// What the model is told.
    pub(super) told: String,
    /// The end of what it said.
    pub(super) tail: String,
    pub(super) outcome: Outcome,
}

/// What is known of a command's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It ran to its end, whatever its code.
    Ran,
    /// It was ended from here.
    Ended,
    /// Some of its processes can't be ended.
    Unknown,
}

/// Runs a command. The keeper is held only to write, so that it isn't in anybody's way meanwhile.
pub(super) fn run(
    input: &RunCommand,
    resolved: &Resolved,
    around: Around<'_>,
    operation: OperationId,
    judged: Vec<Payload>,
) -> Result<Ran, KeepError> {
    let held = || around.keeper.and_then(|keeper| keeper.lock().ok());
    let Some(mut keeper) = held() else {
        return Ok(Ran::Failed { message: "nothing can be kept, so nothing is run".to_owned() });
    };
    keeper.note_as(around.proposer, operation, judged)?;
    let prepared = match prepare(input, resolved, around) {
        Ok(prepared) => prepared,
        Err(not_run) => {
            keeper.note(operation, vec![failed(not_run.cause)])?;
            return Ok(Ran::Failed { message: format!("{not_run} [{}]", not_run.cause) });
        }
    };
    let intent = keeper.dispatch_command(operation)?;
    drop(keeper);
    let ended = command::run(&prepared, &intent, around.stop, |spawned| match held() {
        Some(mut keeper) => keeper.spawned(operation, spawned),
        None => Ok(()),
    });
    let Some(mut keeper) = held() else {
        return Ok(Ran::Failed { message: "nothing can be kept any more".to_owned() });
    };
    match ended {
        Err(NoEnd::Kept(error)) => Err(unrecorded(error)),
        Err(NoEnd::Spawn(error)) => {
            keeper.note(operation, vec![failed("spawn-failed")])?;
            Ok(Ran::Failed { message: format!("it can't be started: {error} [spawn-failed]") })
        }
        Ok(ended) => {
            let (outcome, terminal) = match (ended.left, ended.how) {
                (0, How::Exited(_) | How::Signalled(_)) => {
                    (Outcome::Ran, Payload::OperationSucceeded {})
                }
                (0, How::TimedOut) => (Outcome::Ended, failed("timed-out")),
                (0, How::Stopped) => (Outcome::Ended, failed("stopped")),
                _ => {
                    let cause = "processes-left".to_owned();
                    (Outcome::Unknown, Payload::OperationUnknownOutcome { cause })
                }
            };
            keeper.note(operation, vec![terminal]).map_err(unrecorded)?;
            let told = command::told(&ended, prepared.timeout);
            let tail = ended.output.last(TAIL);
            let run = record(resolved, &prepared, &ended);
            Ok(Ran::Commanded(Box::new(Commanded { run, told, tail, outcome })))
        }
    }
}

fn prepare(input: &RunCommand, resolved: &Resolved, around: Around<'_>) -> Result<Prepared, NotRun> {
    let found = resolved.command().zip(resolved.look.as_ref());
    let surroundings = around.surroundings.lock().ok();
    match (found, surroundings) {
        (Some((command, directory)), Some(mut surroundings)) => {
            surroundings.prepare(around.root, input, command, directory)
        }
        _ => Err(NotRun::lost()),
    }
}

/// It ran, and the journal has no end of it.
fn unrecorded(error: KeepError) -> KeepError {
    KeepError::Unrecorded(Box::new(error))
}

fn failed(cause: &str) -> Payload {
    Payload::OperationFailed { cause: cause.to_owned() }
}

fn record(resolved: &Resolved, prepared: &Prepared, ended: &Ended) -> CommandRun {
    let (exit_code, signal) = match ended.how {
        How::Exited(code) => (Some(code), None),
        How::Signalled(signal) => (None, Some(signal)),
        How::TimedOut | How::Stopped => (None, None),
    };
    let cwd = resolved.inside().filter(|path| !path.is_empty()).unwrap_or(".");
    CommandRun {
        argv: resolved.command().map(|command| command.argv.clone()).unwrap_or_default(),
        cwd: cwd.to_owned(),
        executable: prepared.executable.display().to_string(),
        executable_digest: prepared.digest,
        exit_code,
        signal,
        timed_out: ended.how == How::TimedOut,
        duration_ms: millis(ended.duration),
        output_bytes: ended.output.total(),
        background_processes: ended.background,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
