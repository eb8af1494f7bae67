//! The body of a request as it goes out: one piece, or a few that lie in different places.
//!
//! A long body in which a word is replaced is not copied for it: what stands before and behind is lent
//! from where it is held, so that a body takes its memory once, however often it is tried.
//!
//! Invariant: its length is known, and stated.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// A body that goes out.
#[derive(Clone, Debug, Default)]
pub struct Parcel {
    /// What comes next; `None`: everything has gone.
    next: Option<Bytes>,
    /// What comes after that, the last first. Without memory of its own where nothing does.
    later: Vec<Bytes>,
}

impl From<Bytes> for Parcel {
    fn from(whole: Bytes) -> Self {
        Self { next: Some(whole).filter(|whole| !whole.is_empty()), later: Vec::new() }
    }
}

impl Parcel {
    /// These pieces one behind the other.
    pub fn of(pieces: impl DoubleEndedIterator<Item = Bytes>) -> Self {
        let mut later: Vec<Bytes> = pieces.filter(|piece| !piece.is_empty()).rev().collect();
        Self { next: later.pop(), later }
    }

    fn remaining(&self) -> u64 {
        self.next.iter().chain(&self.later).map(|piece| piece.len() as u64).sum()
    }

    /// All of it in one piece.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn whole(&self) -> Bytes {
        let pieces: Vec<Bytes> = self.next.iter().chain(self.later.iter().rev()).cloned().collect();
        Bytes::from(pieces.concat())
    }
}

impl Body for Parcel {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.next.take();
        self.next = self.later.pop();
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.next.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining())
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn pieces_go_out_in_their_order_and_their_length_is_known() {
        let pieces = ["a", "", "bc", "d", ""].map(|piece| Bytes::from_static(piece.as_bytes()));
        let mut parcel = Parcel::of(pieces.into_iter());
        for (piece, left) in [("a", 4), ("bc", 3), ("d", 1)] {
            assert_eq!((parcel.remaining(), parcel.is_end_stream()), (left, false));
            let frame = parcel.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), piece);
        }
        assert!(parcel.is_end_stream() && parcel.frame().await.is_none());
    }

    #[tokio::test]
    async fn nothing_is_at_its_end_at_once() {
        let nothing =
            [Parcel::default(), Parcel::from(Bytes::new()), Parcel::of(std::iter::empty())];
        for mut parcel in nothing {
            assert_eq!((parcel.is_end_stream(), parcel.size_hint().exact()), (true, Some(0)));
            assert!(parcel.frame().await.is_none());
        }
    }
}
