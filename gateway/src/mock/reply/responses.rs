//! OpenAI's responses: named and numbered events, and no `[DONE]`.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{Reply, named};

/// Events before the first token: of a text, and of a call.
const OPENING_OF_TEXT: u64 = 4;
const OPENING_OF_CALL: u64 = 3;

/// The whole answer.
pub(super) fn whole(reply: &Reply) -> Value {
    let (status, reason) = ending(reply);
    response(reply, status, reason, &json!([item(reply, "completed", &reply.text())]), true)
}

/// The response is made, its item and the item's part are added.
pub(super) fn opening(reply: &Reply) -> Vec<Bytes> {
    let empty = response(reply, "in_progress", None, &json!([]), false);
    let mut events = vec![
        json!({"type": "response.created", "sequence_number": 0, "response": empty}),
        json!({"type": "response.in_progress", "sequence_number": 1, "response": empty}),
        json!({"type": "response.output_item.added", "sequence_number": 2, "output_index": 0,
            "item": item(reply, "in_progress", "")}),
    ];
    if reply.tool.is_none() {
        events.push(json!({"type": "response.content_part.added", "sequence_number": 3,
            "item_id": item_id(reply), "output_index": 0, "content_index": 0, "part": part("")}));
    }
    events.iter().map(named).collect()
}

/// One token.
pub(super) fn piece(reply: &Reply, number: u32) -> Bytes {
    let sequence = first_sequence(reply).saturating_add(u64::from(number));
    let word = reply.word(number);
    named(&if reply.tool.is_some() {
        json!({"type": "response.function_call_arguments.delta", "sequence_number": sequence,
            "item_id": item_id(reply), "output_index": 0, "delta": word})
    } else {
        json!({"type": "response.output_text.delta", "sequence_number": sequence,
            "item_id": item_id(reply), "output_index": 0, "content_index": 0, "delta": word,
            "logprobs": []})
    })
}

/// The part, the item and the response are done.
pub(super) fn closing(reply: &Reply) -> Vec<Bytes> {
    let text = reply.text();
    let (status, reason) = ending(reply);
    let id = item_id(reply);
    let mut events = if reply.tool.is_some() {
        vec![json!({"type": "response.function_call_arguments.done", "item_id": id,
            "output_index": 0, "name": reply.tool, "arguments": text})]
    } else {
        vec![
            json!({"type": "response.output_text.done", "item_id": id, "output_index": 0,
                "content_index": 0, "text": text, "logprobs": []}),
            json!({"type": "response.content_part.done", "item_id": id, "output_index": 0,
                "content_index": 0, "part": part(&text)}),
        ]
    };
    let item = item(reply, "completed", &text);
    events.push(json!({"type": "response.output_item.done", "output_index": 0, "item": item}));
    events.push(json!({"type": format!("response.{status}"),
        "response": response(reply, status, reason, &json!([item]), true)}));
    let first = first_sequence(reply).saturating_add(u64::from(reply.tokens));
    let numbered = events.into_iter().zip(first..).map(|(mut event, sequence)| {
        if let Some(fields) = event.as_object_mut() {
            fields.insert("sequence_number".to_owned(), json!(sequence));
        }
        named(&event)
    });
    numbered.collect()
}

/// An error in the stream.
pub(super) fn error(message: &str) -> Bytes {
    named(&json!({"type": "error", "code": "server_error", "message": message, "param": null,
        "sequence_number": OPENING_OF_TEXT}))
}

fn first_sequence(reply: &Reply) -> u64 {
    if reply.tool.is_some() { OPENING_OF_CALL } else { OPENING_OF_TEXT }
}

/// How the response ends, and why it is incomplete.
fn ending(reply: &Reply) -> (&'static str, Option<&'static str>) {
    if reply.is_limited { ("incomplete", Some("max_output_tokens")) } else { ("completed", None) }
}

fn response(
    reply: &Reply,
    status: &str,
    reason: Option<&str>,
    output: &Value,
    has_usage: bool,
) -> Value {
    let usage = has_usage.then(|| {
        json!({"input_tokens": reply.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0}, "output_tokens": reply.tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": reply.total_tokens()})
    });
    let details = reason.map(|reason| json!({"reason": reason}));
    let mut response = Map::new();
    for (name, value) in [
        ("id", json!(format!("resp_mock_{}", reply.number))),
        ("object", json!("response")),
        ("created_at", json!(reply.created)),
        ("status", json!(status)),
        ("error", Value::Null),
        ("incomplete_details", json!(details)),
        ("instructions", Value::Null),
        ("max_output_tokens", Value::Null),
        ("model", json!(reply.model)),
        ("output", output.clone()),
        ("parallel_tool_calls", json!(true)),
        ("previous_response_id", Value::Null),
        ("temperature", json!(1.0)),
        ("tool_choice", json!("auto")),
        ("tools", json!([])),
        ("top_p", json!(1.0)),
        ("usage", json!(usage)),
        ("metadata", json!({})),
    ] {
        response.insert(name.to_owned(), value);
    }
    Value::Object(response)
}

/// The only item: a message, or a call.
fn item(reply: &Reply, status: &str, text: &str) -> Value {
    match &reply.tool {
        Some(tool) => json!({"type": "function_call", "id": item_id(reply), "status": status,
            "call_id": format!("call_mock_{}", reply.number), "name": tool, "arguments": text}),
        None => {
            let is_begun = status == "in_progress";
            let content = if is_begun { json!([]) } else { json!([part(text)]) };
            json!({"type": "message", "id": item_id(reply), "status": status,
                "role": "assistant", "content": content})
        }
    }
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

fn item_id(reply: &Reply) -> String {
    let prefix = if reply.tool.is_some() { "fc" } else { "msg" };
    format!("{prefix}_mock_{}", reply.number)
}
