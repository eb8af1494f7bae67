//! What is promised of any text that claims to be a configuration, or one value of it.

#![expect(clippy::unwrap_used, reason = "a promise that is broken stops loudly")]

use std::time::Duration;

use super::given::Missing;
use super::{Cluster, Config, ConfigError, Secret, parse, parse_duration, parse_seed, scalar};

/// Longest line of an error: a place, a key, a piece of the value, the problem and the cure.
const ERROR_BYTES_MAX: usize = 2_000;

/// Variables as a machine might have them; one is empty, one has two lines.
fn variable(name: &str) -> Option<String> {
    let value = match name {
        "EMPTY" => "",
        "LINES" => "a\nb",
        "SECRET" => "sk-CANARY",
        "PORT" => "8080",
        _ => return None,
    };
    Some(value.to_owned())
}

/// A configuration that is accepted amounts to one that is accepted and amounts to the same, with its
/// secrets masked; what is refused is refused in one line.
pub(crate) fn whole(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let config = match parse(text, "f.yaml", &variable) {
        Ok(config) => config,
        Err(error) => {
            // What only the environment holds is in no error, wherever it was put.
            let is_given = text.contains("CANARY");
            assert!(is_given || !error.to_string().contains("CANARY"), "a secret is told: {error}");
            return is_one_line(&error);
        }
    };
    let effective = config.effective_yaml();
    for secret in secrets(&config).map(Secret::expose).filter(|one| one.contains("CANARY")) {
        // What stands in another place too, in clear, by the variable or by an alias, is shown there.
        let places = text.matches(secret).count() + text.matches("SECRET").count();
        let is_only_there = places == 1 && !text.contains('&');
        assert!(!is_only_there || !effective.contains(secret), "a secret is shown");
    }
    assert_eq!(config.hash().len(), 16);
    let again = parse(&effective, "effective.yaml", &variable).unwrap();
    assert_eq!(again.effective_yaml(), effective);
    assert_eq!(again.hash(), config.hash());
    assert_eq!(parse(text, "f.yaml", &variable).unwrap(), config);
}

/// Everything of a configuration that is not to be shown.
fn secrets(config: &Config) -> impl Iterator<Item = &Secret> {
    let endpoints = config.pools.iter().flat_map(|pool| &pool.endpoints);
    let redis = config.cluster.iter().filter_map(Cluster::redis);
    endpoints
        .filter_map(|one| one.api_key.as_ref())
        .chain(&config.admin.token)
        .chain(&config.admin.read_token)
        .chain(redis.flat_map(|redis| [&redis.password, &redis.sentinel_password]).flatten())
}

fn is_one_line(error: &ConfigError) {
    let line = error.to_string();
    assert!(!line.contains(['\n', '\r', '\u{2028}', '\u{2029}']), "{line:?}");
    assert!(line.len() <= ERROR_BYTES_MAX, "{} bytes: {line}", line.len());
}

/// A value that is read is written as one that reads the same.
pub(crate) fn values(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(duration) = parse_duration(text) {
        let written = scalar::duration_text(duration);
        assert_eq!(parse_duration(&written), Ok(duration), "{text} as {written}");
        assert_eq!(duration, Duration::from_millis(duration.as_millis().try_into().unwrap()));
    }
    if let Ok(size) = scalar::size(text, 0..=u64::MAX) {
        assert_eq!(scalar::size(&scalar::size_text(size), 0..=u64::MAX), Ok(size), "{text}");
    }
    if let Ok(number) = scalar::whole(text, 0..=u32::MAX) {
        assert_eq!(scalar::whole(&number.to_string(), 0..=u32::MAX), Ok(number), "{text}");
    }
    if let Ok(fraction) = scalar::fraction(text) {
        assert!(fraction.is_finite());
    }
    let look = |name: &str| variable(name).ok_or(Missing::Unset);
    if let Ok(expanded) = scalar::expand(text, &look) {
        assert!(!expanded.is_empty() && !expanded.chars().any(char::is_control));
        assert_eq!(scalar::expand(&scalar::escape(&expanded), &look), Ok(expanded));
    }
    if let Ok(seed) = parse_seed(text) {
        assert_eq!(parse_seed(&seed), Ok(seed));
    }
    let shown = scalar::shown(text);
    assert!(!shown.contains(['\n', '\r']) && shown.chars().count() <= 70, "{shown}");
    assert!(!shown.contains("sk-CANARY"), "a key is shown: {shown}");
}
