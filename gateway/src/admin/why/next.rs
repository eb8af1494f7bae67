//! What happens next to an endpoint, and when.
//!
//! Invariants: what waits for a time says which; what waits for something else says for what.

use std::time::Duration;

use breaker::{Mode, Recovery, Rung, State};
use quorum::Forced;

use super::super::case::Case;
use super::{automatic, full};
use crate::people::for_people;

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    /// What, in one sentence.
    pub(crate) what: String,
    /// In how long; `None`: it waits for no time.
    pub(crate) within: Option<Duration>,
}

impl Next {
    fn soon(what: impl Into<String>) -> Self {
        Self { what: what.into(), within: None }
    }

    /// `what` in `within`, or that it is due once the time is over: who is to do it may be late.
    fn due(within: Duration, what: &str) -> Self {
        if within.is_zero() {
            return Self::soon(format!("{what}: that is due"));
        }
        Self::timed(within, what)
    }

    /// `what` in `within`: the time comes last.
    fn timed(within: Duration, what: &str) -> Self {
        Self { what: format!("{what} in {}", for_people(within)), within: Some(within) }
    }
}

/// One sentence: what happens next, and when.
pub(crate) fn next(case: &Case<'_>) -> Next {
    let (cluster, mode) = (&case.cluster, case.endpoint.config.rule.mode);
    match (cluster.forced, cluster.is_open, mode) {
        (Forced::Open | Forced::Closed, ..) => ordered(case),
        (Forced::Auto, true, Mode::Enforce | Mode::Shadow | Mode::Off) => led(case),
        (Forced::Auto, false, Mode::Enforce) => alone(case),
        (Forced::Auto, false, Mode::Shadow | Mode::Off) => paused(case),
    }
}

/// The order ends, and the rule takes over.
fn ordered(case: &Case<'_>) -> Next {
    let then = format!("by the automatic rule it is {}", automatic(case));
    match case.cluster.forced_for {
        Some(period) => {
            let Next { what, within } = Next::timed(period, "the order ends");
            Next { what: format!("{what}; {then}"), within }
        }
        None => Next::soon(format!("an operator ends the order; {then}")),
    }
}

/// The recovery that the fleet's steward leads.
fn led(case: &Case<'_>) -> Next {
    let (cluster, seat) = (&case.cluster, case.seat);
    if seat.is_on_its_own() {
        return Next::soon("Redis is away: this node lets go of it and goes by its own breaker");
    }
    if seat.is_frozen() {
        return frozen(case);
    }
    let rule = &case.endpoint.config.rule;
    if let Recovery::Lazy { ttl: _ } = rule.recovery {
        let due = cluster.due_in.unwrap_or_default();
        return Next::due(due, "its time is over and it returns on every node");
    }
    if let Some((holder, _, successes)) = &cluster.canary {
        let wanted = rule.half_open.successes;
        return Next::soon(format!(
            "{holder} holds the canary slot: {successes} of {wanted} small requests have succeeded, \
             then it returns on every node step by step"
        ));
    }
    let Some(steward) = &cluster.steward else {
        return Next::soon("nobody may lead its recovery: every live member is on its way out");
    };
    let stage = cluster.step.as_ref().map(|step| step.stage.as_str());
    if stage == Some("probing") {
        return Next::soon(format!("the probe of {steward} is in flight and decides"));
    }
    let due = cluster.due_in.unwrap_or_default();
    match rule.recovery {
        Recovery::Staged { probe: true, ramp: _ } => {
            Next::due(due, &format!("{steward} sends one probe for the whole fleet"))
        }
        Recovery::Staged { probe: false, ramp: _ } | Recovery::Lazy { ttl: _ } => {
            Next::due(due, &format!("{steward} gives the canary slot to one member"))
        }
    }
}

/// No majority is live: the fleet does nothing, and this node lets go in the end.
fn frozen(case: &Case<'_>) -> Next {
    match case.seat.lets_go_in {
        Some(period) => Next::timed(
            period,
            "no majority is live, so that nothing happens but this node lets go of it and goes by its \
             own breaker",
        ),
        None => Next::soon("no majority is live: nothing happens until one is"),
    }
}

/// The recovery that this node leads by itself.
fn alone(case: &Case<'_>) -> Next {
    let view = &case.local;
    let rule = &case.endpoint.config.rule;
    if view.held {
        return Next::soon("what the fleet says of it decides");
    }
    match view.state {
        State::Open => Next::timed(view.remaining.unwrap_or_default(), &opening(rule.recovery)),
        State::HalfOpen => match view.rung {
            Some(Rung::Probe) => Next::soon("this node's probe decides"),
            Some(Rung::Canary | Rung::Ramp) | None if is_cooling(case) => paused(case),
            Some(Rung::Ramp) => Next::soon("its weight grows step by step to the whole"),
            Some(Rung::Canary) | None => {
                let wanted = rule.half_open.successes;
                let missing = wanted.saturating_sub(view.half_open_successes);
                Next::soon(format!("after {missing} more small requests that succeed it returns"))
            }
        },
        State::Closed => paused(case),
    }
}

fn opening(recovery: Recovery) -> String {
    let what = match recovery {
        Recovery::Staged { probe: true, ramp: _ } => "this node sends it one probe",
        Recovery::Staged { probe: false, ramp: _ } => "this node lets a few small requests through",
        Recovery::Lazy { ttl: _ } => "this node lets all requests through again",
    };
    what.to_owned()
}

/// Whether it is left alone for a while, so that no request reaches it whatever its breaker allows.
fn is_cooling(case: &Case<'_>) -> bool {
    !case.endpoint.cooling_for(case.now).is_zero()
}

/// What ends a pause, or frees a limit.
fn paused(case: &Case<'_>) -> Next {
    let cooling = case.endpoint.cooling_for(case.now);
    if !cooling.is_zero() {
        return Next::timed(cooling, "the pause is over and requests are sent to it again");
    }
    match full(case).map(|full| full.returns_in) {
        Some(Some(period)) => Next::timed(period, "there is room again"),
        Some(None) => Next::soon("its limit is too small for any request: see its limits"),
        None => Next::soon("nothing"),
    }
}
