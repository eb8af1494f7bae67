//! One node of the simulated fleet: a council, its carrier, a scripted breaker and its probe.
//!
//! A turn does what the gateway does: hear, state the breaker, step, act on what follows, publish.

use std::rc::Rc;
use std::time::Duration;

use quorum::{
    Basis, Council, Decision, Evidence, Local, LocalOpening, MemberVerb, NodeId, ProbeResult,
    VoteState,
};

use super::carrier::Carrier;
use super::ledger::{Event, Flight};
use super::traffic::{self, Met, Traffic};
use super::world::World;

/// Whether a node's process is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It runs.
    Running,
    /// It is stopped, and does not know.
    Paused,
    /// It is gone.
    Down,
}

/// A probe that this node has sent.
struct Probe {
    fence: (u64, u32),
    answers_at: Duration,
    result: Option<ProbeResult>,
}

/// One node.
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) generation: u64,
    pub(crate) council: Council,
    pub(crate) carrier: Carrier,
    pub(crate) life: Life,
    /// Whether its breaker is only a shadow.
    pub(crate) is_shadow: bool,
    /// Since when its breaker has been open on its own traffic.
    pub(crate) opened: Option<Duration>,
    /// What its breaker says it saw when it opened.
    pub(crate) evidence: Evidence,
    /// Whether the fleet has the endpoint out, by the decisions that fell here.
    pub(crate) is_out: bool,
    /// When it was last stopped.
    pub(crate) slept_at: Duration,
    /// When it started or last went on after a stop that it can notice.
    pub(crate) woke_at: Duration,
    /// Where its clock began.
    origin: Duration,
    /// How long its traffic has met a sick endpoint.
    ailing_for: Duration,
    probe: Option<Probe>,
    pub(crate) traffic: Traffic,
    pushed: u64,
}

impl Node {
    /// Node `index` in its first generation.
    pub(crate) fn new(world: &mut World, index: usize) -> Self {
        let id = NodeId::new(&format!("gw-{index}"));
        let origin = Duration::from_millis(world.chance.below(1_000_000_000));
        let mut council = Council::new(id.clone(), world.rule.clone(), origin + world.now);
        council.enrol(world.key.clone(), world.enrolment());
        Self {
            carrier: Carrier::new(id.clone(), 1),
            id,
            generation: 1,
            council,
            life: Life::Running,
            is_shadow: false,
            opened: None,
            evidence: Evidence::default(),
            is_out: false,
            slept_at: Duration::ZERO,
            woke_at: world.now,
            origin,
            ailing_for: Duration::ZERO,
            probe: None,
            traffic: Traffic::default(),
            pushed: 0,
        }
    }

    /// Begins to speak as `generation`.
    pub(crate) fn begin(&mut self, generation: u64) {
        self.generation = generation;
        self.council.live_as(generation);
        self.carrier = Carrier::new(self.id.clone(), generation);
    }

    /// What this node's clock shows at `now`.
    pub(crate) fn clock(&self, now: Duration) -> Duration {
        self.origin + now
    }
}

/// The turn of node `index`.
pub(crate) fn turn(world: &mut World, index: usize) {
    let now = world.now;
    answer(world, index);
    if world.nodes[index].life != Life::Running {
        return;
    }
    wear(world, index);
    let reports_first = world.chance.happens(500);
    if reports_first {
        report(world, index);
    }
    let key = world.key.clone();
    let node = &mut world.nodes[index];
    let clock = node.clock(now);
    if let Some(members) = node.carrier.tell(now, &mut world.chance) {
        node.council.hear(clock, &members);
    }
    let opening = node.opened.map(|since| LocalOpening {
        since: node.origin + since,
        reason: "faults".to_owned(),
        evidence: node.evidence,
    });
    let window = node.traffic.window(now);
    node.council.state(
        clock,
        &key,
        Local { opening, window, is_shadow: node.is_shadow, is_trying: false },
    );
    if !reports_first {
        report(world, index);
    }
    let decisions = world.nodes[index].council.step(clock);
    second(world, index);
    for decision in decisions {
        act(world, index, decision);
    }
    let is_out = world.nodes[index].council.is_open(&key);
    assert_eq!(world.nodes[index].is_out, is_out, "decisions tell all of gw-{index}");
    publish(world, index);
}

/// Notes whether this node's seconded vote stands; without evidence nobody has one.
fn second(world: &mut World, index: usize) {
    let is_bare = |node: &Node| node.traffic.is_empty() && node.evidence == Evidence::default();
    if world.nodes.iter().all(is_bare) {
        return;
    }
    let id = &world.nodes[index].id;
    let stands = world.view(index).votes.iter().any(|vote| {
        let is_seconded =
            vote.vote.basis == Basis::Seconded && vote.vote.state == VoteState::Stands;
        vote.voter == *id && is_seconded
    });
    world.ledger.second(world.now, index, stands);
}

/// What traffic does to the breaker: it trips on a sick endpoint, and comes back by itself from a
/// healthy one unless the fleet has it out.
fn wear(world: &mut World, index: usize) {
    let now = world.now;
    if world.has_windows && !world.nodes[index].is_out && world.chance.happens(100) {
        let met = match (world.is_sick, world.chance.happens(200)) {
            (false, _) => Met::Success,
            (true, false) => Met::Fault,
            (true, true) => Met::Slow,
        };
        world.nodes[index].traffic.meet(now, met);
    }
    let node = &mut world.nodes[index];
    let is_met = world.has_traffic && world.is_sick && !node.is_out;
    node.ailing_for = if is_met { node.ailing_for + super::world::STEP } else { Duration::ZERO };
    if node.ailing_for > Duration::from_secs(1) {
        world.trip(index);
    } else if let Some(since) = node.opened
        && world.has_traffic
        && !world.is_sick
        && !node.is_out
        && now > since + Duration::from_secs(8)
    {
        node.opened = None;
        world.ledger.appease(now, index);
    }
}

/// The endpoint answers a probe, whether or not its sender is there to read it.
fn answer(world: &mut World, index: usize) {
    let now = world.now;
    let result = match (world.refuses_probes, world.is_sick) {
        (true, _) => ProbeResult::Inconclusive,
        (false, true) => ProbeResult::Failed,
        (false, false) => ProbeResult::Passed,
    };
    if let Some(probe) = &mut world.nodes[index].probe
        && probe.result.is_none()
        && now >= probe.answers_at
    {
        probe.result = Some(result);
    }
}

fn report(world: &mut World, index: usize) {
    let key = world.key.clone();
    let now = world.now;
    let node = &mut world.nodes[index];
    let clock = node.clock(now);
    if let Some(probe) = node.probe.take_if(|probe| probe.result.is_some())
        && let Some(result) = probe.result
    {
        node.council.probed(clock, &key, probe.fence, result);
    }
    traffic::report(world, index);
}

fn act(world: &mut World, index: usize, decision: Decision) {
    let now = world.now;
    let is_observing = now < world.nodes[index].woke_at + world.rule.observe;
    traffic::follow(world, index, &decision);
    match decision {
        Decision::Opened { opening, tally, electorate, .. } => {
            let quorum = world.electorate / 2 + 1;
            let (voters, holders) = (world.ledger.voters(now), world.ledger.holders(now));
            assert!(!is_observing, "gw-{index} flips while it observes");
            world.ledger.note(now, index, Event::Opened { incident: opening.incident });
            if tally.is_open() {
                assert!(tally.counted > electorate / 2, "gw-{index} flips without a majority");
                assert!(voters >= quorum, "gw-{index} flips with {voters} true voters of {quorum}");
                let witnesses = world.true_witnesses();
                let enough = if world.electorate < 3 { 1 } else { 2 };
                assert!(witnesses >= enough, "gw-{index} flips with {witnesses} true witnesses");
            } else {
                assert!(tally.holders > electorate / 2, "gw-{index} joins without a majority");
                assert!(holders >= quorum, "gw-{index} joins {holders} that have it out");
            }
            world.nodes[index].is_out = true;
            world.ledger.take_out(index);
        }
        Decision::Closed { incident, was_open, .. } => {
            world.ledger.note(now, index, Event::Closed { incident, was_open });
            world.ledger.appease(now, index);
            world.ledger.take_in(now, index);
            world.nodes[index].is_out = false;
            world.nodes[index].opened = None;
            world.nodes[index].traffic.forget();
        }
        Decision::Probe { fence, .. } => {
            assert!(!is_observing, "gw-{index} probes while it observes");
            let to = now + Duration::from_millis(world.probe_takes);
            world.ledger.note(now, index, Event::Probe { fence });
            world.ledger.flights.push(Flight { node: index, from: now, to });
            world.nodes[index].probe = Some(Probe { fence, answers_at: to, result: None });
        }
        Decision::Lend { .. } | Decision::Recall { .. } => {}
        Decision::Forced { forced, .. } => {
            world.ledger.note(now, index, Event::Forced(forced));
        }
        Decision::Ordered { verb, .. } => {
            world.ledger.note(now, index, Event::Asked { verb, member: index });
        }
        Decision::Forgotten { member, .. } => {
            let verb = MemberVerb::Forget;
            let member = world.nodes.iter().position(|node| node.id == member).unwrap();
            world.ledger.note(now, index, Event::Asked { verb, member });
        }
    }
}

/// States what is new, pushes what is news, and gossips once a second with three others.
fn publish(world: &mut World, index: usize) {
    let now = world.now;
    let peers = world.nodes.len();
    let node = &mut world.nodes[index];
    let clock = node.clock(now);
    node.carrier.suspect(node.council.is_suspect());
    if let Some(said) = node.council.statements(clock) {
        node.carrier.state(&said);
        let news = said.stated.iter().filter(|stated| stated.fresh).map(|stated| stated.seq).max();
        if news.is_some_and(|seq| seq > node.pushed) {
            node.pushed = news.unwrap_or(0);
            let records = node.carrier.mine();
            for to in 0..peers {
                world.send(index, to, Rc::clone(&records), false);
            }
        }
    }
    let is_round = (now.as_millis() / 100 + index as u128 * 3).is_multiple_of(10);
    if is_round {
        world.nodes[index].carrier.beat();
        let records = world.nodes[index].carrier.all();
        let mut others: Vec<usize> = (0..peers).filter(|to| *to != index).collect();
        world.chance.shuffle(&mut others);
        for to in others.into_iter().take(3) {
            world.send(index, to, Rc::clone(&records), true);
        }
    }
}
