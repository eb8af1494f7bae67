//! The sliding window: how many requests, successes and weighted faults there were of late.
//!
//! Ten buckets in a fixed ring, so that recording allocates nothing and costs the same however much
//! traffic there is. What is given up is sharpness at the far edge: an entry counts for at least
//! nine tenths of the window and never longer than the window.
//!
//! Invariants:
//! - Nothing older than the window counts.
//! - Weights are whole millionths, so that a sum does not depend on the order it was added in and a
//!   share such as 7 of 100 equals 0.07 exactly.

use std::time::Duration;

/// The number of buckets; the window is sharp to a tenth of its length.
const BUCKETS: u64 = 10;

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
    faults: u64,
}

impl Totals {
    /// The weighted number of faults.
    pub(crate) fn faults(&self) -> f64 {
        self.faults as f64 / WHOLE_FAULT
    }

    /// The weighted share of faults, 0 to 1; 0 without requests.
    pub(crate) fn failure_ratio(&self) -> f64 {
        if self.requests == 0 {
            return 0.0;
        }
        self.faults as f64 / (f64::from(self.requests) * WHOLE_FAULT)
    }

    fn add(&mut self, other: Totals) {
        self.requests = self.requests.saturating_add(other.requests);
        self.successes = self.successes.saturating_add(other.successes);
        self.faults = self.faults.saturating_add(other.faults);
    }
}

/// The stretch of time with one number, and what fell into it.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// Time since the origin divided by the bucket's width.
    number: u64,
    totals: Totals,
}

/// The ring of buckets. Callers pass times that never run back.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// The width of one bucket in nanoseconds, at least 1.
    width: u64,
    /// Bounded: [`BUCKETS`]. A bucket's place is its number modulo that.
    buckets: [Bucket; BUCKETS as usize],
}

impl Window {
    /// Makes an empty window of this length.
    pub(crate) fn new(length: Duration) -> Self {
        let width = (nanoseconds(length) / BUCKETS).max(1);
        Window { width, buckets: [Bucket::default(); BUCKETS as usize] }
    }

    /// Adds one entry at `now`.
    pub(crate) fn record(&mut self, now: Duration, entry: Entry) {
        let mut totals = Totals { requests: 1, ..Totals::default() };
        match entry {
            Entry::Success => totals.successes = 1,
            Entry::Fault(weight) => totals.faults = weight.0,
            Entry::Slow => {}
        }
        self.add(self.number(now), totals);
    }

    /// Sums what still counts at `now`.
    pub(crate) fn totals(&self, now: Duration) -> Totals {
        let current = self.number(now);
        let mut sum = Totals::default();
        for bucket in &self.buckets {
            if current.saturating_sub(bucket.number) < BUCKETS {
                sum.add(bucket.totals);
            }
        }
        sum
    }

    /// Changes the length and keeps what still counts.
    ///
    /// An entry's place in the new ring is where its old bucket began, the earliest it can have
    /// been, so that resizing never lengthens the life of an entry.
    pub(crate) fn resize(&mut self, now: Duration, length: Duration) {
        let mut resized = Window::new(length);
        if resized.width == self.width {
            return;
        }
        let (old_current, current) = (self.number(now), resized.number(now));
        for bucket in &self.buckets {
            let number = bucket.number.saturating_mul(self.width) / resized.width;
            let counted = old_current.saturating_sub(bucket.number) < BUCKETS;
            if counted && current.saturating_sub(number) < BUCKETS {
                resized.add(number, bucket.totals);
            }
        }
        *self = resized;
    }

    fn add(&mut self, number: u64, totals: Totals) {
        let place = (number % BUCKETS) as usize;
        // The place is below the length by the modulo; `get_mut` says so without a panic.
        let Some(bucket) = self.buckets.get_mut(place) else {
            return;
        };
        if bucket.number != number {
            *bucket = Bucket { number, totals: Totals::default() };
        }
        bucket.totals.add(totals);
    }

    fn number(&self, now: Duration) -> u64 {
        nanoseconds(now) / self.width
    }
}

/// Nanoseconds in 64 bits, which is 584 years; a division of 128 bits would cost more than all the
/// rest of recording.
fn nanoseconds(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::from(duration.subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(tenths: u64) -> Duration {
        Duration::from_millis(tenths * 100)
    }

    fn whole_fault() -> Entry {
        Entry::Fault(Weight::new(1.0).unwrap())
    }

    #[test]
    fn an_entry_counts_for_nine_tenths_of_the_window_and_never_longer_than_it() {
        for start in 0..20 {
            let mut window = Window::new(at(10));
            let now = at(start) + Duration::from_millis(37);
            window.record(now, Entry::Success);
            assert_eq!(window.totals(now + at(9)).requests, 1);
            assert_eq!(window.totals(now + at(10)).requests, 0);
        }
    }

    #[test]
    fn a_ring_that_wrapped_holds_only_the_last_window() {
        let mut window = Window::new(at(10));
        for tenth in 0..95 {
            window.record(at(tenth), whole_fault());
        }
        let totals = window.totals(at(94));
        assert_eq!((totals.requests, totals.successes, totals.faults()), (10, 0, 10.0));
    }

    #[test]
    fn a_share_written_in_decimals_is_met_exactly() {
        let mut window = Window::new(at(10));
        for count in 0..100 {
            window.record(at(0), if count < 7 { whole_fault() } else { Entry::Success });
        }
        assert!(window.totals(at(0)).failure_ratio() >= 0.07);
        window.record(at(0), Entry::Slow);
        assert!(window.totals(at(0)).failure_ratio() < 0.07);
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

    #[test]
    fn resizing_keeps_what_is_young_enough_and_never_lengthens_a_life() {
        let mut window = Window::new(at(100));
        window.record(at(5), Entry::Success);
        window.record(at(75), whole_fault());
        window.resize(at(80), at(50));
        assert_eq!(window.totals(at(80)), Totals { requests: 1, successes: 0, faults: 1_000_000 });
        window.resize(at(80), at(1_000));
        assert_eq!(window.totals(at(80)).requests, 1);
        assert_eq!(window.totals(at(75) + at(1_000)).requests, 0);
    }

    #[test]
    fn the_ends_of_time_and_of_length_are_safe() {
        for length in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
            let mut window = Window::new(length);
            window.record(Duration::MAX, whole_fault());
            assert_eq!(window.totals(Duration::MAX).requests, 1);
            window.resize(Duration::MAX, Duration::from_secs(1));
        }
    }
}
