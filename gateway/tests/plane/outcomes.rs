//! What an answer says about its endpoint: the table of statuses, moved by configuration, and the
//! second question to the same endpoint.

use std::time::Duration;

use breaker::State;
use gateway::clock;
use quorum::Forced;

use crate::local::{Ask, House, Plan, mock, nobody, until};
use crate::raw::{
    Act, Raw, answer, chunk, event, failed, good, json, open_stream, stream_head, whole_stream,
};

/// Each class of the table with a status that the defaults have in another one.
const MOVED: &str = "circuit_breaker: { failure_threshold: 20, \
                     fault_status_codes: [408, 429, 403], neutral_status_codes: [501], \
                     capacity_status_codes: [503], credential_status_codes: [407] }\n\
                     retry: { on: [] }";

/// What one failed request leaves behind.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    faults: u32,
    is_cooling: bool,
}

fn left(house: &House) -> Left {
    let is_cooling = !house.endpoint("a").cooling_for(clock::now()).is_zero();
    Left { faults: house.view("a").streak, is_cooling }
}

const FAULT: Left = Left { faults: 1, is_cooling: false };
const NOTHING: Left = Left { faults: 0, is_cooling: false };
const PAUSE: Left = Left { faults: 0, is_cooling: true };

#[tokio::test]
async fn every_status_means_what_its_list_says() {
    for (top, rows) in [
        (
            "retry: { on: [] }",
            vec![
                (500, 500, FAULT),
                (501, 501, FAULT),
                (529, 529, FAULT),
                (408, 408, NOTHING),
                (422, 422, NOTHING),
                (429, 429, PAUSE),
                (401, 502, PAUSE),
                (403, 502, NOTHING),
            ],
        ),
        (
            MOVED,
            vec![
                (500, 500, FAULT),
                (408, 502, FAULT),
                (429, 429, FAULT),
                (403, 502, FAULT),
                (501, 501, NOTHING),
                (503, 503, PAUSE),
                (407, 502, NOTHING),
                (401, 502, PAUSE),
            ],
        ),
    ] {
        for (status, told, expected) in rows {
            let raw = Raw::always(vec![Act::Say(failed(status))]).await;
            let house = Plan::of(&[("a", raw.address)]).top(top).start().await;
            assert_eq!((status, house.ask().await.status), (status, told));
            assert_eq!(left(&house), expected, "{status} with {top}");
            assert_eq!(raw.count(), 1, "{status}");
        }
    }
}

#[tokio::test]
async fn a_list_leaves_what_it_does_not_name_where_the_table_has_it() {
    for (top, status, told, expected) in [
        ("circuit_breaker: { capacity_status_codes: [503] }", 429, 429, PAUSE),
        ("circuit_breaker: { credential_status_codes: [407] }", 401, 502, PAUSE),
        ("circuit_breaker: { credential_status_codes: [407] }", 403, 502, NOTHING),
    ] {
        let raw = Raw::always(vec![Act::Say(failed(status))]).await;
        let house = Plan::of(&[("a", raw.address)]).top(top).start().await;
        assert_eq!(house.ask().await.status, told, "{status} with {top}");
        assert_eq!(left(&house), expected, "{status} with {top}");
    }
}

#[tokio::test]
async fn one_denied_request_is_asked_about_twice_and_takes_nothing_out() {
    let denies = || Raw::always(vec![Act::Say(failed(403))]);
    let (a, b, c) = (denies().await, denies().await, denies().await);
    let all = [("a", a.address), ("b", b.address), ("c", c.address)];
    let house = Plan::of(&all).start().await;
    let reply = house.ask().await;
    assert_eq!((reply.status, reply.code().as_str()), (502, "upstream_auth"));
    assert_eq!(a.count() + b.count() + c.count(), 2);
    for name in ["a", "b", "c"] {
        assert!(house.endpoint(name).cooling_for(clock::now()).is_zero(), "{name}");
        assert!(!house.endpoint(name).is_misconfigured(), "{name}");
    }
}

#[tokio::test]
async fn an_endpoint_that_refuses_our_credential_is_shown_as_misconfigured_until_it_serves() {
    let raw =
        Raw::start(|number, _| vec![Act::Say(if number == 0 { failed(401) } else { good("yes") })])
            .await;
    let plan = Plan::of(&[("a", raw.address)]);
    let house = plan.top("circuit_breaker: { mode: shadow }").start().await;
    assert_eq!(house.ask().await.status, 502);
    let told = house.admin("endpoints/demo/a/explain").await;
    let verdict = told["verdict"].as_str().unwrap();
    assert!(verdict.contains("it refused our credential"), "{verdict}");
    assert_eq!(told["misconfigured"], true);
    let gauge = |value| format!("quorumgate_upstream_misconfigured{{endpoint=\"demo/a\"}} {value}");
    let metrics = Ask::get("/metrics").send(house.app.admin_address).await;
    assert!(metrics.text().contains(&gauge(1)), "{}", metrics.text());
    // An operator's word goes above the pause.
    house.endpoint("a").force(Forced::Closed);
    assert_eq!(house.ask().await.status, 200);
    let metrics = Ask::get("/metrics").send(house.app.admin_address).await;
    assert!(metrics.text().contains(&gauge(0)), "{}", metrics.text());
}

#[tokio::test]
async fn an_attempt_that_the_overall_limit_cuts_short_is_not_the_endpoints_fault() {
    // The first endpoint takes its time to fail, and leaves the second too little.
    let late = Act::Rest(Duration::from_millis(700));
    let first = Raw::always(vec![late, Act::Say(failed(500))]).await;
    let content = event(r#"{"choices":[{"delta":{"content":"a"}}]}"#);
    for rest in [Vec::new(), open_stream(&[content])] {
        let second = Raw::always([rest, vec![Act::Hang]].concat()).await;
        let top = "circuit_breaker: { failure_threshold: 20, \
                   slow: { total: 900ms, first_token: off } }\n\
                   timeouts: { connect: 1s, first_byte: 1s, idle: 1s, total: 1s }\n\
                   retry: { on: [] }";
        let plan = Plan::of(&[("a", first.address), ("b", second.address)]).top(top);
        let house = plan.start().await;
        let before = first.count();
        // Where the second was asked first it had the whole of the time and was slow.
        while first.count() == before {
            house.ask_stream().await;
        }
        let view = house.view("b");
        assert_eq!((view.streak, view.faults), (0, 0.0), "cut after three tenths of its time");
    }
}

#[tokio::test]
async fn an_error_inside_an_answer_means_what_the_list_of_its_status_says() {
    let plain = |code| json(200, &format!(r#"{{"error":{{"message":"no","code":{code}}}}}"#));
    let events = |code| format!("data: {{\"error\":{{\"message\":\"no\",\"code\":{code}}}}}\n\n");
    for (code, expected) in [(429, FAULT), (501, NOTHING), (503, PAUSE), (500, FAULT)] {
        for script in [vec![Act::Say(plain(code))], whole_stream(&[events(code)])] {
            let raw = Raw::always(script).await;
            let house = Plan::of(&[("a", raw.address)]).top(MOVED).start().await;
            house.ask_stream().await;
            assert_eq!(left(&house), expected, "{code}");
        }
    }
}

#[tokio::test]
async fn an_error_in_mid_stream_means_what_the_list_of_its_status_says() {
    let events = |code| format!("data: {{\"error\":{{\"message\":\"no\",\"code\":{code}}}}}\n\n");
    for (code, expected) in [(429, FAULT), (501, NOTHING), (503, PAUSE)] {
        let parts = [
            Act::Say(stream_head()),
            Act::Say(chunk(event("one").as_bytes())),
            Act::Say(chunk(events(code).as_bytes())),
            Act::Say(chunk(b"")),
        ];
        let raw = Raw::always(parts.to_vec()).await;
        let house = Plan::of(&[("a", raw.address)]).top(MOVED).start().await;
        assert!(!house.ask_stream().await.is_clean);
        until("it is settled", || house.endpoint("a").in_flight() == 0).await;
        assert_eq!(left(&house), expected, "{code}");
    }
}

#[tokio::test]
async fn a_list_at_an_endpoint_is_that_endpoints_alone() {
    let raw = Raw::always(vec![Act::Say(answer(503, "retry-after: 0\r\n", "{}"))]).await;
    let other = Raw::always(vec![Act::Say(failed(503))]).await;
    let own = ", circuit_breaker: { capacity_status_codes: [503] }";
    let plan = Plan::of(&[]).endpoint("a", raw.address, own).endpoint("b", other.address, "");
    let house = plan.top("retry: { on: [] }").start().await;
    assert_eq!(house.ask().await.status, 503);
    assert_eq!((house.view("a").streak, house.view("b").streak), (0, 1));
}

#[tokio::test]
async fn a_failure_that_passes_is_asked_about_once_more_when_no_other_endpoint_is_left() {
    for (status, asked, served) in [(502, 2, 200), (503, 2, 200), (529, 2, 200), (500, 1, 500)] {
        let raw = Raw::start(move |number, _| {
            vec![Act::Say(if number == 0 { failed(status) } else { good("yes") })]
        })
        .await;
        let house = Plan::of(&[("a", raw.address)]).start().await;
        assert_eq!((house.ask().await.status, raw.count()), (served, asked), "{status}");
    }
    let raw = Raw::always(vec![Act::Say(failed(502))]).await;
    let house = Plan::of(&[("a", raw.address)]).top("retry: { max_attempts: 9 }").start().await;
    assert_eq!((house.ask().await.status, raw.count()), (502, 2), "never a third time");
    let house = Plan::of(&[("a", nobody().await)]).start().await;
    assert_eq!((house.ask().await.status, house.view("a").streak), (502, 1), "refused");
    let metrics = Ask::get("/metrics").send(house.app.admin_address).await;
    let attempts = "quorumgate_attempts_total{endpoint=\"demo/a\",outcome=\"fault\"} 2";
    assert!(metrics.text().contains(attempts), "it was asked twice");
}

#[tokio::test]
async fn u31_a_request_that_fails_twice_at_one_endpoint_is_one_fault() {
    let raw = Raw::always(vec![Act::Say(failed(502))]).await;
    let plan = Plan::of(&[("a", raw.address)]).pool("on_all_open: reject");
    let house = plan.top("circuit_breaker: { failure_threshold: 3 }").start().await;
    for streak in 1..=2 {
        assert_eq!((house.ask().await.status, house.view("a").streak), (502, streak));
    }
    assert_eq!((house.ask().await.status, house.view("a").state), (502, State::Open));
    assert_eq!((house.ask().await.status, raw.count()), (503, 2 + 2 + 1));
}

#[tokio::test]
async fn f14_the_same_endpoint_is_not_asked_again_while_another_is_free_or_its_circuit_is_open() {
    let raw = Raw::always(vec![Act::Say(failed(503))]).await;
    let (address, well) = mock("b").await;
    let house = Plan::of(&[("a", raw.address), ("b", address)]).start().await;
    while raw.count() == 0 {
        assert_eq!(house.ask().await.endpoint(), "demo/b");
    }
    assert_eq!((raw.count(), house.view("a").streak), (1, 1));
    assert!(well.counts().completed > 0);

    let raw = Raw::always(vec![Act::Say(failed(503))]).await;
    let at_once = "circuit_breaker: { failure_threshold: 1 }";
    let house = Plan::of(&[("a", raw.address)]).top(at_once).start().await;
    assert_eq!((house.ask().await.status, raw.count()), (503, 1));
    assert_eq!(house.view("a").state, State::Open);
}

#[tokio::test]
async fn an_endpoint_that_asked_for_a_pause_is_not_asked_again_within_it() {
    let raw = Raw::always(vec![Act::Say(answer(503, "retry-after: 7\r\n", "{}"))]).await;
    let house = Plan::of(&[("a", raw.address)]).start().await;
    let reply = Ask::chat().send(house.address()).await;
    assert_eq!((reply.status, reply.header("retry-after"), raw.count()), (503, "7", 1));
    let cooling = house.endpoint("a").cooling_for(clock::now());
    assert!(cooling > Duration::from_secs(5) && cooling <= Duration::from_secs(7), "{cooling:?}");
}
