//! What the world gives: clock, entropy, environment; and `own_file`, the one atomic writer of
//! files that are ours.
//!
//! The only room that reads any of these. Never touches a file of the user's workspace.
#![expect(clippy::disallowed_methods, reason = "this room is where the world is read")]

use std::{
    ffi::OsString,
    path::Path,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use rustix::process::{Signal, getpid, kill_process};
use uuid::Uuid;

use crate::id::Timestamp;

pub mod own_file;
pub mod signals;

macro_rules! crash_points {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// The steps between which a crash must leave something that can be understood.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum CrashPoint { $($(#[doc = $doc])+ $name,)+ }

        impl CrashPoint {
            /// Every one: a test visits them all.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Its name, as a test asks for it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text),+ }
            }
        }
    };
}

crash_points! {
    /// A new store: its key and its anchor are there, its database isn't.
    AnchorMade = "crash-anchor-made",
    /// The database is whole and synced, and has another name.
    DatabaseMade = "crash-database-made",
    /// The database has its name, its directory isn't synced.
    DatabaseNamed = "crash-database-named",
    /// The call and its verdict are journaled.
    Proposed = "crash-proposed",
    /// The images are sealed, and no row refers to them.
    Sealed = "crash-sealed",
    /// The checkpoint is committed.
    Checkpointed = "crash-checkpointed",
    /// The dispatch is committed, the anchor not yet written.
    Dispatched = "crash-dispatched",
    /// The anchor is written.
    Anchored = "crash-anchored",
    /// The parents are made.
    ParentsMade = "crash-parents-made",
    /// The temporary file has its bytes and isn't synced.
    TempWritten = "crash-temp-written",
    /// The temporary file is synced.
    TempSynced = "crash-temp-synced",
    /// The target is exchanged, made or moved away.
    Published = "crash-published",
    /// What came out was compared and removed.
    Removed = "crash-removed",
    /// The directory is synced.
    DirSynced = "crash-dir-synced",
    /// The terminal event is committed.
    Settled = "crash-settled",
    /// The run's end is committed.
    RunEnded = "crash-run-ended",
    /// The anchor follows it.
    EndAnchored = "crash-end-anchored",
    /// The log is moved into the database.
    Tidied = "crash-tidied",
    /// Checkpoints are freed and journaled, their sealed files are still there.
    Evicted = "crash-evicted",
    /// Their sealed files are gone, the anchor hasn't followed.
    Swept = "crash-swept",
    /// What was lost is accepted and journaled, the anchor is still the old one.
    HeadAccepted = "crash-head-accepted",
    /// One slot of the anchor is the new one, the other still the old one.
    HalfAnchored = "crash-half-anchored",
}

impl CrashPoint {
    /// Those that no run visits, but a verb that keeps the store.
    pub const OF_THE_STORE: [Self; 4] =
        [Self::Evicted, Self::Swept, Self::HeadAccepted, Self::HalfAnchored];
}

/// The world as this process sees it.
#[derive(Debug, Clone)]
pub struct Host {
    started: Instant,
    told: Arc<Told>,
}

/// What the kernel tells of this process and doesn't change while it runs: asked once.
#[derive(Debug, Default)]
struct Told {
    boot_id: OnceLock<String>,
    umask: OnceLock<u32>,
}

impl Host {
    /// The real one; its stopwatch starts now.
    pub fn real() -> Self {
        Self { started: Instant::now(), told: Arc::default() }
    }

    /// The files (device and inode) that other processes have open for writing, as far as this process
    /// may look. Blind across namespaces of processes.
    pub fn open_for_writing(
        &self,
        only: Option<&std::collections::BTreeSet<(u64, u64)>>,
    ) -> std::collections::BTreeSet<(u64, u64)> {
        use std::os::unix::fs::MetadataExt as _;
        let mut found = std::collections::BTreeSet::new();
        let own = std::process::id().to_string();
        for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = process.file_name();
            let name = name.to_string_lossy();
            if *name == own || !name.bytes().all(|byte| byte.is_ascii_digit()) {
                continue;
            }
            let handles = std::fs::read_dir(process.path().join("fd")).into_iter().flatten();
            for handle in handles.flatten() {
                // What it names is cheaper to ask for than how it was opened.
                let Ok(meta) = std::fs::metadata(handle.path()) else { continue };
                let identity = (meta.dev(), meta.ino());
                if !meta.is_file() || only.is_some_and(|only| !only.contains(&identity)) {
                    continue;
                }
                let info = process.path().join("fdinfo").join(handle.file_name());
                let info = std::fs::read_to_string(info).unwrap_or_default();
                let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
                let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
                // The lowest two bits are how it was opened; 0 is for reading alone.
                if flags.is_some_and(|flags| flags & 3 != 0) {
                    found.insert(identity);
                }
            }
        }
        found
    }

    /// Whether the open files of every process can be looked at; otherwise those of this user alone.
    pub fn sees_all_processes(&self) -> bool {
        rustix::process::geteuid().is_root()
    }

    /// A process of a group that is alive, as id and words; a zombie isn't. Where nothing can be looked
    /// at, the group counts as alive and its leader's id is told without words.
    pub fn alive_in_group(&self, group: u32) -> Option<(u32, String)> {
        let Ok(entries) = std::fs::read_dir("/proc") else { return Some((group, String::new())) };
        entries.flatten().find_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            // The name may hold anything; what follows its last parenthesis doesn't.
            let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
            let dead = matches!(fields.next(), Some("Z" | "X"));
            if dead || fields.nth(1).and_then(|id| id.parse().ok()) != Some(group) {
                return None;
            }
            let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let words = words.split(|byte| *byte == 0).map(String::from_utf8_lossy);
            Some((pid, words.collect::<Vec<_>>().join(" ").trim_end().to_owned()))
        })
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

    /// Fills the bytes with randomness that nobody can guess.
    pub fn fill(&self, bytes: &mut [u8]) -> Result<(), getrandom::Error> {
        getrandom::fill(bytes)
    }

    /// A variable of the environment; set but empty counts as unset (a missing CI secret is the
    /// empty string).
    pub fn var(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name).filter(|value| !value.is_empty())
    }

    /// Whether a variable is set, but empty: it counts as unset, which a caller may want to be told.
    pub fn is_set_but_empty(&self, name: &str) -> bool {
        std::env::var_os(name).is_some_and(|value| value.is_empty())
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

    /// The id of this boot, as the kernel gives it; empty where it doesn't.
    pub fn boot_id(&self) -> &str {
        self.told.boot_id.get_or_init(|| {
            let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
            text.trim().to_owned()
        })
    }

    /// The permission bits that new files don't get.
    pub fn umask(&self) -> u32 {
        *self.told.umask.get_or_init(|| {
            own_status("Umask:", 8).and_then(|mask| u32::try_from(mask).ok()).unwrap_or(0o022)
        })
    }

    /// The system's directory for temporary files.
    pub fn temp_dir(&self) -> std::path::PathBuf {
        std::env::temp_dir()
    }

    /// The home directory as `HOME` gives it.
    pub fn home(&self) -> Option<std::path::PathBuf> {
        self.var("HOME").map(std::path::PathBuf::from).filter(|home| home.is_absolute())
    }

    /// A place where the process dies, or stops until it is told to go on, if a test asked for it.
    pub fn crash_point(&self, point: CrashPoint) {
        if self.fault(point.name()) {
            std::process::abort();
        }
        if self.fault("stop") || self.fault(&format!("stop-at-{}", point.name())) {
            stop();
        }
    }

    /// Whether a fault of this name was asked for, alone or among others, with commas between; only
    /// builds for the tests can say yes.
    #[cfg(feature = "fault-injection")]
    pub fn fault(&self, name: &str) -> bool {
        self.text_var("THCODE_FAULT").is_some_and(|asked| asked.split(',').any(|asked| asked == name))
    }

    /// Whether a fault of this name was asked for: never, outside builds for the tests.
    #[cfg(not(feature = "fault-injection"))]
    pub fn fault(&self, _name: &str) -> bool {
        false
    }
}

/// Stops this process as a whole, and comes back when it is told to go on.
fn stop() {
    if kill_process(getpid(), Signal::STOP).is_err() {
        return;
    }
    // Another thread may have to take the signal; from then on this one stops as well.
    let bit = 1u64 << (Signal::STOP.as_raw() - 1);
    while own_status("ShdPnd:", 16).is_some_and(|pending| pending & bit != 0) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A number that the kernel tells of this process.
fn own_status(field: &str, radix: u32) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let text = status.lines().find_map(|line| line.strip_prefix(field))?;
    u64::from_str_radix(text.trim(), radix).ok()
}

/// Whether the path exists as something that isn't a directory or a regular file, so that reading
/// it could wait forever or have an effect.
pub fn is_special_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
}
