//! `PolicyReport`, the document of `thcode policy check` and `policy explain`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Document, ExitClass,
    failure::Failure,
    schema_tag,
    turn::{DecidedBy, DecisionOutcome, PermissionProfile, PolicyFileInForce, WorkMode},
};
use crate::id::Digest;

schema_tag!(
    /// The constant `thcode.policy-report/v1`.
    PolicyReportSchema = "thcode.policy-report/v1"
);

/// What a policy verb found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyReport {
    /// Which document this is.
    pub schema: PolicyReportSchema,
    /// The version of thcode that wrote it.
    pub tool_version: String,
    /// The verb.
    pub verb: PolicyVerb,
    /// The digest of the named files and what they extend; null where one of them can't be loaded.
    pub digest: Option<Digest>,
    /// The files that were loaded, each with its own digest.
    pub files: Vec<PolicyFileInForce>,
    /// The number of rules that were loaded.
    pub rules: u32,
    /// The number of inline examples that were run.
    pub examples: u32,
    /// What is wrong in the files, in the order of files and positions.
    pub diagnostics: Vec<PolicyDiagnostic>,
    /// The verdict on the call that was asked about, for `explain`.
    pub explanation: Option<Explanation>,
    /// What went wrong; null where nothing did.
    pub failure: Option<Failure>,
    /// The class of the end.
    pub exit_class: ExitClass,
    /// The code that the process exits with.
    pub exit_code: u8,
}

impl Document for PolicyReport {
    const NAME: &'static str = "policy-report";

    fn exit_class(&self) -> ExitClass {
        self.exit_class
    }
}

/// Which policy verb wrote the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyVerb {
    /// `policy check`.
    Check,
    /// `policy explain`.
    Explain,
}

/// A mistake in a policy file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyDiagnostic {
    /// The file as it was named.
    pub file: String,
    /// The line, from 1; null where the file as a whole is meant.
    pub line: Option<u32>,
    /// The column in characters, from 1.
    pub column: Option<u32>,
    /// What is wrong, and what would be right.
    pub message: String,
    /// The line of the file with a caret under the place.
    pub excerpt: Option<String>,
}

/// A verdict with everything that led to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The tool that was asked about.
    pub tool: String,
    /// The tool's action class; null for a tool that doesn't exist.
    pub action_class: Option<String>,
    /// The work mode that was judged under.
    pub mode: WorkMode,
    /// The permission profile that was judged under.
    pub profile: PermissionProfile,
    /// What the policy says.
    pub decision: DecisionOutcome,
    /// What that comes to with nobody to ask: `allow` or `deny`.
    pub effective: DecisionOutcome,
    /// What decided.
    pub because: DecidedBy,
    /// The stable token of a floor, limit or unresolved cause.
    pub cause: Option<String>,
    /// The rule that decided.
    pub rule_id: Option<String>,
    /// The rule's file.
    pub file: Option<String>,
    /// The rule's line in that file, from 1.
    pub line: Option<u32>,
    /// Why, in a sentence.
    pub reason: String,
    /// What to do instead, where the rule says so.
    pub suggest: Option<String>,
    /// What the call touches.
    pub subjects: Vec<SubjectTrace>,
    /// The rules that matched, in the order of file and line.
    pub matched: Vec<MatchedRule>,
    /// The rules of this tool that did not match, and the first condition that failed.
    pub near_misses: Vec<NearMiss>,
}

/// A thing that a call touches, as it was resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubjectTrace {
    /// What is done to it: `read`, `write` or `delete`; `exec` for a command.
    pub access: String,
    /// As the model wrote it.
    pub given: String,
    /// Without `.`, `..` and doubled separators, relative to the workspace; null outside it.
    pub lexical: Option<String>,
    /// After following links, relative to the workspace; null outside it.
    pub resolved: Option<String>,
    /// What stands there: `regular`, `directory`, `absent` …; `command` for a command.
    pub file_kind: String,
    /// The verdict on this subject alone.
    pub decision: DecisionOutcome,
    /// What decided on this subject.
    pub because: DecidedBy,
}

/// A rule that matched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MatchedRule {
    /// The rule.
    pub rule_id: String,
    /// What it says: `allow`, `deny` or `ask`.
    pub effect: DecisionOutcome,
    /// Its file.
    pub file: String,
    /// Its line, from 1.
    pub line: u32,
}

/// A rule that did not match, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NearMiss {
    /// The rule.
    pub rule_id: String,
    /// What it would say: `allow`, `deny` or `ask`.
    pub effect: DecisionOutcome,
    /// Its file.
    pub file: String,
    /// Its line, from 1.
    pub line: u32,
    /// The condition that failed, such as `when.write`.
    pub condition: String,
    /// What the condition saw.
    pub saw: String,
    /// What it wanted.
    pub wanted: String,
}
