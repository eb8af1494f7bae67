//! Fleets in networks of their own that are split, muted, stopped, killed and told the wrong time.
//!
//! Each node is a process of the binary on a machine (a network namespace) of its own; faults are
//! packet filters and signals. Every case runs apart, see `netns/apart.rs`, which says what it needs.
//!
//! Where the cases of the specification's table C that are not here live: C01's membership, F13 and F16
//! in `fleet.rs`, C05's generation file in `recovery.rs`.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

#[path = "netns/apart.rs"]
mod apart;
#[path = "netns/clocks.rs"]
mod clocks;
#[path = "netns/deaths.rs"]
mod deaths;
#[path = "netns/load.rs"]
mod load;
#[path = "process/mod.rs"]
mod process;
#[path = "netns/splits.rs"]
mod splits;
#[path = "netns/town.rs"]
mod town;
#[path = "netns/wires.rs"]
mod wires;
