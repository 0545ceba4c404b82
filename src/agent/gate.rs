//! The gate: shape, resolve, decide, and only then act. The sole caller of `decide` for calls and
//! of tools; nothing may pass it by.

use std::sync::{Arc, atomic::AtomicBool};

use crate::{
    contract::turn::{DecidedBy, Decision as ToldDecision, DecisionOutcome},
    policy::{
        decide::decide,
        set::PolicySet,
        verdict::{Because, Decision, Verdict},
    },
    provider::message::{Call, ToolSpec},
    tool::{
        self, Action, ArgumentLimits, BadArguments, Reading, Resolved, Tool, ToolContext, ToolError,
        finish::Finish,
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

/// A reading that was allowed, bound to what it was allowed for.
pub(super) struct Work {
    reading: Reading,
    pub(super) resolved: Resolved,
}

/// What the gate holds for the length of a turn.
pub(super) struct Gate {
    policy: Arc<PolicySet>,
    context: ToolContext,
}

impl Gate {
    pub(super) fn new(policy: Arc<PolicySet>, root: Arc<Root>, stop: Arc<AtomicBool>) -> Self {
        let judging = Arc::clone(&policy);
        let judge = Arc::new(move |call: &_| decide(&judging, call).allows());
        Self { policy, context: ToolContext { root, judge, stop } }
    }

    /// The tools that the model may propose: those that the policy doesn't deny for every input.
    pub(super) fn offered(&self) -> Vec<ToolSpec> {
        Tool::ALL
            .into_iter()
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
        let reading = match tool.action(arguments.clone())? {
            Action::Finish(finish) => return Ok(Judged::Finish(finish)),
            Action::Read(reading) => reading,
        };
        let resolved = tool::resolve(&self.context.root, tool.name(), &arguments)?;
        let verdict = decide(&self.policy, &resolved.call);
        Ok(if verdict.allows() {
            Judged::Allowed { work: Work { reading, resolved }, verdict }
        } else {
            Judged::Refused { resolved, verdict }
        })
    }

    /// Does what was allowed, off the loop's thread, so that a signal is seen meanwhile.
    pub(super) async fn run(&self, work: Work) -> Result<String, ToolError> {
        let context = self.context.clone();
        let done = tokio::task::spawn_blocking(move || work.reading.run(&work.resolved, &context)).await;
        match done {
            Ok(result) => result,
            Err(broken) => match broken.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(ToolError::Stopped),
            },
        }
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
