//! How many tokens a request took, as the upstream reports it.
//!
//! The figures are an endpoint's word and nothing stands on them but counts and limits: whatever is no
//! sane number is taken as not reported, and of two reports in one answer the later holds.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::sse::Count;

/// No request takes more tokens; a larger figure is nonsense, and would use up a caller's limit for
/// ever.
const TOKENS_MAX: u64 = 1_000_000_000;

/// Tokens of one request; `None`: not reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Of the prompt.
    pub input: Option<u64>,
    /// Of the answer.
    pub output: Option<u64>,
}

/// The figures by all their names.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Figures {
    prompt_tokens: Count,
    input_tokens: Count,
    completion_tokens: Count,
    output_tokens: Count,
    total_tokens: Count,
    /// Anthropic does not count these two among those of the prompt.
    cache_creation_input_tokens: Count,
    cache_read_input_tokens: Count,
}

impl Usage {
    /// Both together; `None` if neither was reported.
    pub(crate) fn total(&self) -> Option<u64> {
        match (self.input, self.output) {
            (None, None) => None,
            (input, output) => Some(input.unwrap_or(0).saturating_add(output.unwrap_or(0))),
        }
    }

    /// Reads what stands under `usage`.
    pub(super) fn read(usage: Option<&RawValue>) -> Self {
        usage.map_or_else(Self::default, |usage| Self::parse(usage.get()))
    }

    /// Reads the last usage of an answer of which only these last bytes are known.
    pub(super) fn at_the_end(last: &[u8]) -> Self {
        let key = b"\"usage\"";
        let Some(at) = memchr::memmem::rfind(last, key) else { return Self::default() };
        let behind = last.get(at + key.len()..).unwrap_or_default().trim_ascii_start();
        let value = behind.strip_prefix(b":").unwrap_or_default();
        let mut values = serde_json::Deserializer::from_slice(value).into_iter::<&RawValue>();
        Self::read(values.next().and_then(Result::ok))
    }

    fn parse(text: &str) -> Self {
        if !text.starts_with('{') {
            return Self::default();
        }
        let figures: Figures = serde_json::from_str(text).unwrap_or_default();
        let sane = |count: Count| count.0.filter(|count| *count <= TOKENS_MAX);
        let cached = [figures.cache_creation_input_tokens, figures.cache_read_input_tokens];
        let cached: u64 = cached.into_iter().filter_map(sane).sum();
        let all = |count: u64| Some(count + cached).filter(|count| *count <= TOKENS_MAX);
        let input = sane(figures.prompt_tokens).or(sane(figures.input_tokens).and_then(all));
        let output = sane(figures.completion_tokens).or(sane(figures.output_tokens));
        // Who ranks or embeds may tell the sum alone, and writes nothing.
        let sum = sane(figures.total_tokens).filter(|_| output.is_none());
        Self { input: input.or(sum), output }
    }

    /// Takes over what a later report says.
    pub(super) fn update(&mut self, later: Self) {
        self.input = later.input.or(self.input);
        self.output = later.output.or(self.output);
    }
}
