//! HTTP/2 on one connection: settings, streams, and who is idle.
//!
//! What a client can make us keep is bounded by the settings of h2, and by [`Heads`] for what it has no
//! setting for; what it can make us do by the [`Purse`] in front of it.
//!
//! Invariant: what a connection holds is no more than [`HELD_BYTES_MAX`], and what its streams
//! take to be run.

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
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::heads::{FIELD_BYTES, HEADS_BYTES_MAX, Heads};
use super::{Entry, heard, hears_the_end, http1};
use crate::clock;
use crate::proxy::{Cut, Intake};
use crate::purse::Purse;
use crate::server::guard::FIELDS_MAX;
use crate::server::parting::{Outlet, Parting};
use crate::server::stall::{PIECE_BYTES_MAX, Streams, Told};
use crate::server::{Asked, Stop};

/// Largest list of header fields of HTTP/2.
const LIST_BYTES_MAX: u32 = 16 * 1024;
/// Streams at once on one connection.
const STREAMS_MAX: u32 = 100;
/// What a client may send of one body before it was read, in bytes.
const STREAM_WINDOW: u32 = 128 * 1024;
/// What a client may send of all bodies before they were read, in bytes.
const CONNECTION_WINDOW: u32 = 512 * 1024;
/// What is buffered of one answer, in bytes; whether a client reads it is no matter.
const SEND_BYTES_MAX: usize = 8 * 1024;
/// Streams that a client may open and take back before they were looked at.
const PENDING_RESETS_MAX: usize = 20;
/// Streams that a client may make us reset.
const LOCAL_RESETS_MAX: usize = 128;
/// A connection that has been silent for this long is asked whether it is there,
pub(super) const PING_AFTER: Duration = Duration::from_secs(20);
/// and gets this long for an answer; together less than 40 s.
const PONG_MAX: Duration = Duration::from_secs(15);

/// The largest head, as [`Heads`] weighs it.
const HEAD_BYTES_MAX: usize = LIST_BYTES_MAX as usize + FIELDS_MAX * FIELD_BYTES;
/// Most that a stream holds of its answer: what is buffered, one piece that went over that, and the next.
const ANSWER_BYTES_MAX: usize = SEND_BYTES_MAX + 2 * PIECE_BYTES_MAX;
/// What a connection holds of its requests and answers, in bytes: the bodies that were not read, and for
/// each stream its head until its answer begins, or something of that answer.
const HELD_BYTES_MAX: usize = CONNECTION_WINDOW as usize
    + HEADS_BYTES_MAX
    + (STREAMS_MAX as usize - HEADS_BYTES_MAX / HEAD_BYTES_MAX) * ANSWER_BYTES_MAX;
const _: () = assert!(HELD_BYTES_MAX <= 4_000_000);

/// Fields that mean something to one connection of HTTP/1.1 and have no place in HTTP/2.
const HOP_BY_HOP: [HeaderName; 5] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

impl Entry {
    /// Speaks HTTP/2 until the connection ends.
    pub(super) async fn speak_http2<T, A, F, B>(
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
        let (way_out, heads) = (Arc::clone(&outlet), Heads::default());
        let answer = service_fn(move |mut request: Request<Incoming>| {
            http1::drop_underscores(request.headers_mut());
            let held = heads.hold(&request);
            let refused = held.as_ref().err().cloned();
            let asked = refused.map_or(Ok(request.map(|body| Intake::new(body, None))), Err);
            let (answered, outlet) = (answer(asked), Arc::clone(&outlet));
            whole(answered, held, outlet, patience)
        });
        let io = Purse::of_client(io, self.floods.clone());
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

/// Waits for an answer, and gives it as HTTP/2 says it; what was held of its request is let go.
async fn whole<F, B, H>(
    answered: F,
    held: H,
    outlet: Arc<Outlet>,
    patience: Duration,
) -> Result<Response<Parting<Told<B>>>, Infallible>
where
    F: Future<Output = Result<Response<B>, Infallible>>,
    B: Body<Data = Bytes> + Cut + Unpin,
{
    let Ok(mut response) = answered.await;
    drop(held);
    strip(response.headers_mut());
    // What is given in pieces is out with the last of them.
    Ok(response.map(|body| Parting::new(Told::new(body), outlet, patience)))
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
