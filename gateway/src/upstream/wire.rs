//! One HTTP/1 connection, driven by whoever waits for its answer.
//!
//! There is no task of its own: the connection is polled inside the future that waits for the head and
//! inside the body, so that a piece of an answer costs one wake-up and passes no queue between tasks.
//!
//! Invariants: one request at a time; a wire that has ended is dropped with its socket; a wire at rest
//! holds nobody's waker.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::SendError;
use super::parcel::Parcel;
use super::pulse::Pulse;
use super::socket::Socket;
use crate::clock;

/// Largest response head; the buffer of a connection, too, which is what a client that does not read
/// costs most: twice this made 290 KiB of it, this makes 130.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Answers with a status below 200 that one request may get before its real one.
const INFORMATIONAL_MAX: u32 = 32;
/// Turns of polling before others get theirs.
const TURNS_MAX: usize = 16;

/// A connection, with what it takes to ask over it.
pub(super) struct Wire {
    sender: SendRequest<Parcel>,
    drive: Drive,
    /// When the connection was made.
    pub(super) born: Instant,
    /// Whether its last answer ended by its length alone, so that what came behind it is not seen by the
    /// one who reads it.
    pub(super) is_counted: bool,
}

/// What is polled for a connection to go on.
struct Drive {
    /// `None` once it has ended.
    connection: Option<Connection<TokioIo<Socket>, Parcel>>,
    pulse: Arc<Pulse>,
    waker: Waker,
}

/// A request that got no answer.
pub(super) struct Lost {
    /// What to say about it.
    pub(super) error: SendError,
    /// Whether not a byte of an answer came.
    pub(super) is_unanswered: bool,
    /// Whether it was not sent, or the other side said that it has not begun with it.
    pub(super) is_untouched: bool,
}

/// What an error of the library says about an answer.
fn meaning(error: &hyper::Error) -> SendError {
    if error.is_parse() {
        SendError::Malformed("what came is no answer of HTTP")
    } else {
        SendError::Broken
    }
}

impl Wire {
    /// Makes a connection of a socket.
    ///
    /// # Errors
    /// The connection has ended already.
    pub(super) async fn open(socket: Socket) -> Result<Self, hyper::Error> {
        let pulse = Arc::clone(&socket.pulse);
        let mut http = http1::Builder::new();
        http.max_buf_size(HEAD_BYTES_MAX).max_header_size(HEAD_BYTES_MAX);
        let (sender, connection) = http.handshake(TokioIo::new(socket)).await?;
        let waker = Waker::from(Arc::clone(&pulse));
        let drive = Drive { connection: Some(connection), pulse, waker };
        Ok(Self { sender, drive, born: clock::instant(), is_counted: false })
    }

    /// Sends a request and waits for the head of its answer.
    ///
    /// # Cancel safety
    /// Dropped, the wire has an answer under way and must be dropped too.
    pub(super) async fn ask(
        &mut self,
        mut request: Request<Parcel>,
    ) -> Result<Response<Incoming>, Lost> {
        let pulse = Arc::clone(&self.drive.pulse);
        let reads = pulse.expect();
        let counting = Arc::clone(&pulse);
        hyper::ext::on_informational(&mut request, move |_| counting.note_informational());
        let mut sent = std::pin::pin!(self.sender.try_send_request(request));
        let answered = poll_fn(|context| {
            let answered = self.drive.poll(context, |context| sent.as_mut().poll(context));
            let is_flooded = pulse.informational() > INFORMATIONAL_MAX;
            if is_flooded { Poll::Ready(None) } else { answered.map(Some) }
        });
        let answered = answered.await;
        let is_unanswered = pulse.reads() == reads;
        let lost = |error, is_untouched| Lost { error, is_unanswered, is_untouched };
        match answered {
            Some(Ok(response)) => {
                self.is_counted = response.body().size_hint().exact().is_some();
                Ok(response)
            }
            Some(Err(error)) => {
                // What comes back was never written.
                let is_untouched = error.message().is_some();
                let error = error.into_error();
                tracing::debug!(%error, "a request got no answer");
                Err(lost(meaning(&error), is_untouched))
            }
            None => Err(lost(SendError::Malformed("too many informational answers"), false)),
        }
    }

    /// Polls `goal`, something that comes over this connection, and the connection with it.
    pub(super) fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        goal: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.drive.poll(context, goal)
    }

    /// Puts the connection to rest. Returns whether it can be used again: its last answer has ended, and
    /// nothing came behind it.
    pub(super) fn rests(&mut self) -> bool {
        let Self { sender, drive, .. } = self;
        let is_ready = |_: &mut Context<'_>| {
            if sender.is_ready() { Poll::Ready(()) } else { Poll::Pending }
        };
        let mut context = Context::from_waker(Waker::noop());
        let is_ready = drive.poll(&mut context, is_ready).is_ready();
        is_ready && drive.connection.is_some()
    }

    /// Whether a connection that was at rest still stands, and nothing came that nobody asked for. In
    /// earnest, the socket itself is asked: what the runtime knows may be as old as its last wait.
    pub(super) fn is_sound(&mut self, in_earnest: bool) -> bool {
        if in_earnest {
            self.drive.pulse.ask_to_look();
        }
        self.rests()
    }
}

impl Drive {
    fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        mut goal: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.pulse.attach(context.waker());
        for _ in 0..TURNS_MAX {
            self.pulse.begin();
            let mut inner = Context::from_waker(&self.waker);
            let has_ended = match &mut self.connection {
                Some(connection) => Pin::new(connection).poll(&mut inner).is_ready(),
                None => false,
            };
            if has_ended {
                // Whoever still waits for something from it is told by the drop.
                self.connection = None;
            }
            let reached = goal(&mut inner);
            let is_due = self.pulse.end();
            if reached.is_ready() || !is_due {
                return reached;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
