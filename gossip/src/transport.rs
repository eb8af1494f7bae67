//! Frames between nodes over QUIC: one UDP port, one connection to a peer, one stream a frame.
//!
//! chitchat awaits its transport inside its one loop, so sending only queues, and receiving fails
//! only when there is nothing left to receive from. A node's port is both server and client: the
//! address a connection comes from is the address its peer listens at, and a reply goes back over
//! the connection that brought the question, whoever opened it. So chitchat may answer the address
//! it got, also where the advertised one is translated on the way.
//!
//! # Invariants
//! - Nothing is read from a connection before the handshake has named its peer.
//! - `send` never waits and never fails; a frame that cannot be queued is dropped and counted.
//! - No more than [`PEERS_MAX`] peers, [`QUEUE_MAX`] frames for each, [`CONNECTIONS_MAX`]
//!   connections and [`INCOMING_MAX`] handshakes.
//! - Every task is owned by the [`Net`] and ends with its [`NetGuard`].

mod inbound;
mod outbound;
mod rates;
mod trouble;

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use bytes::Bytes;
use chitchat::transport::{Socket, Transport};
use chitchat::{ChitchatMessage, Serializable};
use quinn::{ClientConfig, Connection, Endpoint, ServerConfig, TransportConfig, VarInt};
use rustls::RootCertStore;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tracing::warn;

use crate::codec::Push;
use crate::seal::Authority;
use crate::stats::{self, Stats};
use crate::tls::{self, Credentials};
use crate::vet::Vet;
use crate::{Config, GossipError, Tls};
use rates::Rates;
use trouble::Troubles;

/// The most bytes of a frame, its kind byte included. chitchat's own limit is 65,507.
pub(crate) const FRAME_BYTES_MAX: usize = 64 * 1_024;

/// The first byte of a frame that holds chitchat's bytes.
const KIND_GOSSIP: u8 = 1;

/// The first byte of a frame that holds pushed records.
pub(crate) const KIND_PUSH: u8 = 2;

/// Peers that are sent to at the same time; as many as may be members.
const PEERS_MAX: usize = 1_024;

/// Frames that may wait for one peer.
const QUEUE_MAX: usize = 64;

/// Open connections: two a peer, for both may dial at the same moment.
const CONNECTIONS_MAX: usize = 2 * PEERS_MAX;

/// Handshakes that may be under way from outside.
const INCOMING_MAX: usize = 256;

/// Bytes that may come before a handshake has been looked at: a few packets.
const INCOMING_BYTES_MAX: u64 = 16 * 1_024;

/// Frames that may wait for chitchat.
const INBOX_MAX: usize = 256;

/// A connection is given up when nothing came for this long.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// Three lost keep-alives are survived.
const KEEP_ALIVE: Duration = Duration::from_secs(3);

/// Frames of one peer that may be on their way at the same time.
const STREAMS_MAX: u32 = 8;

/// How long the last packets may take at the end.
const CLOSE_MAX: Duration = Duration::from_millis(500);

/// Told to a peer whose connection ends because this node goes.
const CODE_GONE: VarInt = VarInt::from_u32(0);

/// Told to a peer whose connection ends because the certificates have changed.
const CODE_RELOADED: VarInt = VarInt::from_u32(1);

/// Told to a peer whose certificate has run out.
const CODE_EXPIRED: VarInt = VarInt::from_u32(3);

type Letter = (SocketAddr, ChitchatMessage);

/// The port, its connections and its peers.
pub(crate) struct Net {
    endpoint: Endpoint,
    config: Config,
    /// How this node introduces itself when it dials. Replaced as a whole when the certificates
    /// change; a plain lock held for one clone.
    client: Mutex<ClientConfig>,
    /// What the present certificates are checked by.
    proofs: Mutex<Proofs>,
    vet: Vet,
    stats: Arc<Stats>,
    /// Where gossip goes: the present life of chitchat, if it has one.
    inbox: Mutex<Option<mpsc::Sender<Letter>>>,
    pushes: mpsc::Sender<Push>,
    /// A plain lock held for a table look-up and one attempt to queue.
    links: Mutex<Links>,
    handshakes: Arc<Semaphore>,
    rates: Rates,
    troubles: Troubles,
    /// Frames queued or written that no peer has acknowledged.
    pending: AtomicUsize,
    tasks: Mutex<JoinSet<()>>,
}

struct Proofs {
    /// The files as they were read.
    material: Vec<u8>,
    /// `None`: anybody may talk.
    roots: Option<Arc<RootCertStore>>,
}

#[derive(Default)]
struct Links {
    /// Queues to peers, by address. At most [`PEERS_MAX`]; a queue that is not used for a minute
    /// is removed by its task.
    peers: HashMap<SocketAddr, mpsc::Sender<Outgoing>>,
    /// The newest connection with each address. Bounded by [`CONNECTIONS_MAX`].
    connections: HashMap<SocketAddr, Connection>,
    /// All open connections, those too that another one has replaced, by their own numbers.
    open: HashMap<usize, Connection>,
    /// The nodes that have shown their certificate since it was last asked for by another CA. At
    /// most [`PEERS_MAX`].
    met: HashSet<String>,
    /// Grows when the certificates change, so that a handshake begun with the old ones counts for
    /// nothing when it ends.
    era: u64,
}

/// A frame on its way; it counts as pending until it is dropped.
struct Outgoing {
    bytes: Bytes,
    net: Arc<Net>,
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.net.pending.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Owns the net: when it is dropped, the port is closed and every task ends.
pub(crate) struct NetGuard(Arc<Net>);

/// Binds the port and begins to take connections.
///
/// # Errors
/// If the certificates cannot be used or the address cannot be bound.
pub(crate) fn bind(
    config: &Config,
    stats: Arc<Stats>,
    pushes: mpsc::Sender<Push>,
) -> Result<(NetGuard, Option<Authority>), GossipError> {
    if matches!(config.tls, Tls::Insecure) {
        warn!("gossip is insecure: anybody who reaches the port can speak for any node");
    }
    let mut credentials = tls::load(config)?;
    let authority = credentials.authority.take();
    let proofs =
        Proofs { material: credentials.material.clone(), roots: credentials.roots.clone() };
    let good_until = credentials.good_until;
    stats.certificate_end.store(good_until.unwrap_or(0), Ordering::Relaxed);
    let (server, client) = configure(credentials);
    let endpoint = Endpoint::server(server, config.listen)
        .map_err(|source| GossipError::Bind { address: config.listen, source })?;
    let net = Arc::new(Net {
        endpoint,
        config: config.clone(),
        client: Mutex::new(client),
        proofs: Mutex::new(proofs),
        vet: Vet::new(&config.cluster_id, &config.node_id, config.generation),
        stats,
        inbox: Mutex::new(None),
        pushes,
        links: Mutex::default(),
        handshakes: Arc::new(Semaphore::new(INCOMING_MAX)),
        rates: Rates::default(),
        troubles: Troubles::default(),
        pending: AtomicUsize::new(0),
        tasks: Mutex::default(),
    });
    net.troubles.tell_own(good_until);
    net.spawn(inbound::accept(Arc::clone(&net)));
    Ok((NetGuard(net), authority))
}

fn configure(credentials: Credentials) -> (ServerConfig, ClientConfig) {
    let mut transport = TransportConfig::default();
    let idle = VarInt::from_u32(IDLE_MAX.as_millis() as u32);
    transport
        .max_idle_timeout(Some(idle.into()))
        .keep_alive_interval(Some(KEEP_ALIVE))
        .max_concurrent_uni_streams(STREAMS_MAX.into())
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(FRAME_BYTES_MAX as u32 + 1))
        .receive_window(VarInt::from_u32(4 * FRAME_BYTES_MAX as u32))
        .datagram_receive_buffer_size(None);
    let transport = Arc::new(transport);
    let mut server = ServerConfig::with_crypto(Arc::new(credentials.server));
    // An address is what a peer is known by while it is connected, so it may not change.
    server
        .transport_config(Arc::clone(&transport))
        .max_incoming(INCOMING_MAX)
        .incoming_buffer_size(INCOMING_BYTES_MAX)
        .incoming_buffer_size_total(INCOMING_MAX as u64 * INCOMING_BYTES_MAX)
        .migration(false);
    let mut client = ClientConfig::new(Arc::new(credentials.client));
    client.transport_config(transport);
    (server, client)
}

impl NetGuard {
    pub(crate) fn net(&self) -> &Arc<Net> {
        &self.0
    }

    /// The bound address.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        // An endpoint whose socket has no address any more is as good as unbound.
        self.0.endpoint.local_addr().unwrap_or(self.0.config.listen)
    }

    /// Closes the connections, waits a moment until the peers know, and ends every task.
    pub(crate) async fn close(self) {
        self.0.endpoint.close(CODE_GONE, b"gone");
        let _ = tokio::time::timeout(CLOSE_MAX, self.0.endpoint.wait_idle()).await;
        let mut tasks = std::mem::take(&mut *locked(&self.0.tasks));
        tasks.shutdown().await;
    }
}

impl Drop for NetGuard {
    fn drop(&mut self) {
        self.0.endpoint.close(CODE_GONE, b"gone");
        *locked(&self.0.inbox) = None;
        locked(&self.0.tasks).abort_all();
        // The queues hold frames, frames hold the net: the ring is opened here.
        *locked(&self.0.links) = Links::default();
    }
}

impl Net {
    pub(crate) fn vet(&self) -> &Vet {
        &self.vet
    }

    /// Queues a frame for the address, or drops and counts it. Cheap, and never waits.
    pub(crate) fn send(self: &Arc<Self>, to: SocketAddr, bytes: Bytes) {
        let to = canonical(to);
        self.pending.fetch_add(1, Ordering::Relaxed);
        let frame = Outgoing { bytes, net: Arc::clone(self) };
        let mut links = locked(&self.links);
        if !links.peers.contains_key(&to) && links.peers.len() < PEERS_MAX {
            let (queue_in, queue) = mpsc::channel(QUEUE_MAX);
            links.peers.insert(to, queue_in);
            self.spawn(outbound::run(Arc::clone(self), to, queue));
        }
        let queued = links.peers.get(&to).map(|queue| queue.try_send(frame));
        if !matches!(queued, Some(Ok(()))) {
            stats::add(&self.stats.send_queue_drops, 1);
        }
    }

    /// Whether there is a connection with the address.
    pub(crate) fn is_connected(&self, address: SocketAddr) -> bool {
        self.connection(canonical(address)).is_some()
    }

    /// Frames that no peer has acknowledged.
    pub(crate) fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// Reads the certificates again. If they have changed, new handshakes use them from here on,
    /// the connections that were made with the old ones are closed, and what records are signed
    /// with is returned. A connection whose peer's certificate has run out is closed in any case.
    /// Blocks on files.
    ///
    /// # Errors
    /// If they cannot be used; the old ones stay in use then.
    pub(crate) fn reload(&self) -> Result<Option<Authority>, GossipError> {
        if matches!(self.config.tls, Tls::Insecure) {
            return Ok(None);
        }
        self.close_expired();
        // Of the one that is in use, be the next one as it may.
        let mut end = self.stats.certificate_end.load(Ordering::Relaxed);
        let loaded = tls::load(&self.config);
        if let Ok(credentials) = &loaded {
            end = credentials.good_until.unwrap_or(0);
            self.stats.certificate_end.store(end, Ordering::Relaxed);
        }
        self.troubles.tell_own((end > 0).then_some(end));
        let mut credentials = loaded?;
        let authority = credentials.authority.take();
        {
            let mut proofs = locked(&self.proofs);
            if proofs.material == credentials.material {
                return Ok(None);
            }
            proofs.material.clone_from(&credentials.material);
            proofs.roots.clone_from(&credentials.roots);
        }
        let (server, client) = configure(credentials);
        self.endpoint.set_server_config(Some(server));
        *locked(&self.client) = client;
        let mut links = locked(&self.links);
        links.era += 1;
        links.connections.clear();
        links.met.clear();
        for connection in links.open.values() {
            connection.close(CODE_RELOADED, b"certificates changed");
        }
        Ok(authority)
    }

    /// Closes the connections whose peers' certificates are not good any more.
    fn close_expired(&self) {
        let Some(roots) = locked(&self.proofs).roots.clone() else {
            return;
        };
        let open: Vec<_> = locked(&self.links).open.values().cloned().collect();
        for connection in open.iter().filter(|connection| !tls::is_good(&roots, connection)) {
            connection.close(CODE_EXPIRED, b"certificate has run out");
        }
    }

    /// The nodes that have shown their certificate.
    pub(crate) fn met(&self) -> HashSet<String> {
        locked(&self.links).met.clone()
    }

    fn connection(&self, address: SocketAddr) -> Option<Connection> {
        let links = locked(&self.links);
        let connection = links.connections.get(&address)?;
        connection.close_reason().is_none().then(|| connection.clone())
    }

    fn era(&self) -> u64 {
        locked(&self.links).era
    }

    /// Makes this the connection that is used with the address, unless the certificates have
    /// changed since the era in which its handshake began.
    fn link(
        &self,
        address: SocketAddr,
        (connection, peer): (&Connection, Option<&str>),
        era: u64,
    ) -> bool {
        let mut links = locked(&self.links);
        if links.era != era {
            connection.close(CODE_RELOADED, b"certificates changed");
            return false;
        }
        stats::add(&self.stats.connections, 1);
        links.connections.insert(address, connection.clone());
        links.open.insert(connection.stable_id(), connection.clone());
        if let Some(peer) = peer.filter(|_| links.met.len() < PEERS_MAX) {
            links.met.insert(peer.to_owned());
        }
        true
    }

    fn unlink(&self, address: SocketAddr, connection: &Connection) {
        self.stats.connections.fetch_sub(1, Ordering::Relaxed);
        let mut links = locked(&self.links);
        links.open.remove(&connection.stable_id());
        if is_linked(&links, address, connection) {
            links.connections.remove(&address);
        }
    }

    /// Whether this is the connection that is used with the address.
    fn uses(&self, address: SocketAddr, connection: &Connection) -> bool {
        is_linked(&locked(&self.links), address, connection)
    }

    /// Removes the queue of a peer if nothing waits in it; its task ends then.
    fn retire(&self, address: SocketAddr, queue: &mpsc::Receiver<Outgoing>) -> bool {
        // Senders queue under this lock only, so what is empty here stays empty.
        let mut links = locked(&self.links);
        let is_empty = queue.is_empty();
        if is_empty {
            links.peers.remove(&address);
        }
        is_empty
    }

    /// Hands chitchat a message that no vet has seen.
    #[cfg(test)]
    pub(crate) fn hand_to_chitchat(&self, message: ChitchatMessage) {
        let from = SocketAddr::from(([127, 0, 0, 1], 9));
        locked(&self.inbox).as_ref().unwrap().try_send((from, message)).unwrap();
    }

    /// Runs a task of the net, and forgets those that have ended.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = locked(&self.tasks);
        while let Some(ended) = tasks.try_join_next() {
            if ended.is_err_and(|error| error.is_panic()) {
                warn!("a task of a connection panicked");
            }
        }
        tasks.spawn(task);
    }
}

/// chitchat's way to the net. Each life of chitchat opens it anew, over the same port.
pub(crate) struct QuicTransport(pub(crate) Arc<Net>);

#[async_trait]
impl Transport for QuicTransport {
    async fn open(&self, _listen_addr: SocketAddr) -> anyhow::Result<Box<dyn Socket>> {
        let (inbox_in, inbox) = mpsc::channel(INBOX_MAX);
        *locked(&self.0.inbox) = Some(inbox_in);
        Ok(Box::new(QuicSocket { net: Arc::clone(&self.0), inbox }))
    }
}

struct QuicSocket {
    net: Arc<Net>,
    inbox: mpsc::Receiver<Letter>,
}

#[async_trait]
impl Socket for QuicSocket {
    async fn send(&mut self, to: SocketAddr, message: ChitchatMessage) -> anyhow::Result<()> {
        let mut frame = vec![KIND_GOSSIP];
        message.serialize(&mut frame);
        self.net.send(to, frame.into());
        Ok(())
    }

    async fn recv(&mut self) -> anyhow::Result<(SocketAddr, ChitchatMessage)> {
        self.inbox.recv().await.context("the port is closed")
    }
}

/// The form of an address under which a peer is looked up: a dual-stack socket shows IPv4 peers
/// in their IPv6 form.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn is_linked(links: &Links, address: SocketAddr, connection: &Connection) -> bool {
    let linked = links.connections.get(&address);
    linked.is_some_and(|linked| linked.stable_id() == connection.stable_id())
}

/// What these locks guard is whole between any two statements, so a panic elsewhere spoils nothing.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
