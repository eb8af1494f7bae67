//! Joins this node to the fleet's decisions: what its breakers say goes out, verdicts come back.
//!
//! One loop owns the flow: hear what the carrier holds, state what the own breakers say, let the
//! council draw its conclusions, apply them to the endpoints, publish. It runs apart from the request
//! path, which only reads what it leaves in the endpoints. A node without a `cluster` section runs
//! the same loop with nobody to hear, so that overrides and recovery work the same.

mod probe;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gossip::{Mine, Ours};
use quorum::circuit::Recovery;
use quorum::{
    Card, Council, CouncilRule, Decision, ElectorateRule, EndpointKey, Forced, Member, NodeId,
    ProbeResult, Standing,
};
use tokio::sync::{Notify, watch};

use crate::clock;
use crate::config;
use crate::fleet::Fleet;
use crate::history::{Entry, History};
use crate::metrics::Meters;
use crate::upstream::Upstream;

/// How often deadlines are looked at.
const TICK: Duration = Duration::from_millis(100);
/// A vote lapses when it was not renewed for this many gossip intervals.
const VOTE_TTL_INTERVALS: u32 = 10;
/// A vote is renewed every this many gossip intervals.
const RENEW_INTERVALS: u32 = 2;

/// After a restart the fleet's verdicts are heard anew within this, counted from the end of observing.
const RELEARN: Duration = Duration::from_secs(5);

/// This node's seat in the fleet: its council, and what may be asked and ordered.
pub struct Seat {
    /// This node's name.
    pub me: NodeId,
    /// This node's generation.
    pub generation: u64,
    council: Mutex<Council>,
    card: Mutex<Card>,
    parts: Parts,
    members: Mutex<Arc<Vec<Member>>>,
}

/// What a seat shares with the rest of the gateway.
#[derive(Clone)]
pub struct Parts {
    /// The endpoints, to which verdicts are applied.
    pub fleet: Arc<Fleet>,
    /// Where what happened is noted.
    pub history: Arc<History>,
    /// What is counted.
    pub meters: Arc<Meters>,
    /// Wakes the loop: a breaker has changed, or an order was given.
    pub wake: Arc<Notify>,
    /// The client that sends the probes.
    pub probes: Upstream,
}

impl Seat {
    /// Takes a seat for `me`; `cluster` is the configuration's section, if there is one.
    pub fn new(
        (me, generation): (NodeId, u64),
        cluster: Option<&config::Cluster>,
        card: Card,
        parts: Parts,
    ) -> Self {
        let rule = rule_of(cluster);
        let mut council = Council::new(me.clone(), rule, clock::now());
        for (_, endpoint) in parts.fleet.endpoints() {
            let open = &endpoint.config.rule.open;
            let recovery = Recovery {
                base: open.base,
                max: open.max,
                reset_after: open.reset_after,
                probe_timeout: endpoint.config.probe.first_token,
            };
            council.enrol(endpoint.key.clone(), recovery);
        }
        Self {
            me,
            generation,
            council: Mutex::new(council),
            card: Mutex::new(card),
            parts,
            members: Mutex::default(),
        }
    }

    /// The council, for views and orders; never held over an await.
    pub fn council(&self) -> MutexGuard<'_, Council> {
        lock(&self.council)
    }

    /// The members as the carrier last showed them, this node excluded.
    pub fn members(&self) -> Arc<Vec<Member>> {
        Arc::clone(&lock(&self.members))
    }

    /// This node's endpoints.
    pub fn fleet(&self) -> &Fleet {
        &self.parts.fleet
    }

    /// What this node says of itself.
    pub fn card(&self) -> Card {
        lock(&self.card).clone()
    }

    /// Takes an operator's order. Returns whether the endpoint is known.
    pub fn order(&self, key: &EndpointKey, order: (Forced, Option<Duration>), why: &str) -> bool {
        let is_known = self.council().order(clock::now(), key, order, why);
        self.parts.wake.notify_one();
        is_known
    }

    /// Says how this node takes part from here on, to itself and to the fleet.
    pub fn stand(&self, standing: Standing) {
        lock(&self.card).standing = standing;
        self.council().stand(standing);
        self.parts.wake.notify_one();
    }

    /// Runs until `stop`. `ours` is what the carrier holds, `mine` where this node's word goes.
    ///
    /// # Cancel safety
    /// Between two rounds nothing is half done.
    pub async fn run(
        self: Arc<Self>,
        mut ours: watch::Receiver<Ours>,
        mine: watch::Sender<Mine>,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut has_carrier = true;
        loop {
            let heard = tokio::select! {
                due = tick.tick() => {
                    self.judge_self(due);
                    false
                }
                () = self.parts.wake.notified() => false,
                changed = ours.changed(), if has_carrier => {
                    has_carrier = changed.is_ok();
                    has_carrier
                }
                _ = stop.wait_for(|stop| *stop) => return,
            };
            if heard {
                let members = ours.borrow_and_update().members.clone();
                *lock(&self.members) = Arc::new(members);
            }
            self.round(&mine);
        }
    }

    /// What this process measured while it was itself late is taken back.
    fn judge_self(&self, due: tokio::time::Instant) {
        let lag = clock::instant().saturating_duration_since(due);
        self.parts.meters.gauge("self_lag_seconds", &[]).set(lag.as_secs_f64());
        if lag <= clock::LAG_MAX {
            return;
        }
        tracing::warn!(
            lag_ms = lag.as_millis() as u64,
            "this process is late; its slow evidence is void"
        );
        let now = clock::now();
        let since = now.saturating_sub(lag + TICK);
        for (_, endpoint) in self.parts.fleet.endpoints() {
            endpoint.discard_slow(now, since);
        }
    }

    /// One round: hear, state, decide, apply, publish.
    fn round(self: &Arc<Self>, mine: &watch::Sender<Mine>) {
        let now = clock::now();
        let members = self.members();
        self.parts.fleet.tick(now);
        // What was heard is applied before this node states anything: a breaker whose incident was
        // closed is released first and does not vote anew by what it held before.
        let decisions = {
            let mut council = self.council();
            council.hear(now, &members);
            council.step(now)
        };
        self.apply(now, decisions);
        let decisions = {
            let mut council = self.council();
            for (_, endpoint) in self.parts.fleet.endpoints() {
                council.state(now, &endpoint.key, endpoint.local_opening());
            }
            council.step(now)
        };
        self.apply(now, decisions);
        self.let_go(now);
        let stated = self.council().statements(now);
        let card = self.card();
        mine.send_if_modified(|mine| {
            let is_new = stated.is_some() || mine.card.as_ref() != Some(&card);
            if let Some(stated) = stated {
                mine.stated = stated;
            }
            mine.card = Some(card);
            is_new
        });
        probe::recover_locally(self, now);
    }

    /// Lets go of what the state file says the fleet had out, once there was time to hear that it no
    /// longer has: the incident may have closed while this node was down.
    fn let_go(&self, now: Duration) {
        let orphans: Vec<EndpointKey> = {
            let council = self.council();
            if now < council.observing_until() + RELEARN {
                return;
            }
            let endpoints = self.parts.fleet.endpoints().map(|(_, endpoint)| endpoint);
            let orphans = endpoints.filter(|one| one.is_held() && !council.is_open(&one.key));
            orphans.map(|endpoint| endpoint.key.clone()).collect()
        };
        for endpoint in orphans {
            self.with(&endpoint, |one| one.release(now));
            self.note(
                now,
                &endpoint,
                "cluster",
                "let go: the fleet no longer has it out".to_owned(),
            );
        }
    }

    fn apply(self: &Arc<Self>, now: Duration, decisions: Vec<Decision>) {
        for decision in decisions {
            match decision {
                Decision::Opened { endpoint, opening, tally, electorate } => {
                    let took = now.saturating_sub(opening.since);
                    self.with(&endpoint, |one| one.hold(now));
                    self.parts
                        .meters
                        .counter("cluster_flips_total", &[("direction", "open")])
                        .increment(1);
                    self.parts
                        .meters
                        .histogram("flip_latency_seconds", &[])
                        .record(took.as_secs_f64());
                    let (counted, of) = (tally.counted, electorate);
                    tracing::warn!(%endpoint, incident = opening.incident, votes = counted,
                        electorate, flip_ms = took.as_millis() as u64, "the fleet takes it out");
                    self.note(
                        now,
                        &endpoint,
                        "cluster",
                        format!("opened: incident {}, {counted} of {of} votes", opening.incident),
                    );
                }
                Decision::Closed { endpoint, incident, was_open } => {
                    self.with(&endpoint, |one| one.release(now));
                    if was_open {
                        let labels = [("direction", "close")];
                        self.parts.meters.counter("cluster_flips_total", &labels).increment(1);
                    }
                    tracing::info!(%endpoint, incident, "the incident is over");
                    self.note(now, &endpoint, "cluster", format!("closed: incident {incident}"));
                }
                Decision::Probe { endpoint, fence } => probe::lead(self, endpoint, fence),
                Decision::Forced { endpoint, forced } => {
                    self.with(&endpoint, |one| one.force(forced));
                    let what = forced.as_str();
                    tracing::warn!(%endpoint, order = what, "an operator's order holds");
                    self.note(now, &endpoint, "operator", what.to_owned());
                }
            }
        }
    }

    /// Takes in how the steward's probe went.
    fn probed(&self, endpoint: &EndpointKey, fence: (u64, u32), result: ProbeResult) {
        let result_name = probe::word(result);
        let now = clock::now();
        tracing::info!(%endpoint, incident = fence.0, failures = fence.1, result = result_name,
            "this node, the steward, has probed");
        self.note(now, endpoint, "cluster", format!("probe by {} {result_name}", self.me));
        self.council().probed(now, endpoint, fence, result);
        self.parts.wake.notify_one();
    }

    fn with(&self, key: &EndpointKey, deed: impl FnOnce(&crate::fleet::Endpoint)) {
        if let Some((_, endpoint)) = self.parts.fleet.endpoint(key) {
            deed(endpoint);
        }
    }

    fn note(&self, at: Duration, endpoint: &EndpointKey, scope: &'static str, what: String) {
        let wall_millis = clock::wall_millis();
        self.parts.history.note(endpoint, Entry { at, wall_millis, scope, what });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every critical section leaves its value whole, so that a panic elsewhere spoils nothing.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn rule_of(cluster: Option<&config::Cluster>) -> CouncilRule {
    let alone = config::QuorumConfig {
        expected_members: 0,
        member_grace: Duration::from_secs(60),
        max_open: Duration::from_secs(30 * 60),
        observe: Duration::ZERO,
    };
    let quorum = cluster.map_or(&alone, |cluster| &cluster.quorum);
    let interval = cluster.map_or(Duration::from_secs(1), |cluster| cluster.gossip_interval);
    CouncilRule {
        electorate: ElectorateRule {
            expected_members: quorum.expected_members,
            member_grace: quorum.member_grace,
        },
        observe: quorum.observe,
        vote_ttl: interval * VOTE_TTL_INTERVALS,
        renew_every: interval * RENEW_INTERVALS,
        max_open: quorum.max_open,
    }
}
