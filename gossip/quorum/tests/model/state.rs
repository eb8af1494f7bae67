//! A state of the model: three councils, what each has of the others, and what is under way.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hasher};
use std::rc::Rc;
use std::time::Duration;

use quorum::{
    CanaryFence, CanaryWord, Card, Conviction, Council, CouncilRule, Decision, Denominator,
    ElectorateRule, EndpointKey, Enrolment, Evidence, Heard, Local, LocalOpening, Member, NodeId,
    PoolKey, ProbeResult, Recovery, Stage, Standing, Statement, VoteState, Way,
};

/// How many nodes there are.
pub(crate) const NODES: usize = 3;

/// One tick; more than a second would be taken for a pause.
const TICK: Duration = Duration::from_millis(900);

/// Once all have heard all for so many ticks, views agree: each rank has had its turn meanwhile.
const AGREED_AFTER: u64 = 6;

/// What a node told the others.
#[derive(Clone, Debug)]
struct Record {
    generation: u64,
    /// Grows with whatever is told anew.
    version: u64,
    pulse: u64,
    heard: Vec<Heard>,
}

/// One node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    council: Council,
    generation: u64,
    /// Since when its own breaker is open on its own traffic.
    opened: Option<Duration>,
    pub(crate) is_out: bool,
    /// The last step that closed here: incident and failures.
    closed: (u64, u32),
    pub(crate) probe: Option<((u64, u32), u64)>,
    /// The hold of the canary slot, and the successes so far.
    pub(crate) slot: Option<(CanaryFence, u32)>,
    /// The newest record and the one before.
    told: [Rc<Record>; 2],
    known: [Option<Rc<Record>>; NODES],
}

/// A state.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) tick: u64,
    pub(crate) nodes: [Node; NODES],
    pub(crate) trips_left: u32,
    pub(crate) crashes_left: u32,
    faults_left: u32,
    canaries: u32,
    /// Whether the last node and the others do not hear each other, and know it.
    is_parted: bool,
    is_planted: bool,
    /// For how many ticks every node has had the newest record of every other.
    agreed: u64,
}

/// Something that departs from a tick in which everything arrives at once and every trial passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Twist {
    /// A breaker opens on its node's own traffic.
    Trip(usize),
    /// The node's process is replaced by a new one.
    Crash(usize),
    /// Nothing of one node's reaches another.
    Withhold { from: usize, to: usize },
    /// Only what one node told before its newest record reaches another.
    Outdated { from: usize, to: usize },
    /// One node neither hears nor is heard.
    Isolate(usize),
    /// The trial that the node has under way fails.
    Fail(usize),
    /// The trial that the node has under way is answered a tick later, or never.
    Delay(usize),
}

/// A promise that was broken.
pub(crate) type Broken = String;

/// The way in which a model recovers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) canaries: u32,
    pub(crate) trips: u32,
    pub(crate) crashes: u32,
    /// How many other twists there are.
    pub(crate) faults: u32,
    /// Whether the last node is cut off from the others.
    pub(crate) is_parted: bool,
    /// Whether votes are handed on as those of another member as well, to see that it is caught.
    pub(crate) is_planted: bool,
}

fn key() -> EndpointKey {
    EndpointKey::new("pool/e")
}

fn id(node: usize) -> NodeId {
    NodeId::new(["a", "b", "c"][node])
}

fn council(node: usize, canaries: u32, now: Duration) -> Council {
    let rule = CouncilRule {
        electorate: ElectorateRule { expected_members: 0, member_grace: TICK * 1_000 },
        of: Denominator::Members,
        max_open_share_milli: 1_000,
        interval: TICK,
        observe: TICK,
        vote_ttl: TICK * 8,
        renew_every: TICK * 2,
        max_open: TICK * 10_000,
    };
    let mut council = Council::new(id(node), rule, now);
    let enrolment = Enrolment {
        pool: PoolKey::new("pool"),
        recovery: Recovery {
            base: TICK * 2,
            max: TICK * 4,
            reset_after: TICK * 100,
            probe_timeout: TICK * 2,
            way: Way::Ladder { probe: true, canaries, turn: TICK * 3 },
        },
        conviction: Conviction {
            failure_threshold: 4,
            failure_ratio_milli: 500,
            min_requests: 10,
            window: TICK * 20,
            dedup: TICK,
            confirmations: 2,
        },
    };
    council.enrol(key(), enrolment);
    council
}

impl Node {
    fn new(index: usize, generation: u64, canaries: u32, now: Duration) -> Self {
        let none = Rc::new(Record { generation, version: 1, pulse: 0, heard: Vec::new() });
        Self {
            council: council(index, canaries, now),
            generation,
            opened: None,
            is_out: false,
            closed: (0, 0),
            probe: None,
            slot: None,
            told: [Rc::clone(&none), none],
            known: [None, None, None],
        }
    }

    fn step_known(&self, now: Duration) -> Option<(u64, u32, bool)> {
        let step = self.council.endpoint(now, &key())?.step?;
        Some((step.incident, step.failures, step.stage == Stage::Closed))
    }

    /// How many nodes' standing votes this node truly has, its own among them.
    fn votes(&self) -> usize {
        let stands = |heard: &Heard| match &heard.statement {
            Statement::Vote(_, vote) => vote.state == VoteState::Stands,
            Statement::Step(..)
            | Statement::Override(..)
            | Statement::Window(..)
            | Statement::Member(..) => false,
        };
        let theirs = self.known.iter().flatten().filter(|one| one.heard.iter().any(stands)).count();
        let mine = self.opened.is_some() || self.told[0].heard.iter().any(stands);
        theirs + usize::from(mine)
    }

    /// How many others say that they hold the endpoint out.
    fn holders(&self) -> usize {
        let holds = |heard: &Heard| match &heard.statement {
            Statement::Step(_, step) => step.is_held && step.stage != Stage::Closed,
            Statement::Vote(..)
            | Statement::Override(..)
            | Statement::Window(..)
            | Statement::Member(..) => false,
        };
        self.known.iter().flatten().filter(|one| one.heard.iter().any(holds)).count()
    }
}

impl State {
    /// Three nodes that know each other, past their observing; two breakers have just opened.
    pub(crate) fn start(shape: Shape) -> Result<Self, Broken> {
        let nodes = [0, 1, 2].map(|index| Node::new(index, 1, shape.canaries, Duration::ZERO));
        let mut state = Self {
            tick: 0,
            nodes,
            trips_left: 0,
            crashes_left: 0,
            faults_left: 0,
            canaries: shape.canaries,
            is_parted: false,
            is_planted: false,
            agreed: 0,
        };
        for _ in 0..6 {
            state.pass(&[])?;
        }
        (state.trips_left, state.crashes_left) = (shape.trips, shape.crashes);
        state.faults_left = shape.faults;
        (state.is_parted, state.is_planted) = (shape.is_parted, shape.is_planted);
        Ok(state)
    }

    fn now(&self) -> Duration {
        TICK * self.tick as u32
    }

    /// All that may depart in the next tick, as far as there is something to depart from.
    pub(crate) fn twists(&self) -> Vec<Twist> {
        let mut twists = Vec::new();
        for node in 0..NODES {
            let here = &self.nodes[node];
            if self.trips_left > 0 && here.opened.is_none() && !here.is_out {
                twists.push(Twist::Trip(node));
            }
            if self.crashes_left > 0 {
                twists.push(Twist::Crash(node));
            }
            if self.faults_left == 0 {
                continue;
            }
            if here.probe.is_some() || here.slot.is_some() {
                twists.extend([Twist::Fail(node), Twist::Delay(node)]);
            }
            twists.push(Twist::Isolate(node));
            for from in (0..NODES).filter(|from| *from != node) {
                twists.push(Twist::Withhold { from, to: node });
                if self.nodes[from].told[0].version != self.nodes[from].told[1].version {
                    twists.push(Twist::Outdated { from, to: node });
                }
            }
        }
        twists
    }

    /// Whether the twist may be added to what is chosen already; takes it from what is left.
    pub(crate) fn spend(&mut self, twist: Twist) -> bool {
        let left = match twist {
            Twist::Trip(_) => &mut self.trips_left,
            Twist::Crash(_) => &mut self.crashes_left,
            Twist::Withhold { .. }
            | Twist::Outdated { .. }
            | Twist::Isolate(_)
            | Twist::Fail(_)
            | Twist::Delay(_) => &mut self.faults_left,
        };
        let is_possible = *left > 0;
        *left = left.saturating_sub(1);
        is_possible
    }

    /// One tick with these twists: trips and crashes, what arrives, trials, and what follows.
    pub(crate) fn pass(&mut self, twists: &[Twist]) -> Result<(), Broken> {
        self.tick += 1;
        for twist in twists {
            match *twist {
                Twist::Trip(node) => self.nodes[node].opened = Some(self.now()),
                Twist::Crash(node) => self.replace(node),
                Twist::Withhold { .. }
                | Twist::Outdated { .. }
                | Twist::Isolate(_)
                | Twist::Fail(_)
                | Twist::Delay(_) => {}
            }
        }
        for node in 0..NODES {
            self.round(node)?;
        }
        // News goes out at once, and what answers it comes within the tick too.
        let mut have_all = true;
        for _ in 0..2 {
            have_all &= self.deliver(twists)?;
        }
        self.agreed = if have_all { self.agreed + 1 } else { 0 };
        for node in 0..NODES {
            self.try_endpoint(node, twists)?;
        }
        Ok(())
    }

    fn replace(&mut self, node: usize) {
        let generation = self.nodes[node].generation + 1;
        let mut fresh = Node::new(node, generation, self.canaries, self.now());
        // What it had told last may still be on its way.
        fresh.told[1] = Rc::clone(&self.nodes[node].told[0]);
        self.nodes[node] = fresh;
        self.agreed = 0;
    }

    /// Lets records arrive. Returns whether everyone has everything.
    fn deliver(&mut self, twists: &[Twist]) -> Result<bool, Broken> {
        let mut have_all = true;
        for to in 0..NODES {
            for from in (0..NODES).filter(|from| *from != to) {
                let is_lost = twists.iter().any(|twist| {
                    *twist == Twist::Withhold { from, to }
                        || *twist == Twist::Isolate(from)
                        || *twist == Twist::Isolate(to)
                });
                let is_outdated = twists.contains(&Twist::Outdated { from, to });
                have_all &= !is_lost && !is_outdated;
                let which = usize::from(is_outdated);
                if !is_lost && self.is_newer(from, to, which) {
                    self.nodes[to].known[from] = Some(Rc::clone(&self.nodes[from].told[which]));
                    self.round(to)?;
                }
            }
        }
        Ok(have_all)
    }

    /// Lets the endpoint answer what a node has under way since an earlier tick.
    fn try_endpoint(&mut self, node: usize, twists: &[Twist]) -> Result<(), Broken> {
        if twists.contains(&Twist::Delay(node)) {
            return Ok(());
        }
        let (now, tick) = (self.now(), self.tick);
        let has_passed = !twists.contains(&Twist::Fail(node));
        let here = &mut self.nodes[node];
        if let Some((fence, _)) = here.probe.take_if(|(_, sent)| *sent < tick) {
            let result = if has_passed { ProbeResult::Passed } else { ProbeResult::Failed };
            here.council.probed(now, &key(), fence, result);
        } else if let Some((fence, successes)) = here.slot {
            let counted = successes + 1;
            here.slot = has_passed.then_some((fence, counted));
            let word = if has_passed { CanaryWord::Counted(counted) } else { CanaryWord::Failed };
            here.council.canaried(now, &key(), fence, word);
        } else {
            return Ok(());
        }
        self.round(node)
    }

    /// Whether a record is newer than what `to` has of `from`.
    fn is_newer(&self, from: usize, to: usize, which: usize) -> bool {
        let order = |record: &Record| (record.generation, record.version);
        let told = &self.nodes[from].told[which];
        let known = self.nodes[to].known[from].as_ref();
        let is_cut = self.is_parted && (from == 2 || to == 2);
        !is_cut && known.is_none_or(|known| order(known) < order(told))
    }

    /// One round of a node, as the gateway does it.
    fn round(&mut self, index: usize) -> Result<(), Broken> {
        let now = self.now();
        let members = self.members(index);
        let node = &mut self.nodes[index];
        node.council.hear(now, &members);
        let decisions = node.council.step(now);
        self.apply(index, decisions)?;
        let node = &mut self.nodes[index];
        let opening = node.opened.map(|since| LocalOpening {
            since,
            reason: String::new(),
            evidence: Evidence::default(),
        });
        node.council.state(now, &key(), Local { opening, ..Local::default() });
        let decisions = node.council.step(now);
        self.apply(index, decisions)?;
        let node = &mut self.nodes[index];
        if let Some(said) = node.council.statements(now) {
            let heard = said.stated.into_iter();
            let heard = heard.map(|one| Heard { seq: one.seq, statement: one.statement });
            let (generation, version) = (node.generation, node.told[0].version + 1);
            let record = Record { generation, version, pulse: said.pulse, heard: heard.collect() };
            node.told[1] = std::mem::replace(&mut node.told[0], Rc::new(record));
        }
        Ok(())
    }

    fn members(&self, to: usize) -> Vec<Member> {
        let known = self.nodes[to].known.iter().enumerate();
        known
            .filter_map(|(from, record)| {
                let record = record.as_ref()?;
                Some(Member {
                    id: id(from),
                    generation: record.generation,
                    address: String::new(),
                    is_live: !self.is_parted || from != 2 && to != 2,
                    card: Some(Card {
                        version: String::new(),
                        config_hash: String::new(),
                        standing: Standing::Serving,
                        is_suspect: false,
                    }),
                    pulse: record.pulse,
                    heard: if self.is_planted { self.all_words(to) } else { record.heard.clone() },
                })
            })
            .collect()
    }

    /// The words of all whom the node knows, as if each had said them all.
    fn all_words(&self, to: usize) -> Vec<Heard> {
        self.nodes[to].known.iter().flatten().flat_map(|record| record.heard.clone()).collect()
    }

    fn apply(&mut self, index: usize, decisions: Vec<Decision>) -> Result<(), Broken> {
        let now = self.now();
        for decision in decisions {
            match decision {
                Decision::Opened { opening, .. } => self.open(index, opening.incident)?,
                Decision::Closed { .. } => {
                    let node = &mut self.nodes[index];
                    if let Some((incident, failures, true)) = node.step_known(now) {
                        node.closed = node.closed.max((incident, failures));
                    }
                    (node.is_out, node.opened, node.slot) = (false, None, None);
                }
                Decision::Probe { fence, .. } => {
                    let others = self.nodes.iter().filter(|node| node.probe.is_some()).count();
                    if others > 0 && self.agreed >= AGREED_AFTER {
                        return Err(format!("{} probes while another does", id(index)));
                    }
                    self.nodes[index].probe = Some((fence, self.tick));
                }
                Decision::Lend { fence, successes, .. } => {
                    let others = (0..NODES).filter(|other| *other != index);
                    let others = others.filter(|other| self.nodes[*other].slot.is_some()).count();
                    if others > 0 && self.agreed >= AGREED_AFTER {
                        return Err(format!("{} holds the slot while another does", id(index)));
                    }
                    self.nodes[index].slot = Some((fence, successes));
                }
                Decision::Recall { .. } => self.nodes[index].slot = None,
                Decision::Forced { .. } | Decision::Ordered { .. } | Decision::Forgotten { .. } => {
                }
            }
        }
        Ok(())
    }

    fn open(&mut self, index: usize, incident: u64) -> Result<(), Broken> {
        let now = self.now();
        let node = &mut self.nodes[index];
        let (votes, holders) = (node.votes(), node.holders());
        if votes < 2 && holders < 2 {
            return Err(format!("{} opens with {votes} votes, {holders} holders", id(index)));
        }
        let (closed, failures) = node.closed;
        let is_led_on = node.step_known(now).is_some_and(|(known, failed, is_closed)| {
            !is_closed && (known, failed) > (closed, failures)
        });
        if incident <= closed && !is_led_on {
            return Err(format!("{} opens {incident} again after {closed}", id(index)));
        }
        node.is_out = true;
        Ok(())
    }

    /// Whether the endpoint is in again everywhere within `ticks` of calm.
    pub(crate) fn comes_back(&self, ticks: u32) -> Result<(), Broken> {
        let mut state = self.clone();
        state.is_parted = false;
        for _ in 0..ticks {
            state.pass(&[])?;
            if state.nodes.iter().all(|node| !node.is_out && node.opened.is_none()) {
                return Ok(());
            }
            // A breaker that is open alone comes back by its own ladder.
            for node in &mut state.nodes {
                node.opened = node.opened.filter(|_| node.is_out);
            }
        }
        let outs: Vec<bool> = state.nodes.iter().map(|node| node.is_out).collect();
        Err(format!("still out after {ticks} ticks of calm: {outs:?}"))
    }

    /// A number that is the same for states that cannot be told apart.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut sink = Sink(DefaultHasher::new());
        let _ = write!(sink, "{self:?}");
        sink.0.finish()
    }
}

/// Hashes what is written to it.
struct Sink(DefaultHasher);

impl std::fmt::Write for Sink {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}
