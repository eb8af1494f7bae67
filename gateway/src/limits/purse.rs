//! What this node holds of one subject's limits where the fleet keeps them in a ledger: set aside for its
//! next requests, owed, to be corrected; and what it last heard of the rest.
//!
//! What was set aside is counted in the ledger already, so that a request takes it without asking. It
//! comes by how much this node admitted lately, is used for [`HOLD`] and then given back. So nothing is
//! held for a subject that nobody asks for here.
//!
//! Pure. Invariants: nothing is taken out that the ledger has not counted; what a turn says is given up
//! is given up before the turn goes out, so that nobody uses what others may have got; every list has a
//! bound, and what falls off it is counted.

use std::collections::VecDeque;
use std::time::Duration;

use redis_lua::limits::{
    Answer, CORRECTIONS_MAX, Correction, Figures, Load, MINUTE, SLOT_RETURNS_IN, Turn, Window,
    spare,
};

use super::{Figure, Full, Left, What};
use crate::config::Limits;

/// For how long what was set aside may be used, from before it was asked for.
const HOLD: Duration = Duration::from_secs(1);
/// For how long slots are this node's unless it says so again: so soon they return if it dies.
const LEASE: Duration = Duration::from_secs(8);
/// Slots are said again when their lease has no more than this.
const RENEW_BELOW: Duration = Duration::from_secs(5);
/// For how long a refusal of the ledger is repeated without asking: a flood asks twenty times a second.
const REPEATED_FOR: Duration = Duration::from_millis(50);
/// The stretch by which what this node admits is measured.
const STRETCH: Duration = Duration::from_millis(500);
/// At most so many portions are set aside.
const PORTIONS_MAX: usize = 4;
/// At most so many corrections wait.
const WAITING_MAX: usize = 256;
/// At most so many free slots are kept.
const KEPT_MAX: u64 = 64;

/// What is held, owed, waits and is known.
#[derive(Debug, Default)]
pub(super) struct Purse {
    /// Oldest first; at most [`PORTIONS_MAX`].
    portions: VecDeque<Portion>,
    /// Slots that the ledger counts as this node's, those in use among them.
    slots: u64,
    slots_until: Duration,
    /// What was admitted without the ledger and it does not know of.
    debt: Window,
    /// At most [`WAITING_MAX`].
    corrections: VecDeque<Correction>,
    view: Option<View>,
    refusal: Option<Refusal>,
    recent: Recent,
    /// Whether the teller looks after it.
    pub(super) is_known: bool,
    /// Whether the teller is about to be told of it.
    pub(super) is_told: bool,
}

/// Something set aside by one turn.
#[derive(Debug)]
struct Portion {
    /// By which moment the ledger counts it.
    at: u64,
    until: Duration,
    left: Load,
}

impl Portion {
    /// Whether a request of this load may be admitted by it.
    fn fits(&self, now: Duration, load: Load) -> bool {
        now < self.until && self.left.requests >= load.requests && self.left.tokens >= load.tokens
    }
}

/// What the ledger last said of all nodes together.
#[derive(Clone, Copy, Debug)]
struct View {
    at: Duration,
    sum: Load,
    resets: [Duration; 2],
    slots_of_all: u64,
}

/// What the ledger last refused.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    at: Duration,
    tokens: u64,
    full: Full,
}

/// What was admitted in this stretch of time and in the one before it.
#[derive(Debug, Default)]
struct Recent {
    since: Duration,
    this: Load,
    last: Load,
}

impl Recent {
    fn turn_over(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.since);
        if passed >= STRETCH {
            self.last = if passed < STRETCH * 2 { self.this } else { Load::default() };
            (self.this, self.since) = (Load::default(), now);
        }
    }

    fn note(&mut self, now: Duration, load: Load) {
        self.turn_over(now);
        self.this.add(load);
    }

    /// The larger of both.
    fn most(&mut self, now: Duration) -> Load {
        self.turn_over(now);
        Load {
            requests: self.this.requests.max(self.last.requests),
            tokens: self.this.tokens.max(self.last.tokens),
        }
    }
}

impl Purse {
    /// Takes a request's load out of what is set aside, where `in_flight` others run. Returns by which
    /// moment the ledger counts it; `None`: there is not enough, and nothing was taken.
    pub(super) fn take(
        &mut self,
        now: Duration,
        limits: &Limits,
        load: Load,
        in_flight: u64,
    ) -> Option<u64> {
        if !self.has_slot(now, limits, in_flight) {
            return None;
        }
        if !limits.has_minute() {
            return Some(0);
        }
        let portion = self.portions.iter_mut().find(|portion| portion.fits(now, load))?;
        portion.left.remove(load);
        Some(portion.at)
    }

    /// Whether [`Self::take`] would find enough.
    pub(super) fn has(&self, now: Duration, limits: &Limits, load: Load, in_flight: u64) -> bool {
        self.has_slot(now, limits, in_flight)
            && (!limits.has_minute() || self.portions.iter().any(|portion| portion.fits(now, load)))
    }

    fn has_slot(&self, now: Duration, limits: &Limits, in_flight: u64) -> bool {
        limits.concurrency.is_none() || (now < self.slots_until && in_flight < self.slots)
    }

    /// Notes that something was admitted, by whatever way.
    pub(super) fn note(&mut self, now: Duration, load: Load) {
        self.recent.note(now, load);
    }

    /// Notes that it was admitted without the ledger.
    pub(super) fn owe(&mut self, now: Duration, load: Load) {
        self.debt.advance(now);
        self.debt.add(now, load);
    }

    /// Says what a request took that was admitted without the ledger, at `at`. Returns whether all of it
    /// can be said: by which moment the ledger counts what it was told of nobody knows, so that what was
    /// missed counts from now on, and what is to be given back is lost.
    pub(super) fn correct_debt(
        &mut self,
        now: Duration,
        at: Duration,
        (was, is): (Load, Load),
    ) -> bool {
        let now = self.debt.advance(now);
        let is_told = !self.debt.counts(at) && now.saturating_sub(at) < MINUTE;
        self.debt.replace(at, was, is);
        !is_told || (is.requests >= was.requests && is.tokens >= was.tokens)
    }

    /// Has what the ledger counts by the moment `at` corrected. Returns whether there was place for it.
    pub(super) fn correct(&mut self, at: u64, was: Load, is: Load) -> bool {
        // All that one turn or portion has admitted is of one moment.
        if let Some(same) = self.corrections.iter_mut().rev().find(|one| one.at == at) {
            same.was.add(was);
            same.is.add(is);
            return true;
        }
        let has_place = self.corrections.len() < WAITING_MAX;
        if has_place {
            self.corrections.push_back(Correction { at, was, is });
        }
        has_place
    }

    /// Whether so many corrections wait that they fill a turn.
    pub(super) fn is_laden(&self) -> bool {
        self.corrections.len() >= CORRECTIONS_MAX
    }

    /// What the ledger has just refused, if it would refuse a request of so many tokens as well.
    pub(super) fn refused(&self, now: Duration, tokens: u64) -> Option<Full> {
        let Refusal { at, tokens: refused, full } = self.refusal?;
        let passed = now.saturating_sub(at);
        let is_as_large = full.what != What::Tokens || tokens >= refused;
        let rest = full.returns_in.map(|period| period.saturating_sub(passed));
        let lasts = passed < REPEATED_FOR && rest.is_none_or(|rest| !rest.is_zero());
        (is_as_large && lasts).then_some(Full { returns_in: rest, ..full })
    }

    /// What the fleet has used up as far as this node knows, where it decides alone.
    pub(super) fn full(&self, now: Duration, limits: &Limits, load: Load) -> Option<Full> {
        let view = self.view?;
        let (passed, debt) = (now.saturating_sub(view.at), self.debt.sum());
        let full = |what, limit: Option<u64>, used: u64, wanted: u64, reset: Duration| {
            let (limit, rest) = (limit?, reset.saturating_sub(passed));
            let is_full = used.saturating_add(wanted) > limit && !rest.is_zero();
            is_full.then_some(Full { what, limit, whole: limit, returns_in: Some(rest) })
        };
        let requests = view.sum.requests.saturating_add(debt.requests);
        let tokens = view.sum.tokens.saturating_add(debt.tokens);
        let [requests_reset, tokens_reset] = view.resets;
        let slots = limits.concurrency.map(u64::from);
        let all = [
            full(What::Requests, limits.rpm, requests, 1, requests_reset),
            full(What::Tokens, limits.tpm, tokens, load.tokens, tokens_reset),
            full(What::Concurrency, slots, view.slots_of_all, 1, SLOT_RETURNS_IN),
        ];
        all.into_iter().flatten().max_by_key(|full| full.returns_in)
    }

    /// What is left of the fleet's figures, as far as this node knows.
    pub(super) fn left(&self, now: Duration, limits: &Limits) -> Left {
        let (mut used, mut resets) = (self.debt.sum(), [Duration::ZERO; 2]);
        if let Some(view) = self.view {
            let passed = now.saturating_sub(view.at);
            resets = view.resets.map(|reset| reset.saturating_sub(passed));
            used.add(view.sum);
            // What is set aside for this node is left to whoever asks it.
            for portion in self.portions.iter().filter(|portion| now < portion.until) {
                used.remove(portion.left);
            }
        }
        let left = |limit: Option<u64>, used: u64, reset: Duration| {
            let limit = limit?;
            let used = if reset.is_zero() { 0 } else { used };
            Some(Figure { limit, remaining: limit.saturating_sub(used), reset })
        };
        let [requests_reset, tokens_reset] = resets;
        Left {
            requests: left(limits.rpm, used.requests, requests_reset),
            tokens: left(limits.tpm, used.tokens, tokens_reset),
        }
    }

    /// Notes that a slot was freed here. Returns whether others wait for as little as one.
    pub(super) fn free_slot(&mut self, limits: &Limits, in_flight: u64) -> bool {
        self.refusal = self.refusal.filter(|refusal| refusal.full.what != What::Concurrency);
        self.slots > in_flight && self.slots_to_keep(limits, u64::MAX) == 0
    }

    /// How many free slots may be kept of as many as are `wanted`.
    fn slots_to_keep(&self, limits: &Limits, wanted: u64) -> u64 {
        let of_all = self.view.map_or(0, |view| view.slots_of_all);
        let limit = limits.concurrency.map(u64::from);
        limit.map_or(0, |limit| spare(Some(limit), of_all, wanted.min(KEPT_MAX)))
    }

    /// What is to be said to the ledger, with these demands; `None`: nothing. What the turn gives up is
    /// given up here and now.
    pub(super) fn compose(
        &mut self,
        now: Duration,
        limits: &Limits,
        in_flight: u64,
        demands: &[u64],
    ) -> Option<Turn> {
        self.give_back(|portion| now < portion.until && portion.left.requests > 0);
        self.debt.advance(now);
        let recent = self.recent.most(now);
        let aside = self.to_set_aside(limits, recent);
        let keep = self.slots_to_keep(limits, recent.requests);
        let held = if now < self.slots_until { self.slots } else { 0 };
        let retained = held.saturating_sub(in_flight).min(keep);
        let in_use = in_flight.saturating_add(retained);
        let is_due = self.slots_until.saturating_sub(now) < RENEW_BELOW && in_use > 0;
        let is_slot_news = limits.concurrency.is_some()
            && (is_due || held > in_use || held < in_flight || retained < keep / 2);
        let has_news = !demands.is_empty()
            || !self.corrections.is_empty()
            || self.debt.sum() != Load::default()
            || aside != Load::default()
            || is_slot_news;
        if !has_news {
            return None;
        }
        self.slots = held.min(in_use);
        let debt = std::mem::take(&mut self.debt).sum();
        let waiting = self.corrections.len().min(CORRECTIONS_MAX);
        Some(Turn {
            figures: figures(limits),
            in_use,
            keep: keep.saturating_sub(retained),
            lease: LEASE,
            debt,
            aside,
            hold: HOLD,
            corrections: self.corrections.drain(..waiting).collect(),
            demands: demands.to_vec(),
            ..Turn::default()
        })
    }

    /// Has everything given back that no request uses, and asks again about what was refused.
    pub(super) fn relinquish(&mut self) {
        self.give_back(|_| false);
        (self.recent, self.refusal) = (Recent::default(), None);
    }

    fn give_back(&mut self, is_kept: impl Fn(&Portion) -> bool) {
        for portion in std::mem::take(&mut self.portions) {
            if is_kept(&portion) {
                self.portions.push_back(portion);
            } else if portion.left != Load::default() {
                self.correct(portion.at, portion.left, Load::default());
            }
        }
    }

    /// As much as was admitted lately, once what is there is less than half of it.
    fn to_set_aside(&self, limits: &Limits, recent: Load) -> Load {
        let there = self.portions.iter().fold(Load::default(), |mut sum, portion| {
            sum.add(portion.left);
            sum
        });
        let is_short = there.requests < recent.requests.div_ceil(2)
            || there.tokens < recent.tokens.div_ceil(2);
        let used = self.view.map_or(Load::default(), |view| view.sum);
        let mut wanted = recent;
        wanted.remove(there);
        let requests = spare(limits.rpm, used.requests, wanted.requests.max(1));
        let tokens = spare(limits.tpm, used.tokens, wanted.tokens.max(1));
        let has_place = self.portions.len() < PORTIONS_MAX && limits.has_minute();
        // Not so few tokens that no usual request could be admitted by them.
        let is_enough = tokens.saturating_mul(recent.requests) >= recent.tokens;
        if is_short && has_place && is_enough && requests > 0 && tokens > 0 {
            Load { requests, tokens }
        } else {
            Load::default()
        }
    }

    /// Takes what a turn sent at `sent` has brought.
    pub(super) fn receive(&mut self, sent: Duration, now: Duration, answer: &Answer) {
        let Answer { aside, aside_at, sum, resets, slots, slots_of_all, .. } = answer;
        if *aside != Load::default() && self.portions.len() < PORTIONS_MAX {
            let portion = Portion { at: *aside_at, until: sent.saturating_add(HOLD), left: *aside };
            self.portions.push_back(portion);
        }
        (self.slots, self.slots_until) = (*slots, sent.saturating_add(LEASE));
        self.view = Some(View { at: now, sum: *sum, resets: *resets, slots_of_all: *slots_of_all });
        self.refusal = None;
    }

    /// Notes what the ledger refused a request of so many tokens.
    pub(super) fn repeat(&mut self, now: Duration, tokens: u64, full: Full) {
        self.refusal = Some(Refusal { at: now, tokens, full });
    }

    /// Whether nothing is held, owed or waits.
    pub(super) fn is_empty(&self, in_flight: u64) -> bool {
        self.portions.is_empty()
            && self.corrections.is_empty()
            && self.debt.sum() == Load::default()
            && (self.slots, in_flight) == (0, 0)
    }
}

/// What is configured, as the ledger takes it.
pub(super) fn figures(limits: &Limits) -> Figures {
    let Limits { rpm, tpm, concurrency } = *limits;
    Figures { requests: rpm, tokens: tpm, slots: concurrency.map(u64::from) }
}
