//! What an answer took, as the endpoint reports it: counted, and never in the way.

use crate::local::{Ask, House, Plan, soon, until};
use crate::raw::{Act, DONE, FINISH, ROLE, Raw, chunk, event, json, whole_stream};

const USAGE: &str = "\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":5,\"total_tokens\":14}";

async fn has(house: &House, series: &[&str]) {
    let metrics = Ask::get("/metrics").send(house.app.admin_address).await;
    for series in series {
        let line = format!("\n{series}\n");
        assert!(metrics.text().contains(&line), "{series} not in\n{}", metrics.text());
    }
}

#[tokio::test]
async fn usage_is_counted_of_streams_and_of_plain_answers_under_the_names_of_opentelemetry() {
    let usage = format!("data: {{\"choices\":[],{USAGE}}}\n\n");
    let tale = format!("{ROLE}{}{FINISH}{usage}{DONE}", event("one"));
    let plain = json(200, &format!("{{\"choices\":[{{}}],{USAGE}}}"));
    for (script, ask, per_token) in [
        (whole_stream(&[tale.as_str()]), Ask::stream(), 1),
        (vec![Act::Say(plain)], Ask::chat(), 0),
    ] {
        let raw = Raw::always(script).await;
        let house = Plan::of(&[("a", raw.address)]).start().await;
        let reply = ask.send(house.address()).await;
        assert!(reply.is_clean && reply.status == 200);
        until("the request has ended", || house.endpoint("a").in_flight() == 0).await;
        has(
            &house,
            &[
                "gen_ai_client_token_usage_sum{model=\"demo\",type=\"input\"} 9",
                "gen_ai_client_token_usage_sum{model=\"demo\",type=\"output\"} 5",
                "gen_ai_client_token_usage_bucket{model=\"demo\",type=\"input\",le=\"4\"} 0",
                "gen_ai_client_token_usage_bucket{model=\"demo\",type=\"input\",le=\"16\"} 1",
                "gen_ai_server_time_to_first_token_count{model=\"demo\"} 1",
                "gen_ai_server_request_duration_count{model=\"demo\"} 1",
                &format!("gen_ai_server_time_per_output_token_count{{model=\"demo\"}} {per_token}"),
            ],
        )
        .await;
    }
}

#[tokio::test]
async fn s13_usage_that_is_nonsense_changes_neither_the_answer_nor_the_figures() {
    for usage in [
        "{\"prompt_tokens\":-1,\"completion_tokens\":1e400}",
        "{\"prompt_tokens\":1.5}",
        "[]",
        "\"\"",
        "{\"prompt_tokens\":99999999999999999999999999}",
    ] {
        let told = format!("data: {{\"choices\":[],\"usage\":{usage}}}\n\n");
        let tale = format!("{ROLE}{}{FINISH}{told}{told}{DONE}", event("one"));
        let raw = Raw::always(whole_stream(&[tale.as_str()])).await;
        let house = Plan::of(&[("a", raw.address)]).start().await;
        let reply = house.ask_stream().await;
        assert_eq!((reply.text(), reply.is_clean), (tale.as_str(), true));
        until("the request has ended", || house.endpoint("a").in_flight() == 0).await;
        assert_eq!(house.view("a").successes, 1, "{usage}");
        has(&house, &["gen_ai_client_token_usage_count{model=\"demo\",type=\"input\"} 0"]).await;
    }
}

#[tokio::test]
async fn s14_an_event_that_cannot_be_read_is_counted() {
    let tale = format!("{ROLE}{}data: {{oops\n\n{FINISH}{DONE}", event("one"));
    let raw = Raw::always(whole_stream(&[tale.as_str()])).await;
    let house = Plan::of(&[("a", raw.address)]).start().await;
    assert_eq!(house.ask_stream().await.text(), tale);
    has(&house, &["quorumgate_stream_events_unreadable_total{model=\"demo\"} 1"]).await;
}

#[tokio::test]
async fn an_error_that_is_the_clients_own_goes_back_from_the_first_endpoint() {
    for (code, status) in [("400", 400), ("\"context_length_exceeded\"", 400), ("409", 502)] {
        let error = format!("{{\"error\":{{\"message\":\"no\",\"code\":{code}}}}}");
        let in_stream = format!("{ROLE}data: {error}\n\n");
        for script in [whole_stream(&[in_stream]), vec![Act::Say(json(200, &error))]] {
            let a = Raw::always(script.clone()).await;
            let b = Raw::always(script).await;
            let house = Plan::of(&[("a", a.address), ("b", b.address)]).start().await;
            let reply = house.ask_stream().await;
            assert_eq!((reply.status, reply.code().as_str()), (status, "upstream_error"), "{code}");
            assert_eq!(a.count() + b.count(), 1, "{code}");
            house.is_untouched("a").await;
            house.is_untouched("b").await;
        }
    }
}

#[tokio::test]
async fn u25_an_answer_that_says_it_is_far_too_long_is_refused_as_long_as_it_can_be() {
    let head =
        "HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: 2000000000\r\n\r\n";
    let raw = Raw::always(vec![Act::Say(head.as_bytes().to_vec()), Act::Hang]).await;
    let house = Plan::of(&[("a", raw.address)]).start().await;
    let reply = house.ask().await;
    assert_eq!((reply.status, reply.code().as_str()), (502, "upstream_error"));
    assert_eq!(house.view("a").streak, 1);
    until("the upstream is let go", || raw.left().len() == 1).await;
}

#[tokio::test]
async fn u25_an_answer_without_end_is_cut_and_its_end_is_unclean() {
    let head =
        "HTTP/1.1 200 X\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut acts = vec![Act::Say(head.as_bytes().to_vec())];
    let piece = vec![b' '; 4 * 1024 * 1024];
    acts.extend(vec![Act::Say(chunk(&piece)); 20]);
    let raw = Raw::always(acts).await;
    let house = Plan::of(&[("a", raw.address)]).start().await;
    let reply = soon("the long answer", house.ask()).await;
    let read = reply.body.len();
    assert!(!reply.is_clean && reply.status == 200 && read <= 64 * 1024 * 1024, "{read} bytes");
    assert!(read > 60 * 1024 * 1024, "{read} bytes");
    until("it is settled", || house.endpoint("a").in_flight() == 0).await;
    assert_eq!(house.view("a").streak, 1);
}
