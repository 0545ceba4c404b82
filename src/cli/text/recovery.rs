//! What was interrupted, for a person: state, risk and next step on one screen.

use super::{Lines, class_line, counted};
use crate::contract::recovery::{RecoveredOperation, RecoveryResult, RiskSeverity};

/// Operations that are told one by one.
const MOST_OPERATIONS: usize = 4;

pub(super) fn recovery(document: &RecoveryResult) -> String {
    let mut lines = Lines::default();
    lines.line(&document.heading);
    lines.line(&document.purpose);
    if !document.workspace.is_empty() {
        lines.line(&format!("workspace: {}", document.workspace));
    }
    for told in document.operations.iter().take(MOST_OPERATIONS) {
        operation(&mut lines, told);
    }
    let more = document.operations.len().saturating_sub(MOST_OPERATIONS);
    if more > 0 {
        lines.line("");
        lines.line(&format!("{more} more, see operations[] in the document (--json, or -o FILE)"));
    }
    lines.line("");
    if let Some(failure) = &document.failure {
        lines.line(&format!("{}: {}", failure.cause_code.token(), failure.message));
    }
    let body = document.body.as_deref().unwrap_or("told above");
    lines.line(&class_line(document.exit_class, body));
    let events = counted(document.events, "event");
    lines.line(&format!("{events} checked, {}", document.authenticity.token()));
    lines.line(&format!("next: {}", document.next_step));
    lines.0
}

fn operation(lines: &mut Lines, told: &RecoveredOperation) {
    lines.line("");
    let tool = told.tool.as_deref().unwrap_or("unknown");
    let target = told.target.as_deref().map(|path| format!(" {path}")).unwrap_or_default();
    lines.line(&format!("operation {}: {tool}{target}", told.operation_id));
    if let Some(at) = told.proposed_at {
        lines.line(&format!("  proposed:  {at}"));
    }
    let state = serde_word(&told.journal_state);
    let state = match (&told.live_owner, told.settled, &told.resolution) {
        (Some(pid), ..) => format!("{state}: process {pid} is working on it"),
        (None, true, Some(resolution)) => format!("{}, settled: {resolution}", told.operation_state),
        (None, _, Some(resolution)) => format!("{state}; it comes to: {resolution}"),
        (None, _, None) => match &told.unresolved {
            Some(why) => format!("{state}; not proven: {why}"),
            None => state,
        },
    };
    lines.line(&format!("  state:     {state}"));
    if let Some(seen) = told.evidence {
        lines.line(&format!(
            "  on disk:   the target is {}, the temporary file is {}",
            words(seen.target.token()),
            words(seen.temp.token())
        ));
    }
    if let Some(left) = &told.left {
        lines.line(&format!("  left:      {left}"));
    }
    let severity = match told.residual_risk.severity {
        RiskSeverity::None => "none",
        RiskSeverity::Low => "low",
        RiskSeverity::High => "high",
    };
    lines.line(&format!("  risk:      {severity}. {}", told.residual_risk.description));
    lines.line(&format!("  images:    {}", serde_word(&told.checkpoint_material)));
    lines.line(&format!("  next:      {}", told.next_step));
}

/// What a sighting means, for somebody who doesn't know the words.
fn words(token: &str) -> &str {
    match token {
        "absent" => "absent",
        "pre" => "as it was before",
        "post" => "as it was to become",
        "partial" => "a write that was cut off",
        "else" => "something else",
        other => other,
    }
}

/// The word that the document has for a value of a closed list.
fn serde_word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}
