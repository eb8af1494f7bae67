//! A random history of one endpoint: several nodes that know more or less, and time that passes.

use std::time::Duration;

use fastrand::Rng;
use quorum::ledger::{Against, Answer, Begin, Book, Call, Deed, Entry, Floor, Word};
use quorum::{EndpointKey, Forced, NodeId, Override, Stage, Step};

/// Names whose order differs by bytes and by most locales.
const NODES: [&str; 5] = ["gw-1", "gw-10", "GW-1", "gw_1", "a.b"];

/// What happens next.
pub(crate) enum Event {
    /// A call.
    Call(Box<Call>),
    /// The server is copied: to here a failover will go back.
    Copy,
    /// The copy takes the server's place.
    FailOver,
    /// The server loses everything.
    Flush,
}

/// One endpoint's history, with the ledger as the model knows it.
pub(crate) struct History {
    pub(crate) endpoint: EndpointKey,
    pub(crate) seed: u64,
    pub(crate) now: Duration,
    pub(crate) run: u64,
    rng: Rng,
    book: Book,
    copy: (Book, u64),
    entry: Entry,
    nodes: Vec<Node>,
}

#[derive(Default)]
struct Node {
    generation: u64,
    seq: u64,
    seen: Floor,
}

impl History {
    pub(crate) fn new(endpoint: &str, seed: u64) -> Self {
        let node = || Node { generation: 10, ..Node::default() };
        Self {
            endpoint: EndpointKey::new(endpoint),
            seed,
            now: Duration::from_secs(1_800_000_000),
            run: 0,
            rng: Rng::with_seed(seed),
            book: Book::default(),
            copy: (Book::default(), 0),
            entry: Entry::default(),
            nodes: NODES.map(|_| node()).into(),
        }
    }

    /// Lets time pass, and says what happens.
    pub(crate) fn next(&mut self) -> Event {
        self.pass();
        match self.rng.u32(..1_000) {
            0..10 => Event::Copy,
            10..14 => Event::FailOver,
            14..17 => Event::Flush,
            _ => Event::Call(Box::new(self.call())),
        }
    }

    /// Does the same to the model. Returns the answer to a call.
    pub(crate) fn apply(&mut self, event: &Event) -> Option<Answer> {
        match event {
            Event::Copy => self.copy = (self.book.clone(), self.run),
            Event::FailOver => {
                let (book, run) = self.copy.clone();
                (self.book, self.run) = (book, run + 1);
                self.book.fail_over();
            }
            Event::Flush => self.book.flush(),
            Event::Call(call) => {
                let answer = self.book.apply(self.now, call);
                self.entry = answer.entry.clone();
                let node = NODES.iter().position(|name| *name == call.by.as_str());
                if let Some(node) = node.and_then(|index| self.nodes.get_mut(index)) {
                    let seen = answer.entry.floor;
                    node.seen.version = node.seen.version.max(seen.version);
                    node.seen.epoch = node.seen.epoch.max(seen.epoch);
                    node.seen.lead = node.seen.lead.max(seen.lead);
                }
                return Some(answer);
            }
        }
        None
    }

    /// Mostly moments; now and then as long as a lease; rarely back.
    fn pass(&mut self) {
        let micros = match self.rng.u32(..100) {
            0..40 => 0,
            40..70 => self.rng.u64(..1_000),
            70..90 => self.rng.u64(..1_000_000),
            90..96 => self.rng.u64(..8_000_000),
            96..98 => 1_000_000,
            98 => {
                self.now -= Duration::from_micros(self.rng.u64(..1_500_000));
                0
            }
            _ => {
                self.now -= Duration::from_secs(self.rng.u64(..20));
                0
            }
        };
        self.now += Duration::from_micros(micros);
    }

    fn call(&mut self) -> Call {
        let index = self.rng.usize(..NODES.len());
        let deed = match self.rng.u32(..100) {
            0..50 => Deed::Cast(self.word(index)),
            50..60 => Deed::Take { hold: self.span() },
            60..68 => Deed::Renew { number: self.lead(), hold: self.span() },
            68..71 => Deed::Release { number: self.lead() },
            71..87 => Deed::Advance { number: self.lead(), step: self.step() },
            87..92 => Deed::Carry(self.step()),
            92..96 => Deed::Order(self.order()),
            _ => Deed::Read,
        };
        // Steps are rarely written by chance: mostly who leads is the one who tries.
        let leader = self.entry.lead.as_ref().filter(|_| self.rng.u32(..10) < 8);
        let is_leaders =
            matches!(deed, Deed::Renew { .. } | Deed::Release { .. } | Deed::Advance { .. });
        let of_leader = leader.filter(|_| is_leaders);
        let by = of_leader.map_or_else(|| NodeId::new(name(index)), |lead| lead.holder.clone());
        let Some(node) = self.nodes.get_mut(index) else {
            return self.call();
        };
        if self.rng.u32(..200) == 0 {
            node.generation += self.rng.u64(1..3);
        }
        let generation = match of_leader {
            Some(lead) => lead.generation,
            None if self.rng.u32(..30) == 0 => node.generation - 1,
            None => node.generation,
        };
        let floor = match self.rng.u32(..100) {
            0..70 => self.entry.floor,
            70..98 => node.seen,
            _ => Floor {
                version: self.entry.floor.version + self.rng.u64(..5),
                epoch: self.entry.floor.epoch + self.rng.u64(..5),
                lead: self.entry.floor.lead + self.rng.u64(..5),
            },
        };
        Call { endpoint: self.endpoint.clone(), by, generation, floor, deed }
    }

    fn word(&mut self, index: usize) -> Word {
        let seq = match self.nodes.get_mut(index) {
            Some(node) if self.rng.u32(..20) > 0 => {
                node.seq += 1;
                node.seq
            }
            Some(node) => node.seq.saturating_sub(self.rng.u64(..3)),
            None => 0,
        };
        let vote = (self.rng.u32(..10) < 7)
            .then(|| Against { incident: self.incident(), is_first_hand: self.rng.bool() });
        let hold = (self.rng.u32(..10) < 4).then(|| self.held());
        let opening = (self.rng.u32(..10) > 0)
            .then(|| Begin { level: self.rng.u32(..17), cool_down: self.span() });
        let discounted = NODES.iter().filter(|_| self.rng.u32(..12) == 0).copied();
        let discounted = discounted.map(NodeId::new).collect();
        let is_witness = self.rng.u32(..4) == 0;
        let electorate = self.rng.u32(..6);
        Word { seq, vote, is_witness, hold, lease: self.span(), electorate, discounted, opening }
    }

    /// About where incidents are, and where they may not be.
    fn incident(&mut self) -> u64 {
        let standing = self.entry.step.as_ref().map_or(0, |step| step.incident);
        match self.rng.u32(..20) {
            0 => 0,
            1 => standing.saturating_sub(1),
            2 => standing + 1_023 + self.rng.u64(..4),
            3..6 => self.entry.floor.epoch + 1,
            6..9 => standing,
            _ => standing + 1,
        }
    }

    /// What a node may have out: where nothing stands, mostly what others have out as well, and else
    /// often what has come after it.
    fn held(&mut self) -> Step {
        let standing = self.entry.step.as_ref().filter(|step| step.stage != Stage::Closed);
        if standing.is_some() && self.rng.u32(..3) > 0 || self.rng.u32(..5) == 0 {
            return self.step();
        }
        let incident = self.entry.step.as_ref().map_or(0, |step| step.incident) + 1;
        let stage = Stage::Probing { remaining: self.span() };
        Step { incident, failures: self.rng.u32(..2), stage, is_held: true, ..self.step() }
    }

    /// About the one that stands.
    fn step(&mut self) -> Step {
        let standing = self.entry.step.clone();
        let failures = standing.as_ref().map_or(0, |step| step.failures);
        let incident = standing.as_ref().map_or(0, |step| step.incident);
        let remaining = self.span();
        let canary = match standing.as_ref().map(|step| &step.stage) {
            Some(Stage::Canary { turn, successes, .. }) => (*turn, *successes),
            Some(Stage::Waiting { .. } | Stage::Probing { .. } | Stage::Closed) | None => (0, 0),
        };
        let stage = match self.rng.u32(..10) {
            0..2 => Stage::Waiting { remaining },
            2..6 => Stage::Probing { remaining },
            6..9 => Stage::Canary {
                holder: NodeId::new(name(self.rng.usize(..NODES.len()))),
                turn: canary.0 + self.rng.u32(..2),
                successes: canary.1 + self.rng.u32(..2),
                remaining,
            },
            _ => Stage::Closed,
        };
        let incident = match self.rng.u32(..20) {
            0 => incident.saturating_sub(1),
            1..3 => incident + 1,
            _ => incident,
        };
        Step {
            incident,
            failures: if self.rng.u32(..4) == 0 { failures + 1 } else { failures },
            level: self.rng.u32(..17),
            is_held: stage != Stage::Closed,
            stage,
            steward: NodeId::new(name(self.rng.usize(..NODES.len()))),
            age: self.span(),
        }
    }

    fn order(&mut self) -> Override {
        let stamp = self.entry.order.as_ref().map_or(0, |order| order.stamp);
        let reasons = ["", "maintenance", "*", "100 % sure\r\n", "wegen Störung", "it's {fine}"];
        let forced = [Forced::Open, Forced::Closed, Forced::Auto];
        Override {
            forced: self.rng.choice(forced).unwrap_or(Forced::Auto),
            stamp: stamp + self.rng.u64(..2),
            author: NodeId::new(name(self.rng.usize(..NODES.len()))),
            remaining: self.rng.bool().then(|| self.span()),
            reason: self.rng.choice(reasons).unwrap_or_default().to_owned(),
        }
    }

    fn lead(&mut self) -> u64 {
        let number = self.entry.lead.as_ref().map_or(0, |lead| lead.number);
        if self.rng.u32(..10) == 0 { number.saturating_sub(1) } else { number }
    }

    fn span(&mut self) -> Duration {
        Duration::from_micros(match self.rng.u32(..20) {
            0 => 0,
            1 => 1,
            2..6 => self.rng.u64(..1_000_000),
            _ => 5_000_000 + self.rng.u64(..1_000),
        })
    }
}

fn name(index: usize) -> &'static str {
    NODES.get(index).copied().unwrap_or("gw-1")
}
