//! A reply, put together from the pieces of a stream or out of one JSON answer.
//!
//! Lenient where servers are known to differ, strict about the end: without a reason to stop or
//! the stream's own end mark there is no reply.

use serde::{Deserialize, Deserializer};
use serde_json::{Value, value::RawValue};

use super::super::{
    failure,
    message::{Call, Finish, ProviderError, ProviderErrorKind, Reply, Request, TokenUsage, settle_ids},
};

/// What a reply's text, names and arguments may come to together. Bytes.
const LONGEST_REPLY: usize = 32 << 20;
/// What a call costs beside its text, so that empty calls are bounded too.
const CALL_OVERHEAD: usize = 64;

/// A reply that isn't whole yet.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    text: String,
    slots: Vec<Slot>,
    finish: Option<Finish>,
    refused: bool,
    usage: Option<TokenUsage>,
    bytes: usize,
    steps: u64,
}

/// A call that isn't whole yet.
#[derive(Debug)]
struct Slot {
    index: u64,
    call: Call,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(default, borrow, deserialize_with = "or_empty")]
    choices: Vec<Choice<'a>>,
    usage: Option<Value>,
    error: Option<Value>,
    /// `error` where the object itself is one.
    object: Option<Value>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    index: Option<u64>,
    /// In a stream.
    #[serde(borrow)]
    delta: Option<Piece<'a>>,
    /// In a whole answer.
    #[serde(borrow)]
    message: Option<Piece<'a>>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Piece<'a> {
    content: Option<String>,
    refusal: Option<String>,
    /// What the model thinks: not kept, but a sign that it does.
    #[serde(borrow)]
    reasoning_content: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "or_empty")]
    tool_calls: Vec<CallPiece<'a>>,
}

#[derive(Deserialize)]
struct CallPiece<'a> {
    index: Option<u64>,
    id: Option<String>,
    #[serde(borrow)]
    function: Option<FunctionPiece<'a>>,
}

#[derive(Deserialize)]
struct FunctionPiece<'a> {
    name: Option<String>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

/// A list that may be null.
fn or_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Assembly {
    /// How often the reply came on. What repeats what is known, or says nothing, doesn't count.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// Adds what an event of a stream carries.
    pub(super) fn add_chunk(
        &mut self,
        data: &str,
        on_delta: &mut dyn FnMut(&str),
    ) -> Result<(), ProviderError> {
        self.add(data, "an event of the stream isn't a piece of a chat completion", on_delta).map(drop)
    }

    /// Adds a whole JSON answer.
    pub(super) fn add_completion(
        &mut self,
        body: &[u8],
        on_delta: &mut dyn FnMut(&str),
    ) -> Result<(), ProviderError> {
        let broken = "the answer isn't the JSON of a chat completion";
        let text =
            std::str::from_utf8(body).map_err(|_| ProviderError::protocol("the answer isn't UTF-8"))?;
        match self.add(text, broken, on_delta)? {
            0 => Err(ProviderError::protocol(broken)),
            _ => Ok(()),
        }
    }

    /// The reply. `ended` says that what was read has an end of its own: a whole JSON answer, or
    /// `[DONE]`.
    pub(super) fn finish(self, ended: bool, request: &Request) -> Result<Reply, ProviderError> {
        let finish = match self.finish {
            Some(Finish::Stop) if self.refused => Finish::ContentFilter,
            Some(finish) => finish,
            None if ended && self.refused => Finish::ContentFilter,
            None if ended => Finish::Stop,
            None => return Err(failure::cut()),
        };
        if finish == Finish::Stop && self.text.trim().is_empty() && self.slots.is_empty() {
            let why = "the answer holds neither text nor a tool call";
            return Err(ProviderError::new(ProviderErrorKind::Empty, why));
        }
        let mut slots = self.slots;
        slots.sort_by_key(|slot| slot.index);
        let mut calls: Vec<Call> = slots.into_iter().map(|slot| slot.call).collect();
        if calls.iter().any(|call| call.name.is_empty()) {
            return Err(ProviderError::protocol("a tool call of the answer has no name"));
        }
        settle_ids(request, &mut calls);
        Ok(Reply { text: self.text, calls, finish, usage: self.usage })
    }

    /// Adds a chunk or a completion; gives the number of its choices.
    fn add(
        &mut self,
        json: &str,
        broken: &str,
        on_delta: &mut dyn FnMut(&str),
    ) -> Result<usize, ProviderError> {
        let chunk: Chunk<'_> = match serde_json::from_str(json) {
            Ok(chunk) => chunk,
            Err(_) => return Err(unreadable(json, broken)),
        };
        if let Some(error) = chunk.error {
            return Err(failure::of_object(&serde_json::json!({ "error": error })));
        }
        if chunk.object.is_some_and(|object| object == "error") {
            return Err(unreadable(json, broken));
        }
        if let Some(usage) = &chunk.usage {
            let usage = reported(usage).or(self.usage);
            self.step(usage != self.usage);
            self.usage = usage;
        }
        let choices = chunk.choices.len();
        // One answer was asked for; further ones aren't ours.
        for choice in chunk.choices.into_iter().filter(|choice| choice.index.unwrap_or(0) == 0) {
            if let Some(piece) = choice.delta.or(choice.message) {
                self.add_piece(piece, on_delta)?;
            }
            // Some servers write the empty string where nothing has ended yet.
            if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
                let finish = Some(finish_of(&reason)?);
                self.step(finish != self.finish);
                self.finish = finish;
            }
        }
        Ok(choices)
    }

    fn add_piece(
        &mut self,
        piece: Piece<'_>,
        on_delta: &mut dyn FnMut(&str),
    ) -> Result<(), ProviderError> {
        let thinks = |raw: &&RawValue| !matches!(raw.get(), "null" | "\"\"" | "[]" | "{}");
        let thought =
            [piece.reasoning_content, piece.reasoning].into_iter().flatten().any(|raw| thinks(&raw));
        self.step(thought);
        self.refused |= piece.refusal.as_ref().is_some_and(|refusal| !refusal.is_empty());
        for text in piece.content.into_iter().chain(piece.refusal).filter(|text| !text.is_empty()) {
            self.grow(text.len())?;
            self.step(true);
            self.text.push_str(&text);
            on_delta(&text);
        }
        for (position, call) in piece.tool_calls.into_iter().enumerate() {
            self.add_call(position, call)?;
        }
        Ok(())
    }

    fn add_call(&mut self, position: usize, piece: CallPiece<'_>) -> Result<(), ProviderError> {
        let index = piece.index.unwrap_or(u64::try_from(position).unwrap_or(u64::MAX));
        let id = piece.id.unwrap_or_default();
        let name =
            piece.function.as_ref().and_then(|function| function.name.clone()).unwrap_or_default();
        let arguments = piece.function.and_then(|function| function.arguments).map(arguments_of);
        let arguments = arguments.transpose()?.unwrap_or_default();
        self.grow(id.len() + name.len() + arguments.len())?;

        // The last call of this index; but another id is another call, since some servers give
        // every call the index 0.
        let last = self.slots.iter().rposition(|slot| slot.index == index);
        let same = last.filter(|at| {
            let known = self.slots.get(*at).map_or("", |slot| slot.call.id.as_str());
            id.is_empty() || known.is_empty() || known == id
        });
        let known = same.and_then(|at| self.slots.get(at)).map(|slot| slot.call.name.as_str());
        self.step(known != Some(name.as_str()) && !name.is_empty() || !arguments.is_empty());
        let slot = match same.and_then(|at| self.slots.get_mut(at)) {
            Some(slot) => slot,
            None => {
                self.grow(CALL_OVERHEAD)?;
                let call = Call { id: String::new(), name: String::new(), arguments: String::new() };
                self.slots.push_mut(Slot { index, call })
            }
        };
        if slot.call.id.is_empty() {
            slot.call.id = id;
        }
        // A name comes once, or again and again, or (nobody forbids it) in pieces.
        if slot.call.name != name {
            slot.call.name.push_str(&name);
        }
        slot.call.arguments.push_str(&arguments);
        Ok(())
    }

    fn step(&mut self, made: bool) {
        self.steps += u64::from(made);
    }

    fn grow(&mut self, bytes: usize) -> Result<(), ProviderError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > LONGEST_REPLY {
            return Err(ProviderError::protocol("the reply is over 32 MiB"));
        }
        Ok(())
    }
}

/// JSON that isn't what is documented: an error object if it is one.
fn unreadable(json: &str, broken: &str) -> ProviderError {
    match serde_json::from_str::<Value>(json) {
        Ok(body) if body.get("error").is_some_and(|error| !error.is_null()) => failure::of_object(&body),
        Ok(body) if body.get("object").is_some_and(|object| object == "error") => {
            failure::of_object(&body)
        }
        Ok(_) | Err(_) => {
            ProviderError { said: failure::heard(json), ..ProviderError::protocol(broken) }
        }
    }
}

/// Arguments are a string that holds JSON; some servers send the object itself.
fn arguments_of(raw: &RawValue) -> Result<String, ProviderError> {
    let text = raw.get();
    if text.starts_with('"') {
        return serde_json::from_str(text)
            .map_err(|_| ProviderError::protocol("the arguments of a tool call aren't text"));
    }
    Ok(if text == "null" { String::new() } else { text.to_owned() })
}

fn finish_of(reason: &str) -> Result<Finish, ProviderError> {
    match reason {
        "stop" | "tool_calls" | "function_call" => Ok(Finish::Stop),
        "length" => Ok(Finish::Length),
        "content_filter" => Ok(Finish::ContentFilter),
        // Of routers, for a fault of whom they asked.
        "error" => Err(ProviderError::new(
            ProviderErrorKind::Server,
            "the provider broke off its answer with an error",
        )),
        other => {
            let lower = other.to_ascii_lowercase();
            let named = failure::plain_word(&lower).unwrap_or("(not a plain word)");
            let why = format!("the answer ended for a reason that isn't documented: {named}");
            Err(ProviderError::new(ProviderErrorKind::Unknown, why))
        }
    }
}

fn reported(usage: &Value) -> Option<TokenUsage> {
    let tokens = |name: &str| usage.get(name).and_then(Value::as_u64);
    Some(TokenUsage { input: tokens("prompt_tokens")?, output: tokens("completion_tokens")? })
}

#[cfg(test)]
mod tests;
