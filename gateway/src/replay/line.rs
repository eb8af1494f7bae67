//! One line of the access log: which endpoint it speaks of, and how its request went there.
//!
//! The file may be anything, from any version and with other programs' lines in between. So a line
//! that does not say all that is needed, in the form in which the gateway writes it, is no line.
//!
//! Invariants: no more than [`LINE_BYTES_MAX`] bytes of a line are kept; a request takes at most
//! [`LATENCY_MAX`].

use std::borrow::Cow;
use std::io::{BufRead, ErrorKind};
use std::time::Duration;

use breaker::{Cause, Outcome, SlowKind, SlowRule, Timing};
use serde::Deserialize;

use super::{LINE_BYTES_MAX, moment};
use crate::config::{StatusClass, StatusCodes};

/// The longest latency that is believed: no limit of time can be set higher.
const LATENCY_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The target of the access log's lines.
const TARGET: &str = "access";
/// Lines with these speak of a request to an endpoint: the answered one, or a failed attempt before.
const TARGETS: [&str; 2] = [TARGET, "attempt"];

/// The status that stands for a client that left.
const CLIENT_LEFT: u16 = 499;

/// What was found in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A line, which is in the buffer.
    Line,
    /// A line that is too long to be one.
    TooLong,
    /// Nothing more.
    End,
}

/// One request as its endpoint saw it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Request {
    /// When it came, since 1970.
    pub(super) started: Duration,
    /// How long it took.
    took: Duration,
    /// The time to the first token; `None` if unknown, and then it is not judged.
    first_token: Option<Duration>,
    /// Whether the times are this endpoint's alone.
    is_first_attempt: bool,
    /// What it says about the endpoint, its slowness apart.
    pub(super) outcome: Outcome,
    /// The status by which it was judged; `None` if it was judged by something else.
    status: Option<u16>,
}

/// The parts of a line that matter.
#[derive(Deserialize)]
struct Record<'a> {
    #[serde(borrow)]
    timestamp: Cow<'a, str>,
    #[serde(borrow, default = "access")]
    target: Cow<'a, str>,
    #[serde(borrow, default)]
    endpoint: Cow<'a, str>,
    upstream_status: u16,
    #[serde(default)]
    proxy_status: u16,
    latency_ms: u64,
    first_token_ms: Option<u64>,
    #[serde(default = "one")]
    attempts: u32,
    #[serde(default)]
    repeat: bool,
    end: End,
}

/// How an answer ended.
#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum End {
    Complete,
    Interrupted,
    ClientLeft,
    Drained,
}

/// The target of a line that names none, as a log that was filtered may have it.
fn access() -> Cow<'static, str> {
    Cow::Borrowed(TARGET)
}

fn one() -> u32 {
    1
}

/// Reads the next line into `buffer`, without its end.
///
/// # Errors
/// Reading failed; the part of the line that was read is gone.
pub(super) fn next(log: &mut impl BufRead, buffer: &mut Vec<u8>) -> std::io::Result<Next> {
    buffer.clear();
    let (mut is_begun, mut is_too_long) = (false, false);
    loop {
        let bytes = match log.fill_buf() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let part = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
        let is_last = end.is_some() || bytes.is_empty();
        is_begun |= !bytes.is_empty();
        is_too_long |= buffer.len() + part.len() > LINE_BYTES_MAX;
        if !is_too_long {
            buffer.extend_from_slice(part);
        }
        let used = part.len() + usize::from(end.is_some());
        log.consume(used);
        if is_last {
            return Ok(match (is_begun, is_too_long) {
                (false, _) => Next::End,
                (true, true) => Next::TooLong,
                (true, false) => Next::Line,
            });
        }
    }
}

/// Takes a line apart into the endpoint's key and the request; `None` if it is no line of a request
/// that was sent.
pub(super) fn read(line: &[u8]) -> Option<(Cow<'_, str>, Request)> {
    let record: Record<'_> = serde_json::from_slice(line).ok()?;
    let latency = Duration::from_millis(record.latency_ms);
    if !TARGETS.contains(&record.target.as_ref())
        || record.endpoint.is_empty()
        || latency > LATENCY_MAX
    {
        return None;
    }
    let ended = moment::parse(&record.timestamp)?;
    let first_token =
        record.first_token_ms.map(|millis| Duration::from_millis(millis).min(latency));
    let is_first_attempt = record.attempts <= 1;
    // What came before the first token may be another endpoint's.
    let took = if is_first_attempt {
        latency
    } else {
        latency.saturating_sub(first_token.unwrap_or(latency))
    };
    let outcome = outcome(&record);
    // A request that fails twice at one endpoint is one fault, and the first line has told it.
    let is_told = record.repeat && matches!(outcome, Outcome::Fault { .. });
    let is_whole = !is_told && record.end == End::Complete && record.proxy_status != CLIENT_LEFT;
    let request = Request {
        started: ended.saturating_sub(took),
        took,
        first_token: first_token.filter(|_| is_first_attempt),
        is_first_attempt,
        outcome: if is_told { Outcome::Neutral } else { outcome },
        status: Some(record.upstream_status).filter(|code| is_whole && (400..=599).contains(code)),
    };
    Some((record.endpoint, request))
}

/// Whose fault it was, as the gateway judges an attempt. A line does not tell an answer that was
/// cut from one that fell silent, so both count as cut.
fn outcome(record: &Record<'_>) -> Outcome {
    let fault = |cause| Outcome::Fault { weight: 1.0, cause };
    match record.end {
        End::ClientLeft | End::Drained => return Outcome::Neutral,
        End::Complete | End::Interrupted if record.proxy_status == CLIENT_LEFT => {
            return Outcome::Neutral;
        }
        End::Interrupted => return fault(Cause::Cut),
        End::Complete => {}
    }
    match (record.upstream_status, record.proxy_status) {
        // No answer came, and only what the client was told hints at why.
        (0, 504) => fault(Cause::Timeout),
        (0, 500..=599) => fault(Cause::Other),
        (0 | 400..=499, _) => Outcome::Neutral,
        (200..=299, _) => Outcome::Success,
        (code, _) => fault(Cause::Status(code)),
    }
}

impl Request {
    /// Judges the status that the endpoint gave by its own lists.
    pub(super) fn judge(&mut self, codes: &StatusCodes) {
        let Some(code) = self.status else { return };
        self.outcome = match codes.class(code) {
            StatusClass::Fault => Outcome::Fault { weight: 1.0, cause: Cause::Status(code) },
            StatusClass::Neutral | StatusClass::Capacity | StatusClass::Credential => {
                Outcome::Neutral
            }
        };
    }

    /// When it ended, since 1970.
    pub(super) fn ended(&self) -> Duration {
        self.started.saturating_add(self.took)
    }

    /// The moment at which it became slow and by which limit, if it did. Only the earliest counts,
    /// for one request is one witness; where two limits are the same, it is the first token's.
    pub(super) fn crossing(&self, rule: &SlowRule) -> Option<(Duration, SlowKind)> {
        let crosses = |limit: Duration, time: Duration, kind| {
            (time >= limit).then(|| (self.started.saturating_add(limit), kind))
        };
        let first_token = rule
            .first_token
            .zip(self.first_token)
            .and_then(|(limit, time)| crosses(limit, time, SlowKind::FirstToken));
        let total = crosses(rule.total, self.took, SlowKind::Total);
        first_token.into_iter().chain(total).min_by_key(|(at, _)| *at)
    }

    /// How long the endpoint took, if the line says so of it alone. An answer in one piece has its
    /// first token when it ends, and that is no time to a first token among others.
    pub(super) fn timing(&self) -> Option<Timing> {
        let first_token = self.first_token.filter(|time| *time < self.took);
        self.is_first_attempt.then_some(Timing { first_token, total: self.took })
    }
}

#[cfg(any(test, feature = "fuzzing"))]
/// Whatever the lines are, a request that is read of one lies in the years that are believed, and ended
/// no sooner than it began.
pub(crate) fn promise(bytes: &[u8]) {
    let (mut log, mut buffer, mut lines) = (bytes, Vec::new(), 0);
    while let Ok(found @ (Next::Line | Next::TooLong)) = next(&mut log, &mut buffer) {
        lines += 1;
        assert!(buffer.len() <= LINE_BYTES_MAX);
        let Some((endpoint, request)) = read(&buffer).filter(|_| found == Next::Line) else {
            continue;
        };
        assert!(!endpoint.is_empty());
        assert!(request.ended() >= request.started && request.took <= LATENCY_MAX);
        assert_eq!(moment::parse(&moment::render(request.ended())), Some(request.ended()));
        let crossing = request.crossing(&breaker::Rule::default().slow);
        assert!(crossing.is_none_or(|(at, _)| at >= request.started && at <= request.ended()));
        let mut judged = request.clone();
        judged.judge(&StatusCodes::default());
        assert_eq!(judged.ended(), request.ended());
    }
    let ends = bytes.iter().filter(|byte| **byte == b'\n').count();
    let has_rest = bytes.last().is_some_and(|last| *last != b'\n');
    assert_eq!(lines, ends + usize::from(has_rest));
}
