//! Claims about what operators ask of members: from any node, once, and of that life alone.

use std::time::Duration;

use quorum::{Heard, Member, MemberOrder, MemberVerb, NodeId, NotOrdered, Statement};

use super::ledger::Event;
use super::world::{ROUGH, World};

const DRAIN: MemberVerb = MemberVerb::Drain;
const LEAVE: MemberVerb = MemberVerb::Leave;
const FORGET: MemberVerb = MemberVerb::Forget;

impl World {
    /// Asks node `by` for something of node `of`.
    fn ask(&mut self, by: usize, of: usize, verb: MemberVerb) -> Result<MemberVerb, NotOrdered> {
        let member = self.nodes[of].id.clone();
        let node = &mut self.nodes[by];
        let now = node.clock(self.now);
        node.council.order_member(now, &member, verb, "by hand")
    }

    /// Who followed what about whom, in the order of time.
    fn followed(&self) -> Vec<(usize, MemberVerb, usize)> {
        let asked = self.ledger.events.iter().filter_map(|(_, node, event)| match event {
            Event::Asked { verb, member } => Some((*node, *verb, *member)),
            Event::Opened { .. }
            | Event::Closed { .. }
            | Event::Forced(_)
            | Event::Probe { .. }
            | Event::Lent { .. }
            | Event::Recalled => None,
        });
        asked.collect()
    }

    fn sizes(&self) -> Vec<usize> {
        self.running().iter().map(|index| self.nodes[*index].council.electorate_size()).collect()
    }
}

#[test]
fn a_member_is_drained_by_way_of_any_node_and_once() {
    for seed in 0..6 {
        let mut world = World::new(seed, 5);
        world.net = ROUGH;
        world.run(Duration::from_secs(8));
        assert_eq!(world.ask(1, 3, DRAIN), Ok(DRAIN));
        world.until(Duration::from_secs(10), "it goes", |world| !world.followed().is_empty());
        assert_eq!(world.ask(1, 3, DRAIN), Ok(DRAIN), "asked twice of one node");
        assert_eq!(world.ask(0, 3, DRAIN), Ok(DRAIN), "and of another");
        world.run(Duration::from_secs(150));
        assert_eq!(world.followed(), [(3, DRAIN, 3)], "seed {seed}");
        assert_eq!(world.sizes(), [5; 5], "who drains still counts");
    }
}

#[test]
fn a_node_that_is_asked_to_go_itself_goes_at_once() {
    let mut world = World::new(1, 3);
    assert_eq!(world.ask(2, 2, DRAIN), Ok(DRAIN));
    world.run(Duration::from_secs(1));
    assert_eq!(world.followed(), [(2, DRAIN, 2)]);
    assert_eq!(world.ask(2, 2, FORGET), Err(NotOrdered::Live));
}

#[test]
fn a_milder_order_changes_nothing_after_a_stronger_one() {
    let mut world = World::new(2, 3);
    world.run(Duration::from_secs(2));
    assert_eq!(world.ask(0, 2, DRAIN), Ok(DRAIN));
    world.run(Duration::from_secs(2));
    assert_eq!(world.ask(0, 2, LEAVE), Ok(LEAVE));
    assert_eq!(world.ask(0, 2, DRAIN), Ok(LEAVE), "it is stated already that it is to leave");
    world.run(Duration::from_secs(2));
    assert_eq!(world.ask(1, 2, DRAIN), Ok(DRAIN));
    world.run(Duration::from_secs(5));
    assert_eq!(world.followed(), [(2, DRAIN, 2), (2, LEAVE, 2)]);
    assert_eq!(world.ask(2, 2, DRAIN), Ok(LEAVE), "the node itself knows better");
}

#[test]
fn a_restarted_member_is_not_drained_by_what_its_last_life_was_told() {
    for seed in 0..4 {
        let mut world = World::new(seed, 5);
        world.run(Duration::from_secs(8));
        world.ask(1, 3, DRAIN).unwrap();
        world.until(Duration::from_secs(5), "it goes", |world| !world.followed().is_empty());
        world.kill(3);
        world.restart(3);
        world.run(Duration::from_secs(30));
        assert_eq!(world.followed().len(), 1, "seed {seed}: {:?}", world.followed());
        assert_eq!(world.ask(1, 3, DRAIN), Ok(DRAIN), "a new order is for the new life");
        world.until(Duration::from_secs(5), "it goes", |world| world.followed().len() == 2);
    }
}

#[test]
fn nothing_is_asked_of_the_unknown_nor_of_the_lost_but_to_forget_them() {
    let mut world = World::new(4, 5);
    world.run(Duration::from_secs(2));
    let now = world.nodes[0].clock(world.now);
    let stranger = NodeId::new("gw-9");
    for verb in [DRAIN, LEAVE, FORGET] {
        let asked = world.nodes[0].council.order_member(now, &stranger, verb, "by hand");
        assert_eq!(asked, Err(NotOrdered::Unknown));
    }
    assert_eq!(world.ask(0, 4, FORGET), Err(NotOrdered::Live));
    world.kill(4);
    world.run(Duration::from_secs(15));
    assert_eq!(world.ask(0, 4, DRAIN), Err(NotOrdered::Lost));
    assert_eq!(world.ask(0, 4, LEAVE), Err(NotOrdered::Lost));
    assert_eq!(world.sizes(), [5; 4]);
    assert_eq!(world.followed(), []);
}

#[test]
fn who_is_lost_is_forgotten_by_all_at_the_word_of_one() {
    for seed in 0..4 {
        let mut world = World::new(seed, 5);
        world.net = ROUGH;
        world.kill(3);
        world.kill(4);
        world.run(Duration::from_secs(20));
        assert_eq!(world.sizes(), [5; 3]);
        assert_eq!(world.ask(1, 3, FORGET), Ok(FORGET));
        assert_eq!(world.ask(1, 3, FORGET), Err(NotOrdered::Unknown), "it is forgotten here");
        world.until(Duration::from_secs(10), "all forget", |world| world.sizes() == [4; 3]);
        world.restart(3);
        world.until(Duration::from_secs(10), "it is back", |world| world.sizes() == [5; 4]);
        world.run(Duration::from_secs(30));
        assert_eq!(world.sizes(), [5; 4], "what was said of its last life is no matter");
    }
}

#[test]
fn a_majority_that_is_lost_is_forgotten_by_hand() {
    let mut world = World::new(6, 5);
    for index in 2..5 {
        world.kill(index);
    }
    world.run(Duration::from_secs(20));
    world.assert_everyone("knows it has no quorum", |node| !node.council.has_quorum());
    for index in 2..5 {
        world.ask(0, index, FORGET).unwrap();
    }
    world.until(Duration::from_secs(5), "both forget", |world| world.sizes() == [2; 2]);
    world.assert_everyone("may decide", |node| node.council.has_quorum());
}

#[test]
fn what_the_dead_asked_for_is_not_done_when_a_partition_heals() {
    for seed in 0..4 {
        let mut world = World::new(seed, 5);
        world.run(Duration::from_secs(8));
        world.partition(&[&[0, 1, 2, 3], &[4]]);
        world.run(Duration::from_secs(2));
        world.ask(0, 4, DRAIN).unwrap();
        world.run(Duration::from_secs(3));
        world.kill(0);
        world.run(Duration::from_secs(120));
        world.heal();
        world.run(Duration::from_secs(120));
        assert_eq!(world.followed(), [], "seed {seed}");
    }
}

#[test]
fn one_order_that_is_repeated_forever_is_one() {
    let mut world = World::new(7, 2);
    world.run(Duration::from_secs(8));
    let (me, now) = (world.nodes[0].id.clone(), world.nodes[0].clock(world.now));
    let order = |generation| MemberOrder { verb: DRAIN, generation, reason: String::new() };
    let liar = |seq: u64, generation: u64| Member {
        id: NodeId::new("gw-7"),
        generation: 1,
        address: String::new(),
        is_live: true,
        card: None,
        pulse: seq,
        heard: vec![Heard { seq, statement: Statement::Member(me.clone(), order(generation)) }],
    };
    let council = &mut world.nodes[0].council;
    council.live_as(5);
    let mut asked = 0;
    for beat in 0..2_000_u64 {
        let now = now + Duration::from_millis(100 * beat);
        council.hear(now, &[liar(beat + 1, 1 + beat / 200)]);
        asked += council.step(now).len();
        if beat < 700 {
            assert_eq!(asked, 0, "an order for an earlier life, after {beat} steps");
        }
    }
    assert_eq!(asked, 1);
}
