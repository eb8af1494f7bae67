//! Which endpoint of a pool takes a request: the first priority group that has one, then the policy.
//!
//! An endpoint that has just returned takes part as often as its weight says. One throw decides that for
//! the whole choice, so that two that return at a tenth each get a tenth together, and looking twice
//! gives no second chance. What falls through goes to the siblings, then to the next group, and only
//! when nobody else is left to those that it fell through.
//!
//! Invariants: nothing that is out, paused, full or tried is chosen; the breaker is asked last and its
//! answer holds.

mod drawn;
mod group;
mod hashed;
mod turns;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use breaker::Errand;
use quorum::Forced;

pub(super) use self::group::Group;
use super::endpoint::Judge;
use super::{Admission, Endpoint, Obstacle, Pool};
use crate::config::{OnAllOpen, Policy};
use crate::limits::{Charge, Claim};

/// No request touches more endpoints than this.
const TRIED_MAX: usize = 16;

/// What is full or held may return at any moment; nobody is told to come back sooner than this.
const RETURN_MIN: Duration = Duration::from_secs(1);

/// How many requests this node may pass through to one endpoint that is presumed dead.
const PASS_THROUGH_MAX: u32 = 64;

/// The endpoints that a request has already tried, in all pools.
#[derive(Clone, Default)]
pub struct Tried(Vec<Arc<Endpoint>>);

impl Tried {
    /// Notes that `endpoint` was tried.
    pub fn insert(&mut self, endpoint: &Arc<Endpoint>) {
        if self.0.len() < TRIED_MAX {
            self.0.push(Arc::clone(endpoint));
        }
    }

    /// Whether nothing was tried yet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn contains(&self, endpoint: &Endpoint) -> bool {
        self.0.iter().any(|one| std::ptr::eq(Arc::as_ptr(one), endpoint))
    }

    fn has_any_of(&self, pool: &Pool) -> bool {
        let is_of = |one: &Arc<Endpoint>| {
            pool.endpoints.get(one.index).is_some_and(|own| Arc::ptr_eq(own, one))
        };
        self.0.iter().any(is_of)
    }
}

/// Who asks for an endpoint, and for what.
#[derive(Clone, Copy)]
pub struct Asker<'a> {
    /// Estimated length of the prompt, in tokens.
    pub prompt_tokens: u64,
    /// Estimated length of the prompt and the answer together, in tokens.
    pub tokens: u64,
    /// A digest of the beginning of the prompt; 0: there is none, and any endpoint is as good.
    pub prefix: u64,
    /// The request's headers by name in lower case: one of them may name its tenant. A closure,
    /// because the fleet knows no HTTP.
    pub header: &'a (dyn Fn(&str) -> Option<&'a str> + Sync),
}

impl<'a> Asker<'a> {
    /// Whose breaker judges the request at this endpoint: where it tells tenants apart and the request
    /// names one, that tenant's.
    fn judge(&self, endpoint: &Endpoint) -> Judge<'a> {
        let tenants = endpoint.tenants.as_ref();
        endpoint.judge(tenants.and_then(|tenants| (self.header)(&tenants.scope().header)))
    }

    fn errand(&self) -> Errand {
        Errand::Request { prompt_tokens: self.prompt_tokens }
    }
}

/// Why a pool has no endpoint for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// Each is out; the first may return in this long.
    AllOut {
        /// Time until the first may return.
        returns_in: Duration,
        /// What keeps the request from that one.
        obstacle: Obstacle,
    },
    /// Each that is in was tried.
    Exhausted,
    /// The one that was chosen, the `index`th of the pool, has a limit that the fleet's ledger is to be
    /// asked about.
    Unsure {
        /// Its place in the pool.
        index: usize,
    },
}

/// An endpoint for a request, and how it was found.
pub struct Chosen {
    /// The right to send to it.
    pub admission: Admission,
    /// Whether all are presumed dead and the request passes through nonetheless.
    pub is_degraded: bool,
}

/// One choice under way.
struct Search<'t, 'a> {
    now: Duration,
    asker: Asker<'a>,
    tried: &'t Tried,
    /// An endpoint takes part if its share is above this, 0 to 1.
    chance: f64,
    /// Whether one that could be used did not take part.
    has_fallen: Cell<bool>,
    /// Whether the fleet's ledger may be asked about limits.
    may_ask: bool,
    /// The one that it is to be asked about; nobody else is chosen then.
    unsure: Cell<Option<usize>>,
}

/// An endpoint that can be used.
struct Candidate<'p, 'a> {
    endpoint: &'p Arc<Endpoint>,
    judge: Judge<'a>,
    /// The part of its usual weight that it has, above 0 to 1.
    share: f64,
}

impl<'a> Search<'_, 'a> {
    /// The endpoint, if it can be used.
    fn candidate<'p>(&self, endpoint: &'p Arc<Endpoint>) -> Option<Candidate<'p, 'a>> {
        if self.tried.contains(endpoint) || self.unsure.get().is_some() {
            return None;
        }
        let judge = self.asker.judge(endpoint);
        let share = endpoint.share_to(self.now, &judge);
        let is_usable = endpoint.is_promising_to(self.now, &judge)
            && !endpoint.is_full(self.now, self.asker.tokens);
        is_usable.then_some(Candidate { endpoint, judge, share })
    }

    /// Whether an endpoint with this share takes part.
    fn takes_part(&self, share: f64) -> bool {
        let takes_part = share > self.chance;
        if !takes_part {
            self.has_fallen.set(true);
        }
        takes_part
    }

    fn admit(&self, candidate: &Candidate<'_, '_>) -> Option<Admission> {
        let Candidate { endpoint, judge, .. } = candidate;
        let charge = match endpoint.charge(self.now, self.asker.tokens, self.may_ask) {
            None => None,
            Some(Claim::Granted(charge)) => Some(charge),
            Some(Claim::Refused(_)) => return None,
            Some(Claim::Unsure) => {
                self.unsure.set(Some(endpoint.index));
                return None;
            }
        };
        admit_with(self.now, self.asker.errand(), (endpoint, judge), charge)
    }
}

/// Asks the breaker for a request that has its place within the limits.
fn admit_with(
    now: Duration,
    errand: Errand,
    (endpoint, judge): (&Arc<Endpoint>, &Judge<'_>),
    charge: Option<Charge>,
) -> Option<Admission> {
    match (endpoint.admit_to(now, errand, judge), charge) {
        (Ok(admission), charge) => Some(admission.of_client(charge)),
        (Err(_), Some(charge)) => {
            charge.cancel();
            None
        }
        (Err(_), None) => None,
    }
}

impl Pool {
    /// Chooses an endpoint for a request, none of `tried`; where each is presumed dead, as the pool is
    /// told to.
    ///
    /// # Errors
    /// [`Unavailable`] when no endpoint is left; nothing is changed.
    pub fn choose(
        &self,
        now: Duration,
        asker: Asker<'_>,
        tried: &Tried,
    ) -> Result<Chosen, Unavailable> {
        match self.choose_usable(now, asker, tried) {
            Err(Unavailable::AllOut { .. }) => self.choose_degraded(now, asker, tried),
            chosen => chosen,
        }
    }

    /// Chooses among the endpoints that are in, none of `tried`, and asks no ledger.
    ///
    /// # Errors
    /// [`Unavailable`] when no endpoint is left; nothing is changed.
    pub fn choose_usable(
        &self,
        now: Duration,
        asker: Asker<'_>,
        tried: &Tried,
    ) -> Result<Chosen, Unavailable> {
        self.choose_or_ask(now, asker, tried, false)
    }

    /// The same, unless it `may_ask` and the one that is chosen has a limit which the fleet's ledger is to
    /// be asked about.
    ///
    /// # Errors
    /// [`Unavailable::Unsure`] then; otherwise as above.
    pub fn choose_or_ask(
        &self,
        now: Duration,
        asker: Asker<'_>,
        tried: &Tried,
        may_ask: bool,
    ) -> Result<Chosen, Unavailable> {
        self.note_small(now, asker.prompt_tokens);
        let (chance, has_fallen) = (fastrand::f64(), Cell::new(false));
        let unsure = Cell::new(None);
        let search = Search { now, asker, tried, chance, has_fallen, may_ask, unsure };
        let found = self.pick(&search);
        let again = Search { chance: 0.0, ..search };
        let found = match found {
            None if again.has_fallen.get() => self.pick(&again),
            found => found,
        };
        if let (None, Some(index)) = (&found, again.unsure.get()) {
            return Err(Unavailable::Unsure { index });
        }
        match found {
            Some(admission) => Ok(Chosen { admission, is_degraded: false }),
            None if tried.has_any_of(self) && self.has_promising_to(now, asker) => {
                Err(Unavailable::Exhausted)
            }
            None => Err(self.all_out(now, asker, tried)),
        }
    }

    /// Takes `endpoint`, for which the ledger has given a place; `None`: it is out by now, and the place is
    /// given back.
    pub fn choose_granted(
        &self,
        now: Duration,
        asker: Asker<'_>,
        endpoint: &Arc<Endpoint>,
        charge: Option<Charge>,
    ) -> Option<Chosen> {
        let judge = asker.judge(endpoint);
        if !endpoint.is_promising_to(now, &judge) {
            charge.into_iter().for_each(Charge::cancel);
            return None;
        }
        let admission = admit_with(now, asker.errand(), (endpoint, &judge), charge)?;
        Some(Chosen { admission, is_degraded: false })
    }

    /// Where every endpoint is presumed dead: chooses among those nonetheless, if the pool is told to. No
    /// ledger is asked for what most probably fails: its limits hold by this node's share, of what the
    /// fleet has not used up as far as is known.
    ///
    /// # Errors
    /// [`Unavailable`] when the pool is told not to, or none of them is left.
    pub fn choose_degraded(
        &self,
        now: Duration,
        asker: Asker<'_>,
        tried: &Tried,
    ) -> Result<Chosen, Unavailable> {
        if tried.has_any_of(self) && !self.is_all_open_to(now, asker) {
            return Err(Unavailable::Exhausted);
        }
        let chosen = match self.on_all_open {
            OnAllOpen::PassThrough => self.pass_through(now, asker, tried),
            OnAllOpen::Reject => None,
        };
        chosen.ok_or_else(|| self.all_out(now, asker, tried))
    }

    /// Whether `endpoint` may be asked once more.
    pub fn may_choose_again(&self, now: Duration, asker: Asker<'_>, endpoint: &Endpoint) -> bool {
        endpoint.is_promising_to(now, &asker.judge(endpoint))
            && !endpoint.is_full(now, asker.tokens)
    }

    /// Asks for `endpoint`, which was tried, once more; the caller has found that no other is left.
    ///
    /// # Errors
    /// [`Unavailable::Exhausted`] if its breaker, the cluster or a pause has it out; where it `may_ask`,
    /// [`Unavailable::Unsure`] if the fleet's ledger is to be asked about a limit.
    pub fn choose_again(
        &self,
        now: Duration,
        asker: Asker<'_>,
        endpoint: &Arc<Endpoint>,
        may_ask: bool,
    ) -> Result<Chosen, Unavailable> {
        let judge = asker.judge(endpoint);
        if !endpoint.is_promising_to(now, &judge) {
            return Err(Unavailable::Exhausted);
        }
        let charge = match endpoint.charge(now, asker.tokens, may_ask) {
            None => None,
            Some(Claim::Granted(charge)) => Some(charge),
            Some(Claim::Refused(_)) => return Err(Unavailable::Exhausted),
            Some(Claim::Unsure) => return Err(Unavailable::Unsure { index: endpoint.index }),
        };
        let admission = admit_with(now, asker.errand(), (endpoint, &judge), charge);
        let admission = admission.ok_or(Unavailable::Exhausted)?;
        Ok(Chosen { admission: admission.repeats(), is_degraded: false })
    }

    /// Whether every endpoint is out by its breaker, the cluster or an order. One that is paused or full
    /// is not: it is known to live.
    pub fn is_all_open(&self) -> bool {
        !self.endpoints.iter().any(|endpoint| endpoint.is_in())
    }

    fn is_all_open_to(&self, now: Duration, asker: Asker<'_>) -> bool {
        !self.endpoints.iter().any(|endpoint| endpoint.is_in_to(now, &asker.judge(endpoint)))
    }

    fn has_promising_to(&self, now: Duration, asker: Asker<'_>) -> bool {
        self.endpoints.iter().any(|one| one.is_promising_to(now, &asker.judge(one)))
    }

    /// Asks group after group, as the policy says.
    fn pick(&self, search: &Search<'_, '_>) -> Option<Admission> {
        self.groups.iter().find_map(|group| match self.policy {
            Policy::LeastRequest => drawn::pick(group, search, drawn::by_requests),
            Policy::Ewma => drawn::pick(group, search, drawn::by_time),
            Policy::Weighted => turns::pick(group, search),
            Policy::PrefixHash if search.asker.prefix != 0 => hashed::pick(group, search),
            Policy::PrefixHash => drawn::pick(group, search, drawn::by_requests),
        })
    }

    /// All are presumed dead: of those not tried, the one that returns soonest is tried all the same.
    fn pass_through(&self, now: Duration, asker: Asker<'_>, tried: &Tried) -> Option<Chosen> {
        let (soonest, judge) = self
            .endpoints
            .iter()
            .filter(|one| one.is_presumed_dead_only(now) && !tried.contains(one))
            .filter(|one| one.in_flight() < PASS_THROUGH_MAX && !one.is_full(now, asker.tokens))
            .map(|one| (one, asker.judge(one)))
            .min_by_key(|(one, judge)| (one.returns_in_to(now, judge), one.in_flight()))?;
        let charge = match soonest.charge(now, asker.tokens, false) {
            None => None,
            Some(Claim::Granted(charge)) => Some(charge),
            Some(Claim::Refused(_) | Claim::Unsure) => return None,
        };
        let admission = admit_with(now, Errand::PassThrough, (soonest, &judge), charge)?;
        Some(Chosen { admission, is_degraded: true })
    }

    /// Why none of those that were not tried can be used, and when the first may return. What was tried
    /// has said so itself.
    fn all_out(&self, now: Duration, asker: Asker<'_>, tried: &Tried) -> Unavailable {
        let left = || self.endpoints.iter().filter(|one| !tried.contains(one));
        if tried.has_any_of(self) && left().next().is_none() {
            return Unavailable::Exhausted;
        }
        // What an operator took out returns by an order, not by itself.
        let coming = left().filter(|one| one.forced() != Forced::Open);
        let soonest = coming.map(|one| one.obstacle_to(now, &asker.judge(one), asker.tokens)).min();
        let (returns_in, obstacle) = soonest.unwrap_or((Duration::ZERO, Obstacle::Open));
        Unavailable::AllOut { returns_in: returns_in.max(RETURN_MIN), obstacle }
    }
}
