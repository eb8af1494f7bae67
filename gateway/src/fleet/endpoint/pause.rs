//! For how long endpoints are left alone because one of them asked for it.
//!
//! Endpoints of one quota group share one pause: what the provider says to one of them it means for all.
//!
//! Invariants: a shorter pause never shortens a longer one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Endpoint;

/// Until when, and why. Two moments that only grow, each read by itself: a reader that sees the newer
/// of one and the older of the other sees a pause that was there a moment ago.
#[derive(Debug, Default)]
pub(in crate::fleet) struct Pause {
    /// In milliseconds; 0: never.
    until_ms: AtomicU64,
    /// The part of it that is due to a limit on requests or tokens.
    limited_until_ms: AtomicU64,
}

impl Pause {
    /// Pauses for `period`.
    pub(super) fn begin(&self, now: Duration, period: Duration) {
        self.until_ms.fetch_max(millis(now.saturating_add(period)), Ordering::Relaxed);
    }

    /// Pauses for `period` because a limit was reached.
    pub(super) fn begin_limited(&self, now: Duration, period: Duration) {
        let until = millis(now.saturating_add(period));
        self.limited_until_ms.fetch_max(until, Ordering::Relaxed);
        self.until_ms.fetch_max(until, Ordering::Relaxed);
    }

    /// Pauses no longer.
    pub(super) fn end(&self) {
        self.until_ms.store(0, Ordering::Relaxed);
        self.limited_until_ms.store(0, Ordering::Relaxed);
    }

    /// What is left.
    pub(super) fn left(&self, now: Duration) -> Duration {
        Duration::from_millis(self.until_ms.load(Ordering::Relaxed)).saturating_sub(now)
    }

    /// What is left of the part that is due to a limit.
    pub(super) fn limited(&self, now: Duration) -> Duration {
        Duration::from_millis(self.limited_until_ms.load(Ordering::Relaxed)).saturating_sub(now)
    }
}

impl Endpoint {
    /// Leaves the endpoint, and its quota group, out of choosing for `period`: it asked for a pause. A
    /// shorter pause never shortens a longer one.
    pub fn cool(&self, now: Duration, period: Duration) {
        self.pause.begin(now, period);
    }

    /// As [`Self::cool`], because a limit was reached. Returns how long the pause is, which an earlier
    /// one may have made longer.
    pub fn limit(&self, now: Duration, period: Duration) -> Duration {
        let left = self.cooling_for(now);
        self.pause.begin_limited(now, period);
        period.max(left)
    }

    /// Leaves it alone for `period` and marks it: it refused our credential, and until it has served a
    /// request again somebody has to look at its configuration.
    pub fn refuse_credential(&self, now: Duration, period: Duration) {
        self.core.is_misconfigured.store(true, Ordering::Relaxed);
        self.core.shunned.begin(now, period);
    }

    /// As [`Self::refuse_credential`], unless it is the first such refusal since it served a request:
    /// one alone may be about what was asked, and others must not pay for it. Returns whether it is left
    /// alone.
    pub fn deny(&self, now: Duration, period: Duration) -> bool {
        let is_again = self.core.denied.fetch_add(1, Ordering::Relaxed) > 0;
        if is_again {
            self.refuse_credential(now, period);
        }
        is_again
    }

    /// Whether it refused our credential when it was last asked in earnest.
    pub fn is_misconfigured(&self) -> bool {
        self.core.is_misconfigured.load(Ordering::Relaxed)
    }

    /// How much is left of the pause that it asked for because a limit was reached.
    pub fn limited_for(&self, now: Duration) -> Duration {
        self.pause.limited(now)
    }

    /// How much is left of the pause after it refused our credential.
    pub fn shunned_for(&self, now: Duration) -> Duration {
        self.core.shunned.left(now)
    }

    /// How much of a pause is left: one that it asked for, or one after it refused our credential.
    pub fn cooling_for(&self, now: Duration) -> Duration {
        self.pause.left(now).max(self.core.shunned.left(now))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f28_a_longer_pause_wins_and_a_shorter_one_changes_nothing() {
        let (pause, second) = (Pause::default(), Duration::from_secs(1));
        pause.begin_limited(second, second * 3);
        pause.begin_limited(second, second * 6);
        pause.begin_limited(second * 2, second);
        assert_eq!((pause.left(second), pause.limited(second)), (second * 6, second * 6));
        pause.begin(second, second * 9);
        assert_eq!((pause.left(second), pause.limited(second)), (second * 9, second * 6));
        assert!(pause.left(second * 10).is_zero());
    }

    #[test]
    fn a_pause_beyond_all_time_is_one() {
        let pause = Pause::default();
        pause.begin(Duration::MAX, Duration::MAX);
        assert!(!pause.left(Duration::from_secs(1)).is_zero());
    }
}
