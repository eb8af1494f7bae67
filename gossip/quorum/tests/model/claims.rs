//! What the model is asked. The figures are printed: a search that sees little proves little.

use crate::search::search;
use crate::state::Shape;

/// Nothing goes wrong.
const CALM: Shape =
    Shape { canaries: 0, trips: 0, crashes: 0, faults: 0, is_parted: false, is_planted: false };

/// Searches and prints what was visited.
fn holds(what: &str, shape: Shape, ticks: u64) {
    let begun = std::time::Instant::now();
    match search(shape, ticks) {
        Ok(found) => eprintln!(
            "{what}: {} states, {} steps, {} of them out, {} calmed down, {:.1} s",
            found.states,
            found.steps,
            found.out,
            found.leaves,
            begun.elapsed().as_secs_f64()
        ),
        Err(broken) => panic!("{what}: {broken}"),
    }
}

#[test]
fn no_two_lost_records_break_a_promise() {
    let shape = Shape { trips: 2, faults: 2, ..CALM };
    holds("two trips, two faults, six ticks", shape, 6);
}

#[test]
fn a_long_way_back_with_canaries_breaks_no_promise() {
    let shape = Shape { canaries: 2, trips: 2, faults: 1, ..CALM };
    holds("two trips, one fault, canaries, ten ticks", shape, 10);
}

#[test]
fn a_process_replaced_at_any_moment_breaks_no_promise() {
    let shape = Shape { canaries: 1, trips: 2, crashes: 1, faults: 1, ..CALM };
    holds("two trips, one crash, one fault, five ticks", shape, 5);
}

#[test]
fn a_node_cut_off_breaks_no_promise() {
    let shape = Shape { canaries: 1, trips: 3, crashes: 1, faults: 1, is_parted: true, ..CALM };
    holds("three trips, one crash, one fault, one node cut off, four ticks", shape, 4);
}

#[test]
fn a_vote_handed_on_as_another_members_is_caught() {
    let shape = Shape { trips: 2, is_planted: true, ..CALM };
    let broken = search(shape, 3).err();
    assert!(broken.is_some_and(|what| what.contains("opens with 1 votes")));
}
