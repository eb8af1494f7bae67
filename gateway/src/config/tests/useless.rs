//! What is refused because another setting leaves it without any effect, and what is left to stand.
//!
//! Somebody relies on whatever is written. A default that has no effect is nobody's wish and stays
//! silent.

use super::refused::{refused, refused_before};
use super::*;

#[test]
fn a_list_adds_to_the_table_and_does_not_empty_it() {
    for (head, capacity, credential) in [
        ("{capacity_status_codes: [503]}", vec![503, 429], vec![401, 403]),
        ("{credential_status_codes: [407]}", vec![429], vec![407, 401, 403]),
        ("{neutral_status_codes: [401], fault_status_codes: [429]}", vec![], vec![403]),
    ] {
        let config = parsed(&format!("circuit_breaker: {head}\n{SMALLEST}"));
        let codes = &config.pools[0].endpoints[0].codes;
        assert_eq!((&codes.capacity, &codes.credential), (&capacity, &credential), "{head}");
        assert_eq!(parsed(&config.effective_yaml()), config, "{head}");
    }
    let many: Vec<String> = (500..532).map(|code| code.to_string()).collect();
    let many = many.join(", ");
    let said =
        refusal(&format!("circuit_breaker: {{capacity_status_codes: [{many}]}}\n{SMALLEST}"));
    assert!(said.contains("with those that no list names these are 33; use at most 32"), "{said}");
}

#[test]
fn a_pause_after_what_is_no_fault_is_refused_where_it_is_written() {
    for (code, problem) in [
        (429, "429 is no fault and has its pause already"),
        (401, "401 is no fault and has a pause of its own"),
        (404, "404 is no fault and is passed on as it is"),
    ] {
        refused_before(
            &format!("circuit_breaker: {{pause_status_codes: [503, {code}]}}"),
            &format!(
                "1:45: circuit_breaker.pause_status_codes[1]: {problem}; remove it, or name it in \
                 fault_status_codes"
            ),
        );
    }
    let config = parsed(&format!("circuit_breaker: {{capacity_status_codes: [503]}}\n{SMALLEST}"));
    assert_eq!(config.pools[0].endpoints[0].codes.pause, [529], "the default gives way");
}

#[test]
fn a_retry_after_what_is_a_fault_of_no_endpoint_is_refused() {
    let busy = "circuit_breaker: {capacity_status_codes: [503]}";
    refused(
        &format!("retry: {{on: [502, 503]}}\n{busy}\n{SMALLEST}"),
        "1:19: retry.on[1]: 503 is a fault of no endpoint, so that it is never retried; remove it, \
         or take it out of the list that says so",
    );
    let config = parsed(&format!("{busy}\n{SMALLEST}"));
    assert_eq!(config.retry.on.codes, [502, 529], "the default gives way");
    assert_eq!(parsed(&config.effective_yaml()), config);
    let elsewhere = "models:
  - name: m
    endpoints:
      - {name: a, address: \"http://a\"}
      - {name: b, address: \"http://b\", circuit_breaker: {capacity_status_codes: [503]}}
";
    parsed(&format!("retry: {{on: [503]}}\n{elsewhere}"));
}

#[test]
fn a_slow_limit_that_the_wait_for_the_first_byte_ends_is_refused_at_whatever_level_that_shows() {
    let never = "is never seen, timeouts.first_byte ends the request at";
    refused_before(
        "circuit_breaker: {slow: {p95: {first_token: 29s}}}\ntimeouts: {first_byte: 20s}",
        &format!(
            "1:45: circuit_breaker.slow.p95.first_token: 29s {never} 20s; use less than 20s, or set \
             timeouts.first_token"
        ),
    );
    let text = "circuit_breaker: {slow: {first_token: 20s}}
models:
  - name: m
    timeouts: {first_byte: 10s}
    endpoints: [ {name: a, address: \"http://a\"} ]
";
    refused(
        text,
        &format!(
            "4:28: models[0](m).circuit_breaker.slow.first_token: 20s {never} 10s; use at most 10s, \
             or set timeouts.first_token"
        ),
    );
    // The default is nobody's wish.
    parsed(&format!("timeouts: {{first_byte: 10s}}\n{SMALLEST}"));
    parsed(&format!(
        "circuit_breaker: {{slow: {{first_token: 10s}}}}\ntimeouts: {{first_byte: 10s}}\n{SMALLEST}"
    ));
    parsed(&format!("circuit_breaker: {{slow: {{p95: {{first_token: 29s}}}}}}\n{SMALLEST}"));
}

#[test]
fn tenants_are_bounded_over_all_endpoints_together() {
    let endpoints = |count: usize| {
        let each = |index| format!("      - {{name: e{index}, address: \"http://e{index}\"}}\n");
        let endpoints: String = (0..count).map(each).collect();
        format!(
            "circuit_breaker: {{scope: endpoint+tenant, tenant: {{header: x-a, max: 10000}}}}\n\
             models:\n  - name: m\n    endpoints:\n{endpoints}"
        )
    };
    parsed(&endpoints(10));
    refused(
        &endpoints(11),
        "3:5: models[0](m).circuit_breaker.tenant.max: with this model up to 110000 tenants are \
         remembered for all endpoints together; lower it, so that the sum is at most 100000",
    );
}
