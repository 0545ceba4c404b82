//! Where the state is, and with which key: from the caller's words to a place, a key source and an
//! open store.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use super::{Common, Fail, failure, recover};
use crate::{
    crypto::{KeySource, Keys},
    host::{Host, own_file},
    journal::{self, JournalError, Log},
    redact::Secret,
    store::{Head, Lease, ReadStore, StatePlace, Store, StoreError, is_kept, state_base, state_place},
    workspace::Root,
};

/// The variable that holds the key itself.
const KEY_VARIABLE: &str = "THCODE_KEY";

/// What the caller says about the state.
#[derive(Debug, Clone, Default)]
pub struct StateOptions {
    /// The state directory.
    pub dir: Option<PathBuf>,
    /// The key file.
    pub key_file: Option<PathBuf>,
}

/// Where the key comes from: the named file, else the variable, else the file beside the state
/// directory. A variable that is set but empty counts as unset (a missing CI secret is the empty
/// string), which is told: the key beside would be another one.
pub fn key_source(host: &Host, place: &StatePlace, options: &StateOptions) -> KeySource {
    if let Some(file) = &options.key_file {
        return KeySource::File(file.clone());
    }
    if host.is_set_but_empty(KEY_VARIABLE) {
        tracing::warn!("{KEY_VARIABLE} is set but empty: it counts as unset");
    }
    match host.var(KEY_VARIABLE) {
        // Where it isn't UTF-8 it isn't base64 either, and is refused as that.
        Some(key) => KeySource::Variable(Secret::new(key.to_string_lossy().into_owned())),
        None => KeySource::Beside(place.key.clone()),
    }
}

/// Where the state of a workspace is. Where a directory was named, `root` doesn't matter.
pub fn place(host: &Host, root: &str, options: &StateOptions) -> Result<StatePlace, Fail> {
    Ok(state_place(host, root, options.dir.as_deref())?)
}

/// Whether a file lies where a store keeps its own. With what the caller says about the state, a store
/// counts that isn't made yet.
fn keeps(host: &Host, options: &StateOptions, file: &Path) -> bool {
    let Some(file) = own_file::target(file) else { return false };
    let given = options.dir.as_deref().and_then(|dir| state_place(host, "", Some(dir)).ok());
    let base = state_base(host).ok().and_then(|base| std::fs::canonicalize(base).ok());
    is_kept(&file, given.as_ref()) || base.is_some_and(|base| file.starts_with(base))
}

/// Refuses to write a document where a store keeps its own: it would take the place of the journal or
/// of the key.
pub fn spare(host: &Host, options: &StateOptions, file: &Path) -> Result<(), Fail> {
    if keeps(host, options, file) { Err(failure::output_is_state(file)) } else { Ok(()) }
}

/// The place that a reading verb means: the named state directory, wherever it lies, else the one of
/// the workspace.
pub(super) fn place_to_read(host: &Host, common: &Common) -> Result<StatePlace, Fail> {
    if common.state.dir.is_some() {
        return place(host, "", &common.state);
    }
    place(host, common.root(host)?.path(), &common.state)
}

/// Opens a store for reading. It is served only if everything is there that was durable once.
pub fn open_read(dir: &Path) -> Result<ReadStore, Fail> {
    let store = ReadStore::open(dir)?;
    whole(&store)?;
    Ok(store)
}

/// A store that a verb other than `run` has open for writing.
pub(super) struct Written {
    /// Where it is.
    pub(super) place: StatePlace,
    /// The workspace that it was made for.
    pub(super) workspace: String,
    /// The workspace, as the caller names it or as the store tells it, if it is there.
    pub(super) root: Option<Root>,
    pub(super) store: Store,
    pub(super) log: Log,
}

/// Opens a store for a verb that keeps it. One that isn't there is not made.
pub(super) fn open_write(host: &Host, common: &Common) -> Result<Written, Fail> {
    let place = place_to_read(host, common)?;
    // A store is looked at before it is written.
    let reader = open_read(&place.dir)?;
    let (workspace, _) = reader.made_for()?;
    drop(reader);
    let (root, lease) = hold(host, common, &place, &workspace)?;
    let key = key_source(host, &place, &common.state);
    let store = Store::open(host, &place, &workspace, &key, lease)?;
    let log = Log::open(&store)?;
    Ok(Written { place, workspace, root, store, log })
}

/// The lease of a store's workspace, for a verb that doesn't wait long.
pub(super) fn hold(
    host: &Host,
    common: &Common,
    place: &StatePlace,
    workspace: &str,
) -> Result<(Option<Root>, Lease), Fail> {
    let root = recover::root_of(common, workspace);
    let locked = root.as_ref().map_or(workspace, Root::path);
    let lease = Lease::take(host, locked, place, Duration::from_millis(250))?;
    Ok((root, lease))
}

/// The last row of a journal that holds all that the head anchor tells of. Needs no key: that the
/// anchor and the rows are of this store's key is a matter of `unlock` and of writers.
pub fn whole(store: &ReadStore) -> Result<Head, JournalError> {
    journal::verify(store, anchored(store)?, None)
}

/// The row that the head anchor tells of, which must be there with its hash.
pub fn anchored(store: &ReadStore) -> Result<Head, JournalError> {
    let lost = |what: String| JournalError::from(StoreError::Behind(what));
    let Some(anchored) = store.anchored() else {
        return match journal::hash_at(store, 1)? {
            Some(_) => Err(lost("the head anchor is gone or torn".to_owned())),
            None => Ok(Head::EMPTY),
        };
    };
    if anchored.seq > 0
        && journal::hash_at(store, anchored.seq)?.as_deref() != Some(anchored.hash.as_slice())
    {
        return Err(lost(format!("row {} is gone or is another one", anchored.seq)));
    }
    Ok(anchored)
}

/// The keys, where they can be had; a reason on standard error, where they can't. For verbs that
/// also work without.
pub(super) fn keys_if_any(store: &ReadStore, key: &KeySource) -> Option<Keys> {
    let tell = |error: &StoreError| tracing::warn!("what is sealed stays untold: {error}");
    store.unlock(key).inspect_err(tell).ok()
}
