//! Resolves the names of seeds, again and again.
//!
//! Names change their addresses while a fleet lives, and may not resolve at all while it starts, so
//! resolving is a task of its own that nobody waits for.
//!
//! # Invariants
//! - At most [`SEEDS_MAX`] names and [`ADDRESSES_MAX`] addresses; one name may take
//!   [`RESOLVE_MAX`].

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::debug;

use crate::error::SEEDS_MAX;

/// A name may stand for all members (a headless service).
const ADDRESSES_MAX: usize = 1_024;

/// How long one name may take.
const RESOLVE_MAX: Duration = Duration::from_secs(5);

/// The time between two resolutions of all names.
const EVERY: Duration = Duration::from_secs(30);

/// The same while some name has no address.
const EVERY_UNRESOLVED: Duration = Duration::from_secs(2);

/// The seeds and what they resolve to.
pub(super) struct Seeds {
    names: watch::Sender<Vec<String>>,
    addresses: watch::Receiver<HashSet<SocketAddr>>,
}

impl Seeds {
    /// Returns the seeds and the task that resolves them.
    pub(super) fn new(names: Vec<String>) -> (Self, impl Future<Output = ()> + Send + use<>) {
        // Addresses need no resolving, so the first round has them.
        let literal = names.iter().filter_map(|name| name.parse().ok()).collect();
        let (names_in, names) = watch::channel(names);
        let (addresses_in, addresses) = watch::channel(literal);
        (Self { names: names_in, addresses }, resolve_on(names, addresses_in))
    }

    /// Adds seeds, as many as there is room for.
    pub(super) fn add(&self, more: Vec<String>) {
        self.names.send_modify(|names| {
            for name in more {
                if names.len() < SEEDS_MAX && !names.contains(&name) {
                    names.push(name);
                }
            }
        });
    }

    /// How many addresses of others than the node at `own` the seeds stand for; `None`: they stand for
    /// that node alone, which is how the first of a fleet is written, or there are none.
    pub(super) fn others(&self, own: SocketAddr) -> Option<usize> {
        let addresses = self.addresses.borrow();
        let others = addresses.iter().filter(|address| **address != own).count();
        let is_alone = match self.names.borrow().len() {
            0 => true,
            1 => others == 0 && !addresses.is_empty(),
            _ => false,
        };
        (!is_alone).then_some(others)
    }

    /// The addresses, in a random order.
    pub(super) fn shuffled(&self) -> Vec<SocketAddr> {
        let mut addresses: Vec<_> = self.addresses.borrow().iter().copied().collect();
        fastrand::shuffle(&mut addresses);
        addresses
    }
}

async fn resolve_on(
    mut names: watch::Receiver<Vec<String>>,
    addresses: watch::Sender<HashSet<SocketAddr>>,
) {
    loop {
        let wanted = names.borrow_and_update().clone();
        let mut found = HashSet::new();
        let mut is_whole = true;
        for name in &wanted {
            let resolved = resolve(name).await;
            is_whole &= !resolved.is_empty();
            let room = ADDRESSES_MAX.saturating_sub(found.len());
            found.extend(resolved.into_iter().take(room));
        }
        if addresses.send(found).is_err() {
            return;
        }
        let pause = if is_whole { EVERY } else { EVERY_UNRESOLVED };
        if let Ok(Err(_)) = timeout(pause, names.changed()).await {
            return;
        }
    }
}

/// The addresses of a `host:port`; none if it does not resolve in time.
pub(super) async fn resolve(name: &str) -> Vec<SocketAddr> {
    if let Ok(address) = name.parse() {
        return vec![address];
    }
    match timeout(RESOLVE_MAX, lookup_host(name)).await {
        Ok(Ok(addresses)) => addresses.collect(),
        Ok(Err(error)) => {
            debug!(name, %error, "a name does not resolve");
            Vec::new()
        }
        Err(_) => {
            debug!(name, "a name does not resolve in time");
            Vec::new()
        }
    }
}
