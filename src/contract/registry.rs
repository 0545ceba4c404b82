//! The published schemas: generated from the types, committed under `schemas/`, embedded.
//!
//! A test regenerates and compares bytes; `UPDATE_SCHEMAS=1 cargo test` rewrites.

use schemars::{JsonSchema, Schema, generate::SchemaSettings};

use super::{
    Document as _,
    doctor::DoctorReport,
    failure::FailureDocument,
    policy_report::PolicyReport,
    recovery::RecoveryResult,
    rollback::{RollbackAnalysis, RollbackApplyResult, RollbackListResult, RollbackPreview},
    schema_report::SchemaReport,
    session_report::SessionReport,
    store_report::StoreReport,
    stream::StreamEvent,
    turn::TurnResult,
};

/// A published schema.
#[derive(Debug, Clone, Copy)]
pub struct Published {
    /// Its name in `schema print NAME`.
    pub name: &'static str,
    /// What it describes, in a line.
    pub describes: &'static str,
    /// The committed text.
    pub text: &'static str,
    /// Makes the schema anew from the type.
    pub generate: fn() -> Schema,
}

/// The schemas of the documents, in the order of `schema list`.
pub const PUBLISHED: &[Published] = &[
    Published {
        name: TurnResult::NAME,
        describes: "how a run ended",
        text: include_str!("../../schemas/turn-result.v1.schema.json"),
        generate: generate::<TurnResult>,
    },
    Published {
        name: FailureDocument::NAME,
        describes: "every end that has no document of its own",
        text: include_str!("../../schemas/failure.v1.schema.json"),
        generate: generate::<FailureDocument>,
    },
    Published {
        name: "stream-event",
        describes: "one line of --output-format stream-json",
        text: include_str!("../../schemas/stream-event.v1.schema.json"),
        generate: generate::<StreamEvent>,
    },
    Published {
        name: PolicyReport::NAME,
        describes: "what policy check and policy explain found",
        text: include_str!("../../schemas/policy-report.v1.schema.json"),
        generate: generate::<PolicyReport>,
    },
    Published {
        name: DoctorReport::NAME,
        describes: "what this machine gives, and what would be refused",
        text: include_str!("../../schemas/doctor-report.v1.schema.json"),
        generate: generate::<DoctorReport>,
    },
    Published {
        name: StoreReport::NAME,
        describes: "the stores of this user, or what one store holds",
        text: include_str!("../../schemas/store-report.v1.schema.json"),
        generate: generate::<StoreReport>,
    },
    Published {
        name: SessionReport::NAME,
        describes: "the sessions of a store, or one of them and its history",
        text: include_str!("../../schemas/session-report.v1.schema.json"),
        generate: generate::<SessionReport>,
    },
    Published {
        name: RecoveryResult::NAME,
        describes: "what was interrupted, and what became of it",
        text: include_str!("../../schemas/recovery-result.v1.schema.json"),
        generate: generate::<RecoveryResult>,
    },
    Published {
        name: RollbackListResult::NAME,
        describes: "the checkpoints that can be put back",
        text: include_str!("../../schemas/rollback-list.v1.schema.json"),
        generate: generate::<RollbackListResult>,
    },
    Published {
        name: RollbackPreview::NAME,
        describes: "what is in one checkpoint",
        text: include_str!("../../schemas/rollback-preview.v1.schema.json"),
        generate: generate::<RollbackPreview>,
    },
    Published {
        name: RollbackAnalysis::NAME,
        describes: "what putting checkpoints back would do",
        text: include_str!("../../schemas/rollback-analysis.v1.schema.json"),
        generate: generate::<RollbackAnalysis>,
    },
    Published {
        name: RollbackApplyResult::NAME,
        describes: "what putting checkpoints back came to",
        text: include_str!("../../schemas/rollback-apply-result.v1.schema.json"),
        generate: generate::<RollbackApplyResult>,
    },
    Published {
        name: SchemaReport::NAME,
        describes: "the published schemas, or what is wrong with a document",
        text: include_str!("../../schemas/schema-report.v1.schema.json"),
        generate: generate::<SchemaReport>,
    },
];

impl Published {
    /// The schema's `$id`.
    pub fn id(&self) -> String {
        format!("urn:thcode:schema:{}:v1", self.name)
    }

    /// The name of its file under `schemas/`.
    pub fn file_name(&self) -> String {
        format!("{}.v1.schema.json", self.name)
    }

    /// The text that the types give now: pretty JSON and a final newline.
    pub fn generated(&self) -> String {
        let mut schema = (self.generate)();
        schema.insert("$id".to_owned(), self.id().into());
        let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
        text.push('\n');
        text
    }
}

/// The published document of that name.
pub fn find(name: &str) -> Option<&'static Published> {
    PUBLISHED.iter().find(|published| published.name == name)
}

/// The schema of a document that thcode writes: every key is there.
pub fn generate<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}

/// The schema of something that thcode reads: what has a default may be left out.
pub fn generate_input<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().for_deserialize().into_generator().into_root_schema_for::<T>()
}
