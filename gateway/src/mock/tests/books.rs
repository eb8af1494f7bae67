//! The counts miss no end, and the admin routes steer and show.

use super::super::Hang;
use super::*;

const PATH: &str = "/v1/chat/completions";

async fn admin(address: SocketAddr, path: &str, body: &str) -> Seen {
    ask(address, &post(&format!("/__admin/{path}"), body)).await
}

#[tokio::test]
async fn requests_on_one_connection_are_counted_apart_from_connections() {
    let (mock, address) = start(Behaviour::default()).await;
    let probe = post_with(PATH, "x-quorumgate-probe: 1\r\n", CHAT);
    let last = post("/v1/embeddings", CHAT);
    assert_eq!(ask(address, &format!("{probe}{probe}{last}")).await.ending, Ending::Fin);
    let counts = mock.counts();
    assert_eq!((counts.connections, counts.requests, counts.probes), (1, 3, 2));
    assert_eq!((counts.completed, counts.in_flight, counts.aborted), (3, 0, 0));
    assert_eq!((counts.by_path[PATH], counts.by_path["/v1/embeddings"]), (2, 1));
}

#[tokio::test]
async fn a_stream_is_complete_when_its_last_event_is_read() {
    let (mock, address) = start(Behaviour::default()).await;
    let mut stream = open(address, &post_with(PATH, "", CHAT_STREAM)).await;
    read_until(&mut stream, "[DONE]").await;
    assert_eq!((mock.counts().completed, mock.counts().in_flight), (1, 0));
}

#[tokio::test]
async fn a_client_that_leaves_is_counted_wherever_the_answer_is() {
    let hour = Some(super::super::LATENCY_MS_MAX);
    for (behaviour, seen_before_leaving) in [
        (Behaviour { hang: Some(Hang::Accept), ..Behaviour::default() }, ""),
        (Behaviour { latency_ms: hour, ..Behaviour::default() }, ""),
        (Behaviour { hang: Some(Hang::Head), ..Behaviour::default() }, "\r\n\r\n"),
        (Behaviour { first_token_ms: hour, ..Behaviour::default() }, "\r\n\r\n"),
        (Behaviour { interval_ms: hour, ..Behaviour::default() }, "token0 "),
        (Behaviour { stall_after_tokens: Some(3), ..Behaviour::default() }, "token2 "),
        (Behaviour { tokens: 1_000_000, ..Behaviour::default() }, "token9 "),
    ] {
        let (mock, address) = start(behaviour).await;
        let mut stream = open(address, &post_with(PATH, "", CHAT_STREAM)).await;
        read_until(&mut stream, seen_before_leaving).await;
        counted(&mock, |counts| counts.in_flight == 1).await;
        drop(stream);
        let counts = counted(&mock, |counts| counts.in_flight == 0).await;
        assert_eq!((counts.aborted, counts.completed, counts.cut_short), (1, 0, 0));
    }
}

#[tokio::test]
async fn a_client_that_leaves_its_upload_is_counted_but_not_recorded() {
    let (mock, address) = start(Behaviour { fail_next: Some(1), ..Behaviour::default() }).await;
    let half = "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 99\r\n\r\n{";
    let stream = open(address, half).await;
    counted(&mock, |counts| counts.in_flight == 1).await;
    drop(stream);
    let counts = counted(&mock, |counts| counts.in_flight == 0).await;
    assert_eq!((counts.requests, counts.aborted, mock.requests().len()), (1, 1, 0));
    assert_eq!(mock.behaviour().fail_next, Some(1));
}

#[tokio::test]
async fn dropping_the_server_closes_its_connections() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mock = Mock::new("north");
    mock.set(Behaviour { hang: Some(Hang::Accept), ..Behaviour::default() });
    let server = tokio::spawn(serve(listener, mock.clone()));
    let stream = open(address, &post(PATH, CHAT)).await;
    counted(&mock, |counts| counts.in_flight == 1).await;
    server.abort();
    assert_eq!(read_all(stream).await.text, "");
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn faults_are_set_field_by_field_and_reset_together() {
    let (mock, address) = start(Behaviour::default()).await;
    assert_eq!(admin(address, "set", r#"{"status":500}"#).await.json()["status"], 500);
    assert_eq!(admin(address, "set", r#"{"hang":"head","tokens":3}"#).await.json()["status"], 500);
    assert_eq!(ask(address, &post(PATH, CHAT)).await.status(), 500);
    assert_eq!(ask(address, &get("/__admin/state")).await.json()["hang"], "head");
    assert_eq!(admin(address, "reset", "").await.status(), 200);
    assert_eq!(mock.behaviour(), Behaviour::default());
    assert_eq!(ask(address, &get("/__admin/counts")).await.json()["requests"], 1);
    assert_eq!(admin(address, "reset_counts", "").await.json()["requests"], 0);
    assert_eq!(ask(address, &get("/__admin/requests")).await.json(), Value::Array(vec![]));
}

#[tokio::test]
async fn a_change_that_is_not_understood_changes_nothing() {
    let (mock, address) = start(Behaviour::default()).await;
    for (body, name) in [
        (r#"{"status":500,"latancy_ms":9}"#, "latancy_ms"),
        (r#"{"status":500,"hang":"often"}"#, "often"),
        (r#"{"status":99}"#, "status"),
        (r#"{"status":"500"}"#, "500"),
        ("[]", "map"),
        ("{", "EOF"),
    ] {
        let seen = admin(address, "set", body).await;
        assert_eq!(seen.status(), 400, "{body}");
        assert!(seen.json()["error"]["message"].as_str().unwrap().contains(name), "{}", seen.text);
    }
    assert_eq!(admin(address, "fail", r#"{"fial":true}"#).await.status(), 400);
    let head = "POST /__admin/set HTTP/1.1
host: a
connection: close
";
    assert_eq!(
        ask(
            address,
            &format!(
                "{head}content-length: 2000000

"
            )
        )
        .await
        .status(),
        413
    );
    assert_eq!(mock.behaviour(), Behaviour::default());
}

#[tokio::test]
async fn the_walk_through_s_two_switches_go_on_and_off() {
    let (mock, address) = start(Behaviour::default()).await;
    admin(address, "fail", r#"{"fail":true}"#).await;
    assert_eq!(ask(address, &post(PATH, CHAT)).await.status(), 502);
    assert_eq!(ask(address, &get("/health")).await.status(), 502);
    admin(address, "fail", r#"{"fail":false}"#).await;
    assert_eq!(ask(address, &post(PATH, CHAT)).await.status(), 200);
    assert_eq!(admin(address, "slow", r#"{"slow":true}"#).await.json()["latency_ms"], 20_000);
    admin(address, "slow", r#"{"slow":false}"#).await;
    assert_eq!(mock.behaviour(), Behaviour::default());
}

#[tokio::test]
async fn admin_routes_meet_no_fault_and_are_not_counted() {
    let (mock, address) = start(Behaviour { reset: true, ..Behaviour::default() }).await;
    assert_eq!(ask(address, &get("/__admin/state")).await.json()["reset"], true);
    assert_eq!(ask(address, &get("/__admin/set")).await.status(), 405);
    assert_eq!(ask(address, &get("/__admin/nothing")).await.status(), 404);
    assert_eq!((mock.counts().requests, mock.counts().connections), (0, 3));
}

#[tokio::test]
async fn what_arrived_can_be_read_with_its_key_masked() {
    let (_, address) = start(Behaviour::default()).await;
    let headers = "connection: close\r\nx-request-id: r-1\r\nauthorization: Bearer sk-abcd1234\r\n";
    ask(address, &post_with("/v1/chat/completions?a=b", headers, CHAT)).await;
    let seen = ask(address, &get("/__admin/requests")).await;
    let record = &seen.json()[0];
    assert_eq!(
        (&record["path"], &record["request_id"]),
        (&"/v1/chat/completions?a=b".into(), &"r-1".into())
    );
    assert_eq!((&record["body"], &record["body_bytes"]), (&CHAT.into(), &CHAT.len().into()));
    assert!(seen.text.contains("***1234") && !seen.text.contains("sk-abcd"));
}

#[tokio::test]
async fn the_state_shows_of_the_required_key_its_last_characters() {
    let (mock, address) = start(Behaviour::default()).await;
    let seen = admin(address, "set", r#"{"require_key":"sk-abcd1234"}"#).await;
    assert_eq!(seen.json()["require_key"], "***1234");
    assert_eq!(mock.behaviour().require_key.as_deref(), Some("sk-abcd1234"));
}
