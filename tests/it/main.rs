//! The one integration binary.
#![expect(clippy::disallowed_methods, reason = "tests arrange files, times and variables themselves")]

#[cfg(test)]
mod accept;
#[cfg(test)]
mod apply;
#[cfg(test)]
mod budgets;
#[cfg(test)]
mod canaries;
#[cfg(test)]
mod cli;
#[cfg(test)]
mod command_properties;
#[cfg(test)]
mod commands;
#[cfg(test)]
mod contract;
#[cfg(test)]
mod env;
#[cfg(test)]
mod expectations;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod files_corpus;
#[cfg(test)]
mod gc;
#[cfg(test)]
mod kills;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod mock;
#[cfg(test)]
mod pipeline;
#[cfg(test)]
mod policy_corpus;
#[cfg(test)]
mod policy_files;
#[cfg(test)]
mod policy_properties;
#[cfg(test)]
#[cfg(feature = "fault-injection")]
mod power;
#[cfg(test)]
mod provider_http;
#[cfg(test)]
mod races;
#[cfg(test)]
mod recover;
#[cfg(test)]
mod redaction;
#[cfg(test)]
mod rollback;
#[cfg(test)]
mod run;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod sequences;
#[cfg(test)]
mod signals;
#[cfg(test)]
mod state;
#[cfg(test)]
mod sweep;
#[cfg(test)]
mod tidy;
#[cfg(test)]
mod told;
#[cfg(test)]
mod undo_corpus;
#[cfg(test)]
mod vault;
#[cfg(test)]
mod verify;
#[cfg(test)]
#[cfg(feature = "fault-injection")]
mod volume;
