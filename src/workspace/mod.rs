//! **Reading** the user's tree: containment by handle.
//!
//! A path is followed component by component from the root's handle, so that no name can lead out;
//! what a verdict was given for is what is opened. Never writes, never opens anything but a regular
//! file or a directory, never waits on what it opens.
#![expect(
    clippy::disallowed_methods,
    reason = "this room is where the user's tree is opened, by handle"
)]

mod look;
mod root;
mod walk;

pub use look::{Kind, Look, Spot};
pub use root::{Root, WorkspaceError};
pub use walk::{Entry, EntryKind, Skip, Step, Walk, WalkEnd};
