//! Opaque ids, digests and timestamps: the words that every room shares.
//!
//! Owns their one textual form. Never reads a clock or entropy (that is `host`), and an id never
//! becomes a path without having been parsed first.

use std::{fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::Digest as _;
use uuid::Uuid;

/// Text that isn't the canonical form of the value it was read as.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a valid {what}")]
pub struct ParseIdError {
    what: &'static str,
}

macro_rules! opaque_id {
    ($(#[doc = $doc:literal] $name:ident),+ $(,)?) => {$(
        #[doc = $doc]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps a UUID that the host has made.
            pub fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// Its 16 bytes, for a row.
            pub fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }

            /// The hex digits of its random part, of which a person may type a unique beginning:
            /// what comes before tells the time, and is alike in ids of one day.
            pub fn random_part(&self) -> String {
                self.0.as_simple().to_string().chars().skip(13).collect()
            }

            /// Reads one from a row.
            pub fn from_bytes(bytes: &[u8]) -> Result<Self, ParseIdError> {
                let bad = |_| ParseIdError { what: stringify!($name) };
                Uuid::from_slice(bytes).map(Self).map_err(bad)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0.as_hyphenated(), f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            /// Accepts the hyphenated lower-case form alone: one id has one spelling.
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let bad = || ParseIdError { what: stringify!($name) };
                let uuid = Uuid::try_parse(text).map_err(|_| bad())?;
                if uuid.as_hyphenated().to_string() == text { Ok(Self(uuid)) } else { Err(bad()) }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "type": "string",
                    "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
                })
            }
        }
    )+};
}

opaque_id! {
    /// One session: the prompt rounds that share a history.
    SessionId,
    /// One user input and all that came of it (a prompt round).
    TurnId,
    /// One proposed tool call, whatever became of it.
    OperationId,
    /// One message of a history.
    MessageId,
    /// One event of the journal.
    EventId,
    /// One checkpoint: the images of the files of one operation.
    CheckpointId,
    /// One image of one file in a checkpoint.
    ArtifactId,
    /// One permission to dispatch one effect, consumed once.
    AuthorizationId,
}

/// A SHA-256 digest; its text is `sha256:` and 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Its 32 bytes, for a row.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A digest that was computed elsewhere.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(sha2::Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || ParseIdError { what: "digest (sha256: and 64 lower-case hex digits)" };
        let hex = text.strip_prefix("sha256:").ok_or_else(bad)?.as_bytes();
        let (pairs, rest) = hex.as_chunks::<2>();
        if pairs.len() != 32 || !rest.is_empty() {
            return Err(bad());
        }
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0u8; 32];
        for (slot, [high, low]) in bytes.iter_mut().zip(pairs) {
            *slot = digit(*high).ok_or_else(bad)? << 4 | digit(*low).ok_or_else(bad)?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Digest {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Digest".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^sha256:[0-9a-f]{64}$" })
    }
}

/// A moment; its text is RFC 3339 in UTC with milliseconds. Information, never used for ordering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(jiff::Timestamp);

impl Timestamp {
    /// Milliseconds since the Unix epoch; out of range reads as the epoch itself.
    pub fn from_millis(millis: i64) -> Self {
        Self(jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::UNIX_EPOCH))
    }
}

impl Timestamp {
    /// Milliseconds since the Unix epoch.
    pub fn as_millis(self) -> i64 {
        self.0.as_millisecond()
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.0)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Timestamp {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_reads_back_and_rejects_other_spellings() {
        let digest = Digest::of(b"");
        let text = digest.to_string();
        assert_eq!(text, "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(text.parse(), Ok(digest));
        for bad in ["", "sha256:", &text.to_uppercase(), "md5:00", "sha256:00"] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_id_has_one_spelling() {
        let id = SessionId::from_uuid(Uuid::from_u128(7));
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in
            ["", "../x", "{00000000-0000-0000-0000-000000000007}", "00000000000000000000000000000007"]
        {
            assert!(bad.parse::<SessionId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_timestamp_has_exactly_three_decimals() {
        assert_eq!(Timestamp::from_millis(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Timestamp::from_millis(1_790_000_000_120).to_string(), "2026-09-21T14:13:20.120Z");
    }
}
