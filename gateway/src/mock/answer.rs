//! The bodies of answers, in the shapes that OpenAI documents.
//!
//! A gateway reads usage, finish reasons and error codes out of what its upstream says, so the
//! mock must say them in the same places. Tokens are numbered words: one that is lost, doubled or
//! out of order shows in the text.
//!
//! Invariants: whatever the bytes of a request, the result is an answer or a refusal with an
//! OpenAI error body, and an answer's entry in the books ends when its last byte is handed over.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::behaviour::{Behaviour, Closing, TOKENS_MAX};
use super::ledger::Entry;
use super::stream::Events;
use super::{LetGo, ResetOrder};

/// The most vectors in one answer, OpenAI's own limit.
const EMBEDDINGS_MAX: usize = 2048;

/// The two shapes of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Chat,
    Text,
}

/// What the mock reads of a model request.
#[derive(Debug, Deserialize)]
pub(super) struct Question<'a> {
    pub(super) model: Option<String>,
    pub(super) stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

impl<'a> Question<'a> {
    /// Reads a request's body.
    ///
    /// # Errors
    /// A sentence for the caller if the body is not a JSON object of the expected types.
    pub(super) fn read(body: &'a [u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
        // Serde would read an array as the fields in order.
        if !text.trim_start().starts_with('{') {
            return Err("expected a JSON object".to_owned());
        }
        serde_json::from_str(text).map_err(|error| error.to_string())
    }
}

/// A completion that is to be written, whole or as a stream.
#[derive(Clone, Debug)]
pub(super) struct Completion {
    pub(super) shape: Shape,
    pub(super) tokens: u32,
    pub(super) include_usage: bool,
    id: String,
    created: u64,
    model: String,
    finish_reason: &'static str,
    prompt_tokens: u64,
}

impl Completion {
    /// Plans the answer to a question. The number makes its id unique.
    pub(super) fn new(
        shape: Shape,
        question: &Question<'_>,
        model: &str,
        body_bytes: usize,
        number: u64,
        behaviour: &Behaviour,
    ) -> Self {
        let wanted = behaviour.tokens.min(TOKENS_MAX);
        let limit = question.max_completion_tokens.or(question.max_tokens);
        let tokens = limit.map_or(wanted, |limit| limit.min(wanted));
        let options = question.stream_options.as_ref();
        let prefix = match shape {
            Shape::Chat => "chatcmpl",
            Shape::Text => "cmpl",
        };
        Self {
            shape,
            tokens,
            include_usage: options.and_then(|options| options.include_usage).unwrap_or(false),
            id: format!("{prefix}-mock-{number}"),
            created: unix_seconds(),
            model: model.to_owned(),
            finish_reason: if tokens < wanted { "length" } else { "stop" },
            prompt_tokens: prompt_tokens(body_bytes),
        }
    }

    /// Returns the whole answer in one body.
    pub(super) fn whole(&self) -> Value {
        let text: String = (0..self.tokens).map(token).collect();
        let reason = self.finish_reason;
        let (object, choice) = match self.shape {
            Shape::Chat => {
                let message = json!({"role": "assistant", "content": text, "refusal": null});
                let choice = json!({"index": 0, "message": message, "logprobs": null,
                    "finish_reason": reason});
                ("chat.completion", choice)
            }
            Shape::Text => {
                let choice = json!({"index": 0, "text": text, "logprobs": null,
                    "finish_reason": reason});
                ("text_completion", choice)
            }
        };
        json!({"id": self.id, "object": object, "created": self.created, "model": self.model,
            "choices": [choice], "usage": self.usage()})
    }

    /// Returns the event that announces who speaks.
    pub(super) fn role_chunk(&self) -> Value {
        self.chunk(json!([{"index": 0, "delta": {"role": "assistant", "content": ""},
            "logprobs": null, "finish_reason": null}]))
    }

    /// Returns the event of one token.
    pub(super) fn token_chunk(&self, number: u32) -> Value {
        let text = token(number);
        self.chunk(match self.shape {
            Shape::Chat => json!([{"index": 0, "delta": {"content": text}, "logprobs": null,
                "finish_reason": null}]),
            Shape::Text => json!([{"index": 0, "text": text, "logprobs": null,
                "finish_reason": null}]),
        })
    }

    /// Returns the event that says why the answer ended.
    pub(super) fn finish_chunk(&self) -> Value {
        let reason = self.finish_reason;
        self.chunk(match self.shape {
            Shape::Chat => json!([{"index": 0, "delta": {}, "logprobs": null,
                "finish_reason": reason}]),
            Shape::Text => json!([{"index": 0, "text": "", "logprobs": null,
                "finish_reason": reason}]),
        })
    }

    /// Returns the event with the usage, which a request has to ask for.
    pub(super) fn usage_chunk(&self) -> Value {
        let mut chunk = self.chunk(json!([]));
        if let Some(fields) = chunk.as_object_mut() {
            fields.insert("usage".to_owned(), self.usage());
        }
        chunk
    }

    fn chunk(&self, choices: Value) -> Value {
        let object = match self.shape {
            Shape::Chat => "chat.completion.chunk",
            Shape::Text => "text_completion",
        };
        json!({"id": self.id, "object": object, "created": self.created, "model": self.model,
            "choices": choices})
    }

    fn usage(&self) -> Value {
        let total = self.prompt_tokens.saturating_add(u64::from(self.tokens));
        json!({"prompt_tokens": self.prompt_tokens, "completion_tokens": self.tokens,
            "total_tokens": total})
    }
}

/// Returns the answer to an embeddings request: one small vector for each input.
pub(super) fn embeddings(question: &Question<'_>, model: &str, body_bytes: usize) -> Value {
    let inputs = question.input.map_or(1, |input| input_count(input.get()));
    let data: Vec<Value> = (0..inputs.min(EMBEDDINGS_MAX))
        .map(|index| json!({"object": "embedding", "index": index, "embedding": [0.25, -0.5, 1.0]}))
        .collect();
    let tokens = prompt_tokens(body_bytes);
    json!({"object": "list", "data": data, "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens}})
}

/// Counts inputs: a list of texts or of token lists is many, a text or one token list is one.
fn input_count(input: &str) -> usize {
    let is_list_of_inputs =
        input.strip_prefix('[').is_some_and(|rest| rest.trim_start().starts_with(['"', '[']));
    if !is_list_of_inputs {
        return 1;
    }
    serde_json::from_str::<Vec<IgnoredAny>>(input).map_or(1, |inputs| inputs.len())
}

/// Returns the answer of a route the mock does not know: the request, its bytes untouched if
/// they are JSON, which the caller has seen to.
pub(super) fn echo(path: &str, json_body: &[u8]) -> Bytes {
    let request = std::str::from_utf8(json_body).unwrap_or("null").trim();
    let path = Value::from(path);
    Bytes::from(format!(r#"{{"object":"echo","path":{path},"request":{request}}}"#))
}

/// Returns the list of models: one, named like the mock.
pub(super) fn models(name: &str) -> Value {
    json!({"object": "list", "data": [{"id": name, "object": "model", "created": unix_seconds(),
        "owned_by": "quorumgate-mock"}]})
}

/// Returns a page of metrics as vLLM and SGLang write it: of two engines one is used to so many percent.
pub(super) fn metrics(cache_usage_percent: u32) -> String {
    let used = f64::from(cache_usage_percent) / 100.0;
    let half = used / 2.0;
    format!(
        "# TYPE vllm:kv_cache_usage_perc gauge\n\
         vllm:kv_cache_usage_perc{{engine=\"0\"}} {half}\n\
         vllm:kv_cache_usage_perc{{engine=\"1\"}} {used}\n\
         # TYPE sglang:token_usage gauge\n\
         sglang:token_usage {used}\n"
    )
}

/// Returns an error in OpenAI's shape, its type and code chosen by the status.
pub(super) fn error_value(status: u16, message: &str) -> Value {
    let (kind, code) = match status {
        401 => ("invalid_request_error", Some("invalid_api_key")),
        403 => ("permission_error", None),
        404 => ("invalid_request_error", Some("not_found")),
        413 => ("invalid_request_error", Some("body_too_large")),
        429 => ("rate_limit_error", Some("rate_limit_exceeded")),
        500.. => ("server_error", None),
        _ => ("invalid_request_error", None),
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

/// Makes a response of a JSON value.
pub(super) fn json_response(status: StatusCode, value: &Value) -> Response<AnswerBody> {
    whole_response(status, "application/json", Bytes::from(value.to_string()))
}

/// Makes a response of an error in OpenAI's shape.
pub(super) fn error_response(status: StatusCode, message: &str) -> Response<AnswerBody> {
    json_response(status, &error_value(status.as_u16(), message))
}

/// Makes a response of bytes that are ready.
pub(super) fn whole_response(
    status: StatusCode,
    content_type: &'static str,
    body: Bytes,
) -> Response<AnswerBody> {
    // HTTP has no body with these; hyper would not take it, and the entry would look aborted.
    let is_bodiless = status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
    let body = if is_bodiless { Bytes::new() } else { body };
    response(status, content_type, AnswerBody::new(Content::Whole(body)))
}

/// Makes a response whose body is still to come, or never comes.
pub(super) fn open_response(content_type: &'static str, content: Content) -> Response<AnswerBody> {
    response(StatusCode::OK, content_type, AnswerBody::new(content))
}

fn response(
    status: StatusCode,
    content_type: &'static str,
    body: AnswerBody,
) -> Response<AnswerBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Guesses what a body given by the behaviour is, as a client would be told.
pub(super) fn content_type_of(body: &str, is_stream: bool) -> &'static str {
    if body.trim_start().starts_with('<') {
        "text/html"
    } else if is_stream && serde_json::from_str::<IgnoredAny>(body).is_err() {
        "text/event-stream"
    } else {
        "application/json"
    }
}

/// What a body consists of.
pub(super) enum Content {
    Whole(Bytes),
    Events(Box<Events>),
    /// Nothing, ever; the body does not end either.
    Silence,
}

/// The body of every response of the mock; it writes the request's end into the books.
pub(super) struct AnswerBody {
    content: Content,
    entry: Option<Entry>,
    closing: Option<(ResetOrder, Closing)>,
}

impl AnswerBody {
    fn new(content: Content) -> Self {
        Self { content, entry: None, closing: None }
    }

    /// Ties the body to its request in the books and to its connection.
    pub(super) fn account(&mut self, entry: Entry, reset_order: ResetOrder, closing: Closing) {
        self.entry = Some(entry);
        self.closing = Some((reset_order, closing));
        self.settle();
    }

    /// hyper does not poll a body that says it has ended, so the end is written when it is seen.
    fn settle(&mut self) {
        if self.is_end_stream()
            && let Some(entry) = self.entry.take()
        {
            entry.complete();
        }
    }

    fn let_go(&mut self) {
        if let Some((reset_order, closing)) = &self.closing {
            reset_order.ask(*closing);
        }
        if let Some(entry) = self.entry.take() {
            entry.cut_short();
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = LetGo;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, LetGo>>> {
        let next = match &mut self.content {
            Content::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Content::Whole(bytes) => Poll::Ready(Some(Ok(std::mem::take(bytes)))),
            Content::Events(events) => events.poll_event(context),
            Content::Silence => Poll::Pending,
        };
        if matches!(next, Poll::Ready(Some(Err(_)))) {
            self.let_go();
        }
        self.settle();
        next.map(|event| event.map(|result| result.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(bytes) => bytes.is_empty(),
            Content::Events(events) => events.is_ended(),
            Content::Silence => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => SizeHint::with_exact(u64::try_from(bytes.len()).unwrap_or(0)),
            Content::Events(_) | Content::Silence => SizeHint::default(),
        }
    }
}

fn token(number: u32) -> String {
    format!("token{number} ")
}

/// Estimates a prompt's tokens at four bytes each, which is near enough for a mock.
fn prompt_tokens(body_bytes: usize) -> u64 {
    u64::try_from(body_bytes.div_ceil(4)).unwrap_or(u64::MAX)
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}
