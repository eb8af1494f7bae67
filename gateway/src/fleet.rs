//! All pools and endpoints of this node with their breakers: which endpoint takes this request?
//!
//! The fleet knows neither the runtime nor HTTP. It joins three judges: the endpoint's own breaker,
//! the verdict of the cluster (held by the breaker), and the operator's order, which outranks both.
//! Every admission is a guard: dropped without a verdict it settles as neutral and frees its slot.

mod choice;
mod endpoint;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quorum::EndpointKey;

pub use choice::{Asker, Chosen, Tried, Unavailable};
pub use endpoint::{Admission, Endpoint, Happening, Sink, Tenant, Tenants};

use crate::config::{self, OnAllOpen, Timeouts};
use crate::metrics::{Meters, PoolMeters};

/// The endpoints that serve one model.
pub struct Pool {
    /// The model's name, which is also the pool's.
    pub name: String,
    /// Other names under which clients may ask for it.
    pub aliases: Vec<String>,
    /// What to do when every endpoint is presumed dead.
    pub on_all_open: OnAllOpen,
    /// How long to wait for what.
    pub timeouts: Timeouts,
    /// Whether streams are asked to report their usage where the client did not say.
    pub include_usage: bool,
    /// The endpoints, at least one.
    pub endpoints: Vec<Arc<Endpoint>>,
    /// What is counted per pool.
    pub meters: PoolMeters,
    /// The longest prompt that any of its endpoints takes for small, in tokens.
    small_tokens_max: u64,
    /// When a small request last asked, in milliseconds; 0: never.
    small_asked_ms: AtomicU64,
}

/// Small requests that asked within this are a sign that more will.
const SMALL_ASKED_WITHIN: Duration = Duration::from_secs(10);

/// How often that is noted.
const SMALL_NOTED_EVERY_MS: u64 = 1_000;

impl Pool {
    /// Notes that a request of about `prompt_tokens` asks.
    fn note_small(&self, now: Duration, prompt_tokens: u64) {
        if prompt_tokens <= self.small_tokens_max {
            let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
            // Written once a second at most, so that the cores do not take the line from each other.
            let known = self.small_asked_ms.load(Ordering::Relaxed);
            if known == 0 || now > known.saturating_add(SMALL_NOTED_EVERY_MS) {
                self.small_asked_ms.store(now.max(1), Ordering::Relaxed);
            }
        }
    }

    /// Whether requests small enough for a canary have asked of late.
    pub fn has_small(&self, now: Duration) -> bool {
        let asked = self.small_asked_ms.load(Ordering::Relaxed);
        let since = now.saturating_sub(Duration::from_millis(asked));
        asked > 0 && since < SMALL_ASKED_WITHIN
    }

    /// Opens the endpoints that are much slower than their siblings, where the rule asks for it.
    fn compare(&self, now: Duration) {
        let multiple_of = |one: &Endpoint| one.config.rule.slow.relative;
        let mut multiples: Vec<f64> =
            self.endpoints.iter().filter_map(|one| multiple_of(one)).collect();
        if multiples.is_empty() {
            return;
        }
        multiples.sort_by(f64::total_cmp);
        multiples.dedup();
        let samples: Vec<_> = self.endpoints.iter().map(|one| one.sample(now)).collect();
        for multiple in multiples {
            let outliers = breaker::relative::outliers(&samples, multiple).into_iter();
            let slow = outliers.filter_map(|index| self.endpoints.get(index));
            for endpoint in slow.filter(|one| multiple_of(one) == Some(multiple)) {
                endpoint.convict_relative(now);
            }
        }
    }
}

/// All pools of this node.
pub struct Fleet {
    pools: Vec<Arc<Pool>>,
    by_model: HashMap<String, usize>,
    by_key: HashMap<EndpointKey, (usize, usize)>,
}

impl Fleet {
    /// Builds the pools of a checked configuration; `sink` hears of every transition.
    pub fn new(pools: &[config::Pool], meters: &Meters, sink: &Sink) -> Self {
        let mut fleet =
            Self { pools: Vec::new(), by_model: HashMap::new(), by_key: HashMap::new() };
        for (pool_index, pool) in pools.iter().enumerate() {
            for name in std::iter::once(&pool.name).chain(&pool.aliases) {
                fleet.by_model.insert(name.clone(), pool_index);
            }
            let mut endpoints = Vec::with_capacity(pool.endpoints.len());
            for (index, endpoint) in pool.endpoints.iter().enumerate() {
                let key = EndpointKey::new(&format!("{}/{}", pool.name, endpoint.name));
                fleet.by_key.insert(key.clone(), (pool_index, index));
                endpoints.push(Arc::new(Endpoint::new(key, index, endpoint, meters, sink)));
            }
            fleet.pools.push(Arc::new(Pool {
                name: pool.name.clone(),
                aliases: pool.aliases.clone(),
                on_all_open: pool.on_all_open,
                timeouts: pool.timeouts.clone(),
                include_usage: pool.include_usage,
                endpoints,
                meters: meters.pool(&pool.name),
                small_tokens_max: pool
                    .endpoints
                    .iter()
                    .map(|endpoint| endpoint.rule.half_open.max_prompt_tokens)
                    .max()
                    .unwrap_or(0),
                small_asked_ms: AtomicU64::new(0),
            }));
        }
        fleet
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
        for pool in &self.pools {
            for endpoint in &pool.endpoints {
                endpoint.tick(now);
            }
            pool.compare(now);
        }
    }

    /// All endpoints, with their pools.
    pub fn endpoints(&self) -> impl Iterator<Item = (&Arc<Pool>, &Arc<Endpoint>)> {
        self.pools.iter().flat_map(|pool| pool.endpoints.iter().map(move |one| (pool, one)))
    }
}
