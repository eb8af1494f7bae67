//! Answers that only come whole: vectors, rankings, judgements, counts.

use serde_json::{Map, Value, json};

use super::question::{Question, input_count, prompt_tokens};

/// The most elements of one answer, OpenAI's own limit.
const ELEMENTS_MAX: usize = 2048;
/// What a moderation judges.
const CATEGORIES: [&str; 13] = [
    "harassment",
    "harassment/threatening",
    "hate",
    "hate/threatening",
    "illicit",
    "illicit/violent",
    "self-harm",
    "self-harm/instructions",
    "self-harm/intent",
    "sexual",
    "sexual/minors",
    "violence",
    "violence/graphic",
];

/// The numbers 0.25, -0.5 and 1 as little-endian floats of 32 bits, in base64.
const VECTOR: &str = "AACAPgAAAL8AAIA/";

/// Returns the answer to an embeddings request: one small vector for each input, as numbers or as
/// the official clients ask for it.
pub(super) fn embeddings(question: &Question<'_>, model: &str, body_bytes: usize) -> Value {
    let is_base64 = question.encoding_format.is_some_and(|format| format.get() == "\"base64\"");
    let vector = if is_base64 { json!(VECTOR) } else { json!([0.25, -0.5, 1.0]) };
    let data: Vec<Value> = (0..inputs(question))
        .map(|index| json!({"object": "embedding", "index": index, "embedding": vector}))
        .collect();
    let tokens = prompt_tokens(body_bytes);
    json!({"object": "list", "data": data, "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens}})
}

/// Returns the answer to a rerank request as vLLM writes it: the documents, the last first.
pub(super) fn ranking(
    question: &Question<'_>,
    model: &str,
    body_bytes: usize,
    number: u64,
) -> Value {
    let documents: Vec<Value> = question
        .documents
        .and_then(|documents| serde_json::from_str(documents.get()).ok())
        .unwrap_or_default();
    let most = question.top_n.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(0));
    let results: Vec<Value> = documents
        .iter()
        .enumerate()
        .rev()
        .zip(0_u32..)
        .take(most.min(ELEMENTS_MAX))
        .map(|((index, document), place)| {
            let score = 1.0 / f64::from(place + 2);
            json!({"index": index, "document": {"text": document}, "relevance_score": score})
        })
        .collect();
    json!({"id": format!("rerank-mock-{number}"), "model": model,
        "usage": {"total_tokens": prompt_tokens(body_bytes)}, "results": results})
}

/// Returns the answer to a moderation: nothing is objectionable.
pub(super) fn moderation(question: &Question<'_>, model: &str, number: u64) -> Value {
    let each = |value: Value| -> Map<String, Value> {
        CATEGORIES.iter().map(|name| ((*name).to_owned(), value.clone())).collect()
    };
    let result = json!({"flagged": false, "categories": each(json!(false)),
        "category_scores": each(json!(0.01)), "category_applied_input_types": each(json!(["text"]))});
    let results = vec![result; inputs(question)];
    json!({"id": format!("modr-mock-{number}"), "model": model, "results": results})
}

/// Returns the answer to a request to count.
pub(super) fn count(body_bytes: usize) -> Value {
    json!({"input_tokens": prompt_tokens(body_bytes)})
}

fn inputs(question: &Question<'_>) -> usize {
    question.input.map_or(1, |input| input_count(input.get())).min(ELEMENTS_MAX)
}
