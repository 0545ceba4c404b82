//! `thcode policy`, and the policy flags that other verbs share.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::Done;
use crate::{
    app::{self, Common, policy_files::PolicyOptions, policy_verbs::Question},
    host::Host,
};

/// Which policy holds.
#[derive(Debug, Args)]
#[command(next_help_heading = "Policy")]
pub(super) struct PolicyArgs {
    /// A policy file, preset:NAME or git:REV:PATH; can be given again. Without one, preset:read-only.
    #[arg(long, value_name = "FILE")]
    pub(super) policy: Vec<String>,
    /// The digest that the policy files together must have; a pinned file of the workspace may grant.
    #[arg(long, value_name = "sha256:…")]
    pub(super) policy_digest: Option<String>,
    /// Grant a command beside the policy: exactly these words, or with a trailing ` …` anything that
    /// begins like this; can be given again. It counts as a rule of the caller's, told as cli-1, cli-2.
    #[arg(long, value_name = "CMD", requires = "policy")]
    pub(super) allow_command: Vec<String>,
    /// Lower the policy's work mode.
    #[arg(long, value_enum)]
    pub(super) mode: Option<Mode>,
}

/// A work mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Mode {
    /// Read only.
    Plan,
    /// What the policy grants.
    Build,
}

impl PolicyArgs {
    pub(super) fn inputs(&self) -> Vec<PathBuf> {
        self.policy.iter().map(PathBuf::from).collect()
    }

    pub(super) fn app(&self) -> PolicyOptions {
        PolicyOptions {
            files: self.policy.iter().filter(|file| !file.is_empty()).cloned().collect(),
            digest: self.policy_digest.clone(),
            allow_commands: self.allow_command.clone(),
            mode: self.mode.map(|mode| match mode {
                Mode::Plan => crate::contract::turn::WorkMode::Plan,
                Mode::Build => crate::contract::turn::WorkMode::Build,
            }),
            protect: Vec::new(),
        }
    }
}

/// What to do with policies.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:\n  thcode policy check preset:review")]
pub(super) enum PolicyVerb {
    /// Check policy files: every mistake, with its position; inline examples are run.
    Check(CheckArgs),
    /// Say what would be decided for a call, by which rule, and which rules nearly matched.
    Explain(ExplainArgs),
}

/// What to check.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  thcode policy check ci/agent.policy.toml git:origin/main:ci/agent.policy.toml"
)]
pub(super) struct CheckArgs {
    /// Policy files, folders of *.policy.toml, preset:NAME or git:REV:PATH.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
}

/// What to ask.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  thcode policy explain --policy preset:refactor --tool edit_file --input '{\"path\":\"src/lib.rs\"}'")]
pub(super) struct ExplainArgs {
    #[command(flatten)]
    policy: PolicyArgs,
    /// The tool's name.
    #[arg(long, requires = "input", required_unless_present = "call")]
    tool: Option<String>,
    /// The call's arguments, as JSON; fields that don't matter to the verdict may be left out.
    #[arg(long, requires = "tool", value_name = "JSON")]
    input: Option<String>,
    /// A file with the call: {"tool": "...", "input": {...}}.
    #[arg(long, conflicts_with_all = ["tool", "input"], value_name = "FILE")]
    call: Option<PathBuf>,
}

impl PolicyVerb {
    pub(super) fn inputs(&self) -> Vec<PathBuf> {
        match self {
            Self::Check(args) => args.paths.iter().map(PathBuf::from).collect(),
            Self::Explain(args) => args.policy.inputs().into_iter().chain(args.call.clone()).collect(),
        }
    }
}

pub(super) fn dispatch(host: &Host, common: &Common, verb: PolicyVerb) -> Done {
    match verb {
        PolicyVerb::Check(args) => app::policy_verbs::check(host, common, &args.paths),
        PolicyVerb::Explain(args) => {
            let question = match (args.tool, args.input, args.call) {
                (Some(tool), Some(input), _) => Question::Inline { tool, input },
                (_, _, Some(file)) => Question::File(file),
                _ => {
                    return Err(app::usage(
                        "no call was given",
                        Some("give --tool and --input, or --call".to_owned()),
                    ));
                }
            };
            app::policy_verbs::explain(host, common, &args.policy.app(), &question)
        }
    }
}
