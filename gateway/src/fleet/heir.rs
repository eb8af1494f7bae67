//! The fleet of another configuration: what is the same goes on, what is another keeps what it learned.
//!
//! An endpoint whose settings are the same stays the same object, so that nothing about it is copied or
//! looked at twice. One with other settings is an heir of the one before (see `endpoint/heir`).
//!
//! Invariant: to make a fleet changes nothing about the one before; what it is to enforce it enforces
//! when it is in use.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quorum::EndpointKey;

use super::endpoint::Pause;
use super::{Endpoint, Fleet, Pool, Sink};
use crate::config;
use crate::limits::Allowance;
use crate::metrics::Meters;

/// The endpoints that a configuration has beyond another, lacks, or has otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Those that were not there.
    pub added: Vec<EndpointKey>,
    /// Those that are gone.
    pub removed: Vec<EndpointKey>,
    /// Those with another setting of their own.
    pub changed: Vec<EndpointKey>,
}

/// The endpoints with other settings, each with the one that it takes the place of.
type Changed = Vec<(Arc<Endpoint>, Arc<Endpoint>)>;

/// A fleet that is ready to take the place of another.
pub struct Heir {
    /// The fleet.
    pub fleet: Arc<Fleet>,
    /// What is another about it.
    pub changes: Changes,
    changed: Changed,
}

impl Heir {
    /// Enforces the new settings on what goes on under them. To be called once, when the fleet is about
    /// to be used.
    pub fn enforce(&self, now: Duration) {
        for (endpoint, before) in &self.changed {
            endpoint.enforce(now, before);
        }
    }
}

impl Fleet {
    /// The fleet of another configuration, with all that goes on of this one.
    pub fn heir(&self, pools: &[config::Pool], meters: &Meters, sink: &Sink) -> Heir {
        let (fleet, changed) = self.succeeded(pools, meters, sink);
        let keys_beyond = |one: &Self, other: &Self| {
            let keys = one.endpoints().map(|(_, endpoint)| endpoint.key.clone());
            keys.filter(|key| other.endpoint(key).is_none()).collect()
        };
        let differs = |(one, other): &&(Arc<Endpoint>, Arc<Endpoint>)| one.config != other.config;
        let changes = Changes {
            added: keys_beyond(&fleet, self),
            removed: keys_beyond(self, &fleet),
            changed: changed.iter().filter(differs).map(|(one, _)| one.key.clone()).collect(),
        };
        Heir { fleet: Arc::new(fleet), changes, changed }
    }

    /// The fleet of `pools`, and the endpoints of this one that others take the place of.
    pub(super) fn succeeded(
        &self,
        pools: &[config::Pool],
        meters: &Meters,
        sink: &Sink,
    ) -> (Self, Changed) {
        let mut fleet = Self {
            pools: Vec::with_capacity(pools.len()),
            by_model: HashMap::new(),
            by_key: HashMap::new(),
            pauses: HashMap::new(),
            ticked_ms: AtomicU64::new(self.ticked_ms.load(Ordering::Relaxed)),
            share: Arc::clone(&self.share),
            is_barred: Arc::clone(&self.is_barred),
        };
        let mut changed = Changed::new();
        for (pool_index, pool) in pools.iter().enumerate() {
            for name in std::iter::once(&pool.name).chain(&pool.aliases) {
                fleet.by_model.insert(name.clone(), pool_index);
            }
            let mut endpoints = Vec::with_capacity(pool.endpoints.len());
            for (index, config) in pool.endpoints.iter().enumerate() {
                let key = EndpointKey::new(&format!("{}/{}", pool.name, config.name));
                fleet.by_key.insert(key.clone(), (pool_index, index));
                let pause = fleet.pause(self, &key, config);
                let endpoint = match self.endpoint(&key) {
                    Some((_, same)) if same.index == index && same.config == *config => {
                        Arc::clone(same)
                    }
                    Some((_, before)) => {
                        let allowance = before.allowance.as_ref();
                        let allowance = allowance.filter(|_| before.is_at(config));
                        let allowance = Allowance::under(&config.limits, &self.share, allowance);
                        let heir = before.heir(index, config, (pause, allowance), meters);
                        let heir = Arc::new(heir);
                        changed.push((Arc::clone(&heir), Arc::clone(before)));
                        heir
                    }
                    None => {
                        let allowance = Allowance::new(&config.limits, &self.share);
                        let with = (pause, allowance);
                        Arc::new(Endpoint::new(key, index, config, with, meters, sink))
                    }
                };
                endpoints.push(endpoint);
            }
            fleet.pools.push(self.successor(pool, endpoints, meters));
        }
        (fleet, changed)
    }

    /// What asks an endpoint to pause: what asked the one of the same name, or of the same quota group.
    fn pause(&mut self, old: &Self, key: &EndpointKey, config: &config::Endpoint) -> Arc<Pause> {
        let Some(group) = &config.quota_group else {
            let before = old.endpoint(key).and_then(|(_, before)| before.own_pause(config));
            return before.unwrap_or_default();
        };
        let known = || old.pauses.get(group).map(Arc::clone).unwrap_or_default();
        Arc::clone(self.pauses.entry(group.clone()).or_insert_with(known))
    }

    fn successor(
        &self,
        config: &config::Pool,
        endpoints: Vec<Arc<Endpoint>>,
        meters: &Meters,
    ) -> Arc<Pool> {
        let before = self.pools.iter().find(|pool| pool.name == config.name);
        match before {
            Some(same) if same.is_as(config, &endpoints) => Arc::clone(same),
            Some(_) | None => {
                Arc::new(Pool::new(config, endpoints, meters, before.map(|pool| &**pool)))
            }
        }
    }
}
