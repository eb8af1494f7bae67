//! All pools and endpoints of this node with their breakers: which endpoint takes this request?
//!
//! The fleet knows neither the runtime nor HTTP. It joins three judges: the endpoint's own breaker,
//! the verdict of the cluster (held by the breaker), and the operator's order, which outranks both.
//! Every admission is a guard: dropped without a verdict it settles as neutral and frees its slot.

mod budget;
mod choice;
mod endpoint;
mod heir;
mod pool;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use quorum::EndpointKey;

pub use budget::Budget;
pub use choice::{Asker, Chosen, Tried, Unavailable};
use endpoint::Pause;
pub use endpoint::{
    Admission, Endpoint, Happening, Obstacle, Percentiles, Sink, Tenant, Tenants, TimesView,
};
pub use heir::{Changes, Heir};
pub use pool::Pool;

use crate::config;
use crate::limits::Share;
use crate::metrics::Meters;

/// All pools of this node.
pub struct Fleet {
    pools: Vec<Arc<Pool>>,
    by_model: HashMap<String, usize>,
    by_key: HashMap<EndpointKey, (usize, usize)>,
    /// The pauses of the quota groups; bounded by the configured names.
    pauses: HashMap<String, Arc<Pause>>,
    /// When time last passed, in milliseconds; [`u64::MAX`]: it never has.
    ticked_ms: AtomicU64,
    /// Which part of every limit this node holds.
    share: Arc<Share>,
    /// Whether requests for models are refused.
    is_barred: Arc<AtomicBool>,
}

impl Fleet {
    /// Builds the pools of a checked configuration; `sink` hears of every transition.
    pub fn new(pools: &[config::Pool], meters: &Meters, sink: &Sink) -> Self {
        let nothing = Self {
            pools: Vec::new(),
            by_model: HashMap::new(),
            by_key: HashMap::new(),
            pauses: HashMap::new(),
            ticked_ms: AtomicU64::new(u64::MAX),
            share: Arc::default(),
            is_barred: Arc::default(),
        };
        nothing.succeeded(pools, meters, sink).0
    }

    /// Which part of every limit this node holds, callers' and models' as well as endpoints'; the whole
    /// until the cluster says another.
    pub fn share(&self) -> &Arc<Share> {
        &self.share
    }

    /// Refuses all requests for models from here on, or no longer: what decides about the endpoints is
    /// away, and the configuration wants none to be served then.
    pub fn bar(&self, is_barred: bool) {
        self.is_barred.store(is_barred, Ordering::Relaxed);
    }

    /// Whether all requests for models are refused; read by each request, under no lock.
    pub fn is_barred(&self) -> bool {
        self.is_barred.load(Ordering::Relaxed)
    }

    /// The pool that serves `model`, by its name or an alias.
    pub fn pool(&self, model: &str) -> Option<&Arc<Pool>> {
        self.by_model.get(model).and_then(|index| self.pools.get(*index))
    }

    /// All pools, in the order of the configuration.
    pub fn pools(&self) -> &[Arc<Pool>] {
        &self.pools
    }

    /// An endpoint with its pool, by key.
    pub fn endpoint(&self, key: &EndpointKey) -> Option<(&Arc<Pool>, &Arc<Endpoint>)> {
        let (pool, endpoint) = self.by_key.get(key)?;
        let pool = self.pools.get(*pool)?;
        Some((pool, pool.endpoints.get(*endpoint)?))
    }

    /// Lets time pass for every endpoint, and compares those that serve one model with each other.
    pub fn tick(&self, now: Duration) {
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX - 1);
        let before = self.ticked_ms.swap(now_ms, Ordering::Relaxed);
        let passed = Duration::from_millis(now_ms.saturating_sub(before));
        for pool in &self.pools {
            for endpoint in &pool.endpoints {
                endpoint.tick(now);
            }
            pool.compare(now);
            pool.measure(now, passed);
        }
    }

    /// All endpoints, with their pools.
    pub fn endpoints(&self) -> impl Iterator<Item = (&Arc<Pool>, &Arc<Endpoint>)> {
        self.pools.iter().flat_map(|pool| pool.endpoints.iter().map(move |one| (pool, one)))
    }
}
