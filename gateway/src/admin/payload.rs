//! The body of an answer: whole, or a feed of what happens.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};

use crate::events::Feed;
use crate::proxy::Cut;

/// The body of an answer.
pub(super) enum Payload {
    /// All of it.
    Whole(Full<Bytes>),
    /// What happens, as it happens.
    Feed(Feed),
}

impl Cut for Payload {
    /// What is whole is given, and a feed breaks off wherever it is: whoever follows comes again.
    fn cut(&mut self) {}
}

impl Body for Payload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body).poll_frame(context),
            Self::Feed(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Feed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Feed(body) => body.size_hint(),
        }
    }
}
