//! The breaker at work in the data plane: what opens it, what half-open lets through, what happens
//! when everything is out, and the operator above it all.
//!
//! A single node is its own fleet, so that what its breaker says holds at once.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use breaker::State;
use gateway::mock::Behaviour;
use quorum::Forced;

use crate::local::{Ask, House, Plan, QUESTION, STREAM_QUESTION, mock, soon, until};
use crate::raw;
use crate::raw::{Act, Raw, answer, event, failed, good, open_stream};

/// One fault opens, for long.
const AT_ONCE: &str = "circuit_breaker: { failure_threshold: 1, probe: { enabled: false } }";
/// One fault opens, for a moment; no probe disturbs the count.
const FOR_A_MOMENT: &str = "circuit_breaker: { failure_threshold: 1, open: { base: 150ms, max: 10s }, \
                            half_open: { share: 1.0 }, ramp: { duration: 0s }, \
     probe: { enabled: false } }";

fn failing() -> Behaviour {
    Behaviour { status: Some(500), ..Behaviour::default() }
}

async fn opens(house: &House, name: &str) {
    while house.view(name).state == State::Closed {
        house.ask().await;
    }
}

#[tokio::test]
async fn f02_a_429_neither_counts_nor_ends_a_streak() {
    let raw = Raw::start(|number, _| match number {
        2 => vec![Act::Say(answer(429, "retry-after: 0\r\n", "{}"))],
        _ => vec![Act::Say(failed(500))],
    })
    .await;
    let plan = Plan::of(&[("a", raw.address)]).pool("on_all_open: reject");
    let house = plan.top("circuit_breaker: { failure_threshold: 3 }").start().await;
    let mut told = Vec::new();
    for _ in 0..4 {
        assert_eq!(house.view("a").state, State::Closed);
        told.push(house.ask().await.status);
    }
    assert_eq!(told, [500, 500, 429, 500]);
    assert_eq!(house.view("a").state, State::Open);
    assert_eq!((house.ask().await.status, raw.count()), (503, 4));
    let told = house.admin("endpoints/demo/a").await;
    assert_eq!(told["local"]["reason"], "consecutive faults");
    let evidence = house.endpoint("a").local_opening().unwrap().evidence;
    assert_eq!((evidence.requests, evidence.faults_milli, evidence.successes), (3, 3_000, 0));
}

#[tokio::test]
async fn f02_a_hundred_429_leave_the_breaker_closed() {
    let raw = Raw::always(vec![Act::Say(answer(429, "retry-after: 0\r\n", "{}"))]).await;
    let house = Plan::of(&[("a", raw.address)]).start().await;
    for _ in 0..100 {
        assert_eq!(house.ask().await.status, 429);
    }
    house.is_untouched("a").await;
    assert_eq!(raw.count(), 100);
}

#[tokio::test]
async fn f02_a_503_counts_unless_the_model_says_that_it_means_busy() {
    for (codes, told, state) in
        [("[429]", [503, 503, 503, 503], State::Open), ("[429, 503]", [503; 4], State::Closed)]
    {
        let raw = Raw::always(vec![Act::Say(answer(503, "retry-after: 0\r\n", "{}"))]).await;
        let circuit =
            format!("circuit_breaker: {{ failure_threshold: 3, capacity_status_codes: {codes} }}");
        let plan = Plan::of(&[("a", raw.address)]).pool("on_all_open: reject");
        let house = plan.top(&circuit).top("retry: { on: [] }").start().await;
        for status in told {
            assert_eq!(house.ask().await.status, status, "{codes}");
        }
        assert_eq!(house.view("a").state, state, "{codes}");
        assert_eq!(raw.count(), if state == State::Open { 3 } else { 4 }, "{codes}");
    }
}

#[tokio::test]
async fn f07_every_route_feeds_the_breaker_alike() {
    for (path, body) in [
        ("/v1/chat/completions", QUESTION),
        ("/v1/chat/completions", STREAM_QUESTION),
        ("/v1/completions", r#"{"model":"demo","prompt":"x"}"#),
        ("/v1/completions", r#"{"model":"demo","prompt":"x","stream":true}"#),
        ("/v1/embeddings", r#"{"model":"demo","input":"x"}"#),
    ] {
        let (address, mock) = mock("a").await;
        mock.set(failing());
        let house = Plan::of(&[("a", address)]).pool("on_all_open: reject").start().await;
        for _ in 0..4 {
            assert_eq!(house.view("a").state, State::Closed, "{path}");
            assert_eq!(Ask::post(path, body).send(house.address()).await.status, 500, "{path}");
        }
        let told = house.admin("endpoints/demo/a").await;
        assert_eq!(told["local"]["state"], "open", "{path}");
        assert_eq!(told["in_rotation"], false, "{path}");
        assert_eq!(mock.counts().requests, 4, "{path}");
    }
}

#[tokio::test]
async fn f14_an_attempt_that_opens_the_circuit_is_followed_by_another_endpoint_once() {
    let (a, ill) = mock("a").await;
    let (b, healthy) = mock("b").await;
    ill.set(failing());
    let house = Plan::of(&[("a", a), ("b", b)]).top(AT_ONCE).start().await;
    while house.view("a").state == State::Closed {
        let before = healthy.counts().requests;
        let reply = house.ask().await;
        assert_eq!((reply.status, reply.endpoint()), (200, "demo/b"));
        let attempts = if house.view("a").state == State::Open { "2" } else { "1" };
        assert_eq!(reply.header("x-quorumgate-attempts"), attempts);
        assert_eq!(healthy.counts().requests, before + 1);
    }
    for _ in 0..20 {
        assert_eq!(house.ask().await.header("x-quorumgate-attempts"), "1");
    }
    assert_eq!(ill.counts().requests, 1);
}

/// A hanging endpoint that has just become half-open, alone or beside a sibling.
async fn half_open_and_hanging(sibling: Option<SocketAddr>) -> (Raw, House) {
    let raw = Raw::start(|number, _| match number {
        0 => vec![Act::Say(failed(500))],
        _ => vec![Act::Hang],
    })
    .await;
    let mut plan = Plan::of(&[("a", raw.address)]).top(FOR_A_MOMENT).pool("on_all_open: reject");
    plan = plan.top("timeouts: { first_byte: 3s }");
    if let Some(address) = sibling {
        plan = plan.endpoint("b", address, "");
    }
    let house = plan.start().await;
    opens(&house, "a").await;
    house.reaches("a", State::HalfOpen).await;
    (raw, house)
}

#[tokio::test]
async fn f12_b02_half_open_admits_one_of_a_hundred_and_the_sibling_serves_the_others() {
    let (address, mock) = mock("b").await;
    let (raw, house) = half_open_and_hanging(Some(address)).await;
    let gateway = house.address();
    let clients: Vec<_> =
        (0..100).map(|_| tokio::spawn(async move { Ask::chat().send(gateway).await })).collect();
    until("99 are served", || mock.counts().completed >= 99).await;
    assert_eq!((raw.count(), house.endpoint("a").in_flight()), (2, 1));
    for client in clients {
        let reply = soon("a client", client).await.unwrap();
        assert_eq!((reply.status, reply.endpoint()), (200, "demo/b"));
    }
    assert_eq!(raw.count(), 2);
    assert_eq!(house.view("a").state, State::Open);
}

#[tokio::test]
async fn f12_b02_alone_half_open_admits_one_of_a_hundred_and_refuses_the_others_at_once() {
    let (raw, house) = half_open_and_hanging(None).await;
    let gateway = house.address();
    let began = Instant::now();
    let clients: Vec<_> =
        (0..100).map(|_| tokio::spawn(async move { Ask::chat().send(gateway).await })).collect();
    let mut refused = 0;
    let mut others = Vec::new();
    for client in clients {
        let reply = soon("a client", client).await.unwrap();
        if reply.status == 503 {
            assert_eq!(reply.code(), "circuit_open");
            assert!(reply.header("retry-after").parse::<u64>().unwrap() >= 1);
            refused += 1;
        } else {
            others.push(reply.status);
        }
    }
    assert_eq!((refused, others, raw.count()), (99, vec![504], 2));
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(house.view("a").state, State::Open);
}

#[tokio::test]
async fn b05_half_open_takes_small_prompts_only() {
    let raw = Raw::start(|number, _| match number {
        0 => vec![Act::Say(failed(500))],
        _ => vec![Act::Say(good("yes"))],
    })
    .await;
    let (address, _mock) = mock("b").await;
    let plan = Plan::of(&[("a", raw.address), ("b", address)]).top(FOR_A_MOMENT);
    let house = plan.start().await;
    opens(&house, "a").await;
    house.reaches("a", State::HalfOpen).await;
    let long = "long ".repeat(300);
    let long = format!(r#"{{"model":"demo","messages":[{{"role":"user","content":"{long}"}}]}}"#);
    for _ in 0..50 {
        let reply = Ask::post("/v1/chat/completions", long.clone()).send(house.address()).await;
        assert_eq!((reply.status, reply.endpoint()), (200, "demo/b"));
    }
    assert_eq!((raw.count(), house.view("a").state), (1, State::HalfOpen));
    while house.view("a").state == State::HalfOpen {
        assert_eq!(house.ask().await.status, 200);
    }
    assert_eq!((raw.count(), house.view("a").state), (6, State::Closed));
}

#[tokio::test]
async fn f11_an_endpoint_that_is_well_again_serves_again_without_help() {
    let (address, mock) = mock("a").await;
    mock.set(failing());
    let house = Plan::of(&[("a", address)]).top(FOR_A_MOMENT).start().await;
    opens(&house, "a").await;
    mock.set(Behaviour::default());
    while house.view("a").state != State::Closed {
        assert_eq!(house.ask().await.status, 200);
    }
    assert_eq!(house.ask().await.headers.get("x-quorumgate-degraded"), None);
}

#[tokio::test]
async fn f46_when_all_are_out_a_request_passes_through_and_says_so() {
    let (a, first) = mock("a").await;
    let (b, second) = mock("b").await;
    first.set(failing());
    second.set(failing());
    let house = Plan::of(&[("a", a), ("b", b)]).top(AT_ONCE).start().await;
    let reply = house.ask().await;
    assert_eq!((reply.status, reply.header("x-quorumgate-degraded")), (500, ""));
    assert_eq!((house.view("a").state, house.view("b").state), (State::Open, State::Open));
    first.set(Behaviour::default());
    second.set(Behaviour::default());
    let reply = house.ask().await;
    assert_eq!((reply.status, reply.header("x-quorumgate-degraded")), (200, "all-open"));
    let metrics = Ask::get("/metrics").send(house.app.admin_address).await;
    assert!(metrics.text().contains("quorumgate_pool_all_open{model=\"demo\"}"));
}

#[tokio::test]
async fn u37_when_all_are_out_no_request_fails_while_one_endpoint_is_well() {
    let (a, ill) = mock("a").await;
    let (b, well) = mock("b").await;
    ill.set(failing());
    well.set(failing());
    // The ill one would return sooner, so that it is the first to be tried.
    let sooner = ", circuit_breaker: { open: { base: 3s } }";
    let plan = Plan::of(&[]).endpoint("a", a, sooner).endpoint("b", b, "").top(AT_ONCE);
    let house = plan.start().await;
    house.ask().await;
    assert_eq!((house.view("a").state, house.view("b").state), (State::Open, State::Open));
    well.set(Behaviour::default());
    let reply = house.ask().await;
    assert_eq!((reply.status, reply.header("x-quorumgate-degraded")), (200, "all-open"));
    assert_eq!(reply.endpoint(), "demo/b");
    let (a, first) = mock("a").await;
    let (b, second) = mock("b").await;
    let (c, third) = mock("c").await;
    let all = [first, second, third];
    all.iter().for_each(|mock| mock.set(failing()));
    let house = Plan::of(&[("a", a), ("b", b), ("c", c)]).top(AT_ONCE).start().await;
    house.ask().await;
    assert_eq!(house.ask().await.status, 500);
    let asked: u64 = all.iter().map(|mock| mock.counts().requests).sum();
    assert_eq!(asked, 3 + 2, "fewer attempts while all are out");
}

#[tokio::test]
async fn f46_when_all_are_out_and_told_to_reject_no_upstream_is_asked() {
    let (a, first) = mock("a").await;
    let (b, second) = mock("b").await;
    first.set(failing());
    second.set(failing());
    let plan = Plan::of(&[("a", a), ("b", b)]).top(AT_ONCE).pool("on_all_open: reject");
    let house = plan.start().await;
    house.ask().await;
    assert_eq!((first.counts().requests, second.counts().requests), (1, 1));
    for _ in 0..20 {
        let reply = house.ask().await;
        assert_eq!((reply.status, reply.code().as_str()), (503, "circuit_open"));
        let left: u64 = reply.header("retry-after-ms").parse().unwrap();
        let returns = ["a", "b"].map(|name| house.view(name).remaining.unwrap());
        let nearest = returns.into_iter().min().unwrap().as_millis() as u64;
        assert!(left >= nearest && left <= nearest + 500, "{left} {nearest}");
        assert_eq!(reply.header("retry-after"), left.div_ceil(1_000).to_string());
    }
    assert_eq!((first.counts().requests, second.counts().requests), (1, 1));
}

#[tokio::test]
async fn the_busy_endpoint_is_spared() {
    let script = |_: usize, seen: &raw::Seen| {
        if seen.text().contains("hang") { vec![Act::Hang] } else { vec![Act::Say(good("yes"))] }
    };
    let (a, b) = (Raw::start(script).await, Raw::start(script).await);
    let house = Plan::of(&[("a", a.address), ("b", b.address)]).start().await;
    let hanging = QUESTION.replace("hello", "hang");
    let hanging = Ask::post("/v1/chat/completions", hanging).wire(house.address()).await;
    until("one hangs", || a.count() + b.count() == 1).await;
    let (busy, idle) = if a.count() == 1 { (&a, "demo/b") } else { (&b, "demo/a") };
    for _ in 0..30 {
        assert_eq!(house.ask().await.endpoint(), idle);
    }
    assert_eq!(busy.count(), 1);
    drop(hanging);
}

#[tokio::test]
async fn slow_evidence_is_given_while_the_request_still_runs_and_opens_by_confirmation() {
    let raw = Raw::always(vec![Act::Hang]).await;
    let plan = Plan::of(&[("a", raw.address)]).top(
        "circuit_breaker: { slow: { total: 200ms, first_token: off, dedup: 300ms, \
         confirmations: 2 }, probe: { enabled: false } }",
    );
    let house = plan.start().await;
    let mut clients = Vec::new();
    for ask in [Ask::chat(), Ask::chat(), Ask::stream()] {
        clients.push(ask.wire(house.address()).await);
    }
    until("slow evidence", || house.view("a").slow_pieces == 1).await;
    assert_eq!((house.endpoint("a").in_flight(), house.view("a").state), (3, State::Closed));
    let told = house.admin("endpoints/demo/a/explain").await;
    assert_eq!((&told["evidence"]["slow_pieces"], &told["in_flight"]), (&1.into(), &3.into()));
    // A piece of its own is one beyond the dedup interval.
    tokio::time::sleep(Duration::from_millis(310)).await;
    clients.push(Ask::chat().wire(house.address()).await);
    house.reaches("a", State::Open).await;
    assert_eq!(house.endpoint("a").in_flight(), 4, "no request was ended by the opening");
    let evidence = house.endpoint("a").local_opening().unwrap().evidence;
    assert_eq!((evidence.requests, evidence.faults_milli, evidence.slow_pieces), (0, 0, 2));
    drop(clients);
    until("all slots are free", || house.endpoint("a").in_flight() == 0).await;
}

#[tokio::test]
async fn a_late_end_of_a_stream_does_not_touch_a_circuit_that_has_moved_on() {
    let raw = Raw::start(|_, seen| {
        if !seen.text().contains("\"stream\"") {
            return vec![Act::Say(failed(500))];
        }
        let mut acts = open_stream(&[event("one")]);
        acts.extend([Act::Wait, Act::Reset]);
        acts
    })
    .await;
    let house = Plan::of(&[("a", raw.address)]).top(FOR_A_MOMENT).start().await;
    let mut live = Ask::stream().open(house.address()).await;
    live.reads("one").await;
    opens(&house, "a").await;
    house.reaches("a", State::HalfOpen).await;
    raw.go();
    let reply = live.rest().await;
    assert!(reply.text().contains("stream_interrupted"));
    until("the slot is free", || house.endpoint("a").in_flight() == 0).await;
    assert_eq!((house.view("a").state, house.view("a").epoch), (State::HalfOpen, 2));
}

/// Gives an operator's order and waits until it holds.
async fn order(house: &House, name: &str, forced: Forced) {
    assert!(house.app.seat.order(&house.key(name), (forced, None), "a test"));
    until("the order holds", || house.endpoint(name).forced() == forced).await;
}

#[tokio::test]
async fn an_operator_takes_an_endpoint_out_and_brings_it_back() {
    let (a, first) = mock("a").await;
    let (b, _second) = mock("b").await;
    let house = Plan::of(&[("a", a), ("b", b)]).start().await;
    order(&house, "a", Forced::Open).await;
    for _ in 0..30 {
        assert_eq!(house.ask().await.endpoint(), "demo/b");
    }
    assert_eq!(first.counts().requests, 0);
    order(&house, "b", Forced::Open).await;
    let reply = house.ask().await;
    assert_eq!((reply.status, reply.code().as_str()), (503, "circuit_open"));
    assert!(reply.header("retry-after").parse::<u64>().unwrap() >= 1);
    assert_eq!(first.counts().requests, 0);
    order(&house, "a", Forced::Auto).await;
    assert_eq!(house.ask().await.endpoint(), "demo/a");
}

#[tokio::test]
async fn an_operators_word_brings_in_what_the_breaker_or_a_pause_has_out() {
    let (a, mock) = mock("a").await;
    mock.set(failing());
    let plan = Plan::of(&[("a", a)]).top(AT_ONCE).pool("on_all_open: reject");
    let house = plan.start().await;
    house.ask().await;
    assert_eq!((house.view("a").state, house.ask().await.status), (State::Open, 503));
    order(&house, "a", Forced::Closed).await;
    mock.set(Behaviour::default());
    assert_eq!(house.ask().await.status, 200);
    house.endpoint("a").cool(gateway::clock::now(), Duration::from_secs(60));
    assert_eq!(house.ask().await.status, 200);
    order(&house, "a", Forced::Auto).await;
    assert_eq!(house.ask().await.status, 503);
}

#[tokio::test]
async fn an_endpoint_that_an_operator_forced_is_not_stormed_by_probes() {
    let (address, mock) = mock("a").await;
    let top = "circuit_breaker: { failure_threshold: 1, open: { base: 50ms, max: 50ms } }";
    let house = Plan::of(&[("a", address)]).top(top).start().await;
    mock.set(failing());
    assert_eq!(house.ask().await.status, 500);
    order(&house, "a", Forced::Closed).await;
    let before = mock.counts().probes;
    // Only the passing of time can show that nothing comes.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(mock.counts().probes <= before + 1, "{}", mock.counts().probes);
    order(&house, "a", Forced::Auto).await;
    mock.set(Behaviour::default());
    until("it is probed", || mock.counts().probes > before + 1).await;
}

#[tokio::test]
async fn a_shadow_is_not_tried_by_requests_of_our_own() {
    let (address, mock) = mock("a").await;
    let top = "circuit_breaker: { mode: shadow, failure_threshold: 1, \
               open: { base: 50ms, max: 50ms } }";
    let house = Plan::of(&[("a", address)]).top(top).start().await;
    mock.set(failing());
    assert_eq!(house.ask().await.status, 500);
    house.reaches("a", State::HalfOpen).await;
    // Only the passing of time can show that nothing comes.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!((mock.counts().probes, mock.counts().requests), (0, 1));
}
