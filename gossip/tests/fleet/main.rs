//! Nodes on real loopback sockets: what spreads, what is refused, what is survived.
//!
//! Nothing here sleeps to let something happen: each test waits for a condition with a deadline.

#![expect(clippy::unwrap_used, reason = "a test may stop loudly")]

mod certificates;
mod forged;
mod frames;
mod hostile;
mod refused;
mod spread;
mod stranger;
mod twins;
mod world;
