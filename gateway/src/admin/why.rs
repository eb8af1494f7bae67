//! Why an endpoint is in or out, and what happens next: one sentence each, for whoever is woken up.

use std::time::Duration;

use breaker::{Rung, State};
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
    let view = endpoint.view(now);
    let reason = view.opened_for.map(|reason| reason.to_string()).unwrap_or_default();
    let tally = &cluster.tally;
    match (cluster.forced, cluster.is_open, view.state) {
        (Forced::Open, ..) => "out: an operator forced it open".to_owned(),
        (Forced::Closed, ..) => "in: an operator forced it closed".to_owned(),
        (Forced::Auto, true, _) => format!(
            "out for the whole fleet: incident {}, {} of {} votes stand ({} needed)",
            cluster.incident, tally.counted, cluster.electorate, tally.quorum
        ),
        (Forced::Auto, false, State::Open) if is_suspect => format!(
            "out on this node only: its breaker opened ({reason}), and so did most others while \
             other members see no fault; this node suspects itself and abstains"
        ),
        (Forced::Auto, false, State::Open) => format!(
            "out on this node only: its breaker opened ({reason}); {} of {} needed votes",
            tally.counted, tally.quorum
        ),
        (Forced::Auto, false, State::HalfOpen) => match view.rung {
            Some(Rung::Probe) => "out on this node: a probe decides".to_owned(),
            Some(Rung::Ramp) => {
                format!("in, with {} % of its weight: it has just recovered", endpoint.weight())
            }
            Some(Rung::Canary) | None => {
                "half-open on this node: a few small requests are let through".to_owned()
            }
        },
        (Forced::Auto, false, State::Closed) if !endpoint.cooling_for(now).is_zero() => {
            "left alone for a while: it asked for a pause".to_owned()
        }
        (Forced::Auto, false, State::Closed) => "in: nothing is held against it".to_owned(),
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
