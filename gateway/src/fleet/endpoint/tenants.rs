//! One endpoint as each of its tenants sees it: a breaker of its own for each.
//!
//! A provider may throttle or fail one account and serve the others well. With this scope what a
//! tenant's requests meet is held against the endpoint for that tenant alone. What the fleet, an
//! operator or a pause says holds for all, and so does the weight of an endpoint that has just
//! returned. The endpoint's own breaker judges the requests that name no tenant, the probes, the health
//! checks and, while this node tries the endpoint on behalf of the fleet, everybody's canaries; only it
//! states anything to the fleet.
//!
//! Invariants: no more tenants than the configured number are remembered, the least recently used (to
//! a second) is forgotten first; a verdict finds the breaker that gave the permit, forgotten or not;
//! nobody probes for a tenant, so that its ladder begins with canaries, of any length; a tenant's
//! breaker judges no times, so that it stays small.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use breaker::{Breaker, Errand, Mode, Recovery, Refusal, Rule, State, Transition, View};
use quorum::Forced;

use super::core::{STANCE_RAMP, STANCE_TRIED};
use super::{Admission, Endpoint, Happening};
use crate::config::TenantScope;

/// How often it is noted that a tenant is still there. Its place in the order of use is known to
/// this, so that a busy tenant's requests need not wait for each other to write it.
const NOTED_EVERY_MS: u64 = 1_000;

/// The breakers of one endpoint's tenants.
pub struct Tenants {
    scope: TenantScope,
    rule: Rule,
    /// A plain lock: held to find or replace one entry. Most requests only read.
    book: Arc<RwLock<Book>>,
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
    /// Until when its circuit is open, in milliseconds; 0: closed; `u64::MAX`: half-open. Mirrored, so
    /// that choosing and counting take no lock.
    open_until_ms: AtomicU64,
    /// When its use was last noted, in milliseconds.
    noted_ms: AtomicU64,
}

/// [`Tenant::open_until_ms`] of a circuit that is closed.
const CLOSED: u64 = 0;
/// [`Tenant::open_until_ms`] of a circuit that is half-open.
const HALF_OPEN: u64 = u64::MAX;

/// Whose breaker judges a request at an endpoint, found once for each endpoint that is considered.
pub(in crate::fleet) enum Judge<'a> {
    /// The endpoint's own.
    Own,
    /// That of the tenant with this name; `None`: nothing is remembered of it.
    Tenant(&'a str, Option<Arc<Tenant>>),
}

impl Tenants {
    /// No tenant yet. `rule` is the endpoint's own.
    pub(super) fn new(scope: &TenantScope, rule: &Rule) -> Self {
        let mut rule = rule.clone();
        // Canaries of any length: a tenant that sends only long prompts must find back too.
        rule.half_open.max_prompt_tokens = u64::MAX;
        // Judging by times would take a tenant's breaker from a kilobyte to fourteen.
        rule.slow.p95 = None;
        rule.slow.relative = None;
        rule.recovery = match rule.recovery {
            Recovery::Staged { probe: _, ramp } => Recovery::Staged { probe: false, ramp },
            Recovery::Lazy { ttl } => Recovery::Lazy { ttl },
        };
        Self { scope: scope.clone(), rule, book: Arc::default() }
    }

    /// The same tenants under other settings. Where another header names them they are others.
    pub(super) fn under(&self, scope: &TenantScope, rule: &Rule) -> Self {
        let heir = Self::new(scope, rule);
        if scope.header != self.scope.header {
            return heir;
        }
        Self { book: Arc::clone(&self.book), ..heir }
    }

    /// Forgets those that are more than may be remembered.
    fn trim(&self) {
        let mut book = self.book_to_write();
        while book.by_name.len() > self.scope.most
            && let Some((_, oldest)) = book.by_use.pop_first()
        {
            book.by_name.remove(&oldest);
        }
    }

    /// The header that names the tenant, and how many are remembered at most.
    pub fn scope(&self) -> &TenantScope {
        &self.scope
    }

    /// Everyone who is remembered, in no order.
    pub fn all(&self) -> Vec<Arc<Tenant>> {
        self.book().by_name.values().map(|(_, tenant)| Arc::clone(tenant)).collect()
    }

    /// Everyone for whom the endpoint is out, in no order.
    pub fn out(&self, now: Duration) -> Vec<Arc<Tenant>> {
        let book = self.book();
        let tenants = book.by_name.values().map(|(_, tenant)| tenant);
        tenants.filter(|tenant| tenant.is_out(now)).cloned().collect()
    }

    /// How many are remembered, and for how many of them the endpoint is out. It takes no breaker's
    /// lock, so that asking often costs the requests nothing.
    pub fn count(&self, now: Duration) -> (usize, usize) {
        let book = self.book();
        let out = book.by_name.values().filter(|(_, tenant)| tenant.is_out(now)).count();
        (book.by_name.len(), out)
    }

    fn find(&self, name: &str) -> Option<Arc<Tenant>> {
        self.book().by_name.get(name).map(|(_, tenant)| Arc::clone(tenant))
    }

    /// The breaker of a tenant who uses it; a new one makes the least recently used be forgotten.
    fn used(&self, now: Duration, name: &str) -> Arc<Tenant> {
        let mut book = self.book_to_write();
        book.uses += 1;
        let use_ = book.uses;
        if let Some((last, tenant)) = book.by_name.get_mut(name) {
            let (before, tenant) = (std::mem::replace(last, use_), Arc::clone(tenant));
            book.by_use.remove(&before);
            book.by_use.insert(use_, Arc::clone(&tenant.name));
            tenant.noted_ms.store(millis(now), Ordering::Relaxed);
            return tenant;
        }
        if book.by_name.len() >= self.scope.most
            && let Some((_, oldest)) = book.by_use.pop_first()
        {
            book.by_name.remove(&oldest);
        }
        let breaker = Breaker::new(self.rule.clone(), fastrand::u64(..));
        let name: Arc<str> = Arc::from(name);
        let tenant = Arc::new(Tenant {
            name: Arc::clone(&name),
            breaker: Mutex::new(breaker),
            open_until_ms: AtomicU64::new(CLOSED),
            noted_ms: AtomicU64::new(millis(now)),
        });
        book.by_name.insert(Arc::clone(&name), (use_, Arc::clone(&tenant)));
        book.by_use.insert(use_, name);
        tenant
    }

    // The two maps agree between calls, and a panic within one is impossible but for memory.
    fn book(&self) -> RwLockReadGuard<'_, Book> {
        self.book.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn book_to_write(&self) -> RwLockWriteGuard<'_, Book> {
        self.book.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tenant {
    /// The breaker as it stands.
    pub fn view(&self, now: Duration) -> View {
        self.lock().view(now)
    }

    /// Whether its circuit is open and the cool-down not over. Nobody lets time pass for a tenant but
    /// its own requests, so that one which never comes again is not out for ever.
    pub fn is_out(&self, now: Duration) -> bool {
        !self.returns_in(now).is_zero()
    }

    /// What is left of its cool-down; zero unless its circuit is open.
    fn returns_in(&self, now: Duration) -> Duration {
        match self.open_until_ms.load(Ordering::Relaxed) {
            CLOSED | HALF_OPEN => Duration::ZERO,
            until => Duration::from_millis(until).saturating_sub(now),
        }
    }

    /// The share of the usual weight that it would give now. A cool-down that is over counts as over.
    fn share(&self, now: Duration) -> f64 {
        match self.open_until_ms.load(Ordering::Relaxed) {
            CLOSED => 1.0,
            HALF_OPEN => self.lock().share(now),
            // One that is only watched gives everything at all times, and so does one that is due.
            _ if self.is_out(now) => self.lock().share(now),
            _ => 1.0,
        }
    }

    /// Mirrors a change of its circuit.
    fn mirror(&self, transition: &Transition) {
        let until = match transition.to {
            State::Closed => CLOSED,
            State::HalfOpen => HALF_OPEN,
            State::Open => {
                let until = transition.at + transition.remaining.unwrap_or_default();
                // Rounded up: when it is over here it is over there.
                millis(until).saturating_add(1)
            }
        };
        self.open_until_ms.store(until, Ordering::Relaxed);
    }

    /// Whether its use was noted of late.
    fn is_noted(&self, now: Duration) -> bool {
        let noted = self.noted_ms.load(Ordering::Relaxed);
        millis(now).saturating_sub(noted) < NOTED_EVERY_MS
    }

    fn lock(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Judge<'_> {
    fn tenant(&self) -> Option<&Tenant> {
        match self {
            Self::Own | Self::Tenant(_, None) => None,
            Self::Tenant(_, Some(tenant)) => Some(tenant),
        }
    }

    /// The share that the tenant's breaker gives; all of it where there is none.
    fn share(&self, now: Duration) -> f64 {
        self.tenant().map_or(1.0, |tenant| tenant.share(now))
    }
}

impl Endpoint {
    /// Whose breaker judges a request that names this tenant.
    pub(in crate::fleet) fn judge<'a>(&self, tenant: Option<&'a str>) -> Judge<'a> {
        match (&self.tenants, tenant) {
            (Some(tenants), Some(name)) => Judge::Tenant(name, tenants.find(name)),
            (Some(_), None) | (None, _) => Judge::Own,
        }
    }

    /// As `is_promising`, for a request that `judge` judges.
    pub(in crate::fleet) fn is_promising_to(&self, now: Duration, judge: &Judge<'_>) -> bool {
        self.is_in_to(now, judge) && !self.is_paused(now)
    }

    /// As `is_in`, for a request that `judge` judges.
    pub(in crate::fleet) fn is_in_to(&self, now: Duration, judge: &Judge<'_>) -> bool {
        match (judge, self.forced()) {
            (Judge::Own, _) => self.is_in(),
            (Judge::Tenant(..), Forced::Open) => false,
            (Judge::Tenant(..), Forced::Closed) => true,
            (Judge::Tenant(..), Forced::Auto) => {
                let is_in_for_all = !self.is_tried() || self.weight() > 0;
                is_in_for_all && !self.is_out_for_all() && judge.share(now) > 0.0
            }
        }
    }

    /// The part of its usual weight that it has for a request that `judge` judges; an order gives all.
    pub(in crate::fleet) fn share_to(&self, now: Duration, judge: &Judge<'_>) -> f64 {
        if self.forced() == Forced::Closed {
            return 1.0;
        }
        match (judge, self.stance()) {
            (Judge::Own, _) => self.share(),
            // One that has just returned returns to everybody step by step.
            (Judge::Tenant(..), STANCE_RAMP) => self.share() * judge.share(now),
            (Judge::Tenant(..), _) => judge.share(now),
        }
    }

    /// As `returns_in`, for a request that `judge` judges.
    pub(in crate::fleet) fn returns_in_to(&self, now: Duration, judge: &Judge<'_>) -> Duration {
        let own = judge.tenant().map(|tenant| tenant.returns_in(now)).unwrap_or_default();
        match judge {
            Judge::Own => self.returns_in(now),
            Judge::Tenant(..) if self.is_tried() => own.max(self.returns_in(now)),
            Judge::Tenant(..) => own.max(self.cooling_for(now)),
        }
    }

    /// As `admit`, for a request that `judge` judges. While this node tries the endpoint on behalf of
    /// the fleet, a tenant's request is a canary like any other and the endpoint's own breaker is asked.
    pub(in crate::fleet) fn admit_to(
        self: &Arc<Self>,
        now: Duration,
        errand: Errand,
        judge: &Judge<'_>,
    ) -> Result<Admission, Refusal> {
        let (name, known) = match judge {
            Judge::Own => return self.admit(now, errand),
            Judge::Tenant(..) if self.is_tried() => return self.admit(now, errand),
            Judge::Tenant(name, known) => (name, known),
        };
        let Some(tenants) = &self.tenants else { return self.admit(now, errand) };
        let errand = self.ordered(errand)?;
        if errand != Errand::PassThrough && self.is_out_for_all() {
            return Err(Refusal::Held);
        }
        let known = known.as_ref().filter(|tenant| tenant.is_noted(now)).map(Arc::clone);
        let tenant = known.unwrap_or_else(|| tenants.used(now, name));
        let permit = self.change_of(&tenant, |breaker| breaker.admit(now, errand))?;
        self.core.in_flight.fetch_add(1, Ordering::Relaxed);
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

    /// Puts the endpoint's rule into force for each tenant.
    pub(super) fn enforce_on_tenants(&self) {
        let Some(tenants) = &self.tenants else { return };
        tenants.trim();
        for tenant in tenants.all() {
            let rule = tenants.rule.clone();
            self.change_of(&tenant, |breaker| ((), breaker.set_rule(rule)));
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
        let mut breaker = tenant.lock();
        let (answer, transition) = deed(&mut breaker);
        if let Some(transition) = &transition {
            tenant.mirror(transition);
        }
        drop(breaker);
        if let Some(transition) = transition
            && !self.core.is_retired.load(Ordering::Relaxed)
        {
            let (endpoint, tenant) = (self.key.clone(), Some(Arc::clone(&tenant.name)));
            (self.sink)(Happening { endpoint, tenant, transition });
        }
        answer
    }

    /// Whether the fleet has it out, which a breaker that is not enforced does not mind.
    fn is_out_for_all(&self) -> bool {
        self.config.rule.mode == Mode::Enforce && self.is_held()
    }

    /// Whether this node tries it on behalf of the fleet.
    fn is_tried(&self) -> bool {
        self.stance() == STANCE_TRIED
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX - 1)
}

#[cfg(test)]
mod tests {
    use breaker::{Cause, Outcome};

    use super::*;

    #[test]
    fn the_least_recently_used_tenant_is_forgotten_first() {
        let scope = TenantScope { header: "x-tenant".to_owned(), most: 3 };
        let tenants = Tenants::new(&scope, &Rule::default());
        for name in ["a", "b", "c", "a", "d"] {
            tenants.used(Duration::ZERO, name);
        }
        let mut names: Vec<String> =
            tenants.all().iter().map(|tenant| tenant.name.to_string()).collect();
        names.sort();
        assert_eq!(names, ["a", "c", "d"]);
        for number in 0..10_000 {
            tenants.used(Duration::ZERO, &number.to_string());
        }
        let book = tenants.book();
        assert_eq!((book.by_name.len(), book.by_use.len()), (3, 3));
    }

    #[test]
    fn a_tenant_takes_less_than_two_kilobytes_whatever_the_endpoint_judges_by() {
        let mut rule = Rule::default();
        rule.slow.relative = Some(3.0);
        let scope = TenantScope { header: "x-tenant".to_owned(), most: 3 };
        let tenants = Tenants::new(&scope, &rule);
        assert_eq!((tenants.rule.slow.relative, tenants.rule.slow.p95), (None, None));
        // The longest name, its places in both maps with their slack, and the counts of two `Arc`s.
        let beside = 128 + 2 * 64 + 2 * 16;
        let size = size_of::<Tenant>() + beside;
        assert!(size <= 2_048, "{size}");
    }

    #[test]
    fn who_never_comes_again_is_not_out_for_ever() {
        let rule = Rule { failure_threshold: 1, ..Rule::default() };
        let scope = TenantScope { header: "x-tenant".to_owned(), most: 3 };
        let tenants = Tenants::new(&scope, &rule);
        let tenant = tenants.used(Duration::ZERO, "a");
        let fault = Outcome::Fault { weight: 1.0, cause: Cause::Other };
        let transition = {
            let mut breaker = tenant.lock();
            let permit = breaker.admit(Duration::ZERO, Errand::Probe).0.unwrap();
            breaker.settle(Duration::ZERO, permit, fault).unwrap()
        };
        tenant.mirror(&transition);
        assert_eq!(tenants.count(Duration::ZERO), (1, 1));
        assert_eq!(tenant.share(Duration::ZERO), 0.0);
        let later = rule.open.max;
        assert_eq!((tenants.count(later), tenants.out(later).len()), ((1, 0), 0));
        assert_eq!(tenant.share(later), 1.0, "it may ask again");
    }

    #[test]
    fn a_busy_tenant_is_noted_once_a_second_and_not_forgotten() {
        let scope = TenantScope { header: "x-tenant".to_owned(), most: 2 };
        let tenants = Tenants::new(&scope, &Rule::default());
        let at = Duration::from_millis;
        let busy = tenants.used(at(0), "busy");
        assert!(busy.is_noted(at(999)) && !busy.is_noted(at(1_000)));
        tenants.used(at(500), "idle");
        tenants.used(at(1_000), "busy");
        assert!(busy.is_noted(at(1_500)));
        tenants.used(at(1_500), "new");
        assert!(tenants.find("busy").is_some() && tenants.find("idle").is_none());
    }
}
