//! A model endpoint on loopback whose every byte is scripted: real sockets, real HTTP.
//!
//! Each request gets the next [`Answer`], whatever its path, and its connection is closed after
//! it. A request for which no answer is left gets 410, which no client takes for a reason to try
//! again.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use serde_json::{Value, json};

/// A running server; it stops when it is dropped.
pub(crate) struct MockServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// What a request gets.
#[derive(Debug, Clone)]
pub(crate) struct Answer(Vec<Step>);

#[derive(Debug, Clone)]
enum Step {
    Send(Vec<u8>),
    Pause(Duration),
    /// Say nothing until this is set.
    Hold(Arc<AtomicBool>),
    /// Say nothing until the client goes.
    Hang,
    /// End the connection by a reset instead of in order.
    Reset,
}

#[derive(Default)]
struct Shared {
    answers: Mutex<VecDeque<Answer>>,
    requests: Mutex<Vec<Received>>,
    stopping: AtomicBool,
}

impl MockServer {
    /// Serves these answers, in order.
    pub(crate) fn start(answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { answers: Mutex::new(answers.into()), ..Shared::default() });
        let ours = Arc::clone(&shared);
        let accepting = thread::spawn(move || {
            for stream in listener.incoming() {
                if ours.stopping.load(Ordering::SeqCst) {
                    break;
                }
                let (Ok(stream), shared) = (stream, Arc::clone(&ours)) else { continue };
                thread::spawn(move || {
                    // A client that goes away early is part of the game.
                    drop(serve(stream, &shared));
                });
            }
        });
        Self { address, shared, accepting: Some(accepting) }
    }

    /// `http://127.0.0.1:PORT/v1`.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn authority(&self) -> String {
        self.address.to_string()
    }

    /// Every request so far, in the order of arrival.
    pub(crate) fn requests(&self) -> Vec<Received> {
        self.shared.requests.lock().unwrap().clone()
    }
}

impl Drop for MockServer {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        if let Some(accepting) = self.accepting.take() {
            drop(accepting.join());
        }
    }
}

impl Received {
    /// A header's value; the name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

impl Answer {
    /// A final text, streamed.
    pub(crate) fn text(text: &str) -> Self {
        Self::sse(&[
            json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": null}]}),
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
            json!({"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 20}}),
        ])
    }

    /// Tool calls (name and arguments), streamed; their ids are `call_a0`, `call_a1` …
    pub(crate) fn calls(calls: &[(&str, Value)]) -> Self {
        let call = |(index, (name, arguments)): (usize, &(&str, Value))| {
            json!({"index": index, "id": format!("call_a{index}"), "type": "function",
                "function": {"name": name, "arguments": arguments.to_string()}})
        };
        let calls: Vec<Value> = calls.iter().enumerate().map(call).collect();
        Self::sse(&[
            json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": null, "tool_calls": calls}, "finish_reason": null}]}),
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
        ])
    }

    /// These events and `[DONE]`, each in a chunk of its own.
    pub(crate) fn sse(events: &[Value]) -> Self {
        let mut sent =
            head(200, &[("content-type", "text/event-stream"), ("transfer-encoding", "chunked")]);
        for event in events.iter().map(Value::to_string).chain(["[DONE]".to_owned()]) {
            sent.extend(chunk(format!("data: {event}\n\n").as_bytes()));
        }
        sent.extend(b"0\r\n\r\n");
        Self(vec![Step::Send(sent)])
    }

    /// A JSON body.
    pub(crate) fn json(body: &Value) -> Self {
        Self::status(200, &[("content-type", "application/json")], &body.to_string())
    }

    /// A status with headers and a body.
    pub(crate) fn status(code: u16, headers: &[(&str, &str)], body: &str) -> Self {
        let length = body.len().to_string();
        let mut sent = head(code, &[headers, &[("content-length", &length)]].concat());
        sent.extend(body.as_bytes());
        Self(vec![Step::Send(sent)])
    }

    /// These bytes and nothing else: the head is in them or there is none.
    pub(crate) fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self(vec![Step::Send(bytes.into())])
    }

    /// A 200 with a body that ends where the connection does.
    pub(crate) fn body(content_type: Option<&str>, body: impl AsRef<[u8]>) -> Self {
        let headers: Vec<_> = content_type.iter().map(|value| ("content-type", *value)).collect();
        let mut sent = head(200, &headers);
        sent.extend(body.as_ref());
        Self(vec![Step::Send(sent)])
    }

    /// Nothing, for as long as the client waits.
    pub(crate) fn silent() -> Self {
        Self(vec![Step::Hang])
    }

    /// An event stream in chunks that ends in order, but before the last chunk.
    pub(crate) fn cut_after(body: impl AsRef<[u8]>) -> Self {
        let mut sent =
            head(200, &[("content-type", "text/event-stream"), ("transfer-encoding", "chunked")]);
        sent.extend(chunk(body.as_ref()));
        Self(vec![Step::Send(sent)])
    }

    /// An event stream whose pieces come with a pause before each.
    pub(crate) fn slow<P: AsRef<[u8]>>(pieces: impl IntoIterator<Item = P>, pause: Duration) -> Self {
        let mut steps = vec![Step::Send(head(200, &[("content-type", "text/event-stream")]))];
        for piece in pieces {
            steps.push(Step::Pause(pause));
            steps.push(Step::Send(piece.as_ref().to_vec()));
        }
        Self(steps)
    }

    /// The same, but not before this is set.
    pub(crate) fn held(mut self, until: &Arc<AtomicBool>) -> Self {
        self.0.insert(0, Step::Hold(Arc::clone(until)));
        self
    }

    /// The same, and then silence.
    pub(crate) fn then_silent(mut self) -> Self {
        self.0.push(Step::Hang);
        self
    }

    /// The same, and then these pieces with a pause before each.
    pub(crate) fn then_drip<P: AsRef<[u8]>>(
        mut self,
        pieces: impl IntoIterator<Item = P>,
        pause: Duration,
    ) -> Self {
        for piece in pieces {
            self.0.extend([Step::Pause(pause), Step::Send(piece.as_ref().to_vec())]);
        }
        self
    }

    /// The same, and then a reset, once the client had time to read.
    pub(crate) fn then_reset(mut self) -> Self {
        self.0.extend([Step::Pause(Duration::from_millis(100)), Step::Reset]);
        self
    }

    fn resets(&self) -> bool {
        self.0.iter().any(|step| matches!(step, Step::Reset))
    }
}

fn head(code: u16, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {code} Mock\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    (head + "\r\n").into_bytes()
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

fn serve(stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    if !reader.fill_buf()?.first().is_some_and(u8::is_ascii_uppercase) {
        // No HTTP: a TLS handshake, or the server's own wake-up.
        return writer.write_all(b"this is not TLS\r\n");
    }
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let mut first = lines[0].split(' ');
    let (method, path) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let headers: Vec<_> = lines[1..]
        .iter()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(0, |(_, value)| value.parse::<usize>().unwrap());
    let answer = shared.answers.lock().unwrap().pop_front().unwrap_or_else(|| {
        Answer::status(410, &[], r#"{"error": {"message": "the mock has no answer left"}}"#)
    });
    // Unread bytes turn a close into a reset; the buffer must not have swallowed them.
    let unread = usize::from(answer.resets() && length > 0);
    let mut body = reader.buffer().to_vec();
    let mut rest = vec![0; length.saturating_sub(body.len() + unread)];
    writer.read_exact(&mut rest)?;
    body.extend(rest);
    assert!(unread == 0 || body.len() < length, "send a longer request to have it reset");
    let received = Received { method: method.to_owned(), path: path.to_owned(), headers, body };
    shared.requests.lock().unwrap().push(received);
    for step in answer.0 {
        match step {
            Step::Send(bytes) => writer.write_all(&bytes)?,
            Step::Pause(pause) => thread::sleep(pause),
            Step::Hold(until) => {
                while !until.load(Ordering::SeqCst) && !shared.stopping.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(5));
                }
            }
            Step::Hang => wait_for_client(&mut writer, shared)?,
            Step::Reset => return Ok(()),
        }
    }
    writer.shutdown(Shutdown::Write)?;
    // Closing before the client has read would reset what is still under way.
    wait_for_client(&mut writer, shared)
}

fn wait_for_client(stream: &mut TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_millis(50)))?;
    while !shared.stopping.load(Ordering::SeqCst) {
        match stream.read(&mut [0; 64]) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
