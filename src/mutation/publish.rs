//! Making the effect, and proving it: what came out is compared with what was sealed, and what
//! stands is read again. A foreign save is put back, or left and named; never swept.

use rustix::{fs::fstat, io::Errno};

use super::{
    native::{self, Enforcement, Fill, Keep, Metadata, TempError},
    preflight::{self, Parent, Refusal},
};
use crate::{
    host::{CrashPoint, Host},
    id::Digest,
    journal::DispatchCommitted,
    workspace::Root,
};

/// What was found after the attempt.
pub(super) enum Published {
    /// What was to stand there stands there.
    Seen(Enforcement),
    /// Nothing changed. `left` says whether our own temporary file couldn't be removed.
    Unchanged { refusal: Refusal, left: bool },
    /// It can't be told, or somebody's save lies under our temporary name.
    Unproven(Refusal),
}

/// What is to be written.
pub(super) struct Plan<'a> {
    pub(super) path: &'a str,
    pub(super) temp: &'a str,
    pub(super) fill: Fill<'a>,
    /// What the file is to have besides its bytes.
    pub(super) keep: Keep<'a>,
    pub(super) before: Option<Digest>,
    pub(super) after: Option<Digest>,
}

/// Makes or changes a file.
pub(super) fn write(
    host: &Host,
    root: &Root,
    proof: &DispatchCommitted,
    parent: &mut Parent,
    plan: &Plan<'_>,
) -> Published {
    let made = parent.missing.len();
    let published = stage(host, root, proof, parent, plan)
        .and_then(|_| place(host, root, proof, parent, (made, plan)))
        .map(|enforcement| {
            let synced = sync(host, proof, parent);
            proven(root, parent, (plan.path, plan.after), enforcement, synced)
        });
    published.unwrap_or_else(|ended| ended)
}

/// Makes the directories and the temporary file, synced. An error has left neither.
pub(super) fn stage(
    host: &Host,
    root: &Root,
    proof: &DispatchCommitted,
    parent: &mut Parent,
    plan: &Plan<'_>,
) -> Result<Metadata, Published> {
    let made = parent.missing.len();
    let staged = native::make_parents(proof, parent)
        .map_err(|errno| Published::Unchanged { refusal: failed(plan.path, errno), left: false })
        .and_then(|()| {
            host.crash_point(CrashPoint::ParentsMade);
            stage_in(host, proof, parent, plan)
        });
    if staged.is_err() {
        native::unmake_parents(proof, root, plan.path, made);
    }
    staged
}

fn stage_in(
    host: &Host,
    proof: &DispatchCommitted,
    parent: &Parent,
    plan: &Plan<'_>,
) -> Result<Metadata, Published> {
    let give_up = |refusal| Err(give_up(proof, parent, plan.temp, refusal));
    let (file, metadata) = match native::write_temp(proof, parent, plan.temp, plan.fill, plan.keep) {
        Ok(made) => made,
        Err(TempError::Io(errno)) => return give_up(failed(plan.path, errno)),
        Err(TempError::Metadata(errno)) => {
            let error = std::io::Error::from(errno);
            let message = format!("{}: its mode, owner or attributes can't be kept: {error}", plan.path);
            return give_up(Refusal::new("metadata-not-preservable", message));
        }
        Err(TempError::Content) => {
            let message = format!("{}: the sealed image isn't what was kept", plan.path);
            return give_up(Refusal::new("pre-image-corrupt", message));
        }
    };
    host.crash_point(CrashPoint::TempWritten);
    // A sync that failed once says nothing the second time: this file is given up.
    if !host.fault("no-temp-sync")
        && let Err(errno) = native::sync_file(proof, &file)
    {
        return give_up(failed(plan.path, errno));
    }
    drop(file);
    host.crash_point(CrashPoint::TempSynced);
    Ok(metadata)
}

/// Nothing changed; the temporary file goes.
fn give_up(proof: &DispatchCommitted, parent: &Parent, temp: &str, refusal: Refusal) -> Published {
    // A read-only file system refuses to remove even what was never made.
    let left = native::remove(proof, parent, temp).is_err() && !native::is_gone(parent, temp);
    Published::Unchanged { refusal, left }
}

/// Whether the directory that is held open is still the one that the path leads to: one that was moved
/// away takes what is written into it along, out of the workspace perhaps.
fn in_place(root: &Root, path: &str, parent: &Parent) -> bool {
    let identity = |parent: &Parent| {
        let stat = fstat(&parent.fd).ok()?;
        Some((stat.st_dev, stat.st_ino))
    };
    preflight::parent(root, path, false)
        .is_ok_and(|now| identity(&now).is_some() && identity(&now) == identity(parent))
}

fn moved(path: &str) -> Refusal {
    let message = format!("the directory of {path} was moved meanwhile; nothing was changed");
    Refusal::new("directory-moved", message)
}

/// Puts the staged file in its place. Where that isn't done, the directories that were made go.
pub(super) fn place(
    host: &Host,
    root: &Root,
    proof: &DispatchCommitted,
    parent: &Parent,
    (made, plan): (usize, &Plan<'_>),
) -> Result<Enforcement, Published> {
    let placed = match in_place(root, plan.path, parent) {
        true => place_in(host, proof, parent, plan),
        false => Err(give_up(proof, parent, plan.temp, moved(plan.path))),
    };
    if let Err(Published::Unchanged { .. }) = &placed {
        native::unmake_parents(proof, root, plan.path, made);
    }
    placed.inspect(|_| host.crash_point(CrashPoint::Removed))
}

fn place_in(
    host: &Host,
    proof: &DispatchCommitted,
    parent: &Parent,
    plan: &Plan<'_>,
) -> Result<Enforcement, Published> {
    let give_up = |refusal| Err(give_up(proof, parent, plan.temp, refusal));
    match plan.before {
        None => match native::publish_new(proof, parent, plan.temp) {
            Ok(enforcement) => {
                host.crash_point(CrashPoint::Published);
                Ok(enforcement)
            }
            Err(Errno::EXIST) => {
                let message =
                    format!("something came to stand at {} meanwhile; it was left alone", plan.path);
                give_up(Refusal::new("already-exists", message))
            }
            Err(errno) => give_up(failed(plan.path, errno)),
        },
        Some(before) => match exchanged(host, proof, parent, plan, before) {
            Ok(enforcement) => Ok(enforcement),
            Err(Exchange::GiveUp(refusal)) => give_up(refusal),
            Err(Exchange::Unproven(refusal)) => Err(Published::Unproven(refusal)),
        },
    }
}

/// Why an exchange isn't a success.
enum Exchange {
    /// Nothing changed; the temporary file is ours.
    GiveUp(Refusal),
    /// It can't be told, or the temporary file isn't ours.
    Unproven(Refusal),
}

fn exchanged(
    host: &Host,
    proof: &DispatchCommitted,
    parent: &Parent,
    plan: &Plan<'_>,
    before: Digest,
) -> Result<Enforcement, Exchange> {
    let stale = || {
        let message = format!(
            "{} was changed by somebody else meanwhile; their content was left alone",
            plan.path
        );
        Refusal::new("stale-read", message)
    };
    match native::exchange(proof, parent, plan.temp) {
        Ok(()) => {}
        Err(errno) if native::is_unsupported(errno) => {
            return match native::seen(parent, &parent.leaf) {
                Ok(Some((_, now))) if now == before => {
                    native::replace(proof, parent, plan.temp)
                        .map_err(|errno| Exchange::GiveUp(failed(plan.path, errno)))?;
                    host.crash_point(CrashPoint::Published);
                    Ok(Enforcement::BestEffort)
                }
                Ok(_) => Err(Exchange::GiveUp(stale())),
                Err(errno) => Err(Exchange::GiveUp(failed(plan.path, errno))),
            };
        }
        Err(errno) => return Err(Exchange::GiveUp(failed(plan.path, errno))),
    }
    host.crash_point(CrashPoint::Published);
    let came_out = native::seen(parent, plan.temp).ok().flatten().map(|(_, digest)| digest);
    // Without this comparison somebody's save would be removed as if it were the old content.
    if came_out == Some(before) || host.fault("no-exchange-check") {
        return match native::remove(proof, parent, plan.temp) {
            Ok(()) => Ok(Enforcement::Atomic),
            Err(errno) => {
                let message = format!(
                    "{}: the old content is left as {}: {}",
                    plan.path,
                    plan.temp,
                    std::io::Error::from(errno)
                );
                Err(Exchange::Unproven(Refusal::new("old-content-left", message)))
            }
        };
    }
    // Somebody saved between our reading and the exchange: their file goes back where it was.
    let left = |what: &str| {
        let message = format!("{}: {what}; it lies beside it as {}", plan.path, plan.temp);
        Exchange::Unproven(Refusal::new("displaced", message))
    };
    native::exchange(proof, parent, plan.temp).map_err(|_| left("somebody's save was displaced"))?;
    match native::seen(parent, plan.temp) {
        Ok(Some((_, ours))) if Some(ours) == plan.after => Err(Exchange::GiveUp(stale())),
        _ => Err(left("two saves crossed")),
    }
}

/// Removes a file.
pub(super) fn remove(
    host: &Host,
    root: &Root,
    proof: &DispatchCommitted,
    parent: &Parent,
    path: &str,
    quarantine: &str,
    before: Option<Digest>,
) -> Published {
    match take_away((host, root), proof, parent, path, (quarantine, before)) {
        Ok(enforcement) => {
            let synced = sync(host, proof, parent);
            proven(root, parent, (path, None), enforcement, synced)
        }
        Err(ended) => ended,
    }
}

/// Moves the file to the quarantine name, sees that it is the one that was meant, and removes it.
pub(super) fn take_away(
    (host, root): (&Host, &Root),
    proof: &DispatchCommitted,
    parent: &Parent,
    path: &str,
    (quarantine, before): (&str, Option<Digest>),
) -> Result<Enforcement, Published> {
    host.crash_point(CrashPoint::ParentsMade);
    host.crash_point(CrashPoint::TempWritten);
    host.crash_point(CrashPoint::TempSynced);
    if !in_place(root, path, parent) {
        return Err(Published::Unchanged { refusal: moved(path), left: false });
    }
    let enforcement = match native::set_aside(proof, parent, quarantine) {
        Ok(enforcement) => enforcement,
        Err(errno) => return Err(Published::Unchanged { refusal: failed(path, errno), left: false }),
    };
    host.crash_point(CrashPoint::Published);
    let came_out = native::seen(parent, quarantine).ok().flatten().map(|(_, digest)| digest);
    if came_out != before {
        let message =
            format!("{path} was changed by somebody else meanwhile; their content was left alone");
        return Err(match native::put_back(proof, parent, quarantine) {
            Ok(()) => Published::Unchanged { refusal: Refusal::new("stale-read", message), left: false },
            Err(_) => {
                let message =
                    format!("{path}: somebody's save was displaced; it lies beside it as {quarantine}");
                Published::Unproven(Refusal::new("displaced", message))
            }
        });
    }
    if let Err(errno) = native::remove(proof, parent, quarantine) {
        let message = format!("{path}: it is left as {quarantine}: {}", std::io::Error::from(errno));
        return Err(Published::Unproven(Refusal::new("old-content-left", message)));
    }
    host.crash_point(CrashPoint::Removed);
    Ok(enforcement)
}

/// Makes what was done in a directory durable.
pub(super) fn sync(host: &Host, proof: &DispatchCommitted, parent: &Parent) -> Result<(), Errno> {
    let synced = if host.fault("no-dir-sync") { Ok(()) } else { native::sync_dir(proof, parent) };
    host.crash_point(CrashPoint::DirSynced);
    synced
}

/// Reads again what stands there, once its directory was synced, or wasn't.
pub(super) fn proven(
    root: &Root,
    parent: &Parent,
    (path, after): (&str, Option<Digest>),
    enforcement: Enforcement,
    synced: Result<(), Errno>,
) -> Published {
    if let Err(errno) = synced {
        let message = format!(
            "{path}: the change is there and can't be made durable: {}",
            std::io::Error::from(errno)
        );
        return Published::Unproven(Refusal::new("sync-failed", message));
    }
    if !in_place(root, path, parent) {
        let message = format!("{path} was written, and its directory was moved away at that moment");
        return Published::Unproven(Refusal::new("directory-moved", message));
    }
    match native::seen(parent, &parent.leaf) {
        Ok(now) if now.map(|(_, digest)| digest) == after => Published::Seen(enforcement),
        _ => {
            let message = format!("{path} was written, and something else stands there now");
            Published::Unproven(Refusal::new("verify-mismatch", message))
        }
    }
}

/// An error of the system after the dispatch, with nothing changed.
fn failed(path: &str, errno: Errno) -> Refusal {
    let cause = match errno {
        Errno::NOSPC => "no-space",
        Errno::DQUOT => "quota-exceeded",
        Errno::FBIG => "too-large",
        Errno::ROFS => "read-only-file-system",
        Errno::ACCESS | Errno::PERM => "permission-denied",
        Errno::BUSY => "target-busy",
        Errno::XDEV => "crosses-mount",
        Errno::MFILE | Errno::NFILE => "too-many-open-files",
        _ => "io-error",
    };
    Refusal::new(cause, format!("{path}: {}", std::io::Error::from(errno)))
}
