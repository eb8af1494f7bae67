//! One line a request: who asked for what, where it went, how it ended; never a prompt or a key.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{HeaderMap, HeaderValue};
use tokio::time::Instant;

use super::attempt::Failure;
use super::relay::End;
use super::route::{Dialect, Route};
use super::usage::Usage;
use crate::clock;
use crate::fleet::Endpoint;
use crate::keys::Caller;
use crate::trace::{Told, Trace};

/// Longest value of a caller's header in the log.
const TEXT_BYTES_MAX: usize = 128;

/// The status that stands for a client that left.
pub(super) const CLIENT_LEFT: u16 = 499;
/// The word for an answer that ended because this gateway's time was over.
const DRAINED: &str = "drained";

/// The access log's line of one request, written when it ends: if nobody says how, the client left, or
/// whoever gave it up says so ([`give_up`]).
pub(super) struct Line {
    request_id: HeaderValue,
    agent_id: Option<HeaderValue>,
    /// Who asks, if callers show keys.
    pub(super) caller: Option<Arc<Caller>>,
    started: Instant,
    /// When all of the request was there.
    received: Instant,
    /// How long endpoints were waited for since, and it was paused on purpose.
    pub(super) waited: Duration,
    /// The pool's name; empty until the model is known.
    pub(super) model: String,
    /// The endpoint that answered or was tried last.
    endpoint: String,
    attempt_started: Instant,
    attempt_status: u16,
    /// The status that the upstream gave; 0: none.
    pub(super) upstream_status: u16,
    /// How many endpoints were tried.
    pub(super) attempts: u32,
    /// Whether the endpoint was asked for the second time in a row, or about a request that is known to
    /// be deadly; then its fault counts for nothing.
    is_repeat: bool,
    /// The pool that has answered instead of `model`.
    pub(super) fallback: Option<String>,
    /// Why the request was refused; empty: it was not.
    pub(super) blocked_reason: &'static str,
    /// Time to the first content.
    pub(super) first_token: Option<Duration>,
    /// Tokens as the upstream reports them.
    pub(super) usage: Usage,
    /// How an error is told to whoever asked.
    pub(super) dialect: Dialect,
    /// What is asked for, if it is known.
    route: Option<Route>,
    /// What is told to a collector, if this request is recorded.
    pub(super) trace: Option<Box<Trace>>,
    is_written: bool,
}

impl Line {
    /// The line of a request that has just come.
    pub(super) fn new(request_id: &HeaderValue, headers: &HeaderMap, route: Option<Route>) -> Self {
        let started = clock::instant();
        Self {
            request_id: request_id.clone(),
            agent_id: headers.get("x-agent-id").cloned(),
            caller: None,
            started,
            received: started,
            waited: Duration::ZERO,
            model: String::new(),
            endpoint: String::new(),
            attempt_started: started,
            attempt_status: 0,
            upstream_status: 0,
            attempts: 0,
            is_repeat: false,
            fallback: None,
            blocked_reason: "",
            first_token: None,
            usage: Usage::default(),
            // Who is refused at the door hears it in the dialect of the path, too.
            dialect: route.map_or(Dialect::Opaque, Route::dialect),
            route,
            trace: None,
            is_written: false,
        }
    }

    /// Notes that all of the request is there.
    pub(super) fn receive(&mut self) {
        self.received = clock::instant();
    }

    /// The time since then that was the gateway's own.
    pub(super) fn overhead(&self) -> Duration {
        self.received.elapsed().saturating_sub(self.waited)
    }

    /// Notes that an endpoint is tried. One that was tried before and failed gets a line of its own,
    /// with the target `attempt`: without it nobody could tell which endpoint failed.
    pub(super) fn begin_attempt(&mut self, endpoint: &Endpoint, is_deadly: bool) {
        let key = endpoint.key.as_str();
        if self.attempts > 0 {
            tracing::info!(
                target: "attempt",
                request_id = shown(Some(&self.request_id)),
                model = %self.model,
                endpoint = %self.endpoint,
                upstream_status = self.upstream_status,
                proxy_status = self.attempt_status,
                latency_ms = millis(self.attempt_started.elapsed()),
                attempts = 1,
                repeat = self.is_repeat,
                end = "complete",
            );
        }
        self.is_repeat = is_deadly || (self.attempts > 0 && self.endpoint == key);
        self.attempts += 1;
        key.clone_into(&mut self.endpoint);
        if let Some(trace) = &mut self.trace {
            trace.begin_attempt(key, &endpoint.config);
        }
        self.attempt_started = clock::instant();
        self.upstream_status = 0;
    }

    /// Notes how the endpoint that is tried has failed: with the status it gave, or 0, and the one
    /// that the client would get for it; and of what, by a word of a closed list.
    pub(super) fn fail_attempt(&mut self, failure: &Failure, reason: &'static str) {
        if let Some(trace) = &mut self.trace {
            trace.fail_attempt(failure.upstream_status, reason);
        }
        self.upstream_status = failure.upstream_status;
        self.attempt_status = failure.error.status.as_u16();
    }

    /// Writes the line for an answer with this status.
    pub(super) fn close(mut self, status: u16) {
        self.write(status, "complete");
    }

    /// Writes the line for an answer that began with this status and ended so.
    pub(super) fn end(mut self, status: u16, end: End) {
        match end {
            End::Complete => self.write(status, "complete"),
            End::Interrupted | End::Panicked => self.write(status, "interrupted"),
            End::Drained => self.write(status, DRAINED),
            End::ClientLeft => self.write(CLIENT_LEFT, "client_left"),
        }
    }

    fn write(&mut self, status: u16, end: &'static str) {
        self.is_written = true;
        self.tell(status, end);
        tracing::info!(
            target: "access",
            request_id = shown(Some(&self.request_id)),
            agent_id = shown(self.agent_id.as_ref()),
            caller = self.caller.as_ref().map(|caller| caller.name.as_str()),
            model = %self.model,
            endpoint = %self.endpoint,
            upstream_status = self.upstream_status,
            proxy_status = status,
            latency_ms = millis(self.started.elapsed()),
            first_token_ms = self.first_token.map(millis),
            attempts = self.attempts,
            repeat = self.is_repeat,
            fallback = self.fallback,
            input_tokens = self.usage.input,
            output_tokens = self.usage.output,
            blocked_reason = self.blocked_reason,
            end,
        );
    }
}

impl Line {
    /// Tells the collector, if this request is recorded.
    fn tell(&mut self, status: u16, end: &'static str) {
        let Some(trace) = self.trace.take() else { return };
        trace.finish(&Told {
            route: self.route,
            model: &self.model,
            agent: shown(self.agent_id.as_ref()),
            caller: self.caller.as_ref().map(|caller| caller.name.as_str()),
            request_id: shown(Some(&self.request_id)),
            fallback: self.fallback.as_deref(),
            endpoint: &self.endpoint,
            attempts: self.attempts,
            status,
            upstream_status: self.upstream_status,
            blocked: self.blocked_reason,
            end,
            first_token: self.first_token,
            input_tokens: self.usage.input,
            output_tokens: self.usage.output,
        });
    }
}

fn millis(period: Duration) -> u64 {
    u64::try_from(period.as_millis()).unwrap_or(u64::MAX)
}

/// A header's value as far as it is plain text, cut to a sane length; nothing else is logged.
fn shown(value: Option<&HeaderValue>) -> &str {
    let text = value.and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.get(..TEXT_BYTES_MAX).unwrap_or(text)
}

thread_local! {
    /// The status that the request was answered with whose course is being given up; [`CLIENT_LEFT`]: the
    /// client gives it up.
    static DROPPED_STATUS: Cell<u16> = const { Cell::new(CLIENT_LEFT) };
}

/// Gives up the course of a request, since this gateway's time is over: its line says so, and that it
/// was answered with `status`.
pub(super) fn give_up<T>(course: T, status: u16) {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            DROPPED_STATUS.set(CLIENT_LEFT);
        }
    }
    let _reset = Reset;
    DROPPED_STATUS.set(status);
    drop(course);
}

/// The status of a request whose course is dropped before its end.
pub(super) fn dropped_status() -> u16 {
    DROPPED_STATUS.get()
}

impl Drop for Line {
    fn drop(&mut self) {
        if !self.is_written {
            let status = dropped_status();
            self.write(status, if status == CLIENT_LEFT { "client_left" } else { DRAINED });
        }
    }
}
