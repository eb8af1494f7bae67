//! A connected socket, in the clear or over TLS, that says when bytes came.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::pulse::Pulse;
use crate::handles::Taken;

/// What bytes go over.
pub(super) enum Stream {
    /// TCP as it is.
    Clear(TcpStream),
    /// TLS over TCP.
    Tls(Box<TlsStream<TcpStream>>),
}

/// A stream with its pulse.
pub(super) struct Socket {
    stream: Stream,
    pub(super) pulse: Arc<Pulse>,
    /// Given back when the connection is closed.
    _right: Taken,
}

impl Socket {
    /// A connection that is there by this right.
    pub(super) fn new(stream: Stream, right: Taken) -> Self {
        Self { stream, pulse: Pulse::new(), _right: right }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let is_to_look = self.pulse.is_to_look();
        let read = match &mut self.stream {
            Stream::Clear(tcp) => match Pin::new(&mut *tcp).poll_read(context, buffer) {
                Poll::Pending if is_to_look => look(tcp),
                read => read,
            },
            // What the runtime knows of was read just now. A waiting byte may be a ticket all the same;
            // that costs a connection, and trust in it could cost an answer.
            Stream::Tls(tls) => match Pin::new(tls.as_mut()).poll_read(context, buffer) {
                Poll::Pending if is_to_look => look(tls.get_ref().0),
                read => read,
            },
        };
        if buffer.filled().len() > before {
            self.pulse.note_read();
        }
        read
    }
}

/// Asks the kernel about a connection on which nothing is due.
fn look(tcp: &TcpStream) -> Poll<io::Result<()>> {
    match SockRef::from(tcp).peek(&mut [MaybeUninit::uninit()]) {
        Ok(0) => Poll::Ready(Ok(())),
        Ok(_) => Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        Err(error) => Poll::Ready(Err(error)),
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Clear(tcp) => Pin::new(tcp).poll_write(context, bytes),
            Stream::Tls(tls) => Pin::new(tls.as_mut()).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Clear(tcp) => Pin::new(tcp).poll_write_vectored(context, parts),
            Stream::Tls(tls) => Pin::new(tls.as_mut()).poll_write_vectored(context, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Clear(tcp) => tcp.is_write_vectored(),
            Stream::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Clear(tcp) => Pin::new(tcp).poll_flush(context),
            Stream::Tls(tls) => Pin::new(tls.as_mut()).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Clear(tcp) => Pin::new(tcp).poll_shutdown(context),
            Stream::Tls(tls) => Pin::new(tls.as_mut()).poll_shutdown(context),
        }
    }
}
