//! Hostile clients of HTTP/2: floods that end their connection, and requests that are none.

use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;

use crate::frames::{
    DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, HEADERS, PROTOCOL_ERROR, RST_STREAM,
    WINDOW_UPDATE, Wire, fields, frame,
};
use crate::kit::{CHAT, Ward};
use crate::local::{QUESTION, until};

const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "http"), (":path", CHAT), (":authority", "a")];

fn head(stream: u32, more: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &fields(&[&POST, more].concat()))
}

fn question(stream: u32) -> Vec<u8> {
    [head(stream, &[]), frame(DATA, END_STREAM, stream, QUESTION.as_bytes())].concat()
}

/// Streams as a client numbers them.
fn streams(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(|stream| stream * 2 + 1)
}

#[tokio::test]
async fn t01_rapid_resets_end_the_connection_and_leave_nothing_behind() {
    let ward = Ward::new().await;
    let reset = |stream| frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
    for is_whole in [false, true] {
        let open = |stream| if is_whole { question(stream) } else { head(stream, &[]) };
        let flood = streams(10_000).flat_map(|stream| [open(stream), reset(stream)].concat());
        let began = Instant::now();
        let error = Wire::over(ward.connect().await).await.floods(flood.collect()).await;
        assert_eq!(error, Some(ENHANCE_YOUR_CALM), "{is_whole}");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        let endpoint = ward.house.endpoint("a");
        until("nothing is in flight", || endpoint.in_flight() == 0).await;
    }
    let asked = ward.raw.count();
    assert!(asked < 100, "{asked} reached the upstream");
    ward.is_unharmed(asked).await;
}

#[tokio::test]
async fn t02_who_makes_us_reset_is_shown_out() {
    let ward = Ward::new().await;
    // A window that opens by nothing ends a connection, one that opens too far a stream.
    for (window, expected) in [(0, PROTOCOL_ERROR), (0x7fff_ffff_u32, ENHANCE_YOUR_CALM)] {
        let opens = |stream| frame(WINDOW_UPDATE, 0, stream, &window.to_be_bytes());
        let flood = streams(5_000).flat_map(|stream| [question(stream), opens(stream)].concat());
        let error = Wire::over(ward.connect().await).await.floods(flood.collect()).await;
        assert_eq!(error, Some(expected));
    }
    let endpoint = ward.house.endpoint("a");
    until("nothing is in flight", || endpoint.in_flight() == 0).await;
    let asked = ward.raw.count();
    assert!(asked < 300, "{asked} reached the upstream");
    ward.is_unharmed(asked).await;
}

#[tokio::test]
async fn t04_a_million_frames_of_nothing_end_their_connection() {
    let ward = Ward::new().await;
    let mut flood = head(1, &[]);
    flood.extend(frame(DATA, 0, 1, &[]).repeat(1_000_000));
    let error = Wire::over(ward.connect().await).await.floods(flood).await;
    assert!(error.is_some_and(|error| error > 0), "{error:?}");
    ward.is_unharmed(0).await;
}

#[tokio::test]
async fn t07_what_is_no_request_becomes_none() {
    let ward = Ward::new().await;
    let (method, scheme, path, authority) = (POST[0], POST[1], POST[2], POST[3]);
    for request in [
        vec![method, scheme, authority],
        vec![method, scheme, (":path", "hello-world"), authority],
        vec![method, scheme, (":path", ""), authority],
        vec![method, scheme, (":path", "/v1/chat/completions HTTP/1.1\r\nx: y"), authority],
        vec![method, (":scheme", "ht tp"), path, authority],
        vec![(":method", "POST?/ HTTP/1.1"), scheme, path, authority],
        vec![(":method", "CONNECT"), authority],
        vec![(":method", "TRACE"), scheme, path, authority],
        vec![method, scheme, path, authority, ("x", "a\r\nb: c")],
        vec![method, scheme, path, authority, ("x", "a\0b")],
        vec![method, scheme, path, authority, ("x\r\ny", "a")],
        vec![method, scheme, path, authority, ("Upper", "a")],
        vec![method, scheme, path, authority, ("connection", "close")],
        vec![method, scheme, path, authority, ("transfer-encoding", "chunked")],
        vec![method, scheme, path, authority, ("te", "gzip")],
        vec![method, scheme, path, authority, ("content-length", "9999")],
        vec![method, scheme, path, authority, (":path", "/v1/models")],
        vec![method, scheme, path, (":authority", "a b@c/d")],
        vec![("x", "y"), method, scheme, path, authority],
    ] {
        let mut wire = Wire::over(ward.connect().await).await;
        let mut bytes = frame(HEADERS, END_HEADERS, 1, &fields(&request));
        bytes.extend(frame(DATA, END_STREAM, 1, QUESTION.as_bytes()));
        wire.0.write_all(&bytes).await.unwrap();
        assert!(!wire.is_answered(1).await, "{request:?}");
        assert_eq!(ward.raw.count(), 0, "{request:?}");
    }
    ward.is_unharmed(0).await;
}

#[tokio::test]
async fn t08_no_name_of_a_host_goes_along() {
    let ward = Ward::new().await;
    let mut wire = Wire::over(ward.connect().await).await;
    let bytes = [
        head(1, &[("host", "evil.example"), ("x-forwarded-host", "evil.example")]),
        frame(DATA, END_STREAM, 1, QUESTION.as_bytes()),
    ];
    wire.0.write_all(&bytes.concat()).await.unwrap();
    assert!(wire.is_answered(1).await);
    let seen = ward.raw.seen().pop().unwrap();
    assert_eq!(seen.header("host"), Some(ward.raw.address.to_string().as_str()));
    assert!(!seen.head.contains("evil"), "{}", seen.head);
    ward.is_unharmed(1).await;
}

#[tokio::test]
async fn h32_a_name_with_an_underscore_is_nobodys_in_http2_either() {
    for (required, is_answered) in [("x-agent-id", true), ("x_agent_id", false)] {
        let required = Some(required.to_owned());
        let ward = Ward::with("", |config| config.fail_closed.require_header = required).await;
        let mut wire = Wire::over(ward.connect().await).await;
        let data = frame(DATA, END_STREAM, 1, QUESTION.as_bytes());
        let head = head(1, &[("x_agent_id", "a"), ("x-agent-id", "b")]);
        wire.0.write_all(&[head, data].concat()).await.unwrap();
        assert_eq!(wire.is_answered(1).await, is_answered);
    }
}
