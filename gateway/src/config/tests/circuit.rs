//! The way back of a circuit, its optional limits, and what an endpoint is asked beside them.
//!
//! These keys depend on each other: one that has no use beside another is refused, because somebody
//! would rely on it.

use std::path::PathBuf;

use breaker::{Mode, P95Rule, Recovery, Rule};

use super::refused::{refused, refused_before};
use super::*;

/// The rule of the one endpoint of the smallest configuration behind `circuit`.
fn rule_with(circuit: &str) -> Rule {
    let config = parsed(&format!("circuit_breaker: {circuit}\n{SMALLEST}"));
    assert_eq!(parsed(&config.effective_yaml()), config, "{circuit}");
    config.pools[0].endpoints[0].rule.clone()
}

/// The one endpoint with more keys.
fn endpoint_with(keys: &str) -> Endpoint {
    let config = parsed(&model(keys, ""));
    assert_eq!(parsed(&config.effective_yaml()), config, "{keys}");
    config.pools[0].endpoints[0].clone()
}

fn staged(probe: bool, ramp: u64) -> Recovery {
    Recovery::Staged { probe, ramp: Duration::from_secs(ramp) }
}

fn lazy(ttl: u64) -> Recovery {
    Recovery::Lazy { ttl: Duration::from_secs(ttl) }
}

#[test]
fn the_way_back_is_the_ladder_unless_told_otherwise() {
    assert_eq!(rule_with("{}").recovery, staged(true, 60));
    assert_eq!(rule_with("{recovery: staged, ramp: {duration: 0s}}").recovery, staged(true, 0));
    assert_eq!(rule_with("{recovery: lazy}").recovery, lazy(45));
    assert_eq!(rule_with("{recovery: lazy, open: {ttl: 30s}}").recovery, lazy(30));
}

#[test]
fn the_ladder_begins_with_the_probe_of_the_model() {
    assert_eq!(rule_with("{probe: {enabled: false}}").recovery, staged(false, 60));
    assert_eq!(
        rule_with("{preset: critical, probe: {enabled: false}}").recovery,
        staged(false, 60)
    );
    let text = "circuit_breaker: {probe: {enabled: false}}
models:
  - name: m
    circuit_breaker: {probe: {enabled: true}}
    endpoints: [{name: a, address: \"http://a\", circuit_breaker: {preset: critical}}]
  - name: n
    endpoints: [{name: a, address: \"http://a\", circuit_breaker: {preset: critical}}]
";
    let config = parsed(text);
    let ways = [0, 1].map(|pool: usize| config.pools[pool].endpoints[0].rule.recovery);
    assert_eq!(ways, [staged(true, 60), staged(false, 60)]);
}

#[test]
fn each_level_goes_its_own_way_back() {
    let text = "circuit_breaker: {recovery: lazy, open: {ttl: 20s}}
models:
  - name: m
    circuit_breaker: {window: 40s}
    endpoints:
      - {name: a, address: \"http://a\"}
      - {name: b, address: \"http://b\", circuit_breaker: {open: {ttl: 10s}}}
      - name: c
        address: \"http://c\"
        circuit_breaker: {recovery: staged, ramp: {duration: 10s}}
      - {name: d, address: \"http://d\", circuit_breaker: {preset: critical}}
";
    let config = parsed(text);
    let found: Vec<Recovery> =
        config.pools[0].endpoints.iter().map(|endpoint| endpoint.rule.recovery).collect();
    assert_eq!(found, [lazy(20), lazy(10), staged(true, 10), staged(true, 60)]);
    assert_eq!(parsed(&config.effective_yaml()), config);
}

#[test]
fn a_preset_does_not_arm_a_breaker_that_is_only_watched() {
    let watched = format!(
        "circuit_breaker: {{mode: shadow}}\n{}",
        model(", circuit_breaker: {mode: off}", "    circuit_breaker: {preset: critical}\n")
    );
    let config = parsed(&watched.replace(", circuit_breaker: {mode: off}", ""));
    let rule = &config.pools[0].endpoints[0].rule;
    assert_eq!((rule.mode, rule.failure_threshold), (Mode::Shadow, 2));
    let config = parsed(&watched);
    assert_eq!(config.pools[0].endpoints[0].rule.mode, Mode::Off);
    assert_eq!(parsed(&config.effective_yaml()), config);
}

#[test]
fn an_optional_limit_is_set_where_it_is_named_and_off_where_it_is_off() {
    let limits = "{slow: {min_tokens_per_second: 2.5, relative: 3, p95: {first_token: 8s}}}";
    let slow = rule_with(limits).slow;
    assert_eq!(slow.min_tokens_per_second, Some(2.5));
    assert_eq!(slow.relative, Some(3.0));
    let first_token = Some(Duration::from_secs(8));
    assert_eq!(slow.p95, Some(P95Rule { first_token, total: None }));
    for off in [
        "{slow: {p95: {}}}",
        "{slow: {min_tokens_per_second: off, relative: off, p95: {first_token: off, total: off}}}",
    ] {
        assert_eq!(rule_with(off), Rule::default(), "{off}");
    }

    let below =
        "    circuit_breaker: {slow: {relative: off, p95: {first_token: off, total: 50s}}}\n";
    let config = parsed(&format!("circuit_breaker: {limits}\n{}", model("", below)));
    let slow = &config.pools[0].endpoints[0].rule.slow;
    let total = Some(Duration::from_secs(50));
    assert_eq!(slow.p95, Some(P95Rule { first_token: None, total }));
    assert_eq!((slow.min_tokens_per_second, slow.relative), (Some(2.5), None));
}

#[test]
fn a_share_of_canaries_reads_back_however_small() {
    assert_eq!(rule_with("{half_open: {share: 1}}").half_open.share, 1.0);
    assert_eq!(rule_with("{half_open: {share: 0.0000001}}").half_open.share, 1e-7);
}

#[test]
fn a_setting_of_the_other_way_back_is_refused() {
    refused_before(
        "circuit_breaker: {open: {ttl: 45s}}",
        "1:31: circuit_breaker.open.ttl: recovery: staged has no use for it; remove it or write \
         recovery: lazy",
    );
    refused_before(
        "circuit_breaker: {recovery: lazy, ramp: {duration: 0s}}",
        "1:52: circuit_breaker.ramp.duration: recovery: lazy has no use for it; remove it or \
         write recovery: staged",
    );
    let endpoint = ", circuit_breaker: {preset: critical, open: {ttl: 45s}}";
    let said = refusal(&format!("circuit_breaker: {{recovery: lazy}}\n{}", model(endpoint, "")));
    assert!(said.contains("(a).circuit_breaker.open.ttl: recovery: staged has no use"), "{said}");
}

#[test]
fn an_unknown_mode_or_way_back_is_refused_with_the_nearest() {
    refused_before(
        "circuit_breaker: {mode: shadwo}",
        "1:25: circuit_breaker.mode: \"shadwo\" is not known; did you mean \"shadow\"?",
    );
    refused_before(
        "circuit_breaker: {recovery: stepwise}",
        "1:29: circuit_breaker.recovery: \"stepwise\" is not known; known here: staged, lazy",
    );
}

#[test]
fn an_optional_limit_that_cannot_work_is_refused_where_it_is_written() {
    for (head, expected) in [
        (
            "{slow: {min_tokens_per_second: 0}}",
            "1:49: circuit_breaker.slow.min_tokens_per_second: \"0\" cannot work; write a rate \
             above 0 and at most 100000, for example 5",
        ),
        (
            "{slow: {relative: 1}}",
            "1:36: circuit_breaker.slow.relative: \"1\" cannot work; write a multiple above 1 and \
             at most 100, for example 3",
        ),
        (
            "{slow: {relative: fast}}",
            "1:36: circuit_breaker.slow.relative: \"fast\" is not a number; write it like 0.5",
        ),
        (
            "{slow: {p95: {total: 70s}}}",
            "1:39: circuit_breaker.slow.p95.total: \"70s\" cannot work; make it less than \
             slow.total (70s)",
        ),
        (
            "{slow: {p95: off}}",
            "1:31: circuit_breaker.slow.p95: this must be a mapping of keys to values; write it so",
        ),
        (
            "{half_open: {share: 5}}",
            "1:38: circuit_breaker.half_open.share: \"5\" cannot work; write a share above 0 and \
             at most 1, for example 0.05",
        ),
        (
            "{ramp: {duration: 25h}}",
            "1:36: circuit_breaker.ramp.duration: \"25h\" is out of range; use 0s to 24h",
        ),
    ] {
        refused_before(&format!("circuit_breaker: {head}"), expected);
    }
}

#[test]
fn a_p95_no_request_can_cross_is_refused() {
    let circuit = "circuit_breaker: {slow: {first_token: off, p95: {first_token: 40s}}}";
    refused_before(
        &format!("{circuit}\ntimeouts: {{first_token: 40s}}"),
        "1:63: circuit_breaker.slow.p95.first_token: 40s is never seen, timeouts.first_token ends \
         the request at 40s; set it below 40s or raise timeouts.first_token",
    );
    refused_before(
        &circuit.replace("40s", "10m"),
        "1:63: circuit_breaker.slow.p95.first_token: 10m is never seen, timeouts.first_byte ends \
         the request at 30s; use less than 30s, or set timeouts.first_token",
    );
}

#[test]
fn the_state_is_kept_where_it_is_told() {
    let found = parsed(&format!("state: {{file: state.bin}}\n{SMALLEST}"));
    let (path, every) = (PathBuf::from("state.bin"), Duration::from_secs(5));
    assert_eq!(found.state, Some(StateFile { path, every }));
    assert_eq!(parsed(&found.effective_yaml()), found);

    refused_before(
        "state: {every: 5s}",
        "1:8: state.file: is missing; write the file the circuits are kept in, or remove the \
         section",
    );
    for file in ["/var/lib/", "..", "/"] {
        refused_before(
            &format!("state: {{file: {file}}}"),
            &format!(
                "1:15: state.file: \"{file}\" is no file; write a path with the name of a file at \
                 its end"
            ),
        );
    }
    for every in ["999ms", "2h"] {
        refused_before(
            &format!("state: {{file: a, every: {every}}}"),
            &format!("1:25: state.every: \"{every}\" is out of range; use 1s to 1h"),
        );
    }
}

#[test]
fn an_endpoint_is_asked_for_its_health_as_told() {
    let health = |keys: &str| {
        let found = endpoint_with(keys).health.unwrap();
        (found.path, found.interval.as_millis(), found.timeout.as_millis())
    };
    assert_eq!(health(", health_path: /health"), ("/health".to_owned(), 5_000, 2_000));
    assert_eq!(health(", health_path: /, health_interval: 2s"), ("/".to_owned(), 2_000, 500));
    let all = ", health_path: /a/b/, health_interval: 1h, health_timeout: 59m";
    assert_eq!(health(all), ("/a/b/".to_owned(), 3_600_000, 3_540_000));
    assert_eq!(endpoint_with("").health, None);
}

#[test]
fn a_question_for_health_that_cannot_work_is_refused() {
    let start = "models[0](m).endpoints[0](a)";
    for path in ["/a b", "/a//b", "//", "/../a", "/a?b", "/é"] {
        refused(
            &model(&format!(", health_path: \"{path}\""), ""),
            &format!(
                "4:55: {start}.health_path: \"{path}\" is not a plain path; use at most 256 \
                 letters, digits and -._~ between single slashes, as in /health"
            ),
        );
    }
    refused(
        &model(", health_path: health", ""),
        &format!(
            "4:55: {start}.health_path: \"health\" does not begin with /; write it like /health"
        ),
    );
    let missing = "without health_path nothing is asked; write health_path as well, for example \
                   /health, or remove it";
    for (keys, place) in [
        (", health_interval: 5s", "4:59: models[0](m).endpoints[0](a).health_interval"),
        (", health_timeout: 5s", "4:58: models[0](m).endpoints[0](a).health_timeout"),
    ] {
        refused(&model(keys, ""), &format!("{place}: {missing}"));
    }
    refused(
        &model(", health_path: /h, health_timeout: 5s", ""),
        &format!(
            "4:75: {start}.health_timeout: 5s is not over when health_interval (5s) is; use less \
             than 5s or raise health_interval"
        ),
    );
    refused(
        &model(", health_path: /h, health_interval: 500ms", ""),
        &format!("4:76: {start}.health_interval: \"500ms\" is out of range; use 1s to 1h"),
    );
}

/// The lists of the one endpoint of the smallest configuration behind `circuit`.
fn codes_with(circuit: &str) -> StatusCodes {
    let config = parsed(&format!("circuit_breaker: {circuit}\n{SMALLEST}"));
    assert_eq!(parsed(&config.effective_yaml()), config, "{circuit}");
    config.pools[0].endpoints[0].codes.clone()
}

#[test]
fn a_status_that_a_list_claims_leaves_the_inherited_lists() {
    assert_eq!(codes_with("{}"), StatusCodes::default());
    let codes = codes_with("{fault_status_codes: [429, 408], capacity_status_codes: [503]}");
    assert_eq!((codes.fault, codes.capacity), (vec![429, 408], vec![503]));
    let codes = codes_with("{fault_status_codes: [429, 403], pause_status_codes: []}");
    assert_eq!((codes.capacity, codes.credential), (vec![], vec![401]));
    assert_eq!((codes.fault, codes.pause), (vec![429, 403], vec![]));
    let text = "circuit_breaker: {capacity_status_codes: [429, 503]}
models:
  - name: m
    circuit_breaker: {neutral_status_codes: [503]}
    endpoints:
      - {name: a, address: \"http://a\"}
      - {name: b, address: \"http://b\", circuit_breaker: {fault_status_codes: [429]}}
";
    let config = parsed(text);
    let class = |index: usize, code| config.pools[0].endpoints[index].codes.class(code);
    assert_eq!(
        [429, 503].map(|code| class(0, code)),
        [StatusClass::Capacity, StatusClass::Neutral]
    );
    assert_eq!([429, 503].map(|code| class(1, code)), [StatusClass::Fault, StatusClass::Neutral]);
    assert_eq!(parsed(&config.effective_yaml()), config);
}

#[test]
fn a_list_of_statuses_that_contradicts_itself_or_another_is_refused() {
    for (head, expected) in [
        (
            "{capacity_status_codes: [429, 200]}",
            "1:48: circuit_breaker.capacity_status_codes[1]: \"200\" is out of range; use 400 to \
             599",
        ),
        (
            "{fault_status_codes: [429], capacity_status_codes: [429]}",
            "1:70: circuit_breaker.capacity_status_codes[0]: 429 stands in fault_status_codes \
             already; keep it in the one list that says what it means",
        ),
        (
            "{neutral_status_codes: [501, 501]}",
            "1:47: circuit_breaker.neutral_status_codes[1]: 501 stands in neutral_status_codes \
             already; keep it in the one list that says what it means",
        ),
    ] {
        refused_before(&format!("circuit_breaker: {head}"), expected);
    }
    let many = (400..433).map(|code| code.to_string()).collect::<Vec<_>>().join(", ");
    let said = refusal(&format!("circuit_breaker: {{fault_status_codes: [{many}]}}\n{SMALLEST}"));
    assert!(said.contains("has more than 32 entries"), "{said}");
}

#[test]
fn what_is_asked_again_is_a_list_of_its_own() {
    let on = |head: &str| {
        let config = parsed(&format!("{head}\n{SMALLEST}"));
        assert_eq!(parsed(&config.effective_yaml()), config, "{head}");
        (config.retry.on.refused, config.retry.on.codes)
    };
    assert_eq!(on(""), (true, vec![502, 503, 529]));
    assert_eq!(on("retry: {on: []}"), (false, vec![]));
    assert_eq!(on("retry: {on: [refused, 500]}"), (true, vec![500]));
    for wrong in ["429", "timeout"] {
        refused_before(
            &format!("retry: {{on: [{wrong}]}}"),
            &format!(
                "1:14: retry.on[0]: \"{wrong}\" is no failure to retry on; write refused, or a \
                 status of 500 to 599"
            ),
        );
    }
}

#[test]
fn a_probe_may_differ_at_each_level_and_must_fit_its_server() {
    let text = "circuit_breaker: {probe: {max_tokens: 2}}
models:
  - name: m
    circuit_breaker: {probe: {prompt: hi}}
    endpoints:
      - {name: a, address: \"http://a\"}
      - name: b
        address: \"http://b\"
        kind: vllm
        circuit_breaker: {probe: {cache_usage_max: 0.75, metrics_path: /m, enabled: true}}
      - {name: c, address: \"http://c\", circuit_breaker: {probe: {enabled: false}}}
";
    let config = parsed(text);
    let [a, b, c] = [0, 1, 2].map(|index: usize| config.pools[0].endpoints[index].clone());
    assert_eq!((a.kind, a.probe.max_tokens, a.probe.prompt.as_str()), (Kind::OpenAi, 2, "hi"));
    assert_eq!((b.kind, b.probe.cache_usage_max, b.probe.max_tokens), (Kind::Vllm, Some(0.75), 2));
    assert_eq!((b.probe.metrics_path.as_str(), a.probe.cache_usage_max), ("/m", None));
    assert_eq!((a.rule.recovery, c.rule.recovery), (staged(true, 60), staged(false, 60)));
    assert_eq!(parsed(&config.effective_yaml()), config);

    for (keys, said) in [
        (", circuit_breaker: {probe: {cache_usage_max: 0.75}}", "of kind openai shows no use"),
        (", kind: vllm, circuit_breaker: {probe: {cache_usage_max: 75}}", "75 is no share"),
        (", kind: vllm, circuit_breaker: {probe: {cache_usage_max: 0}}", "0 is no share"),
        (", kind: anthropic, circuit_breaker: {probe: {route: completions}}", "has no such route"),
        (", circuit_breaker: {probe: {first_token: 90s}}", "1m30s is never reached"),
        (", circuit_breaker: {probe: {metrics_path: metrics}}", "does not begin with /"),
        (", kind: tgi", "\"tgi\" is not known; known here: openai, anthropic, azure, vllm, sglang"),
    ] {
        let refusal = refusal(&model(keys, ""));
        assert!(refusal.contains(said), "{keys}: {refusal}");
    }
}

#[test]
fn each_level_says_whose_breaker_it_is() {
    let text = "circuit_breaker: {scope: endpoint+tenant, tenant: {header: x-tenant-id}}
models:
  - name: m
    circuit_breaker: {tenant: {max: 7}}
    endpoints:
      - {name: a, address: \"http://a\"}
      - {name: b, address: \"http://b\", circuit_breaker: {scope: endpoint}}
      - {name: c, address: \"http://c\", circuit_breaker: {tenant: {header: x-agent-id}}}
";
    let config = parsed(text);
    let scope = |header: &str| Some(TenantScope { header: header.to_owned(), most: 7 });
    let found: Vec<_> =
        config.pools[0].endpoints.iter().map(|endpoint| endpoint.tenants.clone()).collect();
    assert_eq!(found, [scope("x-tenant-id"), None, scope("x-agent-id")]);
    assert_eq!(parsed(&config.effective_yaml()), config);

    for (head, said) in [
        ("{scope: endpoint+tenant}", "tenant.header: is missing; write the header"),
        ("{scope: tenant}", "is not known; known here: endpoint, endpoint+tenant"),
        ("{tenant: {header: x-a}}", "tenant: scope: endpoint has no use for it"),
        ("{scope: endpoint+tenant, tenant: {header: authorization}}", "holds a credential"),
        ("{scope: endpoint+tenant, tenant: {header: x-a, max: 0}}", "use 1 to 10000"),
        ("{scope: endpoint+tenant, tenant: {header: x-a, max: 10001}}", "use 1 to 10000"),
        ("{scope: endpoint+tenant, tenant: {header: X-A}}", "has capital letters"),
    ] {
        let refusal = refusal(&format!("circuit_breaker: {head}\n{SMALLEST}"));
        assert!(refusal.contains(said), "{head}: {refusal}");
    }
}

#[test]
fn what_another_setting_makes_useless_is_refused() {
    refused_before(
        "retry: {max_attempts: 1, on: [503]}",
        "1:30: retry.on: one attempt leaves nothing for it; remove it or raise max_attempts",
    );
    let once = parsed(&format!("retry: {{max_attempts: 1}}\n{SMALLEST}"));
    assert_eq!((once.retry.max_attempts, once.retry.on.codes.len()), (1, 0));
    assert_eq!(parsed(&once.effective_yaml()), once);
    refused_before(
        "circuit_breaker: {slow: {first_token: 40s}}",
        "1:39: circuit_breaker.slow.first_token: 40s is never seen, timeouts.first_byte ends the \
         request at 30s; use at most 30s, or set timeouts.first_token",
    );
    rule_with("{slow: {first_token: 30s}}");
}
