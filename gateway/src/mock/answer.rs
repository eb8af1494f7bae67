//! Responses and their bodies: whole, as a stream, or refused in the route's own error shape.
//!
//! Invariants: an answer's entry in the books ends when its last byte is handed over.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::behaviour::Closing;
use super::ledger::Entry;
use super::route::Route;
use super::stream::Events;
use super::{LetGo, ResetOrder};

/// Returns the answer of a route the mock does not know: the request, its bytes untouched if
/// they are JSON, which the caller has seen to.
pub(super) fn echo(path: &str, json_body: &[u8]) -> Bytes {
    let request = std::str::from_utf8(json_body).unwrap_or("null").trim();
    let path = Value::from(path);
    Bytes::from(format!(r#"{{"object":"echo","path":{path},"request":{request}}}"#))
}

/// Returns the list of models: one, named like the mock.
pub(super) fn models(name: &str) -> Value {
    json!({"object": "list", "data": [{"id": name, "object": "model", "created": unix_seconds(),
        "owned_by": "quorumgate-mock"}]})
}

/// Returns a page of metrics as vLLM and SGLang write it: of two engines one is used to so many percent.
pub(super) fn metrics(cache_usage_percent: u32) -> String {
    let used = f64::from(cache_usage_percent) / 100.0;
    let half = used / 2.0;
    format!(
        "# TYPE vllm:kv_cache_usage_perc gauge\n\
         vllm:kv_cache_usage_perc{{engine=\"0\"}} {half}\n\
         vllm:kv_cache_usage_perc{{engine=\"1\"}} {used}\n\
         # TYPE sglang:token_usage gauge\n\
         sglang:token_usage {used}\n"
    )
}

/// Returns an error in OpenAI's shape, its type and code chosen by the status.
pub(super) fn error_value(status: u16, message: &str) -> Value {
    let (kind, code) = match status {
        401 => ("invalid_request_error", Some("invalid_api_key")),
        403 => ("permission_error", None),
        404 => ("invalid_request_error", Some("not_found")),
        413 => ("invalid_request_error", Some("body_too_large")),
        429 => ("rate_limit_error", Some("rate_limit_exceeded")),
        500.. => ("server_error", None),
        _ => ("invalid_request_error", None),
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

/// Returns an error in Anthropic's shape, its type chosen by the status.
pub(super) fn anthropic_error_value(status: u16, message: &str) -> Value {
    let kind = match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": null})
}

/// Makes a response of a JSON value.
pub(super) fn json_response(status: StatusCode, value: &Value) -> Response<AnswerBody> {
    whole_response(status, "application/json", Bytes::from(value.to_string()))
}

/// Makes a response of an error in OpenAI's shape.
pub(super) fn error_response(status: StatusCode, message: &str) -> Response<AnswerBody> {
    json_response(status, &error_value(status.as_u16(), message))
}

/// Makes a response of an error in the route's shape.
pub(super) fn refusal(route: Route, status: StatusCode, message: &str) -> Response<AnswerBody> {
    if route.is_anthropic() {
        json_response(status, &anthropic_error_value(status.as_u16(), message))
    } else {
        error_response(status, message)
    }
}

/// Makes a response of bytes that are ready.
pub(super) fn whole_response(
    status: StatusCode,
    content_type: &'static str,
    body: Bytes,
) -> Response<AnswerBody> {
    // HTTP has no body with these; hyper would not take it, and the entry would look aborted.
    let is_bodiless = status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
    let body = if is_bodiless { Bytes::new() } else { body };
    response(status, content_type, AnswerBody::new(Content::Whole(body)))
}

/// Makes a response whose body is still to come, or never comes.
pub(super) fn open_response(content_type: &'static str, content: Content) -> Response<AnswerBody> {
    response(StatusCode::OK, content_type, AnswerBody::new(content))
}

fn response(
    status: StatusCode,
    content_type: &'static str,
    body: AnswerBody,
) -> Response<AnswerBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Guesses what a body given by the behaviour is, as a client would be told.
pub(super) fn content_type_of(body: &str, is_stream: bool) -> &'static str {
    if body.trim_start().starts_with('<') {
        "text/html"
    } else if is_stream && serde_json::from_str::<IgnoredAny>(body).is_err() {
        "text/event-stream"
    } else {
        "application/json"
    }
}

/// What a body consists of.
pub(super) enum Content {
    Whole(Bytes),
    Events(Box<Events>),
    /// Nothing, ever; the body does not end either.
    Silence,
}

/// The body of every response of the mock; it writes the request's end into the books.
pub(super) struct AnswerBody {
    content: Content,
    entry: Option<Entry>,
    closing: Option<(ResetOrder, Closing)>,
}

impl AnswerBody {
    fn new(content: Content) -> Self {
        Self { content, entry: None, closing: None }
    }

    /// Ties the body to its request in the books and to its connection.
    pub(super) fn account(&mut self, entry: Entry, reset_order: ResetOrder, closing: Closing) {
        self.entry = Some(entry);
        self.closing = Some((reset_order, closing));
        self.settle();
    }

    /// hyper does not poll a body that says it has ended, so the end is written when it is seen.
    fn settle(&mut self) {
        if self.is_end_stream()
            && let Some(entry) = self.entry.take()
        {
            entry.complete();
        }
    }

    fn let_go(&mut self) {
        if let Some((reset_order, closing)) = &self.closing {
            reset_order.ask(*closing);
        }
        if let Some(entry) = self.entry.take() {
            entry.cut_short();
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = LetGo;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, LetGo>>> {
        let next = match &mut self.content {
            Content::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Content::Whole(bytes) => Poll::Ready(Some(Ok(std::mem::take(bytes)))),
            Content::Events(events) => events.poll_event(context),
            Content::Silence => Poll::Pending,
        };
        if matches!(next, Poll::Ready(Some(Err(_)))) {
            self.let_go();
        }
        self.settle();
        next.map(|event| event.map(|result| result.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(bytes) => bytes.is_empty(),
            Content::Events(events) => events.is_ended(),
            Content::Silence => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => SizeHint::with_exact(u64::try_from(bytes.len()).unwrap_or(0)),
            Content::Events(_) | Content::Silence => SizeHint::default(),
        }
    }
}

/// The time of day, as answers state it.
pub(super) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}
