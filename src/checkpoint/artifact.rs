//! Images of files, sealed: small ones as rows, large ones as files beside the database, synced
//! before the transaction that refers to them. Memory stays at one chunk.

use std::{
    cell::Cell,
    collections::BTreeSet,
    fmt,
    fs::{File, OpenOptions},
    io::{self, Read, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::{CheckpointError, ContentClass};
use crate::{
    crypto::{CHUNK_BYTES, ContentKey, Context, Keys, OVERHEAD_BYTES, Opener, Sealer},
    host::Host,
    id::{ArtifactId, CheckpointId, Digest, OperationId},
    store::{Rows, Store, StoreError, Tx, View},
};

/// An image over this lies in a file of its own.
const ROW_BYTES: u64 = CHUNK_BYTES as u64;
/// The version of what is sealed.
const SCHEMA: u32 = 1;
/// The folder of the sealed files in the state directory.
pub(super) const FOLDER: &str = "sealed";

/// The content of a file. Not to be printed, not to be serialised, wiped when dropped.
pub struct Image(Zeroizing<Vec<u8>>);

impl Image {
    /// Takes the bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes, for whoever compares or writes them.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[image of {} bytes]", self.0.len())
    }
}

/// Where an image is read from while it is sealed.
pub enum ImageSource<'a> {
    /// Bytes in memory.
    Bytes(&'a [u8]),
    /// An open file from its start.
    File(&'a mut File, u64),
}

/// A blob that is sealed, and not yet referred to.
pub struct SealedImage {
    blob_id: Uuid,
    class: ContentClass,
    bytes: u64,
    stored: u64,
    sealer: Sealer,
    /// The sealed chunks, where they go into rows.
    chunks: Vec<Vec<u8>>,
    /// The sealed file, where they don't.
    file: Option<Unreferred>,
    /// Whether a row speaks of it now, if the transaction commits.
    referred: Cell<bool>,
    /// SHA-256 of the plaintext: in memory alone.
    pub digest: Digest,
    /// SHA-256 of salt and plaintext, for `inflight`.
    pub salted: Digest,
}

impl fmt::Debug for SealedImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedImage")
            .field("blob_id", &self.blob_id)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl SealedImage {
    /// The length of the content. Bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What it takes on the disk. Bytes.
    pub fn stored(&self) -> u64 {
        self.stored
    }

    /// The transaction that refers to it is committed: its file stays.
    pub(super) fn committed(&mut self) {
        if let Some(file) = self.file.as_mut().filter(|_| self.referred.get()) {
            file.armed = false;
        }
    }

    /// Whether the content is text or binary.
    pub fn class(&self) -> ContentClass {
        self.class
    }
}

/// A sealed file that no durable row speaks of: removed when dropped.
struct Unreferred {
    path: PathBuf,
    armed: bool,
}

impl Drop for Unreferred {
    fn drop(&mut self) {
        if self.armed {
            drop(std::fs::remove_file(&self.path));
        }
    }
}

/// Seals an image: one pass that hashes, classifies and encrypts. A large one is synced to its file
/// when this returns.
pub fn seal(
    host: &Host,
    store: &Store,
    source: ImageSource<'_>,
    salt: &[u8; 32],
) -> Result<SealedImage, CheckpointError> {
    let (length, mut reader): (u64, Box<dyn Read + '_>) = match source {
        ImageSource::Bytes(bytes) => (u64::try_from(bytes.len()).unwrap_or(u64::MAX), Box::new(bytes)),
        ImageSource::File(file, length) => (length, Box::new(file)),
    };
    let blob_id = host.uuid();
    let context = blob_context(&store.facts().id, blob_id, length);
    let mut sealer = Sealer::begin(host, context)?;
    let mut file = (length > ROW_BYTES).then(|| SealedFile::make(store.dir(), blob_id)).transpose()?;
    let (mut plain, mut salted) = (Sha256::new(), Sha256::new_with_prefix(salt));
    let mut class = ContentClass::FileContent;
    let (mut left, mut stored, mut chunks, mut first) = (length, 0u64, Vec::new(), true);
    loop {
        let take = left.min(CHUNK_BYTES as u64);
        let mut chunk =
            Zeroizing::new(Vec::with_capacity(usize::try_from(take).unwrap_or(0) + OVERHEAD_BYTES));
        (&mut reader).take(take).read_to_end(&mut chunk).map_err(CheckpointError::Source)?;
        if u64::try_from(chunk.len()).unwrap_or(u64::MAX) != take {
            return Err(CheckpointError::Changed);
        }
        left -= take;
        class = class.with(&chunk, first);
        first = false;
        plain.update(chunk.as_slice());
        salted.update(chunk.as_slice());
        sealer.chunk(&mut chunk, left == 0)?;
        stored += u64::try_from(chunk.len()).unwrap_or(u64::MAX);
        match &mut file {
            Some(file) => file.write(&chunk)?,
            None => chunks.push(chunk.to_vec()),
        }
        if left == 0 {
            break;
        }
    }
    let mut more = [0u8; 1];
    if reader.read(&mut more).map_err(CheckpointError::Source)? != 0 {
        return Err(CheckpointError::Changed);
    }
    let file = file.map(SealedFile::finish).transpose()?;
    Ok(SealedImage {
        blob_id,
        class,
        bytes: length,
        stored,
        sealer,
        chunks,
        file,
        referred: Cell::new(false),
        digest: Digest::from_bytes(plain.finalize().into()),
        salted: Digest::from_bytes(salted.finalize().into()),
    })
}

/// What an image is to a checkpoint.
pub(super) struct Reference {
    pub(super) checkpoint_id: CheckpointId,
    pub(super) operation_id: OperationId,
    pub(super) ordinal: u32,
    pub(super) role: &'static str,
}

impl Reference {
    fn context(&self, store: &[u8; 16], blob: &[u8], key_version: u32) -> Context {
        Context::new("thcode artifact")
            .field(store)
            .field(self.checkpoint_id.as_bytes())
            .field(self.operation_id.as_bytes())
            .number(self.ordinal.into())
            .field(self.role.as_bytes())
            .field(blob)
            .number(key_version.into())
    }
}

/// Writes a sealed blob's rows and its first reference.
pub(super) fn refer(
    host: &Host,
    store: &Store,
    tx: &Tx<'_>,
    image: &SealedImage,
    reference: &Reference,
) -> Result<ArtifactId, CheckpointError> {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    tx.execute_one(
        "INSERT INTO blob VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        rusqlite::params![
            image.blob_id.as_bytes().as_slice(),
            image.class.token(),
            SCHEMA,
            number(image.bytes),
            number(image.stored),
            image.sealer.prefix(),
            image.file.is_some(),
        ],
    )?;
    for (at, chunk) in image.chunks.iter().enumerate() {
        let at = i64::try_from(at).unwrap_or(i64::MAX);
        let sql = "INSERT INTO chunk VALUES (?1, ?2, ?3)";
        tx.execute_one(sql, rusqlite::params![image.blob_id.as_bytes().as_slice(), at, chunk])?;
    }
    image.referred.set(true);
    insert_reference(host, store, tx, image.blob_id.as_bytes(), image.sealer.key(), reference)
}

/// One more reference to the blob of another artifact: only where the bytes are the same file's own
/// last image.
pub(super) fn refer_again(
    host: &Host,
    store: &Store,
    tx: &Tx<'_>,
    artifact: ArtifactId,
    reference: &Reference,
) -> Result<ArtifactId, CheckpointError> {
    let row = find(|sql, params, read| tx.first(sql, params, read), artifact)?;
    let key = row.unwrap(&store.facts().id, store.keys())?;
    insert_reference(host, store, tx, &row.blob_id, &key, reference)
}

fn insert_reference(
    host: &Host,
    store: &Store,
    tx: &Tx<'_>,
    blob: &[u8],
    key: &ContentKey,
    reference: &Reference,
) -> Result<ArtifactId, CheckpointError> {
    let artifact_id = ArtifactId::from_uuid(host.uuid());
    let facts = store.facts();
    let context = reference.context(&facts.id, blob, facts.key_version);
    let wrapped = store.keys().content.wrap(host, &context, key)?;
    tx.execute_one(
        "INSERT INTO artifact VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        rusqlite::params![
            artifact_id.as_bytes().as_slice(),
            blob,
            reference.checkpoint_id.as_bytes().as_slice(),
            reference.operation_id.as_bytes().as_slice(),
            reference.ordinal,
            reference.role,
            facts.key_version,
            wrapped,
        ],
    )?;
    Ok(artifact_id)
}

struct ArtifactRow {
    blob_id: Vec<u8>,
    key_version: u32,
    wrapped: Vec<u8>,
    reference: Reference,
}

impl ArtifactRow {
    fn unwrap(&self, store: &[u8; 16], keys: &Keys) -> Result<ContentKey, CheckpointError> {
        let context = self.reference.context(store, &self.blob_id, self.key_version);
        let corrupt = |_| CheckpointError::Corrupt("an image's key does not open in its place");
        keys.content.unwrap(&context, &self.wrapped).map_err(corrupt)
    }
}

type ReadRow = fn(&rusqlite::Row<'_>) -> rusqlite::Result<ArtifactRow>;

fn find(
    first: impl FnOnce(&str, [Vec<u8>; 1], ReadRow) -> Result<Option<ArtifactRow>, StoreError>,
    artifact: ArtifactId,
) -> Result<ArtifactRow, CheckpointError> {
    let sql = "SELECT blob_id, checkpoint_id, operation_id, ordinal, role, key_version, wrapped \
               FROM artifact WHERE artifact_id = ?1";
    let read: ReadRow = |row| {
        let id = |at: usize| row.get::<_, Vec<u8>>(at);
        let bad = |_| rusqlite::Error::InvalidQuery;
        let role: String = row.get(4)?;
        Ok(ArtifactRow {
            blob_id: id(0)?,
            key_version: row.get(5)?,
            wrapped: row.get(6)?,
            reference: Reference {
                checkpoint_id: CheckpointId::from_bytes(&id(1)?).map_err(bad)?,
                operation_id: OperationId::from_bytes(&id(2)?).map_err(bad)?,
                ordinal: row.get(3)?,
                role: match role.as_str() {
                    "pre" => "pre",
                    "post" => "post",
                    _ => return Err(rusqlite::Error::InvalidQuery),
                },
            },
        })
    };
    let row = first(sql, [artifact.as_bytes().to_vec()], read)?;
    row.ok_or(CheckpointError::Missing("an image is referred to and is not there"))
}

/// Whether a reference is what was written, in its place: its key opens. The image itself isn't read.
pub(super) fn opens(view: View<'_, impl Rows>, artifact: ArtifactId) -> Result<(), CheckpointError> {
    let row = find(|sql, params, read| view.rows.first(sql, params, read), artifact)?;
    row.unwrap(&view.id, view.keys).map(drop)
}

/// Opens an image, chunk by chunk, and checks it whole: nothing counts before this returns.
pub fn open_artifact(
    view: View<'_, impl Rows>,
    artifact: ArtifactId,
    each: &mut dyn FnMut(&[u8]) -> Result<(), CheckpointError>,
) -> Result<Digest, CheckpointError> {
    let row = find(|sql, params, read| view.rows.first(sql, params, read), artifact)?;
    let key = row.unwrap(&view.id, view.keys)?;
    let sql = "SELECT bytes, prefix, in_file, schema, class, stored FROM blob WHERE blob_id = ?1";
    let blob = view.rows.first(sql, [row.blob_id.as_slice()], |row| {
        Ok((
            row.get::<_, i64>(0)?,
            row.get::<_, Vec<u8>>(1)?,
            row.get::<_, bool>(2)?,
            row.get::<_, u32>(3)?,
            (row.get::<_, String>(4)?, row.get::<_, i64>(5)?),
        ))
    })?;
    let corrupt = CheckpointError::Corrupt;
    let (bytes, prefix, in_file, schema, told) =
        blob.ok_or(CheckpointError::Missing("an image has no blob"))?;
    let bytes = u64::try_from(bytes).map_err(|_| corrupt("an image has a negative length"))?;
    if schema != SCHEMA {
        return Err(corrupt("an image is of an unknown version"));
    }
    let blob_id =
        Uuid::from_slice(&row.blob_id).map_err(|_| corrupt("a blob's id has another length"))?;
    let context = blob_context(&view.id, blob_id, bytes);
    let mut opener = Opener::begin(key, context, &prefix)?;
    let mut digest = Sha256::new();
    let (mut class, mut stored) = (ContentClass::FileContent, 0i64);
    let last = bytes.saturating_sub(1) / CHUNK_BYTES as u64;
    let mut file = if in_file { Some(SealedFile::open(view.dir, blob_id)?) } else { None };
    for number in 0..=last {
        let plain =
            if number == last { bytes - number * CHUNK_BYTES as u64 } else { CHUNK_BYTES as u64 };
        let mut chunk = match &mut file {
            Some(file) => file.read(plain + OVERHEAD_BYTES as u64)?,
            None => {
                let sql = "SELECT sealed FROM chunk WHERE blob_id = ?1 AND number = ?2";
                let number = i64::try_from(number).unwrap_or(i64::MAX);
                let found = view
                    .rows
                    .first(sql, (row.blob_id.as_slice(), number), |row| row.get::<_, Vec<u8>>(0))?;
                found.ok_or(CheckpointError::Missing("an image lacks a chunk"))?
            }
        };
        stored = stored.saturating_add(i64::try_from(chunk.len()).unwrap_or(i64::MAX));
        opener.chunk(&mut chunk, number == last).map_err(|_| corrupt("an image was altered"))?;
        let chunk = Zeroizing::new(chunk);
        if u64::try_from(chunk.len()).unwrap_or(u64::MAX) != plain {
            return Err(corrupt("an image has another length"));
        }
        digest.update(chunk.as_slice());
        class = class.with(&chunk, number == 0);
        each(&chunk)?;
    }
    if (class.token(), stored) != (told.0.as_str(), told.1) {
        return Err(corrupt("an image is not what its row says"));
    }
    Ok(Digest::from_bytes(digest.finalize().into()))
}

fn blob_context(store: &[u8; 16], blob: Uuid, length: u64) -> Context {
    Context::new("thcode image").field(store).field(blob.as_bytes()).number(SCHEMA.into()).number(length)
}

/// A sealed file in the making, or opened.
struct SealedFile {
    path: PathBuf,
    file: File,
    /// Armed while it is in the making.
    guard: Unreferred,
}

impl SealedFile {
    fn path(dir: &Path, blob: Uuid) -> PathBuf {
        dir.join(FOLDER).join(format!("{}.sealed", blob.simple()))
    }

    fn error(path: &Path, source: io::Error) -> CheckpointError {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        CheckpointError::SealedFile { name, source }
    }

    fn make(dir: &Path, blob: Uuid) -> Result<Self, CheckpointError> {
        use std::os::unix::fs::DirBuilderExt as _;
        let path = Self::path(dir, blob);
        let folder = dir.join(FOLDER);
        let error = |source| Self::error(&path, source);
        match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => File::open(dir).and_then(|dir| dir.sync_all()).map_err(error)?,
            Err(found) if found.kind() == io::ErrorKind::AlreadyExists => {}
            Err(found) => return Err(error(found)),
        }
        let file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(error)?;
        let guard = Unreferred { path: path.clone(), armed: true };
        Ok(Self { path, file, guard })
    }

    fn open(dir: &Path, blob: Uuid) -> Result<Self, CheckpointError> {
        let path = Self::path(dir, blob);
        match File::open(&path) {
            Ok(file) => {
                let guard = Unreferred { path: path.clone(), armed: false };
                Ok(Self { path, file, guard })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(CheckpointError::Missing("a sealed file is not there"))
            }
            Err(error) => Err(Self::error(&path, error)),
        }
    }

    fn write(&mut self, sealed: &[u8]) -> Result<(), CheckpointError> {
        self.file.write_all(sealed).map_err(|source| Self::error(&self.path, source))
    }

    fn read(&mut self, bytes: u64) -> Result<Vec<u8>, CheckpointError> {
        let mut sealed = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
        (&self.file)
            .take(bytes)
            .read_to_end(&mut sealed)
            .map_err(|source| Self::error(&self.path, source))?;
        Ok(sealed)
    }

    fn finish(self) -> Result<Unreferred, CheckpointError> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let synced = self.file.sync_all().and_then(|()| File::open(folder)?.sync_all());
        synced.map_err(|source| Self::error(&self.path, source))?;
        Ok(self.guard)
    }
}

/// The names of the sealed files that are there.
pub(super) fn sealed_files(dir: &Path) -> Result<BTreeSet<String>, CheckpointError> {
    let folder = dir.join(FOLDER);
    let error = |source| CheckpointError::SealedFile { name: FOLDER.to_owned(), source };
    match std::fs::read_dir(&folder) {
        Ok(entries) => entries
            .map(|entry| Ok(entry.map_err(error)?.file_name().to_string_lossy().into_owned()))
            .collect(),
        Err(found) if found.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(found) => Err(error(found)),
    }
}

/// The name of a blob's sealed file.
pub(super) fn sealed_name(blob: &[u8]) -> Option<String> {
    let blob = Uuid::from_slice(blob).ok()?;
    Some(SealedFile::path(Path::new(""), blob).file_name()?.to_string_lossy().into_owned())
}
