//! The plan of a rollback: per file what stood there, what was left, what stands now and what that
//! comes to. The same for whoever tells it and whoever carries it out.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Meant, Selected,
    desk::{Desk, Standing},
    is_applied, observe, tell,
};
use crate::{
    app::{
        Common, Fail,
        keeping::another_workspace,
        policy_files::{NoPolicy, PolicyOptions, load_protection},
        state,
    },
    checkpoint::{ContentClass, StoredCheckpoint, StoredImage},
    contract::{
        CauseCode, ExitClass, Failure,
        rollback::{AllExcludedEffects, AnalyzedOutcome, AnalyzedTarget, InverseOperation, LeftOut},
    },
    host::Host,
    id::{CheckpointId, Digest},
    journal::Inflight,
    mutation::{Former, Standing as Stands, Wanted},
    policy::set::PolicySet,
    rollback::{Composed, Facts, compose, decide},
    store::{ReadStore, View},
    workspace::Root,
};

/// A file, as it is told, and as it would be changed.
pub(super) struct Target {
    pub(super) told: AnalyzedTarget,
    /// What has to be done; `None` where nothing is done.
    pub(super) wanted: Option<Wanted>,
    /// The boundary that keeps it.
    pub(super) boundary: Option<&'static str>,
    /// What the checkpoints hold of it; `None` for a file of none of them.
    pub(super) composed: Option<Composed>,
}

/// Everything that a rollback comes to.
pub(super) struct Plan {
    pub(super) root: Root,
    pub(super) targets: Vec<Target>,
    /// The oldest first.
    pub(super) checkpoints: Vec<StoredCheckpoint>,
    /// Those that were meant and can't be put back.
    pub(super) left_out: Vec<LeftOut>,
    pub(super) digest: Digest,
    pub(super) excluded: AllExcludedEffects,
    /// The digest of the policy whose protection holds.
    pub(super) policy: Digest,
}

/// What every file is judged with.
struct Judging<'a> {
    view: View<'a, ReadStore>,
    root: &'a Root,
    policy: &'a PolicySet,
    newest: BTreeMap<Vec<u8>, CheckpointId>,
    written: BTreeSet<(u64, u64)>,
    unsettled: BTreeSet<Vec<u8>>,
    read_only: bool,
}

impl Plan {
    pub(super) fn make(
        host: &Host,
        common: &Common,
        desk: &Desk,
        meant: &Meant,
        selected: &Selected,
    ) -> Result<Self, Fail> {
        let dir = common.dir.as_deref().unwrap_or(std::path::Path::new(&desk.workspace));
        let root = Root::open(dir, host.home().as_deref())?;
        // What fits one workspace's files by chance may be somebody's in another.
        if root.path() != desk.workspace {
            return Err(another_workspace(&desk.workspace, root.path()));
        }
        let policy = protection(host, &root, selected)?;
        let only = selected.only.iter().map(|path| inside(&root, path)).collect::<Result<_, _>>()?;
        let view = unlocked(host, common, desk)?;
        let mut composed = Vec::new();
        let mut checkpoints = Vec::new();
        let mut left_out = Vec::new();
        for stored in desk.meant(meant)? {
            let standing = desk.standing(stored)?;
            let reason_code = match standing {
                Standing::Eligible => {
                    composed.push((stored.checkpoint_id, desk.targets(view, stored.checkpoint_id)?));
                    checkpoints.push(stored.clone());
                    continue;
                }
                // Nothing came of it, so that there is nothing to put back.
                Standing::NotApplied => continue,
                Standing::Expired => "expired",
                Standing::Corrupt => "corrupt",
                Standing::Locked => "locked",
            };
            let reason_code = reason_code.to_owned();
            left_out.push(LeftOut { checkpoint_id: stored.checkpoint_id, reason_code });
        }
        if composed.is_empty() {
            return Err(nothing_to_roll_back());
        }
        let inflight = Inflight::all(&desk.store)?;
        let judging = Judging {
            view,
            root: &root,
            policy: &policy,
            newest: newest_by_path(desk, view),
            written: host.open_for_writing(None),
            unsettled: inflight.into_iter().map(|row| row.path).collect(),
            read_only: root.is_read_only(),
        };
        let mut targets = Vec::new();
        let mut missing: BTreeSet<String> = only;
        let all = missing.is_empty();
        for path in compose(composed) {
            let name = String::from_utf8_lossy(&path.path).into_owned();
            if all || missing.remove(&name) {
                targets.push(judging.target(path)?);
            }
        }
        targets.extend(missing.into_iter().map(not_covered));
        let told: Vec<_> = targets.iter().map(|target| &target.told).collect();
        let told = serde_json::to_vec(&(told, &left_out))
            .map_err(|error| Fail::internal(format!("the plan can't be written: {error}")))?;
        let turns: BTreeSet<_> = checkpoints.iter().map(|stored| stored.turn_id).collect();
        let excluded = tell::excluded(&desk.store, &turns)?;
        let digest = Digest::of(&told);
        let policy = policy.digest();
        Ok(Self { root, targets, checkpoints, left_out, digest, excluded, policy })
    }

    pub(super) fn checkpoint_ids(&self) -> Vec<CheckpointId> {
        self.checkpoints.iter().map(|stored| stored.checkpoint_id).collect()
    }

    /// How many files would be as they were, and how many wouldn't.
    pub(super) fn counts(&self) -> (u32, u32) {
        let applied = self.targets.iter().filter(|target| is_applied(&target.told.outcome)).count();
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        (count(applied), count(self.targets.len() - applied + self.left_out.len()))
    }
}

fn nothing_to_roll_back() -> Fail {
    let message = "nothing that was named can be put back".to_owned();
    let failure = Failure::new(CauseCode::NothingToRollBack, message);
    Fail {
        class: ExitClass::Blocked,
        failure: failure.action("`thcode rollback list --include-hidden` tells why"),
    }
}

/// The store's content, opened; without the key there is nothing to compare with.
fn unlocked<'d>(host: &Host, common: &Common, desk: &'d Desk) -> Result<View<'d, ReadStore>, Fail> {
    if let Some(view) = desk.view()? {
        return Ok(view);
    }
    let place = state::place_to_read(host, common)?;
    let locked = desk.store.unlock(&state::key_source(host, &place, &common.state)).err();
    Err(locked.map_or_else(|| Fail::internal("the key was there a moment ago".to_owned()), Fail::from))
}

/// The policy whose `protected` holds; what it grants doesn't matter here.
fn protection(host: &Host, root: &Root, selected: &Selected) -> Result<PolicySet, Fail> {
    let options = PolicyOptions {
        files: selected.policy.clone(),
        protect: selected.protect.clone(),
        ..PolicyOptions::default()
    };
    load_protection(host, root, &options).map_err(NoPolicy::into_fail)
}

/// A path of the caller's, relative to the root.
pub(super) fn inside(root: &Root, given: &str) -> Result<String, Fail> {
    let refused = |why: &str| {
        let failure = Failure::new(CauseCode::BadArgument, format!("the path {given}: {why}"));
        Fail::usage(failure.action("name a file relative to the workspace"))
    };
    let below = match given.strip_prefix('/') {
        Some(_) => given
            .strip_prefix(root.path())
            .and_then(|rest| rest.strip_prefix('/'))
            .ok_or_else(|| refused("it lies outside the workspace"))?,
        None => given,
    };
    let parts: Vec<&str> = below.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    match parts.as_slice() {
        [] => Err(refused("it names no file")),
        parts if parts.contains(&"..") => Err(refused("`..` may lead outside the workspace")),
        parts => Ok(parts.join("/")),
    }
}

/// A file that was asked for and isn't in any of the checkpoints.
fn not_covered(path: String) -> Target {
    let unknown = || observe::told("unknown");
    let told = AnalyzedTarget {
        path,
        effect: "none".to_owned(),
        checkpoint_ids: Vec::new(),
        pre_image: unknown(),
        post_image: unknown(),
        current_state: unknown(),
        outcome: AnalyzedOutcome::Skipped { reason_code: "not-covered".to_owned() },
        newer_checkpoint: None,
    };
    Target { told, wanted: None, boundary: None, composed: None }
}

/// Per path the newest checkpoint that took effect.
fn newest_by_path(desk: &Desk, view: View<'_, ReadStore>) -> BTreeMap<Vec<u8>, CheckpointId> {
    let mut newest = BTreeMap::new();
    for stored in desk.checkpoints.iter().filter(|stored| stored.took_effect == Some(true)) {
        // One that can't be opened names no path, and is counted as corrupt where it is asked about.
        for target in desk.targets(view, stored.checkpoint_id).unwrap_or_default() {
            newest.entry(target.path).or_insert(stored.checkpoint_id);
        }
    }
    newest
}

impl Judging<'_> {
    fn target(&self, composed: Composed) -> Result<Target, Fail> {
        let path = &composed;
        let seen = observe::observe(self.view, self.root, path, &self.written);
        let (images, pre_digest) = observe::images(self.view, &path.first.pre)?;
        let (_, post_digest) = observe::images(self.view, &path.post)?;
        let boundary = observe::protected(self.root, path, self.policy);
        let mut outcome = decide(&Facts {
            had_file: path.first.pre != StoredImage::Absent,
            left_file: path.post != StoredImage::Absent,
            binary: path.first.binary,
            is_whole: path.is_whole,
            is_unsettled: self.unsettled.contains(&path.path),
            images,
            protected: boundary,
            current: &seen.current,
        });
        if let AnalyzedOutcome::AppliedEligible { inverse_operation, .. } = &outcome
            && *inverse_operation != InverseOperation::None
            && self.read_only
        {
            let reason_code = "read-only-file-system".to_owned();
            outcome = AnalyzedOutcome::Inaccessible { reason_code };
        }
        let newer = self.newest.get(&path.path).filter(|id| !path.checkpoints.contains(id)).copied();
        let wanted = wanted(path, &outcome, pre_digest, post_digest);
        let told = AnalyzedTarget {
            path: String::from_utf8_lossy(&path.path).into_owned(),
            effect: path.effect().to_owned(),
            checkpoint_ids: path.checkpoints.clone(),
            pre_image: observe::stored(&path.first.pre, pre_digest),
            post_image: observe::stored(&path.post, post_digest),
            current_state: seen.told,
            outcome,
            newer_checkpoint: newer,
        };
        Ok(Target { told, wanted, boundary, composed: Some(composed) })
    }
}

/// What has to be done for an outcome, if anything has.
fn wanted(
    path: &Composed,
    outcome: &AnalyzedOutcome,
    pre: Option<Digest>,
    post: Option<Digest>,
) -> Option<Wanted> {
    let AnalyzedOutcome::AppliedEligible { inverse_operation, expected_current_digest, .. } = outcome
    else {
        return None;
    };
    if *inverse_operation == InverseOperation::None {
        return None;
    }
    let class = match path.first.binary {
        true => ContentClass::BinaryBlob,
        false => ContentClass::FileContent,
    };
    let now = expected_current_digest.and(post).map(|digest| Stands {
        digest,
        image: path.post.clone(),
        class,
    });
    let then = pre.map(|digest| Former {
        digest,
        image: path.first.pre.clone(),
        xattrs: path.first.xattrs.clone(),
        class,
    });
    let made = path.first.made_parents.len();
    Some(Wanted {
        path: String::from_utf8(path.path.clone()).ok()?,
        now,
        then,
        parent_mode: path.first.parent_mode.filter(|_| made == 0),
        made_parents: made,
    })
}
