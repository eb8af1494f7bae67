//! The answer of `GET endpoints`, and what may be asked of it: one pool, those that are out, a page.
//!
//! Invariants: an answer has at most [`LIMIT_MAX`] rows; rows come in the order of the configuration.

use std::iter;
use std::sync::MutexGuard;
use std::time::Duration;

use quorum::{Council, Forced, NodeId};
use schemars::JsonSchema;
use serde::Serialize;

use super::endpoint::EndpointRow;
use crate::admin::case::{Case, Seated};
use crate::config::ENDPOINTS_MAX;
use crate::fleet::{Endpoint, Fleet, Pool};

/// The most rows of one answer: as many as there can be endpoints.
pub(crate) const LIMIT_MAX: usize = ENDPOINTS_MAX;

/// Endpoints that are looked at under one lock of the council: it is wanted meanwhile for what the fleet
/// decides, and to look at ten thousand takes many milliseconds.
const A_HOLD: usize = 256;

/// The endpoints of this node, or those that were asked for.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct Endpoints {
    /// One row each, in the order of the configuration.
    pub(crate) endpoints: Vec<EndpointRow>,
    /// How many there are on this node, whatever was asked for.
    pub(crate) counts: Counts,
    /// What to give as `after` for the next page; null on the last.
    pub(crate) after: Option<String>,
}

/// How the endpoints of this node stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub(crate) struct Counts {
    /// All of them.
    pub(crate) endpoints: usize,
    /// Those that clients' requests are not sent to.
    pub(crate) out: usize,
    /// Those that the whole fleet has out.
    pub(crate) out_for_fleet: usize,
    /// Those that an operator's order is about.
    pub(crate) forced: usize,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Of this pool only.
    pool: Option<String>,
    /// Only those that are in rotation, or only those that are not.
    is_in: Option<bool>,
    /// At most so many.
    limit: usize,
    /// Those that come after this one.
    after: Option<String>,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { pool: None, is_in: None, limit: LIMIT_MAX, after: None }
    }
}

impl Wanted {
    /// What these decoded parameters ask for: `pool`, `state`, `limit` and `after`, each at most once.
    ///
    /// # Errors
    /// What is wrong, and what to give instead.
    pub(crate) fn new<'q>(
        pairs: impl IntoIterator<Item = (&'q str, &'q str)>,
    ) -> Result<Self, String> {
        let mut wanted = Self::default();
        let mut known: Vec<&str> = Vec::new();
        for (name, value) in pairs {
            if known.contains(&name) {
                return Err(format!("{name} is given twice: give it once."));
            }
            match name {
                "pool" => wanted.pool = Some(value.to_owned()),
                "after" => wanted.after = Some(value.to_owned()),
                "state" => wanted.is_in = Some(is_in(value)?),
                "limit" => wanted.limit = limit(value)?,
                _ => {
                    let all = "pool, state, limit and after";
                    return Err(format!("There is no parameter {name:?}: there are {all}."));
                }
            }
            known.push(name);
        }
        Ok(wanted)
    }

    fn has(&self, now: Duration, pool: &Pool, endpoint: &Endpoint) -> bool {
        self.pool.as_ref().is_none_or(|wanted| *wanted == pool.name)
            && self.is_in.is_none_or(|is_in| endpoint.is_promising(now) == is_in)
    }
}

fn is_in(value: &str) -> Result<bool, String> {
    match value {
        "in" => Ok(true),
        "out" => Ok(false),
        _ => Err("state is in or out.".to_owned()),
    }
}

fn limit(value: &str) -> Result<usize, String> {
    let limit: Option<usize> = value.parse().ok();
    let limit = limit.filter(|limit| (1..=LIMIT_MAX).contains(limit));
    limit.ok_or_else(|| format!("limit is a number from 1 to {LIMIT_MAX}."))
}

impl Endpoints {
    /// The rows that are wanted, as they are at `now`. `council` locks the council: again and again, each
    /// time for a few endpoints and for as long as it takes to look, not to write. What is said of one
    /// endpoint belongs together, here and among the counts.
    ///
    /// # Errors
    /// What is wrong with what is wanted, and what to do.
    pub(crate) fn new<'c>(
        now: Duration,
        (me, fleet): (&NodeId, &Fleet),
        council: impl Fn() -> MutexGuard<'c, Council>,
        wanted: &Wanted,
    ) -> Result<Self, String> {
        if let Some(pool) = &wanted.pool
            && !fleet.pools().iter().any(|one| one.name == *pool)
        {
            return Err("There is no such pool: GET /admin/v1/endpoints shows their names.".into());
        }
        let all = fleet.endpoints().map(|(pool, endpoint)| (&**pool, &**endpoint));
        let all: Vec<(&Pool, &Endpoint)> = all.collect();
        let place = |after: &String| {
            let place = all.iter().position(|(_, endpoint)| endpoint.key.as_str() == after);
            place
                .ok_or("after names no endpoint: begin anew without it, the configuration changed.")
        };
        let first = wanted.after.as_ref().map(place).transpose()?.map_or(0, |place| place + 1);
        let places = all.iter().enumerate().skip(first);
        let mut rest =
            places.filter(|(_, (pool, endpoint))| wanted.has(now, pool, endpoint)).peekable();
        let shown: Vec<(usize, _)> = rest.by_ref().take(wanted.limit).collect();
        let has_more = rest.peek().is_some();
        let after = shown.last().filter(|_| has_more).map(|(_, (_, last))| last.key.to_string());

        let (mut counts, mut endpoints) = (Counts::default(), Vec::with_capacity(shown.len()));
        let (mut shown, mut end) = (shown.into_iter().peekable(), 0);
        for batch in all.chunks(A_HOLD) {
            end += batch.len();
            let of_batch = iter::from_fn(|| shown.next_if(|(place, _)| *place < end));
            let of_batch: Vec<(&Pool, &Endpoint)> = of_batch.map(|(_, one)| *one).collect();
            let council = council();
            let seat = Seated::new(now, me, &council);
            let views = council.endpoints(now, of_batch.iter().map(|(_, one)| &one.key));
            for (_, endpoint) in batch {
                counts.count(now, endpoint, council.is_open(&endpoint.key));
            }
            drop(council);
            let rows = of_batch.into_iter().zip(views);
            let cases = rows.filter_map(|(one, view)| Some(Case::new(now, one, view?, &seat)));
            endpoints.extend(cases.map(|case| EndpointRow::new(&case)));
        }
        Ok(Self { endpoints, counts, after })
    }
}

impl Counts {
    fn count(&mut self, now: Duration, endpoint: &Endpoint, is_out_for_fleet: bool) {
        self.endpoints += 1;
        self.out += usize::from(!endpoint.is_promising(now));
        self.out_for_fleet += usize::from(is_out_for_fleet);
        self.forced += usize::from(endpoint.forced() != Forced::Auto);
    }
}

#[cfg(test)]
mod tests;
