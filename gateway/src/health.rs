//! Active health checks: a path of the endpoint's own, asked at intervals.
//!
//! A check that fails is a fault like any other. One that passes says nothing: engines answer their
//! health path while their model hangs, and a success here must not wipe out what real requests saw.

use std::sync::Arc;
use std::time::Duration;

use breaker::{Cause, Errand, Outcome, Rung};

use crate::clock;
use crate::config::Health;
use crate::fleet::{Admission, Endpoint, Fleet};
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
        let Some(admission) = admitted(&endpoint, clock::now()) else { continue };
        let outcome = match check(&endpoint, &health, &upstream).await {
            None => Outcome::Neutral,
            Some(cause) => Outcome::Fault { weight: 1.0, cause },
        };
        admission.settle(clock::now(), outcome);
    }
}

/// The right to check. An endpoint that is out is left to its probe: the few permits of the first rungs
/// are for those whose success leads on, and a check's would keep them away and say nothing.
fn admitted(endpoint: &Arc<Endpoint>, now: Duration) -> Option<Admission> {
    endpoint.tick(now);
    match endpoint.rung() {
        Some(Rung::Probe | Rung::Canary) => None,
        Some(Rung::Ramp) | None => endpoint.admit(now, Errand::Probe).ok(),
    }
}

/// One check: any answer below 500 in time is a good one. Returns what speaks against the endpoint.
async fn check(endpoint: &Endpoint, health: &Health, upstream: &Upstream) -> Option<Cause> {
    let Some(request) = Upstream::get(&health.path) else { return Some(Cause::Other) };
    let timeout: Duration = health.timeout;
    match tokio::time::timeout(timeout, upstream.send(endpoint, request)).await {
        Err(_) => Some(Cause::Timeout),
        Ok(Err(error)) => error.cause(),
        Ok(Ok(response)) if response.status().is_server_error() => {
            Some(Cause::Status(response.status().as_u16()))
        }
        Ok(Ok(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use quorum::EndpointKey;

    use super::*;
    use crate::config;
    use crate::metrics::Meters;

    #[test]
    fn a_check_stays_away_while_an_endpoint_is_tried_step_by_step() {
        let text = "models: [ { name: m, endpoints: [ { name: a, address: \"http://a\" } ] } ]";
        let config = config::parse(text, "test.yaml", &|_| None).unwrap();
        let fleet = Fleet::new(&config.pools, &Meters::new(), &(Arc::new(|_| {}) as _));
        let endpoint = fleet.endpoint(&EndpointKey::new("m/a")).unwrap().1;
        assert!(admitted(endpoint, Duration::ZERO).is_some(), "a good one is checked");
        while let Some(admission) = admitted(endpoint, Duration::ZERO) {
            let fault = Outcome::Fault { weight: 1.0, cause: Cause::Refused };
            admission.settle(Duration::ZERO, fault);
        }
        assert_eq!(endpoint.rung(), None, "it is out");
        let later = Duration::from_secs(3_600);
        assert!(admitted(endpoint, later).is_none(), "the first rung is the prober's");
        assert_eq!(endpoint.rung(), Some(Rung::Probe));
        assert!(endpoint.admit(later, Errand::Probe).is_ok(), "nobody took its permit");
    }
}
