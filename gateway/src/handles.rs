//! How many files and sockets the process may have open at once, and who gets how many of them.
//!
//! A stream takes two sockets, and the limit that a shell or a service manager gives by default is
//! often 1,024: 500 streams. The limit that counts is the hard one; the soft one beside it stands for
//! programs that cannot cope with high numbers, which this one can.
//!
//! Clients alone must not use them up: a gateway that cannot call an endpoint, hear its operators or
//! speak with its fleet is of no use to those who got in. So each kind has its part, and whoever finds
//! the part of clients taken waits in the kernel's queue.
//!
//! Invariant: all parts together are no more than the limit, wherever that leaves room for them at all.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Each worker takes about this many for itself: its runtime's, its listener.
const OF_A_WORKER: usize = 6;
/// For gossip, Redis, the collector, names, certificates and the state file, or an eighth of all where
/// that is less.
const OWN: usize = 64;
/// Most connections of operators; a quarter of what is left to others where that is less.
const OPERATORS_MAX: usize = 256;
/// Taken where there is no limit.
const UNLIMITED: usize = 1 << 30;

/// Raises the soft limit of open files to the hard one, and says in the log what it is then. Where it
/// cannot be raised the process goes on with what it has.
pub fn raise() {
    let found = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: found.maximum, ..found });
    let limit = getrlimit(Resource::Nofile).current;
    match raised {
        Ok(()) => tracing::info!(before = found.current, limit, "open files"),
        Err(error) => tracing::warn!(%error, limit, "the limit of open files cannot be raised"),
    }
}

/// Who may have how many sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handles {
    /// Connections of clients, all workers together.
    pub clients: usize,
    /// Connections to endpoints, all workers together.
    pub endpoints: usize,
    /// Connections of operators.
    pub operators: usize,
}

impl Handles {
    /// What this process may have beside what it has open, once it has so many workers.
    pub fn found(workers: usize) -> Self {
        let limit = getrlimit(Resource::Nofile).current;
        let limit = limit.map_or(UNLIMITED, |limit| usize::try_from(limit).unwrap_or(UNLIMITED));
        let open = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        Self::of(limit, open + workers.saturating_mul(OF_A_WORKER))
    }

    /// The parts of `limit` beside `open`. One connection of a client may need one to an endpoint, so that
    /// both get the same; over HTTP/2 it may need a hundred, which is why endpoints have a bound of their
    /// own.
    fn of(limit: usize, open: usize) -> Self {
        let own = OWN.min(limit / 8);
        let rest = limit.saturating_sub(open).saturating_sub(own);
        let operators = (rest / 4).clamp(1, OPERATORS_MAX);
        let clients = (rest.saturating_sub(operators) / 2).max(1);
        Self { clients, endpoints: clients, operators }
    }
}

/// How many sockets of one kind there may be, and are.
#[derive(Debug)]
pub struct Sockets {
    /// Relaxed: the number orders nothing but itself.
    open: AtomicUsize,
    most: usize,
}

impl Sockets {
    /// At most this many.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { open: AtomicUsize::new(0), most })
    }

    /// The right to open one more. `None`: there are as many as there may be.
    pub fn take(self: &Arc<Self>) -> Option<Taken> {
        let more = |open: usize| (open < self.most).then_some(open + 1);
        let taken = self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Taken(Arc::clone(self)))
    }

    /// Whether more than three quarters are open: none is to rest, then, since whoever needs it may be
    /// on another thread.
    pub fn are_scarce(&self) -> bool {
        self.open.load(Ordering::Relaxed) > self.most / 4 * 3
    }
}

/// The right to one open socket, until it is dropped.
#[derive(Debug)]
pub struct Taken(Arc<Sockets>);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_and_endpoints_share_what_is_left() {
        let handles = Handles::of(64, 24);
        assert_eq!(handles, Handles { clients: 12, endpoints: 12, operators: 8 });
        let handles = Handles::of(1_024, 40);
        assert_eq!(handles, Handles { clients: 345, endpoints: 345, operators: 230 });
        let handles = Handles::of(1 << 20, 40);
        assert_eq!((handles.clients, handles.operators), (524_108, 256));
    }

    #[test]
    fn all_parts_together_are_no_more_than_the_limit_and_none_is_empty() {
        for limit in [0, 1, 16, 40, 64, 100, 256, 1_024, 4_096, 65_536, UNLIMITED] {
            for open in [0, 10, 30, 200] {
                let Handles { clients, endpoints, operators } = Handles::of(limit, open);
                assert!(clients > 0 && endpoints > 0 && operators > 0);
                let own = OWN.min(limit / 8);
                if open + own + 3 <= limit {
                    assert!(
                        open + own + clients + endpoints + operators <= limit,
                        "{limit} {open}"
                    );
                }
            }
        }
    }

    #[test]
    fn who_finds_all_sockets_open_gets_none_until_one_is_closed() {
        let sockets = Sockets::new(4);
        let mut taken: Vec<_> = (0..3).filter_map(|_| sockets.take()).collect();
        assert!(!sockets.are_scarce());
        taken.extend(sockets.take());
        assert!(sockets.are_scarce() && sockets.take().is_none());
        taken.pop();
        assert!(sockets.take().is_some());
    }
}
