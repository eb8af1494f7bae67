//! What an operator may order: an endpoint forced out, forced in, or back to the automatic rule.

use std::time::Duration;

use hyper::StatusCode;
use quorum::{EndpointKey, Forced, NodeId};
use serde::Deserialize;
use serde_json::json;

use super::Reply;
use crate::cluster::Seat;
use crate::config::parse_duration;

/// The longest an order may hold: a week.
const FOR_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Longest reason, in bytes; the fleet carries as much.
const REASON_BYTES_MAX: usize = 256;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    state: State,
    #[serde(rename = "for")]
    period: Option<String>,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum State {
    ForceOpen,
    ForceClosed,
    Auto,
}

/// Forces an endpoint, cluster-wide.
pub(super) fn force(seat: &Seat, name: &str, body: &[u8]) -> Reply {
    let refuse = |message: String| Reply::error(StatusCode::BAD_REQUEST, "invalid_order", message);
    let order: Order = match serde_json::from_slice(body) {
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
    let Some(key) = endpoint_key(name) else { return unknown_endpoint() };
    let period = if forced == Forced::Auto { None } else { period };
    if !seat.order(&key, (forced, period), &order.reason) {
        return unknown_endpoint();
    }
    tracing::warn!(target: "audit", endpoint = %key, order = forced.as_str(),
        reason = order.reason, "an operator's order");
    Reply::Json(
        StatusCode::OK,
        json!({
            "endpoint": key.as_str(),
            "state": forced.as_str(),
            "for_ms": period.map(|period| period.as_millis() as u64),
        }),
    )
}

/// The member of `{id}/mute` or `{id}/unmute`, and whether it is to be muted.
pub(super) fn muting(path: &str) -> Option<(&str, bool)> {
    let mute = path.strip_suffix("/mute").map(|id| (id, true));
    mute.or_else(|| path.strip_suffix("/unmute").map(|id| (id, false)))
}

/// Lets the votes and windows of a member count on this node no more, or again.
pub(super) fn mute(seat: &Seat, id: &str, is_muted: bool) -> Reply {
    let id = NodeId::new(id);
    if !seat.council().mute(&id, is_muted) {
        let message = "No such member; GET /admin/v1/members lists them.";
        return Reply::error(StatusCode::NOT_FOUND, "member_not_found", message);
    }
    tracing::warn!(target: "audit", member = %id, is_muted, "an operator mutes or unmutes a member");
    Reply::Json(StatusCode::OK, json!({ "member": id.as_str(), "muted": is_muted }))
}

pub(super) fn unknown_endpoint() -> Reply {
    let message = "No such endpoint; GET /admin/v1/endpoints lists them as pool/name.";
    Reply::error(StatusCode::NOT_FOUND, "endpoint_not_found", message)
}

/// The endpoint that a path names as `pool/name`, percent-decoded. `None`: not a name.
pub(super) fn endpoint_key(path: &str) -> Option<EndpointKey> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok().map(|name| EndpointKey::new(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_with_a_slash_is_found_plain_and_encoded() {
        let key = Some(EndpointKey::new("meta/llama/gpu-a"));
        assert_eq!(endpoint_key("meta/llama/gpu-a"), key);
        assert_eq!(endpoint_key("meta%2Fllama/gpu-a"), key);
    }

    #[test]
    fn a_broken_encoding_is_no_name() {
        for path in ["%", "%2", "%zz", "%ff"] {
            assert_eq!(endpoint_key(path), None, "{path}");
        }
    }
}
