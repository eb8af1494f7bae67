//! What is refused about the ways to clients and endpoints, and about what comes after a failure.

use super::refused::{refused, refused_before};
use super::*;

/// A model with one endpoint at `address` of which `keys` are said as well.
fn at(address: &str, keys: &str) -> String {
    format!("models: [{{name: m, endpoints: [\n  {{name: a, address: \"{address}\"{keys}}}]}}]\n")
}

#[test]
fn a_certificate_without_its_key_is_refused() {
    let cure = "name cert and key, the files of a certificate chain and its key";
    for (tls, key) in [("{cert: a}", "key"), ("{key: a}", "cert"), ("{}", "cert")] {
        refused_before(
            &format!("server: {{tls: {tls}}}"),
            &format!("1:15: server.tls.{key}: is missing; {cure}"),
        );
    }
    refused_before(
        "server: {tls: {cert: /etc/tls/, key: b}}",
        "1:22: server.tls.cert: \"/etc/tls/\" is no file; write a path with the name of a file at its \
         end",
    );
    for (one, other) in [("cert", "key"), ("key", "cert")] {
        refused(
            &at("https://h", &format!(", tls: {{{one}: a}}")),
            &format!(
                "2:{}: models[0](m).endpoints[0](a).tls.{one}: it proves nothing without {other}; \
                 name {other} as well, or remove it",
                43 + one.len()
            ),
        );
    }
}

#[test]
fn tls_at_an_address_in_the_clear_is_refused() {
    for tls in ["{}", "{ca: own.crt}"] {
        refused(
            &at("http://h", &format!(", tls: {tls}")),
            "2:39: models[0](m).endpoints[0](a).tls: the address is http, where there is no TLS; \
             write https or remove it",
        );
    }
    let config = parsed(&at("https://h", ", tls: {}"));
    assert_eq!(config, parsed(&at("https://h:443", "")), "an empty section is the default");
    assert_ne!(config.hash(), parsed(&at("http://h:443", "")).hash());
    let both = "models: [{name: m, endpoints: [{name: a, address: \"http://h:1\"}, {name: b, \
                address: \"https://h:1\"}]}]";
    assert_eq!(parsed(both).pools[0].endpoints.len(), 2);
}

#[test]
fn a_name_that_no_certificate_carries_is_refused() {
    for name in ["https://h", "h:443", "*.h", "-h"] {
        refused(
            &at("https://h", &format!(", tls: {{server_name: \"{name}\"}}")),
            &format!(
                "2:54: models[0](m).endpoints[0](a).tls.server_name: \"{name}\" is no name of a \
                 certificate; write a host name or an IP address, without a scheme or port"
            ),
        );
    }
}

#[test]
fn a_version_of_an_interface_is_azures_alone() {
    refused(
        &at("http://h", ", api_version: v1"),
        "2:47: models[0](m).endpoints[0](a).api_version: a server of kind openai has no such version; \
         write kind: azure or remove it",
    );
    refused(
        &at("http://h", ", kind: azure, api_version: \"2024/10\""),
        "2:60: models[0](m).endpoints[0](a).api_version: \"2024/10\" is not a valid name; use 1 to 64 \
         letters, digits and .-",
    );
    let cure = "write the deployment, 1 to 64 letters, digits and ._-";
    refused(
        &at("http://h", ", kind: azure, api_version: v1, upstream_model: ../x"),
        &format!(
            "2:80: models[0](m).endpoints[0](a).upstream_model: is no name of a deployment, as which \
             api_version puts it into the path; {cure}"
        ),
    );
    refused(
        &at("http://h", ", kind: azure, api_version: v1").replace("name: m", "name: \"x/y:z\""),
        &format!(
            "2:3: models[0](x/y:z).endpoints[0](a).upstream_model: is missing, and the model's own \
             name is no name of a deployment; {cure}"
        ),
    );
    parsed(&at("http://h", ", kind: azure").replace("name: m", "name: \"x/y:z\""));
}

#[test]
fn what_an_endpoint_cannot_be_is_refused() {
    for (key, value, said) in [
        ("protocol", "http3", "\"http3\" is not known; did you mean \"http1\"?"),
        ("protocol", "spdy", "\"spdy\" is not known; known here: http1, http2"),
        ("priority", "16", "\"16\" is out of range; use 0 to 15"),
        ("quota_group", "a b", "\"a b\" is not a valid name; use 1 to 64 letters, digits and ._-"),
    ] {
        refused(
            &at("http://h", &format!(", {key}: {value}")),
            &format!("2:{}: models[0](m).endpoints[0](a).{key}: {said}", 36 + key.len()),
        );
    }
    refused(
        &model("", "    policy: least_requests\n"),
        "5:13: models[0](m).policy: \"least_requests\" is not known; did you mean \"least_request\"?",
    );
    refused(
        &model("", "    include_usage: yes\n"),
        "5:20: models[0](m).include_usage: \"yes\" is neither true nor false; write one of them",
    );
}

#[test]
fn every_policy_and_protocol_reads_back() {
    for policy in ["weighted", "least_request", "ewma", "prefix_hash"] {
        for protocol in ["http1", "http2"] {
            let endpoint = format!(", protocol: {protocol}");
            let config = parsed(&model(&endpoint, &format!("    policy: {policy}\n")));
            let shown = config.effective_yaml();
            assert!(shown.contains(&format!("policy: {policy}\n")), "{shown}");
            assert_eq!(parsed(&shown), config);
        }
    }
}

/// Three models, the first with `fallback`.
fn chain(fallback: &str) -> String {
    let endpoints = "endpoints: [{name: a, address: \"http://h\"}]";
    format!(
        "models:\n- name: one\n  aliases: [uno]\n  fallback: [{fallback}]\n  {endpoints}\n- {{name: \
         two, aliases: [due], fallback: [one], {endpoints}}}\n- {{name: three, {endpoints}}}\n"
    )
}

#[test]
fn a_fallback_names_other_models_once_each() {
    let config = parsed(&chain("three, due"));
    assert_eq!(config.pools[0].fallback, ["three", "two"]);
    assert_eq!(config.pools[1].fallback, ["one"], "two models may stand in for each other");
    assert_eq!(parsed(&config.effective_yaml()), config);
    let cure = "remove it or name another";
    let path = "models[0](one).fallback";
    for (fallback, said) in [
        ("one", format!("4:14: {path}[0]: it is this model itself; {cure}")),
        ("two, uno", format!("4:19: {path}[1]: it is this model itself; {cure}")),
        (
            "two, two",
            format!("4:19: {path}[1]: the model it means stands in the list already; {cure}"),
        ),
        (
            "due, two",
            format!("4:19: {path}[1]: the model it means stands in the list already; {cure}"),
        ),
        ("tree", format!("4:14: {path}[0]: \"tree\" is no model; did you mean \"three\"?")),
        (
            "gpt-4o",
            format!(
                "4:14: {path}[0]: \"gpt-4o\" is no model; write the name or an alias of a model in \
                 this file"
            ),
        ),
    ] {
        refused(&chain(fallback), &said);
    }
    let said = refusal(&chain(&"two, ".repeat(FALLBACK_MAX + 1)));
    assert!(said.contains("has more than 8 entries"), "{said}");
}

#[test]
fn a_failure_that_never_goes_elsewhere_is_refused() {
    refused_before(
        "failover: {on: [refused, 404]}",
        "1:26: failover.on[1]: 404 is the client's own at every endpoint, so that it is passed on; \
         remove it, or name it in a list that says otherwise",
    );
    for entry in ["399", "600", "200", "five", "-1"] {
        refused_before(
            &format!("failover: {{on: [{entry}]}}"),
            &format!(
                "1:17: failover.on[0]: \"{entry}\" is no failure to go elsewhere on; write refused, \
                 cut, timeout, malformed, auth, or a status of 400 to 599"
            ),
        );
    }
    refused_before(
        "retry: {max_attempts: 1}\nfailover: {on: [cut]}",
        "2:16: failover.on: one attempt leaves nothing for it; remove it or raise \
         retry.max_attempts",
    );
    let elsewhere = "models:
  - name: m
    endpoints:
      - {name: a, address: \"http://a\"}
      - {name: b, address: \"http://b\", circuit_breaker: {fault_status_codes: [404]}}
";
    let config = parsed(&format!("failover: {{on: [401, 404, 429]}}\n{elsewhere}"));
    assert_eq!(config.retry.failover_on.codes, Some(vec![401, 404, 429]));
}

#[test]
fn a_list_of_failures_is_what_it_names_and_nothing_else() {
    let on = |text: &str| {
        let config = parsed(&format!("{text}\n{SMALLEST}"));
        assert_eq!(parsed(&config.effective_yaml()), config, "{text}");
        config.retry.failover_on
    };
    assert_eq!(on(""), FailoverOn::default());
    assert_eq!(on("failover: {}"), FailoverOn::default());
    let none = FailoverOn {
        refused: false,
        cut: false,
        timeout: false,
        malformed: false,
        auth: false,
        codes: Some(Vec::new()),
    };
    assert_eq!(on("failover: {on: []}"), none);
    assert_eq!(on("retry: {max_attempts: 1}\nfailover: {on: []}"), none);
    assert_eq!(on("failover: {on: [cut]}"), FailoverOn { cut: true, ..none.clone() });
    assert_eq!(on("failover: {on: [timeout]}"), FailoverOn { timeout: true, ..none.clone() });
    assert_eq!(on("failover: {on: [refused]}"), FailoverOn { refused: true, ..none.clone() });
    assert_eq!(on("failover: {on: [malformed]}"), FailoverOn { malformed: true, ..none.clone() });
    assert_eq!(on("failover: {on: [auth]}"), FailoverOn { auth: true, ..none.clone() });
    assert_eq!(on("failover: {on: [500]}"), FailoverOn { codes: Some(vec![500]), ..none });
}

#[test]
fn a_budget_out_of_its_range_is_refused() {
    for budget in ["1.1", "-0.1"] {
        refused_before(
            &format!("retry: {{budget: {budget}}}"),
            &format!(
                "1:17: retry.budget: \"{budget}\" is out of range; use 0 to 1, a share of the \
                 requests"
            ),
        );
    }
    refused_before(
        "retry: {budget_floor: 1001}",
        "1:23: retry.budget_floor: \"1001\" is out of range; use 0 to 1000",
    );
    for budget in ["0", "1", "0.05", "0.3333333333333333"] {
        let config = parsed(&format!("retry: {{budget: {budget}, budget_floor: 0}}\n{SMALLEST}"));
        assert_eq!(parsed(&config.effective_yaml()), config, "{budget}");
    }
}

#[test]
fn a_pulse_too_fast_or_too_slow_is_refused() {
    for pulse in ["999ms", "61m"] {
        refused_before(
            &format!("server: {{heartbeat: {pulse}}}"),
            &format!("1:21: server.heartbeat: \"{pulse}\" is out of range; use 1s to 1h"),
        );
    }
    refused_before(
        "server: {timeouts: {write_stall: 0s}}",
        "1:34: server.timeouts.write_stall: \"0s\" is out of range; use 1ms to 24h",
    );
    let config = parsed(&format!("server: {{heartbeat: off}}\n{SMALLEST}"));
    assert_eq!(config.server.heartbeat, None);
    assert_eq!(parsed(&config.effective_yaml()), config);
}
