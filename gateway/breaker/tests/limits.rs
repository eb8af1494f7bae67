//! What happens exactly at a limit, and what a snapshot holds.
//!
//! Random schedules hardly ever meet a limit to the nanosecond, so the two sides of each are shown
//! here.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may stop loudly")]

use std::time::Duration;

use breaker::{
    Breaker, Errand, Outcome, P95Rule, Reason, Rule, SavedCounts, SavedEvidence, SavedPhase,
    Snapshot, Timing,
};

const SECOND: Duration = Duration::from_secs(1);
const NANOSECOND: Duration = Duration::from_nanos(1);
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

fn judging(first_token: Option<Duration>, total: Option<Duration>) -> Rule {
    let mut rule = Rule::default();
    rule.slow.p95 = Some(P95Rule { first_token, total });
    rule
}

/// Twenty equal answers, and why they opened the circuit, if they did.
fn twenty(breaker: &mut Breaker, first_token: Duration, total: Duration) -> Option<Reason> {
    let mut reason = None;
    for _ in 0..20 {
        let (permit, _) = breaker.admit(SECOND, Errand::Probe);
        let timing = Some(Timing { first_token: Some(first_token), total });
        let change = breaker.settle_timed(SECOND, permit.unwrap(), Outcome::Success, timing);
        reason = reason.or(change.map(|change| change.reason));
    }
    reason
}

#[test]
fn a_p95_that_just_meets_its_limit_does_not_open() {
    let (first_token, total) = (SECOND, SECOND * 3);
    let mut calm = Breaker::new(judging(None, Some(SECOND * 60)), 1);
    assert_eq!(twenty(&mut calm, first_token, total), None);
    let view = calm.view(SECOND);
    let (known_first, known_total) = (view.first_token_p95.unwrap(), view.total_p95.unwrap());
    let opened_by = |rule: Rule| twenty(&mut Breaker::new(rule, 1), first_token, total);
    assert_eq!(opened_by(judging(Some(known_first), Some(known_total))), None);
    let first_token_p95 = opened_by(judging(Some(known_first - NANOSECOND), Some(known_total)));
    assert_eq!(first_token_p95, Some(Reason::FirstTokenP95));
    let total_p95 = opened_by(judging(Some(known_first), Some(known_total - NANOSECOND)));
    assert_eq!(total_p95, Some(Reason::TotalP95));
}

fn evidence(snapshot: &Snapshot) -> &SavedEvidence {
    let SavedPhase::Closed(evidence) = &snapshot.phase else {
        panic!("it is closed");
    };
    evidence
}

#[test]
fn a_snapshot_holds_what_there_is_and_no_zeros() {
    let mut breaker = Breaker::new(judging(None, Some(SECOND * 60)), 1);
    assert_eq!(evidence(&breaker.snapshot(SECOND)).counts, []);
    assert_eq!(evidence(&breaker.snapshot(SECOND)).times, []);
    twenty(&mut breaker, SECOND, SECOND * 3);
    let snapshot = breaker.snapshot(SECOND);
    let evidence = evidence(&snapshot);
    assert_eq!(evidence.counts.len(), 1);
    let [times] = evidence.times.as_slice() else {
        panic!("all fell into one bucket: {:?}", evidence.times);
    };
    assert_eq!((times.first_token.len(), times.total.len()), (1, 1));
}

#[test]
fn a_snapshot_holds_times_that_are_all_of_one_kind() {
    let mut breaker = Breaker::new(judging(None, Some(SECOND * 60)), 1);
    let (permit, _) = breaker.admit(SECOND, Errand::Probe);
    let timing = Some(Timing { first_token: None, total: SECOND });
    breaker.settle_timed(SECOND, permit.unwrap(), Outcome::Success, timing);
    let snapshot = breaker.snapshot(SECOND);
    assert_eq!(evidence(&snapshot).times.len(), 1);
    let restored = Breaker::restore(judging(None, Some(SECOND * 60)), 1, &snapshot, SECOND);
    assert_eq!(restored.snapshot(SECOND), snapshot);
}

#[test]
fn more_successes_and_faults_than_requests_are_made_up() {
    let mut snapshot = Breaker::new(Rule::default(), 1).snapshot(SECOND);
    let SavedPhase::Closed(evidence) = &mut snapshot.phase else { panic!("{snapshot:?}") };
    let counts = |requests, successes, fault_millionths| SavedCounts {
        age: SECOND,
        requests,
        successes,
        fault_millionths,
    };
    evidence.counts = vec![counts(7, u32::MAX, u64::MAX), counts(7, 5, u64::MAX)];
    let view = Breaker::restore(Rule::default(), 1, &snapshot, SECOND).view(SECOND);
    assert_eq!((view.requests, view.successes, view.faults), (14, 12, 2.0));
}

#[test]
fn a_clock_that_has_run_for_a_century_goes_on_and_a_longer_one_is_made_up() {
    let fresh = Breaker::new(Rule::default(), 1).snapshot(Duration::ZERO);
    for (clock, expected) in [(YEAR * 100, YEAR * 100), (YEAR * 101, YEAR * 100)] {
        let snapshot = Snapshot { clock, ..fresh.clone() };
        let restored = Breaker::restore(Rule::default(), 1, &snapshot, SECOND);
        assert_eq!(restored.snapshot(SECOND).clock, expected);
        assert_eq!(restored.snapshot(SECOND * 2).clock, expected + SECOND);
    }
}
