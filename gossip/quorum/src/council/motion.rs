//! What this node proposes to the ledger: the step that its lead of an endpoint comes to next.
//!
//! A deed of the lead is tried on a draft of the circuit. The step that comes of it is the motion, and
//! nothing of it is true until the ledger has it. There is one motion an endpoint: of two the further
//! step takes the place of the other, as it would among steps that were taken. A probe is moved for as
//! long as it is due and no longer; it begins once the ledger has its step, and this node the lead for
//! long enough.
//!
//! Invariant: a motion of a state that another member has led on from is dropped.

use std::time::Duration;

use crate::circuit::{Change, Circuit, fence};
use crate::council::{Council, Reliance, announce};
use crate::dossier::Dossier;
use crate::statement::{EndpointKey, NodeId, Stage, Step};

/// A motion that the ledger has not taken after so many intervals is dropped: what it says is old, and
/// the stage that it would have ended has its own end.
const STANDS_INTERVALS: u32 = 10;

/// A step that this node proposes.
#[derive(Clone, Debug)]
pub(crate) struct Motion {
    step: Step,
    /// The furthest step that was known when it was made.
    base: Option<Step>,
    kind: Kind,
    since: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// What follows from how something went, or from a time that is over.
    Report,
    /// A probe is to begin.
    Probe,
    /// The same, and its step stands already: it was lost, or said nothing.
    ProbeAgain,
}

/// What this node needs of the ledger for an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// To lead, and no step to be written: a probe is under way, or to begin anew.
    Lead,
    /// To lead, and to write this step.
    Step(Step),
}

impl Motion {
    /// The step, unless it is a probe's.
    pub(super) fn into_report(self) -> Option<Step> {
        (self.kind == Kind::Report).then_some(self.step)
    }
}

impl Dossier {
    /// Proposes what `draft`, a copy of the circuit on which a deed was tried, has come to. A draft that
    /// is no further than what is known is what this node alone has to know.
    fn propose(&mut self, now: Duration, draft: Circuit) {
        let base = self.circuit.furthest.as_ref().map(|(step, _)| step);
        let drafted = draft.furthest.as_ref().map(|(step, _)| step);
        let step = drafted.filter(|step| base.is_none_or(|base| fence(step) > fence(base)));
        let Some(step) = step.cloned() else {
            self.circuit = draft;
            return;
        };
        self.circuit.remember_probes(&draft);
        self.put_motion(now, step, Kind::Report);
    }

    /// Moves that this node's probe begin.
    pub(super) fn move_to_probe(&mut self, now: Duration, me: &NodeId) {
        let mut draft = self.circuit.clone();
        let is_begun = draft.begin_probe(now, me).is_some();
        let Some((step, _)) = draft.furthest.filter(|_| is_begun) else {
            return;
        };
        let known = self.circuit.furthest.as_ref();
        let is_new = known.is_none_or(|(known, _)| fence(&step) > fence(known));
        self.put_motion(now, step, if is_new { Kind::Probe } else { Kind::ProbeAgain });
    }

    fn put_motion(&mut self, now: Duration, step: Step, kind: Kind) {
        let is_further =
            self.motion.as_ref().is_none_or(|motion| fence(&motion.step) < fence(&step));
        if is_further {
            let base = self.circuit.furthest.as_ref().map(|(step, _)| step.clone());
            self.motion = Some(Motion { step, base, kind, since: now });
        }
    }

    /// Takes back the motion of a probe: it is made anew while it is due.
    pub(super) fn drop_probe(&mut self) {
        self.motion.take_if(|motion| motion.kind != Kind::Report);
    }

    /// Drops a motion that is committed, overtaken or old.
    pub(super) fn review(&mut self, now: Duration, me: &NodeId, interval: Duration) {
        let circuit = &self.circuit;
        let furthest = circuit.furthest.as_ref().map(|(step, _)| step);
        let lasts = interval.saturating_mul(STANDS_INTERVALS);
        self.motion.take_if(|motion| {
            let opening = circuit.opening.as_ref();
            let stands = opening.is_some_and(|opening| opening.incident == motion.step.incident);
            let is_further = motion.kind == Kind::ProbeAgain
                || furthest.is_none_or(|known| fence(&motion.step) > fence(known));
            let is_as_it_was = furthest.map(fence) == motion.base.as_ref().map(fence);
            let is_led_on = !is_as_it_was && furthest.is_some_and(|known| known.steward != *me);
            !stands || !is_further || is_led_on || now >= motion.since.saturating_add(lasts)
        });
    }

    /// Begins the probe that was moved, if it `is_due` and its step stands. Returns its fence.
    pub(super) fn begin_probe(
        &mut self,
        now: Duration,
        me: &NodeId,
        is_due: impl FnOnce(&Circuit) -> bool,
    ) -> Option<(u64, u32)> {
        let motion = self.motion.as_ref().filter(|motion| motion.kind != Kind::Report)?;
        let (step, _) = self.circuit.furthest.as_ref()?;
        let incident = self.circuit.opening.as_ref()?.incident;
        let is_it = fence(step) == fence(&motion.step) && incident == step.incident;
        if !is_it || !is_due(&self.circuit) {
            return None;
        }
        self.motion = None;
        let failures = self.circuit.begin_probe(now, me)?;
        Some((incident, failures))
    }

    /// Whether the canary slot that `me` holds goes by the motion: it is not used meanwhile, since who
    /// gets it may know so sooner.
    pub(super) fn is_slot_leaving(&self, me: &NodeId) -> bool {
        let slot = self.circuit.opening.as_ref().and_then(|opening| opening.slot.as_ref());
        let (Some(motion), Some(slot)) = (&self.motion, slot) else {
            return false;
        };
        match &motion.step.stage {
            Stage::Canary { holder, turn, .. } => holder != me || *turn != slot.turn,
            Stage::Waiting { .. } | Stage::Probing { .. } | Stage::Closed => true,
        }
    }
}

impl Council {
    /// Lets `deed` change the circuit and tells what it changed. Where the ledger decides, the deed is
    /// tried on a draft, and what it comes to is proposed.
    pub(super) fn advance(
        &mut self,
        now: Duration,
        endpoint: &EndpointKey,
        deed: impl FnOnce(&mut Circuit, &NodeId) -> Change,
    ) -> Change {
        let Some(dossier) = self.dossiers.get_mut(endpoint) else {
            return Change::Nothing;
        };
        if self.reliance != Reliance::Ledger {
            let change = deed(&mut dossier.circuit, &self.me);
            announce(&mut self.pending, endpoint, dossier.circuit.closed(), change);
            return change;
        }
        let mut draft = dossier.circuit.clone();
        let change = deed(&mut draft, &self.me);
        dossier.propose(now, draft);
        match change {
            Change::Closed { .. } | Change::Nothing => Change::Nothing,
            Change::Passed => Change::Passed,
        }
    }

    /// What this node needs of the ledger for an endpoint at `now`; `None`: nothing, and if it leads it
    /// may let go.
    pub fn need(&self, now: Duration, endpoint: &EndpointKey) -> Option<Need> {
        let dossier = self.dossiers.get(endpoint)?;
        match &dossier.motion {
            Some(Motion { step, kind: Kind::Report | Kind::Probe, .. }) => {
                Some(Need::Step(step.clone()))
            }
            Some(Motion { kind: Kind::ProbeAgain, .. }) => Some(Need::Lead),
            None => dossier.circuit.is_probing(now).then_some(Need::Lead),
        }
    }

    /// How long this node needs to lead an endpoint: a probe must not outlast the lead that it was sent
    /// under.
    pub fn lead_for(&self, endpoint: &EndpointKey) -> Duration {
        let dossier = self.dossiers.get(endpoint);
        let probe = dossier.map_or(Duration::ZERO, |one| one.circuit.recovery.probe_timeout);
        self.rule.interval.saturating_mul(3).saturating_add(probe)
    }

    /// Whether the opening's time is over for this node to say so: where the ledger decides one member
    /// after the other may, the first at once.
    pub(super) fn is_over(&self, now: Duration, endpoint: &EndpointKey) -> bool {
        let max_open = self.rule.max_open;
        let Some(dossier) = self.dossiers.get(endpoint) else {
            return false;
        };
        let circuit = &dossier.circuit;
        match self.reliance {
            Reliance::Gossip | Reliance::Alone => circuit.is_expired(now, max_open),
            Reliance::Ledger => self.rank(endpoint).is_some_and(|rank| {
                let patience = circuit.recovery.probe_timeout.saturating_mul(rank);
                circuit.is_expired(now.saturating_sub(patience), max_open)
            }),
        }
    }
}
