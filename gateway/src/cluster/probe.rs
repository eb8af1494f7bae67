//! The synthetic probe: one tiny request that an endpoint must answer in time.
//!
//! For an endpoint that the fleet took out, the steward alone sends it. An endpoint that only this
//! node took out is probed by this node. When a probe is due, the deputy says.

mod ask;
mod cache;

use std::sync::Arc;
use std::time::Duration;

use breaker::Outcome;
use quorum::{EndpointKey, ProbeResult};

use self::ask::{Verdict, ask};
use self::cache::Reading;
use super::{Mark, Seat, Try, herald};
use crate::clock;
use crate::fleet::{Endpoint, Pool};
use crate::metrics::words;

/// An endpoint whose probe is refused may refuse the probe alone, its model's name or its length, and
/// would stay half-open for ever: after this many in a row that say nothing, canaries decide.
const INCONCLUSIVE_MAX: u32 = 3;

/// Sends the fleet's one probe and reports to the council.
pub(super) fn lead(seat: &Arc<Seat>, key: EndpointKey, fence: (u64, u32)) {
    let fleet = seat.fleet();
    let Some((pool, endpoint)) = fleet.endpoint(&key) else { return };
    let (seat, pool, endpoint) = (Arc::clone(seat), Arc::clone(pool), Arc::clone(endpoint));
    // The task ends by the probe's own deadline; the council does not wait for it.
    tokio::spawn(async move {
        let verdict = ask(&seat.probes(), &pool, &endpoint, Mark::Probe).await;
        seat.count_probe(&key, &verdict);
        seat.probed(&key, fence, verdict.result);
    });
}

/// Sends what this node is to try by itself.
pub(super) fn recover_locally(seat: &Arc<Seat>, now: Duration) {
    for Try { pool, admission, mark } in seat.deputy.tries(now) {
        let seat = Arc::clone(seat);
        tokio::spawn(async move {
            let outcome = seat.try_out(&pool, admission.endpoint(), mark).await;
            admission.settle(clock::now(), outcome);
        });
    }
}

impl Seat {
    /// Sends one probe. On the probe rung the last of [`INCONCLUSIVE_MAX`] in a row that said nothing
    /// leads on: the endpoint answers, and the next rung tries it with real requests. Each has a permit
    /// of its own, so that however long a probe may take none is lost under way.
    async fn try_out(&self, pool: &Pool, endpoint: &Endpoint, mark: Mark) -> Outcome {
        let verdict = ask(&self.probes(), pool, endpoint, mark).await;
        self.count_probe(&endpoint.key, &verdict);
        match verdict.result {
            ProbeResult::Passed => Outcome::Success,
            ProbeResult::Failed => Outcome::Fault { weight: 1.0, cause: verdict.cause },
            ProbeResult::Inconclusive => match mark {
                Mark::Probe if endpoint.count_inconclusive() >= INCONCLUSIVE_MAX => {
                    Outcome::Success
                }
                Mark::Probe | Mark::Canary => Outcome::Neutral,
            },
        }
    }

    /// Counts a probe, whoever asked for it, and says when the page of metrics is of no use.
    fn count_probe(&self, key: &EndpointKey, verdict: &Verdict) {
        let meters = &self.parts.meters;
        let result = words::probed(verdict.result);
        let labels = [("endpoint", key.as_str()), ("result", result)];
        meters.counter("probes_total", &labels).increment(1);
        self.parts.events.tell(herald::probed(key, result));
        let Some(reading) = verdict.reading else { return };
        let labels = [("endpoint", key.as_str()), ("result", reading.as_str())];
        meters.counter("probe_cache_readings_total", &labels).increment(1);
        if reading == Reading::Unreadable {
            tracing::warn!(endpoint = %key, "its page of metrics does not say how full its cache is");
        }
    }
}
