//! Active health checks: a path of the endpoint's own, asked at intervals.
//!
//! A check that fails is a fault like any other. One that passes says nothing: engines answer their
//! health path while their model hangs, and a success here must not wipe out what real requests saw.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use breaker::{Cause, Errand, Outcome, Rung};
use quorum::EndpointKey;
use tokio::task::{AbortHandle, JoinSet};

use crate::clock;
use crate::cluster::Seat;
use crate::config::Health;
use crate::fleet::{Admission, Endpoint};
use crate::upstream::Upstream;

/// Checks are spread over their interval by this share, so that nodes do not ask together.
const SPREAD: f64 = 0.2;

/// The checks that run; dropped, they end.
#[derive(Default)]
pub struct Checks(Mutex<Running>);

#[derive(Default)]
struct Running {
    /// No check begins any more.
    has_ended: bool,
    /// What is asked where, and the task that does; bounded by the configured endpoints.
    tasks: HashMap<EndpointKey, (Health, AbortHandle)>,
    owner: JoinSet<()>,
}

impl Checks {
    /// Ends all checks for good: another configuration begins none.
    pub fn end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            Running { has_ended: true, ..Running::default() };
    }

    /// Checks every endpoint of the seat that has a health path, as configured, and no other. A check that
    /// is the same goes on, in its own time. To be called within a runtime.
    pub fn adopt(&self, seat: &Arc<Seat>) {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if running.has_ended {
            return;
        }
        let Running { tasks, owner, has_ended: _ } = &mut *running;
        while owner.try_join_next().is_some() {}
        let fleet = seat.fleet();
        let wanted = |key: &EndpointKey| fleet.endpoint(key)?.1.config.health.as_ref();
        tasks.retain(|key, (health, task)| {
            let is_wanted = wanted(key) == Some(health);
            if !is_wanted {
                task.abort();
            }
            is_wanted
        });
        for (_, endpoint) in fleet.endpoints() {
            let Some(health) = &endpoint.config.health else { continue };
            tasks.entry(endpoint.key.clone()).or_insert_with(|| {
                let check = check_on(Arc::clone(seat), endpoint.key.clone(), health.clone());
                (health.clone(), owner.spawn(check))
            });
        }
    }
}

/// Checks an endpoint until it is gone.
async fn check_on(seat: Arc<Seat>, key: EndpointKey, health: Health) {
    loop {
        let spread = 1.0 - SPREAD + 2.0 * SPREAD * fastrand::f64();
        tokio::time::sleep(health.interval.mul_f64(spread)).await;
        let endpoint = match seat.fleet().endpoint(&key) {
            Some((_, endpoint)) => Arc::clone(endpoint),
            None => return,
        };
        let Some(admission) = admitted(&endpoint, clock::now()) else { continue };
        let outcome = match check(&endpoint, &health, &seat.probes()).await {
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
    use super::*;
    use crate::config;
    use crate::fleet::Fleet;
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
