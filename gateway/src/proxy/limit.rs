//! The limits' place in a request: the last step of admission, and how their figures are told.
//!
//! What a limit refuses reaches no endpoint: it is no sample for a breaker and no reason to try
//! elsewhere. The headers are those of OpenAI's interface, which the official clients know.

use std::time::Duration;

use hyper::Response;
use hyper::header::{HeaderName, HeaderValue};

use super::admission::Call;
use super::relay::End;
use super::usage::Usage;
use super::{Body, Gate};
use crate::clock;
use crate::error::ApiError;
use crate::fleet::Pool;
use crate::limits::{Figure, Left, Place, Refused, What, Whose};

/// Limit, remaining and reset; of requests and of tokens.
const REQUESTS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-requests"),
    HeaderName::from_static("x-ratelimit-remaining-requests"),
    HeaderName::from_static("x-ratelimit-reset-requests"),
];
const TOKENS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-tokens"),
    HeaderName::from_static("x-ratelimit-remaining-tokens"),
    HeaderName::from_static("x-ratelimit-reset-tokens"),
];

impl Gate {
    /// Takes the place of a request under the limits of its caller and its model. It is taken for as
    /// many tokens as its prompt has, by estimate, and its answer may have.
    pub(super) async fn place(&self, call: &Call, pool: &Pool) -> Result<Place, Refused> {
        let caller = call.caller.as_ref().map(|caller| caller.name.as_str());
        let tokens = call.prompt_tokens.saturating_add(call.max_tokens.unwrap_or(0));
        self.desk.admit_or_ask(clock::now(), caller, &pool.name, tokens).await
    }
}

/// What a request is told that is not admitted.
pub(super) fn error(refused: &Refused) -> ApiError {
    let limit = refused.full.limit;
    let several = if limit == 1 { "" } else { "s" };
    let what = match refused.full.what {
        What::Requests => format!("request{several} a minute"),
        What::Tokens => format!("token{several} a minute"),
        What::Concurrency => format!("request{several} at a time"),
    };
    let whose = match refused.whose {
        Whose::Caller => "this caller",
        Whose::Model => "this model",
    };
    let whole = refused.full.whole;
    let share =
        if whole == limit { String::new() } else { format!(" (this node's share of {whole})") };
    match refused.full.returns_in {
        Some(period) => {
            let message = format!("The limit of {limit} {what} of {whose}{share} is reached.");
            ApiError::rate_limit_exceeded(message).retry_after(period)
        }
        // To come back with the same request is of no use.
        None => ApiError::rate_limit_exceeded(format!(
            "The request, with the longest answer it asks for, takes more than the limit of {limit} \
             {what} of {whose}{share}: ask for less."
        ))
        .final_answer(),
    }
}

/// Ends the place of a request that was answered. Of an answer that does not say what it took the
/// estimate stands; and of one that broke off, or whose client left, what was reported is only a
/// beginning (`message_start` tells of one token), so that it can do no more than raise the estimate.
pub(super) fn ended(place: &mut Place, end: End, usage: Usage) {
    match (end, usage.total()) {
        (_, None) => {}
        (End::Complete, Some(tokens)) => place.correct(tokens),
        (End::Interrupted | End::ClientLeft | End::Drained | End::Panicked, Some(tokens)) => {
            place.at_least(tokens);
        }
    }
}

/// Ends the place of a request that failed. What no endpoint was asked for was not used; what was asked
/// for in vain took its prompt, as far as anybody knows.
pub(super) fn failed(place: &mut Place, call: &Call, attempts: u32) {
    if attempts == 0 {
        place.cancel();
    } else {
        place.correct(call.prompt_tokens);
    }
}

/// Adds what is left to an answer. An endpoint's own figures are about the gateway and no affair of a
/// caller who has figures of its own.
pub(super) fn show(left: &Left, mut response: Response<Body>) -> Response<Body> {
    if *left == Left::default() {
        return response;
    }
    let headers = response.headers_mut();
    for (names, figure) in [(REQUESTS, left.requests), (TOKENS, left.tokens)] {
        let Some(Figure { limit, remaining, reset }) = figure else {
            names.iter().for_each(|name| drop(headers.remove(name)));
            continue;
        };
        let reset = HeaderValue::from_str(&span(reset));
        let values = [limit.into(), remaining.into()].into_iter().chain(reset);
        for (name, value) in names.into_iter().zip(values) {
            headers.insert(name, value);
        }
    }
    response
}

/// A span of time as OpenAI writes it: `6m0s`, `1.5s`, `20ms`; rounded up to milliseconds.
fn span(period: Duration) -> String {
    let millis = period.as_nanos().div_ceil(1_000_000);
    let (minutes, seconds, rest) = (millis / 60_000, millis / 1_000 % 60, millis % 1_000);
    if millis < 1_000 {
        return if millis == 0 { "0s".to_owned() } else { format!("{millis}ms") };
    }
    let minutes = if minutes > 0 { format!("{minutes}m") } else { String::new() };
    let fraction = format!("{rest:03}");
    match fraction.trim_end_matches('0') {
        "" => format!("{minutes}{seconds}s"),
        fraction => format!("{minutes}{seconds}.{fraction}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_written_as_openai_writes_them() {
        for (millis, text) in [
            (0, "0s"),
            (20, "20ms"),
            (999, "999ms"),
            (1_000, "1s"),
            (8_640, "8.64s"),
            (59_001, "59.001s"),
            (60_000, "1m0s"),
            (72_172, "1m12.172s"),
            (360_000, "6m0s"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), text);
        }
        assert_eq!(span(Duration::from_nanos(1)), "1ms");
        assert_eq!(span(Duration::from_nanos(59_999_000_001)), "1m0s");
    }

    #[test]
    fn what_can_never_be_admitted_is_final() {
        let full =
            crate::limits::Full { what: What::Tokens, limit: 100, whole: 300, returns_in: None };
        let refused = Refused { whose: Whose::Caller, full, left: Left::default() };
        let error = error(&refused);
        assert_eq!((error.status.as_u16(), error.code), (429, "rate_limit_exceeded"));
        assert_eq!(error.headers(), [("x-should-retry", "false".to_owned())]);
        assert!(error.message.contains("100 tokens a minute"), "{}", error.message);
        assert!(error.message.contains("this node's share of 300"), "{}", error.message);
    }

    #[test]
    fn an_endpoints_own_figures_are_not_mixed_with_ours() {
        let from_upstream = || {
            let mut response = Response::new(Body::Full(None));
            for name in REQUESTS.iter().chain(&TOKENS) {
                response.headers_mut().insert(name, HeaderValue::from_static("7"));
            }
            response
        };
        let figure = Figure { limit: 5, remaining: 4, reset: Duration::from_secs(60) };
        let left = Left { requests: Some(figure), tokens: None };
        let told = show(&left, from_upstream());
        let told: Vec<_> =
            told.headers().iter().map(|(_, value)| value.to_str().unwrap()).collect();
        assert_eq!(told, ["5", "4", "1m0s"]);
        assert_eq!(show(&Left::default(), from_upstream()).headers().len(), 6);
    }
}
