//! Looks at every gossip frame before chitchat's decoder does, and refuses what would hurt it.
//!
//! chitchat trusts its peers. Read in 0.11.2, one frame from one member could: unpack to hundreds
//! of megabytes, stop the task (a `SetMaxVersion` below a key's version, a key that begins inside a
//! character, more nodes than fit one datagram), overwrite this node's own state, or freeze a
//! member for good with a heartbeat of 2^64 − 1. So the form is parsed here first, within bounds.
//!
//! # Invariants
//! - A frame that passes holds no more nodes, keys and bytes than the bounds below.
//! - A frame that passes says nothing about this node in its present life. What it says of others is
//!   believed only as far as they have signed it.
//! - All nodes that ever passed and are still held fit one digest.
//!
//! What cannot be seen here: a member that forges the state of another one within the bounds. It can
//! keep others from hearing that one, and cannot make them hear what that one did not say.

mod reader;

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use chitchat::ChitchatId;

use crate::error::NODE_ID_BYTES_MAX;
use crate::records::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::stats::Reject;
use reader::Reader;

/// No counter of an honest node gets here: one count a nanosecond takes 104 days.
pub(crate) const NUMBER_MAX: u64 = 1 << 53;

/// The most nodes held, and so the most in one frame; 200 members leave room for five lives each.
pub(crate) const NODES_MAX: usize = 1_024;

/// The most bytes of all nodes held, as a digest: what bounds the size of a fleet. chitchat fits
/// digest and delta into 65,507 bytes, and panics when less than 16,384 are left for the delta.
pub const DIGEST_BYTES_MAX: usize = 48_000;

/// A node in a digest: its name's length, generation, address family, port, and three counters.
const DIGEST_ENTRY_BYTES: usize = 2 + 8 + 1 + 2 + 3 * 8;

/// The most keys of one node, held and in a frame together. It states at most 4,096: as many again
/// may be marked as deleted, and a frame may replace them all.
const KEYS_MAX: usize = 3 * 4_096;

/// The most bytes a delta may unpack to. chitchat packs blocks of 16 KiB into 64 KiB, so an honest
/// delta would have to shrink to a sixty-fourth.
const DELTA_BYTES_MAX: usize = 4 * 1_024 * 1_024;

/// `0xb053`, the first two bytes of chitchat's frames.
const MAGIC: u16 = 45_139;
const VERSION: u8 = 0;

const SYN: u8 = 0;
const SYN_ACK: u8 = 1;
const ACK: u8 = 2;
const BAD_CLUSTER: u8 = 3;

const OP_NODE: u8 = 0;
const OP_KEY_VALUE: u8 = 1;
const OP_MAX_VERSION: u8 = 2;

/// The greatest code of what becomes of a key: set, deleted, deleted after a while.
const STATUS_MAX: u8 = 2;

/// What the checks need to know of this node and of what it holds.
pub(crate) struct Vet {
    cluster_id: String,
    node_id: String,
    /// The generation under which this node gossips.
    generation: AtomicU64,
    /// The nodes held. A plain lock: it is held for the length of a table walk, by the connections'
    /// tasks and once per round.
    known: Mutex<HashMap<ChitchatId, Holding>>,
}

/// What is held of one life of a node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Holding {
    /// Keys, deleted ones included.
    pub(crate) keys: usize,
    /// Whether it is told on. A life that is long over is held for a while and told to nobody.
    pub(crate) is_shared: bool,
}

/// What a frame names.
#[derive(Default)]
struct Named {
    /// Nodes in the digest.
    nodes: HashSet<ChitchatId>,
    /// Keys in the delta, by node.
    keys: HashMap<ChitchatId, usize>,
}

impl Vet {
    pub(crate) fn new(cluster_id: &str, node_id: &str, generation: u64) -> Self {
        Self {
            cluster_id: cluster_id.to_owned(),
            node_id: node_id.to_owned(),
            generation: AtomicU64::new(generation),
            known: Mutex::new(HashMap::new()),
        }
    }

    /// Tells under which generation this node gossips from here on.
    pub(crate) fn live_as(&self, generation: u64) {
        self.generation.store(generation, Ordering::Relaxed);
    }

    /// Tells which nodes are held; what passed in between and was not kept is forgotten. Returns the
    /// size of their digest.
    pub(crate) fn hold(&self, held: HashMap<ChitchatId, Holding>) -> usize {
        let bytes = shared(&held).map(digest_bytes).sum();
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = held;
        bytes
    }

    /// Says whether chitchat may see the frame. Nothing but the table of nodes held is changed,
    /// and only by a frame that passes.
    ///
    /// # Errors
    /// With the reason if it may not.
    pub(crate) fn check(&self, frame: &[u8]) -> Result<(), Reject> {
        let mut reader = Reader::new(frame);
        if reader.u16()? != MAGIC || reader.u8()? != VERSION {
            return Err(Reject::Undecodable);
        }
        let mut named = Named::default();
        match reader.u8()? {
            SYN => {
                self.digest(&mut reader, &mut named)?;
                if reader.text(u16::MAX.into())? != self.cluster_id {
                    return Err(Reject::WrongCluster);
                }
            }
            SYN_ACK => {
                self.digest(&mut reader, &mut named)?;
                self.delta(&mut reader, &mut named)?;
            }
            ACK => self.delta(&mut reader, &mut named)?,
            // An honest peer of another fleet does not get through the handshake.
            BAD_CLUSTER => return Err(Reject::WrongCluster),
            _ => return Err(Reject::Undecodable),
        }
        reader.end()?;
        self.admit(named)
    }

    fn digest(&self, reader: &mut Reader<'_>, named: &mut Named) -> Result<(), Reject> {
        let count = usize::from(reader.u16()?);
        if count > NODES_MAX {
            return Err(Reject::Oversize);
        }
        for _ in 0..count {
            named.nodes.insert(node(reader)?);
            for _ in ["heartbeat", "last collected version", "greatest version"] {
                number(reader)?;
            }
        }
        Ok(())
    }

    fn delta(&self, reader: &mut Reader<'_>, named: &mut Named) -> Result<(), Reject> {
        let unpacked = reader::unpack(reader, DELTA_BYTES_MAX)?;
        let mut ops = Reader::new(&unpacked);
        let mut current: Option<NodeDelta> = None;
        while !ops.is_empty() {
            match ops.u8()? {
                OP_NODE => {
                    let id = self.delta_node(&mut ops, named)?;
                    current = Some(NodeDelta { id, version: 0, is_ended: false });
                }
                OP_KEY_VALUE => {
                    let delta = current.as_mut().ok_or(Reject::Undecodable)?;
                    delta.key_value(&mut ops)?;
                    *named.keys.entry(delta.id.clone()).or_default() += 1;
                }
                OP_MAX_VERSION => {
                    let delta = current.as_mut().ok_or(Reject::Undecodable)?;
                    delta.max_version(&mut ops)?;
                }
                _ => return Err(Reject::Undecodable),
            }
        }
        Ok(())
    }

    fn delta_node(&self, ops: &mut Reader<'_>, named: &mut Named) -> Result<ChitchatId, Reject> {
        let id = node(ops)?;
        number(ops)?;
        number(ops)?;
        // Nobody but this node writes its present state. A greater generation may be another process
        // under this node's name, which has to be seen to be told of.
        let own_generation = self.generation.load(Ordering::Relaxed);
        if *id.node_id == *self.node_id && id.generation_id == own_generation {
            return Err(Reject::Identity);
        }
        match named.keys.insert(id.clone(), 0) {
            Some(_) => Err(Reject::Undecodable),
            None if named.keys.len() > NODES_MAX => Err(Reject::Oversize),
            None => Ok(id),
        }
    }

    /// Lets the nodes in that the frame names, if they fit beside those that are held.
    fn admit(&self, named: Named) -> Result<(), Reject> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |(id, keys): (&ChitchatId, &usize)| {
            known.get(id).is_some_and(|held| held.keys + keys > KEYS_MAX)
        };
        if named.keys.iter().any(is_full) || named.keys.values().any(|keys| *keys > KEYS_MAX) {
            return Err(Reject::Oversize);
        }
        // What is not told on any more has its place to find again.
        let is_shared = |id: &ChitchatId| known.get(id).is_some_and(|held| held.is_shared);
        let strangers: Vec<_> = named.nodes.into_iter().filter(|id| !is_shared(id)).collect();
        if strangers.is_empty() {
            return Ok(());
        }
        let bytes: usize = shared(&known).chain(&strangers).map(digest_bytes).sum();
        let count = shared(&known).count() + strangers.len();
        if count > NODES_MAX || bytes > DIGEST_BYTES_MAX {
            return Err(Reject::Oversize);
        }
        for id in strangers {
            known.entry(id).or_default().is_shared = true;
        }
        Ok(())
    }
}

/// The nodes that go into a digest.
fn shared(held: &HashMap<ChitchatId, Holding>) -> impl Iterator<Item = &ChitchatId> {
    held.iter().filter(|(_, held)| held.is_shared).map(|(id, _)| id)
}

/// The part of a delta that is about one node.
struct NodeDelta {
    id: ChitchatId,
    /// The greatest version of a key so far.
    version: u64,
    /// Whether the greatest version was stated, after which nothing may follow.
    is_ended: bool,
}

impl NodeDelta {
    fn key_value(&mut self, ops: &mut Reader<'_>) -> Result<(), Reject> {
        let key = ops.text(KEY_BYTES_MAX)?;
        // chitchat cuts keys after their first byte, which must not be inside a character.
        let is_cut_well = key.bytes().next().is_some_and(|first| first.is_ascii_graphic());
        if !is_cut_well || key.chars().any(char::is_control) {
            return Err(Reject::Implausible);
        }
        ops.text(VALUE_BYTES_MAX)?;
        let version = number(ops)?;
        let status = ops.u8()?;
        if self.is_ended || version <= self.version || status > STATUS_MAX {
            return Err(Reject::Undecodable);
        }
        self.version = version;
        Ok(())
    }

    /// chitchat states a greatest version only where no key does, and takes its word for it.
    fn max_version(&mut self, ops: &mut Reader<'_>) -> Result<(), Reject> {
        number(ops)?;
        if self.is_ended || self.version > 0 {
            return Err(Reject::Undecodable);
        }
        self.is_ended = true;
        Ok(())
    }
}

fn node(reader: &mut Reader<'_>) -> Result<ChitchatId, Reject> {
    let node_id = reader.text(NODE_ID_BYTES_MAX)?;
    let generation = number(reader)?;
    let address = reader.address()?;
    if node_id.is_empty() || address.port() == 0 || !is_place(address.ip()) {
        return Err(Reject::Implausible);
    }
    Ok(ChitchatId::new(node_id, generation, address))
}

fn number(reader: &mut Reader<'_>) -> Result<u64, Reject> {
    match reader.u64()? {
        number if number <= NUMBER_MAX => Ok(number),
        _ => Err(Reject::Implausible),
    }
}

/// Whether one node may be reached there.
pub(crate) fn is_place(ip: IpAddr) -> bool {
    !ip.is_unspecified() && !ip.is_multicast() && ip != Ipv4Addr::BROADCAST
}

fn digest_bytes(id: &ChitchatId) -> usize {
    let address_bytes = match id.gossip_advertise_addr {
        SocketAddr::V4(_) => 4,
        SocketAddr::V6(_) => 16,
    };
    DIGEST_ENTRY_BYTES + id.node_id.len() + address_bytes
}

#[cfg(test)]
mod tests;
