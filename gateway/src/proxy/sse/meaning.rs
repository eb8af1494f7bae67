//! What one event of a stream amounts to, in its dialect.
//!
//! Before the first content a failure can still be tried elsewhere, so that what is merely announced
//! counts as nothing. An event that is longer than what is looked at is known by its name alone.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::failure::failure;
use super::lenient::{Count, Said, Text};
use super::marks::Marks;
use super::reader::Event;
use crate::proxy::route::Dialect;
use crate::proxy::usage::Usage;

/// How far into its data the type of an event is looked for that cannot be read whole.
const TYPE_WITHIN: usize = 256;

/// What an event amounts to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Nothing that was asked for: a role, a ping, an empty event.
    Preamble,
    /// Content for the client.
    Content,
    /// Something that cannot be read; the client may understand it, so that it counts as content.
    Unreadable,
    /// The end of an answer, told by a finish reason.
    Finish,
    /// The end of the stream.
    Done,
    /// The end of the stream, with the whole answer in it.
    Last,
    /// An error instead of an answer, with its embedded status if there is one.
    Error(Option<u16>),
}

impl Event<'_> {
    /// What the event amounts to, the usage that it reports, and the choices that it speaks of. Of one
    /// that is too long to be looked at the usage is looked for in its last bytes.
    pub(crate) fn read(&self, dialect: Dialect) -> (Meaning, Usage, Marks) {
        let Some(data) = self.data.filter(|data| !data.is_empty()) else {
            return (Meaning::Preamble, Usage::default(), Marks::default());
        };
        if data.starts_with(b"[DONE]") {
            return (Meaning::Done, Usage::default(), Marks::default());
        }
        let mut marks = Marks::default();
        let read = match dialect {
            Dialect::Chat | Dialect::Completions => chunk(data, &mut marks),
            Dialect::Responses => response(data),
            Dialect::Messages => message(data),
            Dialect::Opaque => opaque(data),
        };
        let (meaning, usage) = match read {
            Some((Meaning::Error(status), usage)) => (Meaning::Error(status), usage),
            Some((_, usage)) if self.name == b"error" => (Meaning::Error(None), usage),
            Some(read) => read,
            None => (unread(dialect, self.name, data), Usage::at_the_end(self.last)),
        };
        (meaning, usage, marks)
    }
}

/// What an event amounts to of which only its name and its beginning are known.
fn unread(dialect: Dialect, name: &[u8], data: &[u8]) -> Meaning {
    if name == b"error" {
        return Meaning::Error(None);
    }
    let name = if name.is_empty() { type_at_the_beginning(data) } else { name };
    let name = std::str::from_utf8(name).unwrap_or_default();
    match (dialect, name) {
        (_, "") => Meaning::Unreadable,
        (Dialect::Responses, "response.failed") => Meaning::Error(None),
        (Dialect::Responses, "response.completed" | "response.incomplete") => Meaning::Last,
        (Dialect::Responses, name) if is_announced(name) => Meaning::Preamble,
        (Dialect::Messages, "message_start" | "content_block_start") => Meaning::Preamble,
        (Dialect::Messages, "message_stop") => Meaning::Done,
        (Dialect::Messages, "message_delta") => Meaning::Finish,
        (
            Dialect::Chat
            | Dialect::Completions
            | Dialect::Responses
            | Dialect::Messages
            | Dialect::Opaque,
            _,
        ) => Meaning::Unreadable,
    }
}

fn type_at_the_beginning(data: &[u8]) -> &[u8] {
    let start = data.get(..TYPE_WITHIN).unwrap_or(data);
    let Some(key) = memchr::memmem::find(start, b"\"type\"") else { return b"" };
    let behind = start.get(key + 6..).unwrap_or_default().trim_ascii_start();
    let value = behind.strip_prefix(b":").unwrap_or_default().trim_ascii_start();
    let value = value.strip_prefix(b"\"").unwrap_or_default();
    value.split(|byte| *byte == b'"').next().unwrap_or_default()
}

/// Reads an object; a list would be read as its members in their order.
pub(super) fn object<'a, T: Deserialize<'a>>(data: &'a [u8]) -> Option<T> {
    data.trim_ascii_start().starts_with(b"{").then(|| serde_json::from_slice(data).ok())?
}

/// Chat and completions.
fn chunk(data: &[u8], marks: &mut Marks) -> Option<(Meaning, Usage)> {
    #[derive(Deserialize)]
    struct Chunk<'a> {
        #[serde(default)]
        choices: Choices,
        #[serde(borrow, default)]
        object: Text<'a>,
        error: Option<Value>,
        #[serde(borrow)]
        usage: Option<&'a RawValue>,
    }
    let chunk: Chunk<'_> = object(data)?;
    let usage = Usage::read(chunk.usage);
    *marks = chunk.choices.marks;
    if let Some(status) = failure(data, chunk.object.0 == "error", chunk.error.as_ref()) {
        return Some((Meaning::Error(status), usage));
    }
    let meaning = match chunk.choices {
        Choices { has_finish: true, .. } => Meaning::Finish,
        Choices { has_content: true, .. } => Meaning::Content,
        Choices { .. } => Meaning::Preamble,
    };
    Some((meaning, usage))
}

/// Responses.
fn response(data: &[u8]) -> Option<(Meaning, Usage)> {
    #[derive(Deserialize)]
    struct Whole<'a> {
        #[serde(default)]
        output: Said,
        error: Option<Value>,
        #[serde(borrow)]
        usage: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Told<'a> {
        #[serde(borrow, default, rename = "type")]
        kind: Text<'a>,
        #[serde(default)]
        delta: Said,
        error: Option<Value>,
        #[serde(borrow)]
        response: Option<Whole<'a>>,
    }
    let told: Told<'_> = object(data)?;
    let usage = told.response.as_ref().map_or_else(Usage::default, |one| Usage::read(one.usage));
    let kind = told.kind.0.as_ref();
    if let Some(status) = failure(data, kind == "error", told.error.as_ref()) {
        return Some((Meaning::Error(status), usage));
    }
    let whole = told.response.as_ref();
    let meaning = match kind {
        "response.failed" => {
            let error = whole.and_then(|whole| whole.error.as_ref());
            Meaning::Error(error.and_then(super::failure::status_of))
        }
        "response.completed" if whole.is_some_and(|whole| !whole.output.0) => Meaning::Done,
        "response.completed" | "response.incomplete" => Meaning::Last,
        kind if is_announced(kind) => Meaning::Preamble,
        kind if kind.ends_with(".delta") && !told.delta.0 => Meaning::Preamble,
        _ => Meaning::Content,
    };
    Some((meaning, usage))
}

/// Whether an event of the responses dialect only announces what is to come.
fn is_announced(kind: &str) -> bool {
    [".created", ".queued", ".in_progress", ".added"].iter().any(|end| kind.ends_with(end))
        || ["", "ping", "keepalive"].contains(&kind)
}

/// Messages.
fn message(data: &[u8]) -> Option<(Meaning, Usage)> {
    #[derive(Deserialize)]
    struct Start<'a> {
        #[serde(borrow)]
        usage: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Told<'a> {
        #[serde(borrow, default, rename = "type")]
        kind: Text<'a>,
        error: Option<Value>,
        #[serde(borrow)]
        message: Option<Start<'a>>,
        #[serde(borrow)]
        usage: Option<&'a RawValue>,
    }
    let told: Told<'_> = object(data)?;
    let mut usage = Usage::read(told.message.and_then(|message| message.usage));
    usage.update(Usage::read(told.usage));
    let kind = told.kind.0.as_ref();
    if let Some(status) = failure(data, kind == "error", told.error.as_ref()) {
        return Some((Meaning::Error(status), usage));
    }
    let meaning = match kind {
        "content_block_delta" => Meaning::Content,
        "message_delta" => Meaning::Finish,
        "message_stop" => Meaning::Done,
        _ => Meaning::Preamble,
    };
    Some((meaning, usage))
}

/// A dialect of which only the errors are understood.
fn opaque(data: &[u8]) -> Option<(Meaning, Usage)> {
    #[derive(Deserialize)]
    struct Told<'a> {
        #[serde(borrow, default, rename = "type")]
        kind: Text<'a>,
        #[serde(borrow, default)]
        object: Text<'a>,
        error: Option<Value>,
        #[serde(borrow)]
        usage: Option<&'a RawValue>,
    }
    let told: Told<'_> = object(data)?;
    let usage = Usage::read(told.usage);
    let is_whole = told.kind.0 == "error" || told.object.0 == "error";
    let meaning =
        failure(data, is_whole, told.error.as_ref()).map_or(Meaning::Content, Meaning::Error);
    Some((meaning, usage))
}

/// The choices of a chunk, as far as it matters whether they say something.
#[derive(Clone, Copy, Debug, Default)]
struct Choices {
    has_content: bool,
    has_finish: bool,
    marks: Marks,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: Count,
    #[serde(default)]
    delta: Option<Delta>,
    #[serde(default)]
    text: Said,
    #[serde(default)]
    finish_reason: Said,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Delta {
    content: Said,
    refusal: Said,
    reasoning_content: Said,
    reasoning: Said,
    audio: Said,
    tool_calls: Said,
    function_call: Said,
}

impl Delta {
    fn has_content(&self) -> bool {
        [
            self.content,
            self.refusal,
            self.reasoning_content,
            self.reasoning,
            self.audio,
            self.tool_calls,
            self.function_call,
        ]
        .contains(&Said(true))
    }
}

impl<'de> Deserialize<'de> for Choices {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Look;
        impl<'de> Visitor<'de> for Look {
            type Value = Choices;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an array of choices")
            }

            fn visit_unit<E>(self) -> Result<Choices, E> {
                Ok(Choices::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Choices, A::Error> {
                let mut choices = Choices::default();
                // Who gives no index means the place.
                let mut place = 0;
                while let Some(choice) = elements.next_element::<Choice>()? {
                    let has_delta = choice.delta.is_some_and(|delta| delta.has_content());
                    choices.has_content |= choice.text.0 || has_delta;
                    choices.has_finish |= choice.finish_reason.0;
                    choices.marks.note(choice.index.0.unwrap_or(place), choice.finish_reason.0);
                    place += 1;
                }
                Ok(choices)
            }
        }
        deserializer.deserialize_any(Look)
    }
}
