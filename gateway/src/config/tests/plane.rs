//! What the settings of the data plane mean: who may call, how much, over what, and what comes next.
//!
//! Each claim is about one section. The example has every key of the data plane, none with its default,
//! so that one that is read or written in another's place is seen.

use super::*;

/// Every key of the data plane that `tests::EXAMPLE` does not have.
pub(super) const EXAMPLE: &str = r#"
server:
  tls: { cert: /etc/quorumgate/tls.crt, key: /etc/quorumgate/tls.key }
  cors: { origins: ["https://app.example", "http://localhost:3000"], max_age: 5m }
  timeouts: { write_stall: 30s }
  heartbeat: 10s
fail_closed: { max_input_tokens: 16000, tokenizer: o200k_base, max_n: 4 }
api_keys:
  - name: team-a
    sha256: "${DIGEST_A}"
    models: [llama-70b, gpt-4o-mini]
    limits: { rpm: 600, tpm: 200000, concurrency: 64 }
  - { name: team-b, sha256: FB8E20FC2E4C3F248C60C39BD652F3C1347298BB977B8B4D5903B85055620603 }
retry: { max_attempts: 3, budget: 0.1, budget_floor: 5, on: [refused, 503] }
failover: { on: [refused, cut, timeout, malformed, auth, 429, 500, 503] }
telemetry:
  otlp: { endpoint: "HTTP://Collector:4318/intake/", sample: 0.25, service_name: gw, timeout: 2s }
models:
  - name: llama-70b
    fallback: [gpt-4o-mini]
    limits: { rpm: 6000 }
    include_usage: true
    endpoints: [ { name: a, address: "http://10.0.0.11:8000" } ]
  - name: azure-gpt-4o
    aliases: [gpt-4o-mini]
    policy: ewma
    endpoints:
      - name: eu
        address: "https://eu.openai.azure.com"
        kind: azure
        api_version: "2024-10-21"
        quota_group: azure-eu
      - name: own
        address: "https://10.0.0.13:8443/openai"
        tls: { ca: own.crt, cert: gw.crt, key: gw.key, server_name: gpu.internal }
        protocol: http2
        priority: 1
        limits: { tpm: 100000, concurrency: 8 }
"#;

fn digest(hex: &str) -> [u8; 32] {
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    std::array::from_fn(|index| byte(index * 2))
}

#[test]
fn the_example_of_the_data_plane_means_what_it_says() {
    let config = parsed(EXAMPLE);
    let tls = config.server.tls.unwrap();
    assert_eq!(tls.cert, Path::new("/etc/quorumgate/tls.crt"));
    assert_eq!(tls.key, Path::new("/etc/quorumgate/tls.key"));
    let cors = config.server.cors.unwrap();
    assert_eq!(cors.origins, ["https://app.example", "http://localhost:3000"]);
    assert_eq!(cors.max_age_seconds, 300);
    assert_eq!(config.server.heartbeat, Some(Duration::from_secs(10)));
    assert_eq!(config.server.write_stall, Duration::from_secs(30));
    assert_eq!(config.fail_closed.tokenizer, Some(Tokenizer::O200kBase));
    assert_eq!(config.fail_closed.max_n, 4);
    let [a, b] = config.api_keys.as_slice() else { panic!("two keys") };
    assert_eq!(a.name, "team-a");
    assert_eq!(a.sha256, digest(&environment("DIGEST_A").unwrap()));
    assert_eq!(a.models, Some(vec!["llama-70b".into(), "gpt-4o-mini".into()]));
    assert_eq!(a.limits, Limits { rpm: Some(600), tpm: Some(200_000), concurrency: Some(64) });
    assert_eq!(b.sha256[..4], [0xfb, 0x8e, 0x20, 0xfc]);
    assert_eq!((&b.models, b.limits), (&None, Limits::default()));
    let retry = &config.retry;
    assert_eq!((retry.budget, retry.budget_floor), (0.1, 5));
    let failover = FailoverOn { codes: Some(vec![429, 500, 503]), ..FailoverOn::default() };
    assert_eq!(retry.failover_on, failover);
}

#[test]
fn a_model_and_its_endpoints_are_spoken_to_as_the_example_says() {
    let config = parsed(EXAMPLE);
    let [llama, azure] = config.pools.as_slice() else { panic!("two models") };
    assert_eq!(llama.fallback, ["azure-gpt-4o"], "an alias stands for its model");
    assert_eq!(llama.limits, Limits { rpm: Some(6_000), ..Limits::default() });
    assert!(llama.include_usage && !azure.include_usage);
    assert_eq!((llama.policy, azure.policy), (Policy::LeastRequest, Policy::Ewma));
    let plain = &llama.endpoints[0];
    assert_eq!((&plain.tls, plain.protocol, plain.priority), (&None, Protocol::Http1, 0));
    let [eu, own] = azure.endpoints.as_slice() else { panic!("two endpoints") };
    assert_eq!(eu.address, "https://eu.openai.azure.com:443");
    assert_eq!(eu.tls, Some(UpstreamTls::default()), "https needs no section");
    assert_eq!(eu.api_version.as_deref(), Some("2024-10-21"));
    assert_eq!(eu.quota_group.as_deref(), Some("azure-eu"));
    assert_eq!(
        (own.address.as_str(), own.base_path.as_str()),
        ("https://10.0.0.13:8443", "/openai")
    );
    let tls = own.tls.as_ref().unwrap();
    assert_eq!(tls.ca.as_deref(), Some(Path::new("own.crt")));
    assert_eq!(tls.cert.as_deref(), Some(Path::new("gw.crt")));
    assert_eq!(tls.key.as_deref(), Some(Path::new("gw.key")));
    assert_eq!(tls.server_name.as_deref(), Some("gpu.internal"));
    assert_eq!((own.protocol, own.priority), (Protocol::Http2, 1));
    assert_eq!(own.limits, Limits { rpm: None, tpm: Some(100_000), concurrency: Some(8) });
}

#[test]
fn what_the_data_plane_is_told_reads_back_equal() {
    let config = parsed(EXAMPLE);
    let shown = config.effective_yaml();
    let again = parsed(&shown);
    assert_eq!(again, config);
    assert_eq!(again.effective_yaml(), shown);
    assert_eq!(again.hash(), config.hash());
}

#[test]
fn what_the_data_plane_is_not_told_has_its_default() {
    let config = parsed(SMALLEST);
    assert_eq!((&config.server.tls, &config.server.cors), (&None, &None));
    assert_eq!(config.server.heartbeat, Some(Duration::from_secs(15)));
    assert_eq!(config.server.write_stall, Duration::from_secs(60));
    assert_eq!(config.api_keys, []);
    assert_eq!((config.fail_closed.max_n, config.fail_closed.tokenizer), (16, None));
    assert_eq!((config.retry.budget, config.retry.budget_floor), (0.2, 3));
    assert_eq!(config.retry.failover_on, FailoverOn::default());
    let pool = &config.pools[0];
    assert_eq!(pool.fallback, [""; 0]);
    assert_eq!((pool.limits, pool.include_usage), (Limits::default(), false));
    let endpoint = &pool.endpoints[0];
    assert_eq!((endpoint.limits, endpoint.priority), (Limits::default(), 0));
    assert_eq!((&endpoint.quota_group, &endpoint.api_version), (&None, &None));
}
