//! A transaction: begun at once, committed whole, and with the durability that its caller needs.

use rusqlite::{Connection, Params, Row};

use super::{StoreError, rows::connected::Connected};

/// What a commit waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Nothing: made durable by the next `Full` one. No sync.
    Normal,
    /// The disk. One sync.
    Full,
}

impl Durability {
    fn pragma(self) -> &'static str {
        match self {
            Self::Normal => "PRAGMA synchronous = NORMAL",
            Self::Full => "PRAGMA synchronous = FULL",
        }
    }
}

/// A transaction in progress. Dropped without having been committed it leaves nothing.
#[derive(Debug)]
pub struct Tx<'c> {
    connection: &'c Connection,
}

impl Tx<'_> {
    /// Changes rows; how many.
    pub fn execute(&self, sql: &str, params: impl Params) -> Result<usize, StoreError> {
        Ok(self.connection.prepare_cached(sql)?.execute(params)?)
    }

    /// Changes exactly one row, or it is corrupt.
    pub fn execute_one(&self, sql: &str, params: impl Params) -> Result<(), StoreError> {
        match self.execute(sql, params)? {
            1 => Ok(()),
            found => Err(StoreError::Corrupt(format!("a change touched {found} rows, not one"))),
        }
    }
}

impl Connected for Tx<'_> {
    fn connection(&self) -> &Connection {
        self.connection
    }
}

pub(super) fn first<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    Ok(rows.next()?.map(read).transpose()?)
}

/// Runs a transaction. An error leaves nothing of it.
pub(super) fn run<T, E: From<StoreError>>(
    connection: &Connection,
    durability: Durability,
    always_full: bool,
    work: impl FnOnce(&Tx<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let sql = |sql: &str| connection.execute_batch(sql).map_err(StoreError::from);
    if !always_full {
        sql(durability.pragma())?;
    }
    sql("BEGIN IMMEDIATE")?;
    match work(&Tx { connection }) {
        Ok(value) => match sql("COMMIT") {
            Ok(()) => Ok(value),
            Err(error) => {
                // A commit that failed for want of space leaves the transaction open.
                drop(sql("ROLLBACK"));
                Err(error.into())
            }
        },
        Err(error) => {
            drop(sql("ROLLBACK"));
            Err(error)
        }
    }
}
