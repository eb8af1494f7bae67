//! What operators ask of members: to drain, to leave, or of all to forget one that is lost.
//!
//! An order is given to any node, which states it for a while ([`STANDS_FOR`]); the member that it is
//! about hears it like any other statement. It names one life of the member, so that a node that was
//! restarted is not drained again by what its last life was told, and it counts only as the word of a
//! live member, so that what the dead once asked for is not done when a partition heals.
//!
//! Whoever holds a member's certificate may give any order: a member that lies can send others away
//! one by one, and make them forget who is lost. That is what an operator may do at any node, and no
//! more; a live member cannot be forgotten, and who comes back counts again.
//!
//! Invariants: an order is followed once; a milder one changes nothing after a stronger one; hearing
//! a set again changes nothing; a node states at most one order for each member.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::council::{Council, Decision};
use crate::statement::{Heard, MemberOrder, MemberVerb, NodeId, Statement};

/// How long an order is stated: a few times as long as gossip takes to repair what a push missed.
pub(crate) const STANDS_FOR: Duration = Duration::from_secs(60);

/// What was heard is remembered for twice as long, so that no repetition outlives the memory of it.
const REMEMBERED_FOR: Duration = STANDS_FOR.saturating_mul(2);

/// Orders of others that are remembered: as many as there may be members. What is beyond is not
/// followed.
const HEARD_MAX: usize = 1_024;

/// What this node was asked, and what it heard.
#[derive(Clone, Debug, Default)]
pub(super) struct Orders {
    /// This node's own life; an order for an earlier one is not meant for it.
    generation: u64,
    /// The strongest order that this node has followed itself.
    followed: Option<MemberVerb>,
    /// What this node states, and until when; at most one for each member.
    given: BTreeMap<NodeId, (MemberOrder, Duration)>,
    /// What others state, by the node that was asked and the member that is meant; at most
    /// [`HEARD_MAX`].
    heard: BTreeMap<(NodeId, NodeId), Told>,
}

/// An order of another node.
#[derive(Clone, Debug)]
struct Told {
    /// The life of the writer, and its number for the statement.
    stating: (u64, u64),
    order: MemberOrder,
    at: Duration,
    is_done: bool,
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
    /// Takes in what another node states, if it concerns `me` or all.
    pub(super) fn take(
        &mut self,
        now: Duration,
        me: &NodeId,
        (writer, life): (&NodeId, u64),
        heard: &Heard,
    ) {
        let Statement::Member(member, order) = &heard.statement else {
            return;
        };
        let concerns_this_node = match order.verb {
            MemberVerb::Drain | MemberVerb::Leave => {
                member == me && order.generation >= self.generation
            }
            MemberVerb::Forget => member != me,
        };
        let key = (writer.clone(), member.clone());
        let stating = (life, heard.seq);
        let is_new = self.heard.get(&key).is_none_or(|told| told.stating < stating);
        let has_room = self.heard.len() < HEARD_MAX || self.heard.contains_key(&key);
        if concerns_this_node && is_new && has_room {
            let told = Told { stating, order: order.clone(), at: now, is_done: false };
            self.heard.insert(key, told);
        }
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
        Ok(self.orders.give(now, member, order))
    }

    /// Follows what was heard, once.
    pub(super) fn obey(&mut self, now: Duration) {
        self.orders.heard.retain(|_, told| now < told.at.saturating_add(REMEMBERED_FOR));
        let waiting = self.orders.heard.iter().filter(|(_, told)| !told.is_done);
        let due: Vec<_> = waiting
            .filter(|((writer, _), told)| self.is_meant(now, writer, told))
            .map(|(key, told)| (key.clone(), told.order.clone()))
            .collect();
        for (key, order) in due {
            let (by, member) = key.clone();
            let is_done = match order.verb {
                MemberVerb::Drain | MemberVerb::Leave => {
                    self.go(&order, by);
                    true
                }
                MemberVerb::Forget => self.drop_lost(&member, order.generation, by),
            };
            if let Some(told) = self.orders.heard.get_mut(&key) {
                told.is_done = is_done;
            }
        }
    }

    /// Whether an order is the word of a live member, and still stands.
    fn is_meant(&self, now: Duration, writer: &NodeId, told: &Told) -> bool {
        let is_current = now < told.at.saturating_add(STANDS_FOR);
        let is_trusted = self.voices.get(writer).is_some_and(|voice| {
            let trusted_from = voice.trusted_from.unwrap_or(Duration::MAX);
            voice.generation == told.stating.0 && voice.stood_at(told.at) >= trusted_from
        });
        is_current && is_trusted && !self.muted.contains(writer)
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

    /// Forgets a member if this node has lost it too. A later life of it was not meant.
    fn drop_lost(&mut self, member: &NodeId, life: u64, by: NodeId) -> bool {
        let is_meant = self.electorate.generation(member).is_some_and(|known| known <= life);
        let is_done = is_meant && self.forget(member);
        if is_done {
            self.pending.push(Decision::Forgotten { member: member.clone(), by });
        }
        is_done
    }
}
