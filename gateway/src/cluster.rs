//! Joins this node to the fleet's decisions: what its breakers say goes out, verdicts come back.
//!
//! One loop owns the flow: hear what the carrier holds, state what the own breakers say, let the
//! council draw its conclusions, apply them to the endpoints, publish. It runs apart from the request
//! path, which only reads what it leaves in the endpoints. A node without a `cluster` section runs
//! the same loop with nobody to hear, so that overrides and recovery work the same.

mod chronicle;
pub mod clerk;
mod commands;
mod courier;
mod deputy;
mod herald;
mod holders;
pub(crate) mod muster;
mod probe;
mod reach;
#[cfg(test)]
pub(crate) mod rehearsal;
mod spoils;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use gossip::{Mine, Ours};
use quorum::{
    Card, Council, CouncilRule, Decision, Denominator, ElectorateRule, EndpointKey, Forced, Member,
    NodeId, ProbeResult, Said, Standing,
};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use self::chronicle::{Chronicle, Line};
use self::commands::{Asked, Seeds};
pub use self::commands::{NotJoined, Refused};
pub use self::courier::Courier;
pub use self::deputy::{Deputy, Mark, Round, Try};
use self::herald::Herald;
use self::holders::Holders;
pub use self::reach::{Cause, Link, Reach, Reached};
use crate::clock;
use crate::config;
use crate::events::Events;
use crate::fleet::{Fleet, Heir};
use crate::history::{Entry, History};
use crate::metrics::{Meters, words};
use crate::upstream::{Roads, Upstream};

/// How often deadlines are looked at.
const TICK: Duration = Duration::from_millis(100);
/// A vote lapses when it was not renewed for this many gossip intervals.
const VOTE_TTL_INTERVALS: u32 = 10;
/// A vote is renewed every this many gossip intervals.
const RENEW_INTERVALS: u32 = 2;

/// This node's seat in the fleet: its council, and what may be asked and ordered.
pub struct Seat {
    /// This node's name.
    pub me: NodeId,
    /// This node's generation.
    pub generation: u64,
    deputy: Deputy,
    card: Mutex<Card>,
    /// The client that sends the probes.
    probes: ArcSwap<Upstream>,
    parts: Parts,
    members: Mutex<Arc<Vec<Member>>>,
    /// What was told last to those who follow the events.
    herald: Mutex<Herald>,
    /// What of it was noted in the history.
    chronicle: Mutex<Chronicle>,
    /// Who holds a share of the limits.
    holders: Mutex<Holders>,
    /// Where another process uses this node's name.
    duplicate: Mutex<Option<String>>,
    /// When a sign of life of each other member last came.
    beats: Mutex<BTreeMap<NodeId, Instant>>,
    /// How far an operator wants this node to go.
    asked: Asked,
    seeds: Seeds,
    /// Whether it belongs to no fleet.
    is_alone: bool,
    /// How this node stands with the ledger; `None`: there is none.
    reach: Option<Reach>,
    /// Woken after each round.
    rounds: Notify,
    /// When the loop last went round, in milliseconds; [`ENDED`]: it has ended in good order.
    round_ms: AtomicU64,
}

/// [`Seat::round_ms`] of a loop that was told to stop.
const ENDED: u64 = u64::MAX;

/// What a seat shares with the rest of the gateway.
#[derive(Clone)]
pub struct Parts {
    /// Where what happened is noted.
    pub history: Arc<History>,
    /// Who follows what happens.
    pub events: Arc<Events>,
    /// What is counted.
    pub meters: Arc<Meters>,
    /// Wakes the loop: a breaker has changed, or an order was given.
    pub wake: Arc<Notify>,
    /// Where orders to the carrier go; `None`: there is none.
    pub carrier: Option<mpsc::Sender<gossip::Command>>,
}

impl Seat {
    /// Takes a seat for `me`; `cluster` is the configuration's section, if there is one. Verdicts are
    /// applied to the endpoints of `fleet`, which are probed over `probes`.
    pub fn new(
        (me, generation): (NodeId, u64),
        cluster: Option<&config::Cluster>,
        card: Card,
        (fleet, probes): (Arc<Fleet>, Upstream),
        parts: Parts,
    ) -> Self {
        let deputy = Deputy::new(me.clone(), council_rule(cluster), fleet, clock::now());
        deputy.council().live_as(generation);
        let wire = cluster.and_then(|cluster| cluster.gossip.as_ref());
        let seeds = wire.map(|wire| wire.seeds.clone()).unwrap_or_default();
        // Who does not gossip asks nobody, and is one of several all the same.
        let asked = if cluster.is_some() && wire.is_none() { 1 } else { seeds.len() };
        let holders = Mutex::new(Holders::new(me.clone(), asked));
        let redis = cluster.and_then(config::Cluster::redis);
        let reach = redis.map(|redis| Reach::new(clock::now(), redis));
        Self {
            me,
            generation,
            deputy,
            card: Mutex::new(card),
            probes: ArcSwap::from_pointee(probes),
            parts,
            members: Mutex::default(),
            herald: Mutex::default(),
            chronicle: Mutex::default(),
            holders,
            duplicate: Mutex::default(),
            beats: Mutex::default(),
            asked: Asked::default(),
            seeds: Mutex::new(seeds),
            is_alone: cluster.is_none(),
            reach,
            rounds: Notify::new(),
            round_ms: AtomicU64::new(millis(clock::now())),
        }
    }

    /// The council, for views and orders; never held over an await.
    pub fn council(&self) -> MutexGuard<'_, Council> {
        self.deputy.council()
    }

    /// The address of another process that uses this node's name, if one does.
    pub fn duplicate(&self) -> Option<String> {
        lock(&self.duplicate).clone()
    }

    /// The members as the carrier last showed them, this node excluded.
    pub fn members(&self) -> Arc<Vec<Member>> {
        Arc::clone(&lock(&self.members))
    }

    /// How long ago a sign of life of a member last came; `None`: none ever has.
    pub fn heard_ago(&self, id: &NodeId) -> Option<Duration> {
        let beat = lock(&self.beats).get(id).copied();
        beat.map(|beat| clock::instant().saturating_duration_since(beat))
    }

    /// How this node stands with the ledger; `None`: there is none.
    pub fn reach(&self) -> Option<&Reach> {
        self.reach.as_ref()
    }

    /// How long before `now` the loop last went round; `None`: it has ended in good order. Before its
    /// first round it counts from when the seat was taken.
    pub fn since_round(&self, now: Duration) -> Option<Duration> {
        match self.round_ms.load(Ordering::Relaxed) {
            ENDED => None,
            at => Some(now.saturating_sub(Duration::from_millis(at))),
        }
    }

    /// This node's endpoints of the moment.
    pub fn fleet(&self) -> Arc<Fleet> {
        self.deputy.fleet()
    }

    /// The client that sends the probes.
    pub fn probes(&self) -> Arc<Upstream> {
        self.probes.load_full()
    }

    /// Speaks for other endpoints from here on, to which `roads` lead; `config_hash` is what the fleet
    /// is told of the configuration.
    pub fn adopt(&self, heir: &Heir, roads: &Arc<Roads>, config_hash: String) {
        self.probes.store(Arc::new(self.probes().heir(roads)));
        self.deputy.adopt(clock::now(), heir);
        lock(&self.card).config_hash = config_hash;
        let is_known = |key: &EndpointKey| heir.fleet.endpoint(key).is_some();
        self.parts.history.retain(is_known);
        self.parts.wake.notify_one();
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

    /// Holds this node's part of every limit from `now` on, by those that it knows to hold one too.
    pub fn share_out(&self, now: Duration) {
        let part = lock(&self.holders).part(now, &self.council());
        if self.fleet().share().set(part) {
            let (rank, among) = (part.rank(), part.among());
            tracing::info!(rank, among, "this node's part of every limit");
        }
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
                _ = stop.wait_for(|stop| *stop) => {
                    self.round_ms.store(ENDED, Ordering::Relaxed);
                    return;
                }
            };
            if heard {
                let heard = ours.borrow_and_update().clone();
                *lock(&self.members) = Arc::new(heard.members);
                *lock(&self.duplicate) = heard.duplicate;
                *lock(&self.beats) = heard.beats;
            }
            self.round(&mine, heard);
            self.rounds.notify_one();
            self.round_ms.store(millis(clock::now()), Ordering::Relaxed);
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
        for (_, endpoint) in self.fleet().endpoints() {
            endpoint.discard_slow(now, since);
        }
    }

    /// One round: hear, decide, apply, publish; `heard`: the carrier has brought something.
    fn round(self: &Arc<Self>, mine: &watch::Sender<Mine>, heard: bool) {
        let now = clock::now();
        if self.has_left(mine) {
            // It has no say any more, and asks nothing of the endpoints; their clocks go on for as long
            // as it serves.
            self.fleet().tick(now);
            return;
        }
        let Round { decisions, let_go, said } = self.deputy.round(now, &self.members());
        self.share_out(now);
        self.write_down(now, &decisions);
        for decision in decisions {
            self.follow(now, decision);
        }
        for endpoint in let_go {
            let what = "let go: the fleet no longer has it out".to_owned();
            self.note(now, &endpoint, "cluster", what);
        }
        lock(&self.card).is_suspect = self.council().is_suspect();
        let card = self.card();
        self.tell(heard, said.as_ref(), &card);
        mine.send_if_modified(|mine| {
            let is_new = said.is_some() || mine.card.as_ref() != Some(&card);
            if let Some(said) = said {
                (mine.stated, mine.pulse) = (said.stated, said.pulse);
            }
            mine.card = Some(card);
            is_new
        });
        probe::recover_locally(self, now);
    }

    /// Whether this node has left the fleet, and has told it so.
    fn has_left(&self, mine: &watch::Sender<Mine>) -> bool {
        let is_left = |card: &Card| card.standing == Standing::Left;
        is_left(&lock(&self.card)) && mine.borrow().card.as_ref().is_some_and(is_left)
    }

    /// Tells those who follow what this round changed.
    fn tell(&self, heard: bool, said: Option<&Said>, card: &Card) {
        let (events, fleet, members) = (&self.parts.events, self.fleet(), self.members());
        let mut herald = lock(&self.herald);
        herald.look(events, &self.council(), &members, (&self.me, card));
        if heard {
            herald.hear(events, &fleet, &members);
        }
        if let Some(said) = said {
            herald.say(events, &fleet, &self.me, said);
        }
    }

    /// Notes in the history what members said, and what was decided by it.
    fn write_down(&self, now: Duration, decisions: &[Decision]) {
        let lines: Vec<Line> = {
            let council = self.council();
            let seen = lock(&self.chronicle).look(now, &council);
            let decided = decisions.iter();
            let decided = decided.filter_map(|one| chronicle::decided(now, &council, one));
            seen.into_iter().chain(decided).collect()
        };
        for Line { endpoint, scope, what } in lines {
            self.note(now, &endpoint, scope, what);
        }
    }

    /// Does what a decision asks for outside the endpoints: it is counted, noted and logged, and a
    /// probe is sent.
    fn follow(self: &Arc<Self>, now: Duration, decision: Decision) {
        self.parts.events.tell(herald::decided(now, &decision));
        match decision {
            Decision::Opened { endpoint, opening, tally, electorate } => {
                let took = now.saturating_sub(opening.since);
                self.flipped("open");
                self.parts.meters.flip_latency.record(took.as_secs_f64());
                tracing::warn!(%endpoint, incident = opening.incident, votes = tally.counted,
                    electorate, flip_ms = took.as_millis() as u64, "the fleet takes it out");
            }
            Decision::Closed { endpoint, incident, was_open } => {
                if was_open {
                    self.flipped("close");
                }
                tracing::info!(%endpoint, incident, "the incident is over");
            }
            Decision::Probe { endpoint, fence } => probe::lead(self, endpoint, fence),
            Decision::Lend { endpoint, fence, successes } => {
                tracing::info!(%endpoint, incident = fence.incident, turn = fence.turn, successes,
                    "this node holds the canary slot");
            }
            Decision::Recall { endpoint } => {
                tracing::info!(%endpoint, "the canary slot is handed on");
            }
            Decision::Forced { endpoint, forced } => {
                tracing::warn!(%endpoint, order = forced.as_str(), "an operator's order holds");
            }
            Decision::Ordered { verb, by, reason } => {
                tracing::warn!(target: "audit", order = verb.as_str(), %by, reason,
                    "an operator asks this node to go");
                self.asked.raise(verb);
            }
            Decision::Forgotten { member, by } => {
                tracing::warn!(target: "audit", %member, %by, "an operator forgets a lost member");
            }
        }
    }

    fn flipped(&self, direction: &'static str) {
        let labels = [("direction", direction)];
        self.parts.meters.counter("cluster_flips_total", &labels).increment(1);
    }

    /// Takes in how the steward's probe went.
    fn probed(&self, endpoint: &EndpointKey, fence: (u64, u32), result: ProbeResult) {
        let result_name = words::probed(result);
        let now = clock::now();
        tracing::info!(%endpoint, incident = fence.0, failures = fence.1, result = result_name,
            "this node, the steward, has probed");
        // The steps tell of one that passed or failed, on every node.
        if result == ProbeResult::Inconclusive {
            let what = format!("probe by {} {result_name}", self.me);
            self.note(now, endpoint, "cluster", what);
        }
        self.deputy.probed(now, endpoint, fence, result);
        self.parts.wake.notify_one();
    }

    fn note(&self, at: Duration, endpoint: &EndpointKey, scope: &'static str, what: String) {
        let wall_millis = clock::wall_millis_at(at);
        self.parts.history.note(endpoint, Entry { at, wall_millis, scope, what });
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(ENDED - 1)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every critical section leaves its value whole, so that a panic elsewhere spoils nothing.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The council's rule as the configuration's section says it; without one, that of a node alone.
pub fn council_rule(cluster: Option<&config::Cluster>) -> CouncilRule {
    let alone = config::QuorumConfig {
        expected_members: 0,
        member_grace: Duration::from_secs(60),
        max_open: Duration::from_secs(30 * 60),
        observe: Duration::ZERO,
        of: Denominator::Members,
        max_open_share_milli: 1_000,
        suspect_unready: false,
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
        of: quorum.of,
        max_open_share_milli: quorum.max_open_share_milli,
        interval,
    }
}
