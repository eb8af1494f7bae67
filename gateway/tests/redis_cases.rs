//! Fleets of real processes whose Redis is stopped, slow, killed, spoiled, failed over and moved.
//!
//! What only one node or one client of Redis shows is tried in `redis.rs` and in the crate `redis-lua`.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop loudly"
)]

#[path = "redis_cases/failover.rs"]
mod failover;
#[path = "redis_cases/load.rs"]
mod load;
#[path = "redis_cases/moods.rs"]
mod moods;
#[path = "process/mod.rs"]
mod process;
#[path = "redis_cases/relay.rs"]
mod relay;
#[path = "../../redis-lua/tests/servers/mod.rs"]
mod servers;
#[path = "redis_cases/slots.rs"]
mod slots;
#[path = "redis_cases/town.rs"]
mod town;

/// Whoever measures has the machine to itself; the others share it.
static MACHINE: tokio::sync::RwLock<()> = tokio::sync::RwLock::const_new(());
