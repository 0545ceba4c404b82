//! Who ends the process: the main thread with what its verb came to, or, once a signal has come and
//! the main thread is busy or blocked, a thread beside it. Never both, so that there is one
//! document and it agrees with the exit code.
//!
//! A verb at work is ended at once, a turn has the time to end by itself, and a document that is
//! being printed the time to be read; together they stay under five seconds, since engines kill
//! soon after.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use super::output::Output;
use crate::app::{self, Finished};

/// How long a turn may take to end by itself.
const TURN: Duration = Duration::from_millis(2_500);
/// How long a document may wait for its reader.
const READER: Duration = Duration::from_secs(2);

/// What the main thread is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Anything that has no end of its own for a signal.
    Working,
    /// A turn, which looks for the signal itself.
    Turn,
    /// The document is on its way out.
    Printing,
    /// Everything is out; the process is about to end.
    Done,
    /// The other thread ends the process.
    Taken,
}

/// Whose document it is.
#[derive(Clone)]
pub(super) struct Who {
    pub(super) output: Output,
    pub(super) verb: Option<String>,
    pub(super) redactor: Arc<app::Redactor>,
}

/// What both threads know.
pub(super) struct Ending {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    phase: Phase,
    /// The document that the file of `-o` holds.
    filed: Option<Finished>,
}

impl Ending {
    pub(super) fn new() -> Self {
        let state = State { phase: Phase::Working, filed: None };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// A turn begins.
    pub(super) fn turn(&self) {
        self.enter(Phase::Turn);
    }

    /// Does something that the other thread may not do the opposite of meanwhile.
    pub(super) fn alone(&self, work: impl FnOnce()) {
        let state = self.lock();
        if state.phase == Phase::Working {
            work();
        }
    }

    /// The document is about to be written.
    pub(super) fn printing(&self) {
        self.enter(Phase::Printing);
    }

    /// The file of `-o` holds this document.
    pub(super) fn filed(&self, finished: &Finished) {
        self.lock().filed = Some(finished.clone());
    }

    /// Whether the file of `-o` holds a document of this process.
    pub(super) fn has_filed(&self) -> bool {
        self.lock().filed.is_some()
    }

    /// All is written.
    pub(super) fn done(&self) {
        self.enter(Phase::Done);
    }

    /// Comes back only if the process is still the caller's to end.
    fn enter(&self, phase: Phase) {
        let mut state = self.lock();
        if state.phase == Phase::Taken {
            drop(state);
            wait_for_the_end();
        }
        state.phase = phase;
        self.changed.notify_all();
    }

    /// Answers a signal, beside the main thread: gives the code to end the process with, and comes
    /// back only if the main thread doesn't end it.
    pub(super) fn answer(&self, signal: &'static str, who: &Who) -> u8 {
        let mut state = self.wait_while(self.lock(), Phase::Turn, TURN);
        state = self.wait_while(state, Phase::Printing, READER);
        let was = state.phase;
        if was == Phase::Done {
            drop(state);
            wait_for_the_end();
        }
        state.phase = Phase::Taken;
        let filed = state.filed.clone();
        drop(state);
        match was {
            Phase::Printing => who.output.not_read(&who.redactor, filed, signal),
            Phase::Working | Phase::Turn | Phase::Done | Phase::Taken => {
                who.output.cancelled(&who.redactor, who.verb.as_deref(), signal, READER)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while<'a>(
        &self,
        state: MutexGuard<'a, State>,
        phase: Phase,
        most: Duration,
    ) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout_while(state, most, |state| state.phase == phase);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The other thread is ending the process.
fn wait_for_the_end() -> ! {
    loop {
        thread::park();
    }
}
