//! Active health checks: a path of the endpoint's own, asked at intervals.
//!
//! A check that fails is a fault like any other. One that passes says nothing: engines answer their
//! health path while their model hangs, and a success here must not wipe out what real requests saw.

use std::sync::Arc;
use std::time::Duration;

use breaker::{Cause, Errand, Outcome};

use crate::clock;
use crate::config::Health;
use crate::fleet::{Endpoint, Fleet};
use crate::upstream::Upstream;

/// Checks are spread over their interval by this share, so that nodes do not ask together.
const SPREAD: f64 = 0.2;

/// Checks every endpoint that has a health path, until it is dropped.
pub async fn run(fleet: Arc<Fleet>, upstream: Upstream) {
    let mut checks = tokio::task::JoinSet::new();
    for (_, endpoint) in fleet.endpoints() {
        if let Some(health) = endpoint.config.health.clone() {
            checks.spawn(check_on(Arc::clone(endpoint), health, upstream.clone()));
        }
    }
    while checks.join_next().await.is_some() {}
}

async fn check_on(endpoint: Arc<Endpoint>, health: Health, upstream: Upstream) {
    loop {
        let spread = 1.0 - SPREAD + 2.0 * SPREAD * fastrand::f64();
        tokio::time::sleep(health.interval.mul_f64(spread)).await;
        // An endpoint that is out is left to its probe.
        let Ok(admission) = endpoint.admit(clock::now(), Errand::Probe) else { continue };
        let outcome = match check(&endpoint, &health, &upstream).await {
            Ok(()) => Outcome::Neutral,
            Err(cause) => Outcome::Fault { weight: 1.0, cause },
        };
        admission.settle(clock::now(), outcome);
    }
}

/// One check: any answer below 500 in time is a good one.
async fn check(endpoint: &Endpoint, health: &Health, upstream: &Upstream) -> Result<(), Cause> {
    let request = Upstream::get(&health.path).ok_or(Cause::Other)?;
    let timeout: Duration = health.timeout;
    match tokio::time::timeout(timeout, upstream.send(endpoint, request)).await {
        Err(_) => Err(Cause::Timeout),
        Ok(Err(error)) => Err(error.cause()),
        Ok(Ok(response)) if response.status().is_server_error() => {
            Err(Cause::Status(response.status().as_u16()))
        }
        Ok(Ok(_)) => Ok(()),
    }
}
