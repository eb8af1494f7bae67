//! Claims about orders to forget: for the loss that was meant, and for none that comes later.

use std::time::Duration;

use quorum::{
    Council, Decision, EndpointKey, Enrolment, Heard, Member, MemberOrder, MemberVerb, NodeId,
    PoolKey, Statement,
};

use super::sets::{START, council, key, member};
use super::world::{World, conviction, recovery};

const ANY_LIFE: u64 = 0;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn name(index: u64) -> NodeId {
    NodeId::new(&format!("gw-{index}"))
}

fn asks(verb: MemberVerb, of: u64, generation: u64) -> Statement {
    Statement::Member(name(of), MemberOrder { verb, generation, reason: String::new() })
}

fn forget(of: u64) -> Statement {
    asks(MemberVerb::Forget, of, 1)
}

/// gw-0 of four, which hears what it is told of the others.
struct Ear {
    council: Council,
    now: Duration,
    pulse: u64,
    seq: u64,
    /// What gw-1 states.
    said: Vec<Heard>,
    is_live: [bool; 4],
    decisions: Vec<Decision>,
}

impl Ear {
    fn new() -> Self {
        let (pulse, seq, is_live) = (0, 0, [true; 4]);
        let (said, decisions) = (Vec::new(), Vec::new());
        let mut ear = Self { council: council(), now: START, pulse, seq, said, is_live, decisions };
        ear.council.live_as(1);
        ear.run(seconds(10));
        ear
    }

    fn say(&mut self, statements: impl IntoIterator<Item = Statement>) {
        self.said.clear();
        for statement in statements {
            self.seq += 1;
            self.said.push(Heard { seq: self.seq, statement });
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_millis(100);
            self.pulse += 1;
            let told = |index: u64| -> Member {
                let heard = if index == 1 { self.said.clone() } else { Vec::new() };
                let is_live = self.is_live[index as usize];
                let pulse = if is_live { self.pulse } else { 0 };
                Member { pulse, is_live, ..member(index, 1, heard) }
            };
            self.council.hear(self.now, &[told(1), told(2), told(3)]);
            self.decisions.extend(self.council.step(self.now));
        }
    }

    fn lose(&mut self, index: usize, is_lost: bool) {
        self.is_live[index] = !is_lost;
        self.run(Duration::from_millis(100));
    }

    fn size(&self) -> usize {
        self.council.electorate_size()
    }
}

#[test]
fn an_order_is_not_in_store_for_a_later_loss() {
    let mut ear = Ear::new();
    ear.say([forget(2)]);
    ear.run(seconds(12));
    ear.lose(2, true);
    ear.run(seconds(2));
    ear.lose(3, true);
    ear.run(seconds(40));
    assert_eq!(ear.size(), 4, "two of four would be a majority of three");
}

#[test]
fn an_order_that_is_given_again_and_again_is_not_in_store_either() {
    let mut ear = Ear::new();
    for _ in 0..20 {
        ear.say([forget(2), forget(3)]);
        ear.run(seconds(5));
    }
    ear.lose(2, true);
    ear.run(seconds(2));
    ear.lose(3, true);
    ear.run(seconds(50));
    assert_eq!(ear.size(), 4, "a partition is found out member by member");
}

#[test]
fn an_order_that_was_taken_back_is_not_followed() {
    let mut ear = Ear::new();
    ear.say([forget(2)]);
    ear.run(seconds(2));
    ear.say([]);
    ear.run(seconds(1));
    ear.lose(2, true);
    ear.run(seconds(40));
    assert_eq!(ear.size(), 4);
}

#[test]
fn who_loses_the_member_a_little_later_follows() {
    let mut ear = Ear::new();
    ear.say([forget(2)]);
    ear.run(seconds(5));
    ear.lose(2, true);
    ear.run(seconds(4));
    assert_eq!(ear.size(), 4, "it may be the first of a partition");
    ear.run(seconds(2));
    assert_eq!(ear.size(), 3);
}

#[test]
fn without_a_majority_only_who_was_lost_before_is_forgotten() {
    let mut ear = Ear::new();
    ear.say([forget(2)]);
    ear.run(seconds(5));
    ear.is_live = [true, true, false, false];
    ear.run(seconds(40));
    assert_eq!(ear.size(), 4);
    ear.say([forget(3)]);
    ear.run(Duration::from_millis(100));
    assert_eq!(ear.size(), 3);
}

#[test]
fn who_was_seen_alive_since_is_not_forgotten() {
    let mut ear = Ear::new();
    ear.lose(2, true);
    assert!(ear.council.mute(&name(1), true));
    ear.say([forget(2)]);
    ear.run(seconds(1));
    ear.lose(2, false);
    ear.run(seconds(1));
    ear.lose(2, true);
    assert!(ear.council.mute(&name(1), false));
    ear.run(seconds(40));
    assert_eq!(ear.size(), 4);
}

#[test]
fn an_order_by_who_never_met_the_member_means_whatever_life_is_lost() {
    let mut ear = Ear::new();
    ear.lose(2, true);
    ear.say([asks(MemberVerb::Forget, 2, ANY_LIFE)]);
    ear.run(seconds(1));
    assert_eq!(ear.size(), 3);

    let mut world = World::new(3, 5);
    world.kill(4);
    world.kill(0);
    world.run(seconds(8));
    world.restart_with_roll(0);
    // It is asked before it hears of anybody: of the other it knows the name.
    let (now, member) = (world.nodes[0].clock(world.now), world.nodes[4].id.clone());
    let asked = world.nodes[0].council.order_member(now, &member, MemberVerb::Forget, "");
    assert_eq!(asked, Ok(MemberVerb::Forget));
    world.until(seconds(15), "all forget", |world| {
        world.running().iter().all(|index| world.nodes[*index].council.electorate_size() == 4)
    });
}

#[test]
fn one_member_cannot_take_the_room_for_orders() {
    let mut ear = Ear::new();
    ear.say((0..2_000).map(|index| forget(1_000 + index)));
    ear.run(seconds(1));
    let mut said: Vec<Statement> = (0..2_000).map(|index| forget(1_000 + index)).collect();
    said.push(asks(MemberVerb::Drain, 0, 1));
    ear.lose(2, true);
    said.push(forget(2));
    ear.say(said);
    ear.run(seconds(1));
    let is_asked = |decision: &Decision| matches!(decision, Decision::Ordered { .. });
    assert!(ear.decisions.iter().any(is_asked));
    assert_eq!(ear.size(), 3, "names without a seat take no room");
}

#[test]
fn an_order_that_stands_for_long_is_followed_once() {
    let mut ear = Ear::new();
    ear.lose(2, true);
    ear.say([forget(2)]);
    ear.run(seconds(1));
    assert_eq!(ear.size(), 3);
    ear.lose(2, false);
    assert_eq!(ear.size(), 4);
    ear.run(seconds(150));
    ear.lose(2, true);
    // A reload lets the same set be taken in anew.
    let (pool, recovery) = (PoolKey::new("llama"), recovery());
    let enrolment = Enrolment { pool, recovery, conviction: conviction() };
    ear.council.enrol(EndpointKey::new("llama/new"), enrolment);
    ear.run(seconds(20));
    assert_eq!(ear.size(), 4);
    assert!(ear.council.retire(&key()));
}

#[test]
fn what_is_asked_again_after_it_was_done_is_done_again() {
    for seed in 0..4 {
        let mut world = World::new(seed, 5);
        let member = world.nodes[3].id.clone();
        for _ in 0..2 {
            world.pause(3);
            world.run(seconds(12));
            let now = world.nodes[1].clock(world.now);
            let council = &mut world.nodes[1].council;
            let asked = council.order_member(now, &member, MemberVerb::Forget, "");
            assert_eq!(asked, Ok(MemberVerb::Forget));
            world.until(seconds(8), "all forget", |world| everyone_counts(world, 4));
            world.resume(3);
            world.until(seconds(8), "it is back", |world| everyone_counts(world, 5));
        }
        world.run(seconds(60));
        assert!(everyone_counts(&world, 5));
    }
}

fn everyone_counts(world: &World, size: usize) -> bool {
    let mut running = world.running().into_iter().filter(|index| *index != 3);
    running.all(|index| world.nodes[index].council.electorate_size() == size)
}
