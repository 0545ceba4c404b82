//! How much may be kept: pure, over what is stored and what would be.

/// Bytes of one checkpoint, and of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    per_checkpoint: u64,
    store: u64,
}

impl Capacity {
    /// The most that can be stated.
    pub const MOST: Self = Self { per_checkpoint: 104_857_600, store: 524_288_000 };

    /// The caps with these lowered; a cap can't be raised.
    #[must_use]
    pub fn lowered(self, per_checkpoint: Option<u64>, store: Option<u64>) -> Self {
        Self {
            per_checkpoint: per_checkpoint.unwrap_or(u64::MAX).min(self.per_checkpoint),
            store: store.unwrap_or(u64::MAX).min(self.store),
        }
    }
}

impl Capacity {
    /// Whether so much is stored that what isn't kept any more should go: over three quarters of what a
    /// store may hold.
    pub fn is_tight(self, usage: Usage) -> bool {
        usage.store > self.store / 4 * 3
    }
}

/// What is stored, counted as it lies on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes of all images in the store.
    pub store: u64,
}

/// Whether a checkpoint fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapacityVerdict {
    /// It does.
    Fits,
    /// It doesn't; by what, so that the disclosure is exact.
    OverCap {
        /// `per-checkpoint` or `store`.
        which: &'static str,
        /// What is stored already and counts against that cap. Bytes.
        used: u64,
        /// What would come. Bytes.
        proposed: u64,
        /// The cap. Bytes.
        cap: u64,
    },
}

/// Whether images of so many bytes, before and after together, can be kept.
pub fn evaluate(capacity: Capacity, usage: Usage, proposed: u64) -> CapacityVerdict {
    if proposed > capacity.per_checkpoint {
        let cap = capacity.per_checkpoint;
        return CapacityVerdict::OverCap { which: "per-checkpoint", used: 0, proposed, cap };
    }
    if usage.store.saturating_add(proposed) > capacity.store {
        return CapacityVerdict::OverCap {
            which: "store",
            used: usage.store,
            proposed,
            cap: capacity.store,
        };
    }
    CapacityVerdict::Fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_caps_hold_to_the_byte_and_can_only_be_lowered() {
        let caps = Capacity::MOST.lowered(Some(10), Some(25));
        assert_eq!(evaluate(caps, Usage { store: 15 }, 10), CapacityVerdict::Fits);
        assert!(matches!(
            evaluate(caps, Usage { store: 0 }, 11),
            CapacityVerdict::OverCap { which: "per-checkpoint", cap: 10, .. }
        ));
        assert!(matches!(
            evaluate(caps, Usage { store: 16 }, 10),
            CapacityVerdict::OverCap { which: "store", used: 16, .. }
        ));
        assert_eq!(Capacity::MOST.lowered(Some(u64::MAX), Some(u64::MAX)), Capacity::MOST);
        let tight = |store| Capacity::MOST.lowered(None, Some(100)).is_tight(Usage { store });
        assert_eq!((tight(75), tight(76)), (false, true));
        let full = evaluate(Capacity::MOST, Usage { store: u64::MAX }, 1);
        assert!(matches!(full, CapacityVerdict::OverCap { which: "store", .. }));
    }
}
