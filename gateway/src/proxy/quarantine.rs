//! Requests that were the last thing more than one endpoint did: nobody asks a third with them.
//!
//! One prompt that crashes an engine is passed from engine to engine by a gateway that means well, and
//! by clients that repeat it, until the pool is gone. So a request after which two endpoints broke
//! off is not tried at a third, and for a while its like is asked once and not tried elsewhere. What
//! that one does says nothing new: its fault counts no more, or a client that asks again and again would
//! open breaker after breaker. Once a minute it counts anew: where every request fails alike, the
//! endpoints are sick.
//!
//! Invariants: only digests are kept, keyed by chance, so that nobody can make two requests meet; at
//! most [`HELD_MAX`]; a digest is forgotten after [`HELD_FOR`] or when its like has succeeded.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// After this many endpoints have died of a request no further one is asked.
pub(super) const DEATHS_MAX: u32 = 2;
/// How long the like of a deadly request is asked once only.
const HELD_FOR: Duration = Duration::from_secs(60);
/// Most digests kept; beyond it the oldest is forgotten.
const HELD_MAX: usize = 1_024;

/// The requests that are held for deadly.
#[derive(Default)]
pub struct Quarantine {
    /// Until when any is held, in milliseconds: almost always none is, and then no request is digested.
    until_ms: AtomicU64,
    /// Until when, by digest. The lock is held for one look-up, never for a digest nor over an await.
    held: Mutex<HashMap<u64, Duration>>,
    chance: RandomState,
}

impl Quarantine {
    /// Whether the like of `body` is held for deadly.
    pub(super) fn holds(&self, now: Duration, body: &[u8]) -> bool {
        if !self.holds_any(now) {
            return false;
        }
        let digest = self.chance.hash_one(body);
        self.held().get(&digest).is_some_and(|until| *until > now)
    }

    fn holds_any(&self, now: Duration) -> bool {
        now < Duration::from_millis(self.until_ms.load(Ordering::Relaxed))
    }

    /// Holds the like of `body` for deadly.
    pub(super) fn hold(&self, now: Duration, body: &[u8]) {
        let digest = self.chance.hash_one(body);
        let mut held = self.held();
        held.retain(|_, until| *until > now);
        if held.len() >= HELD_MAX {
            let oldest = held.iter().min_by_key(|(_, until)| **until).map(|(digest, _)| *digest);
            oldest.map(|digest| held.remove(&digest));
        }
        let until = now + HELD_FOR;
        held.insert(digest, until);
        drop(held);
        let until_ms = u64::try_from(until.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        self.until_ms.fetch_max(until_ms, Ordering::Relaxed);
    }

    /// Forgets the like of `body`: it has been answered.
    pub(super) fn forgive(&self, now: Duration, body: &[u8]) {
        if self.holds_any(now) {
            let digest = self.chance.hash_one(body);
            self.held().remove(&digest);
        }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<u64, Duration>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    #[test]
    fn u31_a_deadly_request_is_held_for_a_minute_and_its_neighbours_are_not() {
        let quarantine = Quarantine::default();
        assert!(!quarantine.holds(NOW, b"death"));
        quarantine.hold(NOW, b"death");
        assert!(quarantine.holds(NOW + HELD_FOR - Duration::from_millis(1), b"death"));
        assert!(!quarantine.holds(NOW, b"life"));
        assert!(!quarantine.holds(NOW + HELD_FOR, b"death"));
        assert!(!quarantine.holds_any(NOW + HELD_FOR), "nothing is digested any more");
    }

    #[test]
    fn u31_what_has_been_answered_is_forgiven() {
        let quarantine = Quarantine::default();
        quarantine.hold(NOW, b"death");
        quarantine.forgive(NOW, b"life");
        assert!(quarantine.holds(NOW, b"death"));
        quarantine.forgive(NOW, b"death");
        assert!(!quarantine.holds(NOW, b"death"));
    }

    #[test]
    fn no_more_than_the_bound_are_held_and_the_oldest_goes_first() {
        let quarantine = Quarantine::default();
        for number in 0..=HELD_MAX as u64 {
            quarantine.hold(NOW + Duration::from_micros(number), &number.to_le_bytes());
        }
        assert_eq!(quarantine.held().len(), HELD_MAX);
        assert!(!quarantine.holds(NOW, &0_u64.to_le_bytes()));
        assert!(quarantine.holds(NOW, &1_u64.to_le_bytes()));
    }
}
