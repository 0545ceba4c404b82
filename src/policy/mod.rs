//! What stands in for a person: policy files, and the pure function that decides a call by them.
//!
//! Pure throughout: no clock, no I/O, no order dependence. Whoever reads files or looks at the disk
//! does it elsewhere and hands values in.

pub mod call;
pub mod command;
pub mod decide;
pub mod diagnostic;
pub mod environment;
pub mod explain;
mod glob;
pub mod load;
pub mod matrix;
pub mod path;
pub mod preset;
pub mod rule;
pub mod set;
pub mod verdict;
