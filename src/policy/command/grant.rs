//! The matcher of grants: it covers what is proven word by word, and nothing else.

use super::CommandFacts;
use crate::{
    floor::{FileKind, Location},
    policy::path::read_path,
};

/// Words that a command must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::policy) struct Exact {
    /// The alternatives at each position, sorted.
    pub(in crate::policy) argv: Vec<Vec<String>>,
    /// What may follow.
    pub(in crate::policy) rest: Rest,
}

/// What may follow the words that are named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::policy) enum Rest {
    /// Nothing.
    None,
    /// Anything.
    Any,
    /// These flags (one that ends in `=` takes any value), and operands of this kind.
    Listed { flags: Vec<String>, operands: Operands },
}

/// Which words that are no flags may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::policy) enum Operands {
    /// None.
    None,
    /// Any.
    Any,
    /// What names something in the workspace that is there.
    WorkspacePaths,
    /// What doesn't lead out of the workspace, read as a path or as `REVISION:PATH`.
    WorkspacePathsOrRevs,
}

impl Exact {
    /// Whether it covers the command.
    pub(in crate::policy) fn covers(&self, root: &str, command: &CommandFacts) -> bool {
        let Some((first, later)) = self.argv.split_first() else { return false };
        let Some((program, words)) = command.argv.split_first() else { return false };
        if !first.iter().any(|named| names_program(root, named, program, command)) {
            return false;
        }
        let (Some(given), Some(rest)) = (words.get(..later.len()), words.get(later.len()..)) else {
            return false;
        };
        later.iter().zip(given).all(|(alternatives, word)| alternatives.contains(word))
            && self.rest_covers(command, later.len() + 1, rest)
    }

    fn rest_covers(&self, command: &CommandFacts, first: usize, rest: &[String]) -> bool {
        let (flags, operands) = match &self.rest {
            Rest::None => return rest.is_empty(),
            Rest::Any => return true,
            Rest::Listed { flags, operands } => (flags, *operands),
        };
        let mut only_operands = false;
        rest.iter().enumerate().all(|(at, word)| {
            if !only_operands && word == "--" {
                only_operands = true;
                return operands != Operands::None;
            }
            if !only_operands && word.starts_with('-') {
                return flags.iter().any(|flag| match flag.ends_with('=') {
                    true => word.starts_with(flag.as_str()),
                    false => word == flag,
                });
            }
            operands.cover(command, first + at)
        })
    }
}

impl Operands {
    /// Every one, with its word in a policy.
    pub(in crate::policy) const ALL: [(&'static str, Self); 4] = [
        ("none", Self::None),
        ("any", Self::Any),
        ("workspace-paths", Self::WorkspacePaths),
        ("workspace-paths-or-revs", Self::WorkspacePathsOrRevs),
    ];

    pub(super) fn cover(self, command: &CommandFacts, word: usize) -> bool {
        let must_be_there = match self {
            Self::None => return false,
            Self::Any => return true,
            Self::WorkspacePaths => true,
            Self::WorkspacePathsOrRevs => false,
        };
        let mut paths = command.operands.iter().filter(|operand| operand.word == word).peekable();
        // The word itself comes first; where it can't be a path, nothing is proven of it.
        let Some(whole) = paths.peek() else { return false };
        let known = match whole.path.kind {
            FileKind::Regular | FileKind::Directory => true,
            FileKind::Absent => !must_be_there,
            FileKind::Special | FileKind::Unknown => false,
        };
        let inside = |location: &Location| matches!(location, Location::Inside(_));
        known && paths.all(|found| inside(&found.path.lexical) && inside(&found.path.resolved))
    }
}

/// Whether a grant's first word names this program. A bare name is one that `PATH` gives; a path is
/// the same path, whatever the working directory, and no link.
fn names_program(root: &str, named: &str, given: &str, command: &CommandFacts) -> bool {
    if !named.contains('/') {
        return named == given;
    }
    command.program.as_ref().is_some_and(|program| {
        program.lexical == program.resolved
            && read_path(named, root).is_ok_and(|place| place == program.lexical)
    })
}
