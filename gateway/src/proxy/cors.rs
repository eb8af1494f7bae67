//! What a browser must be told before a page of another origin may call.
//!
//! Without the section `server.cors` nothing here happens: a browser's question (OPTIONS) is a method
//! that is not allowed, and no answer carries such a header. With it, a question of a listed origin is
//! answered at once, without a key, for a browser does not show one when it asks; and every answer,
//! refusals included, lets the page read it. Credentials in the browser's sense (cookies) are never
//! allowed: callers show keys.
//!
//! Invariants: only a listed origin is ever named back, and `*` only where all are let in; a header
//! that a page wants to send is named back only if it is a token of a sane length.

use std::convert::Infallible;
use std::sync::Arc;

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use super::{Body, Gate, Intake, request_id};
use crate::config;
use crate::upstream::Upstream;

/// Longest list of headers that a page asks for.
const ASKED_BYTES_MAX: usize = 1024;
/// Most headers that a page asks for.
const ASKED_MAX: usize = 64;
/// What a page may send if it does not say what it wants to.
const SENT: &str = "authorization, content-type, x-agent-id, x-request-id";
/// What a page may read of an answer beyond what any may.
const READ: &str = "x-request-id, x-quorumgate-node, x-quorumgate-endpoint, x-quorumgate-attempts, \
    x-quorumgate-fallback, x-quorumgate-degraded, retry-after, retry-after-ms, x-should-retry, \
    x-ratelimit-limit-requests, x-ratelimit-limit-tokens, x-ratelimit-remaining-requests, \
    x-ratelimit-remaining-tokens, x-ratelimit-reset-requests, x-ratelimit-reset-tokens";

/// Who may call from a page in a browser.
pub struct Cors {
    /// `None`: all.
    origins: Option<Vec<String>>,
    max_age: HeaderValue,
}

impl Cors {
    /// Lets in whom the configuration names.
    pub fn new(config: &config::Cors) -> Self {
        let is_open = config.origins.iter().any(|origin| origin == "*");
        let origins = (!is_open).then(|| config.origins.clone());
        Self { origins, max_age: HeaderValue::from(config.max_age_seconds) }
    }

    /// What is said back to this origin; `None`: it is not let in.
    fn named(&self, origin: Option<&HeaderValue>) -> Option<HeaderValue> {
        let Some(origins) = &self.origins else { return Some(HeaderValue::from_static("*")) };
        let origin = origin?;
        origins.iter().any(|listed| listed.as_bytes() == origin.as_bytes()).then(|| origin.clone())
    }

    /// The answer to a browser's question; `None`: the request is none, or of no listed origin.
    fn preflight(&self, method: &Method, headers: &HeaderMap) -> Option<Response<Body>> {
        let is_question = *method == Method::OPTIONS
            && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        let origin = headers.get(header::ORIGIN).filter(|_| is_question)?;
        self.named(Some(origin))?;
        let mut response = Response::new(Body::Full(None));
        *response.status_mut() = StatusCode::NO_CONTENT;
        let said = response.headers_mut();
        let methods = HeaderValue::from_static("GET, POST");
        said.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
        said.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed(headers));
        said.insert(header::ACCESS_CONTROL_MAX_AGE, self.max_age.clone());
        Some(response)
    }

    /// Adds what lets a page of this origin read the answer.
    fn sign(&self, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
        if self.origins.is_some() {
            headers.append(header::VARY, HeaderValue::from_static("Origin"));
        }
        if let Some(named) = self.named(origin) {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, named);
            let read = HeaderValue::from_static(READ);
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, read);
        }
    }
}

impl Gate {
    /// Answers one request, and lets the page that sent it read the answer if it may.
    ///
    /// # Errors
    /// Never.
    ///
    /// # Cancel safety
    /// As [`Gate::serve`].
    pub async fn receive(
        self: &Arc<Self>,
        upstream: &Upstream,
        request: Request<Intake>,
    ) -> Result<Response<Body>, Infallible> {
        let Some(cors) = &self.cors else { return self.serve(upstream, request).await };
        let origin = request.headers().get(header::ORIGIN).cloned();
        let mut response = match cors.preflight(request.method(), request.headers()) {
            Some(response) => self.stamp(response, &request_id(request.headers())),
            None => self.serve(upstream, request).await?,
        };
        cors.sign(origin.as_ref(), response.headers_mut());
        Ok(response)
    }
}

/// The headers that a page may send: those it asks for, as far as they are names of headers.
fn allowed(headers: &HeaderMap) -> HeaderValue {
    let asked = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS);
    let asked = asked.and_then(|asked| asked.to_str().ok()).unwrap_or_default();
    let asked = asked.get(..ASKED_BYTES_MAX).unwrap_or(asked);
    let names: Vec<_> = asked
        .split(',')
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        .take(ASKED_MAX)
        .collect();
    let names: Vec<_> = names.iter().map(HeaderName::as_str).collect();
    HeaderValue::from_str(&names.join(", "))
        .ok()
        .filter(|names| !names.is_empty())
        .unwrap_or_else(|| HeaderValue::from_static(SENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cors(origins: &[&str]) -> Cors {
        let origins = origins.iter().map(|origin| (*origin).to_owned()).collect();
        Cors::new(&config::Cors { origins, max_age_seconds: 600 })
    }

    fn asks(headers: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        headers.iter().map(pair).collect()
    }

    #[test]
    fn an_origin_is_let_in_only_letter_for_letter() {
        let cors = cors(&["https://app.example", "http://localhost:3000"]);
        let named = |origin: &'static str| cors.named(Some(&HeaderValue::from_static(origin)));
        assert_eq!(named("https://app.example").unwrap(), "https://app.example");
        assert_eq!(named("http://localhost:3000").unwrap(), "http://localhost:3000");
        for stranger in [
            "http://app.example",
            "https://app.example:8443",
            "https://app.example.evil",
            "https://evil.app.example",
            "https://app.example/",
            "null",
            "*",
            "",
        ] {
            assert_eq!(named(stranger), None, "{stranger}");
        }
        assert_eq!(cors.named(None), None);
    }

    #[test]
    fn the_headers_a_page_asks_for_are_named_back_as_far_as_they_are_names() {
        let allowed = |asked: &str| {
            let headers = asks(&[("access-control-request-headers", asked)]);
            allowed(&headers).to_str().unwrap().to_owned()
        };
        assert_eq!(
            allowed("authorization,X-Stainless-OS, a b,,x-agent-id"),
            "authorization, x-stainless-os, x-agent-id"
        );
        assert_eq!(allowed(""), SENT);
        assert_eq!(allowed("*, (x)"), "*");
        let long = allowed(&"x-stainless-arch,".repeat(1_000));
        assert!(long.len() <= 2 * ASKED_BYTES_MAX, "{}", long.len());
    }

    #[test]
    fn only_a_question_of_a_listed_origin_is_answered_as_one() {
        let cors = cors(&["https://app.example"]);
        let method = ("access-control-request-method", "POST");
        let answered = |method: Method, headers: &[(&'static str, &str)]| {
            cors.preflight(&method, &asks(headers)).is_some()
        };
        let origin = ("origin", "https://app.example");
        assert!(answered(Method::OPTIONS, &[origin, method]));
        assert!(!answered(Method::POST, &[origin, method]));
        assert!(!answered(Method::OPTIONS, &[origin]));
        assert!(!answered(Method::OPTIONS, &[method]));
        assert!(!answered(Method::OPTIONS, &[("origin", "https://evil.example"), method]));
    }

    #[test]
    fn a_cache_between_is_told_that_answers_differ_by_origin() {
        let (listed, open) = (cors(&["https://app.example"]), cors(&["*"]));
        let mut headers = asks(&[("vary", "accept-encoding")]);
        listed.sign(None, &mut headers);
        assert_eq!(headers.get_all("vary").iter().count(), 2);
        assert!(!headers.contains_key("access-control-allow-origin"));
        let mut headers = HeaderMap::new();
        open.sign(Some(&HeaderValue::from_static("https://any.example")), &mut headers);
        assert_eq!(headers["access-control-allow-origin"], "*");
        assert!(!headers.contains_key("vary"));
        assert!(!headers.contains_key("access-control-allow-credentials"));
    }
}
