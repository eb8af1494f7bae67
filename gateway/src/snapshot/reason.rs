//! Why a circuit opened and how far it came, as a snapshot writes it.
//!
//! The breaker may reorder its enums at will; the order of these is the file format.
//!
//! Invariant: each value has one form in the file, and the way there and back ends where it began.

use bincode::{Decode, Encode};
use breaker::{Cause, Reason, Rung, SlowKind};

/// [`Rung`] in the file.
#[derive(Encode, Decode)]
pub(super) enum WireRung {
    Probe,
    Canary,
    Ramp,
}

/// [`SlowKind`] in the file.
#[derive(Encode, Decode)]
pub(super) enum WireSlowKind {
    Total,
    FirstToken,
    TokensPerSecond,
}

/// [`Cause`] in the file.
#[derive(Encode, Decode)]
pub(super) enum WireCause {
    Refused,
    Timeout,
    Status(u16),
    Malformed,
    Cut,
    Other,
}

/// [`Reason`] in the file.
#[derive(Encode, Decode)]
pub(super) enum WireReason {
    ConsecutiveFaults,
    FailureRatio,
    Slow(WireSlowKind),
    FirstTokenP95,
    TotalP95,
    SlowerThanSiblings,
    HalfOpenFault(WireCause),
    HalfOpenSlow(WireSlowKind),
    PermitLost,
    CooledDown,
    ProbePassed,
    CanaryPassed,
    Recovered,
    PassedThrough,
    Released,
    ProbeAbolished,
    TurnedOff,
    Held,
    Lent,
}

impl From<Rung> for WireRung {
    fn from(rung: Rung) -> Self {
        match rung {
            Rung::Probe => Self::Probe,
            Rung::Canary => Self::Canary,
            Rung::Ramp => Self::Ramp,
        }
    }
}

impl From<WireRung> for Rung {
    fn from(wire: WireRung) -> Self {
        match wire {
            WireRung::Probe => Self::Probe,
            WireRung::Canary => Self::Canary,
            WireRung::Ramp => Self::Ramp,
        }
    }
}

impl From<SlowKind> for WireSlowKind {
    fn from(kind: SlowKind) -> Self {
        match kind {
            SlowKind::Total => Self::Total,
            SlowKind::FirstToken => Self::FirstToken,
            SlowKind::TokensPerSecond => Self::TokensPerSecond,
        }
    }
}

impl From<WireSlowKind> for SlowKind {
    fn from(wire: WireSlowKind) -> Self {
        match wire {
            WireSlowKind::Total => Self::Total,
            WireSlowKind::FirstToken => Self::FirstToken,
            WireSlowKind::TokensPerSecond => Self::TokensPerSecond,
        }
    }
}

impl From<Cause> for WireCause {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::Refused => Self::Refused,
            Cause::Timeout => Self::Timeout,
            Cause::Status(code) => Self::Status(code),
            Cause::Malformed => Self::Malformed,
            Cause::Cut => Self::Cut,
            Cause::Other => Self::Other,
        }
    }
}

impl From<WireCause> for Cause {
    fn from(wire: WireCause) -> Self {
        match wire {
            WireCause::Refused => Self::Refused,
            WireCause::Timeout => Self::Timeout,
            WireCause::Status(code) => Self::Status(code),
            WireCause::Malformed => Self::Malformed,
            WireCause::Cut => Self::Cut,
            WireCause::Other => Self::Other,
        }
    }
}

impl From<Reason> for WireReason {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::ConsecutiveFaults => Self::ConsecutiveFaults,
            Reason::FailureRatio => Self::FailureRatio,
            Reason::Slow(kind) => Self::Slow(kind.into()),
            Reason::FirstTokenP95 => Self::FirstTokenP95,
            Reason::TotalP95 => Self::TotalP95,
            Reason::SlowerThanSiblings => Self::SlowerThanSiblings,
            Reason::HalfOpenFault(cause) => Self::HalfOpenFault(cause.into()),
            Reason::HalfOpenSlow(kind) => Self::HalfOpenSlow(kind.into()),
            Reason::PermitLost => Self::PermitLost,
            Reason::CooledDown => Self::CooledDown,
            Reason::ProbePassed => Self::ProbePassed,
            Reason::CanaryPassed => Self::CanaryPassed,
            Reason::Recovered => Self::Recovered,
            Reason::PassedThrough => Self::PassedThrough,
            Reason::Released => Self::Released,
            Reason::ProbeAbolished => Self::ProbeAbolished,
            Reason::TurnedOff => Self::TurnedOff,
            Reason::Held => Self::Held,
            Reason::Lent => Self::Lent,
        }
    }
}

impl From<WireReason> for Reason {
    fn from(wire: WireReason) -> Self {
        match wire {
            WireReason::ConsecutiveFaults => Self::ConsecutiveFaults,
            WireReason::FailureRatio => Self::FailureRatio,
            WireReason::Slow(kind) => Self::Slow(kind.into()),
            WireReason::FirstTokenP95 => Self::FirstTokenP95,
            WireReason::TotalP95 => Self::TotalP95,
            WireReason::SlowerThanSiblings => Self::SlowerThanSiblings,
            WireReason::HalfOpenFault(cause) => Self::HalfOpenFault(cause.into()),
            WireReason::HalfOpenSlow(kind) => Self::HalfOpenSlow(kind.into()),
            WireReason::PermitLost => Self::PermitLost,
            WireReason::CooledDown => Self::CooledDown,
            WireReason::ProbePassed => Self::ProbePassed,
            WireReason::CanaryPassed => Self::CanaryPassed,
            WireReason::Recovered => Self::Recovered,
            WireReason::PassedThrough => Self::PassedThrough,
            WireReason::Released => Self::Released,
            WireReason::ProbeAbolished => Self::ProbeAbolished,
            WireReason::TurnedOff => Self::TurnedOff,
            WireReason::Held => Self::Held,
            WireReason::Lent => Self::Lent,
        }
    }
}
