//! Three nodes and one endpoint, checked exhaustively: every order of what can happen, up to a depth.
//!
//! The councils are the real ones, on time cut into ticks. What can happen in a tick: any record of
//! any node reaches any other, the newest or the one before (so that packets are lost, late, doubled
//! and out of order), a breaker trips, a probe or a canary is answered well or badly, and once a
//! node's process is replaced by a new one. A breadth-first search visits every state once. It is our
//! own few lines since the known checkers want states that can be hashed, which a council is not,
//! and bring a web server.

#![expect(
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

mod claims;
mod search;
mod state;
