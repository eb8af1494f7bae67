//! What operators ask of members: to drain, to leave, or of all to forget one that is lost.
//!
//! An order is given to any node, which states it for a while ([`STANDS_FOR`]); the member that it is
//! about hears it like any other statement. It names one life of the member, so that a node that was
//! restarted is not drained again by what its last life was told, and it counts only as the word of a
//! live member, so that what the dead once asked for is not done when a partition heals.
//!
//! To forget is asked of all, and each follows if it has lost the member as well: when it hears of it,
//! or within the time by which failure detectors differ ([`LAG_INTERVALS`]). An order that is not
//! followed by then never is, nor once the member is seen alive or the writer takes it back, as it
//! does when the member returns: an order in store for a later loss would make a minority of the next
//! partition a majority.
//!
//! Whoever holds a member's certificate may give any order: a member that lies can send others away
//! one by one, and make them forget who is lost. That is what an operator may do at any node, and no
//! more; a live member cannot be forgotten, and who comes back counts again.
//!
//! Invariants: an order is followed once; a milder one changes nothing after a stronger one; hearing
//! a set again changes nothing; a node states at most one order for each member; where no majority is
//! live, nobody is forgotten who was not lost before the order was heard; what one writer says takes
//! no room from another's.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::council::{Council, Decision};
use crate::electorate::Electorate;
use crate::statement::{ANY_LIFE, Heard, MemberOrder, MemberVerb, NodeId, Statement};
use crate::voice::Voice;

/// How long an order is stated: a few times as long as gossip takes to repair what a push missed.
pub(crate) const STANDS_FOR: Duration = Duration::from_secs(60);

/// What was heard is remembered for as long as its writer states it, and for this long thereafter:
/// gossip may tell an old set again.
const REMEMBERED_FOR: Duration = STANDS_FOR.saturating_mul(2);

/// Failure detectors agree within so many rounds of gossip, and within [`LAG_MIN`] at best, since a
/// starved process is late by seconds: who is lost later than that after an order to forget it was
/// heard is not the loss that was meant.
const LAG_INTERVALS: u32 = 10;
const LAG_MIN: Duration = Duration::from_secs(10);

/// Who is lost only after the order was heard is to stay lost for so many rounds: a partition is
/// found out member by member.
const SETTLED_INTERVALS: u32 = 5;

/// Orders of one writer to forget that are remembered; what is beyond is not followed. A fleet of
/// the size that gossip is made for may lose half of its members at once.
const FORGETS_MAX: usize = 256;

/// What this node was asked, and what it heard.
#[derive(Clone, Debug, Default)]
pub(super) struct Orders {
    /// This node's own life; an order for an earlier one is not meant for it.
    generation: u64,
    /// The strongest order that this node has followed itself.
    followed: Option<MemberVerb>,
    /// What this node states, and until when; at most one for each member.
    given: BTreeMap<NodeId, (MemberOrder, Duration)>,
    /// What others state, by the node that was asked and the member that is meant; of each writer
    /// one about this node and at most [`FORGETS_MAX`] about others. There are no more writers than
    /// there are voices.
    heard: BTreeMap<NodeId, BTreeMap<NodeId, Told>>,
}

/// An order of another node.
#[derive(Clone, Debug)]
struct Told {
    /// The life of the writer, and its number for the statement.
    stating: (u64, u64),
    order: MemberOrder,
    at: Duration,
    /// Since when it is no longer stated.
    unstated_at: Option<Duration>,
    /// Whether it was followed, or never will be.
    is_done: bool,
    /// Whether the member was seen to be lost since the order was heard.
    was_lost: bool,
}

/// What is to be done with an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is followed now.
    Due,
    /// It may be followed later.
    Waits,
    /// It never will be.
    Void,
}

/// Why an order was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOrdered {
    /// No member of this name counts.
    Unknown,
    /// The member is lost: nothing reaches it.
    Lost,
    /// The member is live: only a lost one can be forgotten.
    Live,
}

impl Orders {
    /// Takes in what another node states, if it is about `me` or about one of `seats`.
    pub(super) fn take(
        &mut self,
        now: Duration,
        (me, seats): (&NodeId, &Electorate),
        (writer, life): (&NodeId, u64),
        heard: &Heard,
    ) {
        let Statement::Member(member, order) = &heard.statement else {
            return;
        };
        let is_for_me = member == me;
        let concerns_this_node = match order.verb {
            MemberVerb::Drain | MemberVerb::Leave => {
                is_for_me && order.generation >= self.generation
            }
            MemberVerb::Forget => !is_for_me && seats.generation(member).is_some(),
        };
        if !concerns_this_node {
            return;
        }
        let of_writer = self.heard.entry(writer.clone()).or_default();
        let stating = (life, heard.seq);
        let forgets = of_writer.len().saturating_sub(usize::from(of_writer.contains_key(me)));
        let known = of_writer.get_mut(member);
        let has_room = is_for_me || known.is_some() || forgets < FORGETS_MAX;
        let is_new = known.as_ref().is_none_or(|told| told.stating < stating);
        if let Some(told) = known.filter(|told| told.stating == stating) {
            // It is stated again: the memory of it stays.
            told.unstated_at = None;
        }
        if is_new && has_room {
            let told = Told {
                stating,
                order: order.clone(),
                at: now,
                unstated_at: None,
                is_done: false,
                was_lost: false,
            };
            of_writer.insert(member.clone(), told);
        }
    }

    /// Notes at `now` that `heard` is all that the writer stands by: what it states no longer was
    /// taken back.
    pub(super) fn keep(&mut self, now: Duration, writer: &NodeId, heard: &[Heard]) {
        let Some(of_writer) = self.heard.get_mut(writer) else {
            return;
        };
        let stated: BTreeSet<&NodeId> = heard
            .iter()
            .filter_map(|heard| match &heard.statement {
                Statement::Member(member, _) => Some(member),
                Statement::Vote(..)
                | Statement::Step(..)
                | Statement::Override(..)
                | Statement::Window(..) => None,
            })
            .collect();
        for (_, told) in of_writer.iter_mut().filter(|(member, _)| !stated.contains(member)) {
            told.take_back(now);
        }
    }

    /// Lets go of what has not been stated for long. Who has no voice in the same life states
    /// nothing.
    fn remember(&mut self, now: Duration, voices: &BTreeMap<NodeId, Voice>) {
        for (writer, of_writer) in &mut self.heard {
            let life = voices.get(writer).map(|voice| voice.generation);
            for told in of_writer.values_mut().filter(|told| life != Some(told.stating.0)) {
                told.take_back(now);
            }
            of_writer.retain(|_, told| {
                told.unstated_at.is_none_or(|at| now < at.saturating_add(REMEMBERED_FOR))
            });
        }
        self.heard.retain(|_, of_writer| !of_writer.is_empty());
    }

    /// Takes back what is stated about members that are back.
    pub(super) fn welcome(&mut self, seats: &Electorate) {
        self.given.retain(|member, (order, _)| {
            order.verb != MemberVerb::Forget || !seats.is_live(member)
        });
    }

    /// What this node states at `now`.
    pub(super) fn statements(&mut self, now: Duration) -> BTreeMap<NodeId, Statement> {
        self.given.retain(|_, (_, until)| now < *until);
        let stated = |(member, (order, _)): (&NodeId, &(MemberOrder, Duration))| {
            (member.clone(), Statement::Member(member.clone(), order.clone()))
        };
        self.given.iter().map(stated).collect()
    }

    /// States an order for a while, unless a stronger one stands for the same life. Returns what
    /// stands.
    fn give(&mut self, now: Duration, member: &NodeId, order: MemberOrder) -> MemberVerb {
        let until = now.saturating_add(STANDS_FOR);
        let (life, verb) = (order.generation, order.verb);
        match self.given.get_mut(member) {
            Some((standing, ends)) if standing.generation == life && standing.verb >= verb => {
                *ends = until;
                standing.verb
            }
            Some(_) | None => {
                self.given.insert(member.clone(), (order, until));
                verb
            }
        }
    }
}

impl Council {
    /// Says which life of this node it is, so that no order for an earlier one is followed.
    pub fn live_as(&mut self, generation: u64) {
        self.orders.generation = generation;
    }

    /// Which life of this node it is.
    pub fn generation(&self) -> u64 {
        self.orders.generation
    }

    /// Takes an operator's order about a member on this node. It is followed at once if it is about
    /// this node or a lost member, and spread. Returns what stands: a milder order changes nothing
    /// after a stronger one.
    ///
    /// # Errors
    /// [`NotOrdered`]; nothing has changed then.
    pub fn order_member(
        &mut self,
        now: Duration,
        member: &NodeId,
        verb: MemberVerb,
        reason: &str,
    ) -> Result<MemberVerb, NotOrdered> {
        let is_me = *member == self.me;
        let life = self.electorate.generation(member).ok_or(NotOrdered::Unknown)?;
        let is_lost = self.electorate.lost_since(member).is_some();
        let order = MemberOrder { verb, generation: life, reason: reason.to_owned() };
        match verb {
            MemberVerb::Forget if !is_lost => return Err(NotOrdered::Live),
            MemberVerb::Forget => {
                self.forget(member);
            }
            MemberVerb::Drain | MemberVerb::Leave if is_lost => return Err(NotOrdered::Lost),
            MemberVerb::Drain | MemberVerb::Leave if is_me => {
                let by = self.me.clone();
                return Ok(self.go(&order, by));
            }
            MemberVerb::Drain | MemberVerb::Leave => {}
        }
        // Who was asked before may have done it since, or never will: it is a new word.
        self.speech.say_anew(member);
        Ok(self.orders.give(now, member, order))
    }

    /// Follows what was heard, once.
    pub(super) fn obey(&mut self, now: Duration) {
        self.orders.welcome(&self.electorate);
        self.orders.remember(now, &self.voices);
        let of_writer = |(writer, told): (&NodeId, &BTreeMap<NodeId, Told>)| {
            let waiting = told.iter().filter(|(_, told)| !told.is_done);
            waiting.map(|(member, _)| (writer.clone(), member.clone())).collect::<Vec<_>>()
        };
        let waiting: Vec<(NodeId, NodeId)> = self.orders.heard.iter().flat_map(of_writer).collect();
        for (writer, member) in waiting {
            self.follow(now, writer, &member);
        }
    }

    /// Follows one order, if it is due.
    fn follow(&mut self, now: Duration, writer: NodeId, member: &NodeId) {
        let is_lost = self.electorate.lost_since(member).is_some();
        let of_writer = self.orders.heard.get(&writer);
        let Some(told) = of_writer.and_then(|told| told.get(member)).cloned() else {
            return;
        };
        let fate = self.fate(now, &writer, member, &told);
        if let Some(kept) = self.orders.heard.get_mut(&writer).and_then(|told| told.get_mut(member))
        {
            kept.was_lost |= is_lost;
            kept.is_done = fate != Fate::Waits;
        }
        match (fate, told.order.verb) {
            (Fate::Due, MemberVerb::Drain | MemberVerb::Leave) => {
                self.go(&told.order, writer);
            }
            (Fate::Due, MemberVerb::Forget) => {
                if self.forget(member) {
                    let (member, by) = (member.clone(), writer);
                    self.pending.push(Decision::Forgotten { member, by });
                }
            }
            (Fate::Waits | Fate::Void, _) => {}
        }
    }

    /// What is to be done with an order at `now`. It has to be the word of a live member.
    fn fate(&self, now: Duration, writer: &NodeId, member: &NodeId, told: &Told) -> Fate {
        let is_trusted = self.voices.get(writer).is_some_and(|voice| {
            let trusted_from = voice.trusted_from.unwrap_or(Duration::MAX);
            voice.generation == told.stating.0 && voice.stood_at(told.at) >= trusted_from
        });
        if now >= told.at.saturating_add(STANDS_FOR) {
            return Fate::Void;
        }
        let fate = match told.order.verb {
            MemberVerb::Drain | MemberVerb::Leave => Fate::Due,
            MemberVerb::Forget => self.fate_of_lost(now, member, told),
        };
        match fate {
            Fate::Due if !is_trusted || self.muted.contains(writer) => Fate::Waits,
            Fate::Due | Fate::Waits | Fate::Void => fate,
        }
    }

    /// What is to be done with an order to forget. A later life of the member was not meant. Who is
    /// lost here only after it was heard is forgotten if a majority is live then.
    fn fate_of_lost(&self, now: Duration, member: &NodeId, told: &Told) -> Fate {
        let life = told.order.generation;
        let is_meant = |known: u64| life == ANY_LIFE || known <= life;
        if !self.electorate.generation(member).is_some_and(is_meant) {
            return Fate::Void;
        }
        let interval = self.rule.interval;
        let lag = interval.saturating_mul(LAG_INTERVALS).max(LAG_MIN);
        let settled = interval.saturating_mul(SETTLED_INTERVALS);
        let late_from = told.at.saturating_add(lag);
        match self.electorate.lost_since(member) {
            None if told.was_lost || now > late_from => Fate::Void,
            None => Fate::Waits,
            Some(since) if since <= told.at => Fate::Due,
            Some(since) if since > late_from => Fate::Void,
            Some(since) if self.electorate.has_quorum() && now >= since.saturating_add(settled) => {
                Fate::Due
            }
            Some(_) => Fate::Waits,
        }
    }

    /// Lets this node go as it was asked, unless it has gone as far before. Returns how far it goes.
    fn go(&mut self, order: &MemberOrder, by: NodeId) -> MemberVerb {
        let verb = order.verb;
        if let Some(followed) = self.orders.followed.filter(|followed| *followed >= verb) {
            return followed;
        }
        self.orders.followed = Some(verb);
        self.pending.push(Decision::Ordered { verb, by, reason: order.reason.clone() });
        verb
    }
}

impl Told {
    /// Notes that it is no longer stated: what was not followed by then never is.
    fn take_back(&mut self, now: Duration) {
        self.unstated_at.get_or_insert(now);
        self.is_done = true;
    }
}
