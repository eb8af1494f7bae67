//! A thousand clients of each kind that take their time, strangers that say something new each time, and
//! what is said about both: over the sockets of the real binary.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

#[path = "../process/mod.rs"]
mod process;
#[path = "../raw/mod.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod raw;

mod clients;
mod crowd;
mod labels;
mod load;
mod orphans;
mod threats;

/// Whoever measures how long something takes, or how much of it there is, does so alone.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
