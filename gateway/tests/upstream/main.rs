//! The way to the endpoints, over real sockets: what is used again, what is refused, what is retried.
//!
//! Most of this is asked of [`gateway::upstream`] itself, where a connection can be watched; what a
//! client sees of it is asked of a whole gateway.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop loudly")]

#[path = "../local/mod.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod local;
#[path = "../raw/mod.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod raw;

mod heads;
mod kinds;
mod kit;
mod names;
mod reuse;
mod secure;
mod shared;
