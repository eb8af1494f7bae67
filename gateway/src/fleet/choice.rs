//! Which endpoint of a pool takes a request: the less loaded of two drawn at random.
//!
//! The power of two choices (Mitzenmacher, 2001) costs the same for four endpoints and for ten
//! thousand. Only when the draw finds nothing is the pool walked once, from a random place.

use std::sync::Arc;
use std::time::Duration;

use breaker::Errand;
use quorum::Forced;

use super::endpoint::Judge;
use super::{Admission, Endpoint, Pool};
use crate::config::OnAllOpen;

/// How often two are drawn before the pool is walked.
const DRAWS: usize = 3;

/// No request touches more endpoints than this.
const TRIED_MAX: usize = 16;

/// What is full or held may return at any moment; nobody is told to come back sooner than this.
const RETURN_MIN: Duration = Duration::from_secs(1);

/// How many requests this node may pass through to one endpoint that is presumed dead.
const PASS_THROUGH_MAX: u32 = 64;

/// The endpoints that a request has already tried, by their place in the pool.
#[derive(Clone, Debug, Default)]
pub struct Tried(Vec<usize>);

impl Tried {
    /// Notes that `endpoint` was tried.
    pub fn insert(&mut self, endpoint: &Endpoint) {
        if self.0.len() < TRIED_MAX {
            self.0.push(endpoint.index);
        }
    }

    /// Whether nothing was tried yet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn contains(&self, endpoint: &Endpoint) -> bool {
        self.0.contains(&endpoint.index)
    }
}

/// Who asks for an endpoint, and for what.
#[derive(Clone, Copy)]
pub struct Asker<'a> {
    /// Estimated length of the prompt, in tokens.
    pub prompt_tokens: u64,
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
    },
    /// Each that is in was tried.
    Exhausted,
}

/// An endpoint for a request, and how it was found.
pub struct Chosen {
    /// The right to send to it.
    pub admission: Admission,
    /// Whether all are presumed dead and the request passes through nonetheless.
    pub is_degraded: bool,
}

impl Pool {
    /// Chooses an endpoint for a request, none of `tried`.
    ///
    /// # Errors
    /// [`Unavailable`] when no endpoint is left; nothing is changed.
    pub fn choose(
        &self,
        now: Duration,
        asker: Asker<'_>,
        tried: &Tried,
    ) -> Result<Chosen, Unavailable> {
        self.note_small(now, asker.prompt_tokens);
        let drawn = self.draw(now, asker, tried).or_else(|| self.walk(now, asker, tried));
        if let Some(admission) = drawn {
            return Ok(Chosen { admission, is_degraded: false });
        }
        if !tried.is_empty() && !self.is_all_open_to(now, asker) {
            return Err(Unavailable::Exhausted);
        }
        match self.on_all_open {
            OnAllOpen::PassThrough => {
                self.pass_through(now, asker, tried).ok_or_else(|| self.all_out(now, asker))
            }
            OnAllOpen::Reject => Err(self.all_out(now, asker)),
        }
    }

    /// Asks for `endpoint`, which was tried, once more; the caller has found that no other is left.
    ///
    /// # Errors
    /// [`Unavailable::Exhausted`] if its breaker, the cluster or a pause has it out.
    pub fn choose_again(
        &self,
        now: Duration,
        asker: Asker<'_>,
        endpoint: &Arc<Endpoint>,
    ) -> Result<Chosen, Unavailable> {
        let judge = asker.judge(endpoint);
        let admission = Some(endpoint)
            .filter(|one| one.is_promising_to(now, &judge))
            .and_then(|one| one.admit_to(now, asker.errand(), &judge).ok());
        let chosen = admission
            .map(|admission| Chosen { admission: admission.repeats(), is_degraded: false });
        chosen.ok_or(Unavailable::Exhausted)
    }

    /// Whether every endpoint is out by its breaker, the cluster or an order.
    pub fn is_all_open(&self, now: Duration) -> bool {
        !self.endpoints.iter().any(|endpoint| endpoint.is_promising(now))
    }

    fn is_all_open_to(&self, now: Duration, asker: Asker<'_>) -> bool {
        let mut all = self.endpoints.iter();
        !all.any(|endpoint| endpoint.is_promising_to(now, &asker.judge(endpoint)))
    }

    fn draw(&self, now: Duration, asker: Asker<'_>, tried: &Tried) -> Option<Admission> {
        let count = self.endpoints.len();
        for _ in 0..DRAWS {
            let one = fastrand::usize(..count.max(1));
            let other = (one + 1 + fastrand::usize(..count.max(2) - 1)) % count.max(1);
            let pair = [self.endpoints.get(one), self.endpoints.get(other)];
            let fit = |endpoint: &'_ Arc<Endpoint>, judge: &Judge<'_>| {
                endpoint.is_promising_to(now, judge)
                    && !tried.contains(endpoint)
                    && endpoint.takes_part_to(now, judge)
            };
            let lighter = pair
                .into_iter()
                .flatten()
                .map(|endpoint| (endpoint, asker.judge(endpoint)))
                .filter(|(endpoint, judge)| fit(endpoint, judge))
                .min_by(|(a, _), (b, _)| lighter(a, b));
            if let Some(Ok(admission)) =
                lighter.map(|(endpoint, judge)| endpoint.admit_to(now, asker.errand(), &judge))
            {
                return Some(admission);
            }
        }
        None
    }

    fn walk(&self, now: Duration, asker: Asker<'_>, tried: &Tried) -> Option<Admission> {
        let start = fastrand::usize(..self.endpoints.len().max(1));
        let (head, tail) = self.endpoints.split_at_checked(start)?;
        tail.iter()
            .chain(head)
            .filter(|endpoint| !tried.contains(endpoint))
            .map(|endpoint| (endpoint, asker.judge(endpoint)))
            .filter(|(endpoint, judge)| endpoint.is_promising_to(now, judge))
            .find_map(|(one, judge)| one.admit_to(now, asker.errand(), &judge).ok())
    }

    /// All are presumed dead: of those not tried, the one that returns soonest is tried all the same.
    fn pass_through(&self, now: Duration, asker: Asker<'_>, tried: &Tried) -> Option<Chosen> {
        let (soonest, judge) = self
            .endpoints
            .iter()
            .filter(|one| one.is_presumed_dead_only(now) && !tried.contains(one))
            .filter(|one| one.in_flight() < PASS_THROUGH_MAX)
            .map(|one| (one, asker.judge(one)))
            .min_by_key(|(one, judge)| (one.returns_in_to(now, judge), one.in_flight()))?;
        let admission = soonest.admit_to(now, Errand::PassThrough, &judge).ok()?;
        Some(Chosen { admission, is_degraded: true })
    }

    fn all_out(&self, now: Duration, asker: Asker<'_>) -> Unavailable {
        // What an operator took out returns by an order, not by itself.
        let coming = self.endpoints.iter().filter(|one| one.forced() != Forced::Open);
        let returns_in = coming.map(|one| one.returns_in_to(now, &asker.judge(one))).min();
        Unavailable::AllOut { returns_in: returns_in.unwrap_or_default().max(RETURN_MIN) }
    }
}

/// Compares by load per weight, without division: a/wa < b/wb.
fn lighter(a: &Endpoint, b: &Endpoint) -> std::cmp::Ordering {
    let load = |one: &Endpoint, other: &Endpoint| {
        (u64::from(one.in_flight()) + 1) * u64::from(other.config.weight)
    };
    load(a, b).cmp(&load(b, a))
}
