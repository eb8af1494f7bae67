//! What one read of a stream has brought: the sum over its events.

use crate::proxy::sse::{Marks, Meaning};

/// What one read has brought.
#[derive(Default)]
pub(super) struct Seen {
    /// The place behind the last whole event.
    pub(super) end: usize,
    /// Events with content.
    pub(super) tokens: u32,
    /// One of them told why a choice ended.
    pub(super) has_finish: bool,
    /// The choices that they speak of.
    pub(super) marks: Marks,
    /// Events that could not be read.
    pub(super) unreadable: u32,
    /// One of them was the last.
    pub(super) over: Option<Over>,
}

/// What ends a stream of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    Done,
    Error(Option<u16>),
}

impl Seen {
    /// Notes one event.
    pub(super) fn note(&mut self, meaning: Meaning) {
        match meaning {
            Meaning::Preamble => {}
            Meaning::Content => self.tokens += 1,
            Meaning::Unreadable => {
                self.tokens += 1;
                self.unreadable += 1;
            }
            Meaning::Finish => self.has_finish = true,
            Meaning::Done => self.over = Some(Over::Done),
            Meaning::Last => {
                self.tokens += 1;
                self.over = Some(Over::Done);
            }
            Meaning::Error(status) => self.over = Some(Over::Error(status)),
        }
    }
}
