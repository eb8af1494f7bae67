//! What a breaker knows as plain data, so that a restart does not forget an ill endpoint.
//!
//! Times are ages and remainders, for the clock of the next process begins elsewhere. Writing it to
//! a file, its version and its checksum are the caller's.
//!
//! Invariant: whatever stands in a snapshot, restoring it neither panics nor makes a breaker that
//! stays open for longer than a day. A rule and a permit are not part of it.

use std::time::Duration;

use crate::{Reason, Rung};

/// A breaker at one moment; see [`Breaker::snapshot`](crate::Breaker::snapshot).
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// How long the breaker's clock has run, over all its lives; buckets of the window are cut by
    /// it.
    pub clock: Duration,
    /// How much time has passed since the snapshot was taken, as far as the caller knows; zero when
    /// it is taken.
    pub away: Duration,
    /// The number of changes of state so far.
    pub epoch: u64,
    /// The exponent of the latest cool-down; `None` when the next one starts from the base.
    pub level: Option<u32>,
    /// How long the fleet has had the endpoint out, if it has.
    pub held_for: Option<Duration>,
    /// Age of the last success that counted.
    pub last_success: Option<Duration>,
    /// The state with what belongs to it.
    pub phase: SavedPhase,
}

/// The state with what belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub enum SavedPhase {
    /// Traffic flows and evidence is gathered.
    Closed(SavedEvidence),
    /// Nothing is sent until the cool-down is over.
    Open {
        /// What is left of the cool-down.
        remaining: Duration,
        /// Why the circuit opened.
        opened_for: Reason,
    },
    /// The ladder is being climbed. Permits that were out are gone with their process.
    HalfOpen {
        /// Why the circuit opened; `None` after a loan to or a release of a circuit that was closed.
        opened_for: Option<Reason>,
        /// Time since half-open began or last admitted something.
        idle: Duration,
        /// How long the rung has been stood on.
        age: Duration,
        /// Where on the ladder.
        rung: Rung,
        /// Successes on the canary rung.
        successes: u32,
        /// Requests that asked on the canary rung.
        asked: u64,
        /// Requests of those that were admitted.
        admitted: u64,
    },
}

/// What was gathered while closed.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedEvidence {
    /// How long the circuit has been closed.
    pub age: Duration,
    /// Faults in a row.
    pub streak: u32,
    /// The length of the window that the buckets are cut from.
    pub window: Duration,
    /// Counts in the window, the oldest first; at most ten.
    pub counts: Vec<SavedCounts>,
    /// Ages of the pieces of slow evidence, the oldest first; at most 16.
    pub slow_pieces: Vec<Duration>,
    /// Age of the latest piece of each kind, in the order of [`SlowKind::ALL`](crate::SlowKind::ALL).
    pub slow_latest: [Option<Duration>; 3],
    /// Times of requests in the window, the oldest first; at most ten.
    pub times: Vec<SavedTimes>,
}

/// The counts of one bucket of the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedCounts {
    /// How long ago the bucket began.
    pub age: Duration,
    /// All requests.
    pub requests: u32,
    /// Those that succeeded.
    pub successes: u32,
    /// The weight of those that failed, in millionths.
    pub fault_millionths: u64,
}

/// The times of one bucket of the window: pairs of a bin's number and its samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedTimes {
    /// How long ago the bucket began.
    pub age: Duration,
    /// Times to the first token.
    pub first_token: Vec<(u16, u32)>,
    /// Times to the end.
    pub total: Vec<(u16, u32)>,
}
