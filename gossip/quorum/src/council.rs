//! The rule of the fleet as one node holds it: electorate, circuits, and what to state and do next.
//!
//! A council is told what its own breakers say ([`Council::state`]) and what the carrier holds
//! ([`Council::hear`]); [`Council::step`] then returns what follows. After a start or a pause it
//! only observes for a while (Redis Sentinel's TILT): a process that was stopped wakes with an old
//! view, and acting on it re-opens what the others have long closed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

mod told;

pub use crate::circuit::ProbeResult;
pub use told::{
    CanaryFence, CanaryWord, CouncilRule, Decision, Denominator, Enrolment, Local, LocalOpening,
};

use crate::circuit::{Change, Circuit};
use crate::electorate::{Electorate, newest};
use crate::statement::{
    EndpointKey, Forced, Member, NodeId, Override, Said, Stage, Standing, Statement, Vote,
    VoteState,
};
use crate::steward;
use crate::tally::{Ballot, Tally, is_valid, tally};
use crate::voice::{Speech, Voice};

/// Two steps further apart than this were a pause: the process was stopped or starved.
const PAUSE: Duration = Duration::from_secs(1);

/// One node's council.
#[derive(Clone, Debug)]
pub struct Council {
    pub(crate) me: NodeId,
    pub(crate) rule: CouncilRule,
    pub(crate) electorate: Electorate,
    pub(crate) circuits: BTreeMap<EndpointKey, Circuit>,
    /// The endpoints of which anything was ever said: all others cost nothing.
    stirred: BTreeSet<EndpointKey>,
    pub(crate) voices: BTreeMap<NodeId, Voice>,
    observing_until: Duration,
    last_step: Duration,
    /// What an order made of each endpoint when last looked at.
    forced: BTreeMap<EndpointKey, Forced>,
    /// Whose votes and windows do not count here, by an operator's word.
    pub(crate) muted: BTreeSet<NodeId>,
    pending: Vec<Decision>,
    speech: Speech,
}

impl Council {
    /// A council that knows only its own node, at `now`.
    pub fn new(me: NodeId, rule: CouncilRule, now: Duration) -> Self {
        Self {
            electorate: Electorate::new(me.clone(), rule.electorate.clone()),
            circuits: BTreeMap::new(),
            stirred: BTreeSet::new(),
            voices: BTreeMap::new(),
            observing_until: now.saturating_add(rule.observe),
            last_step: now,
            forced: BTreeMap::new(),
            muted: BTreeSet::new(),
            pending: Vec::new(),
            speech: Speech::default(),
            me,
            rule,
        }
    }

    /// Takes charge of an endpoint. Statements about others are not taken in: the set is bounded by
    /// the configuration.
    pub fn enrol(&mut self, endpoint: EndpointKey, enrolment: Enrolment) {
        match self.circuits.get_mut(&endpoint) {
            Some(circuit) => circuit.recovery = enrolment.recovery,
            None => {
                self.circuits.insert(endpoint, Circuit::new(enrolment.recovery));
            }
        }
    }

    /// Forgets an endpoint that is no longer configured, with all that was said of it. Returns
    /// whether it was enrolled.
    pub fn retire(&mut self, endpoint: &EndpointKey) -> bool {
        self.stirred.remove(endpoint);
        self.forced.remove(endpoint);
        self.circuits.remove(endpoint).is_some()
    }

    /// Takes in the carrier's whole set at `now`; hearing the same set again changes nothing.
    pub fn hear(&mut self, now: Duration, members: &[Member]) {
        self.wake(now);
        self.electorate.observe(now, members);
        let newest = newest(&self.me, members);
        for (id, member) in &newest {
            let voice = self.voices.entry((*id).clone()).or_default();
            if !voice.begin(member.generation) {
                continue;
            }
            for heard in &member.heard {
                let endpoint = heard.statement.endpoint();
                let Some(circuit) = self.circuits.get_mut(endpoint) else {
                    continue;
                };
                if voice.take(now, heard) {
                    self.stirred.insert(heard.statement.endpoint().clone());
                    let change = note(circuit, now, &heard.statement);
                    announce(&mut self.pending, endpoint, circuit, change);
                }
            }
        }
        let electorate = &self.electorate;
        self.voices.retain(|id, _| newest.contains_key(id) || electorate.generation(id).is_some());
    }

    /// States what this node itself knows of an endpoint. An opening that the fleet imposed is not
    /// to be stated, nor what the canaries of the fleet's slot met.
    pub fn state(&mut self, now: Duration, endpoint: &EndpointKey, local: Local) {
        if local.opening.is_none() && !self.stirred.contains(endpoint) {
            return;
        }
        let others = self.largest_standing(now, endpoint);
        let Some(circuit) = self.circuits.get_mut(endpoint) else {
            return;
        };
        match local.opening {
            Some(opening) => {
                self.stirred.insert(endpoint.clone());
                circuit.cast(opening.since, &opening.reason, opening.evidence, others);
            }
            None => {
                circuit.withdraw(now);
            }
        }
    }

    /// Reports what the canaries of a [`Decision::Lend`] met. A word about a hold of the slot that
    /// has been overtaken changes nothing.
    pub fn canaried(
        &mut self,
        _now: Duration,
        _endpoint: &EndpointKey,
        _fence: CanaryFence,
        _word: CanaryWord,
    ) {
    }

    /// Whether this node suspects itself: it then abstains.
    pub fn is_suspect(&self) -> bool {
        false
    }

    /// Lets the votes and windows of a member not count on this node, or count again. Returns
    /// whether the member is known.
    pub fn mute(&mut self, id: &NodeId, is_muted: bool) -> bool {
        if is_muted {
            self.muted.insert(id.clone());
        } else {
            self.muted.remove(id);
        }
        self.electorate.generation(id).is_some()
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
        let Some(circuit) = self.circuits.get_mut(endpoint) else {
            return false;
        };
        self.stirred.insert(endpoint.clone());
        let newest = circuit.order.as_ref().map_or(0, |held| held.order.stamp);
        let stamp = newest.saturating_add(1);
        let author = self.me.clone();
        let order = Override { forced, stamp, author, remaining, reason: reason.to_owned() };
        circuit.hear_order(now, Duration::ZERO, &order)
    }

    /// Says how this node takes part from here on.
    pub fn stand(&mut self, standing: Standing) {
        self.electorate.stand(standing);
    }

    /// Drops a lost member by hand. Returns whether there was such a member.
    pub fn forget(&mut self, id: &NodeId) -> bool {
        let is_forgotten = self.electorate.forget(id);
        if is_forgotten {
            self.voices.remove(id);
        }
        is_forgotten
    }

    /// Until when this node only observes.
    pub fn observing_until(&self) -> Duration {
        self.observing_until
    }

    /// Draws what follows at `now`. To be called whenever something was heard or stated, and at
    /// least a few times a second, since deadlines pass.
    pub fn step(&mut self, now: Duration) -> Vec<Decision> {
        self.wake(now);
        self.last_step = self.last_step.max(now);
        for endpoint in &self.stirred.clone() {
            self.note_order(now, endpoint);
            if now >= self.observing_until {
                self.flip(now, endpoint);
                self.lead(now, endpoint);
            }
        }
        std::mem::take(&mut self.pending)
    }

    /// Reports how the probe of a [`Decision::Probe`] went. While this node only observes, an
    /// answer does not count: the probe is from before the pause.
    pub fn probed(
        &mut self,
        now: Duration,
        endpoint: &EndpointKey,
        fence: (u64, u32),
        result: ProbeResult,
    ) {
        let is_stale = now < self.observing_until || self.has_slept(now);
        let result = if is_stale { ProbeResult::Inconclusive } else { result };
        let Some(circuit) = self.circuits.get_mut(endpoint) else {
            return;
        };
        let change = circuit.end_probe(now, (&self.me, endpoint), fence, result);
        announce(&mut self.pending, endpoint, circuit, change);
    }

    /// What this node states at `now`, as a whole set, if anything is new or due for renewal.
    pub fn statements(&mut self, now: Duration) -> Option<Said> {
        let mut current = Vec::new();
        let stirred = |endpoint| self.circuits.get_key_value(endpoint);
        for (endpoint, circuit) in self.stirred.iter().filter_map(stirred) {
            let vote = circuit.vote_at(now).map(|vote| Statement::Vote(endpoint.clone(), vote));
            let step = circuit.step_at(now).map(|step| Statement::Step(endpoint.clone(), step));
            let order = circuit.order_at(now);
            let order = order.map(|order| Statement::Override(endpoint.clone(), order));
            current.extend([vote, step, order].into_iter().flatten());
        }
        self.speech.say(now, current, self.rule.renew_every)
    }

    /// The standing votes of an endpoint: each with its voter, its statement, and since when it was
    /// cast, on this node's clock. Votes of members that are not live, and lapsed ones, are left
    /// out.
    pub(crate) fn standing_votes<'a>(
        &'a self,
        now: Duration,
        endpoint: &'a EndpointKey,
    ) -> impl Iterator<Item = (&'a NodeId, Vote, Duration)> {
        let mine = self.circuits.get(endpoint).and_then(|circuit| circuit.vote_at(now));
        let mine = mine.into_iter().map(move |vote| {
            let since = now.saturating_sub(vote.age);
            (&self.me, vote, since)
        });
        let theirs = self.voices.iter().filter_map(move |(id, voice)| {
            let (vote, seen_at) = voice.vote(endpoint)?;
            let is_counted = self.electorate.vouches_for(id, seen_at)
                && self.electorate.generation(id) == Some(voice.generation())
                && now < seen_at.saturating_add(self.rule.vote_ttl);
            is_counted.then(|| (id, vote.clone(), seen_at.saturating_sub(vote.age)))
        });
        mine.chain(theirs).filter(|(_, vote, _)| vote.state == VoteState::Stands)
    }

    /// Counts the standing votes of an endpoint.
    pub fn count(&self, now: Duration, endpoint: &EndpointKey) -> Tally {
        let closed = self.circuits.get(endpoint).map_or(0, Circuit::closed);
        let votes: Vec<_> = self.standing_votes(now, endpoint).collect();
        let ballots = votes.iter().map(|(voter, vote, _)| Ballot {
            voter,
            incident: vote.incident,
            basis: vote.basis,
        });
        tally(self.electorate.size(), closed, ballots)
    }

    /// Whether this node has not looked for so long that what it holds may be old.
    fn has_slept(&self, now: Duration) -> bool {
        now > self.last_step.saturating_add(PAUSE)
    }

    fn wake(&mut self, now: Duration) {
        if self.has_slept(now) {
            self.observing_until = now.saturating_add(self.rule.observe);
            self.electorate.wake(now, self.observing_until);
        }
    }

    fn largest_standing(&self, now: Duration, endpoint: &EndpointKey) -> u64 {
        let closed = self.circuits.get(endpoint).map_or(0, Circuit::closed);
        self.standing_votes(now, endpoint)
            .map(|(_, vote, _)| vote.incident)
            .filter(|incident| is_valid(*incident, closed))
            .max()
            .unwrap_or(0)
    }

    /// Opens the endpoint for the fleet if a majority says so. A fleet of one has no majority to
    /// ask: its own breaker says it all.
    fn flip(&mut self, now: Duration, endpoint: &EndpointKey) {
        let electorate = self.electorate.size();
        let is_open = self.circuits.get(endpoint).is_none_or(|circuit| circuit.opening.is_some());
        if is_open || electorate < 2 {
            return;
        }
        let count = self.count(now, endpoint);
        if !count.is_open() {
            return;
        }
        // The flip is as old as the vote that made the majority.
        let closed = self.circuits.get(endpoint).map_or(0, Circuit::closed);
        let mut since: Vec<Duration> = self
            .standing_votes(now, endpoint)
            .filter(|(_, vote, _)| is_valid(vote.incident, closed))
            .map(|(_, _, since)| since)
            .collect();
        since.sort_unstable();
        let decided = since.get(count.quorum - 1).copied().unwrap_or(now).min(now);
        let rank = self.rank(endpoint);
        let Some(circuit) = self.circuits.get_mut(endpoint) else {
            return;
        };
        let opening = circuit.open(endpoint, decided, &count);
        if rank == Some(0) && circuit.is_unled() {
            let remaining = opening.due.saturating_sub(now);
            circuit.take_step(now, &self.me, Stage::Waiting { remaining });
        }
        let endpoint = endpoint.clone();
        self.pending.push(Decision::Opened { endpoint, opening, tally: count, electorate });
    }

    /// Does what the lead of a standing opening asks of this node.
    fn lead(&mut self, now: Duration, endpoint: &EndpointKey) {
        let rank = self.rank(endpoint);
        let Some(circuit) = self.circuits.get_mut(endpoint) else {
            return;
        };
        let Some(opening) = circuit.opening.clone() else {
            return;
        };
        if now >= opening.since.saturating_add(self.rule.max_open) {
            let change = circuit.close(now, &self.me);
            announce(&mut self.pending, endpoint, circuit, change);
        } else if rank.is_some_and(|rank| circuit.is_probe_due(now, rank, self.observing_until))
            && let Some(failures) = circuit.begin_probe(now, &self.me)
        {
            let fence = (opening.incident, failures);
            self.pending.push(Decision::Probe { endpoint: endpoint.clone(), fence });
        }
    }

    fn rank(&self, endpoint: &EndpointKey) -> Option<u32> {
        steward::rank(&self.me, endpoint, self.electorate.leaders())
    }

    fn note_order(&mut self, now: Duration, endpoint: &EndpointKey) {
        let Some(circuit) = self.circuits.get_mut(endpoint) else {
            return;
        };
        let forced = circuit.forced(now);
        let known = self.forced.insert(endpoint.clone(), forced).unwrap_or(Forced::Auto);
        if known != forced {
            circuit.defer(now);
            self.pending.push(Decision::Forced { endpoint: endpoint.clone(), forced });
        }
    }
}

/// Takes a statement just heard into its circuit. Returns what a step changed.
fn note(circuit: &mut Circuit, now: Duration, statement: &Statement) -> Change {
    match statement {
        Statement::Vote(_, vote) => {
            circuit.see(vote.incident);
            Change::Nothing
        }
        Statement::Step(_, step) => circuit.hear_step(now, Duration::ZERO, step),
        Statement::Override(_, order) => {
            circuit.hear_order(now, Duration::ZERO, order);
            Change::Nothing
        }
        Statement::Window(..) => Change::Nothing,
    }
}

/// Tells the caller what changed in a circuit.
fn announce(
    pending: &mut Vec<Decision>,
    endpoint: &EndpointKey,
    circuit: &Circuit,
    change: Change,
) {
    match change {
        Change::Nothing => {}
        Change::Closed { was_open } => {
            let (endpoint, incident) = (endpoint.clone(), circuit.closed());
            pending.push(Decision::Closed { endpoint, incident, was_open });
        }
    }
}
