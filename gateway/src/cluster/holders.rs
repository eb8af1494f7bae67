//! Who holds a share of the limits: all members that serve clients, and those whose requests still count.
//!
//! What a member admitted counts for a minute, whatever becomes of the member. So its part is divided
//! among the others a minute after it was last live and not before, or what it admitted and what they
//! admit instead would be in the same minute. And while it is lost but counts as a member, as it does
//! for `member_grace`, it may well be serving clients on the other side of a split.
//!
//! Thus a fleet that is complete, or in which members only go, admits no more than the limit. More may
//! be admitted
//! - in the minute after a member joins, by the part that it holds: the others may have used up theirs
//!   before they heard of it, which takes about one interval of gossip;
//! - in the minute after a member restarts, by its part: it has forgotten what it admitted;
//! - while a member drains, by what it admits and still has in flight a minute after it said that it
//!   leaves;
//! - for as long as a split lasts beyond the grace: the majority gets back the parts of those that it
//!   has lost, while each of these keeps its own, together less than half of the limit. To take theirs
//!   would let the last node of a fleet that has died serve nobody.
//!
//! A node that has just started does not know how many they are. Until it has observed for long enough
//! it counts as many as are expected and as it knew in its last life, and while it has met nobody, as
//! many as it was told to ask: without `expected_members` and without a state file it may hold up to a
//! half until it meets the others, and the whole if it meets nobody for as long as it observes.
//!
//! Invariants: a node holds no more than its part among those that serve if it knows all of these and
//! perhaps others, or some of them only and counts as many; the map is bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quorum::electorate::MEMBERS_MAX;
use quorum::{Council, NodeId};

use crate::limits::Part;

/// What was admitted counts for so long.
const COUNTS_FOR: Duration = Duration::from_secs(60);
/// Most names that are remembered: a whole fleet may be replaced within a minute by one with new names.
const HOLDERS_MAX: usize = 2 * MEMBERS_MAX;

/// Who was live when.
#[derive(Debug)]
pub(super) struct Holders {
    me: NodeId,
    /// How many others this node was told to ask, itself perhaps among them.
    seeds: usize,
    /// When a member was last live; only those within [`COUNTS_FOR`], at most [`HOLDERS_MAX`].
    live_at: BTreeMap<NodeId, Duration>,
}

impl Holders {
    /// Nobody yet but `me`.
    pub(super) fn new(me: NodeId, seeds: usize) -> Self {
        Self { me, seeds, live_at: BTreeMap::new() }
    }

    /// The part that this node holds at `now`, when the council has heard what there is.
    pub(super) fn part(&mut self, now: Duration, council: &Council) -> Part {
        for id in council.live() {
            if let Some(at) = self.live_at.get_mut(id) {
                *at = now;
            } else if self.live_at.len() < HOLDERS_MAX {
                self.live_at.insert(id.clone(), now);
            }
        }
        self.live_at.retain(|_, at| now.saturating_sub(*at) < COUNTS_FOR);
        let known: BTreeSet<&NodeId> = council.names().chain(self.live_at.keys()).collect();
        part_among(&self.me, &known, self.floor(now, council))
    }

    /// How many there are at least, for all this node knows.
    fn floor(&self, now: Duration, council: &Council) -> usize {
        let is_observing = now < council.observing_until();
        let expected = council.electorate_size();
        match (is_observing, council.live_count()) {
            // Whoever is to be asked is another, unless there are several.
            (true, ..=1) if self.seeds > 0 => expected.max(self.seeds).max(2),
            (true, _) => expected,
            (false, _) if !council.has_quorum() => expected,
            (false, _) => 1,
        }
    }
}

/// The part of `me` among all that are known, and as many unknown ones as it takes to be `floor`. Those
/// may all come first.
fn part_among(me: &NodeId, known: &BTreeSet<&NodeId>, floor: usize) -> Part {
    let unknown = floor.saturating_sub(known.len());
    let before = known.iter().filter(|id| **id < me).count();
    Part::new(before + unknown, known.len() + unknown)
}

#[cfg(test)]
mod tests {
    use quorum::{Card, Denominator, ElectorateRule, Member, Standing};

    use super::*;
    use crate::cluster::council_rule;

    const GRACE: u64 = 100;
    const OBSERVE: u64 = 3;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A node of a fleet that expects so many, from the moment 0 on.
    struct Node {
        council: Council,
        holders: Holders,
        seconds: u64,
        heard: Vec<Member>,
    }

    impl Node {
        fn new(me: &str, expected_members: usize, seeds: usize) -> Self {
            let mut rule = council_rule(None);
            rule.electorate = ElectorateRule { expected_members, member_grace: at(GRACE) };
            (rule.observe, rule.of) = (at(OBSERVE), Denominator::Members);
            let me = NodeId::new(me);
            let council = Council::new(me.clone(), rule, at(0));
            Self { council, holders: Holders::new(me, seeds), seconds: 0, heard: Vec::new() }
        }

        /// Its rank, and among how many, when it has heard these; until then it has gone on hearing
        /// what it heard before.
        fn hears(&mut self, seconds: u64, members: &[Member]) -> (u32, u32) {
            while self.seconds < seconds {
                self.round();
                self.seconds += 1;
            }
            self.heard = members.to_vec();
            let part = self.round();
            (part.rank(), part.among())
        }

        fn round(&mut self) -> Part {
            let now = at(self.seconds);
            self.council.hear(now, &self.heard);
            let _ = self.council.step(now);
            self.holders.part(now, &self.council)
        }
    }

    fn member(id: &str, is_live: bool, standing: Standing) -> Member {
        let card = Card {
            version: String::new(),
            config_hash: String::new(),
            standing,
            is_suspect: false,
        };
        Member {
            id: NodeId::new(id),
            generation: 1,
            address: String::new(),
            is_live,
            card: Some(card),
            pulse: 0,
            heard: Vec::new(),
        }
    }

    fn live(id: &str) -> Member {
        member(id, true, Standing::Serving)
    }

    #[test]
    fn a_node_alone_holds_the_whole() {
        let me = NodeId::new("single");
        let council = Council::new(me.clone(), council_rule(None), at(9));
        assert_eq!(Holders::new(me, 0).part(at(9), &council), Part::WHOLE);
    }

    #[test]
    fn all_that_serve_hold_a_part_each_by_their_names() {
        for (rank, me) in ["a", "b", "c"].into_iter().enumerate() {
            let mut node = Node::new(me, 0, 1);
            let names = ["a", "b", "c"].into_iter().filter(|name| *name != me);
            let mut members: Vec<_> = names.map(live).collect();
            assert_eq!(node.hears(1, &members), (rank as u32, 3));
            assert_eq!(node.hears(20, &members), (rank as u32, 3));
            // Who drains still serves.
            for member in &mut members {
                member.card.as_mut().unwrap().standing = Standing::Draining;
            }
            assert_eq!(node.hears(21, &members), (rank as u32, 3));
        }
    }

    #[test]
    fn a_lost_member_keeps_its_part_for_the_grace() {
        let mut node = Node::new("b", 3, 1);
        assert_eq!(node.hears(10, &[live("a"), live("c")]), (1, 3));
        let lost = [member("a", false, Standing::Serving), live("c")];
        for seconds in [11, 50, 110] {
            assert_eq!(node.hears(seconds, &lost), (1, 3));
        }
        assert_eq!(node.hears(11 + GRACE, &lost), (0, 2));
        // And it is there at once for one that is back.
        assert_eq!(node.hears(120, &[live("a"), live("c")]), (1, 3));
    }

    #[test]
    fn what_a_member_has_admitted_counts_for_a_minute_after_it_has_left() {
        let mut node = Node::new("b", 0, 1);
        assert_eq!(node.hears(10, &[live("a"), live("c")]), (1, 3));
        let left = [member("a", true, Standing::Left), live("c")];
        assert_eq!(node.hears(11, &left), (1, 3));
        assert_eq!(node.hears(69, &[live("c")]), (1, 3));
        assert_eq!(node.hears(70, &[live("c")]), (0, 2));
    }

    #[test]
    fn without_a_majority_no_lost_part_comes_back() {
        let mut node = Node::new("a", 0, 1);
        assert_eq!(node.hears(10, &[live("b"), live("c")]), (0, 3));
        assert_eq!(node.hears(11, &[]), (0, 3));
        assert_eq!(node.hears(11 + 100 * GRACE, &[]), (0, 3));
        // Nor for one that has restarted alone where three are expected.
        let mut node = Node::new("a", 3, 1);
        assert_eq!(node.hears(100 * GRACE, &[]), (2, 3));
    }

    #[test]
    fn who_has_just_started_counts_those_that_it_is_to_meet() {
        // As many as expected; its rank among them it does not know.
        let mut expecting = Node::new("a", 5, 1);
        assert_eq!(expecting.hears(0, &[]), (4, 5));
        assert_eq!(expecting.hears(1, &[live("b"), live("c")]), (2, 5));
        assert_eq!(expecting.hears(10, &[live("b"), live("c")]), (0, 3));
        // As many as it is to ask, and another than itself at least.
        for (seeds, among) in [(1, 2), (2, 2), (3, 3)] {
            let mut asking = Node::new("a", 0, seeds);
            assert_eq!(asking.hears(0, &[]), (among - 1, among));
            assert_eq!(asking.hears(OBSERVE, &[]), (0, 1));
        }
        // Those that it knew in its last life.
        let mut recalling = Node::new("b", 0, 0);
        recalling.council.recall(at(0), ["a", "b", "c"].map(NodeId::new));
        assert_eq!(recalling.hears(0, &[]), (1, 3));
    }

    #[test]
    fn by_chance_nodes_that_count_all_who_serve_never_hold_more_than_the_limit_together() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut chance = fastrand::Rng::with_seed(seed);
        let names: Vec<NodeId> = (0..20).map(|index| NodeId::new(&format!("n-{index}"))).collect();
        for _ in 0..20_000 {
            let (limit, busy) = (chance.u64(1..100), chance.usize(1..8));
            let serving = chance.choose_multiple(&names, busy);
            let mut sum = 0;
            for me in &serving {
                let number = chance.usize(..=busy);
                let some = chance.choose_multiple(serving.iter().copied(), number);
                let others = chance.choose_multiple(&names, number);
                let part = if chance.bool() {
                    // It knows others besides that no longer serve, and counts unknown ones.
                    let known = serving.iter().copied().chain(others).collect();
                    part_among(me, &known, chance.usize(..12))
                } else {
                    // It has just started.
                    let known = some.into_iter().chain([*me]).collect();
                    part_among(me, &known, busy + chance.usize(..3))
                };
                sum += part.of(limit);
            }
            assert!(sum <= limit.max(busy as u64), "{sum} of {limit}");
        }
    }
}
