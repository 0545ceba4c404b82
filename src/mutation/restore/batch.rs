//! A batch of files: looked at once more, dispatched in one commit, and made in the steps of any other
//! change, each step for all of them before the next.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{Read as _, Seek as _},
};

use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::{Aim, End, Former, KeptBefore, Ordered, Wanted, decided, event, look, unmake};
use crate::{
    checkpoint::{self, CheckpointError, Image, StoredImage, open_artifact},
    host::CrashPoint,
    id::{AuthorizationId, Digest, OperationId},
    journal::{DispatchCommitted, Event, Inflight, InflightImage, Part, PartEnd, Payload},
    mutation::{
        MutationError,
        change::{About, Vault},
        native::{self, Enforcement, Keep, Metadata, TempError},
        pipeline::temp_name,
        preflight::{Found, Parent, Refusal},
        publish::{self, Plan, Published},
    },
    store::Durability,
};

/// An image up to this is opened once and held while its batch is at work; a larger one is streamed
/// twice. Bytes.
const HELD: u64 = 256 << 10;

/// Some files at once.
pub(super) struct Batch<'v, 'a> {
    pub(super) vault: &'v mut Vault<'a>,
    pub(super) about: About,
    pub(super) ordered: Ordered<'v>,
    pub(super) kept: &'v KeptBefore,
}

/// A file of a batch, ready to be dispatched.
struct Ready<'w> {
    at: usize,
    wanted: &'w Wanted,
    parent: Parent,
    /// How many directories have to be made for it.
    made: usize,
    inflight: Inflight,
    /// The image that comes back, where it is small.
    held: Option<Image>,
}

/// A file by its place in the order that was given, the operation that it became, how it ended, and
/// the proof of its intent if it was dispatched.
pub(super) struct Done {
    pub(super) at: usize,
    pub(super) operation_id: OperationId,
    pub(super) end: End,
    pub(super) proof: Option<DispatchCommitted>,
}

impl Batch<'_, '_> {
    pub(super) fn carry_out(
        &mut self,
        wanted: &[Wanted],
        aims: &[(usize, Aim)],
        first: usize,
        whole: &mut Option<AuthorizationId>,
    ) -> Result<Vec<Done>, MutationError> {
        let (mut done, mut ready, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        let mut ordinals = Vec::new();
        let meant = aims.iter().filter_map(|(_, aim)| aim.identity).collect();
        let written = self.vault.host.open_for_writing(Some(&meant));
        for (ordinal, (at, aim)) in (first..).zip(aims) {
            let Some(wanted) = wanted.get(*at) else { continue };
            match self.ready(*at, wanted, (aim, &written))? {
                Ok(one) => {
                    ordinals.push(u32::try_from(ordinal).unwrap_or(u32::MAX));
                    ready.push(one);
                }
                Err(refusal) => refused.push((*at, refusal)),
            }
        }
        for (at, refusal) in refused {
            let id = self.refuse(&refusal)?;
            done.push(Done { at, operation_id: id, end: End::Not(refusal), proof: None });
        }
        // Even where nothing of the first batch is left the operation itself is dispatched: what is
        // recorded of it goes on from there.
        let parts = ready
            .iter()
            .zip(ordinals)
            .map(|(one, ordinal)| Part {
                before: self.before(one.inflight.operation_id, ordinal),
                inflight: one.inflight.clone(),
            })
            .collect();
        let template = event(self.about, self.about.operation_id, None, Payload::OperationSucceeded {});
        let vault = &mut *self.vault;
        let whole = whole.take().map(|id| (&template, id));
        let proofs = vault.log.dispatch_parts(vault.host, vault.store, whole, parts)?;
        vault.host.crash_point(CrashPoint::Anchored);
        done.extend(self.publish(ready, proofs)?);
        Ok(done)
    }

    /// What the journal has of a part before its dispatch.
    fn before(&self, id: OperationId, ordinal: u32) -> Vec<Event> {
        let authorization_id = AuthorizationId::from_uuid(self.vault.host.uuid());
        let covered = Payload::TargetCovered {
            checkpoint_id: self.kept.checkpoint_id,
            ordinal,
            rows: self.kept.rows,
            authorization_id,
        };
        let payloads = decided(self.ordered)
            .into_iter()
            .chain([covered, Payload::AuthorizationConsumed { authorization_id }]);
        payloads.map(|payload| self.event(id, payload)).collect()
    }

    fn event(&self, id: OperationId, payload: Payload) -> Event {
        event(self.about, id, Some(self.about.operation_id), payload)
    }

    /// A file that isn't as it was analyzed: an operation that ends before it begins.
    fn refuse(&mut self, refusal: &Refusal) -> Result<OperationId, MutationError> {
        let id = OperationId::from_uuid(self.vault.host.uuid());
        let blocked = Payload::OperationBlocked { cause: refusal.cause.to_owned() };
        let events: Vec<Event> = decided(self.ordered)
            .into_iter()
            .chain([blocked])
            .map(|payload| self.event(id, payload))
            .collect();
        let vault = &mut *self.vault;
        vault.log.write(vault.host, vault.store, Durability::Normal, |_, stage| {
            events.into_iter().for_each(|event| stage.push(event));
            Ok::<_, MutationError>(())
        })?;
        Ok(id)
    }

    /// Looks once more, by content, and makes ready what recovery would need.
    fn ready<'w>(
        &self,
        at: usize,
        wanted: &'w Wanted,
        (aim, written): (&Aim, &BTreeSet<(u64, u64)>),
    ) -> Result<Result<Ready<'w>, Refusal>, MutationError> {
        let vault = &*self.vault;
        let (parent, mut found) = match look(vault, wanted) {
            Ok(looked) => looked,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut salt = [0u8; 32];
        vault.host.fill(&mut salt).map_err(|_| CheckpointError::Crypto(checkpoint::NO_ENTROPY))?;
        let mut pre = None;
        if let (Some(now), Found::File(file)) = (&wanted.now, &mut found) {
            if !aim.is_of(file) {
                let message = format!("mode, owner or attributes of {} changed", wanted.path);
                return Ok(Err(Refusal::new("metadata-conflict", message)));
            }
            if aim.identity.is_some_and(|identity| written.contains(&identity)) {
                let message = format!("{} is open for writing elsewhere", wanted.path);
                return Ok(Err(Refusal::new("open-for-writing", message)));
            }
            let read = twice_hashed(&mut file.file, &salt);
            let (digest, salted) = match read {
                Ok(read) => read,
                Err(error) => {
                    let message = format!("{}: {error}", wanted.path);
                    return Ok(Err(Refusal::new("unreadable", message)));
                }
            };
            if digest != now.digest || file.unchanged(&wanted.path).is_err() {
                let message = format!("{} was changed meanwhile; it was left alone", wanted.path);
                return Ok(Err(Refusal::new("content-conflict", message)));
            }
            let (bytes, mode) = (file.meta.bytes, file.meta.mode);
            pre = Some(InflightImage { digest: salted, bytes, mode });
        }
        let (post, held) = match &wanted.then {
            None => (None, None),
            Some(then) => match self.open(then, &salt) {
                Ok((image, held)) => (Some(image), held),
                Err(CheckpointError::Corrupt(_) | CheckpointError::Missing(_)) => {
                    let message = format!("{}: the sealed image isn't what was kept", wanted.path);
                    return Ok(Err(Refusal::new("pre-image-corrupt", message)));
                }
                Err(error) => return Err(error.into()),
            },
        };
        let inflight = Inflight {
            operation_id: OperationId::from_uuid(vault.host.uuid()),
            path: wanted.path.clone().into_bytes(),
            temp: temp_name(vault.host)?.into_bytes(),
            parents: names(wanted, &parent).join("\0").into_bytes(),
            salt,
            pre,
            post,
            boot_id: vault.host.boot_id().to_owned(),
            root_fsid: vault.root.file_system_id().to_be_bytes().to_vec(),
            root_ino: vault.root.inode(),
        };
        let made = parent.missing.len();
        Ok(Ok(Ready { at, wanted, parent, made, inflight, held }))
    }

    /// Opens the image that comes back, to its end: what it hashes to, and its bytes if they are few.
    fn open(
        &self,
        then: &Former,
        salt: &[u8; 32],
    ) -> Result<(InflightImage, Option<Image>), CheckpointError> {
        let StoredImage::Present { meta, artifact, .. } = &then.image else {
            return Err(CheckpointError::Missing("a file that is to come back has no image"));
        };
        let mut salted = Sha256::new_with_prefix(salt);
        let mut held = (meta.bytes <= HELD).then(Vec::new);
        let found = open_artifact(self.vault.store.view(), *artifact, &mut |chunk| {
            salted.update(chunk);
            if let Some(held) = &mut held {
                held.extend_from_slice(chunk);
            }
            Ok(())
        })?;
        if found != then.digest {
            return Err(CheckpointError::Corrupt("an image is not the one that was analyzed"));
        }
        let digest = Digest::from_bytes(salted.finalize().into());
        let image = InflightImage { digest, bytes: meta.bytes, mode: meta.mode };
        Ok((image, held.map(Image::new)))
    }

    /// Makes the effects: all temporary files, then each in its place, then each directory once, then
    /// the look at what stands, then the ends in one transaction.
    fn publish(
        &mut self,
        mut ready: Vec<Ready<'_>>,
        proofs: Vec<DispatchCommitted>,
    ) -> Result<Vec<Done>, MutationError> {
        let mut staged = Vec::new();
        for (one, proof) in ready.iter_mut().zip(&proofs) {
            staged.push(self.stage(one, proof));
        }
        let mut placed = Vec::new();
        for ((one, proof), staged) in ready.iter().zip(&proofs).zip(staged) {
            placed.push(
                staged.and_then(|metadata| {
                    self.place(one, proof).map(|enforcement| (enforcement, metadata))
                }),
            );
        }
        let mut synced: BTreeMap<&str, Result<(), Errno>> = BTreeMap::new();
        for ((one, proof), placed) in ready.iter().zip(&proofs).zip(&placed) {
            let dir = one.wanted.path.rsplit_once('/').map_or("", |(dir, _)| dir);
            if placed.is_ok() && !synced.contains_key(dir) {
                synced.insert(dir, publish::sync(self.vault.host, proof, &one.parent));
            }
        }
        let mut ends = Vec::new();
        let mut terminals = Vec::new();
        for ((one, proof), placed) in ready.iter().zip(&proofs).zip(placed) {
            let dir = one.wanted.path.rsplit_once('/').map_or("", |(dir, _)| dir);
            let synced = synced.get(dir).copied().unwrap_or(Ok(()));
            let (metadata, published) = match placed {
                Ok((enforcement, metadata)) => {
                    let after = one.wanted.then.as_ref().map(|then| then.digest);
                    let path = &one.wanted.path;
                    let root = self.vault.root;
                    let proven = publish::proven(root, &one.parent, (path, after), enforcement, synced);
                    (metadata, proven)
                }
                Err(ended) => (Metadata::Whole, ended),
            };
            let (payload, keep_inflight, end) = ended(published, metadata);
            let id = proof.operation_id();
            terminals.push(PartEnd { proof, terminal: self.event(id, payload), keep_inflight });
            ends.push((one.at, end));
        }
        // Before their ends are recorded: what a crash leaves of this, recovery does.
        let done = ready.iter().zip(&proofs).zip(&ends);
        let gone = done.filter(|(_, (_, end))| matches!(end, End::Done { .. }));
        unmake(self.vault.root, gone.map(|((one, proof), _)| (one.wanted, proof)));
        let vault = &mut *self.vault;
        let settled = vault.log.settle_parts(vault.host, vault.store, &terminals);
        settled.map_err(MutationError::Unsettled)?;
        vault.host.crash_point(CrashPoint::Settled);
        // A log that stays large costs room, not truth.
        if let Err(error) = self.vault.store.trim() {
            tracing::warn!("the write-ahead log can't be moved into the database: {error}");
        }
        let done = |((at, end), proof): ((usize, End), DispatchCommitted)| {
            let operation_id = proof.operation_id();
            Done { at, operation_id, end, proof: Some(proof) }
        };
        Ok(ends.into_iter().zip(proofs).map(done).collect())
    }

    fn stage(&self, one: &mut Ready<'_>, proof: &DispatchCommitted) -> Result<Metadata, Published> {
        let Some(then) = &one.wanted.then else { return Ok(Metadata::Whole) };
        let (host, root) = (self.vault.host, self.vault.root);
        let temp = String::from_utf8_lossy(&one.inflight.temp).into_owned();
        let fill = |file: &mut File| self.fill(file, then, one.held.as_ref());
        let made = one.made;
        let plan = plan(one.wanted, then, &temp, &fill);
        let metadata = publish::stage(host, root, proof, &mut one.parent, &plan)?;
        // Only the innermost directory is known; those above are made like any other.
        let mode_failed = match one.wanted.parent_mode.filter(|_| made > 0) {
            Some(mode) => native::set_dir_mode(proof, &one.parent, mode).is_err(),
            None => false,
        };
        Ok(if mode_failed || made > 1 { Metadata::Partial } else { metadata })
    }

    fn place(&self, one: &Ready<'_>, proof: &DispatchCommitted) -> Result<Enforcement, Published> {
        let (host, root) = (self.vault.host, self.vault.root);
        let temp = String::from_utf8_lossy(&one.inflight.temp).into_owned();
        let before = one.wanted.now.as_ref().map(|now| now.digest);
        match &one.wanted.then {
            Some(then) => {
                let fill = |_: &mut File| Ok(());
                let plan = plan(one.wanted, then, &temp, &fill);
                publish::place(host, root, proof, &one.parent, (one.made, &plan))
            }
            None => {
                publish::take_away((host, root), proof, &one.parent, &one.wanted.path, (&temp, before))
            }
        }
    }

    /// Writes what comes back into a temporary file, and sees that it was that to its end.
    fn fill(&self, file: &mut File, then: &Former, held: Option<&Image>) -> Result<(), TempError> {
        if let Some(held) = held {
            return native::write_all(file, held.bytes());
        }
        let StoredImage::Present { artifact, .. } = &then.image else { return Err(TempError::Content) };
        let failed = Cell::new(None);
        let each = &mut |chunk: &[u8]| {
            native::write_all(file, chunk).map_err(|error| {
                failed.set(Some(error));
                CheckpointError::Changed
            })
        };
        let found = open_artifact(self.vault.store.view(), *artifact, each);
        match (found, failed.get()) {
            (_, Some(error)) => Err(error),
            (Ok(digest), None) if digest == then.digest => Ok(()),
            (Ok(_) | Err(_), None) => Err(TempError::Content),
        }
    }
}

/// The directories that are made for a file that comes back, or that go with one that is removed: the
/// outermost first.
fn names<'w>(wanted: &'w Wanted, parent: &'w Parent) -> Vec<&'w str> {
    if wanted.then.is_some() {
        return parent.missing.iter().map(String::as_str).collect();
    }
    let name = |dir: &'w str| dir.rsplit_once('/').map_or(dir, |(_, name)| name);
    let mut names: Vec<&str> = wanted.made_dirs().map(name).collect();
    names.reverse();
    names
}

fn plan<'a>(wanted: &'a Wanted, then: &'a Former, temp: &'a str, fill: native::Fill<'a>) -> Plan<'a> {
    let keep = match (&then.image, &wanted.now) {
        (StoredImage::Present { meta, .. }, Some(_)) => Keep::Exactly(meta, &then.xattrs),
        (StoredImage::Present { meta, .. }, None) => Keep::AsFarAsPossible(meta, &then.xattrs),
        (StoredImage::Absent, _) => Keep::Mode(0o600),
    };
    let before = wanted.now.as_ref().map(|now| now.digest);
    Plan { path: &wanted.path, temp, fill, keep, before, after: Some(then.digest) }
}

/// The event, whether what recovery needs stays, and the end.
fn ended(published: Published, metadata: Metadata) -> (Payload, bool, End) {
    match published {
        Published::Seen(_) => {
            let end = End::Done { metadata_partial: metadata == Metadata::Partial };
            (Payload::OperationSucceeded {}, false, end)
        }
        Published::Unchanged { refusal, left } => {
            (Payload::OperationFailed { cause: refusal.cause.to_owned() }, left, End::Not(refusal))
        }
        Published::Unproven(refusal) => {
            let cause = refusal.cause.to_owned();
            (Payload::OperationUnknownOutcome { cause }, true, End::Unknown(refusal))
        }
    }
}

/// The digest of a file from its start, and that of a salt and the file: one pass.
fn twice_hashed(file: &mut File, salt: &[u8; 32]) -> std::io::Result<(Digest, Digest)> {
    file.rewind()?;
    let (mut plain, mut salted) = (Sha256::new(), Sha256::new_with_prefix(salt));
    let mut chunk = vec![0u8; 256 << 10];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => {
                let read = chunk.get(..read).unwrap_or_default();
                plain.update(read);
                salted.update(read);
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok((Digest::from_bytes(plain.finalize().into()), Digest::from_bytes(salted.finalize().into())))
}
