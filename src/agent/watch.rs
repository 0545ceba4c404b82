//! Waiting: for the model or a tool, and meanwhile for a signal and for the end of the turn's time.
//! Whoever looks at the log sees that something is still at work.

use std::{future::Future, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, interval_at, sleep_until},
};

/// The signal that asked for an end, once one did.
pub type Stop = watch::Receiver<Option<&'static str>>;

/// What ended a wait before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// A signal.
    Signal(&'static str),
    /// The turn's time ran out.
    WallTime,
}

/// What every wait of a turn watches.
pub(super) struct Watch {
    stop: Stop,
    /// When the turn's time runs out.
    deadline: Option<Instant>,
    heartbeat: Duration,
}

impl Watch {
    /// Begins the turn's time.
    pub(super) fn begin(stop: Stop, wall_time: Option<Duration>, heartbeat: Duration) -> Self {
        let deadline = wall_time.and_then(|wall_time| Instant::now().checked_add(wall_time));
        Self { stop, deadline, heartbeat }
    }

    /// Whether a wait of this length would outlast the turn's time.
    pub(super) fn outlasts(&self, wait: Duration) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() + wait >= deadline)
    }

    /// The work's value, or what came first. `what` is told on standard error while it goes on.
    pub(super) async fn over<T>(&mut self, what: &str, work: impl Future<Output = T>) -> Result<T, Cut> {
        let begun = Instant::now();
        // Work that is done at once would never let the timer have its say.
        if self.outlasts(Duration::ZERO) {
            return Err(Cut::WallTime);
        }
        let mut beat = interval_at(begun + self.heartbeat, self.heartbeat);
        let deadline = self.deadline;
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                signal = signalled(&mut self.stop) => return Err(Cut::Signal(signal)),
                () = until(deadline) => return Err(Cut::WallTime),
                value = &mut work => return Ok(value),
                _ = beat.tick() => {
                    let seconds = begun.elapsed().as_secs();
                    tracing::warn!("still waiting for {what} ({seconds} s)");
                }
            }
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

async fn signalled(stop: &mut Stop) -> &'static str {
    loop {
        if let Some(signal) = *stop.borrow_and_update() {
            return signal;
        }
        if stop.changed().await.is_err() {
            // Nobody can send a signal any more.
            return std::future::pending().await;
        }
    }
}
