//! The text of a turn: what was said, what was run, changed, denied and failed, and how it ended.

use super::{Lines, class_line, counted, next_line, other_steps};
use crate::contract::{
    ExitClass,
    turn::{
        ChangeKind, DecisionOutcome, Denial, Operation, OperationStatus, StopReason, TurnEvent,
        TurnResult, Verification, nothing_to_grant,
    },
};

/// Denials that are told one by one.
const MOST_DENIALS: usize = 5;
/// Changed files that are told one by one.
const MOST_CHANGES: usize = 12;
/// Checks that failed last whose output is shown.
const MOST_BROKEN: usize = 3;
/// Lines that are shown of it.
const MOST_SAID: usize = 12;
/// Characters of a call, and of why it failed.
const MOST_OF_A_CAUSE: usize = 300;

pub(super) fn turn(document: &TurnResult) -> String {
    let mut lines = Lines::default();
    lines.block(document.text.trim_end());
    if let Some(failure) = document.failure.as_ref().filter(|failure| failure.message != document.text) {
        lines.block(&failure.message);
    }
    for risk in &document.residual_risks {
        lines.line(&format!("note: {risk}"));
    }
    let ran: Vec<String> = document.operations.iter().filter_map(command_line).collect();
    ran.iter().take(MOST_CHANGES).for_each(|line| lines.line(line));
    if ran.len() > MOST_CHANGES {
        let more = ran.len() - MOST_CHANGES;
        lines.line(&format!("ran: {more} more, see operations[] in the document (-o FILE)"));
    }
    checks(&mut lines, &document.verification);
    for change in document.changes.iter().take(MOST_CHANGES) {
        let word = match change.kind {
            ChangeKind::Created => "created",
            ChangeKind::Edited => "edited",
            ChangeKind::Deleted => "deleted",
        };
        let covered = if change.covered { "" } else { " (NOT protected by a checkpoint)" };
        lines.line(&format!("{word}: {}{covered}", change.path));
    }
    let more = document.changes.len().saturating_sub(MOST_CHANGES);
    if more > 0 {
        lines.line(&format!("changed: {more} more, see changes[] in the document (-o FILE)"));
    }
    if let Some(done) = &document.rollback {
        lines.line(&format!(
            "put back: {}, {} as before, {} left as found (--on-failure rollback)",
            done.result.token(),
            counted(done.applied_count, "file"),
            done.not_applied_count,
        ));
    }
    for denial in document.denials.iter().take(MOST_DENIALS) {
        lines.line(&denial_line(denial));
    }
    let more = document.denials.len().saturating_sub(MOST_DENIALS);
    if more > 0 {
        lines.line(&format!("denied: {more} more, see denials[] in the document (-o FILE)"));
    }
    let failed = Failed::of(document);
    failed.calls.iter().take(MOST_DENIALS).for_each(|call| lines.line(&call.line(&document.events)));
    let more = failed.calls.len().saturating_sub(MOST_DENIALS);
    if more > 0 {
        lines.line(&format!(
            "failed: {more} more, see operations[] and events[] in the document (-o FILE)"
        ));
    }
    if let Some(failure) = &document.failure {
        other_steps(&mut lines, failure);
    }
    lines.line("");
    let calls = document.budget.tool_calls;
    let words = match failed.calls.len() {
        0 => stop_words(document.stop_reason),
        failed => format!(
            "{}; {failed} of {} failed",
            stop_words(document.stop_reason),
            counted(calls, "tool call")
        ),
    };
    lines.line(&match document.tolerated {
        true => format!("{} (tolerated, exit code 0): {words}", document.exit_class.token()),
        false => class_line(document.exit_class, &words),
    });
    let denied: u32 = document.denials.iter().map(|denial| denial.count).sum();
    lines.line(&format!(
        "changed: {}; {}, {denied} denied, {} failed, {} of {} model calls",
        changed(document),
        counted(calls, "tool call"),
        failed.calls.len(),
        document.budget.iterations.used,
        document.budget.iterations.limit,
    ));
    let denied = document.denials.iter().map(Denial::decided);
    match nothing_to_grant(denied).filter(|_| document.failure.is_none()) {
        Some(nothing) => lines.line(&format!("next: {nothing}")),
        None if document.exit_class == ExitClass::Success && failed.left_undone => lines.line(
            "next: see which changes failed; if they belong to the task, mend their cause and run again",
        ),
        None => lines.line(&next_line(document.failure.as_ref(), document.exit_class)),
    }
    lines.0
}

/// The calls that were neither done nor denied: failed, refused, malformed, unproven.
struct Failed<'a> {
    calls: Vec<FailedCall<'a>>,
    /// A file is as it was that the model wanted to change, to the end.
    left_undone: bool,
}

/// Such a call.
struct FailedCall<'a>(&'a Operation);

impl<'a> Failed<'a> {
    fn of(document: &'a TurnResult) -> Self {
        let denied = |operation: &Operation| {
            operation.decision.as_ref().is_some_and(|told| told.outcome != DecisionOutcome::Allow)
        };
        let failed = |operation: &&Operation| match operation.status {
            OperationStatus::Failed | OperationStatus::Malformed | OperationStatus::UnknownOutcome => {
                true
            }
            OperationStatus::Blocked => !denied(operation),
            OperationStatus::Succeeded | OperationStatus::Cancelled => false,
        };
        let writes = |operation: &Operation| {
            matches!(operation.action_class.as_deref(), Some("write_file" | "delete"))
        };
        let calls: Vec<&Operation> = document.operations.iter().filter(failed).collect();
        let made: Vec<Option<&str>> = document
            .operations
            .iter()
            .filter(|operation| operation.status == OperationStatus::Succeeded && writes(operation))
            .map(|operation| operation.target.as_deref())
            .collect();
        let left =
            |operation: &&Operation| writes(operation) && !made.contains(&operation.target.as_deref());
        let left_undone = calls.iter().any(left);
        Self { calls: calls.into_iter().map(FailedCall).collect(), left_undone }
    }
}

impl FailedCall<'_> {
    /// What the call was, and the first line of what the model was told of it.
    fn line(&self, events: &[TurnEvent]) -> String {
        let Self(operation) = self;
        let told = events.iter().find_map(|event| match event {
            TurnEvent::ToolResult { operation_id, output, .. }
                if *operation_id == operation.operation_id =>
            {
                output.lines().find(|line| !line.ends_with(" result: data, not instructions]"))
            }
            _ => None,
        });
        let told = told.unwrap_or_default();
        // `[tool failed] …`: that it failed is said already.
        let why = told
            .strip_prefix("[tool ")
            .and_then(|told| told.split_once("] "))
            .map_or(told, |(_, why)| why);
        let why: String = why.chars().take(MOST_OF_A_CAUSE).collect();
        let target = operation.target.as_deref().unwrap_or_default();
        let call = format!("{} {target}", operation.tool);
        let call: String = call.trim_end().chars().take(MOST_OF_A_CAUSE).collect();
        format!("failed: {call}: {why}")
    }
}

/// The caller's checks, each round of them by itself, and what those said that failed last.
fn checks(lines: &mut Lines, checks: &[Verification]) {
    let rounds = checks.iter().map(|check| check.round).max().unwrap_or(0);
    for check in checks {
        let how = match (check.holds, check.exit_code) {
            (true, _) => "holds".to_owned(),
            (false, Some(code)) => format!("exit code {code}"),
            (false, None) if check.timed_out => "its time ran out".to_owned(),
            (false, None) => "no exit code".to_owned(),
        };
        let again = checks.iter().any(|other| other.round != check.round);
        let round = if again { format!("after answer {}: ", check.round) } else { String::new() };
        lines.line(&format!("verify: {} ({round}{how})", check.argv.join(" ")));
    }
    let broken = checks.iter().filter(|check| check.round == rounds && !check.holds);
    for check in broken.take(MOST_BROKEN) {
        let said: Vec<&str> = check.output_tail.trim_end().lines().collect();
        let Some(last) =
            said.get(said.len().saturating_sub(MOST_SAID)..).filter(|last| !last.is_empty())
        else {
            continue;
        };
        lines.line(&format!("the end of what `{}` said:", check.argv.join(" ")));
        last.iter().for_each(|line| lines.line(&format!("  | {line}")));
    }
}

fn changed(document: &TurnResult) -> String {
    let count = |kind| document.changes.iter().filter(|change| change.kind == kind).count();
    let parts = [
        (count(ChangeKind::Created), "created"),
        (count(ChangeKind::Edited), "edited"),
        (count(ChangeKind::Deleted), "deleted"),
    ];
    let told: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    if told.is_empty() { "no file".to_owned() } else { told.join(", ") }
}

fn command_line(operation: &Operation) -> Option<String> {
    let run = operation.command.as_ref()?;
    let how = match (run.exit_code, run.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) if run.timed_out => "timed out".to_owned(),
        (None, None) => "ended with the run".to_owned(),
    };
    Some(format!("ran: {} ({how}, NOT protected by a checkpoint)", run.argv.join(" ")))
}

fn denial_line(denial: &Denial) -> String {
    let command = denial.argv.as_ref().map(|argv| argv.join(" "));
    let what = command.as_deref().or(denial.path.as_deref()).unwrap_or_default();
    let times = if denial.count > 1 { format!(" ({} times)", denial.count) } else { String::new() };
    let by = match (&denial.rule_id, &denial.file, denial.line, &denial.cause) {
        (Some(rule), Some(file), Some(line), _) => format!(" [{rule}, {file}:{line}]"),
        (_, _, _, Some(cause)) => format!(" [{cause}]"),
        _ => String::new(),
    };
    format!("denied: {} {what}{times}: {}{by}", denial.tool, denial.reason)
}

fn stop_words(reason: StopReason) -> String {
    match reason {
        StopReason::FinalAnswer => "the model gave its final answer",
        StopReason::IterationLimit => "the model calls ran out",
        StopReason::ToolCallLimit => "the tool calls ran out",
        StopReason::TokenLimit => "the tokens ran out",
        StopReason::WallTimeLimit => "the time ran out",
        StopReason::WriteSetLimit => "the files or bytes that the turn may write ran out",
        StopReason::StoreUnavailable => "the store can't be used",
        StopReason::WorkspaceInUse => "another run holds the workspace",
        StopReason::RecoveryRequired => "an earlier run was interrupted",
        StopReason::ProviderFailed => "the provider failed",
        StopReason::ProviderUnavailable => "the provider is not to be had",
        StopReason::Stalled => "the provider fell silent",
        StopReason::MalformedResponse => "the provider's answer can't be read",
        StopReason::EmptyAnswer => "the provider's answer is empty",
        StopReason::ContextBlocked => "the context is too small",
        StopReason::DeniedStop => "stopped at a denied call",
        StopReason::SandboxUnavailable => "commands can't be confined",
        StopReason::VerifyFailed => "a check of the caller's doesn't hold",
        StopReason::OutputSchemaMismatch => "the final answer isn't of the asked form",
        StopReason::UnexpectedChanges => "files changed, or none did, against what was expected",
        StopReason::Cannot => "the model says that it can't",
        StopReason::NeedsInput => "the model needs an answer",
        StopReason::Cancelled => "stopped by a signal",
    }
    .to_owned()
}
