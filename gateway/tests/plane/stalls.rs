//! Clients that stop reading are let go in time, and those that only read slowly are not.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Instant;

use crate::local::{Ask, House, Plan, QUESTION, STREAM_QUESTION, soon, until};
use crate::raw::{Act, DONE, FINISH, ROLE, Raw, chunk, event, good, open_stream, whole_stream};

/// How long the gateways of these tests wait for a reader.
const STALL: Duration = Duration::from_millis(400);

/// A slow reader of a stream pauses each time it has read this much.
const PAUSE_BYTES: usize = 16 * 1024;

/// A stream of `events` long events; one that does not end hangs.
fn long_stream(events: usize, has_end: bool) -> Vec<Act> {
    let long = event(&"y".repeat(60_000));
    let mut parts = vec![ROLE.to_owned()];
    parts.extend(std::iter::repeat_n(long, events));
    if !has_end {
        return [open_stream(&parts), vec![Act::Hang]].concat();
    }
    parts.extend([FINISH.to_owned(), DONE.to_owned()]);
    whole_stream(&parts)
}

/// An upstream whose streams are like this, and that answers plain questions at once.
async fn upstream(stream: Vec<Act>) -> Raw {
    Raw::start(move |_, seen| {
        if seen.text().contains("\"stream\"") {
            stream.clone()
        } else {
            vec![Act::Say(good("yes"))]
        }
    })
    .await
}

async fn house(raw: &Raw) -> House {
    let plan = Plan::of(&[("a", raw.address)]);
    plan.start_as(|config| config.server.write_stall = STALL).await
}

/// A stream's client whose kernel takes little on its behalf.
async fn small(address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(32 * 1024).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    Ask::stream().write(&mut stream).await;
    stream
}

async fn small_windows(address: SocketAddr) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(address).await.unwrap();
    let mut builder = Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(64 * 1024);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn question(body: &'static str) -> Request<Full<Bytes>> {
    let request = Request::builder().method(Method::POST).uri("http://x/v1/chat/completions");
    request.body(Full::new(Bytes::from(body))).unwrap()
}

async fn cuts(house: &House) -> String {
    let metrics = Ask::get("/metrics").send(house.app.admin_address).await;
    let cuts = metrics.text().lines().filter(|line| line.contains("by=\"write_stall\""));
    cuts.map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_reader_that_stops_is_cut_at_its_deadline() {
    let raw = upstream(long_stream(60, false)).await;
    let house = house(&raw).await;
    let began = Instant::now();
    let client = small(house.address()).await;
    until("the upstream is let go", || raw.left().len() == 1).await;
    let took = raw.left().pop().unwrap().saturating_duration_since(began);
    assert!(took >= STALL && took < STALL * 5, "{took:?}");
    house.is_untouched("a").await;
    assert_eq!(cuts(&house).await, "1");
    drop(client);
    assert_eq!(house.ask().await.status, 200);
}

#[tokio::test]
async fn a_reader_that_is_slow_but_reads_gets_everything() {
    let raw = upstream(long_stream(40, true)).await;
    let house = house(&raw).await;
    let mut client = small(house.address()).await;
    let (began, mut end, mut piece) = (Instant::now(), Vec::new(), vec![0; 128 * 1024]);
    while !end.ends_with(&chunk(b"")) {
        tokio::time::sleep(STALL / 8).await;
        let length = soon("more", client.read(&mut piece)).await.unwrap();
        assert!(length > 0, "cut after {:?}", began.elapsed());
        end.extend(piece.iter().take(length));
        end.drain(..end.len().saturating_sub(64));
    }
    assert!(began.elapsed() > STALL * 2, "{:?}", began.elapsed());
    assert_eq!(cuts(&house).await, "0");
}

#[tokio::test]
async fn a_stream_whose_window_stays_shut_is_reset_and_its_siblings_live() {
    let raw = upstream(long_stream(60, false)).await;
    let house = house(&raw).await;
    let mut client = small_windows(house.address()).await;
    let began = Instant::now();
    let shut = soon("a head", client.send_request(question(STREAM_QUESTION))).await.unwrap();
    while raw.left().is_empty() {
        let answer = soon("a sibling", client.send_request(question(QUESTION))).await.unwrap();
        assert_eq!(answer.status(), 200);
        assert!(began.elapsed() < STALL * 5, "it is not reset");
        tokio::time::sleep(STALL / 10).await;
    }
    assert!(began.elapsed() >= STALL);
    house.is_untouched("a").await;
    assert_eq!(cuts(&house).await, "1");
    let mut body = shut.into_body();
    let end = loop {
        let frame = soon("the end", body.frame()).await.unwrap();
        if frame.is_err() {
            break frame;
        }
    };
    assert!(end.is_err());
    let answer = soon("a sibling", client.send_request(question(QUESTION))).await.unwrap();
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn a_stream_that_is_read_slowly_gets_everything() {
    let raw = upstream(long_stream(20, true)).await;
    let house = house(&raw).await;
    let mut client = small_windows(house.address()).await;
    let answer = soon("a head", client.send_request(question(STREAM_QUESTION))).await.unwrap();
    let (began, mut body, mut read) = (Instant::now(), answer.into_body(), 0);
    while let Some(frame) = soon("more", body.frame()).await {
        let length = frame.unwrap().into_data().unwrap().len();
        // A client's library that is read slowly opens its window by less and less.
        if (read + length) / PAUSE_BYTES > read / PAUSE_BYTES {
            tokio::time::sleep(STALL / 20).await;
        }
        read += length;
    }
    assert!(read > 20 * 60_000, "{read}");
    assert!(began.elapsed() > STALL * 2, "{:?}", began.elapsed());
    assert_eq!(cuts(&house).await, "0");
}

#[tokio::test]
async fn who_waits_for_a_silent_upstream_is_not_taken_for_one_who_does_not_read() {
    let mut script = open_stream(&[ROLE, &event("one")]);
    script.push(Act::Rest(STALL * 3));
    script.extend(whole_stream(&[event("two").as_str(), FINISH, DONE]).into_iter().skip(1));
    let raw = upstream(script).await;
    let house = house(&raw).await;
    let mut client = small_windows(house.address()).await;
    let http2 = async {
        let answer = client.send_request(question(STREAM_QUESTION)).await.unwrap();
        answer.into_body().collect().await.unwrap().to_bytes()
    };
    let (http1, http2) = tokio::join!(house.ask_stream(), http2);
    assert!(http1.is_clean && http1.text().ends_with(DONE));
    assert!(http2.ends_with(DONE.as_bytes()));
    assert_eq!(cuts(&house).await, "0");
}

#[tokio::test]
async fn a_client_that_still_sends_what_was_refused_reads_why() {
    let raw = Raw::always(vec![Act::Hang]).await;
    let house = Plan::of(&[("a", raw.address)]).start().await;
    let long = vec![b'y'; 6 * 1024 * 1024];
    for round in 0..10 {
        let mut wire = TcpStream::connect(house.address()).await.unwrap();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
            long.len()
        );
        wire.write_all(head.as_bytes()).await.unwrap();
        wire.write_all(&long).await.unwrap_or_else(|error| panic!("round {round}: {error}"));
        let mut answer = String::new();
        soon("the answer", wire.read_to_string(&mut answer)).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 413 "), "round {round}: {answer}");
        assert!(answer.contains("body_too_large"), "round {round}: {answer}");
    }
    assert_eq!(raw.count(), 0);
}
