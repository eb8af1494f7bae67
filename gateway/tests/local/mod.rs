//! A gateway, its upstreams and its clients on loopback, for the tests of the data plane.
//!
//! Invariants: everything runs on ports that the system chose; every wait has a deadline.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use breaker::{State, View};
use bytes::Bytes;
use gateway::app::App;
use gateway::fleet::Endpoint;
use gateway::mock::{self, Mock};
use gateway::{clock, config};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::HeaderMap;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use quorum::EndpointKey;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

/// No wait of a test is longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// No test asks one gateway more often.
const ASKED_MAX: u32 = 2_000;
/// How often a condition is looked at.
const GLANCE: Duration = Duration::from_millis(2);

/// What the tests ask the model.
pub(crate) const QUESTION: &str =
    r#"{"model":"demo","messages":[{"role":"user","content":"hello"}]}"#;
/// The same, to be answered by a stream.
pub(crate) const STREAM_QUESTION: &str =
    r#"{"model":"demo","messages":[{"role":"user","content":"hello"}],"stream":true}"#;

/// Waits until `is_so`.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        tokio::time::sleep(GLANCE).await;
    }
}

/// Waits for `future`, but not for ever.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(PATIENCE, future).await;
    assert!(waited.is_ok(), "in vain: {what}");
    waited.unwrap()
}

/// Starts a mock endpoint.
pub(crate) async fn mock(name: &str) -> (SocketAddr, Mock) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mock = Mock::new(name);
    tokio::spawn(mock::serve(listener, mock.clone()));
    (address, mock)
}

/// An address at which nobody listens.
pub(crate) async fn nobody() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

/// The configuration of a gateway that serves the model `demo`.
pub(crate) struct Plan {
    top: String,
    pool: String,
    endpoints: String,
}

impl Plan {
    /// A gateway with these endpoints.
    pub(crate) fn of(endpoints: &[(&str, SocketAddr)]) -> Self {
        let plan = Self { top: String::new(), pool: String::new(), endpoints: String::new() };
        endpoints.iter().fold(plan, |plan, (name, address)| plan.endpoint(name, *address, ""))
    }

    /// One endpoint more, with further keys (each with a comma before it).
    pub(crate) fn endpoint(mut self, name: &str, address: SocketAddr, more: &str) -> Self {
        let line = format!("      - {{ name: {name}, address: \"http://{address}\"{more} }}\n");
        self.endpoints.push_str(&line);
        self
    }

    /// A line at the top of the file.
    pub(crate) fn top(mut self, line: &str) -> Self {
        self.top.push_str(line);
        self.top.push('\n');
        self
    }

    /// A line of the model.
    pub(crate) fn pool(mut self, line: &str) -> Self {
        self.pool.push_str(&format!("    {line}\n"));
        self
    }

    /// One model more, in flow style and without braces; behind it the first gets no more endpoints.
    pub(crate) fn model(mut self, model: &str) -> Self {
        self.endpoints.push_str(&format!("  - {{ {model} }}\n"));
        self
    }

    /// Starts the gateway.
    pub(crate) async fn start(self) -> House {
        self.start_as(|_| ()).await
    }

    /// Starts the gateway with its configuration changed.
    pub(crate) async fn start_as(self, change: impl FnOnce(&mut config::Config)) -> House {
        let Self { top, pool, endpoints } = self;
        let text = format!(
            "server: {{ listen: 127.0.0.1:0, workers: 1, max_body: 4MiB, timeouts: {{ body_idle: 1s }} }}
admin: {{ listen: 127.0.0.1:0 }}
{top}models:
  - name: demo
{pool}    endpoints:
{endpoints}"
        );
        let mut config = config::parse(&text, "test.yaml", &|_| None).unwrap();
        change(&mut config);
        House { app: App::start(&config).await.unwrap(), asked: AtomicU32::new(0) }
    }
}

/// A running gateway.
pub(crate) struct House {
    /// The gateway.
    pub(crate) app: App,
    asked: AtomicU32,
}

impl House {
    /// Where clients connect.
    pub(crate) fn address(&self) -> SocketAddr {
        self.app.address
    }

    /// The key of an endpoint of the model.
    pub(crate) fn key(&self, name: &str) -> EndpointKey {
        EndpointKey::new(&format!("demo/{name}"))
    }

    /// An endpoint of the model.
    pub(crate) fn endpoint(&self, name: &str) -> Arc<Endpoint> {
        Arc::clone(self.app.fleet().endpoint(&self.key(name)).unwrap().1)
    }

    /// Requests in flight at the endpoint of this key, of any model.
    pub(crate) fn in_flight(&self, key: &str) -> u32 {
        self.app.fleet().endpoint(&EndpointKey::new(key)).unwrap().1.in_flight()
    }

    /// The breaker of an endpoint.
    pub(crate) fn view(&self, name: &str) -> View {
        self.endpoint(name).view(clock::now())
    }

    /// Asserts that nothing is held against an endpoint and nothing is in flight.
    pub(crate) async fn is_untouched(&self, name: &str) {
        let endpoint = self.endpoint(name);
        until("the slot is free", || endpoint.in_flight() == 0).await;
        let view = self.view(name);
        assert_eq!((view.state, view.streak, view.epoch), (State::Closed, 0, 0), "{name}");
        assert_eq!((view.faults, view.slow_pieces), (0.0, 0), "{name}");
    }

    /// Waits until an endpoint's breaker is in this state.
    pub(crate) async fn reaches(&self, name: &str, state: State) {
        until(&format!("{name} becomes {state}"), || self.view(name).state == state).await;
    }

    /// What the admin interface says at `path`.
    pub(crate) async fn admin(&self, path: &str) -> serde_json::Value {
        Ask::get(&format!("/admin/v1/{path}")).send(self.app.admin_address).await.json()
    }

    /// Sends a question.
    pub(crate) async fn ask(&self) -> Reply {
        self.send(Ask::chat()).await
    }

    /// Sends a question to be answered by a stream.
    pub(crate) async fn ask_stream(&self) -> Reply {
        self.send(Ask::stream()).await
    }

    /// Sends a request; a test that asks until something happens does not ask for ever.
    pub(crate) async fn send(&self, ask: Ask) -> Reply {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        assert!(asked < ASKED_MAX, "in vain: asked {asked} times");
        ask.send(self.address()).await
    }
}

/// A request of a client.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    method: Method,
    path: String,
    headers: Vec<(String, String)>,
    body: Bytes,
}

impl Ask {
    /// A chat request.
    pub(crate) fn chat() -> Self {
        Self::post("/v1/chat/completions", QUESTION)
    }

    /// A chat request to be answered by a stream.
    pub(crate) fn stream() -> Self {
        Self::post("/v1/chat/completions", STREAM_QUESTION)
    }

    /// A POST request.
    pub(crate) fn post(path: &str, body: impl Into<Vec<u8>>) -> Self {
        let body = Bytes::from(body.into());
        Self { method: Method::POST, path: path.to_owned(), headers: Vec::new(), body }
    }

    /// A GET request.
    pub(crate) fn get(path: &str) -> Self {
        Self { method: Method::GET, ..Self::post(path, "") }
    }

    /// An OPTIONS request.
    pub(crate) fn options(path: &str) -> Self {
        Self { method: Method::OPTIONS, ..Self::post(path, "") }
    }

    /// The same with one header more.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends it and reads the head of the answer.
    pub(crate) async fn open(&self, address: SocketAddr) -> Live {
        self.over(TcpStream::connect(address).await.unwrap()).await
    }

    /// Sends it over a connection of its own and reads the head of the answer.
    pub(crate) async fn over(&self, stream: TcpStream) -> Live {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(&self.path)
            .header("host", "gateway");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(self.body.clone())).unwrap();
        let sent = soon("the head of the answer", sender.send_request(request)).await;
        let (head, body) = sent.unwrap().into_parts();
        let (status, headers) = (head.status.as_u16(), head.headers);
        Live { reply: Reply { status, headers, body: Vec::new(), is_clean: false }, body }
    }

    /// Sends it and reads the whole answer.
    pub(crate) async fn send(&self, address: SocketAddr) -> Reply {
        self.open(address).await.rest().await
    }

    /// Sends it on a bare socket, which is the client from there on: dropped, the client has left.
    pub(crate) async fn wire(&self, address: SocketAddr) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        self.write(&mut stream).await;
        stream
    }

    /// Sends it on a bare socket that is there.
    pub(crate) async fn write(&self, stream: &mut TcpStream) {
        let (method, path) = (&self.method, &self.path);
        let length = self.body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&self.body).await.unwrap();
    }
}

/// Reads from a bare socket until `wanted` was read.
pub(crate) async fn read_until(stream: &mut TcpStream, wanted: &str) -> String {
    let mut text = String::new();
    while !text.contains(wanted) {
        let mut piece = [0; 4096];
        let length = soon(wanted, stream.read(&mut piece)).await.unwrap();
        assert!(length > 0, "ended before {wanted}: {text}");
        let piece: Vec<u8> = piece.into_iter().take(length).collect();
        text.push_str(&String::from_utf8_lossy(&piece));
    }
    text
}

/// An answer that is still coming.
pub(crate) struct Live {
    reply: Reply,
    body: Incoming,
}

impl Live {
    /// Reads until `wanted` was read.
    pub(crate) async fn reads(&mut self, wanted: &str) {
        while !self.reply.text().contains(wanted) {
            let frame = soon(wanted, self.body.frame()).await;
            self.reply.body.extend_from_slice(&frame.unwrap().unwrap().into_data().unwrap());
        }
    }

    /// Reads to the end.
    pub(crate) async fn rest(mut self) -> Reply {
        loop {
            match soon("the end of the answer", self.body.frame()).await {
                Some(Ok(frame)) => self.reply.body.extend_from_slice(&frame.into_data().unwrap()),
                Some(Err(_)) => return self.reply,
                None => break,
            }
        }
        self.reply.is_clean = true;
        self.reply
    }
}

/// An answer as a client saw it.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    /// The status.
    pub(crate) status: u16,
    /// The headers.
    pub(crate) headers: HeaderMap,
    /// The body.
    pub(crate) body: Vec<u8>,
    /// Whether it ended in good order.
    pub(crate) is_clean: bool,
}

impl Reply {
    /// The body as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// A header's value; empty if it is not there.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The endpoint that answered.
    pub(crate) fn endpoint(&self) -> &str {
        self.header("x-quorumgate-endpoint")
    }

    /// The code of the error, with its form checked: all four keys, and a request id.
    pub(crate) fn code(&self) -> String {
        let body = self.json();
        let error = body.get("error").and_then(|error| error.as_object()).unwrap();
        let keys: Vec<_> = error.keys().map(String::as_str).collect();
        assert_eq!(keys, ["code", "message", "param", "type"]);
        assert!(!self.header("x-request-id").is_empty());
        assert!(!self.text().contains("127.0.0.1"), "an address: {}", self.text());
        error.get("code").and_then(|code| code.as_str()).unwrap().to_owned()
    }
}
