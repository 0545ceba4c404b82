//! How long a checkpoint is kept, in prompt rounds: pure, with the current round as a value.

use std::{
    collections::BTreeSet,
    ops::Bound::{Excluded, Unbounded},
};

/// Rounds that a checkpoint is kept after its own, if the policy doesn't say.
const DEFAULT_ROUNDS: u32 = 5;
const FEWEST_ROUNDS: u32 = 1;
const MOST_ROUNDS: u32 = 100;

/// A window that can't be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("retention_rounds is {0}, and must be from 1 to 100")]
pub struct RetentionError(pub u32);

/// The window that a checkpoint was made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionConfig {
    subsequent_rounds: u32,
}

impl RetentionConfig {
    /// What holds if the policy does not say.
    pub const DEFAULT: Self = Self { subsequent_rounds: DEFAULT_ROUNDS };

    /// A window of so many rounds.
    pub fn new(rounds: u32) -> Result<Self, RetentionError> {
        if (FEWEST_ROUNDS..=MOST_ROUNDS).contains(&rounds) {
            Ok(Self { subsequent_rounds: rounds })
        } else {
            Err(RetentionError(rounds))
        }
    }

    /// The number of rounds.
    pub fn rounds(self) -> u32 {
        self.subsequent_rounds
    }

    /// Whether a checkpoint of that round is still kept in this one. The expiry is exclusive.
    pub fn evaluate(self, made_in: u32, now: u32) -> RetentionState {
        let expiry = made_in.saturating_add(self.subsequent_rounds);
        if now < expiry { RetentionState::Retained } else { RetentionState::EligibleForEviction }
    }
}

/// Whether a checkpoint of that round is still kept, by the rounds of its session that made one. Rounds
/// that changed nothing don't count.
pub fn retained(window: RetentionConfig, made_in: u32, rounds: &BTreeSet<u32>) -> RetentionState {
    let later = rounds.range((Excluded(made_in), Unbounded)).count();
    let now = made_in.saturating_add(u32::try_from(later).unwrap_or(u32::MAX));
    window.evaluate(made_in, now)
}

/// Whether a checkpoint is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetentionState {
    /// It is.
    Retained,
    /// It may be evicted.
    EligibleForEviction,
}

impl RetentionState {
    /// The word of the state.
    pub fn token(self) -> &'static str {
        match self {
            Self::Retained => "retained",
            Self::EligibleForEviction => "eligible-for-eviction",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_later_rounds_that_made_one_count() {
        let two = RetentionConfig::new(2).unwrap();
        let of = |rounds: &[u32]| retained(two, 3, &rounds.iter().copied().collect());
        for kept in [&[][..], &[3], &[1, 2, 3], &[3, 90]] {
            assert_eq!(of(kept), RetentionState::Retained, "{kept:?}");
        }
        assert_eq!(of(&[1, 3, 4, 90]), RetentionState::EligibleForEviction);
        let last = retained(two, u32::MAX, &BTreeSet::from([u32::MAX]));
        assert_eq!(last, RetentionState::EligibleForEviction, "the last round that can be");
    }

    #[test]
    fn the_window_is_from_1_to_100_and_its_end_is_exclusive() {
        assert_eq!(RetentionConfig::new(0), Err(RetentionError(0)));
        assert_eq!(RetentionConfig::new(101), Err(RetentionError(101)));
        let five = RetentionConfig::DEFAULT;
        assert_eq!(five.rounds(), 5);
        assert_eq!(five.evaluate(3, 7), RetentionState::Retained);
        assert_eq!(five.evaluate(3, 8), RetentionState::EligibleForEviction);
        let one = RetentionConfig::new(1).unwrap();
        assert_eq!(one.evaluate(1, 1), RetentionState::Retained);
        assert_eq!(one.evaluate(1, 2), RetentionState::EligibleForEviction);
        assert_eq!(
            RetentionConfig::new(100).unwrap().evaluate(u32::MAX, u32::MAX),
            RetentionState::EligibleForEviction
        );
    }
}
