//! The JSON Schema of the configuration against the check that it speaks for: what one refuses by its
//! keys, words and bounds, the other does too, and what the check accepts, the schema accepts.
//!
//! The schema is read by a validator of others, as an editor would: jsonschema-rs for Python, installed
//! at its pinned version into an environment below the target directory, which is kept until the pin
//! changes. python3 with venv and its package index are needed.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may stop loudly")]

#[path = "python/mod.rs"]
mod python;
#[path = "schema/reference.rs"]
mod reference;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use gateway::config;
use serde_json::{Value, json};

const PIN: &str = "jsonschema_rs==0.60.3";
/// Reads a schema and documents from stdin; prints which of them it accepts.
const VALIDATE: &str = "
import json, sys, jsonschema_rs
asked = json.load(sys.stdin)
assert jsonschema_rs.meta.is_valid(asked['schema']), 'the schema is none'
validator = jsonschema_rs.validator_for(asked['schema'])
print(json.dumps([validator.is_valid(document) for document in asked['documents']]))
";

/// A Python with the validator, made once for all tests.
fn interpreter() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| python::environment("jsonschema", PIN).join("bin/python"))
}

/// Which documents the schema accepts.
fn accepted_by_schema(documents: &[Value]) -> Vec<bool> {
    let mut child = Command::new(interpreter())
        .args(["-c", VALIDATE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let asked = json!({ "schema": config::schema(), "documents": documents });
    child.stdin.take().unwrap().write_all(asked.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "the validator failed");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Why our check refuses a document; JSON is YAML.
fn refusal(document: &Value) -> Option<String> {
    let environment = |name: &str| Some(format!("value-of-{}", name.to_lowercase()));
    config::parse(&document.to_string(), "test", &environment).err().map(|error| error.to_string())
}

fn reference() -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/quorumgate.yaml");
    document(&fs::read_to_string(file).unwrap())
}

/// A text as a reader of YAML 1.2 has it, to whom `off` is a word.
fn document(text: &str) -> Value {
    let mut options = serde_saphyr::Options::default();
    options.strict_booleans = true;
    serde_saphyr::from_str_with_options(text, options).unwrap()
}

/// A small configuration with these sections put into it.
fn with(sections: &str) -> Value {
    let mut document = document(sections);
    let model = json!({ "name": "m", "endpoints": [{ "name": "a", "address": "http://a" }] });
    document.as_object_mut().unwrap().entry("models").or_insert(json!([model]));
    document
}

/// Every mapping of `value`, by its path.
fn mappings(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(entries) => {
            found.push(path.to_owned());
            for (key, value) in entries {
                mappings(value, &format!("{path}/{key}"), found);
            }
        }
        Value::Array(entries) => {
            for (index, value) in entries.iter().enumerate() {
                mappings(value, &format!("{path}/{index}"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn the_reference_and_what_it_amounts_to_are_accepted() {
    let reference = reference();
    assert_eq!(refusal(&reference), None);
    let environment = |name: &str| Some(format!("value-of-{}", name.to_lowercase()));
    let read = config::parse(&reference.to_string(), "reference", &environment).unwrap();
    let effective = document(&read.effective_yaml());
    let variables = with("{ server: { workers: '${N:-3}' }, retry: { on: ['${R}', '503'] } }");
    // To a reader of YAML 1.1 it is none.
    let mut older = reference.clone();
    older["timeouts"]["first_token"] = json!(false);
    older["circuit_breaker"]["mode"] = json!(false);
    let documents = [reference, effective, variables, older, json!({ "models": "${A}" })];
    assert_eq!(accepted_by_schema(&documents), [true, true, true, true, false]);
}

#[test]
fn a_key_that_is_not_known_is_refused_by_both_wherever_it_stands() {
    let reference = reference();
    let mut paths = Vec::new();
    mappings(&reference, "", &mut paths);
    assert!(paths.len() > 20, "{paths:?}");
    let spoilt: Vec<Value> = paths
        .iter()
        .map(|path| {
            let mut document = reference.clone();
            let entries = document.pointer_mut(path).unwrap().as_object_mut().unwrap();
            entries.insert("unknwon".to_owned(), json!(1));
            document
        })
        .collect();
    for document in &spoilt {
        assert!(refusal(document).unwrap().contains("unknwon"), "{document}");
    }
    assert_eq!(accepted_by_schema(&spoilt), vec![false; spoilt.len()]);
}

/// Settings with their bounds: N stands for the value.
const EDGES: [(&str, u64, u64); 16] = [
    ("server: { workers: N }", 0, 1_024),
    ("retry: { max_attempts: N }", 1, 10),
    ("retry: { budget_floor: N }", 0, 1_000),
    ("retry: { on: [N] }", 500, 599),
    ("failover: { on: [N] }", 500, 599),
    ("fail_closed: { max_n: N }", 1, 128),
    ("circuit_breaker: { failure_threshold: N, min_requests: 1 }", 1, 10_000),
    ("circuit_breaker: { failure_threshold: 10000, min_requests: N }", 1, 30_000),
    ("circuit_breaker: { slow: { confirmations: N, dedup: 1ms } }", 1, 16),
    ("circuit_breaker: { half_open: { max_requests: N } }", 1, 16),
    ("circuit_breaker: { half_open: { successes: N } }", 1, 10_000),
    ("circuit_breaker: { probe: { max_tokens: N } }", 1, 1_024),
    ("circuit_breaker: { capacity_status_codes: [N] }", 400, 599),
    (
        "models: [{ name: m, limits: { concurrency: N }, endpoints: [{ name: a, address: 'http://a' }] }]",
        1,
        1_000_000,
    ),
    ("models: [{ name: m, endpoints: [{ name: a, address: 'http://a', weight: N }] }]", 1, 1_000),
    ("models: [{ name: m, endpoints: [{ name: a, address: 'http://a', priority: N }] }]", 0, 15),
];

#[test]
fn bounds_agree_at_their_edges() {
    let (mut documents, mut wanted) = (Vec::new(), Vec::new());
    for (text, least, most) in EDGES {
        for (value, is_in) in [
            (least.checked_sub(1), false),
            (Some(least), true),
            (Some(most), true),
            (Some(most + 1), false),
        ] {
            let Some(value) = value else { continue };
            let document = with(&text.replace('N', &value.to_string()));
            assert_eq!(refusal(&document).is_none(), is_in, "{document}: {:?}", refusal(&document));
            documents.push(document);
            // Only 4xx that no list claims are the client's own, which is more than a schema can say.
            wanted.push(is_in || (text.starts_with("failover") && value == 499));
        }
    }
    for (sections, is_in) in [
        ("circuit_breaker: { mode: shadow }", true),
        ("circuit_breaker: { mode: shade }", false),
        ("timeouts: { connect: 1m30s }", true),
        ("timeouts: { connect: 10 secs }", false),
        ("timeouts: { connect: '' }", false),
        ("timeouts: { first_token: off }", true),
        ("timeouts: { connect: off }", false),
        ("server: { max_body: 1KiB }", true),
        ("server: { max_body: 1kb }", false),
        ("server: { max_body: 1023 }", false),
        ("cluster: { listen: 127.0.0.1:1 }", false),
        ("retry: { on: refused }", false),
        ("retry: { on: [cut] }", false),
        ("failover: { on: [cut] }", true),
        ("models: [{ name: 'a b', endpoints: [{ name: a, address: 'http://a' }] }]", false),
        ("models: [{ name: a, endpoints: [{ name: a }] }]", false),
    ] {
        let document = with(sections);
        assert_eq!(refusal(&document).is_none(), is_in, "{document}: {:?}", refusal(&document));
        documents.push(document);
        wanted.push(is_in);
    }
    let answers = accepted_by_schema(&documents);
    for ((document, answer), wanted) in documents.iter().zip(answers).zip(wanted) {
        assert_eq!(answer, wanted, "{document}");
    }
}

#[test]
fn what_the_check_accepts_the_schema_accepts() {
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let reference = reference();
    let mut places = Vec::new();
    scalars(&reference, "", &mut places);
    let odd = [
        json!(0),
        json!(1),
        json!(3),
        json!(16),
        json!(1.5),
        json!(true),
        json!("off"),
        json!("1s"),
        json!("90s"),
        json!("5m"),
        json!("x"),
        json!("1"),
        json!("0.5"),
        json!("10MiB"),
        json!("${A:-1s}"),
        json!("refused"),
        json!("false"),
        json!("a-b"),
        json!("http2"),
    ];
    let mut taken = Vec::new();
    for _ in 0..3_000 {
        let mut document = reference.clone();
        let place = &places[random.usize(0..places.len())];
        *document.pointer_mut(place).unwrap() = odd[random.usize(0..odd.len())].clone();
        if refusal(&document).is_none() {
            taken.push(document);
        }
    }
    assert!(taken.len() > 100, "{} of 3000 are accepted", taken.len());
    let answers = accepted_by_schema(&taken);
    for (document, answer) in taken.iter().zip(answers) {
        assert!(answer, "the check takes it, the schema does not: {document}");
    }
}

/// Every single value, by its path.
fn scalars(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(entries) => {
            entries.iter().for_each(|(key, value)| scalars(value, &format!("{path}/{key}"), found));
        }
        Value::Array(entries) => {
            let entries = entries.iter().enumerate();
            entries.for_each(|(index, value)| scalars(value, &format!("{path}/{index}"), found));
        }
        _ => found.push(path.to_owned()),
    }
}
