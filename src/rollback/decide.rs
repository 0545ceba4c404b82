//! The one decision: from what stood before, what was left and what stands now to what putting back
//! may do. Shared by whoever tells it and whoever does it. Pure.

use crate::{
    contract::rollback::{AnalyzedOutcome, InverseOperation},
    id::Digest,
};

/// What stands at a target now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Current {
    /// Nothing: ENOENT or ENOTDIR, and only these.
    Absent,
    /// A file.
    File {
        /// Its digest.
        digest: Digest,
        /// Its version.
        version: String,
        /// Whether its bytes are what stood there before.
        is_pre: bool,
        /// Whether its bytes are what was left there.
        is_post: bool,
        /// Whether its permission bits are those that stood there before.
        has_pre_mode: bool,
        /// Whether its permission bits are those that were left there, and its owner.
        keeps_mode: bool,
        /// Whether another process has it open for writing.
        is_being_written: bool,
        /// Whether it has other hard links, which would keep what is put back from them.
        has_other_names: bool,
    },
    /// Something that isn't a file.
    NoFile,
    /// A symbolic link stands there, or on the way.
    BehindLink,
    /// Nothing by this name, and something whose name only looks different.
    Renamed {
        /// That name.
        to: String,
    },
    /// It can't be looked at.
    Unreadable {
        /// The system's word for why.
        cause: &'static str,
    },
}

/// What is known of the sealed image that would come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Images {
    /// It opens, or none is needed.
    Whole,
    /// It isn't there.
    Missing,
    /// It isn't what was kept.
    Corrupt,
}

/// Everything that the decision rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts<'a> {
    /// Whether something stood there before.
    pub had_file: bool,
    /// Whether something was left there.
    pub left_file: bool,
    /// Whether what comes back is binary.
    pub binary: bool,
    /// Whether the checkpoints hang together.
    pub is_whole: bool,
    /// Whether an operation on it has no proven end.
    pub is_unsettled: bool,
    /// The sealed image that would come back.
    pub images: Images,
    /// Why the path may not be touched, if it may not.
    pub protected: Option<&'a str>,
    /// What stands there.
    pub current: &'a Current,
}

/// What a person may do about a conflict, whatever it is.
pub fn safe_choices() -> Vec<String> {
    ["skip-target", "export-sanitized-patch", "user-authored-resolution"].map(str::to_owned).to_vec()
}

fn conflict(reason: &str) -> AnalyzedOutcome {
    AnalyzedOutcome::Conflict { reason_code: reason.to_owned(), safe_choices: safe_choices() }
}

fn skipped(reason: &str) -> AnalyzedOutcome {
    AnalyzedOutcome::Skipped { reason_code: reason.to_owned() }
}

/// What putting a target back may do.
pub fn decide(facts: &Facts<'_>) -> AnalyzedOutcome {
    if facts.protected.is_some() {
        return skipped("protected-path");
    }
    if let Some(outcome) = unusual(facts) {
        return outcome;
    }
    if let Current::File { has_other_names: true, is_pre, .. } = facts.current
        && !(facts.had_file && *is_pre)
    {
        return conflict("hardlink-detected");
    }
    let eligible = |inverse_operation| match facts.current {
        Current::File { digest, version, .. } => AnalyzedOutcome::AppliedEligible {
            inverse_operation,
            expected_current_digest: Some(*digest),
            expected_current_version: Some(version.clone()),
        },
        _ => AnalyzedOutcome::AppliedEligible {
            inverse_operation,
            expected_current_digest: None,
            expected_current_version: None,
        },
    };
    let restore = if facts.binary {
        InverseOperation::RestoreFromArtifact
    } else {
        InverseOperation::RestorePreImage
    };
    let (is_pre, is_post, has_pre_mode, keeps_mode) = match facts.current {
        Current::File { is_pre, is_post, has_pre_mode, keeps_mode, .. } => {
            (*is_pre, *is_post, *has_pre_mode, *keeps_mode)
        }
        _ => (false, false, true, true),
    };
    let absent = *facts.current == Current::Absent;
    match (facts.had_file, facts.left_file) {
        // Made: nothing stood there.
        (false, _) if absent => eligible(InverseOperation::None),
        (false, true) if is_post && keeps_mode => eligible(InverseOperation::DeleteFile),
        (false, true) if is_post => conflict("metadata-conflict"),
        (false, _) => conflict("content-conflict"),
        // Changed.
        (true, _) if is_pre && !has_pre_mode => conflict("metadata-conflict"),
        (true, true) if is_pre => skipped("already-at-pre-image"),
        (true, true) if is_post && keeps_mode => eligible(restore),
        (true, true) if is_post => conflict("metadata-conflict"),
        (true, true) if absent => conflict("target-deleted"),
        (true, true) => conflict("content-conflict"),
        // Removed.
        (true, false) if absent => eligible(restore),
        (true, false) if is_pre => skipped("already-at-pre-image"),
        (true, false) => conflict("target-recreated"),
    }
}

/// What is wrong before the three images are compared; the first that holds.
fn unusual(facts: &Facts<'_>) -> Option<AnalyzedOutcome> {
    if facts.is_unsettled {
        let reason_code = "operation-unsettled".to_owned();
        return Some(AnalyzedOutcome::UnknownOutcome { reason_code });
    }
    match facts.current {
        Current::BehindLink => return Some(conflict("behind-symlink")),
        Current::Renamed { to } => {
            return Some(AnalyzedOutcome::Mismatch {
                reason_code: "identity-changed".to_owned(),
                to: to.clone(),
            });
        }
        Current::Unreadable { cause } => {
            return Some(AnalyzedOutcome::Inaccessible { reason_code: (*cause).to_owned() });
        }
        Current::File { is_being_written: true, .. } => {
            return Some(AnalyzedOutcome::UnknownOutcome { reason_code: "open-for-writing".to_owned() });
        }
        Current::Absent | Current::File { .. } | Current::NoFile => {}
    }
    if !facts.is_whole {
        return Some(conflict("chain-broken"));
    }
    match facts.images {
        Images::Whole => None,
        Images::Missing => {
            Some(AnalyzedOutcome::Inaccessible { reason_code: "pre-image-not-found".to_owned() })
        }
        Images::Corrupt if facts.binary => Some(conflict("binary-corrupt")),
        Images::Corrupt => Some(conflict("pre-image-corrupt")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(is_pre: bool, is_post: bool) -> Current {
        Current::File {
            digest: Digest::of(b"x"),
            version: "v".to_owned(),
            is_pre,
            is_post,
            has_pre_mode: true,
            keeps_mode: true,
            is_being_written: false,
            has_other_names: false,
        }
    }

    fn facts(current: &Current, had_file: bool, left_file: bool) -> Facts<'_> {
        Facts {
            had_file,
            left_file,
            binary: false,
            is_whole: true,
            is_unsettled: false,
            images: Images::Whole,
            protected: None,
            current,
        }
    }

    /// The kind of an outcome and its reason, or what would be done.
    fn word(outcome: &AnalyzedOutcome) -> String {
        let value = serde_json::to_value(outcome).unwrap();
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        format!("{} {}{}", text("kind"), text("reasonCode"), text("inverseOperation"))
    }

    #[test]
    fn the_table() {
        let (absent, pre, post, other) =
            (Current::Absent, file(true, false), file(false, true), file(false, false));
        for (had, left, current, expected) in [
            (false, true, &absent, "applied-eligible none"),
            (false, true, &post, "applied-eligible delete-file"),
            (false, true, &other, "conflict content-conflict"),
            (false, false, &absent, "applied-eligible none"),
            (false, false, &other, "conflict content-conflict"),
            (true, true, &post, "applied-eligible restore-pre-image"),
            (true, true, &pre, "skipped already-at-pre-image"),
            (true, true, &absent, "conflict target-deleted"),
            (true, true, &other, "conflict content-conflict"),
            (true, true, &Current::NoFile, "conflict content-conflict"),
            (true, false, &absent, "applied-eligible restore-pre-image"),
            (true, false, &pre, "skipped already-at-pre-image"),
            (true, false, &other, "conflict target-recreated"),
            (true, false, &Current::NoFile, "conflict target-recreated"),
        ] {
            assert_eq!(word(&decide(&facts(current, had, left))), expected, "{had} {left} {current:?}");
        }
    }

    /// Whatever else holds: a file is only replaced or removed if its bytes and bits are what was left
    /// there, nobody is writing it, and what comes back opens.
    #[test]
    fn nobody_elses_work_is_ever_overwritten() {
        let mut eligible = 0;
        let flags = [false, true];
        for (had, left, whole, is_pre, is_post) in itertools(flags) {
            for (keeps_mode, written, protected, linked, unsettled) in itertools(flags) {
                for images in [Images::Whole, Images::Missing, Images::Corrupt] {
                    let current = Current::File {
                        digest: Digest::of(b"x"),
                        version: "v".to_owned(),
                        is_pre,
                        is_post,
                        has_pre_mode: true,
                        keeps_mode,
                        is_being_written: written,
                        has_other_names: linked,
                    };
                    let facts = Facts {
                        is_whole: whole,
                        is_unsettled: unsettled,
                        images,
                        protected: protected.then_some("x"),
                        ..facts(&current, had, left)
                    };
                    if let AnalyzedOutcome::AppliedEligible { .. } = decide(&facts) {
                        eligible += 1;
                        assert!(is_post && left && keeps_mode && !written && !protected, "{facts:?}");
                        assert!(whole && images == Images::Whole, "{facts:?}");
                        assert!(!linked && !unsettled, "{facts:?}");
                    }
                }
            }
        }
        assert!(eligible > 0);
    }

    fn itertools(flags: [bool; 2]) -> impl Iterator<Item = (bool, bool, bool, bool, bool)> {
        flags.into_iter().flat_map(move |a| {
            itertools3(flags).flat_map(move |(b, c, d)| flags.into_iter().map(move |e| (a, b, c, d, e)))
        })
    }

    fn itertools3(flags: [bool; 2]) -> impl Iterator<Item = (bool, bool, bool)> {
        flags.into_iter().flat_map(move |a| {
            flags.into_iter().flat_map(move |b| flags.into_iter().map(move |c| (a, b, c)))
        })
    }

    #[test]
    fn what_is_unusual_comes_before_the_images() {
        let renamed = Current::Renamed { to: "F.txt".to_owned() };
        let unreadable = Current::Unreadable { cause: "permission-denied" };
        for (current, expected) in [
            (&Current::BehindLink, "conflict behind-symlink"),
            (&renamed, "mismatch identity-changed"),
            (&unreadable, "inaccessible permission-denied"),
        ] {
            assert_eq!(word(&decide(&facts(current, true, true))), expected);
            let guarded = Facts { protected: Some("floor"), ..facts(current, true, true) };
            assert_eq!(word(&decide(&guarded)), "skipped protected-path");
        }
        let post = file(false, true);
        let broken = Facts { is_whole: false, ..facts(&post, true, true) };
        assert_eq!(word(&decide(&broken)), "conflict chain-broken");
        for (images, binary, expected) in [
            (Images::Missing, false, "inaccessible pre-image-not-found"),
            (Images::Corrupt, false, "conflict pre-image-corrupt"),
            (Images::Corrupt, true, "conflict binary-corrupt"),
            (Images::Whole, true, "applied-eligible restore-from-artifact"),
        ] {
            let facts = Facts { images, binary, ..facts(&post, true, true) };
            assert_eq!(word(&decide(&facts)), expected);
        }
    }
}
