//! A connection whose bytes pass the guard before hyper reads them.
//!
//! Most heads come in one piece: it is looked at where hyper has it read to, and stays there. A head that
//! comes in pieces is held here until it is whole, so that hyper never has half of one. In the place of a
//! head that is refused, hyper reads a request of ours that no client could have written
//! ([`Guarded`]'s [`STANDS_FOR`]); it is answered with the refusal, in its turn, after everything that
//! was asked before it. A body that breaks its framing ends in an error.
//!
//! Invariants: hyper reads every byte that passes once and in order, and none that does not; at most
//! [`HEAD_BYTES_MAX`](super::guard::HEAD_BYTES_MAX) and one read are held; after a refusal nothing more
//! is read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use hyper::Uri;
use metrics::Counter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::guard::{Guard, Place, Then, Violation};
use super::parting::Outlet;
use crate::metrics::Meters;

/// What hyper reads in the place of a head that is refused: its target passes no guard.
const STANDS_FOR: &[u8] = b"GET * HTTP/1.1\r\nhost: -\r\n\r\n";

/// Where a connection of HTTP/1 stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// No byte of its first request has come.
    Fresh,
    /// So many requests have come and are answered.
    Idle(u64),
    /// Behind so many requests, which are answered, the head of another has begun.
    Begun(u64),
    /// Somebody else is waited for, or something else counts the time.
    Busy,
}

/// What was refused, by why.
#[derive(Clone)]
pub(super) struct Refusals(Arc<[(Violation, Counter)]>);

impl Refusals {
    /// Counts in `meters`.
    pub(super) fn new(meters: &Meters) -> Self {
        let count = |violation: Violation| {
            (violation, meters.counter("guard_refusals_total", &[("reason", violation.word())]))
        };
        Self(Violation::ALL.into_iter().map(count).collect())
    }

    fn count(&self, violation: Violation) {
        if let Some((_, counter)) = self.0.iter().find(|(known, _)| *known == violation) {
            counter.increment(1);
        }
    }
}

/// What is known of a connection's way in: told by what reads it, heard by who keeps its time and who
/// answers. All of them run in one task: nothing is ordered by it but itself.
#[derive(Debug, Default)]
pub(super) struct Inlet {
    /// Requests whose head has passed.
    heads: AtomicU64,
    stage: AtomicU8,
    has_underscores: AtomicBool,
    /// The head that is coming takes too long.
    is_late: AtomicBool,
    refusal: OnceLock<Violation>,
}

/// What `Inlet::stage` says: the next byte begins a head,
const BETWEEN: u8 = 0;
/// goes on with one that has begun,
const IN_HEAD: u8 = 1;
/// belongs to a body, or
const IN_BODY: u8 = 2;
/// is read no more, since the head that it belongs to was refused, or
const OVER: u8 = 3;
/// since the body that it belongs to was.
const BROKEN: u8 = 4;

impl Inlet {
    /// Where the connection stands, whose way out is `outlet`.
    pub(super) fn stand(&self, outlet: &Outlet) -> Stand {
        let heads = self.heads.load(Ordering::Relaxed);
        match self.stage.load(Ordering::Relaxed) {
            // Nobody reads on before the answer to what came before is out.
            IN_HEAD if heads == 0 || outlet.has_answered(heads) => Stand::Begun(heads),
            BETWEEN if heads == 0 => Stand::Fresh,
            BETWEEN if outlet.has_answered(heads) => Stand::Idle(heads),
            _ => Stand::Busy,
        }
    }

    /// What has come of a head is refused, since the rest did not come in time.
    pub(super) fn expire(&self) {
        self.is_late.store(true, Ordering::Relaxed);
        self.stage.store(OVER, Ordering::Relaxed);
    }

    /// Why the request with this target is refused, if it is the one that stands for what was refused.
    pub(super) fn refusal(&self, target: &Uri) -> Option<Violation> {
        if target.path() == "*" { self.refusal.get().copied() } else { None }
    }

    /// Whether a field with `_` in its name has come.
    pub(super) fn has_underscores(&self) -> bool {
        self.has_underscores.load(Ordering::Relaxed)
    }

    /// Whether the body of the last of `requests` is not all there, or never will be. To answer before it
    /// is means to end with that answer.
    pub(super) fn is_owed(&self, requests: u64) -> bool {
        matches!(self.stage.load(Ordering::Relaxed), IN_BODY | BROKEN)
            && self.heads.load(Ordering::Relaxed) == requests
    }

    fn note(&self, guard: &Guard) {
        self.heads.store(guard.heads(), Ordering::Relaxed);
        let stage = match guard.refused_in() {
            Some(Place::Head) => OVER,
            Some(Place::Body) => BROKEN,
            None if guard.is_in_body() => IN_BODY,
            None if guard.is_in_head() => IN_HEAD,
            None => BETWEEN,
        };
        self.stage.store(stage, Ordering::Relaxed);
        if guard.has_underscores() {
            self.has_underscores.store(true, Ordering::Relaxed);
        }
    }
}

/// A connection that is read through a guard.
pub(super) struct Guarded<T> {
    io: T,
    guard: Guard,
    inlet: Arc<Inlet>,
    refusals: Refusals,
    /// What came of a head that was not whole when it came, and what it stands for.
    held: Vec<u8>,
    /// So many bytes of it may be given to hyper,
    passed: usize,
    /// and so many have been.
    given: usize,
    /// What is found in the middle of a body.
    broken: Option<Violation>,
}

impl<T> Guarded<T> {
    /// Guards `io`, tells `inlet`, and counts in `refusals`.
    pub(super) fn new(io: T, inlet: Arc<Inlet>, refusals: Refusals) -> Self {
        let (guard, held, passed, given, broken) = (Guard::new(), Vec::new(), 0, 0, None);
        Self { io, guard, inlet, refusals, held, passed, given, broken }
    }

    /// Gives what has been held and may pass. `None`: there is nothing, and more is to be read.
    fn give(&mut self, buffer: &mut ReadBuf<'_>) -> Option<Poll<io::Result<()>>> {
        if self.passed > 0 {
            let rest = self.held.get(self.given..self.passed).unwrap_or_default();
            let length = rest.len().min(buffer.remaining());
            buffer.put_slice(rest.get(..length).unwrap_or_default());
            self.given += length;
            if self.given == self.passed {
                self.held.drain(..self.passed);
                (self.passed, self.given) = (0, 0);
                if self.held.is_empty() {
                    self.held = Vec::new();
                }
            }
            return Some(Poll::Ready(Ok(())));
        }
        if let Some(violation) = self.broken {
            let error = io::Error::new(io::ErrorKind::InvalidData, violation.word());
            return Some(Poll::Ready(Err(error)));
        }
        // Whoever is to be woken when the refusal is out is woken by writing it.
        self.guard.refused_in().map(|_| Poll::Pending)
    }

    /// Takes note of what a look at the held bytes, or at those of the last read, has found; `passed` of
    /// the held ones may be given.
    fn take(&mut self, passed: usize, then: Then) {
        self.passed = passed;
        if let Then::Refused(violation, place) = then {
            self.refusals.count(violation);
            tracing::debug!(why = violation.word(), "a client's bytes were refused");
            let _ = self.inlet.refusal.set(violation);
            self.held.truncate(passed);
            match place {
                Place::Head => {
                    self.held.extend_from_slice(STANDS_FOR);
                    self.passed = self.held.len();
                }
                Place::Body => self.broken = Some(violation),
            }
        }
        self.inlet.note(&self.guard);
    }

    /// Looks at what was read: the end of `buffer` from `before` on. Returns whether hyper may have some
    /// of it where it stands.
    fn look(&mut self, buffer: &mut ReadBuf<'_>, before: usize) -> bool {
        let came = buffer.filled().get(before..).unwrap_or_default();
        if self.held.is_empty() {
            let look = self.guard.look(came);
            if look.then == Then::Held {
                self.held.extend_from_slice(came.get(look.passed..).unwrap_or_default());
            }
            self.take(0, look.then);
            buffer.set_filled(before + look.passed);
            return look.passed > 0;
        }
        self.held.extend_from_slice(came);
        buffer.set_filled(before);
        let look = self.guard.look(&self.held);
        self.take(look.passed, look.then);
        false
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Guarded<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = &mut *self;
        loop {
            if me.inlet.is_late.load(Ordering::Relaxed) && me.guard.refuse(Violation::Late) {
                me.take(me.passed, Then::Refused(Violation::Late, Place::Head));
            }
            if let Some(given) = me.give(buffer) {
                return given;
            }
            let before = buffer.filled().len();
            ready!(Pin::new(&mut me.io).poll_read(context, buffer))?;
            // What is held at the end was never a request.
            if buffer.filled().len() == before || me.look(buffer, before) {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Guarded<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
