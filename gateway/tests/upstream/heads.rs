//! What is no head of an answer, and what may stand before one.

use std::time::{Duration, Instant};

use gateway::upstream::SendError;

use crate::kit::{gateway, kit};
use crate::local::{Ask, until};
use crate::raw::{Act, Raw, answer, good};

fn informational(count: usize) -> Vec<u8> {
    let kinds = ["100 Continue", "103 Early Hints\r\nlink: </x>", "102 Processing"];
    let mut bytes = Vec::new();
    for kind in kinds.iter().cycle().take(count) {
        bytes.extend_from_slice(format!("HTTP/1.1 {kind}\r\n\r\n").as_bytes());
    }
    bytes
}

#[tokio::test]
async fn u19_a_few_informational_answers_are_swallowed_and_a_flood_is_a_fault() {
    for count in [1, 32] {
        let raw = Raw::always(vec![Act::Say(informational(count)), Act::Say(good("x"))]).await;
        let kit = kit(raw.address);
        for _ in 0..2 {
            assert_eq!(kit.ask().await.map(|(status, _)| status), Ok(200), "{count}");
        }
        assert_eq!(raw.connections(), 1);
    }
    for count in [33, 1_000] {
        let flood = [informational(count), good("x")].concat();
        let raw = Raw::always(vec![Act::Say(flood)]).await;
        let kit = kit(raw.address);
        assert!(matches!(kit.ask().await, Err(SendError::Malformed(_))), "{count}");
        let app = gateway(raw.address, |_| {}).await;
        let reply = Ask::chat().send(app.address).await;
        assert_eq!((reply.status, reply.code().as_str()), (502, "upstream_error"));
    }
}

#[tokio::test]
async fn u20_a_switch_of_protocols_that_nobody_asked_for_ends_the_connection() {
    let switch = b"HTTP/1.1 101 X\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nx".to_vec();
    let raw = Raw::always(vec![Act::Say(switch), Act::Hang]).await;
    let kit = kit(raw.address);
    let response = kit.head().await.unwrap();
    assert_eq!(response.status(), 101);
    drop(response);
    until("the connection is closed", || raw.left().len() == 1).await;
    let app = gateway(raw.address, |_| {}).await;
    let reply = Ask::chat().send(app.address).await;
    assert_eq!((reply.status, reply.code().as_str()), (502, "upstream_error"));
}

#[tokio::test]
async fn u23_a_head_that_is_too_large_or_no_http_is_no_answer() {
    let large = format!("x-large: {}\r\n", "x".repeat(33_000));
    let many: String = (0..200).map(|number| format!("x-{number}: y\r\n")).collect();
    for (what, head) in [
        ("32 KiB", answer(200, &large, "{}")),
        ("200 fields", answer(200, &many, "{}")),
        ("NUL", answer(200, "x-a: b\0c\r\n", "{}")),
        ("two lengths", answer(200, "content-length: 99\r\n", "{}")),
        ("a length that is none", b"HTTP/1.1 200 X\r\ncontent-length: -2\r\n\r\n{}".to_vec()),
    ] {
        let raw = Raw::always(vec![Act::Say(head), Act::Hang]).await;
        let kit = kit(raw.address);
        assert!(matches!(kit.ask().await, Err(SendError::Malformed(_))), "{what}");
        until("the connection is closed", || raw.left().len() == 1).await;
    }
    let fitting = format!("x-large: {}\r\n", "x".repeat(30_000));
    let raw = Raw::always(vec![Act::Say(answer(200, &fitting, "{}"))]).await;
    assert_eq!(kit(raw.address).ask().await, Ok((200, "{}".to_owned())));
}

#[tokio::test]
async fn u26_a_head_that_drips_is_late_however_often_a_byte_comes() {
    let mut script = vec![Act::Say(b"HTTP/1.1 200 OK\r\nx-drip: ".to_vec())];
    for _ in 0..1_000 {
        script.extend([Act::Say(b"x".to_vec()), Act::Rest(Duration::from_millis(20))]);
    }
    let raw = Raw::always(script).await;
    let app = gateway(raw.address, |_| {}).await;
    let began = Instant::now();
    let reply = Ask::chat().send(app.address).await;
    assert_eq!((reply.status, reply.code().as_str()), (504, "upstream_timeout"));
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    until("the connection is closed", || raw.left().len() == 1).await;
}
