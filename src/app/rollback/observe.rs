//! What stands at a target now, and whether what would come back is whole.

use std::{collections::BTreeSet, io::Read as _, os::unix::fs::MetadataExt as _};

use sha2::{Digest as _, Sha256};

use crate::{
    app::Fail,
    checkpoint::{CheckpointError, StoredImage, open_artifact},
    contract::rollback::ThreeWayState,
    floor::{self, Access, Boundary, FileKind, Location, PathFacts, Touch, fold_text},
    id::Digest,
    policy::set::PolicySet,
    rollback::{Composed, Current, Images},
    store::{Rows, View},
    workspace::{Kind, Root, Spot},
};

/// What stands at a path, as a document tells it and as the decision takes it.
pub(super) struct Seen {
    pub(super) current: Current,
    pub(super) told: ThreeWayState,
}

pub(super) fn told(state: &str) -> ThreeWayState {
    ThreeWayState { state: state.to_owned(), digest: None, bytes: None, mode: None, version: None }
}

fn octal(mode: u32) -> String {
    format!("{:04o}", mode & 0o7777)
}

/// Looks at a target.
pub(super) fn observe<S>(
    view: View<'_, S>,
    root: &Root,
    composed: &Composed,
    written: &BTreeSet<(u64, u64)>,
) -> Seen {
    let seen = |current, told| Seen { current, told };
    let Ok(path) = std::str::from_utf8(&composed.path) else {
        return seen(Current::Unreadable { cause: "path-not-utf8" }, told("unknown"));
    };
    let look = root.look(path);
    if look.is_link || !matches!(&look.spot, Spot::Inside(inside) if inside == path) {
        return seen(Current::BehindLink, told("unknown"));
    }
    match look.kind {
        Kind::Regular => {}
        Kind::Directory | Kind::Special => return seen(Current::NoFile, told("present")),
        Kind::Unknown => return seen(Current::Unreadable { cause: "unreadable" }, told("unknown")),
        Kind::Absent => {
            return match looks_alike(root, path) {
                Some(to) => seen(Current::Renamed { to }, told("absent")),
                None => seen(Current::Absent, told("absent")),
            };
        }
    }
    let read = || -> std::io::Result<(Digest, std::fs::Metadata)> {
        let mut file = root.open_file(&look).map_err(std::io::Error::other)?;
        let meta = file.metadata()?;
        let (mut hash, mut chunk) = (Sha256::new(), vec![0u8; 256 << 10]);
        loop {
            match file.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => hash.update(chunk.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok((Digest::from_bytes(hash.finalize().into()), meta))
    };
    let Ok((digest, meta)) = read() else {
        return seen(Current::Unreadable { cause: "unreadable" }, told("unknown"));
    };
    let version = version(&meta);
    let mode = meta.mode() & 0o7777;
    let of = |image: &StoredImage| match image {
        StoredImage::Present { meta, .. } => Some((meta.mode, meta.uid, meta.gid)),
        StoredImage::Absent => None,
    };
    let (before, left) = (of(&composed.first.pre), of(&composed.post));
    // Whose a new file becomes isn't recorded; an edit keeps it.
    let keeps_owner = match (before, left) {
        (Some(_), Some((_, uid, gid))) => (uid, gid) == (meta.uid(), meta.gid()),
        _ => true,
    };
    let current = Current::File {
        digest,
        version: version.clone(),
        is_pre: composed.first.pre.is(view, Some(&digest)),
        is_post: composed.post.is(view, Some(&digest)),
        has_pre_mode: before.is_none_or(|(before, ..)| before == mode),
        keeps_mode: left.is_none_or(|(left, ..)| left == mode) && keeps_owner,
        is_being_written: written.contains(&(meta.dev(), meta.ino())),
        has_other_names: meta.nlink() > 1,
    };
    let told = ThreeWayState {
        state: "present".to_owned(),
        digest: Some(digest),
        bytes: Some(meta.len()),
        mode: Some(octal(mode)),
        version: Some(version),
    };
    seen(current, told)
}

/// An opaque word that is another one once anything about the file changes.
fn version(meta: &std::fs::Metadata) -> String {
    let parts = [
        meta.dev().to_string(),
        meta.ino().to_string(),
        meta.len().to_string(),
        format!("{}.{:09}", meta.mtime(), meta.mtime_nsec()),
        format!("{}.{:09}", meta.ctime(), meta.ctime_nsec()),
    ];
    let digest = Digest::of(parts.join(" ").as_bytes()).to_string();
    digest.chars().skip("sha256:".len()).take(24).collect()
}

/// A name in the same directory that differs from an absent one by case or Unicode form alone.
fn looks_alike(root: &Root, path: &str) -> Option<String> {
    let (dir, leaf) = path.rsplit_once('/').unwrap_or(("", path));
    let wanted = fold_text(leaf);
    let alike = |name: &String| name != leaf && fold_text(name) == wanted;
    let name = root.names_in(&root.look(dir)).ok()?.into_iter().find(alike)?;
    Some(if dir.is_empty() { name } else { format!("{dir}/{name}") })
}

/// Why the floor or the policy keeps a path from being written, if one does: judged on the path as it
/// was recorded and on the place that it leads to, never trusting that it was allowed once.
pub(super) fn protected(root: &Root, composed: &Composed, policy: &PolicySet) -> Option<&'static str> {
    let path = std::str::from_utf8(&composed.path).ok()?;
    let facts = facts(root, path);
    boundary(root, path, composed.effect() == "create")
        .or_else(|| policy.protects(&facts).then(|| Boundary::ProtectedPath.token()))
}

/// Why the floor keeps a path from being written or removed, if it does.
pub(super) fn boundary(root: &Root, path: &str, removes: bool) -> Option<&'static str> {
    let access = if removes { Access::Delete } else { Access::Write };
    let touch = Touch { access, tells_content: false, breaks_links: false };
    floor::judge(root.path(), touch, &facts(root, path))
        // A link that came in is a conflict of its own, and is told as that.
        .filter(|hit| hit.boundary != Boundary::OutsideWorkspace)
        .map(|hit| hit.boundary.token())
}

fn facts(root: &Root, path: &str) -> PathFacts {
    let resolved = match root.look(path).spot {
        Spot::Inside(inside) => Location::Inside(inside),
        Spot::Outside(outside) => Location::Outside(outside),
    };
    PathFacts {
        given: path.to_owned(),
        lexical: Location::Inside(path.to_owned()),
        resolved,
        kind: FileKind::Absent,
        links: 0,
        bytes: 0,
    }
}

/// The content of an image, whole: `Some(None)` for nothing, `None` where it can't be opened.
pub(super) fn whole<S: Rows>(view: View<'_, S>, image: &StoredImage) -> Option<Option<Vec<u8>>> {
    let StoredImage::Present { artifact, .. } = image else { return Some(None) };
    let mut bytes = Vec::new();
    let found = open_artifact(view, *artifact, &mut |chunk| {
        bytes.extend_from_slice(chunk);
        Ok(())
    });
    found.is_ok_and(|digest| image.is(view, Some(&digest))).then_some(Some(bytes))
}

/// Opens the image that would come back, to the end: its digest, or why it can't.
pub(super) fn images<S: Rows>(
    view: View<'_, S>,
    image: &StoredImage,
) -> Result<(Images, Option<Digest>), Fail> {
    let StoredImage::Present { artifact, .. } = image else { return Ok((Images::Whole, None)) };
    match open_artifact(view, *artifact, &mut |_| Ok(())) {
        Ok(digest) if image.is(view, Some(&digest)) => Ok((Images::Whole, Some(digest))),
        Ok(_) | Err(CheckpointError::Corrupt(_) | CheckpointError::Crypto(_)) => {
            Ok((Images::Corrupt, None))
        }
        Err(CheckpointError::Missing(_)) => Ok((Images::Missing, None)),
        Err(error) => Err(error.into()),
    }
}

/// An image as it is kept, as a document tells it.
pub(super) fn stored(image: &StoredImage, digest: Option<Digest>) -> ThreeWayState {
    match image {
        StoredImage::Absent => told("absent"),
        StoredImage::Present { meta, .. } => ThreeWayState {
            state: "present".to_owned(),
            digest,
            bytes: Some(meta.bytes),
            mode: Some(octal(meta.mode)),
            version: None,
        },
    }
}
