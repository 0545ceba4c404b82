//! What leaves: secrets as a type that can't be printed, and the scrubbing of known values.
//!
//! Every text that is printed or kept passes one [`Redactor`]. It never learns a secret from a
//! text; it knows the values that the environment and the provider's key gave it.

use std::fmt;

/// A value that must never be shown; `Debug` doesn't, and there is no `Display` or `Serialize`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    /// Wraps the value.
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// The value, for the one place that needs it.
    pub fn expose(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}
