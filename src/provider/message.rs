//! What goes to a provider and what comes back, in words that no vendor owns.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::id::Digest;

/// One model call.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// What the model is told about its place.
    pub system: String,
    /// The conversation, oldest first.
    pub messages: Vec<Message>,
    /// The tools that the model may propose.
    pub tools: Vec<ToolSpec>,
    /// The tokens that the reply may have.
    pub max_output_tokens: u64,
}

impl Request {
    /// What is asked, whoever is to answer: the digest that a cassette's `requestDigest` holds.
    ///
    /// Of the request's JSON, so that it depends on neither vendor nor model nor endpoint, and a
    /// cassette that was made with one adapter is replayed without it.
    pub fn digest(&self) -> Digest {
        // INVARIANT: every key of this JSON is a string, so that writing it can't fail; if it did,
        // the digest of nothing would match no cassette.
        Digest::of(&serde_json::to_vec(self).unwrap_or_default())
    }
}

/// A message of the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "role", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Message {
    /// The caller's task.
    User {
        /// The text.
        content: String,
    },
    /// The model's own turn.
    Assistant {
        /// The text, possibly empty.
        content: String,
        /// The calls that it proposed.
        calls: Vec<Call>,
    },
    /// The answer to one call.
    Tool {
        /// The call's id.
        call_id: String,
        /// What the model is told.
        content: String,
    },
}

/// A tool as it is offered.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The JSON Schema of its input.
    pub input_schema: serde_json::Value,
}

/// A call as the model proposed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    /// The provider's id, unique in its reply. Where the provider gave none, or one twice, it is
    /// made up, and then unique in the whole conversation.
    pub id: String,
    /// The tool's name, as the model wrote it.
    pub name: String,
    /// The arguments, byte for byte as the model wrote them; need not be JSON.
    pub arguments: String,
}

/// Gives a call without an id, or with that of an earlier call of the reply, one that occurs
/// nowhere in the conversation.
pub(super) fn settle_ids(request: &Request, calls: &mut [Call]) {
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for message in &request.messages {
        match message {
            Message::User { .. } => {}
            Message::Assistant { calls, .. } => taken.extend(calls.iter().map(|call| call.id.clone())),
            Message::Tool { call_id, .. } => drop(taken.insert(call_id.clone())),
        }
    }
    let mut in_reply: BTreeSet<String> = BTreeSet::new();
    let given: BTreeSet<String> = calls.iter().map(|call| call.id.clone()).collect();
    let mut next = 0u64;
    for call in calls {
        if call.id.is_empty() || in_reply.contains(&call.id) {
            call.id = loop {
                let id = format!("call_{next}");
                next += 1;
                if !taken.contains(&id) && !given.contains(&id) {
                    break id;
                }
            };
        }
        in_reply.insert(call.id.clone());
    }
}

/// A whole reply. One that was cut never becomes this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The text, possibly empty.
    pub text: String,
    /// The calls, in the order of their indices.
    pub calls: Vec<Call>,
    /// Why the model stopped.
    pub finish: Finish,
    /// What the provider reported of tokens.
    pub usage: Option<TokenUsage>,
}

/// Why the model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// By itself, with text or with calls.
    Stop,
    /// The output token limit; the reply isn't whole.
    Length,
    /// The provider withheld the answer.
    ContentFilter,
}

/// Tokens of one reply, as reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenUsage {
    /// Of the request.
    pub input: u64,
    /// Of the reply.
    pub output: u64,
}

/// A failure of a model call. `message` is safe to print anywhere: never a vendor payload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ProviderError {
    /// What kind of failure.
    pub kind: ProviderErrorKind,
    /// What happened, in our own words.
    pub message: String,
    /// How long the provider asks to wait. Milliseconds.
    pub retry_after_ms: Option<u64>,
    /// The beginning of what the provider said, for the log of whoever asks for it (`-v`) and nothing else.
    pub said: Option<String>,
}

/// What kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProviderErrorKind {
    /// 429, or the provider's word for it.
    RateLimit,
    /// 5xx, or an error object of the provider's own making.
    Server,
    /// Refused, reset, unreachable, TLS.
    Network,
    /// An answer that can't be read, or was cut before its end.
    Protocol,
    /// An answer of another kind than the API gives, such as a page for people.
    NotTheApi,
    /// Silence.
    Stall,
    /// Neither text nor a call.
    Empty,
    /// The key was refused.
    Auth,
    /// The request was refused.
    Client,
    /// The request is too long for the model.
    ContextOverflow,
    /// Ended in a way that isn't documented (an unknown finish reason, a redirect).
    Unknown,
    /// The cassette has no reply left.
    CassetteExhausted,
    /// The request isn't the one that the cassette was made for.
    CassetteMismatch,
}

impl ProviderError {
    pub(super) fn new(kind: ProviderErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after_ms: None, said: None }
    }

    pub(super) fn protocol(message: impl Into<String>) -> Self {
        Self::new(ProviderErrorKind::Protocol, message)
    }
}

impl ProviderErrorKind {
    /// Whether another try of the same request may help.
    pub fn retryable(self) -> bool {
        match self {
            Self::RateLimit
            | Self::Server
            | Self::Network
            | Self::Protocol
            | Self::NotTheApi
            | Self::Stall
            | Self::Empty => true,
            Self::Auth
            | Self::Client
            | Self::ContextOverflow
            | Self::Unknown
            | Self::CassetteExhausted
            | Self::CassetteMismatch => false,
        }
    }
}
