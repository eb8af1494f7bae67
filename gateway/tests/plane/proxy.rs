//! What reaches an upstream, and what does not: admission, headers, bodies and 4xx answers.
//!
//! Everything runs over real sockets; what the upstream saw is read at the upstream.

use breaker::State;
use gateway::mock::Behaviour;
use hyper::header::HeaderValue;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::local::{Ask, House, Plan, QUESTION, mock, read_until};
use crate::raw;
use crate::raw::{Act, Raw, answer, failed, good, json};

async fn house_of(raw: &Raw) -> House {
    Plan::of(&[("a", raw.address)]).start().await
}

#[tokio::test]
async fn every_route_is_served_by_its_own_path() {
    let (address, mock) = mock("a").await;
    let house = Plan::of(&[("a", address)]).start().await;
    let plain = house.ask().await;
    assert_eq!((plain.status, plain.endpoint(), plain.is_clean), (200, "demo/a", true));
    assert_eq!(plain.header("x-quorumgate-attempts"), "1");
    assert_eq!(plain.header("x-quorumgate-node"), "single");
    assert!(plain.json()["choices"][0]["message"]["content"].is_string());
    let stream = house.ask_stream().await;
    assert!(stream.header("content-type").starts_with("text/event-stream"));
    assert!(stream.is_clean && stream.text().ends_with("data: [DONE]\n\n"));
    for (path, body) in [
        ("/v1/completions", r#"{"model":"demo","prompt":"x"}"#),
        ("/v1/completions", r#"{"model":"demo","prompt":"x","stream":true}"#),
        ("/v1/embeddings", r#"{"model":"demo","input":"x"}"#),
    ] {
        let reply = Ask::post(path, body).send(house.address()).await;
        assert_eq!((reply.status, reply.is_clean), (200, true), "{path}: {}", reply.text());
    }
    let by_path = mock.counts().by_path;
    let expected = [("/v1/chat/completions", 2), ("/v1/completions", 2), ("/v1/embeddings", 1)];
    assert_eq!(by_path, expected.map(|(path, count)| (path.to_owned(), count)).into());
}

#[tokio::test]
async fn the_models_are_those_of_the_configuration_with_their_aliases() {
    let (address, mock) = mock("a").await;
    let house = Plan::of(&[("a", address)]).pool("aliases: [gpt-4o]").start().await;
    let reply = Ask::get("/v1/models").send(house.address()).await;
    let ids: Vec<_> =
        reply.json()["data"].as_array().unwrap().iter().map(|model| model["id"].clone()).collect();
    assert_eq!(ids, ["demo", "gpt-4o"]);
    assert_eq!(mock.counts().connections, 0);
}

#[tokio::test]
async fn what_is_refused_never_reaches_an_upstream_and_the_next_request_is_served() {
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let plan = Plan::of(&[("a", raw.address)])
        .top("fail_closed: { require_header: x-agent-id, max_messages: 2, max_input_tokens: 100 }");
    let house = plan.start().await;
    let chat = "/v1/chat/completions";
    let long = format!(r#"{{"model":"demo","x":"{}"}}"#, "y".repeat(1_000));
    let post = |path: &str, body: &str| Ask::post(path, body).header("x-agent-id", "me");
    let cases = [
        (post("/v2/chat/completions", QUESTION), 404, "path_not_allowed"),
        (post("/v1/chat/completions/", QUESTION), 404, "path_not_allowed"),
        (post("/v1//chat/../chat/completions", QUESTION), 404, "path_not_allowed"),
        (post("/v1/chat%2fcompletions", QUESTION), 404, "path_not_allowed"),
        (Ask::get(chat).header("x-agent-id", "me"), 405, "method_not_allowed"),
        (post("/v1/models", QUESTION), 405, "method_not_allowed"),
        (Ask::chat(), 403, "missing_required_header"),
        (Ask::chat().header("x-agent-id", ""), 403, "missing_required_header"),
        (post(chat, QUESTION).header("content-encoding", "gzip"), 415, "unsupported_media_type"),
        (post(chat, ""), 400, "invalid_request"),
        (post(chat, "{\"model\":\"demo\",\"mess"), 400, "invalid_request"),
        (post(chat, "{\"model\":\"demo\"}{}"), 400, "invalid_request"),
        (post(chat, "{\"messages\":[]}"), 400, "invalid_request"),
        (post(chat, "{\"model\":\"demo\",\"model\":\"demo\"}"), 400, "invalid_request"),
        (post(chat, "{\"model\":\"demo\",\"x\":NaN}"), 400, "invalid_request"),
        (post(chat, "{\"model\":\"demo\",\"x\":01}"), 400, "invalid_request"),
        (post(chat, "{\"model\":\"other\"}"), 404, "model_not_found"),
        (post(chat, "{\"model\":\"../demo\"}"), 404, "model_not_found"),
        (post("/v1/chat/completions?model=demo", "{\"model\":\"x\"}"), 404, "model_not_found"),
        (post(chat, r#"{"model":"demo","messages":[1,2,3]}"#), 400, "too_many_messages"),
        (post(chat, &long), 400, "input_too_large"),
    ];
    for (ask, status, code) in cases {
        let reply = ask.send(house.address()).await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{ask:?}");
    }
    assert_eq!((raw.count(), raw.connections()), (0, 0));
    house.is_untouched("a").await;
    let served = Ask::chat().header("X-Agent-Id", "me").send(house.address()).await;
    assert_eq!((served.status, raw.count()), (200, 1));
}

#[tokio::test]
async fn j02_a_body_that_is_json_but_no_object_is_refused() {
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let house = house_of(&raw).await;
    for body in ["null", "1", "\"demo\"", "[]", r#"["demo",false,[]]"#, r#" ["demo",null,null]"#] {
        let reply = Ask::post("/v1/chat/completions", body).send(house.address()).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_request"), "{body}");
    }
    assert_eq!(raw.connections(), 0);
}

#[tokio::test]
async fn j07_a_body_beyond_the_limit_is_refused_by_its_stated_length_and_by_its_bytes() {
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let house = house_of(&raw).await;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n";
    let mut stated = TcpStream::connect(house.address()).await.unwrap();
    stated.write_all(format!("{head}content-length: 4194305\r\n\r\n").as_bytes()).await.unwrap();
    let told = read_until(&mut stated, "body_too_large").await;
    assert!(told.starts_with("HTTP/1.1 413 ") && told.contains("connection: close"), "{told}");
    let mut chunked = TcpStream::connect(house.address()).await.unwrap();
    let head = format!("{head}transfer-encoding: chunked\r\n\r\n");
    chunked.write_all(head.as_bytes()).await.unwrap();
    let piece = raw::chunk(&vec![b' '; 1024 * 1024]);
    for _ in 0..4 {
        chunked.write_all(&piece).await.unwrap();
    }
    chunked.write_all(b"1\r\n \r\n").await.unwrap();
    assert!(read_until(&mut chunked, "body_too_large").await.starts_with("HTTP/1.1 413 "));
    assert_eq!(raw.connections(), 0);
}

#[tokio::test]
async fn h50_a_body_that_stops_arriving_is_given_up() {
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let house = house_of(&raw).await;
    let mut stream = TcpStream::connect(house.address()).await.unwrap();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{\"m";
    stream.write_all(head.as_bytes()).await.unwrap();
    let told = read_until(&mut stream, "request_timeout").await;
    assert!(told.starts_with("HTTP/1.1 408 ") && told.contains("connection: close"), "{told}");
    assert_eq!(raw.connections(), 0);
}

#[tokio::test]
async fn a_safe_request_id_goes_up_and_back_and_is_the_same_on_every_attempt() {
    let bad = Raw::always(vec![Act::Say(failed(500))]).await;
    let worse = Raw::always(vec![Act::Say(failed(503))]).await;
    let house = Plan::of(&[("a", bad.address), ("b", worse.address)]).start().await;
    let reply = Ask::chat().header("x-request-id", "abc-1.2:3_4").send(house.address()).await;
    assert_eq!(reply.header("x-request-id"), "abc-1.2:3_4");
    for upstream in [&bad, &worse] {
        let seen = upstream.seen();
        assert!(!seen.is_empty());
        assert!(seen.iter().all(|seen| seen.header("x-request-id") == Some("abc-1.2:3_4")));
    }
}

#[tokio::test]
async fn h35_an_unsafe_request_id_is_replaced() {
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let house = house_of(&raw).await;
    for given in ["a b", "a\tb", "a\"b", "", &"x".repeat(129), "\u{e4}"] {
        let reply = Ask::chat().header("x-request-id", given).send(house.address()).await;
        let id = reply.header("x-request-id").to_owned();
        assert!(id.starts_with("req-") && id.len() == 28, "{given:?} became {id:?}");
        assert_eq!(raw.seen().last().unwrap().header("x-request-id"), Some(id.as_str()));
    }
}

#[tokio::test]
async fn the_clients_credentials_stay_here_and_the_endpoints_own_goes_along() {
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let plan = Plan::of(&[]).endpoint("a", raw.address, ", api_key: own-key");
    let house = plan.start().await;
    let mut ask = Ask::chat();
    for name in ["authorization", "cookie", "x-api-key", "api-key", "proxy-authorization"] {
        ask = ask.header(name, "client-secret");
    }
    for name in ["x-forwarded-for", "forwarded", "x-real-ip", "openai-organization", "te"] {
        ask = ask.header(name, "client-secret");
    }
    ask = ask.header("traceparent", "00-1-1-01");
    let reply = ask.send(house.address()).await;
    assert_eq!(reply.status, 200);
    let seen = raw.seen().remove(0);
    assert!(!seen.head.contains("client-secret"), "{}", seen.head);
    assert_eq!(seen.header("authorization"), Some("Bearer own-key"));
    assert_eq!(seen.header("traceparent"), Some("00-1-1-01"));
    assert_eq!(seen.header("host"), Some(raw.address.to_string().as_str()));
    assert!(seen.head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"));
    // Without a key of its own the endpoint is shown none at all.
    let house = house_of(&raw).await;
    assert_eq!(ask.send(house.address()).await.status, 200);
    let seen = raw.seen().remove(1);
    assert!(!seen.head.contains("client-secret"), "{}", seen.head);
    assert_eq!(seen.header("authorization"), None);
}

#[tokio::test]
async fn u23_headers_that_are_ours_to_say_do_not_come_back() {
    let lines = "content-type: application/json\r\nset-cookie: a=b\r\nserver: x\r\n\
                 x-should-retry: true\r\nx-request-id: theirs\r\nx-quorumgate-degraded: all-open\r\n\
                 x-quorumgate-node: theirs\r\nkeep-alive: timeout=5\r\nopenai-version: 1\r\n";
    let raw = Raw::always(vec![Act::Say(answer(200, lines, r#"{"choices":[{}]}"#))]).await;
    let house = house_of(&raw).await;
    let reply = house.ask().await;
    assert_eq!((reply.status, reply.header("openai-version")), (200, "1"));
    for name in ["set-cookie", "server", "x-should-retry", "keep-alive", "x-quorumgate-degraded"] {
        assert_eq!(reply.headers.get(name), None, "{name}");
    }
    assert_ne!(reply.header("x-request-id"), "theirs");
    let nodes: Vec<_> = reply.headers.get_all("x-quorumgate-node").iter().collect();
    assert_eq!(nodes, [HeaderValue::from_static("single")]);
}

#[tokio::test]
async fn j11_a_body_is_forwarded_byte_for_byte_but_for_the_models_name() {
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let plan = Plan::of(&[]).endpoint("a", raw.address, ", upstream_model: org/Big-1");
    let house = plan.start().await;
    let odd = concat!(
        " {\"z\" : 1234567890123456789012345678901234567890, \"a\":-0,\r\n\t\"e\":1e999,",
        "\"u\":\"\\u4f60\\/ \u{4f60}\", \"model\":\"d\\u0065mo\" ,\"api_base\":\"http://evil\",",
        "\"metadata\":{\"model\":\"demo\"},\"lone\":\"\\ud800\",\"x\":[ ] } \n",
    );
    assert_eq!(Ask::post("/v1/chat/completions", odd).send(house.address()).await.status, 200);
    let expected = odd.replace("\"d\\u0065mo\"", "\"org/Big-1\"");
    assert_eq!(raw.seen()[0].text(), expected);
}

#[tokio::test]
async fn an_alias_is_the_clients_word_and_the_upstream_hears_the_models_name() {
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let plan = Plan::of(&[("a", raw.address)]).pool("aliases: [gpt-4o]");
    let house = plan.start().await;
    let ask = Ask::post("/v1/chat/completions", QUESTION.replace("demo", "gpt-4o"));
    assert_eq!(ask.send(house.address()).await.status, 200);
    assert_eq!(raw.seen()[0].text(), QUESTION);
}

#[tokio::test]
async fn f26_the_body_survives_the_second_attempt() {
    let bad = Raw::always(vec![Act::Say(failed(500))]).await;
    let other = Raw::always(vec![Act::Say(good("yes"))]).await;
    let house = Plan::of(&[])
        .endpoint("a", bad.address, ", upstream_model: model-of-a, api_key: key-of-a")
        .endpoint("b", other.address, ", upstream_model: model-of-b, api_key: key-of-b")
        .start()
        .await;
    let long = "\u{4f60} ".repeat(1024 * 1024 / 4);
    let body = format!(r#"{{"model":"demo","messages":[{{"role":"user","content":"{long}"}}]}}"#);
    let mut failed_over = 0;
    while failed_over == 0 {
        let ask = Ask::post("/v1/chat/completions", body.clone());
        assert_eq!(house.send(ask).await.status, 200);
        failed_over = bad.count();
    }
    let (first, second) = (bad.seen().remove(0), other.seen().pop().unwrap());
    for (seen, name) in [(first, "a"), (second, "b")] {
        let expected = body.replace("demo", &format!("model-of-{name}"));
        assert!(seen.body == expected.as_bytes(), "the body that {name} saw");
        assert_eq!(seen.header("content-length"), Some(expected.len().to_string().as_str()));
        let key = format!("Bearer key-of-{name}");
        assert_eq!(seen.header("authorization"), Some(key.as_str()));
    }
}

#[tokio::test]
async fn f01_fifty_refusals_of_the_upstream_pass_unchanged_and_the_breaker_stays_closed() {
    let told = r#"{"error":{"message":"too long","type":"x","code":"context_length_exceeded"}}"#;
    let raw = Raw::always(vec![Act::Say(json(400, told))]).await;
    let (address, healthy) = mock("b").await;
    let house = Plan::of(&[("a", raw.address), ("b", address)]).start().await;
    let mut passed = 0;
    while passed < 50 {
        let reply = house.ask().await;
        assert_eq!(reply.header("x-quorumgate-attempts"), "1");
        if reply.endpoint() == "demo/a" {
            assert_eq!((reply.status, reply.text()), (400, told));
            passed += 1;
        }
    }
    house.is_untouched("a").await;
    assert_eq!(raw.count(), 50);
    assert_eq!(house.view("a").requests, 0);
    assert!(healthy.counts().requests > 0);
}

#[tokio::test]
async fn every_4xx_that_is_the_clients_own_passes_and_says_nothing_about_health() {
    let statuses = [400, 402, 404, 405, 409, 410, 413, 415, 418, 422, 451, 499];
    let raw = Raw::start(move |number, _| vec![Act::Say(failed(statuses[number]))]).await;
    let house = house_of(&raw).await;
    for status in statuses {
        assert_eq!(house.ask().await.status, status);
    }
    house.is_untouched("a").await;
    assert_eq!(house.view("a").state, State::Closed);
}

#[tokio::test]
async fn u19_interim_answers_are_swallowed() {
    let mut said = b"HTTP/1.1 103 Early\r\nlink: x\r\n\r\n".repeat(20);
    said.extend(good("yes"));
    let raw = Raw::always(vec![Act::Say(said)]).await;
    let house = house_of(&raw).await;
    let reply = house.ask().await;
    assert_eq!((reply.status, reply.headers.get("link")), (200, None));
    house.is_untouched("a").await;
}

#[tokio::test]
async fn u17_bytes_behind_an_answer_never_become_the_next_one() {
    let mut said = good("yes");
    said.extend(good("smuggled"));
    let raw = Raw::always(vec![Act::Say(said)]).await;
    let house = house_of(&raw).await;
    for _ in 0..10 {
        let reply = house.ask().await;
        assert!(reply.status == 200 && reply.text().contains("yes"), "{}", reply.text());
    }
    assert_eq!((raw.count(), raw.connections()), (10, 10));
    house.is_untouched("a").await;
}

#[tokio::test]
async fn no_credential_and_no_address_is_in_what_a_client_or_an_operator_reads() {
    let (address, mock) = mock("a").await;
    mock.set(Behaviour { status: Some(500), ..Behaviour::default() });
    let plan = Plan::of(&[]).endpoint("a", address, ", api_key: sk-CANARY-1");
    let house = plan.start().await;
    let reply = house.ask().await;
    assert_eq!((reply.status, reply.code().as_str()), (500, "upstream_error"));
    assert!(!reply.text().contains("CANARY"));
    let told = house.admin("endpoints").await.to_string();
    assert!(!told.contains("CANARY"), "{told}");
}
