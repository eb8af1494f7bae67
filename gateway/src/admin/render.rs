//! How the state of the fleet is written down: JSON for programs and people, Prometheus for graphs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use breaker::State;
use gossip::Reject;
use hyper::StatusCode;
use quorum::electorate::Presence;
use quorum::view::MemberView;
use quorum::{EndpointKey, Member, Standing};

use super::case::{Case, Seated};
use super::view::cluster::{self, Cluster, LimitShare};
use super::view::endpoint::EndpointRow;
use super::view::explain::Explained;
use super::view::health::{Condition, Health, Readiness};
use super::view::list::{Endpoints, Wanted};
use super::view::member::{Me, MemberRow, Members};
use super::view::millis;
use super::{Admin, Reply, tenants};
use crate::clock;

impl Admin {
    pub(super) fn health(&self) -> Reply {
        let health = Health::new(self.seat.since_round(clock::now()));
        let status =
            if health.is_stuck() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
        Reply::written(status, &health)
    }

    pub(super) fn readiness(&self) -> Reply {
        let readiness = Readiness::new(&self.condition(clock::now()));
        let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        Reply::written(status, &readiness)
    }

    fn condition(&self, now: Duration) -> Condition {
        let fleet = self.seat.fleet();
        let pools = fleet.pools();
        let out = pools.iter().filter(|pool| pool.is_all_open());
        let council = self.seat.council();
        Condition {
            is_draining: self.is_draining.load(Ordering::Relaxed),
            has_drained: self.seat.has_drained(),
            is_suspect: council.is_suspect(),
            suspect_unready: self.suspect_unready,
            observing: council.observing_until().saturating_sub(now),
            name_used_at: self.seat.duplicate(),
            config_error: self.reload.last_error().map(|failure| failure.message),
            pools_out: out.map(|pool| pool.name.clone()).collect(),
            pools: pools.len(),
            can_decide: council.has_quorum(),
        }
    }

    pub(super) fn members(&self) -> Members {
        let now = clock::now();
        let known = self.seat.members();
        let me =
            Me { card: self.seat.card(), generation: self.seat.generation, uptime: clock::now() };
        let views = self.seat.council().members(now);
        let row = |view: &MemberView| {
            MemberRow::new(view, known.iter().find(|member| member.id == view.id), &me)
        };
        let mut members: Vec<MemberRow> = views.iter().map(row).collect();
        let counts = |member: &&Member| views.iter().any(|view| view.id == member.id);
        let gone = known.iter().filter(|member| !counts(member)).filter_map(MemberRow::left);
        members.extend(gone);
        Members { members }
    }

    pub(super) fn cluster(&self) -> Cluster {
        let now = clock::now();
        let (part, card) = (self.seat.fleet().share().get(), self.seat.card());
        let config_skew = cluster::is_skewed(&card, &self.seat.members());
        let council = self.seat.council();
        Cluster {
            node: self.seat.me.to_string(),
            version: card.version,
            uptime_ms: millis(now),
            config_hash: card.config_hash,
            config_skew,
            backend: if self.gossip.is_some() { "gossip" } else { "none" },
            electorate: council.electorate_size(),
            quorum: council.quorum(),
            live: council.live_count(),
            of: cluster::word_of(self.of),
            suspect: council.is_suspect(),
            name_used_at: self.seat.duplicate(),
            limit_share: LimitShare { rank: part.rank(), among: part.among() },
            can_decide: council.has_quorum() && council.electorate_size() > 1,
            observing_ms: millis(council.observing_until().saturating_sub(now)),
            gossip: self.gossip.as_ref().map(|stats| gossip_counts(stats).into_iter().collect()),
        }
    }

    /// The endpoints that are wanted.
    ///
    /// # Errors
    /// What is wrong with what is wanted, and what to do.
    pub(super) fn endpoints(&self, wanted: &Wanted) -> Result<Endpoints, String> {
        let fleet = self.seat.fleet();
        Endpoints::new(clock::now(), (&self.seat.me, &fleet), || self.seat.council(), wanted)
    }

    pub(super) fn endpoint(&self, key: &EndpointKey) -> Option<EndpointRow> {
        let now = clock::now();
        let fleet = self.seat.fleet();
        let (pool, endpoint) = fleet.endpoint(key)?;
        let (cluster, seat) = {
            let council = self.seat.council();
            (council.endpoint(now, key)?, Seated::new(now, &self.seat.me, &council))
        };
        Some(EndpointRow::new(&Case::new(now, (pool, endpoint), cluster, &seat)))
    }

    /// The full why: what is so, who says it, what happens next and when, what happened lately.
    pub(super) fn explain(&self, key: &EndpointKey) -> Option<Explained> {
        let fleet = self.seat.fleet();
        let of = (&self.seat.me, &*fleet, self.of);
        Explained::look(clock::now(), of, || self.seat.council(), key, &self.history.of(key))
    }

    pub(super) fn metrics(&self) -> String {
        let now = clock::now();
        for (_, endpoint) in self.seat.fleet().endpoints() {
            let Some(cluster) = self.seat.council().endpoint(now, &endpoint.key) else { continue };
            let name = endpoint.key.as_str();
            let local = match endpoint.view(now).state {
                State::Closed => 0.0,
                State::Open => 1.0,
                State::HalfOpen => 2.0,
            };
            let state = |scope| [("endpoint", name), ("scope", scope)];
            self.meters.gauge("breaker_state", &state("local")).set(local);
            let out = if cluster.is_open { 1.0 } else { 0.0 };
            self.meters.gauge("breaker_state", &state("cluster")).set(out);
            self.meters.gauge("votes", &[("endpoint", name)]).set(cluster.tally.counted as f64);
            let in_flight = f64::from(endpoint.in_flight());
            self.meters.gauge("in_flight", &[("endpoint", name)]).set(in_flight);
            let misconfigured = if endpoint.is_misconfigured() { 1.0 } else { 0.0 };
            let labels = [("endpoint", name)];
            self.meters.gauge("upstream_misconfigured", &labels).set(misconfigured);
            tenants::measure(now, &self.meters, endpoint);
        }
        for pool in self.seat.fleet().pools() {
            pool.meters.all_open.set(if pool.is_all_open() { 1.0 } else { 0.0 });
        }
        let council = self.seat.council();
        self.meters.gauge("electorate", &[]).set(council.electorate_size() as f64);
        self.meters.gauge("quorum_required", &[]).set(council.quorum() as f64);
        let members = council.members(now);
        drop(council);
        for member in &members {
            let suspect = if member.is_suspect { 1.0 } else { 0.0 };
            self.meters.gauge("node_suspect", &[("node", member.id.as_str())]).set(suspect);
        }
        for state in ["live", "draining", "left", "lost"] {
            let of = |presence, standing: Standing| match presence {
                Presence::Lost(_) => "lost",
                Presence::Live => standing.as_str(),
            };
            let count = members.iter().filter(|m| of(m.presence, m.standing) == state).count();
            self.meters.gauge("members", &[("state", state)]).set(count as f64);
        }
        if let Some(stats) = &self.gossip {
            for (name, count) in gossip_counts(stats) {
                self.meters.counter(&format!("gossip_{name}_total"), &[]).absolute(count);
            }
            for reason in Reject::ALL {
                let labels = [("reason", reason.as_str())];
                self.meters
                    .counter("gossip_rejects_total", &labels)
                    .absolute(stats.rejects(reason));
            }
            for (name, gauge) in [
                ("gossip_connections", &stats.connections),
                ("gossip_lives", &stats.lives),
                ("gossip_digest_bytes", &stats.digest_bytes),
            ] {
                self.meters.gauge(name, &[]).set(gauge.load(Ordering::Relaxed) as f64);
            }
        }
        self.meters.render()
    }
}

/// What the carrier has counted, by name.
fn gossip_counts(stats: &gossip::Stats) -> [(&'static str, u64); 12] {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    [
        ("rounds", count(&stats.rounds)),
        ("frames_in", count(&stats.frames_in)),
        ("frames_out", count(&stats.frames_out)),
        ("bytes_in", count(&stats.bytes_in)),
        ("bytes_out", count(&stats.bytes_out)),
        ("pushes_in", count(&stats.pushes_in)),
        ("pushes_out", count(&stats.pushes_out)),
        ("send_queue_drops", count(&stats.send_queue_drops)),
        ("handshakes_refused", count(&stats.handshakes_refused)),
        ("unstated", count(&stats.unstated)),
        ("restarts", count(&stats.restarts)),
        ("duplicates", count(&stats.duplicates)),
    ]
}
