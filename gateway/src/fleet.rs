//! All pools and endpoints of this node with their breakers: which endpoint takes this request?
//!
//! The fleet knows neither the runtime nor HTTP. It joins three judges: the endpoint's own breaker,
//! the verdict of the cluster (held by the breaker), and the operator's order, which outranks both.
//! Every admission is a guard: dropped without a verdict it settles as neutral and frees its slot.

mod budget;
mod choice;
mod endpoint;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use quorum::EndpointKey;

pub use budget::Budget;
use choice::Group;
pub use choice::{Asker, Chosen, Tried, Unavailable};
use endpoint::Pause;
pub use endpoint::{Admission, Endpoint, Happening, Obstacle, Sink, Tenant, Tenants};

use crate::config::{self, OnAllOpen, Policy, Timeouts};
use crate::limits::{Allowance, Share};
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
    /// The pools that are asked in this order when nothing is left in this one.
    pub fallback: Vec<String>,
    /// What further attempts its requests may make.
    pub budget: Budget,
    /// What is counted per pool.
    pub meters: PoolMeters,
    /// How an endpoint is chosen within a group.
    policy: Policy,
    /// The endpoints by priority.
    groups: Vec<Group>,
    /// Whether requests pass through to endpoints that are presumed dead, and somebody was told.
    is_degraded: AtomicBool,
    /// How long every endpoint has been out, all times together, in milliseconds.
    all_open_ms: AtomicU64,
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
    fn new(config: &config::Pool, endpoints: Vec<Arc<Endpoint>>, meters: &Meters) -> Self {
        let small = endpoints.iter().map(|one| one.config.rule.half_open.max_prompt_tokens);
        Self {
            name: config.name.clone(),
            aliases: config.aliases.clone(),
            on_all_open: config.on_all_open,
            timeouts: config.timeouts.clone(),
            include_usage: config.include_usage,
            fallback: config.fallback.clone(),
            budget: Budget::default(),
            meters: meters.pool(&config.name),
            policy: config.policy,
            groups: Group::all(&endpoints),
            is_degraded: AtomicBool::new(false),
            all_open_ms: AtomicU64::new(0),
            small_tokens_max: small.max().unwrap_or(0),
            small_asked_ms: AtomicU64::new(0),
            endpoints,
        }
    }

    /// Notes that a request passes through to an endpoint that is presumed dead. Returns whether it is
    /// the first since one was in.
    pub fn note_degraded(&self) -> bool {
        !self.is_degraded.swap(true, Ordering::Relaxed)
    }

    /// Counts for how long every endpoint is out; `passed` is the time since this was last asked.
    fn measure(&self, now: Duration, passed: Duration) {
        for endpoint in &self.endpoints {
            if !endpoint.is_in() {
                endpoint.meters.out_here.add(passed);
            }
            if endpoint.is_held() {
                endpoint.meters.out_everywhere.add(passed);
            }
        }
        let is_all_open = self.is_all_open();
        self.meters.all_open.set(if is_all_open { 1.0 } else { 0.0 });
        if is_all_open {
            let passed = u64::try_from(passed.as_millis()).unwrap_or(0);
            let sum = self.all_open_ms.fetch_add(passed, Ordering::Relaxed).saturating_add(passed);
            self.meters.all_open_seconds.absolute(sum / 1_000);
        } else if self.endpoints.iter().any(|endpoint| endpoint.is_promising(now)) {
            self.is_degraded.store(false, Ordering::Relaxed);
        }
    }

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
    /// When time last passed, in milliseconds; [`u64::MAX`]: it never has.
    ticked_ms: AtomicU64,
    /// Which part of every limit this node holds.
    share: Arc<Share>,
}

impl Fleet {
    /// Builds the pools of a checked configuration; `sink` hears of every transition.
    pub fn new(pools: &[config::Pool], meters: &Meters, sink: &Sink) -> Self {
        let mut fleet = Self {
            pools: Vec::new(),
            by_model: HashMap::new(),
            by_key: HashMap::new(),
            ticked_ms: AtomicU64::new(u64::MAX),
            share: Arc::default(),
        };
        let mut pauses: HashMap<&str, Arc<Pause>> = HashMap::new();
        for (pool_index, pool) in pools.iter().enumerate() {
            for name in std::iter::once(&pool.name).chain(&pool.aliases) {
                fleet.by_model.insert(name.clone(), pool_index);
            }
            let mut endpoints = Vec::with_capacity(pool.endpoints.len());
            for (index, endpoint) in pool.endpoints.iter().enumerate() {
                let key = EndpointKey::new(&format!("{}/{}", pool.name, endpoint.name));
                fleet.by_key.insert(key.clone(), (pool_index, index));
                let group = endpoint.quota_group.as_deref();
                let shared = group.map(|group| Arc::clone(pauses.entry(group).or_default()));
                let pause = shared.unwrap_or_default();
                let allowance = Allowance::new(&endpoint.limits, &fleet.share);
                let endpoint =
                    Endpoint::new(key, index, endpoint, (pause, allowance), meters, sink);
                endpoints.push(Arc::new(endpoint));
            }
            fleet.pools.push(Arc::new(Pool::new(pool, endpoints, meters)));
        }
        fleet
    }

    /// Which part of every limit this node holds, callers' and models' as well as endpoints'; the whole
    /// until the cluster says another.
    pub fn share(&self) -> &Arc<Share> {
        &self.share
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
