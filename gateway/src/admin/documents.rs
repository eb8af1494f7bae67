//! The schemas of answers that other rooms write themselves.
//!
//! They stand here by hand, and a test holds every real answer against them, strictly.

use schemars::{Schema, SchemaGenerator, json_schema};

/// The keys that hold only after a restart.
fn needs_restart() -> Schema {
    json_schema!({
        "type": "array",
        "items": { "type": "string" },
        "description": "Keys whose values hold only after a restart.",
    })
}

/// What `GET config` answers.
pub(super) fn config(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "required": ["yaml", "hash", "loaded_unix_ms", "source", "last_error", "needs_restart"],
        "properties": {
            "yaml": {
                "type": "string",
                "description": "Every setting with its effective value; secrets are masked.",
            },
            "hash": { "type": "string", "description": "Equal on nodes that share their settings." },
            "loaded_unix_ms": { "type": "integer", "minimum": 0 },
            "source": { "type": ["string", "null"], "description": "The file it came from." },
            "last_error": {
                "description": "Why the file was not taken on; null: the last try went well.",
                "anyOf": [
                    { "type": "null" },
                    {
                        "type": "object",
                        "required": ["unix_ms", "message"],
                        "properties": {
                            "unix_ms": { "type": "integer", "minimum": 0 },
                            "message": { "type": "string" },
                        },
                    },
                ],
            },
            "needs_restart": needs_restart(),
        },
    })
}

/// What `POST config/check` answers.
pub(super) fn checked(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "required": ["ok", "hash", "yaml", "needs_restart"],
        "properties": {
            "ok": { "const": true },
            "hash": { "type": "string", "description": "What its hash would be." },
            "yaml": {
                "type": ["string", "null"],
                "description": "What it amounts to; secrets are masked, and so is what the environment \
                    gives. null: the environment gives something that cannot be masked.",
            },
            "needs_restart": needs_restart(),
        },
    })
}

/// What `POST config/reload` answers.
pub(super) fn reloaded(_: &mut SchemaGenerator) -> Schema {
    let names = json_schema!({ "type": "array", "items": { "type": "string" } });
    json_schema!({
        "type": "object",
        "required": ["changed", "hash", "needs_restart", "endpoints"],
        "properties": {
            "changed": { "type": "boolean", "description": "Whether anything was another." },
            "hash": { "type": "string", "description": "The hash of what holds." },
            "needs_restart": needs_restart(),
            "endpoints": {
                "type": "object",
                "required": ["added", "removed", "changed"],
                "properties": { "added": names, "removed": names, "changed": names },
            },
        },
    })
}
