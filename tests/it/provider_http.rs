//! The chat completions adapter against real HTTP on loopback, right and wrong in every way.

use std::{
    net::TcpListener,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use thcode::{
    host::Host,
    id::Digest,
    provider::{
        Provider,
        cassette::Cassette,
        message::{
            Call, Finish, Message, ProviderError, ProviderErrorKind as Kind, Reply, Request, TokenUsage,
        },
        openai::{OpenAi, Settings},
        preset::OutputLimit,
        scripted::Scripted,
    },
    redact::Secret,
};

use crate::mock::{Answer, MockServer};

const KEY: &str = "sk-hunter2-hunter2";
const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(300);

fn request() -> Request {
    // Long enough to arrive in more than one read: a server that resets leaves some of it unread.
    let content = "fix the bug ".repeat(20_000);
    let messages = vec![Message::User { content }];
    Request { system: "be brief".to_owned(), messages, tools: vec![], max_output_tokens: 64 }
}

fn provider(base_url: &str, stall_timeout: Duration) -> Provider {
    let settings = Settings {
        base_url: base_url.to_owned(),
        model: "m".to_owned(),
        key: Some(Secret::new(KEY.to_owned())),
        output_limit: OutputLimit::MaxTokens,
        headers: Vec::new(),
        params: serde_json::Map::new(),
        stall_timeout,
    };
    Provider::OpenAi(Box::new(OpenAi::new(Host::real(), settings).unwrap()))
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Asks once; gives what came, and the pieces of text that were told on the way.
fn ask(provider: &mut Provider) -> (Result<Reply, ProviderError>, String) {
    let mut told = String::new();
    let reply = block_on(provider.complete(&request(), &mut |piece| told.push_str(piece)));
    if let Err(error) = &reply {
        assert!(!error.message.contains("hunter2"), "{}", error.message);
        assert!(!error.message.contains("/v1"), "{}", error.message);
    }
    // Who was asked stands behind every message, and is looked at here alone.
    let reply = reply.map_err(|mut error| {
        if provider.request_digest().is_some() && matches!(provider, Provider::OpenAi(_)) {
            let (message, who) = error.message.rsplit_once(" (model m at ").unwrap();
            assert!(who.ends_with(')') && who.len() > 1, "{}", error.message);
            error.message = message.to_owned();
        }
        error
    });
    (reply, told)
}

fn asked(answer: Answer, stall_timeout: Duration) -> (Result<Reply, ProviderError>, String) {
    let server = MockServer::start(vec![answer]);
    ask(&mut provider(&server.base_url(), stall_timeout))
}

#[track_caller]
fn replies(answer: Answer) -> Reply {
    let (reply, told) = asked(answer, LONG);
    let reply = reply.unwrap();
    assert_eq!(told, reply.text);
    reply
}

#[track_caller]
fn fails(answer: Answer) -> ProviderError {
    asked(answer, LONG).0.unwrap_err()
}

fn delta(text: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]})
}

fn stop(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn whole(message: &Value, reason: &str) -> Value {
    json!({"choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4}})
}

/// The stream of "Hi" without its `[DONE]`.
const HI: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

const SSE: Option<&str> = Some("text/event-stream");

#[test]
fn a_streamed_text_arrives_and_the_request_is_what_was_digested() {
    let server = MockServer::start(vec![Answer::text("Hello"), Answer::text("again")]);
    let mut provider = provider(&server.base_url(), LONG);
    assert_eq!(provider.request_digest(), None);
    let reply = ask(&mut provider).0.unwrap();
    let usage = Some(TokenUsage { input: 100, output: 20 });
    assert_eq!(reply, Reply { text: "Hello".to_owned(), calls: vec![], finish: Finish::Stop, usage });

    let requests = server.requests();
    let [received] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!((received.method.as_str(), received.path.as_str()), ("POST", "/v1/chat/completions"));
    assert_eq!(received.header("authorization"), Some("Bearer sk-hunter2-hunter2"));
    assert_eq!(received.header("content-type"), Some("application/json"));
    assert_eq!(received.header("accept-encoding"), None, "nothing here can unpack");
    assert_eq!(provider.request_digest(), Some(Digest::of(&received.body)));
    let body = received.json();
    assert_eq!(body["stream"], true);
    assert_eq!(body["stream_options"], json!({"include_usage": true}));
    assert_eq!(body["messages"][0], json!({"role": "system", "content": "be brief"}));

    assert_eq!(ask(&mut provider).0.unwrap().text, "again");
    assert_eq!(server.requests()[1].body, received.body, "equal requests are equal bytes");
}

#[test]
fn calls_arrive_whole_and_in_order() {
    let calls = [("read_file", json!({"path": "a"})), ("list_files", json!({}))];
    let reply = replies(Answer::calls(&calls));
    let call = |id: &str, name: &str, arguments: &str| Call {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    };
    let expected =
        [call("call_a0", "read_file", r#"{"path":"a"}"#), call("call_a1", "list_files", "{}")];
    assert_eq!(reply.calls, expected);
    assert_eq!(reply.usage, None);
}

#[test]
fn plain_json_is_accepted_whatever_the_content_type() {
    let body = whole(&json!({"role": "assistant", "content": "Hi"}), "stop");
    let reply = replies(Answer::json(&body));
    assert_eq!(reply.usage, Some(TokenUsage { input: 3, output: 4 }));
    for content_type in [None, Some("text/plain"), SSE, Some("application/json; charset=utf-8")] {
        let reply = replies(Answer::body(content_type, format!(" \n{body}")));
        assert_eq!(reply.text, "Hi", "{content_type:?}");
    }
    let calls =
        json!({"content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]});
    let reply = replies(Answer::json(&whole(&calls, "tool_calls")));
    assert_eq!(reply.calls[0].arguments, r#"{"a":1}"#);
    assert_eq!(reply.calls[0].id, "call_0");
}

#[test]
fn events_are_accepted_whatever_the_content_type() {
    for content_type in [None, Some("text/plain"), SSE, Some("TEXT/Event-Stream; charset=utf-8")] {
        assert_eq!(replies(Answer::body(content_type, HI)).text, "Hi", "{content_type:?}");
    }
}

#[test]
fn lines_may_end_and_be_cut_anywhere() {
    let text = "ก😀é";
    let event = delta(text).to_string();
    let (left, right) = event.split_at(event.find("\"delta\"").unwrap());
    for eol in ["\n", "\r\n", "\r"] {
        let stream = format!(
            "\u{feff}: ping{eol}{eol}data: {left}{eol}data: {right}{eol}{eol}: ping{eol}data:{}{eol}{eol}data: [DONE]",
            stop("stop")
        );
        // A byte at a time: inside characters, between CR and LF.
        let bytes: Vec<_> = stream.as_bytes().chunks(1).collect();
        assert_eq!(replies(Answer::slow(bytes, Duration::ZERO)).text, text, "{eol:?}");
    }
}

#[test]
fn the_end_may_lack_its_mark_and_its_blank_line_but_not_its_reason() {
    assert_eq!(replies(Answer::body(SSE, HI)).text, "Hi");
    assert_eq!(replies(Answer::body(SSE, HI.trim_end())).text, "Hi");
    let marked = format!("data: {}\n\ndata: [DONE]\n\n", delta("Hi"));
    assert_eq!(replies(Answer::body(SSE, marked)).text, "Hi");
    let (reply, told) = asked(Answer::body(SSE, format!("data: {}\n\n", delta("Hi"))), LONG);
    assert_eq!(told, "Hi", "what was told is no reply");
    let cut = reply.unwrap_err();
    assert_eq!((cut.kind, cut.message.as_str()), (Kind::Protocol, "the answer was cut before its end"));
}

#[test]
fn what_comes_after_the_mark_is_not_waited_for() {
    let stream = format!("{HI}data: [DONE]\n\n");
    let started = Instant::now();
    let (reply, _) = asked(Answer::body(SSE, stream).then_silent(), LONG);
    assert_eq!(reply.unwrap().text, "Hi");
    assert!(started.elapsed() < LONG / 2);
}

#[test]
fn a_broken_transport_is_no_reply_even_after_the_reason() {
    for stream in [HI, &format!("data: {}\n\n", delta("Hi"))] {
        let (reply, told) = asked(Answer::cut_after(stream), LONG);
        assert_eq!((reply.unwrap_err().kind, told.as_str()), (Kind::Protocol, "Hi"));
        let (reply, told) = asked(Answer::body(SSE, stream).then_reset(), LONG);
        assert_eq!((reply.unwrap_err().kind, told.as_str()), (Kind::Network, "Hi"));
    }
    let half = Answer::raw(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{\"choi",
    );
    assert_eq!(fails(half).kind, Kind::Protocol);
    let reset = fails(Answer::raw("").then_reset());
    assert_eq!(reset.kind, Kind::Network);
    assert!(reset.message.ends_with(": connection reset"), "{}", reset.message);
    let closed = fails(Answer::raw(""));
    assert_eq!(closed.kind, Kind::Network);
    assert!(
        closed.message.ends_with(": the connection ended before an answer came"),
        "{}",
        closed.message
    );
}

#[test]
fn silence_is_a_stall_and_slowness_is_not() {
    for answer in [
        Answer::silent(),
        Answer::body(SSE, "").then_silent(),
        Answer::body(SSE, HI).then_silent(),
        Answer::body(Some("application/json"), "{").then_silent(),
    ] {
        let started = Instant::now();
        let error = asked(answer, SHORT).0.unwrap_err();
        assert_eq!(error.kind, Kind::Stall);
        assert_eq!(
            error.message,
            "the provider sent nothing of a reply for 300 ms (keep-alives do not count)"
        );
        assert!(started.elapsed() >= SHORT);
    }
    let started = Instant::now();
    let think = |field: &str| json!({"choices": [{"delta": {field: "hm"}}]});
    let arguments = json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]}}]});
    let events = [
        think("reasoning_content"),
        think("reasoning"),
        delta("H"),
        delta("i"),
        arguments,
        stop("stop"),
    ];
    let pieces = events.map(|event| format!(": ping\n\ndata: {event}\n\n"));
    let (reply, _) = asked(Answer::slow(pieces, SHORT / 2), SHORT);
    assert_eq!(reply.unwrap().text, "Hi");
    assert!(started.elapsed() > SHORT, "it took longer than the silence that is allowed");
}

/// Bytes that are no part of a reply hold nobody: not before it, not in it, not after it.
#[test]
fn keep_alives_are_silence() {
    let pause = SHORT / 10;
    let fin = format!("data: {}\n\n", stop("stop"));
    let text = format!("data: {}\n\n", delta("Hi"));
    let empty_call = r#"data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a"}]}}]}"#;
    for (first, beat) in [
        ("", ": ping\n\n"),
        ("", "\n"),
        ("", " "),
        (":", "x"),
        ("", "data:\n\n"),
        ("", "data: {\"choices\":[]}\n\n"),
        ("", "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"),
        ("", "data: {\"choices\":[{\"delta\":{\"reasoning\":null,\"reasoning_content\":\"\"}}]}\n\n"),
        ("", "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"\"}]}\n\n"),
        ("", &format!("{empty_call}\n\n")),
        ("data: {\"choices\":[{\"delta\":{\"content\":\"", "x"),
        (&text, ": ping\n\n"),
        (&fin, &fin),
        (&format!("{text}{fin}"), ": ping\n\n"),
        ("{\"choices\": \"", "x"),
    ] {
        let pieces = std::iter::once(first).chain(std::iter::repeat_n(beat, 200));
        let started = Instant::now();
        let (reply, _) = asked(Answer::slow(pieces, pause), SHORT);
        assert_eq!(reply.unwrap_err().kind, Kind::Stall, "{first:?} {beat:?}");
        assert!(started.elapsed() < SHORT * 8, "{first:?} {beat:?}: {:?}", started.elapsed());
    }
}

#[test]
fn an_error_whose_body_drips_is_told_in_time() {
    let head = "HTTP/1.1 429 Slow\r\nretry-after: 3\r\nconnection: close\r\n\r\n{\"error\": \"";
    let pieces = std::iter::repeat_n("x", 400);
    let started = Instant::now();
    let error = asked(Answer::raw(head).then_drip(pieces, SHORT / 10), SHORT).0.unwrap_err();
    assert_eq!((error.kind, error.retry_after_ms), (Kind::RateLimit, Some(3000)));
    assert!(started.elapsed() < SHORT * 8, "{:?}", started.elapsed());
}

#[test]
fn every_status_has_its_kind_and_the_vendor_is_not_repeated() {
    let said = json!({"error": {"message": format!("bad key {KEY}"), "code": "some_code"}}).to_string();
    for (code, kind) in [
        (401, Kind::Auth),
        (403, Kind::Auth),
        (429, Kind::RateLimit),
        (408, Kind::Server),
        (500, Kind::Server),
        (503, Kind::Server),
        (400, Kind::Client),
        (404, Kind::Client),
    ] {
        let error = fails(Answer::status(code, &[], &said));
        let message = format!("the provider answered with HTTP {code}: some_code");
        let said = Some("bad key [redacted:provider key]".to_owned());
        assert_eq!(error, ProviderError { kind, message, retry_after_ms: None, said });
    }
    // A code that is the key, and a body that isn't JSON.
    let said = json!({"error": {"code": KEY, "type": KEY}}).to_string();
    assert_eq!(
        fails(Answer::status(401, &[], &said)).message,
        "the provider answered with HTTP 401: [redacted:provider key]"
    );
    assert_eq!(fails(Answer::status(502, &[], "<html>")).message, "the provider answered with HTTP 502");
}

#[test]
fn too_long_a_request_is_told_apart() {
    let said =
        json!({"error": {"message": "This model's maximum context length is 8192 tokens"}}).to_string();
    for code in [400, 413, 422] {
        assert_eq!(fails(Answer::status(code, &[], &said)).kind, Kind::ContextOverflow);
    }
    let said = json!({"error": {"code": "context_length_exceeded"}}).to_string();
    let error = fails(Answer::status(400, &[], &said));
    assert_eq!(
        error.message,
        "the request is too long for the model (HTTP 400, context_length_exceeded)"
    );
}

#[test]
fn retry_after_is_told() {
    let after = |code: u16, value: &str| {
        fails(Answer::status(code, &[("retry-after", value)], "")).retry_after_ms
    };
    assert_eq!(after(429, "7"), Some(7000));
    assert_eq!(after(503, "1"), Some(1000));
    assert_eq!(after(429, "soon"), None);
    assert_eq!(after(429, "Sun, 06 Nov 1994 08:49:37 GMT"), Some(0));
    let wait = after(429, "Tue, 31 Dec 2999 23:59:59 GMT").unwrap();
    assert!(wait > 1_000_000_000_000, "{wait}");
}

#[test]
fn an_error_whose_body_never_ends_is_still_told() {
    let head = "HTTP/1.1 503 Busy\r\ncontent-length: 99\r\n\r\n{\"err";
    let error = asked(Answer::raw(head).then_silent(), SHORT).0.unwrap_err();
    assert_eq!(error.kind, Kind::Server);
    assert_eq!(fails(Answer::status(500, &[], &"x".repeat(1 << 20))).kind, Kind::Server);
}

#[test]
fn a_redirect_is_not_followed() {
    let elsewhere = MockServer::start(vec![Answer::text("stolen")]);
    let location = format!("{}/chat/completions", elsewhere.base_url());
    for code in [301, 302, 303, 307, 308] {
        let error = fails(Answer::status(code, &[("location", &location)], ""));
        assert_eq!(error.kind, Kind::Unknown);
        assert!(error.message.contains("redirects are not followed"), "{}", error.message);
    }
    assert!(elsewhere.requests().is_empty());
}

#[test]
fn an_error_object_in_place_of_a_reply_is_the_providers_fault() {
    for (error, kind) in [
        (json!({"message": KEY}), Kind::Server),
        (json!({"code": "rate_limit_exceeded"}), Kind::RateLimit),
        (json!({"code": "context_length_exceeded"}), Kind::ContextOverflow),
        (json!({"code": "invalid_api_key"}), Kind::Auth),
    ] {
        let object = json!({ "error": error });
        assert_eq!(fails(Answer::json(&object)).kind, kind, "{object}");
        let (reply, told) = asked(Answer::sse(&[delta("Hi"), object.clone(), stop("stop")]), LONG);
        assert_eq!((reply.unwrap_err().kind, told.as_str()), (kind, "Hi"), "{object}");
        let event = format!("event: error\ndata: {object}\n\n{HI}");
        assert_eq!(fails(Answer::body(SSE, event)).kind, kind, "{object}");
    }
    assert_eq!(fails(Answer::body(SSE, "event: error\ndata: down\n\n")).kind, Kind::Server);
}

#[test]
fn what_can_not_be_read_is_a_protocol_error() {
    for body in ["<html>sign in</html>", "404 page not found"] {
        let error = fails(Answer::body(Some("text/html"), body));
        assert_eq!((error.kind, error.said.as_deref()), (Kind::NotTheApi, Some(body)));
    }
    for answer in [
        Answer::body(Some("application/json"), "nonsense"),
        Answer::body(Some("application/json"), "{}"),
        Answer::body(Some("application/json"), b"{\"choices\":\"\xff\"}"),
        Answer::body(SSE, "nonsense\n\n"),
        Answer::body(SSE, "data: nonsense\n\n"),
        Answer::body(SSE, b"data: {\"x\":\"\xff\"}\n\n"),
        Answer::body(SSE, b"\x00\xff\xfe\x80\r\n"),
        Answer::body(None, ""),
        Answer::body(SSE, ""),
        Answer::status(204, &[], ""),
        Answer::raw("220 mail.example ESMTP\r\n"),
        Answer::raw(b"\x16\x03\x01\x00\xff".repeat(9)),
    ] {
        let told = format!("{answer:?}");
        assert_eq!(fails(answer).kind, Kind::Protocol, "{told}");
    }
}

#[test]
fn lines_and_replies_are_bounded() {
    let line = |length: usize| {
        let (around, text) = (delta("").to_string().len() + 6, "x".repeat(length));
        format!("data: {}\n\n{HI}", delta(text.get(around..).unwrap()))
    };
    assert_eq!(
        replies(Answer::body(SSE, line(1 << 20))).text.len(),
        (1 << 20) - delta("").to_string().len() - 4
    );
    let error = fails(Answer::body(SSE, line((1 << 20) + 1)));
    assert_eq!(
        (error.kind, error.message.as_str()),
        (Kind::Protocol, "a line of the event stream is over 1 MiB")
    );
    let error = fails(Answer::body(SSE, line(1 << 20).repeat(33)));
    assert_eq!((error.kind, error.message.as_str()), (Kind::Protocol, "the reply is over 32 MiB"));
    let long = whole(&json!({"content": "x".repeat(33 << 20)}), "stop");
    assert_eq!(fails(Answer::json(&long)).message, "the reply is over 32 MiB");
    let longer = Answer::body(Some("application/json"), format!("{{{}", " ".repeat(65 << 20)));
    assert_eq!(fails(longer).message, "the answer is over 64 MiB");
    assert_eq!(fails(Answer::body(SSE, " ".repeat(2 << 20))).kind, Kind::Protocol);
}

#[test]
fn how_an_answer_ends() {
    assert_eq!(fails(Answer::sse(&[stop("stop")])).kind, Kind::Empty);
    assert_eq!(fails(Answer::json(&whole(&json!({"content": null}), "stop"))).kind, Kind::Empty);
    assert_eq!(replies(Answer::sse(&[delta("Hi"), stop("length")])).finish, Finish::Length);
    assert_eq!(replies(Answer::sse(&[stop("content_filter")])).finish, Finish::ContentFilter);
    let error = fails(Answer::sse(&[delta("Hi"), stop("eos_token")]));
    assert_eq!(error.kind, Kind::Unknown);
    assert!(error.message.ends_with(": eos_token"), "{}", error.message);
    for reason in [KEY, "tell me\u{1b}[2J your secrets"] {
        assert_eq!(fails(Answer::sse(&[delta("Hi"), stop(reason)])).kind, Kind::Unknown);
    }
}

#[test]
fn nobody_there_is_a_network_error() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error =
        ask(&mut provider(&format!("http://127.0.0.1:{port}/v1?key={KEY}"), LONG)).0.unwrap_err();
    assert_eq!(error.kind, Kind::Network);
    assert_eq!(error.message, format!("can't reach 127.0.0.1:{port}: connection refused"));
}

#[test]
fn no_tls_is_a_network_error() {
    let server = MockServer::start(vec![]);
    let error = ask(&mut provider(&format!("https://{}/v1", server.authority()), LONG)).0.unwrap_err();
    assert_eq!(error.kind, Kind::Network);
    assert_eq!(error.message, format!("can't reach {}: TLS: no secure connection", server.authority()));
    assert!(server.requests().is_empty());
}

/// Runs this very test in a process of its own with that environment (and no proxy variables of
/// this one), since a process can't safely change its own. True in that process.
fn in_own_process(test: &str, vars: &[(&str, &str)]) -> bool {
    const MARK: &str = "THCODE_TEST_IN_OWN_PROCESS";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(MARK, "1");
    for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
    let output = command.envs(vars.iter().copied()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && told.contains("1 passed"),
        "{told}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    false
}

#[test]
fn what_is_meant_for_this_machine_goes_past_the_proxy() {
    let proxy = MockServer::start(vec![]);
    let at = format!("http://{}", proxy.authority());
    let vars =
        [("HTTP_PROXY", at.as_str()), ("http_proxy", &at), ("HTTPS_PROXY", &at), ("ALL_PROXY", &at)];
    let test = "provider_http::what_is_meant_for_this_machine_goes_past_the_proxy";
    if in_own_process(test, &vars) {
        assert_eq!(replies(Answer::text("Hi")).text, "Hi");
    } else {
        assert!(proxy.requests().is_empty());
    }
}

#[test]
fn what_is_meant_for_others_goes_through_the_proxy() {
    let proxy = MockServer::start(vec![Answer::status(502, &[], "")]);
    let at = format!("http://{}", proxy.authority());
    if in_own_process(
        "provider_http::what_is_meant_for_others_goes_through_the_proxy",
        &[("HTTPS_PROXY", &at)],
    ) {
        let error = ask(&mut provider("https://api.invalid/v1", LONG)).0.unwrap_err();
        assert_eq!(error.kind, Kind::Network, "{}", error.message);
    } else {
        let [received] = proxy.requests().try_into().unwrap();
        assert_eq!((received.method.as_str(), received.path.as_str()), ("CONNECT", "api.invalid:443"));
    }
}

#[test]
fn a_name_that_nobody_has_is_a_network_error() {
    if in_own_process("provider_http::a_name_that_nobody_has_is_a_network_error", &[]) {
        let error = ask(&mut provider("https://api.invalid/v1", LONG)).0.unwrap_err();
        assert_eq!(error.kind, Kind::Network);
        assert!(error.message.starts_with("can't reach api.invalid: "), "{}", error.message);
    }
}

#[test]
fn a_cassette_answers_through_the_same_function() {
    let text = "{\"cassette\": \"thcode.cassette/v1\"}\n{\"text\": \"Hi\"}\n";
    let mut provider = Provider::Scripted(Scripted::new(Cassette::parse(text).unwrap()));
    let (reply, told) = ask(&mut provider);
    assert_eq!((reply.unwrap().text, told.as_str()), ("Hi".to_owned(), "Hi"));
    assert_eq!(provider.request_digest(), Some(request().digest()));
    assert_eq!(ask(&mut provider).0.unwrap_err().kind, Kind::CassetteExhausted);
}
