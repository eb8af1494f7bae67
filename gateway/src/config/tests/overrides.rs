//! What the environment may say instead of the file, and how it is refused.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use super::*;

/// What must stand in no error.
const CANARY: &str = "sk-CANARY";

fn over(text: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
    let look = |name: &str| environment(name).ok_or(Missing::Unset);
    parse_over(text, "gw.yaml", &look, &Overrides::of(variables)?)
}

fn overridden(text: &str, variables: &[(&str, &str)]) -> Config {
    over(text, variables).map_err(|error| error.to_string()).unwrap()
}

/// Asserts that this variable on top of the example is refused with exactly `expected`.
fn refused(name: &str, value: &str, expected: &str) {
    let error = over(EXAMPLE, &[(name, value)]).unwrap_err().to_string();
    assert_eq!(error, format!("{name}: {expected}"));
}

#[test]
fn a_variable_says_a_key_instead_of_the_file_or_one_that_it_lacks() {
    let config = overridden(
        EXAMPLE,
        &[
            ("QUORUMGATE__SERVER__LISTEN", "127.0.0.1:8081"),
            ("QUORUMGATE__server__workers", "3"),
            ("QUORUMGATE__CLUSTER__QUORUM__EXPECTED_MEMBERS", "5"),
            ("QUORUMGATE__CLUSTER__SEEDS", "[a:1, \"b:2\"]"),
            ("QUORUMGATE__CIRCUIT_BREAKER__SLOW__DEDUP", "6s"),
            ("QUORUMGATE__TELEMETRY__OTLP__ENDPOINT", "http://collector:4318"),
        ],
    );
    let cluster = config.cluster.unwrap();
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:8081");
    assert_eq!((config.server.workers, config.server.max_body_bytes), (3, 10 << 20));
    assert_eq!((cluster.quorum.expected_members, cluster.id.as_str()), (5, "prod"));
    assert_eq!(cluster.gossip.unwrap().seeds, ["a:1", "b:2"]);
    assert_eq!(config.pools[0].endpoints[0].rule.slow.dedup, Duration::from_secs(6));
    assert_eq!(config.telemetry.unwrap().authority, "collector:4318");
}

#[test]
fn a_value_is_taken_as_it_stands() {
    for token in ["${HOSTNAME}-not-expanded", "#no:comment", "'no'\"quotes\"", "[no-list]", "null"]
    {
        let config = overridden(EXAMPLE, &[("QUORUMGATE__ADMIN__TOKEN", token)]);
        assert_eq!(config.admin.token.unwrap().expose(), token);
    }
}

#[test]
fn what_the_file_says_of_an_overridden_key_needs_no_variable() {
    let text = format!("admin: {{ token: \"${{NOT_SET}}\" }}\n{SMALLEST}");
    assert!(over(&text, &[]).is_err());
    assert!(over(&text, &[("QUORUMGATE__ADMIN__TOKEN", "hunter2-hunter2")]).is_ok());
}

#[test]
fn other_variables_are_no_overrides() {
    let others = [
        ("QUORUMGATE_TOKEN", "x"),
        ("QUORUMGATE_ADMIN", "x"),
        ("QUORUMGATE_SERVER__LISTEN", "x"),
        ("MY_QUORUMGATE__SERVER__LISTEN", "x"),
    ];
    assert_eq!(overridden(SMALLEST, &others), overridden(SMALLEST, &[]));
}

#[test]
fn an_override_of_what_a_fleet_shares_shows_in_the_hash_and_no_other_does() {
    let plain = overridden(SMALLEST, &[]).hash();
    let hash = |name, value| overridden(SMALLEST, &[(name, value)]).hash();
    assert_eq!(hash("QUORUMGATE__SERVER__WORKERS", "3"), plain);
    assert_ne!(hash("QUORUMGATE__RETRY__MAX_ATTEMPTS", "7"), plain);
}

#[test]
fn a_variable_that_names_no_key_is_refused_with_the_nearest() {
    refused(
        "QUORUMGATE__SERVER__LISTN",
        CANARY,
        "unknown key \"listn\" in server; did you mean \"listen\"?",
    );
    refused(
        "QUORUMGATE__SEVER__LISTEN",
        CANARY,
        "unknown key \"sever\" in the file; did you mean \"server\"?",
    );
    refused(
        "QUORUMGATE__RETRY__",
        CANARY,
        "unknown key \"\" in retry; known here: max_attempts, budget, budget_floor, on",
    );
    refused("QUORUMGATE__LOG", "{}", "log is a section; name one of its keys: format, level");
    refused(
        "QUORUMGATE__LOG__LEVEL__X",
        CANARY,
        "log.level is a single value and has no keys; end the variable's name there",
    );
    refused(
        "QUORUMGATE__CLUSTER__SEEDS__0",
        CANARY,
        "cluster.seeds is a list and has no keys; end the variable's name there",
    );
}

#[test]
fn lists_of_sections_stand_in_the_file_alone() {
    let cure = "write it in the file, with ${NAME} for a value";
    for (name, list) in [
        ("QUORUMGATE__MODELS", "models"),
        ("QUORUMGATE__MODELS__0__NAME", "models"),
        ("QUORUMGATE__API_KEYS", "api_keys"),
    ] {
        refused(
            name,
            "[]",
            &format!("{list} is a list of sections, which no variable says; {cure}"),
        );
    }
}

#[test]
fn a_wrong_value_is_refused_by_its_variable_and_never_shown() {
    refused(
        "QUORUMGATE__SERVER__WORKERS",
        CANARY,
        "server.workers: the value is not a whole number; use 0 to 1024",
    );
    refused(
        "QUORUMGATE__ADMIN__TOKEN",
        "CANARY with a space",
        "admin.token: the value holds a space or a character outside ASCII; \
         check how the secret was copied",
    );
    refused(
        "QUORUMGATE__LOG__FORMAT",
        "",
        "log.format: there is no value; give it one or unset the variable",
    );
    for value in [CANARY, "a:1, b:2", "[CANARY", "{CANARY: 1}", "[[CANARY]]", "[~]"] {
        refused(
            "QUORUMGATE__CLUSTER__SEEDS",
            value,
            "cluster.seeds: this is no list of at most 64 values; \
             write it as [first, second], with quotes where YAML wants them",
        );
    }
    let error = over(EXAMPLE, &[("QUORUMGATE__CLUSTER__SEEDS", "[a:1, CANARY]")]).unwrap_err();
    let error = error.to_string();
    assert!(
        error.starts_with("QUORUMGATE__CLUSTER__SEEDS: cluster.seeds[1]: the value "),
        "{error}"
    );
    let ratio = over(EXAMPLE, &[("QUORUMGATE__CIRCUIT_BREAKER__FAILURE_RATIO", "7.25")]);
    let ratio = ratio.unwrap_err().to_string();
    assert!(ratio.contains(": circuit_breaker.failure_ratio: the value cannot work"), "{ratio}");
    for error in [error, ratio] {
        assert!(!error.contains("CANARY") && !error.contains("7.25"), "{error}");
    }
}

#[test]
fn a_section_that_only_variables_began_is_missing_its_rest_there() {
    let error = over(SMALLEST, &[("QUORUMGATE__CLUSTER__ID", "prod")]).unwrap_err().to_string();
    assert_eq!(error, "QUORUMGATE__CLUSTER__ID: cluster.listen: is missing; write IP:PORT");
}

#[test]
fn number_and_length_are_bounded_and_no_key_is_said_twice() {
    let many: Vec<String> = (0..300).map(|index| format!("QUORUMGATE__A{index:03}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "x")).collect();
    let error = over(SMALLEST, &many).unwrap_err().to_string();
    assert!(error.starts_with("QUORUMGATE__A256: with this there are more than 256"), "{error}");
    let long = format!("QUORUMGATE__{}", "A".repeat(10_000));
    let error = over(SMALLEST, &[(&long, "x")]).unwrap_err().to_string();
    assert!(error.len() < 300 && error.contains("longer than that of any key"), "{error}");
    let name = "QUORUMGATE__CLUSTER__SEEDS";
    refused(name, &"x".repeat(70_000), "the value is longer than 64KiB; shorten it");
    refused(
        "QUORUMGATE__LOG__LEVEL",
        &"x".repeat(5_000),
        "log.level: the value is longer than 4096 bytes; shorten it",
    );
    let twice = [("QUORUMGATE__LOG__LEVEL", "info"), ("QUORUMGATE__log__level", "warn")];
    assert_eq!(
        over(SMALLEST, &twice).unwrap_err().to_string(),
        "QUORUMGATE__log__level: QUORUMGATE__LOG__LEVEL names the same key; unset one of them"
    );
}

#[test]
fn what_is_not_utf_8_is_refused_by_its_variable() {
    let value = OsString::from_vec(vec![0xff]);
    let variables = [("QUORUMGATE__LOG__LEVEL".into(), value)];
    let error = Overrides::of(variables.into_iter()).err().unwrap().to_string();
    assert!(error.starts_with("QUORUMGATE__LOG__LEVEL: the value is not UTF-8"), "{error}");
}
