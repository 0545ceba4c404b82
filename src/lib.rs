//! thcode runs an LLM coding agent where nobody is watching.
//!
//! **Stability.** Only the command line, the documents (`schemas/`) and the exit codes are stable.
//! The Rust items below are public so that the rooms stay checkable one by one; they may change in
//! any release. How the rooms fit together: `ARCHITECTURE.md`.

pub mod id;

pub mod host;

pub mod redact;

pub mod crypto;

pub mod floor;

pub mod contract;

pub mod policy;

pub mod store;

pub mod workspace;

pub mod journal;

pub mod session;

pub mod checkpoint;

pub mod mutation;

pub mod recovery;

pub mod diff;

pub mod rollback;

pub mod provider;

pub mod tool;

pub mod agent;

pub mod app;

pub mod cli;
