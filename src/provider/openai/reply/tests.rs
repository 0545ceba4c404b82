//! Pieces as servers are known to send them.

use serde_json::json;

use super::*;
use crate::provider::message::Message;

fn request() -> Request {
    Request { system: String::new(), messages: vec![], tools: vec![], max_output_tokens: 1 }
}

fn assembled(chunks: &[Value], ended: bool) -> Result<Reply, ProviderError> {
    let mut assembly = Assembly::default();
    let mut told = String::new();
    for chunk in chunks {
        assembly.add_chunk(&chunk.to_string(), &mut |text| told.push_str(text))?;
    }
    let reply = assembly.finish(ended, &request())?;
    assert_eq!(told, reply.text);
    Ok(reply)
}

fn delta(delta: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn calls(calls: Value) -> Value {
    delta(json!({ "tool_calls": calls }))
}

fn stop(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn call(id: &str, name: &str, arguments: &str) -> Call {
    Call { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
}

#[test]
fn an_empty_reason_to_stop_is_none() {
    let open = json!({"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": ""}]});
    let reply = assembled(&[open.clone(), stop("stop")], true).unwrap();
    assert_eq!((reply.text.as_str(), reply.finish), ("Hi", Finish::Stop));
    assert_eq!(assembled(&[open], false).unwrap_err(), failure::cut(), "and it is no end");
}

#[test]
fn text_is_put_together_and_usage_taken_from_the_last_chunk() {
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}});
    let nothing = json!({"choices": null, "usage": null, "error": null});
    let reply = assembled(
        &[
            delta(json!({"role": "assistant", "content": ""})),
            delta(json!({"content": "Hel"})),
            nothing,
            delta(json!({"content": null, "tool_calls": null, "reasoning_content": "hm"})),
            delta(json!({"content": "lo"})),
            stop("stop"),
            usage,
        ],
        true,
    )
    .unwrap();
    let usage = Some(TokenUsage { input: 3, output: 4 });
    assert_eq!(reply, Reply { text: "Hello".to_owned(), calls: vec![], finish: Finish::Stop, usage });
}

#[test]
fn usage_that_is_not_a_number_is_no_usage() {
    for usage in [json!({}), json!(7), json!({"prompt_tokens": -1, "completion_tokens": 1})] {
        let chunk = json!({"choices": [], "usage": usage});
        let reply = assembled(&[delta(json!({"content": "a"})), stop("stop"), chunk], true).unwrap();
        assert_eq!(reply.usage, None);
    }
}

#[test]
fn calls_are_keyed_by_index() {
    let reply = assembled(
        &[
            calls(json!([{"index": 1, "id": "b", "type": "function", "function": {"name": "two", "arguments": ""}}])),
            calls(json!([{"index": 0, "id": "a", "function": {"name": "one", "arguments": "{\"x\""}}])),
            calls(json!([{"index": 1, "function": {"arguments": "{}"}}, {"index": 0, "function": {"arguments": ":1}"}}])),
            stop("tool_calls"),
        ],
        true,
    )
    .unwrap();
    assert_eq!(reply.calls, [call("a", "one", "{\"x\":1}"), call("b", "two", "{}")]);
    assert_eq!(reply.finish, Finish::Stop);
}

#[test]
fn an_id_and_a_name_in_every_delta_are_said_once() {
    let piece = |arguments: &str| {
        calls(json!([{"index": 0, "id": "a", "function": {"name": "one", "arguments": arguments}}]))
    };
    let reply =
        assembled(&[piece("{\"x\""), piece(":1"), piece("}"), stop("tool_calls")], true).unwrap();
    assert_eq!(reply.calls, [call("a", "one", "{\"x\":1}")]);
}

#[test]
fn another_id_at_the_same_index_is_another_call() {
    let piece =
        |id: &str| calls(json!([{"index": 0, "id": id, "function": {"name": "f", "arguments": "{}"}}]));
    let reply = assembled(&[piece("a"), piece("b"), stop("function_call")], true).unwrap();
    assert_eq!(reply.calls, [call("a", "f", "{}"), call("b", "f", "{}")]);
}

#[test]
fn without_an_index_the_position_counts() {
    let reply = assembled(
        &[
            calls(
                json!([{"function": {"name": "one", "arguments": "{"}}, {"function": {"name": "two"}}]),
            ),
            calls(json!([{"function": {"arguments": "}"}}, {"function": {"arguments": null}}])),
            stop("tool_calls"),
        ],
        true,
    )
    .unwrap();
    assert_eq!(reply.calls, [call("call_0", "one", "{}"), call("call_1", "two", "")]);
}

#[test]
fn arguments_may_be_the_object_itself_and_stay_as_written() {
    let chunk = r#"{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":{ "x": 1, "x" :2}}}]},"finish_reason":"tool_calls"}]}"#;
    let mut assembly = Assembly::default();
    assembly.add_chunk(chunk, &mut |_| {}).unwrap();
    let reply = assembly.finish(false, &request()).unwrap();
    assert_eq!(reply.calls, [call("a", "f", r#"{ "x": 1, "x" :2}"#)]);
}

#[test]
fn ids_that_are_made_up_are_unique_in_the_conversation() {
    let earlier = Message::Assistant { content: String::new(), calls: vec![call("call_0", "f", "{}")] };
    let request = Request { messages: vec![earlier], ..request() };
    let mut assembly = Assembly::default();
    let many = calls(json!([
        {"index": 0, "function": {"name": "f"}},
        {"index": 1, "id": "call_1", "function": {"name": "f"}},
        {"index": 2, "id": "x", "function": {"name": "f"}},
        {"index": 3, "id": "x", "function": {"name": "f"}},
    ]));
    assembly.add_chunk(&many.to_string(), &mut |_| {}).unwrap();
    let reply = assembly.finish(true, &request).unwrap();
    let ids: Vec<_> = reply.calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ids, ["call_2", "call_1", "x", "call_3"]);
}

#[test]
fn the_end_needs_a_reason_or_a_mark() {
    let text = delta(json!({"content": "a"}));
    let cut = assembled(std::slice::from_ref(&text), false).unwrap_err();
    assert_eq!(cut, failure::cut());
    assert_eq!(assembled(std::slice::from_ref(&text), true).unwrap().finish, Finish::Stop);
    assert_eq!(assembled(&[text, stop("stop")], false).unwrap().finish, Finish::Stop);
    assert_eq!(assembled(&[], false).unwrap_err(), failure::cut());
}

#[test]
fn every_reason_has_its_meaning() {
    let ended = |reason: &str| assembled(&[delta(json!({"content": "a"})), stop(reason)], true);
    for reason in ["stop", "tool_calls", "function_call"] {
        assert_eq!(ended(reason).unwrap().finish, Finish::Stop);
    }
    assert_eq!(ended("length").unwrap().finish, Finish::Length);
    assert_eq!(ended("content_filter").unwrap().finish, Finish::ContentFilter);
    assert_eq!(ended("error").unwrap_err().kind, ProviderErrorKind::Server);
    let message = |reason: &str| {
        let error = ended(reason).unwrap_err();
        assert_eq!(error.kind, ProviderErrorKind::Unknown);
        error.message
    };
    assert!(message("EOS_token").ends_with(": eos_token"));
    for reason in [" ", "a b", "\u{1b}[31m", &"x".repeat(41), "สวัสดี"] {
        assert!(message(reason).ends_with(": (not a plain word)"), "{reason}");
    }
}

#[test]
fn neither_text_nor_call_is_empty_unless_the_reason_says_more() {
    for text in ["", " \n\t"] {
        let error = assembled(&[delta(json!({"content": text})), stop("stop")], true).unwrap_err();
        assert_eq!(error.kind, ProviderErrorKind::Empty);
    }
    assert_eq!(assembled(&[stop("length")], true).unwrap().finish, Finish::Length);
    assert_eq!(assembled(&[stop("content_filter")], true).unwrap().finish, Finish::ContentFilter);
}

#[test]
fn a_refusal_is_a_withheld_answer() {
    let reply = assembled(
        &[delta(json!({"refusal": "I "})), delta(json!({"refusal": "won't"})), stop("stop")],
        true,
    );
    let reply = reply.unwrap();
    assert_eq!((reply.text.as_str(), reply.finish), ("I won't", Finish::ContentFilter));
}

#[test]
fn other_choices_are_not_ours() {
    let other = json!({"choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": "length"}]});
    let reply = assembled(&[delta(json!({"content": "a"})), other, stop("stop")], true).unwrap();
    assert_eq!((reply.text.as_str(), reply.finish), ("a", Finish::Stop));
}

#[test]
fn what_is_not_documented_is_a_protocol_error_or_the_error_that_it_holds() {
    let mut assembly = Assembly::default();
    let mut kind = |json: &str| assembly.add_chunk(json, &mut |_| {}).unwrap_err().kind;
    for json in
        ["{", "[]", "1", "\"x\"", "{\"choices\": {}}", "{\"choices\":[{\"delta\":{\"content\":[1]}}]}"]
    {
        assert_eq!(kind(json), ProviderErrorKind::Protocol, "{json}");
    }
    assert_eq!(
        kind(r#"{"error": {"code": "rate_limit_exceeded"}, "choices": {}}"#),
        ProviderErrorKind::RateLimit
    );
    assert_eq!(kind(r#"{"error": "x", "choices": []}"#), ProviderErrorKind::Server);
    assert_eq!(kind(r#"{"object": "error", "message": "x", "code": 400}"#), ProviderErrorKind::Client);
    let whole =
        |body: &str| Assembly::default().add_completion(body.as_bytes(), &mut |_| {}).unwrap_err();
    for body in ["{}", "{\"choices\": []}", "{\"choices\": null}", "{\"choi", "{\"hello\": 1}"] {
        assert_eq!(whole(body).kind, ProviderErrorKind::Protocol, "{body}");
    }
    let nameless =
        assembled(&[calls(json!([{"index": 0, "id": "a"}])), stop("stop")], true).unwrap_err();
    assert_eq!(nameless.kind, ProviderErrorKind::Protocol);
}

#[test]
fn a_reply_is_bounded_in_text_and_in_calls() {
    let text = delta(json!({"content": "x".repeat(1 << 20)})).to_string();
    let mut assembly = Assembly::default();
    for _ in 0..32 {
        assembly.add_chunk(&text, &mut |_| {}).unwrap();
    }
    let error = assembly.add_chunk(&text, &mut |_| {}).unwrap_err();
    assert_eq!(error, ProviderError::protocol("the reply is over 32 MiB"));

    let mut assembly = Assembly { bytes: LONGEST_REPLY - 2 * CALL_OVERHEAD, ..Assembly::default() };
    let mut add =
        |index: u64| assembly.add_chunk(&calls(json!([{ "index": index }])).to_string(), &mut |_| {});
    assert!(add(0).is_ok() && add(1).is_ok());
    assert_eq!(add(2).unwrap_err().kind, ProviderErrorKind::Protocol);
}
