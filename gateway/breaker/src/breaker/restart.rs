//! Leaving a breaker behind at the end of a process and taking it up in the next.
//!
//! The next process has another clock, so ages and remainders are kept, and the breaker's own clock
//! goes on where it stopped: the buckets of the window are cut by it, and cutting them elsewhere
//! would lose or keep evidence that an uninterrupted breaker would not.
//!
//! Invariant: a breaker that is restored answers a later schedule as the one that was saved would,
//! permits that were out aside.

use std::time::Duration;

use super::closed::Closed;
use super::cool_down::LEVEL_MAX;
use super::ladder::HalfOpen;
use super::{Breaker, Clock, Open, Phase};
use crate::rule::{DURATION_MAX, Mode, Rule};
use crate::snapshot::{SavedEvidence, SavedPhase, SavedTimes, Snapshot};
use crate::times::{Bins, Times, Which};

/// The longest a breaker's clock has ever run: a century, well within what nanoseconds can count. A
/// snapshot that claims more is made up, and its clock must not stand still at the end of time.
const CLOCK_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

impl Breaker {
    /// Says all that is known at `now`. Unlike the other calls it allocates.
    pub fn snapshot(&self, now: Duration) -> Snapshot {
        let now = self.look(now);
        let age = |time: Duration| now.saturating_sub(time);
        let phase = match &self.phase {
            Phase::Closed(closed) => {
                let times = self.times.as_ref().map(|times| save_times(now, times));
                let evidence = closed.save(now, &self.rule);
                let times = times.unwrap_or_default();
                SavedPhase::Closed(SavedEvidence { times, ..evidence })
            }
            Phase::Open(open) => SavedPhase::Open {
                remaining: open.until.saturating_sub(now),
                opened_for: open.opened_for,
            },
            Phase::HalfOpen(half_open) => half_open.save(now),
        };
        Snapshot {
            clock: now,
            away: Duration::ZERO,
            epoch: self.epoch,
            level: self.level,
            held_for: self.held.map(age),
            last_success: self.last_success.map(age),
            phase,
        }
    }

    /// Makes the breaker that a snapshot was taken of, for a clock that says `now`. A rule that has
    /// changed since is taken up as [`Breaker::set_rule`] does it. What makes no sense is read as
    /// the nearest that does; no cool-down is longer than a day.
    pub fn restore(rule: Rule, seed: u64, snapshot: &Snapshot, now: Duration) -> Self {
        let taken = snapshot.clock.min(CLOCK_MAX);
        let latest = taken.saturating_add(snapshot.away).min(CLOCK_MAX);
        let time = |age: Duration| taken.saturating_sub(age);
        let mut breaker = Breaker::new(rule.clone(), seed);
        breaker.clock =
            Clock { ahead: latest.saturating_sub(now), behind: now.saturating_sub(latest) };
        breaker.epoch = snapshot.epoch;
        breaker.level = snapshot.level.map(|level| level.min(LEVEL_MAX));
        breaker.held = snapshot.held_for.map(time);
        breaker.last_success = snapshot.last_success.map(time);
        breaker.phase = match (rule.mode, &snapshot.phase) {
            (Mode::Enforce | Mode::Shadow, phase) => breaker.resume(taken, phase),
            // A breaker that is off knows nothing but for how long it has been closed.
            (Mode::Off, SavedPhase::Closed(evidence)) => {
                Phase::Closed(Closed::new(time(evidence.age), &rule))
            }
            (Mode::Off, SavedPhase::Open { .. } | SavedPhase::HalfOpen { .. }) => {
                Phase::Closed(Closed::new(taken, &rule))
            }
        };
        breaker.latest = latest;
        // What the new rule changes is told by the state; nobody has seen this breaker before.
        let _ = breaker.set_rule(rule);
        breaker
    }

    fn resume(&mut self, taken: Duration, phase: &SavedPhase) -> Phase {
        let time = |age: Duration| taken.saturating_sub(age);
        match phase {
            SavedPhase::Closed(evidence) => {
                restore_times(self, taken, evidence);
                Phase::Closed(Closed::restore(taken, evidence))
            }
            SavedPhase::Open { remaining, opened_for } => Phase::Open(Open {
                until: taken.saturating_add((*remaining).min(DURATION_MAX)),
                opened_for: *opened_for,
            }),
            SavedPhase::HalfOpen { opened_for, idle, age, rung, successes, asked, admitted } => {
                let mut half_open = HalfOpen::new(taken, *opened_for, *rung);
                half_open.resume((time(*age), time(*idle)), (*successes, *asked, *admitted));
                Phase::HalfOpen(half_open)
            }
        }
    }
}

fn save_times(now: Duration, times: &Times) -> Vec<SavedTimes> {
    let pairs = |bins: &Bins| {
        let filled = bins.iter().enumerate().filter(|(_, samples)| **samples > 0);
        filled.map(|(bin, samples)| (bin as u16, *samples)).collect()
    };
    let mut saved: Vec<SavedTimes> = times
        .save(now)
        .map(|(age, samples)| SavedTimes {
            age,
            first_token: pairs(samples.bins(Which::FirstToken)),
            total: pairs(samples.bins(Which::Total)),
        })
        .filter(|times| !(times.first_token.is_empty() && times.total.is_empty()))
        .collect();
    saved.sort_unstable_by_key(|times| std::cmp::Reverse(times.age));
    saved
}

/// Fills the breaker's times, cut by the window that they were saved with.
fn restore_times(breaker: &mut Breaker, taken: Duration, evidence: &SavedEvidence) {
    let Some(times) = &mut breaker.times else {
        return;
    };
    **times = Times::new(evidence.window);
    for saved in &evidence.times {
        let Some(bucket) = times.current(taken.saturating_sub(saved.age)) else {
            continue;
        };
        for (bin, samples) in &saved.first_token {
            bucket.put(Which::FirstToken, usize::from(*bin), *samples);
        }
        for (bin, samples) in &saved.total {
            bucket.put(Which::Total, usize::from(*bin), *samples);
        }
    }
}
