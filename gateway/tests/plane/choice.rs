//! Who is asked: policies, priorities and limits of endpoints, through the running gateway.

use std::time::{Duration, Instant};

use gateway::clock;
use tokio::task::JoinSet;

use crate::local::{Ask, House, Plan, until};
use crate::raw;
use crate::raw::{Act, Raw, failed, good};

async fn well() -> Raw {
    Raw::always(vec![Act::Say(good("yes"))]).await
}

/// How often `a` and `b` served, of this many requests.
async fn shares(house: &House, count: usize) -> (usize, usize) {
    let (mut a, mut b) = (0, 0);
    for _ in 0..count {
        let reply = house.ask().await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        a += usize::from(reply.endpoint() == "demo/a");
        b += usize::from(reply.endpoint() == "demo/b");
    }
    (a, b)
}

#[tokio::test]
async fn in_turn_each_has_exactly_its_share() {
    let (a, b) = (well().await, well().await);
    let plan = Plan::of(&[]).endpoint("a", a.address, ", weight: 3").endpoint("b", b.address, "");
    let house = plan.pool("policy: weighted").start().await;
    assert_eq!(shares(&house, 40).await, (30, 10));
    assert_eq!((a.count(), b.count()), (30, 10));
}

#[tokio::test]
async fn every_policy_finds_the_sibling_of_an_endpoint_that_fails() {
    for policy in ["weighted", "least_request", "ewma", "prefix_hash"] {
        let (ill, b) = (Raw::always(vec![Act::Say(failed(500))]).await, well().await);
        let plan = Plan::of(&[("a", ill.address), ("b", b.address)]);
        let house = plan.pool(&format!("policy: {policy}")).start().await;
        assert_eq!(shares(&house, 20).await, (0, 20), "{policy}");
        assert!(ill.count() <= 4, "{policy}: its breaker opens");
    }
}

#[tokio::test]
async fn by_prefix_what_begins_alike_is_served_alike_and_comes_back_with_its_endpoint() {
    let mut raws = Vec::new();
    for _ in 0..4 {
        raws.push(well().await);
    }
    let endpoints = ["a", "b", "c", "d"].into_iter().zip(raws.iter().map(|raw| raw.address));
    let plan = Plan::of(&endpoints.collect::<Vec<_>>());
    let house = plan.pool("policy: prefix_hash").start().await;
    let ask = async |subject: usize, end: &str| {
        let long = format!("subject {subject} ").repeat(300);
        let messages = format!(r#"[{{"role":"system","content":"{long}{end}"}}]"#);
        let body = format!(r#"{{"model":"demo","user":"{end}","messages":{messages}}}"#);
        let reply = house.send(Ask::post("/v1/chat/completions", body)).await;
        assert_eq!(reply.status, 200);
        reply.endpoint().trim_start_matches("demo/").to_owned()
    };
    let mut homes = Vec::new();
    for subject in 0..24 {
        let home = ask(subject, "one").await;
        assert_eq!(ask(subject, "two").await, home, "{subject}");
        homes.push(home);
    }
    assert!(raws.iter().all(|raw| raw.count() > 0), "all have some");
    house.endpoint("a").force(quorum::Forced::Open);
    for (subject, home) in homes.iter().enumerate() {
        let found = ask(subject, "three").await;
        assert!(if home == "a" { found != "a" } else { found == *home }, "{subject}");
    }
    house.endpoint("a").force(quorum::Forced::Auto);
    for (subject, home) in homes.iter().enumerate() {
        assert_eq!(ask(subject, "four").await, *home);
    }
}

#[tokio::test]
async fn an_endpoints_tokens_are_corrected_by_what_was_used() {
    let body = r#"{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":900,"completion_tokens":90}}"#;
    let a = Raw::always(vec![Act::Say(raw::json(200, body))]).await;
    let plan = Plan::of(&[]).endpoint("a", a.address, ", limits: { tpm: 1000 }");
    let house = plan.start().await;
    assert_eq!(house.ask().await.status, 200);
    let reply = house.ask().await;
    assert_eq!((reply.status, reply.code().as_str()), (429, "rate_limit_exceeded"));
    assert_eq!(a.count(), 1);
}

#[tokio::test]
async fn a_higher_group_serves_only_when_the_lower_cannot() {
    let (a, b) = (well().await, well().await);
    let plan = Plan::of(&[]).endpoint("a", a.address, ", priority: 1").endpoint("b", b.address, "");
    let house = plan.start().await;
    assert_eq!(shares(&house, 20).await, (0, 20));
    house.endpoint("b").cool(clock::now(), Duration::from_secs(60));
    assert_eq!(shares(&house, 20).await, (20, 0));
}

/// Starts requests that hang, one after the other.
async fn hanging(house: &House, raw: &Raw, count: usize) -> JoinSet<()> {
    let (mut set, address) = (JoinSet::new(), house.address());
    for number in 1..=count {
        set.spawn(async move {
            Ask::chat().send(address).await;
        });
        until("it hangs", || raw.count() == number).await;
    }
    set
}

#[tokio::test]
async fn an_endpoint_that_hangs_takes_its_concurrency_and_slows_nobody_else() {
    let (a, b) = (Raw::always(vec![Act::Hang]).await, well().await);
    let plan = Plan::of(&[]).endpoint("a", a.address, ", limits: { concurrency: 2 }").endpoint(
        "b",
        b.address,
        ", priority: 1",
    );
    let house = plan.start().await;
    let hung = hanging(&house, &a, 2).await;
    let began = Instant::now();
    assert_eq!(shares(&house, 50).await, (0, 50));
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!((a.count(), house.endpoint("a").in_flight()), (2, 2));
    drop(hung);
    until("the places are free", || house.endpoint("a").in_flight() == 0).await;
}

#[tokio::test]
async fn when_all_are_busy_the_answer_is_503_at_once() {
    let a = Raw::always(vec![Act::Hang]).await;
    let plan = Plan::of(&[]).endpoint("a", a.address, ", limits: { concurrency: 1 }");
    let house = plan.start().await;
    let _hung = hanging(&house, &a, 1).await;
    let began = Instant::now();
    let reply = house.ask().await;
    assert_eq!((reply.status, reply.code().as_str()), (503, "overloaded"));
    assert_eq!((reply.header("retry-after"), reply.header("retry-after-ms")), ("1", "1000"));
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!((a.count(), house.endpoint("a").in_flight()), (1, 1));
}

#[tokio::test]
async fn when_all_are_at_their_limits_the_answer_is_429_with_the_nearest_return() {
    let (a, b) = (well().await, well().await);
    let plan = Plan::of(&[]).endpoint("a", a.address, ", limits: { rpm: 3 }").endpoint(
        "b",
        b.address,
        ", limits: { rpm: 2 }",
    );
    let house = plan.start().await;
    assert_eq!(shares(&house, 5).await, (3, 2));
    let reply = house.ask().await;
    assert_eq!((reply.status, reply.code().as_str()), (429, "rate_limit_exceeded"));
    let left: u64 = reply.header("retry-after-ms").parse().unwrap();
    assert!((50_000..=61_000).contains(&left), "{left}");
    assert_eq!(reply.header("retry-after"), left.div_ceil(1_000).to_string());
    assert_eq!(reply.header("x-quorumgate-attempts"), "");
    assert_eq!((a.count(), b.count()), (3, 2));
    house.is_untouched("a").await;
}

#[tokio::test]
async fn f29_when_all_are_left_alone_the_nearest_return_is_told_to_the_millisecond() {
    let (a, b) = (well().await, well().await);
    let house = Plan::of(&[("a", a.address), ("b", b.address)]).start().await;
    let now = clock::now();
    house.endpoint("a").cool(now, Duration::from_secs(60));
    house.endpoint("b").cool(now, Duration::from_millis(12_400));
    let reply = house.ask().await;
    assert_eq!((reply.status, reply.code().as_str()), (503, "circuit_open"));
    let left: u64 = reply.header("retry-after-ms").parse().unwrap();
    assert!((11_500..=12_400).contains(&left), "{left}");
    assert_eq!(reply.header("retry-after"), left.div_ceil(1_000).to_string());
    assert_eq!((a.count(), b.count()), (0, 0));
    // The same because of a limit is the limit's answer.
    house.endpoint("b").limit(now, Duration::from_millis(12_400));
    assert_eq!(house.ask().await.status, 429);
}
