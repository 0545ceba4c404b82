//! `run_command`: a program and its words, without a shell. What it touches is told beforehand as far
//! as its words tell; what it does is nobody's to take back, so that it is journaled and disclosed.

mod output;
mod process;
mod program;
mod surroundings;

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

pub use output::Output;
pub use process::{Ended, How, NoEnd, Spawned, run};
pub use surroundings::{Prepared, Surroundings};

use super::{
    BadArguments, Resolved,
    args::Arguments,
    resolve::{facts, path_subject},
};
use crate::{
    policy::{
        call::{Access, ActionClass, CommandFacts, Location, ResolvedCall, Subject},
        path::read_path,
    },
    workspace::{Root, Spot},
};

/// The most words of one command.
const MOST_WORDS: usize = 1024;
/// The most bytes of all its words: what is judged has an end, and the kernel's own limit isn't far.
const MOST_BYTES: usize = 256 * 1024;

/// Runs a program without a shell.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RunCommand {
    /// The program and its words, one entry each; no shell reads them.
    #[schemars(length(min = 1))]
    pub argv: Vec<String>,
    /// The directory to run in, relative to the workspace; the workspace itself if left out.
    pub cwd: Option<String>,
    /// How long it may run, in milliseconds; no longer than the policy allows.
    #[schemars(range(min = 1))]
    pub timeout_ms: Option<u64>,
}

/// Why a command wasn't started: nothing ran.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct NotRun {
    /// As a token.
    pub cause: &'static str,
    /// In a sentence for the model.
    pub message: String,
}

impl NotRun {
    fn new(cause: &'static str, message: impl Into<String>) -> Self {
        Self { cause, message: message.into() }
    }

    /// What it needs isn't there any more.
    pub fn lost() -> Self {
        Self::new("not-prepared", "what the command needs isn't there any more")
    }
}

/// What a call of `run_command` touches.
pub(super) fn resolve(root: &Root, arguments: &Arguments) -> Result<Resolved, BadArguments> {
    let argv = argv(arguments)?;
    let cwd = match arguments.get("cwd") {
        None | Some(Value::Null) => None,
        Some(Value::String(cwd)) => Some(cwd.as_str()),
        Some(_) => return Err(BadArguments::form("the field \"cwd\" of run_command must be a string")),
    };
    if arguments.get("timeoutMs").and_then(Value::as_u64) == Some(0) {
        return Err(BadArguments::form("the field \"timeoutMs\" of run_command must be at least 1"));
    }
    let bad = |bad: crate::policy::path::BadPath| BadArguments::form(format!("cwd: {bad}"));
    let place = read_path(cwd.unwrap_or("."), root.path()).map_err(bad)?;
    let look = root.look(cwd.unwrap_or("."));
    // Words are read where the directory is, not where it is written.
    let base = match &look.spot {
        Spot::Inside(path) => Location::Inside(path.clone()),
        Spot::Outside(path) => Location::Outside(path.clone()),
    }
    .absolute(root.path());
    let mut command = CommandFacts::read(argv, &mut |given| {
        let absolute = if given.starts_with('/') { given.to_owned() } else { format!("{base}/{given}") };
        // What can't be read as a path of a workspace can be none of a program either.
        read_path(given, root.path()).ok()?;
        let lexical = read_path(&absolute, root.path()).ok()?;
        Some(facts(given, lexical, &root.look(&absolute)))
    });
    command.real_name = real_name(&command, root);
    let mut subjects = vec![Subject::Command(command)];
    if let Some(cwd) = cwd {
        subjects.push(path_subject(Access::Read, facts(cwd, place, &look)));
    }
    let tool = "run_command".to_owned();
    let call = ResolvedCall { tool, class: Some(ActionClass::RunCommand), subjects };
    Ok(Resolved { call, look: Some(look) })
}

fn argv(arguments: &Arguments) -> Result<Vec<String>, BadArguments> {
    let needs = || BadArguments::form("run_command needs the field \"argv\": the program and its words");
    let Some(Value::Array(items)) = arguments.get("argv") else { return Err(needs()) };
    if items.len() > MOST_WORDS {
        return Err(BadArguments::limit(format!("\"argv\" has more than {MOST_WORDS} words")));
    }
    let word = |item: &Value| match item {
        Value::String(word) if word.contains('\0') => {
            Err(BadArguments::form("a word of \"argv\" has a NUL in it"))
        }
        Value::String(word) => Ok(word.clone()),
        _ => Err(BadArguments::form("every word of \"argv\" must be a string")),
    };
    let argv: Vec<String> = items.iter().map(word).collect::<Result<_, _>>()?;
    if argv.iter().map(String::len).sum::<usize>() > MOST_BYTES {
        return Err(BadArguments::limit(format!("\"argv\" is over {MOST_BYTES} bytes")));
    }
    match argv.first() {
        Some(program) if !program.trim().is_empty() => Ok(argv),
        Some(_) | None => Err(needs()),
    }
}

/// The file name that the program's path leads to, where links make it another one.
fn real_name(command: &CommandFacts, root: &Root) -> Option<String> {
    let program = command.program.as_ref()?;
    let real = std::fs::canonicalize(program.lexical.absolute(root.path())).ok()?;
    let name = real.file_name()?.to_str()?.to_owned();
    let given = command.argv.first()?.rsplit('/').next()?;
    (name != given).then_some(name)
}

/// What the model is told of a command that ran.
pub fn told(ended: &Ended, most: Duration) -> String {
    let how = match ended.how {
        How::Exited(0) => "exit code 0".to_owned(),
        How::Exited(code) => format!("exit code {code}"),
        How::Signalled(signal) => format!("ended by signal {signal}"),
        How::TimedOut => {
            format!("timed out after {} ms, and its processes were ended", most.as_millis())
        }
        How::Stopped => "stopped, and its processes were ended".to_owned(),
    };
    let mut text = format!("{how}, {} ms", ended.duration.as_millis());
    if ended.background > 0 {
        let processes = if ended.background == 1 { "process" } else { "processes" };
        text.push_str(&format!(
            "; {} {processes} that it left running in the background were ended with it",
            ended.background
        ));
    }
    text.push('\n');
    text.push_str(&ended.output.told());
    text
}
