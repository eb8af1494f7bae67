//! The better of two drawn at random: by requests in flight, or by the time that they take.
//!
//! The power of two choices (Mitzenmacher, 2001) costs the same for four endpoints and for ten
//! thousand. Only when the draw finds nothing is the group walked once, from a random place.

use std::cmp::Ordering;
use std::time::Duration;

use super::{Candidate, Group, Search};
use crate::fleet::{Admission, Endpoint};

/// How often two are drawn before the group is walked.
const DRAWS: usize = 3;

/// What an endpoint that has answered nothing yet scores while it is asked for the first time: more than
/// any that has.
const UNKNOWN: f64 = 1e12;

/// Which of two is better; the better one is less.
type Better = fn(Duration, &Endpoint, &Endpoint) -> Ordering;

/// Takes the better of two, else any.
pub(super) fn pick(group: &Group, search: &Search<'_, '_>, better: Better) -> Option<Admission> {
    draw(group, search, better).or_else(|| walk(group, search))
}

fn draw(group: &Group, search: &Search<'_, '_>, better: Better) -> Option<Admission> {
    let count = group.endpoints.len();
    // One alone is looked at by the walk.
    if count < 2 {
        return None;
    }
    for _ in 0..DRAWS {
        let one = fastrand::usize(..count);
        let other = (one + 1 + fastrand::usize(..count - 1)) % count;
        let best = [group.endpoints.get(one), group.endpoints.get(other)]
            .into_iter()
            .flatten()
            .filter_map(|endpoint| due(search, search.candidate(endpoint)?))
            .min_by(|a, b| better(search.now, a.endpoint, b.endpoint));
        if let Some(admission) = best.and_then(|best| search.admit(&best)) {
            return Some(admission);
        }
    }
    None
}

fn walk(group: &Group, search: &Search<'_, '_>) -> Option<Admission> {
    let start = fastrand::usize(..group.endpoints.len().max(1));
    let (head, tail) = group.endpoints.split_at_checked(start)?;
    tail.iter()
        .chain(head)
        .filter_map(|endpoint| due(search, search.candidate(endpoint)?))
        .find_map(|candidate| search.admit(&candidate))
}

fn due<'p, 'a>(search: &Search<'_, 'a>, candidate: Candidate<'p, 'a>) -> Option<Candidate<'p, 'a>> {
    search.takes_part(candidate.share).then_some(candidate)
}

/// Compares by load per weight, without division: a/wa < b/wb. Requests that failed of late count as
/// still in flight, but no further than to the other's load: an endpoint that fails never looks idler
/// than one that works, and where nobody is busy it goes on being asked, so that its breaker learns.
pub(super) fn by_requests(now: Duration, a: &Endpoint, b: &Endpoint) -> Ordering {
    let (weight_a, weight_b) = (u64::from(a.config.weight), u64::from(b.config.weight));
    let (busy_a, busy_b) = (u64::from(a.in_flight()), u64::from(b.in_flight()));
    let failed_a = a.failures(now).min(busy_b * weight_a / weight_b.max(1));
    let failed_b = b.failures(now).min(busy_a * weight_b / weight_a.max(1));
    let load_a = (busy_a + failed_a + 1) * weight_b;
    load_a.cmp(&((busy_b + failed_b + 1) * weight_a))
}

/// Compares by the peak EWMA of the time to the first content, times the requests in flight with this
/// one among them, per weight (Finagle's `PeakEwma`).
pub(super) fn by_time(now: Duration, a: &Endpoint, b: &Endpoint) -> Ordering {
    time_of(now, a).total_cmp(&time_of(now, b))
}

fn time_of(now: Duration, endpoint: &Endpoint) -> f64 {
    let (cost, in_flight) = (endpoint.cost(now), f64::from(endpoint.in_flight()));
    let score = match (cost, in_flight) {
        (0.0, 0.0) => 0.0,
        (0.0, _) => UNKNOWN + in_flight,
        (cost, in_flight) => cost * (in_flight + 1.0),
    };
    score / f64::from(endpoint.config.weight)
}
