//! Finds the error inside an answer, and in it the status that it speaks of.

use serde_json::Value;

/// The status that the error in an answer speaks of, `Some(None)` if it speaks of none; `None` without
/// an error. An error is an object or a text under `error`, or, where `is_whole` says so, all of `data`.
pub(super) fn failure(data: &[u8], is_whole: bool, error: Option<&Value>) -> Option<Option<u16>> {
    let is_said =
        |error: &&Value| error.is_object() || error.as_str().is_some_and(|e| !e.is_empty());
    if let Some(error) = error.filter(is_said) {
        return Some(status_of(error));
    }
    let whole = || serde_json::from_slice::<Value>(data).ok().as_ref().and_then(status_of);
    is_whole.then(whole)
}

/// The status that an error speaks of, if it speaks of one: as a number or by a word.
pub(super) fn status_of(error: &Value) -> Option<u16> {
    ["code", "status", "type"].into_iter().filter_map(|key| error.get(key)).find_map(|value| {
        if let Some(number) = value.as_u64().or_else(|| value.as_str()?.parse().ok()) {
            return u16::try_from(number).ok().filter(|status| (400..600).contains(status));
        }
        status_by_word(value.as_str()?)
    })
}

/// The words of OpenAI, of Anthropic and of vLLM.
fn status_by_word(word: &str) -> Option<u16> {
    match word {
        "rate_limit_exceeded" | "rate_limit_error" | "insufficient_quota" => Some(429),
        "overloaded_error" => Some(529),
        "api_error" | "server_error" | "internal_error" | "InternalServerError" => Some(500),
        "service_unavailable" | "service_unavailable_error" => Some(503),
        "timeout_error" => Some(504),
        "invalid_api_key" | "authentication_error" => Some(401),
        "billing_error" => Some(402),
        "permission_error" => Some(403),
        "model_not_found" | "not_found_error" | "NotFoundError" => Some(404),
        "request_too_large" => Some(413),
        "context_length_exceeded"
        | "content_policy_violation"
        | "invalid_prompt"
        | "invalid_request_error"
        | "BadRequestError" => Some(400),
        _ => None,
    }
}
