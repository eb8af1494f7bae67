//! The listener for clients: one thread, one runtime, one accept queue and one upstream pool a core.
//!
//! A request is read, sent on and answered by the thread that accepted it, so that nothing on its way
//! wakes another. The kernel spreads connections over the queues (SO_REUSEPORT).
//!
//! Another configuration: [`Desks::replace`] puts it before every worker; whoever is being served is
//! served by the one that was there.
//!
//! Draining goes by steps. [`Server::announce`]: every answer says that it is the last on its
//! connection, while new connections are served as before. [`Server::drain`]: nothing more is accepted,
//! and every connection finishes what it is doing; at the deadline the streams that still flow get an
//! error event and an unclean end.

mod accept;
mod connection;
mod door;
mod guard;
mod guarded;
mod pace;
mod parting;
mod stall;
mod tls;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use hyper::Request;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use self::connection::{Entry, Patiences};
use crate::config;
use crate::error::ApiError;
use crate::proxy::{Gate, Intake};
use crate::upstream::{Roads, Upstream};

pub(crate) use self::accept::Troubles;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::connection::promise::keep as forward_promise;
pub(crate) use self::door::Door;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::guard::promise::keep as guard_promise;
pub(crate) use self::tls::Pair;
pub use self::tls::{Identity, TlsError};

/// Connections waiting to be accepted, for each worker.
const BACKLOG: i32 = 1_024;
/// What the kernel keeps for a client that does not read: it doubles this, for its own books.
const SEND_BYTES_MAX: usize = 128 * 1024;
/// A stream that is cut when a drain's time is over has this long to hand over its last event: a
/// client that reads slowly is waited for, and the connection is closed after it.
const LAST_WORD: Duration = Duration::from_secs(5);
/// The same where nobody is to be waited for.
const LAST_WORD_IN_HASTE: Duration = Duration::from_millis(500);
/// A drain that has passed its deadline leaves this long to the threads to end.
const JOIN_PAUSE: Duration = Duration::from_millis(200);

/// What a client asks, or what is wrong with it.
pub(crate) type Asked = Result<Request<Intake>, ApiError>;

/// The workers of one gateway.
pub struct Server {
    /// Where clients connect.
    pub address: SocketAddr,
    /// What answers the requests of each worker.
    desks: Arc<Desks>,
    stop: watch::Sender<Stop>,
    threads: Vec<JoinHandle<()>>,
}

/// What answers the requests of each worker, to be replaced while they come.
///
/// Each worker has its own, so that reading it takes no count from another core: a few nanoseconds. What
/// a request then keeps of it, the gate and the ways to the endpoints, is one for all workers, and so
/// are its counts.
pub struct Desks(Vec<Arc<ArcSwap<Answerer>>>);

impl Desks {
    /// Answers every request that comes from here on by `gate`, over `roads`. Requests that have come
    /// keep what they began with, connections of clients stand.
    pub fn replace(&self, config: &config::Server, gate: &Arc<Gate>, roads: &Arc<Roads>) {
        for desk in &self.0 {
            let before = desk.load();
            let upstream = before.upstream.heir(roads);
            let entry = Arc::new(before.entry.heir(Patiences::of(config)));
            desk.store(Arc::new(Answerer { gate: Arc::clone(gate), upstream, entry }));
        }
    }
}

/// What the workers are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Serving,
    /// Go on, and let each client know that it had better come again on another connection.
    Leaving,
    /// Accept nothing more and end with the last connection.
    Draining,
    /// Cut what still flows; whoever does not take its last event within this long is cut without.
    Over(Duration),
}

impl Stop {
    /// Whether nothing more is to be accepted.
    fn is_end(self) -> bool {
        match self {
            Self::Serving | Self::Leaving => false,
            Self::Draining | Self::Over(_) => true,
        }
    }

    /// How long who is cut has for its last event.
    fn last_word(self) -> Option<Duration> {
        match self {
            Self::Serving | Self::Leaving | Self::Draining => None,
            Self::Over(period) => Some(period),
        }
    }
}

impl Server {
    /// Binds the address and starts the workers, which have at most `connections_max` connections together.
    /// With an identity clients speak TLS.
    ///
    /// # Errors
    /// The address cannot be bound, or a thread or its runtime cannot be made.
    pub fn start(
        config: &config::Server,
        connections_max: usize,
        (identity, roads, gate): (Option<&Arc<Identity>>, &Arc<Roads>, &Arc<Gate>),
    ) -> io::Result<Self> {
        let workers = workers(config);
        let room = room(config, workers, connections_max);
        gate.meters.keep("client_connections_max", room.saturating_mul(workers) as f64);
        let (stop, told) = watch::channel(Stop::Serving);
        let first = bind(config.listen)?;
        let address = first.local_addr()?;
        let mut listeners = vec![first];
        for _ in 1..workers {
            listeners.push(bind(address)?);
        }
        let (mut threads, mut desks) = (Vec::with_capacity(workers), Vec::with_capacity(workers));
        for (index, listener) in listeners.into_iter().enumerate() {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let answerer = {
                // What looks after the connections to the endpoints lives where they are used.
                let _within = runtime.enter();
                let identity = identity.map(Arc::clone);
                let entry = Entry::new(Patiences::of(config), identity, &gate.meters);
                let (gate, upstream) = (Arc::clone(gate), Upstream::new(roads));
                Answerer { gate, upstream, entry: Arc::new(entry) }
            };
            let desk = Arc::new(ArcSwap::from_pointee(answerer));
            desks.push(Arc::clone(&desk));
            let (told, room) = (told.clone(), Arc::new(Semaphore::new(room)));
            let thread = std::thread::Builder::new().name(format!("worker-{index}"));
            threads.push(thread.spawn(move || work(runtime, desk, listener, room, told))?);
        }
        Ok(Self { address, desks: Arc::new(Desks(desks)), stop, threads })
    }

    /// What answers, to be replaced.
    pub fn desks(&self) -> Arc<Desks> {
        Arc::clone(&self.desks)
    }

    /// Lets clients know that they had better come again on another connection: HTTP/1.1 by
    /// `connection: close` on each answer, HTTP/2 by GOAWAY. New connections are still served.
    pub fn announce(&self) {
        let _ = self.stop.send(Stop::Leaving);
    }

    /// Stops accepting and waits until every connection has ended, at most `patience` and not longer
    /// than `hurry` takes; then cuts what still flows. Returns whether everything ended by itself.
    pub async fn drain(self, patience: Duration, hurry: impl Future<Output = ()>) -> bool {
        let _ = self.stop.send(Stop::Draining);
        let threads = self.threads;
        let mut joined = tokio::task::spawn_blocking(move || {
            for thread in threads {
                let _ = thread.join();
            }
        });
        let last_word = tokio::select! {
            _ = &mut joined => return true,
            () = tokio::time::sleep(patience) => LAST_WORD,
            () = hurry => LAST_WORD_IN_HASTE,
        };
        let _ = self.stop.send(Stop::Over(last_word));
        let _ = tokio::time::timeout(last_word + JOIN_PAUSE, joined).await;
        false
    }
}

/// How many workers there are to be.
pub(crate) fn workers(config: &config::Server) -> usize {
    match config.workers {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        workers => workers,
    }
}

/// How many connections each worker may have: as many as configured, or its part of what the limit of
/// open files leaves to clients.
fn room(config: &config::Server, workers: usize, connections_max: usize) -> usize {
    let part = (connections_max / workers.max(1)).max(1);
    if part < config.max_connections {
        let wanted = config.max_connections;
        tracing::info!(
            wanted,
            room = part,
            workers,
            "the limit of open files leaves room for fewer connections than server.max_connections"
        );
    }
    part.min(config.max_connections)
}

/// What answers the requests of one worker.
struct Answerer {
    gate: Arc<Gate>,
    upstream: Upstream,
    /// Where connections come in.
    entry: Arc<Entry>,
}

/// The thread of one worker. What it has asked the system for in vain (a name that no resolver
/// answers) is not waited for.
fn work(
    runtime: Runtime,
    desk: Arc<ArcSwap<Answerer>>,
    listener: std::net::TcpListener,
    room: Arc<Semaphore>,
    told: watch::Receiver<Stop>,
) {
    runtime.block_on(run(desk, listener, room, told));
    runtime.shutdown_background();
}

/// One worker: accepts, and answers by what lies on its desk when a request comes.
async fn run(
    desk: Arc<ArcSwap<Answerer>>,
    listener: std::net::TcpListener,
    room: Arc<Semaphore>,
    mut told: watch::Receiver<Stop>,
) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "a worker cannot use its listener");
            return;
        }
    };
    let meters = Arc::clone(&desk.load().gate.meters);
    let full = meters.counter("client_connections_full_total", &[]);
    let mut troubles = Troubles::new("clients", &meters);
    let mut connections = JoinSet::new();
    loop {
        // More than there is room for wait in the backlog, and the kernel turns away what does not fit
        // there.
        full.increment(u64::from(room.available_permits() == 0));
        let place = tokio::select! {
            place = Arc::clone(&room).acquire_owned() => place,
            _ = told.wait_for(|stop| stop.is_end()) => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = told.wait_for(|stop| stop.is_end()) => break,
        };
        // Ended connections are collected on the way, so that the set stays as small as the load.
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, _)) => {
                troubles.over();
                let served = serve(&desk, stream, told.clone());
                connections.spawn(async move {
                    let _place = place;
                    served.await;
                });
            }
            Err(error) => {
                // Its place is free for as long as this takes.
                drop(place);
                tokio::time::sleep(troubles.failed(&error)).await;
            }
        }
    }
    if !told.borrow().is_end() {
        return;
    }
    for stream in queued(listener) {
        connections.spawn(serve(&desk, stream, told.clone()));
    }
    finish(connections, told).await;
}

/// Waits for the connections to end, and when the time is over for their last words.
async fn finish(mut connections: JoinSet<()>, mut told: watch::Receiver<Stop>) {
    let mut finished = pin!(async { while connections.join_next().await.is_some() {} });
    let over = async { told.wait_for(|stop| stop.last_word().is_some()).await.ok()?.last_word() };
    let last_word = tokio::select! {
        () = finished.as_mut() => return,
        last_word = over => last_word.unwrap_or_default(),
    };
    tracing::warn!("streams are cut, since the drain's time is over");
    if tokio::time::timeout(last_word, finished).await.is_err() {
        tracing::warn!("connections were still open after that");
    }
}

/// Closes the door behind those who have come already: they would be turned away by the closing. They
/// are at most as many as may wait ([`BACKLOG`]).
fn queued(listener: TcpListener) -> Vec<TcpStream> {
    let Ok(listener) = listener.into_std() else { return Vec::new() };
    let come = std::iter::from_fn(|| listener.accept().ok());
    let streams = come.filter_map(|(stream, _)| {
        stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream)).ok()
    });
    streams.collect()
}

/// Serves one connection until it ends.
fn serve(
    desk: &Arc<ArcSwap<Answerer>>,
    stream: TcpStream,
    told: watch::Receiver<Stop>,
) -> impl Future<Output = ()> + Send + use<> {
    let (desk, entry) = (Arc::clone(desk), Arc::clone(&desk.load().entry));
    async move {
        let answer = move |asked: Asked| {
            let answerer = desk.load_full();
            // In a box of its own: what it takes to find an answer is several KiB, which a long
            // stream need not keep until its end.
            Box::pin(async move {
                match asked {
                    Ok(request) => answerer.gate.receive(&answerer.upstream, request).await,
                    Err(error) => Ok(answerer.gate.turn_away(&error)),
                }
            })
        };
        entry.receive(stream, answer, told).await;
    }
}

fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    // The connections inherit it.
    socket.set_send_buffer_size(SEND_BYTES_MAX)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
