//! What happens, told as it happens: scrubbed like everything that leaves, also where a secret is
//! spread over two pieces of a text.

use super::Redactor;
use crate::{contract::stream::StreamPayload, id::SessionId, redact::DeltaScrubber};

/// Stands between the turn and whoever listens.
pub(super) struct Scrubbed<'a> {
    redactor: &'a Redactor,
    /// The text that is arriving, if one is.
    text: Option<DeltaScrubber<'a>>,
    out: &'a mut dyn FnMut(SessionId, StreamPayload),
}

impl<'a> Scrubbed<'a> {
    pub(super) fn new(redactor: &'a Redactor, out: &'a mut dyn FnMut(SessionId, StreamPayload)) -> Self {
        Self { redactor, text: None, out }
    }

    pub(super) fn tell(&mut self, session: SessionId, payload: StreamPayload) {
        log(&payload);
        let clean = |text: String| self.redactor.scrub(&text).into_owned();
        let payload = match payload {
            StreamPayload::TextDelta { text } => {
                let scrubber = self.text.get_or_insert_with(|| self.redactor.deltas());
                let text = scrubber.push(&text);
                return self.delta(session, text);
            }
            StreamPayload::ToolStart { tool, operation_id } => {
                StreamPayload::ToolStart { tool: clean(tool), operation_id }
            }
            StreamPayload::ToolResult { tool, ok, operation_id } => {
                StreamPayload::ToolResult { tool: clean(tool), ok, operation_id }
            }
            other @ (StreamPayload::TurnStart { .. }
            | StreamPayload::IterationStart { .. }
            | StreamPayload::Retry { .. }
            | StreamPayload::BudgetNotice { .. }
            | StreamPayload::Result { .. }) => other,
        };
        self.end(session);
        (self.out)(session, payload);
    }

    /// Whatever was held back of a text that has ended.
    pub(super) fn end(&mut self, session: SessionId) {
        if let Some(mut scrubber) = self.text.take() {
            let rest = scrubber.finish();
            self.delta(session, rest);
        }
    }

    fn delta(&mut self, session: SessionId, text: String) {
        if !text.is_empty() {
            (self.out)(session, StreamPayload::TextDelta { text });
        }
    }
}

fn log(payload: &StreamPayload) {
    match payload {
        StreamPayload::IterationStart { iteration } => tracing::info!("model call {iteration}"),
        StreamPayload::ToolStart { tool, .. } => tracing::info!("tool {tool} starts"),
        StreamPayload::ToolResult { tool, ok: true, .. } => tracing::info!("tool {tool} succeeded"),
        StreamPayload::ToolResult { tool, ok: false, .. } => {
            tracing::info!("tool {tool} did not succeed")
        }
        StreamPayload::Retry { attempt, wait_ms, cause_code } => {
            let cause = cause_code.token();
            tracing::warn!("the model call failed ({cause}); try {attempt} comes in {wait_ms} ms");
        }
        StreamPayload::BudgetNotice { used_percent, .. } => {
            tracing::warn!("{used_percent} % of a budget is used up; the model was told")
        }
        StreamPayload::TurnStart { .. }
        | StreamPayload::TextDelta { .. }
        | StreamPayload::Result { .. } => {}
    }
}
