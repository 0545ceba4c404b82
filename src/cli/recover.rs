//! `thcode recover`.

use clap::{Args, Subcommand};

use super::Done;
use crate::{
    app::{
        Common,
        recover::{self, Way, Which},
    },
    contract::recovery::RecoveryAction,
    host::Host,
};

/// Tell what was interrupted and what became of it; settle what can be proven.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct RecoverArgs {
    #[command(subcommand)]
    verb: Option<RecoverVerb>,
    /// End with 0 where there is no store: nothing can have been interrupted.
    #[arg(long)]
    if_store: bool,
    #[command(flatten)]
    workspace: WorkspaceArgs,
}

/// What may be taken for granted.
#[derive(Debug, Args)]
struct WorkspaceArgs {
    /// Take the workspace for the one of the run, though nothing in it proves that.
    #[arg(long)]
    workspace_is: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum RecoverVerb {
    /// Tell one operation; ends with the class of its state.
    #[command(after_help = "Example:\n  thcode recover inspect 3f2a")]
    Inspect(OneArgs),
    /// Record what journal and disk prove, and tidy up what is ours. Nothing is done again.
    #[command(after_help = "Example:\n  thcode recover reconcile --all")]
    Reconcile(ReconcileArgs),
    /// Take an operation as it is. Nothing on the disk is changed.
    #[command(after_help = "Example:\n  thcode recover accept 3f2a --reason \"compared by hand\"")]
    Accept(AcceptArgs),
    /// Leave an operation as it stands, with the class of its state; writes nothing.
    Exit(OneArgs),
}

#[derive(Debug, Args)]
pub(super) struct OneArgs {
    /// The operation: its id, or the unique beginning of its id's random part.
    operation: String,
    #[command(flatten)]
    workspace: WorkspaceArgs,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("meant").required(true).multiple(false))]
pub(super) struct ReconcileArgs {
    /// The operations: their ids, or the unique beginnings of their ids' random parts.
    #[arg(group = "meant")]
    operations: Vec<String>,
    /// Everything that stands.
    #[arg(long, group = "meant")]
    all: bool,
    /// Finish a deletion, though something new stands in its place: what was deleted is removed.
    #[arg(long, conflicts_with = "restore")]
    finish: bool,
    /// Put back what was moved away: somebody's save, or a file whose deletion wasn't finished.
    #[arg(long)]
    restore: bool,
    #[command(flatten)]
    workspace: WorkspaceArgs,
}

#[derive(Debug, Args)]
pub(super) struct AcceptArgs {
    /// The operation: its id, or the unique beginning of its id's random part.
    operation: String,
    /// Why it is taken as it is; recorded in the journal, so nothing secret.
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

impl RecoverArgs {
    pub(super) fn name(&self) -> &'static str {
        match self.verb {
            None => "recover",
            Some(RecoverVerb::Inspect(_)) => "recover inspect",
            Some(RecoverVerb::Reconcile(_)) => "recover reconcile",
            Some(RecoverVerb::Accept(_)) => "recover accept",
            Some(RecoverVerb::Exit(_)) => "recover exit",
        }
    }
}

pub(super) fn dispatch(host: &Host, common: &Common, args: RecoverArgs) -> Done {
    let which = |operations, workspace: WorkspaceArgs| Which {
        operations,
        workspace_is: workspace.workspace_is,
    };
    match args.verb {
        None => recover::list(host, common, &which(Vec::new(), args.workspace), args.if_store),
        Some(RecoverVerb::Inspect(one)) => {
            let which = which(Vec::new(), one.workspace);
            recover::inspect(host, common, &one.operation, &which, RecoveryAction::Inspect)
        }
        Some(RecoverVerb::Exit(one)) => {
            let which = which(Vec::new(), one.workspace);
            recover::inspect(host, common, &one.operation, &which, RecoveryAction::Exit)
        }
        Some(RecoverVerb::Reconcile(args)) => {
            let way = match (args.finish, args.restore) {
                (true, _) => Way::Finish,
                (false, true) => Way::Restore,
                (false, false) => Way::Proven,
            };
            recover::reconcile(host, common, &which(args.operations, args.workspace), way)
        }
        Some(RecoverVerb::Accept(args)) => recover::accept(host, common, &args.operation, &args.reason),
    }
}
