//! How much may be asked: requests and tokens in any sliding minute, and requests at a time.
//!
//! The rule is a sliding log and no token bucket: a bucket (and GCRA, which the crate `governor` is
//! made of) that refills while it is emptied admits up to twice its figure within one minute, and
//! whoever sets a figure to keep a contract with a provider breaks it. The price is that room comes
//! back a second late at most under heavy traffic (see `window`), and 3 KiB for each limit in use.
//!
//! The tokens of a request are estimated when it is admitted and corrected when it is known what it
//! took; the correction counts from the moment of the admission, or, if that was more than a minute ago,
//! from now on as far as it is more than the estimate. It alone can bring a minute above its figure, by
//! what the estimate has missed.
//!
//! In a fleet each node holds a part of every figure (see [`Share`]), and that part is what it enforces,
//! refuses by and tells. When the part shrinks, what was admitted stays so and counts against it.
//!
//! Pure: no clock, no runtime; `now` is an argument and may run back, which is taken for standing still.
//!
//! Invariants: a request is admitted only if those of the minute up to then, itself among them, are
//! within the part that this node holds at that moment, those not counted that were cancelled; so are
//! their tokens, by their estimates, and the requests in flight. So in no minute, and at no time, is
//! there more than the largest part held in it. A refusal changes nothing; a slot is freed exactly once.

mod desk;
mod share;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis_lua::limits::{Load, Window};

pub use self::desk::{Desk, Place, Refused, Whose};
pub use self::share::{Part, Share};
use crate::config::Limits;

/// When a request in flight ends nobody knows; whoever waits for one is told to come back after this.
const SLOT_RETURNS_IN: Duration = Duration::from_secs(1);

/// What is left of one configured set of limits, on this node.
#[derive(Debug)]
pub struct Allowance {
    /// As configured, for the whole fleet.
    limits: Limits,
    /// Which part of them this node holds.
    share: Arc<Share>,
    /// Held for a few additions only, and never together with another: all figures are looked at and
    /// taken as one.
    /// It is shared by those of one name whose limits were changed.
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    window: Window,
    in_flight: u32,
}

/// Which limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Requests in a minute.
    Requests,
    /// Tokens in a minute.
    Tokens,
    /// Requests at a time.
    Concurrency,
}

/// Why a request is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// The limit that is reached; of several, the one that lasts longest.
    pub what: What,
    /// What this node holds of its figure.
    pub limit: u64,
    /// Its figure, for the whole fleet.
    pub whole: u64,
    /// When there is room again if nobody else comes, at most a minute; `None`: never, the request
    /// takes more tokens than this node has in a whole minute.
    pub returns_in: Option<Duration>,
}

/// What is left of one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// What this node holds of the limit.
    pub limit: u64,
    /// What may still be taken at once.
    pub remaining: u64,
    /// In how long all of it is back, if nobody else comes; zero if nothing is taken.
    pub reset: Duration,
}

/// What is left of the figures that are limited by the minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Of requests; `None`: not limited.
    pub requests: Option<Figure>,
    /// Of tokens; `None`: not limited.
    pub tokens: Option<Figure>,
}

impl Full {
    /// Whether it lasts longer than `other`.
    fn outlasts(&self, other: &Self) -> bool {
        let lasts = |full: &Self| full.returns_in.unwrap_or(Duration::MAX);
        lasts(self) > lasts(other)
    }
}

impl Left {
    /// Of each figure the one with less remaining; of equals the one that is longer under way.
    fn tightest(self, other: Self) -> Self {
        let tighter = |one: Option<Figure>, other: Option<Figure>| {
            let both = one.into_iter().chain(other);
            both.min_by_key(|figure| (figure.remaining, std::cmp::Reverse(figure.reset)))
        };
        Self {
            requests: tighter(self.requests, other.requests),
            tokens: tighter(self.tokens, other.tokens),
        }
    }
}

impl Allowance {
    /// This node's `share` of `limits`; `None` if they set none.
    pub fn new(limits: &Limits, share: &Arc<Share>) -> Option<Arc<Self>> {
        Self::under(limits, share, None)
    }

    /// The same for limits that take the place of those of `before`: what counted there counts here.
    pub fn under(
        limits: &Limits,
        share: &Arc<Share>,
        before: Option<&Arc<Self>>,
    ) -> Option<Arc<Self>> {
        if *limits == Limits::default() {
            return None;
        }
        let state = before.map(|before| Arc::clone(&before.state)).unwrap_or_default();
        Some(match before {
            Some(same) if same.limits == *limits => Arc::clone(same),
            Some(_) | None => Arc::new(Self { limits: *limits, share: Arc::clone(share), state }),
        })
    }

    /// Looks whether a request of about `tokens` would be admitted.
    ///
    /// # Errors
    /// [`Full`]: it would not.
    pub fn look(&self, now: Duration, tokens: u64) -> Result<(), Full> {
        let mut state = self.lock();
        let now = state.window.advance(now);
        self.check(&state, now, tokens)
    }

    /// Takes the place of a request of about `tokens`.
    ///
    /// # Errors
    /// [`Full`]: nothing was taken.
    pub fn take(self: &Arc<Self>, now: Duration, tokens: u64) -> Result<Charge, Full> {
        let mut state = self.lock();
        let now = state.window.advance(now);
        self.check(&state, now, tokens)?;
        let load = self.load(tokens);
        if self.limits.rpm.is_some() || self.limits.tpm.is_some() {
            state.window.add(now, load);
        }
        state.in_flight = state.in_flight.saturating_add(1);
        Ok(Charge { allowance: Arc::clone(self), at: now, load })
    }

    /// What is left.
    pub fn left(&self, now: Duration) -> Left {
        let mut state = self.lock();
        let now = state.window.advance(now);
        let sum = state.window.sum();
        let part = self.share.get();
        let left = |whole: Option<u64>, figure: fn(&Load) -> u64| {
            let limit = part.of(whole?);
            Some(Figure {
                limit,
                remaining: limit.saturating_sub(figure(&sum)),
                reset: state.window.leaves_in(now, figure(&sum), figure),
            })
        };
        Left {
            requests: left(self.limits.rpm, |load| load.requests),
            tokens: left(self.limits.tpm, |load| load.tokens),
        }
    }

    fn check(&self, state: &State, now: Duration, tokens: u64) -> Result<(), Full> {
        let Limits { rpm, tpm, concurrency } = self.limits;
        let part = self.share.get();
        let ours = |whole: u64| (part.of(whole), whole);
        if let Some((limit, whole)) = tpm.map(ours).filter(|(limit, _)| tokens > *limit) {
            return Err(Full { what: What::Tokens, limit, whole, returns_in: None });
        }
        let sum = state.window.sum();
        let full = |what, whole: Option<u64>, figure: fn(&Load) -> u64, wanted: u64| {
            let (limit, whole) = whole.map(ours)?;
            let over = figure(&sum).saturating_add(wanted).saturating_sub(limit);
            let returns_in = Some(state.window.leaves_in(now, over, figure));
            (over > 0).then_some(Full { what, limit, whole, returns_in })
        };
        let slots = concurrency.map(u64::from).map(ours);
        let no_slot = slots.filter(|(limit, _)| u64::from(state.in_flight) >= *limit);
        let no_slot = no_slot.map(|(limit, whole)| Full {
            what: What::Concurrency,
            limit,
            whole,
            returns_in: Some(SLOT_RETURNS_IN),
        });
        let all = [
            full(What::Requests, rpm, |load| load.requests, 1),
            full(What::Tokens, tpm, |load| load.tokens, tokens),
            no_slot,
        ];
        all.into_iter().flatten().max_by_key(|full| full.returns_in).map_or(Ok(()), Err)
    }

    /// What a request of so many tokens weighs. One that takes more than a whole minute of the fleet
    /// has fills the minute, and no more can be said of it.
    fn load(&self, tokens: u64) -> Load {
        Load { requests: 1, tokens: self.limits.tpm.map_or(0, |limit| tokens.min(limit)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one request. Dropped, it frees the slot; what it took of the minute stays taken.
#[derive(Debug)]
#[must_use = "dropping a charge frees its slot"]
pub struct Charge {
    allowance: Arc<Allowance>,
    at: Duration,
    load: Load,
}

impl Charge {
    /// Says how many tokens the request took, in place of the estimate; the last word counts. A minute
    /// after the admission the estimate counts no longer, and only what it has missed is added.
    pub fn correct(&mut self, tokens: u64) {
        let load = self.allowance.load(tokens);
        self.replace(load);
    }

    /// Says that the request took so many tokens, or more than anybody has counted: a larger estimate
    /// stands.
    pub fn at_least(&mut self, tokens: u64) {
        let load = self.allowance.load(tokens);
        if load.tokens > self.load.tokens {
            self.replace(load);
        }
    }

    /// Gives everything back: nothing was sent.
    pub fn cancel(mut self) {
        self.replace(Load::default());
    }

    fn replace(&mut self, load: Load) {
        if load != self.load {
            self.allowance.lock().window.replace(self.at, self.load, load);
            self.load = load;
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut state = self.allowance.lock();
        state.in_flight = state.in_flight.saturating_sub(1);
    }
}
