//! What a JSON body asks for, read where it stands.
//!
//! Only the outermost names that matter here are read, and none of them may be there twice: of two,
//! an engine might take the other one. Everything else is checked to be JSON and passed over, without
//! recursion. Nor may they be there in another case, which some engines take for the same.

use std::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::walk::{Token, walk};
use super::{BYTES_PER_TOKEN, Choices, PREFIX_BYTES, Reading, model_missing, named};
use crate::error::ApiError;
use crate::fnv;
use crate::proxy::route::Route;

/// Objects and arrays within each other; more than this, an engine's own reader may refuse or recurse.
const DEPTH_MAX: usize = 128;
/// Names in the outermost object.
const KEYS_MAX: usize = 1_024;
/// What an image, sound or file is taken to cost at most, in tokens: a picture of a million pixels in
/// detail costs 765 of `OpenAI`'s and 1,334 of Anthropic's, by their documents.
const MEDIA_TOKENS: usize = 1_536;

/// The names of what is bounded or decided here.
const GUARDED: [&str; 10] = [
    "model",
    "stream",
    "n",
    "best_of",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "messages",
    "prompt",
    "input",
];
/// The names that give a prompt its form and that no model reads as they are.
const FORMAL: [&str; 4] = ["role", "content", "type", "text"];

/// A value as it stands in the body; `None`: its name is not there. `null` is.
#[derive(Clone, Copy, Default)]
struct Raw<'a>(Option<&'a str>);

impl<'de: 'a, 'a> Deserialize<'de> for Raw<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&'a RawValue>::deserialize(deserializer).map(|raw| Self(Some(raw.get())))
    }
}

impl<'a> Raw<'a> {
    /// The value, unless it is `null`.
    fn given(self) -> Option<&'a str> {
        self.0.filter(|raw| *raw != "null")
    }
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Envelope<'a> {
    #[serde(borrow)]
    model: Raw<'a>,
    #[serde(borrow)]
    stream: Raw<'a>,
    #[serde(borrow)]
    stream_options: Raw<'a>,
    #[serde(borrow)]
    n: Raw<'a>,
    #[serde(borrow)]
    best_of: Raw<'a>,
    #[serde(borrow)]
    max_tokens: Raw<'a>,
    #[serde(borrow)]
    max_completion_tokens: Raw<'a>,
    #[serde(borrow)]
    max_output_tokens: Raw<'a>,
    #[serde(borrow)]
    tools: Raw<'a>,
    #[serde(borrow)]
    system: Raw<'a>,
    #[serde(borrow)]
    instructions: Raw<'a>,
    #[serde(borrow)]
    messages: Raw<'a>,
    #[serde(borrow)]
    prompt: Raw<'a>,
    #[serde(borrow)]
    input: Raw<'a>,
}

impl<'a> Envelope<'a> {
    fn of(body: &'a [u8]) -> Result<(&'a str, Self), ApiError> {
        let text = std::str::from_utf8(body)
            .map_err(|_| ApiError::invalid_request("The body is not UTF-8 text."))?;
        // A list would be read as the envelope's fields in their order.
        if !text.trim_start_matches([' ', '\t', '\r', '\n']).starts_with('{') {
            return Err(ApiError::invalid_request("The body must be a JSON object."));
        }
        let envelope = serde_json::from_str(text).map_err(|error| {
            ApiError::invalid_request(format!("The body is not a valid JSON request: {error}."))
        })?;
        Ok((text, envelope))
    }

    /// What the model reads, in the order in which it does.
    fn prompt_parts(&self) -> [&'a str; 5] {
        [self.system, self.instructions, self.messages, self.prompt, self.input]
            .map(|raw| raw.given().unwrap_or_default())
    }

    /// The largest bound on the length of an answer. One that is no number is the engine's to refuse.
    fn max_tokens(&self) -> Option<u64> {
        [self.max_tokens, self.max_completion_tokens, self.max_output_tokens]
            .into_iter()
            .filter_map(|raw| raw.given()?.parse().ok())
            .max()
    }
}

/// Reads a JSON body; the prompt's digest only if somebody wants it.
///
/// # Errors
/// `invalid_request`, or `model_not_found` for a name that cannot be one.
pub(super) fn read(route: Route, body: &[u8], has_prefix: bool) -> Result<Reading, ApiError> {
    let (text, envelope) = Envelope::of(body)?;
    let raw = envelope.model.0.ok_or_else(model_missing)?;
    let model = named(serde_json::from_str(raw).map_err(|_| model_missing())?)?;
    let is_stream = match envelope.stream.given() {
        Some("true") => true,
        Some("false") | None => false,
        Some(_) => {
            let message = "stream must be true or false.";
            return Err(ApiError::invalid_request(message).param("stream"));
        }
    };
    let list = if route == Route::Responses { envelope.input } else { envelope.messages };
    if envelope.messages.given().is_some_and(|raw| !raw.starts_with('[')) {
        let message = "messages must be an array.";
        return Err(ApiError::invalid_request(message).param("messages"));
    }
    let survey = Survey::of(text, &envelope, list.given().unwrap_or_default());
    if survey.depth_max > DEPTH_MAX || survey.keys > KEYS_MAX {
        let message = format!(
            "The body nests deeper than {DEPTH_MAX} or has more than {KEYS_MAX} names outermost."
        );
        return Err(ApiError::invalid_request(message));
    }
    if let Some(name) = survey.disguised {
        let message = format!("The name {name} must be written in lower case.");
        return Err(ApiError::invalid_request(message).param(name));
    }
    let may_ask_usage = is_stream && route.has_stream_options();
    let options_at = text.find('{').map(|brace| brace + 1);
    let prompt = || envelope.prompt_parts().into_iter().flat_map(str::bytes).take(PREFIX_BYTES);
    let bytes = text.len().saturating_sub(survey.media_bytes) as u64;
    Ok(Reading {
        model,
        model_at: place(text, raw),
        is_form: false,
        is_stream,
        options_at: options_at.filter(|_| may_ask_usage && envelope.stream_options.0.is_none()),
        choices: Choices::of(envelope.n.given()),
        drafts: Choices::of(envelope.best_of.given()),
        prompts: survey.prompts,
        max_tokens: envelope.max_tokens(),
        messages: survey.elements,
        prompt_tokens: bytes.div_ceil(BYTES_PER_TOKEN) + survey.media_tokens,
        media_tokens: survey.media_tokens,
        prefix: if has_prefix { fnv::digest(prompt()) } else { 0 },
    })
}

/// The texts that a model reads of a body that was read before, escapes undone, and by estimate the tokens
/// of what it reads beside them: numbers, and the names in what tools were given. `None`: there are no
/// texts, or token numbers in their place, so that only an estimate tells how much it is.
pub(super) fn texts(body: &[u8]) -> Option<(Vec<String>, u64)> {
    let (text, envelope) = Envelope::of(body).ok()?;
    let is_number = |raw: Raw<'_>| {
        let first =
            raw.given().unwrap_or_default().trim_start_matches(['[', ' ', '\t', '\r', '\n']);
        first.starts_with(|first: char| first == '-' || first.is_ascii_digit())
    };
    if is_number(envelope.prompt) || is_number(envelope.input) {
        return None;
    }
    // Tools are written into the prompt as the JSON they are.
    let mut texts: Vec<_> = envelope.tools.given().map(str::to_owned).into_iter().collect();
    let places = envelope.prompt_parts().map(|part| place(text, part));
    let mut beside: usize = envelope.prompt_parts().map(written).iter().sum();
    walk(text, |at, _, token| match token {
        Token::Text { raw, is_media } if places.iter().any(|place| place.contains(&at)) => {
            beside = beside.saturating_sub(written(raw));
            if !is_media {
                let quoted = text.get(at..at + raw.len() + 2).unwrap_or_default();
                texts.push(serde_json::from_str(quoted).unwrap_or_else(|_| raw.to_owned()));
            }
        }
        Token::Key(raw) if places.iter().any(|place| place.contains(&at)) => {
            if FORMAL.contains(&raw) {
                beside = beside.saturating_sub(raw.len());
            }
        }
        Token::Open | Token::Close | Token::Comma | Token::Key(_) | Token::Text { .. } => {}
    });
    (!texts.is_empty()).then_some((texts, (beside as u64).div_ceil(BYTES_PER_TOKEN)))
}

/// How many bytes of `part` are neither space nor the marks of JSON.
fn written(part: &str) -> usize {
    part.bytes().filter(|byte| !b" \t\r\n{}[]:,\"".contains(byte)).count()
}

/// Whether `raw`, a name with its escapes, is `name` but for the case of its letters, as the widest
/// reading of case has it: some that are no letters of ASCII fold to one.
fn is_disguised(raw: &str, name: &str) -> bool {
    let plain = raw.contains('\\').then(|| serde_json::from_str(&format!("\"{raw}\"")).ok());
    let plain: Option<String> = plain.flatten();
    let own = plain.as_deref().unwrap_or(raw);
    let folded = own.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase);
    own != name && folded.eq(name.chars())
}

/// Where `part`, which is a part of `text`, stands in it; empty for one that is empty.
fn place(text: &str, part: &str) -> Range<usize> {
    let start = (part.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize);
    if part.is_empty() { 0..0 } else { start..start.saturating_add(part.len()) }
}

/// What one walk over a body finds out.
#[derive(Default)]
struct Survey {
    depth_max: usize,
    /// Names in the outermost object.
    keys: usize,
    /// Elements of the list that was asked about.
    elements: usize,
    /// Prompts that are asked about one by one, at least 1.
    prompts: u64,
    /// One of [`GUARDED`] that is there in another case.
    disguised: Option<&'static str>,
    /// Bytes of media among what the model is shown.
    media_bytes: usize,
    /// What those cost, in tokens.
    media_tokens: u64,
}

impl Survey {
    fn of(text: &str, envelope: &Envelope<'_>, list: &str) -> Self {
        let mut survey = Self::default();
        let shown = [envelope.messages, envelope.input]
            .map(|raw| place(text, raw.given().unwrap_or_default()));
        let inner = list.strip_prefix('[').map(|rest| rest.trim_ascii_start());
        survey.elements = usize::from(inner.is_some_and(|rest| !rest.starts_with(']')));
        let list = if inner.is_some() { place(text, list) } else { 0..0 };
        // A list of texts or of lists is one of prompts; one of numbers is a prompt itself.
        let prompts = envelope.prompt.given().unwrap_or_default();
        let inner = prompts.strip_prefix('[').map(|rest| rest.trim_ascii_start());
        let prompts =
            place(text, inner.filter(|rest| rest.starts_with(['"', '['])).map_or("", |_| prompts));
        survey.prompts = 1;
        walk(text, |at, depth, token| match token {
            Token::Open => survey.depth_max = survey.depth_max.max(depth),
            Token::Key(raw) if depth == 1 => {
                survey.keys += 1;
                let disguised = GUARDED.into_iter().find(|name| is_disguised(raw, name));
                survey.disguised = survey.disguised.or(disguised);
            }
            Token::Comma if depth == 2 => {
                survey.elements += usize::from(list.contains(&at));
                survey.prompts += u64::from(prompts.contains(&at));
            }
            Token::Text { raw, is_media: true } if shown.iter().any(|one| one.contains(&at)) => {
                survey.media_bytes += raw.len();
                let tokens = raw.len().div_ceil(BYTES_PER_TOKEN as usize).min(MEDIA_TOKENS);
                survey.media_tokens += tokens as u64;
            }
            Token::Key(_) | Token::Comma | Token::Close | Token::Text { .. } => {}
        });
        survey
    }
}
