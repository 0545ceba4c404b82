//! `DoctorReport`, the document of `thcode doctor`: what this machine gives, and what would be
//! refused.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Document, ExitClass, failure::Failure, schema_tag};

schema_tag!(
    /// The constant `thcode.doctor-report/v1`.
    DoctorReportSchema = "thcode.doctor-report/v1"
);

/// What was looked at, and what it means for a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DoctorReport {
    /// Which document this is.
    pub schema: DoctorReportSchema,
    /// The version of thcode that wrote it.
    pub tool_version: String,
    /// The workspace, as an absolute path; null where it was refused.
    pub workspace: Option<String>,
    /// The checks, in the order in which a run would make them.
    pub checks: Vec<DoctorCheck>,
    /// What went wrong; null where nothing did.
    pub failure: Option<Failure>,
    /// The class of the end.
    pub exit_class: ExitClass,
    /// The code that the process exits with.
    pub exit_code: u8,
}

impl Document for DoctorReport {
    const NAME: &'static str = "doctor-report";

    fn exit_class(&self) -> ExitClass {
        self.exit_class
    }
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DoctorCheck {
    /// What was looked at, such as `workspace` or `kernel-openat2`.
    pub name: String,
    /// What was found.
    pub status: DoctorStatus,
    /// In a sentence.
    pub detail: String,
}

/// What a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DoctorStatus {
    /// As a run needs it.
    Ok,
    /// A run would be refused.
    Refused,
    /// It wasn't asked about, so it wasn't looked at.
    NotAsked,
}
