//! Deciding a command: what its words name is held against the boundary and the denies, its words
//! against denies and asks that look through it, and only then against what is granted word by word.

#[cfg(test)]
mod tests;

use super::{JudgedSubject, Matching, boundary_verdict, by_rules, ruled, unresolved};
use crate::{
    floor::{self, Boundary},
    policy::{
        call::{Access, ActionClass, PathFacts},
        command::{CommandFacts, Seen, in_place_of, may_hide_a_runner, only_reads, runs_operands},
        rule::Effect,
        set::{PolicySet, Sandbox},
        verdict::{Because, Decision, RuleRef, Verdict},
    },
};

/// Why a command that nothing confines isn't run.
const UNVERIFIED: &str = "ENFORCEMENT UNVERIFIED: commands need walls that this version can't prove, and the policy \
    doesn't say `[sandbox] mode = \"off\"`.";

/// Why no grant covers a command, whatever it names.
const RUNS: &str = "runs-its-operands";

pub(super) fn judge(set: &PolicySet, tool: &str, command: &CommandFacts) -> JudgedSubject {
    let rules = matching(set, tool, command);
    let given = command.shown();
    let verdict = boundary(set, command)
        .or_else(|| {
            let named = rules.grant.is_some_and(|index| names_its_words(set, index));
            // A named deny says more than that it can't be told.
            let untold = if rules.deny.is_none() { untold(command, named) } else { None };
            untold.map(|reason| {
                let runs = (reason == RUNS).then(|| command.argv.first()).flatten();
                let suggest =
                    runs.map(|program| format!("No grant covers that: {}.", in_place_of(program)));
                Verdict { suggest, ..unresolved(&given, reason) }
            })
        })
        .unwrap_or_else(|| by_rules(set, tool, ActionClass::RunCommand, &given, &rules));
    let verdict = Verdict { suggest: instead(command, &verdict), ..verdict };
    let mut matched = rules.matched;
    matched.sort_unstable();
    matched.dedup();
    JudgedSubject { verdict: confined(set, verdict), matched }
}

/// Why nobody can tell what a command will do; `named` says that a grant names its very words.
fn untold(command: &CommandFacts, named: bool) -> Option<&'static str> {
    if runs_operands(command) {
        Some(RUNS)
    } else if !named && in_the_tree(command) {
        Some("program-in-workspace")
    } else if !named && may_hide_a_runner(command) {
        Some("may-run-its-operands")
    } else {
        None
    }
}

/// What a model may do instead of a command that isn't granted: for one that only reads there are tools.
fn instead(command: &CommandFacts, verdict: &Verdict) -> Option<String> {
    const TOOLS: &str = "To read, list or search, use read_file, list_files and search_text.";
    let not_granted = match verdict.because {
        Because::Default | Because::Unresolved => verdict.decision != Decision::Allow,
        Because::Rule | Because::Matrix | Because::Floor | Because::Limit | Because::BadArguments => {
            false
        }
    };
    match &verdict.suggest {
        suggest if !(not_granted && only_reads(command)) => suggest.clone(),
        None => Some(TOOLS.to_owned()),
        Some(suggest) => Some(format!("{TOOLS} {suggest}")),
    }
}

/// As [`judge`], for a command of the caller's.
pub(super) fn judge_operator(set: &PolicySet, tool: &str, command: &CommandFacts) -> Verdict {
    let deny = matching(set, tool, command).deny.and_then(|index| set.rule(index));
    let given = command.shown();
    let verdict = boundary(set, command).or_else(|| deny.map(|rule| ruled(rule, tool, &given)));
    confined(
        set,
        verdict.unwrap_or_else(|| {
            let text = format!("The caller asks for `{given}`.");
            let at = RuleRef { id: "operator:verify".into(), file: "--verify".into(), line: 1 };
            Verdict { rule: Some(at), ..Verdict::of(Decision::Allow, Because::Rule, text) }
        }),
    )
}

/// What would be allowed isn't where nothing can be proven to confine it.
fn confined(set: &PolicySet, verdict: Verdict) -> Verdict {
    match (verdict.decision, set.settings.sandbox) {
        (Decision::Allow, Sandbox::Required) => Verdict {
            cause: Some("enforcement-unverified"),
            ..Verdict::of(Decision::Deny, Because::Matrix, UNVERIFIED.to_owned())
        },
        (Decision::Allow, Sandbox::Off)
        | (Decision::Ask | Decision::Deny, Sandbox::Required | Sandbox::Off) => verdict,
    }
}

fn boundary(set: &PolicySet, command: &CommandFacts) -> Option<Verdict> {
    let writes = !only_reads(command);
    command.operands.iter().find_map(|operand| {
        let path = &operand.path;
        let hit = floor::judge_operand(&set.place.root, writes, path).or_else(|| {
            let own = match writes {
                true if set.guards(path) => Some(Boundary::GuardedPath),
                true if set.protects(path) => Some(Boundary::ProtectedPath),
                true | false => None,
            };
            own.map(|boundary| floor::Hit::of_run(boundary, path))
        });
        hit.map(boundary_verdict)
    })
}

/// Sorts the rules that concern a command by their effect.
pub(super) fn matching(set: &PolicySet, tool: &str, command: &CommandFacts) -> Matching {
    let mut found = Matching::default();
    let by_path = by_operands(set, command);
    let mut seen = None;
    for (index, rule) in (0..).zip(&set.rules).filter(|(_, rule)| rule.tools.names(tool)) {
        let holds = match rule.effect {
            Effect::Allow => rule.when.any_command() || rule.when.covers(&set.place.root, command),
            Effect::Ask | Effect::Deny => {
                rule.when.any_command()
                    || by_path.binary_search(&index).is_ok()
                    || (rule.when.command.is_some()
                        && rule.when.may_concern(seen.get_or_insert_with(|| Seen::of(command))))
            }
        };
        if !holds {
            continue;
        }
        let first = match rule.effect {
            Effect::Deny => &mut found.deny,
            Effect::Ask => &mut found.ask,
            Effect::Allow => &mut found.grant,
        };
        // Of the grants one that names the words says more than one that names nothing.
        if first.is_none_or(|old| rule.effect == Effect::Allow && !names_its_words(set, old)) {
            *first = Some(index);
        }
        found.matched.push(index);
    }
    found
}

/// The denies and asks on paths that a word may name, by index, sorted.
fn by_operands(set: &PolicySet, command: &CommandFacts) -> Vec<u32> {
    let accesses: &[Access] = match only_reads(command) {
        true => &[Access::Read],
        false => &[Access::Read, Access::Write, Access::Delete],
    };
    let mut found: Vec<u32> = Vec::new();
    let paths = command.operands.iter().map(|operand| &operand.path);
    for path in paths.chain(&command.program) {
        for access in accesses {
            found.extend(set.index.candidates(&set.place.root, *access, path).limits);
        }
    }
    // What names no path concerns commands by its words, or all of them.
    found.retain(|index| set.rule(*index).is_some_and(|rule| !rule.when.any_path()));
    found.sort_unstable();
    found.dedup();
    found
}

fn names_its_words(set: &PolicySet, index: u32) -> bool {
    set.rule(index).is_some_and(|rule| rule.when.command.is_some())
}

/// Whether the program lies where the model may write, by its path or by where that leads.
fn in_the_tree(command: &CommandFacts) -> bool {
    command.program.as_ref().is_some_and(|program: &PathFacts| {
        [&program.lexical, &program.resolved]
            .iter()
            .any(|place| matches!(place, floor::Location::Inside(_)))
    })
}
