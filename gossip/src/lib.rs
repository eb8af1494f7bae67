//! What gateway nodes tell each other: votes, steps and overrides, by gossip and by direct push.
//!
//! A carrier is one function with channels, [`start`]: *mine* (what this node states) goes in and
//! *ours* (what the fleet states) comes out, both as whole sets, so that repetition, reordering and
//! restart are harmless. Membership and repair are chitchat's; what is new is also pushed at once
//! to all live members, so that the usual flip takes one network round trip.
//!
//! # The parts
//! - `transport`: frames over QUIC with mutual TLS; `tls` makes its configurations, and [`certs`]
//!   makes certificates for people who have none.
//! - `vet`: looks at every frame before chitchat's decoder does.
//! - `records` and `codec`: one statement as text and as bytes; `codec` alone knows bincode.
//! - `seal`: signs each record, and checks who wrote it.
//! - [`set`]: all that a node states as one value, for carriers other than this.
//! - `push`: what came directly, until gossip has brought it too.
//! - `node`: the loop that joins the parts and supervises chitchat.
//! - [`generation`]: a number that grows with every restart.
//!
//! # How large a fleet may be
//! Each round of gossip begins with a digest that names every life of every node, also of those that
//! went in the last seven minutes and a half, and a digest must fit one frame: it may have
//! [`DIGEST_BYTES_MAX`] bytes and 1,024 lives, which are 716 with names of 26 bytes and IPv4. So 350
//! such members may all be replaced within that time. When nine tenths are reached an error is
//! logged; at the limit, which [`Stats::digest_bytes`] shows, further nodes stay out until old lives
//! are forgotten. `cargo run -p gossip --example size` prints the figures.
//!
//! # Invariants
//! - No data-plane code waits for anything in here.
//! - A frame from a peer whose certificate the CA did not sign is never looked at.
//! - Every queue and table has a bound; a full one drops and counts.
//! - A statement is replaced only by one of the same writer with a greater number.
//! - With certificates, what a member is shown to state is what it has signed, whoever passed it on.
//! - Who knows a member's pulse knows all that the member had stated when it raised it; a push may
//!   bring a statement sooner and never brings a pulse.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quorum::NodeId;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

pub mod certs;
mod codec;
mod error;
pub mod generation;
mod node;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod promises;
mod push;
mod records;
mod seal;
pub mod set;
mod stats;
mod tls;
mod transport;
mod vet;

pub use error::{GossipError, SEEDS_MAX};
pub use stats::{Reject, Stats};
pub use vet::DIGEST_BYTES_MAX;

/// Commands that may wait for the carrier.
const COMMANDS_MAX: usize = 16;

/// Pushed frames that may wait for the carrier; what is beyond is left to gossip.
const PUSHES_MAX: usize = 256;

/// What the carrier is told once, at its start.
#[derive(Clone, Debug)]
pub struct Config {
    /// The fleet: nodes of another fleet are refused in the handshake. 1–128 bytes.
    pub cluster_id: String,
    /// This node's name, unique in the fleet; with certificates, the first DNS name in its own.
    /// 1–253 bytes.
    pub node_id: String,
    /// Grows with every restart, see [`generation::next`]. At most 2^53.
    pub generation: u64,
    /// The UDP address to bind. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// `host:port` at which peers reach this node; resolved at the start and retried until it
    /// answers. Port 0 stands for the bound port. Not `0.0.0.0`, which is nowhere.
    pub advertise: String,
    /// `host:port` names or addresses of peers, resolved again and again. At most 256.
    pub seeds: Vec<String>,
    /// The time between two rounds of gossip, at least 10 ms. One second suits up to 200 members.
    pub gossip_interval: Duration,
    /// Who may talk to this node.
    pub tls: Tls,
    /// Whether news is also sent directly to all live members. What they send is taken anyway.
    pub push: bool,
}

/// Who may talk to this node.
#[derive(Clone, Debug)]
pub enum Tls {
    /// Nodes with a certificate of the same CA. All three files are PEM.
    Files {
        /// The certificates that sign the nodes' certificates.
        ca: PathBuf,
        /// This node's certificate, followed by intermediates if any: 4 KB together, since it travels
        /// with what the node states.
        cert: PathBuf,
        /// This node's private key, with which it also signs what it states: Ed25519, ECDSA on P-256
        /// or P-384, or RSA of at most 4,096 bits.
        key: PathBuf,
    },
    /// Anybody who reaches the port. Encrypted, but nobody is who it says it is, and nothing is
    /// signed: anybody can state anything in any member's name.
    Insecure,
}

/// What this node states, as a whole set.
#[derive(Clone, Debug, Default)]
pub struct Mine {
    /// What it says of itself; `None` until it is known.
    pub card: Option<quorum::Card>,
    /// What it states about endpoints. At most 4,096 are carried.
    pub stated: Vec<quorum::Stated>,
    /// Grows while the node stands by what it states; 0 before the first. It is carried by gossip
    /// alone, after all else of the same set, so that whoever knows a member's pulse knows all that
    /// the member had stated, and taken back, when it raised it. At most 2^53.
    pub pulse: u64,
}

/// What the fleet states, as a whole set.
#[derive(Clone, Debug, Default)]
pub struct Ours {
    /// All members that are known, live or not, without this node, by name.
    pub members: Vec<quorum::Member>,
    /// How many times the set has been published.
    pub at: u64,
    /// The address of a process that goes under this node's name with a greater generation, while
    /// it lives: this node has given way to it, and states nothing but its card.
    pub duplicate: Option<String>,
    /// When a sign of life of each member last came, for people: nothing is decided by it.
    pub beats: BTreeMap<NodeId, Instant>,
}

/// The handle of a running carrier.
#[derive(Debug)]
pub struct Carrier {
    /// The newest set. It is published when something comes in and at every gossip interval.
    pub ours: watch::Receiver<Ours>,
    /// What has been counted.
    pub stats: Arc<Stats>,
    /// Orders to the carrier.
    pub commands: mpsc::Sender<Command>,
    /// The bound UDP address.
    pub local_addr: SocketAddr,
}

/// An order to a running carrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Gossip with these `host:port` too, from here on.
    Join(Vec<String>),
    /// Read the certificates again at once instead of within half a minute.
    ReloadCertificates,
}

/// Binds the UDP socket and returns the handle and the future that carries until `stop` holds
/// `true` (or its sender is gone). Dropping the future ends everything at once, without a word to
/// the peers.
///
/// A caller that leaves for good sets its card to `Left` in `mine` before it stops: the future
/// then publishes and pushes `mine` once more and takes at most two seconds to end.
///
/// # Errors
/// If the configuration is out of its bounds, a certificate or key cannot be read or used, or the
/// address cannot be bound. Nothing runs then.
pub async fn start(
    config: Config,
    mine: watch::Receiver<Mine>,
    stop: watch::Receiver<bool>,
) -> Result<(Carrier, impl Future<Output = ()> + Send + use<>), GossipError> {
    error::check(&config)?;
    let stats = Arc::new(Stats::default());
    let (pushes_in, pushes) = mpsc::channel(PUSHES_MAX);
    let (commands_in, commands) = mpsc::channel(COMMANDS_MAX);
    let (ours_in, ours) = watch::channel(Ours::default());
    let (net, authority) = transport::bind(&config, Arc::clone(&stats), pushes_in)?;
    let seals = seal::Seals::new(&config.cluster_id, authority);
    let local_addr = net.local_addr();
    let channels = node::Channels { mine, stop, commands, pushes, ours: ours_in };
    let node = node::Node::new(config, (net, seals), Arc::clone(&stats), channels);
    let carrier = Carrier { ours, stats, commands: commands_in, local_addr };
    Ok((carrier, node.run()))
}
