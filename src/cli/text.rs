//! Documents for a person: the same record, ending in three lines: class and code, what was denied
//! or found, the next step.
//!
//! Control characters of foreign text are shown, never sent to a terminal.

use crate::{
    app::{self, Ended},
    contract::{
        ExitClass, Failure, FailureDocument,
        doctor::{DoctorReport, DoctorStatus},
        policy_report::{Explanation, PolicyReport},
        schema_report::SchemaReport,
        turn::DecisionOutcome,
    },
};

mod recovery;
mod rollback;
mod state;
mod turn;

/// The text of a document.
pub(super) fn render(ended: &Ended) -> String {
    let text = match ended {
        Ended::Turn(document) => turn::turn(document),
        Ended::Policy(document) => policy(document),
        Ended::Schema(document) => schema(document),
        Ended::Doctor(document) => doctor(document),
        Ended::Store(document) => state::store(document),
        Ended::Session(document) => state::session(document),
        Ended::Recovery(document) => recovery::recovery(document),
        Ended::RollbackList(document) => rollback::list(document),
        Ended::RollbackPreview(document) => rollback::preview(document),
        Ended::RollbackAnalysis(document) => rollback::analysis(document),
        Ended::RollbackApply(document) => rollback::applied(document),
        Ended::Failure(document) => failure(document),
    };
    app::disarm(&printable(&text), app::Spelling::Text)
}

fn policy(document: &PolicyReport) -> String {
    let mut lines = Lines::default();
    for diagnostic in &document.diagnostics {
        let place = match (diagnostic.line, diagnostic.column) {
            (Some(line), Some(column)) => format!("{}:{line}:{column}", diagnostic.file),
            _ => diagnostic.file.clone(),
        };
        lines.line(&format!("{place}: {}", diagnostic.message));
        if let Some(excerpt) = &diagnostic.excerpt {
            lines.block(excerpt.trim_end());
        }
    }
    if let Some(explanation) = &document.explanation {
        explained(&mut lines, explanation);
    }
    for file in &document.files {
        lines.line(&format!("file: {} {}", file.name, file.digest));
    }
    if let Some(digest) = &document.digest {
        lines.line(&format!("bundle: {digest} (what --policy-digest pins: all these files together)"));
    }
    lines.line("");
    let words = match &document.failure {
        Some(failure) => failure.message.clone(),
        None => "no fault found".to_owned(),
    };
    lines.line(&class_line(document.exit_class, &words));
    let faults = document.diagnostics.len();
    lines.line(&format!(
        "{}, {}, {}",
        counted(document.rules, "rule"),
        counted(document.examples, "example"),
        counted(faults, "fault"),
    ));
    lines.line(&next_line(document.failure.as_ref(), document.exit_class));
    lines.0
}

fn counted(number: impl std::fmt::Display, what: &str) -> String {
    let number = number.to_string();
    let plural = if number == "1" { "" } else { "s" };
    format!("{number} {what}{plural}")
}

fn explained(lines: &mut Lines, explanation: &Explanation) {
    let word = word_of(explanation.decision);
    let effective = match explanation.decision == explanation.effective {
        true => String::new(),
        false => format!(" (with nobody to ask: {})", word_of(explanation.effective)),
    };
    lines.line(&format!("{word}{effective}: {}", explanation.reason));
    if let Some(suggest) = &explanation.suggest {
        lines.line(&format!("suggest: {suggest}"));
    }
    if let (Some(rule), Some(file), Some(line)) =
        (&explanation.rule_id, &explanation.file, explanation.line)
    {
        lines.line(&format!("decided by: {rule} ({file}:{line})"));
    }
    for subject in &explanation.subjects {
        let spelled = |spelling: &Option<String>| match spelling {
            Some(path) if path.is_empty() => "the workspace itself".to_owned(),
            Some(path) => path.clone(),
            None => "outside the workspace".to_owned(),
        };
        // Only a path leads somewhere.
        let place = match subject.access.as_str() {
            "exec" => String::new(),
            "unresolved" => format!(" ({})", subject.file_kind),
            _ => format!(" -> {} ({})", spelled(&subject.resolved), subject.file_kind),
        };
        lines.line(&format!(
            "subject: {} {}{place}: {}",
            subject.access,
            subject.given,
            word_of(subject.decision),
        ));
    }
    for rule in &explanation.matched {
        lines.line(&format!(
            "matched: {} {} ({}:{})",
            word_of(rule.effect),
            rule.rule_id,
            rule.file,
            rule.line
        ));
    }
    for miss in &explanation.near_misses {
        lines.line(&format!(
            "near miss: {} {} ({}:{}): {} saw {}, wants {}",
            word_of(miss.effect),
            miss.rule_id,
            miss.file,
            miss.line,
            miss.condition,
            miss.saw,
            miss.wanted
        ));
    }
}

fn word_of(outcome: DecisionOutcome) -> &'static str {
    match outcome {
        DecisionOutcome::Allow => "allow",
        DecisionOutcome::Deny => "deny",
        DecisionOutcome::Ask => "ask",
    }
}

fn schema(document: &SchemaReport) -> String {
    let mut lines = Lines::default();
    for entry in &document.schemas {
        lines.line(&format!("{:<16} {} ({})", entry.name, entry.describes, entry.id));
    }
    for violation in &document.violations {
        let place = if violation.instance_path.is_empty() { "/" } else { &violation.instance_path };
        lines.line(&format!("{place}: {}: {}", violation.keyword, violation.message));
    }
    lines.line("");
    let words = document.failure.as_ref().map_or("no fault found", |failure| failure.message.as_str());
    lines.line(&class_line(document.exit_class, words));
    let found = document.violations.len();
    lines.line(&format!("{found} {}", if found == 1 { "violation" } else { "violations" }));
    lines.line(&next_line(document.failure.as_ref(), document.exit_class));
    lines.0
}

fn doctor(document: &DoctorReport) -> String {
    let mut lines = Lines::default();
    for check in &document.checks {
        let mark = match check.status {
            DoctorStatus::Ok => "ok",
            DoctorStatus::Refused => "REFUSED",
            DoctorStatus::NotAsked => "not asked",
        };
        lines.line(&format!("{mark:<10} {:<16} {}", check.name, check.detail));
    }
    lines.line("");
    let open = document.checks.iter().any(|check| check.status == DoctorStatus::NotAsked);
    let words = match &document.failure {
        Some(failure) => failure.message.as_str(),
        None if open => "nothing that was looked at refuses a run; what was not asked is open",
        None => "a run would start",
    };
    lines.line(&class_line(document.exit_class, words));
    let count = |wanted| document.checks.iter().filter(|check| check.status == wanted).count();
    lines.line(&format!(
        "{}, {} refused",
        counted(document.checks.len(), "check"),
        count(DoctorStatus::Refused)
    ));
    lines.line(&next_line(document.failure.as_ref(), document.exit_class));
    lines.0
}

fn failure(document: &FailureDocument) -> String {
    let mut lines = Lines::default();
    if let Some(failure) = &document.failure {
        lines.block(&failure.message);
        other_steps(&mut lines, failure);
        lines.line("");
        lines.line(&class_line(document.exit_class, failure.cause_code.token()));
    } else {
        lines.line(&class_line(document.exit_class, "done"));
    }
    lines.line("changed: nothing");
    lines.line(&next_line(document.failure.as_ref(), document.exit_class));
    lines.0
}

/// What can be done beside the next step.
fn other_steps(lines: &mut Lines, failure: &Failure) {
    for action in failure.recovery_actions.iter().skip(1) {
        lines.line(&format!("or: {}", action.strip_prefix("or ").unwrap_or(action)));
    }
}

fn class_line(class: ExitClass, words: &str) -> String {
    format!("{} ({}): {words}", class.token(), class.code())
}

fn next_line(failure: Option<&Failure>, class: ExitClass) -> String {
    let next = failure.and_then(|failure| failure.recovery_actions.first()).map(String::as_str);
    format!("next: {}", next.unwrap_or_else(|| class.next_step()))
}

#[derive(Default)]
struct Lines(String);

impl Lines {
    /// One line, whatever it holds: a name with a line break must not look like a line of ours.
    fn line(&mut self, line: &str) {
        self.0.push_str(&line.replace('\n', "\\n"));
        self.0.push('\n');
    }

    /// A text of several lines.
    fn block(&mut self, text: &str) {
        if !text.is_empty() {
            self.0.push_str(text);
            self.0.push('\n');
        }
    }
}

/// Foreign text could carry sequences that a terminal obeys.
fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|char| match char {
            '\n' | '\t' => vec![char],
            '\r' => Vec::new(),
            control if control.is_control() || is_bidi_control(control) => {
                control.escape_unicode().collect()
            }
            other => vec![other],
        })
        .collect()
}

fn is_bidi_control(char: char) -> bool {
    matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_gets_through() {
        let shown = printable("a\x1b[2J\u{9b}31m\u{202e}b\r\n\tc\u{7}");
        assert_eq!(shown, "a\\u{1b}[2J\\u{9b}31m\\u{202e}b\n\tc\\u{7}");
    }
}
