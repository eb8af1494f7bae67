//! `GET events`: what happens is told as it happens, and told again to who was cut off.

use gateway::mock::Behaviour;
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use serde_json::Value;

use crate::desk::{Ask, house, locked};
use crate::local::{self, House, Plan, soon};

/// The events in a text of them.
fn told(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// What is kept after an id.
async fn kept(house: &House, since: &str) -> Vec<Value> {
    let answer = Ask::look(&format!("events?since={since}&until=now")).send(house).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, "text/event-stream"));
    told(&answer.text)
}

/// Reads until a frame holds `wanted`; all that was read.
async fn reads(response: &mut Response<Incoming>, wanted: &str) -> String {
    let mut text = String::new();
    while !text.contains(wanted) {
        let frame = soon(wanted, response.frame()).await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
    }
    text
}

fn order(state: &str) -> Ask {
    let body = format!(r#"{{"state":"{state}","for":"1m","reason":"to be told"}}"#);
    Ask::act("endpoints/demo/a/override", &body)
}

#[tokio::test]
async fn a_breaker_that_opens_and_an_order_are_told_as_they_happen() {
    let (a, sick) = local::mock("a").await;
    let (b, _) = local::mock("b").await;
    let plan = Plan::of(&[("a", a), ("b", b)]);
    let plan = plan.top("circuit_breaker: { failure_threshold: 2, probe: { enabled: false } }");
    let house = plan.start_as(|config| locked(&mut config.admin)).await;
    let mut follower = Ask::look("events").open(house.app.admin_address).await;
    assert_eq!(follower.headers()["content-type"], "text/event-stream");
    sick.set(Behaviour { status: Some(500), ..Behaviour::default() });
    while house.view("a").state == breaker::State::Closed {
        house.ask().await;
    }
    let text = reads(&mut follower, "event: breaker\n").await;
    let text = text + &reads(&mut follower, "event: vote\n").await;
    let events = told(&text);
    let breaker = events.iter().find(|event| event["kind"] == "breaker").unwrap();
    assert_eq!((&breaker["endpoint"], &breaker["node"]), (&"demo/a".into(), &"single".into()));
    assert_eq!(breaker["detail"]["from"], "closed");
    assert_eq!(breaker["detail"]["to"], "open");
    let vote = events.iter().find(|event| event["kind"] == "vote").unwrap();
    assert_eq!((&vote["detail"]["state"], &vote["endpoint"]), (&"stands".into(), &"demo/a".into()));

    assert_eq!(order("force_closed").send(&house).await.status, 200);
    let told = reads(&mut follower, "an operator's order holds: force_closed").await;
    assert!(told.contains("event: override\n"), "{told}");
}

#[tokio::test]
async fn who_was_cut_off_reads_on_where_it_was() {
    let house = house().await;
    assert_eq!(order("force_open").send(&house).await.status, 200);
    let all = kept(&house, "0").await;
    let last = all.last().unwrap()["id"].as_str().unwrap().to_owned();
    assert!(all.iter().all(|event| event["unix_ms"].as_u64().unwrap() > 1_600_000_000_000));
    assert_eq!(order("auto").send(&house).await.status, 200);
    local::until("the order holds", || house.endpoint("a").forced() == quorum::Forced::Auto).await;
    let more = kept(&house, &last).await;
    assert!(
        more.iter().any(|event| event["what"].as_str().unwrap().contains("orders")),
        "{more:?}"
    );
    assert!(more.iter().all(|event| !all.contains(event)), "{more:?}");
    // The header of a browser's own reconnection says the same; the query goes first.
    let resume = Ask::look("events?until=now").header("last-event-id", &last).send(&house).await;
    assert_eq!(told(&resume.text)[..more.len()], more);
    let lost = Ask::look("events?until=now").header("last-event-id", "1-1").send(&house).await;
    assert_eq!(told(&lost.text)[0]["kind"], "gap");
    let odd = Ask::look("events?until=now").header("last-event-id", "nonsense").send(&house).await;
    assert_eq!(told(&odd.text)[0]["kind"], "gap");
    assert_eq!(kept(&house, "1-1").await[0]["kind"], "gap");
}

#[tokio::test]
async fn more_than_thirty_two_do_not_follow_and_who_leaves_makes_room() {
    let house = house().await;
    let mut followers = Vec::new();
    for _ in 0..32 {
        let follower = Ask::look("events").open(house.app.admin_address).await;
        assert_eq!(follower.status(), 200);
        followers.push(follower);
    }
    let told = Ask::look("events?since=0&until=now").send(&house).await;
    assert_eq!(told.refused(), (503, "too_many_followers".to_owned()));
    assert_eq!(Ask::look("members").send(&house).await.status, 200, "others are served");
    assert_eq!(Ask::new("HEAD", "/admin/v1/events").send(&house).await.status, 401);
    followers.pop();
    let mut has_room = false;
    while !has_room {
        has_room = Ask::look("events?since=0&until=now").send(&house).await.status == 200;
    }
}
