//! What an endpoint may do wrong before the first content, and how the request finds another.
//!
//! Each fault is shown twice: with a healthy sibling the client notices nothing, alone it gets an
//! answer that says what happened and does not invite it to multiply the load.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use breaker::State;
use gateway::mock::Behaviour;

use crate::local::{Ask, House, Plan, Reply, mock, nobody, until};
use crate::raw;
use crate::raw::{Act, Raw, answer, failed, good, json};

/// Short patience, so that what hangs is soon given up; and no endpoint is asked twice, so that the
/// faults can be counted.
const PATIENCE: &str = "timeouts: { first_byte: 300ms, idle: 300ms }\nretry: { on: [] }";

async fn alone(address: SocketAddr) -> House {
    Plan::of(&[("a", address)]).top(PATIENCE).start().await
}

/// Asserts that one fault and nothing else is held against the endpoint.
fn has_one_fault(house: &House, name: &str, what: &str) {
    let view = house.view(name);
    let held = (view.streak, view.faults, view.successes, view.slow_pieces);
    assert_eq!(held, (1, 1.0, 0, 0), "{what}");
    assert_eq!(house.endpoint(name).in_flight(), 0, "{what}");
}

/// Asserts that a final failure says so, with this status and code.
fn is_final(reply: &Reply, status: u16, code: &str, what: &str) {
    assert_eq!((reply.status, reply.code().as_str()), (status, code), "{what}");
    assert_eq!(reply.header("x-should-retry"), "false", "{what}");
    assert_eq!(reply.header("retry-after"), "", "{what}");
}

/// Asserts that a sibling serves at the first request that meets the fault, for plain answers and
/// for streams.
async fn sibling_serves(raw: &Raw, what: &str) {
    for is_stream in [false, true] {
        let (address, _mock) = mock("b").await;
        let house = Plan::of(&[("a", raw.address), ("b", address)]).top(PATIENCE).start().await;
        let before = raw.count();
        while raw.count() == before {
            let reply = if is_stream { house.ask_stream().await } else { house.ask().await };
            assert_eq!((reply.status, reply.endpoint()), (200, "demo/b"), "{what}");
            assert!(reply.is_clean, "{what}");
        }
        assert_eq!(raw.count(), before + 1, "{what}: tried twice");
        has_one_fault(&house, "a", what);
    }
}

#[tokio::test]
async fn f25_u01_the_first_request_finds_the_sibling_of_an_endpoint_that_refuses() {
    let (address, _mock) = mock("b").await;
    let house = Plan::of(&[("a", nobody().await), ("b", address)]).start().await;
    while house.view("a").streak == 0 {
        let began = Instant::now();
        let reply = house.ask().await;
        assert_eq!((reply.status, reply.endpoint()), (200, "demo/b"));
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    }
    assert_eq!(house.endpoint("a").in_flight(), 0);
    let both = Plan::of(&[("a", nobody().await), ("b", nobody().await)]).top(PATIENCE);
    let house = both.start().await;
    let reply = house.ask().await;
    is_final(&reply, 502, "upstream_unavailable", "refused");
    has_one_fault(&house, "a", "refused");
    has_one_fault(&house, "b", "refused");
}

#[tokio::test]
async fn u05_u16_a_connection_that_breaks_is_a_fault_and_the_sibling_serves() {
    let short =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{}";
    let chunked = raw::stream_head();
    let cases: [(&str, Vec<Act>, &str); 6] = [
        ("a reset", vec![Act::Reset], "upstream_unavailable"),
        ("an end", vec![Act::Close], "upstream_unavailable"),
        ("no HTTP", vec![Act::Say(b"SSH-2.0-x\r\n\r\n".to_vec())], "upstream_error"),
        (
            "half a head",
            vec![Act::Say(b"HTTP/1.1 200".to_vec()), Act::Close],
            "upstream_unavailable",
        ),
        ("a short body", vec![Act::Say(short.to_vec()), Act::Close], "upstream_error"),
        ("a torn body", vec![Act::Say(chunked), Act::Reset], "upstream_error"),
    ];
    for (what, script, code) in cases {
        let raw = Raw::always(script).await;
        let house = alone(raw.address).await;
        is_final(&house.ask().await, 502, code, what);
        has_one_fault(&house, "a", what);
        sibling_serves(&raw, what).await;
    }
}

#[tokio::test]
async fn f31_u07_silence_is_a_timeout_and_the_sibling_serves() {
    let begun = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{";
    for (what, script) in [
        ("no head", vec![Act::Hang]),
        ("half a head", vec![Act::Say(b"HTTP/1.1 200 O".to_vec()), Act::Hang]),
        ("half a body", vec![Act::Say(begun.to_vec()), Act::Hang]),
    ] {
        let raw = Raw::always(script).await;
        let house = alone(raw.address).await;
        let began = Instant::now();
        is_final(&house.ask().await, 504, "upstream_timeout", what);
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(2), "{took:?}");
        has_one_fault(&house, "a", what);
        until("the upstream is let go", || raw.left().len() == 1).await;
        sibling_serves(&raw, what).await;
    }
}

#[tokio::test]
async fn a_refusal_whose_body_hangs_does_not_hang_the_client() {
    let begun = b"HTTP/1.1 400 X\r\ncontent-length: 99\r\n\r\n{";
    let raw = Raw::always(vec![Act::Say(begun.to_vec()), Act::Hang]).await;
    let house = alone(raw.address).await;
    is_final(&house.ask().await, 504, "upstream_timeout", "a hanging refusal");
}

#[tokio::test]
async fn a_failure_status_keeps_its_status_when_nothing_else_is_left() {
    for status in [500, 502, 503, 504, 529] {
        let raw = Raw::always(vec![Act::Say(failed(status))]).await;
        let house = alone(raw.address).await;
        is_final(&house.ask().await, status, "upstream_error", "a failure");
        has_one_fault(&house, "a", "a failure");
        sibling_serves(&raw, "a failure").await;
    }
}

#[tokio::test]
async fn u13_u14_a_200_that_is_no_answer_is_a_fault_and_the_sibling_serves() {
    for body in [
        r#"{"error":{"message":"no","type":"x","param":null,"code":null}}"#,
        r#"{"error":{"message":"no","code":503}}"#,
        r#"{"error":"no"}"#,
        r#"{"choices":[]}"#,
        r#"{"choices":null}"#,
        "{}",
        "null",
        "[]",
        "",
        "<html>Bad Gateway</html>",
        r#"{"choices":[{"message":{"content":"tor"#,
    ] {
        let raw = Raw::always(vec![Act::Say(json(200, body))]).await;
        let house = alone(raw.address).await;
        is_final(&house.ask().await, 502, "upstream_error", body);
        has_one_fault(&house, "a", body);
        sibling_serves(&raw, body).await;
    }
}

#[tokio::test]
async fn u14_an_embeddings_answer_needs_no_choices_but_must_be_an_answer() {
    let ask = Ask::post("/v1/embeddings", r#"{"model":"demo","input":"x"}"#);
    let raw = Raw::always(vec![Act::Say(json(200, r#"{"data":[]}"#))]).await;
    let house = alone(raw.address).await;
    assert_eq!(ask.send(house.address()).await.status, 200);
    for body in ["", "null", "<html>", r#"{"error":{"message":"no"}}"#] {
        let raw = Raw::always(vec![Act::Say(json(200, body))]).await;
        let house = alone(raw.address).await;
        is_final(&ask.send(house.address()).await, 502, "upstream_error", body);
        has_one_fault(&house, "a", body);
    }
}

#[tokio::test]
async fn u20_a_switch_of_protocols_that_nobody_asked_for_is_a_bad_answer() {
    let switch = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n";
    let raw = Raw::always(vec![Act::Say(switch.to_vec()), Act::Hang]).await;
    let house = alone(raw.address).await;
    is_final(&house.ask().await, 502, "upstream_error", "101");
    has_one_fault(&house, "a", "101");
    until("the upstream is let go", || raw.left().len() == 1).await;
    sibling_serves(&raw, "101").await;
    let raw = Raw::always(vec![Act::Say(failed(666))]).await;
    is_final(&alone(raw.address).await.ask().await, 502, "upstream_error", "666");
}

#[tokio::test]
async fn u22_a_redirect_is_never_followed() {
    let target = Raw::always(vec![Act::Say(good("followed"))]).await;
    for status in [301, 302, 303, 307, 308] {
        let line = format!("location: http://{}/v1/chat/completions\r\n", target.address);
        let raw = Raw::always(vec![Act::Say(answer(status, &line, ""))]).await;
        let house = alone(raw.address).await;
        let reply = house.ask().await;
        is_final(&reply, 502, "upstream_redirect", "a redirect");
        assert_eq!(reply.headers.get("location"), None);
        has_one_fault(&house, "a", "a redirect");
        sibling_serves(&raw, "a redirect").await;
    }
    assert_eq!(target.connections(), 0);
}

#[tokio::test]
async fn u23_a_head_without_end_is_a_fault() {
    let lines = format!("content-type: application/json\r\nx-long: {}\r\n", "x".repeat(200_000));
    let raw = Raw::always(vec![Act::Say(answer(200, &lines, r#"{"choices":[{}]}"#))]).await;
    let house = alone(raw.address).await;
    is_final(&house.ask().await, 502, "upstream_error", "a long head");
    has_one_fault(&house, "a", "a long head");
}

#[tokio::test]
async fn f24_u10_a_429_cools_the_endpoint_and_the_sibling_serves() {
    for line in ["", "retry-after: 120\r\n", "retry-after: soon\r\n", "retry-after-ms: 60000\r\n"] {
        let raw = Raw::always(vec![Act::Say(answer(429, line, "{}"))]).await;
        let (address, _mock) = mock("b").await;
        let house = Plan::of(&[("a", raw.address), ("b", address)]).start().await;
        while raw.count() == 0 {
            let reply = house.ask().await;
            assert_eq!((reply.status, reply.endpoint()), (200, "demo/b"), "{line}");
        }
        for _ in 0..20 {
            assert_eq!(house.ask().await.status, 200);
        }
        assert_eq!(raw.count(), 1, "{line}");
        house.is_untouched("a").await;
        let told = house.admin("endpoints/demo/a").await;
        assert!(told["cooling_ms"].as_u64().unwrap() > 4_000, "{line}: {told}");
    }
}

#[tokio::test]
async fn u10_alone_a_429_comes_back_with_a_sane_time_and_no_upstream_is_asked_until_then() {
    for (line, seconds, should_retry) in [
        ("retry-after: 1\r\n", "1", ""),
        ("retry-after: 120\r\n", "120", "false"),
        ("retry-after: 99999\r\n", "3600", "false"),
        ("retry-after: garbage\r\n", "5", ""),
        ("", "5", ""),
    ] {
        let raw = Raw::always(vec![Act::Say(answer(429, line, "{}"))]).await;
        let house = alone(raw.address).await;
        let reply = house.ask().await;
        assert_eq!((reply.status, reply.code().as_str()), (429, "rate_limit_exceeded"), "{line}");
        assert_eq!(reply.header("retry-after"), seconds, "{line}");
        assert_eq!(reply.header("retry-after-ms"), format!("{seconds}000"), "{line}");
        assert_eq!(reply.header("x-should-retry"), should_retry, "{line}");
        let next = house.ask().await;
        assert_eq!((next.status, next.code().as_str()), (429, "rate_limit_exceeded"), "{line}");
        let left: u64 = next.header("retry-after-ms").parse().unwrap();
        assert!(left > 0 && left <= seconds.parse::<u64>().unwrap() * 1_000, "{line}: {left}");
        assert_eq!(raw.count(), 1, "{line}");
        house.is_untouched("a").await;
    }
}

#[tokio::test]
async fn a_503_with_a_time_is_a_fault_and_a_pause_and_a_shorter_pause_does_not_shorten_it() {
    let (address, mock) = mock("a").await;
    let told = |seconds: &str| Behaviour {
        status: Some(503),
        retry_after: Some(seconds.to_owned()),
        ..Behaviour::default()
    };
    mock.set(told("100"));
    let house = alone(address).await;
    assert_eq!(house.ask().await.status, 503);
    has_one_fault(&house, "a", "503");
    let cooling = |house: &House| house.endpoint("a").cooling_for(gateway::clock::now());
    assert!(cooling(&house) > Duration::from_secs(90));
    house.endpoint("a").cool(gateway::clock::now(), Duration::from_secs(1));
    assert!(cooling(&house) > Duration::from_secs(90));
}

#[tokio::test]
async fn u11_a_refused_credential_is_the_gateways_trouble_and_not_the_clients() {
    // The first 403 may be about the request; the second in a row is believed.
    for (status, refusals) in [(401, 1), (403, 2)] {
        let raw = Raw::always(vec![Act::Say(failed(status))]).await;
        let house = alone(raw.address).await;
        is_final(&house.ask().await, 502, "upstream_auth", "a refused credential");
        house.is_untouched("a").await;
        let (address, _mock) = mock("b").await;
        let house = Plan::of(&[("a", raw.address), ("b", address)]).start().await;
        while raw.count() < 1 + refusals {
            assert_eq!(house.ask().await.endpoint(), "demo/b");
        }
        for _ in 0..10 {
            assert_eq!(house.ask().await.endpoint(), "demo/b");
        }
        assert_eq!(raw.count(), 1 + refusals, "{status}");
        assert!(house.endpoint("a").is_misconfigured(), "{status}");
        house.is_untouched("a").await;
    }
}

#[tokio::test]
async fn b11_no_endpoint_is_tried_twice_and_no_request_more_often_than_allowed() {
    let mut raws = Vec::new();
    for _ in 0..5 {
        raws.push(Raw::always(vec![Act::Say(failed(500))]).await);
    }
    let names = ["a", "b", "c", "d", "e"];
    for (count, expected) in [(1, 1), (2, 2), (3, 3), (5, 3)] {
        let before: usize = raws.iter().map(Raw::count).sum();
        let endpoints: Vec<_> =
            names.into_iter().zip(raws.iter().map(|raw| raw.address)).take(count).collect();
        let house = Plan::of(&endpoints).start().await;
        assert_eq!(house.ask().await.status, 500);
        let tried: Vec<_> = endpoints.iter().map(|(name, _)| house.view(name).streak).collect();
        assert!(tried.iter().all(|count| *count <= 1), "{tried:?}");
        assert_eq!(raws.iter().map(Raw::count).sum::<usize>() - before, expected);
    }
}

#[tokio::test]
async fn the_overall_deadline_holds_over_all_attempts() {
    let mut raws = Vec::new();
    for _ in 0..3 {
        raws.push(Raw::always(vec![Act::Hang]).await);
    }
    let plan = Plan::of(&[("a", raws[0].address), ("b", raws[1].address), ("c", raws[2].address)]);
    let house = plan
        .top("circuit_breaker: { slow: { total: 650ms, first_token: off } }")
        .top("timeouts: { connect: 1s, first_byte: 500ms, idle: 1s, total: 1s }")
        .start()
        .await;
    let began = Instant::now();
    is_final(&house.ask().await, 504, "upstream_timeout", "the deadline");
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(990) && took < Duration::from_millis(1_450), "{took:?}");
}

#[tokio::test]
async fn f08_a_single_fault_disables_nothing() {
    let (address, mock) = mock("a").await;
    mock.set(Behaviour { status: Some(500), fail_next: Some(1), ..Behaviour::default() });
    let house = alone(address).await;
    assert_eq!(house.ask().await.status, 500);
    for _ in 0..20 {
        assert_eq!(house.ask().await.status, 200);
    }
    assert_eq!((house.view("a").state, house.view("a").epoch), (State::Closed, 0));
}
