//! A relay to a server that holds some pieces back, some of them for longer than a caller waits.
//!
//! What a caller gave up on arrives all the same, and is done: that is what the checker is to see.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// How a wire holds pieces back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delays {
    /// One piece of this many is held back for a little while.
    pub(crate) one_of: u32,
    /// The longest of these.
    pub(crate) longest: Duration,
    /// One piece of this many is held back for longer than a caller waits.
    pub(crate) lost_one_of: u32,
    /// For how long.
    pub(crate) lost: Duration,
}

/// Opens a wire to `server`; where to connect.
pub(crate) async fn wire(server: SocketAddr, delays: Delays, seed: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let Ok(far) = TcpStream::connect(server).await else { continue };
            let (near_read, near_write) = near.into_split();
            let (far_read, far_write) = far.into_split();
            tokio::spawn(carry(near_read, far_write, delays, random.fork()));
            tokio::spawn(carry(far_read, near_write, delays, random.fork()));
        }
    });
    address
}

async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    delays: Delays,
    mut random: fastrand::Rng,
) {
    let mut piece = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut piece).await {
        if random.u32(0..delays.lost_one_of) == 0 {
            tokio::time::sleep(delays.lost).await;
        } else if random.u32(0..delays.one_of) == 0 {
            tokio::time::sleep(delays.longest.mul_f64(random.f64())).await;
        }
        if to.write_all(&piece[..length]).await.is_err() {
            return;
        }
    }
}
