//! A fleet of deputies on virtual time, for tests that ask what a node says of what it holds.
//!
//! Each node has endpoints, a council and a history of its own, as in the gateway; what it states is in
//! every other node's hands in the next round, unless the link between the two is cut. Probes are not
//! sent: a test answers them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use breaker::{Cause, Errand, Outcome};
use quorum::{
    Card, Decision, EndpointKey, Forced, Heard, Member, NodeId, ProbeResult, Said, Standing,
};
use serde_json::Value;

use super::chronicle::{self, Chronicle, Line};
use super::{Deputy, council_rule};
use crate::admin::view::explain::Explained;
use crate::config::{self, Config};
use crate::fleet::{Endpoint, Fleet};
use crate::history::Entry;
use crate::metrics::Meters;

/// How far a round is from the next.
const ROUND: Duration = Duration::from_millis(100);

/// A fleet.
pub(crate) struct Rehearsal {
    pub(crate) now: Duration,
    pub(crate) nodes: Vec<Node>,
    /// Links that are cut, each named once by the places of its ends, the smaller first.
    cut: BTreeSet<(usize, usize)>,
}

/// A node.
pub(crate) struct Node {
    pub(crate) config: Config,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) deputy: Deputy,
    /// Probes that were asked for and not answered yet.
    pub(crate) probes: Vec<(EndpointKey, (u64, u32))>,
    history: Vec<(Duration, Line)>,
    me: NodeId,
    is_up: bool,
    /// The pulse as it stood when it stopped to be raised.
    stuck_pulse: Option<u64>,
    said: Said,
    chronicle: Chronicle,
}

impl Rehearsal {
    /// So many nodes, `gw-1` and so on, that have met and may decide. `quorum` is inside the braces of
    /// that section, `rest` is the rest of the configuration.
    pub(crate) fn new(count: usize, quorum: &str, rest: &str) -> Self {
        let mut fleet = Self::young(count, quorum, rest);
        fleet.run(Duration::from_secs(5));
        fleet
    }

    /// The same before the first round.
    pub(crate) fn young(count: usize, quorum: &str, rest: &str) -> Self {
        let node = |number: usize| Node::new(&format!("gw-{number}"), quorum, rest);
        let nodes = (1..=count).map(node).collect();
        Self { now: Duration::from_secs(1), nodes, cut: BTreeSet::new() }
    }

    /// Lets this much time pass.
    pub(crate) fn run(&mut self, period: Duration) {
        let until = self.now + period;
        while self.now < until {
            self.now += ROUND;
            self.round();
        }
    }

    /// Lets time pass until `done`, which has to be so within a minute.
    pub(crate) fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let limit = self.now + Duration::from_secs(60);
        while !done(self) {
            assert!(self.now < limit, "waited in vain: {what}");
            self.run(ROUND);
        }
    }

    fn round(&mut self) {
        for place in 0..self.nodes.len() {
            let members = self.members_of(place);
            let now = self.now;
            let node = &mut self.nodes[place];
            if node.is_up {
                node.round(now, &members);
            }
        }
    }

    fn members_of(&self, place: usize) -> Vec<Member> {
        let others = self.nodes.iter().enumerate().filter(|(other, _)| *other != place);
        let member = |(other, node): (usize, &Node)| {
            let is_cut = self.cut.contains(&(place.min(other), place.max(other)));
            let is_live = node.is_up && !is_cut;
            // What a cut link would have brought is not there at all, which is what matters here.
            node.as_member(is_live)
        };
        others.map(member).collect()
    }

    /// Requests of this node to the endpoint, all of which fail.
    pub(crate) fn fail(&self, node: usize, endpoint: &str, count: usize) {
        for _ in 0..count {
            let fault = Outcome::Fault { weight: 1.0, cause: Cause::Other };
            self.ask(node, endpoint, fault);
        }
    }

    /// Requests of this node to the endpoint, all of which succeed.
    pub(crate) fn succeed(&self, node: usize, endpoint: &str, count: usize) {
        (0..count).for_each(|_| self.ask(node, endpoint, Outcome::Success));
    }

    fn ask(&self, node: usize, endpoint: &str, outcome: Outcome) {
        let errand = Errand::Request { prompt_tokens: 1 };
        if let Ok(admission) = self.endpoint(node, endpoint).admit(self.now, errand) {
            admission.settle(self.now, outcome);
        }
    }

    /// An endpoint as a node has it.
    pub(crate) fn endpoint(&self, node: usize, endpoint: &str) -> &Arc<Endpoint> {
        self.nodes[node].fleet.endpoint(&EndpointKey::new(endpoint)).unwrap().1
    }

    /// Whether the fleet has an endpoint out, in the eyes of a node.
    pub(crate) fn has_out(&self, node: usize, endpoint: &str) -> bool {
        self.nodes[node].deputy.council().is_open(&EndpointKey::new(endpoint))
    }

    /// An operator's order to a node.
    pub(crate) fn order(
        &self,
        node: usize,
        endpoint: &str,
        order: (Forced, Option<Duration>),
        reason: &str,
    ) {
        let key = EndpointKey::new(endpoint);
        assert!(self.nodes[node].deputy.council().order(self.now, &key, order, reason));
    }

    /// Answers all probes that were asked for. Returns by whom they were sent.
    pub(crate) fn answer(&mut self, result: ProbeResult) -> Vec<usize> {
        let now = self.now;
        let mut senders = Vec::new();
        for (place, node) in self.nodes.iter_mut().enumerate() {
            for (key, fence) in std::mem::take(&mut node.probes) {
                node.deputy.probed(now, &key, fence, result);
                senders.push(place);
            }
        }
        senders
    }

    /// Lets a node live on, and raise its pulse no more.
    pub(crate) fn mute_pulse(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        node.stuck_pulse = Some(node.said.pulse);
    }

    /// Ends a node, as a crash would.
    pub(crate) fn kill(&mut self, node: usize) {
        self.nodes[node].is_up = false;
    }

    /// Cuts the links between these nodes and all others.
    pub(crate) fn cut_off(&mut self, nodes: &[usize]) {
        for node in nodes {
            for other in (0..self.nodes.len()).filter(|other| !nodes.contains(other)) {
                self.cut.insert(((*node).min(other), (*node).max(other)));
            }
        }
    }

    /// What a node says of an endpoint.
    pub(crate) fn explain(&self, node: usize, endpoint: &str) -> Value {
        let Node { config, fleet, deputy, history, me, .. } = &self.nodes[node];
        let key = EndpointKey::new(endpoint);
        let of = config.cluster.as_ref().unwrap().quorum.of;
        let entry = |(at, line): &(Duration, Line)| {
            let (scope, what) = (line.scope, line.what.clone());
            (line.endpoint == key).then_some(Entry { at: *at, wall_millis: 0, scope, what })
        };
        let history: Vec<Entry> = history.iter().filter_map(entry).collect();
        let of = (me, &**fleet, of);
        let told =
            Explained::look(self.now, of, None, || deputy.council(), &key, &history).unwrap();
        serde_json::to_value(told).unwrap()
    }
}

impl Node {
    fn new(name: &str, quorum: &str, rest: &str) -> Self {
        let text = format!(
            "cluster:
  id: test
  node_id: {name}
  listen: 127.0.0.1:0
  tls: {{ insecure: true }}
  gossip_interval: 1s
  quorum: {{ observe: 1s{}{quorum} }}
{rest}",
            if quorum.is_empty() { "" } else { ", " }
        );
        let config = config::parse(&text, "test.yaml", &|_| None).unwrap();
        let fleet = Fleet::new(&config.pools, &Meters::new(), &(Arc::new(|_| {}) as _));
        let fleet = Arc::new(fleet);
        let me = NodeId::new(name);
        let rule = council_rule(config.cluster.as_ref());
        let deputy = Deputy::new(me.clone(), rule, Arc::clone(&fleet), Duration::from_secs(1));
        Self {
            config,
            fleet,
            deputy,
            probes: Vec::new(),
            history: Vec::new(),
            me,
            is_up: true,
            stuck_pulse: None,
            said: Said { stated: Vec::new(), pulse: 0 },
            chronicle: Chronicle::default(),
        }
    }

    fn round(&mut self, now: Duration, members: &[Member]) {
        let round = self.deputy.round(now, members);
        let council = self.deputy.council();
        let seen = self.chronicle.look(now, &council);
        let decided =
            round.decisions.iter().filter_map(|one| chronicle::decided(now, &council, one));
        let lines: Vec<Line> = seen.into_iter().chain(decided).collect();
        drop(council);
        self.history.extend(lines.into_iter().map(|line| (now, line)));
        for decision in round.decisions {
            if let Decision::Probe { endpoint, fence } = decision {
                self.probes.push((endpoint, fence));
            }
        }
        if let Some(said) = round.said {
            self.said = said;
        }
    }

    fn as_member(&self, is_live: bool) -> Member {
        let stated = self.said.stated.iter();
        let heard = |stated: &quorum::Stated| Heard {
            seq: stated.seq,
            statement: stated.statement.clone(),
        };
        Member {
            id: self.me.clone(),
            generation: 1,
            address: format!("{}:7946", self.me),
            is_live,
            card: Some(Card {
                version: "test".to_owned(),
                config_hash: self.config.hash(),
                standing: Standing::Serving,
                is_suspect: self.deputy.council().is_suspect(),
            }),
            pulse: if is_live { self.stuck_pulse.unwrap_or(self.said.pulse) } else { 0 },
            heard: if is_live { stated.map(heard).collect() } else { Vec::new() },
        }
    }
}
