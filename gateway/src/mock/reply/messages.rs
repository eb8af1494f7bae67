//! Anthropic's messages: named events, ended by `message_stop`.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Reply, named};
use crate::mock::answer::anthropic_error_value;

/// The whole answer.
pub(super) fn whole(reply: &Reply) -> Value {
    let text = reply.text();
    let block = match &reply.tool {
        Some(tool) => {
            let input: Value = serde_json::from_str(&text).unwrap_or_default();
            json!({"type": "tool_use", "id": call_id(reply), "name": tool, "input": input})
        }
        None => json!({"type": "text", "text": text}),
    };
    message(reply, &json!([block]), Some(stop_reason(reply)), reply.tokens)
}

/// The message and its only block start.
pub(super) fn opening(reply: &Reply) -> Vec<Bytes> {
    let block = match &reply.tool {
        Some(tool) => json!({"type": "tool_use", "id": call_id(reply), "name": tool, "input": {}}),
        None => json!({"type": "text", "text": ""}),
    };
    let message = message(reply, &json!([]), None, 1);
    let events = [
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "ping"}),
    ];
    events.iter().map(named).collect()
}

/// One token.
pub(super) fn piece(reply: &Reply, number: u32) -> Bytes {
    let word = reply.word(number);
    let delta = match &reply.tool {
        Some(_) => json!({"type": "input_json_delta", "partial_json": word}),
        None => json!({"type": "text_delta", "text": word}),
    };
    named(&json!({"type": "content_block_delta", "index": 0, "delta": delta}))
}

/// The block stops, the message says why, and stops.
pub(super) fn closing(reply: &Reply) -> Vec<Bytes> {
    let events = [
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta",
            "delta": {"stop_reason": stop_reason(reply), "stop_sequence": null},
            "usage": {"output_tokens": reply.tokens}}),
        json!({"type": "message_stop"}),
    ];
    events.iter().map(named).collect()
}

/// An error in the stream: the one that Anthropic's clients have to expect there.
pub(super) fn error(message: &str) -> Bytes {
    named(&anthropic_error_value(529, message))
}

fn message(reply: &Reply, content: &Value, reason: Option<&str>, output_tokens: u32) -> Value {
    json!({"id": format!("msg_mock_{}", reply.number), "type": "message", "role": "assistant",
        "model": reply.model, "content": content, "stop_reason": reason, "stop_sequence": null,
        "usage": {"input_tokens": reply.prompt_tokens, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0, "output_tokens": output_tokens}})
}

fn stop_reason(reply: &Reply) -> &'static str {
    match (&reply.tool, reply.is_limited) {
        (_, true) => "max_tokens",
        (Some(_), false) => "tool_use",
        (None, false) => "end_turn",
    }
}

fn call_id(reply: &Reply) -> String {
    format!("toolu_mock_{}", reply.number)
}
