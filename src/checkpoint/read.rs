//! Checkpoints as they are kept, opened: for whoever tells them or puts them back.

use super::{
    CheckpointError, FileMeta, RetentionConfig, Xattr,
    record::{TargetPath, digest_mac, open_target},
};
use crate::{
    id::{ArtifactId, CheckpointId, Digest, OperationId, SessionId, Timestamp, TurnId},
    store::{Rows, StoreError, View},
};

/// A checkpoint, as far as it can be told without the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCheckpoint {
    /// Its id.
    pub checkpoint_id: CheckpointId,
    /// The operation that it was made for.
    pub operation_id: OperationId,
    /// The session.
    pub session_id: SessionId,
    /// The turn.
    pub turn_id: TurnId,
    /// The turn's ordinal in the session.
    pub prompt_round: u32,
    /// When it was made.
    pub created_at: Timestamp,
    /// Whether its operation took effect; `None` where that isn't known, or never happened.
    pub took_effect: Option<bool>,
    /// The window that it was made with.
    pub retention: RetentionConfig,
    /// How many files it covers.
    pub targets: u32,
    /// What its images take on the disk; one that two checkpoints share counts for both. Bytes.
    pub stored_bytes: u64,
}

/// A file of a checkpoint, opened with the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTarget {
    /// Its place in the checkpoint.
    pub ordinal: u64,
    /// Where it is, relative to the root, as raw bytes.
    pub path: Vec<u8>,
    /// The directories that were made for it, outermost first.
    pub made_parents: Vec<String>,
    /// Extended attributes of the file before.
    pub xattrs: Vec<Xattr>,
    /// Before.
    pub pre: StoredImage,
    /// After.
    pub post: StoredImage,
    /// The permission bits of its directory.
    pub parent_mode: Option<u32>,
    /// Whether its content is binary.
    pub binary: bool,
}

/// What stood at a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredImage {
    /// Nothing.
    Absent,
    /// A file.
    Present {
        /// The MAC of its digest: tells whether two are the same, and nothing else.
        digest_mac: Vec<u8>,
        /// The rest of it.
        meta: FileMeta,
        /// Its sealed bytes.
        artifact: ArtifactId,
    },
}

impl StoredImage {
    /// Whether these are the bytes, by their digest; `None` stands for nothing.
    pub fn is<S>(&self, view: View<'_, S>, digest: Option<&Digest>) -> bool {
        match (self, digest) {
            (Self::Absent, None) => true,
            (Self::Present { digest_mac: mac, .. }, Some(digest)) => {
                digest_mac(view.keys, digest).as_bytes().as_slice() == mac.as_slice()
            }
            (Self::Absent, Some(_)) | (Self::Present { .. }, None) => false,
        }
    }

    /// Whether two images are of the same bytes, or both of nothing.
    pub fn same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Absent, Self::Absent) => true,
            (Self::Present { digest_mac: one, .. }, Self::Present { digest_mac: other, .. }) => {
                one == other
            }
            _ => false,
        }
    }
}

/// Every checkpoint, the newest first. One that can't be read is counted, and hides none of the
/// others.
pub fn list(rows: &impl Rows) -> Result<(Vec<StoredCheckpoint>, u32), StoreError> {
    let (mut found, mut unreadable) = (Vec::new(), 0);
    let sql = "SELECT checkpoint_id, operation_id, session_id, turn_id, prompt_round, created_at, \
        commit_state, retention_rounds, \
        (SELECT count(*) FROM target WHERE target.checkpoint_id = checkpoint.checkpoint_id), \
        (SELECT ifnull(sum(stored), 0) FROM artifact JOIN blob USING (blob_id) \
         WHERE artifact.checkpoint_id = checkpoint.checkpoint_id) \
        FROM checkpoint ORDER BY checkpoint_id DESC";
    rows.each(sql, [], |row| {
        match stored(row) {
            Some(checkpoint) => found.push(checkpoint),
            None => unreadable += 1,
        }
        Ok::<_, StoreError>(())
    })?;
    Ok((found, unreadable))
}

fn stored(row: &rusqlite::Row<'_>) -> Option<StoredCheckpoint> {
    let id = |at| row.get::<_, Vec<u8>>(at).ok();
    let took_effect = match row.get::<_, String>(6).ok()?.as_str() {
        "committed" => Some(true),
        "failed" => Some(false),
        "pending" => None,
        _ => return None,
    };
    Some(StoredCheckpoint {
        checkpoint_id: CheckpointId::from_bytes(&id(0)?).ok()?,
        operation_id: OperationId::from_bytes(&id(1)?).ok()?,
        session_id: SessionId::from_bytes(&id(2)?).ok()?,
        turn_id: TurnId::from_bytes(&id(3)?).ok()?,
        prompt_round: row.get(4).ok()?,
        created_at: Timestamp::from_millis(row.get(5).ok()?),
        took_effect,
        retention: RetentionConfig::new(row.get(7).ok()?).ok()?,
        targets: row.get(8).ok()?,
        stored_bytes: row.get::<_, i64>(9).ok()?.try_into().ok()?,
    })
}

/// The files of a checkpoint, opened. Rows that aren't what was written are an error.
pub fn targets<S: Rows>(
    view: View<'_, S>,
    checkpoint: CheckpointId,
) -> Result<Vec<StoredTarget>, CheckpointError> {
    let id = checkpoint.as_bytes().as_slice();
    let mut found = Vec::new();
    let sql = "SELECT ordinal, sealed_path, path_mac, pre_state, pre_digest, pre_meta, pre_artifact, \
        post_state, post_digest, post_meta, post_artifact, parent_mode, content_class \
        FROM target WHERE checkpoint_id = ?1 ORDER BY ordinal";
    view.rows.each(sql, [id], |row| {
        let column = || -> rusqlite::Result<_> {
            Ok((
                row.get::<_, i64>(0)?,
                row.get::<_, Vec<u8>>(1)?,
                row.get::<_, Vec<u8>>(2)?,
                row.get::<_, Option<u32>>(11)?,
                row.get::<_, String>(12)?,
            ))
        };
        let (ordinal, sealed, mac, parent_mode, class) = column().map_err(StoreError::from)?;
        let ordinal = u64::try_from(ordinal).unwrap_or(u64::MAX);
        let TargetPath { path, made_parents, xattrs } = open_target(view, id, ordinal, &sealed, &mac)?;
        found.push(StoredTarget {
            ordinal,
            path,
            made_parents,
            xattrs,
            pre: image(row, 3)?,
            post: image(row, 7)?,
            parent_mode,
            binary: class == "binary-blob",
        });
        Ok::<_, CheckpointError>(())
    })?;
    Ok(found)
}

/// An image from four columns: state, digest, metadata, artifact.
fn image(row: &rusqlite::Row<'_>, at: usize) -> Result<StoredImage, CheckpointError> {
    let corrupt = CheckpointError::Corrupt;
    let column = || -> rusqlite::Result<_> {
        Ok((
            row.get::<_, String>(at)?,
            row.get::<_, Option<Vec<u8>>>(at + 1)?,
            row.get::<_, Option<String>>(at + 2)?,
            row.get::<_, Option<Vec<u8>>>(at + 3)?,
        ))
    };
    let (state, digest, meta, artifact) = column().map_err(StoreError::from)?;
    match (state.as_str(), digest, meta, artifact) {
        ("absent", None, None, None) => Ok(StoredImage::Absent),
        ("present", Some(digest_mac), Some(meta), Some(artifact)) => Ok(StoredImage::Present {
            digest_mac,
            meta: serde_json::from_str(&meta)
                .map_err(|_| corrupt("a target's metadata isn't of its form"))?,
            artifact: ArtifactId::from_bytes(&artifact)
                .map_err(|_| corrupt("an image has no valid id"))?,
        }),
        _ => Err(corrupt("a target is half there")),
    }
}
