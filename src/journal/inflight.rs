//! What recovery needs in clear, and only for as long as it needs it: where the effect goes, under
//! which name it is prepared, and what both images hash to under a salt that lives no longer.

use crate::{
    crypto::Context,
    id::{Digest, OperationId},
    store::{Rows, StoreError, Tx},
};

/// A row of `inflight`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inflight {
    /// The operation.
    pub operation_id: OperationId,
    /// The target, relative to the workspace root, as raw bytes.
    pub path: Vec<u8>,
    /// The name, in the target's directory, of the temporary file or of the quarantine.
    pub temp: Vec<u8>,
    /// The parents that are made for it, NUL-separated, outermost first.
    pub parents: Vec<u8>,
    /// The salt of both digests.
    pub salt: [u8; 32],
    /// What stands there before; `None` where nothing does.
    pub pre: Option<InflightImage>,
    /// What is to stand there; `None` where nothing is.
    pub post: Option<InflightImage>,
    /// The kernel's id of this boot.
    pub boot_id: String,
    /// The file system of the workspace root.
    pub root_fsid: Vec<u8>,
    /// The inode of the workspace root.
    pub root_ino: u64,
}

/// An image, as far as it can be recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InflightImage {
    /// SHA-256 of salt and content.
    pub digest: Digest,
    /// Its bytes.
    pub bytes: u64,
    /// Its permission bits.
    pub mode: u32,
}

impl Inflight {
    /// The digest that the dispatch event carries.
    pub fn digest(&self) -> Digest {
        let image = |context: Context, image: &Option<InflightImage>| match image {
            Some(image) => {
                context.field(image.digest.as_bytes()).number(image.bytes).number(image.mode.into())
            }
            None => context.field(b"absent"),
        };
        let context = Context::new("thcode inflight")
            .field(self.operation_id.as_bytes())
            .field(&self.path)
            .field(&self.temp)
            .field(&self.parents)
            .field(&self.salt);
        let context = image(image(context, &self.pre), &self.post)
            .field(self.boot_id.as_bytes())
            .field(&self.root_fsid)
            .number(self.root_ino);
        context.digest()
    }

    /// Every row, by operation.
    pub fn all(store: &impl Rows) -> Result<Vec<Self>, StoreError> {
        let mut found = Vec::new();
        let sql = "SELECT operation_id, path, temp, parents, salt, pre, post, pre_bytes, post_bytes, \
            pre_mode, post_mode, boot_id, root_fsid, root_ino FROM inflight ORDER BY operation_id";
        store.each(sql, [], |row| {
            let strange = |_| StoreError::Corrupt("a row of inflight makes no sense".to_owned());
            let blob = |at| Ok::<Vec<u8>, StoreError>(row.get(at)?);
            let number = |at: usize| -> Result<u64, StoreError> {
                u64::try_from(row.get::<_, i64>(at)?).map_err(strange)
            };
            let image = |digest: usize, bytes: usize, mode: usize| {
                let Some(digest) = row.get::<_, Option<Vec<u8>>>(digest)? else {
                    return Ok::<_, StoreError>(None);
                };
                let digest = <[u8; 32]>::try_from(digest).map_err(|_| {
                    StoreError::Corrupt("a digest of inflight has another length".to_owned())
                })?;
                let mode = row.get(mode)?;
                Ok(Some(InflightImage {
                    digest: Digest::from_bytes(digest),
                    bytes: number(bytes)?,
                    mode,
                }))
            };
            let salt = <[u8; 32]>::try_from(blob(4)?)
                .map_err(|_| StoreError::Corrupt("a salt of inflight has another length".to_owned()))?;
            found.push(Self {
                operation_id: OperationId::from_bytes(&blob(0)?)
                    .map_err(|_| StoreError::Corrupt("an operation has no valid id".to_owned()))?,
                path: blob(1)?,
                temp: blob(2)?,
                parents: blob(3)?,
                salt,
                pre: image(5, 7, 9)?,
                post: image(6, 8, 10)?,
                boot_id: row.get(11)?,
                root_fsid: blob(12)?,
                root_ino: number(13)?,
            });
            Ok::<_, StoreError>(())
        })?;
        Ok(found)
    }

    pub(super) fn insert(&self, tx: &Tx<'_>) -> Result<(), StoreError> {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let digest = |image: &Option<InflightImage>| image.map(|image| image.digest.as_bytes().to_vec());
        tx.execute_one(
            "INSERT INTO inflight VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
            rusqlite::params![
                self.operation_id.as_bytes().as_slice(),
                self.path,
                self.temp,
                self.parents,
                self.salt.as_slice(),
                digest(&self.pre),
                digest(&self.post),
                number(self.pre.map_or(0, |image| image.bytes)),
                number(self.post.map_or(0, |image| image.bytes)),
                self.pre.map(|image| image.mode),
                self.post.map(|image| image.mode),
                self.boot_id,
                self.root_fsid,
                number(self.root_ino),
            ],
        )
    }

    pub(super) fn delete(tx: &Tx<'_>, operation: OperationId) -> Result<(), StoreError> {
        let sql = "DELETE FROM inflight WHERE operation_id = ?1";
        tx.execute_one(sql, [operation.as_bytes().as_slice()])
    }
}
