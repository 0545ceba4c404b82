//! From a call's arguments to what it touches: the subjects that `decide` judges, and the handles'
//! identities that the tool will open.

use serde_json::Value;

use super::{
    args::{Arguments, BadArguments},
    command,
};
use crate::{
    policy::{
        call::{
            Access, ActionClass, CommandFacts, FileKind, Location, PathFacts, ResolvedCall, Subject,
        },
        path::read_path,
    },
    workspace::{Kind, Look, Root, Spot},
};

/// A call with everything that it touches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// For `decide`.
    pub call: ResolvedCall,
    /// What the call's path led to; `None` where the call names no path.
    pub look: Option<Look>,
}

impl Resolved {
    /// The path that the call leads to, relative to the root, if it lies inside.
    pub fn inside(&self) -> Option<&str> {
        match self.look.as_ref().map(|look| &look.spot) {
            Some(Spot::Inside(path)) => Some(path),
            _ => None,
        }
    }

    /// The command that the call runs.
    pub fn command(&self) -> Option<&CommandFacts> {
        self.call.subjects.iter().find_map(|subject| match subject {
            Subject::Command(command) => Some(command),
            Subject::Path { .. } | Subject::Unresolved { .. } => None,
        })
    }

    /// What the call is about, as the model wrote it: the path, or the command.
    pub fn target(&self) -> Option<String> {
        self.call.subjects.first().map(|subject| match subject {
            Subject::Path { path, .. } => path.given.clone(),
            Subject::Command(command) => command.shown(),
            Subject::Unresolved { given, .. } => given.clone(),
        })
    }
}

/// Resolves a call of any tool name. A tool that doesn't exist resolves to a call without class and
/// subjects, which is denied.
pub fn resolve(root: &Root, tool: &str, arguments: &Arguments) -> Result<Resolved, BadArguments> {
    let class = ActionClass::of_tool(tool);
    let call = |subjects| ResolvedCall { tool: tool.to_owned(), class, subjects };
    let Some(class) = class else { return Ok(Resolved { call: call(Vec::new()), look: None }) };
    let access = match class {
        ActionClass::ListFiles | ActionClass::ReadFile | ActionClass::SearchText => Access::Read,
        ActionClass::WriteFile => Access::Write,
        ActionClass::Delete => Access::Delete,
        ActionClass::RunCommand => return command::resolve(root, arguments),
        ActionClass::Transfer => return unresolved(call, arguments, &["url"], "host-not-judged"),
    };
    let given = match arguments.get("path") {
        Some(Value::String(given)) => given.as_str(),
        Some(Value::Null) | None if class == ActionClass::SearchText => ".",
        Some(_) => {
            return Err(BadArguments::form(format!("the field \"path\" of {tool} must be a string")));
        }
        None => return Err(BadArguments::form(format!("{tool} needs the field \"path\""))),
    };
    let lexical = read_path(given, root.path()).map_err(|bad| BadArguments::form(bad.to_string()))?;
    let look = root.look(given);
    let path = facts(given, lexical, &look);
    Ok(Resolved { call: call(vec![Subject::Path { access, path }]), look: Some(look) })
}

/// The read of one thing that a walk came to, as a call of the same tool.
pub(super) fn read_of(tool: &str, path: &str, look: &Look) -> ResolvedCall {
    let path = facts(path, Location::Inside(path.to_owned()), look);
    ResolvedCall {
        tool: tool.to_owned(),
        class: ActionClass::of_tool(tool),
        subjects: vec![Subject::Path { access: Access::Read, path }],
    }
}

/// A call of a kind that this version can't pin down: never an allow.
fn unresolved(
    call: impl Fn(Vec<Subject>) -> ResolvedCall,
    arguments: &Arguments,
    fields: &[&str],
    reason: &'static str,
) -> Result<Resolved, BadArguments> {
    let given = fields.iter().find_map(|field| arguments.get(*field)).ok_or_else(|| {
        BadArguments::form(format!("the call needs the field {:?}", fields.join("\" or \"")))
    })?;
    let given = given.as_str().map_or_else(|| given.to_string(), str::to_owned);
    Ok(Resolved { call: call(vec![Subject::Unresolved { given, reason }]), look: None })
}

/// A path that a call touches.
pub(super) fn path_subject(access: Access, path: PathFacts) -> Subject {
    Subject::Path { access, path }
}

pub(super) fn facts(given: &str, lexical: Location, look: &Look) -> PathFacts {
    PathFacts {
        given: given.to_owned(),
        lexical,
        resolved: match &look.spot {
            Spot::Inside(path) => Location::Inside(path.clone()),
            Spot::Outside(path) => Location::Outside(path.clone()),
        },
        kind: match look.kind {
            Kind::Regular => FileKind::Regular,
            Kind::Directory => FileKind::Directory,
            Kind::Absent => FileKind::Absent,
            Kind::Special => FileKind::Special,
            Kind::Unknown => FileKind::Unknown,
        },
        links: look.links,
        bytes: look.bytes,
    }
}
