//! Why a turn stopped, and the class that follows from it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TurnStatus;
use crate::contract::ExitClass;

/// Why a turn stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StopReason {
    /// The model gave its final answer.
    FinalAnswer,
    /// The model calls that the turn may make ran out.
    IterationLimit,
    /// The tool calls that the turn may make ran out.
    ToolCallLimit,
    /// A reply reached the output token limit, or the tokens of the turn ran out.
    TokenLimit,
    /// The time that the turn may take ran out.
    WallTimeLimit,
    /// The files or bytes that the turn may write ran out.
    WriteSetLimit,
    /// The provider failed in a way that a rerun can't help.
    ProviderFailed,
    /// The provider wasn't to be had.
    ProviderUnavailable,
    /// The provider fell silent.
    Stalled,
    /// The provider's answer can't be read, or was cut.
    MalformedResponse,
    /// The provider's answer holds neither text nor a call.
    EmptyAnswer,
    /// The task and the last rounds don't fit the context.
    ContextBlocked,
    /// A call was denied and the policy says to stop there, or the model repeats a denied call.
    DeniedStop,
    /// A command has to be confined, and can't be.
    SandboxUnavailable,
    /// What has to be kept can't be kept, so nothing may be changed.
    StoreUnavailable,
    /// Another run holds the workspace.
    WorkspaceInUse,
    /// Operations of an earlier run were interrupted and aren't settled.
    RecoveryRequired,
    /// A command of the caller's doesn't hold after the final answer.
    VerifyFailed,
    /// The final answer isn't of the form that the caller asked for.
    OutputSchemaMismatch,
    /// Files changed, or none did, against what the caller expects.
    UnexpectedChanges,
    /// The model says that it can't do the task.
    Cannot,
    /// The model says that it needs an answer from somebody.
    NeedsInput,
    /// A signal stopped the turn.
    Cancelled,
}

impl StopReason {
    /// Every reason.
    pub const ALL: [Self; 23] = [
        Self::FinalAnswer,
        Self::IterationLimit,
        Self::ToolCallLimit,
        Self::TokenLimit,
        Self::WallTimeLimit,
        Self::WriteSetLimit,
        Self::ProviderFailed,
        Self::ProviderUnavailable,
        Self::Stalled,
        Self::MalformedResponse,
        Self::EmptyAnswer,
        Self::ContextBlocked,
        Self::DeniedStop,
        Self::SandboxUnavailable,
        Self::StoreUnavailable,
        Self::WorkspaceInUse,
        Self::RecoveryRequired,
        Self::VerifyFailed,
        Self::OutputSchemaMismatch,
        Self::UnexpectedChanges,
        Self::Cannot,
        Self::NeedsInput,
        Self::Cancelled,
    ];

    /// The outcome in a word; what is left undone after changes is partial.
    pub fn status(self, changed: bool) -> TurnStatus {
        match self {
            Self::FinalAnswer => TurnStatus::Succeeded,
            Self::IterationLimit
            | Self::ToolCallLimit
            | Self::TokenLimit
            | Self::WallTimeLimit
            | Self::WriteSetLimit
            | Self::ProviderFailed
            | Self::ProviderUnavailable
            | Self::Stalled
            | Self::MalformedResponse
            | Self::EmptyAnswer
            | Self::ContextBlocked
                if changed =>
            {
                TurnStatus::Partial
            }
            Self::IterationLimit
            | Self::ToolCallLimit
            | Self::TokenLimit
            | Self::WallTimeLimit
            | Self::WriteSetLimit
            | Self::ProviderFailed
            | Self::ProviderUnavailable
            | Self::Stalled
            | Self::MalformedResponse
            | Self::EmptyAnswer
            | Self::ContextBlocked
            | Self::VerifyFailed
            | Self::OutputSchemaMismatch
            | Self::UnexpectedChanges
            | Self::Cannot
            | Self::NeedsInput => TurnStatus::Failed,
            Self::DeniedStop
            | Self::SandboxUnavailable
            | Self::StoreUnavailable
            | Self::WorkspaceInUse
            | Self::RecoveryRequired => TurnStatus::Blocked,
            Self::Cancelled => TurnStatus::Cancelled,
        }
    }

    /// The class of a turn that stopped so, where no call was denied.
    pub fn exit_class(self) -> ExitClass {
        match self {
            Self::FinalAnswer => ExitClass::Success,
            Self::IterationLimit
            | Self::ToolCallLimit
            | Self::TokenLimit
            | Self::WallTimeLimit
            | Self::WriteSetLimit => ExitClass::BudgetExhausted,
            Self::ProviderFailed | Self::ContextBlocked => ExitClass::ProviderFailed,
            Self::ProviderUnavailable | Self::Stalled | Self::MalformedResponse | Self::EmptyAnswer => {
                ExitClass::ProviderUnavailable
            }
            Self::DeniedStop | Self::SandboxUnavailable | Self::StoreUnavailable => ExitClass::Blocked,
            Self::WorkspaceInUse => ExitClass::Busy,
            Self::RecoveryRequired => ExitClass::RecoveryRequired,
            Self::VerifyFailed
            | Self::OutputSchemaMismatch
            | Self::UnexpectedChanges
            | Self::Cannot
            | Self::NeedsInput => ExitClass::ExpectationFailed,
            Self::Cancelled => ExitClass::Cancelled,
        }
    }
}
