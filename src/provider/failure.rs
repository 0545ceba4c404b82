//! What went wrong, in our own words. A vendor's message is read to tell what it means and never
//! repeated: it may echo the request or the key.

use std::{error::Error, io::ErrorKind as Io};

use serde_json::Value;

use super::message::{ProviderError, ProviderErrorKind as Kind};
use crate::host::Host;

/// The longest code of a vendor that a message names. Bytes.
const LONGEST_CODE: usize = 40;
/// The most that is kept of what a vendor says. Characters.
const MOST_SAID: usize = 500;
/// How vendors say that a request is too long for the model.
const OVERFLOW_WORDINGS: &[&str] = &[
    "context length",
    "context window",
    "context size",
    "maximum context",
    "prompt is too long",
    "input is too long",
    "too many tokens",
    "reduce the length",
    "exceeds the limit of tokens",
];

/// A status that isn't a success, with what its body says of it.
pub(super) fn of_status(status: u16, retry_after_ms: Option<u64>, body: &[u8]) -> ProviderError {
    let said = serde_json::from_slice(body).map_or_else(|_| Said::default(), |body| Said::of(&body));
    let kind = kind_of_status(status, &said);
    let message = match kind {
        Kind::ContextOverflow => {
            format!("the request is too long for the model (HTTP {status}{})", said.code(", "))
        }
        Kind::Unknown if (300..400).contains(&status) => {
            format!(
                "the provider answered with a redirect (HTTP {status}), and redirects are not followed"
            )
        }
        _ => format!("the provider answered with HTTP {status}{}", said.code(": ")),
    };
    let heard = match &said.whole {
        Some(whole) => heard(whole),
        None => heard(&String::from_utf8_lossy(body)),
    };
    ProviderError { retry_after_ms, said: heard, ..ProviderError::new(kind, message) }
}

/// An error object where a reply was due.
pub(super) fn of_object(body: &Value) -> ProviderError {
    let said = Said::of(body);
    let any = |words: &[&str]| said.words.iter().any(|word| words.contains(&word.as_str()));
    let kind = if let Some(status @ 400..=599) = said.status {
        kind_of_status(status, &said)
    } else if said.overflow() {
        Kind::ContextOverflow
    } else if said.out_of_money() {
        Kind::Client
    } else if said.words.iter().any(|word| word.contains("rate_limit")) || any(&["too_many_requests"]) {
        Kind::RateLimit
    } else if any(&["invalid_api_key", "authentication_error", "permission_error", "unauthorized"]) {
        Kind::Auth
    } else if any(&["invalid_request_error", "not_found_error", "model_not_found", "badrequesterror"]) {
        Kind::Client
    } else {
        Kind::Server
    };
    let message = match kind {
        Kind::ContextOverflow => format!("the request is too long for the model{}", said.code(": ")),
        _ => format!("the provider reported an error in place of a reply{}", said.code(": ")),
    };
    let heard = match &said.whole {
        Some(whole) => heard(whole),
        None if body.is_null() => None,
        None => heard(&body.to_string()),
    };
    ProviderError { said: heard, ..ProviderError::new(kind, message) }
}

/// The beginning of what a vendor says, in one line; `None` if it says nothing. It is for a log that
/// somebody asks for, never for a document.
pub(super) fn heard(text: &str) -> Option<String> {
    let line = |c: char| if c.is_control() { ' ' } else { c };
    let mut heard: String = text.trim().chars().map(line).take(MOST_SAID).collect();
    if text.trim().chars().nth(MOST_SAID).is_some() {
        heard.push('…');
    }
    (!heard.is_empty()).then_some(heard)
}

/// A request that got no answer.
pub(super) fn of_sending(error: &reqwest::Error, authority: &str) -> ProviderError {
    let why = match cause(error) {
        Cause::Tls(why) => why,
        Cause::Io(Io::ConnectionRefused) => "connection refused",
        Cause::Io(Io::ConnectionReset | Io::ConnectionAborted | Io::BrokenPipe) => "connection reset",
        Cause::Io(Io::HostUnreachable | Io::NetworkUnreachable) => "unreachable",
        Cause::Name => "its name can't be resolved",
        Cause::NotHttp => {
            return ProviderError::protocol(format!("what {authority} answers isn't HTTP"));
        }
        Cause::Io(_) | Cause::Other if error.is_timeout() => "no connection within 10 s",
        Cause::Io(_) | Cause::Other if error.is_connect() => "no connection",
        Cause::Io(_) | Cause::Other => "the connection ended before an answer came",
    };
    ProviderError::new(Kind::Network, format!("can't reach {authority}: {why}"))
}

/// An answer that didn't come to its end.
pub(super) fn of_reading(error: &reqwest::Error) -> ProviderError {
    match cause(error) {
        Cause::Io(Io::ConnectionReset | Io::ConnectionAborted | Io::BrokenPipe | Io::TimedOut) => {
            ProviderError::new(Kind::Network, "the connection was reset while the answer came")
        }
        Cause::Io(_) | Cause::Tls(_) | Cause::Name | Cause::NotHttp | Cause::Other => cut(),
    }
}

/// A body that ended too early.
pub(super) fn cut() -> ProviderError {
    ProviderError::protocol("the answer was cut before its end")
}

/// The vendor's own word, if it is one that can be repeated: short, and of letters, digits and
/// `_.-` alone.
pub(super) fn plain_word(word: &str) -> Option<&str> {
    let plain = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'.' | b'-')
    };
    (!word.is_empty() && word.len() <= LONGEST_CODE && word.bytes().all(plain)).then_some(word)
}

/// What a `Retry-After` header asks for: seconds, or a date.
pub(super) fn retry_after_ms(value: &str, host: &Host) -> Option<u64> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More than a number holds is longer than anybody waits, not nothing.
        return Some(value.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(1000));
    }
    let date = jiff::fmt::rfc2822::parse(value).ok()?.timestamp();
    let now: jiff::Timestamp = host.now().to_string().parse().ok()?;
    let wait = date.as_millisecond().saturating_sub(now.as_millisecond());
    Some(u64::try_from(wait).unwrap_or(0))
}

/// What an error object says, in lower case.
#[derive(Debug, Default)]
struct Said {
    /// Its code and its type.
    words: Vec<String>,
    /// Its code, where it is a number: an HTTP status.
    status: Option<u16>,
    /// Its message; read, never repeated.
    wording: String,
    /// The same as it was written.
    whole: Option<String>,
}

impl Said {
    /// Reads `{"error": {..}}`, `{"error": ".."}`, the bare object, and any of these in an array.
    fn of(body: &Value) -> Self {
        let body = body.as_array().and_then(|items| items.first()).unwrap_or(body);
        let error = body.get("error").filter(|error| !error.is_null()).unwrap_or(body);
        let text = |name: &str| error.get(name).and_then(Value::as_str).map(str::to_ascii_lowercase);
        let code = error.get("code");
        let whole = error.as_str().or_else(|| error.get("message").and_then(Value::as_str));
        Self {
            words: text("code").into_iter().chain(text("type")).collect(),
            status: code.and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok()),
            wording: whole.map(str::to_ascii_lowercase).unwrap_or_default(),
            whole: whole.map(str::to_owned),
        }
    }

    fn code(&self, before: &str) -> String {
        let word = self.words.iter().find_map(|word| plain_word(word));
        word.map_or_else(String::new, |word| format!("{before}{word}"))
    }

    fn overflow(&self) -> bool {
        let codes = ["context_length_exceeded", "exceed_context_size_error"];
        self.words.iter().any(|word| codes.contains(&word.as_str()))
            || OVERFLOW_WORDINGS.iter().any(|wording| self.wording.contains(wording))
    }

    /// A limit that no waiting lifts, told as a rate limit.
    fn out_of_money(&self) -> bool {
        self.words.iter().any(|word| word == "insufficient_quota")
    }
}

fn kind_of_status(status: u16, said: &Said) -> Kind {
    match status {
        401 | 403 => Kind::Auth,
        429 if said.out_of_money() => Kind::Client,
        429 => Kind::RateLimit,
        408 | 500..=599 => Kind::Server,
        400 | 413 | 422 if said.overflow() => Kind::ContextOverflow,
        400..=499 => Kind::Client,
        _ => Kind::Unknown,
    }
}

enum Cause {
    Io(Io),
    Tls(&'static str),
    Name,
    NotHttp,
    Other,
}

/// The innermost reason that we have a word for. Of the HTTP crates' own types only the text can
/// be had; what they say of the URL is not looked at.
fn cause(error: &reqwest::Error) -> Cause {
    let mut found = Cause::Other;
    let mut next: Option<&(dyn Error + 'static)> = error.source();
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            found = cause_of_io(io);
        } else if error.to_string().starts_with("dns error") {
            return Cause::Name;
        } else if error.to_string().starts_with("invalid HTTP") {
            return Cause::NotHttp;
        }
        next = error.source();
    }
    found
}

/// One I/O error may be wrapped in another, and TLS errors come wrapped in one.
fn cause_of_io(error: &std::io::Error) -> Cause {
    let Some(inner) = error.get_ref() else { return Cause::Io(error.kind()) };
    match (inner.downcast_ref::<std::io::Error>(), inner.downcast_ref::<rustls::Error>()) {
        (Some(io), _) => cause_of_io(io),
        (None, Some(tls)) => Cause::Tls(tls_reason(tls)),
        (None, None) => Cause::Io(error.kind()),
    }
}

fn tls_reason(error: &rustls::Error) -> &'static str {
    use rustls::CertificateError as Certificate;
    match error {
        rustls::Error::InvalidCertificate(Certificate::UnknownIssuer) => {
            "TLS: its certificate is from an unknown issuer (SSL_CERT_FILE names the trusted ones)"
        }
        rustls::Error::InvalidCertificate(Certificate::Expired | Certificate::ExpiredContext { .. }) => {
            "TLS: its certificate has expired"
        }
        rustls::Error::InvalidCertificate(
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. },
        ) => "TLS: its certificate is for another name",
        rustls::Error::InvalidCertificate(_) => "TLS: its certificate isn't valid",
        _ => "TLS: no secure connection",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(status: u16, body: &Value) -> (Kind, String) {
        let error = of_status(status, None, body.to_string().as_bytes());
        (error.kind, error.message)
    }

    #[test]
    fn a_status_has_its_kind() {
        for (code, kind) in [
            (401, Kind::Auth),
            (403, Kind::Auth),
            (429, Kind::RateLimit),
            (408, Kind::Server),
            (500, Kind::Server),
            (503, Kind::Server),
            (599, Kind::Server),
            (400, Kind::Client),
            (402, Kind::Client),
            (404, Kind::Client),
            (413, Kind::Client),
            (422, Kind::Client),
            (301, Kind::Unknown),
            (307, Kind::Unknown),
            (600, Kind::Unknown),
        ] {
            assert_eq!(status(code, &json!({"error": {"message": "no"}})).0, kind, "{code}");
            assert_eq!(of_status(code, None, b"<html>").kind, kind, "{code}");
        }
        assert!(status(307, &Value::Null).1.contains("redirects are not followed"));
        assert_eq!(status(429, &json!({"error": {"code": "insufficient_quota"}})).0, Kind::Client);
    }

    #[test]
    fn too_long_a_request_is_known_by_code_or_wording() {
        for body in [
            json!({"error": {"code": "context_length_exceeded"}}),
            json!({"error": {"code": 400, "type": "exceed_context_size_error"}}),
            json!({"error": {"message": "This model's Maximum Context Length is 8192 tokens."}}),
            json!({"message": "prompt is too long: 9 > 8"}),
            json!({"error": "Please reduce the length of the messages"}),
            json!([{"error": {"message": "exceeds the context window"}}]),
        ] {
            for code in [400, 413, 422] {
                assert_eq!(status(code, &body).0, Kind::ContextOverflow, "{code} {body}");
            }
            assert_eq!(status(404, &body).0, Kind::Client);
            assert_eq!(of_object(&body).kind, Kind::ContextOverflow, "{body}");
        }
    }

    #[test]
    fn an_error_in_place_of_a_reply_has_its_kind() {
        for (error, kind) in [
            (json!({"message": "boom"}), Kind::Server),
            (json!("boom"), Kind::Server),
            (json!({"type": "server_error"}), Kind::Server),
            (json!({"code": 502}), Kind::Server),
            (json!({"code": 429}), Kind::RateLimit),
            (json!({"code": 401}), Kind::Auth),
            (json!({"code": 404}), Kind::Client),
            (json!({"code": 7}), Kind::Server),
            (json!({"type": "rate_limit_error"}), Kind::RateLimit),
            (json!({"code": "rate_limit_exceeded"}), Kind::RateLimit),
            (json!({"code": "insufficient_quota", "type": "rate_limit"}), Kind::Client),
            (json!({"code": "invalid_api_key"}), Kind::Auth),
            (json!({"type": "invalid_request_error"}), Kind::Client),
        ] {
            assert_eq!(of_object(&json!({ "error": error })).kind, kind, "{error}");
        }
    }

    #[test]
    fn a_vendor_is_not_repeated_but_for_a_plain_code() {
        let said =
            json!({"error": {"message": "your key sk-hunter2 is bad", "code": "invalid_api_key"}});
        assert_eq!(status(401, &said).1, "the provider answered with HTTP 401: invalid_api_key");
        for code in ["a key: sk-hunter2", "hunter2\n", &"hunter2".repeat(9), ""] {
            let said = json!({"error": {"message": "hunter2", "code": code, "type": code}});
            for message in [status(500, &said).1, of_object(&said).message] {
                assert!(!message.contains("hunter2"), "{message}");
            }
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let host = Host::real();
        let at = |value: &str| retry_after_ms(value, &host);
        assert_eq!(at("7"), Some(7000));
        assert_eq!(at(" 0 "), Some(0));
        assert_eq!(at("18446744073709551615"), Some(u64::MAX));
        assert_eq!(at("99999999999999999999"), Some(u64::MAX), "longer than a number is no nothing");
        assert_eq!(at("Sun, 06 Nov 1994 08:49:37 GMT"), Some(0));
        for value in ["-1", "soon", "", "1.5"] {
            assert_eq!(at(value), None, "{value}");
        }
        let now: jiff::Timestamp = host.now().to_string().parse().unwrap();
        let later = now + jiff::SignedDuration::from_secs(90);
        let date =
            jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&later).unwrap();
        let wait = at(&date).unwrap();
        assert!((80_000..=90_000).contains(&wait), "{wait}");
    }
}
