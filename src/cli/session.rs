//! `thcode session`.

use clap::{Args, Subcommand};

use super::Done;
use crate::{
    app::{self, Common},
    host::Host,
};

/// What to look at. Changes nothing.
#[derive(Debug, Subcommand)]
pub(super) enum SessionVerb {
    /// List the sessions of this workspace, the latest first.
    #[command(after_help = "Example:\n  thcode session list")]
    List,
    /// Show one session and its turns.
    #[command(after_help = "Example:\n  thcode session show last")]
    Show(WhichArgs),
    /// Show what was said in a session; needs the store's key.
    #[command(after_help = "Example:\n  thcode session history nightly --json")]
    History(WhichArgs),
}

/// Which session.
#[derive(Debug, Args)]
pub(super) struct WhichArgs {
    /// Its id, the unique beginning of its id's random part, its label, or `last`; the latest if
    /// not given.
    session: Option<String>,
}

pub(super) fn dispatch(host: &Host, common: &Common, verb: SessionVerb) -> Done {
    match verb {
        SessionVerb::List => app::session_verbs::list(host, common),
        SessionVerb::Show(which) => app::session_verbs::show(host, common, which.session.as_deref()),
        SessionVerb::History(which) => {
            app::session_verbs::history(host, common, which.session.as_deref())
        }
    }
}
