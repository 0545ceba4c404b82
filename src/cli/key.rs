//! `thcode key`.

use clap::Subcommand;

use super::output::Product;
use crate::{
    app::{self, Fail},
    host::Host,
};

/// What to do with keys.
#[derive(Debug, Subcommand)]
pub(super) enum KeyVerb {
    /// Print a new key for a store, and nothing else.
    #[command(after_help = "Example:\n  (umask 077 && thcode key new > store.key)")]
    New,
}

pub(super) fn dispatch(host: &Host, verb: KeyVerb) -> Result<Product, Fail> {
    match verb {
        KeyVerb::New => Ok(Product::Text { verb: "key new", text: app::key::fresh(host)? }),
    }
}
