//! HTTP/1 on one connection: guarded, timed, and closed in good order.

use std::convert::Infallible;
use std::future::{self, Future};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

use super::{Entry, heard, hears_the_end};
use crate::proxy::{Cut, Intake};
use crate::server::guard::{FIELDS_MAX, HEAD_BYTES_MAX, Violation};
use crate::server::guarded::{Guarded, Inlet, Stand};
use crate::server::pace::{Pace, Periods};
use crate::server::parting::{Outlet, Parting};
use crate::server::{Asked, Stop};

impl Entry {
    /// Speaks HTTP/1 until the connection ends. Its first head has been coming since then, if some of it
    /// has come before.
    pub(super) async fn speak_http1<T, A, F, B>(
        &self,
        (io, outlet): (T, Arc<Outlet>),
        since: Option<Instant>,
        answer: A,
        mut told: watch::Receiver<Stop>,
    ) -> hyper::Result<()>
    where
        T: AsyncRead + AsyncWrite + Unpin + 'static,
        A: Fn(Asked) -> F,
        F: Future<Output = Result<Response<B>, Infallible>>,
        B: Body<Data = Bytes> + Cut + Unpin + 'static,
        B::Error: std::error::Error + Send + Sync,
    {
        if *told.borrow() != Stop::Serving {
            outlet.close();
        }
        hears_the_end(&mut told);
        let inlet = Arc::<Inlet>::default();
        let mut io = Guarded::new(io, Arc::clone(&inlet), self.refusals.clone());
        let keep_alive = self.patiences.keep_alive;
        let (first_byte, head) = (self.patiences.first_byte, self.patiences.head);
        let pace = Pace::new(Periods { first_byte, head, keep_alive }, since);
        self.serve((&mut io, pace), &answer, &mut told, (&inlet, &outlet)).await?;
        // hyper leaves a connection open on which an upgrade was asked for, and this one is not.
        let _ = io.shutdown().await;
        Ok(())
    }

    /// Answers what is asked on `io` until that has ended in good order.
    async fn serve<T, A, F, B>(
        &self,
        (io, mut pace): (&mut Guarded<T>, Pace),
        answer: &A,
        told: &mut watch::Receiver<Stop>,
        (inlet, outlet): (&Arc<Inlet>, &Arc<Outlet>),
    ) -> hyper::Result<()>
    where
        T: AsyncRead + AsyncWrite + Unpin + 'static,
        A: Fn(Asked) -> F,
        F: Future<Output = Result<Response<B>, Infallible>>,
        B: Body<Data = Bytes> + Cut + Unpin + 'static,
        B::Error: std::error::Error + Send + Sync,
    {
        let answer = service_fn(|request| self.answered(request, answer, inlet, outlet));
        let mut http = http1::Builder::new();
        // The head's time is kept here.
        http.header_read_timeout(None).max_buf_size(HEAD_BYTES_MAX).max_headers(FIELDS_MAX);
        let mut connection = pin!(http.serve_connection(TokioIo::new(io), answer));
        let (mut next, mut grace) = (Some(Stop::Serving), None);
        loop {
            // The connection comes first, so that what was sent before a drain began is seen, and that
            // its time is looked at when it has done what it can.
            tokio::select! {
                biased;
                served = connection.as_mut() => return served,
                word = heard(told), if next.is_some() => next = word,
                () = over(&mut grace) => {
                    grace = None;
                    connection.as_mut().graceful_shutdown();
                    continue;
                }
                stand = future::poll_fn(|context| pace.poll(context, inlet, outlet)) => {
                    match stand {
                        Stand::Fresh => {
                            self.cuts.first_byte.increment(1);
                            return Ok(());
                        }
                        Stand::Begun(_) => inlet.expire(),
                        Stand::Idle(_) => connection.as_mut().graceful_shutdown(),
                        Stand::Busy => {}
                    }
                    continue;
                }
            }
            match next {
                Some(Stop::Serving) => {}
                Some(Stop::Leaving) => outlet.close(),
                // hyper would close it at once: its first request may be on its way, and is served.
                Some(Stop::Draining) | None if !outlet.has_met() => {
                    outlet.close();
                    grace = Some(Box::pin(tokio::time::sleep(self.patiences.head)));
                }
                Some(Stop::Draining) | None => connection.as_mut().graceful_shutdown(),
                Some(Stop::Over(_)) => {
                    connection.as_mut().graceful_shutdown();
                    outlet.expire();
                }
            }
        }
    }

    /// Answers one request, or what stands for one that was refused.
    fn answered<A, F, B>(
        &self,
        mut request: Request<Incoming>,
        answer: &A,
        inlet: &Arc<Inlet>,
        outlet: &Arc<Outlet>,
    ) -> impl Future<Output = Result<Response<Parting<B>>, Infallible>> + use<A, F, B>
    where
        A: Fn(Asked) -> F,
        F: Future<Output = Result<Response<B>, Infallible>>,
        B: Body<Data = Bytes> + Cut + Unpin + 'static,
    {
        let requests = outlet.meet();
        if inlet.has_underscores() {
            drop_underscores(request.headers_mut());
        }
        let refused = inlet.refusal(request.uri()).map(Violation::error);
        let is_refused = refused.is_some();
        // What comes in chunks and is not read to its end, hyper reads no further than the next of them.
        let is_chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
        let is_read = is_chunked.then(Arc::<AtomicBool>::default);
        let request = request.map(|body| Intake::new(body, is_read.clone()));
        let answered = answer(refused.map_or(Ok(request), Err));
        let patience = self.patiences.write;
        let (inlet, outlet) = (Arc::clone(inlet), Arc::clone(outlet));
        async move {
            let Ok(mut response) = answered.await;
            let headers = response.headers_mut();
            if headers.contains_key(header::CONNECTION) {
                outlet.ends_early();
            } else if is_refused || inlet.is_owed(requests) || is_read.is_some_and(is_false) {
                outlet.ends_early();
                headers.insert(header::CONNECTION, CLOSE);
            } else if outlet.is_closing() {
                // It goes on elsewhere before this connection is closed under its next request.
                headers.insert(header::CONNECTION, CLOSE);
            }
            Ok(response.map(|body| Parting::new(body, outlet, patience)))
        }
    }
}

fn is_false(flag: Arc<AtomicBool>) -> bool {
    !flag.load(Ordering::Relaxed)
}

const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// Drops the fields with `_` in their names: readers behind us that take it for `-` would find in them
/// what they trust in the others.
pub(super) fn drop_underscores(headers: &mut HeaderMap) {
    let is_doubtful = |name: &&HeaderName| name.as_str().contains('_');
    let doubtful: Vec<_> = headers.keys().filter(is_doubtful).cloned().collect();
    for name in doubtful {
        headers.remove(name);
    }
}

/// Waits until a grace is over; forever if there is none.
async fn over(grace: &mut Option<Pin<Box<Sleep>>>) {
    match grace {
        Some(grace) => grace.as_mut().await,
        None => future::pending().await,
    }
}
