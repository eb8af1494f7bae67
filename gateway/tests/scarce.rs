//! Machines that have nothing left: no memory for bodies, no files, no ports, no room on the disk, no
//! time on the processor. The gateway sheds what it cannot carry, says so, and never dies of it.
//!
//! It is a process of its own, and where something of the machine is to be taken away, on a machine of its
//! own (`netns/apart.rs` says what that needs).

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop loudly, and says what it has measured"
)]

#[path = "netns/apart.rs"]
mod apart;
#[path = "scarce/bodies.rs"]
mod bodies;
#[path = "scarce/files.rs"]
mod files;
#[path = "scarce/house.rs"]
mod house;
#[path = "local/mod.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod local;
#[path = "scarce/machine.rs"]
mod machine;
#[path = "process/mod.rs"]
mod process;
#[path = "raw/mod.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod raw;
