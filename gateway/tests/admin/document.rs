//! The document that describes the API tells the truth: real answers are what it says they are.

use serde_json::{Value, json};

use crate::desk::{Ask, FULL, READ, house};
use crate::local::House;
use crate::schema::complaints;

async fn document(house: &House) -> Value {
    Ask::look("openapi.json").send(house).await.json()
}

/// What the document says of an answer with this status.
fn described<'a>(document: &'a Value, path: &str, method: &str, status: u16) -> &'a Value {
    let responses = &document["paths"][path][method]["responses"];
    let response = &responses[status.to_string()];
    assert!(response.is_object(), "{method} {path} does not tell of {status}");
    &response["content"]
}

/// Asks and holds the answer against the document.
async fn holds(document: &Value, house: &House, method: &str, path: &str, ask: Ask) -> u16 {
    let told = ask.send(house).await;
    let content = described(document, path, method, told.status);
    let kind = told.header("content-type").split(';').next().unwrap().to_owned();
    let schema = &content[&kind]["schema"];
    assert!(schema.is_object() || schema == &json!(true), "{method} {path} {kind}: {content}");
    if kind == "application/json" {
        let found = complaints(document, schema, &told.json());
        assert!(found.is_empty(), "{method} {path} {}: {found:#?}", told.status);
    }
    told.status
}

#[tokio::test]
async fn every_answer_is_what_the_document_says() {
    let house = house().await;
    let document = document(&house).await;
    assert_eq!(document["openapi"], "3.1.0");
    let order = r#"{"state":"force_open","for":"10m","reason":"why not"}"#;
    assert_eq!(Ask::act("endpoints/demo/a/override", order).send(&house).await.status, 200);
    let mut seen = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        let filled = |pool: &str, name: &str, id: &str| {
            path.replace("{pool}", pool).replace("{name}", name).replace("{id}", id)
        };
        let body = match path.as_str() {
            "/admin/v1/join" => r#"{"seeds":["127.0.0.1:7946"]}"#,
            path if path.contains("/members/") => r#"{"reason":"why not"}"#,
            _ => order,
        };
        for method in methods.as_object().unwrap().keys() {
            let ask = |path: &str| Ask::new(&method.to_uppercase(), path);
            let is_feed = path.ends_with("/events");
            let good = filled("demo", "a", "single") + if is_feed { "?until=now" } else { "" };
            let mut asks = vec![
                ask(&good).token(FULL).body(body),
                ask(&good).token(READ),
                ask(&filled("demo", "a", "single")),
                ask(&format!("{}?no-such=1", filled("demo", "a", "single"))).token(FULL),
                ask(&good).token(FULL).body("{"),
            ];
            if !is_feed {
                asks.push(ask(&filled("no", "such", "thing")).token(FULL).body(body));
            }
            for ask in asks {
                holds(&document, &house, method, path, ask).await;
                seen += 1;
            }
        }
    }
    assert!(seen >= 60, "{seen}");
}

#[tokio::test]
async fn the_document_is_whole() {
    let house = house().await;
    let document = document(&house).await;
    let text = document.to_string();
    for piece in text.split("\"$ref\":\"#").skip(1) {
        let pointer = piece.split('"').next().unwrap();
        assert!(document.pointer(pointer).is_some(), "{pointer} leads nowhere");
    }
    let mut ids = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let summary = operation["summary"].as_str().unwrap();
            assert!(summary.ends_with('.') && summary.len() > 10, "{method} {path}: {summary}");
            ids.push(operation["operationId"].as_str().unwrap().to_owned());
        }
    }
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "{ids:?}");
}

#[tokio::test]
async fn what_may_be_left_out_of_an_order_is_not_demanded() {
    let house = house().await;
    let document = document(&house).await;
    assert_eq!(document["components"]["schemas"]["Order"]["required"], json!(["state"]));
    let whoami = &document["components"]["schemas"]["Whoami"]["required"];
    assert_eq!(whoami, &json!(["role", "node"]));
}
