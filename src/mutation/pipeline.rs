//! The one order of a change: look, seal, checkpoint, dispatch, write, compare, settle.
//!
//! Each stage is a type that only the stage before makes, and the writing takes the journal's own
//! proof that the intent is durable. Syncs of an edit of a small file in an existing directory: the
//! dispatch's commit, the anchor, the temporary file, the directory.

use crate::{
    checkpoint::{
        self, CapacityVerdict, CheckpointError, Effect, ImageSource, ImageState, NewCheckpoint,
        NewTarget, SealedImage,
    },
    host::{CrashPoint, Host},
    id::{AuthorizationId, CheckpointId, Digest},
    journal::{
        DispatchCommitted, Event, Inflight, InflightImage, JournalError, Payload, Provenance, Settling,
    },
    store::Durability,
    workspace::Root,
};

use super::{
    MutationError,
    change::{About, Applied, Change, Coverage, Ended, Limits, Protection, Vault},
    edit,
    native::{self, Enforcement, Keep},
    preflight::{self, Found, FoundFile, MOST_EDITED_BYTES, Parent, Refusal},
    publish::{self, Published},
};

/// Makes a change, or says why not. `seen` is the digest that the model last read of this file, or
/// that was last written; `None` if it never read it.
pub fn mutate(
    vault: &mut Vault<'_>,
    about: About,
    change: &Change<'_>,
    seen: Option<Digest>,
    limits: Limits,
) -> Result<Ended, MutationError> {
    let looked = match Looked::at(vault.root, change, seen, limits) {
        Ok(looked) => looked,
        Err(refusal) => return refuse(vault, about, refusal),
    };
    let sealed = match looked.seal(vault, limits) {
        Ok(Ok(sealed)) => sealed,
        Ok(Err(refusal)) => return refuse(vault, about, refusal),
        Err(error) => return Err(give_up(vault, about, error)),
    };
    vault.host.crash_point(CrashPoint::Sealed);
    let prepared = match sealed.checkpoint(vault, about, limits) {
        Ok(prepared) => prepared,
        Err(error) => return Err(give_up(vault, about, error)),
    };
    vault.host.crash_point(CrashPoint::Checkpointed);
    match prepared.dispatch(vault, about) {
        Ok(dispatched) => dispatched.carry_out(vault, about),
        Err(error) => Err(give_up(vault, about, error)),
    }
}

fn event(about: About, payload: Payload) -> Event {
    Event {
        session_id: about.session_id,
        turn_id: Some(about.turn_id),
        operation_id: Some(about.operation_id),
        parent_operation_id: None,
        provenance: Provenance::Deterministic,
        payload,
    }
}

/// What has to be kept beforehand can't be kept: nothing is changed, and the run can't go on. The operation gets
/// its end if the store still takes one (a disk that has no room for an image may have it for a row);
/// otherwise it is told as interrupted, which is what it is.
fn give_up(vault: &mut Vault<'_>, about: About, error: MutationError) -> MutationError {
    let cause = "checkpoint-unavailable".to_owned();
    let blocked = event(about, Payload::OperationBlocked { cause });
    let (host, store) = (vault.host, &*vault.store);
    let noted = vault.log.write(host, store, Durability::Normal, |_, stage| {
        stage.push(blocked);
        Ok::<_, MutationError>(())
    });
    // One that has its end already takes no other.
    if let Err(second) = noted
        && !matches!(second, MutationError::Journal(JournalError::Illegal(_)))
    {
        tracing::warn!("the operation has no end in the journal: {second}");
    }
    error
}

fn refuse(vault: &mut Vault<'_>, about: About, refusal: Refusal) -> Result<Ended, MutationError> {
    let blocked = event(about, Payload::OperationBlocked { cause: refusal.cause.to_owned() });
    vault.log.write(vault.host, vault.store, Durability::Normal, |_, stage| {
        stage.push(blocked);
        Ok::<_, MutationError>(())
    })?;
    Ok(Ended::Refused(refusal))
}

/// What is to stand there afterwards.
enum After {
    Bytes { bytes: Vec<u8>, replaced: u64 },
    Nothing,
}

/// Looked at: what stands there is held open, and what is to stand there is known.
struct Looked {
    path: String,
    effect: Effect,
    parent: Parent,
    before: Option<FoundFile>,
    /// The bytes before, where they were read whole.
    image: Option<checkpoint::Image>,
    after: After,
}

impl Looked {
    fn at(
        root: &Root,
        change: &Change<'_>,
        seen: Option<Digest>,
        limits: Limits,
    ) -> Result<Self, Refusal> {
        let (path, effect) = (change.path(), change.effect());
        let parent = preflight::parent(root, path, effect == Effect::Create)?;
        let found = preflight::look(&parent, path, limits.break_hard_links);
        let looked = |parent, before, image, after| {
            Ok(Self { path: path.to_owned(), effect, parent, before, image, after })
        };
        let exists = || {
            Refusal::new(
                "already-exists",
                format!("something stands at {path} already; edit it instead"),
            )
        };
        match change {
            Change::Create { content, .. } => {
                match found {
                    Ok(Found::Absent) => {}
                    Ok(Found::File(_)) => return Err(exists()),
                    Err(refusal) if matches!(refusal.cause, "hardlink-detected" | "read-only-file") => {
                        return Err(exists());
                    }
                    Err(refusal) => return Err(refusal),
                }
                fits(content.len())?;
                looked(parent, None, None, After::Bytes { bytes: content.to_vec(), replaced: 0 })
            }
            Change::Edit { edits, .. } => {
                let mut file = file_of(found?, path)?;
                let image = file.read(path)?;
                if seen.is_some_and(|seen| seen != Digest::of(image.bytes())) {
                    return Err(stale(path));
                }
                let edited = edit::apply(image.bytes(), edits)
                    .map_err(|error| Refusal::new(error.cause(), format!("{path}: {error}")))?;
                if u64::try_from(edited.bytes.len()).unwrap_or(u64::MAX) > MOST_EDITED_BYTES {
                    let message = format!("{path} would be over {MOST_EDITED_BYTES} bytes");
                    return Err(Refusal::new("too-large", message));
                }
                let after = After::Bytes { bytes: edited.bytes, replaced: edited.replaced };
                looked(parent, Some(file), Some(image), after)
            }
            Change::Replace { content, .. } => {
                let mut file = file_of(found?, path)?;
                let image = file.read(path)?;
                if seen.is_none_or(|seen| seen != Digest::of(image.bytes())) {
                    return Err(stale(path));
                }
                fits(content.len())?;
                let after = After::Bytes { bytes: content.to_vec(), replaced: 0 };
                looked(parent, Some(file), Some(image), after)
            }
            Change::Delete { .. } => {
                let mut file = file_of(found?, path)?;
                if let Some(seen) = seen {
                    let unreadable = |error| Refusal::new("unreadable", format!("{path}: {error}"));
                    let now = native::digest_of(&mut file.file).map_err(unreadable)?;
                    if now != seen {
                        return Err(stale(path));
                    }
                    file.rewind(path)?;
                }
                looked(parent, Some(file), None, After::Nothing)
            }
        }
    }

    /// Seals both images; the plaintext before is read no second time.
    fn seal(
        mut self,
        vault: &Vault<'_>,
        limits: Limits,
    ) -> Result<Result<Sealed, Refusal>, MutationError> {
        let mut salt = [0u8; 32];
        vault
            .host
            .fill(&mut salt)
            .map_err(|_| CheckpointError::Crypto(crate::checkpoint::NO_ENTROPY))?;
        let after_bytes = match &self.after {
            After::Bytes { bytes, .. } => u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            After::Nothing => 0,
        };
        let before_bytes = self.before.as_ref().map_or(0, |file| file.stat.bytes);
        let proposed = before_bytes.saturating_add(after_bytes);
        let usage = checkpoint::usage(vault.store)?;
        let verdict = checkpoint::evaluate(limits.capacity, usage, proposed);
        let protected = match (verdict, limits.protection) {
            (CapacityVerdict::Fits, _) => true,
            (CapacityVerdict::OverCap { .. }, Protection::WaivedUpTo(most)) if proposed <= most => false,
            (CapacityVerdict::OverCap { which, used, proposed, cap }, _) => {
                let message = format!(
                    "{}: over-cap: keeping its images takes {proposed} bytes, {used} are used, and the {which} cap is {cap}; \
                     it would go on without protection, which only [checkpoint] allow_unprotected can accept",
                    self.path
                );
                return Ok(Err(Refusal::new("over-cap", message)));
            }
        };
        let (host, store) = (vault.host, &*vault.store);
        let pre = match (&mut self.before, &self.image) {
            (Some(_), Some(image)) => {
                Some(checkpoint::seal(host, store, ImageSource::Bytes(image.bytes()), &salt)?)
            }
            (Some(file), None) => {
                let length = file.stat.bytes;
                let sealed =
                    checkpoint::seal(host, store, ImageSource::File(&mut file.file, length), &salt);
                match sealed {
                    Ok(sealed) => Some(sealed),
                    Err(CheckpointError::Changed) => return Ok(Err(preflight::changed(&self.path))),
                    Err(CheckpointError::Source(error)) => {
                        return Ok(Err(Refusal::new("unreadable", format!("{}: {error}", self.path))));
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            (None, _) => None,
        };
        if let Some(file) = &self.before
            && let Err(refusal) = file.unchanged(&self.path)
        {
            return Ok(Err(refusal));
        }
        let post = match &self.after {
            After::Bytes { bytes, .. } => {
                Some(checkpoint::seal(host, store, ImageSource::Bytes(bytes), &salt)?)
            }
            After::Nothing => None,
        };
        Ok(Ok(Sealed { looked: self, salt, pre, post, protected, proposed }))
    }
}

fn fits(length: usize) -> Result<(), Refusal> {
    let fits = u64::try_from(length).is_ok_and(|length| length <= MOST_EDITED_BYTES);
    let large = || Refusal::new("too-large", format!("the content is over {MOST_EDITED_BYTES} bytes"));
    if fits { Ok(()) } else { Err(large()) }
}

fn file_of(found: Found, path: &str) -> Result<FoundFile, Refusal> {
    match found {
        Found::File(file) => Ok(*file),
        Found::Absent => Err(Refusal::new("not-found", format!("there is no {path}"))),
    }
}

fn stale(path: &str) -> Refusal {
    Refusal::new("stale-read", format!("{path} is not what was last read; read it again"))
}

/// Sealed: both images are encrypted; no row refers to them yet.
struct Sealed {
    looked: Looked,
    salt: [u8; 32],
    pre: Option<SealedImage>,
    post: Option<SealedImage>,
    protected: bool,
    proposed: u64,
}

impl Sealed {
    fn checkpoint(
        self,
        vault: &mut Vault<'_>,
        about: About,
        limits: Limits,
    ) -> Result<Prepared, MutationError> {
        let Self { looked, salt, pre, post, protected, proposed } = self;
        let umask = vault.host.umask();
        let new_mode = 0o666 & !umask;
        let meta = looked.before.as_ref().map(|file| file.meta.clone());
        let image = |image: &Option<SealedImage>, mode| {
            image.as_ref().map(|image| InflightImage {
                digest: image.salted,
                bytes: image.bytes(),
                mode,
            })
        };
        let mode = meta.as_ref().map_or(new_mode, |meta| meta.mode);
        let inflight = Inflight {
            operation_id: about.operation_id,
            path: looked.path.clone().into_bytes(),
            temp: temp_name(vault.host)?.into_bytes(),
            parents: looked.parent.missing.join("\0").into_bytes(),
            salt,
            pre: image(&pre, mode),
            post: image(&post, mode),
            boot_id: vault.host.boot_id().to_owned(),
            root_fsid: vault.root.file_system_id().to_be_bytes().to_vec(),
            root_ino: vault.root.inode(),
        };
        let digests = (pre.as_ref().map(|image| image.digest), post.as_ref().map(|image| image.digest));
        let state = |image: Option<SealedImage>| match (image, &meta) {
            (Some(image), Some(meta)) => {
                let meta = checkpoint::FileMeta { bytes: image.bytes(), ..meta.clone() };
                ImageState::Present { image: Box::new(image), meta }
            }
            (Some(image), None) => {
                let bytes = image.bytes();
                let meta = checkpoint::FileMeta {
                    mode: new_mode,
                    uid: 0,
                    gid: 0,
                    mtime_ns: 0,
                    nlink: 1,
                    bytes,
                };
                ImageState::Present { image: Box::new(image), meta }
            }
            (None, _) => ImageState::Absent,
        };
        let checkpoint_id = CheckpointId::from_uuid(vault.host.uuid());
        let authorization_id = AuthorizationId::from_uuid(vault.host.uuid());
        let new = protected.then(|| NewCheckpoint {
            checkpoint_id,
            operation_id: about.operation_id,
            session_id: about.session_id,
            turn_id: about.turn_id,
            prompt_round: about.prompt_round,
            retention: limits.retention,
            targets: vec![NewTarget {
                effect: looked.effect,
                path: looked.path.clone().into_bytes(),
                xattrs: looked.before.as_ref().map(|file| file.xattrs.clone()).unwrap_or_default(),
                made_parents: looked.parent.missing.clone(),
                pre: state(pre),
                post: state(post),
                parent_mode: Some(looked.parent.mode),
            }],
        });
        let (host, store) = (vault.host, &*vault.store);
        vault.log.write(host, store, Durability::Normal, |tx, stage| {
            let payload = match &new {
                Some(new) => {
                    let rows = checkpoint::commit(host, store, tx, new)?;
                    Payload::CheckpointCommitted { checkpoint_id, targets: 1, rows, authorization_id }
                }
                None => {
                    Payload::UnprotectedOperationRecorded { bytes: Some(proposed), authorization_id }
                }
            };
            stage.push(event(about, payload));
            tx.execute_one(
                "INSERT INTO authorization (authorization_id, operation_id) VALUES (?1, ?2)",
                (authorization_id.as_bytes().as_slice(), about.operation_id.as_bytes().as_slice()),
            )
            .map_err(MutationError::from)
        })?;
        if let Some(new) = new {
            new.committed();
        }
        let coverage =
            if protected { Coverage::Checkpoint(checkpoint_id) } else { Coverage::Unprotected };
        Ok(Prepared { looked, inflight, digests, new_mode, authorization_id, coverage })
    }
}

/// `.thc-` and 16 hex digits: never derived from the target's name, which would tell it.
pub(super) fn temp_name(host: &Host) -> Result<String, MutationError> {
    let mut bytes = [0u8; 8];
    host.fill(&mut bytes).map_err(|_| CheckpointError::Crypto(crate::checkpoint::NO_ENTROPY))?;
    Ok(format!(".thc-{:016x}.tmp", u64::from_be_bytes(bytes)))
}

/// Prepared: a checkpoint (or the policy's waiver) and a permission stand in the store.
struct Prepared {
    looked: Looked,
    inflight: Inflight,
    digests: (Option<Digest>, Option<Digest>),
    new_mode: u32,
    authorization_id: AuthorizationId,
    coverage: Coverage,
}

impl Prepared {
    fn dispatch(self, vault: &mut Vault<'_>, about: About) -> Result<Dispatched, MutationError> {
        let template = event(about, Payload::OperationSucceeded {});
        let proof = vault.log.dispatch(
            vault.host,
            vault.store,
            &template,
            self.authorization_id,
            &self.inflight,
            |tx| match self.coverage {
                Coverage::Checkpoint(id) => checkpoint::settle(tx, id, false),
                Coverage::Unprotected => Ok(()),
            },
        )?;
        vault.host.crash_point(CrashPoint::Anchored);
        Ok(Dispatched { prepared: self, proof })
    }
}

/// Dispatched: the intent is durable, and the effect may be made.
struct Dispatched {
    prepared: Prepared,
    proof: DispatchCommitted,
}

impl Dispatched {
    fn carry_out(self, vault: &mut Vault<'_>, about: About) -> Result<Ended, MutationError> {
        let Self { prepared, proof } = self;
        let Prepared { mut looked, inflight, digests, new_mode, coverage, .. } = prepared;
        let temp = String::from_utf8_lossy(&inflight.temp).into_owned();
        let (before, after) = digests;
        let result = match &looked.after {
            After::Bytes { bytes, .. } => {
                let keep = match &looked.before {
                    Some(file) => Keep::Exactly(&file.meta, &file.xattrs),
                    None => Keep::Mode(new_mode),
                };
                let plan = publish::Plan {
                    path: &looked.path,
                    temp: &temp,
                    fill: &|file| native::write_all(file, bytes),
                    keep,
                    before,
                    after,
                };
                publish::write(vault.host, vault.root, &proof, &mut looked.parent, &plan)
            }
            After::Nothing => publish::remove(
                vault.host,
                vault.root,
                &proof,
                &looked.parent,
                &looked.path,
                &temp,
                before,
            ),
        };
        let (terminal, keep, ended) = match result {
            Published::Seen(enforcement) => {
                let replaced = match looked.after {
                    After::Bytes { replaced, .. } => replaced,
                    After::Nothing => 0,
                };
                let applied = Applied {
                    effect: looked.effect,
                    coverage,
                    bytes_before: inflight.pre.map(|image| image.bytes),
                    bytes_after: inflight.post.map(|image| image.bytes),
                    before,
                    after,
                    replaced,
                    best_effort: enforcement == Enforcement::BestEffort,
                };
                (Payload::OperationSucceeded {}, false, Ended::Applied(applied))
            }
            Published::Unchanged { refusal, left } => (
                Payload::OperationFailed { cause: refusal.cause.to_owned() },
                left,
                Ended::Failed(refusal),
            ),
            Published::Unproven(refusal) => {
                let cause = refusal.cause.to_owned();
                (Payload::OperationUnknownOutcome { cause }, true, Ended::Unknown(refusal))
            }
        };
        let committed = matches!(ended, Ended::Applied(_));
        let known = !matches!(ended, Ended::Unknown(_));
        let settling = Settling {
            terminal: &event(about, terminal),
            keep_inflight: keep,
            durability: Durability::Normal,
        };
        let settled = vault.log.settle(vault.host, vault.store, &proof, settling, |tx| match coverage {
            Coverage::Checkpoint(id) if known => checkpoint::settle(tx, id, committed),
            Coverage::Checkpoint(_) | Coverage::Unprotected => Ok(()),
        });
        settled.map_err(MutationError::Unsettled)?;
        vault.host.crash_point(CrashPoint::Settled);
        // A log that stays large costs room, not truth.
        if let Err(error) = vault.store.trim() {
            tracing::warn!("the write-ahead log can't be moved into the database: {error}");
        }
        Ok(ended)
    }
}
