//! What the guard promises of any bytes: one verdict however they are cut, one reading of what passes.

use super::{Guard, Place, Then, Violation};
use crate::promises::http1::{self, Read};

/// What comes of bytes that come in these pieces: how many pass, what is refused, and how many heads
/// have passed. How much passes of a body that turns out to be broken is no matter, and not told.
pub(super) fn pieces<'a>(
    all: impl IntoIterator<Item = &'a [u8]>,
) -> (usize, Option<(Violation, Place)>, u64) {
    let (mut guard, mut held, mut passed) = (Guard::new(), Vec::new(), 0);
    for piece in all {
        held.extend_from_slice(piece);
        let look = guard.look(&held);
        passed += look.passed;
        held.drain(..look.passed);
        match look.then {
            Then::All => assert!(held.is_empty()),
            Then::Held => assert!(!held.is_empty()),
            Then::Refused(violation, place) => {
                let passed = if place == Place::Head { passed } else { 0 };
                return (passed, Some((violation, place)), guard.heads());
            }
        }
    }
    (passed, None, guard.heads())
}

/// The first byte says in what pieces the others come.
pub(crate) fn keep(bytes: &[u8]) {
    let Some((size, said)) = bytes.split_first() else { return };
    let (size, whole) = (usize::from(*size).max(1), pieces([said]));
    assert_eq!(pieces(said.chunks(size)), whole, "in pieces of {size}");
    assert_eq!(pieces(said.chunks(1)), whole, "byte by byte");
    let (first, second) = said.split_at(size.min(said.len()));
    assert_eq!(pieces([first, second]), whole, "cut at {size}");
    let (guard, passed) = passes(said);
    let strict = http1::strict(passed);
    assert!(strict.is_some(), "what passes is against the letter");
    assert_eq!(strict, http1::generous(passed), "two readers read two things");
    let (requests, left) = strict.unwrap_or_default();
    assert_eq!((requests.len() as u64, left), (guard.heads(), 0), "another number of requests");
    let is_cut = requests.last().is_some_and(|last: &Read| last.body.is_none());
    assert_eq!(is_cut, guard.is_in_body() || guard.refused_in() == Some(Place::Body));
}

/// The guard that has seen all of `said`, and what has passed.
pub(in crate::server) fn passes(said: &[u8]) -> (Guard, &[u8]) {
    let mut guard = Guard::new();
    let look = guard.look(said);
    (guard, said.get(..look.passed).unwrap_or_default())
}
