//! In turn, as often as the weights say, and spread as evenly as can be.
//!
//! nginx's smooth weighted round robin (`ngx_http_upstream_get_peer`): each gains its weight, the richest
//! is chosen and pays what all gained together. Weights 5, 1, 1 give a a b a c a a, not five a in a row.
//!
//! Invariants: over any number of choices among the same endpoints each is chosen as often as its weight
//! says, to less than one.

use std::sync::{Mutex, PoisonError};

use super::{Candidate, Group, Search};
use crate::fleet::Admission;

/// A whole share in the units in which weights are counted here.
const SHARE: f64 = 100.0;

/// What each endpoint of a group has gained.
#[derive(Debug)]
pub(super) struct Turns {
    /// A plain lock: held for one walk over numbers.
    gained: Mutex<Vec<i64>>,
}

impl Turns {
    /// The turns of `count` endpoints.
    pub(super) fn new(count: usize) -> Self {
        Self { gained: Mutex::new(vec![0; count]) }
    }

    /// Whose turn it is; one of weight 0 stands aside. `None`: all do.
    fn next(&self, weights: &[i64]) -> Option<usize> {
        let mut gained = self.gained.lock().unwrap_or_else(PoisonError::into_inner);
        let mut richest: Option<(usize, i64)> = None;
        let parties = gained.iter_mut().zip(weights).enumerate();
        for (place, (gained, weight)) in parties.filter(|(_, (_, weight))| **weight > 0) {
            *gained += weight;
            if richest.is_none_or(|(_, most)| *gained > most) {
                richest = Some((place, *gained));
            }
        }
        let (place, _) = richest?;
        *gained.get_mut(place)? -= weights.iter().sum::<i64>();
        Some(place)
    }
}

/// Takes the one whose turn it is.
pub(super) fn pick(group: &Group, search: &Search<'_, '_>) -> Option<Admission> {
    let all = || group.endpoints.iter().map(|endpoint| search.candidate(endpoint));
    let candidates: Vec<Option<Candidate<'_, '_>>> = all().collect();
    let most = candidates.iter().flatten().map(|one| one.share).max_by(f64::total_cmp)?;
    if !search.takes_part(most) {
        return None;
    }
    let mut weights: Vec<i64> =
        candidates.iter().map(|one| one.as_ref().map_or(0, weight)).collect();
    // Each turn either succeeds or leaves one fewer.
    loop {
        let place = group.turns.next(&weights)?;
        let candidate = candidates.get(place)?.as_ref()?;
        if let Some(admission) = search.admit(candidate) {
            return Some(admission);
        }
        *weights.get_mut(place)? = 0;
    }
}

fn weight(candidate: &Candidate<'_, '_>) -> i64 {
    let weight = f64::from(candidate.endpoint.config.weight) * candidate.share * SHARE;
    (weight.round() as i64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(turns: &Turns, weights: &[i64], count: usize) -> String {
        let letter = |place: usize| char::from(b'a' + u8::try_from(place).unwrap());
        (0..count).map(|_| turns.next(weights).map_or('-', letter)).collect()
    }

    #[test]
    fn weights_of_five_one_and_one_are_spread() {
        assert_eq!(run(&Turns::new(3), &[5, 1, 1], 14), "aabacaaaabacaa");
    }

    #[test]
    fn one_that_stands_aside_is_owed_nothing() {
        let turns = Turns::new(3);
        assert_eq!(run(&turns, &[1, 1, 0], 4), "abab");
        assert_eq!(run(&turns, &[1, 1, 1], 6), "abcabc");
        assert_eq!(run(&turns, &[0, 0, 0], 2), "--");
    }

    #[test]
    fn over_any_number_of_turns_each_has_its_share_to_less_than_one() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut chance = fastrand::Rng::with_seed(seed);
        for _ in 0..100 {
            let weights: Vec<i64> = (0..chance.usize(1..8)).map(|_| chance.i64(1..50)).collect();
            let sum: i64 = weights.iter().sum();
            let (turns, mut counts) = (Turns::new(weights.len()), vec![0_i64; weights.len()]);
            for turn in 1..=3 * sum {
                let place = turns.next(&weights).unwrap();
                *counts.get_mut(place).unwrap() += 1;
                for (count, weight) in counts.iter().zip(&weights) {
                    let off = (count * sum - turn * weight).abs();
                    assert!(off <= sum * 2, "{weights:?}: {counts:?} after {turn}");
                }
                if turn % sum == 0 {
                    assert!(counts.iter().zip(&weights).all(|(c, w)| c * sum == turn * w));
                }
            }
        }
    }
}
