//! The head anchor: how far the journal was durable, kept outside the database.
//!
//! SQLite takes a database or WAL that lost its last rows for a whole one. The anchor knows better:
//! two slots, written alternately in place and synced after the commit that they speak of, so that
//! one of them always holds. The database may be ahead of it; behind it, something is gone.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use super::StoreError;
use crate::crypto::{Context, MAC_BYTES, Mac, MacKey};

pub(super) const FILE: &str = "head";
const SLOT_BYTES: usize = 512;
const MAGIC: &[u8; 8] = b"thcHead1";
/// Magic, sequence, hash, MAC, checksum.
const USED_BYTES: usize = 8 + 8 + 32 + MAC_BYTES + 32;

/// A journal row that was durable: its number and its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Head {
    /// The row's number, from 1.
    pub seq: u64,
    /// The row's hash.
    pub hash: [u8; 32],
}

impl Head {
    /// The head of a journal without rows.
    pub const EMPTY: Self = Self { seq: 0, hash: [0; 32] };
}

/// The anchor's file, open for writing.
#[derive(Debug)]
pub struct Anchor {
    path: PathBuf,
    file: File,
    next_slot: u64,
}

impl Anchor {
    /// Makes the file anew for an empty journal, durably but for its directory entry.
    pub(super) fn make(dir: &Path, key: &MacKey, store: &[u8; 16]) -> Result<Self, StoreError> {
        let path = dir.join(FILE);
        let io = |source| StoreError::Io { path: path.clone(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600).custom_flags(nofollow());
        let file = options.open(&path).map_err(io)?;
        file.write_all_at(&[0; SLOT_BYTES * 2], 0).map_err(io)?;
        let mut anchor = Self { path, file, next_slot: 0 };
        anchor.write(key, store, Head::EMPTY)?;
        Ok(anchor)
    }

    /// Opens the file that is there.
    pub(super) fn open(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join(FILE);
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(nofollow());
        let file = options.open(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => StoreError::Behind("the head anchor is gone".to_owned()),
            _ => StoreError::Io { path: path.clone(), source },
        })?;
        let newest =
            slots(&file).into_iter().enumerate().filter_map(|(at, slot)| Some((slot?.0.seq, at)));
        let next_slot = if newest.max().is_some_and(|(_, at)| at == 0) { 1 } else { 0 };
        Ok(Self { path, file, next_slot })
    }

    /// Opens the file that is there, or makes an empty one, which tells nothing.
    pub(super) fn open_or_make(dir: &Path) -> Result<Self, StoreError> {
        match Self::open(dir) {
            Err(StoreError::Behind(_)) => {}
            opened => return opened,
        }
        let path = dir.join(FILE);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600).custom_flags(nofollow());
        let file =
            options.open(&path).map_err(|source| StoreError::Io { path: path.clone(), source })?;
        Ok(Self { path, file, next_slot: 0 })
    }

    /// Writes the head into the older slot and syncs it. One sync.
    pub fn write(&mut self, key: &MacKey, store: &[u8; 16], head: Head) -> Result<(), StoreError> {
        let mut slot = Vec::with_capacity(SLOT_BYTES);
        slot.extend_from_slice(MAGIC);
        slot.extend_from_slice(&head.seq.to_be_bytes());
        slot.extend_from_slice(&head.hash);
        slot.extend_from_slice(key.of(&context(store, head)).as_bytes());
        let checksum: [u8; 32] = Sha256::digest(&slot).into();
        slot.extend_from_slice(&checksum);
        slot.resize(SLOT_BYTES, 0);
        let offset = self.next_slot * SLOT_BYTES as u64;
        self.file
            .write_all_at(&slot, offset)
            .and_then(|()| self.file.sync_data())
            .map_err(|source| StoreError::Io { path: self.path.clone(), source })?;
        self.next_slot = 1 - self.next_slot;
        Ok(())
    }
}

/// The newest head that a whole slot tells; `None` if no slot is whole or nothing was written yet.
pub(super) fn read(dir: &Path) -> Result<Option<(Head, Mac)>, StoreError> {
    let path = dir.join(FILE);
    // A pipe under this name would keep its reader waiting for ever.
    match OpenOptions::new().read(true).custom_flags(nonblock()).open(&path) {
        Ok(file) => Ok(slots(&file).into_iter().flatten().max_by_key(|(head, _)| head.seq)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StoreError::Io { path, source }),
    }
}

/// Whether the anchor's MAC is of this store's key.
pub(super) fn authentic(key: &MacKey, store: &[u8; 16], head: Head, mac: &Mac) -> bool {
    key.of(&context(store, head)) == *mac
}

pub(super) fn nofollow() -> i32 {
    i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0)
}

pub(super) fn nonblock() -> i32 {
    i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0)
}

fn context(store: &[u8; 16], head: Head) -> Context {
    Context::new("thcode head").field(store).number(head.seq).field(&head.hash)
}

fn slots(file: &File) -> [Option<(Head, Mac)>; 2] {
    [0, 1].map(|at| {
        let mut bytes = [0u8; USED_BYTES];
        file.read_exact_at(&mut bytes, at * SLOT_BYTES as u64).ok()?;
        let (told, checksum) = bytes.split_at(USED_BYTES - 32);
        if Sha256::digest(told).as_slice() != checksum {
            return None;
        }
        let (magic, rest) = told.split_at_checked(8)?;
        let (seq, rest) = rest.split_at_checked(8)?;
        let (hash, mac) = rest.split_at_checked(32)?;
        (magic == MAGIC).then_some(())?;
        let head = Head { seq: u64::from_be_bytes(seq.try_into().ok()?), hash: hash.try_into().ok()? };
        Some((head, Mac::from_bytes(mac)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{crypto::StoreSecret, host::Host};

    #[test]
    fn a_pipe_in_its_place_keeps_nobody_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join(FILE);
        assert!(std::process::Command::new("mkfifo").arg(pipe).status().unwrap().success());
        let (tell, told) = std::sync::mpsc::channel();
        let place = dir.path().to_owned();
        std::thread::spawn(move || tell.send(read(&place).unwrap().is_none()));
        assert_eq!(told.recv_timeout(std::time::Duration::from_secs(5)), Ok(true));
    }

    #[test]
    fn the_newest_whole_slot_holds_and_every_flip_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let keys = StoreSecret::fresh(&Host::real()).unwrap().keys();
        let store = [3u8; 16];
        let head = |seq: u8| Head { seq: u64::from(seq), hash: [seq; 32] };
        assert!(read(dir.path()).unwrap().is_none());
        let mut anchor = Anchor::make(dir.path(), &keys.journal, &store).unwrap();
        assert_eq!(read(dir.path()).unwrap().unwrap().0, Head::EMPTY);
        for seq in 1..=5 {
            anchor.write(&keys.journal, &store, head(seq)).unwrap();
            assert_eq!(read(dir.path()).unwrap().unwrap().0, head(seq));
        }
        drop(anchor);
        let mut anchor = Anchor::open(dir.path()).unwrap();
        anchor.write(&keys.journal, &store, head(6)).unwrap();
        let path = dir.path().join(FILE);
        let whole = std::fs::read(&path).unwrap();
        for byte in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[byte] ^= 1;
            std::fs::write(&path, &flipped).unwrap();
            let (found, mac) = read(dir.path()).unwrap().unwrap();
            assert!(found == head(6) || found == head(5), "byte {byte}: never another head");
            assert!(authentic(&keys.journal, &store, found, &mac));
        }
    }
}
