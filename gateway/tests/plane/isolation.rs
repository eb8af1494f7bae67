//! One endpoint's trouble costs the requests of others nothing, and those that meet it little.
//!
//! The endpoints answer after a fixed while, so that what the machine does beside is small against it;
//! rounds with and without the trouble take turns.

use std::time::{Duration, Instant};

use gateway::mock::{Behaviour, Mock};
use tokio::task::JoinSet;

use crate::local;
use crate::local::{House, Plan, mock, nobody};
use crate::raw::{Act, Raw};

/// How long a good endpoint takes: a tenth of it is more than a busy machine's scheduler adds.
const ANSWER: Duration = Duration::from_millis(200);
/// Requests of one round, and how many at a time.
const ROUND: usize = 120;
const AT_ONCE: usize = 12;
/// Rounds of each kind.
const ROUNDS: usize = 5;

fn steady(mock: &Mock) {
    let latency_ms = Some(u64::try_from(ANSWER.as_millis()).unwrap());
    mock.set(Behaviour { latency_ms, ..Behaviour::default() });
}

/// The 99th percentile of one round's requests to a model.
async fn p99(house: &House, model: &str) -> Duration {
    let mut times = Vec::with_capacity(ROUND);
    for _ in 0..ROUND / AT_ONCE {
        let mut round = JoinSet::new();
        for _ in 0..AT_ONCE {
            let ask =
                local::Ask::post("/v1/chat/completions", local::QUESTION.replace("demo", model));
            let address = house.address();
            round.spawn(async move {
                let began = Instant::now();
                let status = ask.send(address).await.status;
                (status, began.elapsed())
            });
        }
        for (status, time) in round.join_all().await {
            assert_eq!(status, 200);
            times.push(time);
        }
    }
    times.sort();
    *times.get(times.len() * 99 / 100).unwrap()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    *times.get(times.len() / 2).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f31_an_endpoint_that_hangs_for_ever_does_not_slow_the_others() {
    let (address, well) = mock("well").await;
    steady(&well);
    let hung = Raw::always(vec![Act::Hang]).await;
    let plan = Plan::of(&[("well", address)]);
    let sick = format!(
        "name: sick, endpoints: [ {{ name: hung, address: \"http://{}\" }} ]",
        hung.address
    );
    let house = plan.model(&sick).start().await;
    let (mut calm, mut troubled) = (Vec::new(), Vec::new());
    let mut hanging = JoinSet::new();
    for _ in 0..ROUNDS {
        calm.push(p99(&house, "demo").await);
        for _ in 0..AT_ONCE * 4 {
            let sick = local::QUESTION.replace("demo", "sick");
            let ask = local::Ask::post("/v1/chat/completions", sick);
            let address = house.address();
            hanging.spawn(async move { ask.wire(address).await });
        }
        let clients = hanging.join_all().await;
        local::until("they hang", || house.in_flight("sick/hung") >= 48).await;
        troubled.push(p99(&house, "demo").await);
        drop(clients);
        hanging = JoinSet::new();
        local::until("they have left", || house.in_flight("sick/hung") == 0).await;
    }
    eprintln!("p99 calm {calm:?}, beside one that hangs {troubled:?}");
    // What the machine does beside only ever adds, and what the one that hangs cost would be in each.
    let least = |times: Vec<Duration>| times.into_iter().min().unwrap();
    let (calm, troubled) = (least(calm), least(troubled));
    assert!(troubled < calm + calm / 10, "{calm:?} becomes {troubled:?}");
}

/// How much longer requests take that had to be tried elsewhere than those that had not.
async fn added(house: &House, wanted: usize) -> Vec<Duration> {
    let (mut direct, mut moved) = (Vec::new(), Vec::new());
    while moved.len() < wanted || direct.len() < wanted {
        let began = Instant::now();
        let reply = house.ask().await;
        let time = began.elapsed();
        assert_eq!(reply.status, 200);
        match reply.header("x-quorumgate-attempts") {
            "1" => direct.push(time),
            _ => moved.push(time),
        }
    }
    let usual = median(direct);
    moved.into_iter().map(|time| time.saturating_sub(usual)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn u01_a_refused_connection_adds_less_than_five_milliseconds() {
    let (address, well) = mock("well").await;
    steady(&well);
    let plan = Plan::of(&[("gone", nobody().await), ("well", address)]);
    let house = plan.top("circuit_breaker: { mode: shadow }").start().await;
    let added = median(added(&house, 40).await);
    eprintln!("a refusal adds {added:?}");
    assert!(added < Duration::from_millis(5), "{added:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn u07_a_first_byte_timeout_adds_less_than_a_hundred_milliseconds_beyond_the_limit() {
    let limit = Duration::from_millis(500);
    let (address, well) = mock("well").await;
    steady(&well);
    let hung = Raw::always(vec![Act::Hang]).await;
    let plan = Plan::of(&[("hung", hung.address), ("well", address)]);
    let plan = plan.top("timeouts: { first_byte: 500ms }");
    let slow = "slow: { total: 490ms, first_token: off }";
    let house = plan.top(&format!("circuit_breaker: {{ mode: shadow, {slow} }}")).start().await;
    let added = median(added(&house, 12).await);
    eprintln!("a first byte that never comes adds {added:?}");
    let beyond = added.saturating_sub(limit);
    assert!(added >= limit - Duration::from_millis(20) && beyond < Duration::from_millis(100));
}
