//! What keeps a fleet that fails from being asked ever more often: the budget of further attempts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::local::{Ask, House, Plan};
use crate::raw;
use crate::raw::{Act, Raw, failed, good};

/// Breakers that only count, so that nothing but the budget holds anybody back.
const WATCHING: &str = "circuit_breaker: { mode: off }";

/// What a series has come to. It is asked of the meters themselves: the page of metrics may be one of a
/// moment ago, since it is not written anew for whoever asks too soon after another.
fn counted(house: &House, series: &str) -> u64 {
    let metrics = house.app.meters.render();
    let line = metrics.lines().find_map(|line| line.strip_prefix(series));
    line.map_or(0, |value| value.trim().parse().unwrap())
}

/// Two endpoints of which the first in order fails while `is_ill`, and a house over them.
async fn ill_and_well(retry: &str) -> (Raw, Raw, House) {
    let ill = Raw::always(vec![Act::Say(failed(500))]).await;
    let well = Raw::always(vec![Act::Say(good("yes"))]).await;
    let plan = Plan::of(&[])
        .endpoint("a", ill.address, "")
        .endpoint("b", well.address, ", priority: 1")
        .top(WATCHING)
        .top(retry);
    let house = plan.start().await;
    (ill, well, house)
}

#[tokio::test]
async fn b10_when_the_budget_is_spent_nothing_more_is_tried_and_the_client_is_told() {
    let (ill, well, house) = ill_and_well("retry: { budget: 0.0, budget_floor: 0 }").await;
    for number in 1..=3 {
        let reply = house.ask().await;
        assert_eq!((reply.status, reply.code().as_str()), (500, "upstream_error"));
        assert_eq!(reply.header("x-should-retry"), "false");
        assert_eq!(reply.header("x-quorumgate-attempts"), "1");
        assert_eq!(counted(&house, "quorumgate_retry_budget_exhausted_total"), number);
    }
    assert_eq!((ill.count(), well.count()), (3, 0));
    assert_eq!(house.endpoint("b").in_flight(), 0, "what was chosen is given back");
}

#[tokio::test]
async fn b10_the_first_attempt_is_never_charged_wherever_it_is_made() {
    let (ill, well, house) = ill_and_well("retry: { budget: 0.0, budget_floor: 0 }").await;
    house.endpoint("a").force(quorum::Forced::Open);
    for _ in 0..50 {
        assert_eq!(house.ask().await.status, 200);
    }
    assert_eq!((ill.count(), well.count()), (0, 50));
}

#[tokio::test]
async fn b10_the_floor_is_left_without_a_share() {
    let (_ill, well, house) = ill_and_well("retry: { budget: 0.0, budget_floor: 1 }").await;
    let mut served = 0;
    for _ in 0..30 {
        served += usize::from(house.ask().await.status == 200);
    }
    assert!((10..=13).contains(&served), "ten seconds of the floor: {served}");
    assert_eq!(well.count(), served);
    assert_eq!(counted(&house, "quorumgate_retries_total{reason=\"status\"}"), served as u64);
}

#[tokio::test]
async fn a_client_that_repeats_itself_is_served_and_charged() {
    let (_ill, well, house) = ill_and_well("retry: { budget: 0.0, budget_floor: 1 }").await;
    house.endpoint("a").force(quorum::Forced::Open);
    for count in ["1", "2", "1", "7", "1", "1", "1", "1", "1", "1", "1", "1"] {
        let ask = Ask::chat().header("x-stainless-retry-count", count);
        assert_eq!(house.send(ask).await.status, 200, "never refused because of it");
    }
    house.endpoint("a").force(quorum::Forced::Auto);
    let reply = house.ask().await;
    assert_eq!((reply.status, reply.header("x-should-retry")), (500, "false"));
    assert_eq!(well.count(), 12);
    // Its zero and nonsense are no repetition.
    let (_ill, _well, house) = ill_and_well("retry: { budget: 0.0, budget_floor: 1 }").await;
    for count in ["0", "soon", "-1", ""] {
        let ask = Ask::chat().header("x-stainless-retry-count", count);
        assert_eq!(house.send(ask).await.status, 200);
    }
    let spent = 4;
    for _ in spent..10 {
        assert_eq!(house.ask().await.status, 200);
    }
}

/// Scaled: 30 s of overload are as many requests here as come in that time, one after the other.
#[tokio::test]
async fn u38_while_everything_fails_little_more_is_sent_than_came_and_all_is_well_at_once_after() {
    let is_ill = Arc::new(AtomicBool::new(true));
    let mut raws = Vec::new();
    for _ in 0..3 {
        let is_ill = Arc::clone(&is_ill);
        let script = move |_: usize, _: &raw::Seen| {
            vec![Act::Say(if is_ill.load(Ordering::SeqCst) { failed(503) } else { good("yes") })]
        };
        raws.push(Raw::start(script).await);
    }
    let names = ["a", "b", "c"];
    let endpoints: Vec<_> = names.into_iter().zip(raws.iter().map(|raw| raw.address)).collect();
    let house = Plan::of(&endpoints).top(WATCHING).start().await;
    let (asked, mut refused_to_retry) = (400, 0);
    for _ in 0..asked {
        let reply = house.ask().await;
        assert_eq!(reply.status, 503);
        refused_to_retry += usize::from(reply.header("x-should-retry") == "false");
    }
    assert_eq!(refused_to_retry, asked, "the clients are told not to multiply it either");
    let sent: usize = raws.iter().map(Raw::count).sum();
    // A fifth and ten seconds of the floor, and what the floor adds while the test runs.
    let most = asked * 12 / 10 + 30 + 40;
    assert!(sent <= most, "{sent} for {asked}");
    is_ill.store(false, Ordering::SeqCst);
    for _ in 0..50 {
        assert_eq!(house.ask().await.status, 200);
    }
}
