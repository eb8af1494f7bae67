//! What an operator may order: an endpoint forced out, forced in, or back to the automatic rule.

use std::time::Duration;

use hyper::StatusCode;
use quorum::{EndpointKey, Forced, NodeId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Reply;
use super::body::object;
use crate::clock;
use crate::cluster::Seat;
use crate::config::parse_duration;
use crate::fleet::Endpoint;

/// The longest an order may hold: a week.
const FOR_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);
/// What [`parse_duration`] reads: hours, minutes, seconds and milliseconds, in this order and at least
/// one of them. No look-ahead, which many readers of OpenAPI do not know.
const PERIOD: &str = "^([0-9]+h([0-9]+m)?([0-9]+s)?([0-9]+ms)?|[0-9]+m([0-9]+s)?([0-9]+ms)?\
                      |[0-9]+s([0-9]+ms)?|[0-9]+ms)$";
/// Longest reason, in bytes; the fleet carries as much.
const REASON_BYTES_MAX: usize = 256;
/// Most endpoints that a refusal names.
const NAMED_MAX: usize = 5;

/// An order about an endpoint.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("examples" = [
    { "state": "force_open", "for": "10m", "reason": "its fan has failed", "confirm": true },
    { "state": "auto", "reason": "repaired" },
]))]
pub(super) struct Order {
    /// What is wanted.
    state: State,
    /// How long it holds, such as 10m or 1h30m, up to 168h; must be given to force, and says nothing with `auto`.
    #[serde(rename = "for")]
    #[schemars(regex(pattern = PERIOD))]
    period: Option<String>,
    /// Why, in one line of at most 256 bytes.
    #[serde(default)]
    #[schemars(length(max = 256))]
    reason: String,
    /// Whether the last endpoint of a pool in rotation may be forced open.
    #[serde(default)]
    confirm: bool,
}

/// What is wanted of an endpoint.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum State {
    /// Out, whatever the votes say.
    ForceOpen,
    /// In, whatever the votes say.
    ForceClosed,
    /// Back to the automatic rule.
    Auto,
}

/// An order that was taken.
#[derive(Serialize, JsonSchema)]
pub(super) struct Ordered {
    /// `pool/name`.
    endpoint: String,
    /// `force_open`, `force_closed` or `auto`.
    state: &'static str,
    /// How long it holds; null with `auto`.
    for_ms: Option<u64>,
}

/// A member that was muted or unmuted.
#[derive(Serialize, JsonSchema)]
pub(super) struct Muted {
    /// Which.
    member: String,
    /// Whether its votes and windows count no more on this node.
    muted: bool,
}

/// Forces an endpoint, cluster-wide.
pub(super) fn force(seat: &Seat, key: &EndpointKey, body: &[u8]) -> Reply {
    let refuse = |message: String| Reply::error(StatusCode::BAD_REQUEST, "invalid_order", message);
    let order: Order = match object(body) {
        Ok(order) => order,
        Err(error) => {
            let shape = r#"{"state": "force_open", "for": "10m", "reason": "…"}"#;
            // The library's own words would repeat what stands there, which may be a secret.
            let (line, column) = (error.line(), error.column());
            return refuse(format!(
                "The body is not an order (line {line}, column {column}); send {shape}, with force_open, \
                 force_closed or auto."
            ));
        }
    };
    let forced = match order.state {
        State::ForceOpen => Forced::Open,
        State::ForceClosed => Forced::Closed,
        State::Auto => Forced::Auto,
    };
    let period = match order.period.as_deref().map(parse_duration) {
        None => None,
        Some(Ok(period)) if !period.is_zero() && period <= FOR_MAX => Some(period),
        Some(_) => return refuse("for must be a duration up to 168h, such as 10m.".to_owned()),
    };
    if forced != Forced::Auto && period.is_none() {
        return refuse("An order needs an end: give for, such as 10m.".to_owned());
    }
    if order.reason.len() > REASON_BYTES_MAX || order.reason.chars().any(char::is_control) {
        return refuse(format!("reason must be one line of at most {REASON_BYTES_MAX} bytes."));
    }
    let period = if forced == Forced::Auto { None } else { period };
    if let (Forced::Open, false, Some(left)) = (forced, order.confirm, last_of_pool(seat, key)) {
        return Reply::error(StatusCode::CONFLICT, "needs_confirmation", left);
    }
    if !seat.order(key, (forced, period), &order.reason) {
        return unknown_endpoint();
    }
    Reply::ok(&Ordered {
        endpoint: key.to_string(),
        state: forced.as_str(),
        for_ms: period.map(|period| u64::try_from(period.as_millis()).unwrap_or(u64::MAX)),
    })
}

/// What would be left if this endpoint is the last of its pool that gets requests; `None`: it is not.
fn last_of_pool(seat: &Seat, key: &EndpointKey) -> Option<String> {
    let now = clock::now();
    let is_in = |endpoint: &Endpoint| {
        // The council knows of an order as soon as it was given, the endpoint a moment later.
        match seat.council().endpoint(now, &endpoint.key).map(|view| view.forced) {
            Some(Forced::Open) => false,
            Some(Forced::Closed) => true,
            Some(Forced::Auto) | None => {
                endpoint.weight() > 0 && endpoint.cooling_for(now).is_zero()
            }
        }
    };
    let fleet = seat.fleet();
    let (pool, endpoint) = fleet.endpoint(key)?;
    let others = || pool.endpoints.iter().filter(|one| one.key != *key);
    if !is_in(endpoint) || others().any(|one| is_in(one)) {
        return None;
    }
    let names: Vec<&str> = others().map(|one| one.config.name.as_str()).take(NAMED_MAX).collect();
    let left = match (names.as_slice(), others().count()) {
        ([], _) => "it has no other endpoint".to_owned(),
        (names, count) if count > names.len() => {
            format!("its other {count} endpoints are out: {}, …", names.join(", "))
        }
        (names, _) => format!("its others are out: {}", names.join(", ")),
    };
    Some(format!(
        "{key} is the last endpoint of {} in rotation, {left}; send confirm: true to force it open all \
         the same.",
        pool.name
    ))
}

/// Lets the votes and windows of a member count on this node no more, or again.
pub(super) fn mute(seat: &Seat, id: &str, is_muted: bool) -> Reply {
    let id = NodeId::new(id);
    if !seat.council().mute(&id, is_muted) {
        let message = "No such member; GET /admin/v1/members lists them.";
        return Reply::error(StatusCode::NOT_FOUND, "member_not_found", message);
    }
    Reply::ok(&Muted { member: id.to_string(), muted: is_muted })
}

pub(super) fn unknown_endpoint() -> Reply {
    let message = "No such endpoint; GET /admin/v1/endpoints lists them as pool/name.";
    Reply::error(StatusCode::NOT_FOUND, "endpoint_not_found", message)
}
