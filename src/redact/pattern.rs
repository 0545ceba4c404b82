//! The compiled forms of all secrets: where they stand in a text, and whether one could begin at
//! the end of a piece.

use std::collections::BTreeMap;

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, AhoCorasickKind};

use super::{Hit, Owner, encoding::Form};

/// Every form, sorted by how its case is compared.
pub(super) struct Patterns {
    exact: Group,
    any_case: Group,
}

/// Forms that are compared alike.
struct Group {
    /// Sorted, so that a prefix is found by bisection; and the secret that each belongs to.
    forms: Vec<(Vec<u8>, usize)>,
    /// The length of the longest. Bytes.
    longest: usize,
    /// Which bytes a form begins with.
    first: [bool; 256],
    any_case: bool,
    machine: Machine,
}

enum Machine {
    /// There are no forms.
    Nothing,
    /// Finds all of them.
    Finder(AhoCorasick),
    /// The forms are too many to be compiled (gigabytes): nothing can be told, so all is hidden.
    Everything,
}

impl Patterns {
    pub(super) fn compile(forms: impl Iterator<Item = (usize, Form)>) -> Self {
        let (mut exact, mut any_case) = (BTreeMap::new(), BTreeMap::new());
        for (secret, form) in forms {
            if form.any_case {
                any_case.entry(form.text.to_ascii_lowercase().into_bytes()).or_insert(secret);
            } else {
                exact.entry(form.text.into_bytes()).or_insert(secret);
            }
        }
        Self { exact: Group::compile(exact, false), any_case: Group::compile(any_case, true) }
    }

    /// Every match, overlapping ones too, in no order.
    pub(super) fn matches(&self, text: &str) -> Vec<Hit> {
        let mut hits = Vec::new();
        for group in [&self.exact, &self.any_case] {
            match &group.machine {
                Machine::Nothing => {}
                Machine::Everything => {
                    hits.push(Hit { span: 0..text.len(), owner: Owner::Known(usize::MAX) })
                }
                Machine::Finder(finder) => {
                    hits.extend(finder.find_overlapping_iter(text).filter_map(|m| {
                        let (_, secret) = group.forms.get(m.pattern().as_usize())?;
                        Some(Hit { span: m.range(), owner: Owner::Known(*secret) })
                    }))
                }
            }
        }
        hits
    }

    /// Where the longest end of the text that could begin a form begins; the text's length if none.
    pub(super) fn open_end(&self, text: &str) -> usize {
        self.exact.open_end(text.as_bytes()).min(self.any_case.open_end(text.as_bytes()))
    }
}

impl Group {
    fn compile(forms: BTreeMap<Vec<u8>, usize>, any_case: bool) -> Self {
        let forms: Vec<_> = forms.into_iter().collect();
        let mut first = [false; 256];
        for (slot, byte) in first.iter_mut().zip(0..=u8::MAX) {
            let lower = if any_case { byte.to_ascii_lowercase() } else { byte };
            *slot = forms.iter().any(|(form, _)| form.first() == Some(&lower));
        }
        let machine = if forms.is_empty() {
            Machine::Nothing
        } else {
            AhoCorasickBuilder::new()
                .kind(Some(AhoCorasickKind::ContiguousNFA))
                .ascii_case_insensitive(any_case)
                .build(forms.iter().map(|(form, _)| form))
                .map_or(Machine::Everything, Machine::Finder)
        };
        let longest = forms.iter().map(|(form, _)| form.len()).max().unwrap_or(0);
        Self { forms, longest, first, any_case, machine }
    }

    fn open_end(&self, text: &[u8]) -> usize {
        // A form that begins earlier would have ended already.
        let earliest = text.len().saturating_sub(self.longest.saturating_sub(1));
        let mut tail = text.get(earliest..).unwrap_or_default().to_vec();
        if self.any_case {
            tail.make_ascii_lowercase();
        }
        let opens = |at: &usize| {
            let end = tail.get(*at..).unwrap_or_default();
            end.first().is_some_and(|byte| self.first.get(usize::from(*byte)) == Some(&true))
                && self.begins_a_form(end)
        };
        (0..tail.len()).find(opens).map_or(text.len(), |at| earliest + at)
    }

    /// Whether some form is longer than this and begins with it.
    fn begins_a_form(&self, end: &[u8]) -> bool {
        // Forms sort directly behind their own prefixes.
        let from = self.forms.partition_point(|(form, _)| form.as_slice() <= end);
        self.forms.get(from).is_some_and(|(form, _)| form.starts_with(end))
    }
}
