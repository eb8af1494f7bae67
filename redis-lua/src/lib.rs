//! The fleet's ledger, limits and membership in Redis, by scripts that each touch one slot.

pub mod client;
pub mod error;
pub mod keys;
pub mod ledger;
pub mod limits;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod promises;
pub mod roll;
pub mod script;
pub mod slot;
