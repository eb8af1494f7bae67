//! Handshakes that never end.

use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::local::QUESTION;
use crate::raw::{Act, Raw, good};
use crate::stand::Stand;

/// How many begin and do not end.
const COUNT: usize = 1_000;
/// What each costs, in KiB.
const SHAKE_KIB_MAX: u64 = 64;
/// How long the last of them may stay: ten seconds, and what a busy machine needs.
const STAY_MAX: Duration = Duration::from_secs(14);

/// Asks for a chat, once.
pub(crate) async fn asks<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) {
    let length = QUESTION.len();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n{QUESTION}"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said).await;
    let said = String::from_utf8_lossy(&said);
    assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
}

/// Half a ClientHello: a whole one is longer.
fn half() -> Vec<u8> {
    let mut hello = vec![22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];
    hello.extend([7; 200]);
    hello
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t14_a_thousand_handshakes_that_never_end_cost_little_and_others_are_served() {
    let stand = Stand::secured(Raw::always(vec![Act::Say(good("yes"))]).await).await;
    let (before, began) = (stand.resident_kib(), Instant::now());
    let mut held: Vec<TcpStream> = Vec::new();
    for _ in 0..COUNT {
        let mut stream = stand.connect().await;
        stream.write_all(&half()).await.unwrap();
        held.push(stream);
    }
    stand.serves_others().await;
    stand.costs("a handshake that never ends", before, COUNT, SHAKE_KIB_MAX);
    println!("another client is served behind {COUNT} after {:?}", began.elapsed());
    for mut stream in held {
        let mut said = Vec::new();
        let left = STAY_MAX.saturating_sub(began.elapsed());
        assert!(tokio::time::timeout(left, stream.read_to_end(&mut said)).await.is_ok());
    }
    let cut = stand.counted("client_connections_cut_total{by=\"handshake\"}").await;
    assert!(cut >= u64::try_from(COUNT).unwrap(), "{cut}");
    stand.serves_others().await;
}
