//! What an answer in one piece amounts to, in its dialect.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use super::failure::failure;
use super::lenient::{Said, Text};
use super::meaning::object;
use crate::proxy::route::Dialect;
use crate::proxy::usage::Usage;

/// What a plain answer amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plain {
    /// An answer, and the usage that it reports.
    Good(Usage),
    /// An error object instead of an answer, with its embedded status.
    Error(Option<u16>),
    /// No JSON, or without what the dialect's answers have: an object with this or that; of a dialect that
    /// is not known, anything.
    Malformed,
}

/// Looks at a whole plain answer.
pub(crate) fn plain(body: &[u8], dialect: Dialect) -> Plain {
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(borrow, default)]
        object: Text<'a>,
        #[serde(borrow, default, rename = "type")]
        kind: Text<'a>,
        error: Option<Value>,
        #[serde(default)]
        choices: Said,
        output: Option<IgnoredAny>,
        #[serde(borrow, default)]
        status: Text<'a>,
        content: Option<IgnoredAny>,
        #[serde(borrow)]
        usage: Option<&'a RawValue>,
    }
    let Some(answer) = object::<Answer<'_>>(body) else {
        // Who ranks may answer with a list alone.
        let is_one = dialect == Dialect::Opaque
            && !body.trim_ascii_start().starts_with(b"{")
            && serde_json::from_slice::<Said>(body).is_ok_and(|said| said.0);
        return if is_one { Plain::Good(Usage::default()) } else { Plain::Malformed };
    };
    let is_whole = answer.object.0 == "error" || answer.kind.0 == "error";
    if let Some(status) = failure(body, is_whole, answer.error.as_ref()) {
        return Plain::Error(status);
    }
    let is_one = match dialect {
        Dialect::Chat | Dialect::Completions => answer.choices.0,
        Dialect::Responses if answer.status.0 == "failed" => return Plain::Error(None),
        Dialect::Responses => answer.output.is_some() || !answer.status.0.is_empty(),
        Dialect::Messages => answer.kind.0 == "message" && answer.content.is_some(),
        Dialect::Opaque => true,
    };
    if is_one { Plain::Good(Usage::read(answer.usage)) } else { Plain::Malformed }
}
