//! HTTP/2 to an endpoint: a few connections that many requests share.
//!
//! Here a task drives each connection, because no single request owns it. How many requests the other
//! side takes at once is its to say; a further connection is made when all are full.
//!
//! Invariants: a place is held from the request to the end of its answer; a body that is dropped resets
//! its stream and nothing else.

use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, ready};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::http2::{self, Connection, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::Instant;

use super::SendError;
use super::parcel::Parcel;
use super::pulse::Pulse;
use super::socket::Socket;
use super::wire::Lost;
use crate::clock;
use crate::purse::Purse;

/// What the other side may send of one answer before it is read.
const STREAM_WINDOW: u32 = 128 * 1024;
/// What it may send of all together: enough for a hundred that are not read.
const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;
/// Largest response head.
const HEAD_BYTES_MAX: u32 = 64 * 1024;
/// A connection in use is asked so often whether it still stands.
const PING_EVERY: Duration = Duration::from_secs(20);
/// How long it may take to say so.
const PING_PATIENCE: Duration = Duration::from_secs(10);
/// What the other side takes is looked for this often until it has come: no library tells when.
const SETTINGS_GLANCE: Duration = Duration::from_millis(1);
/// Requests over one connection, whatever the other side would take.
const STREAMS_MAX: usize = 1_000;

/// A connection that requests share.
#[derive(Clone)]
pub(super) struct Channel {
    sender: SendRequest<Parcel>,
    load: Arc<Load>,
    pulse: Arc<Pulse>,
    /// When the connection was made.
    pub(super) born: Instant,
}

type Driven = Connection<TokioIo<Purse<Socket>>, Parcel, TokioExecutor>;

/// How much a connection carries.
struct Load {
    streams: AtomicUsize,
    /// When the last request ended, in milliseconds by our clock.
    rests_since: AtomicU64,
    /// The connection, to be asked how many the other side takes; `None` once it has ended. The mutex
    /// is held for one turn of polling, by the one task that does.
    driven: Mutex<Option<Driven>>,
    /// Whether nothing more goes over it.
    is_over: AtomicBool,
}

/// A place on a connection, free again when it is dropped.
pub(super) struct Place {
    load: Arc<Load>,
}

impl Channel {
    /// Makes a connection of a socket, and the task that drives it until it ends or nobody holds it. It
    /// is there when the other side has said how much it takes; who calls sets a limit to that.
    ///
    /// # Errors
    /// The other side does not speak HTTP/2.
    pub(super) async fn open(socket: Socket) -> Result<Self, hyper::Error> {
        let pulse = Arc::clone(&socket.pulse);
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(HEAD_BYTES_MAX)
            // None before the other side has said how many: those beyond its number would wait unseen.
            .initial_max_send_streams(0)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_PATIENCE);
        let (sender, connection) = http.handshake(TokioIo::new(Purse::of_server(socket))).await?;
        let load = Arc::new(Load {
            streams: AtomicUsize::new(0),
            rests_since: AtomicU64::new(millis()),
            driven: Mutex::new(Some(connection)),
            is_over: AtomicBool::new(false),
        });
        tokio::spawn(drive(Arc::clone(&load)));
        while load.streams_max().is_some_and(|most| most == 0) {
            tokio::time::sleep(SETTINGS_GLANCE).await;
        }
        Ok(Self { sender, load, pulse, born: clock::instant() })
    }

    /// Whether nothing more goes over it.
    pub(super) fn is_over(&self) -> bool {
        self.load.is_over.load(Ordering::Relaxed) || self.sender.is_closed()
    }

    /// Whether no request has been under way for `period`.
    pub(super) fn has_rested(&self, period: Duration) -> bool {
        let since = self.load.rests_since.load(Ordering::Relaxed);
        let is_idle = self.load.streams.load(Ordering::Relaxed) == 0;
        is_idle && u128::from(millis().saturating_sub(since)) >= period.as_millis()
    }

    /// Lets nobody else begin.
    pub(super) fn retire(&self) {
        self.load.is_over.store(true, Ordering::Relaxed);
    }

    /// Takes a place; `None`: all are taken.
    pub(super) fn place(&self) -> Option<Place> {
        let most = self.load.streams_max()?.min(STREAMS_MAX);
        let before = self.load.streams.fetch_add(1, Ordering::Relaxed);
        let place = Place { load: Arc::clone(&self.load) };
        (before < most).then_some(place)
    }

    /// Sends a request and waits for the head of its answer.
    ///
    /// # Cancel safety
    /// Dropped, the stream is reset.
    pub(super) async fn ask(
        &mut self,
        request: Request<Parcel>,
    ) -> Result<Response<Incoming>, Lost> {
        let reads = self.pulse.expect();
        self.sender.try_send_request(request).await.map_err(|error| {
            // What comes back was never written.
            let is_unsent = error.message().is_some();
            let error = error.into_error();
            tracing::debug!(%error, "a request got no answer");
            let is_untouched = is_unsent || is_refused(&error);
            if is_untouched || error.is_closed() || error.is_canceled() {
                self.retire();
            }
            // What others hear on the same connection counts as heard, a reset of this stream included:
            // that errs to the safe side.
            let is_unanswered = self.pulse.reads() == reads;
            Lost { error: SendError::Broken, is_unanswered, is_untouched }
        })
    }
}

impl Load {
    /// How many requests the other side takes at once; `None`: the connection has ended.
    fn streams_max(&self) -> Option<usize> {
        Some(guard(&self.driven).as_ref()?.current_max_send_streams())
    }
}

/// Drives a connection until it ends.
async fn drive(load: Arc<Load>) {
    let ended = poll_fn(|context| {
        let mut driven = guard(&load.driven);
        let ended = match driven.as_mut() {
            Some(connection) => ready!(Pin::new(connection).poll(context)),
            None => Ok(()),
        };
        *driven = None;
        Poll::Ready(ended)
    });
    if let Err(error) = ended.await {
        tracing::debug!(%error, "a shared connection ended");
    }
    load.is_over.store(true, Ordering::Relaxed);
}

fn millis() -> u64 {
    u64::try_from(clock::now().as_millis()).unwrap_or(u64::MAX)
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the other side says that it has not begun with the request (RFC 9113, sections 6.8 and 8.7).
fn is_refused(error: &hyper::Error) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            let is_refused = error.reason() == Some(h2::Reason::REFUSED_STREAM);
            return is_refused || (error.is_go_away() && error.is_remote());
        }
        cause = error.source();
    }
    false
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.load.streams.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.load.rests_since.store(millis(), Ordering::Relaxed);
        }
    }
}
