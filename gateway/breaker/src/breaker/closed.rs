//! The evidence that is gathered while the circuit is closed, and the ways it can open it.
//!
//! Faults in a row catch an endpoint that fails outright, the share of faults one that fails now and
//! then, slow evidence one that answers too late to be of use. Each outcome is counted once and then
//! judged; the machine around it only acts on the verdict.
//!
//! Invariants:
//! - A neutral outcome touches nothing.
//! - Only a success that was in time ends a streak.

use std::time::Duration;

use crate::evidence::SlowEvidence;
use crate::rule::{Rule, SLOW_CONFIRMATIONS_MAX};
use crate::snapshot::{SavedCounts, SavedEvidence};
use crate::times::{Times, Which};
use crate::window::{Entry, Totals, Weight, Window};
use crate::{Evidence, Gathered, Outcome, P95Rule, Reason, SlowKind, View};

/// What is known while closed.
#[derive(Clone, Debug)]
pub(super) struct Closed {
    since: Duration,
    streak: u32,
    window: Window,
    slow: SlowEvidence,
}

impl Closed {
    /// Begins without evidence.
    pub(super) fn new(now: Duration, rule: &Rule) -> Self {
        Closed {
            since: now,
            streak: 0,
            window: Window::new(rule.window),
            slow: SlowEvidence::default(),
        }
    }

    /// When the circuit closed.
    pub(super) fn since(&self) -> Duration {
        self.since
    }

    /// Keeps what the window of another rule still reaches.
    pub(super) fn resize(&mut self, now: Duration, rule: &Rule) {
        self.window.resize(now, rule.window);
    }

    /// Writes the evidence into the view.
    pub(super) fn show(&self, now: Duration, rule: &Rule, view: &mut View) {
        let totals = self.window.totals(now);
        view.streak = self.streak;
        view.requests = totals.requests;
        view.faults = totals.faults();
        view.successes = totals.successes;
        view.slow_pieces = self.slow.count(now, rule.window);
    }

    /// What has been gathered as of `now`.
    pub(super) fn gathered(&self, now: Duration, rule: &Rule) -> Gathered {
        let totals = self.window.totals(now);
        Gathered {
            streak: self.streak,
            requests: totals.requests,
            fault_millionths: totals.millionths,
            successes: totals.successes,
            slow_pieces: self.slow.count(now, rule.window),
        }
    }

    /// What has been gathered as of `now`, to be pooled; the last success is added by who has it.
    pub(super) fn evidence(&self, now: Duration, rule: &Rule) -> Evidence {
        let totals = self.window.totals(now);
        Evidence {
            requests: totals.requests,
            fault_millionths: totals.millionths,
            successes: totals.successes,
            slow: self.slow.ages(now, rule.window),
            last_success: None,
        }
    }

    /// Counts an outcome and says why the circuit must open, if it must.
    pub(super) fn settle(
        &mut self,
        now: Duration,
        rule: &Rule,
        was_slow: bool,
        outcome: Outcome,
    ) -> Option<Reason> {
        let (entry, reason) = match outcome {
            Outcome::Neutral => return None,
            // Complete, but too late to be a success; its slowness has been counted.
            Outcome::Success if was_slow => (Entry::Slow, None),
            Outcome::Success => {
                self.streak = 0;
                (Entry::Success, None)
            }
            Outcome::Fault { weight, cause: _ } => {
                let weight = Weight::new(weight)?;
                self.streak = self.streak.saturating_add(1);
                let is_enough = self.streak >= rule.failure_threshold;
                (Entry::Fault(weight), is_enough.then_some(Reason::ConsecutiveFaults))
            }
            Outcome::Slow(_) if was_slow => (Entry::Slow, None),
            Outcome::Slow(kind) => (Entry::Slow, self.add_slow(now, rule, kind)),
        };
        self.window.record(now, entry);
        reason.or_else(|| self.judge_ratio(now, rule))
    }

    /// Takes note of a slow request and says why the circuit must open, if it must.
    pub(super) fn add_slow(
        &mut self,
        now: Duration,
        rule: &Rule,
        kind: SlowKind,
    ) -> Option<Reason> {
        if !self.slow.add(now, kind, rule.slow.dedup) {
            return None;
        }
        let enough = rule.slow.confirmations.min(SLOW_CONFIRMATIONS_MAX);
        (self.slow.count(now, rule.window) >= enough).then_some(Reason::Slow(kind))
    }

    /// Takes back the slow evidence seen at `since` or later.
    pub(super) fn discard_slow(&mut self, since: Duration) {
        self.slow.discard(since);
    }

    /// Says what is known, as ages at `now`; times are added by who has them.
    pub(super) fn save(&self, now: Duration, rule: &Rule) -> SavedEvidence {
        let age = |time: Duration| now.saturating_sub(time);
        let counts = self.window.save(now).filter(|(_, totals)| **totals != Totals::default());
        let mut counts: Vec<SavedCounts> = counts
            .map(|(age, totals)| SavedCounts {
                age,
                requests: totals.requests,
                successes: totals.successes,
                fault_millionths: totals.millionths,
            })
            .collect();
        counts.sort_unstable_by_key(|counts| std::cmp::Reverse(counts.age));
        let (pieces, latest) = self.slow.save();
        SavedEvidence {
            age: age(self.since),
            streak: self.streak,
            window: rule.window,
            counts,
            slow_pieces: pieces.into_iter().map(age).collect(),
            slow_latest: latest.map(|time| time.map(age)),
            times: Vec::new(),
        }
    }

    /// Makes evidence of what was saved, `now` being the moment it was saved at.
    pub(super) fn restore(now: Duration, saved: &SavedEvidence) -> Self {
        let time = |age: Duration| now.saturating_sub(age);
        let mut window = Window::new(saved.window);
        for counts in &saved.counts {
            // A request is a success, a fault of at most one whole, or neither.
            let successes = counts.successes.min(counts.requests);
            let faults = u64::from(counts.requests - successes);
            let millionths = counts.fault_millionths.min(faults * 1_000_000);
            let totals = Totals { requests: counts.requests, successes, millionths };
            window.add(time(counts.age), &totals);
        }
        let pieces = saved.slow_pieces.iter().map(|age| time(*age));
        let latest = saved.slow_latest.map(|age| age.map(time));
        Closed {
            since: time(saved.age),
            streak: saved.streak,
            window,
            slow: SlowEvidence::restore(pieces, latest),
        }
    }

    /// The share is judged after every request that counts, a success too: the answer that
    /// completes the sample is as good a moment as the fault after it.
    fn judge_ratio(&self, now: Duration, rule: &Rule) -> Option<Reason> {
        let totals = self.window.totals(now);
        let is_enough = totals.requests >= rule.min_requests;
        (is_enough && totals.failure_ratio() >= rule.failure_ratio).then_some(Reason::FailureRatio)
    }
}

/// Says whether the times in the window must open the circuit, and why.
pub(super) fn judge_times(now: Duration, rule: &Rule, times: &Times) -> Option<Reason> {
    let P95Rule { first_token, total } = rule.slow.p95?;
    let exceeds = |limit: Option<Duration>, which| {
        let limit = limit?;
        let (p95, _) = times.p95(now, which, rule.min_requests)?;
        Some(p95 > limit)
    };
    if exceeds(first_token, Which::FirstToken) == Some(true) {
        return Some(Reason::FirstTokenP95);
    }
    (exceeds(total, Which::Total) == Some(true)).then_some(Reason::TotalP95)
}
