//! One endpoint as `GET endpoints` shows it: this node's breaker, the fleet's verdict, the votes.

use std::time::Duration;

use quorum::view::{EndpointView, VoteView};
use quorum::{Evidence, NodeId, Window};
use schemars::JsonSchema;
use serde::Serialize;

use super::millis;
use crate::admin::case::Case;
use crate::admin::why;

/// One endpoint.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct EndpointRow {
    /// `pool/name`.
    pub(crate) endpoint: String,
    /// The model that it serves.
    pub(crate) pool: String,
    /// Its name in the pool.
    pub(crate) name: String,
    /// Whether this node sends clients' requests to it.
    pub(crate) in_rotation: bool,
    /// What is so and why, in one sentence.
    pub(crate) verdict: String,
    /// What happens next, in one sentence.
    pub(crate) next: String,
    /// In how long that happens; null if it waits for no time.
    pub(crate) next_in_ms: Option<u64>,
    /// The operators' order: `auto`, `force_open` or `force_closed`.
    pub(crate) forced: &'static str,
    /// How long the order still holds.
    pub(crate) forced_for_ms: Option<u64>,
    /// The node that took the order.
    pub(crate) forced_by: Option<String>,
    /// The reason that was given with it.
    pub(crate) forced_reason: Option<String>,
    /// This node's own breaker.
    pub(crate) local: LocalRow,
    /// What the fleet holds of it.
    pub(crate) cluster: ClusterRow,
    /// Every vote known, counting or not; at most one a member.
    pub(crate) votes: Vec<VoteRow>,
    /// What members have seen of late, while anybody suspects it; at most one a member.
    pub(crate) windows: Vec<WindowRow>,
    /// How long it is still left alone because it asked for it, or refused our credential.
    pub(crate) cooling_ms: u64,
    /// Whether it refused our credential, and has served nothing since.
    pub(crate) misconfigured: bool,
    /// The share of its usual weight that it gets, in percent; 0: its breaker or the fleet has it out.
    pub(crate) weight_percent: u8,
    /// Requests in flight from this node.
    pub(crate) in_flight: u32,
    /// The running mean of the time to the end of an answer.
    pub(crate) latency_ms: u64,
    /// How long answers took in the last one to two minutes.
    pub(crate) latency: LatencyRow,
    /// For which share of the last hour, or of this process's life if that is shorter, this node had it
    /// out of rotation; 0 to 1.
    pub(crate) open_share: f64,
}

/// This node's own breaker.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct LocalRow {
    /// `closed`, `open` or `half-open`.
    pub(crate) state: String,
    /// How far half-open has come: `probe`, `canary` or `ramp`.
    pub(crate) rung: Option<String>,
    /// `enforce`, `shadow` or `off`.
    pub(crate) mode: &'static str,
    /// Whether the fleet holds it open.
    pub(crate) held: bool,
    /// How many times its state has changed.
    pub(crate) epoch: u64,
    /// What is left of the cool-down.
    pub(crate) remaining_ms: Option<u64>,
    /// How many times the cool-down has doubled.
    pub(crate) level: u32,
    /// Why it opened.
    pub(crate) reason: Option<String>,
}

/// What the fleet holds of an endpoint.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct ClusterRow {
    /// `open` or `closed`.
    pub(crate) state: &'static str,
    /// The incident that stands, or the last one that was closed.
    pub(crate) incident: u64,
    /// How long the fleet has had it out.
    pub(crate) open_for_ms: Option<u64>,
    /// How long until the cool-down is over.
    pub(crate) due_in_ms: Option<u64>,
    /// How many times the cool-down has doubled.
    pub(crate) level: u32,
    /// The furthest step of the recovery.
    pub(crate) step: Option<StepRow>,
    /// Who holds the canary slot.
    pub(crate) canary: Option<CanaryRow>,
    /// How many live members saw bad evidence themselves.
    pub(crate) witnesses: usize,
    /// Who leads the recovery.
    pub(crate) steward: Option<String>,
    /// How many votes count.
    pub(crate) votes_counted: usize,
    /// How many have to.
    pub(crate) quorum: usize,
    /// Of how many members that is the majority.
    pub(crate) electorate: usize,
}

/// A step of recovery.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct StepRow {
    /// `waiting`, `probing`, `canary` or `closed`.
    pub(crate) stage: &'static str,
    /// How many probes and canaries have failed in this incident.
    pub(crate) failures: u32,
    /// Who took the step.
    pub(crate) by: String,
}

/// The fleet's one canary slot.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct CanaryRow {
    /// Who may send small requests.
    pub(crate) holder: String,
    /// How many times the slot has been handed on.
    pub(crate) turn: u32,
    /// How many have succeeded in a row.
    pub(crate) successes: u32,
}

/// One vote.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct VoteRow {
    /// Who cast it.
    pub(crate) voter: String,
    /// `counts`, or why it does not: `withdrawn`, `lapsed`, `voter_lost`, `incident_closed`,
    /// `abstains`, `shadow`, `suspect`, `muted`, `flapping`, `no_witness` or `not_observer`.
    pub(crate) weight: &'static str,
    /// What its voter says of it: `stands`, `withdrawn`, `abstains` or `shadow`.
    pub(crate) state: &'static str,
    /// The incident that it belongs to.
    pub(crate) incident: u64,
    /// `first_hand`, or `seconded` on the evidence of others.
    pub(crate) basis: &'static str,
    /// Why the voter's breaker opened.
    pub(crate) reason: String,
    /// How long ago it was cast.
    pub(crate) age_ms: u64,
    /// What the voter saw in its window.
    pub(crate) evidence: SeenRow,
}

/// What was seen in a window.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct SeenRow {
    /// Requests that ended.
    pub(crate) requests: u32,
    /// Weighted faults.
    pub(crate) faults: f64,
    /// Successes.
    pub(crate) successes: u32,
    /// Pieces of slow evidence.
    pub(crate) slow_pieces: u32,
}

/// What a member has seen of late.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct WindowRow {
    /// Who.
    pub(crate) member: String,
    /// How long ago it said so.
    pub(crate) age_ms: u64,
    /// Requests that ended.
    pub(crate) requests: u32,
    /// Weighted faults.
    pub(crate) faults: f64,
    /// Successes.
    pub(crate) successes: u32,
    /// Pieces of slow evidence.
    pub(crate) slow_pieces: usize,
}

/// How long answers took; null while none has come.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct LatencyRow {
    /// Half of the answers began within this.
    pub(crate) first_token_p50_ms: Option<u64>,
    /// Ninety-five of a hundred did.
    pub(crate) first_token_p95_ms: Option<u64>,
    /// Half of the answers were complete within this.
    pub(crate) total_p50_ms: Option<u64>,
    /// Ninety-five of a hundred were.
    pub(crate) total_p95_ms: Option<u64>,
}

impl EndpointRow {
    pub(crate) fn new(case: &Case<'_>) -> Self {
        let Case { now, pool, endpoint, cluster, .. } = case;
        let next = why::next(case);
        Self {
            endpoint: endpoint.key.to_string(),
            pool: pool.name.clone(),
            name: endpoint.config.name.clone(),
            in_rotation: endpoint.is_promising(*now),
            verdict: why::verdict(case),
            next: next.what,
            next_in_ms: next.within.map(millis),
            forced: cluster.forced.as_str(),
            forced_for_ms: cluster.forced_for.map(millis),
            forced_by: cluster.order.as_ref().map(|(node, _)| node.to_string()),
            forced_reason: cluster.order.as_ref().map(|(_, reason)| reason.clone()),
            local: LocalRow::new(case),
            cluster: ClusterRow::new(cluster),
            votes: cluster.votes.iter().map(VoteRow::new).collect(),
            windows: cluster.windows.iter().map(WindowRow::new).collect(),
            cooling_ms: millis(endpoint.cooling_for(*now)),
            misconfigured: endpoint.is_misconfigured(),
            weight_percent: endpoint.weight(),
            in_flight: endpoint.in_flight(),
            latency_ms: millis(endpoint.latency()),
            latency: LatencyRow::new(case),
            open_share: (endpoint.out_share(*now) * 10_000.0).round() / 10_000.0,
        }
    }
}

impl LocalRow {
    fn new(case: &Case<'_>) -> Self {
        let view = &case.local;
        Self {
            state: view.state.to_string(),
            rung: view.rung.map(|rung| rung.to_string()),
            mode: case.endpoint.config.rule.mode.as_str(),
            held: view.held,
            epoch: view.epoch,
            remaining_ms: view.remaining.map(millis),
            level: view.level,
            reason: view.opened_for.map(|reason| reason.to_string()),
        }
    }
}

impl ClusterRow {
    fn new(cluster: &EndpointView) -> Self {
        let step = cluster.step.as_ref().map(|step| StepRow {
            stage: step.stage.as_str(),
            failures: step.failures,
            by: step.steward.to_string(),
        });
        let canary = cluster.canary.as_ref().map(|(holder, turn, successes)| CanaryRow {
            holder: holder.to_string(),
            turn: *turn,
            successes: *successes,
        });
        Self {
            state: if cluster.is_open { "open" } else { "closed" },
            incident: cluster.incident,
            open_for_ms: cluster.open_for.map(millis),
            due_in_ms: cluster.due_in.map(millis),
            level: cluster.level,
            step,
            canary,
            witnesses: cluster.witnesses,
            steward: cluster.steward.as_ref().map(NodeId::to_string),
            votes_counted: cluster.tally.counted,
            quorum: cluster.tally.quorum,
            electorate: cluster.electorate,
        }
    }
}

impl VoteRow {
    fn new(view: &VoteView) -> Self {
        Self {
            voter: view.voter.to_string(),
            weight: view.weight.as_str(),
            state: view.vote.state.as_str(),
            incident: view.vote.incident,
            basis: view.vote.basis.as_str(),
            reason: view.vote.reason.clone(),
            age_ms: millis(view.age),
            evidence: SeenRow::new(view.vote.evidence),
        }
    }
}

impl SeenRow {
    fn new(seen: Evidence) -> Self {
        Self {
            requests: seen.requests,
            faults: f64::from(seen.faults_milli) / 1_000.0,
            successes: seen.successes,
            slow_pieces: seen.slow_pieces,
        }
    }
}

impl WindowRow {
    fn new((member, window, age): &(NodeId, Window, Duration)) -> Self {
        Self {
            member: member.to_string(),
            age_ms: millis(*age),
            requests: window.requests,
            faults: f64::from(window.faults_milli) / 1_000.0,
            successes: window.successes,
            slow_pieces: window.slow.len(),
        }
    }
}

impl LatencyRow {
    fn new(case: &Case<'_>) -> Self {
        let times = case.endpoint.times(case.now);
        Self {
            first_token_p50_ms: times.first_token.map(|of| millis(of.p50)),
            first_token_p95_ms: times.first_token.map(|of| millis(of.p95)),
            total_p50_ms: times.total.map(|of| millis(of.p50)),
            total_p95_ms: times.total.map(|of| millis(of.p95)),
        }
    }
}
