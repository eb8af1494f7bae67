//! The headers that go along, and those that come back.
//!
//! Of the caller's headers only a short list goes upstream: no credential, no cookie, no hop-by-hop
//! field. Of the upstream's everything comes back but what belongs to its connection or would speak for
//! the gateway.

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::config::{self, Kind};

/// The version of Anthropic's interface that is spoken to it unless the caller names one.
const ANTHROPIC_VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");

/// A caller's headers that go upstream.
const PASSED_ON: [HeaderName; 5] = [
    header::ACCEPT,
    header::USER_AGENT,
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    HeaderName::from_static("openai-beta"),
];
const VERSION: HeaderName = HeaderName::from_static("anthropic-version");
const BETA: HeaderName = HeaderName::from_static("anthropic-beta");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// An upstream's headers that do not come back: hop-by-hop ones, those that are ours to say, and those
/// by which a client would remember another server's promises under our name.
const KEPT_BACK: [&str; 15] = [
    "alt-svc",
    "connection",
    "content-length",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "server",
    "set-cookie",
    "strict-transport-security",
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

/// A credential as it is shown. `None`: there is none, or it cannot be written in a header.
pub(super) fn credential(endpoint: &config::Endpoint) -> Option<(HeaderName, HeaderValue)> {
    let key = endpoint.api_key.as_ref()?.expose();
    let (name, value) = match endpoint.kind {
        Kind::Anthropic => (HeaderName::from_static("x-api-key"), HeaderValue::from_str(key)),
        Kind::Azure => (HeaderName::from_static("api-key"), HeaderValue::from_str(key)),
        Kind::OpenAi | Kind::Vllm | Kind::Sglang => {
            (header::AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {key}")))
        }
    };
    let mut value = value.ok()?;
    value.set_sensitive(true);
    Some((name, value))
}

/// Writes what goes along with a request of this id.
pub(super) fn send_along(
    headers: &mut HeaderMap,
    kind: Kind,
    caller: &HeaderMap,
    id: &HeaderValue,
) {
    for name in PASSED_ON {
        if let Some(value) = caller.get(&name) {
            headers.insert(name, value.clone());
        }
    }
    headers.insert(REQUEST_ID, id.clone());
    if kind == Kind::Anthropic {
        headers.insert(VERSION, caller.get(&VERSION).unwrap_or(&ANTHROPIC_VERSION).clone());
        for beta in caller.get_all(&BETA) {
            headers.append(BETA, beta.clone());
        }
    }
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
    // What `Connection` names is for this connection only (RFC 9110, section 7.6.1).
    let named = upstream.get_all(header::CONNECTION).into_iter();
    let named = named.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    for name in named.map(str::trim).filter(|name| *name != "content-type") {
        headers.remove(name);
    }
    headers
}

/// Whether an answer is a stream of events.
pub fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next());
    kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream"))
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
    fn u23_hop_by_hop_and_own_headers_do_not_come_back() {
        let back = headers_back(&headers(&[
            ("transfer-encoding", "chunked"),
            ("set-cookie", "a=b"),
            ("x-should-retry", "true"),
            ("access-control-allow-origin", "*"),
            ("alt-svc", "h3=\":443\""),
            ("strict-transport-security", "max-age=1"),
            ("connection", "close, X-Internal , content-type"),
            ("x-internal", "7"),
            ("content-type", "text/plain"),
            ("x-quorumgate-node", "another"),
            ("openai-processing-ms", "12"),
        ]));
        assert_eq!(back.len(), 2, "{back:?}");
        assert_eq!(back["openai-processing-ms"], "12");
        assert_eq!(back["content-type"], "text/plain");
    }

    #[test]
    fn a_stream_of_events_is_known_by_its_media_type_alone() {
        for kind in
            ["text/event-stream", "Text/Event-Stream;charset=utf-8", " text/event-stream ; a=b"]
        {
            assert!(is_event_stream(&headers(&[("content-type", kind)])), "{kind}");
        }
        for kind in ["text/event-stream-not", "text/event-streams; a", "text/plain", ""] {
            assert!(!is_event_stream(&headers(&[("content-type", kind)])), "{kind}");
        }
        assert!(!is_event_stream(&HeaderMap::new()));
    }

    #[test]
    fn no_credential_of_a_caller_goes_along() {
        let caller = headers(&[
            ("authorization", "Bearer callers"),
            ("x-api-key", "callers"),
            ("api-key", "callers"),
            ("cookie", "a=b"),
            ("anthropic-version", "2099-01-01"),
            ("anthropic-beta", "one"),
            ("openai-beta", "two"),
            ("tracestate", "a=1"),
        ]);
        let id = HeaderValue::from_static("id");
        let (mut to_openai, mut to_anthropic) = (HeaderMap::new(), HeaderMap::new());
        send_along(&mut to_openai, Kind::OpenAi, &caller, &id);
        send_along(&mut to_anthropic, Kind::Anthropic, &caller, &id);
        let names = |headers: &HeaderMap| {
            let mut names: Vec<_> = headers.keys().map(|name| name.as_str().to_owned()).collect();
            names.sort();
            names.join(" ")
        };
        assert_eq!(names(&to_openai), "openai-beta tracestate x-request-id");
        assert_eq!(
            names(&to_anthropic),
            "anthropic-beta anthropic-version openai-beta tracestate x-request-id"
        );
        assert_eq!(to_anthropic["anthropic-version"], "2099-01-01");
        let mut plain = HeaderMap::new();
        send_along(&mut plain, Kind::Anthropic, &HeaderMap::new(), &id);
        assert_eq!(plain["anthropic-version"], ANTHROPIC_VERSION);
    }
}
