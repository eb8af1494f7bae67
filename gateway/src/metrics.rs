//! What is counted, under which names: one recorder a gateway, handles resolved once.
//!
//! The recorder belongs to the gateway and not to the process, so that several gateways in one
//! process (the demo) do not count into each other. Labels are taken from configured names and from
//! closed lists only, so that no client can make series.
//!
//! A name that a configuration had stays on the page until the process ends, whatever takes that
//! configuration's place: a counter that came back lower would look like a restart. So the page is
//! bounded by the names of all configurations that were taken on together; one that was only checked, or
//! refused, makes none.

mod endpoint;
mod names;
pub(crate) mod process;
pub(crate) mod words;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use metrics_util::MetricKindMask;

pub use self::endpoint::{EndpointMeters, UpstreamError};
pub use self::words::Reasons;
use crate::proxy::End;

/// Upper bounds of the buckets for durations, in seconds: OpenTelemetry's for GenAI servers, with
/// finer ones below for our own overhead and flips, and longer ones for slow engines.
const SECONDS: [f64; 18] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.48, 40.96, 81.92,
    163.84, 327.68, 655.36,
];
/// Upper bounds of the buckets for our own time on a request, in seconds.
const OVERHEAD_SECONDS: [f64; 12] =
    [0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 1.0];
/// A gauge that nobody has set for this long leaves the page. What is on it is set at each scrape, or
/// ten times a second.
const GAUGES_LAST: Duration = Duration::from_secs(60);
/// The names and buckets of OpenTelemetry's conventions for GenAI, which carry no prefix of ours; those
/// of the duration go on to 655 s.
const GEN_AI: [(&str, &[f64]); 4] = [
    (
        REQUEST_DURATION,
        &[
            0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
            163.84, 327.68, 655.36,
        ],
    ),
    (
        FIRST_TOKEN,
        &[
            0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
            10.0,
        ],
    ),
    (PER_OUTPUT_TOKEN, &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5]),
    (
        TOKEN_USAGE,
        &[
            1.0,
            4.0,
            16.0,
            64.0,
            256.0,
            1_024.0,
            4_096.0,
            16_384.0,
            65_536.0,
            262_144.0,
            1_048_576.0,
            4_194_304.0,
            16_777_216.0,
            67_108_864.0,
        ],
    ),
];
const REQUEST_DURATION: &str = "gen_ai_server_request_duration";
const FIRST_TOKEN: &str = "gen_ai_server_time_to_first_token";
const PER_OUTPUT_TOKEN: &str = "gen_ai_server_time_per_output_token";
const TOKEN_USAGE: &str = "gen_ai_client_token_usage";

const METADATA: Metadata<'static> = Metadata::new("quorumgate", Level::INFO, None);

/// The statuses that an answer may have.
const CODE_MIN: u16 = 200;
const CODE_MAX: u16 = 599;

/// The recorder of one gateway.
pub struct Meters {
    recorder: Arc<PrometheusRecorder>,
    handle: PrometheusHandle,
    /// Gauges that stay as they are until they are set again, by names in this program.
    kept: Mutex<BTreeMap<&'static str, f64>>,
    /// What is counted of streams.
    pub streams: StreamMeters,
    /// Requests that were refused before a pool was asked, by the code of the error.
    pub rejects: Reasons,
    /// Further attempts, by what the one before failed of.
    pub retries: Reasons,
    /// Further attempts for which the budget had nothing left.
    pub retry_budget_exhausted: Counter,
    /// Our own time on a request up to its first content, in seconds.
    pub overhead: Histogram,
    /// Time to the fleet's verdict on an endpoint, in seconds.
    pub flip_latency: Histogram,
}

/// What is counted for one pool.
pub struct PoolMeters {
    model: String,
    /// Its answers by status, from [`CODE_MIN`] on; resolved at the first one, so that no series is there
    /// for what has never happened.
    by_code: Box<[OnceLock<Counter>]>,
    /// Time from the request to the first content, in seconds.
    pub first_token: Histogram,
    /// Time from the request to the end of the answer, in seconds.
    pub duration: Histogram,
    /// Time from one token of a stream to the next, in seconds: the mean over one answer.
    pub per_output_token: Histogram,
    /// Tokens of one prompt, as reported.
    pub input_tokens: Histogram,
    /// Tokens of one answer, as reported.
    pub output_tokens: Histogram,
    /// Events of streams that could not be read, and were passed on all the same.
    pub unreadable_events: Counter,
    /// Requests that another pool has answered.
    pub fallbacks: Counter,
    /// Requests sent to an endpoint that is presumed dead.
    pub passed_through: Counter,
    /// 1 while every endpoint is out, else 0.
    pub all_open: Gauge,
    /// For how many seconds every endpoint was out.
    pub all_open_seconds: Counter,
}

/// What is counted of streams that end before their time.
pub struct StreamMeters {
    /// The client left.
    pub left_by_client: Counter,
    /// The upstream broke it off, fell silent, or said that it failed.
    pub cut_by_upstream: Counter,
    /// This gateway had to end before the stream had.
    pub cut_by_gateway: Counter,
    /// A fault of our own, after which nothing but that stream ended.
    pub panics: Counter,
}

impl Default for Meters {
    fn default() -> Self {
        Self::new()
    }
}

impl Meters {
    /// A recorder with nothing counted.
    pub fn new() -> Self {
        // The buckets are constants, so that this cannot fail; without them the exporter would give
        // summaries, which is no reason to stop.
        let recorder = builder().unwrap_or_else(|_| PrometheusBuilder::new()).build_recorder();
        names::describe(&recorder);
        let recorder = Arc::new(recorder);
        let count = |name: &str, labels: &[(&'static str, &str)]| {
            recorder.register_counter(&key(name, labels), &METADATA)
        };
        let time = |name: &str| recorder.register_histogram(&key(name, &[]), &METADATA);
        let streams = StreamMeters {
            left_by_client: count("stream_aborts_total", &[("side", "client")]),
            cut_by_upstream: count("stream_aborts_total", &[("side", "upstream")]),
            cut_by_gateway: count("stream_aborts_total", &[("side", "gateway")]),
            panics: count("panics_total", &[]),
        };
        for direction in ["open", "close"] {
            // At nought until then, so that the first is an increase to whoever watches.
            for result in ["ok", "unchanged", "error"] {
                let _ = count("config_reloads_total", &[("result", result)]);
            }
            let _ = count("cluster_flips_total", &[("direction", direction)]);
        }
        Self {
            handle: recorder.handle(),
            kept: Mutex::default(),
            streams,
            rejects: Reasons::new("admission_rejects_total", &words::REJECTS, count),
            retries: Reasons::new("retries_total", &words::RETRIES, count),
            retry_budget_exhausted: count("retry_budget_exhausted_total", &[]),
            overhead: time("overhead_seconds"),
            flip_latency: time("flip_latency_seconds"),
            recorder,
        }
    }

    /// A counter by its name without the prefix.
    pub fn counter(&self, name: &str, labels: &[(&'static str, &str)]) -> Counter {
        self.recorder.register_counter(&key(name, labels), &METADATA)
    }

    /// Sets a gauge that stays on the page until it is set again, by its name without the prefix.
    pub fn keep(&self, name: &'static str, value: f64) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).insert(name, value);
    }

    /// A gauge by its name without the prefix. One that is not set again leaves the page after a minute;
    /// see [`Self::keep`].
    pub fn gauge(&self, name: &str, labels: &[(&'static str, &str)]) -> Gauge {
        self.recorder.register_gauge(&key(name, labels), &METADATA)
    }

    /// A histogram by its name without the prefix.
    pub fn histogram(&self, name: &str, labels: &[(&'static str, &str)]) -> Histogram {
        self.recorder.register_histogram(&key(name, labels), &METADATA)
    }

    /// A histogram of OpenTelemetry's by its full name.
    fn gen_ai(&self, name: &'static str, labels: &[(&'static str, &str)]) -> Histogram {
        self.recorder.register_histogram(&labelled(name.to_owned(), labels), &METADATA)
    }

    /// The handles of one pool.
    pub fn pool(&self, model: &str) -> PoolMeters {
        let labels = [("model", model)];
        PoolMeters {
            model: model.to_owned(),
            by_code: (CODE_MIN..=CODE_MAX).map(|_| OnceLock::new()).collect(),
            first_token: self.gen_ai(FIRST_TOKEN, &labels),
            duration: self.gen_ai(REQUEST_DURATION, &labels),
            per_output_token: self.gen_ai(PER_OUTPUT_TOKEN, &labels),
            input_tokens: self.gen_ai(TOKEN_USAGE, &[("model", model), ("type", "input")]),
            output_tokens: self.gen_ai(TOKEN_USAGE, &[("model", model), ("type", "output")]),
            unreadable_events: self.counter("stream_events_unreadable_total", &labels),
            fallbacks: self.counter("fallbacks_total", &labels),
            passed_through: self.counter("passed_through_total", &labels),
            all_open: self.gauge("pool_all_open", &labels),
            all_open_seconds: self.counter("pool_all_open_seconds_total", &labels),
        }
    }

    /// Counts an answer of `pool` with this status.
    pub fn answered(&self, pool: &PoolMeters, status: u16) {
        let resolve = || {
            let code = status.to_string();
            self.counter("requests_total", &[("model", &pool.model), ("code", &code)])
        };
        let known =
            status.checked_sub(CODE_MIN).and_then(|place| pool.by_code.get(usize::from(place)));
        match known {
            Some(counter) => counter.get_or_init(resolve).increment(1),
            // No status of HTTP that is ever passed on.
            None => resolve().increment(1),
        }
    }

    /// Folds what histograms were told into their buckets. Until then each sample takes memory, so that
    /// it must be done often, whether anybody asks for the figures or not.
    pub fn fold(&self) {
        self.handle.run_upkeep();
    }

    /// Everything counted, as Prometheus text.
    pub fn render(&self) -> String {
        for (name, value) in &*self.kept.lock().unwrap_or_else(PoisonError::into_inner) {
            self.gauge(name, &[]).set(*value);
        }
        self.fold();
        self.handle.render()
    }
}

impl PoolMeters {
    /// Counts the tokens that an answer reports. `streamed_for` is the time from the first token of a
    /// stream that is complete to its last.
    pub fn count_tokens(
        &self,
        input: Option<u64>,
        output: Option<u64>,
        streamed_for: Option<Duration>,
    ) {
        if let Some(tokens) = input {
            self.input_tokens.record(tokens as f64);
        }
        if let Some(tokens) = output {
            self.output_tokens.record(tokens as f64);
        }
        // Between the first token and the last lie one pause less than there are tokens.
        let pauses = output.map_or(0, |tokens| tokens.saturating_sub(1));
        if let Some(period) = streamed_for.filter(|_| pauses > 0) {
            self.per_output_token.record(period.as_secs_f64() / pauses as f64);
        }
    }
}

impl StreamMeters {
    /// Counts how an answer ended that was passed on; only a stream can be said to be aborted.
    pub(crate) fn ended(&self, end: End, is_stream: bool) {
        match end {
            End::Complete => {}
            End::Interrupted if is_stream => self.cut_by_upstream.increment(1),
            End::ClientLeft if is_stream => self.left_by_client.increment(1),
            End::Drained if is_stream => self.cut_by_gateway.increment(1),
            End::Interrupted | End::ClientLeft | End::Drained => {}
            End::Panicked => self.panics.increment(1),
        }
    }
}

fn builder() -> Result<PrometheusBuilder, BuildError> {
    let seconds = Matcher::Suffix("seconds".to_owned());
    let overhead = Matcher::Full("quorumgate_overhead_seconds".to_owned());
    let builder = PrometheusBuilder::new()
        .idle_timeout(MetricKindMask::GAUGE, Some(GAUGES_LAST))
        .set_buckets_for_metric(seconds, &SECONDS)?
        .set_buckets_for_metric(overhead, &OVERHEAD_SECONDS)?;
    GEN_AI.into_iter().try_fold(builder, |builder, (name, buckets)| {
        builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), buckets)
    })
}

fn key(name: &str, labels: &[(&'static str, &str)]) -> Key {
    labelled(format!("quorumgate_{name}"), labels)
}

fn labelled(name: String, labels: &[(&'static str, &str)]) -> Key {
    let labels: Vec<Label> =
        labels.iter().map(|(name, value)| Label::new(*name, (*value).to_owned())).collect();
    Key::from_parts(name, labels)
}
