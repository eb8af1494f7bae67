//! What all members together have seen of an endpoint: is it enough to convict?

use std::time::Duration;

/// The knobs by which the pooled evidence convicts; the same as the breaker's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conviction {
    /// This many weighted faults with no success between them convict.
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
