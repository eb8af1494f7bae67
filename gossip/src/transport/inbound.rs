//! Takes connections and the frames on them.
//!
//! A connection is one task that reads one stream after the other, so that what a peer makes this
//! node hold is one frame. A stranger holds nothing but a place among the handshakes, and must
//! show that it owns its address when these get scarce.
//!
//! # Invariants
//! - The loop that takes connections never waits for one of them.
//! - A frame passes the rate, the size and the vet, in this order, before it is decoded.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chitchat::{ChitchatMessage, Deserializable};
use quinn::{Connecting, Connection, Incoming, ReadToEndError, RecvStream, VarInt};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::trouble::Unlinked;
use super::{
    CODE_GONE, CONNECTIONS_MAX, FRAME_BYTES_MAX, INCOMING_MAX, KIND_GOSSIP, KIND_PUSH, Net,
    canonical, locked,
};
use crate::Tls;
use crate::codec;
use crate::stats::{self, Reject};
use crate::tls;

/// How long a handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(3);

/// How long one frame may take from its first byte to its last.
const FRAME_MAX: Duration = Duration::from_secs(5);

/// After this long without a frame, a connection that another one has replaced is closed. Both
/// sides dial at the same moment now and then, and keep-alives would hold both connections.
const SPARE_MAX: Duration = Duration::from_secs(30);

/// With fewer places left than this, strangers must show that they own their address.
const RETRY_BELOW: usize = INCOMING_MAX * 7 / 8;

/// Told to a peer whose certificate names nobody, or this node.
const CODE_NAMELESS: VarInt = VarInt::from_u32(2);

/// Takes connections until the port is closed.
pub(super) async fn accept(net: Arc<Net>) {
    while let Some(incoming) = net.endpoint.accept().await {
        admit(&net, incoming);
    }
}

fn admit(net: &Arc<Net>, incoming: Incoming) {
    let permit = Arc::clone(&net.handshakes).try_acquire_owned();
    let (Ok(permit), true) = (permit, net.endpoint.open_connections() < CONNECTIONS_MAX) else {
        // No answer, since a flood may come from forged addresses.
        incoming.ignore();
        stats::add(&net.stats.handshakes_refused, 1);
        return;
    };
    let are_scarce = net.handshakes.available_permits() < RETRY_BELOW;
    if are_scarce && !incoming.remote_address_validated() && incoming.may_retry() {
        // An error means that it may not be retried, which was asked just before.
        let _ = incoming.retry();
        return;
    }
    let task_net = Arc::clone(net);
    net.spawn(async move {
        let era = task_net.era();
        let shaken = match incoming.accept() {
            Ok(connecting) => shake(&task_net, connecting, era).await,
            Err(error) => refuse(&task_net, error),
        };
        drop(permit);
        if let Ok(linked) = shaken {
            serve(task_net, linked).await;
        }
    });
}

/// A connection whose peer may be listened to, in the table of connections.
pub(super) struct Linked {
    pub(super) connection: Connection,
    address: SocketAddr,
    /// The name in the peer's certificate; `None` where there are none.
    peer: Option<Arc<str>>,
}

/// Waits for a handshake that began in this era, reads the peer's name from its certificate, and
/// makes the connection the one that is used with the address.
///
/// # Errors
/// Why it is not used; it is closed then.
pub(super) async fn shake(net: &Net, connecting: Connecting, era: u64) -> Result<Linked, Unlinked> {
    let connection = match timeout(HANDSHAKE_MAX, connecting).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return refuse(net, error),
        Err(_) => return refuse(net, quinn::ConnectionError::TimedOut),
    };
    let peer = match &net.config.tls {
        Tls::Insecure => None,
        Tls::Files { .. } => match tls::peer_name(&connection) {
            Some(name) if name != net.config.node_id => Some(Arc::from(name)),
            // A seed may be this very node under another name; so may a second node with its name.
            name => {
                debug!(?name, "a peer with no name of its own");
                net.stats.reject(Reject::Identity);
                connection.close(CODE_NAMELESS, b"no name of its own");
                return Err(name.map_or(Unlinked::Nameless, |_| Unlinked::Namesake));
            }
        },
    };
    let address = canonical(connection.remote_address());
    let is_linked = net.link(address, (&connection, peer.as_deref()), era);
    is_linked.then_some(Linked { connection, address, peer }).ok_or(Unlinked::Superseded)
}

fn refuse(net: &Net, error: quinn::ConnectionError) -> Result<Linked, Unlinked> {
    debug!(%error, "a handshake failed");
    stats::add(&net.stats.handshakes_refused, 1);
    Err(Unlinked::Handshake(error))
}

/// Takes the frames of a connection until it ends.
pub(super) async fn serve(net: Arc<Net>, linked: Linked) {
    while let Some(stream) = next_stream(&net, &linked).await {
        if let Err(reason) = take(&net, stream, &linked).await {
            net.stats.reject(reason);
            let (from, peer) = (linked.address, &linked.peer);
            debug!(%from, ?peer, reason = reason.as_str(), "rejected");
        }
    }
    net.unlink(linked.address, &linked.connection);
}

async fn next_stream(net: &Net, linked: &Linked) -> Option<RecvStream> {
    loop {
        match timeout(SPARE_MAX, linked.connection.accept_uni()).await {
            Ok(stream) => return stream.ok(),
            Err(_) if net.uses(linked.address, &linked.connection) => {}
            Err(_) => {
                linked.connection.close(CODE_GONE, b"spare");
                return None;
            }
        }
    }
}

async fn take(net: &Net, mut stream: RecvStream, sender: &Linked) -> Result<(), Reject> {
    let is_allowed = match &sender.peer {
        Some(name) => net.rates.take(name, Instant::now()),
        None => net.rates.take(&sender.address.to_string(), Instant::now()),
    };
    if !is_allowed {
        return Err(Reject::Rate);
    }
    let frame = match timeout(FRAME_MAX, stream.read_to_end(FRAME_BYTES_MAX)).await {
        Ok(Ok(frame)) => frame,
        Ok(Err(ReadToEndError::TooLong)) => return Err(Reject::Oversize),
        // The end of the connection shows at the next stream.
        Ok(Err(ReadToEndError::Read(_))) => return Ok(()),
        Err(_) => return Err(Reject::Undecodable),
    };
    stats::add(&net.stats.frames_in, 1);
    stats::add(&net.stats.bytes_in, frame.len());
    match frame.split_first() {
        Some((&KIND_GOSSIP, bytes)) => gossip(net, bytes, sender.address),
        Some((&KIND_PUSH, bytes)) => push(net, bytes, sender),
        Some(_) => Err(Reject::UnknownFormat),
        None => Err(Reject::Undecodable),
    }
}

fn gossip(net: &Net, bytes: &[u8], from: SocketAddr) -> Result<(), Reject> {
    net.vet.check(bytes)?;
    let mut rest = bytes;
    let message = ChitchatMessage::deserialize(&mut rest).map_err(|error| {
        warn!(%error, "chitchat refuses a frame that passed the vet");
        Reject::Undecodable
    })?;
    let inbox = locked(&net.inbox);
    match inbox.as_ref().map(|inbox| inbox.try_send((from, message))) {
        Some(Err(tokio::sync::mpsc::error::TrySendError::Full(_))) => Err(Reject::Rate),
        // Without a life of chitchat there is nobody to hear it; gossip repeats itself.
        Some(Ok(()) | Err(_)) | None => Ok(()),
    }
}

fn push(net: &Net, bytes: &[u8], sender: &Linked) -> Result<(), Reject> {
    let push = codec::decode_push(bytes)?;
    // What has come a longer way is known by its signature.
    let is_sent_on = push.hops > 1;
    let is_own_word = sender.peer.as_ref().is_none_or(|name| **name == *push.node_id);
    if !(is_own_word || is_sent_on) || push.node_id == net.config.node_id {
        return Err(Reject::Identity);
    }
    stats::add(&net.stats.pushes_in, 1);
    // What does not fit comes with the gossip.
    net.pushes.try_send(push).map_err(|_| Reject::Rate)
}
