//! The operators' listener over real sockets: who may do what, what is refused, what is told.
//!
//! Claims named `m…` are the cases of that number; each runs against a gateway of its own.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

mod abuse;
mod access;
mod desk;
mod document;
mod events;
#[path = "../fleet/mod.rs"]
mod fleet;
mod fleet_events;
#[path = "../local/mod.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod local;
mod orders;
mod paths;
#[path = "../process/mod.rs"]
mod process;
mod schema;
mod settings;
mod views;
