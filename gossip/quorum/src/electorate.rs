//! Who forms the denominator, and when a lost member stops counting.
//!
//! The list is kept by this rule and not by the failure detector, which forgets: a member counts
//! until it left in good order, was forgotten by hand, or has been lost for the grace *while a
//! majority of the electorate was live*. So a minority can never shrink itself into a majority. A
//! dead member that others still list counts for a node that never met it: else a node that
//! restarts within a minority would believe that minority to be the fleet. Where nobody lists the
//! others any more, since all of the minority have restarted, only a roll kept over the restart
//! ([`Electorate::recall`]) or the number that is expected tells how large the fleet is.
//!
//! Invariants: the same lists in any order of their entries give the same electorate; who has left
//! comes back as a new generation only; who was dropped comes back by being seen alive.

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
    /// Who no longer counts, for as long as the carrier goes on listing the name.
    gone: BTreeMap<NodeId, Gone>,
    /// Since when a majority has been live without a break; `None` while it is not.
    majority_since: Option<Duration>,
    /// Since when no majority has been live; `None` while one is.
    minority_since: Option<Duration>,
    /// When this node has met all that were there when it started.
    settled_at: Duration,
    /// What was heard before this, since this node last slept, may be old.
    trusted_from: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Gone {
    generation: u64,
    /// Since when nothing is heard of it.
    at: Duration,
    /// Whether it left in good order, which is final for a generation.
    has_left: bool,
}

#[derive(Clone, Copy, Debug)]
struct Seat {
    generation: u64,
    standing: Standing,
    /// Since when the member is lost; `None` while it is live.
    lost_since: Option<Duration>,
    /// When it last came back after it was lost, or was met late; zero if neither.
    back_at: Duration,
    /// Whether it suspects itself, by its own word.
    is_suspect: bool,
}

impl Seat {
    /// That of a member of which nothing is known yet; generations begin above its own.
    const FIRST: Self = Self {
        generation: 0,
        standing: Standing::Serving,
        lost_since: None,
        back_at: Duration::ZERO,
        is_suspect: false,
    };
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
        let seats = BTreeMap::from([(me.clone(), Seat::FIRST)]);
        Self {
            rule,
            me,
            seats,
            gone: BTreeMap::new(),
            majority_since: None,
            minority_since: None,
            settled_at: Duration::MAX,
            trusted_from: Duration::ZERO,
        }
    }

    /// Takes in the carrier's whole member list at `now` and drops who no longer counts.
    pub fn observe(&mut self, now: Duration, members: &[Member]) {
        let newest = newest(&self.me, members);
        for member in newest.values() {
            self.seat(now, member);
        }
        for (id, seat) in &mut self.seats {
            let is_live = newest
                .get(id)
                .is_some_and(|member| member.is_live && member.generation == seat.generation);
            if *id != self.me && seat.lost_since.is_none() && !is_live {
                seat.lost_since = Some(now);
            }
        }
        // Who has just started is still to be told of those whom it forgot.
        let is_settling = now < self.settled_at;
        self.gone.retain(|id, _| is_settling || newest.contains_key(id));
        self.expire(now);
    }

    fn seat(&mut self, now: Duration, member: &Member) {
        let standing = member.card.as_ref().map_or(Standing::Serving, |card| card.standing);
        let known = self.seats.get(&member.id).copied();
        if known.is_some_and(|seat| member.generation < seat.generation) || self.is_barred(member) {
            return;
        }
        if standing == Standing::Left {
            self.drop_out(
                &member.id,
                Gone { generation: member.generation, at: now, has_left: true },
            );
            return;
        }
        if known.is_none() && self.seats.len() >= MEMBERS_MAX {
            return;
        }
        let lost_since = match (member.is_live, known) {
            (true, _) => None,
            // Who is recalled has been lost in whatever life it is listed.
            (false, Some(seat)) if [0, member.generation].contains(&seat.generation) => {
                seat.lost_since.or(Some(now))
            }
            (false, _) => Some(now),
        };
        let back_at = match known {
            Some(seat) if member.generation == seat.generation => match seat.lost_since {
                Some(_) if member.is_live => now,
                Some(_) | None => seat.back_at,
            },
            None if self.was_dropped(member) => now,
            // Who is met late, or in a new life, may be dead again: others tell of it as they do of
            // who returns.
            Some(_) | None if now > self.settled_at => now,
            Some(_) | None => Duration::ZERO,
        };
        let is_suspect = member.card.as_ref().is_some_and(|card| card.is_suspect);
        let generation = member.generation;
        let seat = Seat { generation, standing, lost_since, back_at, is_suspect };
        self.seats.insert(member.id.clone(), seat);
        self.gone.remove(&member.id);
    }

    /// Whether the member is one that no longer counts, and not back.
    fn is_barred(&self, member: &Member) -> bool {
        self.gone.get(&member.id).is_some_and(|gone| {
            // Of who was only recalled, whatever life is listed as lost is the one that is gone.
            let is_same =
                member.generation == gone.generation || gone.generation == Seat::FIRST.generation;
            member.generation < gone.generation || is_same && (gone.has_left || !member.is_live)
        })
    }

    fn was_dropped(&self, member: &Member) -> bool {
        self.gone.get(&member.id).is_some_and(|gone| gone.generation == member.generation)
    }

    fn drop_out(&mut self, id: &NodeId, gone: Gone) {
        self.seats.remove(id);
        self.gone.insert(id.clone(), gone);
    }

    fn expire(&mut self, now: Duration) {
        if !self.has_quorum() {
            self.majority_since = None;
            self.minority_since.get_or_insert(now);
            return;
        }
        self.minority_since = None;
        let majority_since = *self.majority_since.get_or_insert(now);
        let grace = self.rule.member_grace;
        let is_over = |since: Duration| now.saturating_sub(since.max(majority_since)) >= grace;
        let over: Vec<(NodeId, Gone)> = self
            .seats
            .iter()
            .filter_map(|(id, seat)| {
                let at = seat.lost_since.filter(|since| is_over(*since))?;
                Some((id.clone(), Gone { generation: seat.generation, at, has_left: false }))
            })
            .collect();
        for (id, gone) in over {
            self.drop_out(&id, gone);
        }
    }

    /// Notes at `now` that this node has slept, and observes until `observing_until`. It does not
    /// know whether a majority was live, so the grace of lost members begins anew; and what waited
    /// in its sockets makes the dead look alive, so votes count once they are heard after the
    /// observing.
    pub fn wake(&mut self, now: Duration, observing_until: Duration) {
        self.majority_since = self.majority_since.map(|_| now);
        self.minority_since = self.minority_since.map(|_| now);
        self.trusted_from = observing_until;
    }

    /// Gives each of `names` a seat, as that of a member lost since `now`: who restarts while cut off
    /// from the others knows by it how many they are. Its first life that is heard of takes the
    /// seat, and it drops out like any lost member. Names beyond [`MEMBERS_MAX`] are not taken in.
    pub fn recall(&mut self, now: Duration, names: impl IntoIterator<Item = NodeId>) {
        for id in names {
            let is_new = !self.seats.contains_key(&id) && !self.gone.contains_key(&id);
            if is_new && self.seats.len() < MEMBERS_MAX {
                let lost = Seat { lost_since: Some(now), ..Seat::FIRST };
                self.seats.insert(id, lost);
            }
        }
    }

    /// The names of all that count, this node's among them, in their order.
    pub fn names(&self) -> impl Iterator<Item = &NodeId> {
        self.seats.keys()
    }

    /// Says when this node will have met all that were there when it started.
    pub fn settle(&mut self, at: Duration) {
        self.settled_at = at;
    }

    /// Drops a lost member by hand. Returns whether there was such a member.
    pub fn forget(&mut self, id: &NodeId) -> bool {
        let lost = self.seats.get(id).and_then(|seat| {
            let at = seat.lost_since?;
            Some(Gone { generation: seat.generation, at, has_left: false })
        });
        if let Some(gone) = lost {
            self.drop_out(id, gone);
        }
        lost.is_some()
    }

    /// Says how this node itself takes part.
    pub fn stand(&mut self, standing: Standing) {
        if let Some(seat) = self.seats.get_mut(&self.me) {
            seat.standing = standing;
        }
    }

    /// Says whether this node suspects itself.
    pub fn suspect(&mut self, is_suspect: bool) {
        if let Some(seat) = self.seats.get_mut(&self.me) {
            seat.is_suspect = is_suspect;
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

    /// How many other members count.
    pub fn peers(&self) -> usize {
        self.seats.len().saturating_sub(1)
    }

    /// Since when a majority has been live; `None` while it is not, or before the first list.
    pub fn majority_since(&self) -> Option<Duration> {
        self.majority_since
    }

    /// Whether no majority has been live for the grace.
    pub fn is_cut_off(&self, now: Duration) -> bool {
        let grace = self.rule.member_grace;
        self.minority_since.is_some_and(|since| now >= since.saturating_add(grace))
    }

    /// In how long that is so; `None` while a majority is live.
    pub fn cut_off_in(&self, now: Duration) -> Option<Duration> {
        let since = self.minority_since?;
        Some(since.saturating_add(self.rule.member_grace).saturating_sub(now))
    }

    /// Since when the member is lost; `None` if it is live or does not count.
    pub fn lost_since(&self, id: &NodeId) -> Option<Duration> {
        self.seats.get(id).and_then(|seat| seat.lost_since)
    }

    /// Whether the member suspects itself, by its own word.
    pub fn suspects_itself(&self, id: &NodeId) -> bool {
        self.seats.get(id).is_some_and(|seat| seat.is_suspect)
    }

    /// Whether the member counts and is alive: only then does its vote.
    pub fn is_live(&self, id: &NodeId) -> bool {
        self.seats.get(id).is_some_and(|seat| seat.lost_since.is_none())
    }

    /// From when on the word of a member is that of a live one; `None` if it is lost, or has
    /// another `generation`. What comes within `observe` of a member's return does not count until
    /// it is stood by anew: when a partition heals, others pass on the last heartbeats of who died
    /// meanwhile, with the last votes, each as far as it heard them itself.
    pub fn trusts(&self, id: &NodeId, generation: u64, observe: Duration) -> Option<Duration> {
        let is_it = |seat: &&Seat| seat.lost_since.is_none() && seat.generation == generation;
        let seat = self.seats.get(id).filter(is_it)?;
        let after_return = match seat.back_at {
            Duration::ZERO => Duration::ZERO,
            at => at.saturating_add(observe).saturating_add(Duration::from_nanos(1)),
        };
        Some(after_return.max(self.trusted_from))
    }

    /// The generation under which a member is known.
    pub fn generation(&self, id: &NodeId) -> Option<u64> {
        self.seats.get(id).map(|seat| seat.generation)
    }

    /// The live members that may lead: neither draining nor gone. Who suspects itself leads only
    /// if all do: its own network would fail every probe.
    pub fn leaders(&self) -> impl Iterator<Item = &NodeId> {
        let may_lead =
            |seat: &Seat| seat.lost_since.is_none() && seat.standing == Standing::Serving;
        let is_sound = move |seat: &Seat| may_lead(seat) && !seat.is_suspect;
        let has_sound = self.seats.values().any(is_sound);
        let leads = move |seat: &Seat| if has_sound { is_sound(seat) } else { may_lead(seat) };
        self.seats.iter().filter(move |(_, seat)| leads(seat)).map(|(id, _)| id)
    }

    /// Who is lost, and who no longer counts though something was heard of it since `since`.
    pub(crate) fn absent(&self, since: Duration) -> impl Iterator<Item = &NodeId> {
        let lost = self.seats.iter().filter(|(_, seat)| seat.lost_since.is_some());
        let gone = self.gone.iter().filter(move |(_, gone)| gone.at >= since);
        lost.map(|(id, _)| id).chain(gone.map(|(id, _)| id))
    }

    /// The live members, in the order of their names.
    pub fn live(&self) -> impl Iterator<Item = &NodeId> {
        self.seats.iter().filter(|(_, seat)| seat.lost_since.is_none()).map(|(id, _)| id)
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

/// The members other than `me`, each in its greatest generation only: what a member was or said
/// before its restart is void, whatever place it has in the list.
pub(crate) fn newest<'a>(me: &NodeId, members: &'a [Member]) -> BTreeMap<&'a NodeId, &'a Member> {
    let mut newest: BTreeMap<&NodeId, &Member> = BTreeMap::new();
    for member in members.iter().filter(|member| member.id != *me) {
        let weight = |member: &Member| (member.generation, member.is_live);
        newest
            .entry(&member.id)
            .and_modify(|kept| *kept = if weight(member) > weight(kept) { member } else { kept })
            .or_insert(member);
    }
    newest
}
