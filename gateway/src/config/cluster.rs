//! The settings of the fleet: who this node is in it, how it speaks to the others, and what decides.
//!
//! Invariants: a fleet without gossip has Redis; what gossip needs is given together or not at all.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use quorum::Denominator;

use super::Secret;

/// The fleet this node belongs to, and how it speaks to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Name of the fleet, equal on all its nodes; 1 to 63 of `[A-Za-z0-9._-]`.
    pub id: String,
    /// Name of this node, unique in the fleet and the name in its certificate; 1 to 63 of
    /// `[a-z0-9.-]`.
    pub node_id: String,
    /// What decides about the fleet's endpoints.
    pub backend: Backend,
    /// How the nodes gossip; `None`: they do not, and Redis alone brings their words.
    pub gossip: Option<Wire>,
    /// Time between two rounds of gossip; 50 ms to 60 s, 1 s by default. Without gossip, between two
    /// signs of life.
    pub gossip_interval: Duration,
    /// When a majority is one.
    pub quorum: QuorumConfig,
}

/// How the nodes of a fleet reach each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wire {
    /// Where the other nodes' packets arrive (UDP).
    pub listen: SocketAddr,
    /// What the other nodes are told to connect to, as `host:port`; `listen` by default (its port 0
    /// then stands for the port that was bound).
    pub advertise: String,
    /// Nodes to ask first, as `host:port`; at most [`SEEDS_MAX`](super::SEEDS_MAX).
    pub seeds: Vec<String>,
    /// How the nodes know each other.
    pub tls: ClusterTls,
    /// Whether news is also sent directly to all live members; true by default. Without it gossip
    /// alone brings it, within two intervals.
    pub push: bool,
}

/// What decides about the fleet's endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// The members' majority, as gossip shows it to each.
    #[default]
    Gossip,
    /// The members' majority, counted in Redis.
    Redis(Box<Redis>),
}

/// The Redis in which a fleet decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redis {
    /// Where it is reached, as `redis://host:port` or, by TLS, `rediss://host:port`, all alike;
    /// 1 to [`REDIS_URLS_MAX`](super::REDIS_URLS_MAX), and one only where it stands alone.
    pub urls: Vec<String>,
    /// What kind of Redis it is.
    pub mode: RedisMode,
    /// How every key begins; 1 to 64 of `[A-Za-z0-9._:-]`, `quorumgate` by default.
    pub prefix: String,
    /// How long an answer may take; 10 ms to 1 s, 100 ms by default.
    pub timeout: Duration,
    /// The user by whose rights it is spoken to; `None`: the default one.
    pub username: Option<String>,
    /// What the user shows.
    pub password: Option<Secret>,
    /// What the sentinels are shown.
    pub sentinel_password: Option<Secret>,
    /// How it is known by TLS; `None`: it is spoken to in the clear.
    pub tls: Option<RedisTls>,
    /// What decides while it is away.
    pub on_unavailable: OnUnavailable,
}

/// What kind of Redis it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RedisMode {
    /// One server.
    #[default]
    Standalone,
    /// One server of several, of which the sentinels at the addresses tell.
    Sentinel {
        /// What the sentinels call it.
        master: String,
    },
    /// A cluster, some of whose nodes are at the addresses.
    Cluster,
}

/// How Redis is known by TLS, and this node to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedisTls {
    /// Certificates of the authority (PEM); `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// Certificate of this node (PEM), given together with `key`.
    pub cert: Option<PathBuf>,
    /// Its private key (PEM).
    pub key: Option<PathBuf>,
}

/// What decides while Redis is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnUnavailable {
    /// The majority, as gossip shows it.
    #[default]
    Gossip,
    /// Each node's own breaker.
    Local,
    /// Nobody: every request for a model is refused.
    FailClosed,
}

impl Cluster {
    /// The Redis in which the fleet decides, if it does.
    #[must_use]
    pub fn redis(&self) -> Option<&Redis> {
        match &self.backend {
            Backend::Gossip => None,
            Backend::Redis(redis) => Some(redis),
        }
    }
}

/// How the nodes of a fleet know each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterTls {
    /// Both sides show a certificate signed by the fleet's authority.
    Files {
        /// Certificates of the authority (PEM).
        ca: PathBuf,
        /// Certificate of this node (PEM).
        cert: PathBuf,
        /// Private key of this node (PEM).
        key: PathBuf,
    },
    /// Nobody proves anything; for a trial on loopback, and only when asked for by name.
    Insecure,
}

/// When a majority of the fleet is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumConfig {
    /// The electorate is never taken to be smaller than this; 0 sets no floor, at most 1,000.
    pub expected_members: usize,
    /// How long a lost member still counts; 60 s by default.
    pub member_grace: Duration,
    /// Longest time an opening by the fleet lasts if nobody ends it; 30 min by default.
    pub max_open: Duration,
    /// How long a node only watches after a start or a pause; 3 s by default.
    pub observe: Duration,
    /// Who forms the denominator; all members by default.
    pub of: Denominator,
    /// The largest share of a pool that votes may have out at once, in thousandths, 1 to 1,000;
    /// 1,000 by default. At least one endpoint may always be out.
    pub max_open_share_milli: u32,
    /// Whether a node that suspects itself says that it is not ready; not by default.
    pub suspect_unready: bool,
}
