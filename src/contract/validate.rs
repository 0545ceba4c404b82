//! Checks a document against its embedded schema, and tells the real place of a fault without
//! telling the document's content.

use jsonschema::{ValidationError, Validator, error::ValidationErrorKind};
use serde_json::Value;

use super::{registry::Published, schema_report::SchemaViolation};

/// How many violations are told; a broken document can have thousands.
const MOST: usize = 20;

/// Why a check could not be made.
#[derive(Debug, thiserror::Error)]
#[error("the embedded schema {name} does not compile: {message}")]
pub struct SchemaBroken {
    name: &'static str,
    message: String,
}

/// Where the document departs from the schema; empty if nowhere.
pub fn violations(
    published: &Published,
    document: &Value,
) -> Result<Vec<SchemaViolation>, SchemaBroken> {
    let broken = |message: String| SchemaBroken { name: published.name, message };
    let schema = serde_json::from_str(published.text).map_err(|error| broken(error.to_string()))?;
    let validator: Validator =
        jsonschema::draft202012::new(&schema).map_err(|error| broken(error.to_string()))?;
    Ok(validator.iter_errors(document).take(MOST).flat_map(|error| told(&error)).collect())
}

/// A schema of the caller's that a final answer must follow.
#[derive(Debug)]
pub struct OutputSchema {
    text: String,
    validator: Validator,
}

impl OutputSchema {
    /// Compiles a schema; it may refer to nothing outside itself.
    pub fn compile(text: &str) -> Result<Self, String> {
        let schema: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
        let validator = jsonschema::validator_for(&schema)
            .map_err(|error| format!("not a JSON Schema: {}", error.masked()))?;
        Ok(Self { text: schema.to_string(), validator })
    }

    /// The schema as one line of JSON.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Where a value departs from the schema; empty if nowhere.
    pub fn violations(&self, value: &Value) -> Vec<SchemaViolation> {
        self.validator.iter_errors(value).take(MOST).flat_map(|error| told(&error)).collect()
    }
}

/// A union reports only that no branch fits; the branch whose tag fits knows the real place.
fn told(error: &ValidationError<'_>) -> Vec<SchemaViolation> {
    let branches = match error.kind() {
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            context
        }
        _ => return vec![plain(error)],
    };
    let at = error.instance_path().as_str().len();
    let meant: Vec<_> =
        branches.iter().filter(|branch| !branch.iter().any(|e| is_of_tag(e, at))).collect();
    match meant.as_slice() {
        [branch] if !branch.is_empty() => branch.iter().flat_map(told).collect(),
        _ => vec![plain(error)],
    }
}

/// Whether the error says that this branch isn't the one that the instance means: its tag differs,
/// or the instance is of another type altogether (null against an object).
fn is_of_tag(error: &ValidationError<'_>, union_at: usize) -> bool {
    let below = error.instance_path().as_str().get(union_at..).unwrap_or_default();
    match error.kind() {
        ValidationErrorKind::Constant { .. } | ValidationErrorKind::Enum { .. } => {
            matches!(below, "/kind" | "/type" | "")
        }
        ValidationErrorKind::Type { .. } => below.is_empty(),
        ValidationErrorKind::Required { property } => {
            below.is_empty() && matches!(property.as_str(), Some("kind" | "type"))
        }
        _ => false,
    }
}

fn plain(error: &ValidationError<'_>) -> SchemaViolation {
    SchemaViolation {
        instance_path: error.instance_path().as_str().to_owned(),
        keyword: error.kind().keyword().to_owned(),
        message: error.masked().to_string(),
    }
}
