//! The one integration binary.
#![expect(clippy::disallowed_methods, reason = "tests arrange files, times and variables themselves")]

#[cfg(test)]
mod mock;
#[cfg(test)]
mod provider_http;
#[cfg(test)]
mod tidy;
