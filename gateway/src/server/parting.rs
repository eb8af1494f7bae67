//! A body that ends in an error has its say first: what it gave is written before it is broken off.
//!
//! hyper breaks off at once: with HTTP/1.1 it drops what it has not written yet, with HTTP/2 what the
//! stream has queued. A client that reads slowly, whose connection always has something to write, would
//! never get to see the event that tells why its stream ends. So the error is held back until everything
//! that was given is known to be out: the connection has been flushed since ([`Outlet`]). With HTTP/2 a
//! body is asked for more only when its window has room for all that is queued, so that a flush of the
//! connection is one of the stream.
//!
//! Invariants: the error is held for at most [`LINGER_MAX`], and no longer than a client is waited for;
//! while all goes well nothing is held, and a clock runs only for an error.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::time::Sleep;

use crate::proxy::Cut;

/// A client gets this long to take what was given to it before its stream broke.
pub(super) const LINGER_MAX: Duration = Duration::from_secs(3);

/// What is known of a connection's way out: when everything that was written to it was out, and whether
/// it ends before all was read.
#[derive(Debug, Default)]
pub(super) struct Outlet {
    /// Odd while something is written that is not out; the next even number once all of it is. The
    /// tasks of a connection share one thread: nothing is ordered by it but itself.
    state: AtomicU64,
    is_awaited: AtomicBool,
    /// Its last answer came before the end of its request, which may still be on its way.
    is_early: AtomicBool,
    /// Those who wait for the next flush; at most one a stream.
    waiting: Mutex<Vec<Waker>>,
    /// Each answer is to say that it is the last.
    is_closing: AtomicBool,
    /// Requests that have come,
    met: AtomicU64,
    /// and bodies of answers that were given to their end, or broken off.
    parted: AtomicU64,
    /// Its time is over: whatever still flows is cut.
    is_over: AtomicBool,
    /// Wakes what flows when the time is over.
    curfew: Arc<Notify>,
}

impl Outlet {
    /// Something is written, or would be.
    pub(super) fn begin(&self) {
        let state = self.state.load(Ordering::Relaxed);
        if state.is_multiple_of(2) {
            self.state.store(state.wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// Everything is out.
    pub(super) fn end(&self) {
        let state = self.state.load(Ordering::Relaxed);
        if state.is_multiple_of(2) {
            return;
        }
        self.state.store(state.wrapping_add(1), Ordering::Relaxed);
        if self.is_awaited.swap(false, Ordering::Relaxed) {
            let waiting = std::mem::take(&mut *self.waiting());
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    /// The connection ends with an answer that may have come before the end of its request.
    pub(super) fn ends_early(&self) {
        self.is_early.store(true, Ordering::Relaxed);
    }

    /// Whether it ends so.
    pub(super) fn is_early(&self) -> bool {
        self.is_early.load(Ordering::Relaxed)
    }

    /// Each answer from here on is to say that it is the last.
    pub(super) fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }

    /// Whether each answer is to say so.
    pub(super) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    /// A request has come. Returns how many have.
    pub(super) fn meet(&self) -> u64 {
        self.met.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether one has.
    pub(super) fn has_met(&self) -> bool {
        self.met.load(Ordering::Relaxed) > 0
    }

    /// Whether so many answers were given and are out.
    pub(super) fn has_answered(&self, requests: u64) -> bool {
        self.parted.load(Ordering::Relaxed) == requests && self.state().is_multiple_of(2)
    }

    /// Cuts whatever still flows, and what begins to.
    pub(super) fn expire(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.curfew.notify_waiters();
    }

    fn state(&self) -> u64 {
        self.state.load(Ordering::Relaxed)
    }

    /// Ready when everything that was given at `state` or before is out.
    fn poll_since(&self, state: u64, context: &Context<'_>) -> Poll<()> {
        let is_out = self.state() != state && self.state().is_multiple_of(2);
        if is_out {
            return Poll::Ready(());
        }
        let mut waiting = self.waiting();
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        self.is_awaited.store(true, Ordering::Relaxed);
        Poll::Pending
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A body whose error comes when what it gave before is out.
pub(super) struct Parting<B: Body> {
    body: B,
    outlet: Arc<Outlet>,
    linger: Duration,
    /// The state of the connection when the last piece was given.
    given_at: u64,
    /// The error that is held back, and for how long at most.
    error: Option<(B::Error, Pin<Box<Sleep>>)>,
    /// Wakes the stream when the connection's time is over, once it has had to wait for anything.
    curfew: Option<Pin<Box<OwnedNotified>>>,
    is_cut: bool,
}

impl<B: Body> Parting<B> {
    /// Holds back the error of `body`, which is given to this connection, no longer than `patience`.
    pub(super) fn new(body: B, outlet: Arc<Outlet>, patience: Duration) -> Self {
        let (given_at, linger) = (outlet.state(), patience.min(LINGER_MAX));
        Self { body, outlet, linger, given_at, error: None, curfew: None, is_cut: false }
    }
}

impl<B: Body> Drop for Parting<B> {
    fn drop(&mut self) {
        self.outlet.parted.fetch_add(1, Ordering::Relaxed);
    }
}

// Nothing of it is pinned: the body is moved only as long as it may be.
impl<B: Body + Unpin> Unpin for Parting<B> {}

impl<B: Body<Data = Bytes> + Cut + Unpin> Parting<B> {
    /// Asks the body, which is told when its time is over.
    fn poll_body(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if self.outlet.is_over.load(Ordering::Relaxed) && !self.is_cut {
            self.is_cut = true;
            self.body.cut();
        }
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if polled.is_pending() && !self.is_cut {
            let curfew = &self.outlet.curfew;
            let curfew =
                self.curfew.get_or_insert_with(|| Box::pin(Arc::clone(curfew).notified_owned()));
            // The tasks of a connection share one thread: its time is not over since the look above.
            let _ = curfew.as_mut().poll(context);
        }
        polled
    }
}

impl<B: Body<Data = Bytes> + Cut + Unpin> Body for Parting<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let me = &mut *self;
        if me.error.is_none() {
            match ready!(me.poll_body(context)) {
                Some(Err(error)) => {
                    me.error = Some((error, Box::pin(tokio::time::sleep(me.linger))));
                }
                given => {
                    me.given_at = me.outlet.state();
                    return Poll::Ready(given);
                }
            }
        }
        let is_out = me.outlet.poll_since(me.given_at, context).is_ready();
        if let Some((_, timer)) = &mut me.error
            && !is_out
        {
            ready!(timer.as_mut().poll(context));
        }
        Poll::Ready(me.error.take().map(|(error, _)| Err(error)))
    }

    fn is_end_stream(&self) -> bool {
        self.error.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
