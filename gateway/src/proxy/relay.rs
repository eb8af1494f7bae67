//! Passes a stream on, event by event and byte for byte, and knows how it ended.
//!
//! Only whole events are passed on: the tail of an event waits for its end (bounded), so that a
//! stream that breaks can still be ended by one well-formed error event. The body is polled by the
//! client's own connection, with no task and no queue between: back-pressure reaches the upstream,
//! and a client that leaves drops the body, which closes the upstream connection.
//!
//! Invariants: after the error event nothing follows and the end is unclean; `[DONE]` is only ever
//! the upstream's own; the guard is settled exactly once, by how the stream ended.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use breaker::{Cause, Outcome, SlowKind};
use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::attempt;
use super::sse::{Meaning, Reader};
use super::usage::Usage;
use crate::clock;
use crate::error;
use crate::fleet::Admission;
use crate::upstream::Arrival;

/// A tail without an event's end is passed on at this size rather than held.
const TAIL_BYTES_MAX: usize = 256 * 1024;
/// An upstream that has said `[DONE]` gets this long to end its body, so that the connection can be
/// used again.
const LINGER: Duration = Duration::from_secs(1);

/// How long the relay waits for what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Between two events with content.
    pub(super) idle: Duration,
    /// When the whole answer must be there.
    pub(super) deadline: Instant,
    /// When the attempt becomes slow, unless it has said so already.
    pub(super) slow_at: Option<Instant>,
    /// The fewest events with content a second; `None`: no such limit.
    pub(super) pace_min: Option<f64>,
}

/// A stream's pace means something only once it has run for this long.
const PACE_AFTER: Duration = Duration::from_secs(5);

/// How fast a stream comes, an event with content being a token.
#[derive(Debug)]
struct Pace {
    since: Instant,
    tokens: u32,
    /// `None` without a limit, and once it was said that the stream is behind it.
    min: Option<f64>,
}

impl Pace {
    /// Counts a token. Returns true once, when the stream has fallen behind its limit.
    fn has_fallen_behind(&mut self, now: Instant) -> bool {
        self.tokens = self.tokens.saturating_add(1);
        let run = now.saturating_duration_since(self.since);
        let is_behind = |min: &mut f64| f64::from(self.tokens) < *min * run.as_secs_f64();
        run >= PACE_AFTER && self.min.take_if(is_behind).is_some()
    }
}

/// How a relay ended, for the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Complete.
    Complete,
    /// The upstream broke it off or fell silent.
    Interrupted,
    /// The client left.
    ClientLeft,
}

/// Hears how a relay ended, and what it took.
pub(super) type OnEnd = Box<dyn FnOnce(End, Usage) + Send + Sync>;

/// A response body that relays an upstream's.
pub struct Relay {
    upstream: Option<Arrival>,
    ready: VecDeque<Bytes>,
    /// Bytes behind the last complete event.
    tail: BytesMut,
    /// Whether the client has the beginning of an event whose end has not come.
    is_torn: bool,
    /// `None`: plain bytes, whose end is told by their framing.
    reader: Option<Reader>,
    has_finish: bool,
    state: State,
    patience: Patience,
    pace: Pace,
    progress_at: Instant,
    timer: Pin<Box<Sleep>>,
    admission: Option<Admission>,
    usage: Usage,
    on_end: Option<OnEnd>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Flowing,
    /// Everything was said; the queue drains.
    Ending,
    /// The last event is queued; after it the connection is broken off.
    Breaking,
    /// The last event was handed over and had a turn to be written.
    Broken,
}

/// The error that ends a body uncleanly.
#[derive(Debug, thiserror::Error)]
#[error("the stream was interrupted")]
pub struct Interrupted;

impl Relay {
    /// Relays a stream of events of which `held` was already received.
    pub(super) fn events(
        held: Vec<Bytes>,
        upstream: Arrival,
        admission: Admission,
        patience: Patience,
        on_end: OnEnd,
    ) -> Self {
        let mut relay = Self::new(upstream, admission, patience, on_end);
        relay.reader = Some(Reader::default());
        for bytes in held {
            relay.take(bytes);
        }
        relay
    }

    /// Relays plain bytes.
    pub(super) fn bytes(
        held: Vec<Bytes>,
        upstream: Arrival,
        admission: Admission,
        patience: Patience,
        on_end: OnEnd,
    ) -> Self {
        let mut relay = Self::new(upstream, admission, patience, on_end);
        relay.ready.extend(held);
        relay
    }

    fn new(upstream: Arrival, admission: Admission, patience: Patience, on_end: OnEnd) -> Self {
        let now = clock::instant();
        let mut relay = Self {
            upstream: Some(upstream),
            ready: VecDeque::new(),
            tail: BytesMut::new(),
            is_torn: false,
            reader: None,
            has_finish: false,
            state: State::Flowing,
            patience,
            pace: Pace { since: now, tokens: 0, min: patience.pace_min },
            progress_at: now,
            timer: Box::pin(tokio::time::sleep_until(now)),
            admission: Some(admission),
            usage: Usage::default(),
            on_end: Some(on_end),
        };
        let next = relay.next_deadline();
        relay.timer.as_mut().reset(next);
        relay
    }

    fn next_deadline(&self) -> Instant {
        let idle = self.progress_at + self.patience.idle;
        let end = idle.min(self.patience.deadline);
        self.patience.slow_at.map_or(end, |slow| slow.min(end))
    }

    /// Takes in bytes from the upstream: whole events go to the queue, the tail waits.
    fn take(&mut self, bytes: Bytes) {
        let Some(reader) = &mut self.reader else {
            self.progress_at = clock::instant();
            self.ready.push_back(bytes);
            return;
        };
        let (mut end, mut is_over, mut meanings) = (0, false, Vec::new());
        reader.read(&bytes, |meaning, place| {
            // What stands behind the end of the stream, or behind an error, is dropped.
            if !is_over {
                is_over = matches!(meaning, Meaning::Done | Meaning::Error(_));
                end = place.min(bytes.len());
                meanings.push(meaning);
            }
        });
        if self.tail.is_empty() && end > 0 {
            self.ready.push_back(bytes.slice(..end));
        } else if end > 0 {
            self.tail.extend_from_slice(bytes.get(..end).unwrap_or_default());
            self.ready.push_back(self.tail.split().freeze());
        }
        self.is_torn &= end == 0;
        if is_over {
            // The other half of the last line end may still be on its way; nobody waits for it.
            let is_halved = self.ready.back().is_some_and(|last| last.ends_with(b"\r\n\r"));
            self.ready.extend(is_halved.then_some(Bytes::from_static(b"\n")));
        } else {
            self.tail.extend_from_slice(bytes.get(end..).unwrap_or_default());
            if self.tail.len() > TAIL_BYTES_MAX {
                self.ready.push_back(self.tail.split().freeze());
                self.is_torn = true;
            }
        }
        self.note(&meanings);
    }

    fn note(&mut self, meanings: &[Meaning]) {
        for meaning in meanings {
            match meaning {
                Meaning::Preamble => {}
                Meaning::Content => {
                    self.progress_at = clock::instant();
                    if self.pace.has_fallen_behind(self.progress_at) {
                        self.is_slow(SlowKind::TokensPerSecond);
                    }
                }
                Meaning::Finish => {
                    self.has_finish = true;
                    self.progress_at = clock::instant();
                }
                Meaning::Done => {
                    self.finish();
                    return;
                }
                // An error event of the upstream's own is passed on; nothing good follows it.
                Meaning::Error(status) => {
                    if let Some(admission) = self.admission.take() {
                        let _ = attempt::embedded(admission, *status);
                    }
                    self.report(End::Interrupted);
                    self.state = State::Breaking;
                    self.upstream = None;
                    return;
                }
            }
        }
    }

    fn is_slow(&mut self, kind: SlowKind) {
        if let Some(admission) = &mut self.admission {
            admission.slow(clock::now(), kind);
        }
    }

    /// Everything was said. The upstream connection is left to end by itself for a moment.
    fn finish(&mut self) {
        self.settle(Outcome::Success);
        self.state = State::Ending;
        if let Some(upstream) = self.upstream.take() {
            upstream.linger(LINGER);
        }
    }

    /// The upstream's body has ended.
    fn upstream_ended(&mut self, is_clean: bool) {
        let is_complete = is_clean && (self.reader.is_none() || self.has_finish);
        if is_complete {
            self.ready.extend((!self.tail.is_empty()).then(|| self.tail.split().freeze()));
            self.upstream = None;
            self.finish();
        } else {
            self.interrupt(Cause::Cut);
        }
    }

    /// The stream fell silent, or the time for the whole request is over. A request that was already
    /// evidence of slowness is no fault besides, and one that came on until it was cut is none at all.
    fn give_up(&mut self) {
        let is_silent = clock::instant() >= self.progress_at + self.patience.idle;
        if self.admission.as_ref().is_some_and(Admission::is_slow) {
            self.settle(Outcome::Slow(SlowKind::Total));
        } else if !is_silent {
            self.settle(Outcome::Neutral);
        }
        self.interrupt(Cause::Timeout);
    }

    /// Ends the stream with an error event and an unclean end.
    fn interrupt(&mut self, cause: Cause) {
        self.settle(Outcome::Fault { weight: 1.0, cause });
        self.upstream = None;
        self.tail.clear();
        if self.reader.is_some() {
            self.ready.extend(self.is_torn.then_some(Bytes::from_static(b"\n\n")));
            self.ready.push_back(error::stream_interrupted());
        }
        self.state = State::Breaking;
    }

    fn settle(&mut self, outcome: Outcome) {
        let end = match outcome {
            Outcome::Success => End::Complete,
            Outcome::Fault { .. } | Outcome::Slow(_) | Outcome::Neutral => End::Interrupted,
        };
        if let Some(admission) = self.admission.take() {
            admission.settle(clock::now(), outcome);
        }
        self.report(end);
    }

    fn report(&mut self, end: End) {
        if let Some(on_end) = self.on_end.take() {
            on_end(end, self.usage);
        }
    }

    /// A deadline has passed: slow evidence, silence, or the end of patience.
    fn timer_fired(&mut self) {
        let now = clock::instant();
        if now >= self.patience.deadline || now >= self.progress_at + self.patience.idle {
            self.give_up();
            return;
        }
        let slow_at = self.patience.slow_at.take_if(|slow_at| now >= *slow_at);
        if slow_at.is_some_and(|slow_at| !clock::is_late(slow_at)) {
            self.is_slow(SlowKind::Total);
        }
        let next = self.next_deadline();
        self.timer.as_mut().reset(next);
    }
}

impl Body for Relay {
    type Data = Bytes;
    type Error = Interrupted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Interrupted>>> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            match self.state {
                State::Ending => return Poll::Ready(None),
                State::Broken => return Poll::Ready(Some(Err(Interrupted))),
                State::Breaking => {
                    // One turn for the connection to write what it has before it is broken off.
                    self.state = State::Broken;
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                State::Flowing => {}
            }
            let Some(upstream) = &mut self.upstream else {
                self.interrupt(Cause::Other);
                continue;
            };
            match Pin::new(upstream).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(bytes) = frame.into_data() {
                        self.take(bytes);
                    }
                }
                Poll::Ready(Some(Err(_))) => self.upstream_ended(false),
                Poll::Ready(None) => self.upstream_ended(true),
                Poll::Pending => {
                    ready!(self.timer.as_mut().poll(context));
                    self.timer_fired();
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.state == State::Ending && self.ready.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // Not settled: the client left. Dropping the guard is neutral.
        self.report(End::ClientLeft);
    }
}
