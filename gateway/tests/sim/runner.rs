//! Runs many seeds on all cores and gathers what they came to.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::invariants::Violation;
use crate::ledger::Figures;
use crate::plan::Plan;
use crate::world::{Manner, Outcome, World};

/// How many failing seeds are looked for before a run is given up.
const FAILURES_MAX: usize = 8;

/// What a range of seeds came to.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) seeds: u64,
    pub(crate) figures: Figures,
    /// Runs in which the fleet opened something.
    pub(crate) eventful: u64,
    /// Seeds that broke a promise, in no order.
    pub(crate) failures: Vec<(u64, Violation)>,
}

/// How the plan of a seed is drawn.
pub(crate) type Draw = fn(u64) -> Plan;

/// Runs one plan; a panic of the rules is a violation like any other.
pub(crate) fn run(plan: &Plan, manner: Manner) -> Outcome {
    let attempt = catch_unwind(AssertUnwindSafe(|| World::new(plan, manner).run()));
    attempt.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let what = text.unwrap_or_default();
        Outcome {
            violation: Some(Violation { invariant: "panic", at: 0, what }),
            figures: Figures::default(),
            trace: 0,
            story: Vec::new(),
        }
    })
}

/// Runs all seeds of a range.
pub(crate) fn run_seeds(
    seeds: Range<u64>,
    (draw, manner): (Draw, Manner),
    failures_max: usize,
) -> Report {
    let next = AtomicU64::new(seeds.start);
    let is_enough = AtomicBool::new(false);
    let report = Mutex::new(Report::default());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut mine = Report::default();
                while !is_enough.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let outcome = run(&draw(seed), manner);
                    mine.take(seed, outcome);
                    is_enough.fetch_or(mine.failures.len() >= failures_max, Ordering::Relaxed);
                }
                report.lock().unwrap().merge(mine);
            });
        }
    });
    report.into_inner().unwrap()
}

/// The seeds of the long run.
pub(crate) fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("SEEDS") else { return 0..10_000 };
    let (from, to) = text.split_once("..").expect("SEEDS=from..to");
    from.parse().expect("SEEDS=from..to")..to.parse().expect("SEEDS=from..to")
}

/// The seeds of the run with a ledger; `LEDGER_SEEDS=from..to` says otherwise.
pub(crate) fn ledger_seeds() -> Range<u64> {
    let Ok(text) = std::env::var("LEDGER_SEEDS") else { return 0..5_000 };
    let (from, to) = text.split_once("..").expect("LEDGER_SEEDS=from..to");
    from.parse().expect("LEDGER_SEEDS=from..to")..to.parse().expect("LEDGER_SEEDS=from..to")
}

/// How many failing seeds the long run looks for; `FAILURES` says otherwise.
pub(crate) fn failures_max() -> usize {
    std::env::var("FAILURES").ok().and_then(|text| text.parse().ok()).unwrap_or(FAILURES_MAX)
}

impl Report {
    fn take(&mut self, seed: u64, outcome: Outcome) {
        self.seeds += 1;
        self.eventful += u64::from(outcome.figures.openings > 0);
        self.figures.add(&outcome.figures);
        self.failures.extend(outcome.violation.map(|violation| (seed, violation)));
    }

    fn merge(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.eventful += other.eventful;
        self.figures.add(&other.figures);
        self.failures.extend(other.failures);
    }
}
