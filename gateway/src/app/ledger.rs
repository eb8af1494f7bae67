//! The way to the Redis in which the fleet decides, as the configuration has it.

use redis_lua::client::{self, Client, Mode, Tls};
use redis_lua::error::RedisError;
use redis_lua::keys::Keys;
use redis_lua::roll;

use super::departure::Tasks;
use crate::config::{Cluster, Config, Redis, RedisMode, Secret};
use crate::limits::{self, Ledger, Share};
use crate::metrics::Meters;

/// The client, and what keys are called; nothing is dialled before its task runs, which ends behind
/// `service`. `None`: the fleet has no ledger.
///
/// # Errors
/// [`RedisError`]: a certificate cannot be read. Nothing is left running.
pub(super) fn open(
    config: &Config,
    service: &mut Tasks,
) -> Result<Option<(Client, Keys)>, RedisError> {
    let Some(redis) = config.cluster.as_ref().and_then(Cluster::redis) else { return Ok(None) };
    let keys = Keys::new(&redis.prefix);
    // What serves the requests has something to say at its end.
    let behind = service.behind();
    let (client, supervisor) = client::start(settings(redis), behind.stopped())?;
    behind.spawn(supervisor);
    Ok(Some((client, keys)))
}

/// How the members meet there who do not gossip. `None`: the fleet has no Redis.
pub(super) fn roll(config: &Config, cluster: &Cluster, generation: u64) -> Option<roll::Config> {
    Some(roll::Config {
        prefix: cluster.redis()?.prefix.clone(),
        cluster_id: cluster.id.clone(),
        node_id: cluster.node_id.clone(),
        generation,
        address: config.server.listen.to_string(),
        interval: cluster.gossip_interval,
    })
}

/// Has the limits kept in the ledger, if there is one, for this life of this node.
pub(super) fn keep_limits(
    ledger: Option<&(Client, Keys)>,
    (node, generation): (&str, u64),
    share: &Share,
    meters: &Meters,
    service: &mut Tasks,
) {
    let Some((client, keys)) = ledger.cloned() else { return };
    let ledger = Ledger { client, keys, node: node.to_owned(), generation };
    service.spawn(limits::keep(ledger, share, meters, service.stopped()));
}

fn settings(redis: &Redis) -> client::Config {
    let mode = match &redis.mode {
        RedisMode::Standalone => Mode::Standalone,
        RedisMode::Sentinel { master } => Mode::Sentinel { master: master.clone() },
        RedisMode::Cluster => Mode::Cluster,
    };
    let exposed = |secret: &Option<Secret>| secret.as_ref().map(|one| one.expose().to_owned());
    let tls = redis.tls.clone().unwrap_or_default();
    client::Config {
        prefix: redis.prefix.clone(),
        timeout: redis.timeout,
        username: redis.username.clone(),
        password: exposed(&redis.password),
        sentinel_password: exposed(&redis.sentinel_password),
        tls: Tls { ca: tls.ca, cert: tls.cert, key: tls.key },
        ..client::Config::new(redis.urls.clone(), mode)
    }
}
