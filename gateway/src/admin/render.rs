//! How the state of the fleet is written down, for programs and people: JSON.

use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::StatusCode;
use quorum::electorate::Presence;
use quorum::view::{EndpointView, VoteView};
use quorum::{Denominator, EndpointKey, Forced, NodeId, Standing, Window};
use serde_json::{Value, json};

use super::{Admin, Reply, measure, tenants, why};
use crate::clock;
use crate::fleet::{Endpoint, Pool};

impl Admin {
    pub(super) fn readiness(&self) -> Reply {
        let now = clock::now();
        let council = self.seat.council();
        let is_draining = self.is_draining.load(Ordering::Relaxed);
        let observing = council.observing_until().saturating_sub(now);
        let is_suspect = council.is_suspect();
        let is_ready = !(is_draining || is_suspect && self.suspect_unready);
        let detail = json!({
            "ready": is_ready,
            "draining": is_draining,
            "suspect": is_suspect,
            "name_used_at": self.seat.duplicate(),
            "observing_ms": millis(observing),
            "cluster_can_decide": council.has_quorum(),
        });
        let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        Reply::Json(status, detail)
    }

    pub(super) fn members(&self) -> Value {
        let now = clock::now();
        let known = self.seat.members();
        let my_card = self.seat.card();
        let views = self.seat.council().members(now);
        let rows: Vec<Value> = views
            .iter()
            .map(|view| {
                let member = known.iter().find(|member| member.id == view.id);
                let card = member.and_then(|member| member.card.as_ref());
                let card = if view.is_me { Some(&my_card) } else { card };
                let standing = card.map_or(view.standing, |card| card.standing);
                let (state, lost_for) = match (view.presence, standing) {
                    (Presence::Lost(period), _) => ("lost", Some(millis(period))),
                    (Presence::Live, Standing::Serving) if view.is_suspect => ("suspect", None),
                    (Presence::Live, standing) => (standing.as_str(), None),
                };
                let generation = if view.is_me { self.seat.generation } else { view.generation };
                json!({
                    "id": view.id.as_str(),
                    "self": view.is_me,
                    "generation": generation,
                    "address": member.map(|member| member.address.as_str()),
                    "state": state,
                    "lost_for_ms": lost_for,
                    "version": card.map(|card| card.version.as_str()),
                    "config_hash": card.map(|card| card.config_hash.as_str()),
                    "steward_of": view.steward_of,
                    "muted": view.is_muted,
                })
            })
            .collect();
        json!({ "members": rows })
    }

    pub(super) fn cluster(&self) -> Value {
        let now = clock::now();
        let council = self.seat.council();
        let part = self.seat.fleet().share().get();
        json!({
            "node": self.seat.me.as_str(),
            "backend": if self.gossip.is_some() { "gossip" } else { "none" },
            "electorate": council.electorate_size(),
            "quorum": council.quorum(),
            "live": council.live_count(),
            "of": match self.of {
                Denominator::Members => "members",
                Denominator::Observers => "observers",
            },
            "suspect": council.is_suspect(),
            "name_used_at": self.seat.duplicate(),
            "limit_share": { "rank": part.rank(), "among": part.among() },
            "can_decide": council.has_quorum() && council.electorate_size() > 1,
            "observing_ms": millis(council.observing_until().saturating_sub(now)),
            "gossip": self.gossip.as_ref().map(|stats| {
                let counts = measure::gossip_counts(stats);
                let counts = counts.into_iter().map(|(name, count)| (name.to_owned(), json!(count)));
                counts.collect::<serde_json::Map<String, Value>>()
            }),
        })
    }

    pub(super) fn endpoints(&self) -> Value {
        let rows: Vec<Value> = self
            .seat
            .fleet()
            .endpoints()
            .filter_map(|(_, endpoint)| self.endpoint(&endpoint.key))
            .collect();
        json!({ "endpoints": rows })
    }

    pub(super) fn endpoint(&self, key: &EndpointKey) -> Option<Value> {
        let now = clock::now();
        let (pool, endpoint) = self.seat.fleet().endpoint(key)?;
        let cluster = self.seat.council().endpoint(now, key)?;
        Some(summary(now, pool, endpoint, &cluster))
    }

    /// The full why: what is so, who says it, what happens next and when, what happened lately.
    pub(super) fn explain(&self, key: &EndpointKey) -> Option<Value> {
        let now = clock::now();
        let (pool, endpoint) = self.seat.fleet().endpoint(key)?;
        let (cluster, is_suspect) = {
            let council = self.seat.council();
            (council.endpoint(now, key)?, council.is_suspect())
        };
        let view = endpoint.view(now);
        let history: Vec<Value> = self
            .history
            .of(key)
            .iter()
            .map(|entry| {
                json!({
                    "age_ms": millis(now.saturating_sub(entry.at)),
                    "unix_ms": entry.wall_millis,
                    "scope": entry.scope,
                    "what": entry.what,
                })
            })
            .collect();
        let mut value = summary(now, pool, endpoint, &cluster);
        let more = json!({
            "node": self.seat.me.as_str(),
            "verdict": why::verdict(now, endpoint, &cluster, is_suspect),
            "next": why::next(now, endpoint, &cluster),
            "evidence": {
                "streak": view.streak,
                "requests": view.requests,
                "faults": view.faults,
                "successes": view.successes,
                "slow_pieces": view.slow_pieces,
                "window_ms": millis(endpoint.config.rule.window),
            },
            "history": history,
            "tenants": tenants::shown(now, endpoint),
        });
        if let (Some(value), Some(more)) = (value.as_object_mut(), more.as_object()) {
            value.extend(more.clone());
        }
        Some(value)
    }
}

fn summary(now: Duration, pool: &Pool, endpoint: &Endpoint, cluster: &EndpointView) -> Value {
    let view = endpoint.view(now);
    let votes: Vec<Value> = cluster.votes.iter().map(vote).collect();
    let windows: Vec<Value> = cluster.windows.iter().map(window).collect();
    json!({
        "endpoint": endpoint.key.as_str(),
        "pool": pool.name,
        "name": endpoint.config.name,
        "in_rotation": is_in(now, endpoint, cluster),
        "forced": cluster.forced.as_str(),
        "forced_for_ms": cluster.forced_for.map(millis),
        "forced_by": cluster.order.as_ref().map(|(node, _)| node.as_str()),
        "forced_reason": cluster.order.as_ref().map(|(_, reason)| reason.as_str()),
        "local": {
            "state": view.state.to_string(),
            "rung": view.rung.map(|rung| rung.to_string()),
            "mode": endpoint.config.rule.mode.as_str(),
            "held": view.held,
            "epoch": view.epoch,
            "remaining_ms": view.remaining.map(millis),
            "level": view.level,
            "reason": view.opened_for.map(|reason| reason.to_string()),
        },
        "cluster": {
            "state": if cluster.is_open { "open" } else { "closed" },
            "incident": cluster.incident,
            "open_for_ms": cluster.open_for.map(millis),
            "due_in_ms": cluster.due_in.map(millis),
            "level": cluster.level,
            "step": cluster.step.as_ref().map(|step| json!({
                "stage": step.stage.as_str(),
                "failures": step.failures,
                "by": step.steward.as_str(),
            })),
            "canary": cluster.canary.as_ref().map(|(holder, turn, successes)| json!({
                "holder": holder.as_str(),
                "turn": turn,
                "successes": successes,
            })),
            "witnesses": cluster.witnesses,
            "steward": cluster.steward.as_ref().map(|node| node.as_str()),
            "votes_counted": cluster.tally.counted,
            "quorum": cluster.tally.quorum,
            "electorate": cluster.electorate,
        },
        "votes": votes,
        "windows": windows,
        "cooling_ms": millis(endpoint.cooling_for(now)),
        "misconfigured": endpoint.is_misconfigured(),
        "weight_percent": endpoint.weight(),
        "in_flight": endpoint.in_flight(),
        "latency_ms": millis(endpoint.latency()),
    })
}

fn vote(view: &VoteView) -> Value {
    json!({
        "voter": view.voter.as_str(),
        "weight": view.weight.as_str(),
        "state": view.vote.state.as_str(),
        "incident": view.vote.incident,
        "basis": view.vote.basis.as_str(),
        "reason": view.vote.reason,
        "age_ms": millis(view.age),
        "evidence": {
            "requests": view.vote.evidence.requests,
            "faults": f64::from(view.vote.evidence.faults_milli) / 1_000.0,
            "successes": view.vote.evidence.successes,
            "slow_pieces": view.vote.evidence.slow_pieces,
        },
    })
}

/// What a member has seen of late.
fn window((member, window, age): &(NodeId, Window, Duration)) -> Value {
    json!({
        "member": member.as_str(),
        "age_ms": millis(*age),
        "requests": window.requests,
        "faults": f64::from(window.faults_milli) / 1_000.0,
        "successes": window.successes,
        "slow_pieces": window.slow.len(),
    })
}

fn is_in(now: Duration, endpoint: &Endpoint, cluster: &EndpointView) -> bool {
    match cluster.forced {
        Forced::Open => false,
        Forced::Closed => true,
        Forced::Auto => endpoint.weight() > 0 && endpoint.cooling_for(now).is_zero(),
    }
}

pub(super) fn millis(period: Duration) -> u64 {
    u64::try_from(period.as_millis()).unwrap_or(u64::MAX)
}
