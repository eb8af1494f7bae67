//! How many breakers, or one over a long time, come back.
//!
//! A single story cannot show that nodes come back apart, nor what an endpoint that flaps costs over
//! an hour; here both are counted.

use std::time::Duration;

use breaker::{Breaker, Cause, Errand, Outcome, Recovery, Rule};

fn fault(status: u16) -> Outcome {
    Outcome::Fault { weight: 1.0, cause: Cause::Status(status) }
}

/// The cool-downs of a breaker whose requests all fail, in the order they came.
fn cool_downs(seed: u64) -> Vec<Duration> {
    let mut breaker = Breaker::new(Rule::default(), seed);
    let mut cool_downs = Vec::new();
    for minutes in (0..60).step_by(3) {
        let now = Duration::from_secs(minutes * 60);
        for _ in 0..Rule::default().failure_threshold {
            if let Ok(permit) = breaker.admit(now, Errand::Probe).0 {
                let change = breaker.settle(now, permit, fault(500));
                cool_downs.extend(change.and_then(|change| change.remaining));
            }
        }
    }
    cool_downs
}

#[test]
fn nodes_that_opened_together_do_not_come_back_together() {
    let nodes: Vec<Vec<Duration>> = (0..1_000).map(cool_downs).collect();
    assert_eq!(nodes[0], cool_downs(0), "the same seed is the same jitter");
    for (round, nominal) in [(0, 5.0), (1, 10.0), (2, 20.0), (3, 40.0), (4, 80.0), (9, 120.0)] {
        let shares = nodes.iter().map(|node| node[round].as_secs_f64() / nominal);
        let (early, late): (Vec<f64>, Vec<f64>) = shares.partition(|share| *share < 1.0);
        let near = early.iter().filter(|share| **share < 0.84).count();
        let far = late.iter().filter(|share| **share > 1.16).count();
        assert!(near > 50, "round {round}: {near} of 1000 come back in the first tenth");
        // At the cap the later half of the nodes is cut off.
        assert!(far > 50 || nominal == 120.0, "round {round}: {far} of 1000 in the last tenth");
    }
}

#[test]
fn u35_a_flapping_endpoint_costs_a_tenth_of_its_faults_and_is_not_lost() {
    // Only canaries, and every request may be one: nothing but the cool-down keeps faults away.
    let recovery = Recovery::Staged { probe: false, ramp: Duration::ZERO };
    let mut rule = Rule { recovery, ..Rule::default() };
    rule.half_open.share = 1.0;
    for seed in 0..200 {
        let mut breaker = Breaker::new(rule.clone(), seed);
        let (mut faults, mut successes) = ([0_u32; 4], [0_u32; 4]);
        for second in 0..3_600_u64 {
            let now = Duration::from_secs(second);
            let quarter = (second / 900) as usize;
            let is_well = (second / 30) % 2 == 0;
            let Ok(permit) = breaker.admit(now, Errand::Request { prompt_tokens: 10 }).0 else {
                continue;
            };
            if is_well {
                breaker.settle(now, permit, Outcome::Success);
                successes[quarter] += 1;
            } else {
                breaker.settle(now, permit, fault(503));
                faults[quarter] += 1;
            }
        }
        // Without a breaker each quarter of an hour has 450 faults and 450 successes.
        let told = format!("seed {seed}: faults {faults:?}, successes {successes:?}");
        assert!(faults.iter().all(|count| *count <= 45), "{told}");
        assert!(successes.iter().sum::<u32>() >= 60, "{told}");
    }
}
