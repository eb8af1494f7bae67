//! On what the fleet's verdicts rest: gossip's majority, a ledger, or this node alone.
//!
//! Where a ledger decides, evidence and votes are gossiped as ever, and this node neither opens nor
//! takes a step by itself: it says what it would say to the ledger ([`Council::words`]), proposes steps
//! ([`Council::need`]), and takes in what is committed ([`Council::enter`]). Steps that it hears by gossip
//! are committed, or were taken by members that the ledger is out of reach of; either way they are heard.
//! When the ledger is away the council goes on from the same circuits by its own rule.
//!
//! Invariants: that the ledger holds nothing closes nothing; what it holds is behind what this node
//! knows at worst, and then changes nothing; what a majority has out by the members' own word is out here
//! as well, though the ledger is out of reach of them, until its own time is over; an opening that neither
//! the ledger nor such a majority stands by is let go of.

use std::time::Duration;

use crate::circuit::{Circuit, fence, is_open};
use crate::council::{Council, Decision, announce};
use crate::dossier::Dossier;
use crate::ledger::{Count, Entry, Lead};
use crate::statement::{EndpointKey, Stage, Step};
use crate::tally::{Tally, quorum_of};

/// An opening that the ledger does not have is let go of after so many intervals: by then whoever has
/// it out has said so to the ledger, and a majority of them would have brought it there.
const UNBACKED_INTERVALS: u32 = 5;

/// Nor sooner than this, however short an interval is: a call may take as long.
const UNBACKED_MIN: Duration = Duration::from_secs(3);

/// What was read longer ago than this many intervals is no longer gone by.
const FRESH_INTERVALS: u32 = 3;

/// By what the fleet's verdicts come about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reliance {
    /// By the votes that gossip brings.
    #[default]
    Gossip,
    /// By what the ledger commits.
    Ledger,
    /// Not at all: each node goes by its own breakers, as one that is cut off does.
    Alone,
}

/// What the ledger holds of an endpoint, as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Entered {
    step: Option<Step>,
    count: Count,
    at: Duration,
    /// Since when this node knows a further step than the ledger.
    ahead_since: Option<Duration>,
    /// Since when this node has the endpoint out and the ledger does not.
    unbacked_since: Option<Duration>,
}

impl Entered {
    /// Whether the ledger has the endpoint out.
    pub(super) fn is_out(&self) -> bool {
        self.step.as_ref().is_some_and(is_open)
    }
}

impl Council {
    /// By what the fleet's verdicts come about from `now` on. What this node proposed to the ledger and
    /// the ledger did not answer is done by gossip's rule, but for probes: those come by turns anew.
    pub fn rely(&mut self, now: Duration, reliance: Reliance) {
        if self.reliance == reliance {
            return;
        }
        let is_current = self.is_current(now) && self.electorate.has_quorum();
        self.reliance = reliance;
        self.relied_from = now;
        for (endpoint, dossier) in &mut self.dossiers {
            dossier.entered.take_if(|_| reliance != Reliance::Ledger);
            dossier.review(now, &self.me, self.rule.interval);
            let report = dossier.motion.take().and_then(|motion| motion.into_report());
            if let Some(step) = report.filter(|_| is_current && reliance == Reliance::Gossip) {
                let change = dossier.circuit.hear_step(now, Duration::ZERO, &step);
                announce(&mut self.pending, endpoint, dossier.circuit.closed(), change);
            }
        }
    }

    /// By what the fleet's verdicts come about.
    pub fn reliance(&self) -> Reliance {
        self.reliance
    }

    /// How often gossip goes round; the ledger is read as often.
    pub fn interval(&self) -> Duration {
        self.rule.interval
    }

    /// Takes in what the ledger holds of an endpoint, as of `now`. What follows comes out of the next
    /// [`step`](Self::step). Returns whether anything does that should not wait for long.
    pub fn enter(&mut self, now: Duration, endpoint: &EndpointKey, entry: &Entry) -> bool {
        self.wake(now);
        let (rank, awake, interval) = (self.rank(endpoint), self.awake(), self.rule.interval);
        let has_lead = entry.lead.as_ref().is_some_and(|lead| self.is_mine(lead));
        let Some(dossier) = self.dossiers.get_mut(endpoint) else {
            return false;
        };
        let circuit = &mut dossier.circuit;
        circuit.heed(entry.floor.epoch);
        let order = entry.order.as_ref();
        let mut is_news = order.is_some_and(|order| circuit.hear_order(now, Duration::ZERO, order));
        let mut is_taken_by_me = false;
        if let Some(step) = entry.step.as_ref().filter(|step| circuit.trust(step.incident)) {
            let known = circuit.furthest.as_ref();
            let is_further = known.is_none_or(|(known, _)| fence(step) > fence(known));
            let change = circuit.hear_step(now, Duration::ZERO, step);
            announce(&mut self.pending, endpoint, circuit.closed(), change);
            is_news |= is_further;
            is_taken_by_me = is_further && step.steward == self.me;
        }
        dossier.entered = Some(entered(now, interval, circuit, dossier.entered.as_ref(), entry));
        let patience = circuit.recovery.probe_timeout.saturating_add(interval);
        let lasts = entry.lead.as_ref().is_some_and(|lead| lead.remaining >= patience);
        if has_lead && lasts && self.reliance == Reliance::Ledger && now >= self.observing_until {
            let is_due = |circuit: &Circuit| {
                is_taken_by_me || rank.is_some_and(|rank| circuit.is_probe_due(now, rank, awake))
            };
            if let Some(fence) = dossier.begin_probe(now, &self.me, is_due) {
                let endpoint = endpoint.clone();
                self.pending.push(Decision::Probe { endpoint, fence });
            }
        }
        dossier.review(now, &self.me, interval);
        if is_news {
            self.stirred.insert(endpoint.clone());
        }
        is_news || !self.pending.is_empty()
    }

    /// The largest incident of an endpoint that this node has heard of in any plausible statement.
    pub fn epoch_seen(&self, endpoint: &EndpointKey) -> u64 {
        self.dossiers.get(endpoint).map_or(0, |dossier| dossier.circuit.seen())
    }

    fn is_mine(&self, lead: &Lead) -> bool {
        lead.holder == self.me && lead.generation == self.generation()
    }

    /// The step that the ledger is to be told of: it does not know it, or has lost it. A step of an
    /// incident that does not stand there is not told: a majority of those who have it out is.
    pub fn carry(&self, now: Duration, endpoint: &EndpointKey) -> Option<Step> {
        let dossier = self.dossiers.get(endpoint)?;
        let entered = dossier.entered.as_ref()?;
        let patience = self.rule.interval / 2;
        let is_lasting = |since: Duration| entered.at >= since.saturating_add(patience);
        entered.ahead_since.filter(|since| is_lasting(*since))?;
        let step = dossier.circuit.step_at(now)?;
        let stands = entered
            .step
            .as_ref()
            .is_some_and(|there| is_open(there) && there.incident == step.incident);
        (step.stage == Stage::Closed || stands).then_some(step)
    }

    /// Whether this node knows more of an endpoint than the ledger.
    pub fn is_ahead(&self, endpoint: &EndpointKey) -> bool {
        let entered = self.dossiers.get(endpoint).and_then(|dossier| dossier.entered.as_ref());
        entered.is_some_and(|entered| entered.ahead_since.is_some())
    }

    /// Does for an endpoint what follows where the ledger decides. Returns whether this node may use
    /// the canary slot.
    pub(super) fn go_by_ledger(&mut self, now: Duration, endpoint: &EndpointKey) -> bool {
        let interval = self.rule.interval;
        if let Some(dossier) = self.dossiers.get_mut(endpoint) {
            dossier.review(now, &self.me, interval);
            dossier.drop_probe();
        }
        self.follow_ledger(now, endpoint);
        let may_lead = now >= self.observing_until;
        if may_lead {
            self.lead(now, endpoint);
        }
        may_lead
    }

    /// Joins what the ledger or a majority of the members has out, and lets go of what neither has out.
    fn follow_ledger(&mut self, now: Duration, endpoint: &EndpointKey) {
        let interval = self.rule.interval;
        let fresh = interval.saturating_mul(FRESH_INTERVALS);
        let patience = interval.saturating_mul(UNBACKED_INTERVALS).max(UNBACKED_MIN);
        let Some(dossier) = self.dossiers.get(endpoint) else {
            return;
        };
        let is_held = self.holders(now, dossier) >= quorum_of(self.electorate.size());
        let is_out = dossier.circuit.opening.is_some();
        let is_fresh = |entered: &&Entered| now <= entered.at.saturating_add(fresh);
        let entered = dossier.entered.as_ref().filter(is_fresh);
        let is_over = |since: Duration| now >= since.saturating_add(patience);
        let is_unbacked = entered.and_then(|one| one.unbacked_since).is_some_and(is_over);
        let furthest = dossier.circuit.furthest.as_ref().map(|(step, _)| step.incident);
        let is_that = |one: &Entered| one.step.as_ref().map(|step| step.incident) == furthest;
        let count = entered.filter(|one| one.is_out() && is_that(one)).map(|one| one.count);
        if is_out {
            if is_unbacked {
                self.let_go(now, endpoint, !is_held);
            }
        } else if let Some(count) = count {
            if self.has_room_beside(now, endpoint) {
                self.join_ledger(now, endpoint, count);
            }
        } else if is_held && self.may_join(now, dossier) && self.has_room_beside(now, endpoint) {
            let tally = self.count(now, endpoint);
            self.join(endpoint, tally);
        }
    }

    /// Whether this node may join by the members' own word: once it knows them, and for as long as what
    /// it would join lasts.
    fn may_join(&self, now: Duration, dossier: &Dossier) -> bool {
        let mut draft = dossier.circuit.clone();
        let is_led = draft.join().is_some();
        now >= self.observing_until && is_led && !draft.is_expired(now, self.rule.max_open)
    }

    fn join_ledger(&mut self, now: Duration, endpoint: &EndpointKey, count: Count) {
        let Some(dossier) = self.dossiers.get(endpoint) else {
            return;
        };
        let electorate = self.denominator(now, dossier);
        let joined = self.dossiers.get_mut(endpoint).and_then(|one| one.circuit.join());
        if let Some(opening) = joined {
            let tally = tally_of(count, opening.incident);
            let endpoint = endpoint.clone();
            self.pending.push(Decision::Opened { endpoint, opening, tally, electorate });
        }
    }
}

/// What is to be remembered of an entry read at `now`; `before` is what was.
fn entered(
    now: Duration,
    interval: Duration,
    circuit: &Circuit,
    before: Option<&Entered>,
    entry: &Entry,
) -> Entered {
    let step = entry.step.clone();
    // What was read long ago says nothing about the time between.
    let recent = interval.saturating_mul(FRESH_INTERVALS);
    let before = before.filter(|before| now <= before.at.saturating_add(recent));
    let there = step.as_ref().map(fence);
    let is_ahead = circuit.furthest.as_ref().is_some_and(|(known, _)| Some(fence(known)) > there);
    let is_unbacked = circuit.opening.as_ref().is_some_and(|opening| {
        let is_it = |step: &Step| is_open(step) && step.incident >= opening.incident;
        !step.as_ref().is_some_and(is_it)
    });
    let since = |was: Option<Duration>, is_so: bool| is_so.then_some(was.unwrap_or(now));
    Entered {
        ahead_since: since(before.and_then(|before| before.ahead_since), is_ahead),
        unbacked_since: since(before.and_then(|before| before.unbacked_since), is_unbacked),
        step,
        count: entry.count,
        at: now,
    }
}

/// The ledger's count as the rule tells of a count.
fn tally_of(count: Count, incident: u64) -> Tally {
    let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    Tally {
        first_hand: number(count.first_hand),
        seconded: number(count.seconded),
        counted: number(count.counted),
        holders: number(count.holders),
        void: 0,
        quorum: number(count.quorum),
        incident,
    }
}
