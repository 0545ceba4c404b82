//! Classes of bytes: what the piece of a secret may be made of.

/// A set of ASCII bytes, as bits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Class(u128);

impl Class {
    /// `0-9`.
    pub(super) const DIGIT: Self = Self::range(b'0', b'9');
    /// `a-z`.
    pub(super) const LOWER: Self = Self::range(b'a', b'z');
    /// `A-Z`.
    pub(super) const UPPER: Self = Self::range(b'A', b'Z');
    /// Hex digits in either case.
    pub(super) const HEX: Self = Self::DIGIT.or(Self::range(b'a', b'f')).or(Self::range(b'A', b'F'));
    /// `A-Z` and `0-9`.
    pub(super) const CAPS: Self = Self::UPPER.or(Self::DIGIT);
    /// Letters and digits.
    pub(super) const ALNUM: Self = Self::CAPS.or(Self::LOWER);
    /// Letters, digits and `_`.
    pub(super) const WORD: Self = Self::ALNUM.with(b"_");
    /// Base64 in the alphabet that URLs bear: letters, digits, `-` and `_`.
    pub(super) const URL: Self = Self::WORD.with(b"-");
    /// Base64 in the standard alphabet, with its padding.
    pub(super) const BASE64: Self = Self::ALNUM.with(b"+/=");
    /// What may be in a header's credentials.
    pub(super) const TOKEN68: Self = Self::ALNUM.with(b"-._~+/=");
    /// What the name of a setting is made of.
    pub(super) const NAME: Self = Self::URL.with(b".");
    /// What a value without quotes is made of, in a file of settings or on a command line.
    pub(super) const BARE: Self = Self::ALNUM.with(b"-._~+/!@#%^*\0");

    const fn range(from: u8, to: u8) -> Self {
        let mut set = 0;
        let mut byte = from;
        while byte <= to {
            set |= 1 << byte;
            byte += 1;
        }
        Self(set)
    }

    const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// With the two bytes that the URL-safe alphabet has instead.
    pub(super) const fn or_url(self) -> Self {
        self.with(b"-_")
    }

    const fn with(self, bytes: &[u8]) -> Self {
        let mut set = self.0;
        let mut rest = bytes;
        while let [byte, after @ ..] = rest {
            set |= 1 << *byte;
            rest = after;
        }
        Self(set)
    }

    /// Whether the byte belongs to it.
    pub(super) const fn has(self, byte: u8) -> bool {
        byte < 128 && self.0 >> byte & 1 == 1
    }

    /// How many bytes from this place on belong to it; no more than `most`.
    pub(super) fn ahead(self, text: &[u8], at: usize, most: usize) -> usize {
        let rest = text.get(at..).unwrap_or_default();
        rest.iter().take(most).take_while(|byte| self.has(**byte)).count()
    }

    /// How many bytes before this place belong to it; no more than `most`.
    pub(super) fn behind(self, text: &[u8], at: usize, most: usize) -> usize {
        let before = text.get(..at).unwrap_or_default();
        before.iter().rev().take(most).take_while(|byte| self.has(**byte)).count()
    }
}
