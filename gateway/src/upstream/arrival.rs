//! The body of an upstream's answer, which owns the connection that it comes over.
//!
//! Invariants: a connection goes back to its pool only when the answer has ended in good order and
//! nothing came behind it; an answer that is let go of in the middle takes its connection along; an
//! answer has ended only if the other side has said so.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::http2::Place;
use super::pool::Lane;
use super::wire::Wire;

/// What is read of an answer that nobody wants any more if that saves its connection.
const REST_BYTES_MAX: usize = 16 * 1024;
/// In how many pieces.
const REST_PIECES_MAX: usize = 4;
/// How long the rest of a refusal is waited for.
const REST_TIME_MAX: Duration = Duration::from_secs(1);

/// A body on its way.
pub struct Arrival {
    body: Incoming,
    /// `None` once the connection was given back or given up.
    way: Option<Way>,
}

/// What the body comes over.
pub(super) enum Way {
    /// A connection of its own, and where it is to go.
    Own(Box<Wire>, Arc<Lane>),
    /// A connection of its own that nobody is to use again.
    Last(Box<Wire>),
    /// A place on a shared one.
    Shared(#[expect(dead_code, reason = "held for its drop")] Place),
}

/// Why an answer has no good end.
#[derive(Debug, thiserror::Error)]
pub enum ArrivalError {
    /// The connection or the stream failed, or what came is no HTTP.
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// The stream was ended before the answer was.
    #[error("the stream was reset before the end of the answer")]
    Reset,
}

impl Arrival {
    pub(super) fn new(body: Incoming, way: Way) -> Self {
        Self { body, way: Some(way) }
    }

    /// Lets go of an answer whose content is complete: its end is waited for at most `period`, so that
    /// the connection can be used again. Further content is nobody's, and the end of the connection.
    pub fn linger(mut self, period: Duration) {
        let mut context = Context::from_waker(Waker::noop());
        match self.poll_end(&mut context) {
            Poll::Ready(()) => {}
            Poll::Pending => {
                tokio::spawn(tokio::time::timeout(period, async move {
                    std::future::poll_fn(|context| self.poll_end(context)).await;
                }));
            }
        }
    }

    /// Lets go of an answer that nobody is to read, a refusal say. If the little that is left of it comes
    /// soon, its connection can be used again.
    pub fn dismiss(mut self) {
        let mut left = REST_BYTES_MAX;
        let mut context = Context::from_waker(Waker::noop());
        let is_own = matches!(self.way, Some(Way::Own(..)));
        if is_own && self.poll_rest(&mut context, &mut left).is_pending() {
            tokio::spawn(tokio::time::timeout(REST_TIME_MAX, async move {
                std::future::poll_fn(|context| self.poll_rest(context, &mut left)).await;
                // What is more than a little is nobody's.
                self.abandon();
            }));
        }
    }

    /// Waits for the end, or for more than what is `left` to be read.
    fn poll_rest(&mut self, context: &mut Context<'_>, left: &mut usize) -> Poll<()> {
        loop {
            match ready!(Pin::new(&mut *self).poll_frame(context)) {
                Some(Ok(frame)) => match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                    Some(less) => *left = less,
                    None => return Poll::Ready(()),
                },
                Some(Err(_)) | None => return Poll::Ready(()),
            }
        }
    }

    /// Lets go of an answer and of its connection, which nobody is to use again.
    pub fn abandon(mut self) {
        self.way = None;
    }

    /// Waits for the end, or for what must not come before it.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            match ready!(Pin::new(&mut *self).poll_frame(context)) {
                Some(Ok(frame)) if frame.data_ref().is_some_and(|data| !data.is_empty()) => {
                    self.way = None;
                    return Poll::Ready(());
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Poll::Ready(()),
            }
        }
    }

    fn give_back(&mut self) {
        match self.way.take() {
            Some(Way::Own(mut wire, lane)) => {
                if wire.rests() {
                    lane.keep(wire);
                }
            }
            Some(Way::Last(_) | Way::Shared(_)) | None => {}
        }
    }
}

impl Body for Arrival {
    type Data = Bytes;
    type Error = ArrivalError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ArrivalError>>> {
        let Self { body, way, .. } = &mut *self;
        let frame = match way {
            Some(Way::Own(wire, _) | Way::Last(wire)) => {
                ready!(wire.poll(context, |context| Pin::new(&mut *body).poll_frame(context)))
            }
            Some(Way::Shared(_)) => match ready!(Pin::new(&mut *body).poll_frame(context)) {
                // The library takes a reset that gives no error, or says CANCEL, for an end.
                None if !body.is_end_stream() => {
                    self.way = None;
                    return Poll::Ready(Some(Err(ArrivalError::Reset)));
                }
                frame => frame,
            },
            None => ready!(Pin::new(body).poll_frame(context)),
        };
        let frame = frame.map(|frame| frame.map_err(ArrivalError::Http));
        match &frame {
            Some(Ok(_)) => {}
            Some(Err(_)) => self.way = None,
            None => self.give_back(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        // A short answer that is all there, a refusal say, need not cost its connection.
        let (mut bytes, mut pieces) = (0, 0);
        let mut context = Context::from_waker(Waker::noop());
        while matches!(self.way, Some(Way::Own(..)))
            && bytes <= REST_BYTES_MAX
            && pieces < REST_PIECES_MAX
        {
            match Pin::new(&mut *self).poll_frame(&mut context) {
                Poll::Ready(Some(Ok(frame))) => {
                    bytes += frame.data_ref().map_or(0, Bytes::len);
                    pieces += 1;
                }
                Poll::Ready(Some(Err(_)) | None) | Poll::Pending => return,
            }
        }
    }
}
