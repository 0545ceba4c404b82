//! `list_files`: names below a directory, and how many were left out and why.

use std::{borrow::Cow, collections::BTreeMap, sync::atomic::Ordering};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    ToolContext, ToolError,
    resolve::{Resolved, read_of},
};
use crate::workspace::{EntryKind, Kind, Skip, Spot, Step, Walk};

const NAME: &str = "list_files";
/// Names that one call tells.
const MOST_NAMES: usize = 2_000;
/// Bytes of names that one call tells.
const MOST_BYTES: usize = 64 * 1024;
/// Bytes of a glob.
const LONGEST_GLOB: usize = 1024;

/// Lists names below a directory.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ListFiles {
    /// The directory, relative to the workspace; "." is the workspace itself.
    pub path: String,
    /// Only paths that match, relative to the workspace, such as "src/**/*.rs" or "*.md" (which
    /// matches at any depth).
    pub glob: Option<String>,
    /// How many levels below the directory; 1 is its own entries. All levels if left out.
    pub depth: Option<u32>,
}

pub(super) fn run(
    input: &ListFiles,
    resolved: &Resolved,
    context: &ToolContext,
) -> Result<String, ToolError> {
    let dir = directory(&input.path, resolved)?;
    let glob = input.glob.as_deref().map(path_glob).transpose()?;
    let depth = input.depth.map_or(usize::MAX, |depth| usize::try_from(depth).unwrap_or(usize::MAX));
    let (mut names, mut lines, mut truncated) = (0usize, String::new(), false);
    let mut walk = Walk::new(&context.root);
    walk.below(dir, &mut |_, entry| {
        if context.stop.load(Ordering::Relaxed) {
            return Step::Stop;
        }
        if !(context.judge)(&read_of(NAME, &entry.path, &entry.look)) {
            return Step::Skip(Skip::Denied);
        }
        let mark = match entry.kind {
            EntryKind::File => "",
            EntryKind::Directory => "/",
            EntryKind::Link => "@",
        };
        let wanted = glob
            .as_ref()
            .is_none_or(|glob| entry.kind != EntryKind::Directory && glob.is_match(&entry.path));
        if wanted {
            if names == MOST_NAMES || lines.len() + entry.path.len() > MOST_BYTES {
                truncated = true;
                return Step::Stop;
            }
            names += 1;
            lines.push_str(&told_path(&entry.path));
            lines.push_str(mark);
            lines.push('\n');
        }
        if entry.depth >= depth { Step::Over } else { Step::Into }
    });
    if context.stop.load(Ordering::Relaxed) {
        return Err(ToolError::Stopped);
    }
    let mut text = format!("{names} {}", if names == 1 { "entry" } else { "entries" });
    if truncated {
        text.push_str(" (truncated: there are more; name a deeper path or a glob)");
    }
    tell_skipped(&mut text, &walk.skipped);
    text.push('\n');
    text.push_str(&lines);
    Ok(text)
}

/// The directory of a call that was resolved and judged, relative to the root.
pub(super) fn directory<'r>(given: &str, resolved: &'r Resolved) -> Result<&'r str, ToolError> {
    let target = |problem| ToolError::Target { path: given.to_owned(), problem };
    match resolved.look.as_ref().map(|look| (&look.spot, look.kind)) {
        Some((Spot::Inside(path), Kind::Directory)) => Ok(path),
        Some((_, Kind::Absent)) => Err(target("there is no such directory")),
        _ => Err(target("this is not a directory")),
    }
}

/// A glob over paths; one without a slash matches at any depth.
///
/// Made as a set of one: what the parser lets through but no matcher can be made of (deep nesting)
/// is an error there, and a panic in the making of a single matcher.
pub(super) fn path_glob(glob: &str) -> Result<GlobSet, ToolError> {
    let invalid = |message| ToolError::Pattern { what: "glob", message };
    if glob.len() > LONGEST_GLOB {
        return Err(invalid(format!("it is over {LONGEST_GLOB} bytes")));
    }
    let anywhere = if glob.contains('/') { glob.to_owned() } else { format!("**/{glob}") };
    GlobBuilder::new(&anywhere)
        .literal_separator(true)
        .build()
        .and_then(|glob| GlobSetBuilder::new().add(glob).build())
        .map_err(|error| invalid(error.kind().to_string()))
}

/// A path as results tell it: a control character in a name is written as an escape, so that a
/// name with a line end can't pass for another line of the result.
pub(super) fn told_path(path: &str) -> Cow<'_, str> {
    let is_special = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    if !path.contains(is_special) {
        return Cow::Borrowed(path);
    }
    let told =
        path.chars().map(|c| if is_special(c) { c.escape_default().to_string() } else { c.to_string() });
    Cow::Owned(told.collect())
}

/// Appends how many were left out, by reason.
pub(super) fn tell_skipped(text: &mut String, skipped: &BTreeMap<Skip, u64>) {
    for (at, (why, count)) in skipped.iter().enumerate() {
        let lead = if at == 0 { "; skipped:" } else { "," };
        text.push_str(&format!("{lead} {count} {}", why.token()));
    }
}
