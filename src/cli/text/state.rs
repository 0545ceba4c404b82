//! What is kept, for a person: stores and sessions.

use super::{Lines, class_line, counted, next_line};
use crate::contract::{
    session_report::{SessionReport, SessionTurn},
    store_report::{AcceptedHead, StoreGc, StoreReport},
    turn::Role,
};

pub(super) fn store(document: &StoreReport) -> String {
    let mut lines = Lines::default();
    for store in &document.stores {
        lines.line(&format!("store: {}", store.state_dir));
        lines.line(&format!("  workspace: {}", store.workspace.as_deref().unwrap_or("can't be told")));
        if let Some(failure) = &store.failure {
            lines.line(&format!("  {}: {}", failure.cause_code.token(), failure.message));
        } else {
            let last = store.last_run.as_ref().map_or("never".to_owned(), |run| {
                format!("{}, {}", run.started_at, ended(run.stop_reason.as_deref(), run.exit_code))
            });
            lines.line(&format!("  last run: {last}"));
        }
        if let Some(open) = store.open_operations {
            lines.line(&format!(
                "  {} operations: {open}",
                if store.live { "open" } else { "interrupted" }
            ));
        }
        let key = if store.key_file_present { "a key file beside it" } else { "no key file beside it" };
        let live = if store.live { ", a runner holds it" } else { "" };
        lines.line(&format!("  {} bytes, {key}{live}", store.disk_bytes));
    }
    if let Some(stats) = &document.stats {
        for table in &stats.tables {
            lines.line(&format!("{:<14} {:>10} rows", table.name, table.rows));
        }
        lines.line(&format!(
            "version {}, key version {}, {} bytes of images, {} bytes of write-ahead log{}",
            stats.version,
            stats.key_version,
            stats.image_bytes,
            stats.wal_bytes,
            if stats.volatile { ", on a volatile file system" } else { "" },
        ));
    }
    if let Some(verification) = &document.verification {
        lines.line(&format!(
            "{}, {}, {}, {}, {}: {}",
            counted(verification.events, "event"),
            counted(verification.sessions, "session"),
            counted(verification.messages, "message"),
            counted(verification.checkpoints, "checkpoint"),
            counted(verification.images, "image"),
            verification.authenticity.token(),
        ));
        if verification.orphaned_files > 0 {
            let files = counted(verification.orphaned_files, "sealed file");
            lines.line(&format!("{files} that nothing refers to: what a crash left"));
        }
        for finding in &verification.findings {
            let row = finding.row.as_ref().map(|row| format!(" {row}")).unwrap_or_default();
            lines.line(&format!("{}{row}: {}", finding.place, finding.problem));
        }
        lines.line(&counted(verification.findings.len(), "finding"));
    }
    let accepted = document.verification.as_ref().and_then(|told| told.accepted_head.as_ref());
    if let Some(accepted) = accepted {
        taken(&mut lines, accepted);
    }
    if let Some(gc) = &document.gc {
        freed(&mut lines, gc);
    }
    for action in document.failure.iter().flat_map(|failure| failure.recovery_actions.iter().skip(1)) {
        lines.line(&format!("or: {action}"));
    }
    lines.line("");
    let done = match &document.gc {
        Some(gc) if !gc.dry_run && document.failure.is_none() => "what isn't kept any more is gone",
        _ if accepted.is_some() => "the journal is taken as it is",
        _ => "nothing was changed",
    };
    lines.line(&class_line(document.exit_class, done));
    let unreadable = document.stores.iter().filter(|store| store.failure.is_some()).count();
    lines.line(&format!("{}, {unreadable} unreadable", counted(document.stores.len(), "store")));
    lines.line(&next_line(document.failure.as_ref(), document.exit_class));
    lines.0
}

/// What was lost, as plainly as it can be told.
fn taken(lines: &mut Lines, accepted: &AcceptedHead) {
    let last = accepted.last_seq;
    match (accepted.lost_from_seq, accepted.lost_to_seq) {
        (Some(from), Some(to)) if from == to => {
            lines.line(&format!("event {from} that was durable once is gone"));
        }
        (Some(from), Some(to)) => {
            lines.line(&format!("events {from}..{to} that were durable once are gone"));
        }
        _ => lines.line(&format!(
            "the head anchor told nothing of the {}: whether any was lost, nobody can tell",
            counted(last, "event")
        )),
    }
    lines.line(&format!("the journal is taken as it is, up to event {last}, and that is recorded"));
    lines.line("what lost events changed in the workspace has no record here: compare it yourself");
}

fn freed(lines: &mut Lines, gc: &StoreGc) {
    let (went, go) = if gc.dry_run { ("would be freed", "would go") } else { ("freed", "gone") };
    let evicted = gc.evicted;
    let parts = [
        (evicted.expired, "expired"),
        (evicted.aged, "older than --max-age"),
        (evicted.not_applied, "without effect"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, why)| format!("{count} {why}"))
        .collect();
    let why = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
    lines.line(&format!("{went}: {}{why}", counted(evicted.total, "checkpoint")));
    let files = match gc.freed_files {
        0 => String::new(),
        count => format!(", {} {go}", counted(count, "sealed file")),
    };
    lines.line(&format!("images: {} bytes {went}{files}", gc.freed_bytes));
    if gc.orphaned_files + gc.temporary_files > 0 {
        let sealed = counted(gc.orphaned_files, "sealed file");
        let temporary = counted(gc.temporary_files, "temporary file");
        lines.line(&format!("nothing referred to: {sealed}, {temporary}, {go}"));
    }
    let standing = match gc.pinned.standing {
        0 => String::new(),
        count => format!(", {count} of them over, but needed until an operation is settled"),
    };
    lines.line(&format!("kept: {}{standing}", counted(gc.kept, "checkpoint")));
    if gc.pinned.corrupt > 0 {
        lines.line(&format!("can't be checked: {}", counted(gc.pinned.corrupt, "row")));
    }
    if let Some(reusable) = gc.reusable_bytes {
        let more = match reusable {
            0 => String::new(),
            bytes => format!("; {bytes} more inside it are used again"),
        };
        lines.line(&format!("the state directory is {} bytes smaller{more}", gc.returned_bytes));
    }
}

pub(super) fn session(document: &SessionReport) -> String {
    let mut lines = Lines::default();
    for session in &document.sessions {
        let label = session.label.as_ref().map(|label| format!(" {label:?}")).unwrap_or_default();
        let last = session.last_turn.as_ref().map(turn_words).unwrap_or_default();
        lines.line(&format!("{:<6} {}{label}", session.short_id, session.session_id));
        lines.line(&format!(
            "       {}, {}; last {last}",
            counted(session.prompt_rounds, "round"),
            counted(session.messages, "message"),
        ));
        if let Some(from) = session.forked_from {
            lines.line(&format!("       forked from {from}"));
        }
    }
    for turn in &document.turns {
        lines.line(&format!("round {}: {}", turn.prompt_round, turn_words(turn)));
    }
    for message in document.history.iter().flatten() {
        let role = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        };
        lines.line(&format!("--- {role}"));
        lines.block(message.content.trim_end());
        for call in &message.tool_calls {
            lines.line(&format!("call: {} {}", call.name, call.arguments));
        }
    }
    lines.line("");
    lines.line(&class_line(document.exit_class, "nothing was changed"));
    let sealed = if document.unlocked { "" } else { ", labels sealed: the key isn't there" };
    lines.line(&format!(
        "{} in {}{sealed}",
        counted(document.sessions.len(), "session"),
        document.state_dir
    ));
    lines.line(&next_line(document.failure.as_ref(), document.exit_class));
    lines.0
}

fn turn_words(turn: &SessionTurn) -> String {
    format!("{}, {}", turn.started_at, ended(turn.stop_reason.as_deref(), turn.exit_code))
}

fn ended(stop_reason: Option<&str>, exit_code: Option<u8>) -> String {
    match (stop_reason, exit_code) {
        (Some(reason), Some(code)) => format!("{reason} ({code})"),
        _ => "no end recorded".to_owned(),
    }
}
