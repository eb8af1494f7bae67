//! What an operator may ask of members: to drain, to leave, to be forgotten; and further seeds.
//!
//! An order may be given to any node. The member itself follows it, which shows in its standing; the
//! answer here says that it was taken, not that it was done.

use hyper::StatusCode;
use quorum::{MemberVerb, NodeId, NotOrdered};
use serde::Deserialize;
use serde_json::json;

use super::Reply;
use crate::cluster::{NotJoined, Refused, Seat};
use crate::config::parse_seed;

/// Longest reason, in bytes; the fleet carries as much.
const REASON_BYTES_MAX: usize = 256;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Why {
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Join {
    seeds: Vec<String>,
}

/// Gives the order of `{id}/{verb}`.
pub(super) fn order(seat: &Seat, path: &str, body: &[u8]) -> Reply {
    let Some((id, verb)) = asked(path) else { return Reply::not_found() };
    let refuse = |message: String| Reply::error(StatusCode::BAD_REQUEST, "invalid_order", message);
    let is_empty = body.trim_ascii().is_empty();
    let why: Why = match serde_json::from_slice(if is_empty { b"{}" } else { body }) {
        Ok(why) => why,
        Err(error) => {
            let shape = r#"{"reason": "…"}"#;
            return refuse(format!("The body is no reason ({error}); send {shape} or nothing."));
        }
    };
    if why.reason.len() > REASON_BYTES_MAX || why.reason.chars().any(char::is_control) {
        return refuse(format!("reason must be one line of at most {REASON_BYTES_MAX} bytes."));
    }
    match seat.order_member(&id, verb, &why.reason) {
        Ok(stands) => {
            tracing::warn!(target: "audit", member = %id, order = stands.as_str(),
                reason = why.reason, "an operator's order about a member");
            let (member, order) = (id.as_str(), stands.as_str());
            Reply::Json(
                StatusCode::OK,
                json!({ "member": member, "order": order, "reason": why.reason }),
            )
        }
        Err(refused) => refusal(&id, refused),
    }
}

fn asked(path: &str) -> Option<(NodeId, MemberVerb)> {
    let (id, verb) = path.rsplit_once('/')?;
    let verbs = [MemberVerb::Drain, MemberVerb::Leave, MemberVerb::Forget];
    let verb = verbs.into_iter().find(|one| one.as_str() == verb)?;
    Some((NodeId::new(id), verb))
}

fn refusal(id: &NodeId, refused: Refused) -> Reply {
    let conflict = |code, message: String| Reply::error(StatusCode::CONFLICT, code, message);
    match refused {
        Refused::Because(NotOrdered::Unknown) => {
            let message = "No such member; GET /admin/v1/members lists them.";
            Reply::error(StatusCode::NOT_FOUND, "member_not_found", message)
        }
        Refused::Because(NotOrdered::Lost) => {
            let cure = "stop it where it runs, and POST forget so that it no longer counts.";
            conflict("member_lost", format!("{id} is lost and would not hear it; {cure}"))
        }
        Refused::Because(NotOrdered::Live) => {
            let cure = "to take it out, POST leave.";
            conflict("not_lost", format!("{id} is live, and only who is lost is forgotten; {cure}"))
        }
        Refused::HasLeft => {
            let message = "This node has left the fleet; ask another member.";
            conflict("has_left", message.to_owned())
        }
    }
}

/// Takes further seeds.
pub(super) fn join(seat: &Seat, body: &[u8]) -> Reply {
    let refuse = |message: String| Reply::error(StatusCode::BAD_REQUEST, "invalid_seeds", message);
    let join: Join = match serde_json::from_slice(body) {
        Ok(join) => join,
        Err(error) => {
            let shape = r#"{"seeds": ["host:port"]}"#;
            return refuse(format!("The body names no seeds ({error}); send {shape}."));
        }
    };
    let mut seeds = Vec::new();
    for (index, seed) in join.seeds.iter().enumerate() {
        match parse_seed(seed) {
            Ok(seed) => seeds.push(seed),
            Err(problem) => return refuse(format!("seeds[{index}] {problem}.")),
        }
    }
    let conflict = |code, message: &str| Reply::error(StatusCode::CONFLICT, code, message);
    match seat.join(seeds) {
        Ok(all) => {
            tracing::warn!(target: "audit", seeds = all.len(), "an operator names further seeds");
            Reply::Json(StatusCode::OK, json!({ "seeds": all }))
        }
        Err(NotJoined::TooMany) => {
            refuse(format!("Give fewer: at most {} seeds are tried.", gossip::SEEDS_MAX))
        }
        Err(NotJoined::Alone) => {
            let message =
                "This node belongs to no fleet; give it a cluster section and restart it.";
            conflict("no_cluster", message)
        }
        Err(NotJoined::HasLeft) => {
            conflict("has_left", "This node has left the fleet; restart it to join again.")
        }
        Err(NotJoined::Busy) => {
            let message = "The last seeds are still being taken; try again in a moment.";
            Reply::error(StatusCode::SERVICE_UNAVAILABLE, "busy", message)
        }
    }
}
