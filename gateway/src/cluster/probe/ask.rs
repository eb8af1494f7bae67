//! Asks one endpoint one tiny question in its own dialect and judges what comes back.
//!
//! The question asks for a stream, because what is wanted is the first token and not the last one; an
//! endpoint that answers in one piece is judged by the whole answer, within the same time. Once the
//! first content is there the rest is let go.

use breaker::Cause;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response};
use quorum::ProbeResult;
use serde_json::json;

use super::cache::{self, Reading};
use crate::cluster::Mark;
use crate::config::{Kind, ProbeRoute, StatusClass};
use crate::fleet::{Endpoint, Pool};
use crate::proxy::route::Dialect;
use crate::proxy::sse::{self, Meaning, Plain, Reader};
use crate::upstream::{self, Arrival, Outgoing, PROBE_HEADER, Parcel, Upstream};

/// What is read of a probe's answer.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

impl Mark {
    /// The value of the header by which the endpoint's logs can tell it from clients' requests.
    fn as_str(self) -> &'static str {
        match self {
            Self::Probe => "1",
            Self::Canary => "canary",
        }
    }
}

/// How a probe went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Verdict {
    /// What it says.
    pub(super) result: ProbeResult,
    /// Why, if it failed.
    pub(super) cause: Cause,
    /// What the page of metrics said; `None` if it was not to be read.
    pub(super) reading: Option<Reading>,
}

/// What an answer says by itself.
type Answer = (ProbeResult, Cause);

const PASSED: Answer = (ProbeResult::Passed, Cause::Other);
const NOTHING: Answer = (ProbeResult::Inconclusive, Cause::Other);

fn failed(cause: Cause) -> Answer {
    (ProbeResult::Failed, cause)
}

/// Sends one probe, and reads the page of metrics beside it where that is asked for. A page that cannot
/// be read says nothing, so that a wrong path does not keep a good endpoint out for ever.
pub(super) async fn ask(
    upstream: &Upstream,
    pool: &Pool,
    endpoint: &Endpoint,
    errand: Mark,
) -> Verdict {
    let limit = endpoint.config.probe.first_token;
    let answer = tokio::time::timeout(limit, first_content(upstream, pool, endpoint, errand));
    let (answer, reading) = tokio::join!(answer, cache::read(upstream, endpoint));
    let (result, cause) = match (answer.unwrap_or(failed(Cause::Timeout)), reading) {
        (PASSED, Some(Reading::Full)) => failed(Cause::Other),
        (answer, _) => answer,
    };
    Verdict { result, cause, reading }
}

async fn first_content(
    upstream: &Upstream,
    pool: &Pool,
    endpoint: &Endpoint,
    mark: Mark,
) -> Answer {
    let Some(request) = request(upstream, pool, endpoint, mark) else { return NOTHING };
    let response = match upstream.send(endpoint, request).await {
        Ok(response) => response,
        Err(error) => return error.cause().map_or(NOTHING, failed),
    };
    if !response.status().is_success() {
        return judged(endpoint, response.status().as_u16());
    }
    if upstream::is_event_stream(response.headers()) {
        stream(endpoint, response).await
    } else {
        plain(endpoint, response).await
    }
}

/// The question, as a server of this kind understands it. `None`: its address cannot be written as a
/// URI, which a checked configuration rules out.
fn request(
    upstream: &Upstream,
    pool: &Pool,
    endpoint: &Endpoint,
    mark: Mark,
) -> Option<Request<Parcel>> {
    let (probe, kind) = (&endpoint.config.probe, endpoint.config.kind);
    let model = endpoint.config.upstream_model.as_deref().unwrap_or(&pool.name);
    let (prompt, most) = (&probe.prompt, probe.max_tokens);
    // OpenAI's newer models refuse the older name of the limit.
    let limit = match kind {
        Kind::OpenAi | Kind::Azure => "max_completion_tokens",
        Kind::Anthropic | Kind::Vllm | Kind::Sglang => "max_tokens",
    };
    let (path, body) = match probe.route {
        ProbeRoute::Chat => {
            let path =
                if kind == Kind::Anthropic { "/v1/messages" } else { "/v1/chat/completions" };
            let messages = json!([{ "role": "user", "content": prompt }]);
            (path, json!({ "model": model, "messages": messages, limit: most, "stream": true }))
        }
        ProbeRoute::Completions => (
            "/v1/completions",
            json!({ "model": model, "prompt": prompt, "max_tokens": most, "stream": true }),
        ),
        ProbeRoute::Embeddings => ("/v1/embeddings", json!({ "model": model, "input": prompt })),
    };
    let id = format!("probe-{:016x}", fastrand::u64(..));
    let id = HeaderValue::from_str(&id).unwrap_or_else(|_| HeaderValue::from_static("probe"));
    let what = Outgoing {
        path,
        model,
        content_type: HeaderValue::from_static("application/json"),
        id: &id,
        caller: &HeaderMap::new(),
        body: Bytes::from(body.to_string()).into(),
    };
    let mut request = upstream.request(endpoint, what)?;
    let name = HeaderName::from_static(PROBE_HEADER);
    request.headers_mut().insert(name, HeaderValue::from_static(mark.as_str()));
    Some(request)
}

/// What a status says. One that is the asker's own, or speaks of a limit, says nothing about health.
fn judged(endpoint: &Endpoint, code: u16) -> Answer {
    let cause = Cause::Status(code);
    if !(400..=599).contains(&code) {
        return failed(cause);
    }
    match endpoint.config.codes.class(code) {
        StatusClass::Fault => failed(cause),
        StatusClass::Neutral | StatusClass::Capacity | StatusClass::Credential => {
            (ProbeResult::Inconclusive, cause)
        }
    }
}

fn embedded(endpoint: &Endpoint, status: Option<u16>) -> Answer {
    status.map_or(failed(Cause::Malformed), |code| judged(endpoint, code))
}

async fn stream(endpoint: &Endpoint, response: Response<Arrival>) -> Answer {
    let mut body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
    let mut reader = Reader::default();
    let dialect = dialect(endpoint);
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return failed(Cause::Cut) };
        let Some(data) = frame.data_ref() else { continue };
        let mut decisive = Meaning::Preamble;
        reader.read(data, |event, _| {
            if decisive == Meaning::Preamble {
                decisive = event.read(dialect).0;
            }
        });
        match decisive {
            Meaning::Content | Meaning::Unreadable | Meaning::Finish | Meaning::Last => {
                return PASSED;
            }
            Meaning::Error(status) => return embedded(endpoint, status),
            Meaning::Done => return failed(Cause::Malformed),
            Meaning::Preamble => {}
        }
    }
    failed(Cause::Cut)
}

async fn plain(endpoint: &Endpoint, response: Response<Arrival>) -> Answer {
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let Ok(body) = body else { return failed(Cause::Cut) };
    match sse::plain(&body.to_bytes(), dialect(endpoint)) {
        Plain::Good(_) => PASSED,
        Plain::Error(status) => embedded(endpoint, status),
        Plain::Malformed => failed(Cause::Malformed),
    }
}

/// In which dialect the endpoint answers a probe.
fn dialect(endpoint: &Endpoint) -> Dialect {
    match (endpoint.config.probe.route, endpoint.config.kind) {
        (ProbeRoute::Chat, Kind::Anthropic) => Dialect::Messages,
        (ProbeRoute::Chat, Kind::OpenAi | Kind::Azure | Kind::Vllm | Kind::Sglang) => Dialect::Chat,
        (ProbeRoute::Completions, _) => Dialect::Completions,
        (ProbeRoute::Embeddings, _) => Dialect::Opaque,
    }
}
