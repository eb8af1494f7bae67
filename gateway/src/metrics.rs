//! What is counted, under which names: one recorder a gateway, handles resolved once.
//!
//! The recorder belongs to the gateway and not to the process, so that several gateways in one
//! process (the demo) do not count into each other. Labels are taken from configured names and from
//! closed lists only, so that no client can make series.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use breaker::Outcome;
use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use quorum::EndpointKey;

/// Upper bounds of the buckets for durations, in seconds: OpenTelemetry's for GenAI servers, with
/// finer ones below for our own overhead and flips, and longer ones for slow engines.
const SECONDS: [f64; 18] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.48, 40.96, 81.92,
    163.84, 327.68, 655.36,
];

const METADATA: Metadata<'static> = Metadata::new("quorumgate", Level::INFO, None);

/// The recorder of one gateway.
pub struct Meters {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
}

/// What is counted for one endpoint.
pub struct EndpointMeters {
    success: Counter,
    fault: Counter,
    settled_slow: Counter,
    neutral: Counter,
    /// Crossings of a slow limit, before deduplication.
    pub slow: Counter,
}

/// What is counted for one pool.
pub struct PoolMeters {
    model: String,
    by_code: Mutex<BTreeMap<u16, Counter>>,
    /// Time from the request to the first content, in seconds.
    pub first_token: Histogram,
    /// Time from the request to the end of the answer, in seconds.
    pub duration: Histogram,
    /// 1 while every endpoint is out, else 0.
    pub all_open: Gauge,
    /// For how many seconds every endpoint was out.
    pub all_open_seconds: Counter,
}

impl Default for Meters {
    fn default() -> Self {
        Self::new()
    }
}

impl Meters {
    /// A recorder with nothing counted.
    pub fn new() -> Self {
        let builder = PrometheusBuilder::new();
        // The buckets are a constant, so that this cannot fail; without them the exporter would
        // give summaries, which is no reason to stop.
        let seconds = Matcher::Suffix("seconds".to_owned());
        let recorder = match builder.set_buckets_for_metric(seconds, &SECONDS) {
            Ok(builder) => builder.build_recorder(),
            Err(_) => PrometheusBuilder::new().build_recorder(),
        };
        Self { handle: recorder.handle(), recorder }
    }

    /// A counter by its name without the prefix.
    pub fn counter(&self, name: &str, labels: &[(&'static str, &str)]) -> Counter {
        self.recorder.register_counter(&key(name, labels), &METADATA)
    }

    /// A gauge by its name without the prefix.
    pub fn gauge(&self, name: &str, labels: &[(&'static str, &str)]) -> Gauge {
        self.recorder.register_gauge(&key(name, labels), &METADATA)
    }

    /// A histogram by its name without the prefix.
    pub fn histogram(&self, name: &str, labels: &[(&'static str, &str)]) -> Histogram {
        self.recorder.register_histogram(&key(name, labels), &METADATA)
    }

    /// The handles of one endpoint.
    pub fn endpoint(&self, endpoint: &EndpointKey) -> EndpointMeters {
        let attempts = |outcome: &str| {
            let labels = [("endpoint", endpoint.as_str()), ("outcome", outcome)];
            self.counter("attempts_total", &labels)
        };
        EndpointMeters {
            success: attempts("success"),
            fault: attempts("fault"),
            settled_slow: attempts("slow"),
            neutral: attempts("neutral"),
            slow: self.counter("slow_crossings_total", &[("endpoint", endpoint.as_str())]),
        }
    }

    /// The handles of one pool.
    pub fn pool(&self, model: &str) -> PoolMeters {
        let labels = [("model", model)];
        PoolMeters {
            model: model.to_owned(),
            by_code: Mutex::default(),
            first_token: self.histogram("first_token_seconds", &labels),
            duration: self.histogram("request_seconds", &labels),
            all_open: self.gauge("pool_all_open", &labels),
            all_open_seconds: self.counter("pool_all_open_seconds_total", &labels),
        }
    }

    /// Counts an answer of `pool` with this status.
    pub fn answered(&self, pool: &PoolMeters, status: u16) {
        let mut by_code = pool.by_code.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = by_code.entry(status).or_insert_with(|| {
            let code = status.to_string();
            self.counter("requests_total", &[("model", &pool.model), ("code", &code)])
        });
        counter.increment(1);
    }

    /// Everything counted, as Prometheus text.
    pub fn render(&self) -> String {
        self.handle.run_upkeep();
        self.handle.render()
    }
}

impl EndpointMeters {
    /// Counts how an attempt went.
    pub fn count(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Success => &self.success,
            Outcome::Fault { .. } => &self.fault,
            Outcome::Slow(_) => &self.settled_slow,
            Outcome::Neutral => &self.neutral,
        }
        .increment(1);
    }
}

fn key(name: &str, labels: &[(&'static str, &str)]) -> Key {
    let labels: Vec<Label> =
        labels.iter().map(|(name, value)| Label::new(*name, (*value).to_owned())).collect();
    Key::from_parts(format!("quorumgate_{name}"), labels)
}
