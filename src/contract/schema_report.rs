//! `SchemaReport`, the document of `thcode schema list` and `schema validate`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Document, ExitClass, failure::Failure, schema_tag};

schema_tag!(
    /// The constant `thcode.schema-report/v1`.
    SchemaReportSchema = "thcode.schema-report/v1"
);

/// The published schemas, or what is wrong with a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchemaReport {
    /// Which document this is.
    pub schema: SchemaReportSchema,
    /// The version of thcode that wrote it.
    pub tool_version: String,
    /// The published schemas, for `list`; the one that was checked against, for `validate`.
    pub schemas: Vec<SchemaEntry>,
    /// Where the document departs from the schema, for `validate`.
    pub violations: Vec<SchemaViolation>,
    /// What went wrong; null where nothing did.
    pub failure: Option<Failure>,
    /// The class of the end.
    pub exit_class: ExitClass,
    /// The code that the process exits with.
    pub exit_code: u8,
}

impl Document for SchemaReport {
    const NAME: &'static str = "schema-report";

    fn exit_class(&self) -> ExitClass {
        self.exit_class
    }
}

/// A published schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchemaEntry {
    /// Its name in `schema print NAME`.
    pub name: String,
    /// Its `$id`.
    pub id: String,
    /// What it describes.
    pub describes: String,
}

/// A place where a document departs from its schema. Never tells the document's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchemaViolation {
    /// Where, as a JSON pointer into the document.
    pub instance_path: String,
    /// The schema keyword that failed, such as `type` or `required`.
    pub keyword: String,
    /// What is wrong, without the content.
    pub message: String,
}
