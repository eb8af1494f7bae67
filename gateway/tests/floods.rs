//! Floods of HTTP/2 and TLS against the binary, from clients and from upstreams: what they cost, how
//! they end, and that the others do not notice.
//!
//! The gateway is a process of its own, so that its memory can be told from the test's. `FLOODS=full`
//! sends a million frames on each of twenty connections; what was measured is printed.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::panic,
    reason = "a test may stop loudly, and says what it has measured"
)]

#[path = "floods/answers.rs"]
mod answers;
#[path = "floods/clients.rs"]
mod clients;
#[path = "guard/frames.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod frames;
#[path = "floods/heads.rs"]
mod heads;
#[path = "floods/load.rs"]
mod load;
#[path = "local/mod.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod local;
#[path = "process/mod.rs"]
mod process;
#[path = "raw/mod.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod raw;
#[path = "floods/shakes.rs"]
mod shakes;
#[path = "floods/stand.rs"]
mod stand;
#[path = "floods/upstreams.rs"]
mod upstreams;
