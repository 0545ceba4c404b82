//! The sole writer of standard output: validate, write the file of `-o`, then print.
//!
//! A document that doesn't follow its schema is never printed; one that can't be printed whole ends
//! the process with FAILED, and the file of `-o` says so.

mod guess;

use std::{
    io::{self, IsTerminal as _},
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use serde_json::Value;

use super::{
    args::{CommonArgs, OutputFormat},
    ending::Ending,
    text,
};
use crate::{
    app::{self, Ended, Fail, Finished, state::StateOptions},
    contract::{
        Document as _, ExitClass, FailureDocument, registry,
        stream::{StreamEvent, StreamEventSchema, StreamPayload},
        validate::violations,
    },
    host::{
        Host,
        own_file::{self, OwnFileError},
    },
    id::SessionId,
};

/// What a verb has made.
pub(super) enum Product {
    /// A document.
    Document(Ended),
    /// A text that is the product itself.
    Text {
        /// The verb, for the document of `-o`.
        verb: &'static str,
        /// The text.
        text: String,
    },
}

/// Where and how this process prints.
#[derive(Clone)]
pub(super) struct Output {
    format: OutputFormat,
    file: Option<PathBuf>,
    /// The file of `-o` was found to be unusable, which the document tells; it isn't tried again.
    refused: Arc<AtomicBool>,
    stream: Stream,
    ending: Arc<Ending>,
}

/// The lines of stream-json so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Stream {
    seq: Arc<Mutex<u64>>,
    broken: Arc<AtomicBool>,
}

impl Output {
    pub(super) fn of(common: &CommonArgs, ending: &Arc<Ending>) -> Self {
        Self {
            format: common.format(),
            file: common.output.clone(),
            refused: Arc::default(),
            stream: Stream::default(),
            ending: Arc::clone(ending),
        }
    }

    /// The same, for a process that ends in this way.
    pub(super) fn ending_with(self, ending: &Arc<Ending>) -> Self {
        Self { ending: Arc::clone(ending), ..self }
    }

    /// Whether the document goes to a file as well.
    pub(super) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Whether that file has turned out to be usable.
    fn writes_file(&self) -> bool {
        self.has_file() && !self.refused.load(Ordering::Relaxed)
    }

    /// From now on a signal is the turn's to answer.
    pub(super) fn turn_begins(&self) {
        self.ending.turn();
    }

    pub(super) fn is_stream(&self) -> bool {
        self.format == OutputFormat::StreamJson
    }

    /// Refuses, before anything is done, to write over what is read or kept.
    pub(super) fn spare(
        &self,
        host: &Host,
        inputs: &[PathBuf],
        state: &StateOptions,
    ) -> Result<(), Fail> {
        let Some(file) = self.file.as_deref() else { return Ok(()) };
        if let Err(fail) = app::state::spare(host, state, file) {
            self.refused.store(true, Ordering::Relaxed);
            return Err(fail);
        }
        // Of a folder each policy file is read.
        let named = |input: &PathBuf| match file.file_name() {
            Some(name) if input.is_dir() && name.to_string_lossy().ends_with(".policy.toml") => {
                input.join(name)
            }
            _ => input.clone(),
        };
        if inputs.iter().map(named).any(|input| own_file::is_same(file, &input)) {
            self.refused.store(true, Ordering::Relaxed);
            return Err(app::output_is_input(file));
        }
        Ok(())
    }

    /// Says early whether the file of `-o` can be written.
    pub(super) fn check(&self) -> Result<(), Fail> {
        let checked = self.file.as_deref().map_or(Ok(()), own_file::check);
        self.refused.store(checked.is_err(), Ordering::Relaxed);
        checked.map_err(|error| {
            let written = matches!(error, OwnFileError::Io { .. });
            let left = self.file.as_deref().filter(|_| written).map(own_file::clear);
            if left == Some(own_file::Left::Removed) {
                tracing::warn!("-o: the document of an earlier run that stood there was taken away");
            }
            Fail::from(error)
        })
    }

    /// Takes the document of an earlier process out of the file of `-o`: if this one is killed, the file
    /// says that, and not how another one ended.
    pub(super) fn begin(&self, redactor: &app::Redactor, verb: &str) {
        let Some(file) = self.file.as_deref().filter(|file| file.exists()) else { return };
        let unfinished = self.valid(app::finish(redactor, app::unfinished().ended(Some(verb))));
        let Ok(text) = pretty(&unfinished.value) else { return };
        self.ending.alone(|| {
            if let Err(error) = own_file::replace(file, text.as_bytes()) {
                // The end of the verb meets the same, and tells it.
                tracing::debug!("-o: {error}: {:?}", own_file::clear(file));
            }
        });
    }

    /// As [`Output::check`], where the command line is wrong already, and the document says that.
    pub(super) fn check_anyway(&self, host: &Host) {
        let spared = self.spare(host, &[], &StateOptions::default());
        let refused = self.refused.load(Ordering::Relaxed) || spared.is_err();
        self.refused.store(self.check().is_err() || refused, Ordering::Relaxed);
    }

    /// Prints help or version: the one output without a document.
    pub(super) fn print_help(&self, text: &str) -> ExitCode {
        self.ending.printing();
        let code = match write_stdout(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
        self.ending.done();
        code
    }

    /// Ends the verb: the file of `-o` first, then standard output.
    pub(super) fn print(&self, redactor: &app::Redactor, product: Product) -> ExitCode {
        self.ending.printing();
        let code = self.print_product(redactor, product);
        self.ending.done();
        ExitCode::from(code)
    }

    fn print_product(&self, redactor: &app::Redactor, product: Product) -> u8 {
        match product {
            Product::Text { verb, text } => self.print_text(redactor, verb, &text),
            Product::Document(ended) => {
                let text_verb = is_text_verb(&ended);
                let finished = self.valid(app::finish(redactor, ended));
                self.hand_over(redactor, finished, if text_verb { None } else { Some(()) })
            }
        }
    }

    /// Ends the verb for a signal, beside a main thread that is busy: the file of `-o` first, then
    /// what is still to be had of standard output. Gives the code to exit with.
    pub(super) fn cancelled(
        &self,
        redactor: &Arc<app::Redactor>,
        verb: Option<&str>,
        signal: &str,
        patience: Duration,
    ) -> u8 {
        let ended = app::cancelled(signal).ended(verb);
        let text_verb = is_text_verb(&ended);
        let finished = self.to_file(redactor, self.valid(app::finish(redactor, ended)));
        let code = finished.ended.exit_code();
        // The main thread may hold a stream that nobody reads.
        let (tell, told) = mpsc::channel();
        let output = self.clone();
        let printing = thread::Builder::new().name("printing".to_owned()).spawn(move || {
            if !text_verb {
                drop(output.to_stdout(&finished));
            }
            output.tell_failure(&finished);
            if tell.send(()).is_err() {
                tracing::debug!("too late to be waited for");
            }
        });
        // Whether it comes out or not, the code is in the file.
        match printing.map(|_| told.recv_timeout(patience)) {
            Ok(Ok(()) | Err(_)) | Err(_) => code,
        }
    }

    /// Ends a process whose document nobody reads, for a signal: the file of `-o` has to tell.
    pub(super) fn not_read(
        &self,
        redactor: &app::Redactor,
        filed: Option<Finished>,
        signal: &str,
    ) -> u8 {
        if let Some(filed) = filed {
            let message = format!("the document can't be printed: nobody reads it, and {signal} came");
            let ended = filed.ended.not_handed_over(app::output_error(message, true));
            let finished = self.to_file(redactor, self.valid(app::finish(redactor, ended)));
            return finished.ended.exit_code();
        }
        ExitClass::Failed.code()
    }

    fn print_text(&self, redactor: &app::Redactor, verb: &str, text: &str) -> u8 {
        let document = Ended::Failure(Box::new(FailureDocument::succeeded(verb)));
        let finished = self.to_file(redactor, self.valid(app::finish(redactor, document)));
        if finished.ended.failure().is_some() {
            return self.hand_over(redactor, finished, None);
        }
        match write_stdout(text.as_bytes()) {
            Ok(()) => finished.ended.exit_code(),
            Err(error) => self.broken(redactor, finished, &error),
        }
    }

    /// A document that may be printed: this one, or the minimal one that says why not this one.
    fn valid(&self, finished: Finished) -> Finished {
        if self.format == OutputFormat::Text && self.file.is_none() {
            return finished;
        }
        let name = finished.ended.name();
        let mut finished = finished;
        if Host::real().fault("document-invalid") && name != FailureDocument::NAME {
            drop(finished.value.as_object_mut().and_then(|document| document.remove("toolVersion")));
        }
        let Some(published) = registry::find(name) else {
            return app::document_invalid(format!("the document {name} has no schema"));
        };
        let found = match violations(published, &finished.value) {
            Ok(found) => found,
            Err(error) => return app::document_invalid(error.to_string()),
        };
        let Some(first) = found.first() else { return finished };
        for violation in &found {
            tracing::error!(
                "the document {name} does not follow its schema at {}: {}: {}",
                violation.instance_path,
                violation.keyword,
                violation.message
            );
        }
        let place = &first.instance_path;
        app::document_invalid(format!("the document {name} does not follow its schema at {place:?}"))
    }

    fn hand_over(&self, redactor: &app::Redactor, finished: Finished, stdout: Option<()>) -> u8 {
        let finished = self.to_file(redactor, finished);
        let code = finished.ended.exit_code();
        self.tell_failure(&finished);
        if stdout.is_none() {
            return code;
        }
        match self.to_stdout(&finished) {
            Ok(()) => code,
            Err(error) => self.broken(redactor, finished, &error),
        }
    }

    fn to_stdout(&self, finished: &Finished) -> io::Result<()> {
        let printed = match self.format {
            OutputFormat::Text => write_stdout(text::render(&finished.ended).as_bytes()),
            OutputFormat::Json => pretty(&finished.value).and_then(|text| write_json(&text)),
            OutputFormat::StreamJson => {
                let payload = StreamPayload::Result { document: finished.value.clone() };
                let session = session_of(&finished.value);
                self.stream.write(&event(self.stream.next(), session, payload))
            }
        };
        printed.and_then(|()| self.stream.whole())
    }

    /// Writes the file of `-o`; where that fails, the document says so from then on.
    fn to_file(&self, redactor: &app::Redactor, finished: Finished) -> Finished {
        let Some(file) = self.file.as_deref().filter(|_| !self.refused.load(Ordering::Relaxed)) else {
            return finished;
        };
        let written = pretty(&finished.value)
            .map_err(|error| error.to_string())
            .and_then(|text| own_file::write(file, text.as_bytes()).map_err(|error| error.to_string()));
        // The document that this process has written before it couldn't be printed is still its own.
        let stays = || self.ending.has_filed();
        match written {
            Ok(()) => {
                self.ending.filed(&finished);
                finished
            }
            Err(message) => {
                let left = if stays() { own_file::Left::Nothing } else { own_file::clear(file) };
                let failure = app::file_error(&message, left);
                self.valid(app::finish(redactor, finished.ended.not_handed_over(failure)))
            }
        }
    }

    /// Standard output failed: the file of `-o` and standard error have to tell.
    fn broken(&self, redactor: &app::Redactor, finished: Finished, error: &io::Error) -> u8 {
        let failure = app::output_error(
            format!("the document can't be printed: standard output: {error}"),
            self.writes_file(),
        );
        let finished = self.valid(app::finish(redactor, finished.ended.not_handed_over(failure)));
        let finished = self.to_file(redactor, finished);
        self.tell_failure(&finished);
        finished.ended.exit_code()
    }

    /// One line on standard error for every failure, so that a redirected document isn't the only
    /// place that tells it. On a terminal in text form it would stand there twice.
    fn tell_failure(&self, finished: &Finished) {
        let shown = self.format == OutputFormat::Text && io::stdout().is_terminal();
        let Some(failure) = finished.ended.failure().filter(|_| !shown) else { return };
        let class = finished.ended.exit_class();
        let next = failure.recovery_actions.first().map(|next| format!(" ({next})")).unwrap_or_default();
        tracing::error!("{} {}: {}{next}", class.token(), failure.cause_code.token(), failure.message);
    }

    pub(super) fn stream(&self) -> Stream {
        self.stream.clone()
    }
}

/// Whether the verb's product is a text, so that on failure standard output stays empty.
fn is_text_verb(ended: &Ended) -> bool {
    match ended {
        Ended::Failure(document) => {
            matches!(document.verb.as_deref(), Some("schema print" | "explain-exit" | "key new"))
        }
        Ended::Turn(_)
        | Ended::Policy(_)
        | Ended::Schema(_)
        | Ended::Doctor(_)
        | Ended::Store(_)
        | Ended::Session(_)
        | Ended::RollbackList(_)
        | Ended::RollbackPreview(_)
        | Ended::RollbackAnalysis(_)
        | Ended::RollbackApply(_)
        | Ended::Recovery(_) => false,
    }
}

impl Stream {
    /// Writes a line as it happens. A stream that broke stays broken, and the end tells it.
    pub(super) fn tell(&self, session: SessionId, payload: StreamPayload) {
        if let Err(error) = self.write(&event(self.next(), Some(session), payload)) {
            tracing::debug!("standard output: {error}");
        }
    }

    fn next(&self) -> u64 {
        let Ok(mut seq) = self.seq.lock() else { return 0 };
        let now = *seq;
        *seq += 1;
        now
    }

    fn write(&self, event: &StreamEvent) -> io::Result<()> {
        self.whole()?;
        let mut line = serde_json::to_string(event)?;
        line.push('\n');
        write_json(&line).inspect_err(|_| self.broken.store(true, Ordering::Relaxed))
    }

    fn whole(&self) -> io::Result<()> {
        if self.broken.load(Ordering::Relaxed) { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }
}

fn event(seq: u64, session_id: Option<SessionId>, payload: StreamPayload) -> StreamEvent {
    StreamEvent { schema: StreamEventSchema, seq, timestamp: Host::real().now(), session_id, payload }
}

fn session_of(document: &Value) -> Option<SessionId> {
    document.get("sessionId").and_then(Value::as_str).and_then(|text| text.parse().ok())
}

fn pretty(value: &Value) -> io::Result<String> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    Ok(text)
}

/// Standard output is often a job's log, which its runner searches for commands.
fn write_json(text: &str) -> io::Result<()> {
    write_stdout(app::disarm(text, app::Spelling::Json).as_bytes())
}

fn write_stdout(bytes: &[u8]) -> io::Result<()> {
    // Past the buffer of the standard library, which loses count of what is out where the other
    // end was made non-blocking and its pipe is full.
    let stdout = io::stdout().lock();
    let mut rest = bytes;
    while !rest.is_empty() {
        match rustix::io::write(&stdout, rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait_for_room(&stdout)?,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn wait_for_room(stdout: &io::StdoutLock<'_>) -> io::Result<()> {
    match poll(&mut [PollFd::new(stdout, PollFlags::OUT)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
