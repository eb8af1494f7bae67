//! One worker's connections to one place: those at rest, and those that are shared.
//!
//! The one that rested last is used first, so that a pool grown by a burst shrinks again. Nothing waits
//! for a connection of another request: who finds none makes one.
//!
//! Invariants: at most [`IDLE_MAX`] rest, none for longer than [`IDLE`], and none is used that was made
//! more than [`AGE_MAX`] ago, so that an address that a name no longer has is left in time; at most
//! [`CHANNELS_MAX`] are shared, and whoever finds all of them full is told so.

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
use crate::handles::Sockets;

/// How long a connection rests: less than the keep-alive of common engines.
pub(super) const IDLE: Duration = Duration::from_secs(20);
/// How old a connection gets.
pub(super) const AGE_MAX: Duration = Duration::from_secs(300);
/// A connection that has rested for this long is looked at in earnest before it is used.
const LOOK_AFTER: Duration = Duration::from_millis(1);
/// Connections at rest.
const IDLE_MAX: usize = 256;
/// Shared connections: a hundred requests at a time over each are usual, so that this is thousands of
/// one worker's, and still hundreds where the other side takes few.
const CHANNELS_MAX: usize = 64;

/// The connections of one worker that lead to one place.
pub(super) struct Lane {
    pub(super) destination: Arc<Destination>,
    /// The right to a connection, of which all workers together have so many.
    sockets: Arc<Sockets>,
    /// A plain mutex, held for a push or a pop: a worker is one thread, and only probes share a lane
    /// among several.
    resting: Mutex<Vec<Resting>>,
    channels: Mutex<Vec<Channel>>,
    /// One at a time makes a shared connection; the others then find it.
    turnstile: Semaphore,
    /// Whether the other side was asked for HTTP/2 and chose HTTP/1.
    chose_http1: AtomicBool,
    /// Whether no further request is for this place: nothing is kept.
    is_closed: AtomicBool,
}

struct Resting {
    wire: Box<Wire>,
    since: Instant,
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
    pub(super) fn new(destination: Arc<Destination>, sockets: Arc<Sockets>) -> Self {
        Self {
            destination,
            sockets,
            resting: Mutex::default(),
            channels: Mutex::default(),
            turnstile: Semaphore::new(1),
            chose_http1: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
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
        let mut turn = if self.may_share() { self.turnstile.acquire().await.ok() } else { None };
        // Somebody may have made one in the meantime; an older one is not asked for here.
        if turn.is_some()
            && let Some((channel, place)) = self.channel_since(began)
        {
            return Ok(Found::Shared(channel, place));
        }
        if !self.may_share() {
            // Who has waited for a connection that turned out not to be shared makes one of its own,
            // and all of them at once.
            turn = None;
        } else if self.is_full() {
            let found = self.channel().map(|(channel, place)| Found::Shared(channel, place));
            return found.ok_or(ConnectError::Full);
        }
        let right = self.sockets.take().ok_or(ConnectError::Own)?;
        let Dialled { socket, is_http2 } = self.destination.dial(resolver, right).await?;
        if !is_http2 {
            self.chose_http1.store(true, Ordering::Relaxed);
            let wire = Wire::open(socket).await.map_err(|_| ConnectError::Protocol)?;
            return Ok(Found::Own(Box::new(wire)));
        }
        self.chose_http1.store(false, Ordering::Relaxed);
        let channel = Channel::open(socket).await.map_err(|_| ConnectError::Protocol)?;
        let place = channel.place().ok_or(ConnectError::Protocol)?;
        let mut channels = guard(&self.channels);
        if channels.len() < CHANNELS_MAX && !self.is_closed() {
            channels.push(channel.clone());
        }
        drop(turn);
        Ok(Found::Shared(channel, place))
    }

    /// What it means that the time for a connection was over. Where others have got theirs since `began`,
    /// the endpoint is well, and there were only too many who waited.
    pub(super) fn late(&self, began: Instant) -> ConnectError {
        let is_made = guard(&self.channels).iter().any(|channel| channel.born >= began);
        if is_made { ConnectError::Full } else { ConnectError::Timeout }
    }

    fn may_share(&self) -> bool {
        self.destination.wants_http2 && !self.chose_http1.load(Ordering::Relaxed)
    }

    fn is_full(&self) -> bool {
        let mut channels = guard(&self.channels);
        channels.retain(|channel| !channel.is_over());
        channels.len() >= CHANNELS_MAX
    }

    /// Takes a connection back that is at rest.
    pub(super) fn keep(&self, wire: Box<Wire>) {
        let now = clock::instant();
        let mut resting = guard(&self.resting);
        let has_room = resting.len() < IDLE_MAX && !self.sockets.are_scarce();
        if has_room && now < wire.born + AGE_MAX && !self.is_closed() {
            resting.push(Resting { wire, since: now });
        }
    }

    /// Closes what rests, and keeps nothing from here on; what is under way goes on to its end.
    pub(super) fn close(&self) {
        // Set before the locks are taken, under which it is looked at.
        self.is_closed.store(true, Ordering::Relaxed);
        let resting = std::mem::take(&mut *guard(&self.resting));
        let channels = std::mem::take(&mut *guard(&self.channels));
        drop((resting, channels));
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
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
        guard(&self.channels).retain(|channel| {
            !channel.is_over() && !channel.has_rested(IDLE) && now < channel.born + AGE_MAX
        });
    }

    fn channel(&self) -> Option<(Channel, Place)> {
        let now = clock::instant();
        self.channel_where(|channel| now < channel.born + AGE_MAX)
    }

    fn channel_since(&self, began: Instant) -> Option<(Channel, Place)> {
        self.channel_where(|channel| channel.born >= began)
    }

    fn channel_where(&self, is_wanted: impl Fn(&Channel) -> bool) -> Option<(Channel, Place)> {
        let mut channels = guard(&self.channels);
        channels.retain(|channel| !channel.is_over());
        channels.iter().find_map(|channel| {
            let is_wanted = is_wanted(channel) && !channel.has_rested(IDLE);
            let place = is_wanted.then(|| channel.place()).flatten()?;
            Some((channel.clone(), place))
        })
    }
}

fn is_good(since: Instant, wire: &Wire, now: Instant) -> bool {
    now < since + IDLE && now < wire.born + AGE_MAX
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
