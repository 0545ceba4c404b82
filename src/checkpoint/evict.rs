//! What isn't kept any more, and how it goes: rows first, in the transaction that journals it; sealed
//! files only once that is durable. Which checkpoints may go is decided by a pure function.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{
    CheckpointError, RetentionState, StoredCheckpoint,
    artifact::{opens, sealed_name},
    audit::{Audited, rows_as_written},
    retained,
};
use crate::{
    id::{ArtifactId, CheckpointId, Digest, Timestamp},
    store::{RowFault, Rows, StoreError, Tx, View},
};

/// Why a checkpoint isn't kept any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Its window of prompt rounds is over.
    Expired,
    /// Its session has ended, and it is older than the caller wants to keep.
    Aged,
    /// Its operation was seen to have had no effect, so that there is nothing to put back.
    NotApplied,
}

impl Reason {
    /// The word of the reason.
    pub fn token(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Aged => "aged",
            Self::NotApplied => "not-applied",
        }
    }
}

/// What is known of a checkpoint beside its rows.
#[derive(Debug, Clone, Copy)]
pub struct Fate<'a> {
    /// Whether its operation is proven to have had no effect.
    pub had_no_effect: bool,
    /// Whether the last turn of its session has an end.
    pub session_ended: bool,
    /// The rounds of its session that made a checkpoint.
    pub rounds: &'a BTreeSet<u32>,
    /// In an ended session those made before are not kept.
    pub oldest: Option<Timestamp>,
}

/// Why a checkpoint may go; `None` while it is kept. Whether something still needs it is another
/// matter, and the caller's.
pub fn reason(stored: &StoredCheckpoint, fate: Fate<'_>) -> Option<Reason> {
    let over = retained(stored.retention, stored.prompt_round, fate.rounds);
    let aged = fate.session_ended
        && fate.oldest.is_some_and(|oldest| stored.created_at.as_millis() < oldest.as_millis());
    if stored.took_effect != Some(true) && fate.had_no_effect {
        Some(Reason::NotApplied)
    } else if over == RetentionState::EligibleForEviction {
        Some(Reason::Expired)
    } else {
        aged.then_some(Reason::Aged)
    }
}

/// Whatever keeps anybody from knowing what may go: rows that aren't what the journal says, blobs
/// without their content, references that don't open in their place. Of images no content is read.
pub fn unsound<S: Rows>(
    view: View<'_, S>,
    dir: &Path,
    expected: &BTreeMap<CheckpointId, (Digest, &'static str)>,
) -> Result<Vec<RowFault>, CheckpointError> {
    let mut audited: Audited = rows_as_written(view, dir, expected)?;
    let mut ids = Vec::new();
    view.rows.each("SELECT artifact_id FROM artifact", [], |row| {
        ids.push(row.get::<_, Vec<u8>>(0)?);
        Ok::<_, StoreError>(())
    })?;
    for id in ids {
        let bad = |_| CheckpointError::Corrupt("an image has no valid id");
        let done = ArtifactId::from_bytes(&id).map_err(bad).and_then(|id| opens(view, id));
        let told = uuid::Uuid::from_slice(&id).unwrap_or_default();
        audited.note("artifact", &told, done)?;
    }
    Ok(audited.faults)
}

/// What goes with some checkpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Weight {
    /// The bytes of images that nothing refers to then.
    pub bytes: u64,
    /// The names of the sealed files among them.
    pub files: Vec<String>,
}

impl Weight {
    fn add(&mut self, blob: &[u8], stored: i64, in_file: bool) {
        self.bytes = self.bytes.saturating_add(u64::try_from(stored).unwrap_or(0));
        self.files.extend(sealed_name(blob).filter(|_| in_file));
    }
}

/// What would go with these checkpoints: an image that another one refers to stays.
pub fn weight(rows: &impl Rows, going: &BTreeSet<CheckpointId>) -> Result<Weight, StoreError> {
    let mut held: BTreeMap<Vec<u8>, bool> = BTreeMap::new();
    rows.each("SELECT blob_id, checkpoint_id FROM artifact", [], |row| {
        let id: Vec<u8> = row.get(1)?;
        let goes = CheckpointId::from_bytes(&id).is_ok_and(|id| going.contains(&id));
        *held.entry(row.get(0)?).or_default() |= !goes;
        Ok::<_, StoreError>(())
    })?;
    let mut weight = Weight::default();
    rows.each("SELECT blob_id, stored, in_file FROM blob", [], |row| {
        let id: Vec<u8> = row.get(0)?;
        if held.get(&id) == Some(&false) {
            weight.add(&id, row.get(1)?, row.get(2)?);
        }
        Ok::<_, StoreError>(())
    })?;
    Ok(weight)
}

/// Removes the rows of checkpoints, in the transaction that journals it, and of the images that nothing
/// refers to any more. Their sealed files may be unlinked once it is durable, and not before.
pub fn evict(tx: &Tx<'_>, checkpoints: &[CheckpointId]) -> Result<Weight, StoreError> {
    let mut blobs: BTreeSet<Vec<u8>> = BTreeSet::new();
    for checkpoint in checkpoints {
        let id = [checkpoint.as_bytes().as_slice()];
        tx.each("SELECT blob_id FROM artifact WHERE checkpoint_id = ?1", id, |row| {
            blobs.insert(row.get(0)?);
            Ok::<_, StoreError>(())
        })?;
        tx.execute("DELETE FROM artifact WHERE checkpoint_id = ?1", id)?;
        tx.execute("DELETE FROM target WHERE checkpoint_id = ?1", id)?;
        tx.execute_one("DELETE FROM checkpoint WHERE checkpoint_id = ?1", id)?;
    }
    let mut weight = Weight::default();
    for blob in blobs {
        let id = [blob.as_slice()];
        let free = "SELECT stored, in_file FROM blob WHERE blob_id = ?1 \
            AND NOT EXISTS (SELECT 1 FROM artifact WHERE artifact.blob_id = blob.blob_id)";
        let Some((stored, in_file)) = tx.first(free, id, |row| Ok((row.get(0)?, row.get(1)?)))? else {
            continue;
        };
        tx.execute("DELETE FROM chunk WHERE blob_id = ?1", id)?;
        tx.execute_one("DELETE FROM blob WHERE blob_id = ?1", id)?;
        weight.add(&blob, stored, in_file);
    }
    Ok(weight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checkpoint::RetentionConfig,
        id::{OperationId, SessionId, TurnId},
    };

    fn stored(round: u32, took_effect: Option<bool>) -> StoredCheckpoint {
        let uuid = uuid::Uuid::nil();
        StoredCheckpoint {
            checkpoint_id: CheckpointId::from_uuid(uuid),
            operation_id: OperationId::from_uuid(uuid),
            session_id: SessionId::from_uuid(uuid),
            turn_id: TurnId::from_uuid(uuid),
            prompt_round: round,
            created_at: Timestamp::from_millis(1_000),
            took_effect,
            retention: RetentionConfig::new(1).unwrap(),
            targets: 1,
            stored_bytes: 1,
        }
    }

    #[test]
    fn what_is_kept_stays_and_what_is_not_has_one_reason() {
        let rounds = BTreeSet::from([1, 2]);
        let fate = Fate { had_no_effect: false, session_ended: true, rounds: &rounds, oldest: None };
        let at = |millis| Some(Timestamp::from_millis(millis));
        let old = Fate { oldest: at(1_001), ..fate };
        for (stored, fate, wanted) in [
            (stored(2, Some(true)), fate, None),
            (stored(1, Some(true)), fate, Some(Reason::Expired)),
            (stored(2, Some(true)), old, Some(Reason::Aged)),
            (stored(2, Some(true)), Fate { oldest: at(1_000), ..fate }, None),
            (stored(2, Some(true)), Fate { session_ended: false, ..old }, None),
            (stored(1, Some(true)), old, Some(Reason::Expired)),
            (stored(2, Some(false)), Fate { had_no_effect: true, ..fate }, Some(Reason::NotApplied)),
            (stored(2, None), Fate { had_no_effect: true, ..fate }, Some(Reason::NotApplied)),
            // Taken as it is on a person's word: it may have had its effect.
            (stored(2, None), fate, None),
            (stored(2, Some(true)), Fate { had_no_effect: true, ..fate }, None),
        ] {
            assert_eq!(reason(&stored, fate), wanted, "{stored:?} {fate:?}");
        }
    }
}
