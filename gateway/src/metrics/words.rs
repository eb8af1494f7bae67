//! The words of closed lists that stand in labels.

use breaker::{Reason, SlowKind};
use metrics::Counter;
use quorum::ProbeResult;

/// Every code with which a request is refused before it reaches a pool, and `client_left`.
pub(super) const REJECTS: [&str; 16] = [
    "body_too_large",
    "client_left",
    "input_too_large",
    "invalid_api_key",
    "invalid_request",
    "method_not_allowed",
    "missing_required_header",
    "model_not_allowed",
    "model_not_found",
    "overloaded",
    "path_not_allowed",
    "rate_limit_exceeded",
    "request_timeout",
    "state_unavailable",
    "too_many_messages",
    "unsupported_media_type",
];

/// What an attempt may have failed of before another is made.
pub(super) const RETRIES: [&str; 9] =
    ["auth", "cut", "limited", "malformed", "neutral", "own", "refused", "status", "timeout"];

/// Counters of one name, told apart by a word out of a closed list; all are there from the start, so
/// that the first of a kind is an increase to whoever watches.
pub struct Reasons(Vec<(&'static str, Counter)>);

impl Reasons {
    pub(super) fn new(
        name: &str,
        words: &[&'static str],
        count: impl Fn(&str, &[(&'static str, &str)]) -> Counter,
    ) -> Self {
        let words = words.iter().chain(&[OTHER]);
        Self(words.map(|word| (*word, count(name, &[("reason", word)]))).collect())
    }

    /// Counts one; a word that is not in the list counts as `other`.
    pub fn count(&self, reason: &str) {
        let known = self.0.iter().find(|(word, _)| *word == reason).or(self.0.last());
        debug_assert!(
            known.is_some_and(|(word, _)| *word == reason),
            "{reason} is not in the list"
        );
        if let Some((_, counter)) = known {
            counter.increment(1);
        }
    }
}

const OTHER: &str = "other";

/// Why a breaker has changed, in one word.
pub(crate) fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::ConsecutiveFaults => "consecutive_faults",
        Reason::FailureRatio => "failure_ratio",
        Reason::Slow(SlowKind::Total) => "slow_total",
        Reason::Slow(SlowKind::FirstToken) => "slow_first_token",
        Reason::Slow(SlowKind::TokensPerSecond) => "slow_tokens_per_second",
        Reason::FirstTokenP95 => "first_token_p95",
        Reason::TotalP95 => "total_p95",
        Reason::SlowerThanSiblings => "slower_than_siblings",
        Reason::HalfOpenFault(_) => "half_open_fault",
        Reason::HalfOpenSlow(_) => "half_open_slow",
        Reason::PermitLost => "permit_lost",
        Reason::CooledDown => "cooled_down",
        Reason::ProbePassed => "probe_passed",
        Reason::CanaryPassed => "canary_passed",
        Reason::Recovered => "recovered",
        Reason::PassedThrough => "passed_through",
        Reason::Held => "held",
        Reason::Lent => "lent",
        Reason::Released => "released",
        Reason::ProbeAbolished => "probe_abolished",
        Reason::TurnedOff => "turned_off",
    }
}

/// How a probe went, in one word.
pub(crate) fn probed(result: ProbeResult) -> &'static str {
    match result {
        ProbeResult::Passed => "passed",
        ProbeResult::Failed => "failed",
        ProbeResult::Inconclusive => "inconclusive",
    }
}
