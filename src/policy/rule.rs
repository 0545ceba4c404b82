//! A rule as it was read: whom it concerns, what it says, and under which conditions.

use super::{
    call::{Access, ActionClass, BUILTIN_TOOLS, FileKind, PathFacts},
    command::{CommandFacts, Exact, Seen, Shape, inspects},
    glob::Glob,
    verdict::{Decision, RuleRef},
};

/// A rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Where it stands.
    pub at: RuleRef,
    /// The authority of its file.
    pub tier: Tier,
    /// What it says.
    pub effect: Effect,
    /// Why, for the model and the reader of a log.
    pub reason: Option<String>,
    /// What to do instead.
    pub suggest: Option<String>,
    pub(super) tools: ToolSet,
    pub(super) when: When,
}

/// Where a file's authority comes from. The greater first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// Shipped with thcode.
    Builtin,
    /// Named by the caller, from outside the checked-out tree.
    Run,
    /// From the checked-out tree: it may only tighten.
    Repo,
}

impl Tier {
    /// The word that documents and policies use.
    pub fn token(self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::Run => "run",
            Self::Repo => "repo",
        }
    }
}

/// What a rule says where it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effect {
    /// A grant: it covers exactly what it names.
    Allow,
    /// A person would have to be asked.
    Ask,
    /// It may not be; covers every spelling.
    Deny,
}

impl Effect {
    /// The decision that it comes to.
    pub fn decision(self) -> Decision {
        match self {
            Self::Allow => Decision::Allow,
            Self::Ask => Decision::Ask,
            Self::Deny => Decision::Deny,
        }
    }

    /// The word that documents and policies use.
    pub fn token(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// The tools that a rule names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ToolSet {
    /// One bit for each of [`BUILTIN_TOOLS`], in its order.
    builtin: u16,
    /// Tools of servers, sorted; no name means every tool of the server. Names are compared as a
    /// pair, byte for byte: `foo.bar` and `foo_bar` are two servers.
    server: Vec<(String, Option<String>)>,
}

/// The conditions of a rule. Without any it covers all that its tools touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct When {
    pub(super) read: Option<Vec<NamedGlob>>,
    pub(super) write: Option<Vec<NamedGlob>>,
    pub(super) delete: Option<Vec<NamedGlob>>,
    pub(super) file: Option<FileWhen>,
    /// Any of them.
    pub(super) command: Option<Vec<NamedCommand>>,
}

/// A command with the text that it was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedCommand {
    pub(super) text: String,
    pub(super) pattern: CommandPattern,
}

/// What `when.command` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CommandPattern {
    /// These words.
    Exact(Exact),
    /// A command of this shape, wherever it hides; not for grants.
    Shape(Shape),
    /// The commands that only look; for grants alone.
    Inspect,
}

/// A glob with the text that it was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedGlob {
    pub(super) text: String,
    pub(super) glob: Glob,
}

/// What a grant asks of the file itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FileWhen {
    /// What may stand there; sorted.
    pub(super) kinds: Option<Vec<GrantedKind>>,
    pub(super) max_bytes: Option<u64>,
    pub(super) max_links: Option<u64>,
}

/// The kinds that a grant can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum GrantedKind {
    /// A file with bytes, or nothing yet: what is made there is one.
    Regular,
    Directory,
    /// Nothing yet.
    Absent,
}

/// A condition that failed: which, what it saw, what it wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// Such as `when.write`.
    pub condition: String,
    /// What it saw.
    pub saw: String,
    /// What it wanted.
    pub wanted: String,
}

impl ToolSet {
    /// Adds a tool by its name in a policy; says whether there is such a name.
    pub(super) fn add(&mut self, name: &str) -> bool {
        if let Some((server, tool)) = server_tool(name) {
            let entry = (server.to_owned(), (tool != "*").then(|| tool.to_owned()));
            if let Err(at) = self.server.binary_search(&entry) {
                self.server.insert(at, entry);
            }
            return true;
        }
        match BUILTIN_TOOLS.iter().position(|(tool, _)| *tool == name) {
            Some(bit) => {
                self.builtin |= 1 << bit;
                true
            }
            None => false,
        }
    }

    /// Whether it names this tool, by exact bytes.
    pub(super) fn names(&self, tool: &str) -> bool {
        if let Some(bit) = BUILTIN_TOOLS.iter().position(|(name, _)| *name == tool) {
            return self.builtin & (1 << bit) != 0;
        }
        server_tool(tool).is_some_and(|(server, tool)| {
            self.server
                .iter()
                .any(|(named, raw)| named == server && raw.as_deref().is_none_or(|raw| raw == tool))
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.builtin == 0 && self.server.is_empty()
    }

    /// The built-in tools that it names.
    pub(super) fn builtins(&self) -> impl Iterator<Item = (&'static str, ActionClass)> {
        BUILTIN_TOOLS
            .iter()
            .enumerate()
            .filter(|(bit, _)| self.builtin & (1 << bit) != 0)
            .map(|(_, tool)| *tool)
    }
}

/// The pair of `mcp:SERVER/TOOL`. A server's name has no slash, a tool's may have some.
fn server_tool(name: &str) -> Option<(&str, &str)> {
    let (server, tool) = name.strip_prefix("mcp:")?.split_once('/')?;
    (!server.is_empty() && !tool.is_empty()).then_some((server, tool))
}

impl When {
    /// The globs that a subject of this access is held against.
    pub(super) fn globs(&self, access: Access) -> Option<&[NamedGlob]> {
        match access {
            Access::Read => self.read.as_deref(),
            Access::Write => self.write.as_deref(),
            Access::Delete => self.delete.as_deref(),
        }
    }

    /// Whether it names no path and no command, so that it covers every path.
    pub(super) fn any_path(&self) -> bool {
        self.names_no_path() && self.command.is_none()
    }

    fn names_no_path(&self) -> bool {
        self.read.is_none() && self.write.is_none() && self.delete.is_none()
    }

    /// Whether it concerns nothing in particular, so that it covers every command.
    pub(super) fn any_command(&self) -> bool {
        self.any_path() && self.file.is_none()
    }

    /// Whether a grant covers a command by its words.
    pub(super) fn covers(&self, root: &str, command: &CommandFacts) -> bool {
        self.command.iter().flatten().any(|named| match &named.pattern {
            CommandPattern::Exact(exact) => exact.covers(root, command),
            CommandPattern::Inspect => inspects(command),
            CommandPattern::Shape(_) => false,
        })
    }

    /// Whether a deny or an ask may concern a command.
    pub(super) fn may_concern(&self, seen: &Seen) -> bool {
        self.command.iter().flatten().any(|named| match &named.pattern {
            CommandPattern::Exact(exact) => exact.may_be(seen),
            CommandPattern::Shape(shape) => shape.may_be(seen),
            CommandPattern::Inspect => false,
        })
    }
}

impl Rule {
    /// The accesses whose globs a subject of `access` is held against. `when.write` covers deletes
    /// too: a deny always, a grant only if the rule names delete_file.
    pub(super) fn accesses(&self, access: Access) -> &'static [Access] {
        match access {
            Access::Read => &[Access::Read],
            Access::Write => &[Access::Write],
            Access::Delete => match self.effect {
                Effect::Deny | Effect::Ask => &[Access::Delete, Access::Write],
                Effect::Allow if self.tools.names("delete_file") => &[Access::Delete, Access::Write],
                Effect::Allow => &[Access::Delete],
            },
        }
    }

    /// The condition on the file itself that a path fails.
    pub(super) fn file_fails(&self, path: &PathFacts) -> Option<Failed> {
        let file = self.when.file.as_ref()?;
        if let Some(kinds) = &file.kinds
            && !kinds.iter().any(|kind| kind.holds(path.kind))
        {
            let wanted: Vec<&str> = kinds.iter().map(|kind| kind.token()).collect();
            return Some(Failed {
                condition: "when.file.kinds".into(),
                saw: path.kind.token().into(),
                wanted: wanted.join(" or "),
            });
        }
        let over = |name: &str, saw: u64, most: Option<u64>| {
            most.filter(|most| saw > *most).map(|most| Failed {
                condition: format!("when.file.{name}"),
                saw: saw.to_string(),
                wanted: format!("at most {most}"),
            })
        };
        over("max_bytes", path.bytes, file.max_bytes)
            .or_else(|| over("max_links", path.links, file.max_links))
    }
}

impl GrantedKind {
    /// The word in a policy.
    pub(super) fn token(self) -> &'static str {
        match self {
            Self::Regular => "regular",
            Self::Directory => "directory",
            Self::Absent => "absent",
        }
    }

    fn holds(self, kind: FileKind) -> bool {
        match self {
            Self::Regular => matches!(kind, FileKind::Regular | FileKind::Absent),
            Self::Directory => kind == FileKind::Directory,
            Self::Absent => kind == FileKind::Absent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_exact_names_and_pairs() {
        let mut tools = ToolSet::default();
        for name in ["read_file", "mcp:foo_bar/*", "mcp:test/demo/read"] {
            assert!(tools.add(name), "{name}");
        }
        for name in ["Shell", "read_file\u{200b}", "mcp:", "mcp:x", "mcp:/x", "mcp:x/", ""] {
            assert!(!tools.add(name), "{name}");
        }
        for (name, named) in [
            ("read_file", true),
            ("Read_file", false),
            ("read_file\u{200b}", false),
            ("edit_file", false),
            ("mcp:foo_bar/read", true),
            ("mcp:foo.bar/read", false),
            ("mcp:foo_bar", false),
            ("mcp:test/demo/read", true),
            ("mcp:test/demo_read", false),
            ("mcp:untrusted/read_file", false),
        ] {
            assert_eq!(tools.names(name), named, "{name}");
        }
    }
}
