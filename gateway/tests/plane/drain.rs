//! How a gateway goes: step by step, by an operator's order or by its end, and at the cost of nobody.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::local;
use crate::local::{Ask, House, Live, Plan, QUESTION, Reply, STREAM_QUESTION, soon, until};
use crate::raw::{
    Act, DONE, FINISH, ROLE, Raw, event, good, open_stream, stream_head, whole_stream,
};

const SHORT: Duration = Duration::from_millis(300);

/// An upstream that answers plain questions at once, and begins streams that wait for a word to end.
async fn patient() -> Raw {
    Raw::start(|_, seen| {
        if !seen.text().contains("\"stream\"") {
            return vec![Act::Say(good("yes"))];
        }
        let mut script = open_stream(&[ROLE, &event("one")]);
        script.push(Act::Wait);
        script.extend(whole_stream(&[event("two").as_str(), FINISH, DONE]).into_iter().skip(1));
        script
    })
    .await
}

/// An upstream whose streams begin and never go on.
async fn stuck(parts: &[&str]) -> Raw {
    Raw::always([open_stream(parts), vec![Act::Hang]].concat()).await
}

async fn house(raw: &Raw, delay: Duration, patience: Duration) -> House {
    let plan = Plan::of(&[("a", raw.address)]);
    plan.start_as(|config| {
        config.server.drain_delay = delay;
        config.server.drain_timeout = patience;
    })
    .await
}

async fn order(house: &House, what: &str, body: &str) -> Reply {
    Ask::post(&format!("/admin/v1/{what}"), body).send(house.app.admin_address).await
}

async fn readiness(house: &House) -> (u16, Value) {
    let reply = Ask::get("/readyz").send(house.app.admin_address).await;
    (reply.status, reply.json())
}

async fn becomes_drained(house: &House) {
    let deadline = Instant::now() + local::PATIENCE;
    while readiness(house).await.1.get("drained") != Some(&json!(true)) {
        assert!(Instant::now() < deadline, "it does not become drained");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn is_refused(house: &House) -> bool {
    TcpStream::connect(house.address()).await.is_err()
}

fn is_told(reply: &Reply) -> bool {
    reply.text().contains("stream_interrupted") && !reply.is_clean
}

#[tokio::test]
async fn drained_by_an_order_it_finishes_its_streams_and_stays_for_its_operators() {
    let raw = patient().await;
    let house = house(&raw, SHORT, local::PATIENCE).await;
    let mut stream = Ask::stream().open(house.address()).await;
    stream.reads("one").await;
    assert_eq!(readiness(&house).await.0, 200);

    let reply = order(&house, "members/single/drain", r#"{"reason": "new disk"}"#).await;
    let said = json!({ "member": "single", "order": "drain", "reason": "new disk" });
    assert_eq!((reply.status, reply.json()), (200, said));
    until("it is not ready", || house.app.seat.card().standing != quorum::Standing::Serving).await;
    assert_eq!(readiness(&house).await.0, 503, "at once, and not when it has drained");
    let ordered = Instant::now();
    let mut served = 0;
    while let Ok(connection) = TcpStream::connect(house.address()).await {
        let asked = Ask::chat().over(connection).await.rest().await;
        assert_eq!((asked.status, asked.header("connection")), (200, "close"));
        served += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(served > 3 && ordered.elapsed() >= SHORT / 2, "{served} in {:?}", ordered.elapsed());
    assert_eq!(readiness(&house).await.1.get("drained"), Some(&json!(false)));

    assert_eq!(order(&house, "members/single/drain", "").await.status, 200, "drained twice");
    raw.go();
    let reply = stream.rest().await;
    assert!(reply.is_clean && reply.text().contains("two"), "{}", reply.text());
    becomes_drained(&house).await;
    let rows = house.admin("members").await;
    assert_eq!(rows.pointer("/members/0/state"), Some(&json!("draining")));
    let began = Instant::now();
    house.app.shutdown().await;
    assert!(began.elapsed() < Duration::from_secs(2), "nothing was left: {:?}", began.elapsed());
}

#[tokio::test]
async fn asked_to_leave_it_is_out_at_once_and_a_milder_order_does_not_bring_it_back() {
    let raw = patient().await;
    let house = house(&raw, Duration::from_millis(50), local::PATIENCE).await;
    assert_eq!(order(&house, "members/single/leave", "{}").await.status, 200);
    until("it has left", || house.app.seat.card().standing == quorum::Standing::Left).await;
    let reply = order(&house, "members/single/drain", "").await;
    assert_eq!(reply.json().get("order"), Some(&json!("leave")));
    becomes_drained(&house).await;
    let rows = house.admin("members").await;
    assert_eq!(rows.pointer("/members/0/state"), Some(&json!("left")));
    house.app.shutdown().await;
}

#[tokio::test]
async fn orders_that_cannot_be_followed_say_why() {
    let raw = patient().await;
    let house = house(&raw, SHORT, SHORT).await;
    for (path, body, status, code) in [
        ("members/nobody/drain", "", 404, "member_not_found"),
        ("members/single/forget", "", 409, "not_lost"),
        ("members/single/dance", "", 404, "not_found"),
        ("members/single/drain", "{\"why\": 1}", 400, "invalid_order"),
        ("members/single/drain", "{\"reason\": \"a\\nb\"}", 400, "invalid_order"),
        ("members/single/drain", "[]", 400, "invalid_order"),
        ("members/single/drain", "[\"why\"]", 400, "invalid_order"),
        ("join", "[[\"gw-9:7946\"]]", 400, "invalid_seeds"),
        ("join", "{\"seeds\": [\"gw-9\"]}", 400, "invalid_seeds"),
        ("join", "", 400, "invalid_seeds"),
        ("join", "{\"seeds\": [\"gw-9:7946\"]}", 409, "no_cluster"),
    ] {
        let reply = order(&house, path, body).await;
        let error = reply.json().get("error").cloned().unwrap();
        assert_eq!(
            (reply.status, error.get("code")),
            (status, Some(&json!(code))),
            "{path} {body}"
        );
        assert!(error.get("message").unwrap().as_str().unwrap().ends_with('.'), "{error}");
    }
    assert_eq!(readiness(&house).await.0, 200);
}

#[tokio::test]
async fn a_connection_that_is_kept_is_told_to_go_elsewhere_before_it_is_closed() {
    let raw = patient().await;
    let house = house(&raw, Duration::from_secs(30), SHORT).await;
    let stream = TcpStream::connect(house.address()).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let question = || {
        let request = Request::builder().method(Method::POST).uri("/v1/chat/completions");
        request.header("host", "x").body(Full::new(Bytes::from(QUESTION))).unwrap()
    };
    let kept = soon("an answer", sender.send_request(question())).await.unwrap();
    assert!(!kept.headers().contains_key("connection"));
    kept.into_body().collect().await.unwrap();
    order(&house, "members/single/drain", "").await;
    until("it drains", || house.app.seat.card().standing != quorum::Standing::Serving).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let last = soon("an answer", sender.send_request(question())).await.unwrap();
    assert_eq!(last.headers().get("connection").unwrap(), "close");
    last.into_body().collect().await.unwrap();
    soon("the end of the connection", connection).await.unwrap().unwrap();

    let over = TcpStream::connect(house.address()).await.unwrap();
    let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(over)).await;
    let (sender, connection) = shaken.unwrap();
    let connection = tokio::spawn(connection);
    for _ in 0..2 {
        let uri = "http://x/v1/chat/completions";
        let request = Request::builder().method(Method::POST).uri(uri);
        let request = request.body(Full::new(Bytes::from(QUESTION))).unwrap();
        let answer = soon("an answer", sender.clone().send_request(request)).await.unwrap();
        assert_eq!(answer.status(), 200, "who comes anew is served");
        answer.into_body().collect().await.unwrap();
    }
    assert!(!connection.is_finished());
}

#[tokio::test]
async fn http2_is_told_at_once_and_its_streams_go_on() {
    let raw = patient().await;
    let house = house(&raw, Duration::from_secs(30), local::PATIENCE).await;
    let stream = TcpStream::connect(house.address()).await.unwrap();
    let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::builder().method(Method::POST).uri("http://x/v1/chat/completions");
    let request = request.body(Full::new(Bytes::from(STREAM_QUESTION))).unwrap();
    let answer = soon("an answer", sender.send_request(request)).await.unwrap();
    order(&house, "members/single/drain", "").await;
    let refused = async {
        loop {
            let request =
                Request::builder().method(Method::POST).uri("http://x/v1/chat/completions");
            let request = request.body(Full::new(Bytes::from(QUESTION))).unwrap();
            if sender.send_request(request).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon("GOAWAY", refused).await;
    assert!(!is_refused(&house).await, "new connections are still served");
    raw.go();
    let body = soon("the stream", answer.into_body().collect()).await.unwrap().to_bytes();
    assert!(body.ends_with(DONE.as_bytes()));
    soon("the end of the connection", connection).await.unwrap().unwrap();
}

#[tokio::test]
async fn f43_a_stream_that_outlasts_the_time_gets_an_error_event_and_an_unclean_end() {
    let raw = stuck(&[ROLE, &event("one")]).await;
    let house = house(&raw, Duration::ZERO, SHORT).await;
    let mut live = Ask::stream().open(house.address()).await;
    live.reads("one").await;
    let began = Instant::now();
    let endpoint = house.endpoint("a");
    let drained = tokio::spawn(house.app.shutdown());
    let reply = live.rest().await;
    assert!(is_told(&reply), "{}", reply.text());
    let took = began.elapsed();
    assert!(took >= SHORT && took < Duration::from_secs(3), "{took:?}");
    soon("the end", drained).await.unwrap();
    // It was this gateway's doing, and says nothing about the endpoint.
    let view = endpoint.view(gateway::clock::now());
    assert_eq!((view.streak, view.faults, endpoint.in_flight()), (0, 0.0, 0));
}

#[tokio::test]
async fn each_dialect_gets_its_own_error_event_when_the_time_is_over() {
    let start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{}}\n\n";
    let delta = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\
                 \"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\n";
    let created =
        "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{}}\n\n";
    let output = "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\
                  \"delta\":\"x\"}\n\n";
    for (path, parts, wanted) in [
        ("/v1/messages", [start, delta], "event: error\n"),
        ("/v1/responses", [created, output], "\"type\":\"error\""),
    ] {
        let raw = stuck(&parts).await;
        let house = house(&raw, Duration::ZERO, SHORT).await;
        let question = format!(
            "{}",
            json!({
                "model": "demo", "stream": true, "max_tokens": 9, "input": "hello",
                "messages": [{ "role": "user", "content": "hello" }],
            })
        );
        let mut live: Live = Ask::post(path, question).open(house.address()).await;
        live.reads("delta").await;
        let drained = tokio::spawn(house.app.shutdown());
        let reply = live.rest().await;
        assert!(reply.text().contains(wanted) && !reply.is_clean, "{path}: {}", reply.text());
        soon("the end", drained).await.unwrap();
    }
}

#[tokio::test]
async fn streams_of_http2_and_streams_without_content_are_told_as_well() {
    let raw = Raw::always(vec![Act::Say(stream_head()), Act::Hang]).await;
    let plan = Plan::of(&[("a", raw.address)]);
    let house = plan
        .start_as(|config| {
            config.server.drain_delay = Duration::ZERO;
            config.server.drain_timeout = SHORT;
            config.server.heartbeat = Some(Duration::from_millis(50));
        })
        .await;
    let live = Ask::stream().open(house.address()).await;
    let stream = TcpStream::connect(house.address()).await.unwrap();
    let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.unwrap();
    tokio::spawn(connection);
    let request = Request::builder().method(Method::POST).uri("http://x/v1/chat/completions");
    let request = request.body(Full::new(Bytes::from(STREAM_QUESTION))).unwrap();
    let mut body = soon("an answer", sender.send_request(request)).await.unwrap().into_body();
    let drained = tokio::spawn(house.app.shutdown());
    let reply = live.rest().await;
    assert!(is_told(&reply), "{}", reply.text());
    let mut text = Vec::new();
    let is_reset = loop {
        match soon("more", body.frame()).await {
            Some(Ok(frame)) => text.extend_from_slice(&frame.into_data().unwrap()),
            Some(Err(_)) => break true,
            None => break false,
        }
    };
    let text = String::from_utf8(text).unwrap();
    assert!(is_reset && text.contains("stream_interrupted"), "{text}");
    soon("the end", drained).await.unwrap();
}

#[tokio::test]
async fn a_shutdown_that_is_hurried_cuts_what_is_left_at_once() {
    let raw = stuck(&[ROLE, &event("one")]).await;
    let house = house(&raw, Duration::from_secs(60), Duration::from_secs(600)).await;
    let mut live = Ask::stream().open(house.address()).await;
    live.reads("one").await;
    let hurry = house.app.hurry();
    let drained = tokio::spawn(house.app.shutdown());
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!drained.is_finished());
    let began = Instant::now();
    hurry.up();
    let reply = live.rest().await;
    assert!(is_told(&reply), "{}", reply.text());
    soon("the end", drained).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}
