//! A client of HTTP/2 that writes whatever frames it likes.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::local::soon;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// The error that says: this is not what was agreed on.
pub(crate) const PROTOCOL_ERROR: u32 = 1;
/// The error that says: too much of it.
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;
/// `:status: 200` as it is written by reference.
const OK: u8 = 0x88;

/// A frame as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// A frame as it is written.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Fields, each written out in full.
pub(crate) fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| {
        assert!(text.len() < 127);
        [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
    };
    fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

/// A connection on which settings were exchanged.
pub(crate) struct Wire<S = TcpStream>(pub(crate) S);

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Wire<S> {
    pub(crate) async fn over(stream: S) -> Self {
        Self::with(stream, &[]).await
    }

    /// With these settings, as they are written.
    pub(crate) async fn with(mut stream: S, settings: &[u8]) -> Self {
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, settings)).await.unwrap();
        Self(stream)
    }

    /// The next frame; `None`: the connection has ended.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        soon("a frame", self.patient()).await
    }

    /// The next frame, however long it takes.
    pub(crate) async fn patient(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; length as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        Some(Frame { kind: head[3], stream, payload })
    }

    /// What becomes of a stream: whether it is answered by 200, or by another status or not at all.
    pub(crate) async fn is_answered(&mut self, stream: u32) -> bool {
        while let Some(frame) = self.next().await {
            match frame.kind {
                HEADERS if frame.stream == stream => return frame.payload[0] == OK,
                RST_STREAM if frame.stream == stream => return false,
                GOAWAY => return false,
                _ => {}
            }
        }
        false
    }

    /// Writes all of it while everything that comes is read, until the other side ends the connection:
    /// the error by which it does.
    pub(crate) async fn floods(self, bytes: Vec<u8>) -> Option<u32> {
        let (mut reads, mut writes) = tokio::io::split(self.0);
        let written = tokio::spawn(async move {
            for piece in bytes.chunks(64 * 1024) {
                writes.write_all(piece).await?;
            }
            Ok::<_, std::io::Error>(writes)
        });
        let mut came = Vec::new();
        let _ = soon("the end of it", reads.read_to_end(&mut came)).await;
        // Until here this side was open.
        let _ = soon("the end of writing", written).await.unwrap();
        let (mut rest, mut error) = (&came[..], None);
        while rest.len() >= 9 {
            let length = u32::from_be_bytes([0, rest[0], rest[1], rest[2]]) as usize;
            if rest[3] == GOAWAY && rest.len() >= 17 {
                error = Some(u32::from_be_bytes([rest[13], rest[14], rest[15], rest[16]]));
            }
            rest = rest.get(9 + length..).unwrap_or_default();
        }
        error
    }
}
