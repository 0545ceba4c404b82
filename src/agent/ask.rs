//! Asking the model: again where that may help, no sooner than the provider asks for, and never
//! without saying so. Nothing of a failed reply is acted on.

use std::time::Duration;

use super::{
    budget::{millis, over_time},
    end::{End, cancelled, cause_of, provider_end},
    turn::Turn,
    watch::Cut,
};
use crate::{
    contract::{stream::StreamPayload, turn::TurnEvent},
    provider::{
        Provider,
        message::{ProviderError, Reply, Request},
    },
};

/// The first wait; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest wait of our own choosing.
const LONGEST_WAIT: Duration = Duration::from_secs(20);
/// The longest that a provider may ask for; whoever asks for more is left to the caller's engine.
const MOST_PATIENCE: Duration = Duration::from_secs(60);

impl Turn<'_> {
    pub(super) async fn ask(
        &mut self,
        provider: &mut Provider,
        request: &Request,
    ) -> Result<Reply, End> {
        let mut attempt = 1;
        loop {
            let error = match self.ask_once(provider, request).await? {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            // Replies from a file are what they are.
            let scripted = matches!(provider, Provider::Scripted(_));
            let more = attempt <= self.limits.retries && error.kind.retryable() && !scripted;
            let wait = pause(attempt, error.retry_after_ms, self.random());
            let wait = wait.filter(|wait| more && !self.watch.outlasts(*wait));
            let Some(wait) = wait else { return Err(given_up(error, attempt)) };
            attempt += 1;
            let (wait_ms, cause_code) = (millis(wait), cause_of(error.kind));
            self.record.retries += 1;
            self.record.event(TurnEvent::Retry { attempt, wait_ms, cause_code });
            self.tell(StreamPayload::Retry { attempt, wait_ms, cause_code });
            let waited = self.watch.over("the next try", tokio::time::sleep(wait)).await;
            waited.map_err(|cut| self.cut(cut))?;
        }
    }

    async fn ask_once(
        &mut self,
        provider: &mut Provider,
        request: &Request,
    ) -> Result<Result<Reply, ProviderError>, End> {
        let before = self.host.elapsed();
        let (session_id, observe) = (self.record.session_id, &mut *self.observe);
        let mut on_delta =
            |text: &str| observe(session_id, StreamPayload::TextDelta { text: text.to_owned() });
        let asked = provider.complete(request, &mut on_delta);
        let answered = self.watch.over("the model", asked).await;
        let spent = self.host.elapsed().saturating_sub(before);
        self.record.provider_ms = self.record.provider_ms.saturating_add(millis(spent));
        answered.map_err(|cut| self.cut(cut))
    }

    /// The end that a cut wait comes to.
    pub(super) fn cut(&self, cut: Cut) -> End {
        match cut {
            Cut::Signal(signal) => cancelled(signal),
            Cut::WallTime => over_time(self.limits.limited.wall_time),
        }
    }

    fn random(&self) -> u8 {
        let mut byte = [0];
        // Without entropy all wait alike, which is no more than impolite.
        self.host.fill(&mut byte).ok();
        let [byte] = byte;
        byte
    }
}

/// How long to wait before the next try; `None` if that is longer than anybody should wait here.
fn pause(attempt: u32, retry_after_ms: Option<u64>, random: u8) -> Option<Duration> {
    let doubled = FIRST_WAIT.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(LONGEST_WAIT);
    // Between half and all of it, so that many runs don't come back at once.
    let spread = doubled / 2 + (doubled / 2) * u32::from(random) / 255;
    match retry_after_ms.map(Duration::from_millis) {
        Some(asked) if asked > MOST_PATIENCE => None,
        // Never sooner than asked for.
        Some(asked) => Some(asked + spread / 2),
        None => Some(spread),
    }
}

fn given_up(mut error: ProviderError, attempt: u32) -> End {
    if attempt > 1 {
        error.message.push_str(&format!(" (after {attempt} tries)"));
    }
    provider_end(&error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_are_spread_and_honour_what_is_asked_for() {
        let ms = |attempt, asked, random| pause(attempt, asked, random).map(|wait| wait.as_millis());
        assert_eq!((ms(1, None, 0), ms(1, None, 255)), (Some(250), Some(500)));
        assert_eq!((ms(3, None, 0), ms(3, None, 255)), (Some(1_000), Some(2_000)));
        assert_eq!(ms(u32::MAX, None, 255), Some(20_000));
        for random in [0, 128, 255] {
            assert!(pause(1, Some(7_000), random).unwrap() >= Duration::from_secs(7));
        }
        assert_eq!(pause(1, Some(60_001), 0), None);
    }
}
