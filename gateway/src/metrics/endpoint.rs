//! What is counted for one endpoint: how attempts went, what it did wrong, what speaks against it.
//!
//! What nearly every endpoint has is resolved when the endpoint is made. What most never have gets its
//! series when it first happens: of ten thousand endpoints all would make a page of many megabytes.
//! Probes that do not pass are few and alerted on, and a series that is born at one shows no increase:
//! theirs are there from the start.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use breaker::{Cause, Outcome, SlowKind};
use metrics::{Counter, Recorder};
use metrics_exporter_prometheus::PrometheusRecorder;
use quorum::{EndpointKey, ProbeResult};

use super::{METADATA, Meters, key, words};
use crate::upstream::ConnectError;

/// What is counted for one endpoint.
pub struct EndpointMeters {
    recorder: Arc<PrometheusRecorder>,
    name: EndpointKey,
    success: Counter,
    fault: Counter,
    settled_slow: Counter,
    neutral: Counter,
    /// Crossings of a slow limit, before deduplication.
    pub slow: Counter,
    /// Requests sent once more because their connection was just ending.
    pub stale: Counter,
    unconnected_own: Counter,
    unconnected_full: Counter,
    unconnected_tls: Counter,
    unconnected_other: Counter,
    errors: [OnceLock<Counter>; UpstreamError::ALL.len()],
    /// By kind, and whether it was new or more of the same.
    evidence: [[OnceLock<Counter>; 2]; EVIDENCE.len()],
    /// How long this node has sent it nothing.
    pub(crate) out_here: Spell,
    /// How long the fleet has had it out.
    pub(crate) out_everywhere: Spell,
}

/// What an endpoint does wrong, or asks for. A closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamError {
    /// No connection could be made.
    Connect,
    /// A limit of time has passed.
    Timeout,
    /// It broke off.
    Cut,
    /// What it sent was no answer.
    Malformed,
    /// A status from 500 on.
    ServerError,
    /// A status of 429.
    TooManyRequests,
    /// Another status by which it says that it is at a limit.
    Capacity,
    /// It refuses the gateway's credential.
    Credential,
    /// Another status that counts as its fault.
    Status,
    /// Anything else.
    Other,
}

impl UpstreamError {
    const ALL: [Self; 10] = [
        Self::Connect,
        Self::Timeout,
        Self::Cut,
        Self::Malformed,
        Self::ServerError,
        Self::TooManyRequests,
        Self::Capacity,
        Self::Credential,
        Self::Status,
        Self::Other,
    ];

    /// That of an endpoint which says by this status that it is at a limit.
    pub fn of_limit(status: u16) -> Self {
        if status == 429 { Self::TooManyRequests } else { Self::Capacity }
    }

    fn of(cause: Cause) -> Self {
        match cause {
            Cause::Refused => Self::Connect,
            Cause::Timeout => Self::Timeout,
            Cause::Status(429) => Self::TooManyRequests,
            Cause::Status(500..=599) => Self::ServerError,
            Cause::Status(_) => Self::Status,
            Cause::Malformed => Self::Malformed,
            Cause::Cut => Self::Cut,
            Cause::Other => Self::Other,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Cut => "cut",
            Self::Malformed => "malformed",
            Self::ServerError => "5xx",
            Self::TooManyRequests => "429",
            Self::Capacity => "capacity",
            Self::Credential => "credential",
            Self::Status => "status",
            Self::Other => "other",
        }
    }
}

/// The kinds of evidence.
const EVIDENCE: [&str; 4] = ["fault", "total", "first_token", "tokens_per_second"];

/// How long something has lasted, all times together.
pub(crate) struct Spell {
    /// What is not a whole second yet.
    millis: AtomicU64,
    seconds: Counter,
}

impl Spell {
    fn new(seconds: Counter) -> Self {
        Self { millis: AtomicU64::new(0), seconds }
    }

    /// It has lasted for so much longer. To be called by one thread at a time.
    pub(crate) fn add(&self, period: Duration) {
        let period = u64::try_from(period.as_millis()).unwrap_or(0);
        let sum = self.millis.load(Ordering::Relaxed).saturating_add(period);
        self.millis.store(sum % 1_000, Ordering::Relaxed);
        self.seconds.increment(sum / 1_000);
    }
}

impl Meters {
    /// The handles of one endpoint.
    pub fn endpoint(&self, endpoint: &EndpointKey) -> EndpointMeters {
        let name = endpoint.as_str();
        let count =
            |what: &str, label, word| self.counter(what, &[("endpoint", name), (label, word)]);
        let attempts = |outcome| count("attempts_total", "outcome", outcome);
        let unconnected = |reason| count("connections_failed_total", "reason", reason);
        for result in [ProbeResult::Failed, ProbeResult::Inconclusive] {
            let _ = count("probes_total", "result", words::probed(result));
        }
        let out = |scope| Spell::new(count("endpoint_open_seconds_total", "scope", scope));
        EndpointMeters {
            recorder: Arc::clone(&self.recorder),
            name: endpoint.clone(),
            success: attempts("success"),
            fault: attempts("fault"),
            settled_slow: attempts("slow"),
            neutral: attempts("neutral"),
            slow: self.counter("slow_crossings_total", &[("endpoint", name)]),
            stale: self.counter("stale_connections_total", &[("endpoint", name)]),
            unconnected_own: unconnected("own"),
            unconnected_full: unconnected("full"),
            unconnected_tls: unconnected("tls"),
            unconnected_other: unconnected("unreachable"),
            errors: Default::default(),
            evidence: Default::default(),
            out_here: out("local"),
            out_everywhere: out("cluster"),
        }
    }
}

impl EndpointMeters {
    /// Counts a connection that did not come about.
    pub fn unconnected(&self, error: ConnectError) {
        match error {
            ConnectError::Own => &self.unconnected_own,
            ConnectError::Full => &self.unconnected_full,
            ConnectError::Tls => &self.unconnected_tls,
            ConnectError::Name
            | ConnectError::Forbidden
            | ConnectError::Refused
            | ConnectError::Timeout
            | ConnectError::Protocol => &self.unconnected_other,
        }
        .increment(1);
    }

    /// Counts how an attempt went. A fault `is_repeat` where the same request has failed before, and
    /// then is no further evidence.
    pub fn count(&self, outcome: &Outcome, is_repeat: bool) {
        match outcome {
            Outcome::Success => &self.success,
            Outcome::Fault { .. } => &self.fault,
            Outcome::Slow(_) => &self.settled_slow,
            Outcome::Neutral => &self.neutral,
        }
        .increment(1);
        if let Outcome::Fault { weight: _, cause } = outcome {
            self.error(UpstreamError::of(*cause));
            self.testify(0, is_repeat);
        }
    }

    /// Counts what it did wrong where the outcome alone does not say so.
    pub fn error(&self, error: UpstreamError) {
        let labels = || vec![("kind", error.as_str())];
        self.first(self.errors.get(error as usize), "upstream_errors_total", labels);
    }

    /// Counts that a slow limit was crossed; `is_more` of what is known already.
    pub fn slow_evidence(&self, kind: SlowKind, is_more: bool) {
        let place = match kind {
            SlowKind::Total => 1,
            SlowKind::FirstToken => 2,
            SlowKind::TokensPerSecond => 3,
        };
        self.testify(place, is_more);
    }

    fn testify(&self, kind: usize, is_more: bool) {
        let cell = self.evidence.get(kind).and_then(|both| both.get(usize::from(is_more)));
        let word = EVIDENCE.get(kind).copied().unwrap_or_default();
        let labels = || vec![("kind", word), ("deduped", if is_more { "true" } else { "false" })];
        self.first(cell, "evidence_total", labels);
    }

    /// Counts one, and makes the series if it is the first.
    fn first(
        &self,
        cell: Option<&OnceLock<Counter>>,
        name: &str,
        labels: impl Fn() -> Vec<(&'static str, &'static str)>,
    ) {
        let Some(cell) = cell else { return };
        let counter = cell.get_or_init(|| {
            let mut all = vec![("endpoint", self.name.as_str())];
            all.extend(labels());
            self.recorder.register_counter(&key(name, &all), &METADATA)
        });
        counter.increment(1);
    }
}
