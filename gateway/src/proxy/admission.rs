//! Admission is fail-closed: what is not understood and allowed is refused before anything is sent.
//!
//! The order is part of the contract, the first refusal wins; `admit` is that order. What a request
//! asks for is read from its body where it stands, as JSON or as a form; nothing is written anew, so
//! that what goes upstream is what came, but for the name of the model.

mod form;
mod json;
mod parts;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod promise;
#[cfg(test)]
mod tests;
mod upload;
mod vocabulary;
mod walk;

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};

use super::log::Line;
use super::route::Route;
use super::{Body, Gate, Intake};
use crate::config::FailClosed;
use crate::error::ApiError;
use crate::fleet::Pool;
pub use crate::keys::Caller;
use crate::memory::SMALL_BYTES_MAX;
use crate::metrics::Meters;
use crate::upstream::Parcel;
pub use vocabulary::Vocabulary;

/// JSON of a chat body carries about this many bytes for one token of prompt; a fast estimate, no
/// tokenizer, that errs towards more tokens for anything but dense code. Media within it are taken out
/// and charged by the piece.
const BYTES_PER_TOKEN: u64 = 4;

/// Longest name of a model that is looked up.
const MODEL_BYTES_MAX: usize = 256;

/// How much of the beginning of a prompt tells whether two have one: the system's part and the
/// examples of most, a few hundred tokens, the blocks of which engines keep.
const PREFIX_BYTES: usize = 2 * 1024;

/// A request that was understood.
#[derive(Clone, Debug)]
pub struct Call {
    /// The family of its path.
    pub route: Route,
    /// Its path, the same upstream.
    pub path: String,
    /// The type of its body, the same upstream.
    pub content_type: HeaderValue,
    /// Who asks, if callers show keys.
    pub caller: Option<Arc<Caller>>,
    /// A digest of the first `PREFIX_BYTES` of what the model reads: the system's part, then
    /// messages, prompt or input, wherever in the body they stand. Requests that share it are best
    /// served by one engine. 0 where no model chooses by it.
    pub prefix: u64,
    /// The model as the client named it.
    pub model: String,
    /// Whether the answer is to be a stream.
    pub is_stream: bool,
    /// Length of the prompt, in tokens; estimated, unless it had to be counted.
    pub prompt_tokens: u64,
    /// Most tokens of the answer, of all its choices together, if the request sets a bound.
    pub max_tokens: Option<u64>,
    /// The body, exactly as it came.
    pub body: Bytes,
    /// Where the value of `model` stands in the body, quotes included.
    model_at: Range<usize>,
    /// Whether the body is a form, where values stand without quotes.
    is_form: bool,
    /// Where the body takes `stream_options`, if it may and has none.
    options_at: Option<usize>,
}

/// What was read from a body.
struct Reading {
    model: String,
    model_at: Range<usize>,
    is_form: bool,
    is_stream: bool,
    options_at: Option<usize>,
    choices: Choices,
    /// Of how many the choices are the best.
    drafts: Choices,
    /// The number of prompts, each with choices of its own.
    prompts: u64,
    max_tokens: Option<u64>,
    /// The number of messages, or items of input.
    messages: usize,
    prompt_tokens: u64,
    /// The part of `prompt_tokens` that is for media.
    media_tokens: u64,
    prefix: u64,
}

/// How many answers are asked for at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choices {
    Default,
    Number(u32),
    /// No number, or none that there could be.
    Nonsense,
}

impl Choices {
    fn of(raw: Option<&str>) -> Self {
        let Some(raw) = raw else { return Self::Default };
        raw.parse().map_or(Self::Nonsense, Self::Number)
    }

    fn is_allowed(self, most: u32) -> bool {
        match self {
            Self::Default => true,
            Self::Number(number) => (1..=most).contains(&number),
            Self::Nonsense => false,
        }
    }

    fn number(self) -> u64 {
        match self {
            Self::Number(number) => u64::from(number),
            Self::Default | Self::Nonsense => 1,
        }
    }
}

/// A request that may go on.
pub(super) enum Admitted {
    /// It asks a model.
    Call(Box<Call>, Arc<Pool>),
    /// It asked which models there are, and this is the answer.
    Told(Response<Body>),
}

/// A request that may not.
#[derive(Debug)]
pub(super) enum Refusal {
    /// For this reason.
    Because(ApiError),
    /// The client left before it had said what it wants.
    Gone,
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self::Because(error)
    }
}

/// Admits a request, step by step.
///
/// # Errors
/// The first refusal. Nothing was sent to any upstream.
///
/// # Cancel safety
/// Dropped in the middle of an upload, it counts the client as gone.
pub(super) async fn admit(
    gate: &Gate,
    head: &Parts,
    body: Intake,
    line: &mut Line,
) -> Result<Admitted, Refusal> {
    let (rule, path) = (&gate.fail_closed, head.uri.path());
    let route = route(rule, &head.method, path)?;
    let caller = gate.keys.caller(&head.headers)?;
    line.caller.clone_from(&caller);
    required(rule, &head.headers)?;
    match route {
        Route::Models => return Ok(Admitted::Told(gate.models(caller.as_deref()))),
        Route::Model => {
            return Ok(Admitted::Told(gate.model(Route::id(path), caller.as_deref())?));
        }
        Route::Chat
        | Route::Completions
        | Route::Embeddings
        | Route::Responses
        | Route::Messages
        | Route::Rerank
        | Route::Audio
        | Route::Images
        | Route::Other => {}
    }
    if gate.fleet.is_barred() {
        return Err(ApiError::state_unavailable().into());
    }
    let content_type = content_type(route, &head.headers)?;
    let mut leaving = Leaving(Some(&gate.meters));
    let body = upload::read(body, gate.max_body_bytes, gate.body_idle, &gate.memory).await;
    let body = body.map_err(|error| error.map_or(Refusal::Gone, Refusal::Because));
    if !matches!(body, Err(Refusal::Gone)) {
        leaving.0 = None;
    }
    let body = body?;
    line.receive();
    let mut reading = read(route, &content_type, &body, gate.has_prefixes)?;
    let pool = gate.fleet.pool(&reading.model).ok_or_else(ApiError::model_not_found)?;
    if caller.as_ref().is_some_and(|caller| !caller.may_ask(&pool.name)) {
        return Err(ApiError::model_not_allowed().into());
    }
    within(rule, route, &reading)?;
    if let Some(most) = rule.max_input_tokens {
        reading.count(route, gate.vocabulary, &body, most).await;
        short_enough(reading.prompt_tokens, most)?;
    }
    let call = reading.into_call(route, path, content_type, caller, body);
    Ok(Admitted::Call(Box::new(call), Arc::clone(pool)))
}

/// Counts a client that leaves, if it is not told otherwise before it is dropped.
struct Leaving<'a>(Option<&'a Meters>);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if let Some(meters) = self.0 {
            meters.rejects.count("client_left");
        }
    }
}

/// The route of a path that is allowed with this method.
fn route(rule: &FailClosed, method: &Method, path: &str) -> Result<Route, ApiError> {
    let route = Route::of(path).ok_or_else(ApiError::path_not_allowed)?;
    let is_look = matches!(route, Route::Models | Route::Model);
    let is_listed = |paths: &Vec<String>| is_look || paths.iter().any(|listed| listed == path);
    if !rule.allowed_paths.as_ref().is_none_or(is_listed) {
        return Err(ApiError::path_not_allowed());
    }
    if route.method() != method {
        let allowed = if is_look { "GET" } else { "POST" };
        return Err(ApiError::method_not_allowed(allowed));
    }
    Ok(route)
}

/// The header that every request must carry is there.
fn required(rule: &FailClosed, headers: &HeaderMap) -> Result<(), ApiError> {
    match &rule.require_header {
        Some(name) if headers.get(name).is_none_or(HeaderValue::is_empty) => {
            Err(ApiError::missing_required_header(name))
        }
        Some(_) | None => Ok(()),
    }
}

/// The type of a body that can be read: JSON, which it is where nothing is said, or a form on the
/// routes that take files.
fn content_type(route: Route, headers: &HeaderMap) -> Result<HeaderValue, ApiError> {
    if headers.contains_key(header::CONTENT_ENCODING) {
        let message = "Compressed request bodies are not accepted.";
        return Err(ApiError::unsupported_media_type(message));
    }
    let mut values = headers.get_all(header::CONTENT_TYPE).iter();
    let Some(value) = values.next() else {
        return Ok(HeaderValue::from_static("application/json"));
    };
    let is_json = is_of(value, "application/json");
    let is_form = route.takes_forms() && is_of(value, "multipart/form-data");
    if values.next().is_some() || !(is_json || is_form) {
        let message = "Send content-type: application/json, or on audio and image routes \
                       multipart/form-data.";
        return Err(ApiError::unsupported_media_type(message));
    }
    Ok(value.clone())
}

/// Whether a content type is `kind`, whatever its parameters.
fn is_of(content_type: &HeaderValue, kind: &str) -> bool {
    let own = content_type.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    own.trim_ascii().eq_ignore_ascii_case(kind.as_bytes())
}

/// Understands a body of a type that can be read.
fn read(
    route: Route,
    content_type: &HeaderValue,
    body: &Bytes,
    has_prefix: bool,
) -> Result<Reading, ApiError> {
    if is_of(content_type, "multipart/form-data") {
        form::read(route, content_type.as_bytes(), body)
    } else {
        json::read(route, body, has_prefix)
    }
}

/// The body names no model, or not by a text.
fn model_missing() -> ApiError {
    ApiError::invalid_request("The body must name a model, as a text.").param("model")
}

/// A name that could be a model's.
fn named(model: String) -> Result<String, ApiError> {
    if model.is_empty() || model.len() > MODEL_BYTES_MAX {
        return Err(ApiError::model_not_found());
    }
    Ok(model)
}

/// The request asks for no more messages and answers than is allowed.
fn within(rule: &FailClosed, route: Route, reading: &Reading) -> Result<(), ApiError> {
    if let Some(most) = rule.max_messages.filter(|most| reading.messages > *most) {
        let (code, message) = ("too_many_messages", format!("More than {most} messages."));
        return Err(ApiError::new(StatusCode::BAD_REQUEST, code, message).param("messages"));
    }
    for (name, choices) in [("n", reading.choices), ("best_of", reading.drafts)] {
        if route.has_choices() && !choices.is_allowed(rule.max_n) {
            let message = format!("{name} must be an integer from 1 to {}.", rule.max_n);
            return Err(ApiError::invalid_request(message).param(name));
        }
    }
    Ok(())
}

fn short_enough(tokens: u64, most: u64) -> Result<(), ApiError> {
    if tokens <= most {
        return Ok(());
    }
    let message = format!("The input is about {tokens} tokens or more; {most} are allowed.");
    Err(ApiError::new(StatusCode::BAD_REQUEST, "input_too_large", message))
}

impl Reading {
    /// Counts the prompt by the vocabulary, if there is one and the estimate cannot decide whether it
    /// is longer than `most`.
    async fn count(
        &mut self,
        route: Route,
        vocabulary: Option<Vocabulary>,
        body: &[u8],
        most: u64,
    ) {
        let Some(vocabulary) = vocabulary else { return };
        if self.is_form
            || !route.has_known_texts()
            || !Vocabulary::is_needed(self.prompt_tokens, most)
        {
            return;
        }
        if let Some((texts, beside)) = json::texts(body) {
            let counted = vocabulary.count(&texts, most).await;
            self.prompt_tokens = self.media_tokens + beside + counted;
        }
    }

    fn into_call(
        self,
        route: Route,
        path: &str,
        content_type: HeaderValue,
        caller: Option<Arc<Caller>>,
        body: Bytes,
    ) -> Call {
        let choices = if route.has_choices() {
            self.choices.number().max(self.drafts.number()).saturating_mul(self.prompts)
        } else {
            1
        };
        Call {
            route,
            path: path.to_owned(),
            content_type,
            caller,
            prefix: self.prefix,
            model: self.model,
            is_stream: self.is_stream,
            prompt_tokens: self.prompt_tokens,
            max_tokens: self.max_tokens.map(|most| most.saturating_mul(choices)),
            body,
            model_at: self.model_at,
            is_form: self.is_form,
            options_at: self.options_at,
        }
    }
}

impl Call {
    /// The body with the model named `name`, as the upstream knows it, and with the wish that a stream
    /// report its usage, if it is to and the client said nothing about it. Every other byte stays; of a
    /// body that is not small they stay where they are.
    pub fn body_for(&self, name: &str, include_usage: bool) -> Parcel {
        const USAGE: &[u8] = br#""stream_options":{"include_usage":true},"#;
        let options_at = self.options_at.filter(|_| include_usage);
        if name == self.model && options_at.is_none() {
            return self.body.clone().into();
        }
        let (start, end) = (self.model_at.start, self.model_at.end);
        let part = |range: Range<usize>| {
            let is_within = range.start <= range.end && range.end <= self.body.len();
            if is_within { self.body.slice(range) } else { Bytes::new() }
        };
        // What stands at the same place before and after is renamed to itself.
        let new = match () {
            () if name == self.model => part(start..end),
            () if self.is_form => Bytes::copy_from_slice(name.as_bytes()),
            () => serde_json::Value::from(name).to_string().into(),
        };
        let split = options_at.unwrap_or(0);
        let parts = [
            part(0..split),
            Bytes::from_static(if options_at.is_some() { USAGE } else { b"" }),
            part(split..start),
            new,
            part(end..self.body.len()),
        ];
        if self.body.len() > SMALL_BYTES_MAX {
            return Parcel::of(parts.into_iter());
        }
        let mut spliced = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
        for part in parts {
            spliced.extend_from_slice(&part);
        }
        spliced.freeze().into()
    }
}
