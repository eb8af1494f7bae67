//! What the mock reads of a request: a JSON object, or a form where a file comes along.
//!
//! Invariants: no bytes make it panic, and what it does not know it leaves unread, so that a
//! request may carry whatever the real server would take.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// The most parts of a form that are looked at.
const PARTS_MAX: usize = 64;

/// What the mock reads of a model request.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Question<'a> {
    pub(super) model: Option<String>,
    pub(super) stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    max_output_tokens: Option<u32>,
    pub(super) n: Option<u32>,
    pub(super) top_n: Option<u32>,
    /// A word on audio routes, an object elsewhere.
    #[serde(borrow)]
    response_format: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) encoding_format: Option<&'a RawValue>,
    #[serde(borrow)]
    stream_format: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) documents: Option<&'a RawValue>,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_choice: Option<&'a RawValue>,
    /// A form says in plain text what JSON says in quotes.
    #[serde(skip)]
    format: Option<String>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// A tool as chat offers it, and as the other two dialects do.
#[derive(Deserialize)]
struct Tool {
    function: Option<Named>,
    name: Option<String>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

impl<'a> Question<'a> {
    /// Reads a JSON body.
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

    /// Reads a form, whose content type names the boundary.
    ///
    /// # Errors
    /// A sentence for the caller if there is no boundary, a part has no end, or a field is not of
    /// the expected type.
    pub(super) fn read_form(content_type: &str, body: &[u8]) -> Result<Self, String> {
        let boundary = content_type
            .split(';')
            .filter_map(|parameter| parameter.trim().strip_prefix("boundary="))
            .map(|boundary| boundary.trim_matches('"'))
            .find(|boundary| !boundary.is_empty())
            .ok_or("the form's content type names no boundary")?;
        let mut question = Self::default();
        // With a line end before it, the first boundary looks as the others do.
        let body = [b"\r\n", body].concat();
        let delimiter = format!("\r\n--{boundary}");
        let mut rest = after(&body, delimiter.as_bytes()).ok_or("the form has no part")?;
        for _ in 0..PARTS_MAX {
            if rest.starts_with(b"--") {
                return Ok(question);
            }
            let end = find(rest, delimiter.as_bytes()).ok_or("a part of the form has no end")?;
            let (part, behind) = rest.split_at(end);
            question.take_part(part)?;
            rest = behind.get(delimiter.len()..).unwrap_or_default();
        }
        Err("the form has too many parts".to_owned())
    }

    fn take_part(&mut self, part: &[u8]) -> Result<(), String> {
        let end = find(part, b"\r\n\r\n").ok_or("a part of the form has no head")?;
        let (head, value) = part.split_at(end);
        let head = String::from_utf8_lossy(head).to_ascii_lowercase();
        // A file's bytes have no place here.
        let Some((_, name)) = head.split_once("; name=") else { return Ok(()) };
        if head.contains("filename=") {
            return Ok(());
        }
        let name = name.split(['\r', ';']).next().unwrap_or_default().trim_matches('"');
        let value = String::from_utf8_lossy(value.get(4..).unwrap_or_default()).into_owned();
        let read = |what: &str| format!("{what} cannot be read");
        match name {
            "model" => self.model = Some(value),
            "stream" => self.stream = Some(value.parse().map_err(|_| read("stream"))?),
            "n" => self.n = Some(value.parse().map_err(|_| read("n"))?),
            "response_format" => self.format = Some(value),
            _ => {}
        }
        Ok(())
    }

    /// The most tokens that are wanted, under whichever name.
    pub(super) fn limit(&self) -> Option<u32> {
        self.max_completion_tokens.or(self.max_tokens).or(self.max_output_tokens)
    }

    /// Whether a stream is to tell its usage, where that has to be asked for.
    pub(super) fn include_usage(&self) -> bool {
        self.stream_options.as_ref().and_then(|options| options.include_usage).unwrap_or(false)
    }

    /// The format that is wanted, where it is a word.
    pub(super) fn format(&self) -> Option<String> {
        let in_json = || serde_json::from_str(self.response_format?.get()).ok();
        self.format.clone().or_else(in_json)
    }

    /// Whether sound is to come as events.
    pub(super) fn wants_sound_events(&self) -> bool {
        self.stream_format.is_some_and(|format| format.get() == "\"sse\"")
    }

    /// The tool that is to be called: the first of those offered, unless `tool_choice` says none.
    ///
    /// # Errors
    /// A sentence for the caller if the tools are no list of tools.
    pub(super) fn tool(&self) -> Result<Option<String>, String> {
        let Some(tools) = self.tools else { return Ok(None) };
        let tools: Vec<Tool> =
            serde_json::from_str(tools.get()).map_err(|error| format!("tools: {error}"))?;
        let choice = self.tool_choice.map_or("", RawValue::get);
        if choice == "\"none\"" || choice.replace(' ', "").contains("\"type\":\"none\"") {
            return Ok(None);
        }
        let name = |tool: Tool| tool.function.map(|named| named.name).or(tool.name);
        Ok(tools.into_iter().find_map(name))
    }
}

/// Counts inputs: a list of texts or of token lists is many, a text or one token list is one.
pub(super) fn input_count(input: &str) -> usize {
    let is_list_of_inputs =
        input.strip_prefix('[').is_some_and(|rest| rest.trim_start().starts_with(['"', '[', '{']));
    if !is_list_of_inputs {
        return 1;
    }
    serde_json::from_str::<Vec<IgnoredAny>>(input).map_or(1, |inputs| inputs.len())
}

/// Estimates a prompt's tokens at four bytes each, which is near enough for a mock.
pub(super) fn prompt_tokens(body_bytes: usize) -> u64 {
    u64::try_from(body_bytes.div_ceil(4)).unwrap_or(u64::MAX)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn after<'a>(bytes: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    bytes.get(find(bytes, wanted)? + wanted.len()..)
}
