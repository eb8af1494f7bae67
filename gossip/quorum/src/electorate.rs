//! Who forms the denominator, and when a lost member stops counting.
//!
//! The list is kept by this rule and not by the failure detector, which forgets: a member counts
//! until it left in good order, was forgotten by hand, or has been lost for the grace *while a
//! majority of the electorate was live*. So a minority can never shrink itself into a majority.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::statement::{Member, NodeId, Standing};
use crate::tally::quorum_of;

/// More members than this are not taken in: 1,024 is four times what gossip is sized for.
pub const MEMBERS_MAX: usize = 1_024;

/// The knobs of the electorate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectorateRule {
    /// The electorate is never smaller than this; 0: no floor.
    pub expected_members: usize,
    /// How long a lost member goes on counting.
    pub member_grace: Duration,
}

/// The known members of the fleet.
#[derive(Clone, Debug)]
pub struct Electorate {
    rule: ElectorateRule,
    me: NodeId,
    seats: BTreeMap<NodeId, Seat>,
}

#[derive(Clone, Copy, Debug)]
struct Seat {
    generation: u64,
    standing: Standing,
    /// Since when the member is lost; `None` while it is live.
    lost_since: Option<Duration>,
}

/// How a member stands with the electorate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Alive.
    Live,
    /// Not heard of for this long; it still counts.
    Lost(Duration),
}

impl Electorate {
    /// An electorate of one: this node.
    pub fn new(me: NodeId, rule: ElectorateRule) -> Self {
        let seat = Seat { generation: 0, standing: Standing::Serving, lost_since: None };
        Self { rule, seats: BTreeMap::from([(me.clone(), seat)]), me }
    }

    /// Takes in the carrier's whole member list at `now` and drops who no longer counts.
    pub fn observe(&mut self, now: Duration, members: &[Member]) {
        for member in members {
            if member.id != self.me {
                self.seat(now, member);
            }
        }
        let listed = |id: &NodeId| members.iter().any(|m| m.id == *id && m.is_live);
        for (id, seat) in &mut self.seats {
            if *id != self.me && seat.lost_since.is_none() && !listed(id) {
                seat.lost_since = Some(now);
            }
        }
        self.expire(now);
    }

    fn seat(&mut self, now: Duration, member: &Member) {
        let standing = member.card.as_ref().map_or(Standing::Serving, |card| card.standing);
        let known = self.seats.get(&member.id).copied();
        if known.is_some_and(|seat| member.generation < seat.generation) {
            return;
        }
        let returns = known.is_none_or(|seat| member.generation > seat.generation);
        if standing == Standing::Left {
            self.seats.remove(&member.id);
            return;
        }
        // A name enters by being seen alive: a dead one that was forgotten stays forgotten.
        if known.is_none() && (!member.is_live || self.seats.len() >= MEMBERS_MAX) {
            return;
        }
        let lost_since = match (member.is_live, known) {
            (true, _) => None,
            (false, Some(seat)) if !returns => seat.lost_since.or(Some(now)),
            (false, _) => Some(now),
        };
        let seat = Seat { generation: member.generation, standing, lost_since };
        self.seats.insert(member.id.clone(), seat);
    }

    fn expire(&mut self, now: Duration) {
        if self.live_count() < quorum_of(self.size()) {
            return;
        }
        let grace = self.rule.member_grace;
        self.seats.retain(|_, seat| {
            seat.lost_since.is_none_or(|since| now.saturating_sub(since) < grace)
        });
    }

    /// Drops a lost member by hand. Returns whether there was such a member.
    pub fn forget(&mut self, id: &NodeId) -> bool {
        let is_lost = self.seats.get(id).is_some_and(|seat| seat.lost_since.is_some());
        if is_lost {
            self.seats.remove(id);
        }
        is_lost
    }

    /// Says how this node itself takes part.
    pub fn stand(&mut self, standing: Standing) {
        if let Some(seat) = self.seats.get_mut(&self.me) {
            seat.standing = standing;
        }
    }

    /// The denominator: known members, never fewer than expected.
    pub fn size(&self) -> usize {
        self.seats.len().max(self.rule.expected_members).max(1)
    }

    /// How many members are live, this node among them.
    pub fn live_count(&self) -> usize {
        self.seats.values().filter(|seat| seat.lost_since.is_none()).count()
    }

    /// Whether enough members are live that a flip is possible at all.
    pub fn has_quorum(&self) -> bool {
        self.live_count() >= quorum_of(self.size())
    }

    /// Whether the member counts and is alive: only then does its vote.
    pub fn is_live(&self, id: &NodeId) -> bool {
        self.seats.get(id).is_some_and(|seat| seat.lost_since.is_none())
    }

    /// The generation under which a member is known.
    pub fn generation(&self, id: &NodeId) -> Option<u64> {
        self.seats.get(id).map(|seat| seat.generation)
    }

    /// The live members that may lead: neither draining nor gone.
    pub fn leaders(&self) -> impl Iterator<Item = &NodeId> {
        self.seats
            .iter()
            .filter(|(_, seat)| seat.lost_since.is_none() && seat.standing == Standing::Serving)
            .map(|(id, _)| id)
    }

    /// All members with how they stand, in the order of their names.
    pub fn roll(&self, now: Duration) -> impl Iterator<Item = (&NodeId, Presence, Standing)> {
        self.seats.iter().map(move |(id, seat)| {
            let presence = match seat.lost_since {
                None => Presence::Live,
                Some(since) => Presence::Lost(now.saturating_sub(since)),
            };
            (id, presence, seat.standing)
        })
    }
}
