//! What gossip holds, opened: each member with its card and its statements.
//!
//! # Invariants
//! - A member is its greatest generation; smaller ones are its past and are not shown. A generation
//!   counts only with a record that is signed for it, while the node has such a life.
//! - A node that has neither signed anything nor shown its certificate in a handshake is none: what
//!   somebody invents does not become a member.
//! - A member's pulse is shown only together with all that the member had stated, and without what
//!   it had taken back, when it raised it: chitchat brings a node's keys in the order of writing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::time::Duration;

use chitchat::{Chitchat, ChitchatId};
use quorum::{Member, NodeId};
use tokio::time::Instant;

use super::life::Life;
use crate::push::{Known, Overlay};
use crate::seal::Seals;
use crate::stats::Stats;
use crate::vet::Holding;

/// A past life of this node is given up by the detector within half as many intervals; one that
/// still lives then is another process.
const PAST_INTERVALS_MAX: u32 = 20;

/// What gossip holds.
pub(super) struct Held {
    node_id: String,
    gossip_interval: Duration,
    /// Whether a member must have shown who it is.
    is_secure: bool,
    /// By chitchat's id; bounded by the vet, which lets no more nodes in.
    lives: BTreeMap<ChitchatId, Life>,
    /// Nodes that have shown their certificate in a handshake, as last told.
    met: HashSet<String>,
}

/// Another process under this node's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rival {
    pub(super) address: SocketAddr,
    pub(super) generation: u64,
}

impl Held {
    pub(super) fn new(node_id: &str, gossip_interval: Duration, is_secure: bool) -> Self {
        let node_id = node_id.to_owned();
        let (lives, met) = (BTreeMap::new(), HashSet::new());
        Self { node_id, gossip_interval, is_secure, lives, met }
    }

    /// Reads chitchat's state.
    pub(super) fn note(&mut self, chitchat: &Chitchat, now: Instant) {
        let live: HashSet<_> = chitchat.live_nodes().collect();
        let fading: HashSet<_> = chitchat.scheduled_for_deletion_nodes().collect();
        let states = chitchat.node_states();
        self.lives.retain(|id, _| states.contains_key(id));
        for (id, state) in states {
            let life = self.lives.entry(id.clone()).or_default();
            life.note(state);
            life.is_fading = fading.contains(id);
            life.judge(state.heartbeat().into(), live.contains(id), self.gossip_interval, now);
        }
    }

    /// Opens what was read and is not open yet. What this node itself has written in its present
    /// life needs no opening.
    pub(super) fn open(&mut self, own_generation: u64, seals: &mut Seals, stats: &Stats) {
        for (id, life) in &mut self.lives {
            if *id.node_id == *self.node_id && id.generation_id == own_generation {
                continue;
            }
            life.open((&id.node_id, id.generation_id), seals, stats);
        }
    }

    /// Tells which nodes have shown their certificate in a handshake.
    pub(super) fn meet(&mut self, met: HashSet<String>) {
        self.met = met;
    }

    /// Forgets the records of these lives, or of all: they are to be read and opened anew.
    pub(super) fn forget(&mut self, lives: Option<&[(String, u64)]>) {
        for (id, life) in &mut self.lives {
            let is_of = |(node_id, generation): &(String, u64)| {
                **node_id == *id.node_id && *generation == id.generation_id
            };
            if lives.is_none_or(|lives| lives.iter().any(is_of)) {
                life.forget();
            }
        }
    }

    /// Whether this life of the node is held.
    pub(super) fn has(&self, node_id: &str, generation: u64) -> bool {
        self.lives_of(node_id, generation).next().is_some()
    }

    /// What is held of each life of each node, for the vet.
    pub(super) fn holdings(&self) -> HashMap<ChitchatId, Holding> {
        let holding = |life: &Life| Holding { keys: life.keys, is_shared: !life.is_fading };
        self.lives.iter().map(|(id, life)| (id.clone(), holding(life))).collect()
    }

    /// What is held of a node, for what it pushes.
    pub(super) fn known<'a>(
        &'a self,
        node_id: &'a str,
    ) -> Known<impl Fn(u64, &str) -> u64 + use<'a>> {
        let lives = self
            .lives
            .iter()
            .filter(|(id, life)| *id.node_id == *node_id && (!self.is_secure || life.is_proven()));
        let lives = lives.map(|(id, life)| (id.generation_id, life.seq_max));
        let (generation, seq_max) = lives.max().unwrap_or_default();
        let newest = move |generation, key: &str| self.newest(node_id, generation, key);
        Known { generation, seq_max, newest }
    }

    /// The number up to which gossip holds a key of a life: what is not greater is no news. What
    /// is older than the life's pulse has been taken back if it is not there.
    pub(super) fn newest(&self, node_id: &str, generation: u64, key: &str) -> u64 {
        let of_life = self.lives_of(node_id, generation).map(|(_, life)| life.newest(key));
        of_life.max().unwrap_or(0)
    }

    fn lives_of<'a>(
        &'a self,
        node_id: &'a str,
        generation: u64,
    ) -> impl Iterator<Item = (&'a ChitchatId, &'a Life)> {
        // The least of all addresses: chitchat orders by name, generation and address.
        let least = SocketAddr::from(([0, 0, 0, 0], 0));
        let from = ChitchatId::new(node_id, generation, least);
        let is_it =
            move |id: &ChitchatId| *id.node_id == *node_id && id.generation_id == generation;
        self.lives.range(from..).take_while(move |(id, _)| is_it(id))
    }

    /// The addresses of the nodes, with whether they are live; also of those that have yet to show
    /// who they are.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (SocketAddr, bool)> {
        let others = self.lives.iter().filter(|(id, _)| *id.node_id != *self.node_id);
        others.map(|(id, life)| (id.gossip_advertise_addr, life.is_live))
    }

    /// The members with their addresses, and with whether they are live.
    pub(super) fn places(&self) -> impl Iterator<Item = (&str, SocketAddr, bool)> {
        let present = self.present().into_iter();
        present.map(|(name, (id, life))| (name, id.gossip_advertise_addr, life.is_live))
    }

    /// Another process that goes under this node's name and lives: the newest. A past life of this
    /// process is none, for the detector gives it up soon.
    pub(super) fn rival(&self, generation: u64, now: Instant) -> Option<Rival> {
        let past = self.gossip_interval * PAST_INTERVALS_MAX;
        let rivals = self.lives.iter().filter(|(id, life)| {
            let is_other = *id.node_id == *self.node_id && id.generation_id != generation;
            let is_credible = !self.is_secure || life.is_proven();
            let is_past = id.generation_id < generation && !life.is_older_than(past, now);
            is_other && life.is_live && is_credible && !is_past
        });
        let newest = rivals.map(|(id, _)| id).max_by_key(|id| id.generation_id)?;
        let (address, generation) = (newest.gossip_advertise_addr, newest.generation_id);
        Some(Rival { address, generation })
    }

    /// All members but this node, by name, with what they pushed laid over what gossip holds.
    pub(super) fn members(&self, overlay: &Overlay) -> Vec<Member> {
        let member = |(id, life): (&ChitchatId, &Life)| {
            let layer = overlay.layer(&id.node_id);
            let layer = layer.filter(|layer| layer.generation == id.generation_id);
            let (card, heard) = life.merged(layer);
            Member {
                id: NodeId::new(&id.node_id),
                generation: id.generation_id,
                address: id.gossip_advertise_addr.to_string(),
                is_live: life.is_live,
                card,
                pulse: life.pulse().map_or(0, |(pulse, _)| pulse),
                heard,
            }
        };
        self.present().into_values().map(member).collect()
    }

    /// When the heartbeat of each other node was last seen to grow, in its present life.
    pub(super) fn beats(&self) -> BTreeMap<NodeId, Instant> {
        let beat =
            |(id, life): (&ChitchatId, &Life)| Some((NodeId::new(&id.node_id), life.beat()?));
        self.present().into_values().filter_map(beat).collect()
    }

    /// The present life of each other node: the greatest generation that counts, and of two
    /// addresses that claim it the one that lives.
    fn present(&self) -> BTreeMap<&str, (&ChitchatId, &Life)> {
        let proven = self.lives.iter().filter(|(_, life)| life.is_live && life.is_proven());
        let proven: HashSet<&str> = proven.map(|(id, _)| &*id.node_id).collect();
        let rank = |id: &ChitchatId, life: &Life| {
            // Of a format that is not known nothing is proven; what proves more comes first.
            let counts = !self.is_secure || life.is_proven() || !proven.contains(&*id.node_id);
            (counts, id.generation_id, life.is_live, life.versions)
        };
        let mut present: BTreeMap<&str, (&ChitchatId, &Life)> = BTreeMap::new();
        for (id, life) in &self.lives {
            let has_shown = !self.is_secure || life.is_proven() || self.met.contains(&*id.node_id);
            if *id.node_id == *self.node_id || !has_shown {
                continue;
            }
            let there = present.get(&*id.node_id);
            if there.is_none_or(|(other, older)| rank(other, older) < rank(id, life)) {
                present.insert(&id.node_id, (id, life));
            }
        }
        present
    }
}
