//! Finds the events in a stream of bytes, at any split, by the WHATWG rules.
//!
//! The reader only looks: the bytes are passed on as they came. It says where events end, so that a
//! stream can be cut between events, and what each event's data amounts to. A line longer than the
//! bound is passed on unread.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// Data of an event beyond this is not looked at; an ordinary event has a few hundred bytes.
const DATA_BYTES_MAX: usize = 256 * 1024;

/// What an event amounts to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Nothing that was asked for: a role, a ping, an empty event.
    Preamble,
    /// Content for the client.
    Content,
    /// The end of an answer, told by a finish reason.
    Finish,
    /// The end of the stream, `[DONE]`.
    Done,
    /// An error instead of an answer, with its embedded status if there is one.
    Error(Option<u16>),
}

/// Reads events byte by byte.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// The last byte was `\r`: a `\n` that follows belongs to the same line end.
    after_return: bool,
}

impl Reader {
    /// Reads `bytes` and calls `found` with the meaning of each event and the place just behind it.
    pub(crate) fn read(&mut self, bytes: &[u8], mut found: impl FnMut(Meaning, usize)) {
        for (place, byte) in bytes.iter().enumerate() {
            let is_second_half = self.after_return && *byte == b'\n';
            self.after_return = *byte == b'\r';
            if is_second_half {
                continue;
            }
            match byte {
                b'\n' | b'\r' => {
                    if let Some(meaning) = self.end_line() {
                        // Of "\r\n" the second half goes along if it is there.
                        let has_tail = *byte == b'\r' && bytes.get(place + 1) == Some(&b'\n');
                        found(meaning, place + 1 + usize::from(has_tail));
                    }
                }
                byte if self.line.len() < DATA_BYTES_MAX => self.line.push(*byte),
                _ => {}
            }
        }
    }

    #[cfg(test)]
    /// Whether the stream stands between two events.
    pub(crate) fn is_between_events(&self) -> bool {
        self.line.is_empty() && !self.has_data
    }

    fn end_line(&mut self) -> Option<Meaning> {
        let line = std::mem::take(&mut self.line);
        let meaning = if line.is_empty() {
            let has_data = std::mem::take(&mut self.has_data);
            let meaning = if has_data { meaning_of(&self.data) } else { Meaning::Preamble };
            self.data.clear();
            Some(meaning)
        } else {
            self.take_field(&line);
            None
        };
        // The buffer is kept for the next line.
        self.line = line;
        self.line.clear();
        meaning
    }

    fn take_field(&mut self, line: &[u8]) {
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        let Some(value) = line.strip_prefix(b"data") else { return };
        let value = match value.split_first() {
            None => value,
            Some((b':', value)) => value.strip_prefix(b" ").unwrap_or(value),
            Some(_) => return,
        };
        if self.has_data {
            self.data.push(b'\n');
        }
        self.has_data = true;
        if self.data.len() + value.len() <= DATA_BYTES_MAX {
            self.data.extend_from_slice(value);
        }
    }
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default)]
    choices: Vec<Choice<'a>>,
    #[serde(borrow)]
    object: Option<std::borrow::Cow<'a, str>>,
    /// Anthropic's events say by it what they are.
    #[serde(borrow, rename = "type")]
    kind: Option<std::borrow::Cow<'a, str>>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    text: Option<std::borrow::Cow<'a, str>>,
    finish_reason: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow)]
    refusal: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow)]
    reasoning_content: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow)]
    reasoning: Option<std::borrow::Cow<'a, str>>,
    tool_calls: Option<IgnoredAny>,
    function_call: Option<IgnoredAny>,
}

/// Finds the error inside an answer, and in it the status that it speaks of: an object or a text
/// under `error`, or, as older engines write it, the whole answer.
fn error_in(data: &[u8], object: Option<&str>, error: Option<&Value>) -> Option<Option<u16>> {
    let is_said =
        |error: &&Value| error.is_object() || error.as_str().is_some_and(|e| !e.is_empty());
    if let Some(error) = error.filter(is_said) {
        return Some(status_of(error));
    }
    let whole = || serde_json::from_slice::<Value>(data).ok().as_ref().and_then(status_of);
    (object == Some("error")).then(whole)
}

/// The status that an error speaks of, if it speaks of one: as a number or by a word.
fn status_of(error: &Value) -> Option<u16> {
    ["code", "status", "type"].into_iter().filter_map(|key| error.get(key)).find_map(|value| {
        if let Some(number) = value.as_u64().or_else(|| value.as_str()?.parse().ok()) {
            return u16::try_from(number).ok().filter(|status| (400..600).contains(status));
        }
        match value.as_str()? {
            "rate_limit_exceeded" | "rate_limit_error" | "insufficient_quota" => Some(429),
            "overloaded_error" => Some(529),
            "invalid_api_key" | "authentication_error" => Some(401),
            "permission_error" => Some(403),
            "context_length_exceeded" | "invalid_request_error" | "BadRequestError" => Some(400),
            _ => None,
        }
    })
}

fn meaning_of(data: &[u8]) -> Meaning {
    if data == b"[DONE]" {
        return Meaning::Done;
    }
    // What cannot be read is passed on as content: the client may understand it.
    let Ok(event) = serde_json::from_slice::<Event<'_>>(data) else { return Meaning::Content };
    if let Some(status) = error_in(data, event.object.as_deref(), event.error.as_ref()) {
        return Meaning::Error(status);
    }
    match event.kind.as_deref() {
        Some("content_block_delta") => return Meaning::Content,
        Some("message_delta") => return Meaning::Finish,
        Some("message_stop") => return Meaning::Done,
        Some(_) | None => {}
    }
    if event.choices.iter().any(|choice| choice.finish_reason.is_some()) {
        return Meaning::Finish;
    }
    let has_content = event.choices.iter().any(|choice| {
        let is_said = |text: &Option<std::borrow::Cow<'_, str>>| {
            text.as_ref().is_some_and(|text| !text.is_empty())
        };
        is_said(&choice.text)
            || choice.delta.as_ref().is_some_and(|delta| {
                is_said(&delta.content)
                    || is_said(&delta.refusal)
                    || is_said(&delta.reasoning_content)
                    || is_said(&delta.reasoning)
                    || delta.tool_calls.is_some()
                    || delta.function_call.is_some()
            })
    });
    if has_content { Meaning::Content } else { Meaning::Preamble }
}

/// What a plain answer amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plain {
    /// An answer.
    Good,
    /// An error object instead of an answer, with its embedded status.
    Error(Option<u16>),
    /// No JSON object, or one without the choices it should have.
    Malformed,
}

/// Looks at a whole plain answer. `wants_choices`: the route's answers carry `choices`.
pub(crate) fn plain(body: &[u8], wants_choices: bool) -> Plain {
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(borrow)]
        object: Option<std::borrow::Cow<'a, str>>,
        error: Option<Value>,
        choices: Option<Vec<IgnoredAny>>,
    }
    let Ok(answer) = serde_json::from_slice::<Answer<'_>>(body) else { return Plain::Malformed };
    if let Some(status) = error_in(body, answer.object.as_deref(), answer.error.as_ref()) {
        return Plain::Error(status);
    }
    let has_choices = answer.choices.is_some_and(|choices| !choices.is_empty());
    if has_choices || !wants_choices { Plain::Good } else { Plain::Malformed }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = concat!(
        "\u{feff}data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\r\n\r\n",
        ": ping\n\n",
        "data:{\"choices\":[{\"delta\":{\"content\":\"\u{4f60}\"}}]}\n\n",
        "event: x\rdata: {\"choices\":\rdata: [{\"delta\":{\"content\":\"b\"}}]}\r\r",
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
        "data: [DONE]\n\n",
    );

    fn read(parts: &[&[u8]]) -> Vec<Meaning> {
        let mut reader = Reader::default();
        let mut meanings = Vec::new();
        for part in parts {
            reader.read(part, |meaning, _| meanings.push(meaning));
        }
        assert!(reader.is_between_events());
        meanings
    }

    #[test]
    fn s07_s08_every_split_and_every_line_end_reads_the_same() {
        let bytes = STREAM.as_bytes();
        let whole = read(&[bytes]);
        assert_eq!(
            whole,
            [
                Meaning::Preamble,
                Meaning::Preamble,
                Meaning::Content,
                Meaning::Content,
                Meaning::Finish,
                Meaning::Done
            ]
        );
        for at in 0..bytes.len() {
            assert_eq!(read(&[&bytes[..at], &bytes[at..]]), whole, "split at {at}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(&single), whole);
    }

    #[test]
    fn an_error_event_tells_its_status() {
        let event = b"data: {\"error\":{\"message\":\"x\",\"code\":\"429\"}}\n\n";
        assert_eq!(read(&[event]), [Meaning::Error(Some(429))]);
        let event = b"data: {\"error\":{\"message\":\"x\",\"code\":\"overloaded\"}}\n\n";
        assert_eq!(read(&[event]), [Meaning::Error(None)]);
    }

    #[test]
    fn the_events_of_anthropic_are_understood() {
        let stream = concat!(
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{}}\n\n",
            "event: ping\ndata: {\"type\":\"ping\"}\n\n",
            "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"a\"}}\n\n",
            "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n",
            "data: {\"type\":\"message_stop\"}\n\n",
            "data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n",
        );
        assert_eq!(
            read(&[stream.as_bytes()]),
            [
                Meaning::Preamble,
                Meaning::Preamble,
                Meaning::Content,
                Meaning::Finish,
                Meaning::Done,
                Meaning::Error(Some(529)),
            ]
        );
    }

    #[test]
    fn s14_an_event_that_cannot_be_read_counts_as_content() {
        assert_eq!(read(&[b"data: {oops\n\n"]), [Meaning::Content]);
    }

    #[test]
    fn the_place_is_just_behind_the_event() {
        let mut places = Vec::new();
        Reader::default().read(b"data: 1\r\n\r\ndata: 2\n\nda", |_, place| places.push(place));
        assert_eq!(places, [11, 20]);
    }

    #[test]
    fn u13_u14_a_plain_answer_that_is_none_is_told_apart() {
        assert_eq!(plain(b"{\"choices\":[{}]}", true), Plain::Good);
        assert_eq!(plain(b"{\"data\":[]}", false), Plain::Good);
        assert_eq!(plain(b"{\"error\":{\"code\":429}}", true), Plain::Error(Some(429)));
        for body in ["{\"choices\":[]}", "null", "", "<html>", "{}"] {
            assert_eq!(plain(body.as_bytes(), true), Plain::Malformed, "{body}");
        }
    }
}
