//! The composition root: one function a verb, each ending with a contract document.
//!
//! Reads what the caller named and hands values to the pure rooms. Prints nothing.

pub mod doctor;
mod ended;
pub mod explain_exit;
mod failure;
mod git;
mod input;
pub mod keeping;
pub mod key;
pub mod logging;
mod observe;
pub mod policy_files;
pub mod policy_verbs;
pub mod prompt;
mod providers;
pub mod recover;
pub mod rollback;
pub mod run;
pub mod schema;
pub mod session_verbs;
pub mod state;
mod state_failure;
mod store_accept;
pub mod store_gc;
pub mod store_verbs;
pub mod store_verify;

pub use crate::redact::{Redactor, Spelling, disarm};
pub use ended::{Ended, Finished, finish};
pub use failure::{
    Fail, cancelled, document_invalid, file_error, output_error, output_is_input, panicked, unfinished,
    usage,
};
pub use providers::{ProviderOptions, header_variables};
pub use run::RunOptions;
pub use state::StateOptions;

use std::{path::PathBuf, sync::Arc};

use crate::{host::Host, redact::known_secrets, workspace::Root};

/// What every verb is given.
#[derive(Debug, Clone)]
pub struct Common {
    /// The directory to work in; the process's own if not given.
    pub dir: Option<PathBuf>,
    /// Where the JSON document goes besides standard output.
    pub out_file: Option<PathBuf>,
    /// Where the state is, and its key.
    pub state: StateOptions,
}

impl Common {
    fn dir(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(|| PathBuf::from("."))
    }

    fn root(&self, host: &Host) -> Result<Root, Fail> {
        Ok(Root::open(&self.dir(), host.home().as_deref())?)
    }
}

/// Knows the secret values of this process's environment, and those that the caller named.
pub fn redactor(host: &Host, variables: &[String]) -> Arc<Redactor> {
    let mut secrets = known_secrets(&host.vars());
    secrets.extend(variables.iter().filter_map(|name| Some((name.clone(), host.text_var(name)?))));
    let redactor = Redactor::new(secrets);
    // The control of the tests for leaks: without shapes they must find some.
    Arc::new(if host.fault("redact-without-shapes") { redactor.without_shapes() } else { redactor })
}
