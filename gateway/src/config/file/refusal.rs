//! What is said about a text that cannot be read into its sections.
//!
//! The YAML library speaks to programmers; whoever mistyped a key wants the key, its section, the
//! place and the word that was meant. Keys that the design has and this version does not are named
//! as such, so that nobody looks for a typing error.
//!
//! Invariants: one line; no scalar of the file is repeated except keys, since any other may be a
//! secret.

use serde_saphyr::Error;

use super::Place;
use super::place::{self, Found};
use crate::config::error::{ConfigError, did_you_mean};
use crate::config::scalar;

/// Keys of the design that this version does not have, by the end of the path of their section.
const UNSUPPORTED: &[(&str, &[&str])] =
    &[("circuit_breaker", &["canary"]), ("models", &["failover", "priority"])];

/// Turns what the YAML library says about `text` into one line.
pub(super) fn refuse(text: &str, source_name: &str, error: &Error) -> ConfigError {
    let error = error.without_snippet();
    let place = error.location().map_or(Place::START, Place::from);
    let is_about_key =
        matches!(error, Error::SerdeUnknownField { .. } | Error::DuplicateMappingKey { .. });
    let found = place::find(text, place, is_about_key);
    let (problem, cure) = describe(error, &found);
    ConfigError::RefuseLine {
        file: source_name.to_owned(),
        line: place.line,
        column: place.column,
        problem,
        cure,
    }
}

fn describe(error: &Error, found: &Found) -> (String, String) {
    match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            describe_unknown(field, expected, &found.around)
        }
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().map_or_else(String::new, scalar::shown);
            let problem = format!("key {key} stands twice in {}", section_name(&found.around));
            (problem, "keep one of them".to_owned())
        }
        Error::NullIntoString { .. } => no_value(found),
        Error::Unexpected { .. } if found.is_empty => no_value(found),
        Error::Unexpected { expected, .. } => {
            let shape = match *expected {
                "mapping start" => "a mapping of keys to values",
                "sequence start" => "a list",
                _ => "a single value",
            };
            let problem = format!("{}this must be {shape}", label(&found.path));
            (problem, "write it so".to_owned())
        }
        Error::MultipleDocuments { .. } => {
            ("a second document begins".to_owned(), "keep one document in the file".to_owned())
        }
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. } => (
            "the file holds more than a configuration may".to_owned(),
            "make it smaller or less deeply nested".to_owned(),
        ),
        Error::AliasError { error, .. } => describe(error, found),
        // The one message of this kind is the bound of a list.
        Error::Message { msg, .. } => {
            (format!("{}{}", label(&found.path), scalar::one_line(msg)), "remove some".to_owned())
        }
        other => describe_syntax(other),
    }
}

/// Says what is wrong with a key that is not among those `known` in `section`, and the cure.
pub(super) fn describe_unknown(field: &str, known: &[&str], section: &str) -> (String, String) {
    let shown = scalar::shown(field);
    let plain = without_indexes(section);
    let is_unsupported = UNSUPPORTED.iter().any(|(end, keys)| {
        let is_section = match plain.strip_suffix(end) {
            _ if end.is_empty() => plain.is_empty(),
            Some(rest) => rest.is_empty() || rest.ends_with('.'),
            None => false,
        };
        is_section && keys.contains(&field)
    });
    if is_unsupported {
        let path = match section {
            "" => field.to_owned(),
            _ => format!("{section}.{field}"),
        };
        let problem = format!("{path} is not supported by this version");
        return (problem, "remove it".to_owned());
    }
    let problem = format!("unknown key {shown} in {}", section_name(section));
    (problem, did_you_mean(field, known))
}

fn no_value(found: &Found) -> (String, String) {
    (format!("{}there is no value", label(&found.path)), "give it one or remove the key".to_owned())
}

fn describe_syntax(error: &Error) -> (String, String) {
    let rendered = error.render();
    // The place is said at the beginning of the line already.
    let message =
        rendered.rsplit_once(" at line ").map_or(rendered.as_str(), |(message, _)| message);
    let cure = if message.contains("flow") {
        "correct the text here; inside { } and [ ] a value such as ${NAME} needs quotes"
    } else if message.contains("tabs") {
        "indent with spaces"
    } else {
        "correct the text here"
    };
    let problem = format!("this is not valid YAML ({})", scalar::one_line(message));
    (problem, cure.to_owned())
}

fn section_name(path: &str) -> &str {
    if path.is_empty() { "the file" } else { path }
}

fn label(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("{path}: ") }
}

fn without_indexes(path: &str) -> String {
    let mut plain = String::with_capacity(path.len());
    let mut is_index = false;
    for one in path.chars() {
        match one {
            '[' => is_index = true,
            ']' => is_index = false,
            _ if is_index => {}
            _ => plain.push(one),
        }
    }
    plain
}
