//! The way to the endpoints: one pooled client a worker, and the headers that go along.
//!
//! A client lives on the runtime of one worker, so that a request never wakes another thread. Of the
//! caller's headers only a short list goes upstream: no credential, no cookie, no hop-by-hop field.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, body::Incoming};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::config::{self, Kind};

/// Idle upstream connections are closed after this long: below the keep-alive of common engines.
const POOL_IDLE: Duration = Duration::from_secs(20);
/// Idle connections kept for one endpoint by one worker.
const POOL_IDLE_MAX: usize = 256;
/// Largest response head.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The header by which an endpoint can tell a synthetic probe.
pub const PROBE_HEADER: &str = "x-quorumgate-probe";

/// The version of Anthropic's interface that is spoken.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// A caller's headers that go upstream.
const PASSED_ON: [HeaderName; 3] =
    [header::ACCEPT, header::USER_AGENT, HeaderName::from_static("traceparent")];

/// An upstream's headers that do not come back: hop-by-hop ones, and those that are ours to say.
const KEPT_BACK: [&str; 13] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "server",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-request-id",
    "x-should-retry",
];

/// What the gateway says about itself, and to pages in browsers, begins so; an upstream does not say
/// it.
const OURS: [&str; 2] = ["x-quorumgate-", "access-control-"];

/// One worker's client.
#[derive(Clone)]
pub struct Upstream {
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Upstream {
    /// A client for the current runtime.
    pub fn new(connect_timeout: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(connect_timeout));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE)
            .pool_max_idle_per_host(POOL_IDLE_MAX)
            .http1_max_buf_size(HEAD_BYTES_MAX)
            .build(connector);
        Self { client }
    }

    /// Sends a request; dropping the future closes its connection.
    ///
    /// # Errors
    /// The connection could not be made, or broke before the response head.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Error> {
        self.client.request(request).await
    }
}

/// A request to `endpoint`, with its own credential. `None`: the address cannot be written as a URI,
/// which a checked configuration rules out.
pub fn request(
    endpoint: &config::Endpoint,
    path: &str,
    (id, caller): (&HeaderValue, &HeaderMap),
    body: Bytes,
) -> Option<Request<Full<Bytes>>> {
    let uri = format!("http://{}{}{path}", endpoint.authority, endpoint.base_path);
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri.parse().ok()?;
    let headers = request.headers_mut();
    for name in PASSED_ON {
        if let Some(value) = caller.get(&name) {
            headers.insert(name, value.clone());
        }
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(HeaderName::from_static("x-request-id"), id.clone());
    if endpoint.kind == Kind::Anthropic {
        let version = HeaderValue::from_static(ANTHROPIC_VERSION);
        headers.insert(HeaderName::from_static("anthropic-version"), version);
    }
    if let Some(key) = &endpoint.api_key {
        let (name, value) = match endpoint.kind {
            Kind::Anthropic => ("x-api-key", HeaderValue::from_str(key.expose())),
            Kind::Azure => ("api-key", HeaderValue::from_str(key.expose())),
            Kind::OpenAi | Kind::Vllm | Kind::Sglang => {
                ("authorization", HeaderValue::from_str(&format!("Bearer {}", key.expose())))
            }
        };
        let mut value = value.ok()?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_static(name), value);
    }
    Some(request)
}

/// The upstream's headers that the caller may see.
pub fn headers_back(upstream: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(upstream.len());
    for (name, value) in upstream {
        let is_ours = OURS.iter().any(|ours| name.as_str().starts_with(ours));
        if !is_ours && !KEPT_BACK.contains(&name.as_str()) {
            headers.append(name.clone(), value.clone());
        }
    }
    headers
}

/// Whether an answer is a stream of events.
pub fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().starts_with("text/event-stream"))
}

/// How long the upstream asks to be left alone, from `retry-after-ms` or `retry-after` in seconds.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let seconds = number("retry-after-ms").map(|ms| ms / 1_000.0).or(number("retry-after"))?;
    (seconds.is_finite() && seconds >= 0.0).then(|| Duration::from_secs_f64(seconds.min(3_600.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn u10_retry_after_is_read_and_clamped_and_garbage_is_none() {
        let read = |value| retry_after(&headers(&[("retry-after", value)]));
        assert_eq!(read("1"), Some(Duration::from_secs(1)));
        assert_eq!(read("99999"), Some(Duration::from_secs(3_600)));
        for garbage in ["", "soon", "-1", "NaN", "inf"] {
            assert_eq!(read(garbage), None, "{garbage}");
        }
        let both = headers(&[("retry-after", "9"), ("retry-after-ms", "250")]);
        assert_eq!(retry_after(&both), Some(Duration::from_millis(250)));
    }

    #[test]
    fn u23_hop_by_hop_and_own_headers_do_not_come_back() {
        let back = headers_back(&headers(&[
            ("transfer-encoding", "chunked"),
            ("set-cookie", "a=b"),
            ("x-should-retry", "true"),
            ("access-control-allow-origin", "*"),
            ("openai-processing-ms", "12"),
        ]));
        assert_eq!(back.len(), 1);
        assert_eq!(back["openai-processing-ms"], "12");
    }
}
