//! The crash table: what stands at the target and beside it says what became of an operation. Pure.

use crate::{
    contract::recovery::{Evidence, Sighting},
    journal::Resolution,
};

/// What became of an operation, and what is left to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is proven. The machine can settle it.
    Settled {
        /// As what.
        resolution: Resolution,
        /// What lies beside the target.
        debris: Debris,
    },
    /// A person has to look, or has to say which way.
    Person(Why),
}

/// What lies beside the target, and what is to become of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Debris {
    /// Nothing.
    None,
    /// Something that is proven to be ours: it is removed.
    Sweep,
    /// Something that isn't: it is left and named.
    Keep,
}

/// Why a person is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Somebody's save lies under the temporary name.
    Displaced,
    /// The file was deleted, and another one was made in its place before the deletion was whole.
    Recreated,
    /// What stands is neither what was there before nor what was to be there.
    UnknownContent,
    /// It can't be read.
    Unreadable,
    /// This may not be the workspace that the operation was of.
    WorkspaceNotProven,
    /// Processes of the command still run.
    StillRunning,
    /// What became of one of its parts isn't proven.
    PartsOpen,
}

impl Why {
    /// The word of the reason.
    pub fn token(self) -> &'static str {
        match self {
            Self::Displaced => "displaced",
            Self::Recreated => "target-recreated",
            Self::UnknownContent => "unknown-content",
            Self::Unreadable => "unreadable",
            Self::WorkspaceNotProven => "workspace-not-proven",
            Self::StillRunning => "still-running",
            Self::PartsOpen => "parts-unproven",
        }
    }
}

/// What the operation was to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Leave a file that differs from what stood there, if anything did.
    Write {
        /// Whether nothing stood there.
        creates: bool,
    },
    /// Leave a file with the very bytes that stood there.
    Same,
    /// Leave nothing.
    Delete,
}

/// The verdict of the crash table.
pub fn verdict(pre: Option<[u8; 32]>, post: Option<[u8; 32]>, seen: Evidence) -> Verdict {
    let shape = match (pre, post) {
        (_, None) => Shape::Delete,
        (Some(pre), Some(post)) if pre == post => Shape::Same,
        (pre, Some(_)) => Shape::Write { creates: pre.is_none() },
    };
    of_shape(shape, seen)
}

pub(super) fn of_shape(shape: Shape, seen: Evidence) -> Verdict {
    if seen.target == Sighting::Unreadable || seen.temp == Sighting::Unreadable {
        return Verdict::Person(Why::Unreadable);
    }
    match shape {
        Shape::Write { creates } => written(creates, seen),
        Shape::Same => same(seen),
        Shape::Delete => deleted(seen),
    }
}

fn settled(resolution: Resolution, debris: Debris) -> Verdict {
    Verdict::Settled { resolution, debris }
}

fn written(creates: bool, seen: Evidence) -> Verdict {
    let before = if creates { Sighting::Absent } else { Sighting::Pre };
    let sweep = if seen.temp == Sighting::Absent { Debris::None } else { Debris::Sweep };
    match (seen.target, seen.temp) {
        (target, Sighting::Absent | Sighting::Post | Sighting::Partial) if target == before => {
            settled(Resolution::NotApplied, sweep)
        }
        (target, _) if target == before => settled(Resolution::NotApplied, Debris::Keep),
        // A second name of the very content that stands: nothing is lost with it.
        (Sighting::Post, Sighting::Absent | Sighting::Pre | Sighting::Post) => {
            settled(Resolution::Applied, sweep)
        }
        (Sighting::Post, _) => Verdict::Person(Why::Displaced),
        (_, Sighting::Post) => settled(Resolution::NotApplied, Debris::Sweep),
        (_, Sighting::Pre) => settled(Resolution::Applied, Debris::Sweep),
        _ => Verdict::Person(Why::UnknownContent),
    }
}

fn same(seen: Evidence) -> Verdict {
    match seen.temp {
        Sighting::Absent => settled(Resolution::NoChange, Debris::None),
        Sighting::Pre | Sighting::Post | Sighting::Partial => {
            settled(Resolution::NoChange, Debris::Sweep)
        }
        // An exchange brought somebody's save out.
        Sighting::Else | Sighting::Unreadable => match seen.target {
            Sighting::Pre | Sighting::Post => Verdict::Person(Why::Displaced),
            _ => settled(Resolution::NoChange, Debris::Keep),
        },
    }
}

fn deleted(seen: Evidence) -> Verdict {
    match (seen.target, seen.temp) {
        (Sighting::Absent, Sighting::Absent) => settled(Resolution::Applied, Debris::None),
        // The last step of the deletion is left to do.
        (Sighting::Absent, Sighting::Pre) => settled(Resolution::Finished, Debris::Sweep),
        (Sighting::Absent, _) => Verdict::Person(Why::Displaced),
        (Sighting::Pre, Sighting::Absent) => settled(Resolution::NotApplied, Debris::None),
        // A second name of the very content that stands.
        (Sighting::Pre, Sighting::Pre) => settled(Resolution::NotApplied, Debris::Sweep),
        (Sighting::Pre, _) => settled(Resolution::NotApplied, Debris::Keep),
        (_, Sighting::Pre) => Verdict::Person(Why::Recreated),
        (_, Sighting::Absent) => Verdict::Person(Why::UnknownContent),
        _ => Verdict::Person(Why::Displaced),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Sighting; 6] = [
        Sighting::Absent,
        Sighting::Pre,
        Sighting::Post,
        Sighting::Partial,
        Sighting::Else,
        Sighting::Unreadable,
    ];
    const SHAPES: [Shape; 4] =
        [Shape::Write { creates: true }, Shape::Write { creates: false }, Shape::Same, Shape::Delete];

    fn at(shape: Shape, target: Sighting, temp: Sighting) -> Verdict {
        of_shape(shape, Evidence { target, temp })
    }

    /// What lies beside the target is removed only if its content is known to be ours, or was cut off.
    #[test]
    fn nothing_is_swept_that_is_not_ours() {
        for shape in SHAPES {
            for target in ALL {
                for temp in ALL {
                    if let Verdict::Settled { debris: Debris::Sweep, .. } = at(shape, target, temp) {
                        let ours = matches!(temp, Sighting::Pre | Sighting::Post | Sighting::Partial);
                        assert!(ours, "{shape:?} {target:?} {temp:?}");
                        // A cut-off file is ours only where nothing was published yet.
                        let cut = temp == Sighting::Partial && target == Sighting::Post;
                        assert!(!cut || shape == Shape::Same, "{shape:?} {target:?}");
                    }
                }
            }
        }
    }

    /// The only copy of the old content is never removed while the new one isn't proven to stand.
    #[test]
    fn the_last_copy_of_the_old_content_stays() {
        for target in ALL {
            let verdict = at(Shape::Delete, target, Sighting::Pre);
            let swept = matches!(verdict, Verdict::Settled { debris: Debris::Sweep, .. });
            assert_eq!(swept, matches!(target, Sighting::Absent | Sighting::Pre), "{target:?}");
        }
    }

    #[test]
    fn the_table() {
        use Sighting::{Absent, Else, Partial, Post, Pre};
        let edit = Shape::Write { creates: false };
        let create = Shape::Write { creates: true };
        let settles = |resolution, debris| settled(resolution, debris);
        let person = Verdict::Person;
        for (shape, target, temp, expected) in [
            (edit, Pre, Absent, settles(Resolution::NotApplied, Debris::None)),
            (edit, Pre, Post, settles(Resolution::NotApplied, Debris::Sweep)),
            (edit, Pre, Partial, settles(Resolution::NotApplied, Debris::Sweep)),
            (edit, Pre, Else, settles(Resolution::NotApplied, Debris::Keep)),
            (edit, Post, Absent, settles(Resolution::Applied, Debris::None)),
            (edit, Post, Pre, settles(Resolution::Applied, Debris::Sweep)),
            (edit, Post, Else, person(Why::Displaced)),
            (edit, Post, Partial, person(Why::Displaced)),
            (edit, Else, Post, settles(Resolution::NotApplied, Debris::Sweep)),
            (edit, Else, Pre, settles(Resolution::Applied, Debris::Sweep)),
            (edit, Absent, Pre, settles(Resolution::Applied, Debris::Sweep)),
            (edit, Else, Absent, person(Why::UnknownContent)),
            (edit, Else, Else, person(Why::UnknownContent)),
            (edit, Absent, Absent, person(Why::UnknownContent)),
            (create, Absent, Absent, settles(Resolution::NotApplied, Debris::None)),
            (create, Absent, Partial, settles(Resolution::NotApplied, Debris::Sweep)),
            (create, Post, Absent, settles(Resolution::Applied, Debris::None)),
            (create, Else, Post, settles(Resolution::NotApplied, Debris::Sweep)),
            (create, Else, Absent, person(Why::UnknownContent)),
            (Shape::Delete, Absent, Pre, settles(Resolution::Finished, Debris::Sweep)),
            (Shape::Delete, Absent, Absent, settles(Resolution::Applied, Debris::None)),
            (Shape::Delete, Absent, Else, person(Why::Displaced)),
            (Shape::Delete, Else, Pre, person(Why::Recreated)),
            (Shape::Delete, Pre, Absent, settles(Resolution::NotApplied, Debris::None)),
            (Shape::Same, Pre, Absent, settles(Resolution::NoChange, Debris::None)),
            (Shape::Same, Pre, Pre, settles(Resolution::NoChange, Debris::Sweep)),
            (Shape::Same, Pre, Else, person(Why::Displaced)),
        ] {
            assert_eq!(at(shape, target, temp), expected, "{shape:?} {target:?} {temp:?}");
        }
    }

    #[test]
    fn what_can_not_be_read_is_never_settled() {
        for shape in SHAPES {
            for other in ALL {
                let unreadable = Verdict::Person(Why::Unreadable);
                assert_eq!(at(shape, Sighting::Unreadable, other), unreadable);
                assert_eq!(at(shape, other, Sighting::Unreadable), unreadable);
            }
        }
    }
}
