//! Claims about the cap where news of it crosses: who waits for the warden, and for room.

use std::time::Duration;

use quorum::{
    Basis, Council, EndpointKey, Enrolment, Evidence, Heard, Member, NodeId, PoolKey, Stage,
    Statement, Step, Vote, VoteState, steward,
};

use super::sets::{START, member};
use super::world::{conviction, recovery, rule};

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn name(index: usize) -> NodeId {
    NodeId::new(&format!("gw-{index}"))
}

/// The endpoint of this number; no more than one of the two may be out.
fn endpoint(index: usize) -> EndpointKey {
    EndpointKey::new(&format!("llama/gpu-{index}"))
}

/// The member of five that keeps the count of the pool.
fn warden() -> usize {
    let names: Vec<NodeId> = (0..5).map(name).collect();
    let first = steward::first(&EndpointKey::new("llama"), names.iter());
    names.iter().position(|id| Some(id) == first).unwrap()
}

fn vote(index: usize) -> Statement {
    let (incident, basis, state) = (1, Basis::FirstHand, VoteState::Stands);
    let (reason, evidence, age) = ("faults".to_owned(), Evidence::default(), seconds(1));
    Statement::Vote(endpoint(index), Vote { incident, basis, state, reason, evidence, age })
}

fn step(index: usize, stage: Stage) -> Statement {
    let (steward, age, is_held) = (name(1), seconds(1), stage != Stage::Closed);
    let step = Step { incident: 1, failures: 0, level: 0, stage, steward, age, is_held };
    Statement::Step(endpoint(index), step)
}

fn out(index: usize) -> Statement {
    step(index, Stage::Waiting { remaining: seconds(60) })
}

/// One council of five that listens to what the others say, by their number.
struct Listener {
    council: Council,
    me: usize,
    now: Duration,
    pulse: u64,
    said: Vec<Vec<Statement>>,
}

impl Listener {
    /// One that knows the others and is past its observing.
    fn new(me: usize) -> Self {
        let mut listener = Self::fresh(me);
        listener.run(seconds(5));
        listener
    }

    /// One that has just started.
    fn fresh(me: usize) -> Self {
        let rule = quorum::CouncilRule { max_open_share_milli: 500, ..rule() };
        let mut council = Council::new(name(me), rule, START);
        for index in 0..2 {
            let (pool, recovery) = (PoolKey::new("llama"), recovery());
            council.enrol(endpoint(index), Enrolment { pool, recovery, conviction: conviction() });
        }
        Self { council, me, now: START, pulse: 0, said: vec![Vec::new(); 5] }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_millis(100);
            self.pulse += 1;
            let told = |(index, said): (usize, &Vec<Statement>)| -> Member {
                let seq = self.pulse;
                let heard = said.iter().map(|one| Heard { seq, statement: one.clone() }).collect();
                Member { pulse: self.pulse, ..member(index as u64, 1, heard) }
            };
            let others = self.said.iter().enumerate().filter(|(index, _)| *index != self.me);
            let members: Vec<Member> = others.map(told).collect();
            self.council.hear(self.now, &members);
            self.council.step(self.now);
        }
    }

    fn is_out(&self, index: usize) -> bool {
        self.council.is_open(&endpoint(index))
    }
}

/// A node that has the first endpoint out, and hears that the others, who no longer do, have taken
/// out the second.
fn overtaken(me: usize) -> Listener {
    let mut listener = Listener::new(me);
    listener.said.fill(vec![vote(0), out(0)]);
    listener.run(seconds(1));
    assert!(listener.is_out(0));
    listener.said.fill(vec![out(0), vote(1), out(1)]);
    listener.run(seconds(3));
    listener
}

#[test]
fn an_opening_waits_for_the_closing_that_made_room_for_it() {
    for me in 0..5 {
        let mut listener = overtaken(me);
        assert!(!listener.is_out(1), "gw-{me} has one of a pool out, and more is not allowed");
        listener.said.fill(vec![step(0, Stage::Closed), vote(1), out(1)]);
        listener.run(Duration::from_millis(100));
        assert!(!listener.is_out(0) && listener.is_out(1), "gw-{me}");
    }
}

#[test]
fn what_a_majority_has_out_is_out_whatever_the_cap_says() {
    for me in 0..5 {
        let mut listener = overtaken(me);
        listener.run(seconds(2));
        assert!(listener.is_out(1), "gw-{me}: views would differ for as long as both are out");
    }
}

#[test]
fn who_was_crowded_before_waits_anew() {
    for me in 0..5 {
        let mut listener = overtaken(me);
        listener.said.fill(vec![out(0)]);
        listener.run(seconds(1));
        listener.said.fill(vec![out(0), vote(1), out(1)]);
        listener.run(seconds(3));
        assert!(!listener.is_out(1), "gw-{me}: what it waited for then is over");
    }
}

#[test]
fn who_does_not_keep_the_count_waits_for_the_word_of_who_does() {
    let me = (warden() + 1) % 5;
    let mut listener = Listener::new(me);
    listener.said.fill(vec![vote(1)]);
    let other = (warden() + 2) % 5;
    listener.said[other].push(out(1));
    listener.run(seconds(10));
    assert!(!listener.is_out(1), "one that has opened is not the one that counts");
    listener.said[warden()].push(out(1));
    listener.run(Duration::from_millis(100));
    assert!(listener.is_out(1));
}

#[test]
fn a_warden_that_has_just_started_counts_what_a_majority_has_out() {
    for (held, voted) in [(0, 1), (1, 0)] {
        let mut listener = Listener::fresh(warden());
        listener.said.fill(vec![out(held), vote(voted)]);
        for _ in 0..100 {
            listener.run(Duration::from_millis(100));
            assert!(!listener.is_out(voted), "{voted} beyond the cap at {:?}", listener.now);
        }
        assert!(listener.is_out(held));
        listener.said.fill(vec![step(held, Stage::Closed), vote(voted)]);
        listener.run(Duration::from_millis(100));
        assert!(!listener.is_out(held) && listener.is_out(voted));
    }
}

#[test]
fn one_member_that_claims_to_have_all_out_does_not_fill_the_cap() {
    let mut listener = Listener::fresh(warden());
    listener.said.fill(vec![vote(1)]);
    listener.said[(warden() + 1) % 5] = vec![out(0), vote(1)];
    listener.run(seconds(5));
    assert!(listener.is_out(1) && !listener.is_out(0));
}
