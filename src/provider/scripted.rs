//! A provider that plays a cassette: one answer for each call, in order. No key, no network.

use super::{
    cassette::{Answer, Cassette, ErrorLine, ReplyLine, Track},
    message::{Call, ProviderError, ProviderErrorKind, Reply, Request, settle_ids},
};
use crate::id::Digest;

/// A cassette, and how far it has been played.
#[derive(Debug)]
pub struct Scripted {
    tracks: std::vec::IntoIter<Track>,
    played: usize,
    asked: Option<Digest>,
}

impl Scripted {
    /// Begins at the cassette's first answer.
    pub fn new(cassette: Cassette) -> Self {
        Self { tracks: cassette.tracks.into_iter(), played: 0, asked: None }
    }

    /// [`Request::digest`] of the last request.
    pub fn request_digest(&self) -> Option<Digest> {
        self.asked
    }

    /// Plays the next answer. One that states a digest answers that request alone: a mismatch is
    /// told and the answer stays where it is.
    pub fn complete(
        &mut self,
        request: &Request,
        on_delta: &mut dyn FnMut(&str),
    ) -> Result<Reply, ProviderError> {
        let asked = request.digest();
        self.asked = Some(asked);
        let Some(track) = self.tracks.as_slice().first() else {
            let why = format!("the cassette answers {} calls, and another was made", self.played);
            return Err(ProviderError::new(ProviderErrorKind::CassetteExhausted, why));
        };
        let stated = match &track.answer {
            Answer::Reply(ReplyLine { request_digest, .. })
            | Answer::Error(ErrorLine { request_digest, .. }) => *request_digest,
        };
        if let Some(stated) = stated.filter(|stated| *stated != asked) {
            let why = format!(
                "the request is {asked}, and line {} of the cassette answers {stated}",
                track.line
            );
            return Err(ProviderError::new(ProviderErrorKind::CassetteMismatch, why));
        }
        let line = track.line;
        let answer = self.tracks.next().map(|track| track.answer);
        self.played += 1;
        match answer {
            Some(Answer::Reply(reply)) => Ok(told(reply, request, on_delta)),
            Some(Answer::Error(ErrorLine { error, .. })) => Err(ProviderError {
                kind: error.kind.into(),
                message: error
                    .message
                    .unwrap_or_else(|| format!("line {line} of the cassette is an error")),
                retry_after_ms: error.retry_after_ms,
                said: None,
            }),
            None => Err(ProviderError::new(
                ProviderErrorKind::CassetteExhausted,
                "the cassette is at its end",
            )),
        }
    }
}

fn told(reply: ReplyLine, request: &Request, on_delta: &mut dyn FnMut(&str)) -> Reply {
    if !reply.text.is_empty() {
        on_delta(&reply.text);
    }
    let mut calls: Vec<Call> = reply
        .tool_calls
        .into_iter()
        .map(|call| Call {
            id: call.id.unwrap_or_default(),
            name: call.name,
            arguments: call.arguments.0,
        })
        .collect();
    settle_ids(request, &mut calls);
    Reply { text: reply.text, calls, finish: reply.finish.into(), usage: reply.usage.map(Into::into) }
}

#[cfg(test)]
mod tests {
    use super::{super::message::Message, *};

    fn scripted(lines: &[&str]) -> Scripted {
        let text = format!("{{\"cassette\": \"thcode.cassette/v1\"}}\n{}", lines.join("\n"));
        Scripted::new(Cassette::parse(&text).unwrap())
    }

    fn request(task: &str) -> Request {
        let messages = vec![Message::User { content: task.to_owned() }];
        Request { system: "s".to_owned(), messages, tools: vec![], max_output_tokens: 9 }
    }

    #[test]
    fn answers_come_in_order_until_none_is_left() {
        let mut scripted = scripted(&[
            r#"{"text": "hi", "toolCalls": [{"name": "f", "arguments": {"a": 1}}], "usage": {"inputTokens": 1, "outputTokens": 2}}"#,
            r#"{"error": {"kind": "rate-limit", "retryAfterMs": 7}}"#,
            r#"{"text": "cut", "finish": "length"}"#,
        ]);
        let mut told = String::new();
        let mut ask = || scripted.complete(&request("x"), &mut |text| told.push_str(text));
        let first = ask().unwrap();
        assert_eq!(
            first.calls,
            [Call { id: "call_0".into(), name: "f".into(), arguments: "{\"a\": 1}".into() }]
        );
        let failed = ask().unwrap_err();
        assert_eq!((failed.kind, failed.retry_after_ms), (ProviderErrorKind::RateLimit, Some(7)));
        assert_eq!(failed.message, "line 3 of the cassette is an error");
        assert_eq!(ask().unwrap().finish, super::super::message::Finish::Length);
        let exhausted = ask().unwrap_err();
        assert_eq!(exhausted.kind, ProviderErrorKind::CassetteExhausted);
        assert_eq!(exhausted.message, "the cassette answers 3 calls, and another was made");
        assert_eq!(told, "hicut");
    }

    #[test]
    fn an_answer_with_a_digest_is_for_that_request_alone() {
        let digest = request("x").digest();
        let line = format!(r#"{{"text": "a", "requestDigest": "{digest}"}}"#);
        let error = format!(r#"{{"error": {{"kind": "server"}}, "requestDigest": "{digest}"}}"#);
        let mut scripted = scripted(&[&line, &error]);
        let mut ask = |task: &str| scripted.complete(&request(task), &mut |_| {});
        let mismatch = ask("y").unwrap_err();
        assert_eq!(mismatch.kind, ProviderErrorKind::CassetteMismatch);
        let other = request("y").digest();
        assert_eq!(
            mismatch.message,
            format!("the request is {other}, and line 2 of the cassette answers {digest}")
        );
        assert_eq!(ask("x").unwrap().text, "a");
        assert_eq!(ask("y").unwrap_err().kind, ProviderErrorKind::CassetteMismatch);
        assert_eq!(ask("x").unwrap_err().kind, ProviderErrorKind::Server);
        assert_eq!(scripted.request_digest(), Some(digest));
    }

    /// Committed cassettes hold digests: what goes into one can't change unnoticed.
    #[test]
    fn the_digest_of_a_request_stays() {
        expect_test::expect!["sha256:d522490b14ab0f750a2bf4b8c5a02b43a369f6ab85108e08ed67527c5f20a37f"]
            .assert_eq(&request("x").digest().to_string());
        let other = Request { max_output_tokens: 8, ..request("x") };
        assert_ne!(other.digest(), request("x").digest());
    }
}
