//! Who and what is let in: routes, methods, keys and the order of refusals, over real sockets.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

#[path = "local/mod.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod local;
#[path = "process/mod.rs"]
mod process;
#[path = "raw/mod.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod raw;

use breaker::State;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use local::{Ask, House, Plan, QUESTION, Reply, read_until};
use raw::{Act, Raw, failed, good, json};

/// Every kind of route that asks a model.
const POSTS: [&str; 13] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/rerank",
    "/v1/audio/speech",
    "/v1/audio/transcriptions",
    "/v1/images/generations",
    "/v1/images/edits",
    "/v1/moderations",
    "/v1/some/thing-new",
];

/// An answer that is good in every dialect.
const ANSWER: &str = r#"{"choices":[{"message":{"content":"yes"}}],"output":[],"data":[],
    "status":"completed","type":"message","content":[{"type":"text","text":"yes"}]}"#;

/// Headers of a request.
type Headers<'a> = &'a [(&'a str, &'a str)];

/// Two keys with their first twenty signs in common.
const ALL: &str = "sk-0123456789abcdefghij-all";
const FEW: &str = "sk-0123456789abcdefghij-few";

/// The section that lets both in, one of them to one model only.
fn keys() -> String {
    let digest = |key: &str| -> String {
        Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect()
    };
    format!(
        "api_keys: [{{ name: team-all, sha256: \"{}\" }}, {{ name: team-few, sha256: \"{}\", models: [org/alias] }}]",
        digest(ALL),
        digest(FEW)
    )
}

/// A gateway with keys and a second model, `other`, also called `alias`.
async fn house_with_keys(raw: &Raw, more: &str) -> House {
    let other = format!(
        "aliases: [gpt-4o]\n    endpoints: [{{ name: a, address: \"http://{0}\", api_key: own-key }}]\n  \
         - name: other\n    aliases: [org/alias]",
        raw.address
    );
    let plan = Plan::of(&[]).endpoint("a", raw.address, ", api_key: own-key");
    plan.top(&keys()).top(more).pool(&other).start().await
}

async fn rejects(house: &House, reason: &str) -> u32 {
    let metrics = Ask::get("/metrics").send(house.app.admin_address).await;
    let name = format!("quorumgate_admission_rejects_total{{reason=\"{reason}\"}} ");
    let line = metrics.text().lines().find_map(|line| line.strip_prefix(&name).map(str::to_owned));
    line.map_or(0, |count| count.parse().unwrap())
}

fn ids(reply: &Reply) -> Vec<String> {
    let reply = reply.json();
    let models = reply["data"].as_array().unwrap();
    models.iter().map(|model| model["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn every_post_that_names_a_model_goes_to_its_own_path() {
    let raw = Raw::always(vec![Act::Say(json(200, ANSWER))]).await;
    let house = Plan::of(&[("a", raw.address)]).start().await;
    for path in POSTS {
        let body = r#"{"model":"demo","input":"x"}"#;
        let reply = Ask::post(path, body).send(house.address()).await;
        assert_eq!((reply.status, reply.text()), (200, ANSWER), "{path}");
        let seen = raw.seen().pop().unwrap();
        assert!(seen.head.starts_with(&format!("POST {path} HTTP/1.1\r\n")), "{}", seen.head);
        assert_eq!((seen.text(), seen.header("content-type")), (body, Some("application/json")));
        let nameless = Ask::post(path, r#"{"input":"x"}"#).send(house.address()).await;
        assert_eq!((nameless.status, nameless.code().as_str()), (400, "invalid_request"), "{path}");
    }
    assert_eq!(raw.count(), POSTS.len());
}

#[tokio::test]
async fn f07_every_route_records_and_opens_alike() {
    for path in POSTS {
        let raw = Raw::always(vec![Act::Say(failed(500))]).await;
        let plan = Plan::of(&[("a", raw.address)]).pool("on_all_open: reject");
        let plan = plan.top("circuit_breaker: { failure_threshold: 3 }\nretry: { on: [] }");
        let house = plan.start().await;
        let ask = || house.send(Ask::post(path, QUESTION));
        for _ in 0..3 {
            assert_eq!(ask().await.status, 500, "{path}");
        }
        assert_eq!(house.view("a").state, State::Open, "{path}");
        assert_eq!((ask().await.code().as_str(), raw.count()), ("circuit_open", 3), "{path}");
    }
}

#[tokio::test]
async fn h29_a_path_is_taken_as_it_is_written_or_not_at_all() {
    let raw = Raw::always(vec![Act::Say(json(200, ANSWER))]).await;
    let house = Plan::of(&[("a", raw.address)])
        .top("fail_closed: { allowed_paths: [/v1/chat/completions] }")
        .start()
        .await;
    for path in [
        "/v1//chat/../chat/completions",
        "//v1/chat/completions",
        "/v1/chat//completions",
        "/v1/./chat/completions",
        "/v1/embeddings/../chat/completions",
        "/v1/%2e%2e/v1/chat/completions",
        "/v1/chat%2fcompletions",
        "/v1/chat%2Fcompletions",
        "/%76%31/chat/completions",
        "/v1/chat/completions/",
        "/v1/chat/completions/.",
        "/v1/chat/completions;x",
        "/v1/chat/completions;x=1",
        "/V1/Chat/Completions",
        "/v1/chat/completions%20",
        "/v1/chat/completions%00",
        "/v1/embeddings",
        "/v1/models/../chat/completions",
        "/chat/completions",
        "/",
        "*",
    ] {
        let mut stream = TcpStream::connect(house.address()).await.unwrap();
        let length = QUESTION.len();
        let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(QUESTION.as_bytes()).await.unwrap();
        let told = read_until(&mut stream, "\r\n\r\n").await;
        // What no server may take for a target is refused before it is a path.
        let is_refused = told.starts_with("HTTP/1.1 404 ") || told.starts_with("HTTP/1.1 400 ");
        assert!(is_refused, "{path}: {told}");
    }
    assert!(rejects(&house, "path_not_allowed").await >= 20);
    assert_eq!(raw.connections(), 0);
    assert_eq!(house.ask().await.status, 200);
}

#[tokio::test]
async fn a_wrong_method_is_told_the_right_one() {
    let raw = Raw::always(vec![Act::Say(json(200, ANSWER))]).await;
    let house = Plan::of(&[("a", raw.address)]).start().await;
    for (method, path, allowed) in [
        ("GET", "/v1/chat/completions", "POST"),
        ("PUT", "/v1/chat/completions", "POST"),
        ("DELETE", "/v1/files/x", "POST"),
        ("HEAD", "/v1/chat/completions", "POST"),
        ("OPTIONS", "/v1/chat/completions", "POST"),
        ("POST", "/v1/models", "GET"),
        ("HEAD", "/v1/models", "GET"),
        ("DELETE", "/v1/models/demo", "GET"),
    ] {
        let mut stream = TcpStream::connect(house.address()).await.unwrap();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let told = read_until(&mut stream, "\r\n\r\n").await;
        assert!(told.starts_with("HTTP/1.1 405 "), "{method} {path}: {told}");
        assert!(told.contains(&format!("\r\nallow: {allowed}\r\n")), "{method} {path}: {told}");
    }
    assert_eq!(raw.connections(), 0);
}

#[tokio::test]
async fn m01_m04_whoever_shows_no_known_key_is_refused_and_not_told_why() {
    let raw = Raw::always(vec![Act::Say(json(200, ANSWER))]).await;
    let house = house_with_keys(&raw, "").await;
    let bearer = |key: &str| format!("Bearer {key}");
    let huge = bearer(&"x".repeat(20_000));
    let wrong: [&[(&str, &str)]; 9] = [
        &[],
        &[("authorization", "")],
        &[("authorization", "Bearer ")],
        &[("authorization", "Bearer sk-0123456789abcdefghij")],
        &[("authorization", &huge)],
        &[("authorization", &bearer(ALL)), ("authorization", &bearer(ALL))],
        &[("authorization", &bearer(ALL)), ("x-api-key", FEW)],
        &[("authorization", "Basic c2s6eA==")],
        &[("x-api-key", &bearer(ALL))],
    ];
    let asked = |headers: &[(&str, &str)]| {
        headers.iter().fold(Ask::chat(), |ask, (name, value)| ask.header(name, value))
    };
    let mut bodies = Vec::new();
    for headers in wrong {
        let reply = asked(headers).send(house.address()).await;
        assert_eq!((reply.status, reply.code().as_str()), (401, "invalid_api_key"));
        assert_eq!(reply.header("www-authenticate"), "Bearer");
        bodies.push(reply.body);
    }
    bodies.dedup();
    assert_eq!((bodies.len(), rejects(&house, "invalid_api_key").await), (1, 9));
    let looked = Ask::get("/v1/models").send(house.address()).await;
    assert_eq!((looked.status, raw.connections()), (401, 0));
    // In the address a key is none.
    let path = format!("/v1/chat/completions?api_key={ALL}");
    assert_eq!(Ask::post(&path, QUESTION).send(house.address()).await.status, 401);
    for (name, value) in
        [("authorization", bearer(ALL).as_str()), ("x-api-key", ALL), ("api-key", ALL)]
    {
        assert_eq!(asked(&[(name, value)]).send(house.address()).await.status, 200, "{name}");
        let seen = raw.seen().pop().unwrap();
        assert!(
            !seen.head.contains("sk-0123") && seen.header("x-api-key").is_none(),
            "{}",
            seen.head
        );
        assert_eq!(seen.header("authorization"), Some("Bearer own-key"));
    }
}

#[tokio::test]
async fn a_key_opens_the_models_it_is_for_and_shows_no_others() {
    let raw = Raw::always(vec![Act::Say(json(200, ANSWER))]).await;
    let house = house_with_keys(&raw, "").await;
    let by = |key: &str, ask: Ask| house.send(ask.header("x-api-key", key));
    assert_eq!(
        ids(&by(ALL, Ask::get("/v1/models")).await),
        ["demo", "gpt-4o", "other", "org/alias"]
    );
    assert_eq!(ids(&by(FEW, Ask::get("/v1/models")).await), ["other", "org/alias"]);
    for (key, id, status) in [
        (ALL, "demo", 200),
        (FEW, "other", 200),
        (FEW, "org/alias", 200),
        (FEW, "demo", 404),
        (FEW, "nothing", 404),
    ] {
        let reply = by(key, Ask::get(&format!("/v1/models/{id}"))).await;
        assert_eq!(reply.status, status, "{id}");
        match status {
            200 => assert_eq!(reply.json()["id"], id),
            _ => assert_eq!(reply.code(), "model_not_found"),
        }
    }
    for (model, status) in
        [("other", 200), ("org/alias", 200), ("demo", 403), ("gpt-4o", 403), ("nothing", 404)]
    {
        let body = QUESTION.replace("demo", model);
        let reply = by(FEW, Ask::post("/v1/chat/completions", body)).await;
        assert_eq!(reply.status, status, "{model}");
        if status == 403 {
            assert_eq!(reply.code(), "model_not_allowed");
        }
    }
    assert_eq!(raw.count(), 2);
}

#[tokio::test]
async fn the_first_refusal_wins_in_the_order_that_is_promised() {
    let raw = Raw::always(vec![Act::Say(json(200, ANSWER))]).await;
    let rules = "fail_closed: { require_header: x-agent-id, max_messages: 2, max_input_tokens: 100, \
                 allowed_paths: [/v1/chat/completions] }";
    let house = house_with_keys(&raw, rules).await;
    let long = "y".repeat(2_000);
    let body = |model: &str, messages: &str, n: &str, long: &str| {
        format!(r#"{{"model":"{model}","messages":{messages},"n":{n},"x":"{long}"}}"#)
    };
    let many = body("nothing", "[1,2,3]", "99", &long);
    let (path, key) = ("/v1/chat/completions", ("x-api-key", FEW));
    let (agent, text) = (("x-agent-id", "me"), ("content-type", "text/plain"));
    let steps: [(&str, Headers<'_>, String, &str); 11] = [
        ("/v1/embeddings", &[text], "{".to_owned(), "path_not_allowed"),
        (path, &[text], "{".to_owned(), "invalid_api_key"),
        (path, &[text, key], "{".to_owned(), "missing_required_header"),
        (path, &[text, key, agent], "{".to_owned(), "unsupported_media_type"),
        (path, &[key, agent], format!("{many},"), "invalid_request"),
        (path, &[key, agent], many, "model_not_found"),
        (path, &[key, agent], body("demo", "[1,2,3]", "99", &long), "model_not_allowed"),
        (path, &[key, agent], body("other", "[1,2,3]", "99", &long), "too_many_messages"),
        (path, &[key, agent], body("other", "[1,2]", "99", &long), "invalid_request"),
        (path, &[key, agent], body("other", "[1,2]", "2", &long), "input_too_large"),
        (path, &[key, agent], body("other", "[1,2]", "2", ""), ""),
    ];
    for (path, headers, body, code) in steps {
        let ask = headers
            .iter()
            .fold(Ask::post(path, body), |ask, (name, value)| ask.header(name, value));
        let reply = ask.send(house.address()).await;
        if code.is_empty() {
            assert_eq!(reply.status, 200, "{}", reply.text());
        } else {
            assert_eq!((reply.code().as_str(), raw.connections()), (code, 0));
        }
    }
}

#[tokio::test]
async fn near_the_limit_the_tokenizer_decides() {
    let raw = Raw::always(vec![Act::Say(json(200, ANSWER))]).await;
    let plan =
        |rule: &str| Plan::of(&[("a", raw.address)]).top(&format!("fail_closed: {{ {rule} }}"));
    let estimated = plan("max_input_tokens: 30").start().await;
    let counted = plan("max_input_tokens: 30, tokenizer: o200k_base").start().await;
    let ask = |words: usize| {
        let words = "international ".repeat(words);
        Ask::post("/v1/chat/completions", QUESTION.replace("hello", words.trim_end()))
    };
    // Ten long words: an estimate of some fifty tokens, and eleven by the vocabulary.
    assert_eq!(ask(10).send(estimated.address()).await.code(), "input_too_large");
    assert_eq!(ask(10).send(counted.address()).await.status, 200);
    assert_eq!(ask(40).send(counted.address()).await.code(), "input_too_large");
    let dense = Ask::post("/v1/chat/completions", QUESTION.replace("hello", &"7!".repeat(20)));
    assert_eq!(dense.send(estimated.address()).await.status, 200);
    assert_eq!(dense.send(counted.address()).await.code(), "input_too_large");
}

#[tokio::test]
async fn a01_who_leaves_during_the_upload_is_counted_and_the_log_says_who_asked() {
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let directory = tempfile::tempdir().unwrap();
    let yaml = format!(
        "server: {{ listen: 127.0.0.1:0, workers: 1 }}
admin: {{ listen: 127.0.0.1:0 }}
log: {{ format: json, level: info }}
{0}
models:
  - {{ name: m, endpoints: [{{ name: a, address: \"http://{1}\" }}] }}
  - {{ name: org/alias, endpoints: [{{ name: b, address: \"http://{1}\", upstream_model: x }}] }}
",
        keys(),
        raw.address
    );
    let gateway = process::Gateway::serve(directory.path(), "gw", &yaml);
    let lines = |status: u64| -> Vec<Value> {
        let lines = gateway.log().into_iter().filter_map(|line| serde_json::from_str(&line).ok());
        lines.filter(|line: &Value| line.get("proxy_status") == Some(&status.into())).collect()
    };
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-api-key: {ALL}\r\ncontent-length: 1000\r\n\r\n{{"
    );
    let mut leaves = TcpStream::connect(gateway.clients).await.unwrap();
    leaves.write_all(head.as_bytes()).await.unwrap();
    drop(leaves);
    let mut aborts = TcpStream::connect(gateway.clients).await.unwrap();
    aborts.write_all(head.as_bytes()).await.unwrap();
    aborts.set_zero_linger().unwrap();
    drop(aborts);
    process::until("both have left", async || lines(499).len() == 2).await;
    let metrics = gateway.text("/metrics").await;
    let counted = "quorumgate_admission_rejects_total{reason=\"client_left\"} 2\n";
    assert!(metrics.contains(counted), "{metrics}");
    assert_eq!(raw.connections(), 0);
    let body = process::chat_body(false);
    let headers = [("x-api-key", FEW)];
    let ask = process::call(gateway.clients, hyper::Method::POST, process::CHAT, &headers, &body);
    assert_eq!(ask.await.unwrap().0.as_u16(), 403);
    let headers = [("x-api-key", ALL)];
    let ask = process::call(gateway.clients, hyper::Method::POST, process::CHAT, &headers, &body);
    assert_eq!(ask.await.unwrap().0.as_u16(), 200);
    process::until("all is logged", async || lines(200).len() == 1).await;
    let caller = |line: &Value| line["caller"].as_str().unwrap_or_default().to_owned();
    let said = |status| lines(status).iter().map(caller).collect::<Vec<_>>();
    assert_eq!(
        (said(499).len(), said(403), said(200)),
        (2, vec!["team-few".to_owned()], vec!["team-all".to_owned()])
    );
    assert!(said(499).iter().all(|caller| caller == "team-all"));
    assert!(!gateway.log().concat().contains("sk-0123"), "a key in the log");
}

#[tokio::test]
async fn a_client_that_takes_its_time_to_ask_has_all_of_the_time_for_its_answer() {
    let raw = Raw::always(vec![Act::Say(good("yes"))]).await;
    let top = "circuit_breaker: { slow: { total: 250ms, first_token: off } }\n\
               timeouts: { connect: 300ms, first_byte: 300ms, idle: 300ms, total: 300ms }";
    let house = Plan::of(&[("a", raw.address)]).top(top).start().await;
    let mut client = TcpStream::connect(house.address()).await.unwrap();
    let length = QUESTION.len();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n"
    );
    client.write_all(head.as_bytes()).await.unwrap();
    // Longer than the overall limit, which real sockets know no shorter way to let pass.
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    client.write_all(QUESTION.as_bytes()).await.unwrap();
    let text = read_until(&mut client, "yes").await;
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
}
