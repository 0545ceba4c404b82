//! What a reader has to know beside the outcome: operations whose outcome isn't proven, and changes that
//! were not made for want of what the machine gives. The class doesn't follow from them alone.

use std::collections::BTreeMap;

use crate::id::OperationId;

/// Changes that are told one by one.
const MOST_TOLD: usize = 3;
/// Causes that lie in the place, not in the call: no other call of the model's would have helped.
const OF_THE_PLACE: &[&str] = &[
    "crosses-mount",
    "io-error",
    "metadata-not-preservable",
    "no-space",
    "over-cap",
    "permission-denied",
    "quota-exceeded",
    "read-only-file",
    "read-only-file-system",
    "target-busy",
    "too-many-open-files",
    "unreadable",
];

/// What there is to tell.
#[derive(Debug, Default)]
pub(super) struct Risks {
    /// Operations of this turn, as they are told.
    unproven: Vec<String>,
    /// One of an earlier run stands.
    pub(super) earlier_unproven: bool,
    /// By its path, what was to be done to a file and why it wasn't: the last word on each.
    not_made: BTreeMap<String, String>,
}

impl Risks {
    pub(super) fn unproven(&mut self, operation_id: OperationId, tool: &str, target: Option<&str>) {
        let what = format!("{tool} {}", target.unwrap_or_default());
        self.unproven.push(format!(
            "what became of {} isn't proven (operation {operation_id}): `thcode recover` tells what stands",
            what.trim_end()
        ));
    }

    pub(super) fn not_made(&mut self, tool: &str, path: Option<&str>, cause: &'static str) {
        let Some(path) = path else { return };
        if OF_THE_PLACE.contains(&cause) {
            self.not_made.insert(path.to_owned(), format!("{tool} {path} [{cause}]"));
        }
    }

    /// A later change of the same file was made.
    pub(super) fn made(&mut self, path: Option<&str>) {
        if let Some(path) = path {
            self.not_made.remove(path);
        }
    }

    pub(super) fn any_unknown(&self) -> bool {
        self.earlier_unproven || !self.unproven.is_empty()
    }

    pub(super) fn told(&self) -> Vec<String> {
        let mut told = self.unproven.clone();
        if !self.not_made.is_empty() {
            let first: Vec<&str> = self.not_made.values().take(MOST_TOLD).map(String::as_str).collect();
            let more = match self.not_made.len().saturating_sub(MOST_TOLD) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let (count, were) = match self.not_made.len() {
                1 => ("1 change".to_owned(), "was"),
                several => (format!("{several} changes"), "were"),
            };
            told.push(format!(
                "{count} of files {were} tried and could not be made here: {}{more}",
                first.join(", ")
            ));
        }
        told
    }
}
