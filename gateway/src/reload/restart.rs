//! Which settings a running process cannot take on.
//!
//! Listeners that stand are not moved, since whoever connects would find nobody there; the seat in the
//! fleet is one for life, since its name, address and rule are what the others reckon with. What
//! certificates hold is no setting: those of the cluster are read anew by the carrier itself.

use crate::config::{Cluster, Config};

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
        ("server.max_connections", server.max_connections != new.server.max_connections),
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

fn of_cluster(old: &Cluster, new: &Cluster) -> impl Iterator<Item = &'static str> {
    let all = [
        ("cluster.id", old.id != new.id),
        ("cluster.node_id", old.node_id != new.node_id),
        ("cluster.listen", old.listen != new.listen),
        ("cluster.advertise", old.advertise != new.advertise),
        ("cluster.seeds", old.seeds != new.seeds),
        ("cluster.tls", old.tls != new.tls),
        ("cluster.gossip_interval", old.gossip_interval != new.gossip_interval),
        ("cluster.push", old.push != new.push),
        ("cluster.quorum", old.quorum != new.quorum),
    ];
    all.into_iter().filter_map(|(key, differs)| differs.then_some(key))
}
