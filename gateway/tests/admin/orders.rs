//! Orders: what is asked for before a pool is emptied, how long they hold, and what is written down.

use quorum::Forced;
use serde_json::{Value, json};

use crate::desk::{Ask, FULL, READ, house};
use crate::local::{self, House};
use crate::process::{Gateway, TOKEN, until};

const OPEN: &str = r#"{"state":"force_open","for":"10m","reason":"it smells"}"#;
const SURE: &str = r#"{"state":"force_open","for":"10m","reason":"it smells","confirm":true}"#;
const AUTO: &str = r#"{"state":"auto"}"#;

async fn order(house: &House, endpoint: &str, body: &str) -> crate::desk::Told {
    Ask::act(&format!("endpoints/demo/{endpoint}/override"), body).send(house).await
}

#[tokio::test]
async fn m10_the_last_endpoint_of_a_pool_is_forced_out_only_by_who_means_it() {
    let house = house().await;
    assert_eq!(order(&house, "a", OPEN).await.status, 200);
    let told = order(&house, "b", OPEN).await;
    assert_eq!(told.refused(), (409, "needs_confirmation".to_owned()));
    assert!(told.text.contains("demo/b is the last endpoint of demo in rotation"), "{}", told.text);
    assert!(told.text.contains("its others are out: a"), "{}", told.text);
    // What is out already takes nothing away from anybody.
    assert_eq!(order(&house, "a", OPEN).await.status, 200);
    let told = order(&house, "b", SURE).await;
    assert_eq!(told.json(), json!({"endpoint":"demo/b","state":"force_open","for_ms":600_000}));
    // An order outranks the rule that passes requests through when all are presumed dead.
    local::until("the order holds", || house.endpoint("b").forced() == Forced::Open).await;
    let told = house.ask().await;
    assert_eq!((told.status, told.code().as_str()), (503, "circuit_open"));
    assert_eq!(order(&house, "a", AUTO).await.status, 200);
    assert_eq!(order(&house, "b", AUTO).await.json()["for_ms"], Value::Null);
}

#[tokio::test]
async fn m10_an_order_to_force_has_an_end() {
    let house = house().await;
    for body in [
        r#"{"state":"force_open"}"#,
        r#"{"state":"force_open","for":"0s"}"#,
        r#"{"state":"force_open","for":"169h"}"#,
        r#"{"state":"force_open","for":"10 minutes"}"#,
        r#"{"state":"force_open","for":-1}"#,
        r#"{"state":"shut","for":"1m"}"#,
        r#"{"state":"auto","reason":"a\nb"}"#,
        r#"{"state":"auto","why":"unknown"}"#,
        r#"{"for":"1m"}"#,
        r#"[]"#,
        r#"["force_open","1m","a list",true]"#,
        "",
    ] {
        let told = order(&house, "a", body).await;
        assert_eq!(told.refused(), (400, "invalid_order".to_owned()), "{body}");
    }
    let long = json!({"state": "auto", "reason": "x".repeat(257)}).to_string();
    assert_eq!(order(&house, "a", &long).await.status, 400);
    let short = r#"{"state":"force_open","for":"300ms","reason":"a moment"}"#;
    assert_eq!(order(&house, "a", short).await.status, 200);
    let forced = async |state: &str| {
        Ask::look("endpoints/demo/a").send(&house).await.json()["forced"] == *state
    };
    assert!(forced("force_open").await);
    until("the order ends", async || forced("auto").await).await;
}

#[tokio::test]
async fn an_order_for_what_is_not_there_says_so() {
    let house = house().await;
    for endpoint in ["zzz", "a/b", "%00", "a%2f..%2fb"] {
        let told = order(&house, endpoint, OPEN).await;
        assert_eq!(told.refused().0, 404, "{endpoint}");
    }
    for verb in ["mute", "unmute"] {
        let told = Ask::act(&format!("members/nobody/{verb}"), "").send(&house).await;
        assert_eq!(told.refused(), (404, "member_not_found".to_owned()));
    }
}

#[tokio::test]
async fn every_order_is_written_down_with_who_what_why_and_what_came_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let yaml = format!(
        "server: {{ listen: 127.0.0.1:0, workers: 1 }}
admin: {{ listen: 127.0.0.1:0, token: {TOKEN}, read_token: {READ} }}
log: {{ format: json, level: info }}
models: [ {{ name: demo, endpoints: [ {{ name: a, address: \"http://127.0.0.1:9\" }} ] }} ]
"
    );
    let gateway = Gateway::serve(directory.path(), "audited", &yaml);
    let to = gateway.operators;
    let path = "/admin/v1/endpoints/demo/a/override";
    let ask = |token: &str, body: &str| {
        Ask::new("POST", path).token(token).body(body).header("x-request-id", "of-mine")
    };
    let mut statuses = Vec::new();
    for (token, body) in [(TOKEN, SURE), (TOKEN, OPEN), (TOKEN, "{"), (READ, SURE), ("no", SURE)] {
        statuses.push(ask(token, body).send_to(to).await.status);
    }
    assert_eq!(statuses, [200, 200, 400, 403, 401]);
    let wanted = [
        ("full", "it smells", "ok"),
        ("full", "it smells", "ok"),
        ("full", "", "invalid_order"),
        ("read", "", "read_only"),
        ("none", "", "unauthorized"),
    ];
    let audits = || -> Vec<Value> {
        let lines = gateway.log();
        let events = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter(|event| event["target"] == "audit").collect()
    };
    until("all is written down", async || audits().len() == wanted.len()).await;
    for (line, (role, reason, result)) in audits().iter().zip(wanted) {
        let fields = [("role", role), ("reason", reason), ("result", result), ("path", path)];
        for (field, value) in fields.into_iter().chain([
            ("operation", "override"),
            ("address", "127.0.0.1"),
            ("request_id", "of-mine"),
        ]) {
            let written = line.get(field).or_else(|| line["fields"].get(field));
            assert_eq!(written, Some(&json!(value)), "{field}: {line}");
        }
        assert!(!line.to_string().contains(TOKEN), "{line}");
    }
    let told = Ask::new("GET", "/admin/v1/events?since=0&until=now").token(READ).send_to(to).await;
    let orders = told.text.matches("\"operation\":\"override\"").count();
    assert_eq!(orders, 3, "only who may give orders makes news: {}", told.text);
    assert!(told.text.contains("event: override\n") && !told.text.contains(FULL));
}
