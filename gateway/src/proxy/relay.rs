//! Passes a stream on, event by event and byte for byte, and knows how it ended.
//!
//! Only whole events are passed on: the tail of an event waits for its end (bounded), so that a
//! stream that breaks can still be ended by one well-formed error event. The body is polled by the
//! client's own connection, with no task and no queue between: back-pressure reaches the upstream,
//! and a client that leaves drops the body, which closes the upstream connection. What has come
//! together is given together, in one write; a stream that never pauses is made to, so that others on
//! the same thread have their turn.
//!
//! Invariants: after the error event nothing follows and the end is unclean; the end of a stream is
//! only ever the upstream's own; the guard is settled exactly once, by how the stream ended; what is
//! held for a client that does not read is bounded by [`TAIL_BYTES_MAX`], [`ready::TOGETHER_BYTES_MAX`]
//! and one read.

mod cut;
mod pace;
mod proof;
mod ready;
mod seen;
#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use breaker::{Cause, Outcome, SlowKind};
use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, SizeHint};
use metrics::Counter;
use tokio::time::Sleep;

pub(super) use self::cut::Interrupted;
use self::pace::Pace;
pub(super) use self::pace::Patience;
pub(super) use self::proof::Proof;
use self::ready::Ready;
use self::seen::{Over, Seen};
use super::attempt;
use super::route::Dialect;
use super::sse::{Marks, Reader};
use super::usage::Usage;
use crate::clock;
use crate::error::ApiError;
use crate::fleet::Admission;
use crate::metrics::UpstreamError;
use crate::upstream::Arrival;

/// A tail without an event's end is passed on at this size rather than held.
const TAIL_BYTES_MAX: usize = 64 * 1024;
/// A plain answer is passed on up to this size: more than the largest batches of embeddings have, and
/// less than an endpoint that does not end could make us carry.
pub(super) const PLAIN_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// The usage of a plain answer that is passed on unseen is looked for in its last bytes: where all known
/// servers write it.
const LAST_BYTES_MAX: usize = 1024;
/// After this many reads in one go the other streams of the thread have their turn.
const READS_MAX: u32 = 32;
/// An upstream that has ended its stream gets this long to end its body, so that the connection can be
/// used again.
const LINGER: Duration = Duration::from_secs(1);
/// What a client is given that would otherwise hear nothing for long: a comment.
pub(super) const HEARTBEAT: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// How a relay ended, for the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Complete.
    Complete,
    /// The upstream broke it off or fell silent.
    Interrupted,
    /// The client left.
    ClientLeft,
    /// This gateway's time was over.
    Drained,
    /// A fault of our own broke it off.
    Panicked,
}

/// Hears how a relay ended, and what it took.
pub(super) type OnEnd = Box<dyn FnOnce(End, Usage) + Send + Sync>;

/// A body that a relay reads.
pub trait Source: Body<Data = Bytes> + Unpin {
    /// Lets go of it: its content is complete, its end is waited for at most `period`.
    fn linger(self, period: Duration);

    /// Lets go of it together with its connection, which nobody is to use again.
    fn abandon(self);
}

impl Source for Arrival {
    fn linger(self, period: Duration) {
        Self::linger(self, period);
    }

    fn abandon(self) {
        Self::abandon(self);
    }
}

/// A response body that relays an upstream's, `B`.
pub struct Relay<B = Arrival> {
    upstream: Option<B>,
    ready: Ready,
    /// Bytes behind the last complete event.
    tail: BytesMut,
    /// Whether the client has the beginning of an event whose end has not come.
    is_torn: bool,
    /// `None`: plain bytes, whose end is told by their framing.
    events: Option<Events>,
    /// The choices that were seen, and those that have told why they ended.
    marks: Marks,
    /// Of a plain answer: how much was passed on, and its last bytes, in which the usage stands.
    passed_bytes: u64,
    last: Vec<u8>,
    proof: Proof,
    state: State,
    pace: Pace,
    /// Reads since the upstream had nothing or others had their turn.
    reads: u32,
    timer: Pin<Box<Sleep>>,
    admission: Option<Admission>,
    usage: Usage,
    on_end: Option<OnEnd>,
}

/// How events are read.
pub(super) struct Events {
    reader: Reader,
    dialect: Dialect,
    unreadable: Counter,
}

impl Events {
    /// Reads events of this dialect; what cannot be read is counted.
    pub(super) fn new(dialect: Dialect, unreadable: Counter) -> Self {
        Self { reader: Reader::default(), dialect, unreadable }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Flowing,
    /// Everything was said; what is ready drains.
    Ending,
    /// The last event is ready; after it the connection is broken off.
    Breaking,
}

impl<B> Relay<B>
where
    B: Source,
{
    /// Relays an answer of which `held` was already received: a stream of `events`, or plain bytes.
    pub(super) fn new(
        held: Vec<Bytes>,
        upstream: B,
        events: Option<Events>,
        admission: Admission,
        patience: Patience,
        on_end: OnEnd,
    ) -> Self {
        let pace = Pace::new(patience, clock::instant());
        let mut relay = Self {
            upstream: Some(upstream),
            ready: Ready::default(),
            tail: BytesMut::new(),
            is_torn: false,
            events,
            marks: Marks::default(),
            passed_bytes: 0,
            last: Vec::new(),
            proof: Proof::Nothing,
            state: State::Flowing,
            timer: Box::pin(tokio::time::sleep_until(pace.next())),
            pace,
            reads: 0,
            admission: Some(admission),
            usage: Usage::default(),
            on_end: Some(on_end),
        };
        for bytes in held {
            if relay.state == State::Flowing {
                relay.take(bytes);
            }
        }
        relay
    }

    /// The same for an answer that has to show its end.
    pub(super) fn proven_by(mut self, proof: Proof) -> Self {
        self.proof = proof;
        self
    }

    /// Takes in bytes from the upstream: whole events become ready, the tail waits.
    fn take(&mut self, bytes: Bytes) {
        let Some(events) = &mut self.events else { return self.take_plain(bytes) };
        let (mut seen, usage) = (Seen::default(), &mut self.usage);
        events.reader.read(&bytes, |event, place| {
            // What stands behind the end of the stream, or behind an error, is dropped.
            if seen.over.is_none() {
                let (meaning, told, marks) = event.read(events.dialect);
                seen.end = place;
                seen.note(meaning);
                seen.marks.update(marks);
                usage.update(told);
            }
        });
        events.unreadable.increment(u64::from(seen.unreadable));
        let end = seen.end;
        if self.tail.is_empty() {
            self.ready.push(bytes.slice(..end));
        } else if end > 0 {
            self.tail.extend_from_slice(bytes.get(..end).unwrap_or_default());
            self.ready.push(self.tail.split().freeze());
        }
        self.is_torn &= end == 0;
        if seen.over.is_some() {
            // Who speaks on behind the end is not to be trusted with another request.
            if end < bytes.len()
                && let Some(upstream) = self.upstream.take()
            {
                upstream.abandon();
            }
            // The other half of the last line end may still be on its way; nobody waits for it.
            if self.ready.ends_with(b"\r\n\r") {
                self.ready.push(Bytes::from_static(b"\n"));
            }
        } else {
            self.tail.extend_from_slice(bytes.get(end..).unwrap_or_default());
            if self.tail.len() > TAIL_BYTES_MAX {
                self.ready.push(self.tail.split().freeze());
                self.is_torn = true;
            }
        }
        self.note(&seen);
    }

    fn take_plain(&mut self, bytes: Bytes) {
        self.pace.progress(clock::instant(), 0);
        self.passed_bytes += bytes.len() as u64;
        if self.passed_bytes > PLAIN_BYTES_MAX {
            self.interrupt(Cause::Malformed);
            return;
        }
        let kept = LAST_BYTES_MAX.saturating_sub(bytes.len()).min(self.last.len());
        self.last.drain(..self.last.len() - kept);
        let newest = bytes.len().saturating_sub(LAST_BYTES_MAX);
        self.last.extend_from_slice(bytes.get(newest..).unwrap_or_default());
        self.ready.push(bytes);
    }

    fn note(&mut self, seen: &Seen) {
        self.marks.update(seen.marks);
        let has_progress = seen.has_finish || seen.tokens > 0;
        if has_progress && self.pace.progress(clock::instant(), seen.tokens) {
            self.is_slow(SlowKind::TokensPerSecond);
        }
        match seen.over {
            None => {}
            Some(Over::Done) => self.finish(),
            // An error event of the upstream's own is passed on; nothing good follows it.
            Some(Over::Error(status)) => {
                self.tell_usage(End::Interrupted);
                if let Some(admission) = self.admission.take() {
                    let _ = attempt::embedded(admission, status);
                }
                self.report(End::Interrupted);
                self.state = State::Breaking;
                self.upstream = None;
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
        // Of a dialect that is not known the clean end of the body is the end; a chat whose
        // choices have all told why they ended has said everything.
        let is_complete = match self.events.as_ref().map(|events| events.dialect) {
            None | Some(Dialect::Opaque) => {
                self.proof.is_shown(&self.last, &self.tail, self.is_torn)
            }
            Some(Dialect::Chat | Dialect::Completions) => self.marks.are_finished(),
            Some(Dialect::Responses | Dialect::Messages) => false,
        };
        if is_clean && is_complete {
            self.ready.push(self.tail.split().freeze());
            self.usage.update(Usage::at_the_end(&self.last));
            self.upstream = None;
            self.finish();
        } else {
            self.interrupt(Cause::Cut);
        }
    }

    /// The stream fell silent, or the time for the whole request is over. A request that was already
    /// evidence of slowness is no fault besides, and one that came on until it was cut is none at all.
    fn give_up(&mut self) {
        let is_silent = self.pace.is_silent(clock::instant());
        let is_slow = self.admission.as_ref().is_some_and(Admission::is_slow);
        let outcome = if is_slow { Outcome::Slow(SlowKind::Total) } else { Outcome::Neutral };
        if is_slow || !is_silent {
            // What is no fault is an error all the same.
            self.admission
                .iter()
                .for_each(|one| one.endpoint().meters.error(UpstreamError::Timeout));
            self.settle(outcome);
        }
        self.interrupt(Cause::Timeout);
    }

    /// Ends the stream with an error event and an unclean end.
    fn interrupt(&mut self, cause: Cause) {
        self.settle(Outcome::Fault { weight: 1.0, cause });
        self.break_off();
    }

    /// What is ready is still given, then the error event, then the connection breaks off.
    fn break_off(&mut self) {
        self.upstream = None;
        self.tail.clear();
        if let Some(events) = &self.events {
            if self.is_torn {
                self.ready.push(Bytes::from_static(b"\n\n"));
            }
            self.ready.push(ApiError::stream_interrupted().event(events.dialect));
        }
        self.state = State::Breaking;
    }

    fn settle(&mut self, outcome: Outcome) {
        let end = match outcome {
            Outcome::Success => End::Complete,
            Outcome::Fault { .. } | Outcome::Slow(_) | Outcome::Neutral => End::Interrupted,
        };
        self.tell_usage(end);
        if let Some(admission) = self.admission.take() {
            admission.settle(clock::now(), outcome);
        }
        self.report(end);
    }

    /// A deadline has passed: slow evidence, silence, a comment that is due, or the end of patience.
    fn timer_fired(&mut self) {
        let now = clock::instant();
        if self.pace.is_over(now) || self.pace.is_silent(now) {
            self.give_up();
            return;
        }
        if self.pace.slow(now).is_some_and(|slow_at| !clock::is_late(slow_at)) {
            self.is_slow(SlowKind::Total);
        }
        // Within an event that the client has the beginning of there is no place for a comment.
        if self.pace.is_quiet(now) && self.events.is_some() && !self.is_torn {
            self.ready.push(HEARTBEAT);
        }
        let next = self.pace.next();
        self.timer.as_mut().reset(next);
    }

    /// Reads once. `Pending`: the upstream has nothing.
    fn poll_upstream(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(upstream) = &mut self.upstream else {
            self.interrupt(Cause::Other);
            return Poll::Ready(());
        };
        match ready!(Pin::new(upstream).poll_frame(context)) {
            Some(Ok(frame)) => {
                if let Ok(bytes) = frame.into_data() {
                    self.take(bytes);
                }
            }
            Some(Err(_)) => self.upstream_ended(false),
            None => self.upstream_ended(true),
        }
        Poll::Ready(())
    }

    fn poll_ready(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Interrupted>>> {
        let now = clock::instant();
        self.pace.ask(now);
        let mut is_dry = false;
        loop {
            while self.state == State::Flowing
                && !is_dry
                && !self.ready.is_enough()
                && self.reads < READS_MAX
            {
                is_dry = self.poll_upstream(context).is_pending();
                self.reads = if is_dry { 0 } else { self.reads + 1 };
            }
            // As long as there is always something for a client that is the slower side, the timer is
            // never asked; the time for the whole answer is over all the same.
            if self.state == State::Flowing && !self.ready.is_empty() && self.pace.is_over(now) {
                self.give_up();
            }
            if let Some(bytes) = self.ready.take() {
                self.pace.give(clock::instant());
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            match self.state {
                State::Ending => return Poll::Ready(None),
                // The connection sees to it that what was given is written before (`server/parting`).
                State::Breaking => return Poll::Ready(Some(Err(Interrupted))),
                State::Flowing if is_dry => {
                    ready!(self.timer.as_mut().poll(context));
                    self.timer_fired();
                }
                State::Flowing => {
                    self.reads = 0;
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
        }
    }
}

impl<B> Relay<B> {
    /// Corrects the estimate of what the request takes, as far as it was reported. Of an answer that is
    /// not complete the report is not either.
    fn tell_usage(&mut self, end: End) {
        let (Some(admission), Some(tokens)) = (&mut self.admission, self.usage.total()) else {
            return;
        };
        if end == End::Complete {
            admission.used(tokens);
        } else {
            admission.used_at_least(tokens);
        }
    }

    fn report(&mut self, end: End) {
        if let Some(on_end) = self.on_end.take() {
            on_end(end, self.usage);
        }
    }
}

impl<B> Body for Relay<B>
where
    B: Source,
{
    type Data = Bytes;
    type Error = Interrupted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Interrupted>>> {
        // A fault of our own ends this stream as a lost upstream would, and speaks against nobody. What
        // is ready is whole events at any moment; the rest of the state is not looked at again.
        let polled = catch_unwind(AssertUnwindSafe(|| self.poll_ready(context)));
        polled.unwrap_or_else(|_| {
            self.tell_usage(End::Panicked);
            drop(self.admission.take());
            self.report(End::Panicked);
            self.break_off();
            context.waker().wake_by_ref();
            Poll::Pending
        })
    }

    fn is_end_stream(&self) -> bool {
        self.state == State::Ending && self.ready.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

impl<B> Drop for Relay<B> {
    fn drop(&mut self) {
        // Not settled: the client left. Dropping the guard is neutral.
        self.tell_usage(End::ClientLeft);
        self.report(End::ClientLeft);
    }
}
