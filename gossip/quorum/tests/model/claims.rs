//! What the model is asked. The figures are printed: a search that sees little proves little.

use crate::search::search;
use crate::state::Shape;

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
fn no_order_of_records_lets_a_minority_open() {
    let number = |name: &str, usual: u32| {
        std::env::var(name).map_or(usual, |text| text.parse().unwrap())
    };
    let shape = Shape {
        canaries: number("CANARIES", 0),
        trips: number("TRIPS", 2),
        crashes: number("CRASHES", 0),
        faults: number("FAULTS", 1),
        is_parted: false,
    };
    holds("trips", shape, u64::from(number("TICKS", 6)));
}
