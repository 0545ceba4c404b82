//! Whether everything that is kept of images is what was kept: rows against the journal, and with the
//! keys every seal, every length and every digest.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{
    CheckpointError,
    artifact::{self, open_artifact},
    record::{digest_mac, open_target, rows_digest},
};
use crate::{
    id::{ArtifactId, CheckpointId, Digest},
    store::{RowFault, Rows, StoreError, View},
};

/// What was looked at, and what is wrong with it.
#[derive(Debug, Default)]
pub struct Audited {
    /// Checkpoints.
    pub checkpoints: u64,
    /// Images, each as often as it is referred to.
    pub images: u64,
    /// Sealed files that no row refers to: what a crash or a full disk left. No fault.
    pub orphans: u64,
    /// What is wrong.
    pub faults: Vec<RowFault>,
}

/// What the images of one checkpoint are good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Material {
    /// All of them are there, and open as what they were sealed as.
    Complete,
    /// The checkpoint isn't there.
    Missing,
    /// Its rows or its images aren't what was written.
    Corrupt,
    /// Its rows are what was written; without the key the images can't be opened.
    Locked,
}

/// Looks at one checkpoint: its rows against the journal's digest, and with the keys its images.
pub fn material<S: Rows>(
    rows: &S,
    view: Option<View<'_, S>>,
    id: CheckpointId,
    digest: Digest,
) -> Result<Material, CheckpointError> {
    let id = id.as_bytes().as_slice();
    let there = "SELECT 1 FROM checkpoint WHERE checkpoint_id = ?1";
    if rows.first(there, [id], |_| Ok(()))?.is_none() {
        return Ok(Material::Missing);
    }
    if rows_digest(rows, id)? != digest {
        return Ok(Material::Corrupt);
    }
    let Some(view) = view else { return Ok(Material::Locked) };
    let mut audited = Audited::default();
    for row in target_rows(rows, Some(id))? {
        target(view, &row, &mut audited)?;
    }
    Ok(if audited.faults.is_empty() { Material::Complete } else { Material::Corrupt })
}

/// Looks at all of it. `expected` is what the journal says: the digest of each checkpoint's rows, and
/// what became of its operation. Without keys the images stay unopened.
pub fn audit<S: Rows>(
    rows: &S,
    dir: &Path,
    view: Option<View<'_, S>>,
    expected: &BTreeMap<CheckpointId, (Digest, &'static str)>,
) -> Result<Audited, CheckpointError> {
    let mut audited = Audited::default();
    checkpoints(rows, expected, &mut audited)?;
    blobs(rows, dir, &mut audited)?;
    if let Some(view) = view {
        for row in target_rows(rows, None)? {
            target(view, &row, &mut audited)?;
        }
        images(view, &mut audited)?;
    }
    Ok(audited)
}

/// Looks at rows alone: checkpoints and blobs as [`audit`] does, paths, and that a target names each
/// reference. Reads no image.
pub(super) fn rows_as_written<S: Rows>(
    view: View<'_, S>,
    dir: &Path,
    expected: &BTreeMap<CheckpointId, (Digest, &'static str)>,
) -> Result<Audited, CheckpointError> {
    let mut audited = audit(view.rows, dir, None, expected)?;
    for row in target_rows(view.rows, None)? {
        path(view, &row, &mut audited)?;
    }
    images(view, &mut audited)?;
    Ok(audited)
}

impl Audited {
    fn fault(&mut self, table: &'static str, row: impl ToString, problem: impl ToString) {
        self.faults.push(RowFault { table, row: row.to_string(), problem: problem.to_string() });
    }

    /// What can't be read at all ends the look; what is wrong with one row is told, and it goes on.
    pub(super) fn note(
        &mut self,
        table: &'static str,
        row: &dyn std::fmt::Display,
        done: Result<(), CheckpointError>,
    ) -> Result<(), CheckpointError> {
        match done {
            Ok(()) => Ok(()),
            Err(
                error @ (CheckpointError::Store(StoreError::Sqlite(_)) | CheckpointError::Source(_)),
            ) => Err(error),
            Err(error) => {
                self.fault(table, row, error);
                Ok(())
            }
        }
    }
}

fn checkpoints(
    rows: &impl Rows,
    expected: &BTreeMap<CheckpointId, (Digest, &'static str)>,
    audited: &mut Audited,
) -> Result<(), CheckpointError> {
    let mut there = Vec::new();
    rows.each("SELECT checkpoint_id, commit_state FROM checkpoint", [], |row| {
        there.push((row.get::<_, Vec<u8>>(0)?, row.get::<_, String>(1)?));
        Ok::<_, StoreError>(())
    })?;
    let mut seen = BTreeSet::new();
    for (id, state) in there {
        audited.checkpoints += 1;
        let Ok(known) = CheckpointId::from_bytes(&id) else {
            audited.fault("checkpoint", "", "it has no valid id");
            continue;
        };
        let Some((digest, became)) = expected.get(&known) else {
            audited.fault("checkpoint", known, "the journal knows nothing of it");
            continue;
        };
        seen.insert(known);
        if rows_digest(rows, &id)? != *digest {
            audited.fault("checkpoint", known, "its rows are not what was written");
        }
        if state != *became {
            let problem = format!("it says {state}, and its operation ended as {became}");
            audited.fault("checkpoint", known, problem);
        }
    }
    for id in expected.keys().filter(|id| !seen.contains(id)) {
        audited.fault("checkpoint", id, "it is gone");
    }
    Ok(())
}

/// Blobs, their chunks and their files: each there, each referred to.
fn blobs(rows: &impl Rows, dir: &Path, audited: &mut Audited) -> Result<(), CheckpointError> {
    let mut files = artifact::sealed_files(dir)?;
    let mut missing = Vec::new();
    let sql = "SELECT blob_id, in_file, \
        (SELECT count(*) FROM artifact WHERE artifact.blob_id = blob.blob_id), \
        (SELECT count(*) FROM chunk WHERE chunk.blob_id = blob.blob_id) FROM blob";
    rows.each(sql, [], |row| {
        let id = row.get::<_, Vec<u8>>(0)?;
        let (in_file, references, chunks): (bool, i64, i64) = (row.get(1)?, row.get(2)?, row.get(3)?);
        let there = artifact::sealed_name(&id).is_some_and(|name| files.remove(&name));
        if references == 0 || (in_file && !there) || (in_file == (chunks > 0)) {
            missing.push(id);
        }
        Ok::<_, StoreError>(())
    })?;
    for id in missing {
        let id = uuid::Uuid::from_slice(&id).unwrap_or_default();
        audited.fault("blob", id, "its content is not there, or nothing refers to it");
    }
    audited.orphans = u64::try_from(files.len()).unwrap_or(u64::MAX);
    Ok(())
}

/// An image by its id, and what its digest was.
type Named = (Option<Vec<u8>>, Option<Vec<u8>>);

struct TargetRow {
    checkpoint: Vec<u8>,
    ordinal: u64,
    sealed_path: Vec<u8>,
    path_mac: Vec<u8>,
    images: [Named; 2],
}

/// The targets of a checkpoint, or of all.
fn target_rows(rows: &impl Rows, of: Option<&[u8]>) -> Result<Vec<TargetRow>, CheckpointError> {
    let mut found = Vec::new();
    let sql = "SELECT checkpoint_id, ordinal, sealed_path, path_mac, pre_artifact, pre_digest, \
        post_artifact, post_digest FROM target WHERE ?1 IS NULL OR checkpoint_id = ?1";
    let sql = if of.is_some() { sql.replace("?1 IS NULL OR ", "") } else { sql.to_owned() };
    rows.each(&sql, [of], |row| {
        found.push(TargetRow {
            checkpoint: row.get(0)?,
            ordinal: u64::try_from(row.get::<_, i64>(1)?).unwrap_or(u64::MAX),
            sealed_path: row.get(2)?,
            path_mac: row.get(3)?,
            images: [(row.get(4)?, row.get(5)?), (row.get(6)?, row.get(7)?)],
        });
        Ok::<_, StoreError>(())
    })?;
    Ok(found)
}

fn path<S: Rows>(
    view: View<'_, S>,
    row: &TargetRow,
    audited: &mut Audited,
) -> Result<(), CheckpointError> {
    let id = uuid::Uuid::from_slice(&row.checkpoint).unwrap_or_default();
    let opened = open_target(view, &row.checkpoint, row.ordinal, &row.sealed_path, &row.path_mac);
    audited.note("target", &id, opened.map(drop))
}

/// Paths, and that what a target says of its images is what they are.
fn target<S: Rows>(
    view: View<'_, S>,
    row: &TargetRow,
    audited: &mut Audited,
) -> Result<(), CheckpointError> {
    path(view, row, audited)?;
    let id = uuid::Uuid::from_slice(&row.checkpoint).unwrap_or_default();
    for (artifact, digest) in &row.images {
        let done = match (artifact, digest) {
            (None, None) => Ok(()),
            (Some(artifact), Some(digest)) => same_image(view, artifact, digest),
            _ => Err(CheckpointError::Corrupt("an image has no digest, or a digest no image")),
        };
        audited.note("target", &id, done)?;
    }
    Ok(())
}

fn same_image<S: Rows>(
    view: View<'_, S>,
    artifact: &[u8],
    digest: &[u8],
) -> Result<(), CheckpointError> {
    let id = ArtifactId::from_bytes(artifact)
        .map_err(|_| CheckpointError::Corrupt("an image has no valid id"))?;
    let found = open_artifact(view, id, &mut |_| Ok(()))?;
    if digest_mac(view.keys, &found).as_bytes().as_slice() == digest {
        Ok(())
    } else {
        Err(CheckpointError::Corrupt("an image is not the one that was seen"))
    }
}

/// References: that a target names each. The images themselves were opened with their targets.
fn images<S: Rows>(view: View<'_, S>, audited: &mut Audited) -> Result<(), CheckpointError> {
    let mut unnamed = Vec::new();
    let sql = "SELECT artifact_id, EXISTS (SELECT 1 FROM target WHERE \
        target.checkpoint_id = artifact.checkpoint_id AND target.ordinal = artifact.ordinal AND \
        artifact_id = CASE role WHEN 'pre' THEN pre_artifact WHEN 'post' THEN post_artifact END) \
        FROM artifact";
    view.rows.each(sql, [], |row| {
        audited.images += 1;
        if !row.get::<_, bool>(1)? {
            unnamed.push(row.get::<_, Vec<u8>>(0)?);
        }
        Ok::<_, StoreError>(())
    })?;
    for id in unnamed {
        let id = uuid::Uuid::from_slice(&id).unwrap_or_default();
        audited.fault("artifact", id, "no target names it");
    }
    Ok(())
}
