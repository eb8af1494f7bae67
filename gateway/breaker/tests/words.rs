//! The words that are told to operators, logs and metrics.
//!
//! Dashboards and alerts look for them, so a word that changes is a change of the interface.

use std::time::Duration;

use breaker::{Cause, Mode, Reason, Refusal, Rung, SlowKind, State};

fn told<T: ToString>(all: &[T]) -> Vec<String> {
    all.iter().map(T::to_string).collect()
}

#[test]
fn states_rungs_and_modes_have_their_words() {
    let states = told(&[State::Closed, State::Open, State::HalfOpen]);
    assert_eq!(states, ["closed", "open", "half-open"]);
    assert_eq!(told(&[Rung::Probe, Rung::Canary, Rung::Ramp]), ["probe", "canary", "ramp"]);
    let modes = [Mode::Enforce, Mode::Shadow, Mode::Off].map(Mode::as_str);
    assert_eq!(modes, ["enforce", "shadow", "off"]);
}

#[test]
fn a_refusal_says_why() {
    let all = told(&[
        Refusal::Open { remaining: Duration::from_millis(4_500) },
        Refusal::HalfOpenFull,
        Refusal::PromptTooLarge,
        Refusal::ShareSpent,
        Refusal::AwaitsProbe,
        Refusal::Held,
    ]);
    let expected = [
        "open for another 4.5s",
        "half-open and full",
        "half-open and the prompt too large",
        "half-open and the share spent",
        "half-open and awaiting a probe",
        "held by the fleet",
    ];
    assert_eq!(all, expected);
}

#[test]
fn a_reason_says_what_kind_of_fault_or_slowness_it_was() {
    let causes = [
        Cause::Refused,
        Cause::Timeout,
        Cause::Status(502),
        Cause::Malformed,
        Cause::Cut,
        Cause::Other,
    ];
    assert_eq!(told(&causes), ["refused", "timeout", "502", "malformed", "cut", "other"]);
    assert_eq!(told(&SlowKind::ALL), ["total", "first token", "tokens per second"]);
    let carrying = told(&[
        Reason::HalfOpenFault(Cause::Status(502)),
        Reason::HalfOpenSlow(SlowKind::Total),
        Reason::Slow(SlowKind::TokensPerSecond),
    ]);
    let expected =
        ["fault in half-open (502)", "slow in half-open (total)", "slow (tokens per second)"];
    assert_eq!(carrying, expected);
}

#[test]
fn every_other_reason_has_its_words() {
    let all = told(&[
        Reason::ConsecutiveFaults,
        Reason::FailureRatio,
        Reason::FirstTokenP95,
        Reason::TotalP95,
        Reason::SlowerThanSiblings,
        Reason::PermitLost,
        Reason::CooledDown,
        Reason::ProbePassed,
        Reason::CanaryPassed,
        Reason::Recovered,
        Reason::PassedThrough,
        Reason::Held,
        Reason::Lent,
        Reason::Released,
        Reason::ProbeAbolished,
        Reason::TurnedOff,
    ]);
    let expected = [
        "consecutive faults",
        "failure ratio",
        "first token p95",
        "total p95",
        "slower than its siblings",
        "permit lost",
        "cooled down",
        "probe passed",
        "canary passed",
        "recovered",
        "passed through",
        "held",
        "lent",
        "released",
        "probe abolished",
        "turned off",
    ];
    assert_eq!(all, expected);
}
