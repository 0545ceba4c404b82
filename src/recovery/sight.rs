//! Looking at the disk: what stands at a target and beside it, by handle and by content.

use std::io::Read as _;

use sha2::{Digest as _, Sha256};

use crate::{
    contract::recovery::{Evidence, Sighting},
    journal::{Inflight, InflightImage},
    workspace::{Kind, Root, Spot},
};

/// What stands at an operation's target and under its temporary name.
pub fn look(root: &Root, inflight: &Inflight) -> Evidence {
    let Ok(path) = std::str::from_utf8(&inflight.path) else {
        return Evidence { target: Sighting::Unreadable, temp: Sighting::Unreadable };
    };
    let temp = String::from_utf8_lossy(&inflight.temp);
    let beside = super::beside(path, &temp);
    let target = sight(root, path, inflight);
    let temp = match sight(root, &beside, inflight) {
        // Only a file of ours that is shorter than it was to be is one that was cut off.
        (Sighting::Else, Some(bytes)) if inflight.post.is_some_and(|post| bytes < post.bytes) => {
            Sighting::Partial
        }
        (seen, _) => seen,
    };
    Evidence { target: target.0, temp }
}

/// Whether this is the directory that the operation was of: its identity is the recorded one.
pub fn at_home(root: &Root, inflight: &Inflight) -> bool {
    inflight.root_ino == root.inode()
        && inflight.root_fsid == root.file_system_id().to_be_bytes()
        && root.inode() != 0
}

/// What stands at a path, and how long it is if it is a file of other content.
fn sight(root: &Root, path: &str, inflight: &Inflight) -> (Sighting, Option<u64>) {
    let look = root.look(path);
    // A link that has come in leads elsewhere, whatever it leads to.
    if look.is_link || !matches!(&look.spot, Spot::Inside(inside) if inside == path) {
        return (Sighting::Else, None);
    }
    match look.kind {
        Kind::Absent => return (Sighting::Absent, None),
        Kind::Regular => {}
        Kind::Directory | Kind::Special => return (Sighting::Else, None),
        Kind::Unknown => return (Sighting::Unreadable, None),
    }
    let lengths = [inflight.pre, inflight.post];
    if !lengths.iter().flatten().any(|image| image.bytes == look.bytes) {
        return (Sighting::Else, Some(look.bytes));
    }
    let Ok(mut file) = root.open_file(&look) else { return (Sighting::Unreadable, None) };
    let mut hash = Sha256::new_with_prefix(inflight.salt);
    let (mut chunk, mut bytes) = (vec![0u8; 256 << 10], 0u64);
    loop {
        match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => {
                hash.update(chunk.get(..read).unwrap_or_default());
                bytes += u64::try_from(read).unwrap_or(u64::MAX);
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return (Sighting::Unreadable, None),
        }
    }
    let found: [u8; 32] = hash.finalize().into();
    let is = |image: &Option<InflightImage>| {
        image.is_some_and(|image| image.bytes == bytes && *image.digest.as_bytes() == found)
    };
    if is(&inflight.post) {
        (Sighting::Post, None)
    } else if is(&inflight.pre) {
        (Sighting::Pre, None)
    } else {
        (Sighting::Else, Some(bytes))
    }
}
