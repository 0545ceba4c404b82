//! The tables, as an ordered list of migrations. One that has shipped never changes; the next is
//! appended.

use rusqlite::Connection;
use sha2::{Digest as _, Sha256};

use super::StoreError;
use crate::id::Digest;

/// "thcd": whose file it is.
pub(super) const APPLICATION_ID: i64 = 0x7468_6364;

/// Each brings the store from the version before to its own; the first makes it.
const MIGRATIONS: &[&str] = &[V1];

/// The newest version that is known.
pub(super) fn newest() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

/// Brings a store up to date, in one exclusive transaction. Run on an up-to-date store it changes
/// nothing.
pub(super) fn migrate(connection: &Connection) -> Result<(), StoreError> {
    connection.execute_batch("BEGIN EXCLUSIVE")?;
    let result = apply(connection);
    let end = if result.is_ok() { "COMMIT" } else { "ROLLBACK" };
    connection.execute_batch(end)?;
    result
}

fn apply(connection: &Connection) -> Result<(), StoreError> {
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let done =
        usize::try_from(version).map_err(|_| StoreError::Corrupt("a negative version".to_owned()))?;
    for migration in MIGRATIONS.iter().skip(done) {
        connection.execute_batch(migration)?;
    }
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    connection.pragma_update(None, "user_version", newest())?;
    Ok(())
}

/// SHA-256 of the tables, indexes and triggers of the newest version, as [`digest`] makes it.
const DIGEST: &str = "sha256:fc82ab5f7679903c73418e9b67932d70c5ef40d25b908d464763276a110305a9";

/// Whether the tables are those that this version makes: a trigger that is gone, or a constraint,
/// would be missed by nobody else.
pub(super) fn check(connection: &Connection) -> Result<(), StoreError> {
    if digest(connection)? == DIGEST {
        Ok(())
    } else {
        Err(StoreError::Corrupt("its tables are not those that this version makes".to_owned()))
    }
}

fn digest(connection: &Connection) -> Result<String, StoreError> {
    let list = "SELECT type, name, tbl_name, ifnull(sql, '') FROM sqlite_schema ORDER BY type, name";
    let mut statement = connection.prepare(list)?;
    let mut rows = statement.query([])?;
    let mut hash = Sha256::new();
    while let Some(row) = rows.next()? {
        for at in 0..4 {
            hash.update(row.get_ref(at)?.as_str().map_err(rusqlite::Error::from)?);
            hash.update([0]);
        }
    }
    Ok(Digest::from_bytes(hash.finalize().into()).to_string())
}

/// Ids are 16 bytes, digests and MACs 32. What is sealed is named so; everything else is structure.
const V1: &str = "
CREATE TABLE meta (
  one        INTEGER PRIMARY KEY CHECK (one = 1),
  store_id   BLOB NOT NULL,
  workspace  TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE key_ring (
  version    INTEGER PRIMARY KEY,
  wrapped    BLOB NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE journal (
  seq                 INTEGER PRIMARY KEY,
  event_id            BLOB NOT NULL UNIQUE,
  session_id          BLOB NOT NULL,
  turn_id             BLOB,
  operation_id        BLOB,
  parent_operation_id BLOB,
  kind                TEXT NOT NULL,
  schema_version      INTEGER NOT NULL,
  timestamp           INTEGER NOT NULL,
  provenance          TEXT NOT NULL,
  payload             TEXT NOT NULL,
  hash                BLOB NOT NULL,
  mac                 BLOB
) STRICT;
CREATE INDEX journal_operation ON journal (operation_id, seq);
CREATE INDEX journal_kind ON journal (kind, seq);
CREATE TRIGGER journal_no_update BEFORE UPDATE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER journal_no_delete BEFORE DELETE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;

CREATE TABLE inflight (
  operation_id BLOB PRIMARY KEY,
  path         BLOB NOT NULL,
  temp         BLOB NOT NULL,
  parents      BLOB NOT NULL,
  salt         BLOB NOT NULL,
  pre          BLOB,
  post         BLOB,
  pre_bytes    INTEGER NOT NULL,
  post_bytes   INTEGER NOT NULL,
  pre_mode     INTEGER,
  post_mode    INTEGER,
  boot_id      TEXT NOT NULL,
  root_fsid    BLOB NOT NULL,
  root_ino     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE authorization (
  authorization_id BLOB PRIMARY KEY,
  operation_id     BLOB NOT NULL UNIQUE
) STRICT, WITHOUT ROWID;

CREATE TABLE session (
  session_id BLOB PRIMARY KEY,
  created_at INTEGER NOT NULL,
  forked_from BLOB,
  rounds     INTEGER NOT NULL DEFAULT 0,
  messages   INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE turn (
  turn_id      BLOB PRIMARY KEY,
  session_id   BLOB NOT NULL REFERENCES session,
  number       INTEGER NOT NULL UNIQUE,
  prompt_round INTEGER NOT NULL,
  started_at   INTEGER NOT NULL,
  ended_at     INTEGER,
  stop_reason  TEXT,
  exit_code    INTEGER,
  sealed_label BLOB,
  UNIQUE (session_id, prompt_round)
) STRICT, WITHOUT ROWID;

CREATE TABLE message (
  session_id BLOB NOT NULL REFERENCES session,
  ordinal    INTEGER NOT NULL,
  message_id BLOB NOT NULL,
  turn_id    BLOB NOT NULL,
  sealed     BLOB NOT NULL,
  PRIMARY KEY (session_id, ordinal)
) STRICT, WITHOUT ROWID;

CREATE TABLE checkpoint (
  checkpoint_id     BLOB PRIMARY KEY,
  operation_id      BLOB NOT NULL,
  session_id        BLOB NOT NULL,
  turn_id           BLOB NOT NULL,
  prompt_round      INTEGER NOT NULL,
  created_at        INTEGER NOT NULL,
  commit_state      TEXT NOT NULL,
  retention_rounds  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX checkpoint_operation ON checkpoint (operation_id);
CREATE INDEX checkpoint_session ON checkpoint (session_id, prompt_round);

CREATE TABLE target (
  checkpoint_id  BLOB NOT NULL REFERENCES checkpoint,
  ordinal        INTEGER NOT NULL,
  effect         TEXT NOT NULL,
  sealed_path    BLOB NOT NULL,
  path_mac       BLOB NOT NULL,
  version        INTEGER NOT NULL,
  parent         BLOB,
  pre_state      TEXT NOT NULL,
  pre_digest     BLOB,
  pre_meta       TEXT,
  post_state     TEXT NOT NULL,
  post_digest    BLOB,
  post_meta      TEXT,
  parent_mode    INTEGER,
  content_class  TEXT NOT NULL,
  pre_artifact   BLOB,
  post_artifact  BLOB,
  PRIMARY KEY (checkpoint_id, ordinal)
) STRICT, WITHOUT ROWID;
CREATE INDEX target_path ON target (path_mac, version);

CREATE TABLE blob (
  blob_id  BLOB PRIMARY KEY,
  class    TEXT NOT NULL,
  schema   INTEGER NOT NULL,
  bytes    INTEGER NOT NULL,
  stored   INTEGER NOT NULL,
  prefix   BLOB NOT NULL,
  in_file  INTEGER NOT NULL CHECK (in_file IN (0, 1))
) STRICT, WITHOUT ROWID;

CREATE TABLE chunk (
  blob_id BLOB NOT NULL REFERENCES blob,
  number  INTEGER NOT NULL,
  sealed  BLOB NOT NULL,
  PRIMARY KEY (blob_id, number)
) STRICT;

CREATE TABLE artifact (
  artifact_id   BLOB PRIMARY KEY,
  blob_id       BLOB NOT NULL REFERENCES blob,
  checkpoint_id BLOB NOT NULL,
  operation_id  BLOB NOT NULL,
  ordinal       INTEGER NOT NULL,
  role          TEXT NOT NULL,
  key_version   INTEGER NOT NULL,
  wrapped       BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX artifact_blob ON artifact (blob_id);
CREATE INDEX artifact_checkpoint ON artifact (checkpoint_id);
";

#[cfg(test)]
mod tests {
    use super::*;

    /// The constant is of these very migrations: after a new one it is what this test prints.
    #[test]
    fn the_digest_is_of_the_tables_that_the_migrations_make() {
        let connection = Connection::open_in_memory().unwrap();
        migrate(&connection).unwrap();
        assert_eq!(digest(&connection).unwrap(), DIGEST);
        check(&connection).unwrap();
        connection.execute_batch("DROP TRIGGER journal_no_update").unwrap();
        assert!(matches!(check(&connection), Err(StoreError::Corrupt(_))));
    }
}
