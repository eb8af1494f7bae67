//! What all members together have seen of an endpoint: is it enough to convict?
//!
//! Low traffic on each of many nodes convicts nothing by any one node's thresholds; added up it
//! does. Faults and requests add up as they are. Slow evidence does not: one hiccup that thirty
//! nodes saw is one piece.
//!
//! Invariant: the order of the windows changes nothing.

use std::time::Duration;

use crate::statement::{Evidence, SLOW_PIECES_MAX, Window};

/// The knobs by which the pooled evidence convicts; the same as the breaker's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conviction {
    /// This many weighted faults with no success among them convict.
    pub failure_threshold: u32,
    /// This share of weighted faults among all requests convicts, in thousandths.
    pub failure_ratio_milli: u32,
    /// The share is judged from this many requests on.
    pub min_requests: u32,
    /// How far back evidence counts.
    pub window: Duration,
    /// Slow evidence of several members closer together than this is one piece.
    pub dedup: Duration,
    /// This many pieces of slow evidence convict.
    pub confirmations: u32,
}

/// By what the pool convicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// Nothing but faults.
    FaultsInARow,
    /// The share of faults.
    FaultRatio,
    /// Slow evidence.
    Slow,
}

impl Conviction {
    /// Judges `windows` together, each with how long ago it was stated. Returns the ground if they
    /// convict, and what they add up to.
    pub fn judge<'a>(
        &self,
        windows: impl Iterator<Item = (&'a Window, Duration)>,
    ) -> (Option<Ground>, Evidence) {
        let mut pool = Evidence::default();
        let mut slow = Vec::new();
        for (window, ago) in windows.filter(|(_, ago)| *ago <= self.window) {
            pool.requests = pool.requests.saturating_add(window.requests);
            pool.faults_milli = pool.faults_milli.saturating_add(window.faults_milli);
            pool.successes = pool.successes.saturating_add(window.successes);
            slow.extend(window.slow.iter().map(|age| age.saturating_add(ago)));
        }
        slow.retain(|age| *age <= self.window);
        pool.slow_pieces = pieces(slow, self.dedup);
        (self.ground(&pool), pool)
    }

    fn ground(&self, pool: &Evidence) -> Option<Ground> {
        let faults = u64::from(pool.faults_milli);
        let is_failing = faults > 0 && pool.requests >= self.min_requests;
        let in_a_row = faults > 0 && pool.successes == 0;
        if in_a_row && faults >= u64::from(self.failure_threshold) * 1_000 {
            Some(Ground::FaultsInARow)
        } else if is_failing && self.is_share_reached(pool.faults_milli, pool.requests) {
            Some(Ground::FaultRatio)
        } else if pool.slow_pieces > 0 && pool.slow_pieces >= self.confirmations {
            Some(Ground::Slow)
        } else {
            None
        }
    }

    /// What a vote rests on as a window that was stated this moment. The ages of slow pieces are
    /// not carried; they were no closer together than `dedup`.
    pub(crate) fn window_of(&self, evidence: &Evidence) -> Window {
        let Evidence { requests, faults_milli, successes, slow_pieces } = *evidence;
        let pieces = (0..slow_pieces).take(SLOW_PIECES_MAX);
        let slow = pieces.map(|piece| self.dedup.saturating_mul(piece)).collect();
        Window { requests, faults_milli, successes, slow, ..Window::default() }
    }

    /// Whether this many faults of this many requests are the share that convicts.
    pub(crate) fn is_share_reached(&self, faults_milli: u32, requests: u32) -> bool {
        u64::from(faults_milli) >= u64::from(requests) * u64::from(self.failure_ratio_milli)
    }
}

/// How many pieces there are among evidence of these ages, none closer to the next than `dedup`:
/// the most that can be told apart.
fn pieces(mut ages: Vec<Duration>, dedup: Duration) -> u32 {
    ages.sort_unstable();
    let mut last: Option<Duration> = None;
    let mut count = 0;
    for age in ages {
        if last.is_none_or(|last| age >= last.saturating_add(dedup)) {
            last = Some(age);
            count += 1;
        }
    }
    count
}

impl Window {
    /// Whether it holds anything that speaks against the endpoint.
    pub fn is_bad(&self) -> bool {
        self.faults_milli > 0 || !self.slow.is_empty()
    }
}

impl Ground {
    /// The reason given with a vote.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FaultsInARow => "the fleet saw nothing but faults",
            Self::FaultRatio => "the fleet's share of faults",
            Self::Slow => "the fleet's slow evidence",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> Conviction {
        Conviction {
            failure_threshold: 4,
            failure_ratio_milli: 500,
            min_requests: 10,
            window: Duration::from_secs(30),
            dedup: Duration::from_secs(5),
            confirmations: 2,
        }
    }

    fn counts(requests: u32, faults: u32) -> Window {
        let successes = requests - faults;
        Window { requests, faults_milli: faults * 1_000, successes, ..Window::default() }
    }

    fn slow(ages: &[u64]) -> Window {
        let slow = ages.iter().map(|age| Duration::from_secs(*age)).collect();
        Window { requests: 9, successes: 9, slow, ..Window::default() }
    }

    fn judged(windows: &[Window]) -> Option<Ground> {
        rule().judge(windows.iter().map(|window| (window, Duration::ZERO))).0
    }

    #[test]
    fn one_fault_on_each_of_four_nodes_convicts_and_on_three_does_not() {
        assert_eq!(judged(&vec![counts(1, 1); 3]), None);
        assert_eq!(judged(&vec![counts(1, 1); 4]), Some(Ground::FaultsInARow));
    }

    #[test]
    fn one_success_anywhere_breaks_the_row() {
        let mut windows = vec![counts(1, 1); 4];
        windows.push(counts(1, 0));
        assert_eq!(judged(&windows), None);
    }

    #[test]
    fn half_of_all_requests_convicts_from_the_least_number_on() {
        assert_eq!(judged(&[counts(4, 4), counts(5, 1)]), None);
        assert_eq!(judged(&[counts(4, 4), counts(6, 1)]), Some(Ground::FaultRatio));
        assert_eq!(judged(&[counts(4, 4), counts(7, 1)]), None);
    }

    #[test]
    fn a_hiccup_that_thirty_nodes_saw_is_one_piece() {
        assert_eq!(judged(&vec![slow(&[1]); 30]), None);
        assert_eq!(judged(&[slow(&[1]), slow(&[4])]), None);
        assert_eq!(judged(&[slow(&[1]), slow(&[6])]), Some(Ground::Slow));
    }

    #[test]
    fn evidence_older_than_the_window_is_gone() {
        let windows = [slow(&[1]), slow(&[20])];
        let told = |ago| {
            let agos = [Duration::ZERO, Duration::from_secs(ago)];
            rule().judge(windows.iter().zip(agos)).0
        };
        assert_eq!(told(0), Some(Ground::Slow));
        assert_eq!(told(11), None);
    }
}
