//! A supervised way to Redis: standalone, behind Sentinel, or a cluster.
//!
//! The ledger must never make anybody wait for a Redis that is slow, full or gone. So one future owns
//! all connections, finds out within a second when Redis cannot be relied on, and says so; callers
//! only ever use connections that are there, within one deadline, or are told at once that there is
//! none. The protocol is the redis crate's.
//!
//! # Invariants
//! - No call waits longer than [`Config::timeout`], dials, or queues without a bound.
//! - A call that may have been carried out is never sent again.
//! - The keys of one call are in one slot.

mod config;
mod dial;
mod exchange;
mod lane;
mod link;
mod notices;
mod papers;
mod scout;
mod setback;
mod supervise;
mod table;
mod tally;

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::Value;
use tokio::sync::{Notify, Semaphore, broadcast, mpsc, watch};

pub use self::config::{Address, Config, Mode, Tls, URLS_MAX};
use self::exchange::{Errand, Ways};
use self::lane::Lane;
use self::supervise::Supervisor;
use self::table::Table;
pub use self::tally::Figures;
use self::tally::Tally;
use crate::error::{RedisError, Trouble};
use crate::script::Script;
use crate::slot;

/// At most so many calls are under way; more are refused at once.
const IN_FLIGHT_MAX: u32 = 1_024;
/// So many calls of one [`Client::run_all`] are taken in at once, at most.
const CHUNK: usize = 256;
/// At most so many notices wait to be published, and to be read by each receiver.
const NOTICES_MAX: usize = 1_024;

/// One run of a script.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// Which.
    pub script: &'static Script,
    /// Its keys, all of one slot. At least one.
    pub keys: Vec<String>,
    /// Its arguments.
    pub arguments: Vec<Vec<u8>>,
}

/// Whether Redis is to be relied on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It takes writes.
    Up,
    /// It does not.
    Down {
        /// Why, as of the last try.
        trouble: Trouble,
        /// Since when.
        since: Instant,
        /// Which server, as `host:port`; empty where it is none in particular.
        server: String,
        /// What was done there: `start` before anything was, `resolve`, `connect`, `TLS`, `HELLO`,
        /// `PING`, `ROLE`, `write`, `SENTINEL`, `CLUSTER SLOTS`, or `stop` at the end.
        step: &'static str,
    },
}

impl Health {
    /// Whether it takes writes.
    #[must_use]
    pub fn is_up(&self) -> bool {
        matches!(self, Self::Up)
    }
}

/// A handle to Redis; clones are of the same.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

/// An errand and its slot, under its place among all of one run.
type Placed<'a> = (usize, (u16, Errand<'a>));

/// What callers and the supervising future share.
struct Shared {
    timeout: Duration,
    channel: String,
    permits: Semaphore,
    table: watch::Receiver<Arc<Table>>,
    health: watch::Receiver<Health>,
    notices: broadcast::Sender<Vec<u8>>,
    outbox: mpsc::Sender<Vec<u8>>,
    guests: mpsc::Sender<Address>,
    /// The ways of many calls, by server; no more than there are servers. Held for a moment only.
    lanes: Mutex<HashMap<Option<Address>, Arc<Lane>>>,
    look: Arc<Notify>,
    /// Whether notices go by shards, as they do in a cluster that can.
    is_sharded: AtomicBool,
    tally: Arc<Tally>,
}

/// Makes a client, and the future that must be polled for it to work; it ends once `stop` says true,
/// or its sender is gone. Nothing is dialled before that future runs, in a tokio runtime.
///
/// # Errors
/// [`RedisError`]: the configuration cannot be used.
pub fn start(
    config: Config,
    stop: watch::Receiver<bool>,
) -> Result<(Client, impl Future<Output = ()> + Send + use<>), RedisError> {
    let (table_sender, table) = watch::channel(Arc::new(Table::default()));
    let down = Health::Down {
        trouble: Trouble::Away,
        since: supervise::now(),
        server: String::new(),
        step: "start",
    };
    let (health_sender, health) = watch::channel(down);
    let (outbox, outgoing) = mpsc::channel(NOTICES_MAX);
    let (guests, arriving) = mpsc::channel(supervise::GUESTS_MAX);
    let shared = Arc::new(Shared {
        timeout: config.timeout,
        channel: format!("{}{{notices}}", config.prefix),
        permits: Semaphore::new(usize::try_from(IN_FLIGHT_MAX).unwrap_or(1)),
        table,
        health,
        notices: broadcast::channel(NOTICES_MAX).0,
        outbox,
        guests,
        lanes: Mutex::default(),
        look: Arc::default(),
        is_sharded: AtomicBool::new(config.mode == Mode::Cluster),
        tally: Arc::default(),
    });
    let supervisor = Supervisor::new(&config, Arc::clone(&shared), table_sender, health_sender)?;
    let client = Client { shared };
    Ok((client, supervisor.run(arriving, outgoing, stop)))
}

impl Client {
    /// Runs a script once, and gives what it returns.
    ///
    /// # Errors
    /// [`Trouble`]; see there for whether the script was run.
    ///
    /// # Cancel safety
    /// The script may be run all the same.
    pub async fn run(&self, invocation: Invocation) -> Result<Value, Trouble> {
        let deadline = tokio::time::Instant::now() + self.shared.timeout;
        let mut results = self.shared.run(&[invocation], deadline).await;
        results.pop().unwrap_or(Err(Trouble::Away))
    }

    /// Runs scripts, each server's in batches that it can carry, within the time of one call; results
    /// in their order. What a server cannot carry in that time is [`Trouble::Busy`] and was not sent;
    /// those have their turn first the next time. Keys of one slot keep their order.
    ///
    /// # Cancel safety
    /// Any of them may be run all the same.
    pub async fn run_all(&self, invocations: Vec<Invocation>) -> Vec<Result<Value, Trouble>> {
        let deadline = tokio::time::Instant::now() + self.shared.timeout;
        let mut results = Vec::with_capacity(invocations.len());
        for chunk in invocations.chunks(CHUNK) {
            results.extend(self.shared.run(chunk, deadline).await);
        }
        results
    }

    /// Publishes a notice to all receivers of all clients, soon; when there is no room or no
    /// connection it is lost, and counted.
    pub fn publish(&self, payload: Vec<u8>) {
        if self.shared.outbox.try_send(payload).is_err() {
            self.shared.tally.lost_notices(1);
        }
    }

    /// What is published from here on, by this client too. A receiver that lags, and anybody while
    /// there is no connection, misses notices: look for yourself from time to time.
    #[must_use]
    pub fn notices(&self) -> broadcast::Receiver<Vec<u8>> {
        self.shared.notices.subscribe()
    }

    /// Whether Redis is to be relied on. It says *down* within a second of the last good
    /// answer, whatever the timeout; of a connection that is cut as well, with the default one.
    #[must_use]
    pub fn health(&self) -> watch::Receiver<Health> {
        self.shared.health.clone()
    }

    /// What was counted so far.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.shared.tally.figures()
    }
}

impl Shared {
    /// Runs at most [`CHUNK`] scripts.
    async fn run(
        &self,
        invocations: &[Invocation],
        deadline: tokio::time::Instant,
    ) -> Vec<Result<Value, Trouble>> {
        self.tally.called(invocations.len());
        let results = self.admit(invocations, deadline).await;
        for result in &results {
            if let Err(trouble) = result {
                self.tally.failed(*trouble);
            }
        }
        results
    }

    async fn admit(
        &self,
        invocations: &[Invocation],
        deadline: tokio::time::Instant,
    ) -> Vec<Result<Value, Trouble>> {
        let refuse = |trouble| invocations.iter().map(|_| Err(trouble)).collect();
        if !self.health.borrow().is_up() {
            return refuse(Trouble::Away);
        }
        let count = u32::try_from(invocations.len()).unwrap_or(u32::MAX);
        let Ok(_permits) = self.permits.try_acquire_many(count) else {
            return refuse(Trouble::Busy);
        };
        let errands = invocations.iter().map(|call| Ok((slot_of(&call.keys)?, Errand::Run(call))));
        match errands.collect::<Result<Vec<_>, Trouble>>() {
            Ok(errands) if errands.len() == 1 => {
                exchange::bring(&self.ways(), &errands, deadline).await
            }
            Ok(errands) => self.share_out(errands, deadline).await,
            Err(trouble) => refuse(trouble),
        }
    }

    /// Gives each server its own errands, all at once.
    async fn share_out(
        &self,
        errands: Vec<(u16, Errand<'_>)>,
        deadline: tokio::time::Instant,
    ) -> Vec<Result<Value, Trouble>> {
        let mut results = vec![Err(Trouble::Busy); errands.len()];
        let mut shares: HashMap<Option<Address>, Vec<Placed<'_>>> = HashMap::new();
        let table = Arc::clone(&self.table.borrow());
        for (index, errand) in errands.into_iter().enumerate() {
            let owner = table.owners.of(errand.0).cloned();
            shares.entry(owner).or_default().push((index, errand));
        }
        let work = shares.into_iter().map(|(owner, share)| {
            let lane = self.lane(owner);
            Box::pin(async move { self.send(&lane, share, deadline).await })
        });
        for (index, result) in exchange::join(work.collect()).await.into_iter().flatten() {
            if let Some(place) = results.get_mut(index) {
                *place = result;
            }
        }
        results
    }

    /// Sends what there is time for, batch by batch; what is left out was not sent.
    async fn send(
        &self,
        lane: &Lane,
        mut share: Vec<Placed<'_>>,
        deadline: tokio::time::Instant,
    ) -> Vec<(usize, Result<Value, Trouble>)> {
        // Whoever is first finds time for sure.
        let first = lane.cursor();
        share.sort_by_key(|(_, (slot, _))| (slot + slot::SLOTS - first) % slot::SLOTS);
        let (indices, errands): (Vec<_>, Vec<_>) = share.into_iter().unzip();
        let mut results = Vec::with_capacity(errands.len());
        let mut rest = errands.as_slice();
        while !rest.is_empty() {
            let Ok(mut pace) = tokio::time::timeout_at(deadline, lane.pace.lock()).await else {
                break;
            };
            let began = tokio::time::Instant::now();
            let left = deadline.saturating_duration_since(began);
            let size = pace.next(began, left, self.timeout).min(rest.len());
            if size == 0 {
                break;
            }
            let (batch, others) = rest.split_at(size);
            let brought = exchange::bring(&self.ways(), batch, deadline).await;
            let is_late = brought.contains(&Err(Trouble::Timeout));
            let now = tokio::time::Instant::now();
            pace.learn(now, (size, now - began), self.timeout, is_late);
            results.extend(brought);
            rest = others;
            lane.turn_to(rest.first().map_or(first, |(slot, _)| *slot));
        }
        indices.into_iter().zip(results).collect()
    }

    /// The way of many calls to one server, or of those whose server is not known.
    fn lane(&self, owner: Option<Address>) -> Arc<Lane> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let table = self.table.borrow();
        lanes.retain(|server, lane| {
            let is_used = Arc::strong_count(lane) > 1;
            is_used || server.as_ref().is_none_or(|server| table.links.contains_key(server))
        });
        Arc::clone(lanes.entry(owner).or_default())
    }

    fn ways(&self) -> Ways<'_> {
        Ways { table: &self.table, look: &self.look, guests: &self.guests, tally: &self.tally }
    }
}

/// The one slot of all keys.
fn slot_of(keys: &[String]) -> Result<u16, Trouble> {
    let mut slots = keys.iter().map(|key| slot::of(key.as_bytes()));
    let first = slots.next();
    let is_one = first.is_some() && slots.all(|slot| Some(slot) == first);
    debug_assert!(is_one, "keys without one slot: {keys:?}");
    first.filter(|_| is_one).ok_or(Trouble::Wrong("keys without one slot"))
}
