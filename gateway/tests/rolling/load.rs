//! Clients behind a load balancer that follows readiness, and what became of every request.
//!
//! Invariants: a request is tried again only if its connection was refused by a node that says it is not
//! ready; whatever else does not end well is a failure, and each is on record.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::process::{CHAT, call, chat_body};

/// How often the balancer asks each node.
const LOOK: Duration = Duration::from_millis(25);
/// A node is believed to be ready for this long after it was asked: well below the drain's delay.
const FRESH: Duration = Duration::from_millis(600);
/// A pause between two requests of a client.
const PACE: Duration = Duration::from_millis(20);
/// No answer takes longer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Where a node is, and whether it is ready.
#[derive(Clone, Copy)]
struct Target {
    clients: SocketAddr,
    operators: SocketAddr,
    /// When it was last asked and said so; `None`: it did not.
    ready_at: Option<Instant>,
}

impl Target {
    /// Whether it may be sent anything. What the balancer has not heard of late it does not believe: a
    /// machine under load may be slower to look than a node is to go.
    fn is_good(&self) -> bool {
        self.ready_at.is_some_and(|at| at.elapsed() < FRESH)
    }
}

/// What is shared by the clients.
#[derive(Default)]
struct Books {
    targets: Mutex<Vec<Target>>,
    is_over: AtomicBool,
    plain: AtomicUsize,
    streams: AtomicUsize,
    refused: AtomicUsize,
    failures: Mutex<Vec<String>>,
}

/// What became of all requests.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Good answers in one piece.
    pub(crate) plain: usize,
    /// Streams that came to their end.
    pub(crate) streams: usize,
    /// Connections refused by nodes that said they were not ready.
    pub(crate) refused: usize,
    /// Everything else.
    pub(crate) failures: Vec<String>,
}

/// Clients that ask until they are stopped.
pub(crate) struct Load {
    books: Arc<Books>,
    tasks: JoinSet<()>,
}

impl Load {
    /// Begins to ask these nodes, each given by the listeners for clients and operators: `clients` with
    /// HTTP/1.1, and as many with HTTP/2.
    pub(crate) async fn on(nodes: Vec<(SocketAddr, SocketAddr)>, clients: usize) -> Self {
        let target = |(clients, operators)| Target { clients, operators, ready_at: None };
        let books = Books::default();
        *books.targets.lock().unwrap() = nodes.into_iter().map(target).collect();
        let books = Arc::new(books);
        let mut tasks = JoinSet::new();
        tasks.spawn(balance(Arc::clone(&books)));
        for number in 0..2 * clients {
            tasks.spawn(client(Arc::clone(&books), number % 2 == 1, number % 4 < 2));
        }
        Self { books, tasks }
    }

    /// A node has another place.
    pub(crate) fn moves(&self, index: usize, clients: SocketAddr, operators: SocketAddr) {
        self.books.targets.lock().unwrap()[index] = Target { clients, operators, ready_at: None };
    }

    /// Stops asking, and waits for what was asked.
    pub(crate) async fn stop(self) -> Tally {
        self.books.is_over.store(true, Ordering::Relaxed);
        self.tasks.join_all().await;
        let count = |of: &AtomicUsize| of.load(Ordering::Relaxed);
        Tally {
            plain: count(&self.books.plain),
            streams: count(&self.books.streams),
            refused: count(&self.books.refused),
            failures: std::mem::take(&mut *self.books.failures.lock().unwrap()),
        }
    }
}

async fn is_ready(operators: SocketAddr) -> bool {
    let asked = call(operators, Method::GET, "/readyz", &[], "");
    let answer = tokio::time::timeout(Duration::from_secs(1), asked).await;
    matches!(answer, Ok(Ok((StatusCode::OK, _))))
}

/// Asks each node whether it is ready, over and over.
async fn balance(books: Arc<Books>) {
    while !books.is_over.load(Ordering::Relaxed) {
        let targets = books.targets.lock().unwrap().clone();
        for (index, target) in targets.into_iter().enumerate() {
            let asked_at = Instant::now();
            let ready_at = is_ready(target.operators).await.then_some(asked_at);
            let mut targets = books.targets.lock().unwrap();
            if targets[index].operators == target.operators {
                targets[index].ready_at = ready_at;
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn client(books: Arc<Books>, is_http2: bool, is_stream: bool) {
    // Nothing is tried again behind the test's back.
    let mut builder = Client::builder(TokioExecutor::new());
    let http1 = builder.retry_canceled_requests(false).build_http();
    let mut way = if is_http2 { Way::Http2(HashMap::new()) } else { Way::Http1(http1) };
    while !books.is_over.load(Ordering::Relaxed) {
        let ready: Vec<Target> =
            books.targets.lock().unwrap().iter().filter(|one| one.is_good()).copied().collect();
        tokio::time::sleep(PACE).await;
        let Some(target) = fastrand::choice(&ready) else { continue };
        let asked = tokio::time::timeout(ANSWER_MAX, ask(&mut way, target.clients, is_stream));
        match asked.await.unwrap_or_else(|_| Err(Fate::Lost("no answer".to_owned()))) {
            Ok(()) if is_stream => books.streams.fetch_add(1, Ordering::Relaxed),
            Ok(()) => books.plain.fetch_add(1, Ordering::Relaxed),
            Err(Fate::Refused) if !is_ready(target.operators).await => {
                books.refused.fetch_add(1, Ordering::Relaxed)
            }
            Err(fate) => {
                let failure = format!("http2 {is_http2}, stream {is_stream}: {fate:?}");
                books.failures.lock().unwrap().push(failure);
                0
            }
        };
    }
}

/// Why a request came to nothing.
#[derive(Debug)]
enum Fate {
    /// Nobody listened.
    Refused,
    Lost(#[allow(dead_code, reason = "it is printed")] String),
}

/// How a client asks: over connections that it keeps.
enum Way {
    Http1(Client<HttpConnector, Full<Bytes>>),
    Http2(HashMap<SocketAddr, SendRequest<Full<Bytes>>>),
}

fn question(address: SocketAddr, is_stream: bool) -> Request<Full<Bytes>> {
    Request::builder()
        .method(Method::POST)
        .uri(format!("http://{address}{CHAT}"))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(chat_body(is_stream))))
        .unwrap()
}

async fn send(
    way: &mut Way,
    address: SocketAddr,
    is_stream: bool,
) -> Result<Response<Incoming>, Fate> {
    let kept = match way {
        Way::Http1(client) => {
            let sent = client.request(question(address, is_stream)).await;
            return sent.map_err(|error| match error.is_connect() {
                true => Fate::Refused,
                false => Fate::Lost(format!("{error:?}")),
            });
        }
        Way::Http2(kept) => kept,
    };
    // A stream that is refused by GOAWAY was not looked at: every client goes elsewhere with it.
    if let Some(sender) = kept.get_mut(&address) {
        match sender.send_request(question(address, is_stream)).await {
            Ok(response) => return Ok(response),
            Err(error) if error.is_canceled() || error.is_closed() || is_told_to_go(&error) => {}
            Err(error) => return Err(Fate::Lost(format!("{error:?}"))),
        }
    }
    let stream = TcpStream::connect(address).await.map_err(|_| Fate::Refused)?;
    let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| Fate::Lost(format!("{error:?}")))?;
    tokio::spawn(connection);
    let sent = sender.send_request(question(address, is_stream)).await;
    kept.insert(address, sender);
    sent.map_err(|error| Fate::Lost(format!("on a new connection: {error:?}")))
}

/// Whether a stream came to nothing since its connection takes no more, by a GOAWAY without an error.
fn is_told_to_go(error: &hyper::Error) -> bool {
    let cause =
        std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| cause.is_go_away() && cause.reason() == Some(h2::Reason::NO_ERROR))
}

async fn ask(way: &mut Way, address: SocketAddr, is_stream: bool) -> Result<(), Fate> {
    let response = send(way, address, is_stream).await?;
    let status = response.status();
    let body = response.into_body().collect().await;
    let body = body.map_err(|error| Fate::Lost(format!("cut: {error:?}")))?.to_bytes();
    let is_whole = !is_stream || body.ends_with(b"data: [DONE]\n\n");
    match status == StatusCode::OK && is_whole {
        true => Ok(()),
        false => Err(Fate::Lost(format!("{status}: {}", String::from_utf8_lossy(&body)))),
    }
}
