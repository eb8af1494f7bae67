//! Tokens and roles: who is let in, who is made to wait, who may only look.

use std::net::IpAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::desk::{Ask, FULL, READ, dial, house, locked, plan, raw};
use crate::local::{House, soon};

const MEMBERS: &str = "/admin/v1/members";

async fn bodies(house: &House, asks: &[Ask]) -> Vec<String> {
    let mut bodies = Vec::new();
    for ask in asks {
        let told = ask.send(house).await;
        assert_eq!(told.refused(), (401, "unauthorized".to_owned()));
        assert_eq!(told.header("www-authenticate"), "Bearer");
        bodies.push(told.text);
    }
    bodies
}

#[tokio::test]
async fn m01_no_empty_wrong_doubled_or_misplaced_token_gets_the_same_refusal() {
    let house = house().await;
    let ask = || Ask::new("GET", MEMBERS);
    let wrong = bodies(
        &house,
        &[
            ask(),
            ask().header("authorization", ""),
            ask().token(""),
            ask().token("wrong"),
            ask().token(&FULL[..20]),
            ask().token(&"x".repeat(10_000)),
            ask().header("authorization", &format!("Basic {FULL}")),
            ask().header("authorization", &format!("bearer  {FULL}")),
            ask().token(FULL).token(FULL),
            ask().token(READ).token("wrong"),
            Ask::new("GET", &format!("{MEMBERS}?token={FULL}")),
            Ask::new("GET", &format!("{MEMBERS}?access_token={FULL}")),
            ask().header("x-api-key", FULL),
            Ask::new("GET", "/admin/v1/no-such-thing"),
            Ask::new("DELETE", MEMBERS),
            Ask::new("POST", "/admin/v1/endpoints/demo/a/override"),
        ],
    )
    .await;
    assert!(wrong.windows(2).all(|two| two[0] == two[1]), "{wrong:?}");
    assert_eq!(ask().token(READ).send(&house).await.status, 200);
}

#[tokio::test]
async fn m01_a_token_of_a_megabyte_is_not_even_read() {
    let house = house().await;
    let huge = "x".repeat(1_000_000);
    let request =
        format!("GET {MEMBERS} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {huge}\r\n\r\n");
    let answer = raw(house.app.admin_address, request.as_bytes()).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    assert_eq!(Ask::look("members").send(&house).await.status, 200);
}

#[tokio::test]
async fn m01_who_guesses_waits_and_nobody_else_does() {
    let house = house().await;
    let mut refusals = Vec::new();
    for guess in 0..40 {
        let told = Ask::look(&format!("members?{guess}")).from(2);
        let told = told.header("x-forwarded-for", "127.0.0.3");
        refusals.push(told.clone().header("authorization", "Bearer more").send(&house).await);
    }
    let waits: Vec<_> = refusals.iter().filter(|told| told.status == 429).collect();
    assert!(waits.len() >= 10, "{}", waits.len());
    for told in &waits {
        assert_eq!(told.code(), "too_many_attempts");
        let seconds: u64 = told.header("retry-after").parse().unwrap();
        assert!((1..=20).contains(&seconds), "{seconds}");
    }
    // From there not even the right token is listened to, from elsewhere it is.
    let guesser = Ask::look("members").from(2).send(&house).await;
    let other = Ask::look("members").from(3).send(&house).await;
    assert_eq!((guesser.status, other.status), (429, 200));
    // Whoever shows no token guesses nothing, and is told what is wanted.
    assert_eq!(Ask::new("GET", MEMBERS).from(2).send(&house).await.status, 401);
    for _ in 0..40 {
        assert_eq!(Ask::new("GET", MEMBERS).from(4).send(&house).await.status, 401);
    }
    assert_eq!(Ask::look("members").from(4).send(&house).await.status, 200);
}

#[tokio::test]
async fn who_guesses_does_not_lock_out_whom_this_node_knows_at_the_same_address() {
    let house = house().await;
    let status =
        async |token: &str| Ask::new("GET", MEMBERS).token(token).from(5).send(&house).await.status;
    assert_eq!(status(READ).await, 200);
    let mut refused = Vec::new();
    for _ in 0..40 {
        refused.push(status("a guess").await);
    }
    assert!(refused.contains(&429), "{refused:?}");
    assert_eq!(status(READ).await, 200, "known from before");
    assert_eq!(status(FULL).await, 429, "right, but never seen from there");
}

#[tokio::test]
async fn a_token_is_proof_enough_behind_a_proxy_that_ends_tls() {
    let house = house().await;
    let ask = |method, path| {
        let ask = Ask::new(method, path).header("origin", "https://gw.example.com");
        ask.header("host", "gw.example.com")
    };
    let order = ask("POST", "/admin/v1/config/check").token(FULL).body("models: 7");
    assert_eq!(order.send(&house).await.refused(), (400, "invalid_config".to_owned()));
    assert_eq!(ask("GET", MEMBERS).token(READ).send(&house).await.status, 200);
    assert_eq!(ask("GET", MEMBERS).send(&house).await.refused().0, 401);
}

#[tokio::test]
async fn m04_tokens_that_begin_alike_have_their_own_roles() {
    let house = house().await;
    assert_eq!(FULL[..20], READ[..20]);
    for (token, role) in [(FULL, "full"), (READ, "read")] {
        let told = Ask::new("GET", "/admin/v1/whoami").token(token).send(&house).await;
        assert_eq!(told.json()["role"], role);
    }
}

/// Every path of the document with this method, its names filled in.
pub(crate) async fn paths(house: &House, method: &str) -> Vec<String> {
    let document = Ask::look("openapi.json").send(house).await.json();
    let has_method = |(_, methods): &(&String, &Value)| methods.get(method).is_some();
    let paths = document["paths"].as_object().unwrap().iter().filter(has_method);
    let fill = |path: &String| {
        path.replace("{pool}", "demo").replace("{name}", "a").replace("{id}", "single")
    };
    paths.map(|(path, _)| fill(path)).collect()
}

#[tokio::test]
async fn m05_the_read_only_token_gives_no_order_whatever_it_claims() {
    let house = house().await;
    let orders = paths(&house, "post").await;
    assert!(orders.len() >= 4, "{orders:?}");
    for path in orders {
        let order = Ask::new("POST", &path).token(READ).body(r#"{"state":"auto","role":"full"}"#);
        let order = order.header("x-role", "full").header("x-http-method-override", "GET");
        assert_eq!(order.send(&house).await.refused(), (403, "read_only".to_owned()), "{path}");
    }
    for path in paths(&house, "get").await {
        if path != "/admin/v1/events" {
            let told = Ask::new("GET", &path).token(READ).send(&house).await;
            assert_eq!(told.status, 200, "{path}: {}", told.text);
        }
    }
}

#[tokio::test]
async fn every_path_but_health_and_metrics_wants_a_token() {
    let house = house().await;
    for method in ["get", "post"] {
        for path in paths(&house, method).await {
            let told = Ask::new(&method.to_uppercase(), &path).send(&house).await;
            let is_open = ["/healthz", "/readyz", "/metrics"].contains(&path.as_str());
            assert_eq!(told.status, if is_open { 200 } else { 401 }, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn m16_metrics_are_for_anyone_unless_they_are_protected() {
    let house = house().await;
    let told = Ask::new("GET", "/metrics").send(&house).await;
    assert_eq!(told.status, 200);
    assert!(!told.text.contains("sk-of-the"), "{}", told.text);
    let protected = plan().await.start_as(|config| {
        locked(&mut config.admin);
        config.admin.protect_metrics = true;
    });
    let house = protected.await;
    let scrape = || Ask::new("GET", "/metrics");
    assert_eq!(scrape().send(&house).await.refused().0, 401);
    assert_eq!(scrape().token("wrong").send(&house).await.refused().0, 401);
    assert_eq!(scrape().token(READ).send(&house).await.status, 200);
    assert_eq!(Ask::new("GET", "/healthz").send(&house).await.status, 200);
}

#[tokio::test]
async fn without_tokens_a_page_of_another_origin_is_kept_out() {
    let house = plan().await.start().await;
    let ask = || Ask::new("GET", MEMBERS);
    assert_eq!(ask().send(&house).await.status, 200);
    for (name, value) in [
        ("origin", "http://evil.example"),
        ("origin", "null"),
        // A name that leads here for the moment: its page is of this origin.
        ("host", "evil.example:9090"),
    ] {
        let told = ask().header(name, value).send(&house).await;
        assert_eq!(told.refused(), (403, "foreign_origin".to_owned()), "{name}: {value}");
    }
    let own = format!("http://{}", house.app.admin_address);
    assert_eq!(ask().header("origin", &own).send(&house).await.status, 200);
    // A token is proof enough where one is asked for.
    let locked = crate::desk::house().await;
    let named = Ask::look("members").header("host", "gw.example.com:9090");
    assert_eq!(named.send(&locked).await.status, 200);
}

#[tokio::test]
async fn m16_a_stranger_cannot_take_all_the_connections() {
    let house = house().await;
    let stranger = IpAddr::from([127, 0, 0, 9]);
    let mut held = Vec::new();
    for _ in 0..80 {
        held.push(dial(stranger, house.app.admin_address).await);
    }
    assert_eq!(Ask::look("members").send(&house).await.status, 200);
    assert!(Ask::new("GET", "/healthz").send(&house).await.status == 200);
    drop(held);
}

#[tokio::test]
async fn m16_a_connection_too_many_is_closed_at_once() {
    // By the soft limit there may be fewer.
    gateway::handles::raise();
    let house = house().await;
    let mut held = Vec::new();
    for host in [11, 12, 13, 14] {
        for _ in 0..64 {
            held.push(dial(IpAddr::from([127, 0, 0, host]), house.app.admin_address).await);
        }
    }
    let mut more = dial(IpAddr::from([127, 0, 0, 15]), house.app.admin_address).await;
    let read = soon("its end", more.read(&mut [0])).await;
    assert!(read.is_err() || read.is_ok_and(|bytes| bytes == 0));
    // Nothing was said on the others, and all are served.
    let first = &mut held[0];
    first.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = [0; 12];
    soon("an answer", first.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}

#[tokio::test]
async fn operators_are_not_served_over_http2() {
    let house = house().await;
    // The preface and empty settings.
    let hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let answer = raw(house.app.admin_address, hello).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer:?}");
}
