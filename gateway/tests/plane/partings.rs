//! What is said last is heard: why a stream broke, by a client that reads slowly, and why a request was
//! refused, by one that is still sending it.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::Builder;
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::local::{Ask, House, Plan, STREAM_QUESTION, soon};
use crate::raw::{Act, ROLE, Raw, chunk, event, open_stream};

/// Long events before the break: more than all buffers on the way to the client hold.
const EVENTS: usize = 80;
/// The client pauses for this long before it reads on, and again each time it has read so much.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_BYTES: usize = 64 * 1024;

/// A gateway before an upstream that breaks off in the middle of a long stream.
async fn house() -> House {
    let long = event(&"y".repeat(60_000));
    let mut parts = vec![ROLE.to_owned()];
    parts.extend(std::iter::repeat_n(long, EVENTS));
    let raw = Raw::always([open_stream(&parts), vec![Act::Close]].concat()).await;
    Plan::of(&[("a", raw.address)]).start().await
}

fn is_told(end: &[u8]) -> bool {
    String::from_utf8_lossy(end).contains("stream_interrupted")
}

#[tokio::test]
async fn a_slow_reader_gets_the_error_event_and_an_unclean_end() {
    let house = house().await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(32 * 1024).unwrap();
    let mut client = socket.connect(house.address()).await.unwrap();
    Ask::stream().write(&mut client).await;
    tokio::time::sleep(FIRST_PAUSE).await;
    let (mut read, mut end, mut piece) = (0, Vec::new(), vec![0; PAUSE_BYTES]);
    loop {
        tokio::time::sleep(PAUSE).await;
        let length = soon("more", client.read(&mut piece)).await.unwrap();
        if length == 0 {
            break;
        }
        read += length;
        end.extend(piece.iter().take(length));
        end.drain(..end.len().saturating_sub(1024));
    }
    assert!(read > EVENTS * 60_000, "{read}");
    assert!(is_told(&end), "{}", String::from_utf8_lossy(&end));
    assert!(!end.ends_with(&chunk(b"")));
}

#[tokio::test]
async fn a_slow_reader_of_http2_gets_the_error_event_and_a_reset() {
    let house = house().await;
    let stream = TcpStream::connect(house.address()).await.unwrap();
    let mut builder = Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(64 * 1024);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::builder().method(Method::POST).uri("http://x/v1/chat/completions");
    let request = request.body(Full::new(Bytes::from(STREAM_QUESTION))).unwrap();
    let answer = soon("a head", sender.send_request(request)).await.unwrap();
    tokio::time::sleep(FIRST_PAUSE).await;
    let (mut body, mut read, mut end) = (answer.into_body(), 0, Vec::new());
    let error = loop {
        let frame = soon("more", body.frame()).await.unwrap();
        let bytes = match frame {
            Ok(frame) => frame.into_data().unwrap(),
            Err(error) => break error,
        };
        if (read + bytes.len()) / PAUSE_BYTES > read / PAUSE_BYTES {
            tokio::time::sleep(PAUSE).await;
        }
        read += bytes.len();
        end.extend_from_slice(&bytes);
        end.drain(..end.len().saturating_sub(1024));
    };
    assert!(read > EVENTS * 60_000, "{read} {error}");
    assert!(is_told(&end), "{}", String::from_utf8_lossy(&end));
}

#[tokio::test]
async fn a_client_that_is_refused_while_it_sends_reads_why() {
    let house = house().await;
    for _ in 0..5 {
        let mut client = TcpStream::connect(house.address()).await.unwrap();
        let length = 8 * 1024 * 1024;
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n"
        );
        client.write_all(head.as_bytes()).await.unwrap();
        for _ in 0..length / PAUSE_BYTES {
            client.write_all(&[b'y'; PAUSE_BYTES]).await.unwrap();
        }
        let mut answer = String::new();
        soon("an answer", client.read_to_string(&mut answer)).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    }
}
