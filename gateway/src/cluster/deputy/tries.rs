//! Which endpoints this node tries by itself at this moment, and how.
//!
//! An endpoint that only this node took out is probed by this node, when its cool-down is over and no
//! small request has tried it, so that half-open ends without traffic too. Likewise a canary slot whose
//! holder gets no small request would go round for ever.
//!
//! Invariant: whatever is to be tried holds a permit of its breaker already.

use std::sync::Arc;
use std::time::Duration;

use breaker::{Errand, Mode, Rung};
use quorum::Forced;

use super::Deputy;
use crate::fleet::{Admission, Endpoint, Pool};

/// The pause before an endpoint that awaits a probe gets one, and between two that say nothing.
const PROBE_PAUSE: Duration = Duration::from_secs(1);

/// The pause between two canaries of the gateway's own, where no client asks with a small request.
const CANARY_PAUSE: Duration = Duration::from_millis(500);

/// On what rung of the ladder an endpoint is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The first question after a cool-down.
    Probe,
    /// In place of a client's small request, where no client asks.
    Canary,
}

/// One request of the gateway's own that is due.
pub struct Try {
    /// The pool of the endpoint.
    pub pool: Arc<Pool>,
    /// The right to send it, to whom, and the duty to say how it went.
    pub admission: Admission,
    /// Why it is sent.
    pub mark: Mark,
}

impl Deputy {
    /// What this node is to try at `now`: the endpoints that await a probe of its own, and those on the
    /// canary rung, its own or the fleet's, that no small request has tried for a while. One each at
    /// most.
    pub fn tries(&self, now: Duration) -> Vec<Try> {
        let due = |(pool, endpoint): (&Arc<Pool>, &Arc<Endpoint>)| {
            let mark = due(now, pool, endpoint)?;
            let admission = endpoint.admit(now, Errand::Probe).ok()?;
            Some(Try { pool: Arc::clone(pool), admission, mark })
        };
        self.fleet().endpoints().filter_map(due).collect()
    }
}

/// How an endpoint is to be tried at `now`; `None`: not, or not yet.
fn due(now: Duration, pool: &Pool, endpoint: &Endpoint) -> Option<Mark> {
    let (mark, pause) = match endpoint.rung()? {
        Rung::Probe => (Mark::Probe, PROBE_PAUSE),
        // Where nobody asks with a small request there is no use in waiting for one.
        Rung::Canary if !pool.has_small(now) => (Mark::Canary, CANARY_PAUSE),
        Rung::Canary => (Mark::Canary, endpoint.config.rule.open.base),
        Rung::Ramp => return None,
    };
    let view = endpoint.view(now);
    let is_due = !view.held
        && view.half_open_in_flight == 0
        && view.half_open_idle.is_some_and(|idle| idle >= pause);
    // An order of an operator settles what a probe would ask, and a shadow changes nothing.
    let is_asked_for =
        endpoint.forced() == Forced::Auto && endpoint.config.rule.mode == Mode::Enforce;
    (is_due && is_asked_for && endpoint.config.probe.enabled).then_some(mark)
}
