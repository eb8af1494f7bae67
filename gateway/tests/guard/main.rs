//! Hostile clients of HTTP, over real sockets: what they get, what no upstream gets, and that the next
//! client does not notice.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop loudly")]

#[path = "../local/mod.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod local;
#[path = "../raw/mod.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod raw;

mod bodies;
mod frames;
mod heads;
mod http2;
mod json;
mod kit;
mod times;
mod ways;
