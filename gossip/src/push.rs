//! What came directly from its writer, until gossip has brought it too.
//!
//! A push is the same record that gossip carries, only sooner, so it is laid over what gossip holds
//! and the greater number wins. The writer is who the certificate says it is; nobody forwards.
//!
//! # Invariants
//! - Merging is idempotent and does not depend on order.
//! - A node's records are of its greatest generation only.
//! - No more than [`NODES_MAX`] nodes and [`RECORDS_MAX`] records each, and none for long.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use crate::codec::{self, CodecError, PUSH_BYTES_MAX, Push};
use crate::records::Record;
use crate::stats::{Reject, Stats};

/// As many nodes as may be members.
const NODES_MAX: usize = 1_024;

/// As many as a node may state.
pub(crate) const RECORDS_MAX: usize = 4_096;

/// After so many intervals gossip has brought the record or a newer one, or its writer has deleted
/// it or is out of reach.
const AGE_INTERVALS_MAX: u32 = 10;
const AGE_MIN: Duration = Duration::from_secs(5);

/// Room in a frame for all but the records: the name, the generation and the counts.
const HEAD_BYTES_MAX: usize = 512;

/// Room for the length of a record.
const LENGTH_BYTES_MAX: usize = 3;

/// What was pushed, by node.
pub(crate) struct Overlay {
    age_max: Duration,
    nodes: HashMap<String, Layer>,
}

/// What one node pushed in its present life.
pub(crate) struct Layer {
    pub(crate) generation: u64,
    /// By key, with the time of arrival.
    records: BTreeMap<String, (Record, Instant)>,
}

impl Layer {
    /// The records with their keys.
    pub(crate) fn records(&self) -> impl Iterator<Item = (&str, &Record)> {
        self.records.iter().map(|(key, (record, _))| (key.as_str(), record))
    }
}

impl Overlay {
    pub(crate) fn new(gossip_interval: Duration) -> Self {
        let age_max = (gossip_interval * AGE_INTERVALS_MAX).max(AGE_MIN);
        Self { age_max, nodes: HashMap::new() }
    }

    /// Lays a push over what is there. `known` is the node's greatest generation that gossip
    /// brought. Says whether anything is new.
    ///
    /// # Errors
    /// If the push is of a past life of its node, or there is no room. What cannot be decoded is
    /// counted and left out.
    pub(crate) fn merge(
        &mut self,
        push: Push,
        known: u64,
        stats: &Stats,
        now: Instant,
    ) -> Result<bool, Reject> {
        let layered = self.nodes.get(&push.node_id).map_or(0, |layer| layer.generation);
        if push.generation < known.max(layered) {
            return Err(Reject::Identity);
        }
        if self.nodes.len() >= NODES_MAX && !self.nodes.contains_key(&push.node_id) {
            return Err(Reject::Oversize);
        }
        let new = || Layer { generation: push.generation, records: BTreeMap::new() };
        let layer = self.nodes.entry(push.node_id.clone()).or_insert_with(new);
        if layer.generation < push.generation {
            *layer = new();
        }
        let mut is_news = false;
        for bytes in &push.records {
            match codec::decode(bytes) {
                Ok(record) => is_news |= layer.lay(record, now)?,
                Err(error) => stats.reject(error.into()),
            }
        }
        Ok(is_news)
    }

    /// What the node pushed, if anything.
    pub(crate) fn layer(&self, node_id: &str) -> Option<&Layer> {
        self.nodes.get(node_id)
    }

    /// Forgets what is old, and what gossip has brought by now: `held` tells the number that
    /// gossip holds of a node, a generation and a key.
    pub(crate) fn prune(&mut self, now: Instant, held: impl Fn(&str, u64, &str) -> Option<u64>) {
        self.nodes.retain(|node_id, layer| {
            let generation = layer.generation;
            layer.records.retain(|key, (record, arrived)| {
                let is_held = held(node_id, generation, key).is_some_and(|seq| seq >= record.seq);
                !is_held && now.saturating_duration_since(*arrived) < self.age_max
            });
            !layer.records.is_empty()
        });
    }
}

impl Layer {
    fn lay(&mut self, record: Record, now: Instant) -> Result<bool, Reject> {
        let key = record.key();
        match self.records.get(&key) {
            Some((there, _)) if there.seq >= record.seq => return Ok(false),
            None if self.records.len() >= RECORDS_MAX => return Err(Reject::Oversize),
            Some(_) | None => {}
        }
        self.records.insert(key, (record, now));
        Ok(true)
    }
}

/// Packs encoded records into as few pushes as they need, and encodes these.
///
/// # Errors
/// If the node's name is too long for a push.
pub(crate) fn pack(
    node_id: &str,
    generation: u64,
    records: Vec<Vec<u8>>,
) -> Result<Vec<Vec<u8>>, CodecError> {
    let mut packs = vec![Vec::new()];
    let mut bytes = HEAD_BYTES_MAX;
    for record in records {
        let more = record.len() + LENGTH_BYTES_MAX;
        if bytes + more > PUSH_BYTES_MAX {
            packs.push(Vec::new());
            bytes = HEAD_BYTES_MAX;
        }
        bytes += more;
        if let Some(last) = packs.last_mut() {
            last.push(record);
        }
    }
    let encode =
        |records| codec::encode_push(Push { node_id: node_id.to_owned(), generation, records });
    packs.into_iter().filter(|records| !records.is_empty()).map(encode).collect()
}

#[cfg(test)]
mod tests {
    use quorum::{Card, Standing};

    use super::*;
    use crate::records::Body;

    fn push(generation: u64, seqs: &[u64]) -> Push {
        let encode = |seq: &u64| {
            let card = Card {
                version: format!("version {seq}"),
                config_hash: String::new(),
                standing: Standing::Serving,
                is_suspect: false,
            };
            codec::encode(&Record { seq: *seq, body: Body::Card(card) }).unwrap()
        };
        let records = seqs.iter().map(encode).collect();
        Push { node_id: "one".to_owned(), generation, records }
    }

    fn held(overlay: &Overlay) -> Vec<u64> {
        let layer = overlay.layer("one");
        layer.into_iter().flat_map(Layer::records).map(|(_, record)| record.seq).collect()
    }

    #[test]
    fn the_greater_number_wins_in_any_order() {
        let (now, stats) = (Instant::now(), Stats::default());
        for order in [[1, 2, 3], [3, 1, 2], [2, 3, 1], [3, 3, 3]] {
            let mut overlay = Overlay::new(Duration::from_secs(1));
            for seq in order {
                overlay.merge(push(5, &[seq]), 0, &stats, now).unwrap();
            }
            assert_eq!(held(&overlay), [3], "{order:?}");
        }
    }

    #[test]
    fn a_past_life_is_refused_and_a_new_one_starts_empty() {
        let (now, stats) = (Instant::now(), Stats::default());
        let mut overlay = Overlay::new(Duration::from_secs(1));
        overlay.merge(push(5, &[9]), 0, &stats, now).unwrap();
        assert_eq!(overlay.merge(push(4, &[10]), 0, &stats, now), Err(Reject::Identity));
        assert_eq!(overlay.merge(push(5, &[10]), 6, &stats, now), Err(Reject::Identity));
        overlay.merge(push(6, &[1]), 6, &stats, now).unwrap();
        assert_eq!(held(&overlay), [1]);
    }

    #[test]
    fn what_gossip_has_brought_or_time_has_taken_is_forgotten() {
        let (now, stats) = (Instant::now(), Stats::default());
        let mut overlay = Overlay::new(Duration::from_secs(1));
        overlay.merge(push(5, &[9]), 0, &stats, now).unwrap();
        overlay.prune(now, |_, _, _| Some(8));
        assert_eq!(held(&overlay), [9]);
        overlay.prune(now, |_, _, _| Some(9));
        assert_eq!(held(&overlay), [0; 0]);
        overlay.merge(push(5, &[10]), 0, &stats, now).unwrap();
        overlay.prune(now + Duration::from_secs(10), |_, _, _| None);
        assert_eq!(held(&overlay), [0; 0]);
    }

    #[test]
    fn one_record_that_cannot_be_read_does_not_take_the_others_with_it() {
        let (now, stats) = (Instant::now(), Stats::default());
        let mut mixed = push(5, &[9]);
        mixed.records.insert(0, vec![1, 0, 0]);
        mixed.records.insert(0, vec![2, 7]);
        let mut overlay = Overlay::new(Duration::from_secs(1));
        assert_eq!(overlay.merge(mixed, 0, &stats, now), Ok(true));
        assert_eq!(held(&overlay), [9]);
        assert_eq!(stats.rejects(Reject::UnknownFormat), 1);
        assert_eq!(stats.rejects(Reject::Undecodable), 1);
    }

    #[test]
    fn many_records_are_spread_over_frames_that_fit() {
        for (count, bytes) in [(100, codec::RECORD_BYTES_MAX), (10_000, 12), (2_000, 200)] {
            let records = vec![vec![1; bytes]; count];
            let frames = pack(&"n".repeat(253), u64::MAX >> 11, records).unwrap();
            assert!(frames.len() < 10, "{} frames", frames.len());
            let decode = |frame: &Vec<u8>| codec::decode_push(frame).unwrap().records.len();
            assert_eq!(frames.iter().map(decode).sum::<usize>(), count);
        }
    }
}
