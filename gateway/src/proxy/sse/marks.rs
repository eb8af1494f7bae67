//! Which choices of an answer were seen, and which have told why they ended.
//!
//! A client that asks for several gets them in one stream, in any order; that one of them has ended says
//! nothing about the others.

/// The highest index that is told apart; far more choices than a request may ask for.
const INDEX_MAX: u64 = 127;

/// Choices by their index, a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    seen: u128,
    finished: u128,
}

impl Marks {
    /// Notes a choice.
    pub(super) fn note(&mut self, index: u64, has_finish: bool) {
        let bit = 1 << index.min(INDEX_MAX);
        self.seen |= bit;
        self.finished |= if has_finish { bit } else { 0 };
    }

    /// Takes over what a later event says.
    pub(crate) fn update(&mut self, later: Self) {
        self.seen |= later.seen;
        self.finished |= later.finished;
    }

    /// Whether there was a choice, and each that was seen has ended.
    pub(crate) fn are_finished(self) -> bool {
        self.seen != 0 && self.seen == self.finished
    }
}
