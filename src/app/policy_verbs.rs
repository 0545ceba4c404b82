//! `policy check` and `policy explain`.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    Common, Ended, Fail, input,
    policy_files::{
        NoPolicy, PolicyOptions, files_in_force, load_for_run, load_named, mode_of, profile_of, told,
    },
};
use crate::{
    agent::{argument_limits, decision_of},
    contract::{
        CauseCode, ExitClass, Failure, TOOL_VERSION,
        policy_report::{
            Explanation, MatchedRule, NearMiss, PolicyReport, PolicyReportSchema, PolicyVerb,
            SubjectTrace,
        },
        turn::{DecidedBy, Decision as ToldDecision, DecisionOutcome, nothing_to_grant},
    },
    floor::Location,
    host::Host,
    policy::{
        call::Subject,
        explain::{Trace, explain as trace},
        set::PolicySet,
    },
    tool::{self, BadArguments, Tool, shape},
    workspace::Root,
};

/// A call file has at most this many bytes.
const MOST_BYTES: u64 = 64 << 20;

/// The call that is asked about.
#[derive(Debug, Clone)]
pub enum Question {
    /// Given on the command line.
    Inline {
        /// The tool's name.
        tool: String,
        /// Its arguments as JSON.
        input: String,
    },
    /// A file with both.
    File(PathBuf),
}

/// The form of a call file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallFile<'a> {
    tool: String,
    #[serde(borrow)]
    input: &'a RawValue,
}

/// Checks files: each by itself, and, if each is right, all of them as one bundle for its digest.
pub fn check(host: &Host, common: &Common, paths: &[String]) -> Result<Ended, Fail> {
    let root = Root::open_anywhere(&common.dir())?;
    let files = expanded(paths)?;
    let mut report = empty(PolicyVerb::Check);
    for file in &files {
        match load_named(host, &root, std::slice::from_ref(file), true) {
            Ok(set) => {
                report.rules += count(set.rules().len());
                report.examples += set.examples();
                for file in files_in_force(&set) {
                    if !report.files.contains(&file) {
                        report.files.push(file);
                    }
                }
            }
            Err(NoPolicy::Faults(faults)) => report.diagnostics.extend(told(faults)),
            Err(NoPolicy::Fail(fail)) => return Err(fail),
        }
    }
    if report.diagnostics.is_empty() {
        report.digest = load_named(host, &root, &files, true).ok().map(|set| set.digest());
    } else {
        let faults = report.diagnostics.len();
        let words = if faults == 1 { "fault" } else { "faults" };
        let message = format!("{faults} {words} in the policy files");
        // A broken file is wrong input, not a finding about a sound one.
        set_end(&mut report, ExitClass::Usage, Failure::new(CauseCode::PolicyInvalid, message));
    }
    Ok(Ended::Policy(Box::new(report)))
}

/// Says what would be decided for a call, as a run would decide it.
pub fn explain(
    host: &Host,
    common: &Common,
    options: &PolicyOptions,
    question: &Question,
) -> Result<Ended, Fail> {
    let root = Root::open_anywhere(&common.dir())?;
    let set = load_for_run(host, &root, options).map_err(NoPolicy::into_fail)?;
    let (tool, arguments) = match question {
        Question::Inline { tool, input } => (tool.clone(), input.clone()),
        Question::File(file) => read_call(file)?,
    };
    let explanation = match resolve(&root, &set, &tool, &arguments) {
        Ok(_) if tool == Tool::Finish.name() => ends_the_turn(&set),
        Ok(resolved) => explained(&set, &tool, &trace(&set, &resolved.call), &resolved.call.subjects),
        Err(bad) => not_readable(&set, &tool, &bad),
    };
    let mut report = empty(PolicyVerb::Explain);
    report.digest = Some(set.digest());
    report.files = files_in_force(&set);
    report.rules = count(set.rules().len());
    report.examples = set.examples();
    if explanation.effective != DecisionOutcome::Allow {
        let message = format!("{tool} would not be allowed: {}", explanation.reason);
        let failure = Failure::new(CauseCode::CallNotAllowed, message).action(next(&explanation));
        set_end(&mut report, ExitClass::Blocked, failure);
    }
    report.explanation = Some(explanation);
    Ok(Ended::Policy(Box::new(report)))
}

/// `finish` touches nothing, so that no policy has a say in it.
fn ends_the_turn(set: &PolicySet) -> Explanation {
    let decision = ToldDecision {
        outcome: DecisionOutcome::Allow,
        because: DecidedBy::Matrix,
        cause: None,
        rule_id: None,
        file: None,
        line: None,
    };
    let reason = "`finish` ends the turn and touches nothing: it is always allowed.";
    explanation(set, Tool::Finish.name(), decision, reason.to_owned())
}

/// What can be done about a call that isn't allowed.
fn next(explanation: &Explanation) -> &'static str {
    let decided = (explanation.because, explanation.cause.as_deref());
    match explanation.because {
        DecidedBy::Unresolved if nothing_to_grant([decided]).is_some() => {
            "leave it: no policy can allow this call; the reason above says what to do instead"
        }
        DecidedBy::Floor => "leave it: a hard boundary denies it, and no policy lifts it",
        DecidedBy::BadArguments | DecidedBy::Limit => "mend the call's arguments, and ask again",
        DecidedBy::Rule | DecidedBy::Matrix | DecidedBy::Default | DecidedBy::Unresolved => {
            "read which rule decided and which nearly matched; change the policy if it should"
        }
    }
}

fn resolve(
    root: &Root,
    set: &PolicySet,
    tool: &str,
    arguments: &str,
) -> Result<tool::Resolved, BadArguments> {
    let arguments = tool::args::read(arguments, argument_limits(set))?;
    shape::check(tool, &arguments)?;
    tool::resolve(root, tool, &arguments)
}

fn read_call(file: &Path) -> Result<(String, String), Fail> {
    let text = input::read_text(file, MOST_BYTES)?;
    let call: CallFile<'_> = serde_json::from_str(&text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let message =
            format!("{}:{line}:{column}: not a call: {{\"tool\": …, \"input\": {{…}}}}", file.display());
        Fail::usage(Failure::new(CauseCode::NotJson, message))
    })?;
    Ok((call.tool, call.input.get().to_owned()))
}

fn explained(set: &PolicySet, tool: &str, trace: &Trace, subjects: &[Subject]) -> Explanation {
    let decision = decision_of(&trace.verdict);
    let subjects = subjects.iter().zip(&trace.subjects).map(|(subject, verdict)| {
        let decision = decision_of(verdict);
        subject_trace(subject, &decision)
    });
    let (effect, told) = (|decision| decision_of_effect(decision), &trace.verdict);
    Explanation {
        subjects: subjects.collect(),
        suggest: told.suggest.clone(),
        matched: trace
            .matched
            .iter()
            .map(|rule| MatchedRule {
                rule_id: rule.at.id.clone(),
                effect: effect(rule.effect.decision()),
                file: rule.at.file.clone(),
                line: rule.at.line,
            })
            .collect(),
        near_misses: trace
            .near_misses
            .iter()
            .map(|miss| NearMiss {
                rule_id: miss.rule.at.id.clone(),
                effect: effect(miss.rule.effect.decision()),
                file: miss.rule.at.file.clone(),
                line: miss.rule.at.line,
                condition: miss.failed.condition.clone(),
                saw: miss.failed.saw.clone(),
                wanted: miss.failed.wanted.clone(),
            })
            .collect(),
        ..explanation(set, tool, decision, told.reason.clone())
    }
}

fn decision_of_effect(decision: crate::policy::verdict::Decision) -> DecisionOutcome {
    use crate::policy::verdict::Decision;
    match decision {
        Decision::Allow => DecisionOutcome::Allow,
        Decision::Ask => DecisionOutcome::Ask,
        Decision::Deny => DecisionOutcome::Deny,
    }
}

fn not_readable(set: &PolicySet, tool: &str, bad: &BadArguments) -> Explanation {
    let because = if bad.over_limit { DecidedBy::Limit } else { DecidedBy::BadArguments };
    let cause = if bad.over_limit { "over-limit" } else { "bad-arguments" };
    let decision = ToldDecision {
        outcome: DecisionOutcome::Deny,
        because,
        cause: Some(cause.to_owned()),
        rule_id: None,
        file: None,
        line: None,
    };
    explanation(set, tool, decision, bad.message.clone())
}

fn explanation(set: &PolicySet, tool: &str, decision: ToldDecision, reason: String) -> Explanation {
    let effective = match decision.outcome {
        DecisionOutcome::Allow => DecisionOutcome::Allow,
        DecisionOutcome::Ask | DecisionOutcome::Deny => DecisionOutcome::Deny,
    };
    let class = crate::policy::call::ActionClass::of_tool(tool);
    Explanation {
        tool: tool.to_owned(),
        action_class: class.map(|class| class.token().to_owned()),
        mode: mode_of(set),
        profile: profile_of(set),
        decision: decision.outcome,
        effective,
        because: decision.because,
        cause: decision.cause,
        rule_id: decision.rule_id,
        file: decision.file,
        line: decision.line,
        reason,
        suggest: None,
        subjects: Vec::new(),
        matched: Vec::new(),
        near_misses: Vec::new(),
    }
}

fn subject_trace(subject: &Subject, decision: &ToldDecision) -> SubjectTrace {
    let inside = |location: &Location| match location {
        Location::Inside(path) => Some(path.clone()),
        Location::Outside(_) => None,
    };
    let (decision, because) = (decision.outcome, decision.because);
    match subject {
        Subject::Path { access, path } => SubjectTrace {
            access: access.token().to_owned(),
            given: path.given.clone(),
            lexical: inside(&path.lexical),
            resolved: inside(&path.resolved),
            file_kind: path.kind.token().to_owned(),
            decision,
            because,
        },
        Subject::Command(command) => SubjectTrace {
            access: "exec".to_owned(),
            given: command.shown(),
            lexical: None,
            resolved: None,
            file_kind: "command".to_owned(),
            decision,
            because,
        },
        Subject::Unresolved { given, reason } => SubjectTrace {
            access: "unresolved".to_owned(),
            given: given.clone(),
            lexical: None,
            resolved: None,
            file_kind: (*reason).to_owned(),
            decision,
            because,
        },
    }
}

/// Files as they are, and the policy files of folders, sorted.
fn expanded(paths: &[String]) -> Result<Vec<String>, Fail> {
    let mut files = Vec::new();
    for path in paths {
        if path.starts_with("preset:") || path.starts_with("git:") || !Path::new(path).is_dir() {
            files.push(path.clone());
            continue;
        }
        let unreadable = |error| {
            Fail::usage(Failure::new(
                CauseCode::PolicyUnreadable,
                format!("{path} can't be read: {error}"),
            ))
        };
        let before = files.len();
        for entry in std::fs::read_dir(path).map_err(unreadable)? {
            let file = entry.map_err(unreadable)?.path();
            if file.to_str().is_some_and(|name| name.ends_with(".policy.toml")) {
                files.push(file.display().to_string());
            }
        }
        if files.len() == before {
            let message = format!("the folder {path} has no *.policy.toml");
            return Err(Fail::usage(Failure::new(CauseCode::PolicyUnreadable, message)));
        }
    }
    files.sort();
    files.dedup();
    Ok(files)
}

fn empty(verb: PolicyVerb) -> PolicyReport {
    PolicyReport {
        schema: PolicyReportSchema,
        tool_version: TOOL_VERSION.to_owned(),
        verb,
        digest: None,
        files: Vec::new(),
        rules: 0,
        examples: 0,
        diagnostics: Vec::new(),
        explanation: None,
        failure: None,
        exit_class: ExitClass::Success,
        exit_code: ExitClass::Success.code(),
    }
}

fn set_end(report: &mut PolicyReport, class: ExitClass, failure: Failure) {
    report.failure = Some(failure);
    report.exit_class = class;
    report.exit_code = class.code();
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
