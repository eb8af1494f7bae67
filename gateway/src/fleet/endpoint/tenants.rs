//! One endpoint as each of its tenants sees it: a breaker of its own for each.
//!
//! A provider may throttle or fail one account and serve the others well. With this scope what a
//! tenant's requests meet is held against the endpoint for that tenant alone. What the fleet, an
//! operator or a pause says holds for all; the endpoint's own breaker judges the requests that name no
//! tenant, the probes and the health checks, and only it states anything to the fleet.
//!
//! Invariants: no more tenants than the configured number are remembered, the least recently used is
//! forgotten first; a verdict finds the breaker that gave the permit, forgotten or not; nobody probes
//! for a tenant, so that its ladder begins with canaries, of any length.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use breaker::{Breaker, Errand, Mode, Recovery, Refusal, Rule, State, Transition, View};
use quorum::Forced;

use super::{Admission, Endpoint, Happening};
use crate::config::TenantScope;

/// The breakers of one endpoint's tenants.
pub struct Tenants {
    scope: TenantScope,
    rule: Rule,
    /// A plain lock: held to find or replace one entry.
    book: Mutex<Book>,
}

/// Who is remembered, by name and by the order of use. Bounded by the scope's number.
#[derive(Default)]
struct Book {
    by_name: HashMap<Arc<str>, (u64, Arc<Tenant>)>,
    by_use: BTreeMap<u64, Arc<str>>,
    uses: u64,
}

/// One tenant's breaker.
pub struct Tenant {
    /// As its requests name it.
    pub name: Arc<str>,
    /// A plain lock: held for one call of the breaker.
    breaker: Mutex<Breaker>,
}

impl Tenants {
    /// No tenant yet. `rule` is the endpoint's own.
    pub(super) fn new(scope: &TenantScope, rule: &Rule) -> Self {
        let mut rule = rule.clone();
        // Canaries of any length: a tenant that sends only long prompts must find back too.
        rule.half_open.max_prompt_tokens = u64::MAX;
        rule.slow.relative = None;
        rule.recovery = match rule.recovery {
            Recovery::Staged { probe: _, ramp } => Recovery::Staged { probe: false, ramp },
            Recovery::Lazy { ttl } => Recovery::Lazy { ttl },
        };
        Self { scope: scope.clone(), rule, book: Mutex::default() }
    }

    /// The header that names the tenant, and how many are remembered at most.
    pub fn scope(&self) -> &TenantScope {
        &self.scope
    }

    /// Everyone who is remembered, in no order.
    pub fn all(&self) -> Vec<Arc<Tenant>> {
        self.book().by_name.values().map(|(_, tenant)| Arc::clone(tenant)).collect()
    }

    fn find(&self, name: &str) -> Option<Arc<Tenant>> {
        self.book().by_name.get(name).map(|(_, tenant)| Arc::clone(tenant))
    }

    /// The breaker of a tenant who uses it; a new one makes the least recently used be forgotten.
    fn used(&self, name: &str) -> Arc<Tenant> {
        let mut book = self.book();
        book.uses += 1;
        let use_ = book.uses;
        if let Some((last, tenant)) = book.by_name.get_mut(name) {
            let (before, tenant) = (std::mem::replace(last, use_), Arc::clone(tenant));
            book.by_use.remove(&before);
            book.by_use.insert(use_, Arc::clone(&tenant.name));
            return tenant;
        }
        if book.by_name.len() >= self.scope.most
            && let Some((_, oldest)) = book.by_use.pop_first()
        {
            book.by_name.remove(&oldest);
        }
        let breaker = Breaker::new(self.rule.clone(), fastrand::u64(..));
        let name: Arc<str> = Arc::from(name);
        let tenant = Arc::new(Tenant { name: Arc::clone(&name), breaker: Mutex::new(breaker) });
        book.by_name.insert(Arc::clone(&name), (use_, Arc::clone(&tenant)));
        book.by_use.insert(use_, name);
        tenant
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // The two maps agree between calls, and a panic within one is impossible but for memory.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tenant {
    /// The breaker as it stands.
    pub fn view(&self, now: Duration) -> View {
        self.lock().view(now)
    }

    /// The share of the usual weight that it would give now. A cool-down that is over counts as over:
    /// nobody lets time pass for it but its own requests.
    fn share(&self, now: Duration) -> f64 {
        let breaker = self.lock();
        let is_due = || breaker.view(now).remaining.is_some_and(|left| left.is_zero());
        match breaker.state() {
            State::Open if is_due() => 1.0,
            State::Open | State::Closed | State::HalfOpen => breaker.share(now),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Endpoint {
    /// As `is_promising`, for a tenant's request.
    pub(in crate::fleet) fn is_promising_to(&self, now: Duration, tenant: Option<&str>) -> bool {
        let Some((tenants, name)) = self.tenants.as_ref().zip(tenant) else {
            return self.is_promising(now);
        };
        let is_in = || tenants.find(name).is_none_or(|tenant| tenant.share(now) > 0.0);
        match self.forced() {
            Forced::Open => false,
            Forced::Closed => true,
            Forced::Auto => !self.is_out_for_all() && self.cooling_for(now).is_zero() && is_in(),
        }
    }

    /// As `takes_part`, for a tenant's request.
    pub(in crate::fleet) fn takes_part_to(&self, now: Duration, tenant: Option<&str>) -> bool {
        let Some((tenants, name)) = self.tenants.as_ref().zip(tenant) else {
            return self.takes_part();
        };
        tenants.find(name).is_none_or(|tenant| fastrand::f64() < tenant.share(now))
    }

    /// As `returns_in`, for a tenant's request.
    pub(in crate::fleet) fn returns_in_to(&self, now: Duration, tenant: Option<&str>) -> Duration {
        let Some((tenants, name)) = self.tenants.as_ref().zip(tenant) else {
            return self.returns_in(now);
        };
        let own = tenants.find(name).and_then(|tenant| tenant.view(now).remaining);
        own.unwrap_or_default().max(self.cooling_for(now))
    }

    /// As `admit`, for a tenant's request: its own breaker is asked.
    pub(in crate::fleet) fn admit_to(
        self: &Arc<Self>,
        now: Duration,
        errand: Errand,
        tenant: Option<&str>,
    ) -> Result<Admission, Refusal> {
        let Some((tenants, name)) = self.tenants.as_ref().zip(tenant) else {
            return self.admit(now, errand);
        };
        let errand = match self.forced() {
            Forced::Open => return Err(Refusal::Held),
            Forced::Closed => Errand::PassThrough,
            Forced::Auto => errand,
        };
        if errand != Errand::PassThrough && self.is_out_for_all() {
            return Err(Refusal::Held);
        }
        let tenant = tenants.used(name);
        let permit = self.change_of(&tenant, |breaker| breaker.admit(now, errand))?;
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Ok(Admission::new(Arc::clone(self), Some(tenant), permit, now))
    }

    /// Runs `deed` on the breaker that judges a request: the tenant's, or the endpoint's own.
    pub(super) fn change_for<T>(
        &self,
        tenant: Option<&Tenant>,
        now: Duration,
        deed: impl FnOnce(&mut Breaker) -> (T, Option<Transition>),
    ) -> T {
        match tenant {
            None => self.change(now, deed),
            Some(tenant) => self.change_of(tenant, deed),
        }
    }

    /// Takes back the slow evidence of all tenants since `since`.
    pub(super) fn discard_slow_of_tenants(&self, now: Duration, since: Duration) {
        for tenant in self.tenants.iter().flat_map(Tenants::all) {
            tenant.lock().discard_slow(now, since);
        }
    }

    fn change_of<T>(
        &self,
        tenant: &Tenant,
        deed: impl FnOnce(&mut Breaker) -> (T, Option<Transition>),
    ) -> T {
        let (answer, transition) = deed(&mut tenant.lock());
        if let Some(transition) = transition {
            let (endpoint, tenant) = (self.key.clone(), Some(Arc::clone(&tenant.name)));
            (self.sink)(Happening { endpoint, tenant, transition });
        }
        answer
    }

    /// Whether the fleet has it out, which a breaker that is not enforced does not mind.
    fn is_out_for_all(&self) -> bool {
        self.config.rule.mode == Mode::Enforce && self.is_held()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_tenant_is_forgotten_first() {
        let scope = TenantScope { header: "x-tenant".to_owned(), most: 3 };
        let tenants = Tenants::new(&scope, &Rule::default());
        for name in ["a", "b", "c", "a", "d"] {
            tenants.used(name);
        }
        let mut names: Vec<String> =
            tenants.all().iter().map(|tenant| tenant.name.to_string()).collect();
        names.sort();
        assert_eq!(names, ["a", "c", "d"]);
        for number in 0..10_000 {
            tenants.used(&number.to_string());
        }
        let book = tenants.book();
        assert_eq!((book.by_name.len(), book.by_use.len()), (3, 3));
    }

    #[test]
    fn a_tenants_breaker_is_small() {
        assert!(size_of::<Breaker>() <= 2_048, "{}", size_of::<Breaker>());
    }
}
