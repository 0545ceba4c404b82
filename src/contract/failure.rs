//! The failure envelope, its closed list of cause codes, and the document for ends that have no
//! other.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{Document, ExitClass, TOOL_VERSION, schema_tag};
use crate::id::OperationId;

/// Which part of the system a failure belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FailureScope {
    /// Arguments and input files.
    Usage,
    /// Policy files.
    Policy,
    /// The workspace directory.
    Workspace,
    /// The state directory and the store in it.
    Store,
    /// The key that the store is sealed with.
    Key,
    /// Interrupted operations.
    Recovery,
    /// Checkpoints that are to be put back.
    Rollback,
    /// The model provider.
    Provider,
    /// The caller's commands.
    Command,
    /// What confines commands.
    Sandbox,
    /// thcode itself and its output.
    Internal,
}

/// What kind of fault it is, across scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FailureCategory {
    /// What the caller gave is wrong; nothing was started.
    InvalidInput,
    /// An authority said no.
    Refused,
    /// A limit that the caller or the system set was reached.
    LimitReached,
    /// Something outside wasn't to be had; the same command may work later.
    Unavailable,
    /// Something outside answered that it won't; the same command will fail again.
    Rejected,
    /// The model ended without the work done.
    NotAchieved,
    /// Stopped from outside.
    Cancelled,
    /// A fault of thcode, or of the place that it writes to.
    Internal,
}

macro_rules! cause_codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $token:literal => $scope:ident / $category:ident,)+) => {
        /// Why, as a closed list. Stable; values may be added within v1.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum CauseCode {
            $($(#[doc = $doc])+ #[serde(rename = $token)] $name,)+
        }

        impl CauseCode {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The word that documents carry.
            pub fn token(self) -> &'static str {
                match self { $(Self::$name => $token),+ }
            }

            /// The scope that the code belongs to.
            pub fn scope(self) -> FailureScope {
                match self { $(Self::$name => FailureScope::$scope),+ }
            }

            /// The kind of fault that the code tells of.
            pub fn category(self) -> FailureCategory {
                match self { $(Self::$name => FailureCategory::$category),+ }
            }

            /// What the code means, in a line.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc),+)),+ }
            }
        }
    };
}

cause_codes! {
    /// A flag, verb or value of the command line isn't known or doesn't fit.
    BadArgument = "bad-argument" => Usage / InvalidInput,
    /// `run` was given no prompt.
    PromptMissing = "prompt-missing" => Usage / InvalidInput,
    /// The prompt is empty or white space alone.
    PromptEmpty = "prompt-empty" => Usage / InvalidInput,
    /// The prompt is over 10 MiB.
    PromptTooLarge = "prompt-too-large" => Usage / InvalidInput,
    /// The prompt isn't valid UTF-8.
    PromptNotUtf8 = "prompt-not-utf8" => Usage / InvalidInput,
    /// Standard input was to give the prompt and stayed silent, or is a terminal.
    PromptTimedOut = "prompt-timed-out" => Usage / InvalidInput,
    /// An input file can't be read.
    InputUnreadable = "input-unreadable" => Usage / InvalidInput,
    /// An output file (`-o`) can't be written where it was asked for.
    OutputPathRefused = "output-path-refused" => Usage / InvalidInput,
    /// No schema has that name.
    SchemaUnknown = "schema-unknown" => Usage / InvalidInput,
    /// No exit class has that code.
    ExitCodeUnknown = "exit-code-unknown" => Usage / InvalidInput,
    /// The file isn't JSON.
    NotJson = "not-json" => Usage / InvalidInput,
    /// The document doesn't follow the schema that it was checked against.
    SchemaViolated = "schema-violated" => Usage / InvalidInput,
    /// The workspace is missing, `/`, the home directory or not a directory.
    WorkspaceRefused = "workspace-refused" => Workspace / InvalidInput,
    /// Another run holds the workspace.
    WorkspaceInUse = "workspace-in-use" => Workspace / Unavailable,
    /// The state directory can't be derived, or can't be one: a link, a file, inside the workspace.
    StateDirRefused = "state-dir-refused" => Store / InvalidInput,
    /// There is no store in the state directory.
    StoreMissing = "store-missing" => Store / Refused,
    /// The store can't be opened, read or written: permissions, a full disk, its file system.
    StoreUnavailable = "store-unavailable" => Store / Internal,
    /// A newer thcode wrote the store.
    StoreNewer = "store-newer" => Store / Refused,
    /// The store's rows or sealed files aren't what was written.
    StoreCorrupt = "store-corrupt" => Store / Internal,
    /// The journal lost what was durable, or its chain is broken.
    JournalUnavailable = "journal-unavailable" => Store / Internal,
    /// The journal has no event of that operation, or more than one begins like that.
    OperationNotFound = "operation-not-found" => Recovery / Refused,
    /// A live run is working on the operation.
    OperationInProgress = "operation-in-progress" => Recovery / Refused,
    /// No checkpoint has that id, or more than one begins like that.
    CheckpointNotFound = "checkpoint-not-found" => Rollback / Refused,
    /// Nothing that was named can be put back.
    NothingToRollBack = "nothing-to-roll-back" => Rollback / Refused,
    /// What was to be put back isn't as it was analyzed (`--plan`); nothing was touched.
    PlanStale = "plan-stale" => Rollback / Refused,
    /// Not every selected file was put back; each is told with its reason.
    RollbackIncomplete = "rollback-incomplete" => Rollback / Refused,
    /// A choice about a conflict can't be carried out; nothing was changed.
    ResolutionRefused = "resolution-refused" => Rollback / Refused,
    /// What lies beside a target couldn't be removed or put back; nothing was recorded.
    ReconciliationFailed = "reconciliation-failed" => Recovery / Internal,
    /// What became of an operation can't be proven: a person has to look.
    OutcomeUnproven = "outcome-unproven" => Recovery / Refused,
    /// The operation has its end, and nothing of it is left to settle.
    NothingToSettle = "nothing-to-settle" => Recovery / InvalidInput,
    /// No session has that id, prefix or label.
    SessionNotFound = "session-not-found" => Store / InvalidInput,
    /// More than one session has that prefix or label.
    SessionAmbiguous = "session-ambiguous" => Store / InvalidInput,
    /// The key file or variable is missing, unreadable or not a key.
    KeyUnavailable = "key-unavailable" => Key / Refused,
    /// The key isn't the one that the store was made with.
    KeyMismatch = "key-mismatch" => Key / Refused,
    /// A policy file has errors; each is told with its position.
    PolicyInvalid = "policy-invalid" => Policy / InvalidInput,
    /// A policy file can't be read.
    PolicyUnreadable = "policy-unreadable" => Policy / InvalidInput,
    /// A policy file inside the workspace holds a grant that nothing above it gives.
    PolicyGrantsFromWorkspace = "policy-grants-from-workspace" => Policy / InvalidInput,
    /// The policy bundle isn't the one that `--policy-digest` pins.
    PolicyDigestMismatch = "policy-digest-mismatch" => Policy / InvalidInput,
    /// No preset has that name.
    PresetUnknown = "preset-unknown" => Policy / InvalidInput,
    /// A git revision, or the file in it, isn't in this clone.
    RevisionMissing = "revision-missing" => Policy / InvalidInput,
    /// The call that was asked about would not be allowed.
    CallNotAllowed = "call-not-allowed" => Policy / Refused,
    /// A call was denied and the policy says to stop there.
    DeniedStop = "denied-stop" => Policy / Refused,
    /// The run that was asked about would be refused.
    RunWouldBeRefused = "run-would-be-refused" => Usage / Refused,
    /// No provider was named.
    ProviderMissing = "provider-missing" => Usage / InvalidInput,
    /// No provider preset has that name.
    ProviderUnknown = "provider-unknown" => Usage / InvalidInput,
    /// The provider needs a setting that wasn't given: model, base URL or context limit.
    ProviderSettingMissing = "provider-setting-missing" => Usage / InvalidInput,
    /// The base URL isn't HTTPS (or loopback HTTP), or isn't a URL.
    BaseUrlRefused = "base-url-refused" => Usage / InvalidInput,
    /// The cassette can't be read as one.
    CassetteInvalid = "cassette-invalid" => Usage / InvalidInput,
    /// The variable that should hold the provider's key is unset or empty.
    KeyMissing = "key-missing" => Provider / Rejected,
    /// The key holds characters that a request can't carry.
    KeyUnusable = "key-unusable" => Usage / InvalidInput,
    /// The provider refused the key.
    ProviderAuth = "provider-auth" => Provider / Rejected,
    /// The provider refused the request.
    ProviderClient = "provider-client" => Provider / Rejected,
    /// The request is longer than the provider's or the stated context limit.
    ContextOverflow = "context-overflow" => Provider / Rejected,
    /// The provider withheld its answer (content filter).
    ContentFiltered = "content-filtered" => Provider / Rejected,
    /// The cassette has no reply left for this request.
    CassetteExhausted = "cassette-exhausted" => Provider / Rejected,
    /// The request isn't the one that the cassette was made for.
    CassetteMismatch = "cassette-mismatch" => Provider / Rejected,
    /// The provider ended in a way that it doesn't document.
    ProviderUndocumented = "provider-undocumented" => Provider / Rejected,
    /// The provider is limiting the rate.
    RateLimited = "rate-limited" => Provider / Unavailable,
    /// The provider has a fault of its own.
    ProviderServer = "provider-server" => Provider / Unavailable,
    /// The provider can't be reached, or the connection broke.
    ProviderNetwork = "provider-network" => Provider / Unavailable,
    /// The provider's answer can't be read, or was cut before its end.
    MalformedResponse = "malformed-response" => Provider / Unavailable,
    /// The provider fell silent.
    ProviderStalled = "provider-stalled" => Provider / Unavailable,
    /// The provider's answer holds neither text nor a call.
    EmptyAnswer = "empty-answer" => Provider / Unavailable,
    /// The model calls that the turn may make ran out.
    IterationLimit = "iteration-limit" => Usage / LimitReached,
    /// The tool calls that the turn may make ran out.
    ToolCallLimit = "tool-call-limit" => Usage / LimitReached,
    /// The tokens that the turn may use ran out.
    TotalTokenLimit = "total-token-limit" => Usage / LimitReached,
    /// The time that the turn may take ran out.
    WallTimeLimit = "wall-time-limit" => Usage / LimitReached,
    /// Operations of an earlier run were interrupted and aren't settled.
    RecoveryRequired = "recovery-required" => Store / Refused,
    /// The files or bytes that the turn may write ran out.
    WriteSetLimit = "write-set-limit" => Usage / LimitReached,
    /// The reply reached the output token limit before it was whole.
    OutputTokenLimit = "output-token-limit" => Provider / LimitReached,
    /// A command has to be confined, and can't be.
    SandboxUnavailable = "sandbox-unavailable" => Sandbox / Refused,
    /// A command of the caller's (`--verify`) doesn't hold after the final answer.
    VerifyFailed = "verify-failed" => Command / NotAchieved,
    /// The final answer isn't of the form that the caller asked for (`--output-schema`).
    OutputSchemaMismatch = "output-schema-mismatch" => Provider / NotAchieved,
    /// Files changed, or none did, against what the caller expects (`--expect-changes`).
    UnexpectedChanges = "unexpected-changes" => Workspace / NotAchieved,
    /// The file of `--output-schema` holds no JSON Schema.
    OutputSchemaInvalid = "output-schema-invalid" => Usage / InvalidInput,
    /// The model says that it can't do the task.
    ModelCannot = "model-cannot" => Provider / NotAchieved,
    /// The model says that it needs an answer from somebody.
    ModelNeedsInput = "model-needs-input" => Provider / NotAchieved,
    /// The verb has begun, and nothing is known of its end: it runs, or was killed.
    Unfinished = "unfinished" => Internal / Cancelled,
    /// A signal stopped the verb.
    Signalled = "signalled" => Internal / Cancelled,
    /// Standard output can't be written: closed, or on a full disk.
    OutputError = "output-error" => Internal / Internal,
    /// The system has no more to give: file handles, threads, memory.
    ResourceLimit = "resource-limit" => Internal / LimitReached,
    /// A document didn't follow its own schema: a bug of thcode.
    DocumentInvalid = "document-invalid" => Internal / Internal,
    /// An unexpected state: a bug of thcode.
    InternalError = "internal-error" => Internal / Internal,
}

impl JsonSchema for CauseCode {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "CauseCode".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let values: Vec<_> = Self::ALL
            .iter()
            .map(|code| serde_json::json!({ "const": code.token(), "description": code.meaning().trim() }))
            .collect();
        json_schema!({ "description": "Why, as a closed list; values may be added within v1.", "oneOf": values })
    }
}

/// What went wrong, to what, and what to do: the one envelope of every failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// What kind of fault it is.
    pub category: FailureCategory,
    /// Whether the same command may be run again unchanged.
    pub retryable: bool,
    /// Which part of the system it belongs to.
    pub scope: FailureScope,
    /// What happened, to what and why: safe to print anywhere.
    pub message: String,
    /// Why, as a stable token.
    pub cause_code: CauseCode,
    /// How long to wait before another try, where the other side said so. Milliseconds.
    pub retry_after_ms: Option<u64>,
    /// The operation that it happened to, where there is one.
    pub operation_id: Option<OperationId>,
    /// Where more is recorded, where there is such a place.
    pub evidence: Option<String>,
    /// What to do next, most useful first.
    pub recovery_actions: Vec<String>,
}

impl Failure {
    /// A failure with this cause; scope, category and retryability follow from it.
    pub fn new(cause_code: CauseCode, message: impl Into<String>) -> Self {
        Self {
            category: cause_code.category(),
            retryable: cause_code.category() == FailureCategory::Unavailable,
            scope: cause_code.scope(),
            message: message.into(),
            cause_code,
            retry_after_ms: None,
            operation_id: None,
            evidence: None,
            recovery_actions: Vec::new(),
        }
    }

    /// The same with one more thing that the reader can do.
    #[must_use]
    pub fn action(mut self, action: impl Into<String>) -> Self {
        self.recovery_actions.push(action.into());
        self
    }
}

schema_tag!(
    /// The constant `thcode.failure/v1`.
    FailureSchema = "thcode.failure/v1"
);

/// The document of every end that has no document of its own; `failure` is null where the verb
/// succeeded and its product was printed as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Failure document")]
pub struct FailureDocument {
    /// Which document this is.
    pub schema: FailureSchema,
    /// The version of thcode that wrote it.
    pub tool_version: String,
    /// The verb, as far as it could be told; null for a command line without one.
    pub verb: Option<String>,
    /// What went wrong; null where nothing did.
    pub failure: Option<Failure>,
    /// The class of the end.
    pub exit_class: ExitClass,
    /// The code that the process exits with.
    pub exit_code: u8,
}

impl FailureDocument {
    /// A failed end.
    pub fn failed(verb: Option<&str>, exit_class: ExitClass, failure: Failure) -> Self {
        Self {
            schema: FailureSchema,
            tool_version: TOOL_VERSION.to_owned(),
            verb: verb.map(str::to_owned),
            failure: Some(failure),
            exit_class,
            exit_code: exit_class.code(),
        }
    }

    /// A verb whose product was a text, and which succeeded.
    pub fn succeeded(verb: &str) -> Self {
        Self {
            schema: FailureSchema,
            tool_version: TOOL_VERSION.to_owned(),
            verb: Some(verb.to_owned()),
            failure: None,
            exit_class: ExitClass::Success,
            exit_code: ExitClass::Success.code(),
        }
    }
}

impl Document for FailureDocument {
    const NAME: &'static str = "failure";

    fn exit_class(&self) -> ExitClass {
        self.exit_class
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_what_serde_writes() {
        for code in CauseCode::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.token());
            assert!(!code.meaning().trim().is_empty());
        }
    }

    #[test]
    fn only_what_a_rerun_may_mend_is_retryable() {
        for code in CauseCode::ALL {
            let failure = Failure::new(*code, "x");
            assert_eq!(failure.retryable, failure.category == FailureCategory::Unavailable, "{code:?}");
        }
    }
}
