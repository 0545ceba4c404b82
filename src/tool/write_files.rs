//! `create_file`, `edit_file`, `delete_file`: what the model may ask to have changed. The doing is
//! `mutation`'s; here are the inputs and the words that the model is told.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};

use crate::{
    checkpoint::Effect,
    mutation::{
        Applied, Change,
        edit::{Edit, Expected},
    },
};

/// Makes a file where nothing stands.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct CreateFile {
    /// The file, relative to the workspace. Missing directories are made.
    pub path: String,
    /// Its whole content, byte for byte; nothing is added.
    pub content: String,
}

/// Replaces text in a file, exactly.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct EditFile {
    /// The file, relative to the workspace.
    pub path: String,
    /// The replacements. All of them apply to the file as it is now, or none does.
    #[schemars(length(min = 1))]
    pub edits: Vec<OneEdit>,
}

/// One replacement.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct OneEdit {
    /// The text that is there, exactly, with enough around it to be there once.
    pub old_text: String,
    /// The text that is to be there instead.
    pub new_text: String,
    /// How often oldText must be there: a number, or "all" for every place. 1 if left out.
    #[serde(default)]
    pub expected_count: ExpectedCount,
}

/// How often the old text must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedCount(Expected);

impl Default for ExpectedCount {
    fn default() -> Self {
        Self(Expected::Count(1))
    }
}

impl<'de> Deserialize<'de> for ExpectedCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wrong = "expectedCount must be a number from 1, or \"all\"";
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::Null => Ok(Self::default()),
            serde_json::Value::String(word) if word == "all" => Ok(Self(Expected::All)),
            serde_json::Value::Number(number) => match number.as_u64() {
                Some(count) if count > 0 => Ok(Self(Expected::Count(count))),
                _ => Err(serde::de::Error::custom(wrong)),
            },
            _ => Err(serde::de::Error::custom(wrong)),
        }
    }
}

impl JsonSchema for ExpectedCount {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ExpectedCount".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "integer", "minimum": 1 }, { "const": "all" }] })
    }
}

/// Removes a file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct DeleteFile {
    /// The file, relative to the workspace. Directories can't be deleted.
    pub path: String,
}

/// What changes the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Writing {
    /// Makes a file.
    Create(CreateFile),
    /// Changes a file.
    Edit(EditFile, Vec<Edit>),
    /// Removes a file.
    Delete(DeleteFile),
}

impl Writing {
    /// An edit, with its replacements as `mutation` takes them.
    pub(super) fn edit(input: EditFile) -> Self {
        let edits = input.edits.iter().map(|edit| Edit {
            old: edit.old_text.clone(),
            new: edit.new_text.clone(),
            expected: edit.expected_count.0,
        });
        let edits = edits.collect();
        Self::Edit(input, edits)
    }

    /// The change of a path that was resolved and judged.
    pub fn change<'a>(&'a self, path: &'a str) -> Change<'a> {
        match self {
            Self::Create(input) => Change::Create { path, content: input.content.as_bytes() },
            Self::Edit(_, edits) => Change::Edit { path, edits },
            Self::Delete(_) => Change::Delete { path },
        }
    }

    /// The bytes that it would write, as far as that can be told beforehand.
    pub fn bytes(&self) -> u64 {
        let bytes = match self {
            Self::Create(input) => input.content.len(),
            Self::Edit(_, edits) => edits.iter().map(|edit| edit.new.len()).sum(),
            Self::Delete(_) => 0,
        };
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// What the model is told of a change that is there.
pub fn told(path: &str, applied: &Applied) -> String {
    let bytes = |bytes: Option<u64>| bytes.unwrap_or(0);
    match applied.effect {
        Effect::Create => format!("created {path} ({} bytes)", bytes(applied.bytes_after)),
        Effect::Edit => {
            let places = if applied.replaced == 1 { "place" } else { "places" };
            let (before, after) = (bytes(applied.bytes_before), bytes(applied.bytes_after));
            format!("edited {path}: {} {places}, {before} -> {after} bytes", applied.replaced)
        }
        Effect::Delete => format!("deleted {path} ({} bytes)", bytes(applied.bytes_before)),
    }
}
