//! Why a call is decided as it is: the very steps of `decide`, laid open.

use std::collections::BTreeSet;

use super::{
    call::{Access, CommandFacts, PathFacts, ResolvedCall, Subject},
    decide,
    rule::{Effect, Failed, Rule},
    set::PolicySet,
    verdict::Verdict,
};

/// A verdict with everything that led to it.
#[derive(Debug, Clone)]
pub struct Trace<'a> {
    /// What `decide` answers.
    pub verdict: Verdict,
    /// The verdict on each subject alone, in their order; empty where the call isn't judged by its
    /// subjects.
    pub subjects: Vec<Verdict>,
    /// The rules that match at least one subject, in the order of file and line.
    pub matched: Vec<&'a Rule>,
    /// The other rules of this tool, in the same order.
    pub near_misses: Vec<NearMiss<'a>>,
}

/// A rule that did not match, and the first condition that failed.
#[derive(Debug, Clone)]
pub struct NearMiss<'a> {
    /// The rule.
    pub rule: &'a Rule,
    /// What failed on the first subject.
    pub failed: Failed,
}

/// Explains the decision on a call.
pub fn explain<'a>(set: &'a PolicySet, call: &ResolvedCall) -> Trace<'a> {
    let judged = decide::judge(set, call);
    let matched: BTreeSet<u32> =
        judged.subjects.iter().flat_map(|subject| subject.matched.iter().copied()).collect();
    // What a command is denied for mostly lies in its words, not in the directory beside them.
    let words = call.subjects.iter().find(|subject| matches!(subject, Subject::Command(_)));
    let first = words
        .or_else(|| call.subjects.iter().find(|subject| !matches!(subject, Subject::Unresolved { .. })));
    let near_misses = first.map_or_else(Vec::new, |subject| {
        let others = (0..).zip(&set.rules).filter(|(index, rule)| {
            rule.tools.names(&call.tool) && !matched.contains(index) && !judged.subjects.is_empty()
        });
        others
            .filter_map(|(index, rule)| {
                let failed = match subject {
                    Subject::Path { access, path } => failed(set, index, rule, *access, path),
                    Subject::Command(command) => failed_on_command(rule, command),
                    Subject::Unresolved { .. } => return None,
                };
                Some(NearMiss { rule, failed })
            })
            .collect()
    });
    Trace {
        verdict: judged.verdict,
        subjects: judged.subjects.into_iter().map(|subject| subject.verdict).collect(),
        matched: matched.into_iter().filter_map(|index| set.rule(index)).collect(),
        near_misses,
    }
}

/// The first condition of a rule that a subject fails, in the order in which they are asked.
fn failed(set: &PolicySet, index: u32, rule: &Rule, access: Access, path: &PathFacts) -> Failed {
    let held = rule.accesses(access);
    let stated = |access: Access| rule.when.globs(access).map(|globs| (access, globs));
    let stated_here: Vec<_> = held.iter().filter_map(|access| stated(*access)).collect();
    if stated_here.is_empty() && !rule.when.any_path() {
        // It speaks of another kind of access altogether.
        let all = [Access::Read, Access::Write, Access::Delete];
        let other: Vec<_> = all.into_iter().filter_map(stated).collect();
        return wanted(&other, format!("{} of {}", access.token(), path.lexical.shown()));
    }
    let candidates = set.index.candidates(&set.place.root, access, path);
    let (lexical, resolved) = match rule.effect {
        Effect::Allow => (&candidates.lexical, &candidates.resolved),
        Effect::Deny | Effect::Ask => (&candidates.limits, &candidates.limits),
    };
    if lexical.binary_search(&index).is_err() {
        return wanted(&stated_here, path.lexical.shown().to_owned());
    }
    if resolved.binary_search(&index).is_err() {
        return wanted(&stated_here, format!("{}, where it leads", path.resolved.shown()));
    }
    rule.file_fails(path).unwrap_or_else(|| wanted(&stated_here, path.resolved.shown().to_owned()))
}

/// What a rule wanted of a command that it doesn't match.
fn failed_on_command(rule: &Rule, command: &CommandFacts) -> Failed {
    let named = rule.when.command.iter().flatten().map(|named| named.text.as_str());
    let named: Vec<&str> = named.collect();
    if !named.is_empty() {
        let condition = "when.command".to_owned();
        return Failed { condition, saw: command.shown(), wanted: named.join(" or ") };
    }
    let all = [Access::Read, Access::Write, Access::Delete];
    let stated =
        all.into_iter().filter_map(|access| rule.when.globs(access).map(|globs| (access, globs)));
    wanted(&stated.collect::<Vec<_>>(), command.shown())
}

fn wanted(stated: &[(Access, &[super::rule::NamedGlob])], saw: String) -> Failed {
    let conditions: Vec<String> =
        stated.iter().map(|(access, _)| format!("when.{}", access.token())).collect();
    let globs: Vec<&str> =
        stated.iter().flat_map(|(_, globs)| globs.iter().map(|glob| glob.text.as_str())).collect();
    Failed { condition: conditions.join(" or "), saw, wanted: globs.join(", ") }
}
