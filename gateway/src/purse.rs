//! A connection of HTTP/2 whose frames are counted before hyper reads them.
//!
//! h2 bounds what the other side makes it keep, but not what it makes it do: pings, settings, priorities,
//! resets of streams that have begun, windows that open by a byte, and frames that nobody knows are read
//! and answered for as long as they come. Here each of them costs one from a purse, which time fills and
//! what is written: whoever is spoken to has a use for such frames, whoever only sends them has not. Once
//! the purse is empty h2 reads, in the place of what follows, a head that never ends ([`ENDLESS_HEAD`]),
//! and ends the connection by GOAWAY with ENHANCE_YOUR_CALM.
//!
//! Frames that carry requests or answers cost nothing: h2 and the gateway have bounds for those.
//!
//! Invariants: every byte passes once and in order, none passes behind the frame that was too much;
//! nothing is held but the nine bytes that begin a frame; no clock is read while there is something in
//! the purse.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use metrics::Counter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::clock;

/// How a client begins.
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// What a purse holds: as many streams as a connection may have can be opened and reset ten times over
/// before anything is written.
const PURSE: u64 = 1_000;
/// What time puts into it each second.
const FILLS_BY: u64 = 100;
/// So many bytes written to the other side put one into it. An answer to a ping is 17 and one to settings 9:
/// they do not pay for what asked for them. An event of a stream is 100 or more, and its client may open
/// two windows for it.
const BYTES_FOR_ONE: u64 = 32;

/// What begins a frame.
const FRAME_HEAD_BYTES: usize = 9;
/// DATA and HEADERS, the frames that carry requests.
const KIND_FREE_MAX: u8 = 1;

/// HEADERS without an end, and more CONTINUATION without one than h2 puts up with: five.
const ENDLESS_HEAD: &[u8; 63] = b"\0\0\0\x01\0\x7f\xff\xff\xff\
    \0\0\0\x09\0\x7f\xff\xff\xff\0\0\0\x09\0\x7f\xff\xff\xff\0\0\0\x09\0\x7f\xff\xff\xff\
    \0\0\0\x09\0\x7f\xff\xff\xff\0\0\0\x09\0\x7f\xff\xff\xff\0\0\0\x09\0\x7f\xff\xff\xff";

/// A connection that pays for its frames.
pub(crate) struct Purse<T> {
    io: T,
    /// So many bytes are left of the preface, or of the frame that is coming.
    rest: usize,
    /// What has come of a frame's beginning.
    head: [u8; FRAME_HEAD_BYTES],
    head_bytes: usize,
    left: u64,
    /// When it was filled, and how much was written since.
    filled_at: Duration,
    written: u64,
    /// How much of [`ENDLESS_HEAD`] was read, once the purse is empty.
    ending: Option<usize>,
    floods: Counter,
}

impl<T> Purse<T> {
    /// A full purse for a client, whose preface is still to be read. Counts in `floods` if it gets empty.
    pub(crate) fn of_client(io: T, floods: Counter) -> Self {
        Self { rest: PREFACE.len(), floods, ..Self::of_server(io) }
    }

    /// The same for a server, who begins with a frame.
    pub(crate) fn of_server(io: T) -> Self {
        Self {
            io,
            rest: 0,
            head: [0; FRAME_HEAD_BYTES],
            head_bytes: 0,
            left: PURSE,
            filled_at: clock::now(),
            written: 0,
            ending: None,
            floods: Counter::noop(),
        }
    }

    /// Counts the frames in what came. Returns how much of it may pass.
    fn count(&mut self, came: &[u8]) -> usize {
        let mut at = 0;
        while at < came.len() {
            if self.rest > 0 {
                let passed = self.rest.min(came.len() - at);
                self.rest -= passed;
                at += passed;
                continue;
            }
            // What is too much is let through to its end: h2 must not be left in the middle of it.
            if self.is_empty() {
                return at;
            }
            let wanted = (FRAME_HEAD_BYTES - self.head_bytes).min(came.len() - at);
            let (from, to) = (self.head_bytes, self.head_bytes + wanted);
            if let (Some(head), Some(came)) =
                (self.head.get_mut(from..to), came.get(at..at + wanted))
            {
                head.copy_from_slice(came);
            }
            (self.head_bytes, at) = (to, at + wanted);
            if self.head_bytes == FRAME_HEAD_BYTES {
                self.begins();
            }
        }
        at
    }

    /// A frame begins.
    fn begins(&mut self) {
        let [high, middle, low, kind, ..] = self.head;
        self.rest = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        self.head_bytes = 0;
        if kind > KIND_FREE_MAX {
            if self.left == 0 {
                self.fill();
            }
            match self.left.checked_sub(1) {
                Some(left) => self.left = left,
                None => self.ending = Some(0),
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.ending.is_some()
    }

    /// Puts in what time and the answers have earned.
    fn fill(&mut self) {
        let now = clock::now();
        let passed = now.saturating_sub(self.filled_at).as_millis();
        let by_time = u64::try_from(passed).unwrap_or(PURSE).saturating_mul(FILLS_BY) / 1_000;
        let earned = by_time.saturating_add(self.written / BYTES_FOR_ONE);
        if earned > 0 {
            self.left = earned.min(PURSE);
            (self.filled_at, self.written) = (now, 0);
        }
    }

    fn wrote(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.written = self.written.saturating_add(bytes as u64);
        }
        written
    }

    /// Gives what stands for everything that still comes; then it is as if the other side had.
    fn end(&mut self, given: usize, buffer: &mut ReadBuf<'_>) {
        let rest = ENDLESS_HEAD.get(given..).unwrap_or_default();
        let bytes = rest.get(..buffer.remaining()).unwrap_or(rest);
        buffer.put_slice(bytes);
        self.ending = Some(given + bytes.len());
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Purse<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = &mut *self;
        if let (Some(given), 0) = (me.ending, me.rest) {
            me.end(given, buffer);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut me.io).poll_read(context, buffer))?;
        let passed = me.count(buffer.filled().get(before..).unwrap_or_default());
        if let (Some(given), 0) = (me.ending, me.rest) {
            me.floods.increment(1);
            tracing::debug!("too many frames came that ask for nothing");
            buffer.set_filled(before + passed);
            me.end(given, buffer);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Purse<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, bytes);
        self.wrote(written)
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

#[cfg(test)]
mod tests;
