//! What a turn may use beside files: calls, tokens, time. Checked before something is begun, so that
//! what was begun is brought to its end.

use std::time::Duration;

use super::{context, end::End};
use crate::{
    contract::{
        CauseCode, Failure,
        turn::{NoticedBudget, StopReason},
    },
    provider::message::{Reply, Request},
};

/// From so many hundredths of a budget on the model is told.
const NOTICE: u64 = 80;

/// What a turn may use beside files; what nobody limits is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limited {
    /// Tool calls.
    pub tool_calls: Option<u32>,
    /// Tokens of all requests and replies.
    pub total_tokens: Option<u64>,
    /// Time.
    pub wall_time: Option<Duration>,
}

/// What a turn has used of tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Spent {
    pub(super) tokens: u64,
    pub(super) estimated: bool,
    noticed: bool,
}

impl Spent {
    /// Counts a model call, by the provider's report or, without one, by bytes.
    pub(super) fn count(&mut self, request: &Request, reply: &Reply) {
        let tokens = match reply.usage {
            Some(usage) => usage.input.saturating_add(usage.output),
            None => {
                self.estimated = true;
                let calls = reply.calls.iter().map(|call| call.name.len() + call.arguments.len());
                let said = reply.text.len() + calls.sum::<usize>();
                context::tokens(request).saturating_add(context::estimate(said))
            }
        };
        self.tokens = self.tokens.saturating_add(tokens);
    }

    /// Which budget is about to run out, with its hundredths; told once in a turn.
    pub(super) fn notice(
        &mut self,
        limited: Limited,
        elapsed: Duration,
    ) -> Option<(NoticedBudget, u32)> {
        let percent = |used: u64, limit: u64| used.saturating_mul(100) / limit.max(1);
        let tokens = limited.total_tokens.map(|limit| percent(self.tokens, limit));
        let time = limited.wall_time.map(|limit| percent(millis(elapsed), millis(limit)));
        let named = [(NoticedBudget::TotalTokens, tokens), (NoticedBudget::WallTime, time)];
        let mut known = named.into_iter().filter_map(|(budget, used)| Some((budget, used?)));
        let found = known.find(|(_, used)| *used >= NOTICE).filter(|_| !self.noticed)?;
        self.noticed = true;
        Some((found.0, u32::try_from(found.1).unwrap_or(u32::MAX)))
    }

    /// The end of a turn whose tokens are used up.
    pub(super) fn over(&self, limited: Limited) -> Option<End> {
        let limit = limited.total_tokens.filter(|limit| self.tokens >= *limit)?;
        let estimated = if self.estimated { " (an estimate)" } else { "" };
        let message =
            format!("the turn may use {limit} tokens, and {}{estimated} are used up", self.tokens);
        let failure = Failure::new(CauseCode::TotalTokenLimit, message)
            .action("raise --max-total-tokens or [budget] total_tokens, or give a smaller task");
        Some(End::failed(StopReason::TokenLimit, failure))
    }
}

/// What the model is told when a budget is about to run out.
pub(super) fn notice_text(budget: NoticedBudget, percent: u32) -> String {
    let what = match budget {
        NoticedBudget::TotalTokens => "the tokens",
        NoticedBudget::WallTime => "the time",
    };
    format!(
        "[budget notice] {percent} % of {what} of this turn is used up. Bring what you are at to a sound \
         state and call finish with an honest outcome."
    )
}

/// The end of a turn that has made all its tool calls.
pub(super) fn over_tool_calls(limit: u32) -> End {
    let message = format!("the turn may make {limit} tool calls, and the model proposes one more");
    let failure = Failure::new(CauseCode::ToolCallLimit, message)
        .action("raise --max-tool-calls or [budget] tool_calls, or give a smaller task");
    End::failed(StopReason::ToolCallLimit, failure)
}

/// The end of a turn whose time ran out.
pub(super) fn over_time(limit: Option<Duration>) -> End {
    let limit = limit.map_or(0, millis);
    let failure = Failure::new(
        CauseCode::WallTimeLimit,
        format!("the turn may take {limit} ms, and they are over"),
    )
    .action("raise --max-wall-time or [budget] wall_time_ms, or give a smaller task");
    End::failed(StopReason::WallTimeLimit, failure)
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_given_once_and_from_eighty_percent_on() {
        let limited = Limited {
            total_tokens: Some(1000),
            wall_time: Some(Duration::from_secs(10)),
            tool_calls: None,
        };
        let mut spent = Spent { tokens: 799, ..Spent::default() };
        assert_eq!(spent.notice(limited, Duration::from_millis(7_999)), None);
        assert_eq!(
            spent.notice(limited, Duration::from_millis(8_000)),
            Some((NoticedBudget::WallTime, 80))
        );
        spent.tokens = 900;
        assert_eq!(spent.notice(limited, Duration::from_secs(9)), None);
        let mut spent = Spent { tokens: 900, ..Spent::default() };
        assert_eq!(spent.notice(limited, Duration::ZERO), Some((NoticedBudget::TotalTokens, 90)));
        assert!(Spent { tokens: 999, ..Spent::default() }.over(limited).is_none());
        assert!(Spent { tokens: 1000, ..Spent::default() }.over(limited).is_some());
        assert!(Spent { tokens: u64::MAX, ..Spent::default() }.over(Limited::default()).is_none());
    }
}
