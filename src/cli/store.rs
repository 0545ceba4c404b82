//! `thcode store`.

use std::{path::PathBuf, time::Duration};

use clap::Subcommand;

use super::Done;
use crate::{
    app::{self, Common, store_gc::GcOptions},
    host::Host,
};

/// What is kept: to look at, to check, and to free.
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
    Verify {
        /// Where the head anchor is gone, torn or tells of events that aren't there: take the journal as
        /// it is, if it is whole in itself. Needs the key. What is lost is told, and recorded.
        #[arg(long)]
        accept_head: bool,
    },
    /// Free checkpoints that aren't kept any more, with their images: those whose window of prompt
    /// rounds is over, and those of changes that never took effect. What an interrupted operation may
    /// need stays, and nothing goes while anything can't be read.
    #[command(after_help = "Example:\n  thcode store gc --max-age 30d --orphans")]
    Gc {
        /// Also free what is older than TIME in sessions that have ended: 30d, 2w, 12h.
        #[arg(long, value_name = "TIME", value_parser = age)]
        max_age: Option<Duration>,
        /// Also remove sealed and temporary files of thcode's own that nothing refers to: what a crash
        /// or a full disk left.
        #[arg(long)]
        orphans: bool,
        /// Only tell what would go. Changes nothing.
        #[arg(long)]
        dry_run: bool,
    },
}

/// A length of time such as `30d`, `2w`, `12h`.
fn age(text: &str) -> Result<Duration, String> {
    let digits = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits).unwrap_or((text, ""));
    let number: u64 =
        number.parse().map_err(|_| "write a whole number and a unit: 12h, 30d, 2w".to_owned())?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 604_800,
        "" => return Err("write a unit as well: s, m, h, d or w".to_owned()),
        _ => return Err(format!("{unit:?} is not a unit: write s, m, h, d or w")),
    };
    // A hundred years are for ever.
    match number.checked_mul(seconds) {
        Some(seconds) if seconds <= 3_155_760_000 => Ok(Duration::from_secs(seconds)),
        _ => Err("over a hundred years".to_owned()),
    }
}

pub(super) fn dispatch(host: &Host, common: &Common, verb: StoreVerb) -> Done {
    match verb {
        StoreVerb::List { root } => app::store_verbs::list(host, common, root.as_deref()),
        StoreVerb::Stats => app::store_verbs::stats(host, common),
        StoreVerb::Verify { accept_head } => app::store_verify::verify(host, common, accept_head),
        StoreVerb::Gc { max_age, orphans, dry_run } => {
            app::store_gc::gc(host, common, GcOptions { max_age, orphans, dry_run })
        }
    }
}
