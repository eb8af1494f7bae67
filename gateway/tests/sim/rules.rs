//! The knobs of the simulated fleet: production's rule with its times shortened.
//!
//! A run must be short to be repeated a million times, so cool-downs, windows and the grace are a
//! few times shorter than the defaults; gossip's interval and what is measured in it are not.

use std::time::Duration;

use breaker::{HalfOpenRule, Mode, OpenRule, Rule, SlowRule};
use quorum::{
    Conviction, CouncilRule, Denominator, ElectorateRule, Enrolment, PoolKey, Recovery, Way,
};

use crate::plan::{Fault, Knobs, Ms, Plan, What};

/// Gossip's interval.
pub(crate) const INTERVAL: Ms = 1_000;
/// A vote whose voter is silent for this long lapses.
pub(crate) const VOTE_TTL: Ms = 10_000;
/// How long a node observes after a start or a pause.
pub(crate) const OBSERVE: Ms = 3_000;
/// How long a lost member goes on counting.
pub(crate) const GRACE: Ms = 14_000;
/// How far back evidence counts. Clocks begin at multiples of it, since the breaker's buckets are
/// cut by the clock.
pub(crate) const WINDOW: Ms = 10_000;
/// A request that runs this long is slow.
pub(crate) const SLOW: Ms = 1_500;
/// How long a probe may take.
pub(crate) const PROBE_TIMEOUT: Ms = 1_000;
/// The longest cool-down.
pub(crate) const COOL_DOWN_MAX: Ms = 4_000;
/// The first cool-down.
pub(crate) const COOL_DOWN: Ms = 1_500;
/// How long a lazy opening lasts.
pub(crate) const LAZY: Ms = 5_000;
/// The longest a holder of the canary slot may be idle.
pub(crate) const TURN: Ms = 2_500;
/// The longest ramp.
const RAMP: Ms = 1_500;

/// The breaker's rule.
pub(crate) fn breaker(knobs: &Knobs) -> Rule {
    let recovery = match knobs.canaries {
        0 => breaker::Recovery::Lazy { ttl: time(LAZY) },
        _ => breaker::Recovery::Staged { probe: knobs.has_probe, ramp: time(RAMP) },
    };
    Rule {
        mode: Mode::Enforce,
        failure_threshold: 4,
        failure_ratio: 0.5,
        window: time(WINDOW),
        min_requests: 10,
        slow: SlowRule {
            total: time(SLOW),
            first_token: None,
            min_tokens_per_second: None,
            dedup: time(3_000),
            confirmations: 2,
            p95: None,
            relative: None,
        },
        open: OpenRule {
            base: time(COOL_DOWN),
            max: time(COOL_DOWN_MAX),
            reset_after: time(20_000),
        },
        recovery,
        half_open: HalfOpenRule {
            max_requests: 1,
            max_prompt_tokens: 256,
            successes: knobs.canaries.max(1),
            share: 0.5,
            deadline: time(SLOW + 2_000),
        },
    }
}

/// The council's rule. `expected_members` is set where processes are replaced with nothing kept: one
/// that begins while the others are cut off knows nothing else of how many they are.
pub(crate) fn council(plan: &Plan) -> CouncilRule {
    let knobs = &plan.knobs;
    let is_replaced = |fault: &Fault| {
        matches!(fault.what, What::Crash { has_snapshot: false, .. } | What::Lies { .. })
    };
    let expected_members = if plan.faults.iter().any(is_replaced) { plan.nodes() } else { 0 };
    CouncilRule {
        electorate: ElectorateRule { expected_members, member_grace: time(GRACE) },
        of: if knobs.of_observers { Denominator::Observers } else { Denominator::Members },
        max_open_share_milli: knobs.share,
        interval: time(INTERVAL),
        observe: time(OBSERVE),
        vote_ttl: time(VOTE_TTL),
        renew_every: time(2 * INTERVAL),
        max_open: time(120_000),
    }
}

/// What the council is told of an endpoint: the same numbers as the breaker's.
pub(crate) fn enrolment(knobs: &Knobs, pool: usize) -> Enrolment {
    let rule = breaker(knobs);
    let way = match rule.recovery {
        breaker::Recovery::Lazy { ttl } => Way::Lazy { ttl },
        breaker::Recovery::Staged { probe, ramp: _ } => {
            Way::Ladder { probe, canaries: rule.half_open.successes, turn: time(TURN) }
        }
    };
    Enrolment {
        pool: PoolKey::new(&format!("pool-{pool}")),
        recovery: Recovery {
            base: rule.open.base,
            max: rule.open.max,
            reset_after: rule.open.reset_after,
            probe_timeout: time(PROBE_TIMEOUT),
            way,
        },
        conviction: Conviction {
            failure_threshold: rule.failure_threshold,
            failure_ratio_milli: (rule.failure_ratio * 1_000.0) as u32,
            min_requests: rule.min_requests,
            window: rule.window,
            dedup: rule.slow.dedup,
            confirmations: rule.slow.confirmations,
        },
    }
}

/// Milliseconds as a duration.
pub(crate) const fn time(ms: Ms) -> Duration {
    Duration::from_millis(ms)
}
