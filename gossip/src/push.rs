//! What came directly or was sent on, until gossip has brought it too.
//!
//! A push is the same sealed record that gossip carries, only sooner, so it is laid over what gossip
//! holds and the greater number wins. The writer is who signed it, whoever sent it on.
//!
//! # Invariants
//! - Merging is idempotent and does not depend on order.
//! - A node's records are of its greatest generation only, and a generation is believed only with a
//!   record that is signed for it.
//! - What was news once is not news again while it could still be under way.
//! - No more than [`NODES_MAX`] nodes and [`RECORDS_MAX`] records each, and none for long.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use crate::codec::{self, CHAIN_BYTES_MAX, CodecError, PUSH_BYTES_MAX, Push, Sealed};
use crate::records::{Body, Record, is_next};
use crate::seal::{Place, Seals, Witness};
use crate::stats::{Reject, Stats};

/// As many nodes as may be members.
const NODES_MAX: usize = 1_024;

/// As many as a node may state.
pub(crate) const RECORDS_MAX: usize = 4_096;

/// After so many intervals gossip has brought the record or a newer one, or its writer has deleted
/// it or is out of reach.
const AGE_INTERVALS_MAX: u32 = 10;
const AGE_MIN: Duration = Duration::from_secs(5);

/// Room in a frame for all but the records: the name, the generation, the certificate and the
/// counts.
const HEAD_BYTES_MAX: usize = CHAIN_BYTES_MAX + 512;

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
    /// By key, with the time of arrival. At most [`RECORDS_MAX`].
    records: BTreeMap<String, (Record, Instant)>,
    /// The greatest number that came under each key, with the time of arrival: kept when gossip has
    /// brought the record, for copies may still be under way. At most [`RECORDS_MAX`].
    told: HashMap<String, (u64, Instant)>,
}

/// What gossip holds of a node.
pub(crate) struct Known<F> {
    /// The greatest generation that counts; zero for none.
    pub(crate) generation: u64,
    /// The greatest number of a statement in it.
    pub(crate) seq_max: u64,
    /// The number up to which a generation and a key are held.
    pub(crate) newest: F,
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

    /// Lays a push over what is there, and returns the sealed records that are news.
    ///
    /// # Errors
    /// If the push is of a past life of its node, its certificate is not good, or there is no room.
    /// What cannot be read or is not signed is counted and left out.
    pub(crate) fn merge(
        &mut self,
        push: Push,
        known: Known<impl Fn(u64, &str) -> u64>,
        (seals, stats): (&Seals, &Stats),
        now: Instant,
    ) -> Result<Vec<Vec<u8>>, Reject> {
        let Push { node_id, generation, chain, records, .. } = push;
        let layered = self.nodes.get(&node_id).map_or(0, |layer| layer.generation);
        if generation < known.generation.max(layered) {
            return Err(Reject::Identity);
        }
        let witness = seals.witness(&node_id, generation, &chain)?;
        let seq_max = if generation == known.generation { known.seq_max } else { 0 };
        let mut news = Vec::new();
        for bytes in records {
            let is_old = |key: &str, seq| {
                self.has_told((&node_id, generation), key, seq)
                    || (known.newest)(generation, key) >= seq
            };
            match open((&node_id, generation), &bytes, (seals, &witness), is_old) {
                Ok(Some((key, record))) if is_next(&record, seq_max) => {
                    self.lay((&node_id, generation), key, record, now)?;
                    news.push(bytes);
                }
                Ok(Some(_)) => stats.reject(Reject::Implausible),
                Ok(None) => {}
                Err(reason) => stats.reject(reason),
            }
        }
        Ok(news)
    }

    fn has_told(&self, (node_id, generation): (&str, u64), key: &str, seq: u64) -> bool {
        let layer = self.nodes.get(node_id).filter(|layer| layer.generation == generation);
        layer.and_then(|layer| layer.told.get(key)).is_some_and(|(told, _)| *told >= seq)
    }

    fn lay(
        &mut self,
        (node_id, generation): (&str, u64),
        key: String,
        record: Record,
        now: Instant,
    ) -> Result<(), Reject> {
        if self.nodes.len() >= NODES_MAX && !self.nodes.contains_key(node_id) {
            return Err(Reject::Oversize);
        }
        let new = || Layer { generation, records: BTreeMap::new(), told: HashMap::new() };
        let layer = self.nodes.entry(node_id.to_owned()).or_insert_with(new);
        if layer.generation < generation {
            *layer = new();
        }
        if layer.told.len() >= RECORDS_MAX && !layer.told.contains_key(&key) {
            return Err(Reject::Oversize);
        }
        layer.told.insert(key.clone(), (record.seq, now));
        layer.records.insert(key, (record, now));
        Ok(())
    }

    /// What the node pushed, if anything.
    pub(crate) fn layer(&self, node_id: &str) -> Option<&Layer> {
        self.nodes.get(node_id)
    }

    /// Forgets what is old, and what gossip has brought by now: `newest` tells the number up to
    /// which gossip holds a node, a generation and a key.
    pub(crate) fn prune(&mut self, now: Instant, newest: impl Fn(&str, u64, &str) -> u64) {
        let age_max = self.age_max;
        let is_young = |arrived: &Instant| now.saturating_duration_since(*arrived) < age_max;
        self.nodes.retain(|node_id, layer| {
            let generation = layer.generation;
            layer.records.retain(|key, (record, arrived)| {
                let is_held = newest(node_id, generation, key) >= record.seq;
                !is_held && is_young(arrived)
            });
            layer.told.retain(|_, (_, arrived)| is_young(arrived));
            !layer.told.is_empty()
        });
    }

    /// Forgets what these lives pushed: their certificates are good no longer.
    pub(crate) fn forget(&mut self, lives: &[(String, u64)]) {
        for (node_id, generation) in lives {
            if self.nodes.get(node_id).is_some_and(|layer| layer.generation == *generation) {
                self.nodes.remove(node_id);
            }
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
    }
}

/// Opens a record; `None` if it is old.
fn open(
    (node_id, generation): (&str, u64),
    bytes: &[u8],
    (seals, witness): (&Seals, &Witness),
    is_old: impl Fn(&str, u64) -> bool,
) -> Result<Option<(String, Record)>, Reject> {
    let sealed: Sealed = codec::decode_sealed(bytes)?;
    // What is no news is not worth its signature's check.
    let claimed = codec::decode(&sealed.record)?;
    match claimed.body {
        Body::Card(_) | Body::Statement(_) => {}
        // A pulse says that all before it is known, which a push cannot know.
        Body::Pulse(_) | Body::Certificate(_) => return Err(Reject::Undecodable),
    }
    let key = claimed.key();
    if is_old(&key, claimed.seq) {
        return Ok(None);
    }
    let record = seals.open_with(witness, Place { node_id, generation, key: &key }, &sealed)?;
    Ok(Some((key, record)))
}

/// Packs sealed records into as few pushes as they need, and encodes these. `head` is a push
/// without records.
///
/// # Errors
/// If the node's name is too long for a push.
pub(crate) fn pack(head: &Push, records: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, CodecError> {
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
    let encode = |records| codec::encode_push(Push { records, ..head.clone() });
    packs.into_iter().filter(|records| !records.is_empty()).map(encode).collect()
}

#[cfg(test)]
mod tests;
