//! Clients that leave: the upstream is let go at once, the slot is free, and nobody is blamed.
//!
//! When the upstream was let go is measured at the upstream.

use std::time::Duration;

use breaker::State;
use gateway::mock::Behaviour;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::local::{Ask, House, Plan, mock, read_until, soon, until};
use crate::raw::{
    Act, DONE, FINISH, ROLE, Raw, answer, chunk, event, failed, good, open_stream, stream_head,
    whole_stream,
};

/// The upstream is let go within this, counted from the client's leaving.
const LET_GO_MAX: Duration = Duration::from_millis(200);

/// Lets the client leave, and asserts that the upstream is let go in time and nobody is blamed.
async fn leaves(client: TcpStream, raw: &Raw, house: &House, what: &str) {
    assert_eq!(house.endpoint("a").in_flight(), 1, "{what}");
    let gone = raw.left().len();
    let left_at = Instant::now();
    drop(client);
    until("the upstream is let go", || raw.left().len() > gone).await;
    let took = raw.left().pop().unwrap().saturating_duration_since(left_at);
    assert!(took <= LET_GO_MAX, "{what}: {took:?}");
    house.is_untouched("a").await;
    assert_eq!(house.view("a").requests, 0, "{what}");
}

#[tokio::test]
async fn a01_a_client_that_leaves_during_its_upload_reaches_no_upstream() {
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let house = Plan::of(&[("a", raw.address)]).start().await;
    for framing in
        ["content-length: 1000\r\n\r\n{\"model\":", "transfer-encoding: chunked\r\n\r\n9\r\n{\"m"]
    {
        let mut client = TcpStream::connect(house.address()).await.unwrap();
        let head = format!("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n{framing}");
        client.write_all(head.as_bytes()).await.unwrap();
        drop(client);
    }
    assert_eq!(house.ask().await.status, 200);
    assert_eq!((raw.count(), raw.connections()), (1, 1));
    house.is_untouched("a").await;
}

#[tokio::test]
async fn a02_a_client_that_leaves_while_it_waits_lets_the_upstream_go() {
    let cases = [
        ("plain, no byte", vec![Act::Hang]),
        ("half a head", vec![Act::Say(b"HTTP/1.1 200 O".to_vec()), Act::Hang]),
        (
            "half a body",
            vec![Act::Say(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{".to_vec()), Act::Hang],
        ),
        (
            "a refusal",
            vec![Act::Say(b"HTTP/1.1 400 X\r\ncontent-length: 9\r\n\r\n{".to_vec()), Act::Hang],
        ),
        ("a stream's head", vec![Act::Say(stream_head()), Act::Hang]),
        (
            "a stream's role",
            vec![Act::Say([stream_head(), chunk(ROLE.as_bytes())].concat()), Act::Hang],
        ),
    ];
    for (what, script) in cases {
        let raw = Raw::always(script).await;
        let house = Plan::of(&[("a", raw.address)]).start().await;
        for (number, ask) in [Ask::chat(), Ask::stream()].into_iter().enumerate() {
            let client = ask.wire(house.address()).await;
            until("the upstream is asked", || raw.count() == number + 1).await;
            leaves(client, &raw, &house, what).await;
        }
        let told = house.app.meters.render();
        for line in [
            "quorumgate_requests_total{model=\"demo\",code=\"499\"} 2\n",
            "gen_ai_server_request_duration_count{model=\"demo\"} 2\n",
        ] {
            assert!(told.contains(line), "{what}: {told}");
        }
    }
}

#[tokio::test]
async fn a04_a_client_that_ends_its_own_half_counts_as_one_that_has_left() {
    let raw = Raw::always(vec![Act::Hang]).await;
    let house = Plan::of(&[("a", raw.address)]).start().await;
    let mut client = Ask::chat().wire(house.address()).await;
    until("the upstream is asked", || raw.count() == 1).await;
    let left_at = Instant::now();
    client.shutdown().await.unwrap();
    until("the upstream is let go", || raw.left().len() == 1).await;
    assert!(raw.left().pop().unwrap().saturating_duration_since(left_at) <= LET_GO_MAX);
    house.is_untouched("a").await;
}

#[tokio::test]
async fn a03_a_client_that_leaves_in_mid_stream_lets_the_upstream_go() {
    let silent = [open_stream(&[ROLE, &event("one")]), vec![Act::Hang]].concat();
    let mut talking = open_stream(&[ROLE, &event("one")]);
    for _ in 0..500 {
        talking.push(Act::Rest(Duration::from_millis(10)));
        talking.push(Act::Say(chunk(event("more").as_bytes())));
    }
    for (what, script) in [("a silent upstream", silent), ("a talking upstream", talking)] {
        let raw = Raw::always(script).await;
        let house = Plan::of(&[("a", raw.address)]).start().await;
        let mut client = Ask::stream().wire(house.address()).await;
        read_until(&mut client, "one").await;
        leaves(client, &raw, &house, what).await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_a_long_plain_answer_lets_the_upstream_go() {
    let long = format!("{{\"choices\":[{{}}],\"x\":\"{}", "y".repeat(3 * 1024 * 1024));
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9000000\r\n\r\n";
    let said = [head.as_bytes(), long.as_bytes()].concat();
    let raw = Raw::always(vec![Act::Say(said), Act::Hang]).await;
    let house = Plan::of(&[("a", raw.address)]).start().await;
    let mut client = Ask::chat().wire(house.address()).await;
    read_until(&mut client, "yyyy").await;
    leaves(client, &raw, &house, "a long answer").await;
}

#[tokio::test]
async fn f04_fifty_clients_that_leave_are_no_samples_and_later_requests_are_served() {
    let raw = Raw::start(|_, seen| {
        if seen.text().contains("\"stream\"") {
            vec![Act::Hang]
        } else {
            vec![Act::Say(good("yes"))]
        }
    })
    .await;
    let house = Plan::of(&[("a", raw.address)]).start().await;
    let mut clients = Vec::new();
    for _ in 0..50 {
        clients.push(Ask::stream().wire(house.address()).await);
    }
    until("all wait", || raw.count() == 50 && house.endpoint("a").in_flight() == 50).await;
    let left_at = Instant::now();
    drop(clients);
    until("all are let go", || raw.left().len() == 50).await;
    let last = raw.left().into_iter().max().unwrap();
    assert!(last.saturating_duration_since(left_at) < Duration::from_secs(1));
    house.is_untouched("a").await;
    assert_eq!(house.view("a").requests, 0);
    assert_eq!(house.ask().await.status, 200);
}

#[tokio::test]
async fn a_client_that_leaves_during_the_second_attempt_blames_the_first_alone() {
    let bad = Raw::always(vec![Act::Say(failed(500))]).await;
    let silent = Raw::always(vec![Act::Hang]).await;
    let house = Plan::of(&[("bad", bad.address), ("a", silent.address)]).start().await;
    while bad.count() == 0 {
        let asked = silent.count();
        let client = Ask::chat().wire(house.address()).await;
        until("the silent one is asked", || silent.count() > asked).await;
        leaves(client, &silent, &house, "the second attempt").await;
    }
    assert_eq!((house.view("bad").streak, house.endpoint("bad").in_flight()), (1, 0));
}

#[tokio::test]
async fn a05_a_client_that_leaves_a_half_open_circuit_frees_its_place() {
    let raw = Raw::start(|number, _| match number {
        0 => vec![Act::Say(failed(500))],
        1..=3 => vec![Act::Hang],
        _ => vec![Act::Say(good("yes"))],
    })
    .await;
    let plan = Plan::of(&[("a", raw.address)]).pool("on_all_open: reject").top(
        "circuit_breaker: { failure_threshold: 1, open: { base: 100ms, max: 10s }, \
         half_open: { share: 1.0 }, ramp: { duration: 0s }, probe: { enabled: false } }",
    );
    let house = plan.start().await;
    assert_eq!(house.ask().await.status, 500);
    house.reaches("a", State::HalfOpen).await;
    for number in 2..=4 {
        let client = Ask::chat().wire(house.address()).await;
        until("the place is taken", || raw.count() == number).await;
        assert_eq!(house.view("a").half_open_in_flight, 1);
        drop(client);
        until("the place is free", || house.view("a").half_open_in_flight == 0).await;
        assert_eq!(
            (house.view("a").state, house.view("a").half_open_successes),
            (State::HalfOpen, 0)
        );
    }
    for _ in 0..5 {
        assert_eq!(house.ask().await.status, 200);
    }
    assert_eq!(house.view("a").state, State::Closed);
}

#[tokio::test]
async fn a_client_that_leaves_a_slow_request_takes_no_evidence_with_it() {
    let (address, mock) = mock("a").await;
    mock.set(Behaviour { latency_ms: Some(60_000), ..Behaviour::default() });
    let plan = Plan::of(&[("a", address)]);
    let slow = "circuit_breaker: { slow: { total: 100ms, first_token: off, dedup: 50ms } }";
    let house = plan.top(slow).start().await;
    let client = Ask::chat().wire(house.address()).await;
    until("slow evidence", || house.view("a").slow_pieces == 1).await;
    drop(client);
    until("the slot is free", || house.endpoint("a").in_flight() == 0).await;
    until("the upstream is let go", || mock.counts().aborted == 1).await;
    let view = house.view("a");
    assert_eq!((view.slow_pieces, view.streak, view.state), (1, 0, State::Closed));
}

/// One of nine ways to answer, in turn.
fn mixed(number: usize) -> Vec<Act> {
    let whole = [ROLE, &event("one"), FINISH, DONE];
    match number % 9 {
        0 => vec![Act::Say(failed(500))],
        1 => vec![Act::Reset],
        2 => vec![Act::Hang],
        3 => [open_stream(&[ROLE, &event("one")]), vec![Act::Reset]].concat(),
        4 => [open_stream(&[ROLE, &event("one")]), vec![Act::Hang]].concat(),
        5 => vec![Act::Say(answer(429, "retry-after-ms: 20\r\n", "{}"))],
        6 => vec![Act::Say(failed(400))],
        _ => whole_stream(&whole),
    }
}

#[tokio::test]
async fn whatever_happens_every_slot_comes_back_and_every_answer_is_whole_or_visibly_broken() {
    let a = Raw::start(|number, _| mixed(number)).await;
    let b = Raw::start(|number, _| mixed(number + 4)).await;
    let house = Plan::of(&[("a", a.address), ("b", b.address)])
        .top(
            "circuit_breaker: { open: { base: 20ms, max: 50ms }, half_open: { max_requests: 4 }, \
             probe: { enabled: false } }",
        )
        .top("timeouts: { first_byte: 100ms, idle: 100ms }")
        .start()
        .await;
    let gateway = house.address();
    let mut clients = Vec::new();
    for number in 0..300_u64 {
        clients.push(tokio::spawn(async move {
            if number % 5 == 0 {
                let client = Ask::stream().wire(gateway).await;
                tokio::time::sleep(Duration::from_millis(number % 40)).await;
                drop(client);
                return None;
            }
            Some(Ask::stream().send(gateway).await)
        }));
        tokio::time::sleep(Duration::from_millis(number % 3)).await;
    }
    let (mut whole, mut broken, mut failed) = (0, 0, 0);
    for client in clients {
        let Some(reply) = soon("a client", client).await.unwrap() else { continue };
        if reply.status != 200 {
            // A 400 is the upstream's own word.
            assert!(reply.status == 400 || !reply.code().is_empty());
            failed += 1;
        } else if reply.is_clean {
            assert!(reply.text().ends_with(DONE), "{}", reply.text());
            whole += 1;
        } else {
            assert_eq!(reply.text().matches("stream_interrupted").count(), 1);
            assert!(!reply.text().contains("[DONE]"));
            broken += 1;
        }
    }
    assert!(whole > 0 && broken > 0 && failed > 0, "{whole} {broken} {failed}");
    for name in ["a", "b"] {
        until("every slot is free", || house.endpoint(name).in_flight() == 0).await;
    }
}
