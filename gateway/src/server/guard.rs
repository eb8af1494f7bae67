//! What a client of HTTP/1 says, looked at byte by byte before anything else reads it.
//!
//! A library that reads requests is generous: it takes doubled codings, bare line ends, a missing Host,
//! and what two readers take in two ways is how a request is smuggled past one of them. So each head is
//! read here first, by the letter of RFC 9112 where it leaves a choice by the stricter one, and the
//! framing of each body is followed, so that it is known where the next head begins.
//!
//! A [`Guard`] knows no clock and reads nothing: it is told what has come and says what may pass.
//!
//! Invariants: a head passes whole or not at all; how the bytes are cut into pieces changes no verdict;
//! after a refusal nothing passes; no byte is copied and nothing is allocated; each byte is looked at
//! once, a body's of known length not at all.

mod chunks;
mod head;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod promise;
mod signs;
#[cfg(test)]
mod tests;
mod violation;

use self::chunks::Chunks;
use self::head::{Framing, Head};
pub(super) use self::violation::Violation;

/// Longest request head, leading empty lines included, in bytes.
pub(super) const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Most header fields of one request.
pub(super) const FIELDS_MAX: usize = 100;

/// One connection's guard.
#[derive(Debug)]
pub(super) struct Guard {
    stage: Stage,
    heads: u64,
    has_underscores: bool,
}

/// Where in a message the next byte stands.
#[derive(Debug)]
enum Stage {
    Head(Head),
    /// In a body with so many bytes to come.
    Length(u64),
    Chunks(Chunks),
    Refused(Violation, Place),
}

/// Where a violation was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In a head, of which nothing has passed.
    Head,
    /// In a body whose head has passed.
    Body,
}

/// What a look has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// So many bytes may pass.
    pub(super) passed: usize,
    /// What is with the others.
    pub(super) then: Then,
}

/// What is with the bytes that do not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// There are none.
    All,
    /// They are the beginning of a head: they are to be shown again, with what follows them.
    Held,
    /// They and all that follows are refused.
    Refused(Violation, Place),
}

impl Guard {
    /// A guard that has seen nothing.
    pub(super) fn new() -> Self {
        Self { stage: Stage::Head(Head::default()), heads: 0, has_underscores: false }
    }

    /// Looks at everything that has not passed: what was held by the last look, and what has come since.
    pub(super) fn look(&mut self, bytes: &[u8]) -> Look {
        let mut passed = 0;
        while let Some(rest) = bytes.get(passed..).filter(|rest| !rest.is_empty()) {
            match self.step(rest) {
                Ok(Some(length)) => passed += length,
                Ok(None) => return Look { passed, then: Then::Held },
                Err((violation, place)) => {
                    self.stage = Stage::Refused(violation, place);
                    return Look { passed, then: Then::Refused(violation, place) };
                }
            }
        }
        Look { passed, then: Then::All }
    }

    /// Takes what belongs to one stage, at least one byte; `None`: a head that is not whole.
    fn step(&mut self, rest: &[u8]) -> Result<Option<usize>, (Violation, Place)> {
        match &mut self.stage {
            Stage::Head(head) => {
                let read = head.read(rest).map_err(|violation| (violation, Place::Head))?;
                let Some(length) = read else { return Ok(None) };
                self.heads += 1;
                self.has_underscores |= head.has_underscores;
                self.stage = match head.framing() {
                    Framing::Length(0) => Stage::Head(Head::default()),
                    Framing::Length(length) => Stage::Length(length),
                    Framing::Chunked => Stage::Chunks(Chunks::default()),
                };
                Ok(Some(length))
            }
            Stage::Length(left) => {
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                *left -= length as u64;
                if *left == 0 {
                    self.stage = Stage::Head(Head::default());
                }
                Ok(Some(length))
            }
            Stage::Chunks(chunks) => {
                let read = chunks.read(rest).map_err(|violation| (violation, Place::Body))?;
                let Some(length) = read else { return Ok(Some(rest.len())) };
                self.stage = Stage::Head(Head::default());
                Ok(Some(length))
            }
            Stage::Refused(violation, place) => Err((*violation, *place)),
        }
    }

    /// Refuses what has come of a head, and all that follows. In the middle of a body nothing changes.
    pub(super) fn refuse(&mut self, violation: Violation) -> bool {
        let is_head = matches!(self.stage, Stage::Head(_));
        if is_head {
            self.stage = Stage::Refused(violation, Place::Head);
        }
        is_head
    }

    /// Where it has refused something, and so everything that follows; `None`: it has not.
    pub(super) fn refused_in(&self) -> Option<Place> {
        match self.stage {
            Stage::Refused(_, place) => Some(place),
            Stage::Head(_) | Stage::Length(_) | Stage::Chunks(_) => None,
        }
    }

    /// How many heads have passed.
    pub(super) fn heads(&self) -> u64 {
        self.heads
    }

    /// Whether a field of any of them has `_` in its name.
    pub(super) fn has_underscores(&self) -> bool {
        self.has_underscores
    }

    /// Whether the next byte belongs to a body.
    pub(super) fn is_in_body(&self) -> bool {
        matches!(self.stage, Stage::Length(_) | Stage::Chunks(_))
    }

    /// Whether a head has begun that is not whole; empty lines before it do not count.
    pub(super) fn is_in_head(&self) -> bool {
        matches!(&self.stage, Stage::Head(head) if head.has_begun())
    }
}
