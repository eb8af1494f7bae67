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
//! A fleet that decides in Redis keeps the whole figures there, by the same rule ([`Ledger`]): a request
//! takes what was set aside for this node (see `purse`), and only one that finds nothing asks, for
//! [`ASK_MAX`] at most. While Redis is away or slow, the part of this node holds as ever, of what the fleet
//! has not used up as far as is known; what it admits meanwhile is told the ledger as soon as it is back.
//!
//! The rule is pure: `now` is an argument and may run back, which is taken for standing still. The
//! runtime is known by those who ask, and by `teller`, who speaks to the ledger.
//!
//! Invariants: a request is admitted only if those of the minute up to then, itself among them, are
//! within the part that this node holds at that moment, those not counted that were cancelled; so are
//! their tokens, by their estimates, and the requests in flight. So in no minute, and at no time, is
//! there more than the largest part held in it. A refusal changes nothing; a slot is freed exactly once.

mod desk;
mod ledger;
mod link;
mod purse;
mod share;
mod teller;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use redis_lua::limits::Kind;
use redis_lua::limits::{Load, SLOT_RETURNS_IN, Window};

pub use self::desk::{Desk, Place, Refused, Whose};
use self::link::Standing;
#[cfg(test)]
pub(crate) use self::link::rely_on_one;
pub use self::link::{ASK_MAX, Link, Patience};
use self::purse::Purse;
pub use self::share::{Part, Share};
pub use self::teller::{Ledger, keep};
use crate::clock;
use crate::config::Limits;

/// Who is limited, by the configured name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Whom {
    /// Of what kind.
    pub kind: Kind,
    /// Its name, of an endpoint `pool/endpoint`.
    pub name: String,
}

/// What is left of one configured set of limits, on this node.
#[derive(Debug)]
pub struct Allowance {
    whom: Whom,
    /// As configured, for the whole fleet; they are in force once somebody asks by them.
    limits: Limits,
    /// How many came before these, and 1.
    edition: u64,
    /// Which part of them this node holds.
    share: Arc<Share>,
    /// Held for a few additions only, and never together with another: all figures are looked at and
    /// taken as one.
    /// It is shared by those of one name whose limits were changed.
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Those in force: the newest that anybody has asked by. What began under others goes by these too.
    limits: Limits,
    edition: u64,
    window: Window,
    in_flight: u32,
    /// What is held of the fleet's ledger; nothing where there is none.
    purse: Option<Box<Purse>>,
}

/// What becomes of a request.
#[derive(Debug)]
pub enum Claim {
    /// It is admitted.
    Granted(Charge),
    /// It is not.
    Refused(Full),
    /// Only the ledger knows.
    Unsure,
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

impl Whom {
    /// The one of this kind and name.
    pub fn new(kind: Kind, name: &str) -> Self {
        Self { kind, name: name.to_owned() }
    }
}

impl Allowance {
    /// This node's `share` of `limits`; `None` if they set none.
    pub fn new(limits: &Limits, share: &Arc<Share>, whom: Whom) -> Option<Arc<Self>> {
        Self::under(limits, share, whom, None)
    }

    /// The same for limits that take the place of those of `before`: what counted there counts here.
    pub fn under(
        limits: &Limits,
        share: &Arc<Share>,
        whom: Whom,
        before: Option<&Arc<Self>>,
    ) -> Option<Arc<Self>> {
        if *limits == Limits::default() {
            return None;
        }
        let state = before.map(|before| Arc::clone(&before.state)).unwrap_or_default();
        let edition = before.map_or(1, |before| before.edition + 1);
        Some(match before {
            Some(same) if same.limits == *limits => Arc::clone(same),
            Some(_) | None => {
                Arc::new(Self { whom, limits: *limits, edition, share: Arc::clone(share), state })
            }
        })
    }

    /// Looks whether a request of about `tokens` would be admitted, or may be by the ledger.
    ///
    /// # Errors
    /// [`Full`]: it would not.
    pub fn look(&self, now: Duration, tokens: u64) -> Result<(), Full> {
        let mut state = self.lock();
        let now = state.window.advance(now);
        let standing = self.share.standing();
        if standing != Standing::Away {
            if let Some(full) = self.refused(&state, now, tokens) {
                return Err(full);
            }
            let (load, in_flight) = (state.load(tokens), u64::from(state.in_flight));
            let purse = state.purse.as_ref();
            let has = purse.is_some_and(|purse| purse.has(now, &state.limits, load, in_flight));
            if has || standing == Standing::Quick {
                return Ok(());
            }
        }
        self.check(&state, now, tokens)
    }

    /// Takes the place of a request of about `tokens`: of what is set aside, or of this node's share.
    ///
    /// # Errors
    /// [`Full`]: nothing was taken.
    pub fn take(self: &Arc<Self>, now: Duration, tokens: u64) -> Result<Charge, Full> {
        let mut state = self.lock();
        let now = state.window.advance(now);
        if let Some(charge) = self.draw(&mut state, now, tokens)? {
            return Ok(charge);
        }
        self.check(&state, now, tokens)?;
        let charge = self.admit(&mut state, now, tokens, Source::Node);
        if let Some(purse) = self.purse(&mut state) {
            purse.owe(charge.at, charge.load);
        }
        Ok(charge)
    }

    /// The same, unless the ledger is to be asked.
    pub fn claim(self: &Arc<Self>, now: Duration, tokens: u64) -> Claim {
        if self.share.standing() == Standing::Quick {
            let mut state = self.lock();
            let now = state.window.advance(now);
            return match self.draw(&mut state, now, tokens) {
                Ok(charge) => charge.map_or(Claim::Unsure, Claim::Granted),
                Err(full) => Claim::Refused(full),
            };
        }
        self.take(now, tokens).into()
    }

    /// The same, and asks the ledger where it has to, for as long as the request has `patience`, which it
    /// loses by that. Of what is not answered in time this node decides.
    ///
    /// # Errors
    /// [`Full`]: nothing was taken.
    ///
    /// # Cancel safety
    /// What the ledger has granted is given back.
    pub async fn ask(
        self: &Arc<Self>,
        tokens: u64,
        patience: &mut Patience,
    ) -> Result<Charge, Full> {
        let told = match self.share.link() {
            Some(link) => link.ask(self, tokens, patience).await,
            None => None,
        };
        told.unwrap_or_else(|| self.take(clock::now(), tokens))
    }

    /// What is left.
    pub fn left(&self, now: Duration) -> Left {
        let mut state = self.lock();
        let now = state.window.advance(now);
        if self.share.standing() != Standing::Away
            && let Some(purse) = &state.purse
        {
            return purse.left(now, &state.limits);
        }
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
            requests: left(state.limits.rpm, |load| load.requests),
            tokens: left(state.limits.tpm, |load| load.tokens),
        }
    }

    fn check(&self, state: &State, now: Duration, tokens: u64) -> Result<(), Full> {
        let Limits { rpm, tpm, concurrency } = state.limits;
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
        let by_fleet = state.purse.as_ref();
        let by_fleet =
            by_fleet.and_then(|purse| purse.full(now, &state.limits, state.load(tokens)));
        let all = [
            full(What::Requests, rpm, |load| load.requests, 1),
            full(What::Tokens, tpm, |load| load.tokens, tokens),
            by_fleet,
            no_slot,
        ];
        all.into_iter().flatten().max_by_key(|full| full.returns_in).map_or(Ok(()), Err)
    }

    /// Why the ledger would not admit it, as far as is known.
    fn refused(&self, state: &State, now: Duration, tokens: u64) -> Option<Full> {
        let whole = state.limits.tpm.filter(|limit| tokens > *limit);
        let never = |limit| Full { what: What::Tokens, limit, whole: limit, returns_in: None };
        let lately = || state.purse.as_ref()?.refused(now, tokens);
        whole.map(never).or_else(lately)
    }

    /// Takes a place out of what is set aside; `None`: there is not enough, or no ledger.
    fn draw(
        self: &Arc<Self>,
        state: &mut State,
        now: Duration,
        tokens: u64,
    ) -> Result<Option<Charge>, Full> {
        if self.share.standing() == Standing::Away {
            return Ok(None);
        }
        if let Some(full) = self.refused(state, now, tokens) {
            return Err(full);
        }
        let (load, in_flight) = (state.load(tokens), u64::from(state.in_flight));
        let limits = state.limits;
        let purse = state.purse.as_mut();
        let drawn = purse.and_then(|purse| purse.take(now, &limits, load, in_flight));
        Ok(drawn.map(|at| self.admit(state, now, tokens, Source::Ledger { at })))
    }

    /// Counts a request as this node's.
    fn admit(
        self: &Arc<Self>,
        state: &mut State,
        now: Duration,
        tokens: u64,
        source: Source,
    ) -> Charge {
        let load = state.load(tokens);
        if state.limits.has_minute() {
            state.window.add(now, load);
        }
        state.in_flight = state.in_flight.saturating_add(1);
        if let Some(purse) = self.purse(state) {
            purse.note(now, load);
        }
        self.tell(state, false);
        Charge { allowance: Arc::clone(self), at: now, load, source }
    }

    /// What is held of the ledger, if there is one.
    fn purse<'s>(&self, state: &'s mut State) -> Option<&'s mut Purse> {
        self.share.link()?;
        Some(state.purse.get_or_insert_default())
    }

    /// Tells the teller that there is something to say, unless that is known; at once, if it `is_urgent`.
    fn tell(self: &Arc<Self>, state: &mut State, is_urgent: bool) {
        let (Some(link), Some(purse)) = (self.share.link(), &mut state.purse) else { return };
        if !purse.is_told && (is_urgent || !purse.is_known) {
            purse.is_told = link.tell(self);
        }
    }

    /// The state, with these limits in force unless newer ones are.
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.edition < self.edition {
            (state.edition, state.limits) = (self.edition, self.limits);
            // What was set aside is a part of what others left of the former figures.
            state.purse.iter_mut().for_each(|purse| purse.relinquish());
        }
        state
    }
}

impl State {
    /// What a request of so many tokens weighs. One that takes more than a whole minute of the fleet
    /// has fills the minute, and no more can be said of it.
    fn load(&self, tokens: u64) -> Load {
        Load { requests: 1, tokens: self.limits.tpm.map_or(0, |limit| tokens.min(limit)) }
    }
}

/// By whom a request is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// By this node alone; the ledger, if there is one, is told later.
    Node,
    /// By the ledger, by this moment of its.
    Ledger {
        /// In microseconds.
        at: u64,
    },
}

/// The place of one request. Dropped, it frees the slot; what it took of the minute stays taken.
#[derive(Debug)]
#[must_use = "dropping a charge frees its slot"]
pub struct Charge {
    allowance: Arc<Allowance>,
    at: Duration,
    load: Load,
    source: Source,
}

impl Charge {
    /// Says how many tokens the request took, in place of the estimate; the last word counts. A minute
    /// after the admission the estimate counts no longer, and only what it has missed is added.
    pub fn correct(&mut self, tokens: u64) {
        let load = self.allowance.lock().load(tokens);
        self.replace(load);
    }

    /// Says that the request took so many tokens, or more than anybody has counted: a larger estimate
    /// stands.
    pub fn at_least(&mut self, tokens: u64) {
        let load = self.allowance.lock().load(tokens);
        if load.tokens > self.load.tokens {
            self.replace(load);
        }
    }

    /// Gives everything back: nothing was sent.
    pub fn cancel(mut self) {
        self.replace(Load::default());
    }

    fn replace(&mut self, load: Load) {
        let was = std::mem::replace(&mut self.load, load);
        if load == was {
            return;
        }
        let mut state = self.allowance.lock();
        state.window.replace(self.at, was, load);
        let now = state.window.latest();
        let has_minute = state.limits.has_minute();
        let Some(purse) = &mut state.purse else { return };
        let is_said = match self.source {
            Source::Node => purse.correct_debt(now, self.at, (was, load)),
            Source::Ledger { at } => !has_minute || purse.correct(at, was, load),
        };
        if !is_said {
            self.allowance.share.link().inspect(|link| link.lose(1));
        }
        let is_laden = purse.is_laden();
        self.allowance.tell(&mut state, is_laden);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut state = self.allowance.lock();
        state.in_flight = state.in_flight.saturating_sub(1);
        let (limits, in_flight) = (state.limits, u64::from(state.in_flight));
        if limits.concurrency.is_some()
            && let Some(purse) = &mut state.purse
        {
            let is_awaited = purse.free_slot(&limits, in_flight);
            self.allowance.tell(&mut state, is_awaited);
        }
    }
}
