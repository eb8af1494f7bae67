//! One endpoint seen from one node: may this node send to it at this moment?
//!
//! A circuit breaker written as a value. It reads no clock, draws no chance, takes no lock and does
//! no I/O: the caller says what time it is and what came back, the breaker answers with a permit or
//! a [`Refusal`] and returns each change of state as a [`Transition`]. Counting, logging and telling
//! other nodes happen outside, so that the gateway, the simulator and the tests drive the same rule.
//!
//! ```
//! use std::time::Duration;
//! use breaker::{Breaker, Cause, Errand, Outcome, Rule, State};
//!
//! let mut breaker = Breaker::new(Rule::default(), 7);
//! for second in 0..4 {
//!     let now = Duration::from_secs(second);
//!     let (permit, _) = breaker.admit(now, Errand::Request { prompt_tokens: 100 });
//!     let fault = Outcome::Fault { weight: 1.0, cause: Cause::Status(500) };
//!     breaker.settle(now, permit.expect("the circuit is closed"), fault);
//! }
//! assert_eq!(breaker.view(Duration::from_secs(3)).state, State::Open);
//! ```
//!
//! Invariants:
//! - Every change of state raises the epoch by one, and a verdict of an older epoch changes nothing.
//!   Climbing from one rung of half-open to the next is no change of state.
//! - The probe and canary rungs give out no permit beyond their number, and one that is never
//!   settled opens the circuit again at its deadline; the ramp ends by the clock. So half-open can
//!   neither admit everyone nor wedge.
//! - Time never runs back: an earlier `now` counts as the latest one seen.
//! - No call on a request's path allocates, and no input makes a call panic, an unchecked [`Rule`]
//!   and a made-up [`Snapshot`] included.

mod breaker;
mod evidence;
mod permit;
pub mod relative;
mod ring;
mod rule;
mod snapshot;
mod times;
mod window;

use std::fmt;
use std::time::Duration;

pub use crate::breaker::Breaker;
pub use crate::permit::{Permit, Terms};
pub use crate::relative::Sample;
pub use crate::rule::{
    COUNT_MAX, DEADLINE_MARGIN, HALF_OPEN_REQUESTS_MAX, HalfOpenRule, JITTER, LAZY_TTL,
    MIN_REQUESTS_MAX, Mode, OpenRule, P95Rule, Recovery, Rule, RuleError, SLOW_CONFIRMATIONS_MAX,
    SlowRule,
};
pub use crate::snapshot::{SavedCounts, SavedEvidence, SavedPhase, SavedTimes, Snapshot};
pub use crate::times::Timing;

/// Where the circuit stands; closed means that traffic flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Traffic flows and evidence is gathered.
    Closed,
    /// Nothing is sent until the cool-down is over.
    Open,
    /// The [`Rung`]s are climbed to see whether the endpoint is well again.
    HalfOpen,
}

impl fmt::Display for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            State::Closed => "closed",
            State::Open => "open",
            State::HalfOpen => "half-open",
        })
    }
}

/// How far half-open has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rung {
    /// One synthetic request at a time is admitted; its success leads to the canary rung. This rung
    /// waits for as long as nobody probes, which [`View::half_open_idle`] shows.
    Probe,
    /// A few small requests are admitted; enough successes lead to the ramp.
    Canary,
    /// Everybody is admitted, and [`Breaker::share`] tells the chooser with what weight.
    Ramp,
}

impl fmt::Display for Rung {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Rung::Probe => "probe",
            Rung::Canary => "canary",
            Rung::Ramp => "ramp",
        })
    }
}

/// What the caller wants to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errand {
    /// A client's request.
    Request {
        /// Estimated length of the prompt in tokens; the canary rung admits only short ones.
        prompt_tokens: u64,
    },
    /// A synthetic request of the gateway's own.
    Probe,
    /// A client's request for which every endpoint of the pool is presumed dead, so that sending it
    /// anyway can do no more harm than refusing it.
    PassThrough,
}

/// Why nothing may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The circuit is open.
    Open {
        /// What is left of the cool-down; never zero.
        remaining: Duration,
    },
    /// Half-open, and all its permits are out.
    HalfOpenFull,
    /// On the canary rung, and the prompt is longer than [`HalfOpenRule::max_prompt_tokens`].
    PromptTooLarge,
    /// On the canary rung, and one more would be more than [`HalfOpenRule::share`].
    ShareSpent,
    /// On the probe rung, which no client's request is for.
    AwaitsProbe,
    /// The fleet took the endpoint out.
    Held,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Open { remaining } => write!(formatter, "open for another {remaining:?}"),
            Refusal::HalfOpenFull => formatter.write_str("half-open and full"),
            Refusal::PromptTooLarge => formatter.write_str("half-open and the prompt too large"),
            Refusal::ShareSpent => formatter.write_str("half-open and the share spent"),
            Refusal::AwaitsProbe => formatter.write_str("half-open and awaiting a probe"),
            Refusal::Held => formatter.write_str("held by the fleet"),
        }
    }
}

/// What kind of fault it was; it is carried into the [`Reason`] and weighs nothing by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// No connection: refused, no address, or no TLS.
    Refused,
    /// A limit of time passed without an answer.
    Timeout,
    /// An HTTP status that is the endpoint's fault.
    Status(u16),
    /// An answer that is not what was asked for.
    Malformed,
    /// An answer that ended before it was complete.
    Cut,
    /// Anything else that is the endpoint's fault.
    Other,
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Refused => formatter.write_str("refused"),
            Cause::Timeout => formatter.write_str("timeout"),
            Cause::Status(code) => write!(formatter, "{code}"),
            Cause::Malformed => formatter.write_str("malformed"),
            Cause::Cut => formatter.write_str("cut"),
            Cause::Other => formatter.write_str("other"),
        }
    }
}

/// Which limit a slow request crossed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlowKind {
    /// [`SlowRule::total`].
    Total,
    /// [`SlowRule::first_token`].
    FirstToken,
    /// [`SlowRule::min_tokens_per_second`].
    TokensPerSecond,
}

impl SlowKind {
    /// All kinds.
    pub const ALL: [SlowKind; 3] =
        [SlowKind::Total, SlowKind::FirstToken, SlowKind::TokensPerSecond];
}

impl fmt::Display for SlowKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            SlowKind::Total => "total",
            SlowKind::FirstToken => "first token",
            SlowKind::TokensPerSecond => "tokens per second",
        })
    }
}

/// What an attempt says about the endpoint's health.
///
/// There is no variant for an attempt that was never sent: what the gateway itself rejected is not
/// an attempt, so no permit is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// Complete and in time.
    Success,
    /// The endpoint's fault.
    Fault {
        /// How much of a fault, above 0 to 1. More counts as 1 and so does what is not a number; a
        /// fault that weighs nothing is [`Outcome::Neutral`].
        weight: f64,
        /// What kind of fault.
        cause: Cause,
    },
    /// The request crossed a slow limit; unless [`Breaker::slow`] said so while it was running.
    Slow(SlowKind),
    /// Nothing about health: busy, the client's own mistake, or the client went away.
    Neutral,
}

/// Why the state changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// [`Rule::failure_threshold`] faults in a row.
    ConsecutiveFaults,
    /// The weighted share of faults reached [`Rule::failure_ratio`].
    FailureRatio,
    /// Enough pieces of slow evidence; the kind is that of the deciding one.
    Slow(SlowKind),
    /// The P95 of the time to the first token exceeds [`P95Rule::first_token`].
    FirstTokenP95,
    /// The P95 of the time to the end exceeds [`P95Rule::total`].
    TotalP95,
    /// Much slower than its siblings, [`SlowRule::relative`].
    SlowerThanSiblings,
    /// A fault in half-open.
    HalfOpenFault(Cause),
    /// A slow request in half-open.
    HalfOpenSlow(SlowKind),
    /// A permit of the probe or canary rung was not settled by its deadline.
    PermitLost,
    /// The cool-down is over.
    CooledDown,
    /// The probe succeeded: from the probe rung to the canary rung.
    ProbePassed,
    /// Enough successes on the canary rung: from there to the ramp.
    CanaryPassed,
    /// The ramp is over, or there is none after the canary rung.
    Recovered,
    /// A request sent in spite of the open circuit succeeded.
    PassedThrough,
    /// The fleet takes the endpoint out and the probe or canary rung is no longer this node's.
    Held,
    /// The fleet lends its canary slot.
    Lent,
    /// The fleet's incident is closed.
    Released,
    /// Another rule has no probe rung, so that the circuit goes on to the canary rung.
    ProbeAbolished,
    /// Another rule turns the breaker off.
    TurnedOff,
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::ConsecutiveFaults => formatter.write_str("consecutive faults"),
            Reason::FailureRatio => formatter.write_str("failure ratio"),
            Reason::Slow(kind) => write!(formatter, "slow ({kind})"),
            Reason::FirstTokenP95 => formatter.write_str("first token p95"),
            Reason::TotalP95 => formatter.write_str("total p95"),
            Reason::SlowerThanSiblings => formatter.write_str("slower than its siblings"),
            Reason::HalfOpenFault(cause) => write!(formatter, "fault in half-open ({cause})"),
            Reason::HalfOpenSlow(kind) => write!(formatter, "slow in half-open ({kind})"),
            Reason::PermitLost => formatter.write_str("permit lost"),
            Reason::CooledDown => formatter.write_str("cooled down"),
            Reason::ProbePassed => formatter.write_str("probe passed"),
            Reason::CanaryPassed => formatter.write_str("canary passed"),
            Reason::Recovered => formatter.write_str("recovered"),
            Reason::PassedThrough => formatter.write_str("passed through"),
            Reason::Held => formatter.write_str("held"),
            Reason::Lent => formatter.write_str("lent"),
            Reason::Released => formatter.write_str("released"),
            Reason::ProbeAbolished => formatter.write_str("probe abolished"),
            Reason::TurnedOff => formatter.write_str("turned off"),
        }
    }
}

/// One change of state or rung, to be counted, logged and told to others by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The state before.
    pub from: State,
    /// The state after. It is the same as before when a rung is climbed (the epoch stays), when a
    /// half-open circuit is held, lent the slot or released, and when a circuit that was closed is
    /// released without a ramp or turned off (the evidence is gone and the epoch is new all the
    /// same).
    pub to: State,
    /// The rung that was reached when the new state is [`State::HalfOpen`], else `None`.
    pub rung: Option<Rung>,
    /// Why.
    pub reason: Reason,
    /// The epoch of the new state.
    pub epoch: u64,
    /// The whole cool-down when the new state is [`State::Open`], else `None`.
    pub remaining: Option<Duration>,
    /// When, on the caller's clock (the latest time seen).
    pub at: Duration,
    /// What had been gathered while closed; all zero when it was not closed before.
    pub gathered: Gathered,
}

/// What a closed circuit had gathered in its window when it changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gathered {
    /// Faults in a row.
    pub streak: u32,
    /// Requests in the window.
    pub requests: u32,
    /// The weight of the faults among them, in millionths.
    pub fault_millionths: u64,
    /// The successes among them.
    pub successes: u32,
    /// Pieces of slow evidence.
    pub slow_pieces: u32,
}

/// What this node has seen of the endpoint within the rule's window, to be pooled with what the
/// other nodes saw.
///
/// It is gathered while closed, held or not, and all of it but `last_success` is zero in the other
/// states: what has led to an opening is in [`Transition::gathered`], once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Requests that settled: successes, faults and slow ones.
    pub requests: u32,
    /// The weight of the faults among them, in millionths.
    pub fault_millionths: u64,
    /// The successes among them.
    pub successes: u32,
    /// How long ago each piece of slow evidence was seen, the newest first and `None` behind the
    /// last.
    pub slow: [Option<Duration>; SLOW_CONFIRMATIONS_MAX as usize],
    /// Age of the last success that counted, in whatever state, if it is younger than the window.
    pub last_success: Option<Duration>,
}

/// Everything the breaker knows, for the admin interface, metrics and the fleet's votes.
///
/// Evidence (`streak`, `requests`, `faults`, `successes`, `slow_pieces`, the P95s) is gathered while
/// closed and is zero or `None` in the other states.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    /// Where the circuit stands. A cool-down or ramp that is over and a permit that is overdue are
    /// acted on by [`Breaker::tick`] and [`Breaker::admit`], not by looking.
    pub state: State,
    /// How far half-open has come; `None` elsewhere.
    pub rung: Option<Rung>,
    /// The number of changes of state so far.
    pub epoch: u64,
    /// Whether the fleet took the endpoint out.
    pub held: bool,
    /// What is left of the cool-down while open (zero once it is over), else `None`.
    pub remaining: Option<Duration>,
    /// The exponent of the latest cool-down: 0 for the first opening and after lasting health.
    pub level: u32,
    /// Faults in a row.
    pub streak: u32,
    /// Requests in the window: successes, faults and slow ones.
    pub requests: u32,
    /// Weighted faults in the window.
    pub faults: f64,
    /// Successes in the window.
    pub successes: u32,
    /// Pieces of slow evidence that still count.
    pub slow_pieces: u32,
    /// The P95 of the time to the first token in the window: `None` with too few samples, and
    /// without a rule that judges by times.
    pub first_token_p95: Option<Duration>,
    /// The P95 of the time to the end, likewise.
    pub total_p95: Option<Duration>,
    /// Permits of the probe or canary rung that are out.
    pub half_open_in_flight: u32,
    /// Successes on the canary rung.
    pub half_open_successes: u32,
    /// Requests that asked on the canary rung.
    pub canary_asked: u64,
    /// Requests of those that were admitted.
    pub canary_admitted: u64,
    /// Time since half-open began or last admitted something, whichever is later; `None` elsewhere.
    pub half_open_idle: Option<Duration>,
    /// Why the circuit opened, while open or half-open; `None` in half-open that a circuit which was
    /// closed came to by a loan or a release.
    pub opened_for: Option<Reason>,
    /// Age of the last success that counted in closed or half-open.
    pub last_success: Option<Duration>,
}
