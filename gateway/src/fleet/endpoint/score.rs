//! What an endpoint's latest answers say to those who choose: how long it takes, how often it fails.
//!
//! The time is a peak EWMA as in Finagle's `PeakEwma`: a longer one counts at once and in full, shorter
//! ones bring it down by and by, and so does silence. A failure scores as if the request had taken until
//! the limit at which it counts as slow: an endpoint that fails fast always has nothing in flight and
//! would draw all requests otherwise.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The time by which a peak has fallen to 1/e: Finagle's default.
const DECAY: Duration = Duration::from_secs(10);

/// More failures than this are as bad as this many.
const FAILURES_MAX: f64 = 1_000.0;

/// The scores of one endpoint.
#[derive(Debug, Default)]
pub(super) struct Score {
    /// A plain lock: held for one exponential.
    marks: Mutex<Marks>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    /// Time to the first content, in seconds; 0: not known.
    cost: f64,
    cost_at: Duration,
    /// Failed requests that count as still in flight.
    failures: f64,
    failures_at: Duration,
    /// By when a failure has faded to 1/e: as long as a slow request would have been in flight.
    fade: Duration,
}

impl Score {
    /// Notes an answer whose first content took this long.
    pub(super) fn answered(&self, now: Duration, took: Duration) {
        self.lock().observe(now, took);
    }

    /// Notes a failure that counts as if it had taken `slow`, or longer if it did.
    pub(super) fn failed(&self, now: Duration, took: Duration, slow: Duration) {
        let mut marks = self.lock();
        marks.observe(now, took.max(slow));
        marks.failures = (marks.failures_left(now) + 1.0).min(FAILURES_MAX);
        (marks.failures_at, marks.fade) = (marks.failures_at.max(now), slow);
    }

    /// The peak EWMA of the time to the first content, in seconds; 0: not known.
    pub(super) fn cost(&self, now: Duration) -> f64 {
        self.lock().cost_left(now)
    }

    /// How many failed requests count as still in flight.
    pub(super) fn failures(&self, now: Duration) -> u64 {
        let marks = *self.lock();
        if marks.failures == 0.0 { 0 } else { marks.failures_left(now).round() as u64 }
    }

    fn lock(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Marks {
    fn observe(&mut self, now: Duration, took: Duration) {
        let (took, left) = (took.as_secs_f64(), self.cost_left(now));
        let weight = fading(now.saturating_sub(self.cost_at), DECAY);
        let mean = self.cost * weight + took * (1.0 - weight);
        // An answer in no time must not look like none.
        self.cost = if took > left { took } else { mean }.max(f64::MIN_POSITIVE);
        self.cost_at = self.cost_at.max(now);
    }

    fn cost_left(&self, now: Duration) -> f64 {
        self.cost * fading(now.saturating_sub(self.cost_at), DECAY)
    }

    fn failures_left(&self, now: Duration) -> f64 {
        self.failures * fading(now.saturating_sub(self.failures_at), self.fade)
    }
}

fn fading(passed: Duration, by: Duration) -> f64 {
    (-passed.as_secs_f64() / by.as_secs_f64().max(f64::MIN_POSITIVE)).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_peak_counts_at_once_and_fades() {
        let score = Score::default();
        score.answered(at(1), Duration::from_millis(100));
        assert!((score.cost(at(1)) - 0.1).abs() < 1e-9);
        score.answered(at(2), Duration::from_secs(4));
        assert_eq!(score.cost(at(2)), 4.0);
        score.answered(at(12), Duration::from_millis(100));
        let mean = 4.0 * (-1.0_f64).exp() + 0.1 * (1.0 - (-1.0_f64).exp());
        assert!((score.cost(at(12)) - mean).abs() < 1e-9);
        assert!(score.cost(at(112)) < mean / 10_000.0, "silence brings it down too");
    }

    #[test]
    fn a_failure_in_no_time_scores_as_a_slow_answer() {
        let score = Score::default();
        score.answered(at(1), Duration::from_millis(100));
        score.failed(at(1), Duration::from_millis(1), at(70));
        assert_eq!((score.cost(at(1)), score.failures(at(1))), (70.0, 1));
        score.failed(at(1), Duration::from_millis(1), at(70));
        assert_eq!(score.failures(at(1)), 2);
        assert_eq!(score.failures(at(71)), 1, "as a request that long in flight would");
        assert_eq!(score.failures(at(200)), 0);
    }

    #[test]
    fn time_that_runs_back_changes_nothing_for_the_worse() {
        let score = Score::default();
        score.failed(at(10), at(1), at(70));
        score.answered(at(5), at(1));
        assert!(score.cost(at(10)) <= 70.0 && score.failures(at(1)) == 1);
        assert!(score.cost(at(1)).is_finite());
    }
}
