//! A few councils over many endpoints, which hear each other at once and without loss.
//!
//! The [`World`](super::world::World) misbehaves about one endpoint; here are the promises about
//! many endpoints at a time, where the network does not matter.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quorum::{
    Card, Council, CouncilRule, Decision, EndpointKey, Enrolment, Evidence, Heard, Local,
    LocalOpening, Member, NodeId, PoolKey, Recovery, Said, Standing,
};

use super::world::{conviction, recovery};

/// One round: a tenth of a second.
pub(crate) const ROUND: Duration = Duration::from_millis(100);

/// The councils, what each says, and what its breakers hold.
pub(crate) struct Committee {
    pub(crate) now: Duration,
    pub(crate) councils: Vec<Council>,
    pub(crate) endpoints: Vec<EndpointKey>,
    /// Which breakers are open on their node's own traffic: (node, endpoint), since when.
    pub(crate) opened: BTreeMap<(usize, usize), Duration>,
    /// Who is not heard.
    pub(crate) dead: BTreeSet<usize>,
    /// How many statements, and how many whole sets, each has published.
    pub(crate) published: Vec<usize>,
    pub(crate) decisions: Vec<(usize, Decision)>,
    said: Vec<Said>,
}

impl Committee {
    /// `nodes` councils of `pools` pools with `each` endpoints.
    pub(crate) fn new(nodes: usize, (pools, each): (usize, usize), rule: &CouncilRule) -> Self {
        let now = Duration::from_secs(1_000);
        let mut endpoints = Vec::new();
        let mut councils: Vec<Council> =
            (0..nodes).map(|node| Council::new(name(node), rule.clone(), now)).collect();
        for pool in 0..pools {
            for endpoint in 0..each {
                let key = EndpointKey::new(&format!("pool-{pool}/e{endpoint}"));
                for council in &mut councils {
                    let pool = PoolKey::new(&format!("pool-{pool}"));
                    let (recovery, conviction) = (recovery(), conviction());
                    council.enrol(key.clone(), Enrolment { pool, recovery, conviction });
                }
                endpoints.push(key);
            }
        }
        let nothing = Said { stated: Vec::new(), pulse: 0 };
        let mut committee = Self {
            now,
            councils,
            endpoints,
            opened: BTreeMap::new(),
            dead: BTreeSet::new(),
            published: vec![0; nodes],
            decisions: Vec::new(),
            said: vec![nothing; nodes],
        };
        committee.run(Duration::from_secs(5));
        committee
    }

    /// Lets all endpoints cool down for `base`, as a reload of the configuration does.
    pub(crate) fn cool_down(&mut self, base: Duration) {
        for council in &mut self.councils {
            for key in &self.endpoints {
                let (pool, _) = key.as_str().split_once('/').expect("it is pool and endpoint");
                let recovery = Recovery { base, max: base * 2, ..recovery() };
                let (pool, conviction) = (PoolKey::new(pool), conviction());
                council.enrol(key.clone(), Enrolment { pool, recovery, conviction });
            }
        }
    }

    /// Opens the breaker of `node` for `endpoint` on its own traffic.
    pub(crate) fn trip(&mut self, node: usize, endpoint: usize) {
        self.opened.entry((node, endpoint)).or_insert(self.now);
    }

    /// Lets `time` pass.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.round();
        }
    }

    fn round(&mut self) {
        self.now += ROUND;
        let members: Vec<Member> = (0..self.councils.len()).map(|node| self.member(node)).collect();
        for node in 0..self.councils.len() {
            if self.dead.contains(&node) {
                continue;
            }
            let others: Vec<Member> =
                members.iter().filter(|member| member.id != name(node)).cloned().collect();
            self.councils[node].hear(self.now, &others);
            self.state(node);
            for decision in self.councils[node].step(self.now) {
                if let Decision::Closed { endpoint, .. } = &decision {
                    let endpoint = self.endpoints.iter().position(|key| key == endpoint);
                    self.opened.remove(&(node, endpoint.expect("it is enrolled")));
                }
                self.decisions.push((node, decision));
            }
            if let Some(said) = self.councils[node].statements(self.now) {
                let known: BTreeSet<u64> =
                    self.said[node].stated.iter().map(|stated| stated.seq).collect();
                let news = said.stated.iter().filter(|stated| !known.contains(&stated.seq));
                self.published[node] += 1 + news.count();
                self.said[node] = said;
            }
        }
    }

    fn state(&mut self, node: usize) {
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            let opening = self.opened.get(&(node, index)).map(|since| LocalOpening {
                since: *since,
                reason: "faults".to_owned(),
                evidence: Evidence::default(),
            });
            let local = Local { opening, ..Local::default() };
            self.councils[node].state(self.now, endpoint, local);
        }
    }

    fn member(&self, node: usize) -> Member {
        let Said { stated, pulse } = &self.said[node];
        let heard = |stated: &quorum::Stated| Heard {
            seq: stated.seq,
            statement: stated.statement.clone(),
        };
        Member {
            id: name(node),
            generation: 1,
            address: String::new(),
            is_live: !self.dead.contains(&node),
            card: Some(Card {
                version: String::new(),
                config_hash: String::new(),
                standing: Standing::Serving,
                is_suspect: self.councils[node].is_suspect(),
            }),
            pulse: *pulse,
            heard: stated.iter().map(heard).collect(),
        }
    }

    /// How many endpoints `node` has out by the fleet's verdict.
    pub(crate) fn open(&self, node: usize) -> usize {
        self.endpoints.iter().filter(|key| self.councils[node].is_open(key)).count()
    }
}

/// The name of a node.
pub(crate) fn name(node: usize) -> NodeId {
    NodeId::new(&format!("gw-{node}"))
}
