//! The JSON Schema of the configuration, for editors: draft 2020-12, made out of the code that reads
//! and checks a file.
//!
//! Which keys there are is what the tables say; what a key takes is what its check says when it is
//! asked. Neither is written down a second time. The check goes further than a schema can: settings
//! that contradict each other are its alone.
//!
//! Invariants: every key of a table is in the schema and no other; what the check accepts, the
//! schema accepts.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::check;
use super::file::{self, File, Shape, Shaped};
use super::form::{Form, Forms, Known};
use super::scalar::{duration_text, size_text};

/// Configurations that are accepted and between them have every section, so that every check is
/// come by. Two settings exclude each other; hence two.
const EVERY_SECTION: [&str; 2] =
    [include_str!("schema/staged.yml"), include_str!("schema/lazy.yml")];
/// Beyond this a whole number is not exact in JSON as most read it.
const EXACT_MAX: u64 = 1 << 53;

/// The schema, as a JSON document.
#[must_use]
pub fn schema() -> Value {
    let mut forms = Forms::default();
    for text in EVERY_SECTION {
        let read = file::read(text, "every section");
        debug_assert!(read.is_ok(), "{read:?}");
        if let Ok(file) = read {
            forms.extend(check::forms(&file));
        }
    }
    let mut tables = Tables { forms: &forms, written: BTreeMap::new() };
    let root = tables.schema(&File::shape(), "");
    let mut definitions: Map<String, Value> = Map::new();
    definitions.insert("variable".to_owned(), variable());
    for (name, table) in tables.written {
        definitions.insert(name.to_owned(), table.schema());
    }
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The configuration of quorumgate",
        "required": ["models"],
        "$defs": definitions,
    });
    if let (Some(schema), Value::Object(root)) = (schema.as_object_mut(), root) {
        schema.extend(root);
    }
    schema
}

/// A value that the environment gives.
fn variable() -> Value {
    json!({
        "description": "a value from the environment: ${NAME} or ${NAME:-default}",
        "type": "string",
        "pattern": "\\$\\{",
    })
}

/// The keys of one table. Several places may have the same table; what any of them says of a key
/// holds.
#[derive(Default)]
struct Written {
    properties: Map<String, Value>,
    required: Vec<&'static str>,
}

impl Written {
    fn schema(self) -> Value {
        let mut schema = json!({
            "type": "object",
            "properties": self.properties,
            "additionalProperties": false,
        });
        if let (false, Some(schema)) = (self.required.is_empty(), schema.as_object_mut()) {
            schema.insert("required".to_owned(), json!(self.required));
        }
        schema
    }
}

struct Tables<'a> {
    forms: &'a Forms,
    written: BTreeMap<&'static str, Written>,
}

impl Tables<'_> {
    /// The schema of what has this shape at `path`.
    fn schema(&mut self, shape: &Shape, path: &str) -> Value {
        match shape {
            Shape::Scalar => self.forms.get(path).map_or_else(any, scalar),
            Shape::List(entry, most) => json!({
                "type": "array",
                "maxItems": most,
                "items": self.schema(entry, path),
            }),
            Shape::Section(name, keys) => {
                for (key, shape) in keys() {
                    let path =
                        if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
                    let schema = self.schema(&shape, &path);
                    let is_required = self.forms.is_required(&path);
                    let written = self.written.entry(name).or_default();
                    if is_required && !written.required.contains(&key) {
                        written.required.push(key);
                    }
                    let before = written.properties.get(key);
                    if before.is_none_or(|before| *before == any()) {
                        written.properties.insert(key.to_owned(), schema);
                    }
                }
                json!({ "$ref": format!("#/$defs/{name}") })
            }
        }
    }
}

/// A value of which no form is known.
fn any() -> Value {
    json!({ "type": ["string", "number", "boolean"] })
}

fn scalar(known: &Known) -> Value {
    let Some((what, mut ways)) = ways(&known.form) else { return any() };
    if !known.words.is_empty() {
        ways.push(words(&known.words));
    }
    ways.push(json!({ "$ref": "#/$defs/variable" }));
    let words: String = known.words.iter().map(|word| format!(", or {word}")).collect();
    json!({ "description": format!("{what}{words}"), "anyOf": ways })
}

/// One of `known`. Many editors read `off` without quotes as the truth that YAML 1.1 took it for.
fn words<T: AsRef<str>>(known: &[T]) -> Value {
    let mut words: Vec<Value> = known.iter().map(|word| json!(word.as_ref())).collect();
    if known.iter().any(|word| word.as_ref() == "off") {
        words.push(json!(false));
    }
    json!({ "enum": words })
}

/// What a form is in words, and the ways in which a value of it is written.
fn ways(form: &Form) -> Option<(String, Vec<Value>)> {
    let text = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    Some(match form {
        Form::Text => return None,
        Form::Duration(range) => {
            let what = format!("a duration{}", span(range.start(), range.end()));
            (what, vec![text("^(?=[0-9])([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$")])
        }
        Form::Size(range) => {
            let (least, most) = (size_text(*range.start()), size_text(*range.end()));
            let what = format!("a size, {least} to {most}");
            (what, vec![integer(*range.start(), *range.end()), text("^[0-9]+(B|KiB|MiB|GiB)?$")])
        }
        Form::Whole(range) => {
            let (least, most) = (*range.start(), *range.end());
            let what = match most {
                u64::MAX => format!("a whole number from {least} on"),
                most => format!("a whole number, {least} to {most}"),
            };
            (what, vec![integer(least, most), text("^[0-9]+$")])
        }
        Form::Fraction => {
            ("a number".to_owned(), vec![json!({ "type": "number" }), text("^[0-9.-]+$")])
        }
        Form::Truth => (
            "true or false".to_owned(),
            vec![json!({ "type": "boolean" }), json!({ "enum": ["true", "false"] })],
        ),
        Form::Words(known) => (known.join(", "), vec![words(known)]),
        Form::Name { most, marks } => {
            let inside: String = marks.chars().map(|mark| format!("\\{mark}")).collect();
            let what = format!("1 to {most} letters, digits and {marks}");
            let pattern = format!("^[A-Za-z0-9{inside}]{{1,{most}}}$");
            let scalar = json!({ "type": ["string", "number", "boolean"], "pattern": pattern });
            (what, vec![scalar])
        }
    })
}

fn span(least: &Duration, most: &Duration) -> String {
    format!(", {} to {}", duration_text(*least), duration_text(*most))
}

fn integer(least: u64, most: u64) -> Value {
    match most {
        ..=EXACT_MAX => json!({ "type": "integer", "minimum": least, "maximum": most }),
        _ => json!({ "type": "integer", "minimum": least }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Settings that take any text, or one whose form has no name: a path, a header, an address, a
    /// secret. Whoever adds one looks at it and puts it here.
    const TEXTS: [&str; 40] = [
        "server.listen",
        "server.tls.cert",
        "server.tls.key",
        "server.cors.origins",
        "admin.listen",
        "admin.token",
        "admin.read_token",
        "cluster.node_id",
        "cluster.listen",
        "cluster.advertise",
        "cluster.seeds",
        "cluster.tls.ca",
        "cluster.tls.cert",
        "cluster.tls.key",
        "redis.urls",
        "redis.username",
        "redis.password",
        "redis.sentinel_password",
        "redis.tls.ca",
        "redis.tls.cert",
        "redis.tls.key",
        "state.file",
        "fail_closed.require_header",
        "fail_closed.allowed_paths",
        "api_keys.sha256",
        "api_keys.models",
        "circuit_breaker.tenant.header",
        "circuit_breaker.probe.prompt",
        "circuit_breaker.probe.metrics_path",
        "models.fallback",
        "models.endpoints.address",
        "models.endpoints.tls.ca",
        "models.endpoints.tls.cert",
        "models.endpoints.tls.key",
        "models.endpoints.tls.server_name",
        "models.endpoints.upstream_model",
        "models.endpoints.api_key",
        "models.endpoints.health_path",
        "log.level",
        "telemetry.otlp.endpoint",
    ];

    #[test]
    fn every_setting_was_asked_what_it_takes() {
        let mut forms = Forms::default();
        for text in EVERY_SECTION {
            forms.extend(check::forms(&file::read(text, "test").unwrap()));
        }
        let (mut unasked, mut texts) = (Vec::new(), Vec::new());
        walk(&File::shape(), "", &mut |path| match forms.get(path) {
            None => unasked.push(path.to_owned()),
            // What a model or an endpoint changes was listed with what it changes.
            Some(known) if known.form == Form::Text && !path.contains("s.circuit_breaker") => {
                texts.push(path.to_owned());
            }
            Some(_) => {}
        });
        assert_eq!(unasked, Vec::<String>::new(), "no check was come by");
        assert_eq!(texts, TEXTS);
    }

    #[test]
    fn bounds_words_and_what_must_be_there_come_from_the_check() {
        let schema = schema();
        let at = |path: &str| schema.pointer(path).unwrap_or(&Value::Null).clone();
        let way = |table: &str, key: &str| at(&format!("/$defs/{table}/properties/{key}/anyOf/0"));
        let whole =
            |least: u64, most: u64| json!({ "type": "integer", "minimum": least, "maximum": most });
        assert_eq!(way("EndpointSection", "weight"), whole(1, 1_000));
        assert_eq!(way("CircuitSection", "failure_threshold"), whole(1, 10_000));
        assert_eq!(way("SlowSection", "confirmations"), whole(1, 16));
        assert_eq!(
            way("CircuitSection", "mode"),
            json!({ "enum": ["enforce", "shadow", "off", false] })
        );
        assert_eq!(at("/$defs/RetrySection/properties/on/items/anyOf/2/enum"), json!(["refused"]));
        assert_eq!(
            at("/$defs/SlowSection/properties/first_token/anyOf/1/enum"),
            json!(["off", false])
        );
        assert_eq!(at("/$defs/EndpointSection/required"), json!(["name", "address"]));
        assert_eq!(at("/$defs/File/additionalProperties"), json!(false));
        assert_eq!(at("/$ref"), json!("#/$defs/File"));
        let duration = at("/$defs/TimeoutsSection/properties/connect/description");
        assert_eq!(duration, json!("a duration, 1ms to 24h"));
    }

    fn walk(shape: &Shape, path: &str, each: &mut impl FnMut(&str)) {
        match shape {
            Shape::Scalar => each(path),
            Shape::List(entry, _) => walk(entry, path, each),
            Shape::Section(_, keys) => {
                for (key, shape) in keys() {
                    let path =
                        if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
                    walk(&shape, &path, each);
                }
            }
        }
    }
}
