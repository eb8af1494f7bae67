//! Pages in browsers: let in where the configuration says so, and not a word about it elsewhere.

use gateway::config::Cors;

use crate::local::{Ask, House, Plan, Reply};
use crate::raw::{Act, DONE, FINISH, ROLE, Raw, answer, event, whole_stream};

const APP: &str = "https://app.example";
const EVIL: &str = "https://evil.example";

/// An upstream that has opinions about origins of its own.
async fn opinionated() -> Raw {
    Raw::start(|_, seen| {
        if seen.text().contains("\"stream\"") {
            return whole_stream(&[ROLE, &event("one"), FINISH, DONE]);
        }
        let lines = "content-type: application/json\r\naccess-control-allow-origin: *\r\n\
             access-control-allow-credentials: true\r\nvary: accept-encoding\r\n";
        vec![Act::Say(answer(200, lines, r#"{"choices":[{"message":{"content":"yes"}}]}"#))]
    })
    .await
}

async fn house(raw: &Raw, origins: &[&str]) -> House {
    let origins: Vec<_> = origins.iter().map(|origin| (*origin).to_owned()).collect();
    let plan = Plan::of(&[("a", raw.address)]).top("fail_closed: { require_header: x-agent-id }");
    plan.start_as(|config| config.server.cors = Some(Cors { origins, max_age_seconds: 600 })).await
}

fn preflight(origin: &str) -> Ask {
    Ask::options("/v1/chat/completions")
        .header("origin", origin)
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "authorization,content-type,x-stainless-os")
}

/// Asserts that an answer says nothing about origins.
fn is_silent(reply: &Reply) {
    let said = reply.headers.keys().filter(|name| name.as_str().starts_with("access-control"));
    assert_eq!(said.count(), 0, "{:?}", reply.headers);
}

#[tokio::test]
async fn without_the_section_no_answer_says_a_word_about_origins() {
    let raw = opinionated().await;
    let house = Plan::of(&[("a", raw.address)]).start().await;
    let refused = house.send(preflight(APP)).await;
    assert_eq!((refused.status, refused.code().as_str()), (405, "method_not_allowed"));
    is_silent(&refused);
    for ask in [Ask::chat(), Ask::stream(), Ask::get("/v1/models"), Ask::get("/nowhere")] {
        is_silent(&house.send(ask.header("origin", APP)).await);
    }
}

#[tokio::test]
async fn a_listed_origin_is_told_what_it_may_before_it_shows_anything() {
    let raw = opinionated().await;
    let house = house(&raw, &["https://other.example", APP]).await;
    let reply = house.send(preflight(APP)).await;
    assert_eq!((reply.status, reply.body.len()), (204, 0));
    assert_eq!(reply.header("access-control-allow-origin"), APP);
    assert_eq!(reply.header("vary"), "Origin");
    assert_eq!(reply.header("access-control-allow-methods"), "GET, POST");
    let allowed = reply.header("access-control-allow-headers");
    assert_eq!(allowed, "authorization, content-type, x-stainless-os");
    assert_eq!(reply.header("access-control-max-age"), "600");
    assert!(!reply.headers.contains_key("access-control-allow-credentials"));
    assert!(!reply.header("x-request-id").is_empty());
    assert_eq!(raw.count(), 0);
}

#[tokio::test]
async fn a_stranger_is_told_nothing() {
    let raw = opinionated().await;
    let house = house(&raw, &[APP]).await;
    let refused = house.send(preflight(EVIL)).await;
    assert_eq!(refused.status, 405);
    is_silent(&refused);
    let served = house.send(Ask::chat().header("origin", EVIL).header("x-agent-id", "a")).await;
    assert_eq!(served.status, 200);
    is_silent(&served);
}

#[tokio::test]
async fn every_answer_can_be_read_by_the_page_that_asked() {
    let raw = opinionated().await;
    let house = house(&raw, &[APP]).await;
    let known = |ask: Ask| ask.header("origin", APP).header("x-agent-id", "a");
    for (ask, status) in [
        (known(Ask::chat()), 200),
        (known(Ask::stream()), 200),
        (known(Ask::get("/v1/models")), 200),
        (known(Ask::get("/nowhere")), 404),
        (known(Ask::post("/v1/chat/completions", "{")), 400),
        (Ask::chat().header("origin", APP), 403),
    ] {
        let reply = house.send(ask).await;
        assert_eq!(reply.status, status);
        assert_eq!(reply.header("access-control-allow-origin"), APP);
        assert!(!reply.headers.contains_key("access-control-allow-credentials"));
        let read = reply.header("access-control-expose-headers");
        for name in
            ["x-request-id", "x-quorumgate-endpoint", "retry-after", "x-ratelimit-reset-tokens"]
        {
            assert!(read.contains(name), "{read}");
        }
        let varies: Vec<_> = reply.headers.get_all("vary").iter().collect();
        assert!(varies.iter().any(|by| *by == "Origin"), "{varies:?}");
    }
}

#[tokio::test]
async fn where_all_are_let_in_nobody_is_named() {
    let raw = opinionated().await;
    let house = house(&raw, &["*"]).await;
    for ask in [preflight(EVIL), Ask::chat().header("origin", EVIL).header("x-agent-id", "a")] {
        let reply = house.send(ask).await;
        assert_eq!(reply.header("access-control-allow-origin"), "*");
        assert!(!reply.headers.contains_key("access-control-allow-credentials"));
        assert!(!reply.header("vary").contains("Origin"));
    }
}
