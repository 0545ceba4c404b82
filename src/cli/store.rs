//! `thcode store`.

use std::path::PathBuf;

use clap::Subcommand;

use super::Done;
use crate::{
    app::{self, Common},
    host::Host,
};

/// What to look at. Needs no key and changes nothing.
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
}

pub(super) fn dispatch(host: &Host, common: &Common, verb: StoreVerb) -> Done {
    match verb {
        StoreVerb::List { root } => app::store_verbs::list(host, common, root.as_deref()),
        StoreVerb::Stats => app::store_verbs::stats(host, common),
    }
}
