//! Clients that take their time, and more of them than there is room for.

use std::time::{Duration, Instant};

use gateway::config::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::kit::{SHORT, Ward, chat, is_refused, question, rest, statuses};
use crate::local::{read_until, soon, until};

/// Timers fire a little late, and machines are busy.
const SLACK: Duration = Duration::from_millis(1_500);
/// How often a client that drips says something.
const DRIP: Duration = Duration::from_millis(40);

fn is_about(took: Duration, expected: Duration) {
    assert!(took >= expected && took < expected + SLACK, "{took:?} is not {expected:?}");
}

async fn ward(change: impl FnOnce(&mut Config)) -> Ward {
    Ward::with("", change).await
}

#[tokio::test]
async fn h47_who_says_nothing_is_let_go() {
    let ward = ward(|config| config.server.first_byte_timeout = SHORT).await;
    let began = Instant::now();
    let mut stream = ward.connect().await;
    assert_eq!(rest(&mut stream).await, "");
    is_about(began.elapsed(), SHORT);
    assert_eq!(ward.counted("client_connections_cut_total{by=\"first_byte\"}").await, 1);
    ward.is_unharmed(0).await;
}

#[tokio::test]
async fn h49_a_head_that_drips_is_refused_when_its_time_is_over() {
    let ward = ward(|config| config.server.header_timeout = SHORT).await;
    let mut stream = ward.connect().await;
    // What was asked before is answered first, and its time is not the next one's.
    stream.write_all(question("").as_bytes()).await.unwrap();
    read_until(&mut stream, "yes").await;
    tokio::time::sleep(SHORT).await;
    let began = Instant::now();
    let dripped = async {
        let (mut reads, mut writes) = stream.split();
        let drips = async {
            for byte in question("X: y\r\n").bytes() {
                if writes.write_all(&[byte]).await.is_err() {
                    break;
                }
                tokio::time::sleep(DRIP).await;
            }
        };
        let mut said = String::new();
        tokio::select! {
            read = reads.read_to_string(&mut said) => drop(read),
            () = drips => {}
        }
        said
    };
    let said = soon("the refusal", dripped).await;
    is_about(began.elapsed(), SHORT);
    let said = &said[said.find("HTTP/1.1").unwrap()..];
    is_refused(said, 408, "request_timeout", "dripped");
    assert_eq!(ward.counted("guard_refusals_total{reason=\"late\"}").await, 1);
    ward.is_unharmed(1).await;
}

#[tokio::test]
async fn h50_a_body_that_drips_is_refused_though_it_never_pauses() {
    let ward = ward(|config| config.server.body_idle = SHORT).await;
    let began = Instant::now();
    let mut stream = ward.connect().await;
    let (mut reads, mut writes) = stream.split();
    let drips = async {
        let _ = writes.write_all(chat("Content-Length: 100000\r\n", "").as_bytes()).await;
        while writes.write_all(b" ").await.is_ok() {
            tokio::time::sleep(DRIP).await;
        }
    };
    let mut said = String::new();
    let reads = soon("the refusal", reads.read_to_string(&mut said));
    tokio::select! {
        read = reads => drop(read),
        () = drips => {}
    }
    is_about(began.elapsed(), SHORT);
    is_refused(&said, 408, "request_timeout", "dripped");
    ward.is_unharmed(0).await;
}

#[tokio::test]
async fn h52_an_idle_connection_is_closed_and_a_busy_one_is_not() {
    let ward = ward(|config| config.server.keep_alive = SHORT).await;
    let mut stream = ward.connect().await;
    for _ in 0..4 {
        stream.write_all(question("").as_bytes()).await.unwrap();
        read_until(&mut stream, "yes").await;
        tokio::time::sleep(SHORT / 2).await;
    }
    stream.write_all(question("").as_bytes()).await.unwrap();
    read_until(&mut stream, "yes").await;
    let began = Instant::now();
    let said = rest(&mut stream).await;
    is_about(began.elapsed() + SHORT / 10, SHORT);
    assert_eq!(statuses(&said), [""; 0], "{said}");
    ward.is_unharmed(5).await;
}

#[tokio::test]
async fn h53_whoever_comes_to_a_full_house_waits_until_somebody_leaves() {
    let ward = ward(|config| config.server.max_connections = 2).await;
    let (mut first, second) = (ward.connect().await, ward.connect().await);
    first.write_all(question("").as_bytes()).await.unwrap();
    read_until(&mut first, "yes").await;
    let mut third = ward.connect().await;
    third.write_all(question("Connection: close\r\n").as_bytes()).await.unwrap();
    let served = tokio::time::timeout(SHORT, third.read_u8()).await;
    assert!(served.is_err(), "{served:?}");
    first.write_all(question("").as_bytes()).await.unwrap();
    read_until(&mut first, "yes").await;
    assert_eq!(ward.counted("client_connections_full_total").await, 1);
    drop(second);
    assert!(rest(&mut third).await.starts_with("HTTP/1.1 200 "));
    drop(first);
    until("all are served", || ward.raw.count() == 3).await;
    ward.is_unharmed(3).await;
}
