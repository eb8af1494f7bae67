//! One who follows the events: a place in the ring, and the body of the answer made of it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::Events;

/// So often a comment is sent while nothing happens, so that both ends see that the other is there.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// A comment, which every reader of server-sent events passes over.
const COMMENT: &[u8] = b": still here\n\n";
/// The first line, so that the head of the answer goes out at once.
const GREETING: &str = ": what happens follows\n";

/// A place in the ring of events. Dropping it gives its seat back.
pub struct Follower {
    events: Arc<Events>,
    next: u64,
    /// Where it ends; `None`: never.
    end: Option<u64>,
    has_gap: bool,
    is_greeted: bool,
    latest: watch::Receiver<u64>,
    _seat: OwnedSemaphorePermit,
}

impl Follower {
    pub(super) fn new(
        events: &Arc<Events>,
        seat: OwnedSemaphorePermit,
        next: u64,
        end: Option<u64>,
        has_gap: bool,
    ) -> Self {
        let latest = events.latest.subscribe();
        let events = Arc::clone(events);
        Self { events, next, end, has_gap, is_greeted: false, latest, _seat: seat }
    }

    /// The next bytes, when there are some; `None` at the end.
    ///
    /// # Cancel safety
    /// A follower whose call is dropped is gone with it.
    pub async fn next(mut self) -> Option<(Bytes, Self)> {
        if !self.is_greeted {
            self.is_greeted = true;
            return Some((self.greeting(), self));
        }
        loop {
            self.latest.mark_unchanged();
            let (piece, next) = self.events.piece(self.next, self.end, self.has_gap);
            (self.next, self.has_gap) = (next, false);
            if !piece.is_empty() {
                return Some((piece, self));
            }
            if self.end.is_some_and(|end| self.next >= end) {
                return None;
            }
            tokio::select! {
                // The sender lives as long as the events, which are held here.
                _ = self.latest.changed() => {}
                () = tokio::time::sleep(HEARTBEAT) => {
                    return Some((Bytes::from_static(COMMENT), self));
                }
            }
        }
    }
}

impl Follower {
    /// An id without an event: the place to read on from if the connection breaks before the first
    /// event. Where there is a gap to be told, the place that the reader has is the better one.
    fn greeting(&self) -> Bytes {
        let id = match self.has_gap {
            true => String::new(),
            false => format!("id: {}\n", self.events.id(self.next.saturating_sub(1))),
        };
        Bytes::from(format!("{GREETING}{id}\n"))
    }
}

type Next = Pin<Box<dyn Future<Output = Option<(Bytes, Follower)>> + Send>>;

/// The body of an answer that goes on as long as its follower.
pub struct Feed {
    /// `None` after the end.
    next: Option<Next>,
}

impl Feed {
    /// The body made of a follower.
    pub fn new(follower: Follower) -> Self {
        Self { next: Some(Box::pin(follower.next())) }
    }
}

impl Body for Feed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(next) = &mut self.next else { return Poll::Ready(None) };
        let more = ready!(next.as_mut().poll(context));
        let (bytes, rest) = more.unzip();
        self.next = rest.map(|follower| -> Next { Box::pin(follower.next()) });
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
