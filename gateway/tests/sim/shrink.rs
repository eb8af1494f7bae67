//! Makes a failing plan smaller: fewer faults, shorter ones, fewer nodes, less time.
//!
//! A smaller plan is kept if it breaks the same promise. Nothing is proven by what is left, but it
//! is read in a minute where the whole is not.

use crate::plan::{Fault, Plan, What};
use crate::runner::run;
use crate::world::Manner;

/// No more runs than this are spent on one plan.
const RUNS_MAX: usize = 400;

/// Fewer nodes than this are no fleet.
const NODES_MIN: usize = 3;

/// The smallest plan found that breaks `invariant` as `plan` does.
pub(crate) fn shrink(plan: &Plan, manner: Manner, invariant: &str) -> Plan {
    let mut best = plan.clone();
    let mut runs = 0;
    while let Some(smaller) = smaller_than(&best).into_iter().find(|candidate| {
        runs += 1;
        runs <= RUNS_MAX && breaks(candidate, manner, invariant)
    }) {
        best = smaller;
    }
    best
}

/// Whether a plan breaks a promise.
pub(crate) fn breaks(plan: &Plan, manner: Manner, invariant: &str) -> bool {
    run(plan, manner).violation.is_some_and(|violation| violation.invariant == invariant)
}

/// Plans that are one step smaller, the boldest step first.
fn smaller_than(plan: &Plan) -> Vec<Plan> {
    let mut smaller = Vec::new();
    for index in 0..plan.faults.len() {
        let mut fewer = plan.clone();
        fewer.faults.remove(index);
        smaller.push(fewer);
    }
    if plan.nodes() > NODES_MIN && plan.faults.iter().all(|fault| spares(fault, plan.nodes() - 1)) {
        let mut fewer = plan.clone();
        fewer.rates.pop();
        smaller.push(fewer);
    }
    let last = plan.faults.iter().map(|fault| fault.to).max().unwrap_or(1_000);
    if last + 200 < plan.length {
        smaller.push(Plan { length: last, ..plan.clone() });
    }
    for (index, fault) in plan.faults.iter().enumerate() {
        let third = (fault.to - fault.from) / 3;
        for (from, to) in [(fault.from, fault.to - third), (fault.from + third, fault.to)] {
            if third >= 200 {
                let mut shorter = plan.clone();
                shorter.faults[index] = Fault { from, to, what: fault.what };
                smaller.push(shorter);
            }
        }
    }
    smaller
}

/// Whether a fault is possible without a node.
fn spares(fault: &Fault, node: usize) -> bool {
    match fault.what {
        What::Parted { mask } => mask & 1 << node == 0,
        What::Deaf { from, to } => from != node && to != node,
        What::Cut { node: other }
        | What::Crash { node: other, .. }
        | What::Pause { node: other }
        | What::BadNode { node: other }
        | What::LedgerAway { node: other }
        | What::Lies { node: other, .. } => other != node,
        What::Rough { .. }
        | What::Unpushed { .. }
        | What::Fails { .. }
        | What::Slow { .. }
        | What::Flaps { .. }
        | What::Fragile { .. }
        | What::LedgerDown
        | What::LedgerRough { .. }
        | What::LedgerFlush
        | What::LedgerLoses { .. } => true,
    }
}
