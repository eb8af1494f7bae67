//! The knobs of the simulated fleet: production's configuration with its times shortened.
//!
//! A run must be short to be repeated a million times, so cool-downs, windows and the grace are a
//! few times shorter than the defaults; gossip's interval and what is measured in it are not.

use std::time::Duration;

use breaker::{HalfOpenRule, Mode, OpenRule, Rule, SlowRule};
use gateway::cluster::council_rule;
use gateway::config::{self, Config, OnAllOpen};
use quorum::{CouncilRule, Denominator};

use crate::plan::{Fault, Knobs, Ms, Plan, What};
use crate::sabotage::Sabotage;

/// Gossip's interval.
pub(crate) const INTERVAL: Ms = 1_000;
/// A vote whose voter is silent for this long lapses.
pub(crate) const VOTE_TTL: Ms = 10_000;
/// How long a node observes after a start or a pause.
const OBSERVE: Ms = 3_000;
/// How long a lost member goes on counting.
pub(crate) const GRACE: Ms = 14_000;
/// How far back evidence counts. Clocks begin at multiples of it, since the breaker's buckets are
/// cut by the clock.
pub(crate) const WINDOW: Ms = 10_000;
/// A request that runs this long is slow.
pub(crate) const SLOW: Ms = 1_500;
/// How long a probe may take.
pub(crate) const PROBE_TIMEOUT: Ms = 1_000;
/// The longest cool-down.
const COOL_DOWN_MAX: Ms = 4_000;
/// The first cool-down.
const COOL_DOWN: Ms = 1_500;
/// How long a lazy opening lasts.
const LAZY: Ms = 5_000;
/// The longest ramp.
const RAMP: Ms = 1_500;
/// The longest that an opening stands without its steward.
const OPEN_MAX: Ms = 120_000;

/// What all is made of; the plan's knobs are turned on what was read.
const BASE: &str = "cluster: {id: sim, node_id: gw, listen: '127.0.0.1:1', tls: {insecure: true}}
models: [{name: pool, endpoints: [{name: e, address: 'http://127.0.0.1:1'}]}]
";

thread_local! {
    static READ: Config = config::parse(BASE, "base", &|_| None).expect("the base is accepted");
}

/// The pools of a plan, as the configuration of a node has them.
pub(crate) fn pools(plan: &Plan, sabotage: Option<Sabotage>) -> Vec<config::Pool> {
    let (base, rule) = (READ.with(|read| read.pools[0].clone()), breaker(&plan.knobs, sabotage));
    let is_passing = plan.knobs.passes_through;
    let mut pools = Vec::with_capacity(plan.pools.len());
    for number in 0..plan.pools.len() {
        let endpoints = plan.endpoints_of(number).map(|endpoint| {
            let mut made = base.endpoints[0].clone();
            made.name = format!("e{endpoint}");
            made.rule = rule.clone();
            made.probe.enabled = plan.knobs.has_probe;
            made.probe.first_token = time(PROBE_TIMEOUT);
            made
        });
        pools.push(config::Pool {
            name: format!("pool-{number}"),
            endpoints: endpoints.collect(),
            on_all_open: if is_passing { OnAllOpen::PassThrough } else { OnAllOpen::Reject },
            ..base.clone()
        });
    }
    pools
}

/// The breaker's rule.
fn breaker(knobs: &Knobs, sabotage: Option<Sabotage>) -> Rule {
    let recovery = match knobs.canaries {
        0 => breaker::Recovery::Lazy { ttl: time(LAZY) },
        _ => breaker::Recovery::Staged { probe: knobs.has_probe, ramp: time(RAMP) },
    };
    Rule {
        mode: Mode::Enforce,
        failure_threshold: 4,
        failure_ratio: 0.5,
        window: time(WINDOW),
        min_requests: 10,
        slow: SlowRule {
            total: time(SLOW),
            first_token: None,
            min_tokens_per_second: None,
            dedup: time(if sabotage == Some(Sabotage::NoDedup) { 0 } else { 3_000 }),
            confirmations: 2,
            p95: None,
            relative: None,
        },
        open: OpenRule {
            base: time(COOL_DOWN),
            max: time(COOL_DOWN_MAX),
            reset_after: time(20_000),
        },
        recovery,
        half_open: HalfOpenRule {
            max_requests: 1,
            max_prompt_tokens: 256,
            successes: knobs.canaries.max(1),
            share: 0.5,
            deadline: time(SLOW + 2_000),
        },
    }
}

/// The council's rule. `expected_members` is set where processes are replaced with nothing kept: one
/// that begins while the others are cut off knows nothing else of how many they are.
pub(crate) fn council(plan: &Plan) -> CouncilRule {
    let knobs = &plan.knobs;
    let is_replaced = |fault: &Fault| {
        matches!(fault.what, What::Crash { has_snapshot: false, .. } | What::Lies { .. })
    };
    let mut cluster = READ.with(|read| read.cluster.clone()).expect("the base has a cluster");
    cluster.gossip_interval = time(INTERVAL);
    cluster.quorum = config::QuorumConfig {
        expected_members: if plan.faults.iter().any(is_replaced) { plan.nodes() } else { 0 },
        member_grace: time(GRACE),
        max_open: time(OPEN_MAX),
        observe: time(OBSERVE),
        of: if knobs.of_observers { Denominator::Observers } else { Denominator::Members },
        max_open_share_milli: knobs.share,
        ..cluster.quorum
    };
    council_rule(Some(&cluster))
}

/// Milliseconds as a duration.
pub(crate) const fn time(ms: Ms) -> Duration {
    Duration::from_millis(ms)
}
