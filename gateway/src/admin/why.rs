//! Why an endpoint is in or out, and what happens next: one sentence each, for whoever is woken up.

use std::time::Duration;

use breaker::{Mode, Rung, State};
use quorum::Forced;
use quorum::view::EndpointView;

use super::render::millis;
use crate::fleet::Endpoint;

/// One sentence: what is so, and why.
pub(super) fn verdict(
    now: Duration,
    endpoint: &Endpoint,
    cluster: &EndpointView,
    is_suspect: bool,
) -> String {
    let pause = pause(now, endpoint);
    match (cluster.forced, endpoint.config.rule.mode, pause) {
        (Forced::Open, ..) => "out: an operator forced it open".to_owned(),
        (Forced::Closed, ..) => "in: an operator forced it closed".to_owned(),
        (Forced::Auto, Mode::Enforce, pause) => {
            let pause = pause.unwrap_or_else(|| unopposed(endpoint));
            enforced(now, endpoint, cluster, is_suspect, pause)
        }
        (Forced::Auto, Mode::Shadow | Mode::Off, Some(pause)) => pause.to_owned(),
        (Forced::Auto, Mode::Shadow, None) => shadowed(now, endpoint, cluster),
        (Forced::Auto, Mode::Off, None) if cluster.is_open => {
            format!("in: its breaker is off, though {}", conviction(cluster))
        }
        (Forced::Auto, Mode::Off, None) => "in: its breaker is off".to_owned(),
    }
}

/// Why it is left alone for a while, if it is: whatever its breaker thinks and whether it is obeyed.
fn pause(now: Duration, endpoint: &Endpoint) -> Option<&'static str> {
    match (endpoint.cooling_for(now).is_zero(), endpoint.is_misconfigured()) {
        (true, true | false) => None,
        (false, true) => Some("left alone for a while: it refused our credential, see its api_key"),
        (false, false) => Some("left alone for a while: it asked for a pause"),
    }
}

fn unopposed(endpoint: &Endpoint) -> &'static str {
    if endpoint.is_misconfigured() {
        "in, but it refused our credential when it was last asked: see its api_key"
    } else {
        "in: nothing is held against it"
    }
}

fn conviction(cluster: &EndpointView) -> String {
    let tally = &cluster.tally;
    format!(
        "the whole fleet has it out: incident {}, {} of {} votes stand ({} needed)",
        cluster.incident, tally.counted, cluster.electorate, tally.quorum
    )
}

/// What holds for a breaker that is obeyed; `closed` is said of one that is closed.
fn enforced(
    now: Duration,
    endpoint: &Endpoint,
    cluster: &EndpointView,
    is_suspect: bool,
    closed: &str,
) -> String {
    let view = endpoint.view(now);
    let reason = view.opened_for.map(|reason| reason.to_string()).unwrap_or_default();
    let tally = &cluster.tally;
    match (cluster.is_open, view.state) {
        (true, _) => format!(
            "out for the whole fleet: incident {}, {} of {} votes stand ({} needed)",
            cluster.incident, tally.counted, cluster.electorate, tally.quorum
        ),
        (false, State::Open) if is_suspect => format!(
            "out on this node only: its breaker opened ({reason}), and so did most others while \
             other members see no fault; this node suspects itself and abstains"
        ),
        (false, State::Open) => format!(
            "out on this node only: its breaker opened ({reason}); {} of {} needed votes",
            tally.counted, tally.quorum
        ),
        (false, State::HalfOpen) => match view.rung {
            Some(Rung::Probe) => "out on this node: a probe decides".to_owned(),
            Some(Rung::Ramp) => {
                format!("in, with {} % of its weight: it has just recovered", endpoint.weight())
            }
            Some(Rung::Canary) | None => {
                "half-open on this node: a few small requests are let through".to_owned()
            }
        },
        (false, State::Closed) => closed.to_owned(),
    }
}

/// What holds for a breaker that is only watched: it is in, and what would be so if it were obeyed.
fn shadowed(now: Duration, endpoint: &Endpoint, cluster: &EndpointView) -> String {
    let view = endpoint.view(now);
    let reason = view.opened_for.map(|reason| reason.to_string()).unwrap_or_default();
    match (cluster.is_open, view.state) {
        (true, _) => {
            format!("in: as a shadow it would be out because {}", conviction(cluster))
        }
        (false, State::Open) => {
            format!("in: as a shadow it would be out because its breaker opened ({reason})")
        }
        (false, State::HalfOpen) => {
            format!("in: as a shadow it would be half-open after its breaker opened ({reason})")
        }
        (false, State::Closed) => unopposed(endpoint).to_owned(),
    }
}

/// One sentence: what happens next, and when.
pub(super) fn next(now: Duration, endpoint: &Endpoint, cluster: &EndpointView) -> String {
    let view = endpoint.view(now);
    let steward = cluster.steward.as_ref().map_or("nobody", |node| node.as_str());
    let wanted = endpoint.config.rule.half_open.successes;
    let probing = cluster.step.as_ref().is_some_and(|step| step.stage.as_str() == "probing");
    match (cluster.forced, cluster.is_open, view.state) {
        (Forced::Open | Forced::Closed, ..) => match cluster.forced_for {
            Some(period) => format!("back to the automatic rule in {} ms", millis(period)),
            None => "until an operator changes it".to_owned(),
        },
        (Forced::Auto, true, _) if cluster.canary.is_some() => canary(cluster, wanted),
        (Forced::Auto, true, _) if probing => format!("{steward} has a probe in flight"),
        (Forced::Auto, true, _) => format!(
            "{steward} sends one probe in {} ms",
            millis(cluster.due_in.unwrap_or_default())
        ),
        (Forced::Auto, false, State::Open) => {
            format!("half-open in {} ms", millis(view.remaining.unwrap_or_default()))
        }
        (Forced::Auto, false, State::HalfOpen) => match view.rung {
            Some(Rung::Probe) => "this node sends a probe".to_owned(),
            Some(Rung::Ramp) => "its full weight, step by step".to_owned(),
            Some(Rung::Canary) | None => {
                let missing = wanted.saturating_sub(view.half_open_successes);
                format!("the ramp, after {missing} more successes")
            }
        },
        (Forced::Auto, false, State::Closed) => "nothing".to_owned(),
    }
}

fn canary(cluster: &EndpointView, wanted: u32) -> String {
    match &cluster.canary {
        Some((holder, _, successes)) => format!(
            "{holder} holds the canary slot: {successes} of {wanted} small requests have succeeded"
        ),
        None => String::new(),
    }
}
