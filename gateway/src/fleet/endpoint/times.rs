//! How long an endpoint's answers took of late: half of them, and ninety-five of a hundred.
//!
//! Every answer is counted, so it must cost next to nothing: two additions to atomics, no lock and no
//! allocation but the first. The bins grow with the time they stand for, eight to each doubling, as in
//! Gil Tene's HdrHistogram. Two halves take turns, each for a minute, so that what is told is of the last
//! one to two minutes; who first comes in a new minute empties the older half.
//!
//! Invariants:
//! - What is told is within a sixteenth of a time that was counted, below 8 ms within half a millisecond; times
//!   beyond 69 minutes count as 69 minutes.
//! - Nothing older than two minutes is told.
//! - An answer that comes in the moment in which a half is emptied may be lost: these figures are for
//!   people, and nothing is decided by them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::Endpoint;

/// How long a half is filled.
const HALF: Duration = Duration::from_secs(60);
/// 8 bins below 8 ms and 8 for each doubling up to 2²² ms, which is 69 minutes.
const BINS: usize = 160;
/// Bins to each doubling; the first eight are one millisecond wide.
const PER_DOUBLING: u64 = 8;
/// The power of two that is [`PER_DOUBLING`].
const FIRST_DOUBLING: u32 = 3;

/// The answers of the last minutes.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// Five kilobytes once the first answer has come: most of ten thousand endpoints may be idle.
    book: OnceLock<Box<[Half; 2]>>,
}

#[derive(Debug)]
struct Half {
    /// The minute it was last filled in, from 1; 0: never.
    turn: AtomicU64,
    first_token: [AtomicU32; BINS],
    total: [AtomicU32; BINS],
}

/// What is told of one kind of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percentiles {
    /// Half of the answers took no longer.
    pub p50: Duration,
    /// Ninety-five of a hundred took no longer.
    pub p95: Duration,
}

/// How long answers took in the last one to two minutes; `None`: none has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimesView {
    /// Until their first content.
    pub first_token: Option<Percentiles>,
    /// Until their end.
    pub total: Option<Percentiles>,
}

impl Times {
    /// Counts an answer to a client.
    pub(super) fn count(&self, now: Duration, first_token: Option<Duration>, total: Duration) {
        let turn = turn_at(now);
        let halves = self.book.get_or_init(|| Box::new([Half::empty(), Half::empty()]));
        let Some(half) = halves.get((turn % 2) as usize) else { return };
        half.begin(turn);
        add(&half.total, total);
        if let Some(first_token) = first_token {
            add(&half.first_token, first_token);
        }
    }

    /// What is told at `now`.
    fn view(&self, now: Duration) -> TimesView {
        let Some(halves) = self.book.get() else { return TimesView::default() };
        let turn = turn_at(now);
        let is_recent = |half: &&Half| half.turn.load(Ordering::Relaxed).saturating_add(1) >= turn;
        let recent: Vec<&Half> = halves.iter().filter(is_recent).collect();
        let told = |bins: fn(&Half) -> &[AtomicU32; BINS]| {
            let mut sums = [0_u64; BINS];
            for half in &recent {
                for (sum, bin) in sums.iter_mut().zip(bins(half)) {
                    *sum += u64::from(bin.load(Ordering::Relaxed));
                }
            }
            percentiles(&sums)
        };
        TimesView { first_token: told(|half| &half.first_token), total: told(|half| &half.total) }
    }
}

impl Half {
    fn empty() -> Self {
        Self {
            turn: AtomicU64::new(0),
            first_token: [const { AtomicU32::new(0) }; BINS],
            total: [const { AtomicU32::new(0) }; BINS],
        }
    }

    /// Empties it if it is of an older turn.
    fn begin(&self, turn: u64) {
        let known = self.turn.load(Ordering::Relaxed);
        let exchange =
            |known| self.turn.compare_exchange(known, turn, Ordering::Relaxed, Ordering::Relaxed);
        if known < turn && exchange(known).is_ok() {
            for bin in self.first_token.iter().chain(&self.total) {
                bin.store(0, Ordering::Relaxed);
            }
        }
    }
}

impl Endpoint {
    /// How long answers to clients took in the last one to two minutes.
    pub fn times(&self, now: Duration) -> TimesView {
        self.core.times.view(now)
    }
}

fn turn_at(now: Duration) -> u64 {
    now.as_secs() / HALF.as_secs() + 1
}

fn add(bins: &[AtomicU32; BINS], took: Duration) {
    if let Some(bin) = bins.get(bin_of(took)) {
        bin.fetch_add(1, Ordering::Relaxed);
    }
}

fn bin_of(took: Duration) -> usize {
    let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    if millis < PER_DOUBLING {
        return millis as usize;
    }
    let doublings = millis.ilog2() - FIRST_DOUBLING;
    let place = (millis >> doublings) - PER_DOUBLING;
    let bin = (u64::from(doublings) + 1) * PER_DOUBLING + place;
    (bin as usize).min(BINS - 1)
}

/// The middle of a bin.
fn time_of(bin: usize) -> Duration {
    let bin = bin as u64;
    let (row, place) = (bin / PER_DOUBLING, bin % PER_DOUBLING);
    if row == 0 {
        return Duration::from_millis(place);
    }
    let width = 1_u64 << (row - 1);
    Duration::from_millis((PER_DOUBLING + place) * width + width / 2)
}

fn percentiles(sums: &[u64; BINS]) -> Option<Percentiles> {
    let count: u64 = sums.iter().sum();
    let of = |hundredths: u64| {
        let rank = (count * hundredths).div_ceil(100).max(1);
        let mut passed = 0;
        let bin = sums.iter().position(|sum| {
            passed += sum;
            passed >= rank
        });
        bin.map(time_of)
    };
    let (p50, p95) = (of(50)?, of(95)?);
    (count > 0).then_some(Percentiles { p50, p95 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn nothing_is_told_before_the_first_answer() {
        assert_eq!(Times::default().view(at(5)), TimesView::default());
    }

    #[test]
    fn the_median_and_the_slow_end_are_told_apart() {
        let times = Times::default();
        for _ in 0..90 {
            times.count(at(1), Some(ms(100)), ms(1_000));
        }
        for _ in 0..10 {
            times.count(at(1), None, ms(30_000));
        }
        let told = times.view(at(1));
        let within = |told: Duration, wanted: Duration| {
            told.abs_diff(wanted).as_secs_f64() <= wanted.as_secs_f64() * 0.06
        };
        let total = told.total.unwrap();
        assert!(within(total.p50, ms(1_000)) && within(total.p95, ms(30_000)), "{told:?}");
        let first = told.first_token.unwrap();
        assert!(within(first.p50, ms(100)) && within(first.p95, ms(100)), "{told:?}");
    }

    #[test]
    fn what_is_two_minutes_old_is_told_no_more() {
        let times = Times::default();
        times.count(at(59), None, ms(8));
        assert!(times.view(at(119)).total.is_some(), "the minute before is still told");
        assert_eq!(times.view(at(120)).total, None);
        times.count(at(121), None, ms(900));
        let told = times.view(at(121)).total.unwrap();
        assert!(told.p50 > ms(800), "the older half was emptied: {told:?}");
    }

    #[test]
    fn what_is_told_is_within_a_sixteenth_of_the_time() {
        for millis in (0..20_000).chain((20_000..4_194_304).step_by(997)) {
            let told = time_of(bin_of(ms(millis))).as_millis() as f64;
            let error = (told - millis as f64).abs();
            assert!(error <= 0.5_f64.max(millis as f64 / 16.0), "{millis} ms told as {told}");
        }
        assert_eq!(bin_of(Duration::MAX), BINS - 1);
    }

    #[test]
    fn many_that_count_at_once_lose_nothing_within_a_turn() {
        let times = Times::default();
        times.count(at(1), None, ms(1));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| times.count(at(2), None, ms(50))));
            }
        });
        let halves = times.book.get().unwrap();
        let sum: u32 = halves[1].total.iter().map(|bin| bin.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, 40_001);
    }
}
