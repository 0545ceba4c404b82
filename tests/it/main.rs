//! The one integration binary.
#![expect(clippy::disallowed_methods, reason = "tests arrange files, times and variables themselves")]

#[cfg(test)]
mod policy_properties;
#[cfg(test)]
mod tidy;
