//! The whole fleet on virtual time, from one seed: the gateway's own deputies and endpoints, any fault.
//!
//! `SEEDS=from..to` chooses the seeds of the long run; without it, ten thousand. A seed that breaks
//! a promise is printed with its plan, made smaller, and left in `replays`; what is kept there runs
//! each time. `TELL=seed` prints what happens in one run.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

mod carrier;
#[path = "../../../gossip/quorum/tests/fleet/chance.rs"]
mod chance;
mod claims;
mod desk;
mod invariants;
mod ledger;
mod node;
mod plan;
mod planted;
mod replay;
mod rules;
mod runner;
mod sabotage;
mod seat;
mod shrink;
mod world;
