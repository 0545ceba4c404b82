//! What sealed bytes are bound to: length-prefixed fields, so that no two lists of fields read alike.

use crate::id::Digest;

/// The associated data of a seal or a MAC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context(Vec<u8>);

impl Context {
    /// Begins with the domain: what kind of thing this is.
    pub fn new(domain: &str) -> Self {
        Self(Vec::with_capacity(128)).field(domain.as_bytes())
    }

    /// The same with one more field.
    #[must_use]
    pub fn field(mut self, bytes: &[u8]) -> Self {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.0.extend_from_slice(&length.to_be_bytes());
        self.0.extend_from_slice(bytes);
        self
    }

    /// The same with a number as one more field.
    #[must_use]
    pub fn number(self, number: u64) -> Self {
        self.field(&number.to_be_bytes())
    }

    /// The SHA-256 digest of the fields, without a key.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.0)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_run_together() {
        let one = Context::new("d").field(b"ab").field(b"c");
        for other in [
            Context::new("d").field(b"a").field(b"bc"),
            Context::new("d").field(b"abc"),
            Context::new("da").field(b"b").field(b"c"),
            Context::new("d").field(b"ab").field(b"c").field(b""),
        ] {
            assert_ne!(one, other);
        }
    }
}
