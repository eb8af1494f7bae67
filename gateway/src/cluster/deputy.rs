//! Speaks for this node's breakers in the council, and carries the council's verdicts back to them.
//!
//! It is the whole of what a round of the fleet does to a node but for its effects outside: it
//! sends no probe, counts nothing and logs nothing, and time comes in as an argument, so that the
//! simulator drives the same code as the gateway. What was decided is returned.
//!
//! Invariants:
//! - What was heard is applied before anything is stated: a breaker whose incident was closed does
//!   not vote anew by what it held before.
//! - A breaker's lock may be taken under the council's, never the other way round.
//! - A round and a change of the endpoints take turns.

mod adopt;
mod papers;
mod tries;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use arc_swap::ArcSwap;
use breaker::{Rung, State};
use quorum::circuit::{Recovery, Way};
use quorum::{
    CanaryFence, CanaryWord, Conviction, Council, CouncilRule, Decision, EndpointKey, Enrolment,
    Member, NodeId, PoolKey, ProbeResult, Said,
};

pub use self::tries::{Mark, Try};
use super::clerk::Clerk;
use super::lock;
use crate::fleet::{Endpoint, Fleet, Pool};

/// After a restart the fleet's verdicts are heard anew within this, counted from the end of observing.
const RELEARN: Duration = Duration::from_secs(5);

/// A member that holds the canary slot hands it on when no small request came for as long as the
/// first cool-down, within these bounds. Where no client asks at all, the holder's own small requests
/// come at twice the pace of the shortest turn, so that the slot does not wander meanwhile.
const TURN_MIN: Duration = Duration::from_secs(2);
const TURN_MAX: Duration = Duration::from_secs(10);

/// One node's voice in the council.
pub struct Deputy {
    /// The endpoints of the moment.
    fleet: ArcSwap<Fleet>,
    /// Held for a whole round and for a change of the endpoints, so that neither meets half of the other.
    turn: Mutex<()>,
    council: Mutex<Council>,
    /// What this node has to do with the ledger, if the fleet has one. Its lock is taken under the
    /// council's.
    clerk: Mutex<Clerk>,
    /// The endpoints whose canary slot this node holds. Bounded by the endpoints.
    lent: Mutex<BTreeMap<EndpointKey, Lent>>,
}

/// A canary slot that this node holds.
#[derive(Clone, Copy, Debug)]
struct Lent {
    fence: CanaryFence,
    /// Successes that were reported.
    counted: u32,
}

/// What one round came to.
#[derive(Debug, Default)]
pub struct Round {
    /// What was decided, and applied to the endpoints but for the probes, which the caller sends.
    pub decisions: Vec<Decision>,
    /// Endpoints that a state file had out and the fleet no longer has.
    pub let_go: Vec<EndpointKey>,
    /// What this node states from here on, if anything of it is new.
    pub said: Option<Said>,
}

impl Deputy {
    /// A deputy for the endpoints of `fleet`, each enrolled with its own rule.
    pub fn new(me: NodeId, rule: CouncilRule, fleet: Arc<Fleet>, now: Duration) -> Self {
        let mut council = Council::new(me, rule, now);
        for (pool, endpoint) in fleet.endpoints() {
            council.enrol(endpoint.key.clone(), enrolment(pool, endpoint));
        }
        let fleet = ArcSwap::new(fleet);
        Self {
            fleet,
            turn: Mutex::default(),
            council: Mutex::new(council),
            clerk: Mutex::default(),
            lent: Mutex::default(),
        }
    }

    /// The endpoints of the moment.
    pub fn fleet(&self) -> Arc<Fleet> {
        self.fleet.load_full()
    }

    /// The council, for views and orders.
    pub fn council(&self) -> MutexGuard<'_, Council> {
        lock(&self.council)
    }

    /// One round at `now`: hears `members`, states the breakers, decides, applies.
    pub fn round(&self, now: Duration, members: &[Member]) -> Round {
        let _turn = lock(&self.turn);
        let fleet = self.fleet();
        fleet.tick(now);
        let mut decisions = {
            let mut council = self.council();
            council.hear(now, members);
            council.step(now)
        };
        self.apply(now, &decisions);
        self.report_canaries(now);
        let more = {
            let mut council = self.council();
            for (pool, endpoint) in fleet.endpoints() {
                let local = endpoint.local(now, pool.has_small(now));
                council.state(now, &endpoint.key, local);
            }
            council.step(now)
        };
        self.apply(now, &more);
        decisions.extend(more);
        let let_go = self.let_go(now);
        let said = self.council().statements(now);
        Round { decisions, let_go, said }
    }

    /// Takes in how the probe of a [`Decision::Probe`] went.
    pub fn probed(&self, now: Duration, key: &EndpointKey, fence: (u64, u32), result: ProbeResult) {
        self.council().probed(now, key, fence, result);
    }

    /// Whether this node holds the canary slot of an endpoint.
    pub fn holds_slot(&self, key: &EndpointKey) -> bool {
        lock(&self.lent).contains_key(key)
    }

    fn apply(&self, now: Duration, decisions: &[Decision]) {
        for decision in decisions {
            match decision {
                Decision::Opened { endpoint, .. } => self.with(endpoint, |one| one.hold(now)),
                Decision::Closed { endpoint, .. } => {
                    lock(&self.lent).remove(endpoint);
                    self.with(endpoint, |one| one.release(now));
                }
                Decision::Lend { endpoint, fence, successes } => {
                    let lent = Lent { fence: *fence, counted: *successes };
                    lock(&self.lent).insert(endpoint.clone(), lent);
                    self.with(endpoint, |one| one.lend(now, *successes));
                }
                Decision::Recall { endpoint } => {
                    lock(&self.lent).remove(endpoint);
                    self.with(endpoint, |one| one.hold(now));
                }
                Decision::Forced { endpoint, forced } => {
                    self.with(endpoint, |one| one.force(*forced));
                }
                Decision::Probe { .. } | Decision::Ordered { .. } | Decision::Forgotten { .. } => {}
            }
        }
    }

    /// Tells the council how the canaries of this node's slots have fared.
    fn report_canaries(&self, now: Duration) {
        let lent: Vec<(EndpointKey, Lent)> =
            lock(&self.lent).iter().map(|(key, lent)| (key.clone(), *lent)).collect();
        let fleet = self.fleet();
        for (key, slot) in lent {
            let Some((_, endpoint)) = fleet.endpoint(&key) else { continue };
            let Some(word) = word_of(now, endpoint, slot) else { continue };
            match word {
                CanaryWord::Counted(counted) => {
                    lock(&self.lent).insert(key.clone(), Lent { counted, ..slot });
                }
                CanaryWord::Failed => {
                    lock(&self.lent).remove(&key);
                    endpoint.hold(now);
                }
                CanaryWord::Idle => {}
            }
            self.council().canaried(now, &key, slot.fence, word);
        }
    }

    /// Lets go of what the state file says the fleet had out, once there was time to hear that it no
    /// longer has: the incident may have closed while this node was down.
    fn let_go(&self, now: Duration) -> Vec<EndpointKey> {
        let orphans: Vec<EndpointKey> = {
            let council = self.council();
            if now < council.observing_until() + RELEARN {
                return Vec::new();
            }
            let fleet = self.fleet();
            let endpoints = fleet.endpoints().map(|(_, endpoint)| endpoint);
            let orphans = endpoints.filter(|one| one.is_held() && !council.is_open(&one.key));
            orphans.map(|endpoint| endpoint.key.clone()).collect()
        };
        for endpoint in &orphans {
            self.with(endpoint, |one| one.release(now));
        }
        orphans
    }

    fn with(&self, key: &EndpointKey, deed: impl FnOnce(&Endpoint)) {
        if let Some((_, endpoint)) = self.fleet().endpoint(key) {
            deed(endpoint);
        }
    }
}

/// What is to be said of a slot that this node holds; `None`: nothing new.
fn word_of(now: Duration, endpoint: &Endpoint, slot: Lent) -> Option<CanaryWord> {
    let view = endpoint.view(now);
    let wanted = endpoint.config.rule.half_open.successes;
    match (view.state, view.rung) {
        (State::HalfOpen, Some(Rung::Probe | Rung::Canary) | None) => {
            let is_idle = view.half_open_in_flight == 0
                && view.half_open_idle.is_some_and(|idle| idle >= turn(endpoint));
            let has_more = view.half_open_successes > slot.counted;
            if has_more {
                Some(CanaryWord::Counted(view.half_open_successes))
            } else {
                is_idle.then_some(CanaryWord::Idle)
            }
        }
        (State::HalfOpen, Some(Rung::Ramp)) | (State::Closed, _) => {
            (slot.counted < wanted).then_some(CanaryWord::Counted(wanted))
        }
        (State::Open, _) => Some(CanaryWord::Failed),
    }
}

/// How an endpoint takes part in the council: by the rule of its own breaker.
fn enrolment(pool: &Pool, endpoint: &Endpoint) -> Enrolment {
    let rule = &endpoint.config.rule;
    let way = match rule.recovery {
        breaker::Recovery::Staged { probe, ramp: _ } => {
            Way::Ladder { probe, canaries: rule.half_open.successes, turn: turn(endpoint) }
        }
        breaker::Recovery::Lazy { ttl } => Way::Lazy { ttl },
    };
    Enrolment {
        pool: PoolKey::new(&pool.name),
        recovery: Recovery {
            base: rule.open.base,
            max: rule.open.max,
            reset_after: rule.open.reset_after,
            probe_timeout: endpoint.config.probe.first_token,
            way,
        },
        conviction: Conviction {
            failure_threshold: rule.failure_threshold,
            // The conversion saturates; the rule was checked to lie above 0 and up to 1.
            failure_ratio_milli: (rule.failure_ratio * 1_000.0).round() as u32,
            min_requests: rule.min_requests,
            window: rule.window,
            dedup: rule.slow.dedup,
            confirmations: rule.slow.confirmations,
        },
    }
}

fn turn(endpoint: &Endpoint) -> Duration {
    endpoint.config.rule.open.base.clamp(TURN_MIN, TURN_MAX)
}
