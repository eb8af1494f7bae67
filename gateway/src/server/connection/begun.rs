//! A connection whose first bytes were looked at to tell what is spoken, and are read all the same.
//!
//! Invariant: whoever reads it gets every byte once and in order.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::PREFACE;

/// The bytes that came first.
pub(super) struct First {
    pub(super) bytes: [u8; PREFACE.len()],
    pub(super) from: u8,
    pub(super) to: u8,
}

impl First {
    /// Those that nobody has read yet.
    pub(super) fn unread(&self) -> &[u8] {
        self.bytes.get(usize::from(self.from)..usize::from(self.to)).unwrap_or_default()
    }
}

/// A connection whose first bytes were looked at: whoever reads it gets them all the same.
pub(super) struct Begun<T> {
    pub(super) first: First,
    /// When the first of them came, if it was not enough to tell.
    pub(super) since: Option<Instant>,
    pub(super) io: T,
}

impl<T: AsyncRead + Unpin> AsyncRead for Begun<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let unread = self.first.unread();
        if unread.is_empty() {
            return Pin::new(&mut self.io).poll_read(context, buffer);
        }
        let length = unread.len().min(buffer.remaining());
        buffer.put_slice(unread.get(..length).unwrap_or_default());
        self.first.from += u8::try_from(length).unwrap_or(u8::MAX);
        // What follows is most often there already; apart from it hyper would make its buffer larger.
        // If nothing is, or the end, the next read says so again.
        if buffer.remaining() > 0 {
            let _ = Pin::new(&mut self.io).poll_read(context, buffer);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Begun<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
