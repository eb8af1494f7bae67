//! Claims about what crosses on its way: votes taken back as they are counted, and who comes late.

use std::time::Duration;

use quorum::view::{EndpointView, Weight};
use quorum::{
    Basis, CanaryWord, Council, Decision, Denominator, Enrolment, Evidence, Forced, Heard, Local,
    LocalOpening, Member, NodeId, PoolKey, Stage, Standing, Statement, Step, Vote, VoteState,
    Window,
};

use super::sets::{START, council, key, member, open};
use super::world::{conviction, recovery, rule};

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// One council, and what four others say to it.
struct Ear {
    council: Council,
    now: Duration,
    pulse: u64,
    said: Vec<Vec<Statement>>,
    /// What its own breaker says.
    local: Local,
    decisions: Vec<Decision>,
    /// What the council itself says.
    stated: Vec<Statement>,
}

impl Ear {
    /// A council that has met four others and is past its observing.
    fn new(council: Council) -> Self {
        let said = vec![Vec::new(); 4];
        let (local, decisions, stated) = (Local::default(), Vec::new(), Vec::new());
        let mut ear = Self { council, now: START, pulse: 0, said, local, decisions, stated };
        ear.run(seconds(5));
        ear
    }

    /// Lets time pass; everybody raises its pulse with every word.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_millis(100);
            self.pulse += 1;
            let heard = |said: &Vec<Statement>| -> Vec<Heard> {
                let seq = self.pulse;
                said.iter().map(|statement| Heard { seq, statement: statement.clone() }).collect()
            };
            let members: Vec<Member> = (1..)
                .zip(&self.said)
                .map(|(index, said)| Member { pulse: self.pulse, ..member(index, 1, heard(said)) })
                .collect();
            self.council.hear(self.now, &members);
            self.decisions.extend(self.council.step(self.now));
            self.council.state(self.now, &key(), self.local.clone());
            self.decisions.extend(self.council.step(self.now));
            if let Some(said) = self.council.statements(self.now) {
                self.stated = said.stated.into_iter().map(|stated| stated.statement).collect();
            }
        }
    }

    fn view(&self) -> EndpointView {
        self.council.endpoint(self.now, &key()).unwrap()
    }

    /// How this node's own vote stands.
    fn mine(&self) -> Option<(Basis, VoteState, Weight)> {
        let mine = self.view().votes.into_iter().find(|vote| vote.voter.as_str() == "gw-0")?;
        Some((mine.vote.basis, mine.vote.state, mine.weight))
    }

    /// Lets this node's own breaker open.
    fn trip(&mut self) {
        let (reason, evidence) = ("faults".to_owned(), Evidence::default());
        let opening = LocalOpening { since: self.now, reason, evidence };
        self.local = open(&opening);
    }
}

fn window(requests: u32, faults: u32) -> Statement {
    let faults_milli = faults * 1_000;
    Statement::Window(key(), Window { requests, faults_milli, ..Window::default() })
}

fn slow(age: Duration) -> Statement {
    Statement::Window(key(), Window { requests: 1, slow: vec![age], ..Window::default() })
}

fn vote(state: VoteState, faults: u32) -> Statement {
    let reason = "faults".to_owned();
    let evidence =
        Evidence { requests: faults, faults_milli: faults * 1_000, ..Evidence::default() };
    let (basis, age) = (Basis::FirstHand, seconds(1));
    Statement::Vote(key(), Vote { incident: 1, basis, state, reason, evidence, age })
}

fn step(is_held: bool) -> Statement {
    let stage = Stage::Waiting { remaining: seconds(60) };
    let (steward, age) = (NodeId::new("gw-1"), seconds(1));
    let step = Step { incident: 1, failures: 0, level: 0, stage, steward, age, is_held };
    Statement::Step(key(), step)
}

#[test]
fn a_seconded_vote_stands_while_anybody_has_the_endpoint_out() {
    let mut ear = Ear::new(council());
    ear.said[0] = vec![window(3, 3)];
    ear.said[1] = vec![window(3, 3)];
    ear.run(seconds(1));
    let stands = Some((Basis::Seconded, VoteState::Stands, Weight::Counts));
    assert_eq!(ear.mine(), stands);
    // Who has opened gathers nothing more.
    ear.said[0] = vec![step(true)];
    ear.said[1] = Vec::new();
    ear.run(seconds(20));
    assert_eq!(ear.view().windows, []);
    let mine = ear.mine().map(|(basis, state, _)| (basis, state));
    assert_eq!(mine, Some((Basis::Seconded, VoteState::Stands)));
    ear.said[0] = vec![step(false)];
    ear.run(seconds(1));
    assert_eq!(ear.mine().map(|(_, state, _)| state), Some(VoteState::Withdrawn));
}

#[test]
fn who_was_not_asked_what_it_sees_does_not_second() {
    let mut ear = Ear::new(council());
    let (requests, successes) = (100, 100);
    let last_success = Some(Duration::ZERO);
    let window_of_mine = Window { requests, successes, last_success, ..Window::default() };
    ear.local = Local { window: window_of_mine, ..Local::default() };
    ear.run(seconds(5));
    ear.said[0] = vec![vote(VoteState::Stands, 4)];
    ear.said[1] = vec![vote(VoteState::Stands, 4)];
    ear.run(Duration::from_millis(100));
    assert_eq!(ear.mine(), None);
    assert!(!ear.decisions.iter().any(|one| matches!(one, Decision::Opened { .. })));
}

#[test]
fn a_window_that_is_no_longer_stated_stands_until_it_lapses() {
    let mut ear = Ear::new(council());
    ear.said[0] = vec![window(3, 3)];
    ear.run(seconds(1));
    ear.said[0] = Vec::new();
    ear.run(seconds(3));
    assert_eq!(ear.view().windows.len(), 1);
    ear.run(seconds(1));
    assert_eq!(ear.view().windows, []);
}

#[test]
fn a_slow_piece_told_again_is_as_old_as_when_it_was_first_told() {
    let mut ear = Ear::new(council());
    ear.said[0] = vec![slow(seconds(1))];
    ear.run(Duration::from_millis(100));
    // For two seconds what is told is on its way, and looks younger than it is.
    for _ in 0..30 {
        ear.said[0] = vec![slow(seconds(1))];
        ear.run(Duration::from_millis(100));
    }
    assert_eq!(ear.view().windows[0].1.slow, [seconds(4)]);
    ear.said[0] = vec![slow(Duration::ZERO)];
    ear.run(seconds(2));
    assert!(ear.view().windows[0].1.slow[0] < seconds(2), "that is another");
}

#[test]
fn who_has_it_out_alone_after_a_vote_was_taken_back_lets_go() {
    let mut ear = Ear::new(council());
    ear.trip();
    ear.said[0] = vec![vote(VoteState::Stands, 5)];
    ear.said[1] = vec![vote(VoteState::Stands, 5)];
    ear.run(seconds(1));
    assert!(ear.view().is_open);
    for said in &mut ear.said {
        said.push(step(false));
    }
    ear.run(seconds(10));
    assert!(ear.view().is_open, "the votes stand, and the others will count them too");
    ear.said[1] = vec![vote(VoteState::Withdrawn, 5), step(false)];
    ear.run(Duration::from_millis(900));
    assert!(ear.view().is_open);
    ear.run(Duration::from_millis(300));
    assert!(!ear.view().is_open);
    let closed = |decision: &&Decision| matches!(decision, Decision::Closed { .. });
    assert_eq!(ear.decisions.iter().filter(closed).count(), 1);
    let step = ear.view().step.unwrap();
    assert_ne!(step.stage, Stage::Closed, "what the others do stands");
}

#[test]
fn a_seconded_vote_weighs_no_more_with_who_has_it_out() {
    let mut ear = Ear::new(council());
    let Statement::Vote(_, plain) = vote(VoteState::Stands, 0) else { unreachable!() };
    let seconded = Statement::Vote(key(), Vote { basis: Basis::Seconded, ..plain });
    ear.said[0] = vec![vote(VoteState::Stands, 5)];
    ear.said[1] = vec![seconded.clone(), window(3, 3)];
    ear.run(seconds(1));
    assert!(ear.view().is_open, "one first-hand, two seconded, two witnesses");
    // The second witness says nothing more, and the others do not count what it had seen.
    ear.said[1] = vec![seconded];
    for said in &mut ear.said {
        said.push(step(false));
    }
    ear.run(seconds(3));
    assert!(ear.view().is_open, "its window stands for as long");
    ear.run(seconds(3));
    assert!(!ear.view().is_open);
    assert_eq!(ear.view().tally.counted, 1, "as with everybody else");
}

#[test]
fn who_has_it_out_tells_what_it_saw_until_all_have_it_out() {
    let mut ear = Ear::new(council());
    ear.said[0] = vec![vote(VoteState::Stands, 5)];
    ear.said[1] = vec![vote(VoteState::Stands, 5)];
    ear.trip();
    ear.local.window = Window { requests: 1, faults_milli: 1_000, ..Window::default() };
    ear.run(seconds(5));
    assert!(ear.view().is_open);
    let tells = |ear: &Ear| ear.stated.iter().any(|one| matches!(one, Statement::Window(..)));
    assert!(tells(&ear), "{:?}", ear.stated);
    for said in &mut ear.said {
        said.push(step(true));
    }
    ear.run(seconds(1));
    assert!(!tells(&ear), "{:?}", ear.stated);
}

/// An ear in a fleet in which only those with traffic are asked.
fn observer() -> Ear {
    let mut rule = rule();
    rule.of = Denominator::Observers;
    let mut council = Council::new(NodeId::new("gw-0"), rule, START);
    let (pool, recovery) = (PoolKey::new("llama"), recovery());
    council.enrol(key(), Enrolment { pool, recovery, conviction: conviction() });
    Ear::new(council)
}

/// The canary slot in the hand of `holder`, with an hour to go.
fn canary(holder: &str, turn: u32) -> Statement {
    let (holder, remaining) = (NodeId::new(holder), seconds(3_600));
    let stage = Stage::Canary { holder, turn, successes: 0, remaining };
    let (steward, age) = (NodeId::new("gw-1"), seconds(1));
    let (failures, level, is_held) = (0, 0, true);
    Statement::Step(key(), Step { incident: 1, failures, level, stage, steward, age, is_held })
}

/// The slot as the council knows it: who holds it, in which turn.
fn slot(ear: &Ear) -> (String, u32) {
    let (holder, turn, _) = ear.view().canary.expect("it is lent");
    (holder.as_str().to_owned(), turn)
}

#[test]
fn who_drains_hands_the_slot_on_once_to_who_leads() {
    let mut ear = Ear::new(council());
    ear.said = vec![vec![canary("gw-0", 0)]; 4];
    ear.run(seconds(1));
    assert_eq!(slot(&ear), ("gw-0".to_owned(), 0));
    ear.council.stand(Standing::Draining);
    ear.run(seconds(5));
    let (holder, turn) = slot(&ear);
    assert_ne!(holder, "gw-0");
    assert_eq!(turn, 1);
}

/// A window of who has small requests to send.
fn small() -> Statement {
    Statement::Window(key(), Window { requests: 1, has_small: true, ..Window::default() })
}

#[test]
fn the_slot_is_not_handed_on_while_its_canary_is_under_way() {
    let mut ear = Ear::new(council());
    ear.said = vec![vec![canary("gw-0", 0), small()]; 4];
    ear.local.is_trying = true;
    ear.run(seconds(5));
    assert_eq!(slot(&ear), ("gw-0".to_owned(), 0));
    ear.local.is_trying = false;
    ear.run(seconds(1));
    let (holder, turn) = slot(&ear);
    assert_ne!(holder, "gw-0", "it has no small requests of its own");
    assert_eq!(turn, 1);
}

#[test]
fn the_slot_is_handed_to_nobody_who_does_not_have_the_endpoint_out() {
    let mut ear = Ear::new(council());
    ear.said = vec![vec![canary("gw-0", 0)]; 4];
    ear.run(seconds(1));
    let Statement::Step(_, plain) = canary("gw-0", 0) else { unreachable!() };
    let not_held = Statement::Step(key(), Step { is_held: false, ..plain });
    for said in &mut ear.said[..2] {
        *said = vec![not_held.clone(), small()];
    }
    ear.run(seconds(5));
    assert_eq!(slot(&ear), ("gw-0".to_owned(), 0));
    ear.said[3].push(small());
    ear.run(seconds(1));
    assert_eq!(slot(&ear), ("gw-4".to_owned(), 1));
}

#[test]
fn a_shadow_that_is_lent_the_slot_hands_it_on() {
    let mut ear = Ear::new(council());
    ear.local.is_shadow = true;
    ear.said = vec![vec![canary("gw-0", 0)]; 4];
    ear.run(seconds(1));
    let lend = ear.decisions.iter().find_map(|decision| match decision {
        Decision::Lend { fence, .. } => Some(*fence),
        _ => None,
    });
    let fence = lend.expect("it is lent");
    ear.council.canaried(ear.now, &key(), fence, CanaryWord::Idle);
    let (holder, turn) = slot(&ear);
    assert_ne!(holder, "gw-0");
    assert_eq!(turn, 1);
}

#[test]
fn an_order_holds_the_slot_and_the_longest_opening_up() {
    let mut ear = Ear::new(council());
    ear.said = vec![vec![canary("gw-0", 0)]; 4];
    ear.run(seconds(1));
    let order = (Forced::Closed, Some(seconds(2_000)));
    assert!(ear.council.order(ear.now, &key(), order, "by hand"));
    ear.council.stand(Standing::Draining);
    ear.run(seconds(1_990));
    assert!(ear.view().is_open, "half an hour is over, and an order holds");
    assert_eq!(slot(&ear), ("gw-0".to_owned(), 0));
    ear.run(seconds(20));
    assert!(ear.view().is_open, "it goes on where it was");
    assert_ne!(slot(&ear).0, "gw-0");
    ear.run(seconds(1_800));
    assert!(!ear.view().is_open);
}

#[test]
fn of_observers_who_sees_little_joins_what_most_members_have_out() {
    let mut ear = observer();
    ear.said = vec![vec![step(true)]; 2];
    ear.said.extend(vec![vec![window(9, 0)]; 2]);
    ear.run(seconds(5));
    assert!(!ear.view().is_open, "two of five");
    ear.said[2] = vec![step(true)];
    ear.run(seconds(1));
    assert!(ear.view().is_open);
    assert_eq!(ear.view().tally.counted, 0);
}

#[test]
fn an_observer_that_opens_as_it_sees_nothing_more_says_so() {
    let mut ear = observer();
    ear.said = vec![vec![window(0, 0)]; 4];
    ear.said[0] = vec![vote(VoteState::Stands, 0)];
    ear.said[2] = vec![window(2, 0)];
    let see = |ear: &mut Ear, requests: u32| {
        let window = Window { requests, ..Window::default() };
        ear.local = Local { window, ..Local::default() };
    };
    ear.run(Duration::from_millis(100));
    see(&mut ear, 1);
    ear.said[1] = vec![vote(VoteState::Stands, 0)];
    ear.run(seconds(5));
    assert!(!ear.view().is_open, "two of four with traffic");
    see(&mut ear, 0);
    ear.run(seconds(1));
    assert!(ear.view().is_open, "two of three");
    let says_so = |ear: &Ear| {
        ear.stated.iter().any(|statement| match statement {
            Statement::Window(_, window) => window.requests == 0,
            Statement::Vote(..)
            | Statement::Step(..)
            | Statement::Override(..)
            | Statement::Member(..) => false,
        })
    };
    ear.run(seconds(1));
    assert!(says_so(&ear), "{:?}", ear.stated);
    for said in &mut ear.said {
        said.push(step(true));
    }
    ear.run(seconds(1));
    assert!(!says_so(&ear), "all have it out");
}

#[test]
fn of_few_observers_a_seconded_vote_needs_two_witnesses_all_the_same() {
    let mut ear = observer();
    ear.said = vec![vec![window(0, 0)]; 4];
    ear.said[0] = vec![vote(VoteState::Stands, 5)];
    let window = Window { requests: 1, ..Window::default() };
    ear.local = Local { window, ..Local::default() };
    ear.run(seconds(5));
    let view = ear.view();
    assert_eq!((view.electorate, view.witnesses), (2, 1));
    assert_eq!(ear.mine(), Some((Basis::Seconded, VoteState::Stands, Weight::NoWitness)));
    assert!(!view.is_open);
    assert_eq!((view.tally.counted, view.tally.seconded), (1, 1));
}

#[test]
fn who_was_alone_observes_anew_when_it_meets_the_first_other() {
    let mut ear = Ear::new(council());
    let others = std::mem::take(&mut ear.said);
    let mut lonely = Ear { council: council(), now: START, ..ear };
    lonely.trip();
    lonely.run(seconds(20));
    assert!(lonely.council.observing_until() < lonely.now);
    lonely.said = vec![vec![vote(VoteState::Stands, 5)]];
    lonely.run(Duration::from_millis(200));
    assert!(lonely.council.observing_until() > lonely.now + seconds(2));
    lonely.run(seconds(2));
    assert!(!lonely.view().is_open, "two of two, as far as it knows");
    lonely.said.extend(others);
    lonely.run(seconds(10));
    assert!(!lonely.view().is_open, "two of six");
    lonely.said[1] = vec![vote(VoteState::Stands, 5)];
    lonely.said[2] = vec![vote(VoteState::Stands, 5)];
    lonely.run(seconds(5));
    assert!(lonely.view().is_open);
}
