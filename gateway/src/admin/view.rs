//! What the admin API answers when it is asked: one type for each answer, written as JSON as it stands.
//!
//! The types are apart from what makes the sentences, so that the document that describes the API can be
//! derived from them. Keys are stable: others script against them. Each answer is made of what it is
//! given, `now` included, so that tests make it on virtual time.
//!
//! Invariants: every list is bounded by the configuration, the electorate or a number said at its field.

pub(crate) mod cluster;
pub(crate) mod endpoint;
pub(crate) mod explain;
pub(crate) mod health;
pub(crate) mod list;
pub(crate) mod member;

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

/// Something worth saying beside the verdict: a word for programs, a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub(crate) struct Note {
    /// Which one; the words are stable.
    pub(crate) code: &'static str,
    /// What is so, and what it means.
    pub(crate) message: String,
}

impl Note {
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// What is still to go or has passed, in milliseconds.
pub(super) fn millis(period: Duration) -> u64 {
    u64::try_from(period.as_millis()).unwrap_or(u64::MAX)
}
