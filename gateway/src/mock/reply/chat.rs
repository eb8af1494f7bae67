//! OpenAI's chat completions and its older completions.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Reply, Shape, data};
use crate::mock::answer::error_value;

/// The whole answer.
pub(super) fn whole(reply: &Reply) -> Value {
    let text = reply.text();
    let reason = finish_reason(reply);
    let choice = match (&reply.tool, reply.shape) {
        (Some(tool), _) => {
            let call = json!({"id": call_id(reply), "type": "function",
                "function": {"name": tool, "arguments": text}});
            let message = json!({"role": "assistant", "content": null, "refusal": null,
                "tool_calls": [call]});
            json!({"index": 0, "message": message, "logprobs": null, "finish_reason": reason})
        }
        (None, Shape::Text) => {
            json!({"index": 0, "text": text, "logprobs": null, "finish_reason": reason})
        }
        (None, _) => {
            let message = json!({"role": "assistant", "content": text, "refusal": null});
            json!({"index": 0, "message": message, "logprobs": null, "finish_reason": reason})
        }
    };
    let object = if reply.shape == Shape::Text { "text_completion" } else { "chat.completion" };
    json!({"id": id(reply), "object": object, "created": reply.created, "model": reply.model,
        "choices": [choice], "usage": usage(reply)})
}

/// Who speaks, or which tool is called.
pub(super) fn opening(reply: &Reply) -> Vec<Bytes> {
    let delta = match &reply.tool {
        Some(tool) => {
            let call = json!({"index": 0, "id": call_id(reply), "type": "function",
                "function": {"name": tool, "arguments": ""}});
            json!({"role": "assistant", "content": null, "tool_calls": [call]})
        }
        None => json!({"role": "assistant", "content": ""}),
    };
    vec![data(&chunk(reply, &choice(&delta, None)))]
}

/// One token.
pub(super) fn piece(reply: &Reply, number: u32) -> Bytes {
    let word = reply.word(number);
    let choices = match (&reply.tool, reply.shape) {
        (Some(_), _) => {
            let call = json!({"index": 0, "function": {"arguments": word}});
            choice(&json!({"tool_calls": [call]}), None)
        }
        (None, Shape::Text) => text_choice(&word, None),
        (None, _) => choice(&json!({"content": word}), None),
    };
    data(&chunk(reply, &choices))
}

/// Why it ended, the usage if it was asked for, and the end.
pub(super) fn closing(reply: &Reply) -> Vec<Bytes> {
    let reason = Some(finish_reason(reply));
    let choices = match reply.shape {
        Shape::Text => text_choice("", reason),
        _ => choice(&json!({}), reason),
    };
    let mut events = vec![data(&chunk(reply, &choices))];
    if reply.include_usage {
        let mut chunk = chunk(reply, &json!([]));
        if let Some(fields) = chunk.as_object_mut() {
            fields.insert("usage".to_owned(), usage(reply));
        }
        events.push(data(&chunk));
    }
    events.push(Bytes::from_static(b"data: [DONE]\n\n"));
    events
}

/// An error in the stream.
pub(super) fn error(message: &str) -> Bytes {
    data(&error_value(500, message))
}

fn choice(delta: &Value, reason: Option<&str>) -> Value {
    json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason}])
}

fn text_choice(text: &str, reason: Option<&str>) -> Value {
    json!([{"index": 0, "text": text, "logprobs": null, "finish_reason": reason}])
}

fn chunk(reply: &Reply, choices: &Value) -> Value {
    let object =
        if reply.shape == Shape::Text { "text_completion" } else { "chat.completion.chunk" };
    json!({"id": id(reply), "object": object, "created": reply.created, "model": reply.model,
        "choices": choices})
}

fn usage(reply: &Reply) -> Value {
    json!({"prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.tokens,
        "total_tokens": reply.total_tokens()})
}

fn finish_reason(reply: &Reply) -> &'static str {
    match (&reply.tool, reply.is_limited) {
        (_, true) => "length",
        (Some(_), false) => "tool_calls",
        (None, false) => "stop",
    }
}

fn id(reply: &Reply) -> String {
    let prefix = if reply.shape == Shape::Text { "cmpl" } else { "chatcmpl" };
    format!("{prefix}-mock-{}", reply.number)
}

fn call_id(reply: &Reply) -> String {
    format!("call_mock_{}", reply.number)
}
