//! What a client reads when its request fails: the OpenAI error body, one code a cause.
//!
//! Only this file knows the body's shape, and how the same error stands in a stream that has begun.
//! Each dialect's official client finds in it what it looks for; the four keys are there in all of
//! them. Messages name neither keys nor addresses.

use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use serde_json::{Value, json};

use crate::proxy::route::Dialect;

/// A client that would have to wait longer is told not to retry by itself: OpenAI's for JavaScript does
/// not obey a longer pause and comes back after half a second. Its client for Python obeys up to two
/// minutes, Anthropic's clients longer; neither is told apart here.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A refusal or failure, as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// The HTTP status.
    pub status: StatusCode,
    /// The code a program can act on.
    pub code: &'static str,
    /// A sentence for a person.
    pub message: String,
    /// The part of the request that is at fault.
    pub param: Option<&'static str>,
    /// When it makes sense to come back.
    pub retry_after: Option<Duration>,
    /// Whether a client's own retries could help; `Some(false)` is sent as `x-should-retry: false`.
    pub should_retry: Option<bool>,
    /// A header that HTTP asks for with this status.
    pub header: Option<(&'static str, &'static str)>,
}

impl ApiError {
    /// An error with a status, a code and a sentence.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        let (param, retry_after, should_retry, header) = (None, None, None, None);
        Self { status, code, message, param, retry_after, should_retry, header }
    }

    /// Names the part of the request at fault.
    #[must_use]
    pub fn param(mut self, param: &'static str) -> Self {
        self.param = Some(param);
        self
    }

    /// Says when to come back.
    #[must_use]
    pub fn retry_after(mut self, period: Duration) -> Self {
        self.retry_after = Some(period);
        self
    }

    /// Says that retrying is of no use.
    #[must_use]
    pub fn final_answer(mut self) -> Self {
        self.should_retry = Some(false);
        self
    }

    /// 404: this gateway does not forward the path.
    pub fn path_not_allowed() -> Self {
        let message = "This path is not served by this gateway.";
        Self::new(StatusCode::NOT_FOUND, "path_not_allowed", message)
    }

    /// 405: the path exists, the method does not; `allowed` is the one that does.
    pub fn method_not_allowed(allowed: &'static str) -> Self {
        let message = "This method is not allowed on this path.";
        let error = Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message);
        Self { header: Some(("allow", allowed)), ..error }
    }

    /// 401: no key was shown where one must be, or not a known one. Which of them is not said.
    pub fn invalid_api_key() -> Self {
        let message = "Show a valid key, once, as 'Authorization: Bearer …' or 'x-api-key: …'.";
        let error = Self::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message);
        Self { header: Some(("www-authenticate", "Bearer")), ..error }
    }

    /// 403: the caller's key is not for this model.
    pub fn model_not_allowed() -> Self {
        let message = "This key may not ask for the model.";
        Self::new(StatusCode::FORBIDDEN, "model_not_allowed", message).param("model")
    }

    /// 415: the body is of a type that is not read on this path.
    pub fn unsupported_media_type(message: &str) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message)
    }

    /// 403: the header that every caller must send is missing.
    pub fn missing_required_header(name: &str) -> Self {
        let message = format!("The header {name} is required.");
        Self::new(StatusCode::FORBIDDEN, "missing_required_header", message)
    }

    /// 400: the body is not a request this gateway can read.
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    /// 400: where the body ends cannot be told.
    pub fn broken_body() -> Self {
        Self::invalid_request("The body's framing is broken.")
    }

    /// 404: no pool serves the model.
    pub fn model_not_found() -> Self {
        let message = "The model does not exist or you have no access to it.";
        Self::new(StatusCode::NOT_FOUND, "model_not_found", message).param("model")
    }

    /// 413: the body is larger than allowed.
    pub fn body_too_large(bytes_max: usize) -> Self {
        let message = format!("The body is larger than {bytes_max} bytes.");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
    }

    /// 429: a limit is reached; whoever refuses says when to come back.
    pub fn rate_limit_exceeded(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message)
    }

    /// 503: every endpoint is presumed dead, and the pool is configured to say so.
    pub fn circuit_open(returns_in: Duration) -> Self {
        let message = "Every endpoint of this model is out of service for the moment.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "circuit_open", message).retry_after(returns_in)
    }

    /// 429: every endpoint is at a limit of its provider's or of ours.
    pub fn all_limited(returns_in: Duration) -> Self {
        let message = "Every endpoint of this model is at its rate limit.";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message)
            .retry_after(returns_in)
    }

    /// 503: every endpoint has as many requests in flight as it may.
    pub fn all_full(returns_in: Duration) -> Self {
        let message = "Every endpoint of this model is busy.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", message).retry_after(returns_in)
    }

    /// 503: no memory is left to hold the body of another request.
    pub fn overloaded() -> Self {
        let message = "The gateway holds as much as it can for the moment.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", message)
            .retry_after(Duration::from_secs(1))
    }

    /// 503: what decides about the endpoints is away, and the gateway is configured to serve nobody then.
    pub fn state_unavailable() -> Self {
        let message = "The gateway does not know the state of its endpoints for the moment.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "state_unavailable", message)
            .retry_after(Duration::from_secs(1))
    }

    /// 502: no endpoint could be reached.
    pub fn upstream_unavailable() -> Self {
        let message = "No endpoint of this model could be reached.";
        Self::new(StatusCode::BAD_GATEWAY, "upstream_unavailable", message)
    }

    /// 504: no endpoint answered in time.
    pub fn upstream_timeout() -> Self {
        let message = "The model did not answer in time.";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "upstream_timeout", message)
    }

    /// The model's last failure, with its own status.
    pub fn upstream_error(status: StatusCode) -> Self {
        let message = format!("The model failed with status {}.", status.as_u16());
        Self::new(status, "upstream_error", message)
    }

    /// The stream broke off before it was complete.
    pub fn stream_interrupted() -> Self {
        let message = "The stream was interrupted before it was complete.";
        Self::new(StatusCode::BAD_GATEWAY, "stream_interrupted", message)
    }

    /// The body, always with all four keys.
    pub fn body(&self, dialect: Dialect) -> Bytes {
        let error = self.object(dialect);
        let body = match dialect {
            Dialect::Messages => json!({ "type": "error", "error": error }),
            Dialect::Chat | Dialect::Completions | Dialect::Responses | Dialect::Opaque => {
                json!({ "error": error })
            }
        };
        Bytes::from(body.to_string())
    }

    /// The event that says so in a stream that has begun: well-formed, and the last one.
    pub fn event(&self, dialect: Dialect) -> Bytes {
        let error = self.object(dialect);
        Bytes::from(match dialect {
            Dialect::Chat | Dialect::Completions | Dialect::Opaque => {
                format!("data: {}\n\n", json!({ "error": error }))
            }
            Dialect::Messages => {
                format!("event: error\ndata: {}\n\n", json!({ "type": "error", "error": error }))
            }
            Dialect::Responses => {
                let event = json!({
                    "type": "error",
                    "code": self.code,
                    "message": self.message,
                    "param": self.param,
                    // The upstream's own numbers are not read; clients do not order by them.
                    "sequence_number": 0,
                    "error": error,
                });
                format!("event: error\ndata: {event}\n\n")
            }
        })
    }

    fn object(&self, dialect: Dialect) -> Value {
        json!({
            "message": self.message,
            "type": self.kind(dialect),
            "param": self.param,
            "code": self.code,
        })
    }

    /// The headers that belong to it, beside the content type.
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = Vec::new();
        if let Some((name, value)) = self.header {
            headers.push((name, value.to_owned()));
        }
        if let Some(period) = self.retry_after {
            // Rounded up: whoever comes back as told must not be too early.
            let millis = period.as_nanos().div_ceil(1_000_000);
            headers.push(("retry-after", millis.div_ceil(1_000).to_string()));
            headers.push(("retry-after-ms", millis.to_string()));
        }
        if self.should_retry == Some(false) || self.retry_after > Some(WAIT_MAX) {
            headers.push(("x-should-retry", "false".to_owned()));
        }
        headers
    }

    fn kind(&self, dialect: Dialect) -> &'static str {
        let status = self.status.as_u16();
        match (dialect, status) {
            (_, 401) => "authentication_error",
            (_, 403) => "permission_error",
            (_, 429) => "rate_limit_error",
            (Dialect::Messages, 404) => "not_found_error",
            (Dialect::Messages, 413) => "request_too_large",
            (_, 400..=499) => "invalid_request_error",
            (Dialect::Messages, 503 | 529) => "overloaded_error",
            (Dialect::Messages, 504) => "timeout_error",
            (Dialect::Messages, _) => "api_error",
            (Dialect::Chat | Dialect::Completions | Dialect::Responses | Dialect::Opaque, _) => {
                "upstream_error"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_has_all_four_keys() {
        let body: serde_json::Value =
            serde_json::from_slice(&ApiError::path_not_allowed().body(Dialect::Chat)).unwrap();
        let error = body["error"].as_object().unwrap();
        let keys: Vec<_> = error.keys().map(String::as_str).collect();
        assert_eq!(keys, ["code", "message", "param", "type"]);
        assert!(error["param"].is_null());
    }

    #[test]
    fn f29_retry_after_is_rounded_up_and_exact_in_milliseconds() {
        let error = ApiError::circuit_open(Duration::from_millis(12_400));
        assert_eq!(
            error.headers(),
            [("retry-after", "13".to_owned()), ("retry-after-ms", "12400".to_owned())]
        );
    }

    fn data(event: &Bytes, name: &str) -> Value {
        let text = std::str::from_utf8(event).unwrap();
        let data = text.strip_prefix(name).unwrap().strip_prefix("data: ").unwrap();
        let data = data.strip_suffix("\n\n").unwrap();
        assert!(!data.contains('\n'), "{data}");
        serde_json::from_str(data).unwrap()
    }

    #[test]
    fn whoever_comes_back_as_told_is_not_too_early() {
        let error = ApiError::rate_limit_exceeded("x").retry_after(Duration::from_nanos(1 << 31));
        assert_eq!(
            error.headers(),
            [("retry-after", "3".to_owned()), ("retry-after-ms", "2148".to_owned())]
        );
        let error = ApiError::rate_limit_exceeded("x").retry_after(Duration::from_nanos(1));
        assert_eq!(
            error.headers(),
            [("retry-after", "1".to_owned()), ("retry-after-ms", "1".to_owned())]
        );
    }

    #[test]
    fn f34_the_interruption_is_one_well_formed_event_in_every_dialect() {
        let error = ApiError::stream_interrupted();
        for dialect in [Dialect::Chat, Dialect::Completions, Dialect::Opaque] {
            let told = data(&error.event(dialect), "");
            assert_eq!(told["error"]["code"], "stream_interrupted");
            assert_eq!(told["error"]["type"], "upstream_error");
        }
        let told = data(&error.event(Dialect::Messages), "event: error\n");
        assert_eq!((&told["type"], &told["error"]["type"]), (&"error".into(), &"api_error".into()));
        assert_eq!(told["error"]["code"], "stream_interrupted");
        let told = data(&error.event(Dialect::Responses), "event: error\n");
        assert_eq!((&told["type"], &told["sequence_number"]), (&"error".into(), &0.into()));
        assert_eq!(told["code"], "stream_interrupted");
        assert!(told["message"].is_string() && told["param"].is_null());
        assert_eq!(told["error"].as_object().unwrap().len(), 4);
    }

    #[test]
    fn an_anthropic_client_finds_its_own_form() {
        let body = ApiError::model_not_found().body(Dialect::Messages);
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            (&body["type"], &body["error"]["type"]),
            (&"error".into(), &"not_found_error".into())
        );
        assert_eq!(
            (&body["error"]["code"], &body["error"]["param"]),
            (&"model_not_found".into(), &"model".into())
        );
    }
}
