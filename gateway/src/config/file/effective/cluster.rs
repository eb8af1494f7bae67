//! The fleet's settings and those of its Redis, as they are written.

use quorum::Denominator;

use super::{duration, masked, number, optional, optional_path, optional_text, path, text, texts};
use crate::config::file::{
    ClusterSection, ClusterTlsSection, Given, QuorumSection, RedisSection, RedisTlsSection,
};
use crate::config::{
    Backend, Cluster, ClusterTls, OnUnavailable, QuorumConfig, Redis, RedisMode, RedisTls, Wire,
};

pub(super) fn cluster(cluster: &Cluster) -> ClusterSection {
    let section = ClusterSection {
        id: text(&cluster.id),
        node_id: text(&cluster.node_id),
        backend: text(match cluster.backend {
            Backend::Gossip => "gossip",
            Backend::Redis(_) => "redis",
        }),
        gossip: number(cluster.gossip.is_some()),
        gossip_interval: duration(cluster.gossip_interval),
        quorum: Given::written(quorum(&cluster.quorum)),
        ..ClusterSection::default()
    };
    match &cluster.gossip {
        None => section,
        Some(Wire { listen, advertise, seeds, tls, push }) => ClusterSection {
            listen: text(&listen.to_string()),
            advertise: text(advertise),
            seeds: texts(seeds),
            tls: Given::written(cluster_tls(tls)),
            push: number(push),
            ..section
        },
    }
}

fn cluster_tls(tls: &ClusterTls) -> ClusterTlsSection {
    match tls {
        ClusterTls::Insecure => {
            ClusterTlsSection { insecure: text("true"), ..ClusterTlsSection::default() }
        }
        ClusterTls::Files { ca, cert, key } => ClusterTlsSection {
            ca: path(ca),
            cert: path(cert),
            key: path(key),
            insecure: Given::default(),
        },
    }
}

fn quorum(quorum: &QuorumConfig) -> QuorumSection {
    QuorumSection {
        expected_members: number(quorum.expected_members),
        member_grace: duration(quorum.member_grace),
        max_open: duration(quorum.max_open),
        observe: duration(quorum.observe),
        of: text(match quorum.of {
            Denominator::Members => "members",
            Denominator::Observers => "observers",
        }),
        suspect_unready: number(quorum.suspect_unready),
        max_open_share: number(f64::from(quorum.max_open_share_milli) / 1_000.0),
    }
}

pub(super) fn redis(redis: &Redis) -> RedisSection {
    let (mode, master) = match &redis.mode {
        RedisMode::Standalone => ("standalone", None),
        RedisMode::Sentinel { master } => ("sentinel", Some(master)),
        RedisMode::Cluster => ("cluster", None),
    };
    RedisSection {
        urls: texts(&redis.urls),
        mode: text(mode),
        master: optional_text(master),
        prefix: text(&redis.prefix),
        timeout: duration(redis.timeout),
        username: optional_text(redis.username.as_ref()),
        password: masked(redis.password.as_ref()),
        sentinel_password: masked(redis.sentinel_password.as_ref()),
        tls: optional(redis.tls.as_ref().filter(|tls| **tls != RedisTls::default()), |tls| {
            let RedisTls { ca, cert, key } = tls;
            RedisTlsSection {
                ca: optional_path(ca.as_ref()),
                cert: optional_path(cert.as_ref()),
                key: optional_path(key.as_ref()),
            }
        }),
        on_unavailable: text(match redis.on_unavailable {
            OnUnavailable::Gossip => "gossip",
            OnUnavailable::Local => "local",
            OnUnavailable::FailClosed => "fail_closed",
        }),
    }
}
