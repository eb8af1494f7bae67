//! An endpoint under other settings: what it keeps of the one before, and what begins anew.
//!
//! It keeps its breaker with a running cool-down, its requests in flight, its pauses and its scores. At
//! another address it is another machine, of which nothing is known: it begins with a closed breaker,
//! and only what the fleet and the operators have decided about its name holds on. A pause after it
//! refused our credential ends when it gets another.
//!
//! Invariants: to make an heir changes nothing; what it is to enforce it enforces once, when it is in
//! use.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Endpoint, Pause};
use crate::config;
use crate::limits::Allowance;
use crate::metrics::Meters;

impl Endpoint {
    /// Whether `config` is about the same machine as this endpoint.
    pub(in crate::fleet) fn is_at(&self, config: &config::Endpoint) -> bool {
        self.config.address == config.address && self.config.base_path == config.base_path
    }

    /// The endpoint of the same key by `config`, at the place `index` of its pool.
    pub(in crate::fleet) fn heir(
        &self,
        index: usize,
        config: &config::Endpoint,
        (pause, allowance): (Arc<Pause>, Option<Arc<Allowance>>),
        meters: &Meters,
    ) -> Self {
        let key = self.key.clone();
        let mut heir = Self::new(key, index, config, (pause, allowance), meters, &self.sink);
        if self.is_at(config) {
            heir.core = Arc::clone(&self.core);
            if let (Some(tenants), Some(scope)) = (&self.tenants, &config.tenants) {
                heir.tenants = Some(tenants.under(scope, &config.rule));
            }
        } else {
            heir.force(self.forced());
        }
        heir
    }

    /// The pause that `config` shares with this endpoint, if neither belongs to a quota group.
    pub(in crate::fleet) fn own_pause(&self, config: &config::Endpoint) -> Option<Arc<Pause>> {
        let is_own = self.config.quota_group.is_none() && config.quota_group.is_none();
        (is_own && self.is_at(config)).then(|| Arc::clone(&self.pause))
    }

    /// Whether this is `other`, or its heir at the same address.
    pub fn goes_on_from(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }

    /// Says no more of what becomes of it: its last requests end under a name that is gone, or another
    /// machine's.
    pub fn retire(&self) {
        self.core.is_retired.store(true, Ordering::Relaxed);
    }

    /// Puts into force what is other than it was under `before`.
    pub(in crate::fleet) fn enforce(&self, now: Duration, before: &Self) {
        if !self.goes_on_from(before) {
            return;
        }
        if self.config.rule != before.config.rule {
            let rule = self.config.rule.clone();
            self.change(now, |breaker| ((), breaker.set_rule(rule)));
        }
        self.enforce_on_tenants();
        if self.config.api_key != before.config.api_key {
            self.core.is_misconfigured.store(false, Ordering::Relaxed);
            self.core.denied.store(0, Ordering::Relaxed);
            self.core.shunned.end();
        }
    }
}
