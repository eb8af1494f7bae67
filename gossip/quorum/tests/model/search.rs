//! A search through all ticks with all twists, as many as there may be.
//!
//! Without a limit the orders of a few dozen records are more than anyone can visit. So the twists
//! are limited in number and not in place (delay-bounded scheduling; Emmi, Qadeer and Rakamaric,
//! 2011): every way to place them in the given time is tried.

use std::collections::HashSet;

use crate::state::{Shape, State, Twist};

/// Within so many ticks of calm the fleet is back from every state.
const BACK_WITHIN: u32 = 60;

/// What a search came to.
#[derive(Default)]
pub(crate) struct Found {
    /// How many different states there are.
    pub(crate) states: usize,
    /// How many ticks lead from one to another.
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
    let start = State::start(shape)?;
    let mut search = Search { end: start.tick + ticks, ..Search::default() };
    search.visit(&start)?;
    Ok(search.found)
}

#[derive(Default)]
struct Search {
    end: u64,
    seen: HashSet<u64>,
    found: Found,
    /// The twists of each tick on the way to here.
    way: Vec<Vec<Twist>>,
}

impl Search {
    fn visit(&mut self, state: &State) -> Result<(), String> {
        if !self.seen.insert(state.fingerprint()) {
            return Ok(());
        }
        self.found.states += 1;
        self.found.out += usize::from(state.nodes.iter().any(|node| node.is_out));
        if state.tick == self.end {
            self.found.leaves += 1;
            return state.comes_back(BACK_WITHIN).map_err(|broken| self.told(&broken));
        }
        self.choose(state.clone(), &state.twists(), &mut Vec::new())
    }

    /// Goes on with the chosen twists, and with each of `rest` added to them.
    fn choose(
        &mut self,
        state: State,
        rest: &[Twist],
        chosen: &mut Vec<Twist>,
    ) -> Result<(), String> {
        for (index, twist) in rest.iter().enumerate() {
            let mut poorer = state.clone();
            if poorer.spend(*twist) {
                chosen.push(*twist);
                self.choose(poorer, &rest[index + 1..], chosen)?;
                chosen.pop();
            }
        }
        let mut next = state;
        self.found.steps += 1;
        self.way.push(chosen.clone());
        next.pass(chosen).map_err(|broken| self.told(&broken))?;
        self.visit(&next)?;
        self.way.pop();
        Ok(())
    }

    fn told(&self, broken: &str) -> String {
        format!("{broken}\nafter these ticks: {:?}", self.way)
    }
}
