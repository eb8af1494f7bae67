//! HTTP/2 to an endpoint: one connection for many, and what becomes of a request that it refuses.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use gateway::config::Protocol;
use gateway::upstream::{ConnectError, SendError};
use h2::server::{Connection, SendResponse};
use h2::{Reason, RecvStream};
use http_body_util::BodyExt;
use hyper::{Request, Response};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::kit::{Kit, always, kit_with, pass};
use crate::local::{soon, until};
use crate::secure::House;

/// What the server does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    /// Answers.
    Answer,
    /// Answers when the test says so.
    AnswerLater,
    /// Says the head and one piece, and waits for the stream to be reset.
    Begin,
    /// Says the head and one piece, and ends the stream by a reset that gives no error.
    Cut(Reason),
    /// Refuses the stream.
    Refuse,
    /// Breaks the connection off.
    Break,
}

#[derive(Clone)]
struct Server {
    address: SocketAddr,
    books: Arc<Books>,
}

struct Books {
    connections: AtomicUsize,
    requests: Mutex<Vec<Request<()>>>,
    resets: Mutex<Vec<Reason>>,
    steps: Semaphore,
    streams_max: u32,
    script: Box<dyn Fn(usize) -> Deed + Send + Sync>,
}

impl Server {
    /// Starts a server that does with the request of that number what `script` says.
    async fn start(
        streams_max: u32,
        tls: Option<TlsAcceptor>,
        script: impl Fn(usize) -> Deed + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let books = Arc::new(Books {
            connections: AtomicUsize::new(0),
            requests: Mutex::default(),
            resets: Mutex::default(),
            steps: Semaphore::new(0),
            streams_max,
            script: Box::new(script),
        });
        let kept = Arc::clone(&books);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                kept.connections.fetch_add(1, Ordering::SeqCst);
                let (kept, tls) = (Arc::clone(&kept), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => converse(stream, kept).await,
                        Some(tls) => converse(tls.accept(stream).await.unwrap(), kept).await,
                    }
                });
            }
        });
        Self { address, books }
    }

    fn connections(&self) -> usize {
        self.books.connections.load(Ordering::SeqCst)
    }

    fn count(&self) -> usize {
        self.books.requests.lock().unwrap().len()
    }

    fn kit(&self) -> Kit {
        let clear = |endpoint: &mut gateway::config::Endpoint| endpoint.protocol = Protocol::Http2;
        kit_with(&self.address.to_string(), always(&[]), clear).unwrap()
    }
}

async fn converse<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    books: Arc<Books>,
) {
    // One that takes few says so late: nobody is to have sent more by then.
    if books.streams_max < 100 {
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(books.streams_max);
    let mut connection: Connection<S, Bytes> = builder.handshake(stream).await.unwrap();
    while let Some(Ok((request, answer))) = connection.accept().await {
        let (head, body) = request.into_parts();
        let number = {
            let mut requests = books.requests.lock().unwrap();
            requests.push(Request::from_parts(head, ()));
            requests.len() - 1
        };
        match (books.script)(number) {
            Deed::Break => return,
            deed => {
                tokio::spawn(perform(deed, body, answer, Arc::clone(&books)));
            }
        }
    }
}

async fn perform(
    deed: Deed,
    mut body: RecvStream,
    mut answer: SendResponse<Bytes>,
    books: Arc<Books>,
) {
    if deed == Deed::Refuse {
        answer.send_reset(Reason::REFUSED_STREAM);
        return;
    }
    while let Some(Ok(piece)) = body.data().await {
        let _ = body.flow_control().release_capacity(piece.len());
    }
    if deed == Deed::AnswerLater {
        books.steps.acquire().await.unwrap().forget();
    }
    let head = Response::builder().header("content-type", "application/json").body(()).unwrap();
    let mut stream = answer.send_response(head, false).unwrap();
    let text = Bytes::from_static(br#"{"choices":[{"message":{"content":"x"}}]}"#);
    let is_end = !matches!(deed, Deed::Begin | Deed::Cut(_));
    stream.send_data(text, is_end).unwrap();
    if let Deed::Cut(reason) = deed {
        // Behind the piece, which is first given time to go.
        tokio::time::sleep(Duration::from_millis(30)).await;
        stream.send_reset(reason);
    } else if !is_end {
        let reason = std::future::poll_fn(|context| stream.poll_reset(context)).await;
        books.resets.lock().unwrap().extend(reason);
    }
}

/// Asks `count` times at once. Returns how many were answered.
async fn crowd(kit: &Arc<Kit>, count: usize) -> tokio::task::JoinSet<Result<u16, SendError>> {
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..count {
        let kit = Arc::clone(kit);
        all.spawn(async move { kit.ask().await.map(|(status, _)| status) });
    }
    all
}

#[tokio::test]
async fn many_requests_share_one_connection_in_the_clear() {
    let server = Server::start(100, None, |_| Deed::Answer).await;
    let kit = Arc::new(server.kit());
    for round in 1..4 {
        let answers = crowd(&kit, 40).await.join_all().await;
        assert!(answers.iter().all(|answer| *answer == Ok(200)), "{answers:?}");
        assert_eq!((server.connections(), server.count()), (1, round * 40));
    }
    let uri = server.books.requests.lock().unwrap()[0].uri().clone();
    assert_eq!(uri.to_string(), format!("http://{}/v1/chat/completions", server.address));
    assert_eq!(kit.stale(), 0);
}

#[tokio::test]
async fn http2_is_spoken_over_tls_where_the_other_side_chooses_it() {
    let house = House::new();
    let mut config = house.server("gpu-a.test", false, false);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let tls = TlsAcceptor::from(Arc::new(config));
    let server = Server::start(100, Some(tls), |_| Deed::Answer).await;
    let authority = format!("gpu-a.test:{}", server.address.port());
    let kit = kit_with(&authority, always(&["127.0.0.1"]), |endpoint| {
        endpoint.tls = Some(house.trusted());
        endpoint.protocol = Protocol::Http2;
    });
    let kit = kit.unwrap();
    for _ in 0..3 {
        assert_eq!(kit.ask().await.map(|(status, _)| status), Ok(200));
    }
    assert_eq!((server.connections(), server.count()), (1, 3));
    let uri = server.books.requests.lock().unwrap()[0].uri().clone();
    assert_eq!(uri.to_string(), format!("https://{authority}/v1/chat/completions"));
}

#[tokio::test]
async fn a_further_connection_is_made_when_all_are_full() {
    let server = Server::start(5, None, |_| Deed::AnswerLater).await;
    let kit = Arc::new(server.kit());
    let all = crowd(&kit, 40).await;
    until("all are there", || server.count() == 40).await;
    assert_eq!(server.connections(), 8);
    server.books.steps.add_permits(40);
    let answers = all.join_all().await;
    assert!(answers.iter().all(|answer| *answer == Ok(200)), "{answers:?}");
}

#[tokio::test]
async fn a_refused_stream_or_a_connection_that_ends_unheard_is_tried_once_more_on_a_fresh_connection()
 {
    for deed in [Deed::Refuse, Deed::Break] {
        let server =
            Server::start(100, None, move |number| if number == 1 { deed } else { Deed::Answer })
                .await;
        let kit = server.kit();
        for _ in 0..3 {
            assert_eq!(kit.ask().await.map(|(status, _)| status), Ok(200), "{deed:?}");
        }
        assert_eq!((server.connections(), server.count(), kit.stale()), (2, 4, 1), "{deed:?}");
    }
}

/// A frame of HTTP/2 (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

/// Answers the first request of each connection and turns the next away by a GOAWAY that excludes it.
async fn goes_away(mut stream: TcpStream) {
    let mut head = [0; 9];
    stream.read_exact(&mut [0; 24]).await.unwrap();
    stream.write_all(&frame(4, 0, 0, &[])).await.unwrap();
    while stream.read_exact(&mut head).await.is_ok() {
        let [_, high, low, kind, flags, .., id] = head;
        let mut payload = vec![0; usize::from(u16::from_be_bytes([high, low]))];
        stream.read_exact(&mut payload).await.unwrap();
        let says = match (kind, flags & 1, id) {
            (4, 0, _) => frame(4, 1, 0, &[]),
            // A head of `:status: 200`, and a body that ends the stream.
            (0, 1, 1) => [frame(1, 4, 1, &[0x88]), frame(0, 1, 1, b"{}")].concat(),
            (0, 1, _) => frame(7, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]),
            _ => continue,
        };
        stream.write_all(&says).await.unwrap();
    }
}

#[tokio::test]
async fn a_request_that_a_goaway_excludes_is_tried_once_more_on_a_fresh_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(goes_away(stream));
        }
    });
    let clear = |endpoint: &mut gateway::config::Endpoint| endpoint.protocol = Protocol::Http2;
    let kit = kit_with(&address.to_string(), always(&[]), clear).unwrap();
    for _ in 0..3 {
        assert_eq!(kit.ask().await, Ok((200, "{}".to_owned())));
    }
    assert_eq!((connections.load(Ordering::SeqCst), kit.stale()), (3, 2));
}

#[tokio::test]
async fn a_stream_that_is_refused_twice_is_a_failure() {
    let server = Server::start(100, None, |_| Deed::Refuse).await;
    assert_eq!(server.kit().ask().await, Err(SendError::Broken));
    assert_eq!((server.connections(), server.count()), (2, 2));
    let server = Server::start(100, None, |_| Deed::Break).await;
    assert_eq!(server.kit().ask().await, Err(SendError::Broken));
    assert_eq!(server.count(), 1, "a fresh connection that breaks may have been heard");
}

#[tokio::test]
async fn a_body_that_is_dropped_resets_its_stream_and_no_other() {
    let server =
        Server::start(100, None, |number| if number == 0 { Deed::Begin } else { Deed::Answer })
            .await;
    let kit = server.kit();
    let mut body = kit.head().await.unwrap().into_body();
    soon("a piece", body.frame()).await.unwrap().unwrap();
    assert_eq!(kit.ask().await.map(|(status, _)| status), Ok(200));
    drop(body);
    let resets = || server.books.resets.lock().unwrap().clone();
    until("the stream is reset", || resets().len() == 1).await;
    assert_eq!(resets(), [Reason::CANCEL]);
    assert_eq!(kit.ask().await.map(|(status, _)| status), Ok(200));
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_stream_that_is_reset_before_its_end_has_no_good_end() {
    for reason in [Reason::NO_ERROR, Reason::CANCEL, Reason::INTERNAL_ERROR] {
        let server = Server::start(100, None, move |_| Deed::Cut(reason)).await;
        let mut body = server.kit().head().await.unwrap().into_body();
        soon("a piece", body.frame()).await.unwrap().unwrap();
        let end = soon("the end", body.frame()).await;
        assert!(matches!(end, Some(Err(_))), "{reason}: {end:?}");
    }
}

#[tokio::test]
async fn no_connection_is_made_that_is_not_kept_and_who_finds_all_full_is_told() {
    let server = Server::start(1, None, |_| Deed::AnswerLater).await;
    let kit = Arc::new(server.kit());
    // One after the other, so that none waits for its turn for longer than a connection may take.
    let mut all = tokio::task::JoinSet::new();
    for number in 0..64 {
        let kit = Arc::clone(&kit);
        all.spawn(async move { kit.ask().await.map(|(status, _)| status) });
        until("it is there", || server.count() == number + 1).await;
    }
    let full = SendError::Connect(ConnectError::Full);
    assert_eq!(kit.ask().await, Err(full));
    assert_eq!((server.connections(), full.cause()), (64, None));
    server.books.steps.add_permits(65);
    let answers = all.join_all().await;
    assert!(answers.iter().all(|answer| *answer == Ok(200)), "{answers:?}");
    assert_eq!(kit.ask().await.map(|(status, _)| status), Ok(200));
    assert_eq!(server.connections(), 64);
}

#[tokio::test]
async fn a_shared_connection_rests_from_the_end_of_its_last_request() {
    let server =
        Server::start(100, None, |number| if number == 0 { Deed::Begin } else { Deed::Answer })
            .await;
    let kit = server.kit();
    let mut body = kit.head().await.unwrap().into_body();
    soon("a piece", body.frame()).await.unwrap().unwrap();
    pass(Duration::from_secs(21)).await;
    drop(body);
    assert_eq!(kit.ask().await.map(|(status, _)| status), Ok(200));
    assert_eq!(server.connections(), 1, "it was in use a moment ago");
    pass(Duration::from_secs(21)).await;
    assert_eq!(kit.ask().await.map(|(status, _)| status), Ok(200));
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn an_endpoint_that_speaks_only_http1_refuses_what_was_agreed_upon() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let stream: TcpStream = stream;
            stream.writable().await.unwrap();
            stream.try_write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let clear = |endpoint: &mut gateway::config::Endpoint| endpoint.protocol = Protocol::Http2;
    let kit = kit_with(&address.to_string(), always(&[]), clear).unwrap();
    assert!(kit.ask().await.is_err());
}
