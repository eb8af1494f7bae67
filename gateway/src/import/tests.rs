//! Tests of the import: a file as people have it, one of each oddity, and files that were broken at
//! random.

use super::*;
use crate::config::{Config, Policy};

/// A file with what is most used, put together from LiteLLM's own documentation.
const REALISTIC: &str = r#"
model_list:
  - model_name: gpt-4o
    litellm_params:
      model: azure/gpt-4o-eu
      api_base: https://my-endpoint-europe.openai.azure.com/
      api_key: os.environ/AZURE_API_KEY_EU
      api_version: "2024-10-21"
      rpm: 6
      order: 1
  - model_name: gpt-4o
    litellm_params:
      model: openai/gpt-4o
      api_key: sk-CANARY-in-clear
      rpm: 60
      tpm: "100000"
      order: 2
  - model_name: llama-70b
    litellm_params:
      model: hosted_vllm/meta-llama/Llama-3.3-70B-Instruct
      api_base: http://10.0.0.11:8000/v1
      weight: 0.9
      timeout: 20
    model_info: { id: a, mode: chat }
  - model_name: llama-70b
    litellm_params:
      model: openai/meta-llama/Llama-3.3-70B-Instruct
      api_base: http://10.0.0.12:8000/v1
      api_key: none
      weight: 0.1
      timeout: 30
      stream_timeout: 5
  - model_name: claude
    litellm_params: { model: claude-sonnet-4-20250514 }
  - model_name: embed
    litellm_params: { model: openai/text-embedding-3-small, api_key: os.environ/OPENAI_API_KEY }
    model_info: { mode: embedding }
  - model_name: "*"
    litellm_params: { model: "openai/*" }
  - model_name: nova
    litellm_params: { model: bedrock/amazon.nova-pro-v1:0, aws_region_name: us-east-1 }
router_settings:
  routing_strategy: latency-based-routing
  num_retries: 2
  allowed_fails: 3
  cooldown_time: 30
  timeout: 300
  model_group_alias: { gpt-4: gpt-4o, hidden: { model: llama-70b, hidden: true } }
  redis_host: os.environ/REDIS_HOST
  redis_password: hunter2-CANARY
litellm_settings:
  num_retries: 5
  request_timeout: 600
  drop_params: true
  fallbacks: [ { gpt-4o: [claude, gpt-4, nova] }, { llama-70b: [gpt-4] } ]
  default_fallbacks: [gpt-4o]
general_settings:
  master_key: sk-1234-CANARY
  database_url: "postgresql://user:pass-CANARY@host:5432/db"
environment_variables: { SOME_KEY: sk-CANARY-env }
"#;

/// What came of a text, as our own check reads it with every variable set.
fn imported(text: &str) -> (Imported, Config) {
    let imported = litellm(text).unwrap();
    let value = |name: &str| match name {
        name if name.ends_with("SHA256") => Some("1".repeat(64)),
        "GPU_BASE" => Some("http://gpu:8000".to_owned()),
        name => Some(format!("of-{name}")),
    };
    let config = crate::config::parse(&imported.yaml, "imported", &value).unwrap();
    (imported, config)
}

#[test]
fn a_realistic_file_means_the_same_here() {
    let (imported, config) = imported(REALISTIC);
    let names: Vec<&str> = config.pools.iter().map(|pool| pool.name.as_str()).collect();
    assert_eq!(names, ["gpt-4o", "llama-70b", "claude", "embed"]);
    let [gpt, llama, claude, embed] = &config.pools[..] else { panic!("{names:?}") };

    assert_eq!(gpt.aliases, ["gpt-4"]);
    assert_eq!(gpt.policy, Policy::Ewma);
    assert_eq!(gpt.fallback, ["claude"]);
    assert_eq!(gpt.timeouts.total.as_secs(), 300, "the router's own comes first");
    let [azure, openai] = &gpt.endpoints[..] else { panic!("{gpt:?}") };
    assert_eq!(azure.address, "https://my-endpoint-europe.openai.azure.com:443");
    assert_eq!(azure.upstream_model.as_deref(), Some("gpt-4o-eu"));
    assert_eq!(azure.api_version.as_deref(), Some("2024-10-21"));
    assert_eq!(azure.api_key.as_ref().unwrap().expose(), "of-AZURE_API_KEY_EU");
    assert_eq!((azure.limits.rpm, azure.priority), (Some(6), 0));
    assert_eq!((openai.limits.rpm, openai.limits.tpm), (Some(60), Some(100_000)));
    assert_eq!(openai.priority, 1);

    assert_eq!(llama.aliases, ["hidden"]);
    assert_eq!(llama.fallback, ["gpt-4o"], "by an alias, and by default once");
    assert_eq!(llama.timeouts.total.as_secs(), 30, "the longest of its deployments");
    let weights: Vec<u32> = llama.endpoints.iter().map(|endpoint| endpoint.weight).collect();
    assert_eq!(weights, [100, 11]);
    assert!(llama.endpoints[0].rule.slow.total < llama.timeouts.total);
    assert_eq!(llama.endpoints[0].kind.as_str(), "vllm");
    assert!(llama.endpoints[0].api_key.is_none());

    assert_eq!(claude.endpoints[0].api_key.as_ref().unwrap().expose(), "of-ANTHROPIC_API_KEY");
    assert_eq!(embed.fallback, ["gpt-4o"]);
    let rule = &gpt.endpoints[0].rule;
    assert_eq!((rule.failure_threshold, rule.open.base.as_secs()), (4, 30));
    assert_eq!(config.retry.max_attempts, 3);
    assert_eq!(config.server.listen.to_string(), "0.0.0.0:4000");
    assert_eq!(config.admin.token.as_ref().unwrap().expose(), "of-LITELLM_MASTER_KEY");
    assert_eq!(config.api_keys.len(), 1, "who wanted a key wants one still");
    assert_eq!(imported.warnings.len(), 3, "{:#?}", imported.warnings);
    let notes = imported.notes.join("\n");
    for part in
        ["model_list[6]: a wildcard", "model_list[7]: bedrock", "drop_params", "nova is not"]
    {
        assert!(notes.contains(part), "{part:?} is missing in\n{notes}");
    }
}

#[test]
fn no_secret_of_the_file_is_repeated() {
    let imported = litellm(REALISTIC).unwrap();
    let all = format!("{imported:?}");
    for secret in ["CANARY", "hunter2", "sk-1234"] {
        assert!(!all.contains(secret), "{secret} in {all}");
    }
}

#[test]
fn a_providers_key_goes_to_the_provider_only() {
    for (elsewhere, key) in [
        ("", Some("of-OPENAI_API_KEY")),
        (", api_base: 'http://stranger:1/v1'", None),
        (", base_url: 'http://stranger:1/v1'", None),
        (", base_url: os.environ/GPU_BASE", None),
        (", api_base: '', base_url: 'http://stranger:1/v1'", None),
    ] {
        let (_, config) = imported(&format!(
            "model_list: [{{model_name: a, litellm_params: {{model: openai/a{elsewhere}}}}}]"
        ));
        let found = config.pools[0].endpoints[0].api_key.as_ref();
        assert_eq!(found.map(|found| found.expose()), key, "{elsewhere:?}");
    }
}

#[test]
fn without_a_master_key_nobody_from_elsewhere_is_served() {
    let list = "model_list: [{model_name: a, litellm_params: {model: openai/a}}]";
    for text in [list.to_owned(), format!("{list}\ngeneral_settings: {{master_key: ''}}")] {
        let (imported, config) = imported(&text);
        assert_eq!(config.server.listen.to_string(), "127.0.0.1:4000");
        assert!(config.api_keys.is_empty() && config.admin.token.is_none());
        assert!(imported.yaml.contains("# WARNING: there is no master_key"), "{}", imported.yaml);
    }
}

#[test]
fn a_file_of_something_else_is_refused_with_what_to_name() {
    for (text, part) in [
        ("", "model_list"),
        ("a: 1", "model_list"),
        ("model_list: []", "model_list"),
        ("model_list: 5", "model_list"),
        ("- 1", "model_list"),
        ("model_list:\n  - {", "line 2"),
        ("model_list: [1, {}, null]", "no model can be served: model_list[0]"),
        ("model_list: [{model_name: a, litellm_params: {model: vertex_ai/x}}]", "vertex_ai"),
    ] {
        let error = litellm(text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
        assert_eq!(error.lines().count(), 1);
    }
}

#[test]
fn an_endpoint_that_cannot_be_served_costs_itself_only() {
    let (imported, config) = imported(
        "model_list:
- {model_name: a b, litellm_params: {model: gpt-4o, api_base: 'http://u:p-CANARY@x/v1'}}
- {model_name: a b, litellm_params: {model: gpt-4o, api_base: 'http://169.254.169.254'}}
- {model_name: a b, litellm_params: {model: gpt-4o, api_base: os.environ/GPU_BASE}}
- {model_name: a b, litellm_params: {model: gpt-4o, api_base: os.environ/GPU_BASE, api_key: x}}
- {model_name: a b, litellm_params: {model: \"x\\ny: ${HOME}\", api_base: 'http://y'}}
- {model_name: a b, litellm_params: {model: 'x${HOME}', api_base: 'http://y:1/v1', weight: 0}}
- {model_name: a b, litellm_params: {model: 'x${HOME}', api_base: 'http://y:1/v1', weight: 3}}
- {model_name: a b, litellm_params: {model: os.environ/M, api_base: 'http://y'}}
- {litellm_params: {model: m}}
router_settings:
  model_group_alias: {a-b: a-b, '': a-b, none: m, 'x y': a-b}
  fallbacks: [{a-b: [a-b, none]}, {none: [a-b]}, 3]
  allowed_fails: -1
  cooldown_time: 0
",
    );
    let pool = &config.pools[0];
    assert_eq!(pool.name, "a-b");
    assert_eq!(pool.endpoints.len(), 2, "{:#?}", imported.notes);
    assert_eq!(pool.endpoints[1].upstream_model.as_deref(), Some("x${HOME}"));
    assert_eq!(pool.endpoints[1].weight, 3);
    assert!(!format!("{imported:?}").contains("CANARY"), "{imported:#?}");
    let notes = imported.notes.join("\n");
    for part in ["metadata", "second key", "weight is 0", "allowed_fails", "no model_name"] {
        assert!(notes.contains(part), "{part:?} is missing in\n{notes}");
    }
}

#[test]
fn what_is_written_passes_our_check_whatever_the_times_are() {
    for (timeout, fails, cooldown) in
        [("0.01", "0", "0.01"), ("70", "9999", "86400"), ("71", "1e9", "1e9"), ("x", "x", "[]")]
    {
        imported(&format!(
            "model_list: [{{model_name: a, litellm_params: {{model: a, timeout: {timeout}, \
             order: 99, rpm: 1e12, tpm: 1e300, weight: 1e9, max_parallel_requests: 7}}}}]
router_settings: {{allowed_fails: {fails}, cooldown_time: {cooldown}, num_retries: 99}}"
        ));
    }
}

#[test]
fn a_file_that_was_broken_at_random_never_ends_in_a_panic() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let odd =
        ["", "~", "[", "}", ": ", "\n", "&a ", "*a", "\u{0}", "'", "\"", "1e999", "${", "é", "-"];
    for _ in 0..400 {
        let mut text: Vec<char> = REALISTIC.chars().collect();
        for _ in 0..random.usize(1..6) {
            let at = random.usize(0..text.len());
            let end = (at + random.usize(0..12)).min(text.len());
            let piece = odd[random.usize(0..odd.len())];
            text.splice(at..end, piece.chars());
        }
        let text: String = text.into_iter().collect();
        match litellm(&text) {
            Ok(_) => {}
            Err(ImportError::Refused(why)) => panic!("{why}\n{text}"),
            Err(error) => assert_eq!(error.to_string().lines().count(), 1),
        }
    }
}
