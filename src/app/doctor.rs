//! `doctor`: what this machine gives, and whether the run that was asked about would start.

use super::{
    Common, Ended, Fail,
    policy_files::{self, NoPolicy, PolicyOptions},
    providers::{self, ProviderOptions},
    run::no_openat2,
    state,
};
use crate::{
    contract::{
        CauseCode, ExitClass, Failure, TOOL_VERSION,
        doctor::{DoctorCheck, DoctorReport, DoctorReportSchema, DoctorStatus},
    },
    host::Host,
    store::{ReadStore, StoreError},
    workspace::Root,
};

/// Looks at everything that a run needs, in the order in which a run would.
pub fn examine(
    host: &Host,
    common: &Common,
    policy: &PolicyOptions,
    provider: &ProviderOptions,
) -> Ended {
    let mut checks = Vec::new();
    let root = match common.root(host) {
        Ok(root) => {
            checks.push(check("workspace", DoctorStatus::Ok, root.path()));
            Some(root)
        }
        Err(fail) => {
            checks.push(check("workspace", DoctorStatus::Refused, &fail.failure.message));
            None
        }
    };
    if let Some(root) = &root {
        checks.push(kernel(root));
        checks.push(state_check(host, common, root));
        checks.push(policy_check(host, root, policy));
    }
    checks.push(provider_check(host, provider));
    let refused: Vec<&str> = checks
        .iter()
        .filter(|check| check.status == DoctorStatus::Refused)
        .map(|check| check.name.as_str())
        .collect();
    let failure = (!refused.is_empty()).then(|| {
        let message = format!("a run would be refused over: {}", refused.join(", "));
        Failure::new(CauseCode::RunWouldBeRefused, message).action("mend what the checks name")
    });
    let exit_class = if failure.is_some() { ExitClass::Blocked } else { ExitClass::Success };
    Ended::Doctor(DoctorReport {
        schema: DoctorReportSchema,
        tool_version: TOOL_VERSION.to_owned(),
        workspace: root.map(|root| root.path().to_owned()),
        checks,
        failure,
        exit_class,
        exit_code: exit_class.code(),
    })
}

fn kernel(root: &Root) -> DoctorCheck {
    match root.contains_by_handle() {
        Ok(()) => check("kernel-openat2", DoctorStatus::Ok, "paths are contained by handle"),
        Err(error) => {
            let fail = no_openat2(&error);
            check("kernel-openat2", DoctorStatus::Refused, &fail.failure.message)
        }
    }
}

/// Looks at the state directory and the key, and makes neither.
fn state_check(host: &Host, common: &Common, root: &Root) -> DoctorCheck {
    let looked = || -> Result<String, Fail> {
        let place = state::place(host, root.path(), &common.state)?;
        let key = state::key_source(host, &place, &common.state);
        let dir = place.dir.display().to_string();
        match ReadStore::open(&place.dir) {
            Err(StoreError::Missing(_)) => Ok(format!("{dir}: a run would make it")),
            Err(error) => Err(error.into()),
            Ok(store) => {
                state::whole(&store)?;
                store.unlock(&key)?;
                let volatile = if store.is_volatile()? { "; it may not outlive a restart" } else { "" };
                let slow = match store.wal_is_safe()? {
                    true => "",
                    false => {
                        "; its file system isn't known to be safe for a write-ahead log, so every commit \
                         waits for the disk"
                    }
                };
                Ok(format!("{dir}: whole, and the key is its own{volatile}{slow}"))
            }
        }
    };
    match looked() {
        Ok(detail) => check("state-directory", DoctorStatus::Ok, &detail),
        Err(fail) => check("state-directory", DoctorStatus::Refused, &fail.failure.message),
    }
}

fn policy_check(host: &Host, root: &Root, options: &PolicyOptions) -> DoctorCheck {
    match policy_files::load_for_run(host, root, options).map_err(NoPolicy::into_fail) {
        Ok(set) => {
            let rules = set.rules().len();
            let word = if rules == 1 { "rule" } else { "rules" };
            let names: Vec<&str> = set.files().iter().map(|file| file.name.as_str()).collect();
            let detail = format!("{} ({rules} {word}), {}", names.join(", "), set.digest());
            check("policy", DoctorStatus::Ok, &detail)
        }
        Err(fail) => check("policy", DoctorStatus::Refused, &fail.failure.message),
    }
}

fn provider_check(host: &Host, options: &ProviderOptions) -> DoctorCheck {
    if !options.is_named() {
        return check(
            "provider",
            DoctorStatus::NotAsked,
            "name one with --provider or --cassette to check it",
        );
    }
    match providers::choose(host, options) {
        Err(fail) => check("provider", DoctorStatus::Refused, &fail.failure.message),
        Ok(chosen) => match chosen.provider {
            Err(failure) => check("provider", DoctorStatus::Refused, &failure.message),
            Ok(_) => {
                let model = chosen.info.model.as_deref().unwrap_or("no model");
                let place = chosen.info.base_url_host.as_deref().unwrap_or("no network");
                let detail = format!("{}, {model}, {place}; it was not asked", chosen.info.name);
                check("provider", DoctorStatus::Ok, &detail)
            }
        },
    }
}

fn check(name: &str, status: DoctorStatus, detail: &str) -> DoctorCheck {
    DoctorCheck { name: name.to_owned(), status, detail: detail.to_owned() }
}
