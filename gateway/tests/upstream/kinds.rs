//! What each kind of server gets: its path, its credential, and nothing of the caller's.

use gateway::config::{Endpoint, Kind, Secret};

use crate::kit::gateway;
use crate::local::Ask;
use crate::raw::{Act, Raw, Seen, good};

/// What an endpoint that `edit` changes gets of a request with all that a caller may try.
async fn seen(path: &str, edit: impl Fn(&mut Endpoint)) -> Seen {
    let raw = Raw::always(vec![Act::Say(good("x"))]).await;
    let app = gateway(raw.address, |endpoint| {
        endpoint.api_key = Some(Secret::new("ours"));
        endpoint.upstream_model = Some("big".to_owned());
        edit(endpoint);
    })
    .await;
    let body = r#"{"model":"demo","messages":[{"role":"user","content":"hello"}],"input":"x"}"#;
    let mut ask = Ask::post(path, body);
    for (name, value) in [
        ("authorization", "Bearer callers"),
        ("api-key", "callers"),
        ("x-api-key", "callers"),
        ("cookie", "callers=1"),
        ("x-forwarded-for", "callers"),
        ("proxy-authorization", "callers"),
        ("x-request-id", "id-1"),
        ("traceparent", "00-1-2-01"),
        ("tracestate", "a=b"),
        ("openai-beta", "assistants=v2"),
        ("anthropic-beta", "one"),
        ("anthropic-version", "2024-01-01"),
        ("user-agent", "sdk/1"),
        ("accept", "application/json"),
    ] {
        ask = ask.header(name, value);
    }
    assert_eq!(ask.send(app.address).await.status, 200);
    let seen = raw.seen()[0].clone();
    assert!(!seen.head.contains("callers"), "{}", seen.head);
    assert!(seen.text().contains(r#""model":"big""#), "{}", seen.text());
    for (name, value) in [
        ("x-request-id", "id-1"),
        ("traceparent", "00-1-2-01"),
        ("tracestate", "a=b"),
        ("openai-beta", "assistants=v2"),
        ("user-agent", "sdk/1"),
        ("accept", "application/json"),
        ("content-type", "application/json"),
        ("host", &raw.address.to_string()),
    ] {
        assert_eq!(seen.header(name), Some(value), "{name}");
    }
    seen
}

fn target(seen: &Seen) -> &str {
    seen.head.split(' ').nth(1).unwrap()
}

#[tokio::test]
async fn each_kind_gets_its_path_and_its_own_credential() {
    const CHAT: &str = "/v1/chat/completions";
    for (kind, base, version, path, wanted) in [
        (Kind::OpenAi, "", None, CHAT, CHAT),
        (Kind::Vllm, "/x", None, CHAT, "/x/v1/chat/completions"),
        (Kind::Sglang, "", None, "/v1/embeddings", "/v1/embeddings"),
        (Kind::Azure, "", None, CHAT, "/openai/v1/chat/completions"),
        (Kind::Azure, "/openai", None, CHAT, "/openai/v1/chat/completions"),
        (
            Kind::Azure,
            "",
            Some("2024-10-21"),
            CHAT,
            "/openai/deployments/big/chat/completions?api-version=2024-10-21",
        ),
        (Kind::Anthropic, "", None, CHAT, CHAT),
    ] {
        let seen = seen(path, |endpoint| {
            endpoint.kind = kind;
            endpoint.base_path = base.to_owned();
            endpoint.api_version = version.map(str::to_owned);
        })
        .await;
        assert_eq!(target(&seen), wanted, "{kind:?}");
        let shown = ["authorization", "api-key", "x-api-key"].map(|name| seen.header(name));
        let wanted = match kind {
            Kind::OpenAi | Kind::Vllm | Kind::Sglang => [Some("Bearer ours"), None, None],
            Kind::Azure => [None, Some("ours"), None],
            Kind::Anthropic => [None, None, Some("ours")],
        };
        assert_eq!(shown, wanted, "{kind:?}");
        let is_anthropic = kind == Kind::Anthropic;
        let version = seen.header("anthropic-version");
        assert_eq!(version, is_anthropic.then_some("2024-01-01"), "{kind:?}");
        assert_eq!(seen.header("anthropic-beta"), is_anthropic.then_some("one"), "{kind:?}");
    }
}
