//! What goes to a provider and what comes back, in words that no vendor owns.

/// One model call.
#[derive(Debug, Clone, PartialEq)]
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

/// A message of the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The JSON Schema of its input.
    pub input_schema: serde_json::Value,
}

/// A call as the model proposed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The provider's id; made up by the adapter where the provider gave none, unique in the reply.
    pub id: String,
    /// The tool's name, as the model wrote it.
    pub name: String,
    /// The arguments, byte for byte as the model wrote them; need not be JSON.
    pub arguments: String,
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

impl ProviderErrorKind {
    /// Whether another try of the same request may help.
    pub fn retryable(self) -> bool {
        match self {
            Self::RateLimit
            | Self::Server
            | Self::Network
            | Self::Protocol
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
