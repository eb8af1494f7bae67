//! Why a gateway could not start, and what to do about it.
//!
//! An error says what failed and where; its causes are the libraries' and the system's, who know no cure.
//! Whoever prints it ends the line with [`StartError::cure`].

use std::io;
use std::net::SocketAddr;

use gossip::GossipError;
use redis_lua::error::RedisError;
use redis_lua::roll::RollError;
use rustix::io::Errno;

use crate::server::TlsError;
use crate::upstream::{self, RoadError};

/// Why a gateway could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The listener for clients.
    #[error("server.listen {address}")]
    Listen {
        /// What was to be bound.
        address: SocketAddr,
        /// Why it was not.
        source: io::Error,
    },
    /// The listener for operators.
    #[error("admin.listen {address}")]
    ListenAdmin {
        /// What was to be bound.
        address: SocketAddr,
        /// Why it was not.
        source: io::Error,
    },
    /// The certificate that clients are shown.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The way to an endpoint.
    #[error(transparent)]
    Road(#[from] RoadError),
    /// The way to the collector of traces.
    #[error("telemetry.otlp.endpoint")]
    Collector(#[from] upstream::TlsError),
    /// The way to the Redis in which the fleet decides.
    #[error("redis")]
    Redis(#[from] RedisError),
    /// The carrier of the cluster.
    #[error("cluster")]
    Gossip(#[from] GossipError),
    /// The carrier of the cluster through Redis.
    #[error("cluster")]
    Roll(#[from] RollError),
}

impl StartError {
    /// What to do about it; empty where the error says so itself.
    pub fn cure(&self) -> &'static str {
        match self {
            Self::Listen { source, .. } | Self::ListenAdmin { source, .. } => of_binding(source),
            Self::Gossip(error) => of_gossip(error),
            Self::Redis(RedisError::ReadFile { .. }) => {
                "check the path in redis.tls and who may read it"
            }
            Self::Redis(_) => "see redis in the configuration",
            Self::Roll(_) => "see cluster in the configuration",
            Self::Tls(_) | Self::Road(_) | Self::Collector(_) => "",
        }
    }
}

fn of_binding(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::ADDRINUSE) => "is the port taken? end who has it, or choose another",
        Some(Errno::ADDRNOTAVAIL) => {
            "no interface of this machine has that address (of IPv6: is it on?); 0.0.0.0 means all"
        }
        Some(Errno::AFNOSUPPORT) => "this machine has no IPv6; choose an address of IPv4",
        Some(Errno::ACCESS | Errno::PERM) => {
            "a port below 1024 needs CAP_NET_BIND_SERVICE; choose one above"
        }
        Some(Errno::MFILE | Errno::NFILE) => "raise the limit of open files",
        Some(_) | None => "choose another address",
    }
}

fn of_gossip(error: &GossipError) -> &'static str {
    match error {
        GossipError::ReadFile { .. } => {
            "check the paths in cluster.tls and who may read them; to make certificates: quorumgate \
             certs init, then quorumgate certs issue NODE"
        }
        GossipError::CertificateName { .. } => {
            "set cluster.node_id to that name, or make one: quorumgate certs issue NODE"
        }
        GossipError::ParsePem { .. } => "each file in cluster.tls is PEM: ca, cert, key",
        GossipError::UseCertificates { .. } => {
            "cluster.tls.key must be the key of cluster.tls.cert"
        }
        GossipError::Bind { source, .. } => of_binding(source),
        GossipError::Configure { .. } | GossipError::MakeCertificate { .. } => {
            "see cluster in the configuration"
        }
        // The enum is another crate's and may grow.
        _ => "",
    }
}
