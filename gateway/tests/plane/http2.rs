//! Clients that speak HTTP/2 in the clear: many streams on one connection, none at the others' cost.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Method, Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::local;
use crate::local::{Ask, House, Plan, QUESTION, STREAM_QUESTION, soon, until};
use crate::raw::{Act, DONE, FINISH, ROLE, Raw, event, good, open_stream, whole_stream};

/// The upstream is let go within this, counted from the client's leaving.
const LET_GO_MAX: Duration = Duration::from_millis(200);

/// One client connection.
#[derive(Clone)]
struct Client(SendRequest<Full<Bytes>>);

impl Client {
    async fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap()).await
    }

    async fn over(stream: TcpStream) -> Self {
        let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (sender, connection) = shaken.unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    async fn open(&self, body: &str) -> hyper::Result<Response<Incoming>> {
        let request = Request::builder()
            .method(Method::POST)
            .uri("http://gateway/v1/chat/completions")
            .body(Full::new(Bytes::from(body.to_owned())));
        self.0.clone().send_request(request.unwrap()).await
    }

    async fn ask(&self) -> u16 {
        soon("an answer", self.open(QUESTION)).await.unwrap().status().as_u16()
    }
}

/// Reads until `wanted` was read.
async fn reads(body: &mut Incoming, wanted: &str) -> String {
    let mut text = String::new();
    while !text.contains(wanted) {
        let frame = soon(wanted, body.frame()).await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
    }
    text
}

/// An upstream that answers plain questions at once and begins streams without an end.
async fn endless() -> Raw {
    Raw::start(|_, seen| {
        if seen.text().contains("\"stream\"") {
            [open_stream(&[ROLE, &event("one")]), vec![Act::Hang]].concat()
        } else {
            vec![Act::Say(good("yes"))]
        }
    })
    .await
}

async fn house(raw: &Raw) -> House {
    Plan::of(&[("a", raw.address)]).start().await
}

#[tokio::test]
async fn http2_in_the_clear_is_served_to_who_begins_with_it() {
    let raw = endless().await;
    let house = house(&raw).await;
    let client = Client::connect(house.address()).await;
    let answer = soon("an answer", client.open(QUESTION)).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.version()), (200, Version::HTTP_2));
    assert!(answer.headers().contains_key("x-request-id"));
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(std::str::from_utf8(&body).unwrap().contains("yes"));
    assert_eq!(house.ask().await.status, 200);
}

#[tokio::test]
async fn a_preface_that_comes_byte_by_byte_is_one_and_what_only_begins_like_it_is_not() {
    let raw = endless().await;
    let house = house(&raw).await;
    let mut stream = TcpStream::connect(house.address()).await.unwrap();
    stream.set_nodelay(true).unwrap();
    for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0" {
        stream.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut frame = [0; 9];
    soon("settings", stream.read_exact(&mut frame)).await.unwrap();
    assert_eq!(frame[3], 4, "a SETTINGS frame");

    let mut stream = TcpStream::connect(house.address()).await.unwrap();
    stream.write_all(b"PRI * HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let answer = local::read_until(&mut stream, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
}

#[tokio::test]
async fn what_belongs_to_one_connection_of_http1_is_not_said_in_http2() {
    let raw = endless().await;
    let house = house(&raw).await;
    let client = Client::connect(house.address()).await;
    let long = format!("{{\"model\":\"demo\",\"x\":\"{}\"}}", "y".repeat(5 * 1024 * 1024));
    let answer = soon("a refusal", client.open(&long)).await.unwrap();
    assert_eq!(answer.status(), 413);
    for name in ["connection", "keep-alive", "transfer-encoding"] {
        assert!(!answer.headers().contains_key(name), "{name}");
    }
    assert_eq!(client.ask().await, 200);
    let http1 = house.send(Ask::post("/v1/chat/completions", long)).await;
    assert_eq!((http1.status, http1.header("connection")), (413, "close"));
}

#[tokio::test]
async fn a08_a_stream_that_is_reset_lets_its_upstream_go_and_its_siblings_live() {
    let raw = endless().await;
    let house = house(&raw).await;
    let client = Client::connect(house.address()).await;
    let mut first = client.open(STREAM_QUESTION).await.unwrap().into_body();
    let mut second = client.open(STREAM_QUESTION).await.unwrap().into_body();
    reads(&mut first, "one").await;
    reads(&mut second, "one").await;
    let left_at = Instant::now();
    drop(first);
    until("the upstream is let go", || raw.left().len() == 1).await;
    assert!(raw.left().pop().unwrap().saturating_duration_since(left_at) <= LET_GO_MAX);
    until("its slot is free", || house.endpoint("a").in_flight() == 1).await;
    assert_eq!(client.ask().await, 200);
    assert_eq!(raw.left().len(), 1);
    drop(second);
    house.is_untouched("a").await;
}

#[tokio::test]
async fn a02_a_stream_that_is_reset_while_it_waits_lets_its_upstream_go() {
    let raw = Raw::always(vec![Act::Hang]).await;
    let house = house(&raw).await;
    let client = Client::connect(house.address()).await;
    for (number, body) in [QUESTION, STREAM_QUESTION].into_iter().enumerate() {
        let waiting = tokio::spawn({
            let client = client.clone();
            async move { client.open(body).await.map(|_| ()) }
        });
        until("the upstream is asked", || raw.count() == number + 1).await;
        let left_at = Instant::now();
        waiting.abort();
        until("the upstream is let go", || raw.left().len() == number + 1).await;
        assert!(raw.left().pop().unwrap().saturating_duration_since(left_at) <= LET_GO_MAX);
        house.is_untouched("a").await;
    }
}

#[tokio::test]
async fn a_connection_that_ends_lets_the_upstreams_of_all_its_streams_go() {
    let raw = endless().await;
    let house = house(&raw).await;
    let stream = std::net::TcpStream::connect(house.address()).unwrap();
    stream.set_nonblocking(true).unwrap();
    let same = stream.try_clone().unwrap();
    let client = Client::over(TcpStream::from_std(stream).unwrap()).await;
    let mut bodies = Vec::new();
    for _ in 0..20 {
        let mut body = client.open(STREAM_QUESTION).await.unwrap().into_body();
        reads(&mut body, "one").await;
        bodies.push(body);
    }
    assert_eq!(house.endpoint("a").in_flight(), 20);
    let left_at = Instant::now();
    same.shutdown(std::net::Shutdown::Both).unwrap();
    until("all are let go", || raw.left().len() == 20).await;
    assert!(raw.left().pop().unwrap().saturating_duration_since(left_at) <= LET_GO_MAX);
    house.is_untouched("a").await;
}

#[tokio::test]
async fn the_hundred_and_first_stream_waits_for_one_of_the_hundred() {
    let raw = Raw::always(vec![Act::Hang]).await;
    let house = house(&raw).await;
    let client = Client::connect(house.address()).await;
    let mut waiting = Vec::new();
    for _ in 0..130 {
        let client = client.clone();
        waiting.push(tokio::spawn(async move { client.open(QUESTION).await.map(|_| ()) }));
    }
    until("a hundred are asked", || raw.count() == 100).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!((raw.count(), house.endpoint("a").in_flight()), (100, 100));
    for one in waiting.drain(..100) {
        one.abort();
    }
    until("the others follow", || raw.count() >= 130 && house.endpoint("a").in_flight() == 30)
        .await;
}

#[tokio::test]
async fn a_stream_that_breaks_says_so_and_is_reset() {
    let raw = Raw::always([open_stream(&[ROLE, &event("one")]), vec![Act::Reset]].concat()).await;
    let house = house(&raw).await;
    let client = Client::connect(house.address()).await;
    let mut body = client.open(STREAM_QUESTION).await.unwrap().into_body();
    let text = reads(&mut body, "stream_interrupted").await;
    assert!(text.contains("one") && !text.contains("[DONE]"), "{text}");
    assert!(soon("the end", body.frame()).await.unwrap().is_err());
}

#[tokio::test]
async fn a_list_of_headers_that_is_too_long_is_refused_alone() {
    let raw = endless().await;
    let house = house(&raw).await;
    let client = Client::connect(house.address()).await;
    let request = Request::builder()
        .method(Method::POST)
        .uri("http://gateway/v1/chat/completions")
        .header("x-long", "y".repeat(20 * 1024))
        .body(Full::new(Bytes::from(QUESTION)));
    let refused = soon("an answer", client.0.clone().send_request(request.unwrap())).await;
    assert!(refused.is_err() || refused.unwrap().status() == 431);
    assert_eq!(raw.count(), 0);
    assert_eq!(client.ask().await, 200);
}

#[tokio::test]
async fn t13_c16_a_drain_finishes_the_streams_and_refuses_new_ones() {
    let mut script = open_stream(&[ROLE, &event("one")]);
    script.push(Act::Wait);
    script.extend(whole_stream(&[event("two").as_str(), FINISH, DONE]).into_iter().skip(1));
    let raw = Raw::always(script).await;
    let plan = Plan::of(&[("a", raw.address)]);
    let house = plan.start_as(|config| config.server.drain_delay = Duration::ZERO).await;
    let client = Client::connect(house.address()).await;
    let mut bodies = Vec::new();
    for _ in 0..20 {
        let mut body = client.open(STREAM_QUESTION).await.unwrap().into_body();
        reads(&mut body, "one").await;
        bodies.push(body);
    }
    let drained = tokio::spawn(house.app.shutdown());
    let refused = async {
        while client.open(STREAM_QUESTION).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    soon("a new stream is refused", refused).await;
    let asked = raw.count();
    assert!(!drained.is_finished());
    (0..asked).for_each(|_| raw.go());
    for mut body in bodies {
        let text = reads(&mut body, DONE).await;
        assert!(text.contains("two"));
        assert!(soon("the end", body.frame()).await.is_none());
    }
    soon("the drain", drained).await.unwrap();
}
