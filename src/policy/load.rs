//! Policy files to a policy: read whole or not at all, every mistake told at once.
//!
//! Pure: bytes come in, and a closure of the caller's fetches what a file extends. Several files add
//! up: all rules hold, and of a setting the strictest that was stated. A file from the checked-out
//! tree may only tighten: what it states is compared with what holds without it, and its grants have
//! no effect.

mod command;
mod document;
mod file;
mod read;
mod rule;
mod vars;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use crate::id::Digest;

use super::{
    decide,
    diagnostic::{Diagnostic, Page},
    environment::Passed,
    glob::Patterns,
    preset,
    rule::{Effect, Rule, Tier},
    set::{Place, PolicyFile, PolicySet, Settings, Waived},
    verdict::RuleRef,
};
use file::{Draft, Stated};

/// The most files of one policy.
const MOST_FILES: usize = 64;
/// How deep files may extend each other.
const DEEPEST: usize = 8;

/// A policy file, as whoever read it hands it in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// As it was named.
    pub name: String,
    /// The name that the digest covers: without the folder, so that a pin holds on any machine. Empty
    /// for what is no file: it stands beside the bundle, with a digest of its own.
    pub file_name: String,
    /// The authority that follows from where it was read.
    pub tier: Tier,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// A file that was read, as far as it could be.
struct Loaded {
    key: (String, Digest),
    name: String,
    bytes: Vec<u8>,
    /// The tier by the way that led here, and the one that the file lowers it to.
    given: Tier,
    tier: Tier,
    page: Page,
    draft: Draft,
}

/// Fetches what a file extends: the entry as it is written, and the file that says so.
pub type Fetch<'a> = dyn FnMut(&str, &Source) -> Result<Source, String> + 'a;

/// Loads a policy from the files that were named. Presets among what they extend are known here;
/// other entries are fetched.
pub fn load(
    roots: Vec<Source>,
    place: &Place,
    fetch: &mut Fetch<'_>,
) -> Result<PolicySet, Vec<Diagnostic>> {
    let mut bundle = Bundle { place, fetch, files: Vec::new(), broken: Vec::new() };
    for root in roots {
        let tier = root.tier;
        bundle.visit(root, tier, &mut Vec::new());
    }
    let Bundle { mut files, broken, .. } = bundle;
    tell_duplicate_ids(&mut files);
    let set = assemble(&mut files, place);
    let faults: Vec<Diagnostic> =
        broken.into_iter().chain(files.into_iter().flat_map(|file| file.page.into_faults())).collect();
    match set {
        Some(set) if faults.is_empty() => Ok(set),
        Some(_) | None => Err(faults),
    }
}

/// The files on the way to a policy.
struct Bundle<'a, 'f> {
    place: &'a Place,
    fetch: &'a mut Fetch<'f>,
    files: Vec<Loaded>,
    /// What couldn't even be read as text.
    broken: Vec<Diagnostic>,
}

/// Why what a file extends isn't read.
type Refused = String;

impl Bundle<'_, '_> {
    /// Reads a file and what it extends. `above` are the files that led here.
    fn visit(&mut self, source: Source, tier: Tier, above: &mut Vec<(String, Digest)>) {
        let digest = Digest::of(&source.bytes);
        let key = (source.file_name.clone(), digest);
        let page = match document::decode(&source.name, source.bytes.clone()) {
            Ok(page) => page,
            Err(fault) => {
                self.broken.push(fault);
                return;
            }
        };
        let known = self.files.iter_mut().position(|file| file.key == key);
        let index = match known {
            // Read by another way already: it has the greater authority of the two.
            Some(index) => {
                let Some(file) = self.files.get_mut(index).filter(|file| tier < file.given) else {
                    return;
                };
                file.given = tier;
                index
            }
            None => {
                let mut page = page;
                let draft =
                    document::parse(&mut page, |page, table| file::draft(page, table, self.place));
                let draft = draft.unwrap_or_default();
                let (name, bytes) = (source.name.clone(), source.bytes.clone());
                self.files.push(Loaded {
                    key: key.clone(),
                    name,
                    bytes,
                    given: tier,
                    tier,
                    page,
                    draft,
                });
                self.files.len() - 1
            }
        };
        let Some(tier) = self.settle_tier(index, tier) else { return };
        let extends = self.files.get(index).map(|file| file.draft.extends.clone()).unwrap_or_default();
        above.push(key);
        for (entry, span) in extends {
            match self.extended(&entry, &source, above) {
                Ok(next) => {
                    // Nothing gains authority by being extended.
                    let tier = tier.max(next.tier);
                    self.visit(next, tier, above);
                }
                Err(message) => self.fault(index, span, message),
            }
        }
        above.pop();
    }

    /// The tier that a file has with what it says of it: it may only lower it.
    fn settle_tier(&mut self, index: usize, tier: Tier) -> Option<Tier> {
        let file = self.files.get_mut(index)?;
        let (asked, span) = match file.draft.tier.clone() {
            Some(stated) => stated,
            None => {
                file.tier = tier;
                return Some(tier);
            }
        };
        if asked < tier {
            let message = format!(
                "`tier` may only lower the authority of a file, and this one is of tier `{}`",
                tier.token()
            );
            file.page.fault(span, message);
        }
        file.tier = tier.max(asked);
        Some(file.tier)
    }

    fn extended(
        &mut self,
        entry: &str,
        from: &Source,
        above: &[(String, Digest)],
    ) -> Result<Source, Refused> {
        let source = if preset::is_preset(entry) {
            preset::source(entry, Tier::Builtin).ok_or_else(|| {
                let names: Vec<String> = preset::names().collect();
                format!("there is no `{entry}`; there are {}", names.join(", "))
            })?
        } else {
            (self.fetch)(entry, from)?
        };
        let key = (source.file_name.clone(), Digest::of(&source.bytes));
        if above.contains(&key) {
            return Err(format!("`{entry}` extends itself, by way of this file"));
        }
        if above.len() > DEEPEST || self.files.len() >= MOST_FILES {
            return Err(format!("more than {DEEPEST} files deep or {MOST_FILES} files in all"));
        }
        Ok(source)
    }

    fn fault(&mut self, index: usize, span: Range<usize>, message: String) {
        if let Some(file) = self.files.get_mut(index) {
            file.page.fault(span, message);
        }
    }
}

fn tell_duplicate_ids(files: &mut [Loaded]) {
    let mut first: BTreeMap<String, String> = BTreeMap::new();
    for file in files {
        let page = &mut file.page;
        for rule in &file.draft.rules {
            match first.get(&rule.id) {
                Some(place) => {
                    page.fault(rule.span.clone(), format!("the id `{}` is taken by {place}", rule.id));
                }
                None => {
                    let place = format!("{}:{}", file.name, page.line(rule.span.start));
                    first.insert(rule.id.clone(), place);
                }
            }
        }
    }
}

/// Puts the policy together from what is right, so that the examples of right rules run even where
/// others are wrong.
fn assemble(files: &mut [Loaded], place: &Place) -> Option<PolicySet> {
    let (rules, repo_grants) = gather(files);
    // The matcher names a rule by its index; a protected glob has its file for an owner.
    let mut protected = Patterns::default();
    for (owner, file) in (0..).zip(files.iter()) {
        file.draft.protected.iter().for_each(|named| protected.add_folded(&named.glob, owner));
    }
    let protected = match protected.compile() {
        Ok(index) => index,
        Err(fault) => {
            let at = usize::try_from(fault.owner).ok()?;
            files.get_mut(at)?.page.fault(0..0, format!("a protected glob: {}", fault.message));
            return None;
        }
    };
    let waived = waived(files)?;
    let settings = settings(files);
    let places: Vec<RuleRef> = rules.iter().map(|rule| rule.at.clone()).collect();
    let mut set = match PolicySet::new(place.clone(), settings, rules, protected) {
        Ok(set) => set,
        Err(fault) => {
            let at = places.get(usize::try_from(fault.owner).ok()?)?;
            let drafts = files.iter_mut().filter(|file| file.name == at.file);
            for file in drafts {
                let span = file.draft.rules.iter().find(|rule| rule.id == at.id)?.span.clone();
                file.page.fault(span, format!("a glob of this rule: {}", fault.message));
            }
            return None;
        }
    };
    set.waived = waived;
    set.passed = passed(files);
    set.files = files
        .iter()
        .map(|file| PolicyFile { name: file.name.clone(), tier: file.tier, digest: file.key.1 })
        .collect();
    set.digest = bundle_digest(files);
    set.examples = run_examples(files, &set);
    set.repo_grants = repo_grants;
    Some(set)
}

/// What may be changed without images: files of the checked-out tree have no say in it.
fn waived(files: &mut [Loaded]) -> Option<Waived> {
    let mut patterns = Patterns::default();
    let mut entries: Vec<(usize, Range<usize>, u64)> = Vec::new();
    for (at, file) in files.iter().enumerate().filter(|(_, file)| file.tier != Tier::Repo) {
        for entry in &file.draft.unprotected {
            let owner = u32::try_from(entries.len()).unwrap_or(u32::MAX);
            entry.paths.iter().for_each(|named| patterns.add_exact(&named.glob, owner));
            entries.push((at, entry.span.clone(), entry.max_bytes));
        }
    }
    match patterns.compile() {
        Ok(index) => {
            Some(Waived { index, max_bytes: entries.into_iter().map(|(_, _, most)| most).collect() })
        }
        Err(fault) => {
            let (at, span, _) = entries.get(usize::try_from(fault.owner).ok()?)?;
            files
                .get_mut(*at)?
                .page
                .fault(span.clone(), format!("a glob of this entry: {}", fault.message));
            None
        }
    }
}

/// The rules in the order of file and line, and the grants that the checked-out tree would give
/// itself.
fn gather(files: &[Loaded]) -> (Vec<Rule>, Vec<RuleRef>) {
    let mut rules: Vec<Rule> = Vec::new();
    for file in files {
        let drafts = file.draft.rules.iter().filter_map(|draft| draft.rule.clone());
        rules.extend(drafts.map(|rule| Rule { tier: file.tier, ..rule }));
    }
    let (repo, given): (Vec<Rule>, Vec<Rule>) =
        rules.into_iter().partition(|rule| rule.tier == Tier::Repo && rule.effect == Effect::Allow);
    let known = |rule: &Rule| {
        given.iter().any(|other| {
            other.effect == Effect::Allow && other.tools == rule.tools && other.when == rule.when
        })
    };
    let mut repo_grants: Vec<RuleRef> =
        repo.into_iter().filter(|rule| !known(rule)).map(|rule| rule.at).collect();
    let place = |at: &RuleRef| (at.file.clone(), at.line, at.id.clone());
    repo_grants.sort_by_key(place);
    let mut rules = given;
    rules.sort_by_cached_key(|rule| place(&rule.at));
    (rules, repo_grants)
}

/// The settings that hold: the strictest of what files of authority state, the default where none
/// does, and then what files of the checked-out tree state, where that is stricter still.
fn settings(files: &[Loaded]) -> Settings {
    let of = |repo: bool| -> Vec<Stated> {
        let files = files.iter().filter(|file| (file.tier == Tier::Repo) == repo);
        files.map(|file| file.draft.stated).collect()
    };
    let (above, repo) = (of(false), of(true));
    fn strictest<T: Ord + Copy>(
        above: &[Stated],
        repo: &[Stated],
        default: T,
        stated: impl Fn(&Stated) -> Option<T>,
    ) -> T {
        let base = above.iter().filter_map(&stated).min().unwrap_or(default);
        repo.iter().filter_map(&stated).min().map_or(base, |lower| lower.min(base))
    }
    let default = Settings::default();
    let (above, repo) = (above.as_slice(), repo.as_slice());
    /// As `strictest`, for a setting that holds only if somebody states it.
    fn stated<T: Ord + Copy>(
        above: &[Stated],
        repo: &[Stated],
        of: impl Fn(&Stated) -> Option<T>,
    ) -> Option<T> {
        above.iter().chain(repo).filter_map(of).min()
    }
    Settings {
        mode: strictest(above, repo, default.mode, |stated| stated.mode),
        profile: strictest(above, repo, default.profile, |stated| stated.profile),
        sensitive_override: strictest(above, repo, false, |stated| stated.sensitive_override),
        default: strictest(above, repo, default.default, |stated| stated.default),
        ask_means: strictest(above, repo, default.ask_means, |stated| stated.ask_means),
        on_denial: strictest(above, repo, default.on_denial, |stated| stated.on_denial),
        arg_bytes: strictest(above, repo, default.arg_bytes, |stated| stated.arg_bytes),
        json_depth: strictest(above, repo, default.json_depth, |stated| stated.json_depth),
        iterations: strictest(above, repo, default.iterations, |stated| stated.iterations),
        tool_calls: stated(above, repo, |stated| stated.tool_calls),
        total_tokens: stated(above, repo, |stated| stated.total_tokens),
        wall_time_ms: stated(above, repo, |stated| stated.wall_time_ms),
        files_changed: stated(above, repo, |stated| stated.files_changed),
        bytes_written: stated(above, repo, |stated| stated.bytes_written),
        // The longer window keeps more, so it is the stricter.
        retention_rounds: stated(above, repo, |stated| stated.retention_rounds).map(|rounds| rounds.0),
        hard_links: strictest(above, repo, default.hard_links, |stated| stated.hard_links),
        checkpoint_cap: stated(above, repo, |stated| stated.checkpoint_cap),
        store_cap: stated(above, repo, |stated| stated.store_cap),
        sandbox: strictest(above, repo, default.sandbox, |stated| stated.sandbox),
        command_timeout_ms: strictest(above, repo, default.command_timeout_ms, |stated| {
            stated.command_timeout_ms
        }),
    }
}

/// What commands are given: of several lists what all of them name, and a file of the checked-out
/// tree can only take away.
fn passed(files: &[Loaded]) -> Passed {
    fn common<T: Ord + Clone>(
        files: &[Loaded],
        of: impl Fn(&Draft) -> Option<&BTreeSet<T>>,
    ) -> BTreeSet<T> {
        let (repo, above): (Vec<&Loaded>, Vec<&Loaded>) =
            files.iter().partition(|file| file.tier == Tier::Repo);
        let mut stated = above.iter().filter_map(|file| of(&file.draft));
        let Some(first) = stated.next() else { return BTreeSet::new() };
        let tighter = repo.iter().filter_map(|file| of(&file.draft));
        stated.chain(tighter).fold(first.clone(), |all, more| all.intersection(more).cloned().collect())
    }
    Passed {
        variables: common(files, |draft| draft.variables.as_ref()),
        toolchains: common(files, |draft| draft.toolchains.as_ref()),
    }
}

/// SHA-256 over the sorted (file name, NUL, bytes, NUL); where the files were read is left out.
fn bundle_digest(files: &[Loaded]) -> Digest {
    let mut named: Vec<(&str, &[u8])> =
        files.iter().map(|file| (file.key.0.as_str(), file.bytes.as_slice())).collect();
    named.retain(|(name, _)| !name.is_empty());
    named.sort_unstable();
    let mut all = Vec::new();
    for (name, bytes) in named {
        for part in [name.as_bytes(), b"\0", bytes, b"\0"] {
            all.extend_from_slice(part);
        }
    }
    Digest::of(&all)
}

/// Runs the inline examples, each against its own rule, by the matching that decides.
fn run_examples(files: &mut [Loaded], set: &PolicySet) -> u32 {
    let indices: BTreeMap<(&str, &str), u32> = (0..)
        .zip(&set.rules)
        .map(|(index, rule)| ((rule.at.file.as_str(), rule.at.id.as_str()), index))
        .collect();
    let mut count = 0;
    for file in files {
        for draft in &file.draft.rules {
            let Some(index) = indices.get(&(file.name.as_str(), draft.id.as_str())) else { continue };
            for example in &draft.examples {
                count += 1;
                let matches = decide::matches(set, *index, &example.call);
                if matches != example.matches {
                    let found = if matches { "matches" } else { "doesn't match" };
                    let span = example.span.clone();
                    file.page.fault(span, format!("the rule `{}` {found} this example", draft.id));
                }
            }
        }
    }
    count
}
