//! What a model says: planned once, written whole or as a stream, in the dialect of its route.
//!
//! A gateway reads usage, finish reasons and error codes out of what its upstream says, so the
//! mock must say them where the real servers do. Tokens are numbered words: one that is lost,
//! doubled or out of order shows in the text. A stream is an opening, one piece a token, and a
//! closing, whatever the dialect, so that a fault set by tokens means the same in all of them.

use bytes::Bytes;
use serde_json::Value;

use super::answer::unix_seconds;
use super::behaviour::{Behaviour, TOKENS_MAX};
use super::question::{Question, prompt_tokens};
use super::route::Route;

mod chat;
mod media;
mod messages;
mod responses;

/// The most images in one answer, OpenAI's own limit.
const IMAGES_MAX: u32 = 10;

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Chat,
    Text,
    Responses,
    Messages,
    Images,
    Transcript,
    /// Bare bytes.
    Sound,
    SoundEvents,
}

impl Shape {
    /// The shape of a route's answers, if they can be streams.
    pub(super) fn of(route: Route, question: &Question<'_>) -> Option<Self> {
        match route {
            Route::Chat => Some(Self::Chat),
            Route::Completions => Some(Self::Text),
            Route::Responses => Some(Self::Responses),
            Route::Messages => Some(Self::Messages),
            Route::Images | Route::ImageForms => Some(Self::Images),
            Route::Transcriptions => Some(Self::Transcript),
            Route::Speech if question.wants_sound_events() => Some(Self::SoundEvents),
            Route::Speech => Some(Self::Sound),
            Route::CountTokens
            | Route::Embeddings
            | Route::Rerank
            | Route::Moderations
            | Route::Other => None,
        }
    }
}

/// An answer that is to be written.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) shape: Shape,
    pub(super) tokens: u32,
    include_usage: bool,
    number: u64,
    created: u64,
    model: String,
    /// The request's own limit was below what there was to say.
    is_limited: bool,
    prompt_tokens: u64,
    /// The tool that is called with the words as its argument, instead of saying them.
    tool: Option<String>,
    format: Option<String>,
    images: u32,
}

impl Reply {
    /// Plans the answer to a question. The number makes its ids unique.
    ///
    /// # Errors
    /// A sentence for the caller if the tools on offer cannot be read.
    pub(super) fn new(
        shape: Shape,
        question: &Question<'_>,
        model: &str,
        body_bytes: usize,
        number: u64,
        behaviour: &Behaviour,
    ) -> Result<Self, String> {
        let wanted = behaviour.tokens.min(TOKENS_MAX);
        let tokens = question.limit().map_or(wanted, |limit| limit.min(wanted));
        let tool = match shape {
            Shape::Chat | Shape::Responses | Shape::Messages => question.tool()?,
            Shape::Text | Shape::Images | Shape::Transcript | Shape::Sound | Shape::SoundEvents => {
                None
            }
        };
        Ok(Self {
            shape,
            // An argument of no words would be no JSON.
            tokens: if tool.is_some() { tokens.max(1) } else { tokens },
            include_usage: question.include_usage(),
            number,
            created: unix_seconds(),
            model: model.to_owned(),
            is_limited: tokens < wanted,
            prompt_tokens: prompt_tokens(body_bytes),
            tool,
            format: question.format(),
            images: question.n.unwrap_or(1).min(IMAGES_MAX),
        })
    }

    /// Returns whether the answer comes piece by piece even if no stream was asked for.
    pub(super) fn is_always_stream(&self) -> bool {
        matches!(self.shape, Shape::Sound | Shape::SoundEvents)
    }

    /// Returns the content type of a stream.
    pub(super) fn stream_type(&self) -> &'static str {
        match self.shape {
            Shape::Sound => media::sound_type(self),
            Shape::Chat
            | Shape::Text
            | Shape::Responses
            | Shape::Messages
            | Shape::Images
            | Shape::Transcript
            | Shape::SoundEvents => "text/event-stream",
        }
    }

    /// Returns the whole answer in one body, with its content type.
    pub(super) fn whole(&self) -> (&'static str, Bytes) {
        let value = match self.shape {
            Shape::Chat | Shape::Text => chat::whole(self),
            Shape::Responses => responses::whole(self),
            Shape::Messages => messages::whole(self),
            Shape::Images => media::images(self),
            Shape::Transcript if self.is_plain_text() => return ("text/plain", self.text().into()),
            Shape::Transcript | Shape::Sound | Shape::SoundEvents => media::transcript(self),
        };
        ("application/json", Bytes::from(value.to_string()))
    }

    /// Returns what comes before the first token.
    pub(super) fn opening(&self) -> Vec<Bytes> {
        match self.shape {
            Shape::Chat => chat::opening(self),
            Shape::Responses => responses::opening(self),
            Shape::Messages => messages::opening(self),
            Shape::Text | Shape::Images | Shape::Transcript | Shape::Sound | Shape::SoundEvents => {
                Vec::new()
            }
        }
    }

    /// Returns the event, or the bytes, of one token.
    pub(super) fn piece(&self, number: u32) -> Bytes {
        match self.shape {
            Shape::Chat | Shape::Text => chat::piece(self, number),
            Shape::Responses => responses::piece(self, number),
            Shape::Messages => messages::piece(self, number),
            Shape::Images | Shape::Transcript | Shape::Sound | Shape::SoundEvents => {
                media::piece(self, number)
            }
        }
    }

    /// Returns what comes after the last token.
    pub(super) fn closing(&self) -> Vec<Bytes> {
        match self.shape {
            Shape::Chat | Shape::Text => chat::closing(self),
            Shape::Responses => responses::closing(self),
            Shape::Messages => messages::closing(self),
            Shape::Images | Shape::Transcript | Shape::Sound | Shape::SoundEvents => {
                media::closing(self)
            }
        }
    }

    /// Returns the event of an error, if the shape has such a thing.
    pub(super) fn error(&self) -> Option<Bytes> {
        let message = "The mock was told to fail in the stream.";
        match self.shape {
            Shape::Responses => Some(responses::error(message)),
            Shape::Messages => Some(messages::error(message)),
            Shape::Sound => None,
            Shape::Chat | Shape::Text | Shape::Images | Shape::Transcript | Shape::SoundEvents => {
                Some(chat::error(message))
            }
        }
    }

    fn is_plain_text(&self) -> bool {
        matches!(self.format.as_deref(), Some("text" | "srt" | "vtt"))
    }

    /// All that is said, or the argument of the call.
    fn text(&self) -> String {
        (0..self.tokens).map(|number| self.word(number)).collect()
    }

    /// The part of the text that one token is.
    fn word(&self, number: u32) -> String {
        let word = format!("token{number} ");
        if self.tool.is_none() {
            return word;
        }
        let before = if number == 0 { "{\"words\":\"" } else { "" };
        let behind = if number + 1 == self.tokens { "\"}" } else { "" };
        format!("{before}{word}{behind}")
    }

    fn total_tokens(&self) -> u64 {
        self.prompt_tokens.saturating_add(u64::from(self.tokens))
    }
}

/// An event without a name.
fn data(event: &Value) -> Bytes {
    Bytes::from(format!("data: {event}\n\n"))
}

/// An event with the name that its type is.
fn named(event: &Value) -> Bytes {
    let name = event.get("type").and_then(Value::as_str).unwrap_or("message");
    Bytes::from(format!("event: {name}\ndata: {event}\n\n"))
}
