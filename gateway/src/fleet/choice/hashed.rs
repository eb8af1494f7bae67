//! The same beginning of a prompt to the same endpoint, whose cache has it, unless it is too busy.
//!
//! Weighted rendezvous hashing (Schindelhauer and Schomaker, 2005): each endpoint throws a number that
//! depends on the prefix and its own name alone, divided by its weight, and the least wins. So all nodes
//! of a fleet agree without a word, an endpoint that goes out moves only its own prefixes, and they come
//! back with it. One that has its share of the load by more than [`LOAD_MILLI`] is passed over for the
//! next in the order of the hash (Mirrokni, Thorup and Zadimoghaddam, *Consistent Hashing with Bounded
//! Loads*, 2016).

use super::{Candidate, Group, Search};
use crate::fleet::Admission;

/// The load that an endpoint may have, in thousandths of the mean per weight.
const LOAD_MILLI: f64 = 1_250.0;

/// A candidate and the number that it has thrown.
struct Throw<'p, 'a> {
    candidate: Candidate<'p, 'a>,
    /// Less is better.
    number: f64,
    weight: f64,
}

impl<'p, 'a> Throw<'p, 'a> {
    fn of(prefix: u64, candidate: Candidate<'p, 'a>) -> Self {
        let weight = f64::from(candidate.endpoint.config.weight) * candidate.share;
        let number = exponential(prefix, candidate.endpoint.hash) / weight;
        Self { candidate, number, weight }
    }
}

/// Takes the first in the order of the hash that is not too busy.
pub(super) fn pick(group: &Group, search: &Search<'_, '_>) -> Option<Admission> {
    let prefix = search.asker.prefix;
    let candidates = group.endpoints.iter().filter_map(|endpoint| search.candidate(endpoint));
    let mut throws: Vec<Throw<'_, '_>> = candidates.map(|one| Throw::of(prefix, one)).collect();
    let most = throws.iter().map(|one| one.candidate.share).max_by(f64::total_cmp)?;
    if !search.takes_part(most) {
        return None;
    }
    let in_flight = |one: &Throw<'_, '_>| f64::from(one.candidate.endpoint.in_flight());
    let all: f64 = throws.iter().map(in_flight).sum::<f64>() + 1.0;
    let weights: f64 = throws.iter().map(|one| one.weight).sum();
    let room = |one: &Throw<'_, '_>| (all * one.weight / weights * LOAD_MILLI / 1_000.0).ceil();
    // Those with room first; one that is too busy is better than none.
    let rank = |one: &Throw<'_, '_>| (in_flight(one) >= room(one), one.number);
    // Each round either succeeds or leaves one fewer.
    while let Some(place) = least(&throws, &rank) {
        if let Some(admission) = search.admit(&throws.get(place)?.candidate) {
            return Some(admission);
        }
        throws.swap_remove(place);
    }
    None
}

fn least<T>(all: &[T], rank: &impl Fn(&T) -> (bool, f64)) -> Option<usize> {
    let ranked = all.iter().map(rank).enumerate();
    let least = ranked.min_by(|(_, a), (_, b)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    least.map(|(place, _)| place)
}

/// A number of the exponential distribution that depends on the two alone.
fn exponential(prefix: u64, endpoint: u64) -> f64 {
    let mixed = mix(prefix ^ mix(endpoint));
    // 53 bits, in the middle of their step, so that the logarithm of 0 is never asked for.
    let uniform = ((mixed >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -uniform.ln()
}

/// The last step of SplitMix64 (Steele, Lea and Flood, 2014): every bit of the input moves half of the
/// output's.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
