//! Admission is fail-closed: what is not understood and allowed is refused before anything is sent.
//!
//! The order is part of the contract, the first refusal wins: path, required header, well-formed
//! JSON, number of messages, estimated tokens; the model is looked up last, by the caller.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Body;
use hyper::header::{self, HeaderMap, HeaderValue};
use serde::Deserialize;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::route::Route;
use crate::config::FailClosed;
use crate::error::ApiError;

/// JSON of a chat body carries about this many bytes for one token of prompt; a fast estimate, no
/// tokenizer, that errs towards more tokens for anything but dense code.
const BYTES_PER_TOKEN: u64 = 4;

/// Longest name of a model that is looked up.
const MODEL_BYTES_MAX: usize = 256;

/// Somebody who showed a key.
#[derive(Debug, PartialEq, Eq)]
pub struct Caller {
    /// What the configuration calls it.
    pub name: String,
}

/// A request that was understood.
#[derive(Clone, Debug)]
pub struct Call {
    /// The family of its path.
    pub route: Route,
    /// Its path, the same upstream.
    pub path: String,
    /// The type of its body, the same upstream.
    pub content_type: HeaderValue,
    /// Who asks, if callers show keys.
    pub caller: Option<Arc<Caller>>,
    /// A digest of the beginning of its prompt: requests that share it are best served by one engine.
    pub prefix: u64,
    /// The model as the client named it.
    pub model: String,
    /// Whether the answer is to be a stream.
    pub is_stream: bool,
    /// Estimated length of the prompt, in tokens.
    pub prompt_tokens: u64,
    /// The body, exactly as it came.
    pub body: Bytes,
    /// Where the value of `model`, quotes included, stands in the body.
    model_at: std::ops::Range<usize>,
}

/// Decides by path, method and headers alone.
///
/// # Errors
/// The refusal to answer with.
pub fn admit(
    rule: &FailClosed,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
) -> Result<Route, ApiError> {
    let route = Route::of(path).ok_or_else(ApiError::path_not_allowed)?;
    let is_listed = |paths: &Vec<String>| route == Route::Models || paths.iter().any(|p| p == path);
    if !rule.allowed_paths.as_ref().is_none_or(is_listed) {
        return Err(ApiError::path_not_allowed());
    }
    if route.method() != method {
        return Err(ApiError::method_not_allowed());
    }
    match &rule.require_header {
        Some(name) if headers.get(name).is_none_or(|value| value.is_empty()) => {
            Err(ApiError::missing_required_header(name))
        }
        Some(_) | None => Ok(route),
    }
}

/// Reads the body, bounded in size and in the pause between its parts.
///
/// # Errors
/// The refusal to answer with; `None` when the client went away in the middle.
pub async fn read_body<B>(
    mut body: B,
    headers: &HeaderMap,
    bytes_max: usize,
    idle: Duration,
) -> Result<Bytes, Option<ApiError>>
where
    B: Body<Data = Bytes> + Unpin,
{
    if headers.contains_key(header::CONTENT_ENCODING) {
        let status = hyper::StatusCode::UNSUPPORTED_MEDIA_TYPE;
        let message = "Compressed request bodies are not accepted.";
        return Err(Some(ApiError::new(status, "unsupported_media_type", message)));
    }
    let too_large = || Some(ApiError::body_too_large(bytes_max));
    let stated = body.size_hint().lower();
    if stated > bytes_max as u64 {
        return Err(too_large());
    }
    let mut first: Option<Bytes> = None;
    let mut rest = BytesMut::new();
    loop {
        let frame = match tokio::time::timeout(idle, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(_))) => return Err(None),
            Ok(None) => break,
            Err(_) => {
                let status = hyper::StatusCode::REQUEST_TIMEOUT;
                let message = "The request body stopped arriving.";
                return Err(Some(ApiError::new(status, "request_timeout", message)));
            }
        };
        let Ok(data) = frame.into_data() else { continue };
        if first.as_ref().map_or(0, Bytes::len) + rest.len() + data.len() > bytes_max {
            return Err(too_large());
        }
        // Most bodies come in one piece, which then is passed on without a copy.
        match &first {
            None => first = Some(data),
            Some(_) => rest.extend_from_slice(&data),
        }
    }
    let first = first.unwrap_or_default();
    if rest.is_empty() {
        return Ok(first);
    }
    let mut whole = BytesMut::with_capacity(first.len() + rest.len());
    whole.extend_from_slice(&first);
    whole.extend_from_slice(&rest);
    Ok(whole.freeze())
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    #[serde(borrow)]
    stream: Option<&'a RawValue>,
    messages: Option<Count>,
}

/// Understands the body.
///
/// # Errors
/// The refusal to answer with.
pub fn understand(
    rule: &FailClosed,
    route: Route,
    path: &str,
    body: Bytes,
) -> Result<Call, ApiError> {
    let text = std::str::from_utf8(&body)
        .map_err(|_| ApiError::invalid_request("The body is not UTF-8 text."))?;
    // A list would be read as the envelope's fields in their order.
    if !text.trim_start_matches([' ', '\t', '\r', '\n']).starts_with('{') {
        return Err(ApiError::invalid_request("The body must be a JSON object."));
    }
    let envelope: Envelope<'_> = serde_json::from_str(text).map_err(|error| {
        ApiError::invalid_request(format!("The body is not a valid JSON request: {error}."))
    })?;
    let model_missing =
        || ApiError::invalid_request("The body must name a model, as a text.").param("model");
    let raw = envelope.model.ok_or_else(model_missing)?.get();
    let model: String = serde_json::from_str(raw).map_err(|_| model_missing())?;
    if model.is_empty() || model.len() > MODEL_BYTES_MAX {
        return Err(ApiError::model_not_found());
    }
    let is_stream = match envelope.stream.map(RawValue::get) {
        Some("true") => true,
        Some("false" | "null") | None => false,
        Some(_) => {
            let message = "stream must be true or false.";
            return Err(ApiError::invalid_request(message).param("stream"));
        }
    };
    let messages = envelope.messages.map_or(0, |count| count.0);
    if rule.max_messages.is_some_and(|most| messages > most) {
        let message = format!("More than {} messages.", rule.max_messages.unwrap_or_default());
        let status = hyper::StatusCode::BAD_REQUEST;
        return Err(ApiError::new(status, "too_many_messages", message).param("messages"));
    }
    let prompt_tokens = (body.len() as u64).div_ceil(BYTES_PER_TOKEN);
    if rule.max_input_tokens.is_some_and(|most| prompt_tokens > most) {
        let message =
            format!("The input is estimated at {prompt_tokens} tokens, which is too much.");
        return Err(ApiError::new(hyper::StatusCode::BAD_REQUEST, "input_too_large", message));
    }
    // The raw value is a part of the text, so that the distance of their starts is its place.
    let start = (raw.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    let model_at = start..start + raw.len();
    let content_type = HeaderValue::from_static("application/json");
    let (caller, prefix, path) = (None, 0, path.to_owned());
    Ok(Call {
        route,
        path,
        content_type,
        caller,
        prefix,
        model,
        is_stream,
        prompt_tokens,
        body,
        model_at,
    })
}

impl Call {
    /// The body with the model named `name`, as the upstream knows it; every other byte stays.
    pub fn body_for(&self, name: &str) -> Bytes {
        if name == self.model {
            return self.body.clone();
        }
        let head = self.body.get(..self.model_at.start).unwrap_or_default();
        let tail = self.body.get(self.model_at.end..).unwrap_or_default();
        let quoted = serde_json::Value::from(name).to_string();
        let mut spliced = BytesMut::with_capacity(head.len() + quoted.len() + tail.len());
        spliced.extend_from_slice(head);
        spliced.extend_from_slice(quoted.as_bytes());
        spliced.extend_from_slice(tail);
        spliced.freeze()
    }
}

/// The number of elements of an array that is not kept.
struct Count(usize);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Counter;
        impl<'de> Visitor<'de> for Counter {
            type Value = Count;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an array of messages")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Count, A::Error> {
                let mut count = 0;
                while elements.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Count(count))
            }
        }
        deserializer.deserialize_seq(Counter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> FailClosed {
        FailClosed {
            require_header: None,
            allowed_paths: None,
            max_messages: Some(2),
            max_input_tokens: Some(1_000),
            ..FailClosed::default()
        }
    }

    fn call(body: &str) -> Result<Call, ApiError> {
        understand(&open(), Route::Chat, "/v1/chat/completions", Bytes::from(body.to_owned()))
    }

    #[test]
    fn only_the_models_name_is_spliced_and_every_other_byte_stays() {
        let body = "{ \"n\" : 1234567890123456789012345678901234567890, \"model\" : \"m\\u0061\" ,\
                    \"x\":[1e999,\"\u{4f60}\"]}";
        let call = call(body).unwrap();
        assert_eq!(call.model, "ma");
        let spliced = call.body_for("org/big");
        assert_eq!(
            std::str::from_utf8(&spliced).unwrap(),
            body.replace("\"m\\u0061\"", "\"org/big\"")
        );
        assert_eq!(call.body_for("ma"), call.body);
    }

    #[test]
    fn j01_j02_j19_what_is_no_json_object_is_refused() {
        for body in ["", " ", "null", "[]", "\"x\"", "1", "{\"model\":\"m\"", "{\"model\":\"m\"}{}"]
        {
            let error = call(body).unwrap_err();
            assert_eq!((error.status.as_u16(), error.code), (400, "invalid_request"), "{body}");
        }
    }

    #[test]
    fn a_doubled_model_is_refused() {
        assert_eq!(call(r#"{"model":"a","model":"b"}"#).unwrap_err().code, "invalid_request");
    }

    #[test]
    fn j04_a_model_that_is_no_name_is_refused() {
        for body in [r#"{"model":1}"#, r#"{"model":null}"#, r#"{"model":[]}"#, r#"{"model":{}}"#] {
            assert_eq!(call(body).unwrap_err().code, "invalid_request", "{body}");
        }
        assert_eq!(call(r#"{"model":""}"#).unwrap_err().code, "model_not_found");
    }

    #[test]
    fn j13_stream_is_a_boolean_or_nothing() {
        assert!(call(r#"{"model":"m","stream":true}"#).unwrap().is_stream);
        assert!(!call(r#"{"model":"m","stream":null}"#).unwrap().is_stream);
        for body in [r#"{"model":"m","stream":"true"}"#, r#"{"model":"m","stream":1}"#] {
            assert_eq!(call(body).unwrap_err().param, Some("stream"), "{body}");
        }
    }

    #[test]
    fn too_many_messages_and_too_many_tokens_have_codes_of_their_own() {
        let body = r#"{"model":"m","messages":[{},{},{}]}"#;
        assert_eq!(call(body).unwrap_err().code, "too_many_messages");
        let long = format!(r#"{{"model":"m","x":"{}"}}"#, "y".repeat(4_100));
        assert_eq!(call(&long).unwrap_err().code, "input_too_large");
    }

    #[test]
    fn deep_nesting_costs_no_stack() {
        let body = format!(r#"{{"model":"m","x":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        let boundless = FailClosed::default();
        let call =
            understand(&boundless, Route::Chat, "/v1/chat/completions", Bytes::from(body.clone()))
                .unwrap();
        assert_eq!(call.body_for("m"), body);
    }
}
