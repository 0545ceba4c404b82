//! `StoreReport`, the document of `thcode store list`, `stats`, `verify` and `gc`: what is kept, where,
//! whether it is what was kept, and what isn't kept any more.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Document, ExitClass, failure::Failure, schema_tag};
use crate::id::{SessionId, Timestamp};

schema_tag!(
    /// The constant `thcode.store-report/v1`.
    StoreReportSchema = "thcode.store-report/v1"
);

/// The stores of this user, or what one store holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreReport {
    /// Which document this is.
    pub schema: StoreReportSchema,
    /// The version of thcode that wrote it.
    pub tool_version: String,
    /// The stores, by directory: all that were looked for by `list`, the one of `stats`.
    pub stores: Vec<StoreEntry>,
    /// What the one store holds, for `stats`; null for `list`.
    pub stats: Option<StoreStats>,
    /// What was verified and found, for `verify`; null for the others.
    pub verification: Option<StoreVerification>,
    /// What was freed and what wasn't, for `gc`; null for the others.
    pub gc: Option<StoreGc>,
    /// What went wrong; null where nothing did. That a store of `list` can't be read is told there.
    pub failure: Option<Failure>,
    /// The class of the end.
    pub exit_class: ExitClass,
    /// The code that the process exits with.
    pub exit_code: u8,
}

impl Document for StoreReport {
    const NAME: &'static str = "store-report";

    fn exit_class(&self) -> ExitClass {
        self.exit_class
    }
}

/// One store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreEntry {
    /// Its state directory.
    pub state_dir: String,
    /// The workspace that it was made for; null where the store can't be read.
    pub workspace: Option<String>,
    /// The run that began last; null where there was none or the store can't be read.
    pub last_run: Option<LastRun>,
    /// Operations without a proven end: interrupted ones and, while `live`, the runner's own. Null
    /// where the store can't be read.
    pub open_operations: Option<u64>,
    /// Whether a runner holds it now.
    pub live: bool,
    /// The bytes of the files in the state directory.
    pub disk_bytes: u64,
    /// Whether a key file lies beside the directory. The key may be somewhere else.
    pub key_file_present: bool,
    /// Why the store can't be read; null where it can.
    pub failure: Option<Failure>,
}

/// A run, as far as it can be told without a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastRun {
    /// Its session.
    pub session_id: SessionId,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended; null while it runs, and for ever if it was cut off.
    pub ended_at: Option<Timestamp>,
    /// Its `stopReason`; null as `endedAt`.
    pub stop_reason: Option<String>,
    /// Its exit code; null as `endedAt`.
    pub exit_code: Option<u8>,
}

/// What a store holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreStats {
    /// The version of its tables.
    pub version: u32,
    /// The version of its key.
    pub key_version: u32,
    /// Its tables, by name.
    pub tables: Vec<TableStats>,
    /// Events in its journal.
    pub journal_rows: u64,
    /// The bytes of sealed file images, in the database and beside it.
    pub image_bytes: u64,
    /// The bytes of the write-ahead log.
    pub wal_bytes: u64,
    /// Whether it lies on a file system that may not outlive this machine's next restart.
    pub volatile: bool,
}

/// A look at everything that a store holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreVerification {
    /// Whether the key was there to check MACs and seals with.
    pub authenticity: Authenticity,
    /// Events of the journal, each with its link to the one before.
    pub events: u64,
    /// Sessions.
    pub sessions: u64,
    /// Messages of all sessions; opened with the key.
    pub messages: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Sealed images of files, each as often as it is referred to; opened with the key.
    pub images: u64,
    /// Sealed files that nothing refers to: what a crash or a full disk left. No finding.
    pub orphaned_files: u64,
    /// Operations without a proven end. No finding.
    pub open_operations: u64,
    /// What is not what was written, the first bad place first; empty for a whole store.
    pub findings: Vec<StoreFinding>,
    /// What `--accept-head` took; null where it wasn't asked for, or nothing was to be taken.
    pub accepted_head: Option<AcceptedHead>,
}

/// A journal that was taken as it is, on the operator's word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceptedHead {
    /// The number of the journal's last event when it was taken.
    pub last_seq: u64,
    /// The first event that was durable once and is gone; null where nobody can tell.
    pub lost_from_seq: Option<u64>,
    /// The last one that is known of; null as `lostFromSeq`.
    pub lost_to_seq: Option<u64>,
}

/// What `store gc` did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreGc {
    /// Whether it is only told what would go; nothing was changed then.
    pub dry_run: bool,
    /// Checkpoints that went.
    pub evicted: EvictedCounts,
    /// The bytes of images that went with them; one that a kept checkpoint shares stays.
    pub freed_bytes: u64,
    /// The sealed files that went with them.
    pub freed_files: u64,
    /// Sealed files without a row that were removed, for `--orphans`.
    pub orphaned_files: u64,
    /// Temporary files of thcode's own that were removed, for `--orphans`.
    pub temporary_files: u64,
    /// What can't go, whatever its window says.
    pub pinned: PinnedCounts,
    /// Checkpoints that are still there, those that are pinned too.
    pub kept: u64,
    /// The room inside the database that is taken again by what comes next. Bytes; null where nothing
    /// was changed.
    pub reusable_bytes: Option<u64>,
    /// How much smaller the state directory is. Bytes.
    pub returned_bytes: u64,
}

/// Checkpoints that went, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvictedCounts {
    /// All of them.
    pub total: u64,
    /// Their window of prompt rounds is over.
    pub expired: u64,
    /// Their session has ended, and they are older than `--max-age`.
    pub aged: u64,
    /// Their operation was seen to have had no effect.
    pub not_applied: u64,
}

/// What can't go, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PinnedCounts {
    /// Checkpoints of a turn with an operation that isn't settled.
    pub standing: u64,
    /// Rows that aren't what was written, or can't be read: while there is one, nothing goes.
    pub corrupt: u64,
}

/// Whether what was checked is known to be this store's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Authenticity {
    /// MACs and seals fit the key.
    Verified,
    /// The key isn't there: only hashes, references and structure were checked.
    UnverifiedNoKey,
}

impl Authenticity {
    /// The word of the value.
    pub fn token(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::UnverifiedNoKey => "unverified-no-key",
        }
    }
}

/// Something that isn't what was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreFinding {
    /// Where: `journal`, `database` (its pages and indexes) or a table.
    pub place: String,
    /// Which row: its number in the journal, else its id; null where none can be named.
    pub row: Option<String>,
    /// What is wrong.
    pub problem: String,
}

/// One table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TableStats {
    /// Its name.
    pub name: String,
    /// Its rows.
    pub rows: u64,
}
