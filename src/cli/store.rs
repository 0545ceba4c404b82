//! `thcode store`.

use std::path::PathBuf;

use clap::Subcommand;

use super::Done;
use crate::{
    app::{self, Common},
    host::Host,
};

/// What to look at. Changes nothing.
#[derive(Debug, Subcommand)]
pub(super) enum StoreVerb {
    /// List the stores of this user: workspace, last run, open operations, bytes, key file.
    #[command(after_help = "Example:\n  thcode store list")]
    List {
        /// Look in DIR, which holds state directories, instead of the usual place.
        #[arg(long, value_name = "DIR")]
        root: Option<PathBuf>,
    },
    /// Say what the store of this workspace holds.
    #[command(after_help = "Example:\n  thcode store stats -C path/to/repo")]
    Stats,
    /// Check that everything kept is what was kept: every link of the journal, MAC, seal, digest and
    /// reference. Ends with 1 if anything isn't. Without the key MACs and seals stay unchecked.
    #[command(after_help = "Example:\n  thcode store verify -C path/to/repo")]
    Verify,
}

pub(super) fn dispatch(host: &Host, common: &Common, verb: StoreVerb) -> Done {
    match verb {
        StoreVerb::List { root } => app::store_verbs::list(host, common, root.as_deref()),
        StoreVerb::Stats => app::store_verbs::stats(host, common),
        StoreVerb::Verify => app::store_verify::verify(host, common),
    }
}
