//! What a client reads when its request fails: the OpenAI error body, one code a cause.
//!
//! Only this file knows the body's shape. Messages name neither keys nor addresses.

use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;

/// A client that would have to wait longer is told not to retry by itself: the official clients do
/// not obey a longer pause and come back after half a second.
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
}

impl ApiError {
    /// An error with a status, a code and a sentence.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, code, message, param: None, retry_after: None, should_retry: None }
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

    /// 405: the path exists, the method does not.
    pub fn method_not_allowed() -> Self {
        let message = "This method is not allowed on this path.";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
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

    /// The body, always with all four keys.
    pub fn body(&self) -> Bytes {
        let error = serde_json::json!({
            "message": self.message,
            "type": self.kind(),
            "param": self.param,
            "code": self.code,
        });
        Bytes::from(serde_json::json!({ "error": error }).to_string())
    }

    /// The headers that belong to it, beside the content type.
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = Vec::new();
        if let Some(period) = self.retry_after {
            headers.push(("retry-after", period.as_millis().div_ceil(1_000).to_string()));
            headers.push(("retry-after-ms", period.as_millis().to_string()));
        }
        if self.should_retry == Some(false) || self.retry_after > Some(WAIT_MAX) {
            headers.push(("x-should-retry", "false".to_owned()));
        }
        headers
    }

    fn kind(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            429 => "rate_limit_error",
            400..=499 => "invalid_request_error",
            _ => "upstream_error",
        }
    }
}

/// The event that ends a stream that was cut: well-formed, and never followed by `[DONE]`.
pub fn stream_interrupted() -> Bytes {
    Bytes::from_static(
        b"data: {\"error\":{\"message\":\"The stream was interrupted before it was complete.\",\
          \"type\":\"upstream_error\",\"param\":null,\"code\":\"stream_interrupted\"}}\n\n",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_has_all_four_keys() {
        let body: serde_json::Value =
            serde_json::from_slice(&ApiError::path_not_allowed().body()).unwrap();
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

    #[test]
    fn the_interruption_is_one_well_formed_event() {
        let event = stream_interrupted();
        let text = std::str::from_utf8(&event).unwrap();
        let data = text.strip_prefix("data: ").unwrap().strip_suffix("\n\n").unwrap();
        let body: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(body["error"]["code"], "stream_interrupted");
    }
}
