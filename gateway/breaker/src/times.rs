//! How long requests took of late, well enough to know the time that 95 of 100 kept.
//!
//! Each bucket of the ring holds two histograms whose bins grow with the time they stand for, eight
//! to each doubling, as in Gil Tene's HdrHistogram. So a sample costs two additions, nothing is
//! allocated while recording, and the error is a share of the value and not of the longest value.
//!
//! Invariants:
//! - From 8 ms to 69 minutes a bin's value is within 1/17 (5.9 %) of every time in it. Below that
//!   it is within half a millisecond; longer times count as 69 minutes.
//! - A P95 is that of the samples in the window, or there is none.

use std::time::Duration;

use crate::ring::{Content, Ring};

/// Bins to each doubling; the first eight are one millisecond wide.
const BINS_PER_DOUBLING: u64 = 8;

/// The power of two that is [`BINS_PER_DOUBLING`].
const FIRST_DOUBLING: u32 = 3;

/// 8 bins below 8 ms and 8 for each doubling up to 2²² ms, which is 69 minutes.
const BINS: usize = 160;

/// With fewer samples the P95 is the longest of them, and one request would speak for all.
pub(crate) const SAMPLES_MIN: u32 = 20;

/// Of so many samples one may take longer than the P95.
const SAMPLES_PER_LONGER: u32 = 20;

/// How long one complete request took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From sending to the first token; `None` if the answer came in one piece.
    pub first_token: Option<Duration>,
    /// From sending to the end.
    pub total: Duration,
}

/// Which of the two times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// [`Timing::first_token`].
    FirstToken,
    /// [`Timing::total`].
    Total,
}

/// One histogram: the number of samples in each bin.
pub(crate) type Bins = [u32; BINS];

/// What one bucket holds.
#[derive(Clone, Debug)]
pub(crate) struct Samples {
    first_token: Bins,
    total: Bins,
}

impl Samples {
    /// The histogram of one of the two times.
    pub(crate) fn bins(&self, which: Which) -> &Bins {
        match which {
            Which::FirstToken => &self.first_token,
            Which::Total => &self.total,
        }
    }

    /// Adds samples to a bin; a bin that does not exist is left alone.
    pub(crate) fn put(&mut self, which: Which, bin: usize, count: u32) {
        let bins = match which {
            Which::FirstToken => &mut self.first_token,
            Which::Total => &mut self.total,
        };
        if let Some(samples) = bins.get_mut(bin) {
            *samples = samples.saturating_add(count);
        }
    }
}

impl Default for Samples {
    fn default() -> Self {
        Samples { first_token: [0; BINS], total: [0; BINS] }
    }
}

impl Content for Samples {
    fn add(&mut self, other: &Self) {
        add_bins(&mut self.first_token, &other.first_token);
        add_bins(&mut self.total, &other.total);
    }
}

/// The times in the window.
pub(crate) type Times = Ring<Samples>;

impl Times {
    /// Takes note of one request.
    pub(crate) fn record(&mut self, now: Duration, timing: Timing) {
        let Some(current) = self.current(now) else {
            return;
        };
        if let Some(first_token) = timing.first_token {
            current.put(Which::FirstToken, bin(first_token), 1);
        }
        current.put(Which::Total, bin(timing.total), 1);
    }

    /// The P95 at `now`, by nearest rank, and the number of samples; `None` below `least` samples
    /// and below [`SAMPLES_MIN`].
    pub(crate) fn p95(&self, now: Duration, which: Which, least: u32) -> Option<(Duration, u32)> {
        let mut sum = [0; BINS];
        self.counted(now).for_each(|samples| add_bins(&mut sum, samples.bins(which)));
        let count = sum.iter().fold(0_u32, |count, samples| count.saturating_add(*samples));
        if count < least.max(SAMPLES_MIN) {
            return None;
        }
        let mut longer = count / SAMPLES_PER_LONGER;
        for (bin, samples) in sum.iter().enumerate().rev() {
            let Some(left) = longer.checked_sub(*samples) else {
                return Some((value(bin), count));
            };
            longer = left;
        }
        None
    }
}

fn add_bins(sum: &mut Bins, other: &Bins) {
    for (samples, more) in sum.iter_mut().zip(other) {
        *samples = samples.saturating_add(*more);
    }
}

/// The bin of a time.
fn bin(time: Duration) -> usize {
    let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let Some(doubling) = milliseconds.checked_ilog2().filter(|power| *power >= FIRST_DOUBLING)
    else {
        return milliseconds as usize;
    };
    let steps = doubling - FIRST_DOUBLING;
    let within = (milliseconds >> steps) % BINS_PER_DOUBLING;
    let bin = (u64::from(steps) + 1) * BINS_PER_DOUBLING + within;
    (bin as usize).min(BINS - 1)
}

/// The time a bin stands for: the one that is wrong by the same share at either end of the bin.
fn value(bin: usize) -> Duration {
    let bin = bin as u64;
    let Some(steps) = (bin / BINS_PER_DOUBLING).checked_sub(1) else {
        return Duration::from_micros(bin * 1_000 + 500);
    };
    let low = (BINS_PER_DOUBLING + bin % BINS_PER_DOUBLING) << steps;
    let high = low + (1 << steps);
    Duration::from_micros(2_000 * low * high / (low + high))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milliseconds(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn timing(total: Duration) -> Timing {
        Timing { first_token: None, total }
    }

    fn p95(times: impl IntoIterator<Item = u64>) -> Option<(Duration, u32)> {
        let mut ring = Times::new(milliseconds(1_000));
        times.into_iter().for_each(|time| ring.record(Duration::ZERO, timing(milliseconds(time))));
        ring.p95(Duration::ZERO, Which::Total, 0)
    }

    fn is_near(got: Duration, exact: Duration) -> bool {
        (got.as_secs_f64() / exact.as_secs_f64() - 1.0).abs() <= 1.0 / 17.0 + 1e-4
    }

    #[test]
    fn a_bin_is_within_six_per_cent_of_every_time_in_it() {
        let mut last = 0;
        for time in 8..(1_u64 << 22) {
            let bin = bin(milliseconds(time));
            assert!(bin == last || bin == last + 1 || time == 8, "bins follow each other");
            last = bin;
            // The longest time that still falls into the millisecond.
            for exact in [milliseconds(time), milliseconds(time + 1) - Duration::from_nanos(1)] {
                assert!(is_near(value(bin), exact), "{exact:?} is told as {:?}", value(bin));
            }
        }
        assert_eq!(last, BINS - 1);
    }

    #[test]
    fn a_short_time_is_known_to_half_a_millisecond() {
        for time in 0..8 {
            let told = Duration::from_micros(time * 1_000 + 500);
            assert_eq!(value(bin(milliseconds(time))), told);
        }
    }

    #[test]
    fn times_beyond_the_last_bin_count_in_it() {
        assert_eq!(bin(Duration::MAX), BINS - 1);
        assert_eq!(bin(Duration::ZERO), 0);
        assert_eq!(bin(milliseconds(7)), 7);
    }

    #[test]
    fn one_in_twenty_may_take_longer() {
        assert_eq!(p95([100; 19]), None);
        let (got, count) = p95([[100; 19].as_slice(), &[9_000]].concat()).unwrap();
        assert!(is_near(got, milliseconds(100)), "{got:?}");
        assert_eq!(count, 20);
        let (got, _) = p95([[100; 18].as_slice(), &[8_000, 9_000]].concat()).unwrap();
        assert!(is_near(got, milliseconds(8_000)), "{got:?}");
    }

    #[test]
    fn it_is_near_the_p95_by_nearest_rank_of_any_samples() {
        let mut state = 7_u64;
        for size in 20..400 {
            let mut times: Vec<u64> = Vec::new();
            for _ in 0..size {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                times.push(8 + (state >> 33) % (1 << (4 + state % 16)));
            }
            let (got, _) = p95(times.iter().copied()).unwrap();
            times.sort_unstable();
            let rank = (size * 19_usize).div_ceil(20);
            assert!(is_near(got, milliseconds(times[rank - 1])), "{size} samples: {got:?}");
        }
    }

    #[test]
    fn samples_leave_with_the_window() {
        let mut times = Times::new(milliseconds(1_000));
        for _ in 0..30 {
            times.record(Duration::ZERO, timing(milliseconds(50)));
        }
        assert!(times.p95(milliseconds(900), Which::Total, 30).is_some());
        assert_eq!(times.p95(milliseconds(900), Which::Total, 31), None);
        assert_eq!(times.p95(milliseconds(900), Which::FirstToken, 1), None);
        assert_eq!(times.p95(milliseconds(1_000), Which::Total, 1), None);
    }

    #[test]
    fn samples_that_another_window_reaches_are_kept() {
        let mut times = Times::new(milliseconds(1_000));
        for _ in 0..30 {
            times.record(milliseconds(950), timing(milliseconds(50)));
        }
        let known = times.p95(milliseconds(950), Which::Total, 30);
        times.resize(milliseconds(950), milliseconds(5_000));
        assert!(known.is_some());
        assert_eq!(times.p95(milliseconds(950), Which::Total, 30), known);
    }
}
