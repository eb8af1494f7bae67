//! One endpoint: its breaker behind one short lock, and what choosing may read without it.
//!
//! The lock is a plain mutex, held for a few dozen instructions and never over an await. The state
//! that choosing needs is mirrored in atomics after each change; a stale mirror costs a refused
//! admission, never a wrong one, since the breaker is asked again.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use breaker::{Breaker, Errand, Outcome, Permit, Refusal, SlowKind, State, Transition, View};
use quorum::{EndpointKey, Evidence, Forced, LocalOpening};

use crate::config;
use crate::metrics::{EndpointMeters, Meters};

/// What a transition looks like to whoever watches the fleet.
#[derive(Clone, Debug)]
pub struct Happening {
    /// Which endpoint.
    pub endpoint: EndpointKey,
    /// What its breaker did.
    pub transition: Transition,
}

/// Hears of every transition, under no lock.
pub type Sink = Arc<dyn Fn(Happening) + Send + Sync>;

/// Latencies are averaged with this weight for the newest: about the last twenty count.
const LATENCY_WEIGHT: u64 = 20;

/// One upstream that serves a model.
pub struct Endpoint {
    /// `pool/name`.
    pub key: EndpointKey,
    /// Its place in the pool.
    pub index: usize,
    /// As configured.
    pub config: config::Endpoint,
    /// What is counted for it.
    pub meters: EndpointMeters,
    guarded: Mutex<Guarded>,
    gate: AtomicU8,
    forced: AtomicU8,
    in_flight: AtomicU32,
    cooling_until_ms: AtomicU64,
    latency_us: AtomicU64,
    sink: Sink,
}

struct Guarded {
    breaker: Breaker,
    /// What this node saw when its breaker last opened on its own traffic; `None` while closed.
    opened: Option<LocalOpening>,
}

impl Endpoint {
    /// An endpoint whose breaker is closed.
    pub fn new(
        key: EndpointKey,
        index: usize,
        config: &config::Endpoint,
        meters: &Meters,
        sink: &Sink,
    ) -> Self {
        let breaker = Breaker::new(config.rule.clone(), fastrand::u64(..));
        Self {
            meters: meters.endpoint(&key),
            key,
            index,
            config: config.clone(),
            guarded: Mutex::new(Guarded { breaker, opened: None }),
            gate: AtomicU8::new(gate_of(State::Closed, false)),
            forced: AtomicU8::new(code_of(Forced::Auto)),
            in_flight: AtomicU32::new(0),
            cooling_until_ms: AtomicU64::new(0),
            latency_us: AtomicU64::new(0),
            sink: Arc::clone(sink),
        }
    }

    /// Asks to send `errand`. The operator's order outranks the breaker both ways.
    ///
    /// # Errors
    /// [`Refusal`], with nothing changed.
    pub fn admit(self: &Arc<Self>, now: Duration, errand: Errand) -> Result<Admission, Refusal> {
        let errand = match self.forced() {
            Forced::Open => return Err(Refusal::Held),
            Forced::Closed => Errand::PassThrough,
            Forced::Auto => errand,
        };
        let permit = self.change(now, NOTHING, |breaker| breaker.admit(now, errand))?;
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Ok(Admission { endpoint: Arc::clone(self), permit: Some(permit), since: now })
    }

    /// Lets time pass: an opening whose cool-down is over becomes half-open, a lost permit is freed.
    pub fn tick(&self, now: Duration) {
        self.change(now, NOTHING, |breaker| ((), breaker.tick(now)));
    }

    /// Follows the cluster's verdict: takes the endpoint out.
    pub fn hold(&self, now: Duration) {
        self.change(now, NOTHING, |breaker| {
            breaker.hold(now);
            ((), None)
        });
    }

    /// Follows the cluster's verdict: the incident is over and what was held against it is void.
    pub fn release(&self, now: Duration) {
        self.change(now, NOTHING, |breaker| ((), breaker.release(now)));
    }

    /// Follows the operator's order.
    pub fn force(&self, forced: Forced) {
        self.forced.store(code_of(forced), Ordering::Relaxed);
    }

    /// The operator's order.
    pub fn forced(&self) -> Forced {
        match self.forced.load(Ordering::Relaxed) {
            FORCED_OPEN => Forced::Open,
            FORCED_CLOSED => Forced::Closed,
            _ => Forced::Auto,
        }
    }

    /// Leaves the endpoint out of choosing for `period`: it asked for a pause. A shorter pause never
    /// shortens a longer one.
    pub fn cool(&self, now: Duration, period: Duration) {
        let until = u64::try_from((now + period).as_millis()).unwrap_or(u64::MAX);
        self.cooling_until_ms.fetch_max(until, Ordering::Relaxed);
    }

    /// How much of a pause that it asked for is left.
    pub fn cooling_for(&self, now: Duration) -> Duration {
        let until = Duration::from_millis(self.cooling_until_ms.load(Ordering::Relaxed));
        until.saturating_sub(now)
    }

    /// Requests in flight from this node.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// The running mean of the time that successful requests took.
    pub fn latency(&self) -> Duration {
        Duration::from_micros(self.latency_us.load(Ordering::Relaxed))
    }

    /// The breaker as it stands.
    pub fn view(&self, now: Duration) -> View {
        self.lock().breaker.view(now)
    }

    /// What this node states about the endpoint: its own opening, never an imposed one.
    pub fn local_opening(&self) -> Option<LocalOpening> {
        self.lock().opened.clone()
    }

    /// Whether choosing should consider it at all.
    pub(super) fn is_promising(&self, now: Duration) -> bool {
        match self.forced() {
            Forced::Open => false,
            Forced::Closed => true,
            Forced::Auto => {
                self.gate.load(Ordering::Relaxed) != GATE_SHUT && self.cooling_for(now).is_zero()
            }
        }
    }

    /// Whether every judge but the breaker's statistics lets a request pass: what passing through
    /// may still try.
    pub(super) fn is_presumed_dead_only(&self, now: Duration) -> bool {
        self.forced() != Forced::Open && self.cooling_for(now).is_zero()
    }

    /// How soon it may return; zero for one that is in.
    pub fn returns_in(&self, now: Duration) -> Duration {
        let view = self.view(now);
        view.remaining.unwrap_or_default().max(self.cooling_for(now))
    }

    fn lock(&self) -> MutexGuard<'_, Guarded> {
        // A panic elsewhere must not take the endpoint along: the breaker is whole between calls.
        self.guarded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `deed` on the breaker, mirrors its state, and tells the sink of a transition. `deciding` is
    /// what the deed adds to the evidence.
    fn change<T>(
        &self,
        now: Duration,
        deciding: Evidence,
        deed: impl FnOnce(&mut Breaker) -> (T, Option<Transition>),
    ) -> T {
        let mut guarded = self.lock();
        // Leaving a state forgets its evidence, so that it is looked at before.
        let before = guarded.breaker.view(now);
        let (answer, transition) = deed(&mut guarded.breaker);
        if let Some(transition) = &transition {
            guarded.opened = match (transition.to, guarded.opened.take()) {
                (State::Closed, _) => None,
                (State::Open | State::HalfOpen, Some(opened)) => Some(opened),
                (State::Open | State::HalfOpen, None) => {
                    Some(opening(transition, &before, &deciding))
                }
            };
        }
        let gate = gate_of(guarded.breaker.state(), guarded.breaker.is_held());
        self.gate.store(gate, Ordering::Relaxed);
        drop(guarded);
        // A release of a closed breaker only voids the permits that are out: no news to anybody.
        if let Some(transition) = transition.filter(|moved| moved.from != moved.to) {
            (self.sink)(Happening { endpoint: self.key.clone(), transition });
        }
        answer
    }

    fn note_latency(&self, took: Duration) {
        let newest = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let _ = self.latency_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |mean| {
            Some(match mean {
                0 => newest,
                mean => mean - mean / LATENCY_WEIGHT + newest / LATENCY_WEIGHT,
            })
        });
    }
}

/// The right to send one request to one endpoint, and the duty to say how it went.
#[must_use = "dropping an admission settles it as neutral"]
pub struct Admission {
    endpoint: Arc<Endpoint>,
    permit: Option<Permit>,
    since: Duration,
}

impl Admission {
    /// The endpoint.
    pub fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// When it was given.
    pub fn since(&self) -> Duration {
        self.since
    }

    /// Whether it was said that the request is slow.
    pub fn is_slow(&self) -> bool {
        self.permit.as_ref().is_some_and(Permit::is_slow)
    }

    /// Says, while the request still runs, that it has crossed a slow limit.
    pub fn slow(&mut self, now: Duration, kind: SlowKind) {
        if let Some(permit) = &mut self.permit {
            self.endpoint.meters.slow.increment(1);
            let piece = Evidence { slow_pieces: 1, ..NOTHING };
            self.endpoint.change(now, piece, |breaker| ((), breaker.slow(now, permit, kind)));
        }
    }

    /// Says how the request went.
    pub fn settle(mut self, now: Duration, outcome: Outcome) {
        if matches!(outcome, Outcome::Success) {
            self.endpoint.note_latency(now.saturating_sub(self.since));
        }
        self.conclude(now, outcome);
    }

    fn conclude(&mut self, now: Duration, outcome: Outcome) {
        let Some(permit) = self.permit.take() else { return };
        self.endpoint.meters.count(&outcome);
        self.endpoint.in_flight.fetch_sub(1, Ordering::Relaxed);
        let deciding = evidence_of(&outcome, permit.is_slow());
        self.endpoint.change(now, deciding, |breaker| ((), breaker.settle(now, permit, outcome)));
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        // A neutral verdict needs no time of its own: the breaker takes an earlier moment as its last.
        self.conclude(Duration::ZERO, Outcome::Neutral);
    }
}

/// What a deed adds to the evidence that is none.
const NOTHING: Evidence = Evidence { requests: 0, faults_milli: 0, successes: 0, slow_pieces: 0 };

/// What an outcome adds to the evidence.
fn evidence_of(outcome: &Outcome, was_slow: bool) -> Evidence {
    match outcome {
        Outcome::Neutral => NOTHING,
        Outcome::Success => Evidence { requests: 1, successes: u32::from(!was_slow), ..NOTHING },
        Outcome::Fault { weight, cause: _ } => {
            Evidence { requests: 1, faults_milli: milli(*weight), ..NOTHING }
        }
        Outcome::Slow(_) => Evidence { requests: 1, slow_pieces: u32::from(!was_slow), ..NOTHING },
    }
}

/// A sum of weights in thousandths.
fn milli(weights: f64) -> u32 {
    (weights * 1_000.0).round() as u32
}

fn opening(transition: &Transition, before: &View, deciding: &Evidence) -> LocalOpening {
    LocalOpening {
        since: transition.at,
        reason: transition.reason.to_string(),
        evidence: Evidence {
            requests: before.requests.saturating_add(deciding.requests),
            faults_milli: milli(before.faults).saturating_add(deciding.faults_milli),
            successes: before.successes.saturating_add(deciding.successes),
            slow_pieces: before.slow_pieces.saturating_add(deciding.slow_pieces),
        },
    }
}

const GATE_SHUT: u8 = 1;

fn gate_of(state: State, is_held: bool) -> u8 {
    match state {
        State::Open => GATE_SHUT,
        State::Closed | State::HalfOpen => u8::from(is_held),
    }
}

const FORCED_AUTO: u8 = 0;
const FORCED_OPEN: u8 = 1;
const FORCED_CLOSED: u8 = 2;

fn code_of(forced: Forced) -> u8 {
    match forced {
        Forced::Auto => FORCED_AUTO,
        Forced::Open => FORCED_OPEN,
        Forced::Closed => FORCED_CLOSED,
    }
}
