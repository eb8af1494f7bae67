//! The page of metrics: what is counted as it happens, and what is looked up when somebody asks.
//!
//! Whatever can be read off the state of the gateway is no counter on anybody's way: it is looked up
//! here, once a scrape. A gauge that is not set again (an endpoint that is configured no more, a member
//! that was forgotten, the configuration before this one) leaves the page after a while.
//!
//! Invariants: labels are configured names, names of members, and words of closed lists.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use breaker::{Rung, State, View};
use gossip::Reject;
use quorum::electorate::Presence;
use quorum::view::Glance;
use quorum::{Council, Standing};
use redis_lua::client::{Client, Figures};
use redis_lua::error::Trouble;

use super::{Admin, tenants};
use crate::clock;
use crate::cluster::{Link, Reached};
use crate::fleet::Endpoint;
use crate::metrics::{Meters, process};

/// What a member is, as far as this node can tell.
const MEMBER_STATES: [&str; 5] = ["live", "suspect", "draining", "left", "lost"];

impl Admin {
    /// What was counted of the traffic with the ledger; nothing where there is none.
    pub(super) fn ledger_figures(&self) -> Figures {
        self.ledger.as_ref().map(Client::figures).unwrap_or_default()
    }

    /// Everything that is counted, as Prometheus text.
    pub(super) fn metrics(&self) -> String {
        let (now, meters) = (clock::now(), &*self.meters);
        for (_, endpoint) in self.seat.fleet().endpoints() {
            let cluster = self.seat.council().glance(now, &endpoint.key);
            let view = endpoint.view(now);
            look_at(meters, endpoint, &view, cluster);
            tenants::measure(now, meters, endpoint);
        }
        for pool in self.seat.fleet().pools() {
            pool.meters.all_open.set(if pool.is_all_open() { 1.0 } else { 0.0 });
        }
        meters
            .gauge("limit_share", &[])
            .set(1.0 / f64::from(self.seat.fleet().share().get().among()));
        meters.gauge("body_memory_bytes", &[]).set(self.memory.lent_bytes() as f64);
        count_members(meters, &self.seat.council(), now);
        let is_named_twice = self.seat.duplicate().is_some();
        meters.gauge("name_used_twice", &[]).set(if is_named_twice { 1.0 } else { 0.0 });
        let card = self.seat.card();
        meters.gauge("build_info", &[("version", &card.version)]).set(1.0);
        meters.gauge("config_info", &[("hash", &card.config_hash)]).set(1.0);
        if let Some(stats) = &self.gossip {
            carried(meters, stats);
        }
        if let Some(reached) = self.reached() {
            decided(meters, &reached, &self.ledger_figures());
        }
        let mut page = meters.render();
        process::write(&mut page);
        page
    }
}

/// How an endpoint stands.
fn look_at(meters: &Meters, endpoint: &Endpoint, view: &View, cluster: Option<Glance>) {
    let name = endpoint.key.as_str();
    let gauge = |what: &str, value: f64| meters.gauge(what, &[("endpoint", name)]).set(value);
    let state = |scope| [("endpoint", name), ("scope", scope)];
    let local = match view.state {
        State::Closed => 0.0,
        State::Open => 1.0,
        State::HalfOpen => 2.0,
    };
    meters.gauge("breaker_state", &state("local")).set(local);
    let is_open = cluster.is_some_and(|cluster| cluster.is_open);
    // Once the steward's probe has passed, the fleet tries it with canaries.
    let is_tried = cluster.is_some_and(|cluster| cluster.is_tried);
    let state_of_all = if is_open && is_tried { 2.0 } else { f64::from(u8::from(is_open)) };
    meters.gauge("breaker_state", &state("cluster")).set(state_of_all);
    gauge("votes", cluster.map_or(0.0, |cluster| cluster.counted as f64));
    gauge("in_flight", f64::from(endpoint.in_flight()));
    gauge("upstream_misconfigured", f64::from(u8::from(endpoint.is_misconfigured())));
    let canaries = if view.rung == Some(Rung::Canary) { view.half_open_in_flight } else { 0 };
    gauge("canary_in_flight", f64::from(canaries));
}

/// Who there is, and how many are to agree.
fn count_members(meters: &Meters, council: &Council, now: Duration) {
    meters.gauge("electorate", &[]).set(council.electorate_size() as f64);
    meters.gauge("quorum_required", &[]).set(council.quorum() as f64);
    meters.gauge("has_quorum", &[]).set(if council.has_quorum() { 1.0 } else { 0.0 });
    let mut counts = MEMBER_STATES.map(|state| (state, 0_u32));
    for member in council.members(now) {
        let suspect = if member.is_suspect { 1.0 } else { 0.0 };
        meters.gauge("node_suspect", &[("node", member.id.as_str())]).set(suspect);
        let state = match (member.presence, member.standing) {
            (Presence::Lost(_), _) => "lost",
            (Presence::Live, Standing::Serving) if member.is_suspect => "suspect",
            (Presence::Live, Standing::Serving) => "live",
            (Presence::Live, Standing::Draining | Standing::Left) => member.standing.as_str(),
        };
        for (_, count) in counts.iter_mut().filter(|(name, _)| *name == state) {
            *count += 1;
        }
    }
    for (state, count) in counts {
        meters.gauge("members", &[("state", state)]).set(f64::from(count));
    }
}

/// How the ledger fares.
fn decided(meters: &Meters, reached: &Reached, figures: &Figures) {
    let is_up = f64::from(u8::from(reached.link == Link::Up));
    meters.gauge("redis_up", &[]).set(is_up);
    let counter = |name: &str, count| meters.counter(name, &[]).absolute(count);
    counter("redis_fallback_seconds_total", reached.fallback.as_secs());
    counter("ledger_conflicts_total", reached.conflicts);
    counter("redis_reconnects_total", figures.reconnects);
    // At nought until then, so that the first is an increase to whoever watches.
    for kind in [Trouble::Away, Trouble::Timeout, Trouble::Busy] {
        meters.counter("redis_errors_total", &[("kind", kind.kind())]).increment(0);
    }
    for (kind, count) in &figures.troubles {
        meters.counter("redis_errors_total", &[("kind", kind)]).absolute(*count);
    }
}

/// What the carrier has counted.
fn carried(meters: &Meters, stats: &gossip::Stats) {
    for (name, count) in gossip_counts(stats) {
        meters.counter(&format!("gossip_{name}_total"), &[]).absolute(count);
    }
    for reason in Reject::ALL {
        let labels = [("reason", reason.as_str())];
        meters.counter("gossip_rejects_total", &labels).absolute(stats.rejects(reason));
    }
    for (name, gauge) in [
        ("gossip_connections", &stats.connections),
        ("gossip_lives", &stats.lives),
        ("gossip_digest_bytes", &stats.digest_bytes),
    ] {
        meters.gauge(name, &[]).set(gauge.load(Ordering::Relaxed) as f64);
    }
    let end = stats.certificate_end.load(Ordering::Relaxed);
    // A fleet without certificates has none that could run out.
    if end > 0 {
        meters.gauge("gossip_certificate_end_timestamp_seconds", &[]).set(end as f64);
    }
}

/// What the carrier has counted, by name.
pub(super) fn gossip_counts(stats: &gossip::Stats) -> [(&'static str, u64); 12] {
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
