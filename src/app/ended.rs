//! What a verb ended with, and the one gate that everything leaves through: scrubbed of
//! secrets before it is rendered, printed or kept.

use std::borrow::Cow;

use serde_json::Value;

use crate::{
    contract::{
        Document, ExitClass, Failure, FailureDocument,
        doctor::DoctorReport,
        policy_report::PolicyReport,
        recovery::RecoveryResult,
        rollback::{RollbackAnalysis, RollbackApplyResult, RollbackListResult, RollbackPreview},
        schema_report::SchemaReport,
        session_report::SessionReport,
        store_report::StoreReport,
        turn::TurnResult,
    },
    redact::Redactor,
};

/// The document of a verb.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// `run`, once a turn began.
    Turn(Box<TurnResult>),
    /// `policy …`.
    Policy(Box<PolicyReport>),
    /// `schema list`, `schema validate`.
    Schema(SchemaReport),
    /// `doctor`.
    Doctor(DoctorReport),
    /// `store …`.
    Store(Box<StoreReport>),
    /// `session …`.
    Session(Box<SessionReport>),
    /// `rollback …`.
    RollbackList(Box<RollbackListResult>),
    /// `rollback …`.
    RollbackPreview(Box<RollbackPreview>),
    /// `rollback …`.
    RollbackAnalysis(Box<RollbackAnalysis>),
    /// `rollback …`.
    RollbackApply(Box<RollbackApplyResult>),
    /// `recover …`.
    Recovery(Box<RecoveryResult>),
    /// Every other end.
    Failure(Box<FailureDocument>),
}

macro_rules! on_each {
    ($self:expr, $document:ident => $body:expr) => {
        match $self {
            Ended::Turn($document) => $body,
            Ended::Policy($document) => $body,
            Ended::Schema($document) => $body,
            Ended::Doctor($document) => $body,
            Ended::Store($document) => $body,
            Ended::Session($document) => $body,
            Ended::RollbackList($document) => $body,
            Ended::RollbackPreview($document) => $body,
            Ended::RollbackAnalysis($document) => $body,
            Ended::RollbackApply($document) => $body,
            Ended::Recovery($document) => $body,
            Ended::Failure($document) => $body,
        }
    };
}

fn name_of<D: Document>(_: &D) -> &'static str {
    D::NAME
}

impl Ended {
    /// The name of its schema.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Turn(document) => name_of(document.as_ref()),
            Self::Policy(document) => name_of(document.as_ref()),
            Self::Schema(document) => name_of(document),
            Self::Doctor(document) => name_of(document),
            Self::Store(document) => name_of(document.as_ref()),
            Self::Session(document) => name_of(document.as_ref()),
            Self::RollbackList(document) => name_of(document.as_ref()),
            Self::RollbackPreview(document) => name_of(document.as_ref()),
            Self::RollbackAnalysis(document) => name_of(document.as_ref()),
            Self::RollbackApply(document) => name_of(document.as_ref()),
            Self::Recovery(document) => name_of(document.as_ref()),
            Self::Failure(document) => name_of(document.as_ref()),
        }
    }

    /// The class of the end.
    pub fn exit_class(&self) -> ExitClass {
        on_each!(self, document => document.exit_class)
    }

    /// The code that the process exits with.
    pub fn exit_code(&self) -> u8 {
        on_each!(self, document => document.exit_code)
    }

    /// What went wrong, if anything did.
    pub fn failure(&self) -> Option<&Failure> {
        on_each!(self, document => document.failure.as_ref())
    }

    /// The same document, told as one that could not be handed over whole.
    #[must_use]
    pub fn not_handed_over(mut self, failure: Failure) -> Self {
        on_each!(&mut self, document => {
            document.failure = Some(failure);
            document.exit_class = ExitClass::Failed;
            document.exit_code = ExitClass::Failed.code();
        });
        if let Self::Turn(document) = &mut self {
            document.tolerated = false;
        }
        self
    }

    fn value(&self) -> serde_json::Result<Value> {
        on_each!(self, document => serde_json::to_value(document))
    }

    fn read_back(&self, value: Value) -> serde_json::Result<Self> {
        Ok(match self {
            Self::Turn(_) => Self::Turn(serde_json::from_value(value)?),
            Self::Policy(_) => Self::Policy(serde_json::from_value(value)?),
            Self::Schema(_) => Self::Schema(serde_json::from_value(value)?),
            Self::Doctor(_) => Self::Doctor(serde_json::from_value(value)?),
            Self::Store(_) => Self::Store(serde_json::from_value(value)?),
            Self::Session(_) => Self::Session(serde_json::from_value(value)?),
            Self::RollbackList(_) => Self::RollbackList(serde_json::from_value(value)?),
            Self::RollbackPreview(_) => Self::RollbackPreview(serde_json::from_value(value)?),
            Self::RollbackAnalysis(_) => Self::RollbackAnalysis(serde_json::from_value(value)?),
            Self::RollbackApply(_) => Self::RollbackApply(serde_json::from_value(value)?),
            Self::Recovery(_) => Self::Recovery(serde_json::from_value(value)?),
            Self::Failure(_) => Self::Failure(serde_json::from_value(value)?),
        })
    }
}

/// A document that may leave.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// Typed, for rendering as text.
    pub ended: Ended,
    /// As JSON.
    pub value: Value,
}

/// Scrubs a document of every secret.
pub fn finish(redactor: &Redactor, ended: Ended) -> Finished {
    let scrubbed = ended.value().and_then(|mut value| {
        scrub(redactor, &mut value);
        let mut scrubbed = ended.read_back(value)?;
        mark_redacted(&ended, &mut scrubbed);
        let value = scrubbed.value()?;
        Ok(Finished { ended: scrubbed, value })
    });
    scrubbed.unwrap_or_else(|error| {
        // What the error says may hold the very value that was redacted.
        drop(error);
        super::failure::document_invalid("the document can't be made after redaction")
    })
}

/// Fields whose values are the contract's own: constants, closed lists, ids, digests and times.
/// A secret that happens to be such a word, or a piece of such a number, isn't told by it.
const OWN_FIELDS: &[&str] = &[
    "schema",
    "toolVersion",
    "exitClass",
    "stopReason",
    "status",
    "kind",
    "role",
    "outcome",
    "because",
    "causeCode",
    "category",
    "scope",
    "tier",
    "mode",
    "profile",
    "decision",
    "effect",
    "effective",
    "verb",
    "digest",
    "executableDigest",
    "before",
    "after",
    "checkpointId",
    "checkpointIdAfter",
    "planDigest",
    "result",
    "reasonCode",
    "sandbox",
    "sessionId",
    "turnId",
    "messageId",
    "operationId",
    "startedAt",
    "endedAt",
];

/// The field whose content the caller's own schema describes: nothing in it is the contract's.
const FREE_FIELD: &str = "structuredOutput";

/// Scrubs every text of a document. The names of fields are the contract's and stay.
fn scrub(redactor: &Redactor, value: &mut Value) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
        Value::String(text) => {
            if let Cow::Owned(clean) = redactor.scrub(text) {
                *text = clean;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| scrub(redactor, item)),
        Value::Object(map) => {
            for (name, item) in map {
                if name == FREE_FIELD {
                    scrub_free(redactor, item);
                } else if !(item.is_string() && OWN_FIELDS.contains(&name.as_str())) {
                    scrub(redactor, item);
                }
            }
        }
    }
}

/// Scrubs a value that the model made: the names of its fields as well, and with an eye on what they say
/// of the texts.
fn scrub_free(redactor: &Redactor, value: &mut Value) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
        Value::String(_) => scrub(redactor, value),
        Value::Array(items) => items.iter_mut().for_each(|item| scrub_free(redactor, item)),
        Value::Object(map) => {
            let fields = std::mem::take(map);
            map.extend(fields.into_iter().map(|(name, mut item)| {
                match &mut item {
                    Value::String(text) => *text = redactor.scrub_named(&name, text).into_owned(),
                    other => scrub_free(redactor, other),
                }
                (redactor.scrub(&name).into_owned(), item)
            }));
        }
    }
}

/// A denial whose path lost a secret says so.
fn mark_redacted(before: &Ended, after: &mut Ended) {
    if let (Ended::Turn(before), Ended::Turn(after)) = (before, after) {
        for (before, after) in before.denials.iter().zip(&mut after.denials) {
            after.redacted = before.path != after.path || before.argv != after.argv;
        }
    }
}
