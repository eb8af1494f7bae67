//! What a setting takes, as the code that checks it says itself.
//!
//! A schema that is written down beside a check goes its own way sooner or later. So the check is
//! asked: whatever reads a value says, when it refuses one, what form it wants, and it is shown words
//! to see which it takes beside that.
//!
//! Invariants: a form never takes less than its check does; it may take more, where a setting is
//! refused because of another.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use super::scalar::Refusal;

/// What a value must be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    /// Any text, or one whose form has no name here.
    #[default]
    Text,
    /// A duration within bounds.
    Duration(RangeInclusive<Duration>),
    /// A size in bytes within bounds.
    Size(RangeInclusive<u64>),
    /// A whole number within bounds.
    Whole(RangeInclusive<u64>),
    /// A number.
    Fraction,
    /// True or false.
    Truth,
    /// One of these words.
    Words(Vec<String>),
    /// At most so many letters, digits and these marks.
    Name {
        /// Characters at most.
        most: usize,
        /// The marks.
        marks: String,
    },
}

impl Form {
    /// A whole number within `range`.
    pub(super) fn whole<T: ToString>(range: &RangeInclusive<T>) -> Self {
        // They are unsigned, so that nothing is lost on the way over their text.
        let bound = |bound: &T, other: u64| bound.to_string().parse().unwrap_or(other);
        Self::Whole(bound(range.start(), 0)..=bound(range.end(), u64::MAX))
    }

    /// One of `words`.
    pub(super) fn words(words: &[&str]) -> Self {
        Self::Words(words.iter().map(|word| (*word).to_owned()).collect())
    }
}

/// No setting that wants a form takes this for a value.
const NO_VALUE: &str = "\0";
/// Words that some settings take beside their form.
const WORDS: [&str; 7] = ["off", "*", "refused", "cut", "timeout", "malformed", "auth"];

/// What is known of one setting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// Its form.
    pub(super) form: Form,
    /// Words that are taken beside the form.
    pub(super) words: Vec<&'static str>,
}

impl Known {
    /// Asks the code that reads a setting what it takes.
    pub(super) fn of(parse: impl Fn(&str) -> Result<(), Refusal>) -> Self {
        match parse(NO_VALUE) {
            Ok(()) => Self::default(),
            Err(refusal) => {
                let words = WORDS.into_iter().filter(|word| parse(word).is_ok()).collect();
                Self { form: refusal.form, words }
            }
        }
    }
}

/// What is known of the settings, by their paths without indexes: `models.endpoints.weight`.
#[derive(Debug, Default)]
pub(super) struct Forms {
    known: BTreeMap<String, Known>,
    required: BTreeSet<String>,
}

impl Forms {
    /// Writes down what is known of a setting.
    pub(super) fn note(&mut self, path: &str, known: Known) {
        self.known.insert(without_indexes(path), known);
    }

    /// Writes down that a setting must be there.
    pub(super) fn require(&mut self, path: &str) {
        self.required.insert(without_indexes(path));
    }

    /// What is known of the setting at `path`.
    pub(super) fn get(&self, path: &str) -> Option<&Known> {
        self.known.get(path)
    }

    /// Whether the setting at `path` must be there.
    pub(super) fn is_required(&self, path: &str) -> bool {
        self.required.contains(path)
    }

    /// Adds what others know.
    pub(super) fn extend(&mut self, others: Self) {
        self.known.extend(others.known);
        self.required.extend(others.required);
    }
}

/// `models[0](llama).name` without what stands in brackets.
fn without_indexes(path: &str) -> String {
    let mut plain = String::with_capacity(path.len());
    let mut depth = 0_usize;
    for one in path.chars() {
        match one {
            '[' | '(' => depth += 1,
            ']' | ')' => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            _ => plain.push(one),
        }
    }
    plain
}
