//! Replays: plans that once broke a promise, kept as text and run each time.

use std::fs;
use std::path::PathBuf;

use crate::invariants::Violation;
use crate::plan::Plan;
use crate::runner::run;
use crate::shrink::shrink;
use crate::world::Manner;

/// Where replays are kept.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/sim/replays")
}

/// Makes a failing plan smaller and writes it down. Returns what to tell.
pub(crate) fn keep(plan: &Plan, manner: Manner, violation: &Violation) -> String {
    let small = shrink(plan, manner, violation.invariant);
    let again = run(&small, manner).violation;
    let what = again.map_or_else(|| violation.what.clone(), |violation| violation.what);
    let text = format!("# {}: {what}\n{small}", violation.invariant);
    let path = {
        let kind = if plan.has_ledger { "-ledger" } else { "" };
        folder().join(format!("{}{kind}-{}.txt", violation.invariant, plan.seed))
    };
    let written = match fs::write(&path, &text) {
        Ok(()) => format!("kept as {}", path.display()),
        Err(error) => format!("not kept: {error}"),
    };
    format!(
        "seed {} breaks `{}` at {} ms: {}\n{plan}made smaller ({written}):\n{text}",
        plan.seed, violation.invariant, violation.at, violation.what
    )
}

/// All replays that are kept, with their file names.
pub(crate) fn kept() -> Vec<(String, String)> {
    let entries = fs::read_dir(folder()).expect("the folder of replays is there");
    let mut replays: Vec<(String, String)> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, fs::read_to_string(&path).unwrap())
        })
        .collect();
    replays.sort();
    replays
}
