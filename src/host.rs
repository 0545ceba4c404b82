//! What the world gives: clock, entropy, environment; and `own_file`, the one atomic writer of
//! files that are ours.
//!
//! The only room that reads any of these. Never touches a file of the user's workspace.
#![expect(clippy::disallowed_methods, reason = "this room is where the world is read")]

use std::{
    ffi::OsString,
    path::Path,
    time::{Duration, Instant},
};

use uuid::Uuid;

use crate::id::Timestamp;

pub mod own_file;
pub mod signals;

/// The world as this process sees it.
#[derive(Debug, Clone)]
pub struct Host {
    started: Instant,
}

impl Host {
    /// The real one; its stopwatch starts now.
    pub fn real() -> Self {
        Self { started: Instant::now() }
    }

    /// Wall-clock time. Information only: nothing is decided by it.
    pub fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or(Duration::ZERO);
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    /// Monotonic time since this host was made.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// A fresh UUID v7: time-ordered, with 74 random bits.
    pub fn uuid(&self) -> Uuid {
        Uuid::now_v7()
    }

    /// A variable of the environment; set but empty counts as unset (a missing CI secret is the
    /// empty string).
    pub fn var(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name).filter(|value| !value.is_empty())
    }

    /// As [`Host::var`], where it is UTF-8.
    pub fn text_var(&self, name: &str) -> Option<String> {
        self.var(name)?.into_string().ok()
    }

    /// Every variable whose name and value are UTF-8 and not empty.
    pub fn vars(&self) -> Vec<(String, String)> {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(_, value)| !value.is_empty())
            .collect()
    }

    /// The home directory as `HOME` gives it.
    pub fn home(&self) -> Option<std::path::PathBuf> {
        self.var("HOME").map(std::path::PathBuf::from).filter(|home| home.is_absolute())
    }

    /// Whether a fault of this name was asked for; only builds for the tests can say yes.
    #[cfg(feature = "fault-injection")]
    pub fn fault(&self, name: &str) -> bool {
        self.text_var("THCODE_FAULT").is_some_and(|asked| asked == name)
    }

    /// Whether a fault of this name was asked for: never, outside builds for the tests.
    #[cfg(not(feature = "fault-injection"))]
    pub fn fault(&self, _name: &str) -> bool {
        false
    }
}

/// Whether the path exists as something that isn't a directory or a regular file, so that reading
/// it could wait forever or have an effect.
pub fn is_special_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
}
