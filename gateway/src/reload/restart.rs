//! Which settings a running process cannot take on.
//!
//! Listeners that stand are not moved, since whoever connects would find nobody there; the seat in the
//! fleet is one for life, since its name, address, rule and Redis are what the others reckon with. What
//! certificates hold is no setting: those of the cluster are read anew by the carrier itself.

use crate::config::{Cluster, Config, Redis, Wire};

/// The keys of `new` that differ from what the process was started with and cannot be taken on.
pub(super) fn keys(boot: &Config, new: &Config) -> Vec<&'static str> {
    // Taken apart by name: whoever adds a section has to say here whether it can be taken on.
    let Config {
        server,
        admin,
        cluster,
        state,
        log,
        telemetry,
        fail_closed: _,
        api_keys: _,
        retry: _,
        pools: _,
    } = boot;
    let mut keys: Vec<&'static str> = [
        ("server.listen", server.listen != new.server.listen),
        ("server.workers", server.workers != new.server.workers),
        ("server.tls", server.tls.is_some() != new.server.tls.is_some()),
        ("admin.listen", admin.listen != new.admin.listen),
        ("log.format", log.format != new.log.format),
        ("state", *state != new.state),
        ("telemetry", *telemetry != new.telemetry),
    ]
    .into_iter()
    .filter_map(|(key, differs)| differs.then_some(key))
    .collect();
    match (cluster, &new.cluster) {
        (None, None) => {}
        (Some(_), None) | (None, Some(_)) => keys.push("cluster"),
        (Some(old), Some(new)) => keys.extend(of_cluster(old, new)),
    }
    keys
}

fn of_cluster(old: &Cluster, new: &Cluster) -> Vec<&'static str> {
    let mut keys: Vec<&'static str> = [
        ("cluster.id", old.id != new.id),
        ("cluster.node_id", old.node_id != new.node_id),
        ("cluster.gossip_interval", old.gossip_interval != new.gossip_interval),
        ("cluster.quorum", old.quorum != new.quorum),
    ]
    .into_iter()
    .filter_map(|(key, differs)| differs.then_some(key))
    .collect();
    match (&old.gossip, &new.gossip) {
        (None, None) => {}
        (Some(_), None) | (None, Some(_)) => keys.push("cluster.gossip"),
        (Some(old), Some(new)) => keys.extend(of_gossip(old, new)),
    }
    match (old.redis(), new.redis()) {
        (None, None) => {}
        (Some(_), None) | (None, Some(_)) => keys.push("cluster.backend"),
        (Some(old), Some(new)) => keys.extend(of_redis(old, new)),
    }
    keys
}

fn of_gossip(old: &Wire, new: &Wire) -> impl Iterator<Item = &'static str> {
    let all = [
        ("cluster.listen", old.listen != new.listen),
        ("cluster.advertise", old.advertise != new.advertise),
        ("cluster.seeds", old.seeds != new.seeds),
        ("cluster.tls", old.tls != new.tls),
        ("cluster.push", old.push != new.push),
    ];
    all.into_iter().filter_map(|(key, differs)| differs.then_some(key))
}

fn of_redis(old: &Redis, new: &Redis) -> impl Iterator<Item = &'static str> {
    let all = [
        ("redis.urls", old.urls != new.urls),
        ("redis.mode", old.mode != new.mode),
        ("redis.prefix", old.prefix != new.prefix),
        ("redis.timeout", old.timeout != new.timeout),
        ("redis.username", old.username != new.username),
        ("redis.password", old.password != new.password),
        ("redis.sentinel_password", old.sentinel_password != new.sentinel_password),
        ("redis.tls", old.tls != new.tls),
        ("redis.on_unavailable", old.on_unavailable != new.on_unavailable),
    ];
    all.into_iter().filter_map(|(key, differs)| differs.then_some(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(cluster: &str, redis: &str) -> Config {
        let text = format!(
            "cluster: {{ id: c, node_id: n, {cluster} }}
{redis}
models: [ {{ name: m, endpoints: [ {{ name: a, address: \"http://a\" }} ] }} ]
"
        );
        crate::config::parse(&text, "test", &|_| None).unwrap()
    }

    #[test]
    fn what_a_fleet_decides_by_waits_for_a_restart() {
        const GOSSIP: &str = "listen: \"127.0.0.1:1\", tls: { insecure: true }";
        let redis = |keys: &str| {
            let section = format!("redis: {{ urls: [\"redis://a\"], {keys} }}");
            parsed(&format!("backend: redis, {GOSSIP}"), &section)
        };
        let boot = redis("password: a");
        let others = [
            (redis("password: a"), vec![]),
            (redis("password: b"), vec!["redis.password"]),
            (
                redis("password: a, prefix: b, timeout: 50ms, on_unavailable: local"),
                vec!["redis.prefix", "redis.timeout", "redis.on_unavailable"],
            ),
            (parsed(GOSSIP, ""), vec!["cluster.backend"]),
            (
                parsed(
                    "backend: redis, gossip: false",
                    "redis: { urls: [\"redis://b\"], password: a, on_unavailable: local }",
                ),
                vec!["cluster.gossip", "redis.urls", "redis.on_unavailable"],
            ),
        ];
        for (other, wanted) in others {
            assert_eq!(keys(&boot, &other), wanted);
        }
    }
}
