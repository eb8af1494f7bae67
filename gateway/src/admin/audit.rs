//! Who ordered what, when, and what came of it: one line of the log for every order, refused ones too.
//!
//! Strangers cost nothing to turn away, and could fill a disk with the lines about it. An address without
//! a token gets a line for each of its first ten orders of a minute, then for the hundredth, the thousandth
//! and so on; each says how many they are by then.
//!
//! Invariants: of strangers a minute has no more than a thousand lines, whoever and however many they are; no line carries a token or a body, but for the reason that the operator gave; every
//! field is written as a value, so that no text of a caller's can pass for a line or a field.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use quorum::EndpointKey;
use serde::Deserialize;
use serde_json::json;

use super::auth::Role;
use super::body::object;
use super::route::Route;
use super::{Admin, Reply, attempts, path};
use crate::clock;
use crate::events::Event;

/// Longest reason that is kept of an order that was refused for it.
const REASON_CHARACTERS_MAX: usize = 256;
/// Longest path that is shown.
const PATH_CHARACTERS_MAX: usize = 256;

/// So many orders of a stranger's are written down one by one.
const EACH: u64 = 10;
/// So many addresses of strangers are told apart; the rest count as one.
const STRANGERS_MAX: usize = 63;
/// Counting begins anew after this.
const SPAN: Duration = Duration::from_secs(60);

/// How many orders came without a token, in the minute.
#[derive(Default)]
pub(super) struct Strangers(Mutex<Minute>);

#[derive(Default)]
struct Minute {
    ends: Duration,
    /// At most [`STRANGERS_MAX`] addresses and `None` for all others.
    orders: BTreeMap<Option<IpAddr>, u64>,
}

impl Strangers {
    /// Counts an order from this address. How many they are by now, if that is worth a line.
    fn count(&self, now: Duration, address: IpAddr) -> Option<u64> {
        let mut minute = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now >= minute.ends {
            *minute = Minute { ends: now + SPAN, orders: BTreeMap::new() };
        }
        let address = Some(attempts::source(address));
        let has_room = minute.orders.len() < STRANGERS_MAX;
        let is_told_apart = has_room || minute.orders.contains_key(&address);
        let count = minute.orders.entry(address.filter(|_| is_told_apart)).or_default();
        *count = count.saturating_add(1);
        let is_round = 10_u64.checked_pow(count.ilog10()) == Some(*count);
        (*count <= EACH || is_round).then_some(*count)
    }
}

/// Who asks, and what for.
pub(super) struct Caller<'a> {
    /// `None`: nobody known.
    pub(super) role: Option<Role>,
    pub(super) address: IpAddr,
    pub(super) request_id: &'a str,
    pub(super) path: &'a str,
}

/// The part of any order that says why.
#[derive(Deserialize)]
struct Reasoned {
    #[serde(default)]
    reason: String,
}

/// The reason that an order gives, if it can be read.
pub(super) fn reason(body: &[u8]) -> String {
    let reasoned: Option<Reasoned> = object(body).ok();
    let reason = reasoned.map(|reasoned| reasoned.reason).unwrap_or_default();
    shown(&reason, REASON_CHARACTERS_MAX)
}

/// So much of a text, without anything that could move a cursor or end a line.
fn shown(text: &str, characters_max: usize) -> String {
    text.chars().filter(|one| !one.is_control()).take(characters_max).collect()
}

impl Admin {
    /// Writes down how an order went. Those who follow are told as well, if it came with the full token.
    pub(super) fn audit(&self, caller: &Caller<'_>, route: &Route, reason: &str, reply: &Reply) {
        let Some(kind) = route.news else { return };
        // Of those who are known each order counts by itself.
        let orders = match caller.role {
            Some(_) => Some(1),
            None => self.strangers.count(clock::now(), caller.address),
        };
        let Some(orders) = orders else { return };
        let role = caller.role.map_or("none", Role::as_str);
        let (address, result) = (caller.address, reply.result());
        // What names nothing of ours may be anything, a secret that was pasted into the wrong place too.
        // Who was forgotten was there.
        let path = if result == "ok" || self.names_ours(route, caller.path) {
            shown(caller.path, PATH_CHARACTERS_MAX)
        } else {
            format!("/{}", route.pattern)
        };
        tracing::warn!(target: "audit", operation = route.id, path, role, %address, reason, result,
            request_id = caller.request_id, orders, "an order");
        if caller.role != Some(Role::Full) || !route.is_told {
            return;
        }
        let what = match result {
            "ok" => format!("an operator orders {path}"),
            _ => format!("an operator's order {path} is refused: {result}"),
        };
        let detail = json!({
            "operation": route.id, "role": role, "from": address.to_string(), "reason": reason,
            "result": result, "request_id": caller.request_id,
        });
        self.events.tell(Event::new(kind, what).detail(detail));
    }

    /// Whether a path names an endpoint or a member that there is, or nothing at all.
    fn names_ours(&self, route: &Route, path: &str) -> bool {
        let segments = path::segments(path);
        let bound = segments.and_then(|segments| path::bind(route.pattern, &segments));
        let Some(bound) = bound else { return false };
        let is_endpoint = |pool: &str, name: &str| {
            let key = EndpointKey::new(&format!("{pool}/{name}"));
            self.seat.fleet().endpoint(&key).is_some()
        };
        let is_member = |id: &str| {
            let members = self.seat.council().members(clock::now());
            members.iter().any(|member| member.id.as_str() == id)
        };
        match (bound.get("pool"), bound.get("name"), bound.get("id")) {
            (Some(pool), Some(name), _) => is_endpoint(pool, name),
            (_, _, Some(id)) => is_member(id),
            (_, _, None) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m16_strangers_do_not_fill_the_log_and_are_counted_all_the_same() {
        let strangers = Strangers::default();
        let (now, one) = (Duration::from_secs(5), IpAddr::from([10, 0, 0, 1]));
        let lines: Vec<u64> = (0..2_000).filter_map(|_| strangers.count(now, one)).collect();
        assert_eq!(lines, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 100, 1_000]);
        let other = IpAddr::from([10, 0, 0, 2]);
        assert_eq!(strangers.count(now, other), Some(1), "another's lines are its own");
        let crowd = (0..100_000_u32).map(|host| IpAddr::V4((0x0b00_0000 + host).into()));
        let lines = crowd.filter(|host| strangers.count(now, *host).is_some()).count();
        assert!(lines <= 100, "{lines}");
        assert_eq!(strangers.0.lock().unwrap().orders.len(), STRANGERS_MAX + 1);
        assert_eq!(strangers.count(now + SPAN, one), Some(1), "a minute later it begins anew");
    }

    #[test]
    fn m14_no_reason_can_end_a_line_or_move_a_cursor() {
        let body = r#"{"state": 7, "reason": "a\r\nb\u001b[2Jc\u0085d"}"#;
        assert_eq!(reason(body.as_bytes()), "ab[2Jcd");
        assert_eq!(reason(b"{\"reason\": 7}"), "");
        assert_eq!(reason(b"no order"), "");
        let long = format!("{{\"reason\": \"{}\"}}", "x".repeat(10_000));
        assert_eq!(reason(long.as_bytes()).len(), 256);
    }
}
