//! Who ordered what, when, and what came of it: one line of the log for every order, refused ones too.
//!
//! Invariants: no line carries a token or a body, but for the reason that the operator gave; every
//! field is written as a value, so that no text of a caller's can pass for a line or a field.

use std::net::IpAddr;

use serde::Deserialize;
use serde_json::json;

use super::auth::Role;
use super::route::Route;
use super::{Admin, Reply};
use crate::events::Event;

/// Longest reason that is kept of an order that was refused for it.
const REASON_CHARACTERS_MAX: usize = 256;
/// Longest path that is shown.
const PATH_CHARACTERS_MAX: usize = 256;

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
    let reasoned: Option<Reasoned> = serde_json::from_slice(body).ok();
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
        let role = caller.role.map_or("none", Role::as_str);
        let (address, result) = (caller.address, reply.result());
        let path = shown(caller.path, PATH_CHARACTERS_MAX);
        tracing::warn!(target: "audit", operation = route.id, path, role, %address, reason, result,
            request_id = caller.request_id, "an order");
        if caller.role != Some(Role::Full) {
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
