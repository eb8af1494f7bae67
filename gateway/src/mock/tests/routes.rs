//! A healthy mock answers in OpenAI's shapes.

use super::*;

#[tokio::test]
async fn a_chat_answer_has_the_documented_shape() {
    let (_, address) = start(Behaviour::default()).await;
    let seen = ask(address, &post("/v1/chat/completions", r#"{"model":"llama","n":1}"#)).await;
    let answer = seen.json();
    assert_eq!((seen.status(), seen.header("x-mock-name")), (200, Some("north")));
    assert_eq!(seen.header("content-type"), Some("application/json"));
    assert_eq!(seen.header("content-length"), Some(seen.body().len().to_string().as_str()));
    assert_eq!((&answer["object"], &answer["model"]), (&"chat.completion".into(), &"llama".into()));
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert!(answer["created"].as_u64().unwrap() > 1_600_000_000);
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"]["role"], "assistant");
    assert_eq!(choice["message"]["content"], "token0 token1 token2 token3 token4 ");
    assert_eq!(choice["finish_reason"], "stop");
    let usage = &answer["usage"];
    assert_eq!((&usage["completion_tokens"], &usage["prompt_tokens"]), (&5.into(), &6.into()));
    assert_eq!(usage["total_tokens"], 11);
}

#[tokio::test]
async fn a_chat_stream_is_role_tokens_finish_and_done() {
    let (_, address) = start(Behaviour { tokens: 2, ..Behaviour::default() }).await;
    let seen = ask(address, &post("/v1/chat/completions", CHAT_STREAM)).await;
    assert_eq!(seen.header("content-type"), Some("text/event-stream"));
    let events = seen.events();
    assert_eq!((events.len(), events[4]), (5, "[DONE]"));
    let choices: Vec<Value> = events[..4]
        .iter()
        .map(|event| serde_json::from_str::<Value>(event).unwrap()["choices"][0].clone())
        .collect();
    assert_eq!(choices[0]["delta"]["role"], "assistant");
    assert_eq!(choices[1]["delta"]["content"], "token0 ");
    assert_eq!(choices[2]["finish_reason"], Value::Null);
    assert_eq!(choices[3]["finish_reason"], "stop");
    assert!(seen.has_last_chunk());
}

#[tokio::test]
async fn each_event_is_a_frame_of_its_own() {
    let (_, address) = start(Behaviour { tokens: 50, ..Behaviour::default() }).await;
    let seen = ask(address, &post("/v1/chat/completions", CHAT_STREAM)).await;
    // A chunk's size stands in its line before the data, and the last chunk is "0".
    let body = format!("\r\n{}", seen.body());
    assert_eq!(body.matches("\r\ndata: ").count(), 53);
    assert_eq!(seen.events().len(), 53);
}

#[tokio::test]
async fn usage_comes_in_the_stream_only_when_asked_for() {
    let (_, address) = start(Behaviour::default()).await;
    let body = r#"{"model":"m","stream":true,"stream_options":{"include_usage":true}}"#;
    let asked = ask(address, &post("/v1/chat/completions", body)).await;
    let events = asked.events();
    let usage: Value = serde_json::from_str(events[events.len() - 2]).unwrap();
    assert_eq!(
        (&usage["choices"], &usage["usage"]["completion_tokens"]),
        (&Value::Array(vec![]), &5.into())
    );
    let unasked = ask(address, &post("/v1/chat/completions", CHAT_STREAM)).await;
    assert!(!unasked.text.contains("usage"));
}

#[tokio::test]
async fn a_request_s_own_limit_shortens_the_answer() {
    let (_, address) = start(Behaviour::default()).await;
    let body = r#"{"model":"m","max_tokens":2}"#;
    let answer = ask(address, &post("/v1/chat/completions", body)).await.json();
    assert_eq!(answer["choices"][0]["message"]["content"], "token0 token1 ");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn a_text_completion_comes_whole_and_as_a_stream() {
    let (_, address) = start(Behaviour { tokens: 2, ..Behaviour::default() }).await;
    let whole =
        ask(address, &post("/v1/completions", r#"{"model":"m","prompt":"p"}"#)).await.json();
    assert_eq!(
        (&whole["object"], &whole["choices"][0]["text"]),
        (&"text_completion".into(), &"token0 token1 ".into())
    );
    let stream = ask(address, &post("/v1/completions", r#"{"model":"m","stream":true}"#)).await;
    assert_eq!((stream.content().as_str(), stream.events().len()), ("token0 token1 ", 4));
    assert_eq!(stream.events()[3], "[DONE]");
}

#[tokio::test]
async fn embeddings_are_one_vector_for_each_input() {
    let (_, address) = start(Behaviour::default()).await;
    for (input, count) in
        [(r#""a""#, 1), (r#"["a","b"]"#, 2), ("[1,2,3]", 1), ("[[1],[2]]", 2), ("[]", 1)]
    {
        let body = format!(r#"{{"model":"m","input":{input}}}"#);
        let answer = ask(address, &post("/v1/embeddings", &body)).await.json();
        assert_eq!(answer["data"].as_array().unwrap().len(), count, "{input}");
        assert_eq!((&answer["object"], &answer["model"]), (&"list".into(), &"m".into()));
    }
    let body = r#"{"model":"m","input":"a","encoding_format":"base64"}"#;
    let answer = ask(address, &post("/v1/embeddings", body)).await.json();
    assert_eq!(answer["data"][0]["embedding"], "AACAPgAAAL8AAIA/");
}

#[tokio::test]
async fn health_and_models_answer() {
    let (_, address) = start(Behaviour::default()).await;
    assert_eq!(ask(address, &get("/health")).await.json()["status"], "ok");
    assert_eq!(ask(address, &get("/v1/models")).await.json()["data"][0]["id"], "north");
}

#[tokio::test]
async fn another_post_below_v1_echoes_its_bytes() {
    let (_, address) = start(Behaviour::default()).await;
    let body = r#"{"z":1e999, "a":123456789012345678901234567890, "z":2}"#;
    let seen = ask(address, &post("/v1/batches", body)).await;
    assert_eq!(
        seen.body(),
        format!(r#"{{"object":"echo","path":"/v1/batches","request":{body}}}"#)
    );
}

#[tokio::test]
async fn a_form_on_another_route_is_echoed_without_its_bytes() {
    let (_, address) = start(Behaviour::default()).await;
    let headers = "connection: close\r\ncontent-type: multipart/form-data; boundary=x\r\n";
    let seen = ask(address, &post_with("/v1/files", headers, "--x--")).await;
    assert_eq!((seen.status(), &seen.json()["request"]), (200, &Value::Null));
}

#[tokio::test]
async fn a_body_that_is_no_question_is_refused_in_openai_s_shape() {
    let (mock, address) = start(Behaviour::default()).await;
    let deep = format!(r#"{{"model":"m","x":{}}}"#, "[".repeat(100_000));
    let bodies = [
        "",
        " ",
        "null",
        "[]",
        r#"["m",true]"#,
        "1",
        r#"{"model":"m","mess"#,
        "{}{}",
        r#"{"model":"m","stream":"true"}"#,
        r#"{"model":1}"#,
        "{}",
        r#"{"model":"m","max_tokens":-1}"#,
        &deep,
    ];
    for body in bodies {
        let seen = ask(address, &post("/v1/chat/completions", body)).await;
        assert_eq!(seen.status(), 400, "{body:.40}");
        let error = &seen.json()["error"];
        assert_eq!(error["type"], "invalid_request_error");
        assert!(["message", "param", "code"].iter().all(|key| error.get(key).is_some()));
    }
    assert_eq!(mock.counts().completed, 13);
}

#[tokio::test]
async fn what_is_not_there_is_404_and_a_wrong_method_405() {
    let (mock, address) = start(Behaviour::default()).await;
    assert_eq!(ask(address, &get("/v2/chat")).await.status(), 404);
    assert_eq!(ask(address, &post("/chat/completions", CHAT)).await.status(), 404);
    let seen = ask(address, &get("/v1/chat/completions")).await;
    assert_eq!((seen.status(), seen.header("allow")), (405, Some("POST")));
    assert_eq!(ask(address, &post("/health", "")).await.status(), 405);
    assert_eq!(mock.counts().requests, 0);
}

#[tokio::test]
async fn a_body_too_long_is_refused_whether_announced_or_not() {
    let (mock, address) = start(Behaviour::default()).await;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nconnection: close\r\n";
    let announced = format!("{head}content-length: {}\r\n\r\n", super::super::BODY_BYTES_MAX + 1);
    assert_eq!(ask(address, &announced).await.status(), 413);

    let mut stream = open(address, &format!("{head}transfer-encoding: chunked\r\n\r\n")).await;
    let chunk = format!("100000\r\n{}\r\n", "x".repeat(1 << 20));
    for _ in 0..65 {
        stream.write_all(chunk.as_bytes()).await.unwrap();
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    assert_eq!(read_all(stream).await.status(), 413);
    assert_eq!((mock.counts().completed, mock.requests().len()), (2, 0));
}

#[tokio::test]
async fn bytes_that_are_not_http_harm_nobody() {
    let (_, address) = start(Behaviour::default()).await;
    let bytes: Vec<&[u8]> = vec![
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\r\n\r\n\r\n\x00\xff\xfe",
        b"POST /v1/x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST /__admin/set HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n\xff\xff",
    ];
    for bytes in bytes {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        let _ = timeout(PATIENCE, stream.read_to_end(&mut rest)).await.unwrap();
    }
    assert_eq!(ask(address, &get("/health")).await.status(), 200);
}
