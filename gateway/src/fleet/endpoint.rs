//! One endpoint: its breaker behind one short lock, and what choosing may read without it.
//!
//! The lock is a plain mutex, held for a few dozen instructions and never over an await. The state
//! that choosing needs is mirrored in atomics after each change; a stale mirror costs a refused
//! admission, never a wrong one, since the breaker is asked again.

mod absence;
mod admission;
mod core;
mod heir;
mod obstacle;
mod pause;
mod score;
mod tenants;
mod times;

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use breaker::{Breaker, Errand, Mode, Refusal, Rung, Sample, Snapshot, State, Transition, View};
use quorum::{EndpointKey, Evidence, Forced, Local, LocalOpening, Window};

pub use self::admission::Admission;
use self::core::{Core, FORCED_CLOSED, FORCED_OPEN, Guarded, STANCE_HELD, WEIGHT_FULL, code_of};
pub use self::obstacle::Obstacle;
pub(in crate::fleet) use self::pause::Pause;
pub(in crate::fleet) use self::tenants::Judge;
pub use self::tenants::{Tenant, Tenants};
pub use self::times::{Percentiles, TimesView};
use crate::config;
use crate::fnv;
use crate::limits::Allowance;
use crate::metrics::{EndpointMeters, Meters};

/// What a transition looks like to whoever watches the fleet.
#[derive(Clone, Debug)]
pub struct Happening {
    /// Which endpoint.
    pub endpoint: EndpointKey,
    /// Whose breaker it was; `None`: the endpoint's own.
    pub tenant: Option<Arc<str>>,
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
    /// A digest of `key`: what it throws when prompts are shared out by their beginning.
    pub(super) hash: u64,
    /// As configured.
    pub config: config::Endpoint,
    /// What is counted for it.
    pub meters: EndpointMeters,
    /// The breakers of its tenants, where each has its own.
    pub tenants: Option<Tenants>,
    /// What outlives a change of its settings.
    core: Arc<Core>,
    /// What it, or another endpoint of its quota group, has asked for.
    pause: Arc<Pause>,
    /// How much may be asked of it; `None`: anything.
    pub allowance: Option<Arc<Allowance>>,
    sink: Sink,
}

impl Endpoint {
    /// An endpoint whose breaker is closed. `pause` is its quota group's; `allowance` its own.
    pub(super) fn new(
        key: EndpointKey,
        index: usize,
        config: &config::Endpoint,
        (pause, allowance): (Arc<Pause>, Option<Arc<Allowance>>),
        meters: &Meters,
        sink: &Sink,
    ) -> Self {
        Self {
            meters: meters.endpoint(&key),
            hash: fnv::digest(key.as_str().bytes()),
            key,
            index,
            config: config.clone(),
            tenants: config.tenants.as_ref().map(|scope| Tenants::new(scope, &config.rule)),
            core: Arc::new(Core::new(&config.rule)),
            pause,
            allowance,
            sink: Arc::clone(sink),
        }
    }

    /// Asks to send `errand`. The operator's order outranks the breaker both ways.
    ///
    /// # Errors
    /// [`Refusal`], with nothing changed.
    pub fn admit(self: &Arc<Self>, now: Duration, errand: Errand) -> Result<Admission, Refusal> {
        let errand = self.ordered(errand)?;
        let permit = self.change(now, |breaker| breaker.admit(now, errand))?;
        self.core.in_flight.fetch_add(1, Ordering::Relaxed);
        let endpoint = Arc::clone(self);
        let tenant = None;
        Ok(Admission::new(endpoint, tenant, permit, now))
    }

    /// What an errand becomes by the operator's order. A probe stays one: an order brings in clients'
    /// requests and must not make a probe of each glance at a circuit that is open beneath it.
    fn ordered(&self, errand: Errand) -> Result<Errand, Refusal> {
        match (self.forced(), errand) {
            (Forced::Open, Errand::Request { .. } | Errand::Probe | Errand::PassThrough) => {
                Err(Refusal::Held)
            }
            (Forced::Closed, Errand::Request { .. } | Errand::PassThrough) => {
                Ok(Errand::PassThrough)
            }
            (Forced::Closed, Errand::Probe) | (Forced::Auto, _) => Ok(errand),
        }
    }

    /// Lets time pass: an opening whose cool-down is over becomes half-open, a lost permit is freed.
    pub fn tick(&self, now: Duration) {
        self.change(now, |breaker| ((), breaker.tick(now)));
        self.core.absence.note(now, !self.is_promising(now));
    }

    /// Follows the cluster's verdict: takes the endpoint out.
    pub fn hold(&self, now: Duration) {
        self.change_with(now, |guarded| {
            guarded.is_lent = false;
            ((), guarded.breaker.hold(now))
        });
    }

    /// Follows the cluster's verdict: the incident is over and what was held against it is void. A
    /// holder of the canary slot that has not finished its rung goes on where all others do.
    pub fn release(&self, now: Duration) {
        self.change_with(now, |guarded| {
            let was_lent = std::mem::take(&mut guarded.is_lent);
            // A loan that is not taken back would be a ladder of its own, and one that never ends
            // where nothing but clients' small requests could climb it.
            if was_lent && guarded.breaker.rung() == Some(Rung::Canary) {
                guarded.breaker.hold(now);
            }
            ((), guarded.breaker.release(now))
        });
    }

    /// Follows the operator's order.
    pub fn force(&self, forced: Forced) {
        self.core.forced.store(code_of(forced), Ordering::Relaxed);
    }

    /// The operator's order.
    pub fn forced(&self) -> Forced {
        match self.core.forced.load(Ordering::Relaxed) {
            FORCED_OPEN => Forced::Open,
            FORCED_CLOSED => Forced::Closed,
            _ => Forced::Auto,
        }
    }

    /// Requests in flight from this node.
    pub fn in_flight(&self) -> u32 {
        self.core.in_flight.load(Ordering::Relaxed)
    }

    /// The running mean of the time that successful requests took.
    pub fn latency(&self) -> Duration {
        Duration::from_micros(self.core.latency_us.load(Ordering::Relaxed))
    }

    /// The breaker as it stands.
    pub fn view(&self, now: Duration) -> View {
        self.lock().breaker.view(now)
    }

    /// How far half-open has come; `None` in the other states. Cheaper than a whole view.
    pub fn rung(&self) -> Option<Rung> {
        self.lock().breaker.rung()
    }

    /// Holds the fleet's canary slot: admits the few small requests that its breaker allows, with
    /// `successes` of earlier holders counted. A slot that comes back to its holder is a new hold: what
    /// was counted under the older one is not that hold's, and it is idle anew.
    pub fn lend(&self, now: Duration, successes: u32) {
        self.change_with(now, |guarded| {
            guarded.is_lent = true;
            guarded.breaker.hold(now);
            ((), guarded.breaker.lend(now, successes))
        });
    }

    /// The opening of this node's own breaker on its own traffic, if it stands.
    pub fn local_opening(&self) -> Option<LocalOpening> {
        self.lock().opened.clone()
    }

    /// What this node states about the endpoint: its own opening, never an imposed one, and what it
    /// has seen of late. `has_small` says whether small requests ask for the pool.
    pub fn local(&self, now: Duration, has_small: bool) -> Local {
        let guarded = self.lock();
        let seen = guarded.breaker.evidence(now);
        let window = Window {
            requests: seen.requests,
            faults_milli: u32::try_from(seen.fault_millionths / 1_000).unwrap_or(u32::MAX),
            successes: seen.successes,
            slow: seen.slow.iter().flatten().copied().collect(),
            last_success: seen.last_success,
            has_small,
        };
        let is_heard = self.config.rule.mode != Mode::Off;
        Local {
            opening: guarded.opened.clone().filter(|_| is_heard),
            window: if self.config.rule.mode == Mode::Enforce { window } else { Window::default() },
            is_shadow: self.config.rule.mode == Mode::Shadow,
            is_trying: guarded.breaker.view(now).half_open_in_flight > 0,
        }
    }

    /// Takes back the slow evidence since `since`: this process itself was late.
    pub fn discard_slow(&self, now: Duration, since: Duration) {
        self.discard_slow_of_tenants(now, since);
        self.change(now, |breaker| {
            breaker.discard_slow(now, since);
            ((), None)
        });
    }

    /// Whether the fleet has it out.
    pub fn is_held(&self) -> bool {
        self.stance() == STANCE_HELD
    }

    fn stance(&self) -> u8 {
        self.core.stance.load(Ordering::Relaxed)
    }

    /// Counts a probe that said nothing, and says how many did so since the breaker last moved.
    pub fn count_inconclusive(&self) -> u32 {
        let mut guarded = self.lock();
        guarded.inconclusive = guarded.inconclusive.saturating_add(1);
        guarded.inconclusive
    }

    /// How long it makes its clients wait, to be compared with its siblings.
    pub fn sample(&self, now: Duration) -> Option<Sample> {
        self.lock().breaker.sample(now)
    }

    /// Opens because it is much slower than its siblings.
    pub fn convict_relative(&self, now: Duration) {
        self.change(now, |breaker| ((), breaker.convict_relative(now)));
    }

    /// The breaker as it can be kept over a restart.
    pub fn snapshot(&self, now: Duration) -> Snapshot {
        let guarded = self.lock();
        let snapshot = guarded.breaker.snapshot(now);
        // Nobody lends a slot to a process that has just started.
        let held_for = snapshot.held_for.or(guarded.is_lent.then_some(Duration::ZERO));
        Snapshot { held_for, ..snapshot }
    }

    /// Goes on from what was kept over a restart. To be called before any request.
    pub fn restore(&self, now: Duration, snapshot: &Snapshot) {
        let rule = self.config.rule.clone();
        let restored = Breaker::restore(rule, fastrand::u64(..), snapshot, now);
        self.change(now, |breaker| {
            *breaker = restored;
            ((), breaker.tick(now))
        });
    }

    /// Whether its breaker, the cluster or an order has it in; it may be paused or full all the same.
    pub(super) fn is_in(&self) -> bool {
        match self.forced() {
            Forced::Open => false,
            Forced::Closed => true,
            Forced::Auto => self.weight() > 0,
        }
    }

    /// Whether choosing should consider it at all.
    pub fn is_promising(&self, now: Duration) -> bool {
        self.is_in() && !self.is_paused(now)
    }

    /// Whether it is left alone for a while; an operator's word goes above that.
    fn is_paused(&self, now: Duration) -> bool {
        self.forced() != Forced::Closed && !self.cooling_for(now).is_zero()
    }

    /// The weight that the breaker gives it, in hundredths; 0: it is out on this node.
    pub fn weight(&self) -> u8 {
        self.core.weight.load(Ordering::Relaxed)
    }

    /// The part of its usual weight that the breaker gives it, 0 to 1.
    fn share(&self) -> f64 {
        f64::from(self.weight()) / f64::from(WEIGHT_FULL)
    }

    /// The peak EWMA of its time to the first content, in seconds; 0: it has answered nothing yet.
    pub(super) fn cost(&self, now: Duration) -> f64 {
        self.core.score.cost(now)
    }

    /// How many of its failed requests count as still in flight.
    pub(super) fn failures(&self, now: Duration) -> u64 {
        self.core.score.failures(now)
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
        self.core.lock()
    }

    /// Runs `deed` on the breaker, as `change_with` does.
    fn change<T>(
        &self,
        now: Duration,
        deed: impl FnOnce(&mut Breaker) -> (T, Option<Transition>),
    ) -> T {
        self.change_with(now, |guarded| deed(&mut guarded.breaker))
    }

    /// Runs `deed`, mirrors what choosing reads, and tells the sink of a transition.
    fn change_with<T>(
        &self,
        now: Duration,
        deed: impl FnOnce(&mut Guarded) -> (T, Option<Transition>),
    ) -> T {
        let mut guarded = self.lock();
        let (answer, transition) = deed(&mut guarded);
        if let Some(transition) = &transition {
            guarded.inconclusive = 0;
            let opened = guarded.opened.take();
            guarded.opened = match (transition.to, transition.rung) {
                // On the ramp it serves again: nothing is held against it any more.
                (State::Closed, _) | (State::HalfOpen, Some(Rung::Ramp)) => None,
                (State::HalfOpen, _) => opened,
                (State::Open, _) => opened.or_else(|| Some(opening(transition))),
            };
        }
        let weight = (guarded.breaker.share(now) * f64::from(WEIGHT_FULL)) as u8;
        self.core.weight.store(weight, Ordering::Relaxed);
        self.core.stance.store(guarded.stance(), Ordering::Relaxed);
        drop(guarded);
        // A release of a closed breaker only voids the permits that are out: no news to anybody.
        let is_news = |one: &Transition| one.from != one.to || one.rung.is_some();
        if let Some(transition) = transition.filter(is_news)
            && !self.core.is_retired.load(Ordering::Relaxed)
        {
            (self.sink)(Happening { endpoint: self.key.clone(), tenant: None, transition });
        }
        answer
    }

    fn note_success(&self, took: Duration) {
        // Read first, so that the cores do not take the line from each other.
        if self.is_misconfigured() {
            self.core.is_misconfigured.store(false, Ordering::Relaxed);
        }
        if self.core.denied.load(Ordering::Relaxed) > 0 {
            self.core.denied.store(0, Ordering::Relaxed);
        }
        let newest = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let _ = self.core.latency_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |mean| {
            Some(match mean {
                0 => newest,
                mean => mean - mean / LATENCY_WEIGHT + newest / LATENCY_WEIGHT,
            })
        });
    }
}

fn opening(transition: &Transition) -> LocalOpening {
    let gathered = &transition.gathered;
    LocalOpening {
        since: transition.at,
        reason: transition.reason.to_string(),
        evidence: Evidence {
            requests: gathered.requests,
            faults_milli: u32::try_from(gathered.fault_millionths / 1_000).unwrap_or(u32::MAX),
            successes: gathered.successes,
            slow_pieces: gathered.slow_pieces,
        },
    }
}
