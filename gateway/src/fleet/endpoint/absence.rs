//! For how much of the last hour an endpoint was out of this node's rotation.
//!
//! It is looked at whenever time passes, ten times a second. An endpoint that is in costs one read then.
//!
//! Invariants: the share is that of the last hour to a minute, or of the time since it was first looked
//! at if that is shorter; it lies between 0 and 1.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Endpoint;

const MINUTE_MS: u64 = 60_000;
/// As many minutes as are remembered, the one that runs among them.
const MINUTES: usize = 60;
/// [`Absence::began_ms`] before the first look.
const NEVER: u64 = u64::MAX;

/// When an endpoint was out.
#[derive(Debug)]
pub(super) struct Absence {
    /// When it was first looked at, in milliseconds.
    began_ms: AtomicU64,
    /// Whether it was out when it was last looked at.
    is_out: AtomicBool,
    /// A plain lock: held for a few additions, and only while it is out or was until just before.
    minutes: Mutex<Minutes>,
}

#[derive(Debug)]
struct Minutes {
    /// How many milliseconds of each minute it was out, in a ring.
    out_ms: [u32; MINUTES],
    /// The minute that runs.
    newest: u64,
    /// Up to when its being out is counted, in milliseconds.
    counted_ms: u64,
}

impl Default for Absence {
    fn default() -> Self {
        let minutes = Minutes { out_ms: [0; MINUTES], newest: 0, counted_ms: 0 };
        Self {
            began_ms: AtomicU64::new(NEVER),
            is_out: AtomicBool::new(false),
            minutes: Mutex::new(minutes),
        }
    }
}

impl Absence {
    /// Notes whether it is out at `now`.
    pub(super) fn note(&self, now: Duration, is_out: bool) {
        let now = millis(now);
        if self.began_ms.load(Ordering::Relaxed) == NEVER {
            self.began_ms.store(now.min(NEVER - 1), Ordering::Relaxed);
        }
        // Read first, so that the line is written only when something changes.
        let was_out = self.is_out.load(Ordering::Relaxed);
        if !was_out && !is_out {
            return;
        }
        let mut minutes = self.lock();
        if was_out {
            minutes.count_to(now);
        }
        minutes.counted_ms = minutes.counted_ms.max(now);
        drop(minutes);
        if was_out != is_out {
            self.is_out.store(is_out, Ordering::Relaxed);
        }
    }

    /// The share at `now`.
    fn share(&self, now: Duration) -> f64 {
        let now = millis(now);
        let began = self.began_ms.load(Ordering::Relaxed);
        let mut minutes = self.lock();
        if self.is_out.load(Ordering::Relaxed) {
            minutes.count_to(now);
        }
        minutes.turn_to(now / MINUTE_MS);
        let out: u64 = minutes.out_ms.iter().copied().map(u64::from).sum();
        let remembered = (MINUTES as u64 - 1) * MINUTE_MS + now % MINUTE_MS;
        let span = now.saturating_sub(began).min(remembered).max(1);
        (out as f64 / span as f64).min(1.0)
    }

    fn lock(&self) -> MutexGuard<'_, Minutes> {
        self.minutes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Minutes {
    /// Counts it as out until `now`.
    fn count_to(&mut self, now: u64) {
        // What is older than the ring is not counted, so that a long sleep costs no more than an hour.
        let oldest = (now / MINUTE_MS).saturating_sub(MINUTES as u64 - 1) * MINUTE_MS;
        let mut from = self.counted_ms.max(oldest);
        while from < now {
            let minute = from / MINUTE_MS;
            let to = now.min((minute + 1) * MINUTE_MS);
            self.turn_to(minute);
            if let Some(out) = self.out_ms.get_mut((minute % MINUTES as u64) as usize) {
                // At most a minute, which fits.
                *out = out.saturating_add((to - from) as u32);
            }
            from = to;
        }
        self.counted_ms = self.counted_ms.max(now);
    }

    /// Empties what the minutes up to this one take the place of.
    fn turn_to(&mut self, minute: u64) {
        let passed = minute.saturating_sub(self.newest).min(MINUTES as u64);
        for step in 0..passed {
            let place = ((minute - step) % MINUTES as u64) as usize;
            if let Some(out) = self.out_ms.get_mut(place) {
                *out = 0;
            }
        }
        self.newest = self.newest.max(minute);
    }
}

impl Endpoint {
    /// For which share of the last hour, or of the time since the first look if that is shorter, this
    /// node had it out of rotation: 0 to 1.
    pub fn out_share(&self, now: Duration) -> f64 {
        self.core.absence.share(now)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn near(share: f64, wanted: f64) -> bool {
        (share - wanted).abs() < 0.02
    }

    #[test]
    fn an_endpoint_that_was_never_out_has_no_share() {
        let absence = Absence::default();
        assert_eq!(absence.share(at(5)), 0.0, "it was never looked at");
        absence.note(at(5), false);
        assert_eq!(absence.share(at(4_000)), 0.0);
    }

    #[test]
    fn a_young_process_tells_the_share_of_its_life() {
        let absence = Absence::default();
        absence.note(at(1_000), false);
        absence.note(at(1_060), true);
        assert!(near(absence.share(at(1_120)), 0.5), "{absence:?}");
        absence.note(at(1_120), false);
        assert!(near(absence.share(at(1_240)), 0.25), "{absence:?}");
    }

    #[test]
    fn what_is_older_than_an_hour_counts_no_more() {
        let absence = Absence::default();
        absence.note(at(0), true);
        absence.note(at(1_800), false);
        assert!(near(absence.share(at(3_600)), 0.5), "{absence:?}");
        assert!(near(absence.share(at(4_500)), 0.25), "{absence:?}");
        assert_eq!(absence.share(at(5_401)), 0.0);
        absence.note(at(10_000), true);
        absence.note(at(10_036), false);
        assert!(near(absence.share(at(10_036)), 0.01), "{absence:?}");
    }

    #[test]
    fn looking_often_or_once_after_a_long_sleep_comes_to_the_same() {
        let (often, once) = (Absence::default(), Absence::default());
        (0..36_000).for_each(|step| often.note(at(500) + Duration::from_millis(step * 100), true));
        once.note(at(500), true);
        let now = at(500) + Duration::from_millis(3_599_900);
        assert!(near(often.share(now), 1.0), "{often:?}");
        assert!(near(once.share(now), 1.0), "{once:?}");
        assert!(near(once.share(at(1_000_000)), 1.0), "{once:?}");
    }

    #[test]
    fn time_that_runs_back_changes_nothing() {
        let absence = Absence::default();
        absence.note(at(100), true);
        absence.note(at(50), true);
        absence.note(at(200), false);
        assert!(near(absence.share(at(200)), 1.0), "{absence:?}");
        assert!(absence.share(at(10)) <= 1.0);
    }
}
