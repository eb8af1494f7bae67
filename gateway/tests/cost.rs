//! What asking a breaker allocates: nothing, on any path of a request, whatever the rule asks for.
//!
//! It stands here and not with the breaker because counting needs a dependency and that crate has
//! none. What it takes in nanoseconds is printed by `cargo run --release -p breaker --example cost`.

use std::time::Duration;

use allocation_counter::measure;
use breaker::{Breaker, Cause, Errand, Outcome, P95Rule, Rule, SlowKind, State, Timing};

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Requests of every fate, over many windows, through openings, the ladder and back.
fn live(breaker: &mut Breaker, requests: u64) -> u32 {
    let mut openings = 0;
    for round in 0..requests {
        let now = millis(round * 50);
        let errand = match round % 7 {
            0 => Errand::Probe,
            1 => Errand::PassThrough,
            _ => Errand::Request { prompt_tokens: round % 512 },
        };
        let (permit, moved) = breaker.admit(now, errand);
        openings += u32::from(moved.is_some_and(|transition| transition.to == State::Open));
        let Ok(mut permit) = permit else { continue };
        if round % 41 == 0 {
            breaker.slow(now, &mut permit, SlowKind::Total);
        }
        let outcome = match (round / 400) % 4 {
            0 => Outcome::Fault { weight: 1.0, cause: Cause::Status(500) },
            1 if round % 3 == 0 => Outcome::Neutral,
            _ => Outcome::Success,
        };
        let timing =
            Timing { first_token: Some(millis(round % 900)), total: millis(round % 9_000) };
        let moved = breaker.settle_timed(now, permit, outcome, Some(timing));
        openings += u32::from(moved.is_some_and(|transition| transition.to == State::Open));
        breaker.evidence(now);
        breaker.view(now);
    }
    openings
}

#[test]
fn a_request_allocates_nothing_in_the_breaker() {
    let one = measure(|| drop(std::hint::black_box(Box::new(7))));
    assert_eq!(one.count_total, 1, "the counter counts");
    let mut rules = [Rule::default(), Rule::preset("critical").unwrap(), Rule::default()];
    rules[2].slow.p95 = Some(P95Rule { first_token: Some(millis(800)), total: None });
    for rule in rules {
        let mut breaker = Breaker::new(rule, 7);
        let mut openings = 0;
        let counted = measure(|| openings = live(&mut breaker, 100_000));
        assert!(openings > 10, "it hardly opened: {openings}");
        assert_eq!(counted.count_total, 0, "allocations");
    }
}
