//! Spans as bytes: OpenTelemetry's `ExportTraceServiceRequest` in protobuf.
//!
//! The message is half a dozen tables of which few fields are used; written by hand it is this file. The
//! crates of OpenTelemetry would bring some forty others, threads and clients of their own with them. The
//! tests read it back by the types that those crates generate.
//!
//! Numbers of fields are those of opentelemetry-proto, `collector/trace/v1` and `trace/v1`.

use super::span::{Span, Value};

/// Writes the spans of one service.
pub(super) fn request(spans: &[Span], resource: &[(&'static str, String)]) -> Vec<u8> {
    let mut request = Vec::with_capacity(spans.len() * 512);
    nested(&mut request, 1, |resource_spans| {
        nested(resource_spans, 1, |out| {
            for (key, value) in resource {
                attribute(out, 1, key, &Value::Text(value.clone()));
            }
        });
        nested(resource_spans, 2, |scope_spans| {
            nested(scope_spans, 1, |scope| {
                bytes(scope, 1, env!("CARGO_PKG_NAME").as_bytes());
                bytes(scope, 2, env!("CARGO_PKG_VERSION").as_bytes());
            });
            for one in spans {
                nested(scope_spans, 2, |out| span(out, one));
            }
        });
    });
    request
}

fn span(out: &mut Vec<u8>, span: &Span) {
    bytes(out, 1, &span.trace);
    bytes(out, 2, &span.id);
    if let Some(parent) = &span.parent {
        bytes(out, 4, parent);
    }
    bytes(out, 5, span.name.as_bytes());
    number(out, 6, span.kind as u64);
    fixed(out, 7, span.began);
    fixed(out, 8, span.ended);
    for (key, value) in &span.attributes {
        attribute(out, 9, key, value);
    }
    if span.is_error {
        const STATUS_ERROR: u64 = 2;
        nested(out, 15, |status| number(status, 3, STATUS_ERROR));
    }
}

fn attribute(out: &mut Vec<u8>, field: u64, key: &str, value: &Value) {
    nested(out, field, |out| {
        bytes(out, 1, key.as_bytes());
        nested(out, 2, |out| match value {
            Value::Text(text) => bytes(out, 1, text.as_bytes()),
            Value::Number(value) => number(out, 3, *value),
        });
    });
}

/// The types of fields on the wire.
const VARINT: u64 = 0;
const FIXED: u64 = 1;
const BYTES: u64 = 2;

fn varint(out: &mut Vec<u8>, mut value: u64) {
    const MORE: u8 = 0x80;
    while value >= u64::from(MORE) {
        out.push(value as u8 | MORE);
        value >>= 7;
    }
    out.push(value as u8);
}

fn tag(out: &mut Vec<u8>, field: u64, kind: u64) {
    varint(out, field << 3 | kind);
}

fn number(out: &mut Vec<u8>, field: u64, value: u64) {
    tag(out, field, VARINT);
    varint(out, value);
}

fn fixed(out: &mut Vec<u8>, field: u64, value: u64) {
    tag(out, field, FIXED);
    out.extend_from_slice(&value.to_le_bytes());
}

fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    tag(out, field, BYTES);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn nested(out: &mut Vec<u8>, field: u64, write: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    write(&mut inner);
    bytes(out, field, &inner);
}
