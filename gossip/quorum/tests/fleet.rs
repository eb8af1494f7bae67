//! A whole fleet on virtual time: councils that hear each other through a network that misbehaves.
//!
//! The councils are the real ones; breakers, probes and the network are scripted, and everything
//! follows from a seed, which is printed when a claim fails. What the fleet does is held against
//! what truly happened, never against what a council believes.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

#[path = "fleet/canary.rs"]
mod canary;
#[path = "fleet/carrier.rs"]
mod carrier;
#[path = "fleet/chance.rs"]
mod chance;
#[path = "fleet/commands.rs"]
mod commands;
#[path = "fleet/committee.rs"]
mod committee;
#[path = "fleet/forgets.rs"]
mod forgets;
#[path = "fleet/ledger.rs"]
mod ledger;
#[path = "fleet/majority.rs"]
mod majority;
#[path = "fleet/many.rs"]
mod many;
#[path = "fleet/membership.rs"]
mod membership;
#[path = "fleet/minority.rs"]
mod minority;
#[path = "fleet/node.rs"]
mod node;
#[path = "fleet/orders.rs"]
mod orders;
#[path = "fleet/races.rs"]
mod races;
#[path = "fleet/recall.rs"]
mod recall;
#[path = "fleet/recovery.rs"]
mod recovery;
#[path = "fleet/room.rs"]
mod room;
#[path = "fleet/schedules.rs"]
mod schedules;
#[path = "fleet/seconding.rs"]
mod seconding;
#[path = "fleet/sets.rs"]
mod sets;
#[path = "fleet/traffic.rs"]
mod traffic;
#[path = "fleet/world.rs"]
mod world;
