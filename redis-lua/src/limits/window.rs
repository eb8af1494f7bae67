//! The sliding minute: what was admitted in it, by moment, in memory that does not grow with traffic.
//!
//! A list of moments would be exact and as long as the limit is high. Here moments that lie close
//! together are one run, and a run counts until its newest moment is a minute old: with little traffic
//! that is exact, with much an entry counts for at most [`RUN`] too long, and never for too short.
//!
//! A node keeps its own limits by it, and `lua/limit_turn.lua` those of a fleet, by the same rule.
//!
//! Invariants: what was added less than a minute ago is counted; nothing is counted for longer than a
//! minute and [`RUN`] after the moment it was added for; there are at most [`RUNS_MAX`] runs.

use std::collections::VecDeque;
use std::time::Duration;

/// The stretch of time that limits speak of.
pub const MINUTE: Duration = Duration::from_secs(60);
/// From the first moment of a run to its last it is less than this: a clock that tells seconds, as
/// `retry-after` does, is as sharp.
pub const RUN: Duration = Duration::from_secs(1);
/// No moment is further ahead of the clock than this: so long may something be set aside at most.
pub const AHEAD: Duration = Duration::from_secs(2);
/// Most runs at a time: they begin at least [`RUN`] apart, the oldest less than a minute and [`RUN`]
/// ago, the newest at most [`AHEAD`]. 48 bytes each, 3 KiB together.
pub const RUNS_MAX: usize = 64;

/// What requests weigh, or sums of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests.
    pub requests: u64,
    /// Tokens.
    pub tokens: u64,
}

impl Load {
    /// Adds another. Sums stay far below the end of 64 bits: 18 million requests of the largest token
    /// limit would have to come in one minute. Saturating, they would at worst admit too little.
    pub fn add(&mut self, other: Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.tokens = self.tokens.saturating_add(other.tokens);
    }

    /// Takes another away, down to nothing.
    pub fn remove(&mut self, other: Self) {
        self.requests = self.requests.saturating_sub(other.requests);
        self.tokens = self.tokens.saturating_sub(other.tokens);
    }
}

/// Moments less than [`RUN`] apart, and what was added at them.
#[derive(Clone, Debug)]
struct Run {
    first: Duration,
    last: Duration,
    load: Load,
}

impl Run {
    /// In how long nothing of it counts.
    fn leaves_in(&self, now: Duration) -> Duration {
        self.last.saturating_add(MINUTE).saturating_sub(now)
    }
}

/// What was added in the last minute.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// Oldest first; bounded by [`RUNS_MAX`]. Nothing is allocated where nobody asks.
    runs: VecDeque<Run>,
    /// The sum of the runs.
    sum: Load,
    latest: Duration,
}

impl Window {
    /// Lets go of what is too old, by a clock that is taken for standing where it runs back. Returns the
    /// moment by which everything else is to be reckoned: the latest that was ever told.
    pub fn advance(&mut self, now: Duration) -> Duration {
        self.begin(self.latest.max(now))
    }

    /// The same by a clock that may have been set back: what counts is as old as it was, from here on.
    pub fn begin(&mut self, now: Duration) -> Duration {
        self.latest = now;
        let newest = self.runs.back().map_or(Duration::ZERO, |run| run.last);
        let back = newest.saturating_sub(now.saturating_add(AHEAD));
        if !back.is_zero() {
            for run in &mut self.runs {
                run.first = run.first.saturating_sub(back);
                run.last = run.last.saturating_sub(back);
            }
        }
        while let Some(oldest) = self.runs.front()
            && oldest.leaves_in(self.latest).is_zero()
        {
            self.sum.remove(oldest.load);
            self.runs.pop_front();
        }
        self.latest
    }

    /// The latest moment that was ever told.
    pub fn latest(&self) -> Duration {
        self.latest
    }

    /// What counts.
    pub fn sum(&self) -> Load {
        self.sum
    }

    /// Adds a load for a moment that [`Self::advance`] has just returned, or one up to [`AHEAD`] later.
    /// Returns the moment by which [`Self::replace`] finds it.
    pub fn add(&mut self, at: Duration, load: Load) -> Duration {
        self.sum.add(load);
        let found = match self.runs.back_mut() {
            Some(run) if at.saturating_sub(run.first) < RUN => {
                run.last = run.last.max(at);
                run.load.add(load);
                at.max(run.first)
            }
            Some(_) | None => {
                self.runs.push_back(Run { first: at, last: at, load });
                at
            }
        };
        debug_assert!(self.runs.len() <= RUNS_MAX, "{} runs", self.runs.len());
        found
    }

    /// Replaces a load that was added at `at`. Of one that counts no longer the tokens that were missed
    /// count from the latest moment that was told: else whoever asks for answers that take longer than a
    /// minute would take as much as they like.
    pub fn replace(&mut self, at: Duration, old: Load, new: Load) {
        let behind = self.runs.partition_point(|run| run.first <= at);
        let Some(run) = behind.checked_sub(1).and_then(|index| self.runs.get_mut(index)) else {
            let tokens = new.tokens.saturating_sub(old.tokens);
            if tokens > 0 {
                self.add(self.latest, Load { requests: 0, tokens });
            }
            return;
        };
        self.sum.remove(run.load);
        run.load.remove(old);
        run.load.add(new);
        self.sum.add(run.load);
    }

    /// In how long so much of one figure will have left; all of it, if there is less.
    pub fn leaves_in(&self, now: Duration, amount: u64, figure: impl Fn(&Load) -> u64) -> Duration {
        let (mut left, mut period) = (0_u64, Duration::ZERO);
        for run in &self.runs {
            if left >= amount {
                break;
            }
            let share = figure(&run.load);
            left = left.saturating_add(share);
            // What was given back leaves an empty run, for which nobody has to wait.
            if share > 0 {
                period = run.leaves_in(now);
            }
        }
        period
    }

    /// Whether what was added at this moment counts.
    pub fn counts(&self, at: Duration) -> bool {
        self.runs.front().is_some_and(|oldest| oldest.first <= at)
    }

    /// How many runs there are.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }
}
