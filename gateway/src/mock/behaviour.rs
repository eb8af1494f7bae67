//! What the mock does wrong, and how far it may go.
//!
//! Every fault is one optional field, so that a test or an operator names only what should
//! differ from a healthy server. The JSON form is the same struct; a name it does not know is
//! refused, because a fault that is misspelt and silently absent makes a test pass for nothing.
//!
//! Invariants: no behaviour makes the mock wait longer than [`LATENCY_MS_MAX`] in one pause or
//! write more than [`TOKENS_MAX`] tokens, whichever way it was set.

use std::time::Duration;

use hyper::header::HeaderValue;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The longest single pause: one hour, in milliseconds.
pub const LATENCY_MS_MAX: u64 = 3_600_000;
/// The most tokens in one answer. A million is enough to saturate a reader.
pub const TOKENS_MAX: u32 = 1_000_000;
/// Tokens of an answer when nothing else is asked.
const TOKENS_DEFAULT: u32 = 5;

/// Where a request that is never answered stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hang {
    /// The request is read and not a byte comes back.
    Accept,
    /// A head with status 200 comes back, and then nothing.
    Head,
}

/// How the mock lets go of a connection when a fault says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Closing {
    /// TCP RST, as from a crashed process.
    #[default]
    Reset,
    /// TCP FIN without the end of the message, as from a proxy that lost its upstream.
    Close,
}

/// One server's manners. The default is a healthy server with short answers.
///
/// Faults that exclude each other are decided in this order: the pause, `hang: accept`, `reset`,
/// `require_key`, `status` and `body`, `hang: head`, and then those of the stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Behaviour {
    /// Answers with this status (200 to 599) and an error body in the route's own shape.
    pub status: Option<u16>,
    /// Sent verbatim as `Retry-After`, with whatever the answer is.
    pub retry_after: Option<String>,
    /// Milliseconds before the response head, at most [`LATENCY_MS_MAX`].
    pub latency_ms: Option<u64>,
    /// Milliseconds between a stream's head and its first event, at most [`LATENCY_MS_MAX`].
    pub first_token_ms: Option<u64>,
    /// Milliseconds between two tokens of a stream, at most [`LATENCY_MS_MAX`].
    pub interval_ms: Option<u64>,
    /// Milliseconds between two SSE comments while a stream has nothing to say. None without it.
    pub heartbeat_ms: Option<u64>,
    /// Tokens of an answer, at most [`TOKENS_MAX`]; a request's own limit may lower it.
    pub tokens: u32,
    /// Never answers, or not beyond the head.
    pub hang: Option<Hang>,
    /// Lets a stream's connection go after so many tokens, without the last chunk. Nothing
    /// happens if the answer has fewer tokens.
    pub cut_after_tokens: Option<u32>,
    /// Ends a stream in good order after so many tokens, but without a finish reason and without
    /// the event that ends it.
    pub finish_quietly_after_tokens: Option<u32>,
    /// Falls silent after so many tokens of a stream and keeps the connection.
    pub stall_after_tokens: Option<u32>,
    /// A stream sends an error event of its dialect where its first token belongs, and ends there.
    /// Bare sound has no such event and stays healthy.
    pub error_in_stream: bool,
    /// Answers 200 (or `status`) with exactly this body.
    pub body: Option<String>,
    /// Reads the request and lets the connection go before any byte of an answer.
    pub reset: bool,
    /// How connections are let go by `reset` and `cut_after_tokens`.
    pub closing: Closing,
    /// Only so many model requests meet these faults; after them the server is healthy.
    pub fail_next: Option<u32>,
    /// 401 below `/v1/` unless the bearer token, `x-api-key` or `api-key` equals this.
    pub require_key: Option<String>,
    /// `GET /health` and `GET /v1/models` stay healthy while model requests meet the faults.
    pub spare_health: bool,
    /// `GET /metrics` is a page by which the KV cache is used to so many percent, as vLLM and SGLang
    /// write it; without it there is no such page.
    pub cache_usage_percent: Option<u32>,
    /// Recorded requests keep their credentials instead of the last four characters.
    pub show_keys: bool,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            status: None,
            retry_after: None,
            latency_ms: None,
            first_token_ms: None,
            interval_ms: None,
            heartbeat_ms: None,
            tokens: TOKENS_DEFAULT,
            hang: None,
            cut_after_tokens: None,
            finish_quietly_after_tokens: None,
            stall_after_tokens: None,
            error_in_stream: false,
            body: None,
            reset: false,
            closing: Closing::Reset,
            fail_next: None,
            require_key: None,
            spare_health: false,
            cache_usage_percent: None,
            show_keys: false,
        }
    }
}

impl Behaviour {
    /// Returns the same server without its faults: what is no fault (the length of answers, the
    /// key, what is recorded) stays.
    pub(super) fn without_faults(&self) -> Self {
        Self {
            tokens: self.tokens,
            require_key: self.require_key.clone(),
            show_keys: self.show_keys,
            cache_usage_percent: self.cache_usage_percent,
            ..Self::default()
        }
    }

    /// Takes the manners for one more model request, and counts `fail_next` down.
    pub(super) fn take(&mut self) -> Self {
        let taken = match self.fail_next {
            None => return self.clone(),
            Some(0) => self.without_faults(),
            Some(_) => self.clone(),
        };
        match self.fail_next {
            Some(left) if left > 1 => self.fail_next = Some(left - 1),
            Some(_) | None => *self = self.without_faults(),
        }
        taken
    }

    /// Returns these manners with the given fields replaced; `null` restores a default.
    ///
    /// # Errors
    /// A sentence for the caller that names the unknown field or the value out of range.
    pub(super) fn with_changes(&self, changes: Map<String, Value>) -> Result<Self, String> {
        let mut fields = match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            Ok(_) | Err(_) => return Err("the behaviour cannot be written as JSON".to_owned()),
        };
        for (name, value) in changes {
            // An unknown name must stay even when its value is null, so that it is refused below.
            if value.is_null() && fields.contains_key(&name) {
                fields.remove(&name);
            } else {
                fields.insert(name, value);
            }
        }
        let changed: Self =
            serde_json::from_value(Value::Object(fields)).map_err(|error| error.to_string())?;
        changed.check()?;
        Ok(changed)
    }

    /// Checks the ranges that the types do not.
    fn check(&self) -> Result<(), String> {
        if self.status.is_some_and(|status| !(200..=599).contains(&status)) {
            return Err("`status` must be 200 to 599".to_owned());
        }
        if self.tokens > TOKENS_MAX {
            return Err(format!("`tokens` must be at most {TOKENS_MAX}"));
        }
        for (name, value) in [
            ("latency_ms", self.latency_ms),
            ("first_token_ms", self.first_token_ms),
            ("interval_ms", self.interval_ms),
            ("heartbeat_ms", self.heartbeat_ms),
        ] {
            if value.is_some_and(|value| value > LATENCY_MS_MAX) {
                return Err(format!("`{name}` must be at most {LATENCY_MS_MAX}"));
            }
        }
        match &self.retry_after {
            Some(text) if HeaderValue::from_str(text).is_err() => {
                Err("`retry_after` is not a header value".to_owned())
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// Turns an optional field of milliseconds into a pause; zero and absent are none.
pub(super) fn pause(milliseconds: Option<u64>) -> Option<Duration> {
    milliseconds
        .filter(|milliseconds| *milliseconds > 0)
        .map(|milliseconds| Duration::from_millis(milliseconds.min(LATENCY_MS_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_change_keeps_the_other_fields() {
        let first = Behaviour::default().with_changes(changes(r#"{"status":503}"#)).unwrap();
        let second = first.with_changes(changes(r#"{"hang":"head","tokens":9}"#)).unwrap();
        assert_eq!((second.status, second.hang, second.tokens), (Some(503), Some(Hang::Head), 9));
    }

    #[test]
    fn null_restores_the_default() {
        let changed = Behaviour { status: Some(500), tokens: 9, ..Behaviour::default() }
            .with_changes(changes(r#"{"status":null,"tokens":null}"#));
        assert_eq!(changed, Ok(Behaviour::default()));
    }

    #[test]
    fn an_unknown_field_is_refused_by_name_even_if_null() {
        for text in [r#"{"latancy_ms":1}"#, r#"{"latancy_ms":null}"#] {
            let refusal = Behaviour::default().with_changes(changes(text)).unwrap_err();
            assert!(refusal.contains("latancy_ms"), "{refusal}");
        }
    }

    #[test]
    fn a_value_out_of_range_is_refused_by_name() {
        for (text, name) in [
            (r#"{"status":101}"#, "status"),
            (r#"{"status":600}"#, "status"),
            (r#"{"latency_ms":3600001}"#, "latency_ms"),
            (r#"{"tokens":1000001}"#, "tokens"),
            (r#"{"retry_after":"1\r\nx: y"}"#, "retry_after"),
        ] {
            let refusal = Behaviour::default().with_changes(changes(text)).unwrap_err();
            assert!(refusal.contains(name), "{refusal}");
        }
    }

    #[test]
    fn fail_next_is_used_up_and_leaves_a_healthy_server_with_its_key() {
        let mut behaviour = Behaviour {
            status: Some(500),
            fail_next: Some(2),
            require_key: Some("k".to_owned()),
            ..Behaviour::default()
        };
        let statuses = [(); 4].map(|()| behaviour.take().status);
        assert_eq!(statuses, [Some(500), Some(500), None, None]);
        assert_eq!((behaviour.fail_next, behaviour.require_key.as_deref()), (None, Some("k")));
    }

    #[test]
    fn fail_next_of_zero_fails_nothing() {
        let mut behaviour =
            Behaviour { status: Some(500), fail_next: Some(0), ..Behaviour::default() };
        assert_eq!(behaviour.take().status, None);
    }

    #[test]
    fn a_pause_set_in_rust_is_bounded_too() {
        assert_eq!(pause(Some(u64::MAX)), Some(Duration::from_secs(3600)));
        assert_eq!(pause(Some(0)), None);
    }
}
