//! `thcode rollback`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Done, output::Output};
use crate::{
    app::{
        self, Common, Fail,
        rollback::{self, Choice, ListOptions, Meant, Selected},
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
    Analyze(AnalyzeArgs),
    /// Put checkpoints back: each file that is as it was left becomes what it was before, all others
    /// stay as they are. Makes a checkpoint of its own first, so that it can be put back in turn.
    #[command(after_help = "\
Examples:
  thcode rollback apply last
  thcode rollback apply --turn 3 --only src/main.rs
  thcode rollback apply last --plan sha256:…   (only if nothing changed since it was analyzed)")]
    Apply(ApplyArgs),
    /// Settle one conflict. Overwriting what somebody else wrote isn't among the choices.
    #[command(after_help = "\
Choices:
  skip-target                    leave the file as it is
  export-sanitized-patch         show what putting it back would change, without known secrets
  user-authored-resolution FILE  give the file the content of FILE
  rebase-new-path NEW            put what stood there before under the new name NEW
Example:
  thcode rollback resolve 3f2a src/main.rs --choice export-sanitized-patch")]
    Resolve(ResolveArgs),
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

#[derive(Debug, Args)]
pub(super) struct AnalyzeArgs {
    #[command(flatten)]
    meant: MeantArgs,
    #[command(flatten)]
    selected: SelectedArgs,
}

#[derive(Debug, Args)]
pub(super) struct ApplyArgs {
    #[command(flatten)]
    meant: MeantArgs,
    #[command(flatten)]
    selected: SelectedArgs,
    /// Do nothing at all unless the plan is still this one: the digest that `rollback analyze` printed
    /// for the same words.
    #[arg(long, value_name = "sha256:…")]
    plan: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct ResolveArgs {
    /// The checkpoint: its id, or the unique beginning of its id's random part.
    checkpoint: String,
    /// The file, relative to the workspace.
    path: String,
    /// What is to be done, and with what.
    #[arg(long, num_args = 1..=2, required = true, value_names = ["CHOICE", "FILE|NEW"])]
    choice: Vec<String>,
}

impl ResolveArgs {
    fn read_choice(&self) -> Result<Choice, Fail> {
        let words: Vec<&str> = self.choice.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["skip-target"] => Ok(Choice::SkipTarget),
            ["export-sanitized-patch"] => Ok(Choice::ExportSanitizedPatch),
            ["user-authored-resolution", file] => Ok(Choice::UserAuthoredResolution(file.into())),
            ["rebase-new-path", new] => Ok(Choice::RebaseNewPath((*new).to_owned())),
            other => {
                let message = format!("--choice {} is no choice", other.join(" "));
                let action = "`thcode rollback resolve --help` lists them, and which need a file";
                Err(app::usage(message, Some(action.to_owned())))
            }
        }
    }
}

/// Which of the files.
#[derive(Debug, Args)]
pub(super) struct SelectedArgs {
    /// This file alone, relative to the workspace; can be given again.
    #[arg(long, value_name = "PATH")]
    only: Vec<String>,
    /// Leave what this glob covers as it is; can be given again.
    #[arg(long, value_name = "GLOB")]
    protect: Vec<String>,
    /// A policy file, preset:NAME or git:REV:PATH: what it says is `protected` stays as it is. Nothing
    /// else of it matters here; can be given again.
    #[arg(long, value_name = "FILE")]
    policy: Vec<String>,
}

impl From<SelectedArgs> for Selected {
    fn from(args: SelectedArgs) -> Self {
        let policy = args.policy.into_iter().filter(|file| !file.is_empty()).collect();
        Self { only: args.only, protect: args.protect, policy }
    }
}

impl RollbackVerb {
    pub(super) fn inputs(&self) -> Vec<PathBuf> {
        let files = match self {
            Self::List(_) | Self::Inspect { .. } => &[][..],
            Self::Analyze(args) => &args.selected.policy,
            Self::Apply(args) => &args.selected.policy,
            Self::Resolve(args) => args.choice.get(1..).unwrap_or_default(),
        };
        files.iter().map(PathBuf::from).collect()
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::List(_) => "rollback list",
            Self::Inspect { .. } => "rollback inspect",
            Self::Analyze(_) => "rollback analyze",
            Self::Apply(_) => "rollback apply",
            Self::Resolve(_) => "rollback resolve",
        }
    }
}

impl From<MeantArgs> for Meant {
    fn from(args: MeantArgs) -> Self {
        Self { checkpoints: args.checkpoints, turn: args.turn, session: args.session, ..Self::default() }
    }
}

pub(super) fn dispatch(
    host: &Host,
    common: &Common,
    verb: RollbackVerb,
    output: &Output,
    stop: &app::run::Stop,
) -> Done {
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
        RollbackVerb::Analyze(args) => {
            rollback::analyze(host, common, &args.meant.into(), &args.selected.into())
        }
        RollbackVerb::Apply(ApplyArgs { meant, selected, plan }) => {
            // What is begun is brought to its end, as in a turn.
            output.turn_begins();
            let signal = || *stop.borrow();
            let (meant, selected) = (meant.into(), selected.into());
            rollback::apply(host, common, &meant, &selected, plan.as_deref(), &signal)
        }
        RollbackVerb::Resolve(args) => {
            let choice = args.read_choice()?;
            rollback::resolve(host, common, &args.checkpoint, &args.path, &choice)
        }
    }
}
