//! Fleets that decide in a real Redis: what it decides, what happens while it is away, and after.
//!
//! Each test has a server of its own, since what is tried is what becomes of it.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

#[path = "fleet/mod.rs"]
mod fleet;
#[path = "process/mod.rs"]
mod process;
#[path = "redis/mod.rs"]
mod redis;
#[path = "../../redis-lua/tests/servers/mod.rs"]
mod servers;
