//! What an operator may ask of members: to drain, to leave, to be forgotten; and further seeds.
//!
//! An order may be given to any node. The member itself follows it, which shows in its standing; the
//! answer here says that it was taken, not that it was done.

use hyper::StatusCode;
use quorum::{MemberVerb, NodeId, NotOrdered};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::body::object;
use super::{Admin, Reply, route};
use crate::cluster::{NotJoined, Refused, Seat};
use crate::config::parse_seed;

/// Longest reason, in bytes; the fleet carries as much.
const REASON_BYTES_MAX: usize = 256;

/// Why a member is asked.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Why {
    /// One line of at most 256 bytes.
    #[serde(default)]
    #[schemars(length(max = 256))]
    reason: String,
}

/// What a member was asked.
#[derive(Serialize, JsonSchema)]
pub(super) struct Asked {
    /// Which.
    member: String,
    /// What stands: `drain`, `leave` or `forget`; the stronger one where two were asked.
    order: &'static str,
    /// Why.
    reason: String,
}

/// Further seeds.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Join {
    /// Each `host:port`.
    #[schemars(length(max = 256))]
    seeds: Vec<String>,
}

/// The seeds that are tried.
#[derive(Serialize, JsonSchema)]
pub(super) struct Joined {
    /// All of them, those of the configuration too.
    seeds: Vec<String>,
}

pub(super) fn drain(admin: &Admin, asked: &route::Asked<'_>) -> Reply {
    order(&admin.seat, asked, MemberVerb::Drain)
}

pub(super) fn leave(admin: &Admin, asked: &route::Asked<'_>) -> Reply {
    order(&admin.seat, asked, MemberVerb::Leave)
}

pub(super) fn forget(admin: &Admin, asked: &route::Asked<'_>) -> Reply {
    order(&admin.seat, asked, MemberVerb::Forget)
}

fn order(seat: &Seat, asked: &route::Asked<'_>, verb: MemberVerb) -> Reply {
    let id = NodeId::new(asked.named("id"));
    let refuse = |message: String| Reply::error(StatusCode::BAD_REQUEST, "invalid_order", message);
    let body: &[u8] = if asked.body.trim_ascii().is_empty() { b"{}" } else { &asked.body };
    let Why { reason } = match object(body) {
        Ok(why) => why,
        Err(error) => {
            let shape = r#"{"reason": "…"}"#;
            return refuse(format!("The body is no reason ({error}); send {shape} or nothing."));
        }
    };
    if reason.len() > REASON_BYTES_MAX || reason.chars().any(char::is_control) {
        return refuse(format!("reason must be one line of at most {REASON_BYTES_MAX} bytes."));
    }
    match seat.order_member(&id, verb, &reason) {
        Ok(stands) => Reply::ok(&Asked { member: id.to_string(), order: stands.as_str(), reason }),
        Err(refused) => refusal(&id, refused),
    }
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
pub(super) fn join(admin: &Admin, asked: &route::Asked<'_>) -> Reply {
    let refuse = |message: String| Reply::error(StatusCode::BAD_REQUEST, "invalid_seeds", message);
    let join: Join = match object(&asked.body) {
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
    match admin.seat.join(seeds) {
        Ok(seeds) => Reply::ok(&Joined { seeds }),
        Err(NotJoined::TooMany) => {
            refuse(format!("Give fewer: at most {} seeds are tried.", gossip::SEEDS_MAX))
        }
        Err(NotJoined::Alone) => {
            let message =
                "This node belongs to no fleet; give it a cluster section and restart it.";
            conflict("no_cluster", message)
        }
        Err(NotJoined::NoGossip) => {
            let message = "This fleet does not gossip: its members find each other in Redis, and \
                there is nobody to ask.";
            conflict("no_gossip", message)
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
