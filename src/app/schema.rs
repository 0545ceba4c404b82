//! `schema list | print | validate`: the published schemas, offline.

use std::path::Path;

use super::{Ended, Fail, input};
use crate::{
    contract::{
        CauseCode, ExitClass, Failure, TOOL_VERSION,
        registry::{PUBLISHED, Published, generate_input},
        schema_report::{SchemaEntry, SchemaReport, SchemaReportSchema, SchemaViolation},
        validate::violations,
    },
    provider::cassette::CassetteLine,
};

/// What a person may write by hand for thcode to read.
const INPUTS: &[Published] = &[Published {
    name: "cassette",
    describes: "one line of a cassette, the replies of the provider scripted",
    text: include_str!("../../schemas/cassette.v1.schema.json"),
    generate: generate_input::<CassetteLine>,
}];

/// A document over this isn't read.
const MOST_BYTES: u64 = 256 << 20;

/// Every published schema, in the order in which they are listed.
pub fn published() -> impl Iterator<Item = &'static Published> {
    PUBLISHED.iter().chain(INPUTS)
}

/// Lists every published schema.
pub fn list() -> Ended {
    report(published().map(entry).collect(), Vec::new(), None)
}

/// The text of one schema.
pub fn print(name: &str) -> Result<&'static str, Fail> {
    find(name).map(|published| published.text)
}

/// Checks a file against a schema.
pub fn validate(name: &str, file: &Path) -> Result<Ended, Fail> {
    let published = find(name)?;
    let text = input::read_text(file, MOST_BYTES)?;
    let document = serde_json::from_str(&text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let message = format!("{} is not JSON: line {line}, column {column}", file.display());
        Fail::usage(Failure::new(CauseCode::NotJson, message))
    })?;
    let found = violations(published, &document).map_err(|error| Fail::internal(error.to_string()))?;
    let failure = (!found.is_empty()).then(|| {
        let message = format!("{} does not follow the schema {name}", file.display());
        Failure::new(CauseCode::SchemaViolated, message)
    });
    Ok(report(vec![entry(published)], found, failure))
}

fn find(name: &str) -> Result<&'static Published, Fail> {
    published().find(|published| published.name == name).ok_or_else(|| {
        let known: Vec<_> = published().map(|published| published.name).collect();
        let failure = Failure::new(CauseCode::SchemaUnknown, format!("there is no schema {name:?}"));
        Fail::usage(failure.action(format!("name one of {}", known.join(", "))))
    })
}

fn entry(published: &Published) -> SchemaEntry {
    SchemaEntry {
        name: published.name.to_owned(),
        id: published.id(),
        describes: published.describes.to_owned(),
    }
}

fn report(schemas: Vec<SchemaEntry>, found: Vec<SchemaViolation>, failure: Option<Failure>) -> Ended {
    let exit_class = if failure.is_some() { ExitClass::Failed } else { ExitClass::Success };
    Ended::Schema(SchemaReport {
        schema: SchemaReportSchema,
        tool_version: TOOL_VERSION.to_owned(),
        schemas,
        violations: found,
        failure,
        exit_class,
        exit_code: exit_class.code(),
    })
}
