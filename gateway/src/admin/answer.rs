//! What the admin API answers: a document, a text, a feed, or a refusal; and the headers of them all.
//!
//! Invariants: every refusal has the same shape, a code for programs and a sentence that says what to
//! do; nothing is stored or guessed at by a browser; every answer names its request.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

use super::payload::Payload;
use crate::events::Feed;

/// An answer.
pub(crate) enum Reply {
    /// A document.
    Json(StatusCode, Value),
    /// A document that is written already.
    Written(StatusCode, String),
    /// The page of metrics.
    Text(StatusCode, Bytes),
    /// What happens, as it happens.
    Feed(Box<Feed>),
    /// Which methods there are.
    Methods(String),
    /// A refusal.
    Refused(Box<Refusal>),
}

/// Why something is not done.
pub(crate) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) message: String,
    header: Option<(HeaderName, HeaderValue)>,
    /// Whether the connection ends with it, since the request may still be on its way.
    is_last: bool,
}

/// The body of every refusal.
#[derive(Serialize, JsonSchema)]
pub(super) struct ErrorBody<'a> {
    /// What is wrong.
    error: ErrorDetail<'a>,
}

/// What is wrong, and what to do.
#[derive(Serialize, JsonSchema)]
struct ErrorDetail<'a> {
    /// A word that a program can act on.
    code: &'a str,
    /// A sentence for a person.
    message: &'a str,
}

const JSON: &str = "application/json";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const EVENTS: &str = "text/event-stream";

impl Reply {
    /// 200 with a document.
    pub(crate) fn ok(document: &impl Serialize) -> Self {
        Self::written(StatusCode::OK, document)
    }

    /// A document with a status.
    pub(crate) fn written(status: StatusCode, document: &impl Serialize) -> Self {
        match serde_json::to_string(document) {
            Ok(text) => Self::Written(status, text),
            // Answers have text for keys and no other way to fail.
            Err(error) => {
                tracing::error!(%error, "an answer cannot be written");
                let message = "The answer cannot be written; see this node's log.";
                Self::error(StatusCode::INTERNAL_SERVER_ERROR, "unwritable", message)
            }
        }
    }

    /// A refusal: what is wrong, and what to do.
    pub(crate) fn error(
        status: StatusCode,
        code: &'static str,
        message: impl Into<String>,
    ) -> Self {
        let (message, header, is_last) = (message.into(), None, false);
        Self::Refused(Box::new(Refusal { status, code, message, header, is_last }))
    }

    /// 400: a query that cannot be understood.
    pub(super) fn invalid_query(message: impl Into<String>) -> Self {
        Self::error(StatusCode::BAD_REQUEST, "invalid_query", message)
    }

    /// 404: no such path.
    pub(super) fn not_found() -> Self {
        let message =
            "There is nothing at this path; GET /admin/v1/openapi.json lists what there is.";
        Self::error(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// 401: no token, or none that is known. Which of them is not said.
    pub(super) fn unauthorized() -> Self {
        let message = "Send the admin token, once, as 'Authorization: Bearer …'.";
        Self::error(StatusCode::UNAUTHORIZED, "unauthorized", message)
            .header(WWW_AUTHENTICATE, "Bearer")
    }

    /// 405: the path exists, the method does not.
    pub(super) fn method_not_allowed(allowed: &str) -> Self {
        let message = format!("This path knows {allowed} only.");
        Self::error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
            .header(ALLOW, allowed)
    }

    /// 429: too many wrong tokens came from this address.
    pub(super) fn too_many_attempts(wait: Duration) -> Self {
        let seconds = wait.as_millis().div_ceil(1_000).max(1);
        let message =
            format!("Too many wrong tokens came from this address; come back in {seconds} s.");
        Self::error(StatusCode::TOO_MANY_REQUESTS, "too_many_attempts", message)
            .header(RETRY_AFTER, &seconds.to_string())
    }

    /// The same with a header that HTTP asks for; an answer that is no refusal stays as it is.
    fn header(mut self, name: HeaderName, value: &str) -> Self {
        if let Self::Refused(refusal) = &mut self {
            refusal.header = HeaderValue::from_str(value).ok().map(|value| (name, value));
        }
        self
    }

    /// The same as the last answer on its connection: what may still be coming is not read.
    pub(super) fn last(mut self) -> Self {
        if let Self::Refused(refusal) = &mut self {
            refusal.is_last = true;
        }
        self
    }

    /// The word for how it went: the code of a refusal, or `ok`.
    pub(super) fn result(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.code,
            Self::Json(..)
            | Self::Written(..)
            | Self::Text(..)
            | Self::Feed(_)
            | Self::Methods(_) => "ok",
        }
    }

    /// The response. One to `HEAD` has no body; a feed that nobody reads gives its seat back.
    pub(super) fn response(self, is_head: bool, request_id: HeaderValue) -> Response<Payload> {
        let (mut status, mut kind, mut header) = (StatusCode::OK, JSON, None);
        let mut is_last = false;
        let body = match self {
            Self::Json(code, value) => {
                status = code;
                whole(value.to_string())
            }
            Self::Written(code, text) => {
                status = code;
                whole(text)
            }
            Self::Text(code, text) => {
                (status, kind) = (code, METRICS);
                Payload::Whole(Full::new(text))
            }
            Self::Feed(feed) => {
                kind = EVENTS;
                if is_head { whole(String::new()) } else { Payload::Feed(*feed) }
            }
            Self::Methods(allowed) => {
                status = StatusCode::NO_CONTENT;
                header = HeaderValue::from_str(&allowed).ok().map(|allowed| (ALLOW, allowed));
                whole(String::new())
            }
            Self::Refused(refusal) => {
                let Refusal { status: code, code: word, message, header: more, is_last: last } =
                    *refusal;
                (status, header, is_last) = (code, more, last);
                let body = ErrorBody { error: ErrorDetail { code: word, message: &message } };
                whole(serde_json::to_string(&body).unwrap_or_default())
            }
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        if status != StatusCode::NO_CONTENT {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        headers.extend(
            header.map(|(name, value)| (Some(name), value)).into_iter().collect::<Vec<_>>(),
        );
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if is_last {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        stamp(response, request_id)
    }
}

/// Adds what every response of this listener carries.
pub(super) fn stamp(mut response: Response<Payload>, request_id: HeaderValue) -> Response<Payload> {
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(HeaderName::from_static("x-request-id"), request_id);
    response
}

fn whole(text: String) -> Payload {
    Payload::Whole(Full::new(Bytes::from(text)))
}
