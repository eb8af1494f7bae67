//! Membership through Redis, for fleets that do not gossip: who is there, and what each one says.
//!
//! A carrier is one function with channels, [`start`]: *mine* goes in and *ours* comes out, both as
//! whole sets. Each member has a row of its own on the roll of its fleet, with a lease that it renews,
//! and beside the row all that it says, as bytes that are opaque here. At every interval a member
//! writes its row and reads what has changed; news is written at once, and a notice lets the others
//! read at once.
//!
//! # The keys
//! All under `<prefix>{fleet/<cluster id>}`: `:members`, a hash of rows; `:said`, a hash of what they
//! say; `:leases` and `:changes`, sorted sets by which is known whose lease is over and what is new, so
//! that a reading costs what has changed and not what there is. Everything is gone an hour after the
//! last member.
//!
//! # Who is alive
//! Whose lease runs by the server's clock, for whoever has read that within one lease. So nobody is
//! lost by a row that a flush or a failover took, since its owner writes it anew within an interval;
//! and while Redis is away, nobody is known to be alive after one lease, and nobody is forgotten.
//!
//! # Invariants
//! - A member's pulse is shown only with what it had said when it raised it: both are one write.
//! - A member is its greatest generation, and of two processes that share one the greater nonce; the
//!   other states nothing, and says so in [`Ours::duplicate`].
//! - A process that was no member yet and finds a later life's row that nobody renews, since its clock
//!   was set back, goes on the roll under a generation above that one.
//! - What stands in Redis is read strictly, within the bounds below.
//! - Every call has the client's deadline, and nothing waits in a queue: what failed is done anew.

mod enroller;
mod held;
mod rows;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use quorum::NodeId;
use tokio::sync::watch;
use tokio::time::Instant;

use self::enroller::Enroller;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::rows::promise;
use crate::client::Client;
use crate::ledger::is_name;

/// The longest name of a member, in bytes.
pub const NAME_BYTES_MAX: usize = 253;

/// The most bytes of what a member says.
pub const SAID_BYTES_MAX: usize = 256 * 1_024;

/// The longest address, in bytes.
pub const ADDRESS_BYTES_MAX: usize = 256;

/// A member is lost when it was not heard of for so many intervals, and not sooner than after
/// [`LEASE_MIN`]: calls have a deadline of their own.
const LEASE_INTERVALS: u32 = 5;
const LEASE_MIN: Duration = Duration::from_millis(500);

/// The script takes no longer ones.
const LEASE_MAX: Duration = Duration::from_secs(300);

/// What the carrier is told once, at its start.
#[derive(Clone, Debug)]
pub struct Config {
    /// What all keys begin with.
    pub prefix: String,
    /// The fleet. 1–128 bytes.
    pub cluster_id: String,
    /// This node's name, unique in the fleet, as [`is_name`] has it.
    pub node_id: String,
    /// Grows with every restart. From 1, below 2^53.
    pub generation: u64,
    /// Where this process is, for people: letters, digits and any of `._:[]-`, at most 256 bytes.
    pub address: String,
    /// The time between two beats, from 10 ms to a minute.
    pub interval: Duration,
}

/// Why the carrier cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is out of its bounds")]
pub struct RollError(pub &'static str);

/// What this node says, as a whole set.
#[derive(Clone, Debug, Default)]
pub struct Mine {
    /// All of it, at most [`SAID_BYTES_MAX`]; `None` until it is known.
    pub said: Option<Arc<[u8]>>,
    /// Grows while the node stands by what it says. Below 2^53.
    pub pulse: u64,
    /// Grows with whatever others wait for.
    pub news: u64,
    /// Whether it says that this node has left the fleet.
    pub has_left: bool,
}

/// A member, as it is on the roll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub id: NodeId,
    /// Grows with every restart.
    pub generation: u64,
    /// Where it is, by its own word.
    pub address: String,
    /// Whether it is known to be alive.
    pub is_live: bool,
    /// Its pulse.
    pub pulse: u64,
    /// What it says; the same allocation for as long as it says the same.
    pub said: Arc<[u8]>,
    /// When it was last known to be alive.
    pub seen_at: Option<Instant>,
}

/// The roll, as a whole set.
#[derive(Clone, Debug, Default)]
pub struct Ours {
    /// All members that are known, live or not, without this node, by name.
    pub members: Vec<Member>,
    /// How many times the set has been published.
    pub at: u64,
    /// The address of a live process that goes under this node's name and has outlived this one:
    /// this node says nothing.
    pub duplicate: Option<String>,
}

/// What has been counted.
#[derive(Debug, Default)]
pub struct Figures {
    /// Beats that were written.
    pub beats: AtomicU64,
    /// Readings.
    pub readings: AtomicU64,
    /// Calls that were not answered well.
    pub failures: AtomicU64,
    /// Rows that could not be read.
    pub ignored: AtomicU64,
    /// Times that another process was found under this node's name.
    pub duplicates: AtomicU64,
}

/// The handle of a running carrier.
#[derive(Debug)]
pub struct Carrier {
    /// The newest set. It is published when something has changed, and at every interval.
    pub ours: watch::Receiver<Ours>,
    /// What has been counted.
    pub figures: Arc<Figures>,
}

/// Returns the handle and the future that carries until `stop` holds `true` (or its sender is gone).
/// Dropping the future ends everything at once; the member is lost when its lease is over.
///
/// A caller that leaves for good says so in `mine` before it stops: the future then writes it once
/// more, with a lease that is over.
///
/// # Errors
/// If the configuration is out of its bounds. Nothing runs then.
pub fn start(
    config: Config,
    client: Client,
    mine: watch::Receiver<Mine>,
    stop: watch::Receiver<bool>,
) -> Result<(Carrier, impl Future<Output = ()> + Send + use<>), RollError> {
    check(&config)?;
    let figures = Arc::new(Figures::default());
    let (ours_in, ours) = watch::channel(Ours::default());
    let enroller = Enroller::new(config, client, mine, (ours_in, Arc::clone(&figures)));
    Ok((Carrier { ours, figures }, enroller.run(stop)))
}

fn check(config: &Config) -> Result<(), RollError> {
    let is_in = |is_in: bool, what| if is_in { Ok(()) } else { Err(RollError(what)) };
    let interval = Duration::from_millis(10)..=LEASE_MAX / LEASE_INTERVALS;
    is_in((1..=128).contains(&config.cluster_id.len()), "the cluster's id")?;
    is_in(is_name(&config.node_id), "the node's name")?;
    is_in((1..=rows::NUMBER_MAX).contains(&config.generation), "the generation")?;
    is_in(rows::is_address(&config.address), "the address")?;
    is_in(interval.contains(&config.interval), "the interval")
}
