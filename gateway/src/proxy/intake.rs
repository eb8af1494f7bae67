//! The body of a request as it comes in, which tells whether it was read to its end.
//!
//! An answer to chunks that nobody has read is the last of its connection, even if all of them are
//! there, and its client is to be told so; only who reads them knows how far that went.
//!
//! Invariant: an end is told only once the last chunk and its trailers were read.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// A body that comes in.
#[derive(Debug)]
pub struct Intake {
    body: Incoming,
    /// Where its end is told, if anybody asks.
    is_read: Option<Arc<AtomicBool>>,
}

impl Intake {
    /// Tells by `is_read`, if somebody asks, that `body` was read to its end.
    pub(crate) fn new(body: Incoming, is_read: Option<Arc<AtomicBool>>) -> Self {
        Self { body, is_read }
    }
}

impl Body for Intake {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None))
            && let Some(is_read) = &self.is_read
        {
            is_read.store(true, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
