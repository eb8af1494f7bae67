//! Whoever sends too much, too deep or too slowly gets an answer, and costs no more than that.

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::desk::{Ask, FULL, house, raw};
use crate::local::{House, soon};
use crate::process::{Gateway, until};

const OVERRIDE: &str = "/admin/v1/endpoints/demo/a/override";

fn head(rest: &str) -> String {
    format!("POST {OVERRIDE} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {FULL}\r\n{rest}\r\n")
}

async fn is_well(house: &House) {
    assert_eq!(Ask::look("members").send(house).await.status, 200);
}

#[tokio::test]
async fn m11_a_body_of_a_hundred_megabytes_is_refused_before_it_is_read() {
    let house = house().await;
    let to = house.app.admin_address;
    let mut request = head("content-length: 100000000\r\n").into_bytes();
    request.extend(vec![b'x'; 100_000]);
    let answer = raw(to, &request).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains("body_too_large"), "{answer}");
    // One that does not say how large it is, is refused as soon as it is too large.
    let stream = TcpStream::connect(to).await.unwrap();
    let (mut reading, mut writing) = stream.into_split();
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000)).into_bytes();
    let sending = tokio::spawn(async move {
        writing.write_all(head("transfer-encoding: chunked\r\n").as_bytes()).await.unwrap();
        for _ in 0..100_000_000 / chunk.len() {
            if writing.write_all(&chunk).await.is_err() {
                return;
            }
        }
    });
    let mut answer = vec![0; 12];
    soon("the refusal", reading.read_exact(&mut answer)).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 413");
    soon("the end", sending).await.unwrap();
    is_well(&house).await;
}

#[tokio::test]
async fn m11_json_that_goes_too_deep_is_refused() {
    let house = house().await;
    for body in ["[".repeat(60_000), r#"{"state":"#.repeat(7_000), "{".repeat(60_000)] {
        let told = Ask::act("endpoints/demo/a/override", &body).send(&house).await;
        assert_eq!(told.refused(), (400, "invalid_order".to_owned()));
        assert!(told.text.len() < 1_000, "{}", told.text);
    }
    is_well(&house).await;
}

/// Reads to the end without a deadline of its own, for the time is virtual.
async fn rest(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn m11_a_body_that_stops_arriving_is_given_up_after_ten_seconds() {
    let house = house().await;
    let mut stream = TcpStream::connect(house.app.admin_address).await.unwrap();
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    stream.write_all(head("content-length: 100\r\n").as_bytes()).await.unwrap();
    stream.write_all(b"{").await.unwrap();
    let answer = rest(stream).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!((10..=12).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test]
async fn m11_a_head_that_does_not_come_is_waited_for_ten_seconds() {
    let house = house().await;
    for begun in ["", "G", "GET /healthz HTTP/1.1\r\nhost: x\r\nx-a: b"] {
        let mut stream = TcpStream::connect(house.app.admin_address).await.unwrap();
        tokio::time::pause();
        let began = tokio::time::Instant::now();
        stream.write_all(begun.as_bytes()).await.unwrap();
        let answer = rest(stream).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{answer}");
        assert!((10..=21).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
        tokio::time::resume();
    }
}

#[tokio::test]
async fn m14_nothing_that_a_caller_sends_can_forge_a_line_of_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let yaml = "server: { listen: 127.0.0.1:0, workers: 1 }
admin: { listen: 127.0.0.1:0 }
log: { format: json, level: debug }
models: [ { name: demo, endpoints: [ { name: a, address: \"http://127.0.0.1:9\" } ] } ]
";
    let gateway = Gateway::serve(directory.path(), "forged", yaml);
    let order = r#"{"state":"auto","reason":"x\r\n{\"message\":\"forged\"}\u001b[31m"}"#;
    for path in [
        "/admin/v1/endpoints/demo/a/override",
        "/admin/v1/endpoints/%1b[31mforged/a%0d%0aforged/override",
        "/admin/v1/endpoints/m/forged%5cn/override",
        "/admin/v1/endpoints/demo/a\u{85}forged/override",
    ] {
        let length = order.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nuser-agent: \u{9b}[2Jforged\r\n\
             connection: close\r\ncontent-length: {length}\r\n\r\n{order}"
        );
        let answer = raw(gateway.operators, request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{path}: {answer}");
    }
    let ours = Ask::new("POST", "/admin/v1/endpoints/demo/a/override").body(order);
    let ours = ours.header("x-request-id", "x\", \"message\": \"forged");
    assert_eq!(ours.send_to(gateway.operators).await.status, 400);
    until("the orders are written down", async || {
        gateway.log().iter().filter(|line| line.contains("an order")).count() >= 2
    })
    .await;
    for line in gateway.log() {
        let event: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
        assert_ne!(event["message"], "forged");
        assert!(!line.chars().any(char::is_control), "{line}");
    }
}
