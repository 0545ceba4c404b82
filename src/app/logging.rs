//! What goes to standard error: lines, each scrubbed of secrets before it leaves.

use std::{
    io::{self, Write as _},
    sync::Arc,
};

use tracing_subscriber::{filter::LevelFilter, fmt::MakeWriter};

use crate::redact::{Redactor, Spelling, disarm};

/// How much is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loudness {
    /// Errors alone (`-q`).
    Quiet,
    /// Errors and warnings.
    Normal,
    /// What happens, step by step (`-v`).
    Verbose,
}

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For a person.
    Text,
    /// One JSON object a line.
    Json,
}

/// Sends this process's log lines to standard error.
pub fn init(redactor: Arc<Redactor>, loudness: Loudness, format: LogFormat) {
    let level = match loudness {
        Loudness::Quiet => LevelFilter::ERROR,
        Loudness::Normal => LevelFilter::WARN,
        Loudness::Verbose => LevelFilter::INFO,
    };
    let spelling = match format {
        LogFormat::Text => Spelling::Text,
        LogFormat::Json => Spelling::Json,
    };
    let writer = Scrubbed { redactor, spelling };
    let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(writer).with_target(false);
    // A second init (there is none outside tests) would only say that there was a first.
    drop(match format {
        LogFormat::Text => builder.without_time().with_ansi(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    });
}

struct Scrubbed {
    redactor: Arc<Redactor>,
    spelling: Spelling,
}

impl<'a> MakeWriter<'a> for Scrubbed {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { redactor: Arc::clone(&self.redactor), spelling: self.spelling, bytes: Vec::new() }
    }
}

/// One event's line, held until it is whole.
struct Line {
    redactor: Arc<Redactor>,
    spelling: Spelling,
    bytes: Vec<u8>,
}

impl io::Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let text = String::from_utf8_lossy(&self.bytes);
        let text = disarm(&self.redactor.scrub(&text), self.spelling);
        // Standard error that is closed or full is nobody's failure: the document tells all.
        drop(io::stderr().write_all(text.as_bytes()));
    }
}
