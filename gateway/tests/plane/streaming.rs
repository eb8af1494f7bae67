//! Streams: byte for byte at any split, whole or visibly broken, and never replayed once begun.
//!
//! The upstream is raw TCP, so that each test decides where the bytes are torn and how the end comes.

use std::time::{Duration, Instant};

use breaker::State;
use gateway::mock::Behaviour;

use crate::local::{Ask, House, Plan, Reply, mock, soon, until};
use crate::raw;
use crate::raw::{
    Act, DONE, FINISH, ROLE, Raw, chunk, event, open_stream, stream_head, whole_stream,
};

/// A gateway with one endpoint, and short patience.
async fn house_of(raw: &Raw) -> House {
    let plan = Plan::of(&[("a", raw.address)]).top("timeouts: { idle: 300ms }");
    plan.top("circuit_breaker: { probe: { enabled: false } }").start().await
}

/// Asserts that a stream was passed on up to `complete`, and then visibly broken.
fn is_interrupted(reply: &Reply, complete: &str) {
    let told = reply.text().strip_prefix(complete);
    assert!(told.is_some(), "{complete:?} does not begin {:?}", reply.text());
    let data = told.unwrap().strip_prefix("data: ").and_then(|rest| rest.strip_suffix("\n\n"));
    let error: serde_json::Value = serde_json::from_str(data.unwrap()).unwrap();
    let error = &error["error"];
    assert_eq!(
        (&error["code"], &error["type"]),
        (&"stream_interrupted".into(), &"upstream_error".into())
    );
    assert!(error["message"].is_string() && error["param"].is_null());
    assert!(!reply.is_clean, "the end was clean");
    assert!(!reply.text().contains("[DONE]"));
}

/// Asserts that exactly one fault and nothing else is held against the endpoint.
async fn has_one_fault(house: &House, name: &str) {
    until("the slot is free", || house.endpoint(name).in_flight() == 0).await;
    let view = house.view(name);
    assert_eq!((view.streak, view.faults, view.successes, view.slow_pieces), (1, 1.0, 0, 0));
}

/// Asserts that exactly one success and nothing else is known of the endpoint.
async fn has_one_success(house: &House, name: &str) {
    until("the slot is free", || house.endpoint(name).in_flight() == 0).await;
    let view = house.view(name);
    assert_eq!((view.streak, view.faults, view.successes, view.slow_pieces), (0, 0.0, 1, 0));
}

fn tale() -> String {
    format!("{ROLE}{}{}: ping\n\n{FINISH}{DONE}", event("one"), event("\u{4f60}\u{1f600}"))
}

#[tokio::test]
async fn s07_a_stream_split_at_any_byte_comes_out_the_same() {
    for line_end in ["\n", "\r\n", "\r"] {
        let tale = tale().replace('\n', line_end).into_bytes();
        let (parts, count) = (tale.clone(), tale.len());
        let raw = Raw::start(move |number, _| {
            let (head, tail) = parts.split_at(number % count);
            let split = [head, tail].into_iter().filter(|part| !part.is_empty());
            whole_stream(&split.collect::<Vec<_>>())
        })
        .await;
        let house = house_of(&raw).await;
        for at in 0..tale.len() {
            let reply = house.ask_stream().await;
            assert!(reply.body == tale, "{line_end:?} at {at}: {:?}", reply.text());
            assert!(reply.is_clean && reply.status == 200);
        }
        assert_eq!(house.view("a").successes, u32::try_from(tale.len()).unwrap());
    }
}

#[tokio::test]
async fn s07_a_stream_of_single_bytes_each_its_own_write_comes_out_the_same() {
    for line_end in ["\n", "\r\n", "\r"] {
        let tale = tale().replace('\n', line_end).into_bytes();
        let raw = Raw::always(whole_stream(&tale.chunks(1).collect::<Vec<_>>())).await;
        let house = house_of(&raw).await;
        let reply = house.ask_stream().await;
        assert!(reply.body == tale && reply.is_clean, "{line_end:?}: {:?}", reply.text());
        has_one_success(&house, "a").await;
    }
}

#[tokio::test]
async fn s08_every_way_to_write_an_event_is_passed_on_as_it_is() {
    let tale = format!(
        "\u{feff}{}: comment\r\r\nid: 7\nretry: 10\r\nevent: x\rdata:{{\"choices\":\ndata: [{{\"delta\"\
         :{{\"content\":\"b\"}}}}]}}\r\n\r\ndata\n\ndata:\n\n{}data: {{no json\n\n{FINISH}{DONE}",
        event("a"),
        event("c").replace("data: ", "data:"),
    );
    let raw = Raw::always(whole_stream(&[&tale])).await;
    let house = house_of(&raw).await;
    let reply = house.ask_stream().await;
    assert_eq!((reply.text(), reply.is_clean), (tale.as_str(), true));
    has_one_success(&house, "a").await;
}

#[tokio::test]
async fn events_are_passed_on_while_the_stream_still_flows() {
    let mut acts = open_stream(&[ROLE, &event("one")]);
    acts.extend([Act::Wait, Act::Say(chunk(event("two").as_bytes())), Act::Wait]);
    acts.extend([Act::Say(chunk(format!("{FINISH}{DONE}").as_bytes())), Act::Say(chunk(b""))]);
    let raw = Raw::always(acts).await;
    let house = Plan::of(&[("a", raw.address)]).start().await;
    let mut live = Ask::stream().open(house.address()).await;
    live.reads("one").await;
    assert_eq!(house.endpoint("a").in_flight(), 1);
    raw.go();
    live.reads("two").await;
    raw.go();
    let reply = live.rest().await;
    assert!(reply.is_clean && reply.text().ends_with(DONE));
    has_one_success(&house, "a").await;
}

#[tokio::test]
async fn f34_s01_s02_a_cut_stream_ends_visibly_at_the_last_whole_event() {
    let (one, two) = (event("one"), event("two"));
    let whole = format!("{ROLE}{one}{two}");
    let torn = "data: {\"choices\":[{\"delta\":{\"content\":\"thr";
    let ends: [(&str, Vec<Act>); 4] = [
        ("a reset", vec![Act::Wait, Act::Reset]),
        ("a lost connection", vec![Act::Wait, Act::Close]),
        ("a quiet last chunk", vec![Act::Wait, Act::Say(chunk(b"")), Act::Close]),
        ("bad framing", vec![Act::Wait, Act::Say(b"zz\r\noops".to_vec()), Act::Hang]),
    ];
    for (what, end) in ends {
        let mut acts = open_stream(&[ROLE, &one, &two, torn]);
        acts.extend(end);
        let raw = Raw::always(acts).await;
        let house = house_of(&raw).await;
        let mut live = Ask::stream().open(house.address()).await;
        live.reads("two").await;
        raw.go();
        let reply = live.rest().await;
        assert_eq!(reply.status, 200, "{what}");
        is_interrupted(&reply, &whole);
        has_one_fault(&house, "a").await;
        assert_eq!(raw.count(), 1, "{what}");
    }
}

#[tokio::test]
async fn a_stream_with_a_finish_reason_is_complete_without_its_last_word() {
    let tale = format!("{ROLE}{}{FINISH}", event("one"));
    let raw = Raw::always(whole_stream(&[&tale])).await;
    let house = house_of(&raw).await;
    let reply = house.ask_stream().await;
    assert_eq!((reply.text(), reply.is_clean), (tale.as_str(), true));
    has_one_success(&house, "a").await;
}

#[tokio::test]
async fn f33_s11_a_stream_that_falls_silent_ends_visibly_and_comments_are_no_progress() {
    let mut acts = open_stream(&[ROLE, &event("one")]);
    for _ in 0..100 {
        acts.push(Act::Rest(Duration::from_millis(40)));
        acts.push(Act::Say(chunk(b": ping\n\n")));
    }
    let raw = Raw::always(acts).await;
    let house = house_of(&raw).await;
    let began = Instant::now();
    let reply = house.ask_stream().await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let pings = reply.text().matches(": ping\n\n").count();
    is_interrupted(&reply, &format!("{ROLE}{}{}", event("one"), ": ping\n\n".repeat(pings)));
    has_one_fault(&house, "a").await;
    until("the upstream is let go", || raw.left().len() == 1).await;
}

#[tokio::test]
async fn f32_the_limit_for_the_first_token_ends_when_the_first_token_is_there() {
    let late = [stream_head(), chunk(ROLE.as_bytes())].concat();
    let late = Raw::always(vec![Act::Say(late), Act::Hang]).await;
    let mut slow = open_stream(&[ROLE, &event("0")]);
    for number in 1..=5 {
        slow.push(Act::Rest(Duration::from_millis(150)));
        slow.push(Act::Say(chunk(event(&number.to_string()).as_bytes())));
    }
    slow.push(Act::Say(chunk(format!("{FINISH}{DONE}").as_bytes())));
    slow.push(Act::Say(chunk(b"")));
    let slow = Raw::always(slow).await;
    let plan = Plan::of(&[("late", late.address), ("slow", slow.address)]);
    let plan = plan.top("circuit_breaker: { slow: { first_token: off } }");
    let house = plan.top("timeouts: { first_token: 500ms }").start().await;
    while late.count() == 0 {
        let began = Instant::now();
        let reply = house.ask_stream().await;
        assert!(reply.is_clean && reply.endpoint() == "demo/slow", "{}", reply.text());
        assert_eq!(reply.text().matches("content").count(), 6);
        let limit = Duration::from_millis(500 * (late.count() as u64));
        let took = began.elapsed();
        assert!(took >= limit && took < limit + Duration::from_millis(1_750), "{took:?}");
    }
    has_one_fault(&house, "late").await;
    until("the late one is let go", || late.left().len() == 1).await;
}

#[tokio::test]
async fn u08_a_head_without_a_body_is_tried_elsewhere_and_alone_it_is_a_timeout() {
    let raw = Raw::always(vec![Act::Say(stream_head()), Act::Hang]).await;
    let plan = Plan::of(&[("a", raw.address)]);
    let house = plan.top("timeouts: { first_byte: 200ms }").start().await;
    let reply = house.ask_stream().await;
    assert_eq!((reply.status, reply.code().as_str()), (504, "upstream_timeout"));
    assert_eq!(reply.header("x-should-retry"), "false");
    has_one_fault(&house, "a").await;
    let (address, _mock) = mock("b").await;
    let plan = Plan::of(&[("a", raw.address), ("b", address)]);
    let house = plan.top("timeouts: { first_byte: 200ms }").start().await;
    while raw.count() < 2 {
        let reply = house.ask_stream().await;
        assert!(reply.is_clean && reply.endpoint() == "demo/b", "{}", reply.text());
    }
    has_one_fault(&house, "a").await;
}

#[tokio::test]
async fn f36_an_error_before_the_first_content_is_tried_elsewhere_and_never_seen() {
    for error in [
        "data: {\"error\":{\"message\":\"no\",\"code\":500}}\n\n",
        "event: error\ndata: {\"error\":{\"message\":\"no\",\"code\":\"server_error\"}}\n\n",
        "data: {\"error\":\"request failed\",\"error_type\":\"generation\"}\n\n",
        "data: {\"object\":\"error\",\"message\":\"no\",\"code\":500}\n\n",
    ] {
        let raw = Raw::always(whole_stream(&[ROLE, error, DONE])).await;
        let (address, _mock) = mock("b").await;
        let house = Plan::of(&[("a", raw.address), ("b", address)]).start().await;
        while raw.count() == 0 {
            let reply = house.ask_stream().await;
            let text = reply.text();
            assert!(reply.is_clean && reply.endpoint() == "demo/b", "{error}: {text}");
            assert!(!text.contains("\"error\""), "{text}");
            assert_eq!((text.matches("[DONE]").count(), text.matches("\"role\"").count()), (1, 1));
        }
        has_one_fault(&house, "a").await;
    }
}

#[tokio::test]
async fn an_error_that_speaks_of_a_limit_says_nothing_about_health() {
    for (error, code) in [
        (r#"{"message":"no","code":429}"#, "rate_limit_exceeded"),
        (r#"{"message":"no","code":"429"}"#, "rate_limit_exceeded"),
        (r#"{"message":"no","code":"rate_limit_exceeded"}"#, "rate_limit_exceeded"),
        (r#"{"message":"no","type":"insufficient_quota","code":"x"}"#, "rate_limit_exceeded"),
        (r#"{"message":"no","code":401}"#, "upstream_auth"),
        (r#"{"message":"no","type":"authentication_error","code":null}"#, "upstream_auth"),
        (r#"{"message":"no","code":400}"#, "upstream_error"),
        (r#"{"message":"no","type":"invalid_request_error","code":"x"}"#, "upstream_error"),
    ] {
        let in_stream = format!("{ROLE}data: {{\"error\":{error}}}\n\n");
        let plain = raw::json(200, &format!("{{\"error\":{error}}}"));
        for script in [whole_stream(&[in_stream]), vec![Act::Say(plain)]] {
            let raw = Raw::always(script).await;
            let house = house_of(&raw).await;
            let reply = house.ask_stream().await;
            assert_eq!(reply.code(), code, "{error}");
            let status = match code {
                "rate_limit_exceeded" => 429,
                "upstream_auth" => 502,
                _ => 400,
            };
            assert_eq!(reply.status, status, "{error}");
            house.is_untouched("a").await;
        }
    }
}

#[tokio::test]
async fn an_error_in_mid_stream_is_the_last_event_and_the_end_is_unclean() {
    let error = "data: {\"error\":{\"message\":\"no\",\"code\":500}}\n\n";
    let one = event("one");
    let last = format!("{error}{}{DONE}", event("two"));
    for parts in [vec![one.clone(), last.clone()], vec![format!("{one}{last}")]] {
        let raw = Raw::always(whole_stream(&parts)).await;
        let house = house_of(&raw).await;
        let reply = house.ask_stream().await;
        assert_eq!((reply.text(), reply.is_clean), (format!("{one}{error}").as_str(), false));
        has_one_fault(&house, "a").await;
    }
    let limited = "data: {\"error\":{\"message\":\"no\",\"code\":429}}\n\n";
    let raw = Raw::always(whole_stream(&[one.as_str(), limited])).await;
    let house = house_of(&raw).await;
    let reply = house.ask_stream().await;
    assert_eq!((reply.text(), reply.is_clean), (format!("{one}{limited}").as_str(), false));
    house.is_untouched("a").await;
}

#[tokio::test]
async fn f38_a_stream_without_content_is_a_fault_and_is_tried_elsewhere() {
    for parts in [vec![], vec![": ping\n\n"], vec![ROLE], vec![DONE], vec![ROLE, DONE]] {
        let raw = Raw::always(whole_stream(&parts)).await;
        let house = house_of(&raw).await;
        let reply = house.ask_stream().await;
        assert_eq!((reply.status, reply.code().as_str()), (502, "upstream_error"), "{parts:?}");
        has_one_fault(&house, "a").await;
        let (address, _mock) = mock("b").await;
        let house = Plan::of(&[("a", raw.address), ("b", address)]).start().await;
        while raw.count() < 2 {
            let reply = house.ask_stream().await;
            assert!(reply.is_clean && reply.text().ends_with(DONE), "{parts:?}");
        }
        has_one_fault(&house, "a").await;
    }
}

#[tokio::test]
async fn s04_the_last_word_ends_the_answer_though_the_upstream_holds_on() {
    let mut acts = open_stream(&[format!("{ROLE}{}{FINISH}{DONE}", event("one"))]);
    acts.push(Act::Hang);
    let raw = Raw::always(acts).await;
    let house = house_of(&raw).await;
    let began = Instant::now();
    let reply = house.ask_stream().await;
    assert!(reply.is_clean && reply.text().ends_with(DONE));
    assert!(began.elapsed() < Duration::from_millis(900), "{:?}", began.elapsed());
    has_one_success(&house, "a").await;
    until("the upstream is let go", || raw.left().len() == 1).await;
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test]
async fn s05_bytes_behind_the_last_word_are_dropped_with_their_connection() {
    let tale = format!("{ROLE}{}{FINISH}{DONE}", event("one"));
    let junk = event("junk");
    for parts in [vec![format!("{tale}{junk}")], vec![tale.clone(), junk.clone()]] {
        let mut acts = open_stream(&parts);
        acts.push(Act::Hang);
        let raw = Raw::always(acts).await;
        let house = house_of(&raw).await;
        for round in 1..=3 {
            let reply = house.ask_stream().await;
            assert_eq!((reply.text(), reply.is_clean), (tale.as_str(), true));
            until("the connection is let go", || raw.left().len() == round).await;
            assert_eq!(raw.connections(), round);
        }
    }
}

#[tokio::test]
async fn an_upstream_connection_is_used_again_after_a_whole_stream() {
    let tale = format!("{ROLE}{}{FINISH}{DONE}", event("one"));
    let raw = Raw::always(whole_stream(&[tale])).await;
    let house = house_of(&raw).await;
    for _ in 0..5 {
        assert!(house.ask_stream().await.is_clean);
        // The last chunk may come a moment after the last word.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(raw.connections() < 5, "{}", raw.connections());
}

#[tokio::test]
async fn a_long_event_and_a_long_stream_are_passed_on_whole() {
    let long = event(&"x".repeat(900 * 1024));
    let many: Vec<String> = (0..3_000).map(|number| event(&number.to_string())).collect();
    let tale = format!("{ROLE}{long}{}{FINISH}{DONE}", many.concat());
    let pieces: Vec<&[u8]> = tale.as_bytes().chunks(7_777).collect();
    let raw = Raw::always(whole_stream(&pieces)).await;
    let house = house_of(&raw).await;
    let reply = soon("the long stream", house.ask_stream()).await;
    assert!(reply.body == tale.as_bytes() && reply.is_clean, "{} bytes", reply.body.len());
    has_one_success(&house, "a").await;
}

#[tokio::test]
async fn a_cut_within_an_event_too_long_to_be_held_still_ends_with_a_readable_error() {
    let begun = format!("data: {}", "x".repeat(900 * 1024));
    let mut acts = open_stream(&[event("one"), begun]);
    acts.extend([Act::Wait, Act::Reset]);
    let raw = Raw::always(acts).await;
    let house = house_of(&raw).await;
    let mut live = Ask::stream().open(house.address()).await;
    live.reads(&"x".repeat(300 * 1024)).await;
    raw.go();
    let reply = live.rest().await;
    assert!(!reply.is_clean);
    let last = reply.text().trim_end().rsplit("\n\n").next().unwrap();
    let error: serde_json::Value =
        serde_json::from_str(last.strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(error["error"]["code"], "stream_interrupted");
}

#[tokio::test]
async fn a_stream_is_slow_while_it_runs_and_slowness_is_counted_from_its_own_attempt() {
    let hanging = Raw::always(vec![Act::Hang]).await;
    let mut acts = open_stream(&[event("one")]);
    acts.extend([Act::Rest(Duration::from_millis(500)), Act::Say(chunk(event("two").as_bytes()))]);
    acts.extend([Act::Say(chunk(DONE.as_bytes())), Act::Say(chunk(b""))]);
    let slow = "circuit_breaker: { slow: { total: 1s, first_token: off, dedup: 100ms } }";
    let steady = Raw::always(acts).await;
    let plan = Plan::of(&[("hanging", hanging.address), ("steady", steady.address)]);
    let house = plan.top(slow).top("timeouts: { first_byte: 800ms }").start().await;
    while hanging.count() == 0 {
        assert!(house.ask_stream().await.is_clean);
    }
    house.is_untouched("steady").await;
    let endless = Raw::always([open_stream(&[event("one")]), vec![Act::Hang]].concat()).await;
    let house = Plan::of(&[("a", endless.address)]).top(slow).start().await;
    let mut live = Ask::stream().open(house.address()).await;
    live.reads("one").await;
    until("slow evidence", || house.view("a").slow_pieces == 1).await;
    assert_eq!((house.endpoint("a").in_flight(), house.view("a").state), (1, State::Closed));
    let told = house.admin("endpoints/demo/a/explain").await;
    assert_eq!(told["evidence"]["slow_pieces"], 1);
}

#[tokio::test]
async fn a_client_that_reads_nothing_holds_its_upstream_back() {
    const PIECES: usize = 256;
    // A quarter of a mebibyte each, so that all of them are far more than the sockets between hold.
    let piece = Act::Say(chunk(event(&"x".repeat(1_000)).repeat(250).as_bytes()));
    let mut acts = vec![Act::Say(stream_head())];
    acts.extend(vec![piece; PIECES]);
    let raw = Raw::always(acts).await;
    let house = Plan::of(&[("a", raw.address)]).start().await;
    let client = Ask::stream().wire(house.address()).await;
    until("the stream has begun", || raw.said() > 1).await;
    let mut said = 0;
    while raw.said() > said {
        said = raw.said();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert!(said < PIECES / 2, "{said} of {PIECES} pieces went somewhere");
    assert_eq!((house.endpoint("a").in_flight(), raw.left().len()), (1, 0));
    drop(client);
    until("the upstream is let go", || raw.left().len() == 1).await;
    house.is_untouched("a").await;
}

#[tokio::test]
async fn a_healthy_mock_streams_to_many_clients_at_once() {
    let (address, mock) = mock("a").await;
    mock.set(Behaviour { interval_ms: Some(1), ..Behaviour::default() });
    let house = Plan::of(&[("a", address)]).start().await;
    let clients = (0..50).map(|_| tokio::spawn(async move { Ask::stream().send(address).await }));
    let direct: Vec<_> = clients.collect();
    let gateway = house.address();
    let clients = (0..50).map(|_| tokio::spawn(async move { Ask::stream().send(gateway).await }));
    let through: Vec<_> = clients.collect();
    for client in direct.into_iter().chain(through) {
        let reply = soon("a stream", client).await.unwrap();
        assert!(reply.is_clean && reply.text().ends_with(DONE));
    }
    house.is_untouched("a").await;
    assert_eq!(house.view("a").successes, 50);
}
