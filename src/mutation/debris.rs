//! What an interrupted change left beside its target: removed if it is ours, or put back where it
//! was. Each step looks once more at what it is about to touch; what isn't as it was judged is left.

use rustix::io::Errno;

use super::{
    native,
    preflight::{self, Parent, Refusal},
};
use crate::{
    host::Host,
    id::Digest,
    journal::{DispatchCommitted, Inflight, InflightImage},
    workspace::Root,
};

/// What is to become of what lies beside a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tidy {
    /// It is ours: removed.
    Sweep,
    /// As `Sweep`, and the directories that were made for a file which then wasn't go too, as far as
    /// they are empty.
    SweepWithParents,
    /// It goes back where it was: in exchange for our own content, or into the empty place.
    Restore,
}

/// Carries it out; an effect of the operation whose intent the proof is of.
pub fn tidy(
    root: &Root,
    proof: &DispatchCommitted,
    inflight: &Inflight,
    tidy: Tidy,
) -> Result<(), Refusal> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (path, temp) = (text(&inflight.path), text(&inflight.temp));
    let made = inflight.parents.split(|byte| *byte == 0).filter(|name| !name.is_empty()).count();
    let parent = match preflight::parent(root, &path, false) {
        Ok(parent) => parent,
        // Without its directory nothing lies in it.
        Err(refusal) if refusal.cause == "not-found" => {
            if tidy == Tidy::SweepWithParents {
                native::unmake_parents(proof, root, &path, made);
            }
            return Ok(());
        }
        Err(refusal) => return Err(refusal),
    };
    match tidy {
        Tidy::Sweep => sweep(proof, &parent, inflight, &path, &temp)?,
        Tidy::SweepWithParents => {
            sweep(proof, &parent, inflight, &path, &temp)?;
            native::unmake_parents(proof, root, &path, made);
        }
        Tidy::Restore => restore(proof, &parent, inflight, &path, &temp)?,
    }
    // The directory may be one of those that were just removed.
    match native::sync_dir(proof, &parent) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(io(&path, errno)),
    }
}

fn sweep(
    proof: &DispatchCommitted,
    parent: &Parent,
    inflight: &Inflight,
    path: &str,
    temp: &str,
) -> Result<(), Refusal> {
    let Some((digest, bytes)) = salted(parent, temp, inflight).map_err(|errno| io(path, errno))? else {
        return Ok(());
    };
    let is = |image: &Option<InflightImage>| {
        image.is_some_and(|image| image.bytes == bytes && image.digest == digest)
    };
    let cut_off =
        inflight.post.is_some_and(|post| bytes < post.bytes) || Host::real().fault("sweep-displaced");
    if !(is(&inflight.pre) || is(&inflight.post) || cut_off) {
        let message = format!("{temp} beside {path} is not what was left there; it stays");
        return Err(Refusal::new("not-ours", message));
    }
    match native::remove(proof, parent, temp) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(io(path, errno)),
    }
}

fn restore(
    proof: &DispatchCommitted,
    parent: &Parent,
    inflight: &Inflight,
    path: &str,
    temp: &str,
) -> Result<(), Refusal> {
    let Some(post) = inflight.post else {
        // A deletion: the place is empty, or somebody took it.
        return native::put_back(proof, parent, temp).map_err(|errno| match errno {
            Errno::EXIST => {
                let message =
                    format!("something stands at {path} now; what was there before stays as {temp}");
                Refusal::new("target-recreated", message)
            }
            errno => io(path, errno),
        });
    };
    native::exchange(proof, parent, temp).map_err(|errno| io(path, errno))?;
    let came_out = salted(parent, temp, inflight).ok().flatten();
    if came_out == Some((post.digest, post.bytes)) {
        return native::remove(proof, parent, temp).map_err(|errno| io(path, errno));
    }
    // Somebody saved just now: both go back where they were.
    native::exchange(proof, parent, temp).map_err(|errno| io(path, errno))?;
    let message = format!("{path} was changed just now; it was left as it is");
    Err(Refusal::new("stale-read", message))
}

/// The salted digest and the length of what stands under a name; `None` for nothing.
fn salted(parent: &Parent, name: &str, inflight: &Inflight) -> Result<Option<(Digest, u64)>, Errno> {
    let seen = native::seen_salted(parent, name, &inflight.salt)?;
    Ok(seen.map(|(stat, digest)| (digest, stat.bytes)))
}

fn io(path: &str, errno: Errno) -> Refusal {
    Refusal::new("io-error", format!("{path}: {}", std::io::Error::from(errno)))
}
