//! One connection of a client, from its first byte to its last.
//!
//! [`Entry::receive`] is the only place where a connection's bytes come in: it shakes hands if there
//! is a certificate to show, finds out which HTTP is spoken, and lets hyper speak it. In the clear
//! the first bytes tell (HTTP/2 begins with a preface that no request line can be), over TLS the
//! handshake does.
//!
//! A client that ends its own half (FIN) behind a request has left, as far as anyone can tell until
//! something is written to it. To let the upstream go at once is worth more than to serve the rare
//! client that shuts its half down and still reads: its request is cancelled.
//!
//! Invariants: until its first request has come, nothing that a client does or leaves undone is worth
//! more than a debug line; every wait for a client has a deadline; a connection that was accepted
//! before a drain is served its first request, if that comes no later than a head may.

mod begun;
mod heads;
mod http1;
mod http2;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod promise;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hyper::Response;
use hyper::body::Body;
use metrics::Counter;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;

use self::begun::{Begun, First};
use super::guarded::Refusals;
use super::parting::Outlet;
use super::stall::Patient;
use super::tls::{HTTP2, Identity};
use super::{Asked, Stop};
use crate::clock;
use crate::config;
use crate::metrics::Meters;
use crate::proxy::Cut;
use crate::purse::PREFACE;

/// The first byte of whoever speaks TLS.
const HANDSHAKE_BYTE: u8 = 0x16;
/// Longest handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Longest one that begins while a crowd is at it. Nobody waits for a place: a good client has shaken
/// hands after two round trips, and those who never will are at most as many as come in this time.
const HANDSHAKE_IN_A_CROWD_MAX: Duration = Duration::from_secs(2);
/// Handshakes at once that are no crowd yet, for each worker: some 20 KiB each.
const HANDSHAKES_MAX: usize = 512;

/// How long a client is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patiences {
    /// Until it has said something.
    pub(super) first_byte: Duration,
    /// Until its request head is there.
    pub(super) head: Duration,
    /// Between two requests.
    pub(super) keep_alive: Duration,
    /// Until it takes something of what is written to it.
    pub(super) write: Duration,
}

impl Patiences {
    /// As configured.
    pub(super) fn of(config: &config::Server) -> Self {
        Self {
            first_byte: config.first_byte_timeout,
            head: config.header_timeout,
            keep_alive: config.keep_alive,
            write: config.write_stall,
        }
    }
}

/// Where the connections of one worker come in.
pub(super) struct Entry {
    patiences: Patiences,
    identity: Option<Arc<Identity>>,
    /// Handshakes at this moment.
    handshakes: Arc<AtomicUsize>,
    cuts: Cuts,
    refusals: Refusals,
    /// Connections that were ended since all they sent were frames that ask for nothing.
    floods: Counter,
    /// Whether nothing but HTTP/1.1 is spoken in the clear.
    pub(super) is_plain: bool,
}

/// Connections and streams that were cut, by what the client left undone.
#[derive(Clone)]
struct Cuts {
    first_byte: Counter,
    handshake: Counter,
    write: Counter,
    idle: Counter,
}

/// Which HTTP a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Http1,
    Http2,
}

impl Entry {
    /// An entry that shows `identity`, if there is one, and counts in `meters`.
    pub(super) fn new(
        patiences: Patiences,
        identity: Option<Arc<Identity>>,
        meters: &Meters,
    ) -> Self {
        let cut = |by| meters.counter("client_connections_cut_total", &[("by", by)]);
        let cuts = Cuts {
            first_byte: cut("first_byte"),
            handshake: cut("handshake"),
            write: cut("write_stall"),
            idle: cut("idle"),
        };
        let handshakes = Arc::default();
        let refusals = Refusals::new(meters);
        let floods = meters.counter("guard_refusals_total", &[("reason", "flood")]);
        Self { patiences, identity, handshakes, cuts, refusals, floods, is_plain: false }
    }

    /// The same entry with other patiences; connections that have come keep the ones they met.
    pub(super) fn heir(&self, patiences: Patiences) -> Self {
        let (identity, handshakes) = (self.identity.clone(), Arc::clone(&self.handshakes));
        let (cuts, refusals) = (self.cuts.clone(), self.refusals.clone());
        let (floods, is_plain) = (self.floods.clone(), self.is_plain);
        Self { patiences, identity, handshakes, cuts, refusals, floods, is_plain }
    }

    /// Serves a connection by `answer` until it ends; told to stop, it finishes what it is doing.
    pub(super) async fn receive<A, F, B>(
        &self,
        stream: TcpStream,
        answer: A,
        told: watch::Receiver<Stop>,
    ) where
        A: Fn(Asked) -> F + Clone + Send + 'static,
        F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
        B: Body<Data = Bytes> + Cut + Send + Unpin + 'static,
        B::Error: std::error::Error + Send + Sync,
    {
        let _ = stream.set_nodelay(true);
        let stream = Patient::new(stream, self.patiences.write, self.cuts.write.clone());
        let outlet = stream.outlet();
        let served = match &self.identity {
            None => {
                let Some((version, stream)) = self.begins(stream).await else { return };
                let since = stream.since;
                self.speak(version, (stream, outlet), since, answer, told).await
            }
            // The rare way lies elsewhere, so that the common one does not carry its weight.
            Some(identity) => Box::pin(self.secured(identity, stream, answer, told)).await,
        };
        if let Err(error) = served {
            tracing::debug!(%error, "a client connection ended in the middle");
        }
    }

    /// Shakes hands, then serves.
    async fn secured<A, F, B>(
        &self,
        identity: &Identity,
        stream: Patient<TcpStream>,
        answer: A,
        told: watch::Receiver<Stop>,
    ) -> hyper::Result<()>
    where
        A: Fn(Asked) -> F + Clone + Send + 'static,
        F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
        B: Body<Data = Bytes> + Cut + Send + Unpin + 'static,
        B::Error: std::error::Error + Send + Sync,
    {
        let outlet = stream.outlet();
        let shaken = async {
            // Only who has said something takes a place.
            stream.get_ref().peek(&mut [0]).await?;
            let before = self.handshakes.fetch_add(1, Ordering::Relaxed);
            let _place = Place(Arc::clone(&self.handshakes));
            let is_crowd = before >= HANDSHAKES_MAX;
            let most = if is_crowd { HANDSHAKE_IN_A_CROWD_MAX } else { HANDSHAKE_MAX };
            tokio::time::timeout(most, identity.acceptor().accept(stream)).await?
        };
        let stream = match tokio::time::timeout(HANDSHAKE_MAX, Box::pin(shaken)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                self.cuts.handshake.increment(1);
                tracing::debug!(%error, "a handshake failed");
                return Ok(());
            }
            Err(_) => {
                self.cuts.handshake.increment(1);
                tracing::debug!("a handshake took too long");
                return Ok(());
            }
        };
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
        let version = if is_http2 { Version::Http2 } else { Version::Http1 };
        self.speak(version, (stream, outlet), None, answer, told).await
    }

    /// Waits for the first bytes in the clear, which tell what is spoken. `None`: nothing came, or
    /// nothing that is HTTP.
    async fn begins<T: AsyncRead + Unpin>(&self, mut io: T) -> Option<(Version, Begun<T>)> {
        let mut first = First { bytes: [0; PREFACE.len()], from: 0, to: 0 };
        let mut since = None;
        let mut ends_at = clock::instant() + self.patiences.first_byte;
        loop {
            let room = first.bytes.get_mut(usize::from(first.to)..)?;
            match tokio::time::timeout_at(ends_at, io.read(room)).await {
                Ok(Ok(0) | Err(_)) => return None,
                Ok(Ok(length)) => first.to += u8::try_from(length).ok()?,
                // Half a preface is half a head of HTTP/1, too, and late as such.
                Err(_) if since.is_some() => {
                    return Some((Version::Http1, Begun { first, since, io }));
                }
                Err(_) => {
                    self.cuts.first_byte.increment(1);
                    return None;
                }
            }
            let came = first.unread();
            if came.first() == Some(&HANDSHAKE_BYTE) {
                self.cuts.handshake.increment(1);
                tracing::debug!("TLS on a listener in the clear");
                return None;
            }
            if self.is_plain || !PREFACE.starts_with(came) {
                return Some((Version::Http1, Begun { first, since, io }));
            }
            if came.len() == PREFACE.len() {
                return Some((Version::Http2, Begun { first, since, io }));
            }
            let began = *since.get_or_insert_with(clock::instant);
            ends_at = began + self.patiences.head;
        }
    }

    /// Speaks this version; its first head has been coming since then, if it came in pieces.
    async fn speak<T, A, F, B>(
        &self,
        version: Version,
        io: (T, Arc<Outlet>),
        since: Option<Instant>,
        answer: A,
        told: watch::Receiver<Stop>,
    ) -> hyper::Result<()>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        A: Fn(Asked) -> F + Clone + Send + 'static,
        F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
        B: Body<Data = Bytes> + Cut + Send + Unpin + 'static,
        B::Error: std::error::Error + Send + Sync,
    {
        match version {
            Version::Http1 => self.speak_http1(io, since, answer, told).await,
            Version::Http2 => Box::pin(self.speak_http2(io, answer, told)).await,
        }
    }
}

/// A handshake that goes on.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the workers are told next; `None`: nobody is there any more to tell them anything.
async fn heard(told: &mut watch::Receiver<Stop>) -> Option<Stop> {
    told.changed().await.ok()?;
    // What lies in the kernel comes before it: the runtime looks there before this goes on.
    tokio::task::yield_now().await;
    Some(*told.borrow_and_update())
}

/// Lets whoever comes when the drain has begun hear of it, too: they have met it as nothing new.
fn hears_the_end(told: &mut watch::Receiver<Stop>) {
    if told.borrow().is_end() {
        told.mark_changed();
    }
}

#[cfg(test)]
mod tests;
