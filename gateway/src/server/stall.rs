//! Clients that take nothing of what is written to them are let go.
//!
//! A client that stops reading costs a connection, its buffers and a place at an endpoint for as long
//! as it likes; TCP itself never minds. Two things stand still: the socket, when its buffers are full
//! ([`Patient`]), and with HTTP/2 a single stream whose window the client keeps shut while the socket
//! is fine ([`Streams`]).
//!
//! Who is cut is not only left by this process: what the kernel still holds for it, a quarter of a MiB,
//! goes with the connection. Closed in good order the socket would go on offering it for minutes, and a
//! crowd of such clients would cost more after its end than before.
//!
//! Invariants: a clock runs only while something waits for the client, and starts anew with every
//! progress: a byte into the socket, a piece into a stream ([`PIECE_BYTES_MAX`]); what is cut is dropped
//! whole, so that its upstream is let go with it.

use std::cell::Cell;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use metrics::Counter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::parting::Outlet;
use crate::clock;
use crate::proxy::Cut;

/// A stream's client must make room for this much in the time it is given: 8 KiB, one frame.
pub(super) const PIECE_BYTES_MAX: usize = 8 * 1024;

/// A client whose request was refused half-way gets this long to read why. To close while its bytes are
/// still coming in would be to reset the connection, and a reset takes the answer with it.
const FAREWELL: Duration = Duration::from_secs(1);
/// What is read of such bytes in one go, and thrown away.
const FAREWELL_BYTES: usize = 8 * 1024;

/// A clock that runs while somebody is waited for.
struct Patience {
    period: Duration,
    /// Kept once it was needed: a slow reader makes it run again and again.
    timer: Option<Pin<Box<Sleep>>>,
    is_running: bool,
}

impl Patience {
    fn new(period: Duration) -> Self {
        Self { period, timer: None, is_running: false }
    }

    /// There was progress, or nobody is waited for.
    fn rest(&mut self) {
        self.is_running = false;
    }

    /// Somebody is waited for; ready when it was for too long.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let period = self.period;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(period)));
        if !std::mem::replace(&mut self.is_running, true) {
            timer.as_mut().reset(clock::instant() + period);
        }
        timer.as_mut().poll(context)
    }
}

/// What a connection runs over.
pub(super) trait Carrier: AsyncRead + AsyncWrite + Unpin {
    /// What was given to it is waited for no longer than this, be it closed or not.
    fn wait_at_most(&self, period: Duration);

    /// Nothing that was given to it is waited for, once it is closed.
    fn wait_no_more(&self);
}

impl Carrier for TcpStream {
    fn wait_at_most(&self, period: Duration) {
        // Without it such a client is waited for longer.
        #[cfg(target_os = "linux")]
        let _ = socket2::SockRef::from(self).set_tcp_user_timeout(Some(period));
    }

    fn wait_no_more(&self) {
        // It is closed by a reset. A client that is gone has none to get.
        let _ = self.set_zero_linger();
    }
}

/// What lies in memory goes with its end.
#[cfg(any(test, feature = "fuzzing"))]
impl Carrier for tokio::io::DuplexStream {
    fn wait_at_most(&self, _: Duration) {}

    fn wait_no_more(&self) {}
}

/// A connection that fails when nothing of what is written to it was taken for too long.
pub(super) struct Patient<T> {
    io: T,
    patience: Patience,
    /// `None` once it was cut.
    cut: Option<Counter>,
    outlet: Arc<Outlet>,
    /// How long its last bytes are still taken.
    farewell: Option<Pin<Box<Sleep>>>,
}

impl<T: Carrier> Patient<T> {
    /// Waits for the other side of `io` no longer than `period`, and counts when that was in vain. The
    /// kernel waits no longer for what it was given, be it closed or not.
    pub(super) fn new(io: T, period: Duration, cut: Counter) -> Self {
        let outlet = Arc::default();
        io.wait_at_most(period);
        Self { io, patience: Patience::new(period), cut: Some(cut), outlet, farewell: None }
    }

    /// When what was written to it was out.
    pub(super) fn outlet(&self) -> Arc<Outlet> {
        Arc::clone(&self.outlet)
    }

    /// What it is wrapped around.
    pub(super) fn get_ref(&self) -> &T {
        &self.io
    }

    fn judge<R>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.patience.rest();
            return written;
        }
        ready!(self.patience.poll(context));
        self.cut.take().inspect(|cut| cut.increment(1));
        self.io.wait_no_more();
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<T: Carrier> AsyncRead for Patient<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<T: Carrier> AsyncWrite for Patient<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.outlet.begin();
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.judge(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.outlet.begin();
        let written = Pin::new(&mut self.io).poll_write_vectored(context, bytes);
        self.judge(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(context);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.outlet.end();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io).poll_shutdown(context))?;
        if self.outlet.is_early() {
            ready!(self.poll_farewell(context));
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: Carrier> Patient<T> {
    /// Takes what the client still sends until it ends, or for [`FAREWELL`].
    fn poll_farewell(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let timer = self.farewell.get_or_insert_with(|| Box::pin(tokio::time::sleep(FAREWELL)));
        loop {
            let mut bytes = [0; FAREWELL_BYTES];
            let mut buffer = ReadBuf::new(&mut bytes);
            // The clock comes first: a client that never pauses is not waited for longer.
            if timer.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            match ready!(Pin::new(&mut self.io).poll_read(context, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {}
                Ok(()) | Err(_) => return Poll::Ready(()),
            }
        }
    }
}

/// Runs the streams of one HTTP/2 connection, each as a task, and knows how many there are.
#[derive(Clone)]
pub(super) struct Streams {
    patience: Duration,
    cut: Counter,
    traffic: Arc<Traffic>,
}

struct Traffic {
    running: AtomicUsize,
    /// When the last stream ended, in milliseconds of [`clock::now`].
    idle_since: AtomicU64,
}

impl Streams {
    /// No stream yet. One whose client takes nothing for `patience` is reset and counted.
    pub(super) fn new(patience: Duration, cut: Counter) -> Self {
        let idle_since = AtomicU64::new(millis(clock::now()));
        let traffic = Arc::new(Traffic { running: AtomicUsize::new(0), idle_since });
        Self { patience, cut, traffic }
    }

    /// For how long there was no stream; `None` while there is one.
    pub(super) fn idle(&self) -> Option<Duration> {
        let is_idle = self.traffic.running.load(Ordering::Relaxed) == 0;
        let since = Duration::from_millis(self.traffic.idle_since.load(Ordering::Relaxed));
        is_idle.then(|| clock::now().saturating_sub(since))
    }
}

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        self.traffic.running.fetch_add(1, Ordering::Relaxed);
        let place = Place(Arc::clone(&self.traffic));
        let (patience, cut) = (Patience::new(self.patience), self.cut.clone());
        // Its end is the end of its connection at the latest, which resets it.
        tokio::spawn(async move {
            let _place = place;
            let supervised = Supervised { stream: Box::pin(stream), patience, given: 0, cut };
            GIVEN.scope(Cell::new(Given::default()), supervised).await;
        });
    }
}

/// A stream's place among those of its connection.
struct Place(Arc<Traffic>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.idle_since.store(millis(clock::now()), Ordering::Relaxed);
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a stream's body has given to the connection.
#[derive(Clone, Copy, Default)]
struct Given {
    /// How many pieces.
    pieces: u64,
    /// Whether it was asked for no more since: then the client is waited for, and not the upstream.
    is_last_word: bool,
}

tokio::task_local! {
    /// The stream of this task. Its body and its supervisor are far apart in hyper's own future and
    /// meet here.
    static GIVEN: Cell<Given>;
}

/// A stream that is dropped, and so reset, when its client takes nothing of it for too long.
struct Supervised<F> {
    stream: Pin<Box<F>>,
    patience: Patience,
    /// How many pieces its body had given when the clock began to run.
    given: u64,
    cut: Counter,
}

impl<F: Future<Output = ()>> Future for Supervised<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.stream.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let given = GIVEN.with(Cell::get);
        if !given.is_last_word || given.pieces != self.given {
            self.given = given.pieces;
            self.patience.rest();
        }
        if given.is_last_word {
            ready!(self.patience.poll(context));
            self.cut.increment(1);
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

/// A body that tells the supervisor of its stream what it gives, in pieces small enough to count as
/// progress.
pub(super) struct Told<B> {
    body: B,
    rest: Bytes,
}

impl<B> Told<B> {
    /// Tells of what `body` gives.
    pub(super) fn new(body: B) -> Self {
        Self { body, rest: Bytes::new() }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Told<B> {
    fn poll_piece(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if self.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            match frame.into_data() {
                Ok(bytes) => self.rest = bytes,
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            }
        }
        let length = self.rest.len().min(PIECE_BYTES_MAX);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }
}

impl<B: Cut> Cut for Told<B> {
    fn cut(&mut self) {
        self.body.cut();
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Told<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = self.poll_piece(context);
        // Without a stream around it there is nobody to tell.
        let _ = GIVEN.try_with(|cell| {
            let mut given = cell.get();
            given.is_last_word = matches!(polled, Poll::Ready(Some(Ok(_))));
            given.pieces += u64::from(given.is_last_word);
            cell.set(given);
        });
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, mut hint) = (self.rest.len() as u64, self.body.size_hint());
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(hint.lower().saturating_add(rest));
        hint
    }
}

fn millis(period: Duration) -> u64 {
    u64::try_from(period.as_millis()).unwrap_or(u64::MAX)
}
