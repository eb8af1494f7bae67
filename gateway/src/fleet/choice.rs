//! Which endpoint of a pool takes a request: the less loaded of two drawn at random.
//!
//! The power of two choices (Mitzenmacher, 2001) costs the same for four endpoints and for ten
//! thousand. Only when the draw finds nothing is the pool walked once, from a random place.

use std::sync::Arc;
use std::time::Duration;

use breaker::Errand;
use quorum::Forced;

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
    /// Chooses an endpoint for a request of about `prompt_tokens`, none of `tried`.
    ///
    /// # Errors
    /// [`Unavailable`] when no endpoint is left; nothing is changed.
    pub fn choose(
        &self,
        now: Duration,
        prompt_tokens: u64,
        tried: &Tried,
    ) -> Result<Chosen, Unavailable> {
        let errand = Errand::Request { prompt_tokens };
        self.note_small(now, prompt_tokens);
        let drawn = self.draw(now, errand, tried).or_else(|| self.walk(now, errand, tried));
        if let Some(admission) = drawn {
            return Ok(Chosen { admission, is_degraded: false });
        }
        if !tried.is_empty() && !self.is_all_open(now) {
            return Err(Unavailable::Exhausted);
        }
        match self.on_all_open {
            OnAllOpen::PassThrough => {
                self.pass_through(now, tried).ok_or_else(|| self.all_out(now))
            }
            OnAllOpen::Reject => Err(self.all_out(now)),
        }
    }

    /// Asks for `endpoint`, which was tried, once more; the caller has found that no other is left.
    ///
    /// # Errors
    /// [`Unavailable::Exhausted`] if its breaker, the cluster or a pause has it out.
    pub fn choose_again(
        &self,
        now: Duration,
        prompt_tokens: u64,
        endpoint: &Arc<Endpoint>,
    ) -> Result<Chosen, Unavailable> {
        let admission = Some(endpoint)
            .filter(|one| one.is_promising(now))
            .and_then(|one| one.admit(now, Errand::Request { prompt_tokens }).ok());
        let chosen = admission.map(|admission| Chosen { admission, is_degraded: false });
        chosen.ok_or(Unavailable::Exhausted)
    }

    /// Whether every endpoint is out by its breaker, the cluster or an order.
    pub fn is_all_open(&self, now: Duration) -> bool {
        !self.endpoints.iter().any(|endpoint| endpoint.is_promising(now))
    }

    fn draw(&self, now: Duration, errand: Errand, tried: &Tried) -> Option<Admission> {
        let count = self.endpoints.len();
        for _ in 0..DRAWS {
            let one = fastrand::usize(..count.max(1));
            let other = (one + 1 + fastrand::usize(..count.max(2) - 1)) % count.max(1);
            let pair = [self.endpoints.get(one), self.endpoints.get(other)];
            let fit = |endpoint: &&Arc<Endpoint>| {
                endpoint.is_promising(now) && !tried.contains(endpoint) && endpoint.takes_part()
            };
            let lighter = pair.into_iter().flatten().filter(fit).min_by(|a, b| lighter(a, b));
            if let Some(Ok(admission)) = lighter.map(|endpoint| endpoint.admit(now, errand)) {
                return Some(admission);
            }
        }
        None
    }

    fn walk(&self, now: Duration, errand: Errand, tried: &Tried) -> Option<Admission> {
        let start = fastrand::usize(..self.endpoints.len().max(1));
        let (head, tail) = self.endpoints.split_at_checked(start)?;
        tail.iter()
            .chain(head)
            .filter(|endpoint| endpoint.is_promising(now) && !tried.contains(endpoint))
            .find_map(|endpoint| endpoint.admit(now, errand).ok())
    }

    /// All are presumed dead: of those not tried, the one that returns soonest is tried all the same.
    fn pass_through(&self, now: Duration, tried: &Tried) -> Option<Chosen> {
        let soonest = self
            .endpoints
            .iter()
            .filter(|one| one.is_presumed_dead_only(now) && !tried.contains(one))
            .filter(|one| one.in_flight() < PASS_THROUGH_MAX)
            .min_by_key(|one| (one.returns_in(now), one.in_flight()))?;
        let admission = soonest.admit(now, Errand::PassThrough).ok()?;
        Some(Chosen { admission, is_degraded: true })
    }

    fn all_out(&self, now: Duration) -> Unavailable {
        // What an operator took out returns by an order, not by itself.
        let coming = self.endpoints.iter().filter(|one| one.forced() != Forced::Open);
        let returns_in = coming.map(|one| one.returns_in(now)).min();
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
