//! The only writer of user files.

pub mod edit;
