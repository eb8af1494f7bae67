//! Prints what a breaker costs: `cargo run --release -p breaker --example cost`.
//!
//! A request pays for one admission and one settlement under a lock, so these are measured: alone,
//! and by eight threads that share one breaker or a thousand. Allocations are not counted here, for
//! a counting allocator needs unsafe code or a dependency, and this crate has neither; that there are
//! none on a request's path follows from the types: what `admit`, `tick`, `slow`, `settle` and
//! `evidence` touch are arrays of fixed length and one box that is made by `new`, `restore` and
//! `set_rule` alone.
#![expect(clippy::print_stdout, reason = "it exists to print")]

use std::hint::black_box;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use breaker::{Breaker, Cause, Errand, Outcome, P95Rule, Rule, Timing};

const ROUNDS: u32 = 4_000_000;
const THREADS: u32 = 8;
/// A request per 10 µs of the breaker's time, so that the window's buckets turn over as in use.
const STEP: Duration = Duration::from_micros(10);

fn rule(judges_times: bool) -> Rule {
    let mut rule = Rule::default();
    if judges_times {
        let limit = Some(Duration::from_secs(20));
        rule.slow.p95 = Some(P95Rule { first_token: limit, total: limit });
    }
    rule
}

/// One request, of which one in 64 fails and one in 64 is the client's mistake.
fn request(breaker: &mut Breaker, round: u32) {
    let now = STEP * round;
    let timing = Timing {
        first_token: Some(Duration::from_millis(u64::from(round % 997))),
        total: Duration::from_millis(u64::from(round % 9_973)),
    };
    let outcome = match round % 64 {
        0 => Outcome::Fault { weight: 1.0, cause: Cause::Status(500) },
        1 => Outcome::Neutral,
        _ => Outcome::Success,
    };
    if let (Ok(permit), _) = breaker.admit(now, Errand::Request { prompt_tokens: 100 }) {
        black_box(breaker.settle_timed(now, permit, outcome, Some(timing)));
    }
}

fn nanoseconds_each(took: Duration, count: u32) -> f64 {
    took.as_secs_f64() * 1e9 / f64::from(count)
}

fn alone(judges_times: bool, rounds: u32) -> f64 {
    let mut breaker = Breaker::new(rule(judges_times), 1);
    let began = Instant::now();
    for round in 0..rounds {
        request(black_box(&mut breaker), round);
    }
    nanoseconds_each(began.elapsed(), rounds)
}

/// While open, and on the probe rung.
fn refused(has_cooled_down: bool) -> f64 {
    let mut breaker = Breaker::new(rule(false), 1);
    for _ in 0..4 {
        if let (Ok(permit), _) = breaker.admit(Duration::ZERO, Errand::Probe) {
            let fault = Outcome::Fault { weight: 1.0, cause: Cause::Refused };
            breaker.settle(Duration::ZERO, permit, fault);
        }
    }
    let now = Duration::from_secs(if has_cooled_down { 7 } else { 1 });
    let began = Instant::now();
    for _ in 0..ROUNDS {
        let (answer, _) = breaker.admit(black_box(now), Errand::Request { prompt_tokens: 100 });
        assert!(black_box(answer).is_err(), "it was admitted");
    }
    nanoseconds_each(began.elapsed(), ROUNDS)
}

/// What is pooled, of a window that is full.
fn evidence() -> f64 {
    let mut breaker = Breaker::new(rule(false), 1);
    for round in 0..ROUNDS {
        request(&mut breaker, round);
    }
    let now = STEP * ROUNDS;
    let began = Instant::now();
    for _ in 0..ROUNDS {
        black_box(black_box(&breaker).evidence(now));
    }
    nanoseconds_each(began.elapsed(), ROUNDS)
}

/// Wall time for each request of all threads together.
fn together(breakers: usize) -> f64 {
    let new = || Mutex::new(Breaker::new(rule(false), 1));
    let all: Vec<Mutex<Breaker>> = std::iter::repeat_with(new).take(breakers).collect();
    let rounds = ROUNDS / THREADS;
    let began = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let all = &all;
            scope.spawn(move || {
                let mut next = thread as usize;
                for round in 0..rounds {
                    // A prime step spreads the threads over the breakers.
                    next = (next + 7_919) % all.len();
                    if let Some(breaker) = all.get(next) {
                        let mut breaker = breaker.lock().unwrap_or_else(PoisonError::into_inner);
                        request(&mut breaker, round);
                    }
                }
            });
        }
    });
    nanoseconds_each(began.elapsed(), rounds * THREADS)
}

fn main() {
    println!("breaker: {} bytes", size_of::<Breaker>());
    println!("admit + settle, alone:                       {:6.0} ns", alone(false, ROUNDS));
    println!("admit + settle, judging by P95:              {:6.0} ns", alone(true, ROUNDS / 8));
    println!("refused while open:                          {:6.0} ns", refused(false));
    println!("refused on the probe rung:                   {:6.0} ns", refused(true));
    println!("evidence:                                    {:6.0} ns", evidence());
    println!("admit + settle, {THREADS} threads, one breaker:      {:6.0} ns", together(1));
    println!("admit + settle, {THREADS} threads, 1000 breakers:    {:6.0} ns", together(1_000));
}
