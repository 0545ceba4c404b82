//! The record of a checkpoint and of its files: what the seed calls its states, and per file what
//! stood there before and after.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    CheckpointError, RetentionConfig, SealedImage, Usage,
    artifact::{Reference, refer, refer_again},
};
use crate::{
    crypto::{Context, Keys, Mac},
    host::Host,
    id::{ArtifactId, CheckpointId, Digest, OperationId, SessionId, TurnId},
    store::{RowDigest, Rows, Store, StoreError, Tx, View},
};

/// Whether bytes are text as far as an edit is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentClass {
    /// Neither NUL nor the mark of UTF-16 or UTF-32.
    FileContent,
    /// One of them.
    BinaryBlob,
}

impl ContentClass {
    /// The class once another piece is known.
    pub(super) fn with(self, piece: &[u8], first: bool) -> Self {
        let bom = first
            && (piece.starts_with(&[0xFF, 0xFE])
                || piece.starts_with(&[0xFE, 0xFF])
                || piece.starts_with(&[0, 0, 0xFE, 0xFF]));
        if self == Self::BinaryBlob || bom || piece.contains(&0) {
            Self::BinaryBlob
        } else {
            Self::FileContent
        }
    }

    /// The class of whole content.
    pub fn of(bytes: &[u8]) -> Self {
        Self::FileContent.with(bytes, true)
    }

    /// The word of the class.
    pub fn token(self) -> &'static str {
        match self {
            Self::FileContent => "file-content",
            Self::BinaryBlob => "binary-blob",
        }
    }
}

/// What an operation does to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It makes it.
    Create,
    /// It changes it.
    Edit,
    /// It removes it.
    Delete,
}

impl Effect {
    /// The word of the effect.
    pub fn token(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Edit => "edit",
            Self::Delete => "delete",
        }
    }
}

/// An extended attribute: name and value.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// What a file has besides its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileMeta {
    /// Permission bits.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// When it was last written. Nanoseconds since the epoch.
    pub mtime_ns: i128,
    /// Hard links.
    pub nlink: u64,
    /// Bytes.
    pub bytes: u64,
}

/// What stands at a target.
#[derive(Debug)]
pub enum ImageState {
    /// A file, with its sealed image.
    Present {
        /// The image.
        image: Box<SealedImage>,
        /// The rest of it.
        meta: FileMeta,
    },
    /// A file whose very bytes are kept already, as an image of the same path: one blob serves both.
    Kept {
        /// That image.
        artifact: ArtifactId,
        /// The MAC of its digest, as its row has it.
        digest_mac: Vec<u8>,
        /// Whether its content is text or binary.
        class: ContentClass,
        /// The rest of it.
        meta: FileMeta,
    },
    /// Nothing: ENOENT or ENOTDIR, and only these.
    Absent,
}

impl ImageState {
    fn class(&self) -> Option<ContentClass> {
        match self {
            Self::Present { image, .. } => Some(image.class()),
            Self::Kept { class, .. } => Some(*class),
            Self::Absent => None,
        }
    }
}

/// A file of a checkpoint that is about to be kept.
#[derive(Debug)]
pub struct NewTarget {
    /// What the operation does.
    pub effect: Effect,
    /// The path, relative to the root, as raw bytes.
    pub path: Vec<u8>,
    /// Extended attributes of the file before: name and value.
    pub xattrs: Vec<Xattr>,
    /// The directories that are made for it, outermost first.
    pub made_parents: Vec<String>,
    /// Before.
    pub pre: ImageState,
    /// After.
    pub post: ImageState,
    /// The permission bits of its directory.
    pub parent_mode: Option<u32>,
}

/// A checkpoint that is about to be kept: one file for a tool call, all its files for a rollback.
#[derive(Debug)]
pub struct NewCheckpoint {
    /// Its id.
    pub checkpoint_id: CheckpointId,
    /// The operation.
    pub operation_id: OperationId,
    /// The session.
    pub session_id: SessionId,
    /// The turn.
    pub turn_id: TurnId,
    /// The turn's ordinal.
    pub prompt_round: u32,
    /// How long it is kept.
    pub retention: RetentionConfig,
    /// The files.
    pub targets: Vec<NewTarget>,
}

impl NewCheckpoint {
    /// The transaction that keeps it is committed. Without this its sealed files go with it.
    pub fn committed(self) {
        for state in self.targets.into_iter().flat_map(|target| [target.pre, target.post]) {
            if let ImageState::Present { mut image, .. } = state {
                image.committed();
            }
        }
    }
}

/// What is sealed of a target: what would tell where it is.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TargetPath {
    pub(super) path: Vec<u8>,
    pub(super) made_parents: Vec<String>,
    pub(super) xattrs: Vec<Xattr>,
}

impl fmt::Debug for TargetPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[sealed path]")
    }
}

fn path_mac(keys: &Keys, path: &[u8]) -> Mac {
    keys.path.of(&Context::new("thcode path").field(path))
}

fn target_context(store: &[u8; 16], checkpoint: &[u8], ordinal: u64) -> Context {
    Context::new("thcode target").field(store).field(checkpoint).number(ordinal)
}

/// Opens what is sealed of a target, and sees that it is of the path that the row is found by.
pub(super) fn open_target<S>(
    view: View<'_, S>,
    checkpoint: &[u8],
    ordinal: u64,
    sealed: &[u8],
    mac: &[u8],
) -> Result<TargetPath, CheckpointError> {
    let corrupt = CheckpointError::Corrupt;
    let context = target_context(&view.id, checkpoint, ordinal);
    let plain = view.keys.small.open(&context, sealed).map_err(|_| corrupt("a path was altered"))?;
    let path: TargetPath =
        serde_json::from_slice(&plain).map_err(|_| corrupt("a path isn't of its form"))?;
    if path_mac(view.keys, &path.path).as_bytes().as_slice() == mac {
        Ok(path)
    } else {
        Err(corrupt("a target is found by another path than its own"))
    }
}

pub(super) fn digest_mac(keys: &Keys, digest: &Digest) -> Mac {
    keys.digest.of(&Context::new("thcode digest").field(digest.as_bytes()))
}

/// What a checkpoint's rows say for good; what became of its operation is the journal's to say.
pub(super) fn rows_digest(rows: &impl Rows, checkpoint: &[u8]) -> Result<Digest, StoreError> {
    let mut digest = RowDigest::new("thcode checkpoint");
    let head = "SELECT checkpoint_id, operation_id, session_id, turn_id, prompt_round, created_at, \
        retention_rounds FROM checkpoint WHERE checkpoint_id = ?1";
    for sql in [head, "SELECT * FROM target WHERE checkpoint_id = ?1 ORDER BY ordinal"] {
        rows.each(sql, [checkpoint], |row| Ok::<_, StoreError>(digest.add(row)?))?;
    }
    Ok(digest.finish())
}

struct Last {
    checkpoint_id: Vec<u8>,
    version: u64,
    post_digest: Option<Vec<u8>>,
    post_artifact: Option<Vec<u8>>,
}

/// The last change of a path that took effect.
fn last(tx: &Tx<'_>, path: &Mac) -> Result<Option<Last>, StoreError> {
    let sql = "SELECT t.checkpoint_id, t.version, t.post_digest, t.post_artifact FROM target t \
               JOIN checkpoint c USING (checkpoint_id) \
               WHERE t.path_mac = ?1 AND c.commit_state = 'committed' ORDER BY t.version DESC LIMIT 1";
    tx.first(sql, [path.as_bytes().as_slice()], |row| {
        Ok(Last {
            checkpoint_id: row.get(0)?,
            version: u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0),
            post_digest: row.get(2)?,
            post_artifact: row.get(3)?,
        })
    })
}

/// What is stored of images.
pub fn usage(store: &Store) -> Result<Usage, StoreError> {
    let sum = store.first("SELECT ifnull(sum(stored), 0) FROM blob", [], |row| row.get::<_, i64>(0))?;
    Ok(Usage { store: u64::try_from(sum.unwrap_or(0)).unwrap_or(0) })
}

/// Keeps a checkpoint, in the transaction that journals it. Gives the digest of its rows, for the
/// journal.
pub fn commit(
    host: &Host,
    store: &Store,
    tx: &Tx<'_>,
    new: &NewCheckpoint,
) -> Result<Digest, CheckpointError> {
    let id = new.checkpoint_id.as_bytes().as_slice();
    tx.execute_one(
        "INSERT INTO checkpoint VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'pending', ?7)",
        rusqlite::params![
            id,
            new.operation_id.as_bytes().as_slice(),
            new.session_id.as_bytes().as_slice(),
            new.turn_id.as_bytes().as_slice(),
            new.prompt_round,
            host.now().as_millis(),
            new.retention.rounds(),
        ],
    )?;
    for (ordinal, target) in (0..).zip(&new.targets) {
        keep(host, store, tx, new, ordinal, target)?;
    }
    Ok(rows_digest(tx, id)?)
}

fn keep(
    host: &Host,
    store: &Store,
    tx: &Tx<'_>,
    new: &NewCheckpoint,
    ordinal: u32,
    target: &NewTarget,
) -> Result<(), CheckpointError> {
    let id = new.checkpoint_id.as_bytes().as_slice();
    let mac = path_mac(store.keys(), &target.path);
    let before = last(tx, &mac)?;
    let version = before.as_ref().map_or(0, |last| last.version) + 1;
    let reference = |role| Reference {
        checkpoint_id: new.checkpoint_id,
        operation_id: new.operation_id,
        ordinal,
        role,
    };
    let pre = kept(host, store, tx, &target.pre, &reference("pre"), before.as_ref())?;
    let post = kept(host, store, tx, &target.post, &reference("post"), None)?;
    let class = target.pre.class().or(target.post.class()).unwrap_or(ContentClass::FileContent);
    let path = TargetPath {
        path: target.path.clone(),
        made_parents: target.made_parents.clone(),
        xattrs: target.xattrs.clone(),
    };
    let path =
        serde_json::to_vec(&path).map_err(|_| CheckpointError::Corrupt("a path can't be written"))?;
    let context = target_context(&store.facts().id, id, u64::from(ordinal));
    let sealed = store.keys().small.seal(host, &context, &path)?;
    tx.execute_one(
        "INSERT INTO target VALUES \
         (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
        rusqlite::params![
            id,
            ordinal,
            target.effect.token(),
            sealed,
            mac.as_bytes().as_slice(),
            i64::try_from(version).unwrap_or(i64::MAX),
            before.as_ref().map(|last| last.checkpoint_id.as_slice()),
            pre.state,
            pre.digest,
            pre.meta,
            post.state,
            post.digest,
            post.meta,
            target.parent_mode,
            class.token(),
            pre.artifact.map(|id| id.as_bytes().to_vec()),
            post.artifact.map(|id| id.as_bytes().to_vec()),
        ],
    )?;
    Ok(())
}

struct Kept {
    state: &'static str,
    digest: Option<Vec<u8>>,
    meta: Option<String>,
    artifact: Option<ArtifactId>,
}

fn kept(
    host: &Host,
    store: &Store,
    tx: &Tx<'_>,
    state: &ImageState,
    reference: &Reference,
    before: Option<&Last>,
) -> Result<Kept, CheckpointError> {
    let (mac, artifact, meta) = match state {
        ImageState::Absent => {
            return Ok(Kept { state: "absent", digest: None, meta: None, artifact: None });
        }
        ImageState::Kept { artifact, digest_mac, meta, .. } => {
            (digest_mac.clone(), refer_again(host, store, tx, *artifact, reference)?, meta)
        }
        ImageState::Present { image, meta } => {
            let mac = digest_mac(store.keys(), &image.digest).as_bytes().to_vec();
            // The image before is what this program itself left there: one blob serves both.
            let shared = before
                .filter(|last| last.post_digest.as_deref() == Some(mac.as_slice()))
                .and_then(|last| ArtifactId::from_bytes(last.post_artifact.as_deref()?).ok());
            let artifact = match shared {
                Some(artifact) => refer_again(host, store, tx, artifact, reference)?,
                None => refer(host, store, tx, image, reference)?,
            };
            (mac, artifact, meta)
        }
    };
    let meta = serde_json::to_string(meta)
        .map_err(|_| CheckpointError::Corrupt("metadata can't be written"))?;
    Ok(Kept { state: "present", digest: Some(mac), meta: Some(meta), artifact: Some(artifact) })
}

/// Tells a checkpoint what became of its mutation.
pub fn settle(tx: &Tx<'_>, checkpoint: CheckpointId, committed: bool) -> Result<(), StoreError> {
    let state = if committed { "committed" } else { "failed" };
    let sql = "UPDATE checkpoint SET commit_state = ?2 WHERE checkpoint_id = ?1";
    tx.execute_one(sql, rusqlite::params![checkpoint.as_bytes().as_slice(), state])
}
