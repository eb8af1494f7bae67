//! How many frames a peer may send.
//!
//! One bucket of tokens a peer, whatever the number of its connections. An honest member sends a
//! few frames a second, and a burst when much changes at once.
//!
//! # Invariants
//! - No more than [`PEERS_MAX`](super::PEERS_MAX) buckets; beyond them strangers wait until a
//!   bucket is full again and can be forgotten.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Instant;

use super::{PEERS_MAX, locked};

/// Frames a second, in the long run.
const FRAMES_PER_SECOND: f64 = 256.0;

/// Frames at once.
const FRAMES_AT_ONCE: f64 = 512.0;

/// The buckets of all peers, by name, or by address where peers have no names.
#[derive(Default)]
pub(super) struct Rates {
    buckets: Mutex<HashMap<String, Bucket>>,
}

struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    fn fill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + elapsed * FRAMES_PER_SECOND).min(FRAMES_AT_ONCE);
        self.at = now;
    }
}

impl Rates {
    /// Takes a token of the peer's, if it has one.
    pub(super) fn take(&self, peer: &str, now: Instant) -> bool {
        let mut buckets = locked(&self.buckets);
        if !buckets.contains_key(peer) {
            if buckets.len() >= PEERS_MAX {
                buckets.values_mut().for_each(|bucket| bucket.fill(now));
                buckets.retain(|_, bucket| bucket.tokens < FRAMES_AT_ONCE);
            }
            if buckets.len() >= PEERS_MAX {
                return false;
            }
            buckets.insert(peer.to_owned(), Bucket { tokens: FRAMES_AT_ONCE, at: now });
        }
        let Some(bucket) = buckets.get_mut(peer) else {
            return false;
        };
        bucket.fill(now);
        if bucket.tokens < 1.0 {
            return false;
        }
        bucket.tokens -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_peer_that_floods_does_not_stop_another() {
        let rates = Rates::default();
        let now = Instant::now();
        let taken = (0..10_000).filter(|_| rates.take("flood", now)).count();
        assert_eq!(taken, FRAMES_AT_ONCE as usize);
        assert!(rates.take("quiet", now));
        assert!(rates.take("flood", now + Duration::from_secs(1)));
    }

    #[test]
    fn a_full_bucket_makes_room_for_a_stranger() {
        let rates = Rates::default();
        let now = Instant::now();
        for peer in 0..PEERS_MAX {
            assert!(rates.take(&peer.to_string(), now));
        }
        assert!(!rates.take("stranger", now));
        assert!(rates.take("stranger", now + Duration::from_secs(1)));
    }
}
