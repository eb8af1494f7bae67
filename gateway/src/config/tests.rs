//! What a configuration that is accepted means; what is refused stands in `refused`.
//!
//! The example is the one people copy, so it must mean what its words say, survive being shown and
//! read again, and, damaged anywhere, end in one line instead of a panic.

use super::*;

mod callers;
mod circuit;
mod levels;
mod overrides;
mod plane;
mod reach;
mod redis;
mod refused;
mod telemetry;
mod useless;

/// The example of the interface description, with the keys this version has.
const EXAMPLE: &str = r#"
server:
  listen: 0.0.0.0:8080
  max_body: 10MiB
  timeouts: { headers: 10s, body_idle: 10s, keep_alive: 60s }
admin:
  listen: 127.0.0.1:9090            # without a token only here: ${NOT_A_VARIABLE}
  token: ${QUORUMGATE_TOKEN}
cluster:
  id: prod
  node_id: ${HOSTNAME}
  listen: 0.0.0.0:7946
  advertise: ${POD_IP}:7946
  seeds: [gw-0.gw:7946, gw-1.gw:7946]
  tls: { ca: ca.crt, cert: node.crt, key: node.key }
  gossip_interval: 1s
  push: true
  quorum: { expected_members: 0, member_grace: 60s }
state: { file: /var/lib/quorumgate/state, every: 5s }
fail_closed:
  require_header: x-agent-id
  allowed_paths: [/v1/chat/completions]
  max_messages: 100
  max_input_tokens: 16000
circuit_breaker:
  mode: enforce
  failure_threshold: 4
  failure_ratio: 0.5
  window: 30s
  min_requests: 10
  slow: { total: 70s, first_token: 30s, dedup: 5s, confirmations: 2 }
  open: { base: 5s, max: 120s }
  recovery: staged
  ramp: { duration: 60s }
  half_open: { max_requests: 1, max_prompt_tokens: 256, successes: 5, share: 0.05 }
  probe: { enabled: true, first_token: 10s, max_tokens: 16 }
timeouts: { connect: 5s, first_byte: 30s, idle: 60s, total: 600s }
retry: { max_attempts: 3 }
models:
  - name: llama-70b
    aliases: [gpt-4o]
    policy: least_request
    endpoints:
      - name: gpu-a
        address: "http://10.0.0.11:8000"
        upstream_model: meta-llama/Llama-3.3-70B
        weight: 2
      - name: gpu-b
        address: "http://10.0.0.12:8000"
        api_key: ${GPU_KEY:-none}
        health_path: /health
        health_interval: 5s
        health_timeout: 2s
    on_all_open: pass_through
    circuit_breaker: { slow: { total: 120s } }
log: { format: json, level: "info,quorumgate=debug" }
"#;

/// The least a configuration can say.
const SMALLEST: &str =
    "models: [{name: m, endpoints: [{name: a, address: \"http://127.0.0.1:1\"}]}]\n";

fn environment(name: &str) -> Option<String> {
    let value = match name {
        "QUORUMGATE_TOKEN" => "hunter2-hunter2",
        "HOSTNAME" => "gw-0",
        "POD_IP" => "10.1.2.3",
        "EMPTY" => "",
        "BROKEN" => "hunter2\nadmin: {}",
        "PRICK" => "x: {y",
        "DIGEST_A" => "a665a45920422f9d417e4867efdc4fb8a04a1f3fff1fa07e998e86f7f7a27ae3",
        "NUMBER" => "7",
        _ => return None,
    };
    Some(value.to_owned())
}

fn parsed(text: &str) -> Config {
    match parse(text, "gw.yaml", &environment) {
        Ok(config) => config,
        Err(error) => panic!("{error}"),
    }
}

fn refusal(text: &str) -> String {
    match parse(text, "gw.yaml", &environment) {
        Ok(_) => panic!("this was accepted: {text}"),
        Err(error) => error.to_string(),
    }
}

/// A model with one endpoint, with more keys at the endpoint and at the model.
fn model(endpoint: &str, model: &str) -> String {
    let endpoint = format!("{{name: a, address: \"http://h:1\"{endpoint}}}");
    format!("models:\n  - name: m\n    endpoints:\n      - {endpoint}\n{model}")
}

#[test]
fn the_example_means_what_it_says() {
    let config = parsed(EXAMPLE);
    assert_eq!(config.server.max_body_bytes, 10 << 20);
    assert_eq!(config.admin.token.unwrap().expose(), "hunter2-hunter2");
    let cluster = config.cluster.unwrap();
    assert_eq!(cluster.node_id, "gw-0");
    assert_eq!(cluster.backend, Backend::Gossip);
    let wire = cluster.gossip.unwrap();
    assert_eq!(wire.advertise, "10.1.2.3:7946");
    assert_eq!(wire.seeds, ["gw-0.gw:7946", "gw-1.gw:7946"]);
    assert!(matches!(wire.tls, ClusterTls::Files { .. }));
    assert_eq!(config.fail_closed.max_input_tokens, Some(16_000));
    let pool = &config.pools[0];
    assert_eq!(pool.aliases, ["gpt-4o"]);
    let first = &pool.endpoints[0];
    assert_eq!(first.address, "http://10.0.0.11:8000");
    assert_eq!(first.authority, "10.0.0.11:8000");
    assert_eq!(first.weight, 2);
    assert_eq!(first.rule.slow.total, Duration::from_secs(120));
    assert_eq!(first.rule.half_open.deadline, Duration::from_secs(140));
    assert_eq!(first.health, None);
    assert_eq!(pool.endpoints[1].api_key.as_ref().unwrap().expose(), "none");
    let health = pool.endpoints[1].health.as_ref().unwrap();
    assert_eq!(health.path, "/health");
    assert_eq!((health.interval.as_secs(), health.timeout.as_secs()), (5, 2));
    let state = config.state.unwrap();
    assert_eq!(state.path, Path::new("/var/lib/quorumgate/state"));
    assert_eq!(state.every, Duration::from_secs(5));
    assert_eq!(config.log.format, LogFormat::Json);
}

#[test]
fn the_reference_configuration_is_accepted_and_names_the_defaults() {
    let text = include_str!("../../../deploy/quorumgate.yaml");
    let config = parse(text, "quorumgate.yaml", &|_| Some("x".to_owned()));
    let config = config.map_err(|error| error.to_string()).unwrap();
    let pool = &config.pools[0];
    let default = parsed(SMALLEST);
    assert_eq!(pool.endpoints[0].rule, breaker::Rule::default());
    assert_eq!(pool.endpoints[0].probe, Probe::default());
    assert_eq!(pool.timeouts, default.pools[0].timeouts);
    assert!(config.state.is_some() && pool.endpoints[1].health.is_some());
}

#[test]
fn what_is_left_out_has_its_default() {
    let config = parsed(SMALLEST);
    assert_eq!(config.server.listen.to_string(), "0.0.0.0:8080");
    assert_eq!(config.admin.listen.to_string(), "127.0.0.1:9090");
    assert_eq!(config.cluster, None);
    assert_eq!(config.state, None);
    assert_eq!(config.fail_closed, FailClosed::default());
    assert_eq!(config.retry.max_attempts, 3);
    assert_eq!(config.server.drain_delay, Duration::from_secs(5));
    assert_eq!(config.server.drain_timeout, Duration::from_secs(600));
    let pool = &config.pools[0];
    assert_eq!(pool.timeouts.total, Duration::from_secs(600));
    assert_eq!(pool.timeouts.first_token, None);
    assert_eq!(pool.endpoints[0].probe.prompt, "ping");
    assert_eq!(pool.endpoints[0].rule, breaker::Rule::default());
    assert_eq!(pool.endpoints[0].weight, 1);
}

#[test]
fn a_node_announces_where_it_listens_unless_told_otherwise() {
    let cluster =
        "cluster: {id: c, node_id: n, listen: \"127.0.0.1:7946\", tls: {insecure: true}}\n";
    let found = parsed(&format!("{cluster}{SMALLEST}")).cluster.unwrap();
    let wire = found.gossip.unwrap();
    assert_eq!(wire.advertise, "127.0.0.1:7946");
    assert_eq!(wire.tls, ClusterTls::Insecure);
    assert!(wire.push);
    assert_eq!(found.quorum.observe, Duration::from_secs(3));
    assert_eq!(found.quorum.max_open, Duration::from_secs(1_800));
}

#[test]
fn each_level_changes_only_what_it_names() {
    let text = "circuit_breaker: {preset: slow_api, failure_threshold: 9, probe: {max_tokens: 2}}
timeouts: {idle: 20s, first_token: 40s}
models:
  - name: m
    timeouts: {total: 300s, first_token: off}
    circuit_breaker: {window: 60s, probe: {enabled: false}}
    endpoints:
      - {name: a, address: \"http://a\"}
      - name: b
        address: \"http://b\"
        circuit_breaker: {preset: critical, slow: {first_token: off}}
";
    let config = parsed(text);
    let pool = &config.pools[0];
    assert_eq!(pool.timeouts.idle, Duration::from_secs(20));
    assert_eq!(pool.timeouts.total, Duration::from_secs(300));
    assert_eq!(pool.timeouts.first_token, None);
    assert!(!pool.endpoints[0].probe.enabled);
    assert_eq!(pool.endpoints[0].probe.max_tokens, 2);
    let (a, b) = (&pool.endpoints[0].rule, &pool.endpoints[1].rule);
    assert_eq!(a.failure_threshold, 9);
    assert_eq!(a.open.base, Duration::from_secs(120));
    assert_eq!(a.window, Duration::from_secs(60));
    assert_eq!(b.failure_threshold, 2);
    assert_eq!(b.open.base, Duration::from_secs(30));
    assert_eq!(b.window, Duration::from_secs(30));
    assert_eq!(b.slow.first_token, None);
    let again = parsed(&config.effective_yaml());
    assert_eq!(again, config);
}

#[test]
fn the_effective_configuration_reads_back_equal() {
    let mut config = parsed(EXAMPLE);
    let shown = config.effective_yaml();
    assert!(!shown.contains("hunter2"), "{shown}");
    let again = parsed(&shown);
    assert_eq!(again.admin.token.as_ref().unwrap().expose(), MASK);
    let mask = Some(Secret::new(MASK));
    config.admin.token = mask.clone();
    config.pools[0].endpoints[1].api_key = mask;
    assert_eq!(again, config);
    assert_eq!(again.effective_yaml(), shown);
    assert_eq!(again.hash(), config.hash());

    let smallest = parsed(SMALLEST);
    assert_eq!(parsed(&smallest.effective_yaml()), smallest);
    assert_eq!(smallest.hash().len(), 16);
    assert_ne!(smallest.hash(), config.hash());
}

#[test]
fn odd_texts_survive_being_shown() {
    for prompt in [
        "a: b # c",
        "- x",
        "*",
        "${A}",
        "$${A}",
        "$$",
        "true",
        "007",
        "1e5",
        "null",
        "~",
        "'\"'",
        "é\u{1f600}",
        "{",
        "[",
        "? a",
        "|",
        ">",
        "%",
        "@",
        "`",
        " a ",
        "0x1f",
        "1_000",
        "!!str x",
        "\u{feff}x",
        "yes",
        "no",
        ".inf",
        "=",
        "<<",
        "a\\b",
    ] {
        let mut config = parsed(SMALLEST);
        config.pools[0].endpoints[0].probe.prompt = prompt.to_owned();
        let shown = config.effective_yaml();
        let again = parse(&shown, "gw.yaml", &environment).map_err(|error| error.to_string());
        assert_eq!(again, Ok(config), "{prompt:?} in {shown}");
    }
    let long = "word ".repeat(800);
    let mut config = parsed(SMALLEST);
    config.pools[0].endpoints[0].probe.prompt = long.trim().to_owned();
    assert_eq!(parsed(&config.effective_yaml()), config);
}

#[test]
fn a_secret_prints_as_its_mask() {
    let config = parsed(EXAMPLE);
    assert!(!format!("{config:?}").contains("hunter2"));
    assert_eq!(config.admin.token.unwrap().to_string(), "***");
}

#[test]
fn an_order_writes_durations_as_the_file_does() {
    assert_eq!(parse_duration("10m"), Ok(Duration::from_secs(600)));
    assert_eq!(parse_duration("10"), Err("has no unit; write 10s".to_owned()));
}

#[test]
fn a_changed_secret_leaves_the_fingerprint_alone() {
    let text = "models: [{name: m, endpoints: [\
                {name: a, address: \"http://127.0.0.1:1\", api_key: \"${T}\"}]}]";
    let hash_with = |token: &str| {
        let env = |_: &str| Some(token.to_owned());
        parse(text, "gw.yaml", &env).unwrap().hash()
    };
    assert_eq!(hash_with("one-token"), hash_with("other-token"));
    assert_ne!(hash_with("one-token"), parsed(SMALLEST).hash());
}

#[test]
fn k08_what_a_variable_holds_is_never_taken_for_yaml() {
    let text = model("", "    circuit_breaker: {probe: {prompt: \"${PRICK}\"}}\n");
    assert_eq!(parsed(&text).pools[0].endpoints[0].probe.prompt, "x: {y");
    let number = model(", weight: \"${NUMBER}\"", "");
    assert_eq!(parsed(&number).pools[0].endpoints[0].weight, 7);
}

#[test]
fn anchors_and_merges_work() {
    let text = "models:
  - name: m
    circuit_breaker: &slow {slow: {total: 100s}}
    endpoints:
      - &first {name: a, address: \"http://a\", weight: 3}
      - {<<: *first, name: b, upstream_model: x}
  - {name: n, circuit_breaker: *slow, endpoints: [*first]}
";
    let config = parsed(text);
    assert_eq!(config.pools[0].endpoints[1].weight, 3);
    assert_eq!(config.pools[0].endpoints[1].name, "b");
    assert_eq!(config.pools[1].endpoints[0].rule.slow.total, Duration::from_secs(100));
}

#[test]
fn a_file_is_read_from_disk() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gw.yaml");
    std::fs::write(&path, SMALLEST).unwrap();
    assert_eq!(read(&path), Ok(parsed(SMALLEST)));
}

#[test]
fn a_file_cut_anywhere_is_accepted_or_refused_in_one_line() {
    for example in [EXAMPLE, plane::EXAMPLE] {
        let mut accepted = 0;
        for end in (0..example.len()).filter(|end| example.is_char_boundary(*end)) {
            match parse(&example[..end], "gw.yaml", &environment) {
                Ok(_) => accepted += 1,
                Err(error) => assert_one_line(&error.to_string()),
            }
        }
        assert!(accepted > 10, "{accepted}");
    }
}

#[test]
fn a_file_with_one_wrong_character_is_accepted_or_refused_in_one_line() {
    const WRONG: [&str; 13] =
        ["", ":", "\n", "\t", "{", "]", "\"", "${", "*", "&", "- ", "\u{0}", "é"];
    for example in [EXAMPLE, plane::EXAMPLE] {
        // Each place gets one of them in turn, which is enough for each to meet every kind of place.
        let places = example.char_indices().zip(WRONG.iter().cycle());
        for ((at, right), wrong) in places {
            let after = &example[at + right.len_utf8()..];
            let text = format!("{}{wrong}{after}", &example[..at]);
            if let Err(error) = parse(&text, "gw.yaml", &environment) {
                assert_one_line(&error.to_string());
            }
        }
    }
}

fn assert_one_line(error: &str) {
    assert!(error.starts_with("gw.yaml:"), "{error:?}");
    assert!(error.contains("; "), "{error:?}");
    assert!(!error.chars().any(char::is_control), "{error:?}");
    assert!(!error.contains("hunter2"), "{error:?}");
    assert!(error.len() < 400, "{error:?}");
}

#[test]
fn the_hash_is_the_same_on_two_nodes_of_a_fleet_and_not_for_two_fleets() {
    let hash = |node: &str, weight: u32| {
        let text = format!(
            "cluster: {{ id: c, node_id: {node}, listen: 127.0.0.1:1, tls: {{ insecure: true }} }}
state: {{ file: {node}.state }}
models: [ {{ name: m, endpoints: [ {{ name: a, address: \"http://127.0.0.1:1\", weight: {weight} }} ] }} ]
"
        );
        parse(&text, "gw.yaml", &|_| None).unwrap().hash()
    };
    assert_eq!(hash("gw-1", 1), hash("gw-2", 1));
    assert_ne!(hash("gw-1", 1), hash("gw-1", 2));
}
