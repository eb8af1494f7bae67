//! The chain of pools: who is asked when nothing is left in the pool that was asked for.
//!
//! The model `demo` falls back on `other`; each test says what its endpoints do.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use breaker::State;
use gateway::clock;

use crate::local::{Ask, House, Plan, QUESTION, Reply, nobody, until};
use crate::raw;
use crate::raw::{Act, Raw, answer, failed, good};

/// One fault opens, for long.
const AT_ONCE: &str = "circuit_breaker: { failure_threshold: 1, probe: { enabled: false } }";

/// A pool `other` that is served there, with further keys of its endpoint.
fn other(address: SocketAddr, more: &str) -> String {
    format!("name: other, endpoints: [ {{ name: z, address: \"http://{address}\"{more} }} ]")
}

/// `demo` with these endpoints, and `other` behind it.
fn chain(endpoints: &[(&str, SocketAddr)], behind: &Raw) -> Plan {
    Plan::of(endpoints).pool("fallback: [other]").model(&other(behind.address, ""))
}

async fn raw_of(bytes: Vec<u8>) -> Raw {
    Raw::always(vec![Act::Say(bytes)]).await
}

async fn metrics(house: &House) -> String {
    Ask::get("/metrics").send(house.app.admin_address).await.text().to_owned()
}

/// Asserts that `other` has answered, after so many attempts.
fn is_from_other(reply: &Reply, attempts: &str) {
    assert_eq!((reply.status, reply.endpoint()), (200, "other/z"), "{}", reply.text());
    assert_eq!(reply.header("x-quorumgate-fallback"), "other");
    assert_eq!(reply.header("x-quorumgate-attempts"), attempts);
    assert_eq!(reply.header("x-quorumgate-degraded"), "");
}

#[tokio::test]
async fn f24_a_429_without_a_word_reaches_the_fallback_in_the_same_request() {
    let (limited, well) = (raw_of(answer(429, "", "")).await, raw_of(good("yes")).await);
    let house = chain(&[("a", limited.address)], &well).start().await;
    is_from_other(&house.ask().await, "2");
    let cooling = house.endpoint("a").cooling_for(clock::now());
    assert!(cooling > Duration::from_secs(4), "{cooling:?}");
    house.is_untouched("a").await;
    // While it cools the fallback is asked at once.
    is_from_other(&house.ask().await, "1");
    assert_eq!((limited.count(), well.count()), (1, 2));
    assert!(metrics(&house).await.contains("quorumgate_retries_total{reason=\"limited\"} 1\n"));
    let asked = "quorumgate_requests_total{model=\"demo\",code=\"200\"} 2\n";
    assert!(metrics(&house).await.contains(asked), "counted where it was asked for");
}

#[tokio::test]
async fn f25_a_connection_that_is_refused_reaches_the_fallback_at_the_first_request() {
    let well = raw_of(good("yes")).await;
    let house = chain(&[("a", nobody().await), ("b", nobody().await)], &well).start().await;
    is_from_other(&house.ask().await, "3");
}

#[tokio::test]
async fn f26_the_body_survives_with_the_fallbacks_own_name_and_credential() {
    let (ill, well) = (raw_of(failed(500)).await, raw_of(good("yes")).await);
    let model = other(well.address, ", upstream_model: model-of-z, api_key: key-of-z");
    let plan = Plan::of(&[]).endpoint("a", ill.address, ", api_key: key-of-a");
    let house = plan.pool("fallback: [other]").model(&model).start().await;
    let long = "\u{4f60} ".repeat(1024 * 1024 / 4);
    let body = format!(r#"{{"model":"demo","messages":[{{"role":"user","content":"{long}"}}]}}"#);
    let ask = Ask::post("/v1/chat/completions", body.clone());
    is_from_other(&house.send(ask.clone()).await, "2");
    let (first, second) = (ill.seen().remove(0), well.seen().remove(0));
    let cases = [(first, "demo", "key-of-a"), (second, "model-of-z", "key-of-z")];
    for (seen, name, key) in cases {
        let expected = body.replace("demo", name);
        assert!(seen.body == expected.as_bytes(), "the body as {name}");
        assert_eq!(seen.header("content-length"), Some(expected.len().to_string().as_str()));
        assert_eq!(seen.header("authorization"), Some(format!("Bearer {key}").as_str()));
    }
}

#[tokio::test]
async fn a_fallback_without_a_name_of_its_own_is_asked_by_the_name_of_its_pool() {
    let (ill, well) = (raw_of(failed(503)).await, raw_of(good("yes")).await);
    let house = chain(&[("a", ill.address)], &well).start().await;
    is_from_other(&house.ask().await, "2");
    assert_eq!(well.seen()[0].text(), QUESTION.replace("demo", "other"));
    assert_eq!(ill.count(), 1, "no endpoint is asked again while a fallback is left");
}

#[tokio::test]
async fn f28_a_quota_group_pauses_together_and_the_longer_time_is_told() {
    let asks = |seconds: u32| {
        let line = format!("retry-after: {seconds}\r\n");
        vec![Act::Wait, Act::Say(answer(429, &line, "{}"))]
    };
    let (a, b) = (Raw::always(asks(3)).await, Raw::always(asks(6)).await);
    let plan = Plan::of(&[]).endpoint("a", a.address, ", quota_group: azure").endpoint(
        "b",
        b.address,
        ", quota_group: azure",
    );
    let house = plan.pool("policy: weighted").start().await;
    let address = house.address();
    let ask = move || tokio::spawn(async move { Ask::chat().send(address).await });
    let first = ask();
    until("a is asked", || a.count() == 1).await;
    let second = ask();
    until("b is asked", || b.count() == 1).await;
    for (raw, waits, seconds) in [(&a, first, "3"), (&b, second, "6")] {
        raw.go();
        let reply = waits.await.unwrap();
        assert_eq!((reply.status, reply.code().as_str()), (429, "rate_limit_exceeded"));
        assert_eq!(reply.header("retry-after"), seconds);
        assert_eq!(reply.header("retry-after-ms"), format!("{seconds}000"));
        assert_eq!(reply.header("x-quorumgate-attempts"), "1");
    }
    let began = Instant::now();
    let reply = house.ask().await;
    assert_eq!((reply.status, reply.header("retry-after")), (429, "6"));
    assert!(began.elapsed() < Duration::from_secs(1), "nobody waits");
    assert_eq!((a.count(), b.count()), (1, 1), "no upstream is asked within the pause");
    house.is_untouched("a").await;
    house.is_untouched("b").await;
}

#[tokio::test]
async fn of_several_endpoints_at_their_limits_the_nearest_return_is_told() {
    let told = |seconds: u32| answer(429, &format!("retry-after: {seconds}\r\n"), "{}");
    let (a, b) = (raw_of(told(70)).await, raw_of(told(9)).await);
    let house = chain(&[("a", a.address)], &b).start().await;
    let reply = house.ask().await;
    assert_eq!((reply.status, reply.code().as_str()), (429, "rate_limit_exceeded"));
    assert_eq!((reply.header("retry-after"), reply.header("retry-after-ms")), ("9", "9000"));
    assert_eq!(reply.header("x-should-retry"), "");
}

#[tokio::test]
async fn all_pools_together_get_no_more_attempts_than_one() {
    let (a, b) = (raw_of(failed(500)).await, raw_of(failed(500)).await);
    let (y, z) = (raw_of(failed(500)).await, raw_of(failed(500)).await);
    let address = |raw: &Raw| format!("address: \"http://{}\"", raw.address);
    let other = format!(
        "name: other, endpoints: [ {{ name: y, {} }}, {{ name: z, {} }} ]",
        address(&y),
        address(&z)
    );
    let plan = Plan::of(&[("a", a.address), ("b", b.address)]).pool("fallback: [other]");
    let house = plan.model(&other).start().await;
    let reply = house.ask().await;
    assert_eq!((reply.status, reply.header("x-quorumgate-attempts")), (500, "3"));
    assert_eq!(
        (reply.header("x-should-retry"), reply.header("x-quorumgate-fallback")),
        ("false", "")
    );
    assert_eq!((a.count(), b.count(), y.count() + z.count()), (1, 1, 1));
}

#[tokio::test]
async fn all_pools_together_have_one_deadline_and_each_its_own_patience() {
    let (a, z) = (Raw::always(vec![Act::Hang]).await, Raw::always(vec![Act::Hang]).await);
    let model = format!("{}, timeouts: {{ first_byte: 5s, total: 5s }}", other(z.address, ""));
    let plan = Plan::of(&[("a", a.address)]).pool("fallback: [other]").model(&model);
    let house = plan
        .pool("timeouts: { first_byte: 300ms, idle: 300ms, total: 900ms }")
        .top("circuit_breaker: { slow: { total: 800ms, first_token: off } }")
        .start()
        .await;
    let began = Instant::now();
    let reply = house.ask().await;
    let took = began.elapsed();
    assert_eq!((reply.status, reply.code().as_str()), (504, "upstream_timeout"));
    assert!(took >= Duration::from_millis(890) && took < Duration::from_millis(1_500), "{took:?}");
    assert_eq!((a.count(), z.count()), (1, 1));
}

#[tokio::test]
async fn a_pool_that_is_out_falls_back_before_anybody_presumed_dead_is_asked() {
    let ill = raw_of(failed(500)).await;
    let behind =
        Raw::start(|number, _| vec![Act::Say(if number < 2 { good("yes") } else { failed(500) })])
            .await;
    let house = chain(&[("a", ill.address)], &behind).top(AT_ONCE).start().await;
    is_from_other(&house.ask().await, "2");
    assert_eq!(house.view("a").state, State::Open);
    is_from_other(&house.ask().await, "1");
    assert_eq!(ill.count(), 1);
    // The fallback fails too, and then the one that is presumed dead is better than nothing.
    let reply = house.ask().await;
    assert_eq!((reply.status, reply.header("x-quorumgate-attempts")), (500, "2"));
    assert_eq!((ill.count(), behind.count()), (2, 3));
    let reply = house.ask().await;
    assert_eq!((reply.status, reply.header("x-quorumgate-attempts")), (500, "1"));
    assert_eq!((ill.count(), behind.count()), (3, 3), "the fallback is out as well");
}

#[tokio::test]
async fn only_what_failover_names_is_tried_elsewhere() {
    let cases = [("[500]", 503, "503", 0), ("[503]", 503, "200", 1), ("[refused]", 429, "429", 0)];
    for (on, status, expected, asked) in cases {
        let (ill, well) = (raw_of(failed(status)).await, raw_of(good("yes")).await);
        let top = format!("failover: {{ on: {on} }}\nretry: {{ on: [] }}");
        let house = chain(&[("a", ill.address)], &well).top(&top).start().await;
        let reply = house.ask().await;
        assert_eq!((reply.status.to_string().as_str(), well.count()), (expected, asked), "{on}");
        assert_eq!(reply.header("x-quorumgate-attempts"), (asked + 1).to_string(), "{on}");
    }
}

#[tokio::test]
async fn the_same_endpoint_again_and_another_endpoint_are_lists_of_their_own() {
    let raw =
        Raw::start(|number, _| vec![Act::Say(if number == 0 { failed(503) } else { good("yes") })])
            .await;
    let well = raw_of(good("yes")).await;
    let top = "failover: { on: [refused] }\nretry: { on: [503] }";
    let house = chain(&[("a", raw.address)], &well).top(top).start().await;
    let reply = house.ask().await;
    assert_eq!((reply.status, reply.endpoint()), (200, "demo/a"));
    assert_eq!((raw.count(), well.count()), (2, 0));
}

#[tokio::test]
async fn what_is_the_clients_own_goes_back_unchanged_and_nowhere_else() {
    let body = r#"{"error":{"message":"no","type":"x","param":null,"code":"y"}}"#;
    for status in [400, 404, 408, 409, 422] {
        let (own, well) = (raw_of(raw::json(status, body)).await, raw_of(good("yes")).await);
        let house = chain(&[("a", own.address)], &well).start().await;
        let reply = house.ask().await;
        assert_eq!((reply.status, reply.text()), (status, body));
        // These two the official clients would ask again by themselves.
        let is_retried = [408, 409].contains(&status);
        assert_eq!(reply.header("x-should-retry"), if is_retried { "false" } else { "" });
        assert_eq!((own.count(), well.count()), (1, 0));
    }
}

#[tokio::test]
async fn what_we_say_ourselves_is_never_a_408_or_409() {
    for (embedded, expected) in [(408, 502), (409, 502)] {
        let body = format!(r#"{{"error":{{"message":"no","code":{embedded}}}}}"#);
        let (own, well) = (raw_of(raw::json(200, &body)).await, raw_of(good("yes")).await);
        let house = chain(&[("a", own.address)], &well).start().await;
        let reply = house.ask().await;
        assert_eq!((reply.status, well.count()), (expected, 0), "{embedded}");
        house.is_untouched("a").await;
    }
}
