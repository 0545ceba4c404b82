//! Chat completions, as OpenAI speaks them and Typhoon, Ollama, vLLM, LiteLLM, llama.cpp and
//! OpenRouter after it.
//!
//! A reply is given only whole: what was cut, broken or undocumented becomes an error. Nothing is
//! tried twice here.

use std::{pin::pin, time::Duration};

use futures_util::StreamExt;
use serde_json::Value;

use self::{answer::Answering, reply::Assembly};
use super::{
    endpoint::{Body, Endpoint, SettingsError},
    failure,
    message::{ProviderError, ProviderErrorKind, Reply, Request},
    preset::OutputLimit,
    sse,
};
use crate::{
    host::Host,
    id::Digest,
    redact::{Redactor, Secret},
};

mod answer;
mod reply;
mod wire;

/// Whether a field of the request's body may be stated by the caller.
pub fn is_free_field(name: &str) -> bool {
    !name.is_empty() && !wire::OWN_FIELDS.contains(&name)
}

/// The longest JSON answer. Bytes; the text in it may have half of that at most.
const LONGEST_ANSWER: usize = 64 << 20;
/// How much of an error's body is read.
const LONGEST_ERROR: usize = 64 << 10;

/// What a caller has to say about an endpoint.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The base URL, up to and with the version (`https://host/v1`).
    pub base_url: String,
    /// The model.
    pub model: String,
    /// The key, sent as a bearer token.
    pub key: Option<Secret<String>>,
    /// How the limit of a reply is told.
    pub output_limit: OutputLimit,
    /// More headers of every request; each value is a secret.
    pub headers: Vec<(String, Secret<String>)>,
    /// More fields of every request's body.
    pub params: serde_json::Map<String, Value>,
    /// How long the endpoint may send nothing of a reply: before its answer, and in it.
    pub stall_timeout: Duration,
}

/// An endpoint that speaks chat completions.
#[derive(Debug)]
pub struct OpenAi {
    endpoint: Endpoint,
    model: String,
    output_limit: OutputLimit,
    params: serde_json::Map<String, Value>,
    /// Knows the key: the last line of defence of what an error says.
    redactor: Redactor,
    sent: Option<Digest>,
}

impl OpenAi {
    /// Checks the settings. Connects to nothing.
    pub fn new(host: Host, settings: Settings) -> Result<Self, SettingsError> {
        let Settings { base_url, model, key, output_limit, headers, params, stall_timeout } = settings;
        let without_shapes = host.fault("redact-without-shapes");
        let path = "chat/completions";
        let endpoint = Endpoint::new(host, &base_url, path, key.as_ref(), &headers, stall_timeout)?;
        let known = key.map(|key| ("provider key".to_owned(), key.expose().clone()));
        let known = known
            .into_iter()
            .chain(headers.iter().map(|(name, value)| (name.clone(), value.expose().clone())));
        let redactor = Redactor::new(known);
        let redactor = if without_shapes { redactor.without_shapes() } else { redactor };
        Ok(Self { endpoint, model, output_limit, params, redactor, sent: None })
    }

    /// The model that is asked.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The host of the endpoint, with its port where it isn't the usual one.
    pub fn authority(&self) -> String {
        self.endpoint.authority()
    }

    /// The digest of the last request's body, as it was sent.
    pub fn request_digest(&self) -> Option<Digest> {
        self.sent
    }

    /// Asks the model. The pieces of the text go to `on_delta` as they arrive; they are no reply
    /// until this returns one. Dropping the future closes the connection.
    pub async fn complete(
        &mut self,
        request: &Request,
        on_delta: &mut dyn FnMut(&str),
    ) -> Result<Reply, ProviderError> {
        let reply = self.exchange(request, on_delta).await;
        reply.map_err(|error| {
            let said = error.said.as_deref().map(|said| self.redactor.scrub(said).into_owned());
            if let Some(said) = &said {
                tracing::info!("{} said: {said}", self.authority());
            }
            // Who didn't answer is half of what went wrong.
            let message = format!("{} (model {} at {})", error.message, self.model, self.authority());
            ProviderError { message: self.redactor.scrub(&message).into_owned(), said, ..error }
        })
    }

    async fn exchange(
        &mut self,
        request: &Request,
        on_delta: &mut dyn FnMut(&str),
    ) -> Result<Reply, ProviderError> {
        let body = wire::body(&self.model, self.output_limit, &self.params, request)?;
        self.sent = Some(Digest::of(&body));
        let mut answer = self.endpoint.post(body).await?;
        if !(200..300).contains(&answer.status) {
            // The status stands even where the rest of the answer doesn't come.
            let said = answer.body.of_error(LONGEST_ERROR).await;
            return Err(failure::of_status(answer.status, answer.retry_after_ms, &said));
        }
        let start = first_bytes(&mut answer.body).await?;
        let mut assembly = Assembly::default();
        let ended = match answer::kind(answer.content_type.as_deref(), &start) {
            Answering::Json => {
                let whole = answer.body.whole(start, LONGEST_ANSWER).await?;
                let whole = whole.ok_or_else(|| ProviderError::protocol("the answer is over 64 MiB"))?;
                assembly.add_completion(&whole, on_delta)?;
                true
            }
            Answering::Events => read_events(answer.body, start, &mut assembly, on_delta).await?,
            Answering::Nothing => return Err(ProviderError::protocol("the answer is empty")),
            Answering::Other => {
                let why = "the answer is neither JSON nor an event stream: is the base URL right?";
                let said = failure::heard(&String::from_utf8_lossy(&start));
                return Err(ProviderError {
                    said,
                    ..ProviderError::new(ProviderErrorKind::NotTheApi, why)
                });
            }
        };
        assembly.finish(ended, request)
    }
}

/// Reads up to the first byte that isn't white space, which tells JSON from events.
async fn first_bytes(body: &mut Body) -> Result<Vec<u8>, ProviderError> {
    let mut start = Vec::new();
    while start.iter().all(u8::is_ascii_whitespace) {
        if start.len() > sse::LONGEST_LINE {
            return Err(ProviderError::protocol("the answer begins with over 1 MiB of white space"));
        }
        match body.next().await? {
            Some(piece) => start.extend(piece),
            None => break,
        }
    }
    Ok(start)
}

/// Reads to `[DONE]` or to the end; gives whether it was `[DONE]`.
async fn read_events(
    body: Body,
    start: Vec<u8>,
    assembly: &mut Assembly,
    on_delta: &mut dyn FnMut(&str),
) -> Result<bool, ProviderError> {
    let progress = body.progress();
    let mut events = pin!(sse::events(body.stream(start)));
    while let Some(event) = events.next().await {
        let event = event?;
        let data = event.data.trim();
        if data == "[DONE]" {
            return Ok(true);
        }
        if event.name.as_deref() == Some("error") {
            return Err(failure::of_object(&serde_json::from_str(data).unwrap_or(Value::Null)));
        }
        if !data.is_empty() {
            let before = assembly.steps();
            assembly.add_chunk(data, on_delta)?;
            if assembly.steps() > before {
                progress.made();
            }
        }
    }
    Ok(false)
}
