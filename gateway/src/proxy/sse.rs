//! What an answer amounts to, as a stream of events or in one piece, in every dialect.
//!
//! The bytes are only looked at and passed on as they came: `reader` finds the events in them at any
//! split, `meaning` says what each event amounts to, `plain` does so for an answer in one piece. What
//! cannot be read is the client's to understand and never stops a stream.
//!
//! Invariants: an event is parsed once and allocates nothing, unless it is an error or torn.

mod failure;
mod lenient;
mod marks;
mod meaning;
mod plain;
#[cfg(any(test, feature = "fuzzing"))]
pub(in crate::proxy) mod promise;
mod reader;
#[cfg(test)]
mod tests;

pub(in crate::proxy) use self::lenient::Count;
pub(crate) use self::marks::Marks;
pub(crate) use self::meaning::Meaning;
pub(crate) use self::plain::{Plain, plain};
pub(crate) use self::reader::Reader;
