//! What happens on this node, as it happens, for whoever follows: a ring of the last events.
//!
//! The views say what is so; the events say what changed, so that a page, a terminal or a script
//! need not compare views. An event is written down once, as the frame that goes out to everyone.
//!
//! Invariants:
//! - Telling never waits: a subscriber has no queue of its own, but a place in the ring. Whoever is
//!   slower than the ring is told that there is a gap, and goes on from there.
//! - An id says which life of the node it belongs to, so that no id of the last life is taken for
//!   one of this life.
//! - No event carries a prompt or a secret: it names endpoints, members, and what operators said.

mod follower;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use quorum::{EndpointKey, NodeId};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};

pub use self::follower::{Feed, Follower};
use crate::clock;

/// How many events are kept.
pub const KEPT: usize = 1_024;
/// How many may follow at a time.
pub const FOLLOWERS_MAX: usize = 32;
/// Largest detail of an event, in bytes: with it the ring takes 22 MiB at most.
const DETAIL_BYTES_MAX: usize = 16 * 1024;
/// Longest sentence of an event, in bytes.
const WHAT_BYTES_MAX: usize = 4 * 1024;
/// What a follower is given in one piece, unless a single event is larger.
const PIECE_BYTES_MAX: usize = 64 * 1024;

/// What kind of thing happened; also the name of the server-sent event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// This node's own breaker changed.
    Breaker,
    /// A member voted, or took its vote back.
    Vote,
    /// The fleet took an endpoint out, or let it in again.
    Flip,
    /// A probe was sent, or answered.
    Probe,
    /// The fleet's canary slot changed hands.
    Canary,
    /// A member came, went, or takes part in another way.
    Member,
    /// An operator's order.
    Override,
    /// The configuration was read anew, or could not be.
    Config,
    /// A member stops taking traffic.
    Drain,
    /// Redis decides, or something else does since it is away.
    Redis,
    /// What was missed can no longer be told.
    Gap,
}

impl Kind {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 11] = [
        Self::Breaker,
        Self::Vote,
        Self::Flip,
        Self::Probe,
        Self::Canary,
        Self::Member,
        Self::Override,
        Self::Config,
        Self::Drain,
        Self::Redis,
        Self::Gap,
    ];

    /// The word used in the admin API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Breaker => "breaker",
            Self::Vote => "vote",
            Self::Flip => "flip",
            Self::Probe => "probe",
            Self::Canary => "canary",
            Self::Member => "member",
            Self::Override => "override",
            Self::Config => "config",
            Self::Drain => "drain",
            Self::Redis => "redis",
            Self::Gap => "gap",
        }
    }
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// What kind of thing.
    pub kind: Kind,
    /// The endpoint it is about, if it is about one.
    pub endpoint: Option<EndpointKey>,
    /// The member it is about; `None`: this node.
    pub node: Option<NodeId>,
    /// What, in one sentence without a full stop.
    pub what: String,
    /// The same in numbers and words for programs: an object.
    pub detail: Value,
}

impl Event {
    /// Something that happened on this node and is about no endpoint.
    pub fn new(kind: Kind, what: impl Into<String>) -> Self {
        Self { kind, endpoint: None, node: None, what: what.into(), detail: json!({}) }
    }

    /// The same about an endpoint.
    #[must_use]
    pub fn endpoint(mut self, endpoint: &EndpointKey) -> Self {
        self.endpoint = Some(endpoint.clone());
        self
    }

    /// The same about another member.
    #[must_use]
    pub fn node(mut self, node: &NodeId) -> Self {
        self.node = Some(node.clone());
        self
    }

    /// The same with an object for programs.
    #[must_use]
    pub fn detail(mut self, detail: Value) -> Self {
        self.detail = detail;
        self
    }
}

/// From where on somebody follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// From what happens next.
    Now,
    /// From the oldest that is kept.
    Oldest,
    /// After the event of this id.
    After {
        /// The life of the node that told it.
        boot: u64,
        /// Its number in that life.
        seq: u64,
    },
}

impl Since {
    /// Reads `0` or an id. `None`: it is neither.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "0" {
            return Some(Self::Oldest);
        }
        // Digits only: the parser of numbers would take a sign as well.
        let number = |text: &str| {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| is_plain)
        };
        let (boot, seq) = text.split_once('-')?;
        Some(Self::After { boot: number(boot)?, seq: number(seq)? })
    }
}

/// Why nobody more can follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{FOLLOWERS_MAX} follow the events already")]
pub struct TooMany;

/// The last events of this node, and who follows them.
pub struct Events {
    me: NodeId,
    boot: u64,
    /// Held for a push or a read of at most one piece, never over an await.
    ring: Mutex<Ring>,
    /// The number of the latest event.
    latest: watch::Sender<u64>,
    seats: Arc<Semaphore>,
}

/// The frames of the last events.
struct Ring {
    /// At most [`KEPT`].
    frames: VecDeque<Bytes>,
    /// The number that the next event gets, from 1.
    next: u64,
}

impl Ring {
    fn oldest(&self) -> u64 {
        self.next.saturating_sub(self.frames.len() as u64)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Events").field("boot", &self.boot).finish_non_exhaustive()
    }
}

impl Events {
    /// No event yet, on node `me` in the life `boot` (its generation).
    pub fn new(me: NodeId, boot: u64) -> Self {
        Self {
            me,
            boot,
            ring: Mutex::new(Ring { frames: VecDeque::with_capacity(KEPT), next: 1 }),
            latest: watch::Sender::new(0),
            seats: Arc::new(Semaphore::new(FOLLOWERS_MAX)),
        }
    }

    /// Tells everyone who follows, and keeps it for those who come later.
    pub fn tell(&self, event: Event) {
        let mut ring = self.ring();
        let seq = ring.next;
        if ring.frames.len() == KEPT {
            ring.frames.pop_front();
        }
        let frame = self.frame(seq, event);
        ring.frames.push_back(frame);
        ring.next += 1;
        // Under the lock, so that the number only grows.
        self.latest.send_replace(seq);
    }

    /// Begins to follow; `is_until_now`: only what is kept by now.
    ///
    /// # Errors
    /// [`TooMany`].
    pub fn follow(self: &Arc<Self>, since: Since, is_until_now: bool) -> Result<Follower, TooMany> {
        let seat = Arc::clone(&self.seats).try_acquire_owned().map_err(|_| TooMany)?;
        let ring = self.ring();
        let (next, has_gap) = match since {
            Since::Now => (ring.next, false),
            Since::Oldest => (ring.oldest(), false),
            Since::After { boot, seq } => {
                let is_known = boot == self.boot && seq < ring.next && seq + 1 >= ring.oldest();
                if is_known { (seq + 1, false) } else { (ring.oldest(), true) }
            }
        };
        let end = is_until_now.then_some(ring.next);
        drop(ring);
        Ok(Follower::new(self, seat, next, end, has_gap))
    }

    /// The frames from number `from` on, about a piece of them, and the number after the last; what
    /// is no longer kept is replaced by word of a gap.
    fn piece(&self, from: u64, end: Option<u64>, mut has_gap: bool) -> (Bytes, u64) {
        let ring = self.ring();
        let oldest = ring.oldest();
        has_gap |= from < oldest;
        let mut next = from.max(oldest);
        let mut piece = BytesMut::new();
        if has_gap {
            let event = Event::new(Kind::Gap, "what happened before this can no longer be told");
            piece.extend_from_slice(&self.frame(next.saturating_sub(1), event));
        }
        let skipped = usize::try_from(next - oldest).unwrap_or(usize::MAX);
        for frame in ring.frames.iter().skip(skipped) {
            let is_full = !piece.is_empty() && piece.len() + frame.len() > PIECE_BYTES_MAX;
            if is_full || end.is_some_and(|end| next >= end) {
                break;
            }
            piece.extend_from_slice(frame);
            next += 1;
        }
        (piece.freeze(), next)
    }

    /// The server-sent event. JSON escapes every line end, so that no text can begin a line.
    fn frame(&self, seq: u64, event: Event) -> Bytes {
        let Event { kind, endpoint, node, what, detail } = event;
        let (id, what, detail) = (self.id(seq), short(what), bounded(detail));
        let data = json!({
            "id": id,
            "unix_ms": clock::wall_millis(),
            "kind": kind.as_str(),
            "endpoint": endpoint.as_ref().map(EndpointKey::as_str),
            "node": node.as_ref().unwrap_or(&self.me).as_str(),
            "what": what,
            "detail": detail,
        });
        Bytes::from(format!("id: {id}\nevent: {}\ndata: {data}\n\n", kind.as_str()))
    }

    fn id(&self, seq: u64) -> String {
        format!("{}-{seq}", self.boot)
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        // Every critical section leaves the ring whole, so that a panic elsewhere spoils nothing.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The beginning of a sentence that is too long.
fn short(mut what: String) -> String {
    if what.len() > WHAT_BYTES_MAX {
        let end = (0..=WHAT_BYTES_MAX).rev().find(|at| what.is_char_boundary(*at));
        what.truncate(end.unwrap_or_default());
        what.push('…');
    }
    what
}

/// The object, or how large it was if it is too large to be kept.
fn bounded(detail: Value) -> Value {
    let bytes = detail.to_string().len();
    if bytes > DETAIL_BYTES_MAX { json!({ "left_out_bytes": bytes }) } else { detail }
}

#[cfg(test)]
mod tests;
