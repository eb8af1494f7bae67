//! The settings of the fleet: who this node is, whom it asks, how it proves itself.
//!
//! A node that announces an address nobody can reach, or speaks in the clear because a file name
//! was forgotten, is worse than one that does not start.
//!
//! Invariants: plaintext only with `insecure: true`; the announced address names one host; what decides
//! is there, and something decides while that is away.

mod redis;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use quorum::Denominator;

use super::{choice, listen, time};
use crate::config::address::host_and_port;
use crate::config::error::ConfigError;
use crate::config::file::{ClusterSection, ClusterTlsSection, File, Given, QuorumSection};
use crate::config::form::Form;
use crate::config::scalar::{Refusal, duration, fraction, name, truth, whole};
use crate::config::section::Section;
use crate::config::{Backend, Cluster, ClusterTls, QuorumConfig, Wire};

/// Longest name of a fleet or a node, in bytes: that of a DNS label, since a node's name is the
/// name in its certificate.
const NAME_BYTES_MAX: usize = 63;
const GOSSIP_INTERVAL: Duration = Duration::from_secs(1);
const GOSSIP_INTERVAL_MIN: Duration = Duration::from_millis(50);
const GOSSIP_INTERVAL_MAX: Duration = Duration::from_secs(60);
/// More members than any fleet that was tried.
const EXPECTED_MEMBERS_MAX: usize = 1_000;
const MEMBER_GRACE: Duration = Duration::from_secs(60);
const MAX_OPEN: Duration = Duration::from_secs(30 * 60);
/// A share of all, in thousandths.
const SHARE_FULL_MILLI: u32 = 1_000;
const OBSERVE: Duration = Duration::from_secs(3);

/// Reads `cluster` and the Redis that it names; `None` if it is left out.
pub(super) fn cluster(root: &Section<'_>, file: &File) -> Result<Option<Cluster>, ConfigError> {
    let Some(raw) = file.cluster.get() else {
        redis::of_no_use(root, &file.redis, "without a cluster section")?;
        return Ok(None);
    };
    let section = root.child("cluster", &file.cluster);
    let backend = section.or("backend", &raw.backend, Word::Gossip, |text| choice(text, &WORDS))?;
    let is_gossiping = section.or("gossip", &raw.gossip, true, truth)?;
    let gossip = match is_gossiping {
        true => Some(wire(&section, raw)?),
        false => silent(&section, raw, backend)?,
    };
    let backend = match backend {
        Word::Gossip => {
            redis::of_no_use(root, &file.redis, "with cluster.backend: gossip")?;
            Backend::Gossip
        }
        Word::Redis => Backend::Redis(Box::new(redis::redis(root, &file.redis, is_gossiping)?)),
    };
    Ok(Some(Cluster {
        id: section.required("id", &raw.id, "name the fleet, for example prod", |text| {
            name(text, NAME_BYTES_MAX, "._-")
        })?,
        node_id: section.required(
            "node_id",
            &raw.node_id,
            "name this node, for example ${HOSTNAME}",
            node_name,
        )?,
        gossip_interval: interval(&section, raw, &backend)?,
        backend,
        gossip,
        quorum: quorum(&section, &raw.quorum)?,
    }))
}

/// Reads how often the nodes speak. An answer of the ledger that is older than an interval is none: a
/// Redis that may take longer than that would never have answered.
fn interval(
    section: &Section<'_>,
    raw: &ClusterSection,
    backend: &Backend,
) -> Result<Duration, ConfigError> {
    let given = &raw.gossip_interval;
    let interval = section.or("gossip_interval", given, GOSSIP_INTERVAL, |text| {
        duration(text, GOSSIP_INTERVAL_MIN..=GOSSIP_INTERVAL_MAX)
    })?;
    match backend {
        Backend::Redis(redis) if interval < redis.timeout => {
            let problem = "is shorter than redis.timeout: answers would come too late to count";
            let cure = "lengthen it, or shorten redis.timeout";
            Err(section.refuse("gossip_interval", given.place(), problem, cure))
        }
        Backend::Redis(_) | Backend::Gossip => Ok(interval),
    }
}

/// What `backend` says.
#[derive(Clone, Copy)]
enum Word {
    Gossip,
    Redis,
}

const WORDS: [(&str, Word); 2] = [("gossip", Word::Gossip), ("redis", Word::Redis)];

/// Reads what gossip needs.
fn wire(section: &Section<'_>, raw: &ClusterSection) -> Result<Wire, ConfigError> {
    let Some(listen) = section.optional("listen", &raw.listen, listen)? else {
        return Err(section.refuse("listen", None, "is missing", "write IP:PORT"));
    };
    let mut seeds = Vec::new();
    for (index, entry) in raw.seeds.entries().iter().enumerate() {
        seeds.push(section.entry("seeds", index, entry, host_and_port)?);
    }
    Ok(Wire {
        listen,
        advertise: advertise(section, raw, listen)?,
        seeds,
        tls: tls(section, &raw.tls)?,
        push: section.or("push", &raw.push, true, truth)?,
    })
}

/// Makes sure that a fleet without gossip has Redis, and nothing that only gossip uses.
fn silent(
    section: &Section<'_>,
    raw: &ClusterSection,
    backend: Word,
) -> Result<Option<Wire>, ConfigError> {
    if matches!(backend, Word::Gossip) {
        let problem = "false leaves the nodes with no way to speak to each other";
        let cure = "write backend: redis beside it, or let them gossip";
        return Err(section.refuse("gossip", raw.gossip.place(), problem, cure));
    }
    let given = [
        ("listen", raw.listen.place()),
        ("advertise", raw.advertise.place()),
        ("seeds", raw.seeds.place()),
        ("tls", raw.tls.place()),
        ("push", raw.push.place()),
    ];
    match given.into_iter().find_map(|(key, place)| place.map(|place| (key, place))) {
        None => Ok(None),
        Some((key, place)) => {
            let problem = "is of no use with gossip: false";
            Err(section.refuse(key, Some(place), problem, "remove one of the two"))
        }
    }
}

fn node_name(text: &str) -> Result<String, Refusal> {
    let is_allowed = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'.' || byte == b'-'
    };
    let is_whole =
        |label: &str| !label.is_empty() && !label.starts_with('-') && !label.ends_with('-');
    let is_name = text.len() <= NAME_BYTES_MAX
        && text.bytes().all(is_allowed)
        && text.split('.').all(is_whole);
    if is_name {
        return Ok(text.to_owned());
    }
    Err(Refusal::new("is not a node name", "use 1 to 63 of a-z, 0-9, . and -, as in a host name"))
}

fn advertise(
    section: &Section<'_>,
    raw: &ClusterSection,
    listen: SocketAddr,
) -> Result<String, ConfigError> {
    if let Some(address) = section.optional("advertise", &raw.advertise, host_and_port)? {
        return Ok(address);
    }
    if listen.ip().is_unspecified() {
        return Err(section.refuse(
            "advertise",
            raw.listen.place(),
            "is missing, and other nodes cannot connect to the address in cluster.listen",
            "write the address they reach, for example ${POD_IP}:7946",
        ));
    }
    Ok(listen.to_string())
}

fn tls(section: &Section<'_>, given: &Given<ClusterTlsSection>) -> Result<ClusterTls, ConfigError> {
    const CURE: &str = "name ca, cert and key, or for a trial on loopback write insecure: true";
    let Some(raw) = given.get() else {
        return Err(section.refuse("tls", None, "is missing", CURE));
    };
    let tls = section.child("tls", given);
    let file = |key, given| tls.optional(key, given, |text| Ok(PathBuf::from(text)));
    let files = (file("ca", &raw.ca)?, file("cert", &raw.cert)?, file("key", &raw.key)?);
    let is_insecure = tls.or("insecure", &raw.insecure, false, truth)?;
    match (files, is_insecure) {
        ((Some(ca), Some(cert), Some(key)), false) => Ok(ClusterTls::Files { ca, cert, key }),
        ((None, None, None), true) => Ok(ClusterTls::Insecure),
        (_, true) => {
            let place = raw.insecure.place();
            let problem = "true contradicts the files beside it";
            Err(tls.refuse("insecure", place, problem, "keep one of the two"))
        }
        (_, false) => Err(tls.refuse("", None, "is incomplete", CURE)),
    }
}

fn denominator(text: &str) -> Result<Denominator, Refusal> {
    match text {
        "members" => Ok(Denominator::Members),
        "observers" => Ok(Denominator::Observers),
        _ => Err(Refusal::new(
            "is not a denominator",
            "write members, or observers for those with traffic to the endpoint",
        )
        .of(Form::words(&["members", "observers"]))),
    }
}

fn share_milli(text: &str) -> Result<u32, Refusal> {
    let share = fraction(text)?;
    if share <= 0.0 || share > 1.0 {
        return Err(Refusal::new("is out of range", "use more than 0, up to 1"));
    }
    // The conversion saturates; a share below a thousandth would mean no endpoint of any pool.
    Ok(((share * f64::from(SHARE_FULL_MILLI)).round() as u32).max(1))
}

fn quorum(
    section: &Section<'_>,
    given: &Given<QuorumSection>,
) -> Result<QuorumConfig, ConfigError> {
    let none = QuorumSection::default();
    let raw = given.get().unwrap_or(&none);
    let quorum = section.child("quorum", given);
    Ok(QuorumConfig {
        expected_members: quorum.or("expected_members", &raw.expected_members, 0, |text| {
            whole(text, 0..=EXPECTED_MEMBERS_MAX)
        })?,
        member_grace: time(&quorum, "member_grace", &raw.member_grace, MEMBER_GRACE)?,
        max_open: time(&quorum, "max_open", &raw.max_open, MAX_OPEN)?,
        observe: quorum.or("observe", &raw.observe, OBSERVE, |text| {
            duration(text, Duration::ZERO..=Duration::from_secs(300))
        })?,
        of: quorum.or("of", &raw.of, Denominator::Members, denominator)?,
        max_open_share_milli: quorum.or(
            "max_open_share",
            &raw.max_open_share,
            SHARE_FULL_MILLI,
            share_milli,
        )?,
        suspect_unready: quorum.or("suspect_unready", &raw.suspect_unready, false, truth)?,
    })
}
