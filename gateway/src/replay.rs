//! Recorded requests run through the breakers of a configuration: when would each have tripped?
//!
//! Thresholds are guesses until they have met real traffic, and enforcing a guess costs requests.
//! The access log has the traffic, so that a rule can be tried on a day that is over.
//!
//! What was recorded was really sent, whatever a breaker would have said. So each endpoint gets a
//! breaker in shadow: it counts until it trips; during the cool-down the requests recorded have no
//! say, as they would have gone elsewhere; then the ladder admits as canaries what it would have
//! admitted of them, and falls or climbs to closed by what became of those. There is no probe rung,
//! for nobody recorded probes, and every prompt counts as short, for its length is not in the log.
//! Whatever mode the configuration says is replaced, off included.
//!
//! A line is written when its request ends and counts from its arrival; so the request begins at
//! the timestamp less the latency, and crosses a slow limit on its way. A request that was tried
//! elsewhere before is taken to have come to its endpoint with the first token, the earliest moment
//! it certainly was there: nobody is blamed for a sibling's delay.
//!
//! Failed attempts before a failover have lines of their own, with the target `attempt`. What the log
//! does not hold cannot be replayed: tokens per second, the fleet's verdicts and operators' orders.
//! Nor are siblings compared, `slow.relative`. So a day without trips here is no proof of one
//! without. A cool-down's jitter is one of the many it can have.
//!
//! Invariants:
//! - No clock is read and no chance drawn: the same log and configuration give the same report, in
//!   whatever order the lines come as long as no two requests share a moment.
//! - No input makes it panic, and memory is bounded by [`REQUESTS_MAX`].

mod line;
mod moment;
mod report;
#[cfg(test)]
mod tests;
mod track;

use std::collections::{BTreeMap, HashMap};
use std::io::BufRead;
use std::time::Duration;

use breaker::{Permit, SlowKind};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::line::promise;
use self::line::{Next, Request};
use self::track::Track;
use crate::config::Config;

/// Longest line that is looked at, in bytes, without its end; longer ones are skipped.
pub const LINE_BYTES_MAX: usize = 64 * 1024;
/// Most lines of one log.
pub const LINES_MAX: u64 = 10_000_000;
/// Most requests of one log that count. All are held at once, about 100 bytes each, since lines
/// come in the order of their ends and breakers want that of their beginnings.
pub const REQUESTS_MAX: usize = 1_000_000;

/// How much is taken in; the tests have less patience.
const LIMITS: Limits = Limits { lines: LINES_MAX, requests: REQUESTS_MAX };

/// What a log amounts to under a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Lines read, the skipped ones included.
    pub lines: u64,
    /// Lines that say nothing here: of another target, of a request that was never sent, about an
    /// endpoint the configuration does not have, too long, or no lines of a log at all.
    pub skipped: u64,
    /// Every endpoint of the configuration, in its order.
    pub endpoints: Vec<EndpointReport>,
}

/// What one endpoint's breaker would have done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointReport {
    /// The endpoint as the log names it, `pool/name`.
    pub key: String,
    /// Requests recorded for it, those during a cool-down included.
    pub requests: u64,
    /// Each opening, in the order of time; an opening out of half-open is one too.
    pub trips: Vec<Trip>,
    /// How long it would have been open before the log ends, in milliseconds.
    pub open_ms: u64,
}

/// One opening of a circuit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trip {
    /// When, written as the log writes a timestamp: RFC 3339 in UTC with microseconds.
    pub at: String,
    /// Why, in the breaker's words.
    pub reason: String,
    /// The whole cool-down that began then, in milliseconds.
    pub cool_down_ms: u64,
}

/// Why a log cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// Reading failed on the way.
    #[error("line {line} of the log cannot be read")]
    ReadLine {
        /// The line's number, from 1.
        line: u64,
        /// What the system said.
        source: std::io::Error,
    },
    /// There are more than [`LINES_MAX`] lines.
    #[error("the log has more than {most} lines; replay a part of it")]
    TooManyLines {
        /// How many may be.
        most: u64,
    },
    /// There are more than [`REQUESTS_MAX`] requests to endpoints of the configuration.
    #[error("the log has more than {most} requests to endpoints; replay a part of it")]
    TooManyRequests {
        /// How many may be.
        most: usize,
    },
}

/// How much of a log is taken in.
#[derive(Clone, Copy, Debug)]
struct Limits {
    lines: u64,
    requests: usize,
}

/// A log as far as it counts.
#[derive(Debug, Default)]
struct Recording {
    lines: u64,
    skipped: u64,
    /// Each with the place of its endpoint. Bounded: [`Limits::requests`].
    requests: Vec<(usize, Request)>,
}

/// A request that was admitted, with what happens to it next.
struct Running<'a> {
    place: usize,
    request: &'a Request,
    permit: Permit,
    /// The limit it crosses next; `None`: it ends next.
    crosses: Option<SlowKind>,
}

/// Runs the access log's lines through the breakers of `config`.
///
/// # Errors
/// The log cannot be read to its end or is longer than the bounds; there is no report then.
pub fn run(log: impl BufRead, config: &Config) -> Result<Report, ReplayError> {
    run_within(LIMITS, log, config)
}

fn run_within(limits: Limits, log: impl BufRead, config: &Config) -> Result<Report, ReplayError> {
    let (mut tracks, mut codes) = (Vec::new(), Vec::new());
    let mut places = HashMap::new();
    for pool in &config.pools {
        for endpoint in &pool.endpoints {
            let key = format!("{}/{}", pool.name, endpoint.name);
            places.insert(key.clone(), tracks.len());
            tracks.push(Track::new(key, &endpoint.rule));
            codes.push(&endpoint.codes);
        }
    }
    let mut recording = Recording::read(limits, log, &places)?;
    for (place, request) in &mut recording.requests {
        if let Some(codes) = codes.get(*place) {
            request.judge(codes);
        }
    }
    recording.requests.sort_by_key(|(_, request)| request.started);
    replay(&recording.requests, &mut tracks);
    let ends = recording.requests.iter().map(|(_, request)| request.ended());
    let end = ends.max().unwrap_or_default();
    let endpoints = tracks.into_iter().map(|track| track.finish(end)).collect();
    Ok(Report { lines: recording.lines, skipped: recording.skipped, endpoints })
}

impl Recording {
    /// Reads a log to its end.
    fn read(
        limits: Limits,
        mut log: impl BufRead,
        places: &HashMap<String, usize>,
    ) -> Result<Self, ReplayError> {
        let mut recording = Self::default();
        let mut buffer = Vec::new();
        loop {
            let next = line::next(&mut log, &mut buffer)
                .map_err(|source| ReplayError::ReadLine { line: recording.lines + 1, source })?;
            let sent = match next {
                Next::End => return Ok(recording),
                Next::Line => line::read(&buffer),
                Next::TooLong => None,
            };
            if recording.lines == limits.lines {
                return Err(ReplayError::TooManyLines { most: limits.lines });
            }
            recording.lines += 1;
            let known = sent.and_then(|(key, request)| Some((*places.get(&*key)?, request)));
            let Some(known) = known else {
                recording.skipped += 1;
                continue;
            };
            if recording.requests.len() == limits.requests {
                return Err(ReplayError::TooManyRequests { most: limits.requests });
            }
            recording.requests.push(known);
        }
    }
}

/// Goes through the requests, which are sorted by their beginnings, moment by moment. What ends at
/// the moment at which something else begins comes first.
fn replay(requests: &[(usize, Request)], tracks: &mut [Track<'_>]) {
    // By the moment at which something happens next, and within it by the order of beginning.
    // Bounded: each request is in it once, and only while it runs.
    let mut running: BTreeMap<(Duration, usize), Running<'_>> = BTreeMap::new();
    for (order, (place, request)) in requests.iter().enumerate() {
        while let Some(next) = running.first_entry()
            && next.key().0 <= request.started
        {
            let (moment, one) = next.remove_entry();
            step(moment, one, tracks, &mut running);
        }
        let Some(track) = tracks.get_mut(*place) else { continue };
        let Some(permit) = track.admit(request.started) else { continue };
        let (at, crosses) = match request.crossing(track.slow_rule()) {
            Some((at, kind)) => (at, Some(kind)),
            None => (request.ended(), None),
        };
        running.insert((at, order), Running { place: *place, request, permit, crosses });
    }
    while let Some((moment, one)) = running.pop_first() {
        step(moment, one, tracks, &mut running);
    }
}

/// Does what happens to a request at its moment. One that crossed a limit goes on to its end.
fn step<'a>(
    (at, order): (Duration, usize),
    mut one: Running<'a>,
    tracks: &mut [Track<'_>],
    running: &mut BTreeMap<(Duration, usize), Running<'a>>,
) {
    let Some(track) = tracks.get_mut(one.place) else { return };
    match one.crosses.take() {
        Some(kind) => {
            track.slow(at, &mut one.permit, kind);
            running.insert((one.request.ended(), order), one);
        }
        None => track.settle(at, one.permit, one.request),
    }
}
