//! The endpoints of one model, and what they are to each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::choice::Group;
use super::{Budget, Endpoint};
use crate::config::{self, OnAllOpen, Policy, Timeouts};
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
    pub budget: Arc<Budget>,
    /// What is counted per pool.
    pub meters: PoolMeters,
    /// How an endpoint is chosen within a group.
    pub(super) policy: Policy,
    /// The endpoints by priority.
    pub(super) groups: Vec<Group>,
    /// The longest prompt that any of its endpoints takes for small, in tokens.
    small_tokens_max: u64,
    /// What outlives a change of its settings.
    past: Arc<Past>,
}

/// What a pool has met so far, whatever its settings were.
#[derive(Default)]
struct Past {
    /// Whether requests pass through to endpoints that are presumed dead, and somebody was told.
    is_degraded: AtomicBool,
    /// How long every endpoint has been out, all times together: what is not a whole second yet, in
    /// milliseconds. One thread at a time measures it.
    all_open_ms: AtomicU64,
    /// When a small request last asked, in milliseconds; 0: never.
    small_asked_ms: AtomicU64,
}

/// Small requests that asked within this are a sign that more will.
const SMALL_ASKED_WITHIN: Duration = Duration::from_secs(10);

/// How often that is noted.
const SMALL_NOTED_EVERY_MS: u64 = 1_000;

impl Pool {
    /// The pool of `endpoints` as configured; `before`: the one that it takes the place of.
    pub(super) fn new(
        config: &config::Pool,
        endpoints: Vec<Arc<Endpoint>>,
        meters: &Meters,
        before: Option<&Self>,
    ) -> Self {
        let small = endpoints.iter().map(|one| one.config.rule.half_open.max_prompt_tokens);
        Self {
            name: config.name.clone(),
            aliases: config.aliases.clone(),
            on_all_open: config.on_all_open,
            timeouts: config.timeouts.clone(),
            include_usage: config.include_usage,
            fallback: config.fallback.clone(),
            budget: before.map(|pool| Arc::clone(&pool.budget)).unwrap_or_default(),
            meters: meters.pool(&config.name),
            policy: config.policy,
            groups: Group::all(&endpoints),
            small_tokens_max: small.max().unwrap_or(0),
            past: before.map(|pool| Arc::clone(&pool.past)).unwrap_or_default(),
            endpoints,
        }
    }

    /// Whether it is what `config` with `endpoints` would be.
    pub(super) fn is_as(&self, config: &config::Pool, endpoints: &[Arc<Endpoint>]) -> bool {
        let same = |(one, other): (&Arc<Endpoint>, &Arc<Endpoint>)| Arc::ptr_eq(one, other);
        self.endpoints.len() == endpoints.len()
            && self.endpoints.iter().zip(endpoints).all(same)
            && self.name == config.name
            && self.aliases == config.aliases
            && self.on_all_open == config.on_all_open
            && self.timeouts == config.timeouts
            && self.include_usage == config.include_usage
            && self.fallback == config.fallback
            && self.policy == config.policy
    }

    /// Notes that a request passes through to an endpoint that is presumed dead. Returns whether it is
    /// the first since one was in.
    pub fn note_degraded(&self) -> bool {
        !self.past.is_degraded.swap(true, Ordering::Relaxed)
    }

    /// Counts for how long every endpoint is out; `passed` is the time since this was last asked.
    pub(super) fn measure(&self, now: Duration, passed: Duration) {
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
            let sum = self.past.all_open_ms.load(Ordering::Relaxed).saturating_add(passed);
            self.past.all_open_ms.store(sum % 1_000, Ordering::Relaxed);
            // A pool that was gone and is back counts on where its series stands.
            self.meters.all_open_seconds.increment(sum / 1_000);
        } else if self.endpoints.iter().any(|endpoint| endpoint.is_promising(now)) {
            self.past.is_degraded.store(false, Ordering::Relaxed);
        }
    }

    /// Notes that a request of about `prompt_tokens` asks.
    pub(super) fn note_small(&self, now: Duration, prompt_tokens: u64) {
        if prompt_tokens <= self.small_tokens_max {
            let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
            // Written once a second at most, so that the cores do not take the line from each other.
            let known = self.past.small_asked_ms.load(Ordering::Relaxed);
            if known == 0 || now > known.saturating_add(SMALL_NOTED_EVERY_MS) {
                self.past.small_asked_ms.store(now.max(1), Ordering::Relaxed);
            }
        }
    }

    /// Whether requests small enough for a canary have asked of late.
    pub fn has_small(&self, now: Duration) -> bool {
        let asked = self.past.small_asked_ms.load(Ordering::Relaxed);
        let since = now.saturating_sub(Duration::from_millis(asked));
        asked > 0 && since < SMALL_ASKED_WITHIN
    }

    /// Opens the endpoints that are much slower than their siblings, where the rule asks for it.
    pub(super) fn compare(&self, now: Duration) {
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
