//! A file of the workspace that is read within bounds: not past the size that it had when it was
//! looked at (it may be growing), not past a budget, and no further once a signal has come.

use std::{
    fs::File,
    io::{self, Read},
    sync::atomic::{AtomicBool, Ordering},
};

/// Bytes that one read takes at most, so that a signal is seen between two of them.
const PIECE: u64 = 64 * 1024;

/// A reader that comes to its end where the file, the budget or the wish to read on does.
pub(super) struct Bounded<'a, R = File> {
    from: R,
    /// What may still be read of the size that was seen.
    left: u64,
    /// What may still be read at all.
    budget: u64,
    stop: &'a AtomicBool,
    read: u64,
}

impl<'a, R: Read> Bounded<'a, R> {
    pub(super) fn new(from: R, size: u64, budget: u64, stop: &'a AtomicBool) -> Self {
        Self { from, left: size, budget, stop, read: 0 }
    }

    /// Bytes that were read so far.
    pub(super) fn count(&self) -> u64 {
        self.read
    }

    /// Whether the budget ended it before the file did.
    pub(super) fn is_cut(&self) -> bool {
        self.budget == 0 && self.left > 0
    }

    /// Whether a signal has ended it.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_stopped() {
            return Ok(0);
        }
        let most = self.left.min(self.budget).min(PIECE);
        let most = usize::try_from(most).unwrap_or(0).min(buffer.len());
        let Some(room) = buffer.get_mut(..most).filter(|room| !room.is_empty()) else {
            return Ok(0);
        };
        let read = self.from.read(room)?;
        let bytes = u64::try_from(read).unwrap_or(u64::MAX);
        self.left = self.left.saturating_sub(bytes);
        self.budget = self.budget.saturating_sub(bytes);
        self.read = self.read.saturating_add(bytes);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(size: u64, budget: u64, stopped: bool) -> (usize, bool) {
        let stop = AtomicBool::new(stopped);
        // A source that never ends is what a growing file is.
        let mut bounded = Bounded::new(io::repeat(b'x'), size, budget, &stop);
        let mut bytes = Vec::new();
        bounded.read_to_end(&mut bytes).unwrap();
        assert_eq!(bounded.count(), u64::try_from(bytes.len()).unwrap());
        (bytes.len(), bounded.is_cut())
    }

    #[test]
    fn ends_at_size_budget_and_signal() {
        assert_eq!(all(1_000_000, 2_000_000, false), (1_000_000, false));
        assert_eq!(all(2_000_000, 1_000_000, false), (1_000_000, true));
        assert_eq!(all(7, 7, false), (7, false));
        assert_eq!(all(1_000_000, 2_000_000, true), (0, false));
    }
}
