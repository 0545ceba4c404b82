//! The gate: shape, resolve, decide, and only then act. The sole caller of `decide` for calls and
//! of tools; nothing may pass it by.

use std::sync::{Arc, Mutex, atomic::AtomicBool};

use super::{
    command::{self, Around, Commanded},
    keeper::{KeepError, Keeper},
};
use crate::{
    contract::turn::{DecidedBy, Decision as ToldDecision, DecisionOutcome},
    host::CrashPoint,
    id::OperationId,
    journal::{Payload, Provenance},
    mutation::{Applied, Ended, Refusal},
    policy::{
        decide::{decide, decide_operator},
        matrix::Mode,
        set::PolicySet,
        verdict::{Because, Decision, Verdict},
    },
    provider::message::{Call, ToolSpec},
    tool::{
        self, Action, ArgumentLimits, BadArguments, Done, Reading, Resolved, Tool, ToolContext,
        ToolError, Writing,
        command::{RunCommand, Surroundings},
        finish::Finish,
        write_files,
    },
    workspace::Root,
};

/// What became of a proposal at the gate.
pub(super) enum Judged {
    /// It may run.
    Allowed { work: Work, verdict: Verdict },
    /// It may not.
    Refused { resolved: Resolved, verdict: Verdict },
    /// It ends the turn.
    Finish(Finish),
    /// It can't be read, so it was never judged.
    Malformed(BadArguments),
}

/// What was allowed, bound to what it was allowed for.
pub(super) struct Work {
    pub(super) doing: Doing,
    pub(super) resolved: Resolved,
    /// Who asks for it.
    pub(super) proposer: Provenance,
}

/// A command of the caller's, judged.
pub(super) enum Operator {
    /// It may run.
    Allowed(Box<Work>, Verdict),
    /// It may not.
    Refused(Verdict),
}

/// What is to be done.
pub(super) enum Doing {
    /// Reading: touches nothing.
    Read(Reading),
    /// Writing: only through the keeper.
    Write(Writing),
    /// Running: only after the keeper has made its intent durable.
    Run(RunCommand),
}

/// What the gate holds for the length of a turn.
pub(super) struct Gate {
    policy: Arc<PolicySet>,
    context: ToolContext,
    keeper: Option<Arc<Mutex<Keeper>>>,
    surroundings: Arc<Mutex<Surroundings>>,
}

impl Work {
    /// Whether it changes nothing, so that it may be left behind.
    pub(super) fn only_reads(&self) -> bool {
        match self.doing {
            Doing::Read(_) => true,
            Doing::Write(_) | Doing::Run(_) => false,
        }
    }
}

impl Gate {
    pub(super) fn new(
        policy: Arc<PolicySet>,
        root: Arc<Root>,
        stop: Arc<AtomicBool>,
        keeper: Option<Arc<Mutex<Keeper>>>,
        surroundings: Surroundings,
    ) -> Self {
        let surroundings = Arc::new(Mutex::new(surroundings));
        let judging = Arc::clone(&policy);
        let judge = Arc::new(move |call: &_| decide(&judging, call).allows());
        Self { policy, context: ToolContext { root, judge, stop }, keeper, surroundings }
    }

    /// The tools that the model may propose: those that the policy doesn't deny for every input.
    pub(super) fn offered(&self) -> Vec<ToolSpec> {
        Tool::ALL
            .into_iter()
            .filter(|tool| !tool.mutating() || self.policy.settings().mode == Mode::Build)
            .filter(|tool| *tool == Tool::Finish || !self.policy.denies_every_call(tool.name()))
            .map(|tool| ToolSpec {
                name: tool.name().to_owned(),
                description: tool.description().to_owned(),
                input_schema: tool.input_schema(),
            })
            .collect()
    }

    pub(super) fn judge(&self, call: &Call) -> Judged {
        self.try_judge(call).unwrap_or_else(Judged::Malformed)
    }

    fn try_judge(&self, call: &Call) -> Result<Judged, BadArguments> {
        let tool = Tool::named(&call.name).ok_or_else(|| {
            let known = Tool::ALL.map(Tool::name).join(", ");
            BadArguments::form(format!("there is no tool {:?}; the tools are {known}", call.name))
        })?;
        let arguments = tool::args::read(&call.arguments, argument_limits(&self.policy))?;
        let doing = match tool.action(arguments.clone())? {
            Action::Finish(finish) => return Ok(Judged::Finish(finish)),
            Action::Read(reading) => Doing::Read(reading),
            Action::Write(writing) => Doing::Write(writing),
            Action::Command(command) => Doing::Run(command),
        };
        let resolved = tool::resolve(&self.context.root, tool.name(), &arguments)?;
        let verdict = decide(&self.policy, &resolved.call);
        Ok(if verdict.allows() {
            Judged::Allowed { work: Work { doing, resolved, proposer: Provenance::Model }, verdict }
        } else {
            Judged::Refused { resolved, verdict }
        })
    }

    /// Judges a command of the caller's: boundaries, denies and walls hold for it too.
    pub(super) fn judge_operator(&self, argv: &[String]) -> Result<Operator, BadArguments> {
        let tool = Tool::RunCommand.name();
        let arguments = tool::args::Arguments::from_iter([("argv".to_owned(), argv.into())]);
        let resolved = tool::resolve(&self.context.root, tool, &arguments)?;
        let verdict = decide_operator(&self.policy, &resolved.call);
        if !verdict.allows() {
            return Ok(Operator::Refused(verdict));
        }
        let input = RunCommand { argv: argv.to_vec(), cwd: None, timeout_ms: None };
        let work = Work { doing: Doing::Run(input), resolved, proposer: Provenance::Deterministic };
        Ok(Operator::Allowed(Box::new(work), verdict))
    }

    /// Whether a call of this name is refused by the work mode alone.
    pub(super) fn refuses_by_mode(&self, tool: &str) -> bool {
        self.policy.settings().mode == Mode::Plan && Tool::named(tool).is_some_and(Tool::mutating)
    }

    /// Does what was allowed, off the loop's thread, so that a signal is seen meanwhile.
    pub(super) async fn run(
        &self,
        operation: OperationId,
        work: Work,
        judged: Vec<Payload>,
    ) -> Result<Ran, KeepError> {
        let (context, keeper) = (self.context.clone(), self.keeper.clone());
        let surroundings = Arc::clone(&self.surroundings);
        let done = tokio::task::spawn_blocking(move || {
            act(work, &context, keeper.as_deref(), &surroundings, operation, judged)
        });
        match done.await {
            Ok(result) => result,
            Err(broken) => match broken.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Ok(Ran::Failed { message: ToolError::Stopped.to_string() }),
            },
        }
    }
}

/// What came of something that was allowed.
pub(super) enum Ran {
    /// It told something.
    Told(String),
    /// It changed a file.
    Changed { path: String, applied: Applied, told: String },
    /// It was started.
    Commanded(Box<Commanded>),
    /// It ran and failed; nothing changed.
    Failed { message: String },
    /// It was refused before anything could happen.
    Refused { message: String },
    /// A change of a file was refused before anything could happen, or given up with nothing changed.
    NotMade { given_up: bool, refusal: Refusal },
    /// The turn may not write this as well.
    OverWriteSet { message: String },
    /// It can't be proven.
    Unknown { path: String, message: String },
}

/// Why a change of what a symbolic link leads to is refused.
const BEHIND_SYMLINK: &str = "behind-symlink";

fn act(
    work: Work,
    context: &ToolContext,
    keeper: Option<&Mutex<Keeper>>,
    surroundings: &Mutex<Surroundings>,
    operation: OperationId,
    judged: Vec<Payload>,
) -> Result<Ran, KeepError> {
    match work.doing {
        Doing::Run(input) => {
            let around = Around {
                root: &context.root,
                stop: &context.stop,
                keeper,
                surroundings,
                proposer: work.proposer,
            };
            command::run(&input, &work.resolved, around, operation, judged)
        }
        Doing::Read(reading) => {
            // Held only afterwards: a reading that is left behind must not hold the run's end up.
            let result = reading.run(&work.resolved, context);
            let Some(mut keeper) = keeper.and_then(|keeper| keeper.lock().ok()) else {
                return Ok(read_ended(result));
            };
            let end = match &result {
                Ok(_) => Payload::OperationSucceeded {},
                Err(_) => Payload::OperationFailed { cause: "tool-failed".to_owned() },
            };
            if let (Ok(done), Some(path)) = (&result, work.resolved.inside())
                && let Some(digest) = done.digest
            {
                keeper.saw(path, digest);
            }
            keeper.note(operation, judged.into_iter().chain([end]).collect())?;
            Ok(read_ended(result))
        }
        Doing::Write(writing) => {
            let held = keeper.and_then(|keeper| keeper.lock().ok());
            let (Some(mut keeper), Some(path)) = (held, work.resolved.inside()) else {
                return Ok(Ran::Failed {
                    message: "nothing can be kept, so nothing is changed".to_owned(),
                });
            };
            keeper.note(operation, judged)?;
            keeper.crash_point(CrashPoint::Proposed);
            if work.resolved.look.as_ref().is_some_and(|look| look.is_link) {
                keeper.note(
                    operation,
                    vec![Payload::OperationBlocked { cause: BEHIND_SYMLINK.to_owned() }],
                )?;
                let given = work.resolved.target().unwrap_or_else(|| path.to_owned());
                let message = format!(
                    "{given} is a symbolic link, and nothing is written through one; it leads to {path} \
                     [{BEHIND_SYMLINK}]"
                );
                return Ok(Ran::Refused { message });
            }
            if let Some(message) = keeper.over_write_set(path, &writing) {
                keeper.note(
                    operation,
                    vec![Payload::OperationBlocked { cause: "write-set-limit".to_owned() }],
                )?;
                return Ok(Ran::OverWriteSet { message });
            }
            Ok(match keeper.change(operation, path, &writing)? {
                Ended::Applied(applied) => {
                    let told = write_files::told(path, &applied);
                    Ran::Changed { path: path.to_owned(), applied, told }
                }
                Ended::Refused(refusal) => Ran::NotMade { given_up: false, refusal },
                Ended::Failed(refusal) => Ran::NotMade { given_up: true, refusal },
                Ended::Unknown(refusal) => {
                    Ran::Unknown { path: path.to_owned(), message: refusal.message }
                }
            })
        }
    }
}

fn read_ended(result: Result<Done, ToolError>) -> Ran {
    match result {
        Ok(done) => Ran::Told(done.text),
        Err(error) => Ran::Failed { message: error.to_string() },
    }
}

/// The limits on a call's arguments that the policy states.
pub fn argument_limits(policy: &PolicySet) -> ArgumentLimits {
    let settings = policy.settings();
    let depth = u32::try_from(settings.json_depth).unwrap_or(u32::MAX);
    ArgumentLimits { bytes: settings.arg_bytes, depth }
}

/// A verdict as documents carry it.
pub fn decision_of(verdict: &Verdict) -> ToldDecision {
    ToldDecision {
        outcome: outcome_of(verdict.decision),
        because: decided_by(verdict.because),
        cause: verdict.cause.map(str::to_owned),
        rule_id: verdict.rule.as_ref().map(|rule| rule.id.clone()),
        file: verdict.rule.as_ref().map(|rule| rule.file.clone()),
        line: verdict.rule.as_ref().map(|rule| rule.line),
    }
}

fn outcome_of(decision: Decision) -> DecisionOutcome {
    match decision {
        Decision::Allow => DecisionOutcome::Allow,
        Decision::Ask => DecisionOutcome::Ask,
        Decision::Deny => DecisionOutcome::Deny,
    }
}

fn decided_by(because: Because) -> DecidedBy {
    match because {
        Because::Rule => DecidedBy::Rule,
        Because::Matrix => DecidedBy::Matrix,
        Because::Floor => DecidedBy::Floor,
        Because::Default => DecidedBy::Default,
        Because::Unresolved => DecidedBy::Unresolved,
        Because::Limit => DecidedBy::Limit,
        Because::BadArguments => DecidedBy::BadArguments,
    }
}
