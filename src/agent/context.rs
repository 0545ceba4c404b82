//! What the model is shown: system prompt, history, task, results; bounded, and the task stays.
//!
//! Over 70 % of the capacity the oldest tool results are left out first; never the task, never the
//! last two rounds.

use crate::{
    contract::turn::{NormalizedMessage, Role},
    provider::message::{Call, Message, Request, ToolSpec},
};

/// Where a tool result was left out to fit.
const LEFT_OUT: &str = "[left out to fit the context; call the tool again if you need it]";

/// The bounds of a context, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Capacity {
    /// What may be sent.
    tokens: u64,
}

impl Capacity {
    /// What is left of a model's limit for what is sent: less the reply, less a margin.
    pub(super) fn of(context_limit: u64, max_output_tokens: u64) -> Self {
        let reply = max_output_tokens.max(percent(context_limit, 8));
        let margin = percent(context_limit, 2).max(2048);
        Self { tokens: context_limit.saturating_sub(reply).saturating_sub(margin) }
    }
}

/// So many hundredths of a number, whatever its size.
fn percent(of: u64, hundredths: u64) -> u64 {
    let (whole, rest) = (of / 100, of % 100);
    whole.saturating_mul(hundredths).saturating_add(rest * hundredths / 100)
}

/// What is known to not fit, whatever is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Overflow {
    /// What would have to be sent, in tokens.
    pub(super) needed: u64,
    /// What may be sent, in tokens.
    pub(super) capacity: u64,
}

/// The messages to send, with the oldest tool results left out as far as needed.
pub(super) fn bounded(
    system: &str,
    tools: &[ToolSpec],
    mut messages: Vec<Message>,
    capacity: Capacity,
) -> Result<Vec<Message>, Overflow> {
    let fixed = estimate(system.len()) + tools.iter().map(tool_tokens).sum::<u64>();
    let total = |messages: &[Message]| fixed + messages.iter().map(message_tokens).sum::<u64>();
    let comfortable = percent(capacity.tokens, 70);
    let keep_from = start_of_last_rounds(&messages, 2);
    let mut needed = total(&messages);
    for message in messages.iter_mut().take(keep_from) {
        if needed <= comfortable {
            break;
        }
        let before = message_tokens(message);
        if let Message::Tool { content, .. } = message
            && content.len() > LEFT_OUT.len()
        {
            LEFT_OUT.clone_into(content);
            needed = needed + message_tokens(message) - before;
        }
    }
    if needed > capacity.tokens {
        Err(Overflow { needed, capacity: capacity.tokens })
    } else {
        Ok(messages)
    }
}

/// The index from which the last rounds (a reply with its results) begin.
fn start_of_last_rounds(messages: &[Message], rounds: usize) -> usize {
    let replies = messages
        .iter()
        .enumerate()
        .rev()
        .filter(|(_, message)| matches!(message, Message::Assistant { .. }))
        .map(|(at, _)| at);
    replies.take(rounds).last().unwrap_or(messages.len())
}

/// A history as it is sent again.
pub(super) fn of_history(history: &[NormalizedMessage]) -> Vec<Message> {
    history
        .iter()
        .map(|message| {
            let content = message.content.clone();
            match message.role {
                Role::User => Message::User { content },
                Role::Assistant => {
                    let calls = message.tool_calls.iter().map(|call| Call {
                        id: call.id.clone(),
                        name: call.name.clone(),
                        arguments: call.arguments.clone(),
                    });
                    Message::Assistant { content, calls: calls.collect() }
                }
                Role::Tool => {
                    Message::Tool { call_id: message.tool_call_id.clone().unwrap_or_default(), content }
                }
            }
        })
        .collect()
}

/// The tokens of a request, estimated.
pub(super) fn tokens(request: &Request) -> u64 {
    let tools = request.tools.iter().map(tool_tokens).sum::<u64>();
    let messages = request.messages.iter().map(message_tokens).sum::<u64>();
    estimate(request.system.len()).saturating_add(tools).saturating_add(messages)
}

/// Four bytes a token, and a little for the frame of a message.
pub(super) fn estimate(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX / 8) / 4 + 4
}

fn message_tokens(message: &Message) -> u64 {
    match message {
        Message::User { content } | Message::Tool { content, .. } => estimate(content.len()),
        Message::Assistant { content, calls } => {
            let calls = calls.iter().map(|call| estimate(call.name.len() + call.arguments.len()));
            estimate(content.len()) + calls.sum::<u64>()
        }
    }
}

fn tool_tokens(tool: &ToolSpec) -> u64 {
    estimate(tool.name.len() + tool.description.len() + tool.input_schema.to_string().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(id: &str, result: &str) -> [Message; 2] {
        let call = Call { id: id.to_owned(), name: "read_file".to_owned(), arguments: "{}".to_owned() };
        [
            Message::Assistant { content: String::new(), calls: vec![call] },
            Message::Tool { call_id: id.to_owned(), content: result.to_owned() },
        ]
    }

    fn conversation(rounds: usize, result: &str) -> Vec<Message> {
        let mut messages = vec![Message::User { content: "the task".to_owned() }];
        for at in 0..rounds {
            messages.extend(round(&at.to_string(), result));
        }
        messages
    }

    fn left_out(messages: &[Message]) -> Vec<usize> {
        let is_left_out =
            |message: &Message| matches!(message, Message::Tool { content, .. } if content == LEFT_OUT);
        messages
            .iter()
            .enumerate()
            .filter(|(_, message)| is_left_out(message))
            .map(|(at, _)| at)
            .collect()
    }

    #[test]
    fn nothing_is_left_out_while_there_is_room() {
        let messages = conversation(3, "x");
        assert_eq!(bounded("s", &[], messages.clone(), Capacity { tokens: 1000 }), Ok(messages));
    }

    #[test]
    fn the_oldest_results_go_first_and_only_as_far_as_needed() {
        let big = "x".repeat(4000);
        let sent = bounded("s", &[], conversation(4, &big), Capacity { tokens: 5000 }).unwrap();
        assert_eq!(left_out(&sent), [2], "one result is enough");
        let sent = bounded("s", &[], conversation(4, &big), Capacity { tokens: 3000 }).unwrap();
        assert_eq!(left_out(&sent), [2, 4], "the last two rounds stay");
        assert_eq!(sent[0], Message::User { content: "the task".to_owned() });
    }

    #[test]
    fn what_can_not_fit_is_told() {
        let big = "x".repeat(4000);
        let over = bounded("s", &[], conversation(2, &big), Capacity { tokens: 500 }).unwrap_err();
        assert!(over.needed > 2000 && over.capacity == 500);
    }

    #[test]
    fn capacity_leaves_room_for_the_reply_and_a_margin() {
        assert_eq!(Capacity::of(128_000, 8_192), Capacity { tokens: 128_000 - 10_240 - 2_560 });
        assert_eq!(Capacity::of(8_000, 8_192), Capacity { tokens: 0 });
        assert!(Capacity::of(u64::MAX, 1).tokens > u64::MAX / 100 * 89, "no number overflows");
        assert_eq!(Capacity::of(u64::MAX, u64::MAX), Capacity { tokens: 0 });
    }
}
