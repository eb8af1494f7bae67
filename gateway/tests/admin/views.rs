//! What the views show of a real gateway: the list in pages, times, readiness with its reasons, the
//! watchdog.

use std::time::Duration;

use breaker::{Cause, Outcome, State};
use gateway::clock;

use crate::desk::{self, FULL, READ, locked};
use crate::local::{Ask, House, Plan, mock, nobody, soon, until};

const BREAKER: &str =
    "circuit_breaker: { failure_threshold: 1, open: { base: 60s, max: 60s }, mode: enforce }";

async fn look(house: &House, path: &str) -> (u16, serde_json::Value) {
    let reply = Ask::get(path).send(house.app.admin_address).await;
    (reply.status, reply.json())
}

/// Opens an endpoint's circuit.
fn open(house: &House, name: &str) {
    let errand = breaker::Errand::Request { prompt_tokens: 1 };
    let admission = house.endpoint(name).admit(clock::now(), errand).unwrap();
    admission.settle(clock::now(), Outcome::Fault { weight: 1.0, cause: Cause::Other });
}

async fn three() -> House {
    let ((a, _), (b, _)) = (mock("a").await, mock("b").await);
    let endpoints = [("a", a), ("b", b), ("c", nobody().await)];
    Plan::of(&endpoints).top(BREAKER).start().await
}

#[tokio::test]
async fn the_list_comes_in_pages_and_by_state() {
    let house = three().await;
    open(&house, "b");
    let (_, first) = look(&house, "/admin/v1/endpoints?limit=2").await;
    assert_eq!(
        (first["endpoints"].as_array().unwrap().len(), &first["after"]),
        (2, &"demo/b".into())
    );
    assert_eq!((&first["counts"]["endpoints"], &first["counts"]["out"]), (&3.into(), &1.into()));
    let (_, second) = look(&house, "/admin/v1/endpoints?limit=2&after=demo%2Fb").await;
    assert_eq!((&second["endpoints"][0]["name"], &second["after"]), (&"c".into(), &().into()));
    let (_, out) = look(&house, "/admin/v1/endpoints?state=out").await;
    let rows = out["endpoints"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["name"]), (1, &"b".into()));
    assert_eq!(rows[0]["verdict"], "out: its breaker opened (consecutive faults)");
    let next = rows[0]["next"].as_str().unwrap();
    // The cool-down is spread around its length.
    assert!(next.starts_with("this node sends it one probe in "), "{next}");
    for query in ["limit=0", "state=half", "sort=name", "limit=1&limit=2", "pool=nope", "after=x/y"]
    {
        let (status, told) = look(&house, &format!("/admin/v1/endpoints?{query}")).await;
        assert_eq!((status, &told["error"]["code"]), (400, &"invalid_query".into()), "{query}");
    }
}

#[tokio::test]
async fn times_of_real_answers_are_told_in_the_list() {
    let (address, _mock) = mock("a").await;
    let house = Plan::of(&[("a", address)]).start().await;
    let of_a = async || house.admin("endpoints/demo/a").await["latency"].clone();
    assert!(of_a().await["total_p50_ms"].is_null(), "unknown before the first answer");
    for _ in 0..5 {
        assert_eq!(house.ask_stream().await.status, 200);
    }
    let told = of_a().await;
    for key in ["first_token_p50_ms", "first_token_p95_ms", "total_p50_ms", "total_p95_ms"] {
        assert!(told[key].as_u64().is_some_and(|millis| millis < 10_000), "{key}: {told}");
    }
}

#[tokio::test]
async fn ready_says_what_is_to_be_known_and_a_pool_that_is_out_leaves_it_ready() {
    let house = three().await;
    let (status, told) = look(&house, "/readyz").await;
    assert_eq!(
        (status, &told["ready"], &told["reasons"]),
        (200, &true.into(), &serde_json::json!([]))
    );
    ["a", "b", "c"].iter().for_each(|name| open(&house, name));
    house.reaches("c", State::Open).await;
    let (status, told) = look(&house, "/readyz").await;
    let reason = &told["reasons"][0];
    assert_eq!((status, &told["ready"], &reason["code"]), (200, &true.into(), &"all_out".into()));
    assert!(reason["message"].as_str().unwrap().contains("1 of 1 pools (demo)"), "{told}");
}

#[tokio::test]
async fn ready_tells_a_stranger_the_codes_and_who_shows_a_token_the_rest() {
    let (address, _mock) = mock("a").await;
    let plan = Plan::of(&[("a", address)]).top(BREAKER);
    let house = plan.start_as(|config| locked(&mut config.admin)).await;
    open(&house, "a");
    house.reaches("a", State::Open).await;
    let ask = || desk::Ask::new("GET", "/readyz");
    for (ask, is_told) in [
        (ask(), false),
        (ask().token("wrong"), false),
        (ask().token(READ), true),
        (ask().token(FULL), true),
    ] {
        let told = ask.send(&house).await;
        assert_eq!((told.status, &told.json()["reasons"][0]["code"]), (200, &"all_out".into()));
        assert_eq!(told.text.contains("demo"), is_told, "{}", told.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_that_is_held_up_is_seen_by_the_watchdog() {
    let house = three().await;
    let seat = &house.app.seat;
    let since = || seat.since_round(clock::now()).unwrap();
    until("the loop goes round", || since() < Duration::from_millis(500)).await;
    let (status, told) = look(&house, "/healthz").await;
    assert_eq!((status, &told["status"]), (200, &"ok".into()));
    assert!(told["last_round_ms"].as_u64().is_some_and(|millis| millis < 5_000), "{told}");
    {
        let _held = seat.council();
        let began = std::time::Instant::now();
        while since() < Duration::from_millis(600) {
            assert!(began.elapsed() < Duration::from_secs(10), "the loop goes on all the same");
            std::thread::yield_now();
        }
    }
    until("the loop goes round again", || since() < Duration::from_millis(500)).await;
    let seat = std::sync::Arc::clone(&house.app.seat);
    soon("it ends", house.app.shutdown()).await;
    assert_eq!(seat.since_round(clock::now()), None, "a loop that was told to end is not stuck");
}

#[tokio::test]
async fn a_node_alone_says_who_it_is_and_for_how_long_it_has_run() {
    let house = three().await;
    let members = house.admin("members").await;
    let row = &members["members"][0];
    assert_eq!(
        (&row["self"], &row["age_ms"], &row["suspect"]),
        (&true.into(), &0.into(), &false.into())
    );
    assert!(row["uptime_ms"].is_u64(), "{row}");
    let cluster = house.admin("cluster").await;
    assert_eq!((&cluster["config_skew"], &cluster["version"]), (&false.into(), &row["version"]));
    assert_eq!(cluster["config_hash"], row["config_hash"]);
    assert!(cluster["uptime_ms"].is_u64(), "{cluster}");
}
