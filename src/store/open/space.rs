//! Giving room back. Freed pages are taken again by what comes next; what is left over at the end of the
//! file is cut off, a piece at a time, so that it takes no more room than a piece while it goes on. A
//! whole rewriting (`VACUUM`) would take the store's size once more.

use super::{Store, StoreError, checkpoint};

/// Pages that are moved and cut off at a time: 2 MiB.
const PIECE: i64 = 512;

impl Store {
    /// Cuts the database down to what it holds. One that was made before this was possible keeps its
    /// size, and takes its free pages again.
    pub fn shrink(&self) -> Result<(), StoreError> {
        let incremental = 2;
        if self.number("PRAGMA auto_vacuum")? != incremental {
            return Ok(());
        }
        let mut free = self.number("PRAGMA freelist_count")?;
        while free > 0 {
            let sql = format!("PRAGMA incremental_vacuum({PIECE})");
            let mut statement = self.connection.prepare(&sql)?;
            let mut rows = statement.query([])?;
            while rows.next()?.is_some() {}
            drop(rows);
            drop(statement);
            checkpoint(&self.connection, "TRUNCATE")?;
            let left = self.number("PRAGMA freelist_count")?;
            if left >= free {
                break;
            }
            free = left;
        }
        Ok(())
    }

    /// The room inside the database that is taken again by what comes next. Bytes.
    pub fn free_bytes(&self) -> Result<u64, StoreError> {
        let pages = self.number("PRAGMA freelist_count")?;
        let bytes = pages.saturating_mul(self.number("PRAGMA page_size")?);
        Ok(u64::try_from(bytes).unwrap_or(0))
    }

    fn number(&self, sql: &str) -> Result<i64, StoreError> {
        Ok(self.connection.query_row(sql, [], |row| row.get(0))?)
    }
}
