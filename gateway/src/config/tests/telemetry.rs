//! What the section of telemetry means, and what it refuses.

use super::*;

/// The whole section with these keys of the collector.
fn otlp(keys: &str) -> String {
    format!("telemetry: {{ otlp: {{ {keys} }} }}\n{SMALLEST}")
}

#[test]
fn nobody_is_told_of_requests_unless_a_collector_is_named() {
    assert_eq!(parsed(SMALLEST).telemetry, None);
    let otlp = parsed(&otlp("endpoint: \"https://collector\"")).telemetry.unwrap();
    assert_eq!((otlp.authority.as_str(), otlp.path.as_str()), ("collector:443", "/v1/traces"));
    assert!(otlp.is_tls);
    assert_eq!((otlp.sample, otlp.service_name.as_str()), (0.1, "quorumgate"));
    assert_eq!(otlp.timeout, Duration::from_secs(5));
}

#[test]
fn every_key_means_what_it_says() {
    let otlp = parsed(plane::EXAMPLE).telemetry.unwrap();
    assert_eq!(otlp.endpoint, "http://collector:4318/intake");
    assert_eq!(
        (otlp.authority.as_str(), otlp.path.as_str()),
        ("collector:4318", "/intake/v1/traces")
    );
    assert!(!otlp.is_tls);
    assert_eq!((otlp.sample, otlp.service_name.as_str()), (0.25, "gw"));
    assert_eq!(otlp.timeout, Duration::from_secs(2));
}

#[test]
fn what_could_never_work_is_refused_with_its_place() {
    let where_to = "endpoint: \"http://c:4318\"";
    for (keys, problem) in [
        ("sample: 1", "telemetry.otlp.endpoint: is missing"),
        ("endpoint: \"collector:4318\"", "has no scheme"),
        ("endpoint: \"grpc://collector:4317\"", "neither http nor https"),
        ("endpoint: \"http://me:sk-secret@c:4318\"", "has a user before the host"),
        ("endpoint: \"http://c:4318/v1/traces\"", "ends in /v1/traces"),
        (&format!("{where_to}, sample: 2"), "telemetry.otlp.sample"),
        (&format!("{where_to}, sample: -1"), "telemetry.otlp.sample"),
        (&format!("{where_to}, service_name: \"a b\""), "telemetry.otlp.service_name"),
        (&format!("{where_to}, timeout: 1ms"), "telemetry.otlp.timeout"),
        (&format!("{where_to}, headers: x"), "headers"),
    ] {
        let told = refusal(&otlp(keys));
        assert!(told.contains(problem) && told.starts_with("gw.yaml:1:"), "{told}");
        assert!(!told.contains("sk-secret"), "{told}");
    }
    assert!(refusal(&format!("telemetry: {{}}\n{SMALLEST}")).contains("telemetry.otlp"));
}
