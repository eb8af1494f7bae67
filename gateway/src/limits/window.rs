//! The sliding minute: what was admitted in it, by moment, in memory that does not grow with traffic.
//!
//! A list of moments would be exact and as long as the limit is high. Here moments that lie close
//! together are one run, and a run counts until its newest moment is a minute old: with little traffic
//! that is exact, with much an entry counts for at most [`RUN`] too long, and never for too short.
//!
//! Invariants: what was added less than a minute ago is counted; nothing is counted for longer than a
//! minute and [`RUN`]; there are at most [`RUNS_MAX`] runs; a clock that runs back is one that stands.

use std::collections::VecDeque;
use std::time::Duration;

/// The stretch of time that limits speak of.
pub(super) const MINUTE: Duration = Duration::from_secs(60);
/// From the first moment of a run to its last it is less than this: a clock that tells seconds, as
/// `retry-after` does, is as sharp.
pub(super) const RUN: Duration = Duration::from_secs(1);
/// Most runs at a time: they begin at least [`RUN`] apart, the oldest less than a minute and [`RUN`]
/// ago. 48 bytes each, 3 KiB together.
pub(super) const RUNS_MAX: usize = 61;

/// What requests weigh, or sums of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) requests: u64,
    pub(super) tokens: u64,
}

impl Load {
    // Sums stay far below the end of 64 bits: 18 million requests of the largest token limit would have
    // to come in one minute. Saturating, they would at worst admit too little.
    fn add(&mut self, other: Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.tokens = self.tokens.saturating_add(other.tokens);
    }

    fn remove(&mut self, other: Self) {
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
        MINUTE.saturating_sub(now.saturating_sub(self.last))
    }
}

/// What was added in the last minute.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    /// Oldest first; bounded by [`RUNS_MAX`]. Nothing is allocated where nobody asks.
    runs: VecDeque<Run>,
    /// The sum of the runs.
    sum: Load,
    latest: Duration,
}

impl Window {
    /// Lets go of what is too old. Returns the moment by which everything else is to be reckoned: the
    /// latest that was ever told.
    pub(super) fn advance(&mut self, now: Duration) -> Duration {
        self.latest = self.latest.max(now);
        while let Some(oldest) = self.runs.front()
            && oldest.leaves_in(self.latest).is_zero()
        {
            self.sum.remove(oldest.load);
            self.runs.pop_front();
        }
        self.latest
    }

    /// What counts.
    pub(super) fn sum(&self) -> Load {
        self.sum
    }

    /// Adds a load at the moment that [`Self::advance`] has just returned.
    pub(super) fn add(&mut self, at: Duration, load: Load) {
        self.sum.add(load);
        match self.runs.back_mut() {
            Some(run) if at.saturating_sub(run.first) < RUN => {
                run.last = at;
                run.load.add(load);
            }
            Some(_) | None => self.runs.push_back(Run { first: at, last: at, load }),
        }
        debug_assert!(self.runs.len() <= RUNS_MAX, "{} runs", self.runs.len());
    }

    /// Replaces a load that was added at `at`. Of one that counts no longer the tokens that were missed
    /// count from the latest moment that was told: else whoever asks for answers that take longer than a
    /// minute would take as much as they like.
    pub(super) fn replace(&mut self, at: Duration, old: Load, new: Load) {
        let behind = self.runs.partition_point(|run| run.first <= at);
        let Some(run) = behind.checked_sub(1).and_then(|index| self.runs.get_mut(index)) else {
            let tokens = new.tokens.saturating_sub(old.tokens);
            if tokens > 0 {
                self.add(self.latest, Load { requests: 0, tokens });
            }
            return;
        };
        for sum in [&mut run.load, &mut self.sum] {
            sum.remove(old);
            sum.add(new);
        }
    }

    /// In how long so much of one figure will have left; all of it, if there is less.
    pub(super) fn leaves_in(
        &self,
        now: Duration,
        amount: u64,
        figure: impl Fn(&Load) -> u64,
    ) -> Duration {
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
}

#[cfg(test)]
impl Window {
    /// Whether what was added at this moment counts.
    pub(super) fn counts(&self, at: Duration) -> bool {
        self.runs.front().is_some_and(|oldest| oldest.first <= at)
    }

    /// How many runs there are.
    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }
}
