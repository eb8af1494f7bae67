//! The imported configuration as text: every value quoted, every comment on a line of its own.

use std::fmt::Write as _;

/// A model that is served.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) name: String,
    pub(super) aliases: Vec<String>,
    pub(super) fallback: Vec<String>,
    pub(super) policy: Option<&'static str>,
    /// `timeouts.total`, in milliseconds.
    pub(super) total_millis: Option<u64>,
    /// What its probe asks, where that is no chat; empty: it has none.
    pub(super) probe: Option<&'static str>,
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) comments: Vec<String>,
}

/// Where it is served. Texts are as our file has them, variables in place.
#[derive(Debug, Default)]
pub(super) struct Endpoint {
    pub(super) name: String,
    pub(super) address: String,
    pub(super) kind: &'static str,
    pub(super) api_version: Option<String>,
    pub(super) upstream_model: Option<String>,
    pub(super) api_key: Option<String>,
    pub(super) weight: Option<f64>,
    pub(super) priority: u64,
    pub(super) rpm: Option<u64>,
    pub(super) tpm: Option<u64>,
    pub(super) concurrency: Option<u64>,
    pub(super) comments: Vec<String>,
}

/// Quotes a value.
pub(super) fn quoted(text: &str) -> String {
    // A JSON string is a YAML string.
    serde_json::Value::from(text).to_string()
}

fn quoted_list(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
    format!("[{}]", texts.join(", "))
}

/// A time, as our file writes it.
pub(super) fn time(millis: u64) -> String {
    if millis.is_multiple_of(1_000) {
        format!("{}s", millis / 1_000)
    } else {
        format!("{millis}ms")
    }
}

/// Adds `text` as comments; a line break in it cannot end them.
pub(super) fn comment(yaml: &mut String, indent: usize, text: &str) {
    let line: String = text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
    line_of(yaml, indent, &format!("# {line}"));
}

fn line_of(yaml: &mut String, indent: usize, text: &str) {
    // Writing into a string cannot fail.
    let _ = writeln!(yaml, "{:indent$}{text}", "");
}

/// Adds the models.
pub(super) fn models(yaml: &mut String, models: &[Model]) {
    line_of(yaml, 0, "models:");
    for model in models {
        for text in &model.comments {
            comment(yaml, 2, text);
        }
        line_of(yaml, 2, &format!("- name: {}", quoted(&model.name)));
        if !model.aliases.is_empty() {
            line_of(yaml, 4, &format!("aliases: {}", quoted_list(&model.aliases)));
        }
        if let Some(policy) = model.policy {
            line_of(yaml, 4, &format!("policy: {policy}"));
        }
        if !model.fallback.is_empty() {
            line_of(yaml, 4, &format!("fallback: {}", quoted_list(&model.fallback)));
        }
        if let Some(total) = model.total_millis {
            line_of(yaml, 4, &format!("timeouts: {{ total: {} }}", time(total)));
        }
        circuit(yaml, model);
        line_of(yaml, 4, "endpoints:");
        for one in &model.endpoints {
            endpoint(yaml, one);
        }
    }
}

/// A slow limit that the end of the request would never let anyone see is lowered with it.
fn circuit(yaml: &mut String, model: &Model) {
    const SLOW_TOTAL_MILLIS: u64 = 70_000;
    const SLOW_FIRST_MILLIS: u64 = 30_000;
    let mut parts = Vec::new();
    if let Some(total) = model.total_millis.filter(|total| *total <= SLOW_TOTAL_MILLIS) {
        let slow = total * 4 / 5;
        let first = SLOW_FIRST_MILLIS.min(total * 2 / 5);
        parts.push(format!("slow: {{ total: {}, first_token: {} }}", time(slow), time(first)));
    }
    match model.probe {
        Some("") => parts.push("probe: { enabled: false }".to_owned()),
        Some(route) => parts.push(format!("probe: {{ route: {route} }}")),
        None => {}
    }
    if !parts.is_empty() {
        line_of(yaml, 4, &format!("circuit_breaker: {{ {} }}", parts.join(", ")));
    }
}

fn endpoint(yaml: &mut String, endpoint: &Endpoint) {
    for text in &endpoint.comments {
        comment(yaml, 6, text);
    }
    line_of(yaml, 6, &format!("- name: {}", quoted(&endpoint.name)));
    let mut pair = |key: &str, value: String| line_of(yaml, 8, &format!("{key}: {value}"));
    pair("address", quoted(&endpoint.address));
    if endpoint.kind != "openai" {
        pair("kind", endpoint.kind.to_owned());
    }
    for (key, value) in [
        ("api_version", &endpoint.api_version),
        ("upstream_model", &endpoint.upstream_model),
        ("api_key", &endpoint.api_key),
    ] {
        if let Some(value) = value {
            pair(key, quoted(value));
        }
    }
    if let Some(weight) = endpoint.weight {
        pair("weight", format!("{weight:.0}"));
    }
    if endpoint.priority > 0 {
        pair("priority", endpoint.priority.to_string());
    }
    let limits =
        [("rpm", endpoint.rpm), ("tpm", endpoint.tpm), ("concurrency", endpoint.concurrency)];
    let limits: Vec<String> =
        limits.iter().filter_map(|(key, limit)| Some(format!("{key}: {}", (*limit)?))).collect();
    if !limits.is_empty() {
        pair("limits", format!("{{ {} }}", limits.join(", ")));
    }
}
