//! What the settings of the data plane mean: who may call, how much, over what, and what comes next.
//!
//! Each claim is about one section; that all of them survive being shown stands in `tests`.

use super::*;

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
    assert_eq!((cors.origins, cors.max_age_seconds), (vec!["https://app.example".into()], 600));
    assert_eq!(config.server.heartbeat, Some(Duration::from_secs(10)));
    assert_eq!(config.server.write_stall, Duration::from_secs(30));
    assert_eq!(config.fail_closed.tokenizer, Some(Tokenizer::O200kBase));
    assert_eq!(config.fail_closed.max_n, 4);
    let [a, b] = config.api_keys.as_slice() else { panic!("two keys") };
    assert_eq!(a.name, "team-a");
    assert_eq!(a.sha256, digest(&environment("DIGEST_A").unwrap()));
    assert_eq!(a.models, Some(vec!["llama-70b".into(), "gpt-4o".into()]));
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
