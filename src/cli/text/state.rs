//! What is kept, for a person: stores and sessions.

use super::{Lines, class_line, counted, next_line};
use crate::contract::{
    session_report::{SessionReport, SessionTurn},
    store_report::StoreReport,
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
    lines.line("");
    lines.line(&class_line(document.exit_class, "nothing was changed"));
    let unreadable = document.stores.iter().filter(|store| store.failure.is_some()).count();
    lines.line(&format!("{}, {unreadable} unreadable", counted(document.stores.len(), "store")));
    lines.line(&next_line(document.failure.as_ref(), document.exit_class));
    lines.0
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
