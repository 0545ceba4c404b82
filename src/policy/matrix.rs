//! The permission matrix under every policy, version 1: one exhaustive match.

use super::{call::ActionClass, verdict::Decision};

/// Whether the turn may change anything. The stricter first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// Read only.
    Plan,
    /// What the policy grants.
    Build,
}

impl Mode {
    /// The word that documents and policies use.
    pub fn token(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Build => "build",
        }
    }
}

/// How far a call without a grant is trusted. The stricter first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Profile {
    /// Every change needs a grant.
    Manual,
    /// As manual, in this version of the matrix.
    Assisted,
    /// What no floor, deny or ask touches is allowed.
    FullAccess,
}

impl Profile {
    /// The word that documents and policies use.
    pub fn token(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Assisted => "assisted",
            Self::FullAccess => "full-access",
        }
    }
}

/// What the matrix says of a class. `Ask` is what a named rule resolves; `Deny` nothing can.
pub fn judge(mode: Mode, profile: Profile, class: ActionClass, sensitive_override: bool) -> Decision {
    match (mode, class) {
        (_, ActionClass::ReadFile | ActionClass::ListFiles | ActionClass::SearchText) => Decision::Allow,
        (
            Mode::Plan,
            ActionClass::WriteFile
            | ActionClass::Delete
            | ActionClass::RunCommand
            | ActionClass::Transfer,
        ) => Decision::Deny,
        (Mode::Build, ActionClass::WriteFile | ActionClass::Delete | ActionClass::RunCommand) => {
            match profile {
                Profile::Manual | Profile::Assisted => Decision::Ask,
                Profile::FullAccess => Decision::Allow,
            }
        }
        (Mode::Build, ActionClass::Transfer) => match profile {
            Profile::FullAccess if sensitive_override => Decision::Allow,
            Profile::Manual | Profile::Assisted | Profile::FullAccess => Decision::Ask,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::{super::call::BUILTIN_TOOLS, *};

    /// The table as it stands in the specification: plan, then build by profile.
    #[test]
    fn the_matrix_is_the_table() {
        use Decision::{Allow, Ask, Deny};
        for (_, class) in BUILTIN_TOOLS {
            let row = match class {
                ActionClass::ReadFile | ActionClass::ListFiles | ActionClass::SearchText => {
                    [Allow, Allow, Allow, Allow, Allow]
                }
                ActionClass::WriteFile | ActionClass::Delete | ActionClass::RunCommand => {
                    [Deny, Ask, Ask, Allow, Allow]
                }
                ActionClass::Transfer => [Deny, Ask, Ask, Ask, Allow],
            };
            let [plan, manual, assisted, full, overridden] = row;
            for profile in [Profile::Manual, Profile::Assisted, Profile::FullAccess] {
                for sensitive in [false, true] {
                    assert_eq!(judge(Mode::Plan, profile, *class, sensitive), plan);
                }
            }
            assert_eq!(judge(Mode::Build, Profile::Manual, *class, false), manual);
            assert_eq!(judge(Mode::Build, Profile::Manual, *class, true), manual);
            assert_eq!(judge(Mode::Build, Profile::Assisted, *class, false), assisted);
            assert_eq!(judge(Mode::Build, Profile::Assisted, *class, true), assisted);
            assert_eq!(judge(Mode::Build, Profile::FullAccess, *class, false), full);
            assert_eq!(judge(Mode::Build, Profile::FullAccess, *class, true), overridden);
        }
    }
}
