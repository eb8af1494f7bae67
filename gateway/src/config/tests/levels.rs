//! Every setting of a breaker can be said for all models, for one model and for one endpoint.
//!
//! Each is given three values; what comes out at an endpoint must be what that value alone amounts to,
//! whatever was said above it.

use super::*;

/// A setting as the file writes it, with three values.
const SETTINGS: [(&str, [&str; 3]); 39] = [
    ("preset: @", ["slow_api", "critical", "self_healing"]),
    ("mode: @", ["shadow", "off", "enforce"]),
    ("failure_threshold: @", ["5", "6", "7"]),
    ("failure_ratio: @", ["0.6", "0.7", "0.8"]),
    ("window: @", ["40s", "50s", "60s"]),
    ("min_requests: @", ["7", "8", "9"]),
    ("slow: {total: @}", ["60s", "80s", "90s"]),
    ("slow: {first_token: @}", ["10s", "off", "20s"]),
    ("slow: {min_tokens_per_second: @}", ["1", "off", "3"]),
    ("slow: {dedup: @}", ["1s", "2s", "3s"]),
    ("slow: {confirmations: @}", ["1", "3", "4"]),
    ("slow: {p95: {first_token: @}}", ["5s", "off", "7s"]),
    ("slow: {p95: {total: @}}", ["15s", "off", "17s"]),
    ("slow: {relative: @}", ["2", "off", "4"]),
    ("open: {base: @}", ["1s", "2s", "3s"]),
    ("open: {max: @}", ["60s", "61s", "62s"]),
    ("open: {reset_after: @}", ["1m", "2m", "3m"]),
    ("recovery: lazy, open: {ttl: @}", ["1s", "2s", "3s"]),
    ("recovery: @", ["lazy", "staged", "lazy"]),
    ("ramp: {duration: @}", ["0s", "10s", "20s"]),
    ("half_open: {max_requests: @}", ["2", "3", "4"]),
    ("half_open: {max_prompt_tokens: @}", ["2", "3", "4"]),
    ("half_open: {successes: @}", ["2", "3", "4"]),
    ("half_open: {share: @}", ["0.2", "0.3", "0.4"]),
    ("half_open: {deadline: @}", ["100s", "110s", "120s"]),
    ("probe: {enabled: @}", ["false", "true", "false"]),
    ("probe: {route: @}", ["completions", "embeddings", "chat"]),
    ("probe: {first_token: @}", ["1s", "2s", "3s"]),
    ("probe: {max_tokens: @}", ["1", "2", "3"]),
    ("probe: {prompt: @}", ["one", "two", "three"]),
    ("probe: {cache_usage_max: @}", ["0.5", "off", "0.7"]),
    ("probe: {metrics_path: @}", ["/a", "/b", "/c"]),
    ("fault_status_codes: @", ["[408]", "[]", "[409]"]),
    ("neutral_status_codes: @", ["[501]", "[]", "[505]"]),
    ("capacity_status_codes: @", ["[503]", "[]", "[529]"]),
    ("credential_status_codes: @", ["[402]", "[]", "[407]"]),
    ("pause_status_codes: @", ["[503]", "[]", "[529]"]),
    ("scope: endpoint+tenant, tenant: {header: @}", ["x-a", "x-b", "x-c"]),
    ("scope: endpoint+tenant, tenant: {header: x-a, max: @}", ["1", "2", "3"]),
];

/// What the settings of a breaker amount to at an endpoint.
fn amounts_to(endpoint: &Endpoint) -> String {
    let Endpoint { rule, probe, codes, tenants, .. } = endpoint;
    format!("{rule:?} {probe:?} {codes:?} {tenants:?}")
}

#[test]
fn every_setting_can_be_said_at_each_of_the_three_levels() {
    for (setting, values) in SETTINGS {
        let said = values.map(|value| format!("{{{}}}", setting.replace('@', value)));
        let [top, model, endpoint] = &said;
        let text = format!(
            "circuit_breaker: {top}
models:
  - name: n
    endpoints: [{{name: a, address: \"http://a\", kind: vllm}}]
  - name: m
    circuit_breaker: {model}
    endpoints:
      - {{name: a, address: \"http://a\", kind: vllm}}
      - {{name: b, address: \"http://b\", kind: vllm, circuit_breaker: {endpoint}}}
"
        );
        let config = parsed(&text);
        let [top, model, endpoint] = said.map(|said| {
            let alone = parsed(&format!(
                "circuit_breaker: {said}\nmodels: [{{name: m, endpoints: [{{name: a, address: \
                 \"http://a\", kind: vllm}}]}}]\n"
            ));
            amounts_to(&alone.pools[0].endpoints[0])
        });
        let (n, m) = (&config.pools[0].endpoints, &config.pools[1].endpoints);
        assert_eq!(amounts_to(&n[0]), top, "for all: {setting}");
        assert_eq!(amounts_to(&m[0]), model, "for a model: {setting}");
        assert_eq!(amounts_to(&m[1]), endpoint, "for an endpoint: {setting}");
        assert!(top != model && model != endpoint, "{setting}: the values differ");
        assert_eq!(parsed(&config.effective_yaml()), config, "{setting}");
    }
}
