//! The sliding window: how many requests, successes and weighted faults there were of late.
//!
//! The counts of one bucket, and how an outcome is entered into them; how buckets slide is the
//! ring's.
//!
//! Invariant: weights are whole millionths, so that a sum does not depend on the order it was added
//! in and a share such as 7 of 100 equals 0.07 exactly.

use std::time::Duration;

use crate::ring::{Content, Ring};

/// A fault of weight 1, in the unit of [`Totals::faults`].
const WHOLE_FAULT: f64 = 1_000_000.0;

/// A fault's weight: above 0, at most 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Weight(u64);

impl Weight {
    /// Reads a weight. Above 1 counts as 1, and what is not a number does too, because a fault that
    /// could not be weighed is still a fault. Zero and less is no fault: `None`.
    pub(crate) fn new(weight: f64) -> Option<Self> {
        if weight <= 0.0 {
            return None;
        }
        // `min` prefers the number over NaN.
        let millionths = (weight.min(1.0) * WHOLE_FAULT).round() as u64;
        // The lightest fault must not vanish.
        Some(Weight(millionths.max(1)))
    }
}

/// One entry of the window.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entry {
    /// A request that succeeded.
    Success,
    /// A request that failed.
    Fault(Weight),
    /// A request that was slow; it counts as a request and as nothing else.
    Slow,
}

/// What the window holds, or one bucket of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// All entries.
    pub(crate) requests: u32,
    /// Those that succeeded.
    pub(crate) successes: u32,
    /// The weight of those that failed, in millionths.
    pub(crate) millionths: u64,
}

impl Totals {
    /// The weighted number of faults.
    pub(crate) fn faults(&self) -> f64 {
        self.millionths as f64 / WHOLE_FAULT
    }

    /// The weighted share of faults, 0 to 1; 0 without requests.
    pub(crate) fn failure_ratio(&self) -> f64 {
        if self.requests == 0 {
            return 0.0;
        }
        self.millionths as f64 / (f64::from(self.requests) * WHOLE_FAULT)
    }
}

impl Content for Totals {
    fn add(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.successes = self.successes.saturating_add(other.successes);
        self.millionths = self.millionths.saturating_add(other.millionths);
    }
}

/// The window.
pub(crate) type Window = Ring<Totals>;

impl Window {
    /// Adds one entry at `now`.
    pub(crate) fn record(&mut self, now: Duration, entry: Entry) {
        let mut totals = Totals { requests: 1, ..Totals::default() };
        match entry {
            Entry::Success => totals.successes = 1,
            Entry::Fault(weight) => totals.millionths = weight.0,
            Entry::Slow => {}
        }
        self.add(now, &totals);
    }

    /// Sums what still counts at `now`.
    pub(crate) fn totals(&self, now: Duration) -> Totals {
        let mut sum = Totals::default();
        self.counted(now).for_each(|totals| sum.add(totals));
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn whole_fault() -> Entry {
        Entry::Fault(Weight::new(1.0).unwrap())
    }

    #[test]
    fn each_entry_is_a_request_and_one_thing_more_or_nothing() {
        let mut window = Window::new(SECOND);
        for entry in [Entry::Success, whole_fault(), whole_fault(), Entry::Slow] {
            window.record(SECOND, entry);
        }
        let totals = window.totals(SECOND);
        assert_eq!((totals.requests, totals.successes, totals.faults()), (4, 1, 2.0));
    }

    #[test]
    fn a_share_written_in_decimals_is_met_exactly() {
        let mut window = Window::new(SECOND);
        for count in 0..100 {
            window.record(SECOND, if count < 7 { whole_fault() } else { Entry::Success });
        }
        assert!(window.totals(SECOND).failure_ratio() >= 0.07);
        window.record(SECOND, Entry::Slow);
        assert!(window.totals(SECOND).failure_ratio() < 0.07);
    }

    #[test]
    fn odd_weights_are_read_as_the_nearest_sensible_one() {
        assert_eq!(Weight::new(0.0), None);
        assert_eq!(Weight::new(-3.0), None);
        assert_eq!(Weight::new(f64::NEG_INFINITY), None);
        assert_eq!(Weight::new(f64::NAN), Weight::new(1.0));
        assert_eq!(Weight::new(f64::INFINITY), Weight::new(1.0));
        assert_eq!(Weight::new(f64::MIN_POSITIVE), Some(Weight(1)));
        assert_eq!(Weight::new(0.25), Some(Weight(250_000)));
        for millionths in 1..=1_000_000_u32 {
            let weight = Weight::new(f64::from(millionths) / 1_000_000.0);
            assert_eq!(weight, Some(Weight(u64::from(millionths))));
        }
    }
}
