//! Requests that were the last thing more than one endpoint did: nobody asks a third with them.
//!
//! One prompt that crashes an engine is passed from engine to engine by a gateway that means well, and
//! by clients that repeat it, until the pool is gone. So a request after which two endpoints broke
//! off is not tried at a third, and for a while its like is asked once and not
//! tried elsewhere. Its failures still count: where every request fails alike, the endpoints are sick.
//!
//! Invariants: only digests are kept, keyed by chance, so that nobody can make two requests meet; at
//! most [`HELD_MAX`]; a digest is forgotten after [`HELD_FOR`] or when its like has succeeded.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// Whether any is held: almost always none, and then no request is digested.
    is_any: AtomicBool,
    /// Until when, by digest. The lock is held for one look-up and never over an await.
    held: Mutex<HashMap<u64, Duration>>,
    chance: RandomState,
}

impl Quarantine {
    /// Whether the like of `body` is held for deadly.
    pub(super) fn holds(&self, now: Duration, body: &[u8]) -> bool {
        self.is_any.load(Ordering::Relaxed)
            && self.held().get(&self.chance.hash_one(body)).is_some_and(|until| *until > now)
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
        held.insert(digest, now + HELD_FOR);
        self.is_any.store(true, Ordering::Relaxed);
    }

    /// Forgets the like of `body`: it has been answered.
    pub(super) fn forgive(&self, body: &[u8]) {
        if self.is_any.load(Ordering::Relaxed) {
            let mut held = self.held();
            held.remove(&self.chance.hash_one(body));
            self.is_any.store(!held.is_empty(), Ordering::Relaxed);
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
    }

    #[test]
    fn u31_what_has_been_answered_is_forgiven() {
        let quarantine = Quarantine::default();
        quarantine.hold(NOW, b"death");
        quarantine.forgive(b"life");
        assert!(quarantine.holds(NOW, b"death"));
        quarantine.forgive(b"death");
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
