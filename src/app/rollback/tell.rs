//! A checkpoint in the words and figures of a document.

use std::collections::BTreeSet;

use super::{Desk, Standing, observe};
use crate::{
    app::Fail,
    checkpoint::{self, StoredCheckpoint, StoredImage},
    contract::rollback::{
        AllExcludedEffects, CheckpointSummary, ExcludedEffectEntry, IntegrityState, PreviewTarget,
        RollbackCoverage, RollbackEligibility,
    },
    host::Host,
    id::TurnId,
    journal,
    store::ReadStore,
};

pub(super) fn summary(
    host: &Host,
    desk: &Desk,
    stored: &StoredCheckpoint,
    standing: Standing,
) -> Result<CheckpointSummary, Fail> {
    let now = host.now();
    let age = now.as_millis().saturating_sub(stored.created_at.as_millis());
    let (mut pre_digests, mut post_digests) = (Vec::new(), Vec::new());
    let opened = matches!(standing, Standing::Eligible | Standing::Expired | Standing::NotApplied);
    match desk.view()?.filter(|_| opened) {
        Some(view) => {
            for target in checkpoint::targets(view, stored.checkpoint_id)? {
                pre_digests.push(observe::images(view, &target.pre)?.1);
                post_digests.push(observe::images(view, &target.post)?.1);
            }
        }
        None => {
            let count = usize::try_from(stored.targets).unwrap_or(0);
            pre_digests.resize(count, None);
            post_digests.resize(count, None);
        }
    }
    let encryption = if stored.stored_bytes > 0 { "encrypted" } else { "unencrypted" };
    Ok(CheckpointSummary {
        prompt_round_id: stored.turn_id,
        checkpoint_id: stored.checkpoint_id,
        created_at: stored.created_at,
        observed_at: now,
        subsequent_prompt_age_ms: u64::try_from(age).unwrap_or(0),
        target_count: stored.targets,
        pre_digests,
        post_digests,
        rename_info: Vec::new(),
        retention_expiry: None,
        per_checkpoint_usage_bytes: stored.stored_bytes,
        store_usage_bytes: desk.usage,
        encryption_state: encryption.to_owned(),
        integrity_state: match standing {
            Standing::Corrupt => IntegrityState::Corrupt,
            Standing::Locked => IntegrityState::RecoveryLocked,
            Standing::Eligible | Standing::Expired | Standing::NotApplied => IntegrityState::Verified,
        },
        coverage: match standing {
            Standing::Corrupt => RollbackCoverage::Corrupt,
            Standing::Locked => RollbackCoverage::Locked,
            Standing::Expired => RollbackCoverage::Expired,
            Standing::Eligible | Standing::NotApplied => RollbackCoverage::FullyProtected,
        },
        excluded_effects: excluded(&desk.store, &BTreeSet::from([stored.turn_id]))?,
        session_id: stored.session_id,
        operation_id: stored.operation_id,
        prompt_round: stored.prompt_round,
        expiry_prompt_round: stored.prompt_round.saturating_add(stored.retention.rounds()),
        eligibility: eligibility(standing),
    })
}

fn eligibility(standing: Standing) -> RollbackEligibility {
    let hidden = |reason: &str| RollbackEligibility::Hidden { reason: reason.to_owned() };
    let proves_nothing =
        |reason: &str| RollbackEligibility::NonAuthoritativeRecoveryRecord { reason: reason.to_owned() };
    match standing {
        Standing::Eligible => RollbackEligibility::ApplyEligible,
        Standing::Expired => hidden("its window of prompt rounds is over"),
        Standing::NotApplied => hidden("its change never took effect, or nobody knows"),
        Standing::Corrupt => proves_nothing("it isn't what was kept"),
        Standing::Locked => proves_nothing("the key isn't there, so nothing in it can be checked"),
    }
}

/// The files of a checkpoint; without the key only that they are there.
pub(super) fn targets(
    desk: &Desk,
    stored: &StoredCheckpoint,
    standing: Standing,
) -> Result<Vec<PreviewTarget>, Fail> {
    let opened = !matches!(standing, Standing::Corrupt | Standing::Locked);
    let Some(view) = desk.view()?.filter(|_| opened) else { return Ok(Vec::new()) };
    let bytes = |image: &StoredImage| match image {
        StoredImage::Absent => None,
        StoredImage::Present { meta, .. } => Some(meta.bytes),
    };
    let effect = |pre: &StoredImage, post: &StoredImage| match (pre, post) {
        (StoredImage::Absent, _) => "create",
        (StoredImage::Present { .. }, StoredImage::Present { .. }) => "edit",
        (StoredImage::Present { .. }, StoredImage::Absent) => "delete",
    };
    let targets = checkpoint::targets(view, stored.checkpoint_id)?;
    Ok(targets
        .iter()
        .map(|target| PreviewTarget {
            path: Some(String::from_utf8_lossy(&target.path).into_owned()),
            effect: effect(&target.pre, &target.post).to_owned(),
            bytes_before: bytes(&target.pre),
            bytes_after: bytes(&target.post),
        })
        .collect())
}

/// What no rollback reverses: the standing entry of each kind, and what the turns are known to have
/// done.
pub(super) fn excluded(store: &ReadStore, turns: &BTreeSet<TurnId>) -> Result<AllExcludedEffects, Fail> {
    let standing = |what: &str, code: &str| ExcludedEffectEntry {
        target: None,
        reason: format!("{what} are never claimed reversible"),
        reason_code: code.to_owned(),
        status: "never-protected".to_owned(),
    };
    let (mut commands, mut unprotected) = (0u32, 0u32);
    for turn in turns {
        let (more, other) = journal::beyond_checkpoints(store, *turn)?;
        commands = commands.saturating_add(more);
        unprotected = unprotected.saturating_add(other);
    }
    let mut shell = vec![standing("shell commands", "shell-effects")];
    shell.extend((0..commands).map(|_| ExcludedEffectEntry {
        target: Some("a command of the turn".to_owned()),
        reason: "what a command did isn't known and is never undone".to_owned(),
        reason_code: "command-started".to_owned(),
        status: "never-protected".to_owned(),
    }));
    let unknown = (0..unprotected).map(|_| ExcludedEffectEntry {
        target: Some("a file of the turn".to_owned()),
        reason: "the policy let it be changed without images".to_owned(),
        reason_code: "unprotected".to_owned(),
        status: "excluded".to_owned(),
    });
    Ok(AllExcludedEffects {
        shell,
        remote: vec![standing("calls of other machines", "remote-effects")],
        permission: vec![standing("grants of permissions", "permission-effects")],
        process: vec![standing("processes", "process-effects")],
        symlink_side: vec![standing("effects through links", "symlink-side-effects")],
        external: vec![standing("external effects", "external-effects")],
        unknown: unknown.collect(),
    })
}

/// How many effects are recorded that no rollback reverses.
pub(super) fn recorded(excluded: &AllExcludedEffects) -> u32 {
    let kinds = [
        &excluded.shell,
        &excluded.remote,
        &excluded.permission,
        &excluded.process,
        &excluded.symlink_side,
        &excluded.external,
        &excluded.unknown,
    ];
    let count = kinds.iter().flat_map(|kind| kind.iter()).filter(|entry| entry.target.is_some()).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn coverage_words(summary: &CheckpointSummary) -> &'static str {
    match summary.coverage {
        RollbackCoverage::FullyProtected => "fully protected",
        RollbackCoverage::Expired => "expired",
        RollbackCoverage::Corrupt => "corrupt",
        RollbackCoverage::Locked => "locked",
    }
}

pub(super) fn authority(summary: &CheckpointSummary) -> String {
    let integrity = match summary.integrity_state {
        IntegrityState::Verified => "verified",
        IntegrityState::Corrupt => "corrupt",
        IntegrityState::RecoveryLocked => "recovery-locked",
    };
    format!("{}, {integrity}, {}", coverage_words(summary), summary.encryption_state)
}

pub(super) fn completeness(summary: &CheckpointSummary) -> String {
    match summary.coverage {
        RollbackCoverage::FullyProtected => {
            let files = if summary.target_count == 1 { "file" } else { "files" };
            format!(
                "{} {files}, {} bytes sealed",
                summary.target_count, summary.per_checkpoint_usage_bytes
            )
        }
        _ => coverage_words(summary).to_owned(),
    }
}
