//! `thcode doctor`.

use clap::Args;

use super::{Done, policy::PolicyArgs, run::ProviderArgs};
use crate::{
    app::{self, Common},
    host::Host,
};

/// What the run would be given.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  thcode doctor --policy preset:review --provider openai")]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    pub(super) policy: PolicyArgs,
    #[command(flatten)]
    pub(super) provider: ProviderArgs,
}

pub(super) fn dispatch(host: &Host, common: &Common, args: &DoctorArgs) -> Done {
    Ok(app::doctor::examine(host, common, &args.policy.app(), &args.provider.app()))
}
