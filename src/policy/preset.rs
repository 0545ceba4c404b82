//! The policies that are shipped: `preset:NAME`.

use super::{load::Source, rule::Tier};

/// What a name of a preset starts with.
const PREFIX: &str = "preset:";

/// The preset that a run without a policy gets.
pub const DEFAULT: &str = "preset:read-only";

/// Their names and texts.
const PRESETS: &[(&str, &str)] = &[
    ("read-only", include_str!("../../policies/read-only.policy.toml")),
    ("refactor", include_str!("../../policies/refactor.policy.toml")),
    ("review", include_str!("../../policies/review.policy.toml")),
];

/// The names of the presets, as they are given: `preset:refactor`.
pub fn names() -> impl Iterator<Item = String> {
    PRESETS.iter().map(|(name, _)| format!("{PREFIX}{name}"))
}

/// Whether this is meant to be a preset.
pub fn is_preset(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// A preset by the name that it is given by. The one that holds where nobody named a policy is of
/// the tier builtin; one that a caller named is the caller's.
pub fn source(name: &str, tier: Tier) -> Option<Source> {
    let short = name.strip_prefix(PREFIX)?;
    let (_, text) = PRESETS.iter().find(|(preset, _)| *preset == short)?;
    Some(Source {
        name: name.to_owned(),
        file_name: name.to_owned(),
        tier,
        bytes: text.as_bytes().to_vec(),
    })
}
