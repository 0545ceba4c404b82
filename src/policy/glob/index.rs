//! Many globs at once: which of their owners match a path.

use std::collections::BTreeMap;

use super::{Glob, Spelling};
use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};

/// The globs that are compiled into one automaton; more, and it outgrows its cache.
const CHUNK: usize = 256;

/// Globs, compiled, each with the rules that it belongs to.
#[derive(Debug, Clone, Default)]
pub(in crate::policy) struct GlobIndex {
    chunks: Vec<Chunk>,
    /// For paths that aren't ASCII, beside the others.
    wide: Vec<Chunk>,
}

/// Globs on their way into an index. One that many rules share is compiled once.
#[derive(Debug, Default)]
pub(in crate::policy) struct Patterns {
    plain: BTreeMap<String, Vec<u32>>,
    wide: BTreeMap<String, Vec<u32>>,
}

impl Patterns {
    /// Adds a glob of a grant.
    pub(in crate::policy) fn add_exact(&mut self, glob: &Glob, owner: u32) {
        add(&mut self.plain, glob, Spelling::Exact, owner);
    }

    /// Adds a glob of a deny or an ask.
    pub(in crate::policy) fn add_folded(&mut self, glob: &Glob, owner: u32) {
        add(&mut self.plain, glob, Spelling::Folded, owner);
        if glob.has_wide() {
            add(&mut self.wide, glob, Spelling::Wide, owner);
        }
    }

    /// Compiles them.
    pub(in crate::policy) fn compile(self) -> Result<GlobIndex, Uncompilable> {
        Ok(GlobIndex { chunks: compile_all(self.plain)?, wide: compile_all(self.wide)? })
    }
}

fn add(into: &mut BTreeMap<String, Vec<u32>>, glob: &Glob, spelling: Spelling, owner: u32) {
    for text in glob.written(spelling) {
        let owners = into.entry(text).or_default();
        if owners.last() != Some(&owner) {
            owners.push(owner);
        }
    }
}

#[derive(Debug, Clone)]
struct Chunk {
    set: GlobSet,
    owners: Vec<Vec<u32>>,
}

/// A pattern that the matcher refuses, and an owner of it.
#[derive(Debug)]
pub(in crate::policy) struct Uncompilable {
    /// The rule.
    pub(in crate::policy) owner: u32,
    /// What the matcher says.
    pub(in crate::policy) message: String,
}

impl GlobIndex {
    /// Whether it holds no glob.
    pub(in crate::policy) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Adds to `owners` the owners of every glob that matches; the caller sorts.
    pub(in crate::policy) fn matching(&self, path: &str, owners: &mut Vec<u32>) {
        let candidate = Candidate::from_bytes(path);
        let wide = if path.is_ascii() { &[] } else { self.wide.as_slice() };
        let mut hits = Vec::new();
        for chunk in self.chunks.iter().chain(wide) {
            chunk.set.matches_candidate_into(&candidate, &mut hits);
            for hit in &hits {
                owners.extend(chunk.owners.get(*hit).into_iter().flatten());
            }
        }
    }
}

fn compile_all(patterns: BTreeMap<String, Vec<u32>>) -> Result<Vec<Chunk>, Uncompilable> {
    let mut chunks = Vec::new();
    // In the order of their text: patterns that start alike share an automaton.
    let patterns: Vec<(String, Vec<u32>)> = patterns.into_iter().collect();
    for patterns in patterns.chunks(CHUNK) {
        compile(patterns, &mut chunks)?;
    }
    Ok(chunks)
}

fn compile(patterns: &[(String, Vec<u32>)], into: &mut Vec<Chunk>) -> Result<(), Uncompilable> {
    match set_of(patterns) {
        Ok(set) => {
            into.push(Chunk {
                set,
                owners: patterns.iter().map(|(_, owners)| owners.clone()).collect(),
            });
            Ok(())
        }
        Err(message) => match patterns {
            [(_, owners)] => {
                Err(Uncompilable { owner: owners.first().copied().unwrap_or_default(), message })
            }
            // Too large together, or one of them is at fault: the halves tell.
            _ => {
                let (low, high) = patterns.split_at(patterns.len() / 2);
                compile(low, into)?;
                compile(high, into)
            }
        },
    }
}

fn set_of(patterns: &[(String, Vec<u32>)]) -> Result<GlobSet, String> {
    let mut builder = GlobSetBuilder::new();
    for (pattern, _) in patterns {
        let glob = GlobBuilder::new(pattern)
            .literal_separator(true)
            .backslash_escape(true)
            .empty_alternates(true)
            .build()
            .map_err(|fault| fault.kind().to_string())?;
        builder.add(glob);
    }
    builder.build().map_err(|fault| fault.kind().to_string())
}
