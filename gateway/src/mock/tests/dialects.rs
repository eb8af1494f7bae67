//! The further routes answer as their documents say, and the faults mean the same on all of them.

use serde_json::json;
use sha2::{Digest, Sha256};

use super::*;

const TOOL: &str = r#""tools":[{"type":"function","function":{"name":"look_up"}}]"#;
const BARE_TOOL: &str = r#""tools":[{"name":"look_up"}]"#;

/// Every route whose answers can be streams, with a request for one.
const STREAMS: [(&str, &str); 7] = [
    ("/v1/chat/completions", CHAT_STREAM),
    ("/v1/completions", CHAT_STREAM),
    ("/v1/responses", CHAT_STREAM),
    ("/v1/messages", CHAT_STREAM),
    ("/v1/images/generations", CHAT_STREAM),
    ("/v1/audio/speech", r#"{"model":"m","stream_format":"sse"}"#),
    ("/v1/audio/speech", r#"{"model":"m"}"#),
];

async fn ask_json(address: SocketAddr, path: &str, body: &str) -> Value {
    let seen = ask(address, &post(path, body)).await;
    assert_eq!(seen.status(), 200, "{}", seen.text);
    seen.json()
}

async fn ask_stream(address: SocketAddr, path: &str, body: &str) -> Vec<Value> {
    let seen = ask(address, &post(path, body)).await;
    assert_eq!(seen.header("content-type"), Some("text/event-stream"), "{}", seen.text);
    let names: Vec<&str> =
        seen.body().lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    let events: Vec<Value> = seen
        .events()
        .into_iter()
        .filter(|event| *event != "[DONE]")
        .map(|event| serde_json::from_str(event).unwrap())
        .collect();
    // Where events have names they are their types.
    assert!(names.is_empty() || names == types(&events), "{names:?}");
    events
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

fn deltas(events: &[Value], pointer: &str) -> String {
    events.iter().filter_map(|event| event.pointer(pointer)?.as_str()).collect()
}

#[tokio::test]
async fn a_message_comes_whole_and_as_anthropic_s_events() {
    let (_, address) = start(Behaviour { tokens: 2, ..Behaviour::default() }).await;
    let whole = ask_json(address, "/v1/messages", CHAT).await;
    assert_eq!(whole["content"], json!([{"type": "text", "text": "token0 token1 "}]));
    assert_eq!((&whole["type"], &whole["stop_reason"]), (&json!("message"), &json!("end_turn")));
    assert_eq!(whole["usage"]["output_tokens"], 2);

    let events = ask_stream(address, "/v1/messages", CHAT_STREAM).await;
    let expected = [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(types(&events), expected);
    assert_eq!(deltas(&events, "/delta/text"), "token0 token1 ");
    assert_eq!(events[0]["message"]["usage"]["input_tokens"], 11);
    assert_eq!(events[6]["usage"]["output_tokens"], 2);
}

#[tokio::test]
async fn a_response_comes_whole_and_as_numbered_events() {
    let (_, address) = start(Behaviour { tokens: 2, ..Behaviour::default() }).await;
    let whole = ask_json(address, "/v1/responses", CHAT).await;
    assert_eq!(whole["output"][0]["content"][0]["text"], "token0 token1 ");
    assert_eq!(
        (&whole["status"], &whole["usage"]["output_tokens"]),
        (&"completed".into(), &2.into())
    );

    let events = ask_stream(address, "/v1/responses", CHAT_STREAM).await;
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(types(&events), expected);
    let numbers: Vec<_> =
        events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..10).collect::<Vec<_>>());
    assert_eq!(deltas(&events, "/delta"), "token0 token1 ");
    assert_eq!(events[9]["response"]["usage"]["total_tokens"], 13);

    let limited = r#"{"model":"m","max_output_tokens":1,"stream":true}"#;
    let events = ask_stream(address, "/v1/responses", limited).await;
    assert_eq!(types(&events).last(), Some(&"response.incomplete"));
}

#[tokio::test]
async fn the_first_tool_on_offer_is_called_in_each_dialect() {
    let (_, address) = start(Behaviour { tokens: 2, ..Behaviour::default() }).await;
    let argument = r#"{"words":"token0 token1 "}"#;
    let with = |tool: &str, more: &str| format!(r#"{{"model":"m",{tool}{more}}}"#);
    let stream = r#","stream":true"#;

    let whole = ask_json(address, "/v1/chat/completions", &with(TOOL, "")).await;
    let choice = &whole["choices"][0];
    assert_eq!(choice["message"]["tool_calls"][0]["function"]["arguments"], argument);
    assert_eq!(choice["finish_reason"], "tool_calls");
    let events = ask_stream(address, "/v1/chat/completions", &with(TOOL, stream)).await;
    let pointer = "/choices/0/delta/tool_calls/0/function";
    assert_eq!(events[0].pointer(pointer).unwrap()["name"], "look_up");
    assert_eq!(deltas(&events, &format!("{pointer}/arguments")), argument);

    let whole = ask_json(address, "/v1/responses", &with(BARE_TOOL, "")).await;
    assert_eq!(
        (&whole["output"][0]["type"], &whole["output"][0]["arguments"]),
        (&"function_call".into(), &argument.into())
    );
    let events = ask_stream(address, "/v1/responses", &with(BARE_TOOL, stream)).await;
    assert_eq!(deltas(&events, "/delta"), argument);
    assert_eq!(events.last().unwrap()["response"]["output"][0]["name"], "look_up");
    assert!(events.iter().zip(0..).all(|(event, number)| event["sequence_number"] == number));

    let whole = ask_json(address, "/v1/messages", &with(BARE_TOOL, "")).await;
    assert_eq!(
        (&whole["content"][0]["input"]["words"], &whole["stop_reason"]),
        (&"token0 token1 ".into(), &"tool_use".into())
    );
    let events = ask_stream(address, "/v1/messages", &with(BARE_TOOL, stream)).await;
    assert_eq!(events[1]["content_block"]["name"], "look_up");
    assert_eq!(deltas(&events, "/delta/partial_json"), argument);
}

#[tokio::test]
async fn no_tool_is_called_where_none_is_chosen_and_what_is_no_list_of_tools_is_refused() {
    let (_, address) = start(Behaviour::default()).await;
    for (path, more) in [
        ("/v1/chat/completions", format!(r#"{TOOL},"tool_choice":"none""#)),
        ("/v1/chat/completions", r#""tools":[]"#.to_owned()),
        ("/v1/messages", format!(r#"{BARE_TOOL},"tool_choice":{{"type": "none"}}"#)),
        ("/v1/responses", r#""tools":[{"type":"web_search"}]"#.to_owned()),
    ] {
        let seen = ask(address, &post(path, &format!(r#"{{"model":"m",{more}}}"#))).await;
        assert!(seen.status() == 200 && seen.body().contains(r#""token0 "#), "{}", seen.text);
    }
    let odd = r#"{"model":"m","tools":{"a":1}}"#;
    assert_eq!(ask(address, &post("/v1/chat/completions", odd)).await.status(), 400);
}

#[tokio::test]
async fn a_cut_a_quiet_end_and_a_stall_mean_the_same_in_every_dialect() {
    for (path, body) in STREAMS {
        let (mock, address) =
            start(Behaviour { cut_after_tokens: Some(2), ..Behaviour::default() }).await;
        let mut bytes = Vec::new();
        let mut stream = open(address, &post(path, body)).await;
        let read = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.unwrap();
        assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset, "{path}");
        assert_eq!((mock.counts().cut_short, mock.counts().completed), (1, 0), "{path}");

        mock.set(Behaviour { finish_quietly_after_tokens: Some(2), ..Behaviour::default() });
        let mut bytes = Vec::new();
        let mut stream = open(address, &post(path, body)).await;
        timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.unwrap().unwrap();
        assert!(bytes.ends_with(b"\r\n0\r\n\r\n"), "{path}");
        let text = String::from_utf8_lossy(&bytes);
        let ends = ["[DONE]", "completed", "message_stop", "audio.done"];
        assert!(ends.iter().all(|end| !text.contains(end)), "{path}: {text}");

        mock.set(Behaviour { stall_after_tokens: Some(2), ..Behaviour::default() });
        let mut stream = open(address, &post(path, body)).await;
        counted(&mock, |counts| counts.in_flight == 1).await;
        assert!(stream.read(&mut [0; 64]).await.unwrap() > 0, "{path}");
        assert_eq!(mock.counts().in_flight, 1, "{path}");
    }
}

#[tokio::test]
async fn an_error_in_the_stream_is_said_as_the_dialect_says_it() {
    for (path, name, pointer, said) in [
        ("/v1/responses", "event: error", "/code", "server_error"),
        ("/v1/messages", "event: error", "/error/type", "overloaded_error"),
        ("/v1/images/generations", "data: ", "/error/type", "server_error"),
    ] {
        let (_, address) = start(Behaviour { error_in_stream: true, ..Behaviour::default() }).await;
        let seen = ask(address, &post(path, CHAT_STREAM)).await;
        let last: Value = serde_json::from_str(seen.events().last().unwrap()).unwrap();
        assert_eq!(last.pointer(pointer), Some(&json!(said)), "{}", seen.text);
        assert!(seen.body().contains(name) && seen.has_last_chunk(), "{}", seen.text);
    }
}

#[tokio::test]
async fn a_refusal_on_anthropic_s_routes_has_anthropic_s_shape() {
    for (status, kind) in [(429, "rate_limit_error"), (529, "overloaded_error"), (500, "api_error")]
    {
        let (_, address) = start(Behaviour { status: Some(status), ..Behaviour::default() }).await;
        for path in ["/v1/messages", "/v1/messages/count_tokens"] {
            let seen = ask(address, &post(path, CHAT)).await;
            let body = seen.json();
            assert_eq!((seen.status(), &body["type"]), (status, &json!("error")));
            assert_eq!(body["error"]["type"], kind);
        }
    }
}

#[tokio::test]
async fn a_key_is_taken_where_each_provider_has_it() {
    let key = Some("sk-right".to_owned());
    let (_, address) = start(Behaviour { require_key: key, ..Behaviour::default() }).await;
    for (header, status) in [
        ("x-api-key: sk-right\r\n", 200),
        ("api-key: sk-right\r\n", 200),
        ("x-api-key: sk-wrong\r\n", 401),
    ] {
        let request = post_with("/v1/messages", &format!("connection: close\r\n{header}"), CHAT);
        assert_eq!(ask(address, &request).await.status(), status, "{header}");
    }
}

#[tokio::test]
async fn what_only_comes_whole_has_its_documented_shape() {
    let (_, address) = start(Behaviour::default()).await;
    let ranked = ask_json(
        address,
        "/v1/rerank",
        r#"{"model":"m","query":"q","documents":["a","b","c"],"top_n":2}"#,
    )
    .await;
    let places: Vec<_> =
        ranked["results"].as_array().unwrap().iter().map(|result| &result["index"]).collect();
    assert_eq!(places, [2, 1]);
    assert_eq!(ranked["results"][0]["document"]["text"], "c");

    let judged = ask_json(address, "/v1/moderations", r#"{"model":"m","input":["a","b"]}"#).await;
    assert_eq!(judged["results"].as_array().unwrap().len(), 2);
    assert_eq!(judged["results"][0]["flagged"], false);

    let counted = ask_json(address, "/v1/messages/count_tokens", CHAT).await;
    assert_eq!(counted, json!({"input_tokens": 7}));

    let images = ask_json(address, "/v1/images/generations", r#"{"model":"m","n":2}"#).await;
    assert_eq!(images["data"].as_array().unwrap().len(), 2);
    assert!(images["data"][0]["b64_json"].as_str().unwrap().starts_with("iVBOR"));
}

#[tokio::test]
async fn speech_is_bytes_that_show_what_was_lost() {
    let (_, address) = start(Behaviour { tokens: 3, ..Behaviour::default() }).await;
    let body = r#"{"model":"m","input":"hi","voice":"alloy","response_format":"wav"}"#;
    let mut stream = open(address, &post("/v1/audio/speech", body)).await;
    let mut bytes = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.unwrap().unwrap();
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let text = String::from_utf8_lossy(&bytes[..head]);
    assert!(text.contains("content-type: audio/wav"), "{text}");
    // Each frame is its length, a kibibyte, and a line end.
    let frames = bytes[head + 4..].chunks(5 + 1024 + 2);
    let sound: Vec<u8> = frames
        .filter_map(|frame| frame.strip_prefix(b"400\r\n"))
        .flat_map(|frame| frame[..1024].to_vec())
        .collect();
    let expected: Vec<u8> = (0..3 * 1024).map(|place| (place % 251) as u8).collect();
    assert_eq!(sound, expected);
}

#[tokio::test]
async fn a_form_s_fields_are_found_and_its_file_is_not_taken_for_one() {
    let (_, address) = start(Behaviour { tokens: 2, ..Behaviour::default() }).await;
    let file = "--x\r\nContent-Disposition: form-data; name=\"model\"; filename=\"a\"\r\n\
        Content-Type: audio/wav\r\n\r\n\r\n--y\r\n";
    let form = |more: &str| {
        format!(
            "{file}\r\n--x\r\ncontent-disposition: form-data; name=model\r\n\r\nm{more}\r\n--x--\r\n"
        )
    };
    let part = |name: &str, value: &str| {
        format!("\r\n--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}")
    };
    let send = async |path: &str, kind: &str, body: &str| {
        let headers = format!("connection: close\r\ncontent-type: {kind}\r\n");
        ask(address, &post_with(path, &headers, body)).await
    };
    let kind = "multipart/form-data; boundary=\"x\"";
    let path = "/v1/audio/transcriptions";
    assert_eq!(send(path, kind, &form("")).await.json()["text"], "token0 token1 ");
    let plain = send(path, kind, &form(&part("response_format", "text"))).await;
    assert_eq!(
        (plain.header("content-type"), plain.body()),
        (Some("text/plain"), "token0 token1 ")
    );
    let stream = send(path, kind, &form(&part("stream", "true"))).await;
    assert!(stream.events().last().unwrap().contains("transcript.text.done"), "{}", stream.text);
    let images = send("/v1/images/edits", kind, &form(&part("n", "3"))).await.json();
    assert_eq!(images["data"].as_array().unwrap().len(), 3);

    for (kind, body) in [
        ("multipart/form-data", form("")),
        (kind, String::new()),
        (kind, "--x".to_owned()),
        (kind, "--x\r\n\r\n".to_owned()),
        (kind, "--x--".to_owned()),
        (kind, format!("{file}\r\n--x--\r\n")),
        (kind, form(&part("stream", "yes"))),
        (kind, "--x\r\n\r\n\r\n".repeat(100)),
    ] {
        assert_eq!(send(path, kind, &body).await.status(), 400, "{kind} {body:.60}");
    }
}

#[tokio::test]
async fn what_arrived_is_told_by_its_digest() {
    let (mock, address) = start(Behaviour::default()).await;
    let body = format!(r#"{{"model":"m","x":"{}"}}"#, "y".repeat(100_000));
    ask(address, &post("/v1/messages", &body)).await;
    let expected: [u8; 32] = Sha256::digest(&body).into();
    let expected: String = expected.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(mock.requests()[0].body_sha256, expected);
}
