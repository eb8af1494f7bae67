//! What opens a circuit, for how long, and what closes it: the settings and their defaults.
//!
//! A setting is a number with a unit, a default and a range; [`Rule::check`] holds them to it.
//!
//! Invariants:
//! - The default and every preset pass the check.
//! - A breaker given an unchecked rule still keeps its own bounds; it is merely of little use.

mod check;

use std::time::Duration;

pub(crate) use crate::rule::check::DURATION_MAX;
pub use crate::rule::check::{COUNT_MAX, MIN_REQUESTS_MAX, RuleError};

/// How far a cool-down strays from its nominal length, either way, as a share of it.
///
/// Nodes that opened together must not come back together, or the endpoint falls over again.
pub const JITTER: f64 = 0.2;

/// The most half-open permits that can be out at once, whatever the rule says.
pub const HALF_OPEN_REQUESTS_MAX: u32 = 16;

/// The most pieces of slow evidence a rule can ask for.
pub const SLOW_CONFIRMATIONS_MAX: u32 = 16;

/// What the default half-open deadline leaves beyond [`SlowRule::total`], so that a request which is
/// merely slow is seen as slow before it is taken for lost. Whoever raises `slow.total` without
/// naming a deadline does well to put the deadline this far behind it.
pub const DEADLINE_MARGIN: Duration = Duration::from_secs(20);

/// The usual [`Recovery::Lazy`] time to stay open, as in the first design document.
pub const LAZY_TTL: Duration = Duration::from_secs(45);

/// All settings of one breaker. Any one of the ways of tripping opens the circuit.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Whether the breaker is obeyed; default [`Mode::Enforce`].
    pub mode: Mode,
    /// Faults in a row that open; 1 to 10,000, default 4.
    pub failure_threshold: u32,
    /// Weighted share of faults in the window that opens; above 0 to 1, default 0.5.
    pub failure_ratio: f64,
    /// How far back the share of faults, slow evidence and times reach; 1 ms to 24 h, default 30 s.
    pub window: Duration,
    /// Requests the window must hold before the share of faults or a P95 means anything; 1 to three
    /// times the failure threshold (or 10), default 10.
    pub min_requests: u32,
    /// What is slow, and how much of it opens.
    pub slow: SlowRule,
    /// How long the circuit stays open.
    pub open: OpenRule,
    /// The way back to closed.
    pub recovery: Recovery,
    /// What the canary rung of the way back admits.
    pub half_open: HalfOpenRule,
}

/// Whether the breaker is obeyed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// What it refuses is not sent.
    #[default]
    Enforce,
    /// It decides and shows what it would do, and refuses nothing. Requests it would have refused
    /// have no say, so that it decides what it would have decided if it had been obeyed; only the
    /// probe rung is left out, since requests flow and a synthetic one would be added traffic.
    Shadow,
    /// It admits everything, counts nothing and never changes.
    Off,
}

impl Mode {
    /// The word used in the configuration and by the admin API.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Enforce => "enforce",
            Mode::Shadow => "shadow",
            Mode::Off => "off",
        }
    }
}

/// What is slow, and how much of it opens. The caller measures; the breaker is told.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowRule {
    /// A request that runs this long is slow; 1 ms to 24 h, default 70 s.
    pub total: Duration,
    /// A request without a first token by then is slow; below `total`, default 30 s, `None` for no
    /// such limit.
    pub first_token: Option<Duration>,
    /// An answer that comes at fewer tokens per second is slow; above 0 to 100,000, default `None`
    /// for no such limit.
    pub min_tokens_per_second: Option<f64>,
    /// Slow requests of one kind within this time are one piece of evidence; default 5 s.
    pub dedup: Duration,
    /// Pieces of evidence within the window that open; 1 to 16, default 2.
    pub confirmations: u32,
    /// The P95 that opens; default `None` for no such limit.
    pub p95: Option<P95Rule>,
    /// The multiple of its siblings' median P95 that makes an endpoint an outlier; above 1 to 100,
    /// default `None` for no such limit.
    pub relative: Option<f64>,
}

/// The P95 of the window that opens when it is exceeded, once there are `min_requests` and at least
/// 20 samples; with fewer, it is the longest time and one request would speak for all. It is known
/// to 6 %. At least one of the two limits is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct P95Rule {
    /// For the time to the first token; below `slow.first_token`.
    pub first_token: Option<Duration>,
    /// For the time to the end; below `slow.total`.
    pub total: Option<Duration>,
}

/// How long the circuit stays open: `base` × 2ⁿ, [`JITTER`] either way, at most `max`.
/// [`Recovery::Lazy`] has its own time instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRule {
    /// The first cool-down; 1 ms to `max`, default 5 s.
    pub base: Duration,
    /// The longest cool-down; up to 24 h, default 120 s.
    pub max: Duration,
    /// How long a recovery must hold before the next cool-down is `base` again; default 300 s.
    pub reset_after: Duration,
}

/// The way from open back to closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// A ladder of rungs: a probe, then canaries as [`HalfOpenRule`] says, then ever more traffic.
    Staged {
        /// Whether the ladder begins with a synthetic probe; default yes.
        probe: bool,
        /// How long the weight rises after the canaries; 1 ms to 24 h, default 60 s, zero to close
        /// at once.
        ramp: Duration,
    },
    /// Open for exactly this long, then closed without evidence, as in the first design document.
    Lazy {
        /// The time; 1 ms to 24 h, usually [`LAZY_TTL`].
        ttl: Duration,
    },
}

/// What the canary rung admits and what ends it. The deadline holds for the probe rung as well.
#[derive(Clone, Debug, PartialEq)]
pub struct HalfOpenRule {
    /// Permits out at once; 1 to 16, default 1.
    pub max_requests: u32,
    /// The longest prompt admitted, in tokens; at least 1, default 256.
    pub max_prompt_tokens: u64,
    /// Successes in a row that end the rung; 1 to 10,000, default 5.
    pub successes: u32,
    /// The most requests admitted as a share of those that ask, the first one being free; above 0
    /// to 1, default 0.05.
    pub share: f64,
    /// A permit not settled this long after it was given is lost, and the circuit opens again;
    /// beyond `slow.total`, default 90 s.
    pub deadline: Duration,
}

impl Default for Recovery {
    fn default() -> Self {
        Recovery::Staged { probe: true, ramp: Duration::from_secs(60) }
    }
}

impl Default for Rule {
    fn default() -> Self {
        let slow = SlowRule {
            total: Duration::from_secs(70),
            first_token: Some(Duration::from_secs(30)),
            min_tokens_per_second: None,
            dedup: Duration::from_secs(5),
            confirmations: 2,
            p95: None,
            relative: None,
        };
        let half_open = HalfOpenRule {
            max_requests: 1,
            max_prompt_tokens: 256,
            successes: 5,
            share: 0.05,
            deadline: slow.total.saturating_add(DEADLINE_MARGIN),
        };
        Rule {
            mode: Mode::default(),
            failure_threshold: 4,
            failure_ratio: 0.5,
            window: Duration::from_secs(30),
            min_requests: 10,
            slow,
            open: OpenRule {
                base: Duration::from_secs(5),
                max: Duration::from_secs(120),
                reset_after: Duration::from_secs(300),
            },
            recovery: Recovery::default(),
            half_open,
        }
    }
}

impl Rule {
    /// Returns the rule called `name`: `default`, `slow_api`, `critical` or `self_healing`.
    ///
    /// The other three are the default with another failure threshold and first cool-down; the
    /// longest cool-down is raised where the first one needs it.
    pub fn preset(name: &str) -> Option<Rule> {
        let (failure_threshold, base) = match name {
            "default" => return Some(Rule::default()),
            "slow_api" => (7, Duration::from_secs(120)),
            "critical" => (2, Duration::from_secs(30)),
            "self_healing" => (5, Duration::from_secs(180)),
            _ => return None,
        };
        let mut rule = Rule { failure_threshold, ..Rule::default() };
        rule.open.base = base;
        rule.open.max = rule.open.max.max(base);
        Some(rule)
    }

    /// Whether the ladder begins with a probe.
    pub(crate) fn has_probe(&self) -> bool {
        match (self.mode, self.recovery) {
            (Mode::Enforce, Recovery::Staged { probe, ramp: _ }) => probe,
            (Mode::Shadow | Mode::Off, Recovery::Staged { .. })
            | (Mode::Enforce | Mode::Shadow | Mode::Off, Recovery::Lazy { .. }) => false,
        }
    }

    /// How long the ramp lasts; a circuit that is half-open when its recovery becomes lazy has none.
    pub(crate) fn ramp(&self) -> Duration {
        match self.recovery {
            Recovery::Staged { probe: _, ramp } => ramp,
            Recovery::Lazy { ttl: _ } => Duration::ZERO,
        }
    }

    /// Whether times must be remembered to judge by this rule.
    pub(crate) fn needs_times(&self) -> bool {
        self.slow.p95.is_some() || self.slow.relative.is_some()
    }
}
