//! The fleet's ledger, limits and membership in Redis, by scripts that each touch one slot.

pub mod limits;
