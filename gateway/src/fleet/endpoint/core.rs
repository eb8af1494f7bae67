//! What of an endpoint outlives a change of its settings: its breaker, and what requests have left behind.
//!
//! A reload makes another endpoint of the same key, which shares this with the one before it; requests
//! that began under the old settings settle here all the same. So nothing that was learned is lost, and
//! a permit always finds the breaker that gave it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};

use breaker::{Breaker, Rule, Rung, State};
use quorum::{Forced, LocalOpening};

use super::absence::Absence;
use super::pause::Pause;
use super::score::Score;
use super::times::Times;

/// The lasting part of an endpoint.
pub(super) struct Core {
    guarded: Mutex<Guarded>,
    /// The breaker's share in hundredths.
    pub(super) weight: AtomicU8,
    /// What its breaker is to requests that another breaker judges.
    pub(super) stance: AtomicU8,
    pub(super) forced: AtomicU8,
    pub(super) in_flight: AtomicU32,
    /// The pause after it refused our credential, which is its own.
    pub(super) shunned: Pause,
    /// What its latest answers were like.
    pub(super) score: Score,
    /// How long they took, for people.
    pub(super) times: Times,
    /// When it was out, for people.
    pub(super) absence: Absence,
    /// Whether it refused our credential, and has served nothing since.
    pub(super) is_misconfigured: AtomicBool,
    /// How many requests it has denied since it served the last one.
    pub(super) denied: AtomicU32,
    pub(super) latency_us: AtomicU64,
    /// Whether nobody is to hear of it any more: its name is gone, or another machine's.
    pub(super) is_retired: AtomicBool,
}

/// What is looked at and changed under the lock alone.
pub(super) struct Guarded {
    pub(super) breaker: Breaker,
    /// What this node saw when its breaker last opened on its own traffic; `None` while closed.
    pub(super) opened: Option<LocalOpening>,
    /// Whether this node holds the fleet's canary slot.
    pub(super) is_lent: bool,
    /// Probes that said nothing since the breaker last moved.
    pub(super) inconclusive: u32,
}

impl Core {
    /// That of an endpoint of which nothing is known.
    pub(super) fn new(rule: &Rule) -> Self {
        let breaker = Breaker::new(rule.clone(), fastrand::u64(..));
        Self {
            guarded: Mutex::new(Guarded { breaker, opened: None, is_lent: false, inconclusive: 0 }),
            weight: AtomicU8::new(WEIGHT_FULL),
            stance: AtomicU8::new(STANCE_FREE),
            forced: AtomicU8::new(code_of(Forced::Auto)),
            in_flight: AtomicU32::new(0),
            shunned: Pause::default(),
            score: Score::default(),
            times: Times::default(),
            absence: Absence::default(),
            is_misconfigured: AtomicBool::new(false),
            denied: AtomicU32::new(0),
            latency_us: AtomicU64::new(0),
            is_retired: AtomicBool::new(false),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Guarded> {
        // A panic elsewhere must not take the endpoint along: the breaker is whole between calls.
        self.guarded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guarded {
    pub(super) fn stance(&self) -> u8 {
        match (self.breaker.state(), self.breaker.rung()) {
            (State::Closed | State::Open | State::HalfOpen, _) if self.breaker.is_held() => {
                STANCE_HELD
            }
            (State::HalfOpen, Some(Rung::Ramp)) => STANCE_RAMP,
            // A canary that failed has the circuit open until the fleet has heard of it.
            (State::Open | State::HalfOpen, _) if self.is_lent => STANCE_TRIED,
            (State::Closed | State::Open | State::HalfOpen, _) => STANCE_FREE,
        }
    }
}

/// The weight of an endpoint in full health; 0: it is out.
pub(super) const WEIGHT_FULL: u8 = 100;

/// What it finds holds for the requests that it judges and for nobody else.
const STANCE_FREE: u8 = 0;
/// The fleet has the endpoint out.
pub(super) const STANCE_HELD: u8 = 1;
/// This node tries the endpoint on behalf of the fleet.
pub(super) const STANCE_TRIED: u8 = 2;
/// The endpoint has just returned and is given its weight step by step.
pub(super) const STANCE_RAMP: u8 = 3;

const FORCED_AUTO: u8 = 0;
pub(super) const FORCED_OPEN: u8 = 1;
pub(super) const FORCED_CLOSED: u8 = 2;

pub(super) fn code_of(forced: Forced) -> u8 {
    match forced {
        Forced::Auto => FORCED_AUTO,
        Forced::Open => FORCED_OPEN,
        Forced::Closed => FORCED_CLOSED,
    }
}
