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
mod http1;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod promise;

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics::Counter;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use self::begun::{Begun, First};
use super::guarded::Refusals;
use super::parting::{Outlet, Parting};
use super::stall::{Patient, Streams, Told};
use super::tls::{HTTP2, Identity};
use super::{Asked, Stop};
use crate::clock;
use crate::config;
use crate::metrics::Meters;
use crate::proxy::{Cut, Intake};

/// How HTTP/2 begins.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The first byte of whoever speaks TLS.
const HANDSHAKE_BYTE: u8 = 0x16;
/// Longest handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Handshakes at once, for each worker. Who has sent nothing yet takes no place.
const HANDSHAKES_MAX: usize = 512;

/// Largest list of header fields of HTTP/2.
const LIST_BYTES_MAX: u32 = 16 * 1024;
/// Streams at once on one connection.
const STREAMS_MAX: u32 = 100;
/// What a client may send of one body before it was read, in bytes.
const STREAM_WINDOW: u32 = 128 * 1024;
/// What a client may send of all bodies before they were read, in bytes.
const CONNECTION_WINDOW: u32 = 512 * 1024;
/// What is buffered of one answer, in bytes.
const SEND_BYTES_MAX: usize = 64 * 1024;
/// Streams that a client may open and take back before they were looked at.
const PENDING_RESETS_MAX: usize = 20;
/// Streams that a client may make us reset.
const LOCAL_RESETS_MAX: usize = 128;
/// A connection that has been silent for this long is asked whether it is there,
const PING_AFTER: Duration = Duration::from_secs(20);
/// and gets this long for an answer; together less than 40 s.
const PONG_MAX: Duration = Duration::from_secs(15);

/// Fields that mean something to one connection of HTTP/1.1 and have no place in HTTP/2.
const HOP_BY_HOP: [HeaderName; 5] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

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
    handshakes: Arc<Semaphore>,
    cuts: Cuts,
    refusals: Refusals,
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
        let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
        let refusals = Refusals::new(meters);
        Self { patiences, identity, handshakes, cuts, refusals, is_plain: false }
    }

    /// The same entry with other patiences; connections that have come keep the ones they met.
    pub(super) fn heir(&self, patiences: Patiences) -> Self {
        let (identity, handshakes) = (self.identity.clone(), Arc::clone(&self.handshakes));
        let (cuts, refusals) = (self.cuts.clone(), self.refusals.clone());
        Self { patiences, identity, handshakes, cuts, refusals, is_plain: self.is_plain }
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
            let _place = self.handshakes.acquire().await;
            identity.acceptor().accept(stream).await
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

    async fn speak_http2<T, A, F, B>(
        &self,
        (io, outlet): (T, Arc<Outlet>),
        answer: A,
        mut told: watch::Receiver<Stop>,
    ) -> hyper::Result<()>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        A: Fn(Asked) -> F + Send + 'static,
        F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
        B: Body<Data = Bytes> + Cut + Send + Unpin + 'static,
        B::Error: std::error::Error + Send + Sync,
    {
        // Who comes while others are asked to go has no other connection to go to yet.
        if *told.borrow() == Stop::Leaving {
            told.mark_unchanged();
        }
        hears_the_end(&mut told);
        let streams = Streams::new(self.patiences.write, self.cuts.write.clone());
        let patience = self.patiences.write;
        let way_out = Arc::clone(&outlet);
        let answer = service_fn(move |mut request: Request<Incoming>| {
            http1::drop_underscores(request.headers_mut());
            let (answered, outlet) =
                (answer(Ok(request.map(|body| Intake::new(body, None)))), Arc::clone(&outlet));
            async move {
                let Ok(mut response) = answered.await;
                strip(response.headers_mut());
                // What is given in pieces is out with the last of them.
                let whole = |body| Parting::new(Told::new(body), outlet, patience);
                Ok::<_, Infallible>(response.map(whole))
            }
        });
        let mut connection =
            pin!(http2_builder(streams.clone()).serve_connection(TokioIo::new(io), answer));
        let keep_alive = self.patiences.keep_alive;
        let (mut word, mut ends_at) = (Some(Stop::Serving), None);
        loop {
            // An idle connection is asked to go, and one that does not go in time is cut.
            let next = ends_at.unwrap_or_else(|| {
                clock::instant() + keep_alive.saturating_sub(streams.idle().unwrap_or_default())
            });
            // The connection comes first, so that what was sent before a drain began is seen.
            tokio::select! {
                biased;
                served = connection.as_mut() => return served,
                next = heard(&mut told), if word.is_some() => {
                    word = next;
                    connection.as_mut().graceful_shutdown();
                    if let Some(Stop::Over(_)) = next {
                        way_out.expire();
                    }
                }
                () = tokio::time::sleep_until(next) => {
                    let is_idle = streams.idle().is_some_and(|idle| idle >= keep_alive);
                    if is_idle && ends_at.is_some() {
                        self.cuts.idle.increment(1);
                        return Ok(());
                    }
                    ends_at = is_idle.then(|| clock::instant() + self.patiences.write);
                    if is_idle {
                        connection.as_mut().graceful_shutdown();
                    }
                }
            }
        }
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

fn http2_builder(streams: Streams) -> http2::Builder<Streams> {
    let mut http = http2::Builder::new(streams);
    http.timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(LIST_BYTES_MAX)
        .max_send_buf_size(SEND_BYTES_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .max_local_error_reset_streams(LOCAL_RESETS_MAX)
        .keep_alive_interval(PING_AFTER)
        .keep_alive_timeout(PONG_MAX);
    http
}

fn strip(headers: &mut HeaderMap) {
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests;
