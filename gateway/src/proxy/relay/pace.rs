//! What a stream is waited for: how fast it comes, how long it may be silent, when it is slow.
//!
//! All of it is about the endpoint, so that time in which the client took nothing does not count: the
//! moments from which it is measured move on by it.

use std::time::Duration;

use tokio::time::Instant;

/// A stream's pace means something only once it has run for this long.
const PACE_AFTER: Duration = Duration::from_secs(5);

/// How long the relay waits for what.
#[derive(Clone, Copy, Debug)]
pub(in crate::proxy) struct Patience {
    /// Between two events with content.
    pub(in crate::proxy) idle: Duration,
    /// When the whole answer must be there.
    pub(in crate::proxy) deadline: Instant,
    /// When the attempt becomes slow, unless it has said so already.
    pub(in crate::proxy) slow_at: Option<Instant>,
    /// The fewest events with content a second; `None`: no such limit.
    pub(in crate::proxy) pace_min: Option<f64>,
    /// After this long without a word the client gets a comment; `None`: it never does.
    pub(in crate::proxy) heartbeat: Option<Duration>,
}

/// Where a stream stands in its time, an event with content being a token.
#[derive(Debug)]
pub(super) struct Pace {
    patience: Patience,
    since: Instant,
    tokens: u32,
    progress_at: Instant,
    /// When the client was last given something.
    given_at: Instant,
    /// Something was given, and nothing was asked for since.
    is_given: bool,
}

impl Pace {
    /// The pace of a stream that begins at `now`.
    pub(super) fn new(patience: Patience, now: Instant) -> Self {
        Self { patience, since: now, tokens: 0, progress_at: now, given_at: now, is_given: false }
    }

    /// When something follows, if nothing happens before.
    pub(super) fn next(&self) -> Instant {
        let mut next = self.silent_at().min(self.patience.deadline);
        if let Some(slow_at) = self.patience.slow_at {
            next = next.min(slow_at);
        }
        if let Some(heartbeat) = self.patience.heartbeat {
            next = next.min(self.given_at + heartbeat);
        }
        next
    }

    /// Notes that there was progress. Returns true once, when `tokens` more have not kept the stream
    /// from falling behind its limit.
    pub(super) fn progress(&mut self, now: Instant, tokens: u32) -> bool {
        self.progress_at = now;
        self.tokens = self.tokens.saturating_add(tokens);
        let run = now.saturating_duration_since(self.since);
        let is_behind = |min: &mut f64| f64::from(self.tokens) < *min * run.as_secs_f64();
        tokens > 0 && run >= PACE_AFTER && self.patience.pace_min.take_if(is_behind).is_some()
    }

    /// Notes that the client is given something.
    pub(super) fn give(&mut self, now: Instant) {
        self.given_at = now;
        self.is_given = true;
    }

    /// Notes that the client asks for more: until then nothing was asked of the endpoint.
    pub(super) fn ask(&mut self, now: Instant) {
        if !std::mem::take(&mut self.is_given) {
            return;
        }
        let pause = now.saturating_duration_since(self.given_at);
        self.since += pause;
        self.progress_at += pause;
        if let Some(slow_at) = &mut self.patience.slow_at {
            *slow_at += pause;
        }
    }

    /// Whether the time for the whole answer is over.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        now >= self.patience.deadline
    }

    /// Whether the stream has been silent for too long.
    pub(super) fn is_silent(&self, now: Instant) -> bool {
        now >= self.silent_at()
    }

    /// The moment at which the attempt became slow; told once.
    pub(super) fn slow(&mut self, now: Instant) -> Option<Instant> {
        self.patience.slow_at.take_if(|slow_at| now >= *slow_at)
    }

    /// Whether the client has not been given anything for so long that a comment is due; told once.
    pub(super) fn is_quiet(&mut self, now: Instant) -> bool {
        let is_quiet =
            self.patience.heartbeat.is_some_and(|heartbeat| now >= self.given_at + heartbeat);
        if is_quiet {
            self.given_at = now;
        }
        is_quiet
    }

    fn silent_at(&self) -> Instant {
        self.progress_at + self.patience.idle
    }
}
