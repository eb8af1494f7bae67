//! Sends many calls to one server in batches that it can carry, one batch at a time.
//!
//! A server works through a pipeline in order, and everything behind it waits, the beat that tells
//! whether the server is well included. Hundreds of calls at once would so make a server that is only
//! slow look like one that is gone, again and again. So how many go out at once follows how long the
//! last ones took, and what finds no time any more is told *busy*: it was not sent, and may come again.
//!
//! # Invariants
//! - One batch of a lane is under way at a time, and none has more than [`BATCH_MAX`] calls.
//! - After a batch that was not answered in time nothing is sent for a moment, which differs by chance.
//! - Calls with keys in one slot go out in their order; the slots take turns.

use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::link::jittered;

/// So many calls go out at once, at most, and at first.
const BATCH_MAX: usize = 32;
const BATCH_FIRST: usize = 8;
/// How long nothing is sent after an answer did not come in time, cut by up to half.
const REST: Duration = Duration::from_millis(200);

/// The way of many calls to one server.
#[derive(Default)]
pub(super) struct Lane {
    /// Held while a batch is under way, over its answer: that is what it is for.
    pub(super) pace: Mutex<Pace>,
    /// The slot that is next.
    cursor: AtomicU16,
}

impl Lane {
    /// The slot that is next.
    pub(super) fn cursor(&self) -> u16 {
        self.cursor.load(Ordering::Relaxed)
    }

    /// Lets a slot be the next.
    pub(super) fn turn_to(&self, slot: u16) {
        self.cursor.store(slot, Ordering::Relaxed);
    }
}

/// How fast a lane is.
#[derive(Debug)]
pub(super) struct Pace {
    /// How many calls go out at once at most, from 1 to [`BATCH_MAX`].
    size: usize,
    /// How long each call of the last batch took.
    each: Duration,
    /// Nothing is sent before.
    rests_until: Option<Instant>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { size: BATCH_FIRST, each: Duration::ZERO, rests_until: None }
    }
}

impl Pace {
    /// How many calls may go out when so much of `timeout` is left for them at `now`; 0: none any more.
    pub(super) fn next(&self, now: Instant, left: Duration, timeout: Duration) -> usize {
        if self.rests_until.is_some_and(|until| now < until) {
            return 0;
        }
        // Half of the time at most, or a beat that comes behind would be late; and half of what is
        // left, since what took long lately may take longer.
        let time = (left / 2).min(timeout / 2);
        let fit = (1..=self.size).rev().find(|size| self.each * count(*size) <= time);
        // With all of the time one is tried, or a server that became quick would not be noticed.
        let is_fresh = left >= timeout * 3 / 4;
        fit.unwrap_or(usize::from(is_fresh))
    }

    /// Learns from a batch of so many calls, at least one, that took so long of `timeout`.
    pub(super) fn learn(
        &mut self,
        now: Instant,
        (calls, took): (usize, Duration),
        timeout: Duration,
        is_late: bool,
    ) {
        self.each = took / count(calls);
        self.rests_until = is_late.then(|| now + jittered(REST));
        if is_late || took > timeout * 3 / 4 {
            self.size = (self.size / 2).max(1);
        } else if took <= timeout / 2 {
            self.size = (self.size * 2).min(BATCH_MAX);
        }
    }
}

/// As a number that times are multiplied with, at least 1.
fn count(calls: usize) -> u32 {
    u32::try_from(calls).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::{BATCH_FIRST, BATCH_MAX, Duration, Instant, Pace, REST};

    const TIMEOUT: Duration = Duration::from_millis(100);

    #[test]
    fn a_quick_server_is_given_more_and_a_slow_one_less() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        assert_eq!(pace.next(now, TIMEOUT, TIMEOUT), BATCH_FIRST);
        for _ in 0..9 {
            pace.learn(now, (BATCH_MAX, TIMEOUT / 4), TIMEOUT, false);
        }
        assert_eq!(pace.next(now, TIMEOUT, TIMEOUT), BATCH_MAX);
        // Five milliseconds each: ten of them are half of the time.
        pace.learn(now, (16, TIMEOUT * 4 / 5), TIMEOUT, false);
        assert_eq!(pace.next(now, TIMEOUT, TIMEOUT), 10);
        // What could not be answered in time is not begun.
        assert_eq!(pace.next(now, TIMEOUT / 5, TIMEOUT), 2);
        assert_eq!(pace.next(now, TIMEOUT / 25, TIMEOUT), 0);
    }

    #[test]
    fn after_an_answer_that_did_not_come_in_time_it_rests() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        for _ in 0..9 {
            pace.learn(now, (1, TIMEOUT), TIMEOUT, true);
        }
        assert_eq!(pace.next(now + REST / 3, TIMEOUT, TIMEOUT), 0);
        assert_eq!(pace.next(now + REST, TIMEOUT, TIMEOUT), 1);
        assert_eq!(pace.next(now + REST, TIMEOUT / 2, TIMEOUT), 0);
    }
}
