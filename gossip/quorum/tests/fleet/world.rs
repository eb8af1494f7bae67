//! The simulated fleet: councils on virtual time, a network that misbehaves, one endpoint.
//!
//! Everything follows from the seed: one step is 100 ms of virtual time, each node has a clock of
//! its own origin, and no clock is ever compared with another. Every decision is checked against
//! the [`Ledger`] when it falls.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use quorum::view::EndpointView;
use quorum::{
    Conviction, CouncilRule, Denominator, ElectorateRule, EndpointKey, Enrolment, Forced, NodeId,
    PoolKey, Recovery, Standing, Way,
};

use super::carrier::Record;
use super::chance::Chance;
use super::ledger::Ledger;
use super::node::{Life, Node};

/// One step of virtual time.
pub(crate) const STEP: Duration = Duration::from_millis(100);

/// How the network treats what is sent.
#[derive(Clone, Copy)]
pub(crate) struct Net {
    /// The share of packets lost, in thousandths.
    pub(crate) loss: u64,
    /// The share of packets that arrive twice, in thousandths.
    pub(crate) doubled: u64,
    /// The longest way of a packet, in milliseconds; each takes its own time, so order is lost.
    pub(crate) delay_max: u64,
}

/// A network without faults, within one site.
pub(crate) const CALM: Net = Net { loss: 0, doubled: 0, delay_max: 20 };
/// A network that loses, doubles, delays and reorders.
pub(crate) const ROUGH: Net = Net { loss: 150, doubled: 100, delay_max: 600 };

struct Packet {
    arrives: Duration,
    from: usize,
    to: usize,
    wants_reply: bool,
    records: Rc<[Record]>,
}

/// A fleet, its network and its endpoint.
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) now: Duration,
    pub(crate) nodes: Vec<Node>,
    pub(crate) net: Net,
    pub(crate) key: EndpointKey,
    pub(crate) rule: CouncilRule,
    pub(crate) recovery: Recovery,
    /// Whether the endpoint is sick.
    pub(crate) is_sick: bool,
    /// Whether the endpoint refuses the probe, whatever its health.
    pub(crate) refuses_probes: bool,
    /// Whether breakers trip by themselves while the endpoint is sick.
    pub(crate) has_traffic: bool,
    /// Whether requests reach the endpoint now and then, and fill the windows.
    pub(crate) has_windows: bool,
    /// How long the endpoint takes to answer a probe, in milliseconds.
    pub(crate) probe_takes: u64,
    /// How many nodes the true electorate has.
    pub(crate) electorate: usize,
    pub(crate) ledger: Ledger,
    pub(crate) chance: Chance,
    packets: Vec<Packet>,
    cut: BTreeSet<(usize, usize)>,
}

/// The rule that the gateway uses by default, with `expected_members` not set.
pub(crate) fn rule() -> CouncilRule {
    CouncilRule {
        electorate: ElectorateRule { expected_members: 0, member_grace: Duration::from_secs(60) },
        of: Denominator::Members,
        max_open_share_milli: 1_000,
        interval: Duration::from_secs(1),
        observe: Duration::from_secs(3),
        vote_ttl: Duration::from_secs(10),
        renew_every: Duration::from_secs(2),
        max_open: Duration::from_secs(30 * 60),
    }
}

/// A recovery that the probe alone decides.
pub(crate) fn recovery() -> Recovery {
    Recovery {
        base: Duration::from_secs(5),
        max: Duration::from_secs(120),
        reset_after: Duration::from_secs(300),
        probe_timeout: Duration::from_secs(10),
        way: Way::Ladder { probe: true, canaries: 0, turn: Duration::from_secs(5) },
    }
}

/// What the gateway convicts by if nothing else is configured.
pub(crate) fn conviction() -> Conviction {
    Conviction {
        failure_threshold: 4,
        failure_ratio_milli: 500,
        min_requests: 10,
        window: Duration::from_secs(30),
        dedup: Duration::from_secs(5),
        confirmations: 2,
    }
}

impl World {
    /// A fleet of `count` nodes that all know each other and are past their observing.
    pub(crate) fn new(seed: u64, count: usize) -> Self {
        Self::with(seed, count, rule())
    }

    /// Such a fleet under another rule.
    pub(crate) fn with(seed: u64, count: usize, rule: CouncilRule) -> Self {
        let mut world = Self {
            seed,
            now: Duration::ZERO,
            nodes: Vec::new(),
            net: CALM,
            key: EndpointKey::new(&format!("llama/e{seed}")),
            rule,
            recovery: recovery(),
            is_sick: false,
            refuses_probes: false,
            has_traffic: false,
            has_windows: false,
            probe_takes: 300,
            electorate: count,
            ledger: Ledger::default(),
            chance: Chance::new(seed),
            packets: Vec::new(),
            cut: BTreeSet::new(),
        };
        for index in 0..count {
            let node = Node::new(&mut world, index);
            world.nodes.push(node);
        }
        world.run(Duration::from_secs(10));
        world.assert_everyone("knows all", |node| node.council.live_count() == count);
        world
    }

    /// Sets the longest cool-down, as a reload of the configuration does.
    pub(crate) fn cool_down_at_most(&mut self, max: Duration) {
        self.recovery.max = max;
        self.reload();
    }

    /// How long a holder of the canary slot may be idle.
    pub(crate) fn turn(&self) -> Duration {
        match self.recovery.way {
            Way::Ladder { turn, .. } => turn,
            Way::Lazy { .. } => Duration::MAX,
        }
    }

    /// Sets by which way the endpoint comes back.
    pub(crate) fn come_back_by(&mut self, way: Way) {
        self.recovery.way = way;
        self.reload();
    }

    /// Tells all nodes anew how the endpoint comes back.
    pub(crate) fn reload(&mut self) {
        let enrolment = self.enrolment();
        for node in &mut self.nodes {
            node.council.enrol(self.key.clone(), enrolment.clone());
        }
    }

    /// What each node knows of the endpoint beforehand.
    pub(crate) fn enrolment(&self) -> Enrolment {
        let (pool, recovery) = (PoolKey::new("llama"), self.recovery.clone());
        Enrolment { pool, recovery, conviction: conviction() }
    }

    /// Lets `time` pass.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step();
        }
    }

    /// Lets time pass until `is_so`, at most `limit`; returns how long it took.
    pub(crate) fn until(
        &mut self,
        limit: Duration,
        what: &str,
        mut is_so: impl FnMut(&World) -> bool,
    ) -> Duration {
        let start = self.now;
        while !is_so(self) {
            assert!(self.now < start + limit, "not within {limit:?}: {what}");
            self.step();
        }
        self.now - start
    }

    /// One step: what has arrived is delivered, then each node has its turn, in any order.
    pub(crate) fn step(&mut self) {
        self.now += STEP;
        self.deliver();
        let mut turns: Vec<usize> = (0..self.nodes.len()).collect();
        self.chance.shuffle(&mut turns);
        for index in turns {
            super::node::turn(self, index);
        }
    }

    fn deliver(&mut self) {
        let (mut due, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.packets).into_iter().partition(|packet| {
                // What reaches a stopped process waits in its socket, and is old when it is read.
                packet.arrives <= self.now && self.nodes[packet.to].life != Life::Paused
            });
        self.packets = rest;
        self.chance.shuffle(&mut due);
        for packet in due {
            if self.nodes[packet.to].life != Life::Running {
                continue;
            }
            let from = self.nodes[packet.from].id.clone();
            let receiver = &mut self.nodes[packet.to];
            receiver.carrier.merge(self.now, &from, &packet.records);
            if packet.wants_reply {
                let records = receiver.carrier.all();
                self.send(packet.to, packet.from, records, false);
            }
        }
    }

    /// Sends `records` from one node to another, as the network will have it.
    pub(crate) fn send(
        &mut self,
        from: usize,
        to: usize,
        records: Rc<[Record]>,
        wants_reply: bool,
    ) {
        let is_lost = self.chance.happens(self.net.loss);
        if from == to || is_lost || self.cut.contains(&(from, to)) {
            return;
        }
        let copies = if self.chance.happens(self.net.doubled) { 2 } else { 1 };
        for _ in 0..copies {
            let delay = Duration::from_millis(self.chance.below(self.net.delay_max + 1));
            let arrives = self.now + delay;
            let records = Rc::clone(&records);
            self.packets.push(Packet { arrives, from, to, wants_reply, records });
        }
    }

    /// Cuts the fleet into parts that do not hear each other.
    pub(crate) fn partition(&mut self, parts: &[&[usize]]) {
        self.heal();
        let part_of = |node: usize| parts.iter().position(|part| part.contains(&node));
        for from in 0..self.nodes.len() {
            for to in 0..self.nodes.len() {
                if part_of(from) != part_of(to) {
                    self.cut.insert((from, to));
                }
            }
        }
    }

    /// Cuts one direction of one link.
    pub(crate) fn cut(&mut self, from: usize, to: usize) {
        self.cut.insert((from, to));
    }

    /// Joins all parts again.
    pub(crate) fn heal(&mut self) {
        self.cut.clear();
    }

    /// Stops the process of a node, as SIGSTOP does.
    pub(crate) fn pause(&mut self, index: usize) {
        self.nodes[index].life = Life::Paused;
        self.nodes[index].slept_at = self.now;
    }

    /// Lets a stopped process go on.
    pub(crate) fn resume(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.life = Life::Running;
        // Less than a second goes unnoticed.
        if self.now >= node.slept_at + Duration::from_secs(1) {
            node.woke_at = self.now;
        }
    }

    /// Ends the process of a node, as SIGKILL does; what it had in flight is gone with it.
    pub(crate) fn kill(&mut self, index: usize) {
        self.nodes[index].life = Life::Down;
        self.ledger.appease(self.now, index);
        self.ledger.take_in(self.now, index);
        let now = self.now;
        for flight in self.ledger.flights.iter_mut().filter(|flight| flight.node == index) {
            flight.to = flight.to.min(now);
        }
    }

    /// Starts a killed node anew, as the next generation of the same member.
    pub(crate) fn restart(&mut self, index: usize) {
        let generation = self.nodes[index].generation + 1;
        self.nodes[index] = Node::new(self, index);
        self.nodes[index].begin(generation);
    }

    /// Starts a killed node anew, with what it kept of who counted.
    pub(crate) fn restart_with_roll(&mut self, index: usize) {
        let roll = self.nodes[index].council.roll_call();
        self.restart(index);
        let node = &mut self.nodes[index];
        let now = node.clock(self.now);
        node.council.recall(now, roll);
    }

    /// Lets a node leave in good order.
    pub(crate) fn leave(&mut self, index: usize) {
        let leaver = &mut self.nodes[index];
        leaver.council.stand(Standing::Left);
        leaver.carrier.stand(Standing::Left);
        let records = leaver.carrier.mine();
        for to in 0..self.nodes.len() {
            self.send(index, to, Rc::clone(&records), false);
        }
        self.nodes[index].life = Life::Down;
        self.ledger.appease(self.now, index);
        self.ledger.take_in(self.now, index);
        self.electorate -= 1;
    }

    /// Opens the breaker of a node on its own traffic.
    pub(crate) fn trip(&mut self, index: usize) {
        if self.nodes[index].opened.is_none() {
            self.nodes[index].opened = Some(self.now);
            self.ledger.aggrieve(index);
        }
    }

    /// Gives an operator's order to a node.
    pub(crate) fn order(&mut self, index: usize, forced: Forced, remaining: Option<Duration>) {
        let key = self.key.clone();
        let node = &mut self.nodes[index];
        let now = node.clock(self.now);
        assert!(node.council.order(now, &key, (forced, remaining), "by hand"));
    }

    /// How many nodes have truly seen the endpoint fail.
    pub(crate) fn true_witnesses(&self) -> usize {
        let aggrieved = self.ledger.aggrieved(self.now);
        let saw = |index: &usize| {
            aggrieved.contains(index) || self.nodes[*index].traffic.is_witness(self.now)
        };
        (0..self.nodes.len()).filter(saw).count()
    }

    /// What a node knows of the endpoint.
    pub(crate) fn view(&self, index: usize) -> EndpointView {
        let node = &self.nodes[index];
        node.council.endpoint(node.clock(self.now), &self.key).expect("it is enrolled")
    }

    /// The nodes whose process is there.
    pub(crate) fn running(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|index| self.nodes[*index].life == Life::Running).collect()
    }

    /// Whether all running nodes have the endpoint out (`Some(true)`) or in (`Some(false)`).
    pub(crate) fn agreed(&self) -> Option<bool> {
        let mut views: Vec<bool> =
            self.running().iter().map(|index| self.nodes[*index].is_out).collect();
        views.dedup();
        (views.len() == 1).then(|| views[0])
    }

    /// Who leads the endpoint, in the eyes of node `index`.
    pub(crate) fn steward(&self, index: usize) -> usize {
        let steward: NodeId = self.view(index).steward.expect("somebody leads");
        self.nodes.iter().position(|node| node.id == steward).expect("it is one of us")
    }

    /// Requires something of every running node.
    pub(crate) fn assert_everyone(&self, what: &str, is_so: impl Fn(&Node) -> bool) {
        for index in self.running() {
            assert!(is_so(&self.nodes[index]), "not every node {what}: gw-{index}");
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}, at {:?}", self.seed, self.now);
            for (at, node, event) in &self.ledger.events {
                eprintln!("  {at:?} gw-{node} {event:?}");
            }
        }
    }
}
