//! The promises to outsiders: documents, exit classes, failures, and the schemas that describe them.
//!
//! Everything here is published under `schemas/` and additive within v1: a field or an enum value
//! may be added, never renamed, removed or given another meaning. Rows on disk are another border
//! and never share a struct with these.
#![deny(missing_docs)]

pub mod doctor;
pub mod exit;
pub mod failure;
pub mod policy_report;
pub mod recovery;
pub mod registry;
pub mod rollback;
pub mod schema_report;
pub mod session_report;
pub mod store_report;
pub mod stream;
pub mod turn;
pub mod validate;

pub use exit::ExitClass;
pub use failure::{CauseCode, Failure, FailureDocument};

use serde::Serialize;

/// The version that every document names.
pub const TOOL_VERSION: &str = env!("CARGO_PKG_VERSION");

/// A document that a verb can end with.
pub trait Document: Serialize {
    /// Its name in `thcode schema print NAME`.
    const NAME: &'static str;

    /// The class that the process exits with.
    fn exit_class(&self) -> ExitClass;
}

/// Defines the constant that a document carries in its field `schema`, such as
/// `thcode.turn-result/v1`.
macro_rules! schema_tag {
    ($(#[$meta:meta])* $name:ident = $text:literal) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $name;

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str($text)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                if text == $text {
                    Ok(Self)
                } else {
                    Err(serde::de::Error::custom(concat!("schema is not ", $text)))
                }
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "const": $text })
            }
        }
    };
}
pub(crate) use schema_tag;
