//! `thcode rollback`.

use clap::{Args, Subcommand};

use super::Done;
use crate::{
    app::{
        Common,
        rollback::{self, ListOptions, Meant},
    },
    host::Host,
};

/// What to put back. Only checkpointed changes of files are ever put back, and never over somebody
/// else's work.
#[derive(Debug, Subcommand)]
pub(super) enum RollbackVerb {
    /// List the checkpoints that can be put back, the newest first.
    #[command(after_help = "Example:\n  thcode rollback list --turn 3")]
    List(ListArgs),
    /// Tell what is in a checkpoint. Nothing is staged or changed.
    #[command(after_help = "Example:\n  thcode rollback inspect 3f2a")]
    Inspect {
        /// The checkpoint: its id, or the unique beginning of its id's random part.
        checkpoint: String,
    },
    /// Tell what putting checkpoints back would do to what stands now. Ends as that would.
    #[command(after_help = "Example:\n  thcode rollback analyze last")]
    Analyze(MeantArgs),
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// The most checkpoints that are told.
    #[arg(long, value_name = "N", default_value_t = 50)]
    max: usize,
    /// Tell those too that can't be put back: expired, corrupt, locked, without effect.
    #[arg(long)]
    include_hidden: bool,
    /// Only those of a turn, by its number in its session.
    #[arg(long, value_name = "N")]
    turn: Option<u32>,
    /// Only those of a session: its id, a unique beginning of it, its label, or `last`.
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("meant").required(true).multiple(true))]
pub(super) struct MeantArgs {
    /// Checkpoints: their ids, or unique beginnings of their ids' random parts; `last` for all of the
    /// last turn that made one.
    #[arg(group = "meant")]
    checkpoints: Vec<String>,
    /// All of a turn, by its number in its session.
    #[arg(long, value_name = "N", group = "meant", conflicts_with = "checkpoints")]
    turn: Option<u32>,
    /// All of a session, or the turn's session: its id, a unique beginning of it, its label, or `last`.
    #[arg(long, value_name = "SESSION", group = "meant")]
    session: Option<String>,
}

impl RollbackVerb {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::List(_) => "rollback list",
            Self::Inspect { .. } => "rollback inspect",
            Self::Analyze(_) => "rollback analyze",
        }
    }
}

impl From<MeantArgs> for Meant {
    fn from(args: MeantArgs) -> Self {
        Self { checkpoints: args.checkpoints, turn: args.turn, session: args.session }
    }
}

pub(super) fn dispatch(host: &Host, common: &Common, verb: RollbackVerb) -> Done {
    match verb {
        RollbackVerb::List(args) => {
            let options = ListOptions {
                max: args.max,
                include_hidden: args.include_hidden,
                turn: args.turn,
                session: args.session,
            };
            rollback::list(host, common, &options)
        }
        RollbackVerb::Inspect { checkpoint } => rollback::inspect(host, common, &checkpoint),
        RollbackVerb::Analyze(args) => rollback::analyze(host, common, &args.into()),
    }
}
