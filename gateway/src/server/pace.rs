//! The time that a client of HTTP/1 has for what it does next.
//!
//! Invariants: a clock runs only while the client is waited for, and by no more than one timer, which
//! most requests do not touch: it is left where it is as long as it rings early enough, and looks again
//! when it does.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::guarded::{Inlet, Stand};
use super::parting::Outlet;
use crate::clock;

/// What a client of HTTP/1 has time for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Periods {
    /// Until the first byte of its first request.
    pub(super) first_byte: Duration,
    /// From the first byte of a head to its last.
    pub(super) head: Duration,
    /// From one answer to the next request.
    pub(super) keep_alive: Duration,
}

/// Keeps the time of one connection.
pub(super) struct Pace {
    periods: Periods,
    /// Since when the first head has been coming, if that was before this began.
    since: Option<Instant>,
    /// Where the connection stands, and when that has been for too long.
    stand: Stand,
    due: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Pace {
    /// Nothing is waited for yet, but the rest of the first head if that has been coming since then.
    pub(super) fn new(periods: Periods, since: Option<Instant>) -> Self {
        Self { periods, since, stand: Stand::Busy, due: clock::instant(), timer: None }
    }

    /// Ready when the connection has stood for too long where it stands. To be asked whenever anything
    /// has happened to it.
    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
        inlet: &Inlet,
        outlet: &Outlet,
    ) -> Poll<Stand> {
        let stand = inlet.stand(outlet);
        if self.stand != stand {
            self.stand = stand;
            let since = self.since.take().filter(|_| stand == Stand::Begun(0));
            self.due = since.unwrap_or_else(clock::instant) + self.period();
        }
        if stand == Stand::Busy {
            return Poll::Pending;
        }
        let due = self.due;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        if timer.deadline() > due {
            timer.as_mut().reset(due);
        }
        loop {
            ready!(timer.as_mut().poll(context));
            if timer.deadline() >= due {
                return Poll::Ready(stand);
            }
            timer.as_mut().reset(due);
        }
    }

    fn period(&self) -> Duration {
        match self.stand {
            Stand::Fresh => self.periods.first_byte,
            Stand::Begun(_) => self.periods.head,
            Stand::Idle(_) => self.periods.keep_alive,
            Stand::Busy => Duration::ZERO,
        }
    }
}
