//! Traces: which requests are told to a collector, and what of them.
//!
//! A request that comes with a `traceparent` belongs to that trace, and is recorded if its sender
//! records it; one that comes without is recorded by chance. What is recorded is one span for the
//! request and one for each attempt, with names and figures as OpenTelemetry's conventions for GenAI
//! have them; the endpoint of an attempt gets that attempt's span as its parent.
//!
//! Invariants: no prompt, no key and no header but the agent's name is in a span; a request that is not
//! recorded costs one look at a header; whoever serves never waits: what the queue does not take is
//! lost and counted.

mod context;
mod export;
mod span;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use hyper::header::{HeaderMap, HeaderName};
use metrics::Counter;
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::context::Context;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::context::promise as context_promise;
pub use self::export::Exporter;
use self::span::{Kind, Span};
use crate::clock;
use crate::config::{self, Otlp};
use crate::metrics::Meters;
use crate::proxy::route::Route;
use crate::upstream::TlsError;

/// Requests whose spans wait for the exporter: a second of a busy node's sample.
const QUEUE_MAX: usize = 2_048;
/// Most attempts of one request that are told; more there are not, by the configuration's bound.
const ATTEMPTS_MAX: usize = 16;

const PARENT: HeaderName = HeaderName::from_static("traceparent");
const STATE: HeaderName = HeaderName::from_static("tracestate");

/// Decides which requests are recorded.
pub struct Tracer {
    sample: f64,
    queue: mpsc::Sender<Vec<Span>>,
    lost: Counter,
}

impl Tracer {
    /// The collector's tracer, and the task that brings it spans.
    ///
    /// # Errors
    /// The collector cannot be known over TLS.
    pub fn new(config: &Otlp, node: &str, meters: &Meters) -> Result<(Self, Exporter), TlsError> {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        let lost = |reason| meters.counter("spans_lost_total", &[("reason", reason)]);
        let counters = (meters.counter("spans_exported_total", &[]), lost("export"));
        let exporter = Exporter::new(waiting, config, node, counters)?;
        Ok((Self { sample: config.sample, queue, lost: lost("queue_full") }, exporter))
    }

    /// Begins to record a request if it is to be. A `traceparent` that cannot be read is taken away with
    /// what belongs to it, so that nobody behind takes it for a trace.
    pub(crate) fn begin(
        self: &Arc<Self>,
        headers: &mut HeaderMap,
        now: Instant,
    ) -> Option<Box<Trace>> {
        let given = headers.get(PARENT);
        let has_any = given.is_some();
        let parent = given.and_then(Context::read);
        if has_any && parent.is_none() {
            headers.remove(PARENT);
            headers.remove(STATE);
        }
        let is_recorded =
            parent.map_or_else(|| fastrand::f64() < self.sample, |one| one.is_sampled);
        is_recorded.then(|| Box::new(Trace::new(Arc::clone(self), parent, now)))
    }
}

/// The record of one request that is told when it ends.
pub(crate) struct Trace {
    tracer: Arc<Tracer>,
    context: Context,
    parent: Option<[u8; 8]>,
    /// When it began, by the process and since 1970.
    began: Instant,
    began_wall: Duration,
    /// At most [`ATTEMPTS_MAX`].
    attempts: Vec<Span>,
}

/// What is told of a request when it ends.
pub(crate) struct Told<'a> {
    pub(crate) route: Option<Route>,
    pub(crate) model: &'a str,
    pub(crate) agent: &'a str,
    pub(crate) caller: Option<&'a str>,
    pub(crate) request_id: &'a str,
    pub(crate) fallback: Option<&'a str>,
    pub(crate) endpoint: &'a str,
    pub(crate) attempts: u32,
    pub(crate) status: u16,
    pub(crate) upstream_status: u16,
    /// The code of the error; empty: there was none.
    pub(crate) blocked: &'a str,
    pub(crate) end: &'static str,
    pub(crate) first_token: Option<Duration>,
    pub(crate) input_tokens: Option<u64>,
    pub(crate) output_tokens: Option<u64>,
}

impl Trace {
    fn new(tracer: Arc<Tracer>, parent: Option<Context>, began: Instant) -> Self {
        let trace = parent.map_or_else(|| fastrand::u128(1..).to_be_bytes(), |parent| parent.trace);
        let context = Context { trace, span: new_id(), is_sampled: true };
        Self {
            tracer,
            context,
            parent: parent.map(|parent| parent.span),
            began,
            began_wall: clock::wall(),
            attempts: Vec::new(),
        }
    }

    /// Begins an attempt at an endpoint.
    pub(crate) fn begin_attempt(&mut self, key: &str, endpoint: &config::Endpoint) {
        if self.attempts.len() == ATTEMPTS_MAX {
            return;
        }
        let now = self.now();
        let mut span = Span {
            trace: self.context.trace,
            id: new_id(),
            parent: Some(self.context.span),
            name: format!("attempt {key}"),
            kind: Kind::Client,
            began: now,
            ended: 0,
            attributes: Vec::new(),
            is_error: false,
        };
        span.text("gen_ai.provider.name", provider(endpoint.kind));
        if let Some(model) = &endpoint.upstream_model {
            span.text("gen_ai.request.model", model);
        }
        span.text("quorumgate.endpoint", key);
        if let Some((host, port)) = endpoint.authority.rsplit_once(':') {
            span.text("server.address", host);
            span.number("server.port", port.parse().ok());
        }
        self.attempts.push(span);
    }

    /// The attempt that runs has failed, of what a closed list says.
    pub(crate) fn fail_attempt(&mut self, status: u16, reason: &'static str) {
        let now = self.now();
        if let Some(span) = self.attempts.last_mut() {
            end(span, now, status);
            span.is_error = true;
            span.text("error.type", reason);
        }
    }

    /// The caller's headers as the endpoint that is tried gets them.
    pub(crate) fn onward(&self, headers: &HeaderMap) -> HeaderMap {
        let mut headers = headers.clone();
        let span = self.attempts.last().map_or(self.context.span, |attempt| attempt.id);
        if let Some(value) = (Context { span, ..self.context }).write() {
            headers.insert(PARENT, value);
        }
        headers
    }

    /// Tells of the request that has ended.
    pub(crate) fn finish(mut self, told: &Told<'_>) {
        let now = self.now();
        if let Some(span) = self.attempts.last_mut().filter(|span| span.ended == 0) {
            end(span, now, told.upstream_status);
            if told.end != "complete" {
                span.is_error = told.end == "interrupted";
                span.text("error.type", told.end);
            }
        }
        let operation = told.route.map_or("request", operation);
        let name = if told.model.is_empty() {
            operation.to_owned()
        } else {
            format!("{operation} {}", told.model)
        };
        let mut span = Span {
            trace: self.context.trace,
            id: self.context.span,
            parent: self.parent,
            name,
            kind: Kind::Server,
            began: nanos(self.began_wall),
            ended: now,
            attributes: Vec::new(),
            is_error: told.status >= 500 || ["interrupted", "drained"].contains(&told.end),
        };
        describe(&mut span, operation, told);
        let mut spans = std::mem::take(&mut self.attempts);
        spans.push(span);
        let count = spans.len() as u64;
        if self.tracer.queue.try_send(spans).is_err() {
            self.tracer.lost.increment(count);
        }
    }

    /// Nanoseconds since 1970, by the process's own clock from the beginning on.
    fn now(&self) -> u64 {
        nanos(self.began_wall + self.began.elapsed())
    }
}

/// Writes what the conventions have names for, and what is ours.
fn describe(span: &mut Span, operation: &str, told: &Told<'_>) {
    span.text("gen_ai.operation.name", operation);
    span.text("gen_ai.request.model", told.model);
    span.text("gen_ai.agent.id", told.agent);
    span.number("gen_ai.usage.input_tokens", told.input_tokens);
    span.number("gen_ai.usage.output_tokens", told.output_tokens);
    span.number("http.response.status_code", Some(u64::from(told.status)));
    let is_whole = told.end == "complete";
    span.text(
        "error.type",
        if told.blocked.is_empty() && !is_whole { told.end } else { told.blocked },
    );
    span.text("quorumgate.request_id", told.request_id);
    span.text("quorumgate.caller", told.caller.unwrap_or_default());
    span.text("quorumgate.fallback", told.fallback.unwrap_or_default());
    span.text("quorumgate.endpoint", told.endpoint);
    span.number("quorumgate.attempts", Some(u64::from(told.attempts)));
    let first_token =
        told.first_token.map(|period| u64::try_from(period.as_millis()).unwrap_or(u64::MAX));
    span.number("quorumgate.first_token_ms", first_token);
}

fn end(span: &mut Span, now: u64, status: u16) {
    span.ended = now;
    span.number("http.response.status_code", Some(u64::from(status)).filter(|status| *status > 0));
}

fn new_id() -> [u8; 8] {
    fastrand::u64(1..).to_be_bytes()
}

fn nanos(since_1970: Duration) -> u64 {
    u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX)
}

/// Whose interface an endpoint speaks, by the conventions' words.
fn provider(kind: config::Kind) -> &'static str {
    match kind {
        config::Kind::OpenAi | config::Kind::Vllm | config::Kind::Sglang => "openai",
        config::Kind::Anthropic => "anthropic",
        config::Kind::Azure => "azure.ai.openai",
    }
}

/// What is asked for, by the conventions' words where they have one.
fn operation(route: Route) -> &'static str {
    match route {
        Route::Chat | Route::Responses | Route::Messages => "chat",
        Route::Completions => "text_completion",
        Route::Embeddings => "embeddings",
        Route::Images => "generate_content",
        Route::Rerank => "rerank",
        Route::Audio => "audio",
        Route::Models | Route::Model => "models",
        Route::Other => "request",
    }
}
