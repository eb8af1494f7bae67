//! One worker's connections to one place: those at rest, and those that are shared.
//!
//! The one that rested last is used first, so that a pool grown by a burst shrinks again. Nothing waits
//! for a connection of another request: who finds none makes one.
//!
//! Invariants: at most [`IDLE_MAX`] rest, none for longer than [`IDLE`], and none is used that was made
//! more than [`AGE_MAX`] ago, so that an address that a name no longer has is left in time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::connect::{ConnectError, Destination, Dialled};
use super::http2::{Channel, Place};
use super::resolve::Resolver;
use super::wire::Wire;
use crate::clock;

/// How long a connection rests: less than the keep-alive of common engines.
pub(super) const IDLE: Duration = Duration::from_secs(20);
/// How old a connection gets.
pub(super) const AGE_MAX: Duration = Duration::from_secs(300);
/// A connection that has rested for this long is looked at in earnest before it is used.
const LOOK_AFTER: Duration = Duration::from_millis(1);
/// Connections at rest.
const IDLE_MAX: usize = 256;
/// Shared connections.
const CHANNELS_MAX: usize = 16;

/// The connections of one worker that lead to one place.
pub(super) struct Lane {
    pub(super) destination: Arc<Destination>,
    /// A plain mutex, held for a push or a pop: a worker is one thread, and only probes share a lane
    /// among several.
    resting: Mutex<Vec<Resting>>,
    channels: Mutex<Vec<Shared>>,
    /// One at a time makes a shared connection; the others then find it.
    turnstile: Semaphore,
    /// Whether the other side was asked for HTTP/2 and chose HTTP/1.
    chose_http1: AtomicBool,
}

struct Resting {
    wire: Box<Wire>,
    since: Instant,
}

struct Shared {
    channel: Channel,
    used_at: Instant,
}

/// A way for one request.
pub(super) enum Found {
    /// A connection of its own.
    Own(Box<Wire>),
    /// A place on a shared one.
    Shared(Channel, Place),
}

impl Found {
    /// Whether a request over it may get no answer though nothing is wrong: a used connection may be
    /// ending, a shared one may be full.
    pub(super) fn may_end_unheard(&self, is_used: bool) -> bool {
        is_used || matches!(self, Self::Shared(..))
    }
}

impl Lane {
    pub(super) fn new(destination: Arc<Destination>) -> Self {
        Self {
            destination,
            resting: Mutex::default(),
            channels: Mutex::default(),
            turnstile: Semaphore::new(1),
            chose_http1: AtomicBool::new(false),
        }
    }

    /// A way that was used before and still stands.
    pub(super) fn used(&self) -> Option<Found> {
        if self.destination.wants_http2
            && let Some((channel, place)) = self.channel()
        {
            return Some(Found::Shared(channel, place));
        }
        let now = clock::instant();
        loop {
            let Resting { mut wire, since } = guard(&self.resting).pop()?;
            // One that has just come to rest is as the runtime knows it: to ask the kernel as well costs
            // a call (one of five, measured: 8 % of a busy worker's time). Where an answer ended by its
            // length the call is made: bytes too many, just behind it, would be the next one's answer.
            let is_to_look = wire.is_counted || now >= since + LOOK_AFTER;
            if is_good(since, &wire, now) && wire.is_sound(is_to_look) {
                return Some(Found::Own(wire));
            }
        }
    }

    /// A way over a connection that is made for it, or for those who asked at the same time.
    ///
    /// # Errors
    /// [`ConnectError`]; nothing has changed.
    pub(super) async fn fresh(&self, resolver: &Arc<Resolver>) -> Result<Found, ConnectError> {
        let began = clock::instant();
        let may_share = self.destination.wants_http2 && !self.chose_http1.load(Ordering::Relaxed);
        let turn = if may_share { self.turnstile.acquire().await.ok() } else { None };
        // Somebody may have made one in the meantime; an older one is not asked for here.
        if turn.is_some()
            && let Some((channel, place)) = self.channel_since(began)
        {
            return Ok(Found::Shared(channel, place));
        }
        let Dialled { socket, is_http2 } = self.destination.dial(resolver).await?;
        if !is_http2 {
            self.chose_http1.store(true, Ordering::Relaxed);
            let wire = Wire::open(socket).await.map_err(|_| ConnectError::Protocol)?;
            return Ok(Found::Own(Box::new(wire)));
        }
        self.chose_http1.store(false, Ordering::Relaxed);
        let channel = Channel::open(socket).await.map_err(|_| ConnectError::Protocol)?;
        let place = channel.place().ok_or(ConnectError::Protocol)?;
        let mut channels = guard(&self.channels);
        if channels.len() < CHANNELS_MAX {
            channels.push(Shared { channel: channel.clone(), used_at: clock::instant() });
        }
        Ok(Found::Shared(channel, place))
    }

    /// Takes a connection back that is at rest.
    pub(super) fn keep(&self, wire: Box<Wire>) {
        let now = clock::instant();
        let mut resting = guard(&self.resting);
        if resting.len() < IDLE_MAX && now < wire.born + AGE_MAX {
            resting.push(Resting { wire, since: now });
        }
    }

    /// Closes what has rested for too long.
    pub(super) fn sweep(&self, now: Instant) {
        let expired: Vec<_> = {
            let mut resting = guard(&self.resting);
            // They lie in the order in which they came to rest.
            let fresh = resting.partition_point(|one| now >= one.since + IDLE);
            let expired = resting.drain(..fresh).collect();
            resting.retain(|one| is_good(one.since, &one.wire, now));
            expired
        };
        drop(expired);
        guard(&self.channels).retain(|one| {
            let is_idle = one.channel.is_idle() && now >= one.used_at + IDLE;
            !one.channel.is_over() && !is_idle && now < one.channel.born + AGE_MAX
        });
    }

    fn channel(&self) -> Option<(Channel, Place)> {
        let now = clock::instant();
        self.channel_where(now, |channel| now < channel.born + AGE_MAX)
    }

    fn channel_since(&self, began: Instant) -> Option<(Channel, Place)> {
        self.channel_where(clock::instant(), |channel| channel.born >= began)
    }

    fn channel_where(
        &self,
        now: Instant,
        is_wanted: impl Fn(&Channel) -> bool,
    ) -> Option<(Channel, Place)> {
        let mut channels = guard(&self.channels);
        channels.retain(|one| !one.channel.is_over());
        channels.iter_mut().find_map(|one| {
            let is_cold = one.channel.is_idle() && now >= one.used_at + IDLE;
            let is_wanted = is_wanted(&one.channel) && !is_cold;
            let place = is_wanted.then(|| one.channel.place()).flatten()?;
            one.used_at = now;
            Some((one.channel.clone(), place))
        })
    }
}

fn is_good(since: Instant, wire: &Wire, now: Instant) -> bool {
    now < since + IDLE && now < wire.born + AGE_MAX
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
