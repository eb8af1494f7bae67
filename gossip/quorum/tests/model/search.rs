//! Breadth-first search over all states up to a number of ticks.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::state::{Action, Shape, State};

/// No search visits more states than this; one that would is a mistake in its bounds.
const STATES_MAX: usize = 400_000;

/// Within so many ticks of calm the fleet is back from every state.
const BACK_WITHIN: u32 = 60;

/// What a search came to.
pub(crate) struct Found {
    /// How many different states there are.
    pub(crate) states: usize,
    /// How many steps lead from one to another.
    pub(crate) steps: usize,
    /// How many of them have the endpoint out on some node.
    pub(crate) out: usize,
    /// How many states at the end of the time were seen to lead back to closed.
    pub(crate) leaves: usize,
}

/// Visits every state that is reached within `ticks`, and calms each at the end down.
///
/// # Errors
/// The promise that is broken, with the way to it.
pub(crate) fn search(shape: Shape, ticks: u64) -> Result<Found, String> {
    let start = State::start(shape);
    let end = start.tick + ticks;
    let first = start.fingerprint();
    let mut seen = HashSet::from([first]);
    let mut ways: HashMap<u64, (u64, Action)> = HashMap::new();
    let mut queue = VecDeque::from([(first, start)]);
    let mut found = Found { states: 1, steps: 0, out: 0, leaves: 0 };
    while let Some((mark, state)) = queue.pop_front() {
        found.out += usize::from(state.nodes.iter().any(|node| node.is_out));
        for action in state.actions() {
            if action == Action::Tick && state.tick == end {
                found.leaves += 1;
                state.comes_back(BACK_WITHIN).map_err(|broken| told(&ways, mark, &broken))?;
                continue;
            }
            let mut next = state.clone();
            let outcome = next.act(action);
            found.steps += 1;
            let reached = next.fingerprint();
            if seen.insert(reached) {
                ways.insert(reached, (mark, action));
                outcome.map_err(|broken| told(&ways, reached, &broken))?;
                queue.push_back((reached, next));
                found.states += 1;
            } else {
                outcome.map_err(|broken| told(&ways, mark, &format!("{action:?}: {broken}")))?;
            }
        }
        if found.states > STATES_MAX {
            return Err(format!("more than {STATES_MAX} states"));
        }
    }
    Ok(found)
}

/// The way to a state, as text.
fn told(ways: &HashMap<u64, (u64, Action)>, mut mark: u64, broken: &str) -> String {
    let mut actions = Vec::new();
    while let Some((before, action)) = ways.get(&mark) {
        actions.push(format!("{action:?}"));
        mark = *before;
    }
    actions.reverse();
    format!("{broken}\nafter: {}", actions.join(", "))
}
