//! Deciding a call: floor, then denies, then asks, then grants or the matrix, then the default.
//!
//! Pure: no clock, no I/O, and neither the order of rules nor how specific they are matters. Every
//! subject is judged alone and the strictest verdict is the call's. `explain` shows the very steps
//! that are taken here.

mod command;
#[cfg(test)]
mod tests;

use crate::floor::{self, Boundary, FileKind, Touch};

use super::{
    call::{Access, ActionClass, PathFacts, ResolvedCall, Subject},
    matrix,
    rule::{Effect, Rule},
    set::{DefaultDecision, HardLinks, PolicySet},
    verdict::{Because, Decision, Verdict},
};

/// How many of the granted globs a refused model is told.
const TOLD_GLOBS: usize = 8;

/// Decides a call.
pub fn decide(set: &PolicySet, call: &ResolvedCall) -> Verdict {
    judge(set, call).verdict
}

/// Decides a command that the caller asks for: it needs no grant, but boundaries, denies and walls
/// hold for it as for any other.
pub fn decide_operator(set: &PolicySet, call: &ResolvedCall) -> Verdict {
    let command = call.subjects.iter().find_map(|subject| match subject {
        Subject::Command(command) => Some(command),
        Subject::Path { .. } | Subject::Unresolved { .. } => None,
    });
    match command {
        Some(facts) => command::judge_operator(set, &call.tool, facts),
        None => unresolved(&call.tool, "no-subject"),
    }
}

/// A call, judged.
pub(super) struct Judged {
    /// The strictest verdict of all subjects.
    pub(super) verdict: Verdict,
    /// The subjects in their order; empty where the call isn't judged by its subjects.
    pub(super) subjects: Vec<JudgedSubject>,
}

/// A subject, judged alone.
pub(super) struct JudgedSubject {
    pub(super) verdict: Verdict,
    /// The rules of the tool that match, by index, sorted.
    pub(super) matched: Vec<u32>,
}

pub(super) fn judge(set: &PolicySet, call: &ResolvedCall) -> Judged {
    let whole = |verdict| Judged { verdict, subjects: Vec::new() };
    // By the name alone: a class that came with the call could be of another tool.
    let Some(class) = ActionClass::of_tool(&call.tool).filter(|class| call.class == Some(*class)) else {
        return whole(Verdict::of(
            Decision::Deny,
            Because::Matrix,
            format!("`{}` is not a tool that this version can judge, so it is denied.", call.tool),
        ));
    };
    // A command's directory alone says nothing of what is run in it.
    let runs = |subject: &Subject| !matches!(subject, Subject::Path { .. });
    let told = class != ActionClass::RunCommand || call.subjects.iter().any(runs);
    if call.subjects.is_empty() || !told {
        let mut verdict = Verdict::of(
            Decision::Deny,
            Because::Unresolved,
            format!("It can't be told what this call of `{}` touches.", call.tool),
        );
        verdict.cause = Some("no-subject");
        return whole(verdict);
    }
    let subjects: Vec<JudgedSubject> = call
        .subjects
        .iter()
        .enumerate()
        .map(|(index, subject)| {
            let mut judged = judge_subject(set, &call.tool, class, subject);
            judged.verdict.subject = Some(index);
            judged
        })
        .collect();
    // The first of the strictest, so that the same call is always told the same reason.
    let strictest = subjects
        .iter()
        .map(|judged| &judged.verdict)
        .reduce(|worst, next| if next.decision > worst.decision { next } else { worst });
    match strictest.cloned() {
        Some(verdict) => Judged { verdict, subjects },
        None => whole(Verdict::of(Decision::Deny, Because::Default, "Nothing was judged.".into())),
    }
}

/// Whether a rule matches a call, whatever else does: what its examples are held against.
pub(super) fn matches(set: &PolicySet, rule: u32, call: &ResolvedCall) -> bool {
    call.subjects.iter().any(|subject| match subject {
        Subject::Path { access, path } => {
            matching(set, &call.tool, *access, path).matched.contains(&rule)
        }
        Subject::Command(facts) => command::matching(set, &call.tool, facts).matched.contains(&rule),
        Subject::Unresolved { .. } => false,
    })
}

fn judge_subject(set: &PolicySet, tool: &str, class: ActionClass, subject: &Subject) -> JudgedSubject {
    let (access, path) = match subject {
        Subject::Path { access, path } => (*access, path),
        Subject::Command(facts) => return command::judge(set, tool, facts),
        Subject::Unresolved { given, reason } => {
            return JudgedSubject { verdict: unresolved(given, reason), matched: Vec::new() };
        }
    };
    let rules = matching(set, tool, access, path);
    let verdict = boundary(set, tool, class, access, path)
        .or_else(|| (path.kind == FileKind::Unknown).then(|| unresolved(&path.given, "path-unreadable")))
        .unwrap_or_else(|| match class {
            // The directory that a command runs in is asked about denies; its words are what is granted.
            ActionClass::RunCommand => working_directory(set, tool, &path.given, &rules),
            ActionClass::ListFiles
            | ActionClass::ReadFile
            | ActionClass::SearchText
            | ActionClass::WriteFile
            | ActionClass::Delete
            | ActionClass::Transfer => by_rules(set, tool, class, &path.given, &rules),
        });
    let mut matched = rules.matched;
    matched.sort_unstable();
    JudgedSubject { verdict, matched }
}

fn working_directory(set: &PolicySet, tool: &str, given: &str, rules: &Matching) -> Verdict {
    let by = rules.deny.or(rules.ask).and_then(|index| set.rule(index));
    by.map_or_else(
        || {
            let text = format!("Nothing denies `{given}` as working directory.");
            Verdict::of(Decision::Allow, Because::Matrix, text)
        },
        |rule| ruled(rule, tool, given),
    )
}

fn unresolved(given: &str, reason: &'static str) -> Verdict {
    let text = format!("`{given}` can't be pinned down ({reason}), and what can't be is denied.");
    Verdict { cause: Some(reason), ..Verdict::of(Decision::Deny, Because::Unresolved, text) }
}

fn boundary(
    set: &PolicySet,
    tool: &str,
    class: ActionClass,
    access: Access,
    path: &PathFacts,
) -> Option<Verdict> {
    let touch = Touch {
        access,
        tells_content: tells_content(tool, class, path.kind),
        breaks_links: set.settings.hard_links == HardLinks::Break,
    };
    let hit = floor::judge(&set.place.root, touch, path).or_else(|| {
        let own = match access {
            Access::Read => None,
            Access::Write | Access::Delete if set.guards(path) => Some(Boundary::GuardedPath),
            Access::Write | Access::Delete if set.protects(path) => Some(Boundary::ProtectedPath),
            Access::Write | Access::Delete => None,
        };
        own.map(|boundary| floor::Hit::of_run(boundary, path))
    })?;
    Some(boundary_verdict(hit))
}

fn boundary_verdict(hit: floor::Hit) -> Verdict {
    Verdict {
        cause: Some(hit.boundary.token()),
        suggest: hit.boundary.suggest().map(str::to_owned),
        ..Verdict::of(Decision::Deny, Because::Floor, hit.reason)
    }
}

/// Whether a call tells what the file holds. An edit does, by what it says of a text that isn't
/// there. A search through a directory skips what it mustn't tell; one in a file can't.
fn tells_content(tool: &str, class: ActionClass, kind: FileKind) -> bool {
    match class {
        ActionClass::ReadFile => true,
        ActionClass::SearchText => kind != FileKind::Directory,
        ActionClass::WriteFile => tool == "edit_file",
        ActionClass::ListFiles
        | ActionClass::Delete
        | ActionClass::RunCommand
        | ActionClass::Transfer => false,
    }
}

/// The rules of a tool that match a path.
#[derive(Default)]
struct Matching {
    deny: Option<u32>,
    ask: Option<u32>,
    grant: Option<u32>,
    /// All of them.
    matched: Vec<u32>,
}

/// Sorts the rules that match a path by their effect. Of each effect the first in the order of file
/// and line speaks; which one that is changes no decision.
fn matching(set: &PolicySet, tool: &str, access: Access, path: &PathFacts) -> Matching {
    let candidates = set.index.candidates(&set.place.root, access, path);
    let of_tool = |index: &u32| set.rule(*index).filter(|rule| rule.tools.names(tool));
    let mut found = Matching::default();
    for index in &candidates.limits {
        let Some(rule) = of_tool(index) else { continue };
        match rule.effect {
            Effect::Deny => found.deny.get_or_insert(*index),
            Effect::Ask => found.ask.get_or_insert(*index),
            Effect::Allow => continue,
        };
        found.matched.push(*index);
    }
    let granted = |index: &u32| of_tool(index).is_some_and(|rule| rule.file_fails(path).is_none());
    // The place as it is written and the place that it leads to must both be granted, be it by two
    // rules: a link from one granted area into another hides nothing.
    let mut lexical = candidates.lexical.iter().filter(|index| granted(index)).peekable();
    if lexical.peek().is_some() {
        let resolved: Vec<u32> =
            candidates.resolved.iter().filter(|index| granted(index)).copied().collect();
        let both = lexical.find(|index| resolved.binary_search(index).is_ok());
        found.grant = both.or(resolved.first()).copied();
        found.matched.extend(resolved);
    }
    found
}

fn by_rules(set: &PolicySet, tool: &str, class: ActionClass, given: &str, rules: &Matching) -> Verdict {
    let settings = &set.settings;
    let by = |index: Option<u32>| index.and_then(|index| set.rule(index));
    if let Some(rule) = by(rules.deny) {
        return ruled(rule, tool, given);
    }
    let matrix = matrix::judge(settings.mode, settings.profile, class, settings.sensitive_override);
    if matrix == Decision::Deny {
        let mode = settings.mode.token();
        let text = format!("{mode} mode allows no `{}`: nothing may be changed.", class.token());
        return Verdict::of(Decision::Deny, Because::Matrix, text);
    }
    if let Some(rule) = by(rules.ask).or_else(|| by(rules.grant)) {
        return ruled(rule, tool, given);
    }
    match (matrix, settings.default) {
        (Decision::Allow, _) => {
            let text = format!("The matrix allows `{}` in this mode and profile.", class.token());
            Verdict::of(Decision::Allow, Because::Matrix, text)
        }
        (Decision::Ask, DefaultDecision::Ask) => {
            let text =
                format!("No rule covers `{tool}` on `{given}`, so a person would have to be asked.");
            Verdict::of(Decision::Ask, Because::Default, text)
        }
        (Decision::Ask | Decision::Deny, DefaultDecision::Deny | DefaultDecision::Ask) => {
            let text = format!("No rule grants `{tool}` on `{given}`.");
            Verdict {
                suggest: granted_elsewhere(set, tool, class),
                ..Verdict::of(Decision::Deny, Because::Default, text)
            }
        }
    }
}

fn ruled(rule: &Rule, tool: &str, given: &str) -> Verdict {
    let says = match rule.effect {
        Effect::Allow => "grants",
        Effect::Ask => "asks a person about",
        Effect::Deny => "denies",
    };
    let reason = rule
        .reason
        .clone()
        .unwrap_or_else(|| format!("Rule `{}` {says} `{tool}` on `{given}`.", rule.at.id));
    Verdict {
        rule: Some(rule.at.clone()),
        suggest: rule.suggest.clone(),
        ..Verdict::of(rule.effect.decision(), Because::Rule, reason)
    }
}

/// What a model may do with the tool instead: the globs that are granted to it.
fn granted_elsewhere(set: &PolicySet, tool: &str, class: ActionClass) -> Option<String> {
    let access = match class {
        ActionClass::ListFiles | ActionClass::ReadFile | ActionClass::SearchText => Access::Read,
        ActionClass::WriteFile => Access::Write,
        ActionClass::Delete => Access::Delete,
        ActionClass::RunCommand => return granted_commands(set, tool),
        ActionClass::Transfer => return None,
    };
    let mut told: Vec<&str> = Vec::new();
    let grants = set.rules.iter().filter(|rule| rule.effect == Effect::Allow && rule.tools.names(tool));
    let globs = grants.flat_map(|rule| rule.accesses(access).iter().map(|held| rule.when.globs(*held)));
    for named in globs.flatten().flatten() {
        if told.len() == TOLD_GLOBS {
            break;
        }
        if !told.contains(&named.text.as_str()) {
            told.push(&named.text);
        }
    }
    (!told.is_empty()).then(|| format!("Granted to `{tool}`: {}.", told.join(", ")))
}

fn granted_commands(set: &PolicySet, tool: &str) -> Option<String> {
    let grants = set.rules.iter().filter(|rule| rule.effect == Effect::Allow && rule.tools.names(tool));
    let commands = grants.flat_map(|rule| rule.when.command.iter().flatten());
    let told: Vec<String> = commands.take(TOLD_GLOBS).map(|named| format!("`{}`", named.text)).collect();
    (!told.is_empty()).then(|| format!("Granted to `{tool}`: {}.", told.join(", ")))
}
