//! The rule of the fleet as one node holds it: electorate, circuits, and what to state and do next.
//!
//! A council is told what its own breakers say ([`Council::state`]) and what the carrier holds
//! ([`Council::hear`]); [`Council::step`] then returns what follows. After a start or a pause it
//! only observes for a while (Redis Sentinel's TILT): a process that was stopped wakes with an old
//! view, and acting on it re-opens what the others have long closed. So it does when it meets the
//! first other after it was alone: one push may bring a single member of a large fleet.
//!
//! Invariant: an endpoint of which nothing was said of late costs nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

mod flip;
mod lead;
mod motion;
mod orders;
mod rely;
mod say;
mod second;
mod suspect;
mod told;
mod weigh;
mod word;

pub use crate::circuit::ProbeResult;
pub use crate::statement::{CanaryFence, CanaryWord};
pub use motion::Need;
pub use orders::NotOrdered;
pub use rely::Reliance;
pub use told::{CouncilRule, Decision, Denominator, Enrolment, Local, LocalOpening};

pub(crate) use motion::Motion;
pub(crate) use rely::Entered;
pub(crate) use weigh::{BallotBox, Weighed};

use orders::Orders;

use crate::circuit::{Cast, Change};
use crate::dossier::Dossier;
use crate::electorate::{Electorate, newest};
use crate::statement::{Basis, EndpointKey, Forced, Member, NodeId, Override, PoolKey, Standing};
use crate::voice::{Speech, Voice};

/// Two steps further apart than this were a pause: the process was stopped or starved.
const PAUSE: Duration = Duration::from_secs(1);

/// One node's council.
#[derive(Clone, Debug)]
pub struct Council {
    pub(crate) me: NodeId,
    pub(crate) rule: CouncilRule,
    pub(crate) electorate: Electorate,
    pub(crate) dossiers: BTreeMap<EndpointKey, Dossier>,
    /// How many endpoints each pool has.
    pools: BTreeMap<PoolKey, usize>,
    /// The endpoints of which something was said that may still change: all others cost nothing.
    pub(crate) stirred: BTreeSet<EndpointKey>,
    pub(crate) voices: BTreeMap<NodeId, Voice>,
    /// The endpoints of which something was told that needs a second member's support.
    doubted: BTreeSet<EndpointKey>,
    observing_until: Duration,
    last_step: Duration,
    /// Whose votes and windows do not count here, by an operator's word.
    pub(crate) muted: BTreeSet<NodeId>,
    /// Whether this node suspects itself, and when that was last looked at.
    is_suspect: bool,
    suspected_at: Duration,
    /// From when on this node takes its turns again after it was suspect.
    cleared_from: Duration,
    /// By what the fleet's verdicts come about, and since when: turns are counted from then on.
    reliance: Reliance,
    relied_from: Duration,
    pending: Vec<Decision>,
    speech: Speech,
    orders: Orders,
}

impl Council {
    /// A council that knows only its own node, at `now`.
    pub fn new(me: NodeId, rule: CouncilRule, now: Duration) -> Self {
        let observing_until = now.saturating_add(rule.observe);
        let mut electorate = Electorate::new(me.clone(), rule.electorate.clone());
        electorate.settle(observing_until);
        Self {
            electorate,
            dossiers: BTreeMap::new(),
            pools: BTreeMap::new(),
            stirred: BTreeSet::new(),
            voices: BTreeMap::new(),
            doubted: BTreeSet::new(),
            observing_until,
            last_step: now,
            muted: BTreeSet::new(),
            is_suspect: false,
            suspected_at: now,
            cleared_from: now,
            reliance: Reliance::default(),
            relied_from: Duration::ZERO,
            pending: Vec::new(),
            speech: Speech::default(),
            orders: Orders::default(),
            me,
            rule,
        }
    }

    /// Takes charge of an endpoint. Statements about others are not taken in: the set is bounded by
    /// the configuration.
    pub fn enrol(&mut self, endpoint: EndpointKey, enrolment: Enrolment) {
        match self.dossiers.get_mut(&endpoint) {
            Some(dossier) => {
                drop_one(&mut self.pools, &dossier.pool);
                dossier.circuit.recovery = enrolment.recovery;
                dossier.conviction = enrolment.conviction;
                dossier.pool = enrolment.pool.clone();
            }
            None => {
                self.dossiers.insert(endpoint, Dossier::new(enrolment.clone()));
                self.voices.values_mut().for_each(Voice::listen_anew);
            }
        }
        *self.pools.entry(enrolment.pool).or_default() += 1;
    }

    /// Forgets an endpoint that is no longer configured, with all that was said of it. Returns
    /// whether it was enrolled.
    pub fn retire(&mut self, endpoint: &EndpointKey) -> bool {
        self.stirred.remove(endpoint);
        self.speech.forget(endpoint);
        let retired = self.dossiers.remove(endpoint);
        if let Some(dossier) = &retired {
            drop_one(&mut self.pools, &dossier.pool);
        }
        retired.is_some()
    }

    /// Takes in the carrier's whole set at `now`; hearing the same set again changes nothing.
    pub fn hear(&mut self, now: Duration, members: &[Member]) {
        self.wake(now);
        let was_alone = self.electorate.live_count() <= 1;
        self.electorate.observe(now, members);
        if was_alone && self.electorate.live_count() > 1 {
            // The first that is met may be one of many: others follow within a few rounds.
            self.observing_until = self.observing_until.max(now.saturating_add(self.rule.observe));
        }
        let newest = newest(&self.me, members);
        let mut told = std::mem::take(&mut self.doubted);
        for member in newest.values() {
            self.listen(now, member, &mut told);
        }
        // Who has just started does not know yet whether the one it hears is the only other.
        let is_alone = self.electorate.peers() <= 1 && now >= self.observing_until;
        for endpoint in told {
            let Some(dossier) = self.dossiers.get_mut(&endpoint) else {
                continue;
            };
            let changes = dossier.absorb(now, is_alone);
            let closed = dossier.circuit.closed();
            for change in changes {
                announce(&mut self.pending, &endpoint, closed, change);
            }
            if dossier.has_doubts {
                self.doubted.insert(endpoint.clone());
            }
            self.stirred.insert(endpoint);
        }
        let electorate = &self.electorate;
        let is_known = |id: &NodeId| newest.contains_key(id) || electorate.generation(id).is_some();
        let gone: Vec<NodeId> = self.voices.keys().filter(|id| !is_known(id)).cloned().collect();
        for id in gone {
            self.silence(&id);
        }
        // Who was recalled and has not been met has no voice, and drops out without one.
        let electorate = &self.electorate;
        self.muted.retain(|id| newest.contains_key(id) || electorate.generation(id).is_some());
        self.trust();
    }

    /// Brings up to date from when on each member's word counts.
    fn trust(&mut self) {
        for (id, voice) in &mut self.voices {
            voice.trusted_from = self.electorate.trusts(id, voice.generation, self.rule.observe);
        }
    }

    /// Takes in what one member says. What is new of it is noted in `told`.
    fn listen(&mut self, now: Duration, member: &Member, told: &mut BTreeSet<EndpointKey>) {
        let voice = self.voices.entry(member.id.clone()).or_default();
        if !voice.begin(member.generation) {
            return;
        }
        let has_risen = voice.beat(now, member.pulse);
        let news = if voice.is_other(&member.heard) { member.heard.as_slice() } else { &[] };
        for heard in news {
            let by = (&member.id, member.generation);
            let Some(endpoint) = heard.statement.endpoint() else {
                self.orders.take(now, (&self.me, &self.electorate), by, heard);
                continue;
            };
            let Some(dossier) = self.dossiers.get_mut(endpoint) else {
                continue;
            };
            let is_known = dossier.knows(by, heard);
            if !is_known && voice.speak(&heard.statement) && dossier.take(now, by, heard) {
                told.insert(endpoint.clone());
            }
        }
        if !has_risen {
            return;
        }
        // Whoever knows the pulse knows all that stands: what is not in the set was taken back.
        self.orders.keep(now, &member.id, &member.heard);
        for (endpoint, kind) in voice.keep(&member.heard) {
            let dossier = self.dossiers.get_mut(&endpoint);
            if let Some(word) = dossier.and_then(|dossier| dossier.words.get_mut(&member.id)) {
                word.drop(kind);
            }
        }
    }

    /// Forgets all that a member said.
    fn silence(&mut self, id: &NodeId) {
        let Some(voice) = self.voices.remove(id) else {
            return;
        };
        for endpoint in voice.endpoints() {
            if let Some(dossier) = self.dossiers.get_mut(endpoint) {
                dossier.words.remove(id);
            }
        }
    }

    /// States what this node itself knows of an endpoint. An opening that the fleet imposed is not
    /// to be stated, nor what the canaries of the fleet's slot met.
    pub fn state(&mut self, now: Duration, endpoint: &EndpointKey, local: Local) {
        let is_quiet = local.opening.is_none() && !local.window.is_bad();
        if is_quiet && !self.stirred.contains(endpoint) {
            return;
        }
        let Some(dossier) = self.dossiers.get(endpoint) else {
            return;
        };
        let is_cast = local.opening.is_some() && dossier.circuit.standing_basis().is_none();
        let others = if is_cast { self.largest_standing(now, endpoint) } else { 0 };
        let Some(dossier) = self.dossiers.get_mut(endpoint) else {
            return;
        };
        dossier.own.note(now, &local);
        let circuit = &mut dossier.circuit;
        match local.opening {
            Some(LocalOpening { since, reason, evidence }) => {
                let basis = Basis::FirstHand;
                circuit.cast(Cast { basis, since, reason, evidence }, others);
            }
            None if circuit.standing_basis() == Some(Basis::FirstHand) => circuit.withdraw(now),
            None => {}
        }
        self.stirred.insert(endpoint.clone());
    }

    /// Takes an operator's order on this node and spreads it. Returns whether the endpoint is
    /// known.
    pub fn order(
        &mut self,
        now: Duration,
        endpoint: &EndpointKey,
        (forced, remaining): (Forced, Option<Duration>),
        reason: &str,
    ) -> bool {
        let Some(dossier) = self.dossiers.get_mut(endpoint) else {
            return false;
        };
        self.stirred.insert(endpoint.clone());
        let newest = dossier.circuit.order.as_ref().map_or(0, |held| held.order.stamp);
        let stamp = newest.saturating_add(1);
        let author = self.me.clone();
        let order = Override { forced, stamp, author, remaining, reason: reason.to_owned() };
        dossier.circuit.hear_order(now, Duration::ZERO, &order)
    }

    /// Says how this node takes part from here on.
    pub fn stand(&mut self, standing: Standing) {
        self.electorate.stand(standing);
    }

    /// Drops a lost member by hand. Returns whether there was such a member.
    pub fn forget(&mut self, id: &NodeId) -> bool {
        let is_forgotten = self.electorate.forget(id);
        if is_forgotten {
            self.silence(id);
        }
        is_forgotten
    }

    /// The names of all members that count, this node's among them: at most
    /// [`MEMBERS_MAX`](crate::electorate::MEMBERS_MAX). To be kept over a restart.
    pub fn roll_call(&self) -> Vec<NodeId> {
        self.electorate.names().cloned().collect()
    }

    /// Recalls at `now` who counted before a restart; to be called after [`new`](Self::new), before
    /// anything is heard. Each is a lost member until it is heard of: nodes that restart within a
    /// minority go on knowing how large the fleet is. Without it, and without
    /// [`expected_members`](crate::ElectorateRule::expected_members), nodes that restart together
    /// and cut off from all others cannot be told from a fleet of their own.
    pub fn recall(&mut self, now: Duration, names: impl IntoIterator<Item = NodeId>) {
        self.electorate.recall(now, names);
    }

    /// Lets the votes and windows of a member not count on this node, or count again. Returns
    /// whether there is such a member.
    pub fn mute(&mut self, id: &NodeId, is_muted: bool) -> bool {
        let is_known = self.electorate.generation(id).is_some();
        if !is_muted {
            self.muted.remove(id);
        } else if is_known {
            // Bounded by the members that are known: whoever is forgotten is forgotten here as
            // well.
            self.muted.insert(id.clone());
        }
        is_known
    }

    /// Whether this node suspects itself: it then abstains.
    pub fn is_suspect(&self) -> bool {
        self.is_suspect
    }

    /// This node's name.
    pub fn me(&self) -> &NodeId {
        &self.me
    }

    /// Until when this node only observes.
    pub fn observing_until(&self) -> Duration {
        self.observing_until
    }

    /// Draws what follows at `now`. To be called whenever something was heard or stated, and at
    /// least a few times a second, since deadlines pass. This node seconds only what it was asked
    /// about at this very `now`: a step between [`hear`](Self::hear) and [`state`](Self::state)
    /// takes in what was heard, closes and recalls.
    pub fn step(&mut self, now: Duration) -> Vec<Decision> {
        self.wake(now);
        self.last_step = self.last_step.max(now);
        self.suspect(now);
        self.obey(now);
        let may_lead = now >= self.observing_until && self.electorate.has_quorum();
        let is_cut_off = self.electorate.is_cut_off(now);
        for endpoint in &self.stirred.clone() {
            self.note_order(now, endpoint);
            if now >= self.observing_until {
                self.second(now, endpoint);
            }
            let may_use_slot = match self.reliance {
                Reliance::Gossip if may_lead => {
                    self.yield_to_majority(now, endpoint);
                    self.flip(now, endpoint);
                    self.lead(now, endpoint);
                    true
                }
                Reliance::Gossip => {
                    self.let_go(now, endpoint, is_cut_off);
                    false
                }
                Reliance::Ledger => self.go_by_ledger(now, endpoint),
                Reliance::Alone => {
                    self.let_go(now, endpoint, true);
                    false
                }
            };
            self.lend(now, endpoint, may_use_slot);
        }
        std::mem::take(&mut self.pending)
    }

    /// Whether this node has not looked for so long that what it holds may be old.
    fn has_slept(&self, now: Duration) -> bool {
        now > self.last_step.saturating_add(PAUSE)
    }

    fn wake(&mut self, now: Duration) {
        if self.has_slept(now) {
            self.observing_until = now.saturating_add(self.rule.observe);
            self.electorate.wake(now, self.observing_until);
            self.trust();
        }
    }

    fn note_order(&mut self, now: Duration, endpoint: &EndpointKey) {
        let Some(dossier) = self.dossiers.get_mut(endpoint) else {
            return;
        };
        let forced = dossier.circuit.forced(now);
        if dossier.forced != forced {
            dossier.forced = forced;
            dossier.circuit.defer(now);
            self.pending.push(Decision::Forced { endpoint: endpoint.clone(), forced });
        }
    }

    /// How long a heard window stands: a few rounds of gossip, since one may be missed.
    pub(crate) fn window_lapse(&self) -> Duration {
        self.rule.interval.saturating_mul(4)
    }
}

/// Tells the caller what changed in a circuit, whose last closed incident is `incident`.
fn announce(pending: &mut Vec<Decision>, endpoint: &EndpointKey, incident: u64, change: Change) {
    match change {
        Change::Nothing | Change::Passed => {}
        Change::Closed { was_open } => {
            let endpoint = endpoint.clone();
            pending.push(Decision::Closed { endpoint, incident, was_open });
        }
    }
}

fn drop_one(pools: &mut BTreeMap<PoolKey, usize>, pool: &PoolKey) {
    if let Some(count) = pools.get_mut(pool) {
        *count = count.saturating_sub(1);
    }
    pools.retain(|_, count| *count > 0);
}
