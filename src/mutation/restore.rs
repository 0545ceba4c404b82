//! Putting files back, many at once: one checkpoint of all of them first, then in batches each as an
//! operation of its own, through the same steps and the same proofs as any other change.
//!
//! Where an image comes back from is its sealed blob, streamed: nothing is held whole but small files
//! of one batch.

mod batch;

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::fs::MetadataExt as _,
};

use super::{
    MutationError,
    change::{About, Vault},
    native,
    preflight::{self, Found, FoundFile, Parent, Refusal},
};
use crate::{
    checkpoint::{
        self, ContentClass, Effect, FileMeta, ImageState, NewCheckpoint, NewTarget, RetentionConfig,
        StoredImage, Xattr,
    },
    host::CrashPoint,
    id::{AuthorizationId, CheckpointId, Digest, OperationId},
    journal::{DispatchCommitted, Event, JournalError, Payload, Provenance},
    store::Durability,
    workspace::Root,
};
use batch::{Batch, Done};

/// Files that share their syncs.
const BATCH: usize = 64;

/// A file that is to become what it was.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Where, relative to the root.
    pub path: String,
    /// What has to stand there for that; `None` for nothing.
    pub now: Option<Standing>,
    /// What is to stand there; `None` for nothing.
    pub then: Option<Former>,
    /// The permission bits of its directory, should that have to be made again.
    pub parent_mode: Option<u32>,
    /// How many directories were made for it, and go with it if they are empty.
    pub made_parents: usize,
}

/// A file that stands and whose bytes are kept.
#[derive(Debug, Clone)]
pub struct Standing {
    /// Its digest.
    pub digest: Digest,
    /// The image that holds these bytes.
    pub image: StoredImage,
    /// Whether it is binary.
    pub class: ContentClass,
}

/// A file that once stood there.
#[derive(Debug, Clone)]
pub struct Former {
    /// Its digest.
    pub digest: Digest,
    /// The image that holds its bytes.
    pub image: StoredImage,
    /// Its extended attributes.
    pub xattrs: Vec<Xattr>,
    /// Whether it is binary.
    pub class: ContentClass,
}

/// On whose word files are put back.
#[derive(Clone, Copy)]
pub struct Ordered<'a> {
    /// The verb: what the journal tells as the tool.
    pub verb: &'a str,
    /// The rule that stands for the operator.
    pub rule: &'a str,
    /// The digest of the policy whose protection holds.
    pub policy: Digest,
    /// How long the checkpoint is kept.
    pub retention: RetentionConfig,
    /// Whether no further batch is to be begun.
    pub stopped: &'a dyn Fn() -> bool,
}

/// What came of it.
#[derive(Debug)]
pub struct Restored {
    /// The checkpoint that puts all of this back in turn; `None` where nothing was begun.
    pub checkpoint: Option<CheckpointId>,
    /// Per file, in the order that was given.
    pub ends: Vec<(Option<OperationId>, End)>,
}

/// The store or the journal gave out.
#[derive(Debug)]
pub struct Interrupted {
    /// Why.
    pub error: MutationError,
    /// Whether anything may have been dispatched.
    pub begun: bool,
}

/// How one file ended.
#[derive(Debug)]
pub enum End {
    /// It is as it was, and was seen.
    Done {
        /// Whether its owner or an attribute couldn't be given back.
        metadata_partial: bool,
    },
    /// Not begun, or given up with nothing changed.
    Not(Refusal),
    /// What stands can't be proven.
    Unknown(Refusal),
}

/// Puts files back. The parent operation is `about`; each file becomes an operation below it.
pub fn restore(
    vault: &mut Vault<'_>,
    about: About,
    ordered: Ordered<'_>,
    wanted: &[Wanted],
) -> Result<Restored, Interrupted> {
    let mut ends: Vec<Option<(Option<OperationId>, End)>> = Vec::new();
    let mut aims = Vec::new();
    for (at, wanted) in wanted.iter().enumerate() {
        match aim(vault, wanted) {
            Ok(aim) => {
                aims.push((at, aim));
                ends.push(None);
            }
            Err(refusal) => ends.push(Some((None, End::Not(refusal)))),
        }
    }
    if aims.is_empty() {
        return Ok(Restored { checkpoint: None, ends: ends.into_iter().flatten().collect() });
    }
    let kept = keep(vault, about, ordered, wanted, &aims)
        .map_err(|error| Interrupted { error, begun: false })?;
    let begun = |error| Interrupted { error, begun: true };
    let mut whole = Some(kept.authorization_id);
    let mut proofs = Vec::new();
    for (number, batch) in aims.chunks(BATCH).enumerate() {
        // What was begun is whole; the rest is left, and said to be.
        if number > 0 && (ordered.stopped)() {
            break;
        }
        let mut run = Batch { vault, about, ordered, kept: &kept };
        for done in run.carry_out(wanted, batch, number * BATCH, &mut whole).map_err(begun)? {
            let Done { at, operation_id, end, proof } = done;
            if let (End::Done { .. }, Some(wanted), Some(proof)) = (&end, wanted.get(at), proof) {
                proofs.push((wanted, proof));
            }
            if let Some(place) = ends.get_mut(at) {
                *place = Some((Some(operation_id), end));
            }
        }
    }
    // Once more for directories whose files were in several batches.
    let gone = proofs.iter().map(|(wanted, proof)| (*wanted, proof));
    unmake(vault.root, gone);
    let not_begun = || {
        let message = "a signal came before it was its turn".to_owned();
        (None, End::Not(Refusal::new("cancelled", message)))
    };
    let ends: Vec<_> = ends.into_iter().map(|end| end.unwrap_or_else(not_begun)).collect();
    finish(vault, about, &kept, &ends).map_err(begun)?;
    Ok(Restored { checkpoint: Some(kept.checkpoint_id), ends })
}

/// Removes the directories that had been made for files which are gone again, the deepest first, as
/// far as they are empty: two files may have shared one.
fn unmake<'w>(root: &Root, gone: impl Iterator<Item = (&'w Wanted, &'w DispatchCommitted)>) {
    let mut dirs = BTreeMap::new();
    for (wanted, proof) in gone.filter(|(wanted, _)| wanted.then.is_none()) {
        for dir in wanted.made_dirs() {
            dirs.insert((std::cmp::Reverse(dir.split('/').count()), dir), proof);
        }
    }
    for ((_, dir), proof) in dirs {
        native::unmake_parents(proof, root, &format!("{dir}/."), 1);
    }
}

impl Wanted {
    /// The directories that were made for it, the deepest first.
    fn made_dirs(&self) -> impl Iterator<Item = &str> {
        fn above<'p>(path: &&'p str) -> Option<&'p str> {
            path.rsplit_once('/').map(|(above, _)| above)
        }
        std::iter::successors(Some(self.path.as_str()), above).skip(1).take(self.made_parents)
    }
}

/// What was seen of a target before the checkpoint is made.
struct Aim {
    meta: Option<FileMeta>,
    xattrs: Vec<Xattr>,
    /// Device and inode.
    identity: Option<(u64, u64)>,
    parent_mode: u32,
    missing: Vec<String>,
}

impl Aim {
    /// Whether a file has still what the checkpoint says of it besides its bytes.
    fn is_of(&self, file: &FoundFile) -> bool {
        let rights = |meta: &FileMeta| (meta.mode, meta.uid, meta.gid);
        self.meta.as_ref().map(rights) == Some(rights(&file.meta))
            && attributes(&self.xattrs) == attributes(&file.xattrs)
    }
}

/// Attributes whatever their order; what the system labels files with by itself is no one's doing.
fn attributes(xattrs: &[Xattr]) -> BTreeSet<&Xattr> {
    xattrs.iter().filter(|(name, _)| !name.starts_with(b"security.")).collect()
}

fn aim(vault: &Vault<'_>, wanted: &Wanted) -> Result<Aim, Refusal> {
    let (parent, found) = look(vault, wanted)?;
    let mut aim = Aim {
        meta: None,
        xattrs: Vec::new(),
        identity: None,
        parent_mode: parent.mode,
        missing: parent.missing,
    };
    if let Found::File(file) = found {
        // An edit kept them: if they are others now, somebody changed them.
        let kept = |then: &Former| attributes(&then.xattrs) == attributes(&file.xattrs);
        if !wanted.then.as_ref().is_none_or(kept) {
            let message = format!("the attributes of {} were changed since", wanted.path);
            return Err(Refusal::new("metadata-conflict", message));
        }
        aim.identity = file.file.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
        (aim.meta, aim.xattrs) = (Some(file.meta), file.xattrs);
    }
    Ok(aim)
}

/// Resolves the path again, by handle, and looks whether there is a file where one is expected.
fn look(vault: &Vault<'_>, wanted: &Wanted) -> Result<(Parent, Found), Refusal> {
    let path = &wanted.path;
    let parent = preflight::parent(vault.root, path, wanted.now.is_none())?;
    let found = preflight::look(&parent, path, false)?;
    match (&wanted.now, &found) {
        (Some(_), Found::File(_)) | (None, Found::Absent) => Ok((parent, found)),
        (Some(_), Found::Absent) => {
            Err(Refusal::new("target-deleted", format!("{path} is gone; it was left so")))
        }
        (None, Found::File(_)) => {
            let message = format!("something stands at {path} again; it was left alone");
            Err(Refusal::new("target-recreated", message))
        }
    }
}

/// The checkpoint that a rollback makes of itself before it begins.
struct KeptBefore {
    checkpoint_id: CheckpointId,
    rows: Digest,
    authorization_id: AuthorizationId,
}

fn keep(
    vault: &mut Vault<'_>,
    about: About,
    ordered: Ordered<'_>,
    wanted: &[Wanted],
    aims: &[(usize, Aim)],
) -> Result<KeptBefore, MutationError> {
    let (host, store) = (vault.host, &*vault.store);
    let targets = aims.iter().filter_map(|(at, aim)| Some(target(wanted.get(*at)?, aim))).collect();
    let checkpoint_id = CheckpointId::from_uuid(host.uuid());
    let authorization_id = AuthorizationId::from_uuid(host.uuid());
    let new = NewCheckpoint {
        checkpoint_id,
        operation_id: about.operation_id,
        session_id: about.session_id,
        turn_id: about.turn_id,
        prompt_round: about.prompt_round,
        retention: ordered.retention,
        targets,
    };
    host.crash_point(CrashPoint::Sealed);
    let rows = vault.log.write(host, store, Durability::Normal, |tx, stage| {
        let rows = checkpoint::commit(host, store, tx, &new)?;
        let event = |payload| event(about, about.operation_id, None, payload);
        decided(ordered).into_iter().for_each(|payload| stage.push(event(payload)));
        let targets = u32::try_from(new.targets.len()).unwrap_or(u32::MAX);
        stage.push(event(Payload::CheckpointCommitted {
            checkpoint_id,
            targets,
            rows,
            authorization_id,
        }));
        tx.execute_one(
            "INSERT INTO authorization (authorization_id, operation_id) VALUES (?1, ?2)",
            (authorization_id.as_bytes().as_slice(), about.operation_id.as_bytes().as_slice()),
        )?;
        Ok::<_, MutationError>(rows)
    })?;
    host.crash_point(CrashPoint::Checkpointed);
    Ok(KeptBefore { checkpoint_id, rows, authorization_id })
}

/// What a rollback's own checkpoint says of a file. Both images are kept already: the one that goes was
/// left by a change of ours, the one that comes back stood there before.
fn target(wanted: &Wanted, aim: &Aim) -> NewTarget {
    let state = |image: &StoredImage, class, now: Option<&FileMeta>| match image {
        StoredImage::Absent => ImageState::Absent,
        StoredImage::Present { digest_mac, meta, artifact } => ImageState::Kept {
            artifact: *artifact,
            digest_mac: digest_mac.clone(),
            class,
            meta: now.cloned().unwrap_or_else(|| meta.clone()),
        },
    };
    let pre = match &wanted.now {
        Some(now) => state(&now.image, now.class, aim.meta.as_ref()),
        None => ImageState::Absent,
    };
    let post = match &wanted.then {
        Some(then) => state(&then.image, then.class, None),
        None => ImageState::Absent,
    };
    let effect = match (&pre, &post) {
        (ImageState::Absent, _) => Effect::Create,
        (_, ImageState::Absent) => Effect::Delete,
        (_, _) => Effect::Edit,
    };
    NewTarget {
        effect,
        path: wanted.path.clone().into_bytes(),
        xattrs: aim.xattrs.clone(),
        made_parents: aim.missing.clone(),
        pre,
        post,
        parent_mode: Some(aim.parent_mode),
    }
}

/// The two events that an operation of the operator's begins with: the verb, the rule that stands for
/// the operator, and the policy whose protection holds.
pub fn ordered(about: About, (verb, rule, policy): (&str, &str, Digest)) -> Vec<Event> {
    let retention = RetentionConfig::DEFAULT;
    let ordered = Ordered { verb, rule, policy, retention, stopped: &|| false };
    let event = |payload| event(about, about.operation_id, None, payload);
    decided(ordered).into_iter().map(event).collect()
}

/// The two events that an operator's order begins with.
fn decided(ordered: Ordered<'_>) -> [Payload; 2] {
    [
        Payload::OperationProposed {
            tool: ordered.verb.to_owned(),
            action_class: "operator".to_owned(),
        },
        Payload::PolicyDecisionRecorded {
            outcome: "allow".to_owned(),
            because: "operator".to_owned(),
            rule_id: Some(ordered.rule.to_owned()),
            line: None,
            policy: ordered.policy,
        },
    ]
}

fn event(
    about: About,
    operation_id: OperationId,
    parent_operation_id: Option<OperationId>,
    payload: Payload,
) -> Event {
    Event {
        session_id: about.session_id,
        turn_id: Some(about.turn_id),
        operation_id: Some(operation_id),
        parent_operation_id,
        provenance: Provenance::Deterministic,
        payload,
    }
}

/// Ends the operation that all of it was a part of, durably. Where a file's end is unknown its own is
/// left open: recovery ends it once the file's is known.
fn finish(
    vault: &mut Vault<'_>,
    about: About,
    kept: &KeptBefore,
    ends: &[(Option<OperationId>, End)],
) -> Result<(), MutationError> {
    if ends.iter().any(|(_, end)| matches!(end, End::Unknown(_))) {
        return Ok(());
    }
    let applied = ends.iter().any(|(_, end)| matches!(end, End::Done { .. }));
    let payload = match applied {
        true => Payload::OperationSucceeded {},
        false => Payload::OperationFailed { cause: "nothing-applied".to_owned() },
    };
    let terminal = event(about, about.operation_id, None, payload);
    let (host, store) = (vault.host, &*vault.store);
    vault
        .log
        .write(host, store, Durability::Full, |tx, stage| {
            checkpoint::settle(tx, kept.checkpoint_id, applied)?;
            stage.push(terminal);
            Ok::<_, JournalError>(())
        })
        .map_err(MutationError::Unsettled)
}
