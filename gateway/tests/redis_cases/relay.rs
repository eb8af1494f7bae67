//! The way to a Redis, which can be led elsewhere, and on which answers can be held back.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

/// Where it leads, and how long each piece of an answer is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    port: u16,
    held: Option<Duration>,
}

/// A port that leads to another.
pub(crate) struct Relay {
    port: u16,
    way: watch::Sender<Way>,
}

impl Relay {
    /// Opens a way to a port of this machine.
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = listener.local_addr().unwrap().port();
        let (way, ways) = watch::channel(Way { port, held: None });
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(forward(stream, ways.clone()));
            }
        });
        Self { port: near, way }
    }

    /// How it is written in a configuration.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Leads elsewhere from here on; connections that stand are closed.
    pub(crate) fn leads(&self, port: u16) {
        self.way.send_modify(|way| way.port = port);
    }

    /// Holds answers back from here on, on connections that stand as well. When it no longer does,
    /// connections that held something are closed.
    pub(crate) fn holds(&self, held: Option<Duration>) {
        self.way.send_modify(|way| way.held = held);
    }
}

async fn forward(near: TcpStream, mut ways: watch::Receiver<Way>) {
    let port = ways.borrow().port;
    let Ok(far) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let (mut near_read, mut near_write) = near.into_split();
    let (mut far_read, mut far_write) = far.into_split();
    let mut holding = ways.clone();
    let answers = async {
        let mut piece = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = far_read.read(&mut piece).await {
            let held = holding.borrow().held;
            if let Some(held) = held {
                tokio::select! {
                    () = sleep(held) => {}
                    _ = holding.wait_for(|way| way.held.is_none()) => return,
                }
            }
            if near_write.write_all(&piece[..length]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = answers => {}
        _ = tokio::io::copy(&mut near_read, &mut far_write) => {}
        _ = ways.wait_for(|way| way.port != port) => {}
    }
}
