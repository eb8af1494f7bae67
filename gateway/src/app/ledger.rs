//! The way to the Redis in which the fleet decides, as the configuration has it.

use redis_lua::client::{self, Client, Mode, Tls};
use redis_lua::error::RedisError;
use redis_lua::keys::Keys;

use super::departure::Tasks;
use crate::config::{Cluster, Config, Redis, RedisMode, Secret};

/// The client, and what keys are called; nothing is dialled before its task runs, which is one of
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
    let (client, supervisor) = client::start(settings(redis), service.stopped())?;
    service.spawn(supervisor);
    Ok(Some((client, keys)))
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
