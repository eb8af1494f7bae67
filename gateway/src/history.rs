//! What happened lately, endpoint by endpoint, for whoever asks "why is it out?".

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use quorum::EndpointKey;

/// How many entries are kept for each endpoint.
const KEPT: usize = 20;

/// One thing that happened to an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When, on this node's monotonic clock.
    pub at: Duration,
    /// When, in milliseconds since 1970, for people.
    pub wall_millis: u64,
    /// `local` for this node's breaker, `cluster` for the fleet, `operator` for an order.
    pub scope: &'static str,
    /// What, in a few words.
    pub what: String,
}

/// The last entries of each endpoint. The set of endpoints is bounded by the configuration.
#[derive(Default)]
pub struct History(Mutex<BTreeMap<EndpointKey, VecDeque<Entry>>>);

impl History {
    /// Notes that something happened to an endpoint.
    pub fn note(&self, endpoint: &EndpointKey, entry: Entry) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = entries.entry(endpoint.clone()).or_default();
        if entries.len() == KEPT {
            entries.pop_front();
        }
        entries.push_back(entry);
    }

    /// Forgets the endpoints that are not known.
    pub fn retain(&self, is_known: impl Fn(&EndpointKey) -> bool) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|endpoint, _| is_known(endpoint));
    }

    /// The last entries of an endpoint, oldest first.
    pub fn of(&self, endpoint: &EndpointKey) -> Vec<Entry> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(endpoint).map(|entries| entries.iter().cloned().collect()).unwrap_or_default()
    }
}
