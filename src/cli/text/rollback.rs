//! What can be put back, for a person.

use super::{Lines, class_line, counted, next_line};
use crate::contract::rollback::{
    AnalyzedOutcome, AnalyzedTarget, AppliedTarget, ApplyTargetOutcome, CheckpointSummary,
    InverseOperation, RestoredMetadata, RollbackAnalysis, RollbackApplyResult, RollbackEligibility,
    RollbackListResult, RollbackPreview,
};

/// Files that are told one by one.
const MOST_TARGETS: usize = 15;

pub(super) fn list(document: &RollbackListResult) -> String {
    let mut lines = Lines::default();
    for summary in &document.checkpoints {
        lines.line(&checkpoint_line(summary));
    }
    let hidden = &document.hidden_counts;
    let kinds = [
        ("expired", hidden.expired),
        ("corrupt", hidden.corrupt),
        ("locked", hidden.locked),
        ("without effect", hidden.not_applied),
        ("unreadable", hidden.unreadable),
    ];
    let told: Vec<String> = kinds
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    if !told.is_empty() {
        lines.line(&format!("can't be put back: {} (--include-hidden tells them)", told.join(", ")));
    }
    lines.line("");
    lines.line(&class_line(document.exit_class, "nothing was changed"));
    lines.line(&format!(
        "{}, {}",
        counted(document.checkpoints.len(), "checkpoint"),
        document.authenticity.token()
    ));
    lines.line(&next_line(document.failure.as_ref(), document.exit_class));
    lines.0
}

fn checkpoint_line(summary: &CheckpointSummary) -> String {
    let state = match &summary.eligibility {
        RollbackEligibility::ApplyEligible => String::new(),
        RollbackEligibility::Hidden { reason }
        | RollbackEligibility::NonAuthoritativeRecoveryRecord { reason } => format!("; {reason}"),
    };
    format!(
        "{}  round {}  {}  {} file{}, {} bytes{state}",
        summary.checkpoint_id,
        summary.prompt_round,
        summary.created_at,
        summary.target_count,
        if summary.target_count == 1 { "" } else { "s" },
        summary.per_checkpoint_usage_bytes,
    )
}

pub(super) fn preview(document: &RollbackPreview) -> String {
    let mut lines = Lines::default();
    lines.line(&document.heading);
    lines.line(&document.purpose);
    for sentence in &document.risk.sentences {
        lines.line(sentence);
    }
    lines.line(&document.target);
    lines.line(&document.authority);
    lines.line(&document.evidence_completeness);
    for target in document.targets.iter().take(MOST_TARGETS) {
        let size = |bytes: Option<u64>| bytes.map_or("nothing".to_owned(), |bytes| bytes.to_string());
        lines.line(&format!(
            "{}: {} ({} -> {} bytes)",
            target.effect,
            target.path.as_deref().unwrap_or("can't be told"),
            size(target.bytes_before),
            size(target.bytes_after)
        ));
    }
    lines.line("");
    lines.line(&class_line(document.exit_class, &document.outcome));
    let effects = counted(document.risk.excluded_count, "recorded effect");
    lines.line(&format!("{effects} that no rollback reverses"));
    lines.line(&format!("next: {}", document.next_step));
    lines.0
}

pub(super) fn analysis(document: &RollbackAnalysis) -> String {
    let mut lines = Lines::default();
    for target in document.targets.iter().take(MOST_TARGETS) {
        lines.line(&target_line(target));
    }
    let more = document.targets.len().saturating_sub(MOST_TARGETS);
    if more > 0 {
        lines.line(&format!("{more} more, see targets[] in the document (--json, or -o FILE)"));
    }
    for left in &document.left_out {
        lines.line(&format!("checkpoint {}: LEFT OUT: {}", left.checkpoint_id, left.reason_code));
    }
    lines.line("Commands, processes and everything outside these files stay as they are.");
    if document.open_operations > 0 {
        let open = counted(document.open_operations, "operation");
        lines.line(&format!(
            "note: {open} without a proven end: a run is at work, or one was cut off; settle that first"
        ));
    }
    lines.line("");
    let counts = format!(
        "{}: {} would be as before, {} would not",
        document.status,
        counted(document.applied_count, "file"),
        document.not_applied_count
    );
    lines.line(&class_line(document.exit_class, &counts));
    lines.line(&format!("plan: {}", document.plan_digest));
    lines.line(&format!("next: {}", document.next_step));
    lines.0
}

fn target_line(target: &AnalyzedTarget) -> String {
    let newer = match target.newer_checkpoint {
        Some(id) => format!(" (changed again by checkpoint {id})"),
        None => String::new(),
    };
    let what = match &target.outcome {
        AnalyzedOutcome::AppliedEligible { inverse_operation, .. } => match inverse_operation {
            InverseOperation::DeleteFile => "would be removed".to_owned(),
            InverseOperation::RestorePreImage | InverseOperation::RestoreFromArtifact => {
                "would be put back".to_owned()
            }
            InverseOperation::None => "is gone already".to_owned(),
        },
        AnalyzedOutcome::Conflict { reason_code, .. } => format!("conflict: {reason_code}"),
        AnalyzedOutcome::Skipped { reason_code } => format!("left: {reason_code}"),
        AnalyzedOutcome::Inaccessible { reason_code } => format!("can't be read: {reason_code}"),
        AnalyzedOutcome::Mismatch { to, .. } => format!("goes by another name now: {to}"),
        AnalyzedOutcome::UnknownOutcome { reason_code } => format!("can't be told: {reason_code}"),
    };
    format!("{}: {what}{newer}", target.path)
}

pub(super) fn applied(document: &RollbackApplyResult) -> String {
    let mut lines = Lines::default();
    for note in &document.notes {
        lines.line(&format!("note: {note}"));
    }
    // What isn't as it should be comes first: it is what the reader has to act on.
    let open = |target: &&AppliedTarget| !matches!(target.outcome, ApplyTargetOutcome::Applied { .. });
    let (left, done): (Vec<_>, Vec<_>) = document.targets.iter().partition(open);
    for target in left.iter().chain(&done).take(MOST_TARGETS) {
        lines.line(&applied_line(target));
    }
    let more = document.targets.len().saturating_sub(MOST_TARGETS);
    if more > 0 {
        lines.line(&format!("{more} more, see targets[] in the document (--json, or -o FILE)"));
    }
    if let Some(patch) = &document.patch {
        lines.block(patch.trim_end());
    }
    for left in &document.left_out {
        lines.line(&format!("checkpoint {}: LEFT OUT: {}", left.checkpoint_id, left.reason_code));
    }
    lines.line("Commands, processes and everything outside these files stay as they are.");
    if document.open_operations > 0 {
        let open = counted(document.open_operations, "operation");
        lines.line(&format!("note: {open} without a proven end; `thcode recover` tells them"));
    }
    lines.line("");
    let counts = format!(
        "{}: {} as before, {} left as found",
        document.result.token(),
        counted(document.applied_count, "file"),
        document.not_applied_count,
    );
    lines.line(&class_line(document.exit_class, &counts));
    lines.line(&match document.checkpoint_id_after {
        Some(id) => format!("changed: what is told above; its own checkpoint: {id}"),
        None => "changed: nothing".to_owned(),
    });
    lines.line(&format!("next: {}", document.next_step));
    lines.0
}

fn applied_line(target: &AppliedTarget) -> String {
    let what = match &target.outcome {
        ApplyTargetOutcome::Applied { inverse_operation } => match inverse_operation {
            InverseOperation::DeleteFile => "removed".to_owned(),
            InverseOperation::RestorePreImage | InverseOperation::RestoreFromArtifact => {
                "put back".to_owned()
            }
            InverseOperation::None => "is gone already".to_owned(),
        },
        ApplyTargetOutcome::Conflict { reason_code, .. } => {
            format!("LEFT, somebody changed it: {reason_code}")
        }
        ApplyTargetOutcome::Skipped { reason_code } => format!("left: {reason_code}"),
        ApplyTargetOutcome::Inaccessible { reason_code } => {
            format!("LEFT, can't be read or written: {reason_code}")
        }
        ApplyTargetOutcome::Mismatch { to, .. } => format!("LEFT, goes by another name now: {to}"),
        ApplyTargetOutcome::UnknownOutcome { reason_code } => format!("UNKNOWN: {reason_code}"),
    };
    let partial = match target.metadata {
        Some(RestoredMetadata::Partial) => " (owner, attributes or directory mode: not all of it)",
        Some(RestoredMetadata::Whole) | None => "",
    };
    let message = target.message.as_ref().map(|text| format!("; {text}")).unwrap_or_default();
    format!("{}: {what}{partial}{message}", target.path)
}
