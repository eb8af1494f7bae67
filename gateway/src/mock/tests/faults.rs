//! Each fault looks to the client as it is described.

use std::time::Instant;

use super::super::{Closing, Hang};
use super::*;

const PATH: &str = "/v1/chat/completions";

#[tokio::test]
async fn a_status_comes_with_an_error_body_and_retry_after_verbatim() {
    let (_, address) = start(Behaviour {
        status: Some(429),
        retry_after: Some("Fri, 31 Dec 1999 23:59:59 GMT".to_owned()),
        ..Behaviour::default()
    })
    .await;
    let seen = ask(address, &post(PATH, CHAT_STREAM)).await;
    assert_eq!(
        (seen.status(), &seen.json()["error"]["code"]),
        (429, &"rate_limit_exceeded".into())
    );
    assert_eq!(seen.header("retry-after"), Some("Fri, 31 Dec 1999 23:59:59 GMT"));
}

#[tokio::test]
async fn a_status_without_a_body_in_http_completes_too() {
    let (mock, address) = start(Behaviour { status: Some(204), ..Behaviour::default() }).await;
    let seen = ask(address, &post(PATH, CHAT)).await;
    assert_eq!((seen.status(), seen.body()), (204, ""));
    assert_eq!(mock.counts().completed, 1);
}

#[tokio::test]
async fn values_set_in_rust_beyond_their_range_do_no_harm() {
    for status in [0, 100, 1000] {
        let (_, address) = start(Behaviour {
            status: Some(status),
            retry_after: Some("\n".to_owned()),
            ..Behaviour::default()
        })
        .await;
        assert_eq!(ask(address, &post(PATH, CHAT)).await.status(), 500);
    }
}

#[tokio::test]
async fn a_given_body_is_sent_exactly() {
    for (body, is_stream, content_type) in [
        (r#"{"error":{"code":"x"}}"#, true, "application/json"),
        ("data: {\"a\":1}\n\n", true, "text/event-stream"),
        ("", true, "text/event-stream"),
        ("", false, "application/json"),
        ("<html>bad</html>", false, "text/html"),
    ] {
        let behaviour = Behaviour { body: Some(body.to_owned()), ..Behaviour::default() };
        let (mock, address) = start(behaviour).await;
        let request = if is_stream { CHAT_STREAM } else { CHAT };
        let seen = ask(address, &post(PATH, request)).await;
        assert_eq!((seen.status(), seen.body()), (200, body));
        assert_eq!(seen.header("content-type"), Some(content_type));
        assert_eq!(mock.counts().completed, 1);
    }
}

#[tokio::test]
async fn a_reset_comes_before_any_byte_and_by_the_chosen_way() {
    for (closing, ending) in [(Closing::Reset, Ending::Reset), (Closing::Close, Ending::Fin)] {
        let behaviour = Behaviour { reset: true, closing, ..Behaviour::default() };
        let (mock, address) = start(behaviour).await;
        let seen = ask(address, &post(PATH, CHAT)).await;
        assert_eq!((seen.text.as_str(), seen.ending), ("", ending));
        assert_eq!((mock.counts().cut_short, mock.requests().len()), (1, 1));
    }
}

#[tokio::test]
async fn a_cut_comes_after_so_many_whole_tokens_and_without_the_last_chunk() {
    for (closing, ending) in [(Closing::Reset, Ending::Reset), (Closing::Close, Ending::Fin)] {
        let behaviour = Behaviour { cut_after_tokens: Some(2), closing, ..Behaviour::default() };
        let (mock, address) = start(behaviour).await;
        let seen = ask(address, &post(PATH, CHAT_STREAM)).await;
        assert_eq!((seen.content().as_str(), seen.ending), ("token0 token1 ", ending));
        assert!(seen.text.ends_with("\n\n\r\n") && !seen.has_last_chunk(), "{}", seen.text);
        let counts = mock.counts();
        assert_eq!((counts.cut_short, counts.completed, counts.aborted), (1, 0, 0));
    }
}

#[tokio::test]
async fn a_cut_beyond_the_answer_does_not_happen() {
    let behaviour = Behaviour { cut_after_tokens: Some(6), ..Behaviour::default() };
    let (_, address) = start(behaviour).await;
    assert_eq!(ask(address, &post(PATH, CHAT_STREAM)).await.events().last(), Some(&"[DONE]"));
}

#[tokio::test]
async fn a_quiet_finish_is_a_clean_end_without_a_reason() {
    for (path, tokens, events) in [(PATH, 2, 3), (PATH, 0, 1), ("/v1/completions", 0, 0)] {
        let behaviour =
            Behaviour { finish_quietly_after_tokens: Some(tokens), ..Behaviour::default() };
        let (mock, address) = start(behaviour).await;
        let seen = ask(address, &post(path, CHAT_STREAM)).await;
        assert_eq!((seen.status(), seen.events().len(), seen.ending), (200, events, Ending::Fin));
        assert!(!seen.text.contains("[DONE]") && !seen.text.contains("stop"));
        assert!(seen.has_last_chunk() || seen.header("content-length") == Some("0"));
        assert_eq!(mock.counts().completed, 1);
    }
}

#[tokio::test]
async fn an_error_in_the_stream_stands_where_the_first_token_belongs() {
    let (_, address) = start(Behaviour { error_in_stream: true, ..Behaviour::default() }).await;
    let seen = ask(address, &post(PATH, CHAT_STREAM)).await;
    let events = seen.events();
    assert_eq!((seen.status(), events.len(), seen.content().as_str()), (200, 2, ""));
    assert!(events[0].contains("assistant") && events[1].starts_with(r#"{"error":"#));
}

#[tokio::test]
async fn a_stalled_stream_beats_its_heart_but_says_nothing() {
    let (mock, address) = start(Behaviour {
        stall_after_tokens: Some(1),
        heartbeat_ms: Some(1),
        ..Behaviour::default()
    })
    .await;
    let mut stream = open(address, &post(PATH, CHAT_STREAM)).await;
    let text = read_until(&mut stream, ": heartbeat\n\n").await;
    let further = read_until(&mut stream, ": heartbeat\n\n").await;
    assert!(text.contains("token0 ") && !further.contains("token"));
    assert_eq!(mock.counts().in_flight, 1);
}

#[tokio::test]
async fn a_hanging_accept_reads_the_request_and_is_silent() {
    let (mock, address) =
        start(Behaviour { hang: Some(Hang::Accept), ..Behaviour::default() }).await;
    let mut stream = open(address, &post(PATH, CHAT)).await;
    counted(&mock, |_| mock.requests().len() == 1).await;
    assert_silent(&mut stream).await;
}

#[tokio::test]
async fn a_hanging_head_is_a_head_and_then_silence() {
    for (request, content_type) in [(CHAT, "application/json"), (CHAT_STREAM, "text/event-stream")]
    {
        let behaviour = Behaviour { hang: Some(Hang::Head), ..Behaviour::default() };
        let (_, address) = start(behaviour).await;
        let mut stream = open(address, &post(PATH, request)).await;
        let head = read_until(&mut stream, "\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 200") && head.contains(content_type), "{head}");
        assert_silent(&mut stream).await;
    }
}

#[tokio::test]
async fn each_pause_is_as_long_as_it_is_said() {
    let pause = Duration::from_millis(60);
    let (mock, address) = start(Behaviour { latency_ms: Some(60), ..Behaviour::default() }).await;
    let before = Instant::now();
    read_until(&mut open(address, &post(PATH, CHAT_STREAM)).await, "\r\n\r\n").await;
    assert!(before.elapsed() >= pause);

    mock.set(Behaviour { first_token_ms: Some(60), ..Behaviour::default() });
    let before = Instant::now();
    read_until(&mut open(address, &post(PATH, CHAT_STREAM)).await, "data: ").await;
    assert!(before.elapsed() >= pause);

    mock.set(Behaviour { interval_ms: Some(20), tokens: 4, ..Behaviour::default() });
    let before = Instant::now();
    ask(address, &post(PATH, CHAT_STREAM)).await;
    // Three intervals lie between four tokens.
    assert!(before.elapsed() >= pause);
}

#[tokio::test]
async fn only_the_next_requests_fail_if_so_said() {
    let (_, address) =
        start(Behaviour { status: Some(503), fail_next: Some(2), ..Behaviour::default() }).await;
    let mut statuses = Vec::new();
    for request in
        [post(PATH, CHAT), get("/health"), post(PATH, CHAT), post(PATH, CHAT), get("/health")]
    {
        statuses.push(ask(address, &request).await.status());
    }
    assert_eq!(statuses, [503, 503, 503, 200, 200]);
}

#[tokio::test]
async fn a_required_key_is_compared_below_v1() {
    let key = Some("sk-right".to_owned());
    let (_, address) = start(Behaviour { require_key: key, ..Behaviour::default() }).await;
    for (header, status) in [
        ("", 401),
        ("authorization: Bearer sk-wrong\r\n", 401),
        ("authorization: sk-right\r\n", 401),
        ("authorization: bearer sk-right\r\n", 200),
    ] {
        let request = post_with(PATH, &format!("connection: close\r\n{header}"), CHAT);
        assert_eq!(ask(address, &request).await.status(), status, "{header}");
    }
    assert_eq!(ask(address, &get("/v1/models")).await.status(), 401);
    assert_eq!(ask(address, &get("/health")).await.status(), 200);
}

#[tokio::test]
async fn health_fails_with_the_rest_unless_spared() {
    let failing = Behaviour { status: Some(500), ..Behaviour::default() };
    let (mock, address) = start(failing.clone()).await;
    assert_eq!(ask(address, &get("/health")).await.status(), 500);
    mock.set(Behaviour { spare_health: true, ..failing });
    assert_eq!(ask(address, &get("/health")).await.status(), 200);
    assert_eq!(ask(address, &get("/v1/models")).await.status(), 200);
    assert_eq!(ask(address, &post(PATH, CHAT)).await.status(), 500);
}
