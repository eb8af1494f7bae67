//! What gossip holds, decoded: each member with its card and its statements.
//!
//! chitchat's state is read whole after every change, so what has been decoded is kept by version
//! and decoded once.
//!
//! # Invariants
//! - A member is its greatest generation; smaller ones are its past and are not shown.
//! - A member that was live stays live for at least [`LIVE_INTERVALS_MIN`] intervals after its last
//!   heartbeat, and none for more than [`LIVE_INTERVALS_MAX`].
//! - A member's pulse is shown only together with all that the member had stated, and without what
//!   it had taken back, when it raised it: chitchat brings a node's keys in the order of writing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::time::Duration;

use chitchat::{Chitchat, ChitchatId, NodeState};
use quorum::{Card, Heard, Member, NodeId};
use tokio::time::Instant;

use crate::push::{Layer, Overlay, RECORDS_MAX};
use crate::records::{Body, CARD_KEY, PULSE_KEY, Record};
use crate::stats::Stats;

/// In a large fleet a member's heartbeat arrives many times per interval by way of others, so that
/// the detector's mean gets short and it gives a member up after little more than one interval. A
/// member whose machine paused for a moment is not dead.
const LIVE_INTERVALS_MIN: u32 = 3;

/// In a small and young fleet the detector takes up to nine intervals, and heartbeats that are
/// still being passed on add up to four: more than the ten seconds promised at an interval of one
/// second.
const LIVE_INTERVALS_MAX: u32 = 5;

/// What gossip holds.
pub(super) struct Held {
    node_id: String,
    gossip_interval: Duration,
    /// By chitchat's id; bounded by the vet, which lets no more nodes in.
    nodes: BTreeMap<ChitchatId, Node>,
}

/// What gossip holds of one life of one node.
#[derive(Default)]
struct Node {
    /// Greatest version and last collected version when the records were decoded.
    versions: (u64, u64),
    /// By key, with its version. `None` is a record that cannot be read.
    records: BTreeMap<String, (u64, Option<Record>)>,
    /// Keys, deleted ones included.
    keys: usize,
    heartbeat: u64,
    /// When the heartbeat last grew; `None` before it grew for the first time.
    beat: Option<Instant>,
    is_live: bool,
}

impl Held {
    pub(super) fn new(node_id: &str, gossip_interval: Duration) -> Self {
        Self { node_id: node_id.to_owned(), gossip_interval, nodes: BTreeMap::new() }
    }

    /// Reads chitchat's state.
    pub(super) fn refresh(&mut self, chitchat: &Chitchat, stats: &Stats, now: Instant) {
        let live: HashSet<_> = chitchat.live_nodes().collect();
        let states = chitchat.node_states();
        self.nodes.retain(|id, _| states.contains_key(id));
        for (id, state) in states {
            let node = self.nodes.entry(id.clone()).or_default();
            node.read(state, stats);
            node.judge(state.heartbeat().into(), live.contains(id), self.gossip_interval, now);
        }
    }

    /// The number of keys of each life of each node, for the vet.
    pub(super) fn keys(&self) -> HashMap<ChitchatId, usize> {
        self.nodes.iter().map(|(id, node)| (id.clone(), node.keys)).collect()
    }

    /// The greatest generation of the node, or zero.
    pub(super) fn generation(&self, node_id: &str) -> u64 {
        let lives = self.nodes.keys().filter(|id| *id.node_id == *node_id);
        lives.map(|id| id.generation_id).max().unwrap_or(0)
    }

    /// The greatest number that gossip holds of each node, generation and key.
    pub(super) fn seqs(&self) -> HashMap<(&str, u64, &str), u64> {
        let mut seqs = HashMap::new();
        for (id, node) in &self.nodes {
            for (key, (_, record)) in &node.records {
                let key = (&*id.node_id, id.generation_id, key.as_str());
                let seq = seqs.entry(key).or_insert(0);
                *seq = record.as_ref().map_or(0, |record| record.seq).max(*seq);
            }
        }
        seqs
    }

    /// The addresses of the members, with whether they are live.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (SocketAddr, bool)> {
        self.present().into_values().map(|(id, node)| (id.gossip_advertise_addr, node.is_live))
    }

    /// All members but this node, by name, with what they pushed laid over what gossip holds.
    pub(super) fn members(&self, overlay: &Overlay) -> Vec<Member> {
        let member = |(id, node): (&ChitchatId, &Node)| {
            let layer = overlay.layer(&id.node_id);
            let layer = layer.filter(|layer| layer.generation == id.generation_id);
            let (card, heard) = node.merged(layer);
            let pulse = node.pulse().map_or(0, |(pulse, _)| pulse);
            Member {
                id: NodeId::new(&id.node_id),
                generation: id.generation_id,
                address: id.gossip_advertise_addr.to_string(),
                is_live: node.is_live,
                card,
                pulse,
                heard,
            }
        };
        self.present().into_values().map(member).collect()
    }

    /// The present life of each other node: the greatest generation, and of two addresses that
    /// claim it the one that lives.
    fn present(&self) -> BTreeMap<&str, (&ChitchatId, &Node)> {
        let rank = |id: &ChitchatId, node: &Node| (id.generation_id, node.is_live, node.versions);
        let mut present: BTreeMap<&str, (&ChitchatId, &Node)> = BTreeMap::new();
        for (id, node) in self.nodes.iter().filter(|(id, _)| *id.node_id != *self.node_id) {
            let there = present.get(&*id.node_id);
            if there.is_none_or(|(other, older)| rank(other, older) < rank(id, node)) {
                present.insert(&id.node_id, (id, node));
            }
        }
        present
    }
}

impl Node {
    fn read(&mut self, state: &NodeState, stats: &Stats) {
        let versions = (state.max_version(), state.last_gc_version());
        self.keys = state.key_values_including_deleted().count();
        if self.versions == versions {
            return;
        }
        self.versions = versions;
        let mut decoded = std::mem::take(&mut self.records);
        let present = state.key_values_including_deleted().filter(|(_, held)| !held.is_deleted());
        for (key, held) in present.take(RECORDS_MAX + 1) {
            let known = decoded.remove(key).filter(|(version, _)| *version == held.version);
            let read = || (held.version, read(key, &held.value, stats));
            self.records.insert(key.to_owned(), known.unwrap_or_else(read));
        }
    }

    fn judge(&mut self, heartbeat: u64, is_live: bool, gossip_interval: Duration, now: Instant) {
        if heartbeat != self.heartbeat {
            // The first heartbeat may be an old one that somebody still passes on.
            self.beat = (self.heartbeat != 0).then_some(now);
            self.heartbeat = heartbeat;
        }
        let is_within = |intervals: u32| {
            let silence = self.beat.map(|beat| now.saturating_duration_since(beat));
            silence.is_some_and(|silence| silence < gossip_interval * intervals)
        };
        self.is_live = match is_live {
            true => is_within(LIVE_INTERVALS_MAX),
            false => self.is_live && is_within(LIVE_INTERVALS_MIN),
        };
    }

    /// The pulse, and the greatest number of a statement made before it was raised.
    fn pulse(&self) -> Option<(u64, u64)> {
        let (_, record) = self.records.get(PULSE_KEY)?;
        let record = record.as_ref()?;
        match record.body {
            Body::Pulse(pulse) => Some((pulse, record.seq)),
            Body::Card(_) | Body::Statement(_) => None,
        }
    }

    fn merged(&self, layer: Option<&Layer>) -> (Option<Card>, Vec<Heard>) {
        let readable = self.records.iter();
        let mut newest: BTreeMap<&str, &Record> = readable
            .filter_map(|(key, (_, record))| Some((key.as_str(), record.as_ref()?)))
            .collect();
        // What gossip has brought is whole up to the pulse: an older push that is not in it has been
        // taken back since.
        let whole = self.pulse().map_or(0, |(_, seq)| seq);
        for (key, record) in layer.into_iter().flat_map(Layer::records) {
            if key != CARD_KEY && record.seq <= whole {
                continue;
            }
            if newest.get(key).is_none_or(|there| there.seq < record.seq) {
                newest.insert(key, record);
            }
        }
        let card = newest.get(CARD_KEY).and_then(|record| match &record.body {
            Body::Card(card) => Some(card.clone()),
            Body::Statement(_) | Body::Pulse(_) => None,
        });
        let heard = newest.into_values().filter_map(|record| match &record.body {
            Body::Card(_) | Body::Pulse(_) => None,
            Body::Statement(statement) => {
                Some(Heard { seq: record.seq, statement: statement.clone() })
            }
        });
        (card, heard.collect())
    }
}

fn read(key: &str, value: &str, stats: &Stats) -> Option<Record> {
    match Record::from_value(key, value) {
        Ok(record) => Some(record),
        Err(error) => {
            stats.reject(error.into());
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_member_outlives_a_hasty_detector_but_not_its_silence() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut node = Node::default();
        let mut is_live = |heartbeat, is_live, seconds| {
            node.judge(heartbeat, is_live, second, start + seconds * second);
            node.is_live
        };
        assert!(!is_live(1, false, 0), "one heartbeat may be an old one");
        assert!(is_live(2, true, 1));
        assert!(is_live(2, false, 3));
        assert!(!is_live(2, false, 4));
        assert!(!is_live(3, false, 5), "the floor holds up, it does not bring back");
    }

    #[test]
    fn a_silent_member_does_not_outlive_a_patient_detector() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut node = Node::default();
        node.judge(1, false, second, start);
        node.judge(2, true, second, start);
        node.judge(2, true, second, start + 4 * second);
        assert!(node.is_live);
        node.judge(2, true, second, start + 5 * second);
        assert!(!node.is_live);
    }
}
