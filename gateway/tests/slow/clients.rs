//! Clients that take their time, each in its own way, until they are let go.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::process::{PATIENCE, chat_body};

/// What the kernel takes for a client that does not read, in bytes; it doubles this.
const RECEIVED_MAX: u32 = 4 * 1024;
/// Bytes of a client that drips come so often.
const DRIP: Duration = Duration::from_millis(250);

/// What such a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It says nothing at all.
    Silent,
    /// It says its request byte by byte.
    Head,
    /// It says its body byte by byte.
    Body,
    /// It does not read what it has asked for.
    Reader,
    /// It speaks HTTP/2 and asks nothing.
    Http2,
}

impl Kind {
    /// All of them.
    pub(crate) const ALL: [Self; 5] =
        [Self::Silent, Self::Head, Self::Body, Self::Reader, Self::Http2];

    fn first_words(self) -> String {
        let chat = "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length";
        match self {
            Self::Silent => String::new(),
            Self::Head => "POST /v1/chat/comp".to_owned(),
            Self::Body => format!("{chat}: 100000\r\n\r\n{{\"model\":\"m\""),
            Self::Reader => {
                let body = chat_body(true);
                format!("{chat}: {}\r\n\r\n{body}", body.len())
            }
            Self::Http2 => "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0\0\0\0\0".to_owned(),
        }
    }

    /// Comes, and stays until it is let go: how long that took.
    pub(crate) async fn visit(self, gateway: SocketAddr) -> Duration {
        let socket = TcpSocket::new_v4().unwrap();
        if self == Self::Reader {
            socket.set_recv_buffer_size(RECEIVED_MAX).unwrap();
        }
        let mut stream = socket.connect(gateway).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let began = Instant::now();
        stream.write_all(self.first_words().as_bytes()).await.unwrap();
        let stays = async {
            match self {
                Self::Silent | Self::Http2 => reads(&mut stream).await,
                Self::Head | Self::Body => drips(&mut stream).await,
                Self::Reader => pokes(&stream).await,
            }
        };
        let is_gone = tokio::time::timeout(PATIENCE, stays).await;
        assert!(is_gone.is_ok(), "a client is still there: {self:?}");
        began.elapsed()
    }
}

/// Reads until the end.
async fn reads(stream: &mut TcpStream) {
    let mut piece = [0; 1024];
    while !matches!(stream.read(&mut piece).await, Ok(0) | Err(_)) {}
}

/// Reads nothing and says a byte from time to time, until there is nobody to hear it: a reset that comes
/// behind what was not read is none to a kernel, which asks at the next byte.
async fn pokes(stream: &TcpStream) {
    while !matches!(stream.try_write(b"G"), Err(error) if error.kind() != ErrorKind::WouldBlock) {
        tokio::time::sleep(DRIP).await;
    }
}

/// Reads until the end and says a byte from time to time.
async fn drips(stream: &mut TcpStream) {
    let (mut reads, mut writes) = stream.split();
    let reading = async {
        let mut piece = [0; 1024];
        while !matches!(reads.read(&mut piece).await, Ok(0) | Err(_)) {}
    };
    let writing = async {
        loop {
            tokio::time::sleep(DRIP).await;
            if writes.write_all(b"y").await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        () = reading => {}
        () = writing => {}
    }
}
