//! The way back as this node leads it: the probe, the canary slot, the closing.
//!
//! A step is believed from any member, a closing too: one that lies can return what the fleet has
//! out. To believe a closing only of who has had its turn, or if a second vouches for it, was tried
//! and costs more than it gives. Who states a closing can state the probe before it, so steps would
//! have to be held to turns as well; and a reader that missed a step does not know whose turn it
//! is, so that honest closings of whoever took over wait, and views part. What a lie does is
//! bounded all the same: it ends one incident, the votes for the next one count at once, and a
//! breaker that it released opens again on its own traffic.

use std::time::Duration;

use crate::circuit::{Change, ProbeResult, Way};
use crate::council::{CanaryFence, CanaryWord, Council, Decision, Reliance};
use crate::dossier::Dossier;
use crate::statement::{EndpointKey, Forced, NodeId, Stage};
use crate::steward;

impl Council {
    /// Does what the lead of a standing opening asks of this node. Only called while a majority is
    /// live and this node does not observe.
    pub(super) fn lead(&mut self, now: Duration, endpoint: &EndpointKey) {
        let Some(dossier) = self.dossiers.get_mut(endpoint) else {
            return;
        };
        let circuit = &mut dossier.circuit;
        let Some(opening) = &circuit.opening else {
            return;
        };
        let has_slot = opening.slot.is_some();
        // Who leads may not have it out: somebody has to say that it is out at all.
        let patience = self.rule.interval;
        if circuit.is_unled() && now >= opening.since.saturating_add(patience) {
            let remaining = opening.due.saturating_sub(now);
            circuit.take_step(now, &self.me, Stage::Waiting { remaining });
        }
        if self.is_over(now, endpoint) {
            self.advance(now, endpoint, |circuit, me| circuit.close(now, me));
        } else if has_slot {
            self.keep_slot(now, endpoint);
        } else {
            self.probe(now, endpoint);
        }
    }

    /// Sends the probe if it is due and this node's turn, or goes on without one.
    fn probe(&mut self, now: Duration, endpoint: &EndpointKey) {
        let (rank, awake) = (self.rank(endpoint), self.awake());
        let Some(dossier) = self.dossiers.get_mut(endpoint) else {
            return;
        };
        let circuit = &mut dossier.circuit;
        if !rank.is_some_and(|rank| circuit.is_probe_due(now, rank, awake)) {
            return;
        }
        match circuit.recovery.way {
            Way::Ladder { probe: true, .. } => {
                let incident = circuit.opening.as_ref().map_or(0, |opening| opening.incident);
                if self.reliance == Reliance::Ledger {
                    dossier.move_to_probe(now, &self.me);
                } else if let Some(failures) = circuit.begin_probe(now, &self.me) {
                    let (endpoint, fence) = (endpoint.clone(), (incident, failures));
                    self.pending.push(Decision::Probe { endpoint, fence });
                }
            }
            Way::Ladder { canaries: 0, .. } => {
                self.advance(now, endpoint, |circuit, me| circuit.close(now, me));
            }
            Way::Ladder { .. } => self.hand_on(now, endpoint),
            // Its time alone ends it.
            Way::Lazy { .. } => {}
        }
    }

    /// Looks after the canary slot: takes it back from a holder that is silent, lost or going, and
    /// gives it away if this node holds it without a use for it.
    fn keep_slot(&mut self, now: Duration, endpoint: &EndpointKey) {
        let Some(dossier) = self.dossiers.get(endpoint) else {
            return;
        };
        let slot = dossier.circuit.opening.as_ref().and_then(|opening| opening.slot.as_ref());
        let Some(slot) = slot.filter(|_| dossier.circuit.forced(now) == Forced::Auto) else {
            return;
        };
        let rank = self.rank(endpoint);
        let is_mine = slot.holder == self.me;
        // One that is under way must be answered first; what was seen before does not tell.
        let is_resting = dossier.own.is_of(now) && !dossier.own.is_trying;
        let has_no_use = rank.is_none() || !self.has_small(now, dossier, &self.me);
        let may_pass = is_mine && is_resting && has_no_use;
        let next = may_pass.then(|| self.next_holder(now, endpoint, dossier));
        let other = next.filter(|next| *next != self.me);
        // Who leads no more holds nothing; who leads and has no use for it keeps it from nobody.
        let is_passed =
            other.is_some_and(|next| rank.is_none() || self.has_small(now, dossier, &next));
        let is_lost = !self.electorate.is_live(&slot.holder);
        let lost_at =
            is_lost.then(|| self.electorate.lost_since(&slot.holder).unwrap_or(slot.known_at));
        let is_due =
            rank.is_some_and(|rank| dossier.circuit.is_slot_due(now, rank, lost_at, self.awake()));
        if is_passed || is_due {
            self.hand_on(now, endpoint);
        }
    }

    /// Gives the slot to who is next.
    fn hand_on(&mut self, now: Duration, endpoint: &EndpointKey) {
        let Some(dossier) = self.dossiers.get(endpoint) else {
            return;
        };
        let holder = self.next_holder(now, endpoint, dossier);
        self.advance(now, endpoint, |circuit, me| {
            circuit.lend(now, me, holder);
            Change::Nothing
        });
    }

    /// Who gets the slot next: in rank order from the last holder, the first that has small requests
    /// and has the endpoint out, since nobody else can use it. Nobody has: this node itself, or if it
    /// does not lead, or has nothing but a shadow of a breaker to lend the slot to, the next other
    /// member that does lead.
    fn next_holder(&self, now: Duration, endpoint: &EndpointKey, dossier: &Dossier) -> NodeId {
        let ranking = steward::ranking(endpoint, self.electorate.leaders());
        let slot = dossier.circuit.opening.as_ref().and_then(|opening| opening.slot.as_ref());
        let last = slot.and_then(|slot| ranking.iter().position(|id| **id == slot.holder));
        let start = last.map_or(0, |last| last + 1);
        let turns = ranking.iter().cycle().skip(start).take(ranking.len()).copied();
        let can_use = |id: &&NodeId| {
            (**id == self.me || self.has_out(now, dossier, id)) && self.has_small(now, dossier, id)
        };
        let next = turns.clone().find(can_use);
        let is_of_use = ranking.contains(&&self.me) && !dossier.own.is_shadow;
        let fallback = turns.clone().find(|id| is_of_use == (**id == self.me));
        next.or(fallback).unwrap_or(&self.me).clone()
    }

    /// Whether the member has small requests to send, as far as is known here.
    fn has_small(&self, now: Duration, dossier: &Dossier, id: &NodeId) -> bool {
        if *id == self.me {
            return dossier.own.window().has_small;
        }
        self.windows(now, dossier).any(|(other, window, _)| other == id && window.has_small)
    }

    /// Tells this node's breaker whether it holds the slot. While this node only observes, or no
    /// majority is live, it does not: others may have taken the slot over.
    pub(super) fn lend(&mut self, now: Duration, endpoint: &EndpointKey, may_lead: bool) {
        let Some(dossier) = self.dossiers.get_mut(endpoint) else {
            return;
        };
        let is_leaving = dossier.is_slot_leaving(&self.me);
        let circuit = &mut dossier.circuit;
        let held = circuit.held(now, &self.me).filter(|_| may_lead && !is_leaving);
        let fence = held.map(|(fence, _)| fence);
        if fence == circuit.lent {
            return;
        }
        circuit.lent = fence;
        let endpoint = endpoint.clone();
        match held {
            Some((fence, successes)) => {
                self.pending.push(Decision::Lend { endpoint, fence, successes });
            }
            // A closing says it all.
            None if circuit.opening.is_none() => {}
            None => self.pending.push(Decision::Recall { endpoint }),
        }
    }

    /// Reports how the probe of a [`Decision::Probe`] went. While this node only observes, or no
    /// majority is live, an answer does not count: the probe is from before the pause.
    pub fn probed(
        &mut self,
        now: Duration,
        endpoint: &EndpointKey,
        fence: (u64, u32),
        result: ProbeResult,
    ) {
        let is_current = self.is_current(now);
        let Some(dossier) = self.dossiers.get_mut(endpoint) else {
            return;
        };
        let circuit = &mut dossier.circuit;
        if !is_current {
            circuit.void_probe(now, &self.me, fence);
            return;
        }
        let change = self.advance(now, endpoint, |circuit, me| {
            circuit.end_probe(now, (me, endpoint), fence, result)
        });
        if change == Change::Passed {
            self.hand_on(now, endpoint);
        }
    }

    /// Reports what the canaries of a [`Decision::Lend`] met. A word about a hold of the slot that
    /// has been overtaken changes nothing, nor does one while this node only observes.
    pub fn canaried(
        &mut self,
        now: Duration,
        endpoint: &EndpointKey,
        fence: CanaryFence,
        word: CanaryWord,
    ) {
        let is_current = self.is_current(now);
        if !is_current {
            return;
        }
        if self.end_canary(now, endpoint, fence, word) {
            self.pass(now, endpoint);
        }
    }

    /// Gives back the hold of the canary slot that was lent under `fence`, since the endpoint is
    /// another machine from here on: it goes to who is next, or for a turn of its own to this node.
    pub fn hand_back(&mut self, now: Duration, endpoint: &EndpointKey, fence: CanaryFence) {
        let is_current = self.is_current(now);
        if is_current && self.end_canary(now, endpoint, fence, CanaryWord::Idle) {
            self.hand_on(now, endpoint);
        }
    }

    /// Takes in what the holder of the slot reports. Returns whether the slot is to be handed on.
    fn end_canary(
        &mut self,
        now: Duration,
        endpoint: &EndpointKey,
        fence: CanaryFence,
        word: CanaryWord,
    ) -> bool {
        let mut is_idle = false;
        self.advance(now, endpoint, |circuit, me| {
            let change;
            (change, is_idle) = circuit.end_canary(now, (me, endpoint), fence, word);
            change
        });
        is_idle
    }

    /// Hands the slot on if there is anybody who has a use for it. Nobody has: it stays, and not a
    /// word is said about it until its time is over.
    fn pass(&mut self, now: Duration, endpoint: &EndpointKey) {
        let Some(dossier) = self.dossiers.get(endpoint) else {
            return;
        };
        if self.next_holder(now, endpoint, dossier) != self.me {
            self.hand_on(now, endpoint);
        }
    }

    /// Whether this node may lead at `now`.
    pub(super) fn is_current(&self, now: Duration) -> bool {
        let may_lead = self.electorate.has_quorum() || self.reliance == Reliance::Ledger;
        now >= self.observing_until && !self.has_slept(now) && may_lead
    }

    /// From when on turns are counted: before, nobody could lead, or another led in this node's
    /// place, and all ranks would be past their turns at once.
    pub(super) fn awake(&self) -> Duration {
        let majority_since = self.electorate.majority_since().unwrap_or_default();
        let among = match self.reliance {
            Reliance::Gossip | Reliance::Alone => majority_since,
            Reliance::Ledger => Duration::ZERO,
        };
        self.observing_until.max(among).max(self.cleared_from).max(self.relied_from)
    }
}
