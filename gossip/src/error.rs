//! Why a carrier cannot start.
//!
//! Only the start can fail: what goes wrong later is counted, logged and survived.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::Config;
use crate::vet::{NUMBER_MAX, is_place};

/// Names longer than this are no DNS names, hence in no certificate.
pub(crate) const NODE_ID_BYTES_MAX: usize = 253;

/// Leaves room for the rest of the protocol name, which has at most 255 bytes.
const CLUSTER_ID_BYTES_MAX: usize = 128;

/// The most seeds of a node: a fleet needs a few, not all its members.
pub const SEEDS_MAX: usize = 256;

/// Below this the rounds would overlap.
const GOSSIP_INTERVAL_MIN: Duration = Duration::from_millis(10);

/// Why a carrier cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GossipError {
    /// A value is out of its bounds.
    #[error("{what} is out of its bounds ({bounds})")]
    Configure {
        /// The value.
        what: &'static str,
        /// What it may be.
        bounds: &'static str,
    },
    /// A certificate or key cannot be read.
    #[error("cannot read {}", path.display())]
    ReadFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file holds no certificate or key in PEM.
    #[error("{} holds no usable {what}", path.display())]
    ParsePem {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
    },
    /// The node's certificate is made out to another name.
    #[error("the certificate is made out to {found:?}, not to the node id {wanted:?}")]
    CertificateName {
        /// The first DNS name in the certificate.
        found: String,
        /// The node id.
        wanted: String,
    },
    /// Certificate and key cannot be used together, or the CA cannot be used.
    #[error("cannot use the certificates")]
    UseCertificates {
        /// What rustls said.
        #[source]
        source: rustls::Error,
    },
    /// Throw-away certificates cannot be made.
    #[error("cannot make a throw-away certificate")]
    MakeCertificate {
        /// What rcgen said.
        #[source]
        source: rcgen::Error,
    },
    /// The address cannot be bound.
    #[error("cannot bind {address}/udp")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// Checks what a type cannot say.
pub(crate) fn check(config: &Config) -> Result<(), GossipError> {
    let bounded = |holds: bool, what, bounds| match holds {
        true => Ok(()),
        false => Err(GossipError::Configure { what, bounds }),
    };
    let cluster = config.cluster_id.len();
    let node = config.node_id.len();
    bounded((1..=CLUSTER_ID_BYTES_MAX).contains(&cluster), "cluster_id", "1–128 bytes")?;
    bounded((1..=NODE_ID_BYTES_MAX).contains(&node), "node_id", "1–253 bytes")?;
    let is_plain = |name: &str| !name.chars().any(char::is_control);
    bounded(is_plain(&config.cluster_id), "cluster_id", "without control characters")?;
    bounded(is_plain(&config.node_id), "node_id", "without control characters")?;
    bounded(config.generation <= NUMBER_MAX, "generation", "at most 2^53")?;
    bounded(config.gossip_interval >= GOSSIP_INTERVAL_MIN, "gossip_interval", "at least 10 ms")?;
    // Peers would refuse every frame that names such a place.
    let literal: Option<SocketAddr> = config.advertise.parse().ok();
    let is_reachable = literal.is_none_or(|address| is_place(address.ip()));
    bounded(is_reachable, "advertise", "where one node can be reached")?;
    bounded(config.seeds.len() <= SEEDS_MAX, "seeds", "at most 256")
}
