//! Signs of life: comments in a stream that is silent, and a head that goes before the answer is there.
//!
//! Neither is progress of the endpoint's, and behind both everything happens that happens without.

use std::time::Duration;

use crate::local::{Ask, House, Plan, mock, nobody, read_until, until};
use crate::raw::{
    Act, DONE, FINISH, ROLE, Raw, chunk, event, failed, json, open_stream, stream_head,
};
use tokio::time::Instant;

const COMMENT: &str = ": keep-alive\n\n";
const HEARTBEAT: Duration = Duration::from_millis(100);

/// A gateway whose heart beats fast, and which gives up soon.
async fn lively(plan: Plan) -> House {
    let plan = plan.top("circuit_breaker: { probe: { enabled: false } }\nretry: { on: [] }");
    let plan = plan.top("timeouts: { first_byte: 450ms, idle: 450ms }");
    plan.start_as(|config| config.server.heartbeat = Some(HEARTBEAT)).await
}

async fn metrics(house: &House) -> String {
    Ask::get("/metrics").send(house.app.admin_address).await.text().to_owned()
}

/// The last event of a stream that failed, which is an error; all before it are comments.
fn told(text: &str) -> serde_json::Value {
    let event = text.trim_start_matches(COMMENT);
    assert!(text.starts_with(COMMENT), "{text}");
    let data = event.strip_prefix("data: ").unwrap().strip_suffix("\n\n").unwrap();
    serde_json::from_str(data).unwrap()
}

#[tokio::test]
async fn u08_a_stream_that_is_long_in_coming_is_begun_and_failover_stays_unseen() {
    let silent = Raw::always(vec![Act::Say(stream_head()), Act::Hang]).await;
    let (address, _mock) = mock("b").await;
    let house = lively(Plan::of(&[("a", silent.address), ("b", address)])).await;
    while silent.count() == 0 {
        let reply = house.ask_stream().await;
        assert!(reply.is_clean && reply.status == 200);
        if silent.count() == 0 {
            assert_eq!((reply.endpoint(), reply.text().matches(COMMENT).count()), ("demo/b", 0));
            continue;
        }
        assert_eq!(reply.header("content-type"), "text/event-stream");
        assert_eq!((reply.endpoint(), reply.header("x-request-id").is_empty()), ("", false));
        let comments = reply.text().matches(COMMENT).count();
        assert!((2..=6).contains(&comments), "{comments}");
        let stream = reply.text().trim_start_matches(COMMENT);
        assert!(stream.starts_with("data: ") && stream.ends_with(DONE), "{stream}");
        assert_eq!(stream.matches(COMMENT).count(), 0);
    }
    assert_eq!(house.view("a").streak, 1);
    house.is_untouched("b").await;
}

#[tokio::test]
async fn u08_a_stream_that_was_begun_tells_in_band_what_went_wrong() {
    let late = Act::Rest(Duration::from_millis(250));
    let plain = json(200, r#"{"choices":[{"message":{"content":"x"}}]}"#);
    let cases = [
        ("silence", vec![Act::Say(stream_head()), Act::Hang], "upstream_timeout", 1),
        ("a fault", vec![late.clone(), Act::Say(failed(500))], "upstream_error", 1),
        ("a refusal", vec![late.clone(), Act::Say(failed(400))], "upstream_error", 0),
        ("a cut", vec![late.clone(), Act::Reset], "upstream_unavailable", 1),
        ("an answer in one piece", vec![late, Act::Say(plain)], "upstream_error", 0),
    ];
    for (what, script, code, faults) in cases {
        let raw = Raw::always(script).await;
        let house = lively(Plan::of(&[("a", raw.address)])).await;
        let reply = house.ask_stream().await;
        assert_eq!((reply.status, reply.is_clean), (200, false), "{what}");
        let error = told(reply.text());
        assert_eq!(error["error"]["code"], code, "{what}");
        assert_eq!(error["error"].as_object().unwrap().len(), 4, "{what}");
        // A refusal's own words are the client's to read.
        assert_eq!(error["error"]["message"] == "no", what == "a refusal", "{error}");
        assert_eq!(
            (house.view("a").streak, house.endpoint("a").in_flight()),
            (faults, 0),
            "{what}"
        );
        let metrics = metrics(&house).await;
        for series in [
            "quorumgate_requests_total{model=\"demo\",code=\"200\"} 1",
            "quorumgate_stream_aborts_total{side=\"upstream\"} 1",
        ] {
            assert!(metrics.contains(series), "{what}: {series}\n{metrics}");
        }
    }
}

#[tokio::test]
async fn what_fails_before_a_heartbeat_keeps_its_status_and_what_is_no_stream_waits() {
    let house = lively(Plan::of(&[("a", nobody().await)])).await;
    assert_eq!(house.ask_stream().await.status, 502);
    let silent = Raw::always(vec![Act::Hang]).await;
    let house = lively(Plan::of(&[("a", silent.address)])).await;
    let reply = house.ask().await;
    assert_eq!((reply.status, reply.code().as_str()), (504, "upstream_timeout"));
    let plan = Plan::of(&[("a", silent.address)]).top("timeouts: { first_byte: 300ms }");
    let house = plan.start_as(|config| config.server.heartbeat = None).await;
    assert_eq!(house.ask_stream().await.status, 504);
}

#[tokio::test]
async fn a02_a_client_that_leaves_a_stream_that_was_begun_lets_the_upstream_go() {
    let silent = Raw::always(vec![Act::Hang]).await;
    let house = lively(Plan::of(&[("a", silent.address)])).await;
    let mut client = Ask::stream().wire(house.address()).await;
    read_until(&mut client, COMMENT).await;
    let left_at = Instant::now();
    drop(client);
    until("the upstream is let go", || silent.left().len() == 1).await;
    let took = silent.left().pop().unwrap().saturating_duration_since(left_at);
    assert!(took < Duration::from_millis(200), "{took:?}");
    house.is_untouched("a").await;
    let series = "quorumgate_stream_aborts_total{side=\"client\"} 1";
    assert!(metrics(&house).await.contains(series));
}

#[tokio::test]
async fn s11_a_stream_that_pauses_gets_comments_between_its_events_and_is_otherwise_the_same() {
    let one = event("one");
    let (head, tail) = one.split_at(one.len() / 2);
    let mut acts = open_stream(&[ROLE, head]);
    acts.extend([Act::Rest(Duration::from_millis(250)), Act::Say(chunk(tail.as_bytes()))]);
    acts.extend([Act::Rest(Duration::from_millis(250))]);
    acts.extend([Act::Say(chunk(format!("{FINISH}{DONE}").as_bytes())), Act::Say(chunk(b""))]);
    let raw = Raw::always(acts).await;
    let house = lively(Plan::of(&[("a", raw.address)])).await;
    let reply = house.ask_stream().await;
    let comments = reply.text().matches(COMMENT).count();
    assert!(reply.is_clean && comments >= 2, "{}", reply.text());
    assert_eq!(reply.text().replace(COMMENT, ""), format!("{ROLE}{one}{FINISH}{DONE}"));
    for (at, _) in reply.text().match_indices(COMMENT) {
        assert!(at == 0 || reply.text().get(..at).unwrap().ends_with("\n\n"), "{}", reply.text());
    }
    assert_eq!(house.view("a").successes, 1);
}
