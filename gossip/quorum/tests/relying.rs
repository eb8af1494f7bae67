//! Claims about a council that relies on a ledger: it proposes, the ledger commits, the council follows.

#![expect(clippy::panic, reason = "a test may stop loudly")]

use std::time::Duration;

use quorum::ledger::{Book, Call, Count, Deed, Entry, Floor, Lead, Outcome, Word};
use quorum::{
    Basis, Card, Conviction, Council, CouncilRule, Decision, Denominator, ElectorateRule,
    EndpointKey, Enrolment, Evidence, Heard, Local, LocalOpening, Member, Need, NodeId, PoolKey,
    ProbeResult, Recovery, Reliance, Stage, Standing, Statement, Step, Vote, VoteState, Way,
    Window,
};

const fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn key() -> EndpointKey {
    EndpointKey::new("pool/e")
}

fn other_key() -> EndpointKey {
    EndpointKey::new("pool/f")
}

fn rule() -> CouncilRule {
    CouncilRule {
        electorate: ElectorateRule { expected_members: 0, member_grace: at(60_000) },
        of: Denominator::Members,
        max_open_share_milli: 1_000,
        interval: at(1_000),
        observe: Duration::ZERO,
        vote_ttl: at(10_000),
        renew_every: at(2_000),
        max_open: at(600_000),
    }
}

fn enrolment() -> Enrolment {
    Enrolment {
        pool: PoolKey::new("pool"),
        recovery: Recovery {
            base: at(5_000),
            max: at(60_000),
            reset_after: at(60_000),
            probe_timeout: at(1_000),
            way: Way::Ladder { probe: true, canaries: 0, turn: at(2_000) },
        },
        conviction: Conviction {
            failure_threshold: 4,
            failure_ratio_milli: 500,
            min_requests: 10,
            window: at(30_000),
            dedup: at(5_000),
            confirmations: 2,
        },
    }
}

/// One of three nodes, whose council relies on a ledger.
struct Node {
    council: Council,
    now: Duration,
    pulse: u64,
    has_votes: bool,
    /// The step by which the two others have the endpoint out.
    held: Option<Step>,
    /// Members that are listed besides.
    others: Vec<Member>,
    is_bad: bool,
}

impl Node {
    fn new() -> Self {
        Self::by(rule())
    }

    fn by(rule: CouncilRule) -> Self {
        let mut council = Council::new(NodeId::new("gw-1"), rule, at(0));
        council.live_as(1);
        council.enrol(key(), enrolment());
        council.rely(at(0), Reliance::Ledger);
        let mut node = Self {
            council,
            now: at(0),
            pulse: 0,
            has_votes: false,
            held: None,
            others: Vec::new(),
            is_bad: false,
        };
        node.run(at(1_000));
        node
    }

    /// One round, a tenth of a second after the last.
    fn round(&mut self) -> Vec<Decision> {
        self.now += at(100);
        self.pulse += 1;
        let mut members = vec![self.other("gw-2"), self.other("gw-3")];
        members.extend(self.others.iter().cloned());
        self.council.hear(self.now, &members);
        let opening = self.is_bad.then(|| LocalOpening {
            since: self.now,
            reason: "faults".to_owned(),
            evidence: Evidence::default(),
        });
        self.council.state(self.now, &key(), Local { opening, ..Local::default() });
        self.council.step(self.now)
    }

    fn run(&mut self, time: Duration) -> Vec<Decision> {
        let end = self.now + time;
        let mut decisions = Vec::new();
        while self.now < end {
            decisions.extend(self.round());
        }
        decisions
    }

    fn other(&self, name: &str) -> Member {
        let vote = Vote {
            incident: 1,
            basis: Basis::FirstHand,
            state: VoteState::Stands,
            reason: String::new(),
            evidence: Evidence::default(),
            age: at(0),
        };
        let votes = [key(), other_key()].map(|key| {
            let statement = Statement::Vote(key, vote.clone());
            Heard { seq: 1, statement }
        });
        let held = |step| Heard { seq: 2, statement: Statement::Step(key(), step) };
        let held = self.held.clone().map(held);
        Member {
            id: NodeId::new(name),
            generation: 1,
            address: String::new(),
            is_live: true,
            card: Some(Card {
                version: String::new(),
                config_hash: String::new(),
                standing: Standing::Draining,
                is_suspect: false,
            }),
            pulse: self.pulse,
            heard: self.has_votes.then_some(votes).into_iter().flatten().chain(held).collect(),
        }
    }

    /// Lists a hundred members whose names tell nothing, as they are.
    fn list(&mut self, change: impl Fn(&mut Member)) {
        let listed = (0..100).map(|number| {
            let mut member = self.other(&format!("pod-{number}"));
            member.heard.clear();
            change(&mut member);
            member
        });
        self.others = listed.collect();
    }

    fn word(&mut self) -> Word {
        let words = self.council.words(self.now);
        let [(_, word)] = words.as_slice() else { panic!("{words:?}") };
        word.clone()
    }

    fn enter(&mut self, entry: &Entry) -> Vec<Decision> {
        self.council.enter(self.now, &key(), entry);
        self.round()
    }

    fn is_open(&self) -> bool {
        self.council.is_open(&key())
    }

    fn step(&self) -> Step {
        match self.council.need(self.now, &key()) {
            Some(Need::Step(step)) => step,
            other => panic!("no step is proposed: {other:?}"),
        }
    }
}

/// An entry with the step that stands.
fn entry(stage: Stage, failures: u32) -> Entry {
    let step = Step {
        incident: 3,
        failures,
        level: 0,
        stage,
        steward: NodeId::new("gw-2"),
        age: at(0),
        is_held: true,
    };
    let count = Count { first_hand: 2, counted: 2, quorum: 2, ..Count::default() };
    let floor = Floor { version: 4, epoch: 3, lead: 2 };
    Entry { floor, step: Some(step), count, ..Entry::default() }
}

fn waiting(remaining: u64) -> Entry {
    entry(Stage::Waiting { remaining: at(remaining) }, 0)
}

/// The entry with the lead of this node.
fn led(mut entry: Entry, remaining: u64) -> Entry {
    let holder = NodeId::new("gw-1");
    entry.lead = Some(Lead { holder, generation: 1, number: 2, remaining: at(remaining) });
    entry
}

fn written(step: &Step, remaining: u64) -> Entry {
    led(Entry { step: Some(step.clone()), ..waiting(0) }, remaining)
}

fn is_probe(decision: &Decision) -> bool {
    matches!(decision, Decision::Probe { .. })
}

/// A node whose probe is due.
fn due() -> Node {
    let mut node = Node::new();
    node.enter(&waiting(0));
    node.enter(&waiting(0));
    node
}

#[test]
fn votes_that_gossip_brings_open_nothing_and_what_is_committed_opens_once() {
    let mut node = Node::new();
    (node.has_votes, node.is_bad) = (true, true);
    node.run(at(3_000));
    assert!(node.council.count(node.now, &key()).is_open() && !node.is_open());
    let decisions = node.enter(&waiting(5_000));
    assert!(matches!(
        decisions.as_slice(),
        [Decision::Opened { opening, tally, .. }] if opening.incident == 3 && tally.counted == 2
    ));
    assert_eq!(node.enter(&waiting(4_900)), []);
}

#[test]
fn what_the_ledger_has_lost_closes_nothing_and_a_closing_closes() {
    let mut node = Node::new();
    node.enter(&waiting(5_000));
    assert_eq!(node.enter(&Entry::default()), []);
    assert!(node.is_open());
    let decisions = node.enter(&entry(Stage::Closed, 0));
    assert!(matches!(decisions.as_slice(), [Decision::Closed { incident: 3, was_open: true, .. }]));
    assert_eq!(node.enter(&waiting(5_000)), [], "an older entry is behind what is known");
    assert!(!node.is_open());
}

#[test]
fn an_opening_that_the_ledger_does_not_get_back_is_let_go_of_after_five_intervals() {
    let mut node = Node::new();
    node.enter(&waiting(60_000));
    for _ in 0..49 {
        node.enter(&Entry::default());
        assert!(node.is_open(), "at {:?}", node.now);
    }
    for _ in 0..3 {
        node.enter(&Entry::default());
    }
    assert!(!node.is_open());
}

#[test]
fn what_a_majority_off_the_ledger_has_out_is_joined_and_kept() {
    let mut node = Node::new();
    node.enter(&Entry::default());
    node.held = waiting(500_000).step;
    let decisions = node.run(at(1_000));
    assert!(matches!(
        decisions.as_slice(),
        [Decision::Opened { opening, tally, .. }] if opening.incident == 3 && tally.holders == 2
    ));
    for _ in 0..300 {
        node.enter(&Entry::default());
        assert!(node.is_open(), "at {:?}", node.now);
    }
    node.held = None;
    node.run(at(1_000));
    for _ in 0..60 {
        node.enter(&Entry::default());
    }
    assert!(!node.is_open(), "nobody else has it out any more");
}

#[test]
fn what_a_majority_off_the_ledger_has_out_for_too_long_is_let_go_of_once() {
    let mut node = Node::new();
    node.held = waiting(500_000).step;
    node.run(at(600_000));
    assert!(node.is_open());
    let mut decisions = Vec::new();
    for _ in 0..100 {
        decisions.extend(node.enter(&Entry::default()));
    }
    assert!(matches!(decisions.as_slice(), [Decision::Closed { .. }]), "{decisions:?}");
}

#[test]
fn however_many_members_went_or_are_lost_a_word_may_open() {
    let mut node = Node::new();
    node.list(|member| member.card.as_mut().unwrap().standing = Standing::Left);
    node.is_bad = true;
    node.run(at(1_000));
    let word = node.word();
    assert_eq!((word.discounted.len(), word.electorate), (100, 3));
    assert!(word.opening.is_some());
    node.run(at(6_000));
    assert_eq!(node.word().discounted, [], "no word of theirs stands any more");

    let mut node = Node::new();
    node.list(|_| {});
    node.run(at(1_000));
    node.list(|member| member.is_live = false);
    node.is_bad = true;
    node.run(at(8_000));
    let word = node.word();
    assert_eq!((word.discounted.len(), word.electorate), (100, 103));
    assert!(word.opening.is_some());
    node.list(|member| (member.id, member.is_live) = (NodeId::new("pod ä"), false));
    node.run(at(1_000));
    assert!(node.word().discounted.iter().all(|id| id.as_str().is_ascii()));
}

#[test]
fn a_vote_without_witnesses_is_not_cast_where_two_observe() {
    let mut node = Node::by(CouncilRule { of: Denominator::Observers, ..rule() });
    let others = [
        Statement::Window(key(), Window { requests: 9, faults_milli: 9_000, ..Window::default() }),
        Statement::Window(key(), Window::default()),
    ];
    for round in 0..20 {
        node.now += at(100);
        let members = others.iter().zip(["gw-2", "gw-3"]).map(|(statement, name)| {
            let heard = vec![Heard { seq: round, statement: statement.clone() }];
            Member { pulse: 100 + round, heard, ..node.other(name) }
        });
        let members: Vec<Member> = members.collect();
        node.council.hear(node.now, &members);
        let window = Window { requests: 1, ..Window::default() };
        node.council.state(node.now, &key(), Local { window, ..Local::default() });
        node.council.step(node.now);
    }
    let count = node.council.count(node.now, &key());
    assert_eq!((count.seconded, count.counted, count.quorum), (1, 0, 2));
    assert!(node.council.words(node.now).iter().all(|(_, word)| word.vote.is_none()));
}

#[test]
fn a_place_under_the_cap_is_kept_by_a_word_that_is_cast() {
    let mut node = Node::by(CouncilRule { max_open_share_milli: 500, ..rule() });
    node.council.enrol(other_key(), enrolment());
    node.has_votes = true;
    node.run(at(1_000));
    let may_open = |node: &Node| {
        let words = node.council.words(node.now).into_iter();
        words.map(|(_, word)| word.opening.is_some()).collect::<Vec<bool>>()
    };
    for _ in 0..20 {
        node.round();
        assert_eq!(may_open(&node), [true, true], "neither was cast");
    }
    let (key, word) = node.council.words(node.now).pop().unwrap();
    assert!(node.council.seal(node.now, &key, word).opening.is_some());
    assert_eq!(may_open(&node), [false, true]);
    let (key, word) = node.council.words(node.now).pop().unwrap();
    node.run(at(1_100));
    assert_eq!(may_open(&node), [true, true]);
    assert!(node.council.seal(node.now, &key, word).opening.is_some());
}

#[test]
fn who_has_it_out_says_so_until_the_ledger_has_it_again() {
    let mut node = Node::new();
    node.enter(&waiting(60_000));
    node.enter(&Entry::default());
    let words = node.council.words(node.now);
    let [(endpoint, word)] = words.as_slice() else { panic!("{words:?}") };
    assert_eq!((endpoint, word.vote, word.electorate), (&key(), None, 3));
    assert_eq!(word.hold.as_ref().map(|step| step.incident), Some(3));
    assert!(word.opening.is_some());
}

#[test]
fn a_probe_begins_once_its_step_is_written_and_the_lead_outlasts_it() {
    let mut node = due();
    let step = node.step();
    assert!(matches!(step.stage, Stage::Probing { .. }));
    assert_eq!(node.enter(&led(waiting(0), 9_000)), [], "it is not written yet");
    assert_eq!(node.enter(&written(&step, 9_000)).into_iter().filter(is_probe).count(), 1);
    assert_eq!(node.enter(&written(&step, 9_000)), [], "once");
    assert_eq!(node.council.need(node.now, &key()), Some(Need::Lead));
}

#[test]
fn no_probe_begins_under_a_lead_that_is_nearly_over_or_anothers() {
    for remaining in [0, 1_999] {
        let mut node = due();
        let step = node.step();
        assert_eq!(node.enter(&written(&step, remaining)), [], "{remaining}");
    }
    let mut node = due();
    let step = node.step();
    let mut anothers = written(&step, 9_000);
    anothers.lead.as_mut().unwrap().holder = NodeId::new("gw-2");
    assert_eq!(node.enter(&anothers), []);
}

#[test]
fn how_a_probe_went_is_proposed_and_not_done() {
    let mut node = due();
    let step = node.step();
    node.enter(&written(&step, 9_000));
    node.council.probed(node.now, &key(), (3, 0), ProbeResult::Passed);
    assert!(node.run(at(300)).is_empty() && node.is_open());
    let step = node.step();
    assert_eq!(step.stage, Stage::Closed);
    let decisions = node.enter(&written(&step, 0));
    assert!(matches!(decisions.as_slice(), [Decision::Closed { was_open: true, .. }]));
    assert_eq!(node.council.need(node.now, &key()), None);
}

#[test]
fn what_was_proposed_as_the_ledger_goes_away_is_done_by_the_rule_of_gossip() {
    let mut node = due();
    let step = node.step();
    node.enter(&written(&step, 9_000));
    node.council.probed(node.now, &key(), (3, 0), ProbeResult::Failed);
    node.council.rely(node.now, Reliance::Gossip);
    let known = node.council.step_of(node.now, &key()).unwrap();
    assert_eq!((known.failures, known.level), (1, 1));
    assert!(matches!(known.stage, Stage::Waiting { .. }));
    assert_eq!(node.council.need(node.now, &key()), None);
}

#[test]
fn a_motion_is_dropped_when_another_has_led_on() {
    let mut node = due();
    let step = node.step();
    node.enter(&written(&step, 9_000));
    node.council.probed(node.now, &key(), (3, 0), ProbeResult::Failed);
    let holder = NodeId::new("gw-3");
    let stage = Stage::Canary { holder, turn: 0, successes: 0, remaining: at(5_000) };
    node.enter(&entry(stage, 0));
    assert_eq!(node.council.need(node.now, &key()), None);
}

#[test]
fn a_closing_that_the_ledger_does_not_know_is_carried_to_it() {
    let mut node = Node::new();
    node.enter(&entry(Stage::Closed, 0));
    assert_eq!(node.council.carry(node.now, &key()), None);
    node.enter(&waiting(5_000));
    node.run(at(600));
    node.enter(&waiting(5_000));
    let step = node.council.carry(node.now, &key()).unwrap();
    assert_eq!((step.incident, step.stage), (3, Stage::Closed));
}

#[test]
fn alone_a_node_lets_go_of_what_the_fleet_has_out() {
    let mut node = Node::new();
    node.enter(&waiting(5_000));
    node.council.rely(node.now, Reliance::Alone);
    let decisions = node.round();
    assert!(matches!(decisions.as_slice(), [Decision::Closed { was_open: true, .. }]));
    (node.has_votes, node.is_bad) = (true, true);
    assert!(node.run(at(2_000)).is_empty() && !node.is_open());
}

#[test]
fn the_votes_of_two_of_three_open_by_way_of_the_ledger() {
    let mut node = Node::new();
    node.is_bad = true;
    node.round();
    let mut book = Book::default();
    let (_, word) = node.council.words(node.now).pop().unwrap();
    for (seq, by) in (1..).zip(["gw-1", "gw-2"]) {
        let deed = Deed::Cast(quorum::ledger::Word { seq, ..word.clone() });
        let (endpoint, by) = (key(), NodeId::new(by));
        let call = Call { endpoint, by, generation: 1, floor: Floor::default(), deed };
        let answer = book.apply(at(1_000), &call);
        let is_second = seq == 2;
        assert_eq!(answer.outcome == Outcome::Opened, is_second);
        assert_eq!(node.enter(&answer.entry).is_empty(), !is_second);
    }
    assert!(node.is_open());
    let window = Window::default();
    node.council.state(node.now, &key(), Local { window, ..Local::default() });
    assert!(node.is_open(), "a vote taken back closes nothing");
}
