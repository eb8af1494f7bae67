//! The routes of the configuration, over a gateway that was started from a file.

use serde_json::{Value, json};

use crate::desk::{Ask, READ};
use crate::process::{Gateway, TOKEN, until};
use crate::schema::complaints;

/// The schema of a good answer.
fn schema<'a>(document: &'a Value, path: &str, method: &str) -> &'a Value {
    &document["paths"][path][method]["responses"]["200"]["content"]["application/json"]["schema"]
}

#[tokio::test]
async fn the_configuration_is_shown_checked_and_read_again_as_documented() {
    let directory = tempfile::tempdir().unwrap();
    let yaml = format!(
        "server: {{ listen: 127.0.0.1:0, workers: 1 }}
admin: {{ listen: 127.0.0.1:0, token: {TOKEN}, read_token: {READ} }}
log: {{ format: json, level: info }}
models: [ {{ name: demo, endpoints: [ {{ name: a, address: \"http://127.0.0.1:9\" }} ] }} ]
"
    );
    let gateway = Gateway::serve(directory.path(), "settings", &yaml);
    let to = gateway.operators;
    let ask = |method: &str, path: &str| Ask::new(method, path).token(TOKEN);
    let document = ask("GET", "/admin/v1/openapi.json").send_to(to).await.json();
    let holds = |path: &str, method: &str, answer: &Value| {
        let found = complaints(&document, schema(&document, path, method), answer);
        assert!(found.is_empty(), "{path}: {found:#?} {answer}");
    };
    let (config, check, reload) =
        ("/admin/v1/config", "/admin/v1/config/check", "/admin/v1/config/reload");

    let told = ask("GET", config).send_to(to).await;
    assert!(!told.text.contains(TOKEN) && !told.text.contains(READ), "{}", told.text);
    let told = told.json();
    holds(config, "get", &told);
    assert_eq!(told["last_error"], Value::Null);

    let more = format!("# another\n{yaml}").replace("name: a,", "name: z,");
    let checked = ask("POST", check).body(&more).send_to(to).await.json();
    holds(check, "post", &checked);
    assert_ne!(checked["hash"], told["hash"]);
    let refused = ask("POST", check).body("models: 7").send_to(to).await;
    assert_eq!(refused.refused(), (400, "invalid_config".to_owned()));

    let unchanged = ask("POST", reload).send_to(to).await.json();
    holds(reload, "post", &unchanged);
    assert_eq!(unchanged["changed"], false);
    std::fs::write(directory.path().join("settings.yaml"), &more).unwrap();
    let changed = ask("POST", reload).send_to(to).await.json();
    holds(reload, "post", &changed);
    assert_eq!(changed["endpoints"]["added"], json!(["demo/z"]));
    std::fs::write(directory.path().join("settings.yaml"), "models: 7").unwrap();
    let refused = ask("POST", reload).send_to(to).await;
    assert_eq!(refused.refused(), (409, "invalid_config".to_owned()));
    let told = ask("GET", config).send_to(to).await.json();
    holds(config, "get", &told);
    assert!(told["last_error"]["message"].as_str().unwrap().contains("models"), "{told}");

    let events = ask("GET", "/admin/v1/events?since=0&until=now").send_to(to).await.text;
    assert_eq!(events.matches("\"operation\":\"reload\"").count(), 3, "{events}");
    assert!(events.contains("the configuration is another"), "{events}");
    assert!(!events.contains("\"operation\":\"check\""), "{events}");
    until("both checks are written down", async || {
        let lines = gateway.log();
        let checks = lines.iter().filter(|line| line.contains("\"operation\":\"check\""));
        checks.filter(|line| line.contains("\"target\":\"audit\"")).count() == 2
    })
    .await;
}
