//! How many further attempts a pool may make: a share of its requests, and a few a second in any case.
//!
//! When everything fails, a gateway that tries each request three times sends three times the load, and
//! what was overloaded stays so after its cause is gone (Bronson et al., *Metastable Failures in
//! Distributed Systems*, HotOS 2021). The balance follows Finagle's `RetryBudget`: what the last ten
//! seconds have earned, the floor's reserve of as many seconds included, may be spent at once.
//!
//! Invariants: a first attempt is never charged; a further one is charged when it starts; time that runs
//! back neither earns nor forgets.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The seconds that count, the running one included.
const SECONDS: usize = 10;

/// What one pool has been asked, and what further attempts it has made of late.
#[derive(Debug, Default)]
pub struct Budget {
    /// A plain lock: held to add a number or ten.
    window: Mutex<Window>,
}

#[derive(Debug, Default)]
struct Window {
    /// The newest second; its counts stand at its remainder by [`SECONDS`].
    second: u64,
    requests: [u64; SECONDS],
    further: [u64; SECONDS],
}

impl Budget {
    /// Counts a request. One that is the client's own repetition is a further attempt besides: it is
    /// charged, and never refused.
    pub fn request(&self, now: Duration, is_repetition: bool) {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let place = window.roll(now);
        window.add(place, 1, u64::from(is_repetition));
    }

    /// Charges a further attempt, if one is left. `share` is the share of the requests, 0 to 1; `floor`
    /// what is allowed a second in any case. Returns whether it was.
    pub fn spend(&self, now: Duration, share: f64, floor: u32) -> bool {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let place = window.roll(now);
        let requests: u64 = window.requests.iter().sum();
        let further: u64 = window.further.iter().sum();
        let reserve = f64::from(floor) * SECONDS as f64;
        let is_left = (further + 1) as f64 <= share * requests as f64 + reserve;
        window.add(place, 0, u64::from(is_left));
        is_left
    }
}

impl Window {
    /// Forgets what is too old. Returns the place of the running second.
    fn roll(&mut self, now: Duration) -> usize {
        let second = now.as_secs().max(self.second);
        let passed = usize::try_from(second - self.second).unwrap_or(SECONDS).min(SECONDS);
        for back in 0..passed {
            let place = Self::place(second - back as u64);
            if let (Some(requests), Some(further)) =
                (self.requests.get_mut(place), self.further.get_mut(place))
            {
                (*requests, *further) = (0, 0);
            }
        }
        self.second = second;
        Self::place(second)
    }

    fn place(second: u64) -> usize {
        (second % SECONDS as u64) as usize
    }

    fn add(&mut self, place: usize, requests: u64, further: u64) {
        if let Some(count) = self.requests.get_mut(place) {
            *count += requests;
        }
        if let Some(count) = self.further.get_mut(place) {
            *count += further;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn b10_without_requests_only_the_floor_is_left() {
        let budget = Budget::default();
        let spent = (0..100).filter(|_| budget.spend(at(0), 0.2, 3)).count();
        assert_eq!(spent, 30, "ten seconds of the floor");
        assert!(!budget.spend(at(9_999), 0.2, 3));
        assert!(budget.spend(at(10_000), 0.2, 3));
    }

    #[test]
    fn b10_a_share_of_the_requests_is_left_and_nothing_without_a_share() {
        let budget = Budget::default();
        for _ in 0..100 {
            budget.request(at(0), false);
        }
        assert_eq!((0..100).filter(|_| budget.spend(at(0), 0.2, 0)).count(), 20);
        assert!(!budget.spend(at(0), 0.0, 0));
    }

    #[test]
    fn a_client_that_repeats_itself_is_charged_and_not_refused() {
        let budget = Budget::default();
        for _ in 0..40 {
            budget.request(at(0), true);
        }
        assert!(!budget.spend(at(0), 0.2, 3), "40 are spent, 38 were earned");
    }

    #[test]
    fn time_that_runs_back_earns_nothing() {
        let budget = Budget::default();
        assert_eq!((0..100).filter(|_| budget.spend(at(60_000), 0.0, 1)).count(), 10);
        assert!(!budget.spend(at(1_000), 0.0, 1));
        assert!(!budget.spend(at(69_999), 0.0, 1));
        assert!(budget.spend(at(70_000), 0.0, 1));
    }

    #[test]
    fn u38_whatever_comes_no_more_is_spent_than_was_earned_and_what_was_earned_can_be() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut chance = fastrand::Rng::with_seed(seed);
        for _ in 0..200 {
            let (share, floor) = (chance.f64(), chance.u32(0..4));
            let budget = Budget::default();
            let (mut requests, mut further): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
            let mut now = 0;
            for _ in 0..500 {
                now += if chance.u8(..) < 8 { chance.u64(..15_000) } else { chance.u64(..50) };
                let recent = |all: &[u64]| {
                    all.iter().filter(|then| now / 1_000 - **then / 1_000 < 10).count() as f64
                };
                if chance.bool() {
                    budget.request(at(now), false);
                    requests.push(now);
                } else {
                    let earned = share * recent(&requests) + f64::from(floor) * 10.0;
                    let is_left = recent(&further) + 1.0 <= earned;
                    assert_eq!(budget.spend(at(now), share, floor), is_left, "{now}");
                    further.extend(is_left.then_some(now));
                }
            }
        }
    }
}
