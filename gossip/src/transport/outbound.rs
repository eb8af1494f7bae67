//! Sends the frames of one peer: one task, one queue, one connection.
//!
//! # Invariants
//! - A frame that cannot be sent now is dropped: gossip repeats what it held, and old gossip helps
//!   nobody.
//! - A peer that does not answer is dialled again after a pause that doubles up to
//!   [`PAUSE_MAX`]; a connection that the peer itself opens is used at once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::Connection;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tracing::debug;

use super::{CODE_GONE, Net, Outgoing, inbound, locked};
use crate::stats;

/// A queue that is not used for this long is removed.
const UNUSED_MAX: Duration = Duration::from_secs(60);

/// How long a frame may wait for a stream, for room, and for its acknowledgement, each.
const SEND_MAX: Duration = Duration::from_secs(2);

/// The pause after the first failed dial, and the least time between two dials.
const PAUSE_MIN: Duration = Duration::from_millis(200);

/// The longest pause between two dials.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// What the client side calls the server. Any name would do: the certificate's is read afterwards.
const SERVER_NAME: &str = "quorumgate.invalid";

/// Sends what is queued for the address until the net ends or the queue is not used any more.
pub(super) async fn run(net: Arc<Net>, address: SocketAddr, mut queue: mpsc::Receiver<Outgoing>) {
    let mut dialler = Dialler { failures: 0, not_before: Instant::now() };
    // At most as many as the peer lets streams be open.
    let mut unacknowledged = JoinSet::new();
    loop {
        let frame = match timeout(UNUSED_MAX, queue.recv()).await {
            Ok(Some(frame)) => frame,
            Ok(None) => return,
            Err(_) if net.retire(address, &queue) => return,
            Err(_) => continue,
        };
        while unacknowledged.try_join_next().is_some() {}
        let connection = match net.connection(address) {
            Some(connection) => Some(connection),
            None => dialler.dial(&net, address).await,
        };
        let is_sent = match connection {
            Some(connection) => deliver(&net, &connection, frame, &mut unacknowledged).await,
            None => false,
        };
        if !is_sent {
            stats::add(&net.stats.send_queue_drops, 1);
        }
    }
}

/// Writes the frame. A connection that takes none is closed, so that the next frame dials anew.
async fn deliver(
    net: &Net,
    connection: &Connection,
    frame: Outgoing,
    unacknowledged: &mut JoinSet<()>,
) -> bool {
    let write = async {
        let mut stream = connection.open_uni().await.ok()?;
        stream.write_all(&frame.bytes).await.ok()?;
        stream.finish().ok()?;
        Some(stream)
    };
    let Ok(written) = timeout(SEND_MAX, write).await else {
        debug!(to = %connection.remote_address(), "a connection takes no frames");
        connection.close(CODE_GONE, b"stuck");
        return false;
    };
    let Some(stream) = written else {
        return false;
    };
    stats::add(&net.stats.frames_out, 1);
    stats::add(&net.stats.bytes_out, frame.bytes.len());
    unacknowledged.spawn(async move {
        let _ = timeout(SEND_MAX, stream.stopped()).await;
        drop(frame);
    });
    true
}

struct Dialler {
    failures: u32,
    not_before: Instant,
}

impl Dialler {
    /// Connects, unless it is too early after the last time.
    async fn dial(&mut self, net: &Arc<Net>, address: SocketAddr) -> Option<Connection> {
        if Instant::now() < self.not_before {
            return None;
        }
        let era = net.era();
        let client = locked(&net.client).clone();
        let shaken = match net.endpoint.connect_with(client, address, SERVER_NAME) {
            Ok(connecting) => inbound::shake(net, connecting, era)
                .await
                .inspect_err(|why| net.troubles.tell(address, why))
                .ok(),
            Err(error) => {
                debug!(%address, %error, "an address cannot be dialled");
                None
            }
        };
        self.failures = match &shaken {
            Some(_) => 0,
            None => self.failures.saturating_add(1),
        };
        self.not_before = Instant::now() + pause(self.failures);
        let linked = shaken?;
        let connection = linked.connection.clone();
        // The peer may answer on it.
        net.spawn(inbound::serve(Arc::clone(net), linked));
        Some(connection)
    }
}

/// Doubles with each failure, and is stretched by up to a quarter so that nodes that lost the same
/// peer do not dial it in step.
fn pause(failures: u32) -> Duration {
    let doubled = PAUSE_MIN.saturating_mul(1 << failures.saturating_sub(1).min(10));
    doubled.min(PAUSE_MAX).mul_f64(1.0 + fastrand::f64() / 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_grows_and_is_capped() {
        for failures in 0..2 {
            assert!((PAUSE_MIN..=PAUSE_MIN.mul_f64(1.25)).contains(&pause(failures)));
        }
        for failures in [6, 7, 40, u32::MAX] {
            assert!((PAUSE_MAX..=PAUSE_MAX.mul_f64(1.25)).contains(&pause(failures)));
        }
    }
}
