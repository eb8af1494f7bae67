//! Which of the endpoints that serve one model are much slower than their siblings.
//!
//! An absolute limit cannot know that a model has become slow for everybody because its prompts have
//! become long. Siblings with the same work can: who takes several times as long as the median of
//! the others is ill, and if most do, it is the load.
//!
//! Invariants:
//! - An endpoint without a sample is neither judged nor used to judge.
//! - At most half of those with a sample are named.

use std::time::Duration;

/// How long one endpoint made its clients wait; see [`Breaker::sample`](crate::Breaker::sample).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The P95 of the time to the first token in the window.
    pub first_token_p95: Duration,
    /// The number of requests it was taken from.
    pub requests: u32,
}

/// Finds those whose P95 exceeds `multiple` times the median of their siblings' and returns their
/// places in `siblings`, in order.
///
/// `siblings` are all endpoints that serve one model, with `None` for one that has too few samples;
/// `multiple` is above 1, and anything else names nobody.
pub fn outliers(siblings: &[Option<Sample>], multiple: f64) -> Vec<usize> {
    if multiple.is_nan() || multiple <= 1.0 {
        return Vec::new();
    }
    let times = siblings.iter().flatten().map(|sample| sample.first_token_p95.as_secs_f64());
    let mut sorted: Vec<f64> = times.collect();
    sorted.sort_by(f64::total_cmp);
    let is_slow =
        |time: f64| median_without(&sorted, time).is_some_and(|median| time > multiple * median);
    let slow: Vec<usize> = siblings
        .iter()
        .enumerate()
        .filter(|(_, sample)| {
            sample.is_some_and(|sample| is_slow(sample.first_token_p95.as_secs_f64()))
        })
        .map(|(place, _)| place)
        .collect();
    if slow.len() * 2 > sorted.len() { Vec::new() } else { slow }
}

/// The median of what remains when one `time` is taken out of the sorted times; of an even number
/// it is the mean of the two in the middle. `None` when nothing remains.
fn median_without(sorted: &[f64], time: f64) -> Option<f64> {
    let removed = sorted.partition_point(|other| *other < time);
    let rest = |place: usize| sorted.get(if place < removed { place } else { place + 1 });
    let left = sorted.len().checked_sub(1).filter(|left| *left > 0)?;
    let (low, high) = (rest((left - 1) / 2)?, rest(left / 2)?);
    Some((low + high) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds; zero stands for an endpoint without a sample.
    fn named(seconds: &[u64], multiple: f64) -> Vec<usize> {
        let sample = |seconds: &u64| {
            let first_token_p95 = Duration::from_secs(*seconds);
            (*seconds > 0).then_some(Sample { first_token_p95, requests: 20 })
        };
        outliers(&seconds.iter().map(sample).collect::<Vec<_>>(), multiple)
    }

    #[test]
    fn who_takes_several_times_as_long_as_the_others_is_named() {
        assert_eq!(named(&[2, 2, 7, 2], 3.0), [2]);
        assert_eq!(named(&[2, 2, 6, 2], 3.0), [] as [usize; 0]);
        assert_eq!(named(&[9, 2, 2, 9, 2, 2], 3.0), [0, 3]);
    }

    #[test]
    fn an_endpoint_is_not_its_own_sibling() {
        assert_eq!(named(&[2, 7], 3.0), [1]);
        // The middle one is judged by the median of 2 and 100.
        assert_eq!(named(&[2, 7, 100], 1.5), [2]);
        assert_eq!(named(&[7], 3.0), [] as [usize; 0]);
        assert_eq!(named(&[], 3.0), [] as [usize; 0]);
    }

    #[test]
    fn without_samples_nobody_is_judged_and_nobody_judges() {
        assert_eq!(named(&[0, 7, 0], 3.0), [] as [usize; 0]);
        assert_eq!(named(&[0, 2, 0, 7, 0], 3.0), [3]);
    }

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_the_middle_two() {
        assert_eq!(named(&[1, 1, 4, 6, 9, 9, 10], 2.0), [] as [usize; 0]);
        assert_eq!(named(&[1, 1, 4, 6, 9, 9, 11], 2.0), [6]);
        assert_eq!(named(&[1, 4, 4, 6, 6, 9, 9, 9, 11], 2.0), [] as [usize; 0]);
    }

    #[test]
    fn if_most_are_slow_it_is_the_load() {
        assert_eq!(named(&[2, 2, 9, 9, 9], 1.5), [] as [usize; 0]);
        assert_eq!(named(&[2, 2, 2, 9, 9], 1.5), [3, 4]);
        assert_eq!(named(&[9, 9, 9, 9], 3.0), [] as [usize; 0]);
    }

    #[test]
    fn at_most_half_are_named_whatever_the_times() {
        let mut state = 3_u64;
        for size in 0..40 {
            let mut times = Vec::new();
            for _ in 0..size {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                times.push((state >> 33) % 50);
            }
            let judged = times.iter().filter(|time| **time > 0).count();
            let named = named(&times, 1.01 + (state >> 60) as f64 / 4.0);
            assert!(named.len() * 2 <= judged, "{times:?}: {named:?}");
            assert!(named.iter().all(|place| times[*place] > 0));
        }
    }

    #[test]
    fn a_multiple_that_is_none_names_nobody() {
        for multiple in [1.0, 0.0, -2.0, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(named(&[1, 1, 1, 100], multiple), [] as [usize; 0], "{multiple}");
        }
    }
}
