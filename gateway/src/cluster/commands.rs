//! What an operator may ask of members by way of this node, and of this node by way of others.
//!
//! Invariants: what this node is asked grows and never shrinks, so that whoever watches it cannot miss
//! the strongest; the seeds are at most [`gossip::SEEDS_MAX`].

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use quorum::{MemberVerb, NodeId, NotOrdered, Standing};
use tokio::sync::watch;

use super::{Seat, lock};
use crate::clock;
use crate::events::Events;

/// The seeds that this node tries: those of its configuration, and those it was told of since.
pub(super) type Seeds = Mutex<Vec<String>>;

/// How far this node was asked to go, and whether it has come as far.
pub(super) struct Asked {
    verb: watch::Sender<Option<MemberVerb>>,
    has_drained: AtomicBool,
}

impl Default for Asked {
    fn default() -> Self {
        Self { verb: watch::Sender::new(None), has_drained: AtomicBool::new(false) }
    }
}

impl Asked {
    pub(super) fn raise(&self, verb: MemberVerb) {
        self.verb.send_if_modified(|asked| {
            let is_more = asked.is_none_or(|asked| asked < verb);
            if is_more {
                *asked = Some(verb);
            }
            is_more
        });
    }
}

/// Why a member was not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The council's reason.
    Because(NotOrdered),
    /// This node has left the fleet: nobody would hear it.
    HasLeft,
}

/// Why seeds were not taken; none was then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotJoined {
    /// This node belongs to no fleet.
    Alone,
    /// This node's fleet does not gossip: its members meet in Redis.
    NoGossip,
    /// This node has left its fleet.
    HasLeft,
    /// There would be more than [`gossip::SEEDS_MAX`].
    TooMany,
    /// The carrier has not taken the last orders yet.
    Busy,
}

impl Seat {
    /// Takes an operator's order about a member: followed at once if it is about this node or a lost
    /// member, and carried to the fleet. Returns what stands, which is the stronger order where one
    /// stands already.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then.
    pub fn order_member(
        &self,
        id: &NodeId,
        verb: MemberVerb,
        reason: &str,
    ) -> Result<MemberVerb, Refused> {
        if self.card().standing == Standing::Left && *id != self.me {
            return Err(Refused::HasLeft);
        }
        let ordered = self.council().order_member(clock::now(), id, verb, reason);
        self.parts.wake.notify_one();
        ordered.map_err(Refused::Because)
    }

    /// Gossips with these `host:port` too, from here on. Returns all seeds that are tried.
    ///
    /// # Errors
    /// [`NotJoined`].
    pub fn join(&self, more: Vec<String>) -> Result<Vec<String>, NotJoined> {
        let none = if self.is_alone { NotJoined::Alone } else { NotJoined::NoGossip };
        let carrier = self.parts.carrier.as_ref().ok_or(none)?;
        let mut seeds = lock(&self.seeds);
        let mut all = seeds.clone();
        for seed in &more {
            if !all.contains(seed) {
                all.push(seed.clone());
            }
        }
        if all.len() > gossip::SEEDS_MAX {
            return Err(NotJoined::TooMany);
        }
        carrier.try_send(gossip::Command::Join(more)).map_err(|error| match error {
            tokio::sync::mpsc::error::TrySendError::Full(_) => NotJoined::Busy,
            tokio::sync::mpsc::error::TrySendError::Closed(_) => NotJoined::HasLeft,
        })?;
        seeds.clone_from(&all);
        Ok(all)
    }

    /// How far an operator wants this node to go; it grows and never shrinks.
    pub fn asked(&self) -> watch::Receiver<Option<MemberVerb>> {
        self.asked.verb.subscribe()
    }

    /// Notes that no client is left, nor can come.
    pub fn drained(&self) {
        self.asked.has_drained.store(true, Ordering::Relaxed);
    }

    /// Whether no client is left, nor can come.
    pub fn has_drained(&self) -> bool {
        self.asked.has_drained.load(Ordering::Relaxed)
    }

    /// Where what happens is told.
    pub fn events(&self) -> &Events {
        &self.parts.events
    }
}
