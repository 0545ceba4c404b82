//! The arguments that every verb takes, and how a command line becomes one of the verbs.

use std::{ffi::OsString, path::PathBuf};

use clap::{
    ArgAction, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum,
    builder::BoolishValueParser,
    error::{ContextKind, ContextValue, ErrorKind},
};

use super::{
    doctor::DoctorArgs, key::KeyVerb, output::Output, policy::PolicyVerb, recover::RecoverArgs,
    rollback::RollbackVerb, run::RunArgs, schema::SchemaVerb, session::SessionVerb, store::StoreVerb,
};
use crate::{
    app::{self, Common, Fail, StateOptions, logging},
    host::Host,
};

/// Runs an LLM coding agent where nobody is watching. Policy files decide every tool call; every
/// path ends with one document and a stable exit code.
#[derive(Debug, Parser)]
#[command(name = "thcode", version, disable_help_subcommand = true, infer_long_args = false)]
#[command(after_help = "\
Every long flag can also be given as THCODE_<FLAG>; one that is set but empty counts as unset, and a
repeatable flag takes one value a line.

Example:
  thcode run --cassette examples/review.cassette.jsonl -C examples 'Review this code.'")]
pub(super) struct Cli {
    #[command(flatten)]
    pub(super) common: CommonArgs,
    #[command(subcommand)]
    pub(super) verb: Verb,
}

/// What every verb takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Everywhere")]
pub(super) struct CommonArgs {
    /// How the document is printed: text, json or stream-json.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        hide_possible_values = true
    )]
    pub(super) output_format: OutputFormat,
    /// Short for --output-format json.
    #[arg(long, global = true, hide_short_help = true)]
    pub(super) json: bool,
    /// Also write the JSON document to FILE, whole or not at all, on failures too.
    #[arg(short = 'o', long = "output", global = true, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// The workspace, if it isn't where you are; other paths stay relative to where you are.
    #[arg(short = 'C', long = "dir", global = true, value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,
    /// Keep the state in DIR, as it is; else in a directory of this workspace's own below
    /// $XDG_STATE_HOME or ~/.local/state.
    #[arg(long, global = true, value_name = "DIR")]
    pub(super) state_dir: Option<PathBuf>,
    /// The file with the store's key; else THCODE_KEY, else the file beside the state directory.
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) key_file: Option<PathBuf>,
    /// Say less on standard error: errors alone.
    #[arg(short, long, global = true, conflicts_with = "verbose", hide_short_help = true)]
    pub(super) quiet: bool,
    /// Say more on standard error: what happens, step by step.
    #[arg(short, long, global = true, hide_short_help = true)]
    pub(super) verbose: bool,
    /// The form of the lines on standard error: text or json.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        hide_possible_values = true,
        hide_short_help = true
    )]
    pub(super) log_format: LogFormat,
}

/// How the document is printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputFormat {
    /// For a person.
    #[default]
    Text,
    /// The document, pretty-printed.
    Json,
    /// One JSON object a line as things happen; the last carries the document.
    StreamJson,
}

/// The form of the lines on standard error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    /// For a person.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl From<LogFormat> for logging::LogFormat {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
        }
    }
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Run one turn: give the model a task and let the policy decide what it may do.
    #[command(alias = "exec")]
    Run(Box<RunArgs>),
    /// Check policy files, and ask what they would decide.
    #[command(subcommand)]
    Policy(PolicyVerb),
    /// Tell what was interrupted and what became of it; settle what can be proven.
    #[command(alias = "rc")]
    Recover(RecoverArgs),
    /// Put checkpointed changes of files back, and tell beforehand what that would do.
    #[command(subcommand, alias = "rb")]
    Rollback(RollbackVerb),
    /// List the sessions of this workspace, and read one.
    #[command(subcommand)]
    Session(SessionVerb),
    /// Look at what is kept, check it, and free what isn't kept any more.
    #[command(subcommand)]
    Store(StoreVerb),
    /// Make keys.
    #[command(subcommand)]
    Key(KeyVerb),
    /// List, print and apply the published JSON Schemas.
    #[command(subcommand)]
    Schema(SchemaVerb),
    /// Say what this machine gives, and whether a run would be refused.
    Doctor(DoctorArgs),
    /// Say what an exit code means and what to do next.
    #[command(after_help = "Example:\n  thcode explain-exit 55")]
    ExplainExit {
        /// The exit code.
        code: u8,
    },
}

impl Verb {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Run(_) => "run",
            Self::Policy(PolicyVerb::Check(_)) => "policy check",
            Self::Policy(PolicyVerb::Explain(_)) => "policy explain",
            Self::Schema(SchemaVerb::List) => "schema list",
            Self::Schema(SchemaVerb::Print { .. }) => "schema print",
            Self::Schema(SchemaVerb::Validate { .. }) => "schema validate",
            Self::Session(SessionVerb::List) => "session list",
            Self::Session(SessionVerb::Show(_)) => "session show",
            Self::Session(SessionVerb::History(_)) => "session history",
            Self::Recover(args) => args.name(),
            Self::Rollback(verb) => verb.name(),
            Self::Store(StoreVerb::List { .. }) => "store list",
            Self::Store(StoreVerb::Stats) => "store stats",
            Self::Store(StoreVerb::Verify { .. }) => "store verify",
            Self::Store(StoreVerb::Gc { .. }) => "store gc",
            Self::Key(KeyVerb::New) => "key new",
            Self::Doctor(_) => "doctor",
            Self::ExplainExit { .. } => "explain-exit",
        }
    }

    /// Whether it reads or changes something; the others only tell what the program knows.
    pub(super) fn takes_time(&self) -> bool {
        match self {
            Self::Run(_)
            | Self::Policy(_)
            | Self::Session(_)
            | Self::Store(_)
            | Self::Recover(_)
            | Self::Rollback(_)
            | Self::Doctor(_)
            | Self::Schema(SchemaVerb::Validate { .. }) => true,
            Self::Schema(SchemaVerb::List | SchemaVerb::Print { .. })
            | Self::Key(_)
            | Self::ExplainExit { .. } => false,
        }
    }
}

impl Cli {
    /// The files that this command line has read, which no output may take the place of.
    pub(super) fn inputs(&self) -> Vec<PathBuf> {
        let mut files = match &self.verb {
            Verb::Run(run) => run.inputs(),
            Verb::Policy(policy) => policy.inputs(),
            Verb::Schema(SchemaVerb::Validate { file, .. }) => vec![file.clone()],
            Verb::Doctor(doctor) => {
                doctor.policy.inputs().into_iter().chain(doctor.provider.cassette.clone()).collect()
            }
            Verb::Schema(_)
            | Verb::ExplainExit { .. }
            | Verb::Session(_)
            | Verb::Recover(_)
            | Verb::Store(_)
            | Verb::Key(_) => Vec::new(),
            Verb::Rollback(verb) => verb.inputs(),
        };
        files.extend(self.common.key_file.clone());
        files
    }

    /// The variables that hold the provider's key and the values of its headers, where the caller named
    /// some.
    pub(super) fn secret_variables(&self) -> Vec<String> {
        let provider = match &self.verb {
            Verb::Run(run) => &run.provider,
            Verb::Doctor(doctor) => &doctor.provider,
            Verb::Policy(_)
            | Verb::Session(_)
            | Verb::Recover(_)
            | Verb::Rollback(_)
            | Verb::Store(_)
            | Verb::Key(_)
            | Verb::Schema(_)
            | Verb::ExplainExit { .. } => return Vec::new(),
        };
        let headers = app::header_variables(&provider.header);
        provider.api_key_env.clone().into_iter().chain(headers).collect()
    }
}

impl CommonArgs {
    pub(super) fn app(&self) -> Common {
        let state = StateOptions { dir: self.state_dir.clone(), key_file: self.key_file.clone() };
        Common { dir: self.dir.clone(), out_file: self.output.clone(), state }
    }

    pub(super) fn format(&self) -> OutputFormat {
        if self.json && self.output_format == OutputFormat::Text {
            OutputFormat::Json
        } else {
            self.output_format
        }
    }

    pub(super) fn loudness(&self) -> logging::Loudness {
        match (self.quiet, self.verbose) {
            (true, _) => logging::Loudness::Quiet,
            (false, true) => logging::Loudness::Verbose,
            (false, false) => logging::Loudness::Normal,
        }
    }
}

/// A command line that leads to no verb.
pub(super) struct NotAVerb {
    /// How it would be printed, as far as that could be told.
    pub(super) output: Output,
    /// The verb, as far as it could be told.
    pub(super) verb: Option<String>,
    pub(super) end: NoVerb,
}

/// What such a command line ends with.
pub(super) enum NoVerb {
    /// Help or version was asked for.
    Text(String),
    /// It is wrong.
    Fail(Fail),
}

/// Reads the command line and the `THCODE_…` variables of this process.
pub(super) fn parse(host: &Host) -> Result<Cli, Box<NotAVerb>> {
    let words = words();
    let mut command = with_variables(host, Cli::command());
    let not_a_verb =
        |end| Box::new(NotAVerb { output: Output::guessed(host, &words), verb: verb_in(&words), end });
    let parsed =
        command.try_get_matches_from_mut(&words).and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            not_a_verb(NoVerb::Text(error.to_string()))
        }
        _ => not_a_verb(NoVerb::Fail(fail_of(&error, &words))),
    })
}

fn words() -> Vec<OsString> {
    std::env::args_os().collect()
}

/// Lets every long flag be given as a variable. One that is empty is left out here, since clap
/// would take it as the empty value.
fn with_variables(host: &Host, command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| {
        let Some(long) = arg.get_long().filter(|long| !matches!(*long, "help" | "version")) else {
            return arg;
        };
        let name = format!("THCODE_{}", long.replace('-', "_").to_uppercase());
        if host.var(&name).is_none() {
            return arg;
        }
        let arg = arg.env(&name).hide_env_values(true);
        match arg.get_action() {
            ArgAction::SetTrue => arg.value_parser(BoolishValueParser::new()),
            ArgAction::Append => arg.value_delimiter('\n'),
            _ => arg,
        }
    });
    command.mut_subcommands(|sub| with_variables(host, sub))
}

/// clap's error in our words: the first paragraph is the message, its tips are the way out.
fn fail_of(error: &clap::Error, words: &[OsString]) -> Fail {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        || error.kind() == ErrorKind::MissingSubcommand
    {
        return match verb_in(words) {
            Some(group) if matches!(group.as_str(), "policy" | "schema") => app::usage(
                format!("`{group}` was given without saying what to do"),
                Some(format!("`thcode {group} --help` lists what there is")),
            ),
            Some(_) | None => {
                app::usage("no verb was given", Some("`thcode --help` lists the verbs".to_owned()))
            }
        };
    }
    let text = error.to_string();
    let message: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let message = message.join(" ");
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    let nearest =
        [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue]
            .into_iter()
            .find_map(|kind| match error.get(kind) {
                Some(ContextValue::String(one)) => Some(one.clone()),
                Some(ContextValue::Strings(some)) => some.first().cloned(),
                _ => None,
            });
    let invalid = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(arg)) => arg.as_str(),
        _ => "",
    };
    if is_key_flag(invalid) {
        // Whatever follows it may be the key, so that nothing of the line is repeated.
        return app::usage(
            "a key is never given on the command line, where others see it",
            Some("put it into a variable and name that one with --api-key-env NAME".to_owned()),
        );
    }
    let action = match nearest {
        Some(nearest) => format!("did you mean {nearest}?"),
        None if error.kind() == ErrorKind::UnknownArgument && invalid.contains(' ') => {
            "a prompt that starts with a hyphen comes after `--` or in `-p TEXT`".to_owned()
        }
        None => "`thcode VERB --help` shows the right form".to_owned(),
    };
    app::usage(message, Some(action))
}

/// Whether a flag that doesn't exist was meant to carry a key.
fn is_key_flag(flag: &str) -> bool {
    let name = flag.trim_start_matches('-').split('=').next().unwrap_or_default();
    let words = ["key", "apikey", "token", "secret", "password", "bearer"];
    flag.starts_with('-') && name.split(['-', '_']).any(|word| words.contains(&word))
}

/// The second words of verbs that have two.
const SUB_VERBS: &[&str] = &[
    "check", "explain", "list", "show", "history", "stats", "verify", "gc", "new", "print", "validate",
];

/// The verb that a broken command line meant, for its document.
fn verb_in(words: &[OsString]) -> Option<String> {
    let words: Vec<&str> = words.iter().skip(1).filter_map(|word| word.to_str()).collect();
    let verbs = ["run", "exec", "policy", "session", "store", "key", "schema", "doctor", "explain-exit"];
    let (at, verb) = words.iter().enumerate().find(|(_, word)| verbs.contains(word))?;
    let sub = words.get(at + 1).filter(|sub| SUB_VERBS.contains(*sub));
    Some(match (*verb, sub) {
        ("exec", _) => "run".to_owned(),
        ("policy" | "session" | "store" | "key" | "schema", Some(sub)) => format!("{verb} {sub}"),
        (verb, _) => verb.to_owned(),
    })
}
