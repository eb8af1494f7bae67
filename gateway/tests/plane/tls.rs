//! Clients that come by TLS, what they are shown, and those who come to the wrong door.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gateway::app::{App, StartError};
use gateway::config::{self, ServerTls};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::local::{House, Plan, QUESTION, STREAM_QUESTION, soon, until};
use crate::raw::{Act, DONE, FINISH, ROLE, Raw, event, good, open_stream, whole_stream};

/// The upstream is let go within this, counted from the client's leaving.
const LET_GO_MAX: Duration = Duration::from_millis(200);

/// A certificate of its own authority, in files.
struct Paper {
    directory: TempDir,
    der: CertificateDer<'static>,
}

impl Paper {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["gateway.test".to_owned()]).unwrap();
        std::fs::write(directory.path().join("cert"), made.cert.pem()).unwrap();
        std::fs::write(directory.path().join("key"), made.signing_key.serialize_pem()).unwrap();
        Self { directory, der: made.cert.der().clone() }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn files(&self) -> ServerTls {
        ServerTls { cert: self.path("cert"), key: self.path("key") }
    }

    /// A client that trusts this certificate alone.
    fn client(
        &self,
        alpn: &[&str],
        versions: &[&'static SupportedProtocolVersion],
    ) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_protocol_versions(versions).unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        TlsConnector::from(Arc::new(config))
    }

    async fn connect(&self, address: SocketAddr, alpn: &[&str]) -> TlsStream<TcpStream> {
        connect(&self.client(alpn, rustls::ALL_VERSIONS), address).await.unwrap()
    }
}

async fn connect(
    client: &TlsConnector,
    address: SocketAddr,
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("gateway.test").unwrap();
    soon("a handshake", client.connect(name, stream)).await
}

async fn house(paper: &Paper, raw: &Raw) -> House {
    let files = paper.files();
    Plan::of(&[("a", raw.address)]).start_as(|config| config.server.tls = Some(files)).await
}

async fn yes() -> Raw {
    Raw::always(vec![Act::Say(good("yes"))]).await
}

fn question(body: &'static str) -> Request<Full<Bytes>> {
    let request = Request::builder().method(Method::POST).uri("https://x/v1/chat/completions");
    request.header("host", "x").body(Full::new(Bytes::from(body))).unwrap()
}

/// Asks over a secured connection, in the version that was agreed upon.
async fn ask(stream: TlsStream<TcpStream>, body: &'static str) -> Response<Incoming> {
    let io = TokioIo::new(stream);
    if io.inner().get_ref().1.alpn_protocol() == Some(b"h2") {
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        return soon("an answer", sender.send_request(question(body))).await.unwrap();
    }
    let (mut sender, connection) = http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    soon("an answer", sender.send_request(question(body))).await.unwrap()
}

#[tokio::test]
async fn both_versions_of_tls_and_of_http_are_spoken() {
    let (paper, raw) = (Paper::new(), yes().await);
    let house = house(&paper, &raw).await;
    let tls = [&rustls::version::TLS13, &rustls::version::TLS12];
    for version in tls {
        for (alpn, agreed) in [
            (vec!["h2", "http/1.1"], hyper::Version::HTTP_2),
            (vec!["http/1.1"], hyper::Version::HTTP_11),
            (vec![], hyper::Version::HTTP_11),
        ] {
            let client = paper.client(&alpn, &[version]);
            let stream = connect(&client, house.address()).await.unwrap();
            let answer = ask(stream, QUESTION).await;
            assert_eq!((answer.status().as_u16(), answer.version()), (200, agreed), "{alpn:?}");
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            assert!(std::str::from_utf8(&body).unwrap().contains("yes"));
        }
    }
    assert_eq!(raw.count(), 6);
}

#[tokio::test]
async fn a_stream_comes_whole_over_tls_in_both_versions_of_http() {
    let raw = Raw::always(whole_stream(&[ROLE, &event("one"), FINISH, DONE])).await;
    let paper = Paper::new();
    let house = house(&paper, &raw).await;
    for alpn in ["h2", "http/1.1"] {
        let stream = paper.connect(house.address(), &[alpn]).await;
        let answer = ask(stream, STREAM_QUESTION).await;
        let body = soon("the stream", answer.into_body().collect()).await.unwrap().to_bytes();
        let text = std::str::from_utf8(&body).unwrap();
        assert_eq!(text, [ROLE, &event("one"), FINISH, DONE].concat());
    }
}

#[tokio::test]
async fn a02_a03_a_client_that_leaves_by_tls_lets_the_upstream_go() {
    let hang = Raw::always(vec![Act::Hang]).await;
    let mute = Raw::always([open_stream(&[ROLE, &event("one")]), vec![Act::Hang]].concat()).await;
    let paper = Paper::new();
    for raw in [&hang, &mute] {
        let house = house(&paper, raw).await;
        for (number, body) in [QUESTION, STREAM_QUESTION].into_iter().enumerate() {
            let mut stream = paper.connect(house.address(), &[]).await;
            let length = body.len();
            let head = format!(
                "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}"
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            until("the upstream is asked", || raw.count() == number + 1).await;
            let left_at = Instant::now();
            drop(stream);
            until("the upstream is let go", || raw.left().len() == number + 1).await;
            assert!(raw.left().pop().unwrap().saturating_duration_since(left_at) <= LET_GO_MAX);
            house.is_untouched("a").await;
        }
    }
}

#[tokio::test]
async fn a_reader_that_stops_is_cut_by_tls_too() {
    let mut parts = vec![ROLE.to_owned()];
    parts.extend(std::iter::repeat_n(event(&"y".repeat(60_000)), 60));
    let raw = Raw::always([open_stream(&parts), vec![Act::Hang]].concat()).await;
    let (paper, stall) = (Paper::new(), Duration::from_millis(300));
    let files = paper.files();
    let change = |config: &mut config::Config| {
        config.server.tls = Some(files);
        config.server.write_stall = stall;
    };
    let house = Plan::of(&[("a", raw.address)]).start_as(change).await;
    for alpn in ["http/1.1", "h2"] {
        let gone = raw.left().len();
        let began = Instant::now();
        let answer = ask(paper.connect(house.address(), &[alpn]).await, STREAM_QUESTION).await;
        until("the upstream is let go", || raw.left().len() > gone).await;
        assert!(began.elapsed() >= stall && began.elapsed() < stall * 10, "{:?}", began.elapsed());
        drop(answer);
        house.is_untouched("a").await;
    }
}

#[tokio::test]
async fn k11_another_certificate_is_shown_while_connections_stand() {
    let (first, second, raw) = (Paper::new(), Paper::new(), yes().await);
    let house = house(&first, &raw).await;
    let old = first.connect(house.address(), &["http/1.1"]).await;
    let (mut sender, connection) = http1::handshake(TokioIo::new(old)).await.unwrap();
    tokio::spawn(connection);
    let identity = house.app.identity.as_ref().unwrap();
    let torn = ServerTls { cert: second.path("cert"), key: first.path("key") };
    identity.replace(&torn).unwrap_err();
    first.connect(house.address(), &[]).await;
    identity.replace(&second.files()).unwrap();
    second.connect(house.address(), &[]).await;
    let stale = first.client(&[], rustls::ALL_VERSIONS);
    assert!(connect(&stale, house.address()).await.is_err());
    let answer = soon("an answer", sender.send_request(question(QUESTION))).await.unwrap();
    assert_eq!(answer.status(), 200);
}

async fn start_error(files: ServerTls) -> String {
    let text = "server: { listen: 127.0.0.1:0 }\nadmin: { listen: 127.0.0.1:0 }\nmodels:
  - { name: m, endpoints: [{ name: a, address: \"http://127.0.0.1:1\" }] }\n";
    let mut config = config::parse(text, "test.yaml", &|_| None).unwrap();
    config.server.tls = Some(files);
    let Err(error @ StartError::Tls(_)) = App::start(&config).await else {
        return "it starts".to_owned();
    };
    error.to_string()
}

#[tokio::test]
async fn a_certificate_that_cannot_be_shown_stops_the_start_in_one_line() {
    let (paper, other) = (Paper::new(), Paper::new());
    let write = |name: &str, text: &str| {
        std::fs::write(paper.path(name), text).unwrap();
        paper.path(name)
    };
    let (cert, key) = (paper.path("cert"), paper.path("key"));
    let (none, empty, text) = (paper.path("none"), write("empty", ""), write("text", "hello"));
    let directory = paper.directory.path().to_owned();
    let broken = write("broken", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let is = |part: &str, path: &Path| (part.to_owned(), path.to_owned());
    for ((said, named), cert, key) in [
        (is("cannot be read", &none), &none, &key),
        (is("cannot be read", &none), &cert, &none),
        (is("cannot be read", &directory), &directory, &key),
        (is("holds no readable certificate", &empty), &empty, &key),
        (is("holds no readable certificate", &text), &text, &key),
        (is("holds no readable certificate", &key), &key, &key),
        (is("holds no readable private key", &text), &cert, &text),
        (is("holds no readable private key", &cert), &cert, &cert),
        (is("cannot be used", &broken), &broken, &key),
        (is("does not belong to", &other.path("key")), &cert, &other.path("key")),
    ] {
        let error = start_error(ServerTls { cert: cert.clone(), key: key.clone() }).await;
        assert!(error.starts_with("server.tls"), "{error}");
        assert!(error.contains(&said) && error.contains(named.to_str().unwrap()), "{error}");
        assert_eq!(error.lines().count(), 1);
        assert!(!error.contains("BEGIN"), "{error}");
    }
}

#[tokio::test]
async fn h46_who_speaks_tls_in_the_clear_or_not_where_he_should_is_shown_out() {
    let (paper, raw) = (Paper::new(), yes().await);
    let clear = Plan::of(&[("a", raw.address)]).start().await;
    assert!(connect(&paper.client(&[], rustls::ALL_VERSIONS), clear.address()).await.is_err());
    assert_eq!(clear.ask().await.status, 200);
    let secured = house(&paper, &raw).await;
    for bytes in
        ["GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\0\0"]
    {
        let mut stream = TcpStream::connect(secured.address()).await.unwrap();
        stream.write_all(bytes.as_bytes()).await.unwrap();
        let mut said = Vec::new();
        let _ = soon("the end", stream.read_to_end(&mut said)).await;
        assert!(said.len() < 16 && !said.starts_with(b"HTTP"), "{said:?}");
    }
    paper.connect(secured.address(), &[]).await;
    assert_eq!(raw.count(), 1);
}

#[tokio::test]
async fn h08_h47_behind_a_handshake_a_client_of_http1_is_guarded_as_in_the_clear() {
    let (paper, raw) = (Paper::new(), yes().await);
    let (files, first_byte) = (paper.files(), Duration::from_millis(300));
    let plan = Plan::of(&[("a", raw.address)]).start_as(|config| {
        (config.server.tls, config.server.first_byte_timeout) = (Some(files), first_byte);
    });
    let house = plan.await;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n";
    let bad = format!("{head}transfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n");
    for (says, begins) in [(bad.as_str(), "HTTP/1.1 400 "), ("", "")] {
        let mut stream = paper.connect(house.address(), &["http/1.1"]).await;
        stream.write_all(says.as_bytes()).await.unwrap();
        let mut said = Vec::new();
        let _ = soon("the end", stream.read_to_end(&mut said)).await;
        let said = String::from_utf8(said).unwrap();
        assert!(said.starts_with(begins) && said.is_empty() == begins.is_empty(), "{said}");
    }
    assert_eq!(raw.count(), 0);
    assert_eq!(ask(paper.connect(house.address(), &[]).await, QUESTION).await.status(), 200);
}

#[tokio::test]
async fn h34_a_refusal_by_tls_is_said_to_be_over_whatever_an_upgrade_was_asked_for() {
    let (paper, raw) = (Paper::new(), yes().await);
    let house = house(&paper, &raw).await;
    for lines in ["", "connection: upgrade\r\nupgrade: h2c\r\n"] {
        let mut stream = paper.connect(house.address(), &["http/1.1"]).await;
        let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n";
        stream.write_all(format!("{head}{lines}\r\n{{").as_bytes()).await.unwrap();
        let mut said = String::new();
        // Without an alert that says so, the end is an error.
        soon("the end", stream.read_to_string(&mut said)).await.unwrap();
        assert!(said.starts_with("HTTP/1.1 413 ") && said.ends_with('}'), "{said}");
    }
    assert_eq!(raw.count(), 0);
}

#[tokio::test]
async fn t14_old_versions_and_unknown_protocols_are_refused() {
    let (paper, raw) = (Paper::new(), yes().await);
    let house = house(&paper, &raw).await;
    let unknown = paper.client(&["spdy/3"], rustls::ALL_VERSIONS);
    assert!(connect(&unknown, house.address()).await.is_err());
    for minor in [1, 2] {
        // A ClientHello of TLS 1.0 or 1.1: version, random, no session, one cipher, no compression.
        let mut hello = vec![1, 0, 0, 41, 3, minor];
        hello.extend([7; 32]);
        hello.extend([0, 0, 2, 0xc0, 0x13, 1, 0]);
        let mut record = vec![22, 3, 1, 0, 45];
        record.extend(hello);
        let mut stream = TcpStream::connect(house.address()).await.unwrap();
        stream.write_all(&record).await.unwrap();
        let mut said = Vec::new();
        let _ = soon("the end", stream.read_to_end(&mut said)).await;
        assert_eq!(said.first(), Some(&21), "an alert: {said:?}");
    }
    paper.connect(house.address(), &[]).await;
}

/// Passes on what a client sends byte by byte.
async fn dripping(address: SocketAddr) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let server = TcpStream::connect(address).await.unwrap();
        server.set_nodelay(true).unwrap();
        let (mut from, mut to) = client.into_split();
        let (mut back, mut forth) = server.into_split();
        tokio::spawn(async move { tokio::io::copy(&mut back, &mut to).await });
        while let Ok(byte) = from.read_u8().await {
            forth.write_all(&[byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    own
}

#[tokio::test]
async fn t14_a_handshake_in_pieces_succeeds_and_half_ones_keep_nobody_out() {
    let (paper, raw) = (Paper::new(), yes().await);
    let house = house(&paper, &raw).await;
    let stream = paper.connect(dripping(house.address()).await, &[]).await;
    assert_eq!(ask(stream, QUESTION).await.status(), 200);
    let mut half = Vec::new();
    for number in 0..1_000 {
        let mut stream = TcpStream::connect(house.address()).await.unwrap();
        // Some say nothing, some begin a record and leave it at that.
        if number % 4 == 0 {
            stream.write_all(&[22, 3, 1, 1, 0, 1]).await.unwrap();
        }
        half.push(stream);
    }
    let began = Instant::now();
    let stream = paper.connect(house.address(), &["h2"]).await;
    assert_eq!(ask(stream, QUESTION).await.status(), 200);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}
