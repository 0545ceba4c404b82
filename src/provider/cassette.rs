//! Cassettes: replies written down, one JSON object a line, by a person or by a recording.
//!
//! Read strictly and whole, before the first call: every bad line is told at once, by its place.
//! Blank lines and lines that begin with `#` are for the writer.

use std::{fmt, marker::PhantomData};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::value::RawValue;

use super::message::{Finish, ProviderErrorKind, TokenUsage};
use crate::id::Digest;

/// How many bad lines are told; the others are counted.
const MOST_FAULTS: usize = 20;

/// A line of a cassette, `thcode.cassette/v1`.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(untagged)]
pub enum CassetteLine {
    /// The first.
    Header(HeaderLine),
    /// A model call that is answered.
    Reply(ReplyLine),
    /// A model call that fails.
    Error(ErrorLine),
}

/// The first line: says what the file is.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HeaderLine {
    /// The format.
    pub cassette: CassetteVersion,
    /// What the cassette is for; for its readers alone.
    #[serde(default)]
    pub description: String,
}

/// The format of a cassette.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum CassetteVersion {
    /// This one.
    #[serde(rename = "thcode.cassette/v1")]
    V1,
}

/// The answer to one model call: text, tool calls, or both.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplyLine {
    /// The text.
    #[serde(default)]
    pub text: String,
    /// The tool calls, in order.
    #[serde(default, deserialize_with = "objects")]
    pub tool_calls: Vec<CallLine>,
    /// Why the model stopped.
    #[serde(default)]
    pub finish: FinishLine,
    /// What the provider reported of tokens.
    #[serde(default, deserialize_with = "object_or_null")]
    pub usage: Option<UsageLine>,
    /// The digest that the request must have.
    pub request_digest: Option<Digest>,
}

/// A tool call.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CallLine {
    /// The provider's id of the call; made up where there is none.
    pub id: Option<String>,
    /// The tool.
    pub name: String,
    /// The arguments: an object, given to the tool byte for byte as it stands here, or a string
    /// that holds whatever the model is to have written, JSON or not.
    pub arguments: Arguments,
}

/// The arguments of a call, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments(pub String);

/// Why the model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FinishLine {
    /// By itself.
    #[default]
    Stop,
    /// The output token limit.
    Length,
    /// The provider withheld the answer.
    ContentFilter,
}

/// What the provider reported of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UsageLine {
    /// Of the request.
    pub input_tokens: u64,
    /// Of the reply.
    pub output_tokens: u64,
}

/// The failure of one model call.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ErrorLine {
    /// What failed.
    #[serde(deserialize_with = "object")]
    pub error: ErrorObject,
    /// The digest that the request must have.
    pub request_digest: Option<Digest>,
}

/// What failed in a model call.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ErrorObject {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// What the run is told.
    pub message: Option<String>,
    /// How long the provider asks to wait. Milliseconds.
    pub retry_after_ms: Option<u64>,
}

/// What kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// The provider limits the rate.
    RateLimit,
    /// The provider has a fault of its own.
    Server,
    /// No connection, or a broken one.
    Network,
    /// An answer that can't be read, or was cut.
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
    /// An end that isn't documented.
    Unknown,
}

/// A cassette that was read whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cassette {
    /// What it is for.
    pub description: String,
    /// Its answers, in order.
    pub(super) tracks: Vec<Track>,
}

/// An answer, and the line where it stands, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Track {
    pub(super) line: usize,
    pub(super) answer: Answer,
}

/// What a model call comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Reply(ReplyLine),
    Error(ErrorLine),
}

/// A bad line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct CassetteFault {
    /// From 1.
    pub line: usize,
    /// From 1. Bytes.
    pub column: usize,
    /// What is wrong.
    pub message: String,
}

/// Every bad line of a cassette, up to twenty of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CassetteFaults {
    /// The first ones.
    pub faults: Vec<CassetteFault>,
    /// How many more there are.
    pub more: usize,
}

impl Cassette {
    /// Reads a cassette.
    pub fn parse(text: &str) -> Result<Self, CassetteFaults> {
        let mut cassette = Self { description: String::new(), tracks: Vec::new() };
        let mut faults = Vec::new();
        let mut begun = false;
        for (line, text) in (1..).zip(text.strip_prefix('\u{feff}').unwrap_or(text).lines()) {
            let content = text.trim_start();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            match read_line(text) {
                Ok(CassetteLine::Header(header)) if !begun => cassette.description = header.description,
                Ok(CassetteLine::Header(_)) => faults.push(CassetteFault::at(line, "a second header")),
                Ok(_) if !begun => faults.push(CassetteFault::no_header(line)),
                Ok(CassetteLine::Reply(reply)) => match reply.fault() {
                    Some(fault) => faults.push(CassetteFault::at(line, fault)),
                    None => cassette.tracks.push(Track { line, answer: Answer::Reply(reply) }),
                },
                Ok(CassetteLine::Error(error)) => {
                    cassette.tracks.push(Track { line, answer: Answer::Error(error) });
                }
                Err(error) => faults.push(CassetteFault::of(line, &error)),
            }
            begun = true;
        }
        if !begun {
            faults.push(CassetteFault::no_header(1));
        }
        if faults.is_empty() {
            return Ok(cassette);
        }
        let more = faults.len().saturating_sub(MOST_FAULTS);
        faults.truncate(MOST_FAULTS);
        Err(CassetteFaults { faults, more })
    }

    /// How many model calls it answers.
    pub fn len(&self) -> usize {
        self.tracks.len()
    }

    /// Whether it answers none.
    pub fn is_empty(&self) -> bool {
        self.tracks.is_empty()
    }
}

impl ReplyLine {
    /// What is wrong with a line that reads well.
    fn fault(&self) -> Option<&'static str> {
        if self.finish == FinishLine::Stop && self.text.trim().is_empty() && self.tool_calls.is_empty() {
            return Some(
                "neither text nor toolCalls (a provider's empty answer is {\"error\": {\"kind\": \"empty\"}})",
            );
        }
        self.tool_calls.iter().any(|call| call.name.is_empty()).then_some("a tool call without a name")
    }
}

/// Reads a line as what its keys say it is, so that a fault is told of that and not of all three.
fn read_line(text: &str) -> Result<CassetteLine, serde_json::Error> {
    #[derive(Deserialize)]
    struct Keys {
        cassette: Option<IgnoredAny>,
        error: Option<IgnoredAny>,
    }
    let Object(keys) = serde_json::from_str::<Object<Keys>>(text)?;
    match (keys.cassette, keys.error) {
        (Some(_), _) => serde_json::from_str(text).map(CassetteLine::Header),
        (None, Some(_)) => serde_json::from_str(text).map(CassetteLine::Error),
        (None, None) => serde_json::from_str(text).map(CassetteLine::Reply),
    }
}

/// A struct that is written as an object; serde alone takes an array of its fields as well.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_map(Fields(PhantomData))
    }
}

fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Object::deserialize(deserializer).map(|Object(value)| value)
}

fn object_or_null<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.map(|Object(value)| value))
}

fn objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let all = Vec::deserialize(deserializer)?;
    Ok(all.into_iter().map(|Object(value)| value).collect())
}

impl CassetteFault {
    fn at(line: usize, message: impl Into<String>) -> Self {
        Self { line, column: 1, message: message.into() }
    }

    fn no_header(line: usize) -> Self {
        Self::at(line, "the first line has to be the header: {\"cassette\": \"thcode.cassette/v1\"}")
    }

    fn of(line: usize, error: &serde_json::Error) -> Self {
        let (whole, place) =
            (error.to_string(), format!(" at line {} column {}", error.line(), error.column()));
        let message = whole.strip_suffix(&place).unwrap_or(&whole).to_owned();
        Self { line, column: error.column().max(1), message }
    }
}

impl fmt::Display for CassetteFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut faults = self.faults.iter();
        if let Some(first) = faults.next() {
            write!(f, "{first}")?;
        }
        faults.try_for_each(|fault| write!(f, "\n{fault}"))?;
        if self.more > 0 {
            write!(f, "\nand {} more", self.more)?;
        }
        Ok(())
    }
}

impl std::error::Error for CassetteFaults {}

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        match raw.as_bytes().first() {
            Some(b'{') => Ok(Self(raw.to_owned())),
            Some(b'"') => serde_json::from_str(raw).map(Self).map_err(serde::de::Error::custom),
            _ => Err(serde::de::Error::custom("arguments are an object or a string")),
        }
    }
}

impl JsonSchema for Arguments {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Arguments".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["object", "string"] })
    }
}

impl From<FinishLine> for Finish {
    fn from(finish: FinishLine) -> Self {
        match finish {
            FinishLine::Stop => Self::Stop,
            FinishLine::Length => Self::Length,
            FinishLine::ContentFilter => Self::ContentFilter,
        }
    }
}

impl From<UsageLine> for TokenUsage {
    fn from(usage: UsageLine) -> Self {
        Self { input: usage.input_tokens, output: usage.output_tokens }
    }
}

impl From<ErrorKind> for ProviderErrorKind {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::RateLimit => Self::RateLimit,
            ErrorKind::Server => Self::Server,
            ErrorKind::Network => Self::Network,
            ErrorKind::Protocol => Self::Protocol,
            ErrorKind::Stall => Self::Stall,
            ErrorKind::Empty => Self::Empty,
            ErrorKind::Auth => Self::Auth,
            ErrorKind::Client => Self::Client,
            ErrorKind::ContextOverflow => Self::ContextOverflow,
            ErrorKind::Unknown => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests;
