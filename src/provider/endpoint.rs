//! An HTTP endpoint: where it may be, how a request gets there, and how its answer is read.
//!
//! Never follows a redirect (it would send source code elsewhere), never speaks plain HTTP but to
//! this machine, and has no say in what a status means: that is the adapters'.

use std::{cell::Cell, net::IpAddr, rc::Rc, time::Duration};

use futures_util::{Stream, stream};
use reqwest::{
    Client, Response, Url,
    header::{
        AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, HeaderValue,
        RETRY_AFTER, TRANSFER_ENCODING,
    },
};
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    failure,
    message::{ProviderError, ProviderErrorKind},
};
use crate::{host::Host, redact::Secret};

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a plain body that count as progress.
const PROGRESS: usize = 64 << 10;
/// How long the body of an error is waited for: its status says most of it.
const ERROR_TIMEOUT: Duration = Duration::from_secs(5);

/// A setting that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Not an absolute URL with a host.
    #[error("the base URL can't be read as one: it looks like https://host/v1")]
    BaseUrl,
    /// A scheme that isn't HTTPS.
    #[error(
        "the base URL must be https:// (http:// is for this machine alone: 127.0.0.1, [::1], localhost)"
    )]
    NotHttps,
    /// A user or a password in the URL, where logs and proxies see them.
    #[error("the base URL holds a user or a password; the key goes into a variable")]
    Userinfo,
    /// A header that can't be sent, or that is the client's own.
    #[error("the header {0} can't be set (its value is not shown)")]
    Header(String),
    /// A key that a header can't carry.
    #[error("the key holds characters that a header can't carry (it is not shown)")]
    Key,
}

/// A place that answers requests.
#[derive(Debug)]
pub(super) struct Endpoint {
    host: Host,
    url: Url,
    authorization: Option<HeaderValue>,
    headers: Vec<(HeaderName, HeaderValue)>,
    stall_timeout: Duration,
    /// Made on the first use: reading the certificates of the system takes its time.
    client: Option<Client>,
}

/// What came back, before its body is read.
pub(super) struct Answer {
    pub(super) status: u16,
    /// In lower case, without parameters.
    pub(super) content_type: Option<String>,
    pub(super) retry_after_ms: Option<u64>,
    pub(super) body: Body,
}

/// A body that is still arriving.
pub(super) struct Body {
    response: Response,
    stall_timeout: Duration,
    progress: Progress,
}

/// When the reply last came on. Bytes alone are no progress: a server or a proxy that sends nothing
/// but keep-alives would hold a run for ever.
#[derive(Clone)]
pub(super) struct Progress(Rc<Cell<Instant>>);

impl Progress {
    fn now() -> Self {
        Self(Rc::new(Cell::new(Instant::now())))
    }

    /// The reply came on; the wait for the next step begins.
    pub(super) fn made(&self) {
        self.0.set(Instant::now());
    }
}

impl Endpoint {
    /// An endpoint at `path` under the base URL, whose query is kept.
    pub(super) fn new(
        host: Host,
        base_url: &str,
        path: &str,
        key: Option<&Secret<String>>,
        headers: &[(String, Secret<String>)],
        stall_timeout: Duration,
    ) -> Result<Self, SettingsError> {
        let mut url = Url::parse(base_url).map_err(|_| SettingsError::BaseUrl)?;
        if url.host_str().is_none_or(str::is_empty) {
            return Err(SettingsError::BaseUrl);
        }
        if url.scheme() != "https" && !(url.scheme() == "http" && is_loopback(&url)) {
            return Err(SettingsError::NotHttps);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(SettingsError::Userinfo);
        }
        url.set_fragment(None);
        let whole = format!("{}/{path}", url.path().trim_end_matches('/'));
        url.set_path(&whole);
        let authorization = key.map(bearer).transpose()?;
        let headers = headers.iter().map(header).collect::<Result<_, _>>()?;
        Ok(Self { host, url, authorization, headers, stall_timeout, client: None })
    }

    /// The host, with the port where it isn't the scheme's own.
    pub(super) fn authority(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// Sends the JSON body and waits for the head of the answer, as long as the stall timeout.
    pub(super) async fn post(&mut self, body: Vec<u8>) -> Result<Answer, ProviderError> {
        let authority = self.authority();
        let mut request =
            self.client()?.post(self.url.clone()).header(CONTENT_TYPE, "application/json").body(body);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        for (name, value) in &self.headers {
            request = request.header(name.clone(), value.clone());
        }
        let response = timeout(self.stall_timeout, request.send())
            .await
            .map_err(|_| stalled(self.stall_timeout))?
            .map_err(|error| failure::of_sending(&error, &authority))?;
        let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let media_type = |value: &str| value.split(';').next().map(|t| t.trim().to_ascii_lowercase());
        Ok(Answer {
            status: response.status().as_u16(),
            content_type: text(CONTENT_TYPE).and_then(media_type),
            retry_after_ms: text(RETRY_AFTER)
                .and_then(|value| failure::retry_after_ms(value, &self.host)),
            body: Body { stall_timeout: self.stall_timeout, response, progress: Progress::now() },
        })
    }

    fn client(&mut self) -> Result<Client, ProviderError> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let client = build(&self.url).map_err(|_| {
            // Nothing but the certificates of the system can be missing.
            let why =
                "no HTTP client could be made: are there certificates on this system (SSL_CERT_FILE)?";
            ProviderError::new(ProviderErrorKind::Client, why)
        })?;
        Ok(self.client.insert(client).clone())
    }
}

impl Body {
    /// The next bytes; `None` at the end that the sender meant.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, ProviderError> {
        let deadline = self.progress.0.get() + self.stall_timeout;
        // Bytes that are always there already would never let the timer have its say.
        if Instant::now() >= deadline {
            return Err(stalled(self.stall_timeout));
        }
        let piece = timeout_at(deadline, self.response.chunk())
            .await
            .map_err(|_| stalled(self.stall_timeout))?
            .map_err(|error| failure::of_reading(&error))?;
        Ok(piece.map(|bytes| bytes.to_vec()))
    }

    /// For whoever can tell what is progress.
    pub(super) fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// What the body of an error says, as far as it comes in time.
    pub(super) async fn of_error(&mut self, most: usize) -> Vec<u8> {
        let patience = self.stall_timeout.min(ERROR_TIMEOUT);
        let said = timeout(patience, self.whole(Vec::new(), most)).await;
        said.ok().and_then(Result::ok).flatten().unwrap_or_default()
    }

    /// The bytes as they come, after those that were read already.
    pub(super) fn stream(self, read: Vec<u8>) -> impl Stream<Item = Result<Vec<u8>, ProviderError>> {
        stream::try_unfold((Some(read), self), |(read, mut body)| async move {
            let piece = match read {
                Some(read) => Some(read),
                None => body.next().await?,
            };
            Ok(piece.map(|piece| (piece, (None, body))))
        })
    }

    /// All bytes, after those that were read already; `None` if they are more than `most`.
    pub(super) async fn whole(
        &mut self,
        read: Vec<u8>,
        most: usize,
    ) -> Result<Option<Vec<u8>>, ProviderError> {
        let mut all = read;
        let mut counted = 0;
        while let Some(piece) = self.next().await? {
            all.extend(piece);
            if all.len() - counted >= PROGRESS {
                counted = all.len();
                self.progress.made();
            }
            if all.len() > most {
                return Ok(None);
            }
        }
        Ok(Some(all))
    }
}

fn build(url: &Url) -> Result<Client, reqwest::Error> {
    // One provider of cryptography for the process; another that is there already is as good.
    drop(rustls::crypto::ring::default_provider().install_default());
    let builder = Client::builder()
        .user_agent(concat!("thcode/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .connect_timeout(CONNECT_TIMEOUT);
    if is_loopback(url) {
        // A proxy would carry what is meant for this machine elsewhere, and in the clear.
        let builder = builder.no_proxy();
        // Without TLS the certificates needn't be read.
        return if url.scheme() == "http" {
            builder.tls_certs_only([]).build()
        } else {
            builder.build()
        };
    }
    builder.https_only(true).build()
}

fn is_loopback(url: &Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The key as a header that doesn't show itself. White space around it is no part of a key (a
/// secret that was read from a file ends in a newline).
/// A header of the caller's. What the client sets itself can't be another's.
fn header((name, value): &(String, Secret<String>)) -> Result<(HeaderName, HeaderValue), SettingsError> {
    let refused = || SettingsError::Header(name.clone());
    let own = [AUTHORIZATION, CONTENT_TYPE, CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION, HOST];
    let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused())?;
    if own.contains(&parsed) {
        return Err(refused());
    }
    let mut value = HeaderValue::from_str(value.expose().trim()).map_err(|_| refused())?;
    value.set_sensitive(true);
    Ok((parsed, value))
}

fn bearer(key: &Secret<String>) -> Result<HeaderValue, SettingsError> {
    let key = key.expose().trim();
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(SettingsError::Key);
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| SettingsError::Key)?;
    value.set_sensitive(true);
    Ok(value)
}

fn stalled(after: Duration) -> ProviderError {
    let message = format!(
        "the provider sent nothing of a reply for {} ms (keep-alives do not count)",
        after.as_millis()
    );
    ProviderError::new(ProviderErrorKind::Stall, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(base_url: &str) -> Result<Endpoint, SettingsError> {
        Endpoint::new(Host::real(), base_url, "chat/completions", None, &[], Duration::from_secs(1))
    }

    #[test]
    fn plain_http_is_for_this_machine_alone() {
        for url in [
            "http://127.0.0.1:1/v1",
            "http://127.9.8.7",
            "http://[::1]:8080/v1",
            "http://localhost:11434/v1",
            "HTTP://LOCALHOST/v1",
            "https://api.example/v1",
        ] {
            assert!(endpoint(url).is_ok(), "{url}");
        }
        for url in [
            "http://api.example/v1",
            "http://127.0.0.1.example/v1",
            "http://localhost.example/v1",
            "http://0.0.0.0/v1",
            "http://10.0.0.1/v1",
            "http://[::ffff:10.0.0.1]/v1",
            "ftp://127.0.0.1/v1",
        ] {
            assert_eq!(endpoint(url).unwrap_err(), SettingsError::NotHttps, "{url}");
        }
        for url in ["", "api.example/v1", "https://", "/v1", "data:text/plain,x", "file:///etc/passwd"] {
            assert_eq!(endpoint(url).unwrap_err(), SettingsError::BaseUrl, "{url}");
        }
        for url in ["https://me@api.example/v1", "https://:pw@api.example", "http://a:b@127.0.0.1/"] {
            assert_eq!(endpoint(url).unwrap_err(), SettingsError::Userinfo, "{url}");
        }
    }

    #[test]
    fn the_path_is_added_and_the_query_kept() {
        for (base, whole) in [
            ("https://api.example", "https://api.example/chat/completions"),
            ("https://api.example/v1", "https://api.example/v1/chat/completions"),
            ("https://api.example/v1/", "https://api.example/v1/chat/completions"),
            (
                "https://api.example/v1?api-version=2#x",
                "https://api.example/v1/chat/completions?api-version=2",
            ),
        ] {
            assert_eq!(endpoint(base).unwrap().url.as_str(), whole);
        }
        assert_eq!(endpoint("https://api.example:8443/v1").unwrap().authority(), "api.example:8443");
        assert_eq!(endpoint("https://api.example:443/v1").unwrap().authority(), "api.example");
    }

    #[test]
    fn a_key_is_trimmed_and_never_shown() {
        let with = |key: &str| {
            let key = Secret::new(key.to_owned());
            Endpoint::new(
                Host::real(),
                "https://api.example",
                "x",
                Some(&key),
                &[],
                Duration::from_secs(1),
            )
        };
        let endpoint = with(" sk-hunter2\n").unwrap();
        assert_eq!(endpoint.authorization.as_ref().unwrap(), "Bearer sk-hunter2");
        assert!(!format!("{endpoint:?}").contains("hunter2"));
        for key in ["", " \n", "sk-a b", "sk-a\nb", "sk-é"] {
            assert_eq!(with(key).unwrap_err(), SettingsError::Key);
        }
    }
}
